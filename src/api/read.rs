//! Trees of YAML, and JSON, as messages that have a type: by the table of each (`config`), through the wire.
//!
//! Files of the mesh outlive releases: unknown fields are remembered by their paths and left out. The first error is reported, with
//! its line.

use std::fmt;

use serde_json::{Map, Value as Json};

use crate::config::document::Part;
use crate::config::{Finding, read_known};
use crate::schema::{Field, FieldKind, Message, Shape, Typed};
use crate::wire;
use crate::yaml::{Malformed, Node, Value};

/// An error in a text, with its path and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// `defaultConfig.drainDuration`, empty for the text as a whole.
    pub path: String,
    /// The line where the value begins; 0 for an error of the text as a whole.
    pub line: usize,
    pub cause: String,
}

impl Invalid {
    /// An error of the text as a whole, without path or line.
    pub(crate) fn of_text(cause: impl fmt::Display) -> Self {
        Self {
            path: String::new(),
            line: 0,
            cause: cause.to_string(),
        }
    }

    /// An error from a finding about a tree, with the line of the finding's path.
    pub(crate) fn at(finding: Finding, tree: &Node) -> Self {
        Self {
            line: Part::new(tree).line(&finding.path),
            path: finding.path,
            cause: finding.message,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(to, "line {}: ", self.line)?;
        }
        if !self.path.is_empty() {
            write!(to, "{}: ", self.path)?;
        }
        write!(to, "{}", self.cause)
    }
}

impl std::error::Error for Invalid {}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self {
            path: String::new(),
            line: malformed.line,
            cause: malformed.cause,
        }
    }
}

/// A message that was read from a tree, as proto JSON in its one spelling.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) fields: Map<String, Json>,
    /// All unknown fields in one.
    pub(crate) warnings: Vec<String>,
}

/// A tree against the table of its message.
pub(crate) fn tree(message: &'static Message, node: &Node) -> Result<Read, Finding> {
    json(message, &written(message, node))
}

/// Reads a message from parsed JSON.
pub(crate) fn json(message: &'static Message, value: &Json) -> Result<Read, Finding> {
    let (read, findings, unknown) = read_known(message, value);
    if let Some(first) = findings.into_iter().find(Finding::is_error) {
        return Err(first);
    }
    let Json::Object(fields) = read else {
        return Err(Finding::error("", "expected an object"));
    };
    let more = match unknown.others {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let names = unknown.named.join(", ");
    let warning = format!("unknown fields are ignored: {names}{more}");
    Ok(Read {
        fields,
        warnings: (!names.is_empty()).then_some(warning).into_iter().collect(),
    })
}

/// Decodes canonical JSON to its type.
pub(crate) fn typed<T: Typed>(read: &Json) -> Result<T, Invalid> {
    let bytes = wire::encode(T::MESSAGE, read);
    T::decode(bytes.as_slice()).map_err(Invalid::of_text)
}

/// Returns a message as proto JSON: lowerCamel names, without unset fields.
pub(crate) fn to_json<T: Typed>(message: &T) -> Result<Map<String, Json>, Invalid> {
    match wire::decode(T::MESSAGE, &message.encode_to_vec()) {
        Ok(Json::Object(fields)) => Ok(fields),
        Ok(_) => Ok(Map::new()),
        Err(malformed) => Err(Invalid::of_text(malformed)),
    }
}

/// A tree as JSON: plain words are text but where a boolean is wanted, so that `OFF` can be a name.
pub(crate) fn written(message: &'static Message, node: &Node) -> Json {
    let Value::Map(entries) = &node.value else {
        return node.to_json();
    };
    let field = |(name, node): &(String, Node)| {
        let value = message
            .field(name)
            // Of an unknown field only the name counts: it is reported and left out.
            .map_or(Json::Null, |field| all(field, node));
        (name.clone(), value)
    };
    Json::Object(entries.iter().map(field).collect())
}

fn all(field: &Field, node: &Node) -> Json {
    match (field.shape, &node.value) {
        (Shape::One, _) => one(field.kind, node),
        (Shape::List, Value::List(items)) => {
            items.iter().map(|item| one(field.kind, item)).collect()
        }
        (Shape::Map(_), Value::Map(entries)) => {
            let entries = entries.iter();
            Json::Object(
                entries
                    .map(|(key, value)| (key.clone(), one(field.kind, value)))
                    .collect(),
            )
        }
        (Shape::List | Shape::Map(_), _) => node.to_json(),
    }
}

fn one(kind: FieldKind, node: &Node) -> Json {
    match (kind, &node.value) {
        (FieldKind::Message(message), _) => written(message, node),
        (FieldKind::Wrapper(kind), _) => one(*kind, node),
        (FieldKind::Bool, Value::Scalar(scalar)) => {
            scalar.boolean().map_or_else(|| node.to_json(), Json::Bool)
        }
        _ => node.to_json(),
    }
}
