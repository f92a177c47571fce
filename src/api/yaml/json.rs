//! The same tree, from JSON that was read elsewhere, such as an object of an API server.

use serde_json::Value as Json;

use super::{Node, Scalar, Value};

impl Node {
    /// The tree of JSON that somebody else read, and bounded; it has no lines.
    #[must_use]
    pub fn of_json(json: &Json) -> Self {
        let scalar = |text: String, plain| Value::Scalar(Scalar { text, plain });
        let value = match json {
            Json::Null => scalar(String::new(), true),
            Json::Bool(value) => scalar(value.to_string(), true),
            Json::Number(number) => scalar(number.to_string(), true),
            Json::String(text) => scalar(text.clone(), false),
            Json::Array(items) => Value::List(items.iter().map(Self::of_json).collect()),
            Json::Object(fields) => Value::Map(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), Self::of_json(value)))
                    .collect(),
            ),
        };
        Self { line: 0, value }
    }
}
