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
pub enum ResolvedScalar {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text,
}

impl Scalar {
    /// Returns the meaning of the scalar by itself, by the words of YAML 1.2.
    #[must_use]
    pub fn resolve(&self) -> ResolvedScalar {
        if !self.plain {
            return ResolvedScalar::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => ResolvedScalar::Null,
            "true" | "True" | "TRUE" => ResolvedScalar::Bool(true),
            "false" | "False" | "FALSE" => ResolvedScalar::Bool(false),
            ".nan" | ".NaN" | ".NAN" => ResolvedScalar::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                ResolvedScalar::Float(f64::INFINITY)
            }
            "-.inf" | "-.Inf" | "-.INF" => ResolvedScalar::Float(f64::NEG_INFINITY),
            text => number(text).unwrap_or(ResolvedScalar::Text),
        }
    }

    /// Returns the meaning of the scalar for a reader of a boolean: the words of YAML 1.1 count, too.
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
fn number(text: &str) -> Option<ResolvedScalar> {
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
            Some(whole) => Some(ResolvedScalar::Int(if negative { -whole } else { whole })),
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
fn float(text: &str) -> Option<ResolvedScalar> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(ResolvedScalar::Float(value))
}

/// As an error shows it: quoted where it was text, and short.
impl fmt::Display for Scalar {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SHOWN: usize = 64;
        let (head, more) = excerpt(&self.text, MAX_SHOWN);
        match self.resolve() {
            ResolvedScalar::Text => write!(to, "{head:?}{more}"),
            ResolvedScalar::Null => write!(to, "null"),
            ResolvedScalar::Bool(_) | ResolvedScalar::Int(_) | ResolvedScalar::Float(_) => {
                write!(to, "{head}{more}")
            }
        }
    }
}
