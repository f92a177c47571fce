//! Reads one value of proto JSON; returns it in one spelling, or the cause of the failure.

use base64::Engine as _;
use serde_json::{Number, Value as Json};

use crate::duration;
use crate::finding::quoted;
use crate::proto_json::{BASE64, canonical, integer_of};
use crate::schema::{Enum, FieldKind};
use crate::text::first_letters;
use crate::timestamp;

pub(super) const QUOTE: &str = "expected a string; quote the value";

/// The value in its one spelling.
pub(super) fn read(kind: FieldKind, value: &Json) -> Result<Json, String> {
    match kind {
        FieldKind::String => text(value).map(|text| Json::String(text.to_owned())),
        FieldKind::Bytes => bytes(text(value)?),
        FieldKind::Bool if value.is_boolean() => Ok(value.clone()),
        FieldKind::Bool => Err("expected true or false".to_owned()),
        FieldKind::Int32 => integer(value, i32::MIN.into(), i32::MAX.into()).map(small),
        FieldKind::Uint32 => integer(value, 0, u32::MAX.into()).map(small),
        FieldKind::Int64 => integer(value, i64::MIN.into(), i64::MAX.into()).map(large),
        FieldKind::Uint64 => integer(value, 0, u64::MAX.into()).map(large),
        FieldKind::Float | FieldKind::Double => double(value),
        FieldKind::Enum(kinds) => choice(kinds, value),
        FieldKind::Duration => {
            let text = text(value).map_err(|_| "expected a duration such as \"1.5s\"")?;
            duration::parse(text)
                .map(|read| Json::String(duration::canonical(&read)))
                .ok_or_else(|| format!("{} is not a duration", quoted(text)))
        }
        FieldKind::Timestamp => {
            let text = text(value)?;
            timestamp::parse(text)
                .map(|read| Json::String(timestamp::text(&read)))
                .ok_or_else(|| format!("{} is not a time", quoted(text)))
        }
        FieldKind::Wrapper(kind) => read(*kind, value),
        FieldKind::Message(_) | FieldKind::Struct | FieldKind::Any => {
            Err("expected an object".to_owned())
        }
    }
}

fn text(value: &Json) -> Result<&str, String> {
    match value {
        Json::String(text) => Ok(text),
        Json::Null | Json::Bool(_) | Json::Number(_) => Err(QUOTE.to_owned()),
        Json::Array(_) | Json::Object(_) => Err("expected a string".to_owned()),
    }
}

fn bytes(text: &str) -> Result<Json, String> {
    // Proto JSON takes the URL-safe alphabet, too.
    let standard: String = text
        .chars()
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    BASE64
        .decode(standard)
        .map(|bytes| Json::String(BASE64.encode(bytes)))
        .map_err(|_| format!("{} is not base64", quoted(text)))
}

/// With any number of digits, it may be long.
fn short(number: &Number) -> String {
    const MAX_SHOWN: usize = 64;
    first_letters(&number.to_string(), MAX_SHOWN).to_owned()
}

fn small(whole: i128) -> Json {
    i64::try_from(whole).map_or(Json::Null, Json::from)
}

/// More than every reader of JSON takes as a number.
fn large(whole: i128) -> Json {
    Json::String(whole.to_string())
}

fn integer(value: &Json, min: i128, max: i128) -> Result<i128, String> {
    let (whole, text) = match value {
        Json::Number(number) => (exact_integer(number), short(number)),
        Json::String(text) => (digits(text), quoted(text)),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => (None, String::new()),
    };
    match whole {
        Some(whole) if (min..=max).contains(&whole) => Ok(whole),
        Some(whole) => Err(format!("{whole} is not in {min}..{max}")),
        None if text.is_empty() => Err("expected an integer".to_owned()),
        None => Err(format!("{text} is not an integer")),
    }
}

/// `1.0` counts.
fn exact_integer(number: &Number) -> Option<i128> {
    if let Some(whole) = number.as_i64() {
        return Some(whole.into());
    }
    if let Some(whole) = number.as_u64() {
        return Some(whole.into());
    }
    number.as_f64().and_then(integer_of)
}

fn digits(text: &str) -> Option<i128> {
    /// More are in no range.
    const MAX_DIGITS: usize = 30;
    // `parse` alone would also take a plus.
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let fits = !unsigned.is_empty()
        && unsigned.len() <= MAX_DIGITS
        && unsigned.bytes().all(|digit| digit.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn double(value: &Json) -> Result<Json, String> {
    let (read, text) = match value {
        Json::Number(number) => (number.as_f64(), short(number)),
        Json::String(text) => (decimal(text), quoted(text)),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
            return Err("expected a number".to_owned());
        }
    };
    read.and_then(Number::from_f64)
        .map(Json::Number)
        .ok_or_else(|| format!("{text} is not a finite number"))
}

/// A number of JSON in quotes: neither `inf` nor blanks.
fn decimal(text: &str) -> Option<f64> {
    let is_one = text.bytes().all(|letter| {
        letter.is_ascii_digit() || matches!(letter, b'.' | b'e' | b'E' | b'+' | b'-')
    });
    if is_one { text.parse().ok() } else { None }
}

/// As Go writes a double that has no fraction.
pub(super) fn integer_if_exact(number: &Number) -> Json {
    canonical(number.as_f64().unwrap_or_default())
}

/// An enumeration by name, or by one of its numbers.
fn choice(kinds: &Enum, value: &Json) -> Result<Json, String> {
    let (entry, text) = match value {
        Json::String(text) => (
            kinds.values.iter().find(|(name, _)| name == text),
            quoted(text),
        ),
        Json::Number(number) => (
            exact_integer(number).and_then(|number| {
                kinds
                    .values
                    .iter()
                    .find(|(_, known)| i128::from(*known) == number)
            }),
            quoted(&short(number)),
        ),
        Json::Null | Json::Bool(_) => return Err(QUOTE.to_owned()),
        Json::Array(_) | Json::Object(_) => return Err("expected a string".to_owned()),
    };
    entry
        .map(|(name, _)| Json::String((*name).to_owned()))
        .ok_or_else(|| {
            let names: Vec<_> = kinds.values.iter().map(|(name, _)| *name).collect();
            format!("{text} is not one of {}", names.join(", "))
        })
}
