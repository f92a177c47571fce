//! Reads JSON: serde_json takes the text apart, and this puts the pieces together.
//!
//! With its feature `arbitrary_precision`, serde_json hands over a number that is no whole one of 64 bits as an object
//! whose value is an owned text. No other text comes owned, whatever the keys of a document, so that is how it is known.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
pub use serde_json::Error;

use super::{Map, Number, Value};

/// What `bytes` hold: one value, no more than 127 levels deep.
///
/// # Errors
/// What is wrong, with line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, Error> {
    match serde_json::from_slice(bytes)? {
        Piece::Value(value) => Ok(value),
        Piece::Number(_) => Ok(Value::Null),
    }
}

/// What serde_json calls a value.
enum Piece {
    Value(Value),
    /// The text of a number: the object that it came in is none.
    Number(String),
}

struct Pieces;

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Pieces)
    }
}

impl<'de> Visitor<'de> for Pieces {
    type Value = Piece;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Piece, E> {
        Ok(Piece::Value(Value::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Piece, E> {
        Ok(Piece::Value(Value::Bool(flag)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Piece, E> {
        Ok(Piece::Value(Value::Number(Number(number.to_string()))))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Piece, E> {
        Ok(Piece::Value(Value::from(number)))
    }

    /// Never called; the method that would stand here could print any float.
    fn visit_f64<E>(self, _: f64) -> Result<Piece, E> {
        Ok(Piece::Value(Value::Null))
    }

    fn visit_str<E>(self, text: &str) -> Result<Piece, E> {
        Ok(Piece::Value(Value::from(text)))
    }

    fn visit_string<E: de::Error>(self, number: String) -> Result<Piece, E> {
        if is_too_large(&number) {
            return Err(E::custom("number out of range"));
        }
        Ok(Piece::Number(number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Piece, A::Error> {
        let mut items = Vec::new();
        while let Some(piece) = list.next_element()? {
            if let Piece::Value(item) = piece {
                items.push(item);
            }
        }
        // As for an object.
        items.shrink_to_fit();
        Ok(Piece::Value(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Piece, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = object.next_key()? {
            match object.next_value()? {
                Piece::Value(value) => entries.push((key, value)),
                Piece::Number(number) => return Ok(Piece::Value(Value::Number(Number(number)))),
            }
        }
        Ok(Piece::Value(Value::Object(Map::from(entries))))
    }
}

/// The largest double is 1.7976931348623157e308: Envoy refuses a document that has a larger number.
const LARGEST: &str = "17976931348623158";
const LARGEST_EXPONENT: i64 = 308;

/// Whether the double nearest to `number`, which is JSON's, would be infinite.
pub(super) fn is_too_large(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let whole = whole.trim_start_matches(['-', '0']);
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return false;
    }
    // 1 has one digit before its point, and 0.01 lacks one.
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let leading = length(whole) - (length(&digits) - length(significant)) - 1;
    match exponent.parse::<i64>() {
        Ok(exponent) => match exponent.saturating_add(leading).cmp(&LARGEST_EXPONENT) {
            Ordering::Less => false,
            Ordering::Equal => significant > LARGEST,
            Ordering::Greater => true,
        },
        // Longer than 64 bits.
        Err(_) => !exponent.starts_with('-'),
    }
}
