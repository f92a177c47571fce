//! YAML (and JSON, which is a part of it) into a tree that keeps what was written: text, quotes and lines.
//!
//! What a scalar means is decided by whoever knows what is wanted (`read`), so that `15000` may be text and `OFF` a name.
//! Bounded by bytes, depth and nodes; an alias counts all that it stands for, before it is copied.

mod json;
mod scalar;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

pub(crate) use scalar::number;
pub use scalar::{Plain, Scalar};

/// How much text may be, and what it may become.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: usize,
    pub depth: usize,
    /// After aliases.
    pub nodes: usize,
}

/// A value, and the line where it begins.
#[derive(Clone, Debug)]
pub struct Node {
    pub line: usize,
    /// Where a scalar begins, in bytes of the text; `None` where it may stand in other places, too, by an alias.
    pub begin: Option<usize>,
    pub value: Value,
}

/// What was written.
#[derive(Clone, Debug)]
pub enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order of the text; no key twice.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.plain() == Plain::Null,
            Value::List(_) | Value::Map(_) => false,
        }
    }
}

/// Why text is no such tree. Line 0 is the text as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub line: usize,
    pub cause: String,
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
/// What is no YAML, more than the limits allow, a key twice, a key that is no scalar, a second document.
pub fn read(text: &str, limits: Limits) -> Result<Option<Node>, Malformed> {
    if text.len() > limits.bytes {
        return Err(malformed(0, format!("longer than {} bytes", limits.bytes)));
    }
    let mut options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
    };
    // Else a long comment is an error, where another crate has switched them on.
    options.set_emit_comments(false);
    let mut builder = Builder::new(limits);
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) =
            event.map_err(|error| malformed(error.marker().line(), error.info()))?;
        builder.take(event, span)?;
    }
    Ok(builder.root.map(|built| built.node))
}

fn malformed(line: usize, cause: impl Into<String>) -> Malformed {
    Malformed {
        line,
        cause: cause.into(),
    }
}

/// A node with what copying it costs.
#[derive(Clone)]
struct Built {
    node: Node,
    cost: Cost,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    /// Of text.
    bytes: usize,
    /// Lists and objects within each other.
    levels: usize,
}

/// What is open while its parts come.
struct Open {
    line: usize,
    anchor: usize,
    cost: Cost,
    parts: Parts,
}

enum Parts {
    List(Vec<Node>),
    Map {
        entries: Vec<(String, Node)>,
        known: BTreeSet<String>,
        /// Waiting for its value.
        key: Option<Key>,
        /// Values of `<<`.
        merged: Vec<Node>,
    },
}

enum Key {
    Name(String),
    /// `<<`: the entries of other maps, where this one lacks them.
    Merge,
}

struct Builder {
    limits: Limits,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Built>,
    /// There was an anchor: what follows may be a part of it.
    anchored: bool,
    nodes: usize,
    bytes: usize,
    documents: usize,
    root: Option<Built>,
}

