//! The built-in parts of the bootstrap, brought into an order of writing when they are compiled.
//!
//! A part is JSON with `${name}` where a value goes, as in a user's template, and is filled by the same rules (`template`):
//! a name is the whole of a string, and one without a value takes its key or its array element with it. What is put in is
//! written by the writer of JSON, never pasted. But the text is this program's own, so it needs no parser at each start
//! and becomes no tree, which was a fifth of it: what is left to do is to copy lines.
#![forbid(unsafe_code)]

use crate::json::{Map, Value, Writer};
use crate::search;

/// A text of this program's, an object or a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// The steps, each with the number of bytes of `bytes` that belong to it.
    pub(super) steps: &'static [[u8; 2]],
    pub(super) bytes: &'static str,
}

// The numbers of steps. Up to `MAX_DEPTH`: an entry begins, so many levels deep; 0 is the first, which only writes.
const MAX_DEPTH: u8 = 31;
/// From here on: a bracket is closed, so many levels deep.
const CLOSE: u8 = MAX_DEPTH + 1;
/// Added to the first kind: an entry that is there only if its value is. Its bytes are the key with colon and blank, and
/// the name of the value.
const NAMED: u8 = 128;

/// A JSON text as it is to be written.
macro_rules! text {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const SIZE: [usize; 2] = $crate::bootstrap::parts::Order::<0, 0>::of(TEXT).size;
        const ORDER: $crate::bootstrap::parts::Order<{ SIZE[0] }, { SIZE[1] }> =
            $crate::bootstrap::parts::Order::of(TEXT);
        const BYTES: &str = match str::from_utf8(&ORDER.bytes) {
            Ok(bytes) => bytes,
            Err(_) => panic!(),
        };
        $crate::bootstrap::parts::Text {
            steps: &ORDER.steps,
            bytes: BYTES,
        }
    }};
}
pub(super) use text;

/// A text being compiled; with no room in it, it only finds out how much it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<const STEPS: usize, const BYTES: usize> {
    pub(super) steps: [[u8; 2]; STEPS],
    pub(super) bytes: [u8; BYTES],
    /// Steps and bytes.
    pub(super) size: [usize; 2],
    /// The step to which the bytes that are being written belong.
    step: u8,
    length: u8,
    depth: u8,
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "of a constant: it would not compile"
)]
impl<const STEPS: usize, const BYTES: usize> Order<STEPS, BYTES> {
    pub(super) const fn of(text: &str) -> Self {
        let mut order = Self {
            steps: [[0; 2]; STEPS],
            bytes: [0; BYTES],
            size: [0; 2],
            step: 0,
            length: 0,
            depth: 0,
        };
        let text = text.as_bytes();
        let mut at = 0;
        while at < text.len() {
            at = order.piece(text, at);
        }
        assert!(order.depth == 0);
        order.end_step();
        order
    }

    /// Takes what stands at `at`; returns where the next piece stands.
    const fn piece(&mut self, text: &[u8], at: usize) -> usize {
        match text[at] {
            b' ' | b'\n' => at + 1,
            b'{' | b'[' => {
                self.push(text[at]);
                let next = blanks(text, at + 1);
                if matches!(text[next], b'}' | b']') {
                    self.push(text[next]);
                    return next + 1;
                }
                self.depth += 1;
                self.entry(text, next)
            }
            b',' => self.entry(text, blanks(text, at + 1)),
            b'}' | b']' => {
                self.depth -= 1;
                self.begin(CLOSE + self.depth);
                self.push(text[at]);
                at + 1
            }
            b':' => {
                self.push(b':');
                self.push(b' ');
                at + 1
            }
            b'"' => self.copy(text, at, string(text, at)),
            _ => self.copy(text, at, at + 1),
        }
    }

    /// Begins an entry; the value may be a name.
    const fn entry(&mut self, text: &[u8], at: usize) -> usize {
        assert!(self.depth <= MAX_DEPTH);
        self.begin(self.depth);
        let mut value = at;
        if text[at] == b'"' {
            let colon = blanks(text, string(text, at));
            if text[colon] == b':' {
                value = blanks(text, colon + 1);
            }
        }
        if !(text[value] == b'"' && text[value + 1] == b'$' && text[value + 2] == b'{') {
            return at;
        }
        self.step += NAMED;
        if value > at {
            self.copy(text, at, string(text, at));
            self.push(b':');
            self.push(b' ');
        }
        let end = string(text, value);
        self.copy(text, value + 3, end - 2);
        end
    }

    const fn begin(&mut self, step: u8) {
        self.end_step();
        self.step = step;
        self.length = 0;
    }

    const fn end_step(&mut self) {
        if self.size[0] < STEPS {
            self.steps[self.size[0]] = [self.step, self.length];
        }
        self.size[0] += 1;
    }

    const fn copy(&mut self, text: &[u8], from: usize, to: usize) -> usize {
        let mut at = from;
        while at < to {
            self.push(text[at]);
            at += 1;
        }
        to
    }

    const fn push(&mut self, byte: u8) {
        if self.size[1] < BYTES {
            self.bytes[self.size[1]] = byte;
        }
        self.size[1] += 1;
        assert!(self.length < u8::MAX);
        self.length += 1;
    }
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "of a constant: it would not compile"
)]
const fn blanks(text: &[u8], mut at: usize) -> usize {
    while matches!(text[at], b' ' | b'\n') {
        at += 1;
    }
    at
}

