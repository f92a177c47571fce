//! The built-in parts of the bootstrap, written out as they are read.
//!
//! A part is JSON with `${name}` where a value goes, as in a user's template, and is filled by the same rules (`template`):
//! a name is the whole of a string, and one without a value takes its key or its array element with it. But it is ours and
//! in order, so it becomes text without being a tree of values in between, which was a fifth of a start.
#![forbid(unsafe_code)]

use crate::json::{Map, Value, Writer};

/// A text of ours, and what its names stand for.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) text: &'static str,
    pub(super) values: Vec<(&'static str, Put<'a>)>,
}

/// What is put in the place of a name.
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
    pub(super) const fn plain(text: &'static str) -> Self {
        let values = Vec::new();
        Self { text, values }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        let mut walk = Walk {
            rest: self.text,
            values: &self.values,
        };
        walk.element(writer);
    }
}

impl Put<'_> {
    const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Absent => {}
            Self::Text(text) => writer.string(text),
            Self::Value(value) => writer.value(value),
            Self::Map(map) => writer.object(map),
            Self::Part(part) => part.write(writer),
            Self::List(parts) => {
                writer.open('[');
                for part in parts {
                    writer.next();
                    part.write(writer);
                }
                writer.close('[', ']');
            }
        }
    }
}

/// Through the text of a part. What it may rely on is tested for each of them: it is JSON, in the order of its keys.
struct Walk<'a> {
    rest: &'static str,
    values: &'a [(&'static str, Put<'a>)],
}

impl<'a> Walk<'a> {
    fn element(&mut self, writer: &mut Writer) {
        match self.rest.bytes().next() {
            Some(b'{') => self.container(writer, ('{', '}')),
            Some(b'[') => self.container(writer, ('[', ']')),
            Some(b'"') => writer.raw(self.string()),
            _ => {
                let ends = |byte: u8| matches!(byte, b',' | b']' | b'}');
                let end = self.rest.bytes().position(ends);
                writer.raw(self.take(end.unwrap_or(usize::MAX)));
            }
        }
    }

    fn container(&mut self, writer: &mut Writer, (open, close): (char, char)) {
        self.take(1);
        writer.open(open);
        loop {
            self.skip();
            if self.rest.is_empty() || self.rest.starts_with(close) {
                self.take(1);
                break;
            }
            let mut key = "";
            if open == '{' {
                key = self.string();
                self.skip();
            }
            let put = self.put();
            if put.is_some_and(Put::is_absent) {
                continue;
            }
            writer.next();
            if !key.is_empty() {
                writer.raw_key(key);
            }
            match put {
                Some(put) => put.write(writer),
                None => self.element(writer),
            }
        }
        writer.close(open, close);
    }

    /// What stands for the name that comes next, if it is one.
    fn put(&mut self) -> Option<&'a Put<'a>> {
        let name = self.rest.strip_prefix("\"${")?.split_once('}')?.0;
        self.string();
        let known = self.values.iter().find(|(known, _)| *known == name);
        debug_assert!(known.is_some(), "{name} stands for something");
        known.map(|(_, put)| put).or(Some(&Put::Absent))
    }

    /// What stands between two pieces.
    fn skip(&mut self) {
        let blank = |byte: u8| matches!(byte, b' ' | b'\n' | b',' | b':');
        let end = self.rest.bytes().position(|byte| !blank(byte));
        self.take(end.unwrap_or(usize::MAX));
    }

    /// A string in its quotes.
    fn string(&mut self) -> &'static str {
        let mut escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        self.take(end.map_or(usize::MAX, |end| end + 2))
    }

    /// So many bytes, or all there are.
    fn take(&mut self, bytes: usize) -> &'static str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::TEXTS;
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
    fn filled(text: &str, values: &[(&str, Value)]) -> String {
        let tree = json::parse(text.as_bytes()).unwrap();
        fill(tree, values).unwrap().pretty() + "\n"
    }

    #[test]
    fn a_part_is_written_as_a_template_would_be() {
        let kinds = [
            json!("a \"quoted\" ${name}\n"),
            json!({"b": [1, {"c": false}], "empty": {}, "none": []}),
            Value::Null,
        ];
        for text in TEXTS {
            for first in 0..kinds.len() {
                let value = |at: usize| kinds[(first + at) % kinds.len()].clone();
                let names = names(text);
                let values: Vec<_> = names
                    .iter()
                    .enumerate()
                    .map(|(at, name)| (*name, value(at)))
                    .collect();
                let put = |value: &Value| {
                    if value.is_null() {
                        Put::Absent
                    } else {
                        Put::Value(value.clone())
                    }
                };
                let puts = values
                    .iter()
                    .map(|(name, value)| (*name, put(value)))
                    .collect();
                let part = Part { text, values: puts };
                assert_eq!(written(&part), filled(text, &values), "{text}");
            }
        }
    }

    #[test]
    fn what_is_put_in() {
        let map = Map::from(vec![("k".to_owned(), json!("v"))]);
        let inner = || Part {
            text: "{\"x\": \"${x}\", \"y\": \"${y}\"}",
            values: vec![("x", Put::Text("1\n")), ("y", Put::Absent)],
        };
        let part = Part {
            text: "{\"a\": \"${list}\", \"b\": [\"${none}\", \"${map}\"], \"c\": {\"d\": \"${part}\"}, \"e\": [\"${none}\"]}",
            values: vec![
                ("list", Put::List(vec![inner(), Part::plain("[true, -1]")])),
                ("none", Put::Absent),
                ("map", Put::Map(&map)),
                ("part", Put::Part(inner())),
            ],
        };
        let expected = json!({
            "a": [{"x": "1\n"}, [true, -1]], "b": [{"k": "v"}], "c": {"d": {"x": "1\n"}}, "e": []
        });
        assert_eq!(written(&part), expected.pretty() + "\n");
    }
}
