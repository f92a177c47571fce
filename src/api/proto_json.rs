//! The spelling of values in proto JSON that have several: bytes and doubles.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Number, Value as Json};

/// Up to here a double holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Base64 is the spelling of bytes; the padding is optional where they are read.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A double as proto JSON has it: a number, or text for infinities and NaN, for which JSON has none.
#[must_use]
pub fn number(value: f64) -> Json {
    let text = || match value.is_nan() {
        true => "NaN",
        false if value > 0.0 => "Infinity",
        false => "-Infinity",
    };
    Number::from_f64(value).map_or_else(|| text().into(), Json::Number)
}

/// A double in its one spelling.
pub(crate) fn canonical(value: f64) -> Json {
    // Minus zero is no integer.
    let is_whole =
        value.fract() == 0.0 && value.abs() <= EXACT && value.to_bits() != (-0.0_f64).to_bits();
    let whole = if is_whole { integer_of(value) } else { None };
    match whole.and_then(|whole| i64::try_from(whole).ok()) {
        Some(whole) => Json::from(whole),
        None => Number::from_f64(value).map_or(Json::Null, Json::Number),
    }
}

/// A double without a fraction as an integer; `None` for any other.
pub(crate) fn integer_of(value: f64) -> Option<i128> {
    // No integer of protobuf is as large: the range check refuses it either way.
    const MAX_INTEGER: f64 = 1e30;
    if value.fract() != 0.0 || value.abs() > MAX_INTEGER {
        return None;
    }
    format!("{value:.0}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_that_json_has_no_number_for_are_text() {
        for (value, text) in [
            (f64::INFINITY, "\"Infinity\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
            (f64::NAN, "\"NaN\""),
            (0.5, "0.5"),
        ] {
            assert_eq!(number(value).to_string(), text);
        }
    }
}
