//! Writes an object as block YAML: keys in their order, and values that YAML 1.1 and 1.2 parse as the same type.

use serde::ser::{Error as _, Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Number, Value, json};

/// The object, ending in a newline.
pub(super) fn print(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        // Long lines stay lines; texts of several are blocks.
        folded_wrap_chars: usize::MAX,
    };
    let mut text = serde_saphyr::to_string_with_options(&Ordered(value), options)
        .map_err(|cause| cause.to_string())?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Renders an object except for one list in it: the text before its elements, and the text behind them.
///
/// # Errors
/// The object cannot be written, or not in this form.
pub(super) fn print_around(value: &Value, list: &str) -> Result<(String, String), String> {
    let text = print(value)?;
    let empty = format!("{list}: []\n");
    let mut places = text.match_indices(&empty).map(|(at, _)| at);
    let at =
        // Only at the beginning of a line the key is the object's own.
        places.find(|at| *at == 0 || text.get(..*at).is_some_and(|before| before.ends_with('\n')));
    let (before, behind) = at
        .and_then(|at| Some((text.get(..at)?, text.get(at + empty.len()..)?)))
        .ok_or_else(|| format!("no place for {list}"))?;
    Ok((format!("{before}{list}:\n"), behind.to_owned()))
}

/// Renders an element of such a list.
///
/// # Errors
/// The element cannot be written.
pub(super) fn print_element(value: &Value, list: &str) -> Result<String, String> {
    let whole = print(&json!({list: [value]}))?;
    let begin = format!("{list}:\n");
    let text = whole.strip_prefix(&begin).map(ToOwned::to_owned);
    text.ok_or_else(|| format!("no element of {list}"))
}

struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => to.serialize_unit(),
            Value::Bool(value) => to.serialize_bool(*value),
            Value::Number(value) => number(value, to),
            Value::String(text) => to.serialize_str(text),
            Value::Array(items) => {
                let mut list = to.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Self(item))?;
                }
                list.end()
            }
            Value::Object(entries) => {
                let mut map = to.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &Self(value))?;
                }
                map.end()
            }
        }
    }
}

fn number<S: Serializer>(number: &Number, to: S) -> Result<S::Ok, S::Error> {
    let text = number.to_string();
    if let Ok(whole) = text.parse::<i64>() {
        return to.serialize_i64(whole);
    }
    if let Ok(whole) = text.parse::<i128>() {
        return to.serialize_i128(whole);
    }
    // More digits than a float has must not be rounded.
    let whole = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    match text.parse::<f64>() {
        _ if whole => Err(S::Error::custom(format_args!(
            "no YAML for the number {text}"
        ))),
        Ok(float) if float.is_finite() => to.serialize_f64(float),
        Ok(_) | Err(_) => Err(S::Error::custom(format_args!(
            "no YAML for the number {text}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_values_their_type() {
        let value: Value = serde_json::from_str(
            r#"{"z":1,"a":["yes","0644","1e3",true,null,1.0,1152921504606846977,18446744073709551615,1.10,"y","2001-01-01","12:30"],
            "m":{"k":"one\ntwo\n","e":{},"l":[],"s":""},"b":"a: b # c","long":"LONG"}"#
                .replace("LONG", &"word ".repeat(40))
                .trim(),
        )
        .unwrap();
        let text = print(&value).unwrap();
        assert!(
            text.starts_with("z: 1\na:\n- \"yes\"\n") || text.starts_with("z: 1\na:\n- 'yes'\n"),
            "{text}"
        );
        assert!(text.contains("k: |\n    one\n    two\n"), "{text}");
        assert!(
            text.contains("- 1152921504606846977\n- 18446744073709551615\n"),
            "{text}"
        );
        let again = super::super::documents::read(&text).unwrap().unwrap();
        assert_eq!(again["a"][5].to_string(), "1.0");
        assert_eq!(again["a"][9], "y");
        assert!(
            text.contains("\"y\"") || text.contains("'y'"),
            "a reader of YAML 1.1 takes y for true: {text}"
        );
        assert_eq!(again["long"], value["long"]);
        let keys: Vec<_> = again.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["z", "a", "m", "b", "long"]);
        assert!(print(&serde_json::from_str("[1e400]").unwrap()).is_err());
        let long = format!("[{}]", "9".repeat(60));
        assert!(print(&serde_json::from_str(&long).unwrap()).is_err());
    }
}
