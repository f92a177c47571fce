//! Writes JSON: in one line for an argument, or so that a person can read it.
#![forbid(unsafe_code)]

use super::{Map, Value};

/// A text being written, also by who has no value of it.
#[derive(Debug)]
pub(crate) struct Writer {
    text: String,
    /// Levels in from the margin; `None`: everything in one line, without blanks.
    level: Option<usize>,
}

impl Value {
    /// In one line, without blanks.
    #[must_use]
    pub fn compact(&self) -> String {
        self.written(None)
    }

    /// A line for each entry, two blanks in for each level.
    #[must_use]
    pub fn pretty(&self) -> String {
        self.written(Some(0))
    }

    fn written(&self, level: Option<usize>) -> String {
        let text = String::new();
        let mut writer = Writer { text, level };
        writer.value(self);
        writer.text
    }
}

/// The separator before an entry: a comma where one precedes it, a line end, and two blanks for each level of the deepest
/// document that is usual.
const BREAK: &str = ",\n                                                                ";

/// Bytes from which on a text has no line ends and blanks: at a hundred levels they would be most of it. Chosen: far
/// above a bootstrap, which has about 10 kB.
const INDENTED_BYTES: usize = 4 * 1024 * 1024;

impl Writer {
    /// As `pretty` writes, with room for so many bytes.
    pub(crate) fn pretty(room: usize) -> Self {
        let text = String::with_capacity(room);
        let level = Some(0);
        Self { text, level }
    }

    /// Returns the document, with a line end.
    pub(crate) fn finish(mut self) -> String {
        self.text.push('\n');
        self.text
    }

    /// Writes a piece of JSON: a string in its quotes, a number, a key with its colon.
    pub(crate) fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// As deep as the value is: the parser stops at 128.
    pub(crate) fn value(&mut self, value: &Value) {
        let text = match value {
            Value::Null => "null",
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Number(number) => number.as_str(),
            Value::String(text) => return self.string(text),
            Value::Array(items) => return self.array(items),
            Value::Object(map) => return self.object(map),
        };
        self.text.push_str(text);
    }

    fn array(&mut self, items: &[Value]) {
        self.open("[");
        for item in items {
            self.next();
            self.value(item);
        }
        self.close("]");
    }

    pub(crate) fn object(&mut self, map: &Map) {
        self.open("{");
        for (key, value) in map {
            self.next();
            self.string(key);
            self.raw(if self.level.is_some() { ": " } else { ":" });
            self.value(value);
        }
        self.close("}");
    }

    pub(crate) fn open(&mut self, bracket: &str) {
        self.raw(bracket);
        self.level = self.level.map(|level| level + 1);
    }

    /// Returns the depth in entries; 0 where everything goes into one line.
    pub(crate) fn level(&self) -> usize {
        self.level.unwrap_or_default()
    }

    /// `next`, so many levels deep.
    pub(crate) fn next_at(&mut self, level: usize) {
        self.level = Some(level);
        self.next();
    }

    /// Before the closing bracket of what is so many levels deep.
    pub(crate) fn end(&mut self, level: usize) {
        self.level = Some(level);
        self.end_entries();
    }

    /// Before each entry: a comma, but for the first.
    pub(crate) fn next(&mut self) {
        self.line(usize::from(self.has_opened()));
    }

    pub(crate) fn close(&mut self, bracket: &str) {
        self.level = self.level.map(|level| level.saturating_sub(1));
        self.end_entries();
        self.raw(bracket);
    }

    /// Nothing in it: the brackets stay together.
    fn end_entries(&mut self) {
        if !self.has_opened() {
            self.line(1);
        }
    }

    /// Whether nothing has been written since the last bracket.
    fn has_opened(&self) -> bool {
        matches!(self.text.as_bytes().last(), Some(b'[' | b'{'))
    }

    /// `from` 0: with a comma. A document in one line has nothing else.
    fn line(&mut self, from: usize) {
        let level = self.level.filter(|_| self.text.len() < INDENTED_BYTES);
        let end = level.map_or(1, |level| 2 + 2 * level);
        let blanks = BREAK.get(from..end.min(BREAK.len()));
        self.text.push_str(blanks.unwrap_or_default());
        // Deeper than that.
        for _ in BREAK.len()..end {
            self.text.push(' ');
        }
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.text.push('"');
        let mut rest = text;
        // What needs no escape goes out in one piece.
        while let Some(at) = rest
            .bytes()
            .position(|byte| byte < b' ' || matches!(byte, b'"' | b'\\'))
        {
            let (plain, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
            self.text.push_str(plain);
            self.escape(from.bytes().next().unwrap_or_default());
            rest = from.get(1..).unwrap_or_default();
        }
        self.text.push_str(rest);
        self.text.push('"');
    }

    fn escape(&mut self, byte: u8) {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            _ => {
                self.text.push_str("\\u00");
                for digit in [byte >> 4, byte & 15] {
                    let digit = char::from_digit(digit.into(), 16);
                    self.text.push(digit.unwrap_or('0'));
                }
                return;
            }
        };
        self.text.push('\\');
        self.text.push(char::from(short));
    }
}
