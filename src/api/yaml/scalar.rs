//! Scalars and their meanings.

use std::fmt;

use crate::text::excerpt;

/// A scalar as it was written, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    pub text: String,
    /// Without quotes: may be something else than text.
    pub plain: bool,
}

/// The meaning of a scalar by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plain {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text,
}

impl Scalar {
    /// Its meaning if the reader wants no certain type: the words of YAML 1.2.
    #[must_use]
    pub fn plain(&self) -> Plain {
        if !self.plain {
            return Plain::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Plain::Null,
            "true" | "True" | "TRUE" => Plain::Bool(true),
            "false" | "False" | "FALSE" => Plain::Bool(false),
            ".nan" | ".NaN" | ".NAN" => Plain::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Plain::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Plain::Float(f64::NEG_INFINITY),
            text => number(text).unwrap_or(Plain::Text),
        }
    }

    /// Its meaning if the reader wants a boolean: the words of YAML 1.1 too.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        if !self.plain {
            return None;
        }
        match self.text.as_str() {
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
                Some(true)
            }
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off"
            | "OFF" => Some(false),
            _ => None,
        }
    }
}

/// Parses a number: decimal, `0x`, `0o`, with a point or an exponent. `None` for other text.
fn number(text: &str) -> Option<Plain> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let (radix, digits) = match unsigned.get(..2) {
        Some("0x") => (16, unsigned.get(2..)?),
        Some("0o") => (8, unsigned.get(2..)?),
        _ => (10, unsigned),
    };
    let first = digits.bytes().next()?;
    if !first.is_ascii_alphanumeric() && first != b'.' {
        return None;
    }
    if digits
        .bytes()
        .all(|digit| char::from(digit).is_digit(radix))
    {
        let whole = i128::from_str_radix(digits, radix).ok();
        return match whole {
            Some(whole) => Some(Plain::Int(if negative { -whole } else { whole })),
            // More digits than any type has.
            None => float(text),
        };
    }
    let decimal = radix == 10
        && digits.bytes().any(|digit| digit.is_ascii_digit())
        && digits.bytes().all(|digit| {
            digit.is_ascii_digit() || matches!(digit, b'.' | b'e' | b'E' | b'+' | b'-')
        });
    if decimal { float(text) } else { None }
}

/// A number beyond all floats stays text, as kubectl reads it: the short name of a commit may be `12e4567`.
fn float(text: &str) -> Option<Plain> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Plain::Float(value))
}

/// As an error shows it: quoted where it was text, and short.
impl fmt::Display for Scalar {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        let (head, more) = excerpt(&self.text, SHOWN);
        match self.plain() {
            Plain::Text => write!(to, "{head:?}{more}"),
            Plain::Null => write!(to, "null"),
            Plain::Bool(_) | Plain::Int(_) | Plain::Float(_) => write!(to, "{head}{more}"),
        }
    }
}
