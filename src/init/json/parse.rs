//! Reads JSON (RFC 8259). A document may come from the user, so nothing in it costs more than its size: its depth is limited,
//! and numbers stay text.
//!
//! serde_json says whether it is JSON, and what is wrong where. What it would make of it is not used: its numbers are floats
//! or lean on its private types, and a value of its own would be 15 kB more. So what it has accepted is taken apart here.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt;

use serde_core::de::IgnoredAny;

use super::{Map, Number, Value};

/// Objects and lists inside each other: recursion must not use up the stack. serde_json's own limit.
const MAX_DEPTH: usize = 127;

/// Parses one value, no more than 127 levels deep.
///
/// # Errors
/// The first fault, with line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        return Err(ParseError::Syntax(error));
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            return Err(ParseError::new("invalid unicode code point", bytes, at));
        }
    };
    let mut reader = Reader { text, at: 0 };
    let read = reader.value(MAX_DEPTH);
    read.map_err(|cause| ParseError::new(cause, bytes, reader.at))
}

/// A fault of a text, and its place.
#[derive(Debug)]
pub enum ParseError {
    /// It is not JSON.
    Syntax(serde_json::Error),
    /// It is, and no document for anybody here.
    Value {
        cause: &'static str,
        line: usize,
        /// In bytes, from 1 on.
        column: usize,
    },
}

impl ParseError {
    #[cold]
    fn new(cause: &'static str, bytes: &[u8], at: usize) -> Self {
        let until = bytes.get(..=at).unwrap_or(bytes);
        let lines = until.split(|byte| *byte == b'\n');
        let (line, column) = lines.fold((0, 0), |(line, _), text| (line + 1, text.len()));
        Self::Value {
            cause,
            line,
            column,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => error.fmt(f),
            Self::Value {
                cause,
                line,
                column,
            } => write!(f, "{cause} at line {line} column {column}"),
        }
    }
}

impl std::error::Error for ParseError {}

type ParseCause = &'static str;

const SURROGATE: ParseCause = "lone surrogate in hex escape";
/// The cause of serde_json's refusals: each ends the reading all the same.
const NOT_JSON: ParseCause = "expected value";

/// Takes a text apart that is known to be JSON.
struct Reader<'t> {
    text: &'t str,
    /// The position of the next byte; after an error, that of the fault.
    at: usize,
}

impl Reader<'_> {
    /// The next byte; 0, which stands nowhere in JSON, at the end.
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// The next byte that is neither blank nor between two values.
    fn token(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') {
            self.at += 1;
        }
        self.byte()
    }

    /// `levels`: how many may be inside each other.
    fn value(&mut self, levels: usize) -> Result<Value, ParseCause> {
        match self.token() {
            b'{' | b'[' if levels == 0 => Err("recursion limit exceeded"),
            b'{' => self.object(levels - 1),
            b'[' => self.array(levels - 1),
            b'"' => Ok(Value::String(self.string()?)),
            b'-' | b'0'..=b'9' => self.number(),
            b'n' => Ok(self.word(4, Value::Null)),
            b't' => Ok(self.word(4, Value::Bool(true))),
            b'f' => Ok(self.word(5, Value::Bool(false))),
            _ => Err(NOT_JSON),
        }
    }

    fn word(&mut self, length: usize, value: Value) -> Value {
        self.at += length;
        value
    }

    fn array(&mut self, levels: usize) -> Result<Value, ParseCause> {
        let mut items = Vec::new();
        self.at += 1;
        while self.token() != b']' {
            items.push(self.value(levels)?);
        }
        self.at += 1;
        // As for an object.
        items.shrink_to_fit();
        Ok(Value::Array(items))
    }

    fn object(&mut self, levels: usize) -> Result<Value, ParseCause> {
        let mut entries = Vec::new();
        self.at += 1;
        while self.token() != b'}' {
            let key = self.string()?;
            entries.push((key, self.value(levels)?));
        }
        self.at += 1;
        Ok(Value::Object(Map::from(entries)))
    }

    /// Returns the text between `begin` and here.
    fn since(&self, begin: usize) -> &str {
        self.text.get(begin..self.at).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Value, ParseCause> {
        let begin = self.at;
        while matches!(self.byte(), b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        let number = self.since(begin);
        if is_too_large(number) {
            self.at -= 1;
            return Err("number out of range");
        }
        Ok(Value::Number(Number(number.to_owned())))
    }

    fn string(&mut self) -> Result<String, ParseCause> {
        let mut string = String::new();
        loop {
            // Over the quote, or the last letter of an escape.
            self.at += 1;
            let begin = self.at;
            while !matches!(self.byte(), 0 | b'"' | b'\\') {
                self.at += 1;
            }
            let plain = self.since(begin);
            // Most have no escape, and take no more memory than they need.
            string.reserve_exact(plain.len());
            string.push_str(plain);
            match self.byte() {
                b'"' => break,
                b'\\' => string.push(self.escape()?),
                _ => return Err(NOT_JSON),
            }
        }
        self.at += 1;
        Ok(string)
    }

    /// Reads the escape that a backslash begins; stays at its last letter.
    fn escape(&mut self) -> Result<char, ParseCause> {
        self.at += 1;
        Ok(match self.byte() {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code_point(),
            byte => char::from(byte),
        })
    }

    /// `\u00e4`, or one outside of the first 65,536 as the two surrogates of UTF-16.
    fn code_point(&mut self) -> Result<char, ParseCause> {
        let mut code = self.hexadecimal();
        if (0xd800..0xdc00).contains(&code) {
            let rest = self.text.get(self.at + 1..).unwrap_or_default();
            if !rest.starts_with("\\u") {
                return Err(SURROGATE);
            }
            self.at += 2;
            let low = self.hexadecimal();
            if !(0xdc00..0xe000).contains(&low) {
                return Err(SURROGATE);
            }
            code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
        }
        char::from_u32(code).ok_or(SURROGATE)
    }

    /// Four digits.
    fn hexadecimal(&mut self) -> u32 {
        (0..4).fold(0, |number, _| {
            self.at += 1;
            number << 4 | char::from(self.byte()).to_digit(16).unwrap_or(0)
        })
    }
}

/// The largest double is 1.7976931348623157e308: Envoy refuses a document that has a larger number.
const MAX_SIGNIFICANT: &str = "17976931348623158";
const MAX_EXPONENT: i64 = 308;

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
        Ok(exponent) => match exponent.saturating_add(leading).cmp(&MAX_EXPONENT) {
            Ordering::Less => false,
            Ordering::Equal => significant > MAX_SIGNIFICANT,
            Ordering::Greater => true,
        },
        // Longer than 64 bits.
        Err(_) => !exponent.starts_with('-'),
    }
}