/// The end of the string that begins at `at`.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "of a constant: it would not compile"
)]
const fn string(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// A text, and what its names stand for.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) text: Text,
    pub(super) values: Vec<(&'static str, Put<'a>)>,
}

/// The value in the place of a name.
#[derive(Debug)]
pub(super) enum Put<'a> {
    Absent,
    Text(&'a str),
    Value(Value),
    Map(&'a Map),
    Part(Part<'a>),
    List(Vec<Part<'a>>),
}

impl<'a> Part<'a> {
    /// One without names.
    pub(super) const fn plain(text: Text) -> Self {
        let values = Vec::new();
        Self { text, values }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        let level = writer.level();
        let mut rest = self.text.bytes;
        for [step, length] in self.text.steps {
            let (piece, after) = rest
                .split_at_checked((*length).into())
                .unwrap_or((rest, ""));
            rest = after;
            if *step >= NAMED {
                self.write_named(writer, level + usize::from(step - NAMED), piece);
                continue;
            }
            if *step >= CLOSE {
                writer.end(level + usize::from(step - CLOSE));
            } else if *step > 0 {
                writer.next_at(level + usize::from(*step));
            }
            writer.raw(piece);
        }
    }

    fn write_named(&self, writer: &mut Writer, level: usize, entry: &str) {
        let name_at = search::behind_last(entry, b' ');
        let (key, name) = entry.split_at_checked(name_at).unwrap_or(("", entry));
        let put = self.values.iter().find(|(known, _)| *known == name);
        debug_assert!(put.is_some(), "{name} stands for something");
        let put = put.map_or(&Put::Absent, |(_, put)| put);
        if !matches!(put, Put::Absent) {
            writer.next_at(level);
            writer.raw(key);
            put.write(writer);
        }
    }
}

impl Put<'_> {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Absent => {}
            Self::Text(text) => writer.string(text),
            Self::Value(value) => writer.value(value),
            Self::Map(map) => writer.object(map),
            Self::Part(part) => part.write(writer),
            Self::List(parts) => {
                writer.open("[");
                for part in parts {
                    writer.next();
                    part.write(writer);
                }
                writer.close("]");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::SOURCES;
    use super::super::template::fill;
    use super::*;
    use crate::json::{self, json};

    /// The names in a text.
    fn names(text: &'static str) -> Vec<&'static str> {
        let pieces = text.split("${").skip(1);
        pieces
            .map(|piece| piece.split_once('}').unwrap().0)
            .collect()
    }

    fn written(part: &Part<'_>) -> String {
        let mut writer = Writer::pretty(0);
        part.write(&mut writer);
        writer.finish()
    }

    /// Read as a tree, filled and written, as a user's template is: the other way to the same text.
    fn filled(source: &str, values: &[(&str, Value)]) -> String {
        let tree = json::parse(source.as_bytes()).unwrap();
        fill(tree, values).unwrap().pretty() + "\n"
    }

    #[test]
    fn a_part_is_written_as_a_template_would_be() {
        let kinds = [
            json!("a \"quoted\" ${name}\n"),
            json!({"b": [1, {"c": false}], "empty": {}, "none": []}),
            Value::Null,
        ];
        for (source, text) in SOURCES {
            for first in 0..kinds.len() {
                let value = |at: usize| kinds[(first + at) % kinds.len()].clone();
                let names = names(source).into_iter().enumerate();
                let values: Vec<_> = names.map(|(at, name)| (name, value(at))).collect();
                let put = |value: &Value| {
                    if value.is_null() {
                        Put::Absent
                    } else {
                        Put::Value(value.clone())
                    }
                };
                let puts = values.iter().map(|(name, value)| (*name, put(value)));
                let values_of_part = puts.collect();
                let part = Part {
                    text: *text,
                    values: values_of_part,
                };
                assert_eq!(written(&part), filled(source, &values), "{source}");
            }
        }
    }

    #[test]
    fn what_is_put_in() {
        const INNER: Text = text!(r#"{"x": "${x}", "y":"${y}"}"#);
        const LIST: Text = text!(" [true, -1, \"a\\\\\", \"\\\"}\" ] ");
        const OUTER: Text = text!(
            r#"{"a": "${list}", "b": ["${none}", "${map}"], "c": {"d": "${part}"}, "e": ["${none}"],
            "f": {"g": [ ], "h": {}}}"#
        );
        let map = Map::from(vec![("k".to_owned(), json!("v"))]);
        let inner = || Part {
            text: INNER,
            values: vec![("x", Put::Text("1\n")), ("y", Put::Absent)],
        };
        let part = Part {
            text: OUTER,
            values: vec![
                ("list", Put::List(vec![inner(), Part::plain(LIST)])),
                ("none", Put::Absent),
                ("map", Put::Map(&map)),
                ("part", Put::Part(inner())),
            ],
        };
        let expected = json!({
            "a": [{"x": "1\n"}, [true, -1, "a\\", "\"}"]], "b": [{"k": "v"}], "c": {"d": {"x": "1\n"}}, "e": [],
            "f": {"g": [], "h": {}}
        });
        assert_eq!(written(&part), expected.pretty() + "\n");
    }
}
