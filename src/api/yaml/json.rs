//! Conversions of the tree from JSON that was read elsewhere, such as an object of an API server, and to JSON.

use serde_json::{Number, Value as Json};

use super::{Node, ResolvedScalar, Scalar, Value};

impl Node {
    /// Returns the tree of JSON whose reader has bounded it; the tree has no lines.
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
        Self {
            line: 0,
            begin: None,
            value,
        }
    }

    /// Returns the tree as JSON, each scalar by its own meaning. A number that JSON lacks is text.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Scalar(scalar) => match scalar.resolve() {
                ResolvedScalar::Null => Json::Null,
                ResolvedScalar::Bool(value) => Json::Bool(value),
                ResolvedScalar::Int(whole) => number(Number::from_i128(whole), scalar),
                ResolvedScalar::Float(value) => number(Number::from_f64(value), scalar),
                ResolvedScalar::Text => Json::String(scalar.text.clone()),
            },
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|(name, value)| (name.clone(), value.to_json()))
                    .collect(),
            ),
        }
    }
}

fn number(read: Option<Number>, scalar: &Scalar) -> Json {
    read.map_or_else(|| Json::String(scalar.text.clone()), Json::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::yaml::{Limits, read};

    #[test]
    fn a_tree_is_json_and_back() {
        let text = "{a: [1, -2.5, 0x10, ~, yes, true, '1', .inf], b: {c: x}, d: []}";
        let limits = Limits {
            bytes: 100,
            depth: 5,
            nodes: 50,
        };
        let tree = read(text, limits).unwrap().unwrap();
        let want =
            json!({"a": [1, -2.5, 16, null, "yes", true, "1", ".inf"], "b": {"c": "x"}, "d": []});
        assert_eq!(tree.to_json(), want);
        assert_eq!(Node::of_json(&want).to_json(), want);
    }
}
