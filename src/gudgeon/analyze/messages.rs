//! Findings and their places.

use super::codes::{self, Code};
use super::inventory::Item;

/// One finding.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) code: &'static Code,
    /// The number of the object.
    pub(super) item: usize,
    /// The place in the object; empty: the object as a whole.
    pub(super) path: String,
    pub(super) text: String,
}

/// One finding with its place in a file.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(super) code: &'static Code,
    pub(crate) kind: String,
    /// Empty for what belongs to the whole cluster.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty where a cluster has it.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Located {
    /// `KIND NAMESPACE/NAME`.
    pub(super) fn origin(&self) -> String {
        match self.namespace.is_empty() {
            true => format!("{} {}", self.kind, self.name),
            false => format!("{} {}/{}", self.kind, self.namespace, self.name),
        }
    }

    /// `FILE:LINE`; nothing of an object that a cluster has.
    pub(super) fn reference(&self) -> String {
        match self.file.as_str() {
            "" => String::new(),
            file => format!("{file}:{}", self.line),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.code.level == crate::cli::Level::Error
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code.name
    }

    /// Returns true if the object by itself has it.
    pub(crate) fn is_of_one(&self) -> bool {
        [
            &codes::DEPRECATED,
            &codes::INVALID,
            &codes::NOTED,
            &codes::UNREACHABLE,
        ]
        .contains(&self.code)
    }

    /// Renders the message with its code, on one line.
    pub(super) fn as_line(&self) -> String {
        let place = match self.path.as_str() {
            "" => String::new(),
            path => format!("{path}: "),
        };
        format!(
            "{} [{}] ({}) {place}{}",
            self.code.level.as_str(),
            self.code.name,
            [self.origin(), self.reference()].join(" ").trim_end(),
            self.text
        )
    }
}

pub(super) fn push(
    messages: &mut Vec<Message>,
    code: &'static Code,
    item: &Item,
    path: impl Into<String>,
    text: impl Into<String>,
) {
    messages.push(Message {
        code,
        item: item.number,
        path: path.into(),
        text: text.into(),
    });
}

/// Tells that the object of a reference does not exist.
pub(super) fn missing(
    messages: &mut Vec<Message>,
    item: &Item,
    path: &str,
    what: &str,
    name: &str,
) {
    let message = format!("the {what} {name:?} does not exist");
    push(messages, &codes::NOT_FOUND, item, path, message);
}
