//! JSON before it is taken in: within bounds, and with no key twice.

use std::collections::HashSet;
use std::fmt;

use memchr::memchr2;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Lists and objects within each other.
const MAX_DEPTH: usize = 128;

/// Bytes of a value in memory, with its key: as pods have them, copies and values of templates included. Measured with the
/// built-in template and 90,000 annotations.
const VALUE_BYTES: usize = 512;
/// Bytes of a list or an object that is not empty, beside its values. Measured with 49,000 tolerations.
const FILLED_BYTES: usize = 1024;
/// Copies in memory of a long text, beside the body, which its permit counts and which is freed by then; a template that
/// prints the text makes more.
const TEXTS: usize = 1;

/// The size of some JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    bytes: usize,
    values: usize,
    /// Lists and objects that are not empty.
    filled: usize,
}

impl Amount {
    /// Checks that a review of this size fits into so much memory.
    pub(super) fn fits(self, memory: usize) -> Result<(), String> {
        let Self {
            bytes,
            values,
            filled,
        } = self;
        let needed = [
            bytes.saturating_mul(TEXTS),
            values.saturating_mul(VALUE_BYTES),
            filled.saturating_mul(FILLED_BYTES),
        ];
        let needed = needed.into_iter().fold(0_usize, usize::saturating_add);
        if needed <= memory {
            return Ok(());
        }
        Err(format!(
            "too large: {values} values in {filled} lists and objects take {} MiB of memory, {} MiB at most",
            needed.div_ceil(1 << 20),
            memory >> 20
        ))
    }
}

/// Measures JSON, or returns an error if it exceeds the limits; runs before the parser, so that no values are allocated in
/// vain.
pub(super) fn bounded(bytes: &[u8], max: usize) -> Result<Amount, String> {
    let (mut depth, mut values, mut filled) = (0_usize, 1_usize, 0_usize);
    let mut opened = false;
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if opened && !byte.is_ascii_whitespace() {
            filled += usize::from(!matches!(byte, b'}' | b']'));
            opened = false;
        }
        match byte {
            b'"' => rest = behind_text(after),
            b'{' | b'[' => {
                depth += 1;
                values += 1;
                opened = true;
            }
            // Each begins another.
            b',' => values += 1,
            // Malformed JSON may close more than it opens; the parser refuses it.
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("nested too deeply (deeper than {MAX_DEPTH})"));
        }
        if values > max {
            return Err(format!("more than {max} values"));
        }
    }
    Ok(Amount {
        bytes: bytes.len(),
        values,
        filled,
    })
}

/// Returns true if JSON has at most so many separators, those in its texts included: annotations hold documents, which are read
/// as well. A member of an object has two or three.
pub(super) fn is_light(bytes: &[u8], max: usize) -> bool {
    let is_separator = |byte: &&u8| matches!(byte, b',' | b':' | b'{' | b'[');
    bytes.iter().filter(is_separator).nth(max).is_none()
}

/// The length of the text without insignificant white space: indentation makes an object no larger.
pub(super) fn compact_len(text: &str) -> usize {
    let (mut length, mut rest) = (0, text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b'"' => behind_text(after),
            _ => after,
        };
        if !byte.is_ascii_whitespace() {
            length += 1 + after.len() - rest.len();
        }
    }
    length
}

/// Skips a string after its opening quote, and returns the rest; empty for an unterminated string.
fn behind_text(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', text) {
        let (byte, after) = text.split_at(at).1.split_first().unwrap_or((&b'"', &[]));
        if *byte == b'"' {
            return after;
        }
        // The byte behind a backslash may be a quotation mark, and ends nothing.
        text = after.get(1..).unwrap_or_default();
    }
    &[]
}

/// Parses a value.
///
/// # Errors
/// The text is not JSON, or has a duplicate key.
pub(crate) fn strict(text: &str) -> Result<Value, serde_json::Error> {
    // serde_json takes the last of two equal keys in silence, so they are looked for first.
    Once.deserialize(&mut reader(text))?;
    value(text)
}

/// Parses a value; of a duplicate key the last one counts.
///
/// # Errors
/// The text is not JSON.
pub(super) fn value(text: &str) -> Result<Value, serde_json::Error> {
    Value::deserialize(&mut reader(text))
}

fn reader(text: &str) -> serde_json::Deserializer<serde_json::de::StrRead<'_>> {
    let mut reader = serde_json::Deserializer::from_str(text);
    // The caller has checked the depth already.
    reader.disable_recursion_limit();
    reader
}

/// Returns true if the object is being deleted. Its size and depth are unlimited, since nothing of it is stored.
///
/// # Errors
/// The text is not JSON.
pub(super) fn is_deleted(text: &str) -> Result<bool, serde_json::Error> {
    let Some(metadata) = field(text, "metadata")? else {
        return Ok(false);
    };
    let time = field(metadata, "deletionTimestamp")?;
    Ok(time.is_some_and(|time| time != "null"))
}

