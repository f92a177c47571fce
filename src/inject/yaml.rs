//! YAML of templates and configurations: the tree of `api`, with types for its scalars.
//!
//! A template's `15000` is a number or a string by the field's type, so the reader leaves it open. Without a schema
//! (values), plain scalars have the types of YAML 1.1, as Go reads them.

use std::fmt::Write as _;

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Number, Value as Json};

use api::yaml::{Limits, ResolvedScalar};
pub(crate) use api::yaml::{Malformed, Node, Scalar, Value};

/// Lists and objects within each other.
pub(crate) const MAX_DEPTH: usize = 128;
/// Scalars, lists and objects after aliases.
pub(crate) const MAX_NODES: usize = 100_000;
/// Bytes of a text at most.
const MAX_BYTES: usize = 6 << 20;

/// Reads one document. An empty one, comments apart, is `None`.
///
/// # Errors
///
/// The text is not one YAML document, or exceeds a limit; the error has its line.
pub fn read(text: &str) -> Result<Option<Node>, Malformed> {
    let node = api::yaml::read(
        text,
        Limits {
            bytes: MAX_BYTES,
            depth: MAX_DEPTH,
            nodes: MAX_NODES,
        },
    )?;
    Ok(node.filter(|node| !matches!(&node.value, Value::Scalar(scalar) if is_null(scalar))))
}

/// The value of a key, where this is an object that has it.
#[must_use]
pub(crate) fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node),
        Value::Scalar(_) | Value::List(_) => None,
    }
}

#[must_use]
pub(crate) fn is_null(scalar: &Scalar) -> bool {
    scalar.resolve() == ResolvedScalar::Null
}

/// The number that a plain scalar is, with its digits; `0644` is octal, as YAML 1.1 has it.
#[must_use]
pub(crate) fn number(scalar: &Scalar) -> Option<Number> {
    if !scalar.plain {
        return None;
    }
    integer(&scalar.text).or_else(|| float(&scalar.text))
}

/// The tree as JSON, by YAML 1.1's types.
#[must_use]
pub fn to_json(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(scalar) => scalar_to_json(scalar),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(key, node)| (key.clone(), to_json(node)))
                .collect(),
        ),
    }
}

#[must_use]
pub(crate) fn scalar_to_json(scalar: &Scalar) -> Json {
    if is_null(scalar) {
        return Json::Null;
    }
    // A lone letter is rather a key or a name than an answer.
    let boolean = scalar.boolean().filter(|_| scalar.text.len() > 1);
    boolean
        .map(Json::Bool)
        .or_else(|| number(scalar).map(Json::Number))
        .unwrap_or_else(|| Json::String(scalar.text.clone()))
}

/// An integer with the prefix of its base, where it has one; `0644` is octal.
pub(crate) fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    // YAML 1.1 has underscores between digits.
    let digits: Cow<'_, str> = if digits.contains('_') {
        digits.replace('_', "").into()
    } else {
        digits.into()
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..)?),
        Some("0o" | "0O") => (8, digits.get(2..)?),
        Some("0b" | "0B") => (2, digits.get(2..)?),
        Some(_)
            if digits.starts_with('0') && digits.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            (8, digits.get(1..)?)
        }
        _ => (10, digits.as_ref()),
    };
    // `from_str_radix` takes a sign, which may not follow a prefix such as `0x`.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    // The least i64 has no positive counterpart in 64 bits.
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let value = if negative { -value } else { value };
    i64::try_from(value)
        .map(Number::from)
        .or_else(|_| u64::try_from(value).map(Number::from))
        .ok()
}

fn float(text: &str) -> Option<Number> {
    let plain = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !plain.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        || !plain.contains(|digit: char| digit.is_ascii_digit())
    {
        return None;
    }
    if !plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
    {
        return None;
    }
    // A number that JSON can write keeps its digits.
    if let Ok(number) = serde_json::from_str::<Number>(text) {
        return Some(number);
    }
    Number::from_f64(text.parse().ok()?)
}

