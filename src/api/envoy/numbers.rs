//! Numbers as JSON has them: as numbers, or as text.

use serde_json::Value as Json;

pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

pub(super) fn float(value: &Json) -> Result<f64, String> {
    let read = match value {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => match text.as_str() {
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            "NaN" => Some(f64::NAN),
            text => text.parse().ok(),
        },
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => None,
    };
    read.ok_or_else(|| "want a number".to_owned())
}

/// Whole numbers may be written as text, and a Struct has no other numbers than those with a fraction.
fn integer(value: &Json) -> Option<i128> {
    match value {
        Json::Number(number) => {
            let exact = number.as_i64().map(i128::from);
            let exact = exact.or_else(|| number.as_u64().map(i128::from));
            exact.or_else(|| fractionless(number.as_f64()?))
        }
        Json::String(text) => text.parse().ok(),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => None,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "it has no fraction, and is in the range"
)]
fn fractionless(value: f64) -> Option<i128> {
    // No number of 64 bits is as large: the range is checked by the caller.
    (value.fract() == 0.0 && value.abs() < 2e19).then_some(value as i128)
}

pub(super) fn unsigned(value: &Json, max: u64) -> Result<u64, String> {
    let read = integer(value).and_then(|read| u64::try_from(read).ok());
    let read = read.filter(|read| *read <= max);
    read.ok_or_else(|| format!("want a whole number from 0 to {max}"))
}

pub(super) fn signed(value: &Json, min: i64, max: i64) -> Result<i64, String> {
    let read = integer(value).and_then(|read| i64::try_from(read).ok());
    let read = read.filter(|read| (min..=max).contains(read));
    read.ok_or_else(|| format!("want a whole number from {min} to {max}"))
}