/// The text of one field, where it is one of an object.
fn field<'a>(text: &'a str, name: &'static str) -> Result<Option<&'a str>, serde_json::Error> {
    if !text.starts_with('{') {
        return Ok(None);
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Field(name))?;
    Ok(found.map(RawValue::get))
}

/// Skips all but one.
struct Field(&'static str);

impl<'de> Visitor<'de> for Field {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut field_value = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 {
                field_value = Some(map.next_value()?);
            } else {
                _ = map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(field_value)
    }
}

/// Visits a value without storing it.
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(Self)?;
            if let Some(key) = keys.replace(key) {
                let key = api::config::quoted(&key);
                return Err(serde::de::Error::custom(format_args!(
                    "the key {key} is written twice"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_in_texts_weigh_as_much_as_others() {
        for (text, separators) in [
            (r#"{"a": "b", "c": [1, 2]}"#, 6),
            (r#"{"a": "{\"b\": {}, \"c\": [1]}"}"#, 8),
            ("[]", 1),
            ("7", 0),
        ] {
            assert!(is_light(text.as_bytes(), separators), "{text}");
            assert!(
                separators == 0 || !is_light(text.as_bytes(), separators - 1),
                "{text}"
            );
        }
    }

    #[test]
    fn json_is_measured_before_it_is_read() {
        let text = br#"{"a{[,": [ ], "b": [{ }, [1, "]"]], "c": {"d": 1}}"#;
        let amount = bounded(text, 100).unwrap();
        let found = (amount.bytes, amount.values, amount.filled);
        // An upper bound: the beginning of each non-empty list or object counts, and so does each separator.
        assert_eq!(found, (text.len(), 11, 4));
        assert_eq!(bounded(text, 10), Err("more than 10 values".to_owned()));
        // A text that does not end is the rest.
        for text in [r#"["a\",[],{"#, r#"["a\"#, r#"[""#] {
            assert_eq!(bounded(text.as_bytes(), 100).unwrap().values, 2, "{text}");
            assert_eq!(compact_len(text), text.len(), "{text}");
        }
        let needed = text.len() + 11 * VALUE_BYTES + 4 * FILLED_BYTES;
        assert_eq!(amount.fits(needed), Ok(()));
        let cause = amount.fits(needed - 1).unwrap_err();
        assert_eq!(
            cause,
            "too large: 11 values in 4 lists and objects take 1 MiB of memory, 0 MiB at most"
        );
    }

    #[test]
    fn room_between_parts_counts_for_nothing() {
        for text in [r#"{"a b":["c\" d\\", 1],  "e":"  "}"#, " [ ]\n", "7"] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(compact_len(text), value.to_string().len(), "{text}");
            let indented = format!("{value:#}");
            assert_eq!(
                compact_len(&indented),
                value.to_string().len(),
                "{indented}"
            );
        }
    }

    #[test]
    fn keys_that_occur_once_are_read() {
        for text in [
            r#"{"a":{"a":1},"b":[{"a":1.50},{"a":-2}],"c":null,"d":true,"e":"\u00fc\n","f":12345678901234567890123}"#,
            "null",
            "[[],{}]",
        ] {
            assert_eq!(
                strict(text).unwrap().to_string(),
                text.replace("\\u00fc", "ü")
            );
        }
        let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
        assert_eq!(strict(&deep).unwrap().to_string(), deep);
    }

    #[test]
    fn a_deletion_is_found_in_what_is_too_deep_to_be_read() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for (text, is_one) in [
            (
                r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
                true,
            ),
            (
                r#"{"spec":DEEP,"metadata":{"a":DEEP,"deletionTimestamp":"x"}}"#,
                true,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":null},"spec":DEEP}"#,
                false,
            ),
            (
                r#"{"spec":{"deletionTimestamp":"x","metadata":{"deletionTimestamp":"x"}}}"#,
                false,
            ),
            (r#"{"metadata":["deletionTimestamp"]}"#, false),
            (r#"[{"metadata":{"deletionTimestamp":"x"}}]"#, false),
            ("DEEP", false),
            ("null", false),
        ] {
            let text = text.replace("DEEP", &deep);
            assert_eq!(is_deleted(&text).unwrap(), is_one);
        }
        assert!(is_deleted(r#"{"metadata":{"#).is_err());
    }

    #[test]
    fn duplicate_keys_are_refused() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"c":1,"\u0061":2,"a":3}}]"#] {
            let cause = strict(text).unwrap_err().to_string();
            assert!(
                cause.starts_with("the key \"a\" is written twice"),
                "{cause}"
            );
        }
    }
}
