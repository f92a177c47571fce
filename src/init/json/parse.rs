//! Reads JSON (RFC 8259). A document may come from the user, so nothing in it costs more than its size: its depth is limited,
//! and numbers stay text.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt;

use super::{Map, Number, Value};

/// Objects and lists inside each other: recursion must not use up the stack.
const DEEPEST: usize = 127;

/// What `bytes` hold: one value, no more than 127 levels deep.
///
/// # Errors
/// What is wrong, with line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    let (text, valid) = match str::from_utf8(bytes) {
        Ok(text) => (text, Ok(())),
        Err(error) => ("", Err(error.valid_up_to())),
    };
    let mut reader = Reader { text, at: 0 };
    let read = match valid {
        Ok(()) => reader.document(),
        Err(at) => {
            reader.at = at;
            Err("invalid unicode code point")
        }
    };
    read.map_err(|cause| ParseError::new(cause, bytes, reader.at))
}

/// What is wrong with a text, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    cause: &'static str,
    line: usize,
    /// In bytes, from 1 on; where the text ends too early, its last one.
    column: usize,
}

impl ParseError {
    #[cold]
    fn new(cause: &'static str, bytes: &[u8], at: usize) -> Self {
        let until = bytes.get(..=at).unwrap_or(bytes);
        let lines = until.split(|byte| *byte == b'\n');
        let (line, column) = lines.fold((0, 0), |(line, _), text| (line + 1, text.len()));
        Self {
            cause,
            line,
            column,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cause,
            line,
            column,
        } = self;
        write!(f, "{cause} at line {line} column {column}")
    }
}

impl std::error::Error for ParseError {}

type Cause = &'static str;

const END_OF_VALUE: Cause = "EOF while parsing a value";
const END_OF_STRING: Cause = "EOF while parsing a string";
const SURROGATE: Cause = "lone surrogate in hex escape";