/// JSON as block YAML, keys sorted; it ends in a newline.
#[must_use]
pub(crate) fn print(value: &Json) -> String {
    let mut text = serde_saphyr::to_string(&JsonDisplay(value)).unwrap_or_default();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// JSON in one line that YAML reads, too: it refuses some letters that JSON takes as they are, and folds others.
#[must_use]
pub(crate) fn json(value: &Json) -> String {
    escaped(value.to_string())
}

/// Writes the value in block style.
#[must_use]
pub(crate) fn pretty_json(value: &Json) -> String {
    escaped(serde_json::to_string_pretty(value).unwrap_or_default())
}

/// These characters occur in strings only: the rest of JSON is ASCII.
fn escaped(text: String) -> String {
    let stays = |letter: char| {
        !matches!(
            letter,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
    };
    if text.chars().all(stays) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if stays(letter) {
            out.push(letter);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        }
    }
    out
}

/// A value as its serializer wants it: numbers as numbers, keys in order.
struct JsonDisplay<'a>(&'a Json);

impl Serialize for JsonDisplay<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::Null => to.serialize_unit(),
            Json::Bool(value) => to.serialize_bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => to.serialize_i64(value),
                (None, Some(value)) => to.serialize_u64(value),
                (None, None) => to.serialize_f64(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => to.serialize_str(text),
            Json::Array(items) => {
                let mut list = to.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Self(item))?;
                }
                list.end()
            }
            Json::Object(entries) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                let mut map = to.serialize_map(Some(entries.len()))?;
                for (key, value) in sorted {
                    map.serialize_entry(key, &Self(value))?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn value(text: &str) -> Json {
        read(text)
            .unwrap()
            .map_or(Json::Null, |node| to_json(&node))
    }

    #[test]
    fn json_is_yaml_whatever_it_says() {
        for text in [
            "a\u{7f}b",
            "\u{80}\u{85}\u{9f}",
            "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}",
            "é\u{a0}\u{1fffe}\n\0\"\\",
        ] {
            let wanted = json!({text: [text]});
            assert_eq!(value(&json(&wanted)), wanted);
            assert_eq!(value(&pretty_json(&wanted)), wanted);
            assert_eq!(value(&print(&wanted)), wanted, "{}", print(&wanted));
            assert_eq!(
                serde_json::from_str::<Json>(&json(&wanted)).unwrap(),
                wanted
            );
        }
        assert_eq!(json(&json!("\u{7f}\u{fffe}")), r#""\u007f\ufffe""#);
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        let list = value(
            "[yes, Off, '1', 0644, 0x10, 1_000, 1.5, -3, ~, 'no', x, y, 1e3, .5, 1.2.3, !!str 12, 0o17]",
        );
        let number = |text| serde_json::from_str::<Number>(text).unwrap();
        assert_eq!(
            list,
            json!([
                true,
                false,
                "1",
                420,
                16,
                1000,
                number("1.5"),
                -3,
                null,
                "no",
                "x",
                "y",
                number("1e3"),
                0.5,
                "1.2.3",
                "12",
                15
            ])
        );
        assert_eq!(
            value("a: 1152921504606846977").to_string(),
            r#"{"a":1152921504606846977}"#
        );
    }

    #[test]
    fn nothing_is_nothing() {
        for text in [
            "",
            "\n\n",
            "# only\n# comments\n",
            "---\n",
            "---\n# x\n...\n",
            "null",
            "~",
        ] {
            assert!(read(text).unwrap().is_none(), "{text:?}");
        }
    }

    #[test]
    fn invalid_yaml_is_an_error_with_its_line() {
        assert_eq!(read("a: 1\nb: 2\na: 3\n").unwrap_err().line, 3);
        assert!(read("a:\n  - [b\n").unwrap_err().line >= 2);
        assert!(read("a: *x").is_err());
    }

    #[test]
    fn a_bomb_is_an_error() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let inner = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", vec![inner; 10].join(", "));
        }
        assert!(read(&text).is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn it_prints_blocks() {
        let value = json!({"b": [1, {"c": "yes", "a": null}], "a": "x: y", "l": "one\ntwo", "e": {}, "n": "012", "f": []});
        assert_eq!(self::value(&print(&value)), value);
        assert_eq!(print(&json!({"b": 1, "a": ["x"]})), "a:\n- x\nb: 1\n");
    }

    fn json_value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            "[ -~]{0,12}".prop_map(Json::from),
            "[yYnNoOfF0-9.:_eEx~-]{0,6}".prop_map(Json::from),
            "[ a\t\n#é]{0,8}".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[ -~]{1,6}", inner, 0..4).prop_map(
                    |map| Json::Object(map.into_iter().filter(|(key, _)| key != "<<").collect())
                ),
            ]
        })
    }

    proptest! {
        #[test]
        fn printed_values_are_read_again(printed in json_value()) {
            prop_assert_eq!(value(&print(&printed)), printed);
        }
    }
}
