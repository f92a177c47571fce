//! YAML (and JSON, which is a part of it) into a tree that keeps text, quotes and lines.
//!
//! The reader of a field decides what a scalar means (`read`), so that `15000` may be text and `OFF` a name. Bounded by bytes,
//! depth and nodes; an alias counts for all nodes of its anchor, before they are copied.

mod builder;
mod documents;
mod indent;
mod input;
mod json;
mod outline;
mod quoted;
mod scalar;

use std::fmt;

pub use documents::{Documents, Piece, documents};
pub use outline::{Outline, Outlines, outlines};

pub use scalar::{ResolvedScalar, Scalar};

/// Bounds on a text and on the tree that it becomes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: usize,
    pub depth: usize,
    /// After aliases.
    pub nodes: usize,
}

impl Limits {
    /// The cause where there are more values than may be.
    pub(crate) fn too_many(&self) -> String {
        format!("more than {} values", self.nodes)
    }
}

/// A value, and the line where it begins.
#[derive(Clone, Debug)]
pub struct Node {
    pub line: usize,
    /// The place where a scalar begins, in bytes of the text; `None` if it may stand in other places, too, by an alias.
    pub begin: Option<usize>,
    pub value: Value,
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order of the text; no key twice.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// As a part of a text that begins so many lines above it.
    pub fn move_down(&mut self, lines: usize) {
        self.line = self.line.saturating_add(lines);
        match &mut self.value {
            Value::Scalar(_) => {}
            Value::List(items) => items.iter_mut().for_each(|item| item.move_down(lines)),
            Value::Map(entries) => {
                entries
                    .iter_mut()
                    .for_each(|(_, value)| value.move_down(lines));
            }
        }
    }

    /// Returns true for a null: an empty plain scalar, `~` or `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.resolve() == ResolvedScalar::Null,
            Value::List(_) | Value::Map(_) => false,
        }
    }
}

/// The tags that may stand in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tags {
    Any,
    /// The tags of YAML's core schema, each on values of its type.
    Core,
}

/// Why text is no such tree. Line 0 is the text as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub line: usize,
    pub cause: String,
    pub kind: MalformedKind,
}

/// The reasons that a reader of documents has a remedy for, and all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MalformedKind {
    /// There are more values than [`Limits::nodes`].
    TooManyValues,
    #[default]
    Other,
}

impl fmt::Display for Malformed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(to, "{}", self.cause),
            line => write!(to, "line {line}: {}", self.cause),
        }
    }
}

impl std::error::Error for Malformed {}

/// The one document in a text; `None` where there is nothing but blanks and comments.
///
/// # Errors
///
/// A text that is no YAML, more than the limits allow, a key twice, a key that is no scalar, a second document.
pub fn read(text: &str, limits: Limits) -> Result<Option<Node>, Malformed> {
    only(Documents::new(text, limits, Tags::Any))
}

/// As [`read`], with no tags but those of the core: for configuration of the mesh.
///
/// # Errors
///
/// As [`read`], a tag beyond the core schema, and a value that does not match its tag.
pub fn read_core(text: &str, limits: Limits) -> Result<Option<Node>, Malformed> {
    only(Documents::new(text, limits, Tags::Core))
}

fn only(mut all: Documents<'_>) -> Result<Option<Node>, Malformed> {
    let Some(first) = all.next() else {
        return Ok(None);
    };
    let first = first?;
    match all.next() {
        None => Ok(Some(first)),
        Some(Ok(_)) => Err(malformed(all.line(), "more than one document")),
        Some(Err(malformed)) => Err(malformed),
    }
}

fn malformed(line: usize, cause: impl Into<String>) -> Malformed {
    Malformed {
        line,
        cause: cause.into(),
        kind: MalformedKind::Other,
    }
}

#[cfg(test)]
mod tests;
