//! `${name}` in the JSON strings of the user's `--template-file`. The built-in parts keep to the same rules (`parts`).
//!
//! A string that is nothing but `${name}` becomes the value itself, with its type; inside a longer string the value is
//! put in as text. A whole-string name whose value is null takes its key or its array element with it, so that optional
//! parts need no conditions. `$${` stands for a literal `${`. Only string values are looked at, never keys, and what was
//! put in is not looked at again: a value can bring neither names nor structure of its own.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use crate::json::Value;

/// Names and what they stand for.
pub(super) type Values<'a> = [(&'a str, Value)];

/// A name that nobody knows, as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownName(pub(super) String);

/// `part` with every name replaced; null when it was itself a name without a value.
pub(super) fn fill(mut part: Value, values: &Values<'_>) -> Result<Value, UnknownName> {
    let mut unknown = None;
    fill_in(&mut part, values, &mut unknown);
    match unknown {
        None => Ok(part),
        Some(unknown) => Err(unknown),
    }
}

/// Whether `part` is there: it is not when it was the name of something absent. Of what is unknown the first is told.
fn fill_in(part: &mut Value, values: &Values<'_>, unknown: &mut Option<UnknownName>) -> bool {
    match part {
        Value::String(text) if text.contains("${") => match replaced(text, values) {
            Ok(value) => {
                *part = value;
                return !part.is_null();
            }
            Err(name) => {
                unknown.get_or_insert(name);
            }
        },
        Value::Array(items) => items.retain_mut(|item| fill_in(item, values, unknown)),
        Value::Object(map) => map.retain(&mut |_, value| fill_in(value, values, unknown)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    true
}

fn replaced(text: &str, values: &Values<'_>) -> Result<Value, UnknownName> {
    let whole = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    if let Some(name) = whole.filter(|name| !name.contains('}')) {
        return value_of(name, values).cloned();
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            result.push_str(before);
            result.push_str("${");
            rest = after;
            continue;
        }
        let Some((name, after)) = after.split_once('}') else {
            return Err(UnknownName(format!("${{{after}")));
        };
        result.push_str(before);
        result.push_str(&as_text(value_of(name, values)?));
        rest = after;
    }
    result.push_str(rest);
    Ok(Value::String(result))
}

fn value_of<'a>(name: &str, values: &'a Values<'_>) -> Result<&'a Value, UnknownName> {
    let found = values.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, value)| value)
        .ok_or_else(|| UnknownName(format!("${{{name}}}")))
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
                Err(UnknownName(name.to_owned()))
            );
        }
    }
}
