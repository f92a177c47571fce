//! `${name}` in the JSON strings of the user's `--template-file`. The built-in parts keep to the same rules (`parts`).
//!
//! A string that is nothing but `${name}` becomes the value itself, with its type; inside a longer string the value is
//! put in as text. A whole-string name whose value is null takes its key or its array element with it, so that optional
//! parts need no conditions. `$${` stands for a literal `${`. Only string values are looked at, never keys, and what was
//! put in is not looked at again: a value can bring neither names nor structure of its own.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use super::files::DOCUMENT_BYTES;
use crate::json::Value;
use crate::search;

/// Names and what they stand for.
pub(super) type Values<'a> = [(&'a str, Value)];

/// Why there is no document: a name that nobody knows, say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfilled(pub(super) String);

/// `part` with every name replaced; null when it was itself a name without a value.
pub(super) fn fill(mut part: Value, values: &Values<'_>) -> Result<Value, Unfilled> {
    let mut filler = Filler {
        values,
        left: DOCUMENT_BYTES,
        unfilled: None,
    };
    filler.fill(&mut part);
    match filler.unfilled {
        None => Ok(part),
        Some(unfilled) => Err(unfilled),
    }
}

struct Filler<'v> {
    values: &'v Values<'v>,
    /// Bytes that may still be put in: a short name may stand for a long value, and a million times.
    left: usize,
    /// The first one.
    unfilled: Option<Unfilled>,
}

impl Filler<'_> {
    /// Whether `part` is there: it is not when it was the name of something absent.
    fn fill(&mut self, part: &mut Value) -> bool {
        match part {
            Value::String(text) if self.unfilled.is_none() && search::contains(text, "${") => {
                match self.replaced(text) {
                    Ok(value) => {
                        *part = value;
                        return !part.is_null();
                    }
                    Err(unfilled) => self.unfilled = Some(unfilled),
                }
            }
            Value::Array(items) => items.retain_mut(|item| self.fill(item)),
            Value::Object(map) => map.retain(&mut |_, value| self.fill(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        true
    }

    fn replaced(&mut self, text: &str) -> Result<Value, Unfilled> {
        let whole = text
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'));
        if let Some(name) = whole.filter(|name| !name.contains('}')) {
            let value = value_of(name, self.values)?;
            self.put(size(value))?;
            return Ok(value.clone());
        }
        self.replaced_in(text)
    }

    fn put(&mut self, size: usize) -> Result<(), Unfilled> {
        let left = self.left.checked_sub(size);
        self.left = left.ok_or_else(|| Unfilled("larger than 4 MiB".to_owned()))?;
        Ok(())
    }

    fn replaced_in(&mut self, text: &str) -> Result<Value, Unfilled> {
        let mut result = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = search::split_once(rest, "${") {
            if let Some(before) = before.strip_suffix('$') {
                result.push_str(before);
                result.push_str("${");
                rest = after;
                continue;
            }
            let Some((name, after)) = after.split_once('}') else {
                return Err(unknown(&["${", after]));
            };
            let value = as_text(value_of(name, self.values)?);
            self.put(value.len())?;
            result.push_str(before);
            result.push_str(&value);
            rest = after;
        }
        result.push_str(rest);
        Ok(Value::String(result))
    }
}

/// Bytes of a value's text, about.
fn size(value: &Value) -> usize {
    // A comma, a colon, quotes or brackets.
    4 + match value {
        Value::Null | Value::Bool(_) => 0,
        Value::Number(number) => number.as_str().len(),
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
    }
}

fn unknown(name: &[&str]) -> Unfilled {
    Unfilled(["unknown name ", &name.concat()].concat())
}

fn value_of<'a>(name: &str, values: &'a Values<'_>) -> Result<&'a Value, Unfilled> {
    let found = values.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, value)| value)
        .ok_or_else(|| unknown(&["${", name, "}"]))
}

/// A value inside a longer string: strings bare, nothing for null, the rest as JSON.
fn as_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Cow::Owned(value.compact())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    fn values() -> Vec<(&'static str, Value)> {
        vec![
            ("port", json!(15000)),
            ("name", json!("a\"b\n${port}")),
            ("ports", json!([1, 2])),
            ("off", json!(false)),
            ("absent", Value::Null),
        ]
    }

    #[test]
    fn a_whole_string_takes_the_type_of_its_value() {
        let part = json!({"p": "${port}", "l": ["${ports}", "${off}"], "n": "${name}", "x": null});
        let expected = json!({"p": 15000, "l": [[1, 2], false], "n": "a\"b\n${port}", "x": null});
        assert_eq!(fill(part, &values()), Ok(expected));
    }

    #[test]
    fn inside_a_longer_string_values_are_text() {
        let part = json!(["h:${port}", "${port}${off}", "${ports}!", "<${absent}>"]);
        let expected = json!(["h:15000", "15000false", "[1,2]!", "<>"]);
        assert_eq!(fill(part, &values()), Ok(expected));
    }

    #[test]
    fn an_absent_value_takes_its_place_with_it() {
        let part = json!({"a": "${absent}", "l": [1, "${absent}", null]});
        assert_eq!(fill(part, &values()), Ok(json!({"l": [1, null]})));
    }

    #[test]
    fn a_doubled_dollar_is_a_literal_one() {
        let part = json!(["$${port}", "a$${x ${port}", "$5", "$", "%REQ(:path)%"]);
        let expected = json!(["${port}", "a${x 15000", "$5", "$", "%REQ(:path)%"]);
        assert_eq!(fill(part, &values()), Ok(expected));
    }

    #[test]
    fn unknown_and_unfinished_names_are_named() {
        for (text, name) in [
            ("${nope}", "${nope}"),
            ("x ${} y", "${}"),
            ("x ${port", "${port"),
            ("${a ${port}", "${a ${port}"),
        ] {
            assert_eq!(
                fill(json!([{"k": text}]), &values()),
                Err(Unfilled(["unknown name ", name].concat()))
            );
        }
    }

    #[test]
    fn values_cannot_make_a_document_larger_than_the_bound() {
        let long = json!({"k": "x".repeat(100_000)});
        let values = [("long", long), ("short", json!("y"))];
        let whole = |count| Value::Array(vec![Value::from("${long}"); count]);
        let inside = |count| Value::from("${long}${short}".repeat(count));
        let refused = Err(Unfilled("larger than 4 MiB".to_owned()));
        for (few, many) in [(whole(41), whole(42)), (inside(41), inside(42))] {
            assert!(fill(few, &values).is_ok());
            assert_eq!(fill(many, &values), refused);
        }
    }
}