impl Builder {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: Vec::new(),
            anchors: BTreeMap::new(),
            anchored: false,
            nodes: 0,
            bytes: 0,
            documents: 0,
            root: None,
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "of the stream, or presentation: there may be more of it"
    )]
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Malformed> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(malformed(line, "more than one document"));
                }
                Ok(())
            }
            Event::Alias(anchor) => {
                let Some(cost) = self.anchors.get(&anchor).map(|built| built.cost) else {
                    return Err(malformed(line, "an alias inside of what it stands for"));
                };
                self.pay(line, cost)?;
                match self.anchors.get(&anchor).cloned() {
                    Some(built) => self.place(built, line),
                    None => Ok(()),
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let cost = Cost {
                    nodes: 1,
                    bytes: text.len(),
                    levels: 0,
                };
                self.pay(line, cost)?;
                let scalar = Scalar {
                    text: text.into_owned(),
                    plain: is_plain(style, tag.as_deref()),
                };
                self.anchored |= anchor != 0;
                let begin = span.start.byte_offset();
                let node = Node {
                    line,
                    begin: begin.filter(|_| !self.anchored),
                    value: Value::Scalar(scalar),
                };
                self.finish(Built { node, cost }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(line, anchor, Parts::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let parts = Parts::Map {
                    entries: Vec::new(),
                    known: BTreeSet::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.begin(line, anchor, parts)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    /// Before anything is kept.
    fn pay(&mut self, line: usize, cost: Cost) -> Result<(), Malformed> {
        self.nodes = self.nodes.saturating_add(cost.nodes);
        if self.nodes > self.limits.nodes {
            return Err(malformed(
                line,
                format!("more than {} values", self.limits.nodes),
            ));
        }
        // Without aliases a text has hardly more bytes than its source.
        self.bytes = self.bytes.saturating_add(cost.bytes);
        let most = self.limits.bytes.saturating_mul(2);
        if self.bytes > most {
            return Err(malformed(line, format!("more than {most} bytes of text")));
        }
        if self.open.len().saturating_add(cost.levels) > self.limits.depth {
            return Err(malformed(
                line,
                format!("nested deeper than {}", self.limits.depth),
            ));
        }
        Ok(())
    }

    fn begin(&mut self, line: usize, anchor: usize, parts: Parts) -> Result<(), Malformed> {
        let cost = Cost {
            nodes: 1,
            bytes: 0,
            levels: 1,
        };
        self.pay(line, cost)?;
        self.anchored |= anchor != 0;
        self.open.push(Open {
            line,
            anchor,
            cost,
            parts,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Malformed> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.parts {
            Parts::List(items) => Value::List(items),
            Parts::Map {
                mut entries,
                mut known,
                merged,
                ..
            } => {
                for node in merged {
                    merge(node, &mut entries, &mut known)?;
                }
                Value::Map(entries)
            }
        };
        let node = Node {
            line: open.line,
            begin: None,
            value,
        };
        let built = Built {
            node,
            cost: open.cost,
        };
        self.finish(built, open.anchor)
    }

    fn finish(&mut self, built: Built, anchor: usize) -> Result<(), Malformed> {
        let line = built.node.line;
        if anchor != 0 {
            // A copy waits for its aliases.
            self.pay(line, built.cost)?;
            self.anchors.insert(anchor, built.clone());
        }
        self.place(built, line)
    }

    /// `line`: where it stands, which for an alias is not where it was written.
    fn place(&mut self, built: Built, line: usize) -> Result<(), Malformed> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(built);
            return Ok(());
        };
        open.cost.nodes = open.cost.nodes.saturating_add(built.cost.nodes);
        open.cost.bytes = open.cost.bytes.saturating_add(built.cost.bytes);
        open.cost.levels = open.cost.levels.max(built.cost.levels.saturating_add(1));
        match &mut open.parts {
            Parts::List(items) => items.push(built.node),
            Parts::Map {
                entries,
                known,
                key,
                merged,
            } => match key.take() {
                None => *key = Some(name(built.node, known)?),
                Some(Key::Merge) => merged.push(Node { line, ..built.node }),
                Some(Key::Name(name)) => entries.push((name, built.node)),
            },
        }
        Ok(())
    }
}

/// A key that is new.
fn name(node: Node, known: &mut BTreeSet<String>) -> Result<Key, Malformed> {
    let Value::Scalar(scalar) = node.value else {
        return Err(malformed(node.line, "a key that is a list or an object"));
    };
    if scalar.plain && scalar.text == "<<" {
        return Ok(Key::Merge);
    }
    if !known.insert(scalar.text.clone()) {
        return Err(malformed(
            node.line,
            format!("the key {:?} twice", scalar.text),
        ));
    }
    Ok(Key::Name(scalar.text))
}

fn merge(
    node: Node,
    entries: &mut Vec<(String, Node)>,
    known: &mut BTreeSet<String>,
) -> Result<(), Malformed> {
    match node.value {
        Value::Map(other) => {
            for (key, value) in other {
                if known.insert(key.clone()) {
                    entries.push((key, value));
                }
            }
            Ok(())
        }
        Value::List(others) => others
            .into_iter()
            .try_for_each(|other| merge_one(other, entries, known)),
        Value::Scalar(_) => Err(malformed(node.line, "`<<` wants an object")),
    }
}

/// An element of `<<: [*a, *b]`.
fn merge_one(
    node: Node,
    entries: &mut Vec<(String, Node)>,
    known: &mut BTreeSet<String>,
) -> Result<(), Malformed> {
    match node.value {
        Value::Map(_) => merge(node, entries, known),
        Value::List(_) | Value::Scalar(_) => Err(malformed(node.line, "`<<` wants an object")),
    }
}

/// Whether a scalar may be something else than text.
fn is_plain(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag.and_then(Tag::core_suffix) {
        Some("str" | "binary") => false,
        Some("null" | "bool" | "int" | "float") => true,
        _ => matches!(style, ScalarStyle::Plain),
    }
}

#[cfg(test)]
mod tests;