struct Reader<'t> {
    text: &'t str,
    /// What is read next; after an error, what is wrong.
    at: usize,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<Value, Cause> {
        let value = self.value(DEEPEST)?;
        self.token();
        if self.at < self.text.len() {
            return Err("trailing characters");
        }
        Ok(value)
    }

    /// The next byte; 0, which stands nowhere in JSON, at the end.
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// The next byte that is no blank.
    fn token(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.byte()
    }

    /// `cause`, or `end` where nothing follows.
    fn wrong(&self, end: Cause, cause: Cause) -> Cause {
        if self.at < self.text.len() {
            cause
        } else {
            end
        }
    }

    /// `levels`: how many may be inside each other.
    fn value(&mut self, levels: usize) -> Result<Value, Cause> {
        match self.token() {
            b'{' | b'[' if levels == 0 => Err("recursion limit exceeded"),
            b'{' => self.object(levels - 1),
            b'[' => self.array(levels - 1),
            b'"' => Ok(Value::String(self.string()?)),
            b'-' | b'0'..=b'9' => self.number(),
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            _ => Err(self.wrong(END_OF_VALUE, "expected value")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Cause> {
        for expected in word.bytes() {
            if self.byte() != expected {
                return Err(self.wrong(END_OF_VALUE, "expected ident"));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn array(&mut self, levels: usize) -> Result<Value, Cause> {
        let mut items = Vec::new();
        while self.has_entry(b']', items.is_empty())? {
            items.push(self.value(levels)?);
        }
        // As for an object.
        items.shrink_to_fit();
        Ok(Value::Array(items))
    }

    fn object(&mut self, levels: usize) -> Result<Value, Cause> {
        const END: Cause = "EOF while parsing an object";
        let mut entries = Vec::new();
        while self.has_entry(b'}', entries.is_empty())? {
            if self.token() != b'"' {
                return Err(self.wrong(END, "key must be a string"));
            }
            let key = self.string()?;
            if self.token() != b':' {
                return Err(self.wrong(END, "expected `:`"));
            }
            self.at += 1;
            entries.push((key, self.value(levels)?));
        }
        Ok(Value::Object(Map::from(entries)))
    }

    /// Takes the opening bracket before the first entry or the comma before another one, or the closing bracket.
    fn has_entry(&mut self, close: u8, first: bool) -> Result<bool, Cause> {
        if first {
            self.at += 1;
        }
        let next = self.token();
        if next == close {
            self.at += 1;
            return Ok(false);
        }
        if !first && next == b',' {
            self.at += 1;
            if self.token() == close {
                return Err("trailing comma");
            }
            return Ok(true);
        }
        let (end, cause) = match close {
            b']' => ("EOF while parsing a list", "expected `,` or `]`"),
            _ => ("EOF while parsing an object", "expected `,` or `}`"),
        };
        let cause = self.wrong(end, cause);
        if first && cause != end {
            return Ok(true);
        }
        Err(cause)
    }

    /// What is between `begin` and here.
    fn since(&self, begin: usize) -> &str {
        self.text.get(begin..self.at).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Value, Cause> {
        let begin = self.at;
        self.skip(b"-");
        if self.skip(b"0") {
            if self.byte().is_ascii_digit() {
                return Err("invalid number");
            }
        } else {
            self.digits()?;
        }
        if self.skip(b".") {
            self.digits()?;
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digits()?;
        }
        let number = self.since(begin);
        if is_too_large(number) {
            self.at -= 1;
            return Err("number out of range");
        }
        Ok(Value::Number(Number(number.to_owned())))
    }

    /// Whether one of these bytes was there.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let found = bytes.contains(&self.byte());
        self.at += usize::from(found);
        found
    }

    /// One at least.
    fn digits(&mut self) -> Result<(), Cause> {
        let begin = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        if self.at == begin {
            return Err(self.wrong(END_OF_VALUE, "invalid number"));
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, Cause> {
        let mut string = String::new();
        loop {
            // Over the quote, or the last letter of an escape.
            self.at += 1;
            let begin = self.at;
            while !matches!(self.byte(), 0..b' ' | b'"' | b'\\') {
                self.at += 1;
            }
            let plain = self.since(begin);
            // Most have no escape, and take no more memory than they need.
            string.reserve_exact(plain.len());
            string.push_str(plain);
            match self.byte() {
                b'"' => break,
                b'\\' => string.push(self.escape()?),
                _ => {
                    let cause = "control character (\\u0000-\\u001F) found while parsing a string";
                    return Err(self.wrong(END_OF_STRING, cause));
                }
            }
        }
        self.at += 1;
        Ok(string)
    }

    /// What a backslash begins; stays at its last letter.
    fn escape(&mut self) -> Result<char, Cause> {
        self.at += 1;
        Ok(match self.byte() {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code_point(),
            _ => return Err(self.wrong(END_OF_STRING, "invalid escape")),
        })
    }

    /// `\u00e4`, or one outside of the first 65,536 as the two surrogates of UTF-16.
    fn code_point(&mut self) -> Result<char, Cause> {
        let mut code = self.hexadecimal()?;
        if (0xd800..0xdc00).contains(&code) {
            let rest = self.text.get(self.at + 1..).unwrap_or_default();
            if !rest.starts_with("\\u") {
                return Err(SURROGATE);
            }
            self.at += 2;
            let low = self.hexadecimal()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(SURROGATE);
            }
            code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
        }
        char::from_u32(code).ok_or(SURROGATE)
    }

    /// Four digits.
    fn hexadecimal(&mut self) -> Result<u32, Cause> {
        let mut number = 0;
        for _ in 0..4 {
            self.at += 1;
            let digit = char::from(self.byte()).to_digit(16);
            let digit = digit.ok_or_else(|| self.wrong(END_OF_STRING, "invalid escape"))?;
            number = number << 4 | digit;
        }
        Ok(number)
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
