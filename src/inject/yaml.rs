//! YAML into a tree that remembers how each scalar was written.
//!
//! A template's `15000` is a number or a string by what the field wants, so the reader must not decide. The events come from
//! a library; here they become a tree, with bounds on depth and on nodes after aliases, and with keys that occur once.

use std::borrow::Cow;
use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};

/// Lists and objects within each other.
pub const MAX_DEPTH: usize = 128;
/// Scalars, lists and objects after aliases.
pub const MAX_NODES: usize = 100_000;

/// A value and the line on which it begins, from 1.
#[derive(Debug, Clone)]
pub struct Node {
    pub line: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A scalar as it was written; quoted (or tagged `!!str`) ones are text whatever they look like.
#[derive(Debug, Clone)]
pub struct Scalar {
    pub text: String,
    pub quoted: bool,
}

/// Why a text is not a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub line: usize,
    pub cause: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.cause)
    }
}

impl std::error::Error for Unreadable {}

/// Reads one document. Nothing in it, comments apart, is `None`.
pub fn read(text: &str) -> Result<Option<Node>, Unreadable> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: Vec::new(),
        nodes: 0,
        kept: 0,
    };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(root.filter(|root: &Node| !root.is_nothing())),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..) => {
                let node = reader.node(event, span, 0)?;
                if node.is_nothing() {
                    continue;
                }
                if root.is_some() {
                    return Err(Unreadable {
                        line: line(span),
                        cause: "more than one document".to_owned(),
                    });
                }
                root = Some(node);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                return Err(Unreadable {
                    line: line(span),
                    cause: "an end without its beginning".to_owned(),
                });
            }
        }
    }
}

impl Node {
    /// An empty document, which the events show as an empty scalar.
    fn is_nothing(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.text.is_empty() && !scalar.quoted)
    }

    /// The tree as JSON where nobody says what is wanted: plain scalars are what YAML 1.1 makes of them.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.to_json(),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Kind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, node)| (key.clone(), node.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// The value of a key, where this is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map(entries) => entries
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, node)| node),
            Kind::Scalar(_) | Kind::List(_) => None,
        }
    }
}

impl Scalar {
    #[must_use]
    pub fn is_null(&self) -> bool {
        !self.quoted && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        if self.quoted {
            return None;
        }
        match self.text.as_str() {
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
            _ => None,
        }
    }

    /// The number that a plain scalar is; `0644` is octal as YAML 1.1 has it.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        if self.quoted {
            return None;
        }
        integer(&self.text).or_else(|| float(&self.text))
    }

    #[must_use]
    pub fn to_json(&self) -> Value {
        if self.is_null() {
            return Value::Null;
        }
        self.boolean()
            .map(Value::Bool)
            .or_else(|| self.number().map(Value::Number))
            .unwrap_or_else(|| Value::String(self.text.clone()))
    }
}

fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty()
        || digits.starts_with('_')
        || !digits.starts_with(|first: char| first.is_ascii_digit())
    {
        return None;
    }
    let digits: Cow<'_, str> = if digits.contains('_') {
        digits.replace('_', "").into()
    } else {
        digits.into()
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..)?),
        Some("0o" | "0O") => (8, digits.get(2..)?),
        Some("0b" | "0B") => (2, digits.get(2..)?),
        Some(_)
            if digits.starts_with('0') && digits.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            (8, digits.get(1..)?)
        }
        _ => (10, digits.as_ref()),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let value = if negative { -value } else { value };
    i64::try_from(value)
        .map(Number::from)
        .or_else(|_| u64::try_from(value).map(Number::from))
        .ok()
}

fn float(text: &str) -> Option<Number> {
    let plain = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !plain.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        || !plain.contains(|digit: char| digit.is_ascii_digit())
    {
        return None;
    }
    if !plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
    {
        return None;
    }
    // What JSON can write keeps its digits.
    if let Ok(number) = serde_json::from_str::<Number>(text) {
        return Some(number);
    }
    Number::from_f64(text.parse().ok()?)
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// Finished trees by the number of their anchor, with how many nodes each has.
    anchors: Vec<(usize, Node, usize)>,
    nodes: usize,
    /// Nodes that anchors hold: anchors within anchors hold the same ones again.
    kept: usize,
}

fn line(span: Span) -> usize {
    span.start.line()
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Unreadable> {
        match self.parser.next_event() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => Err(Unreadable {
                line: error.marker().line(),
                cause: error.info().to_owned(),
            }),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn count(&mut self, span: Span, nodes: usize) -> Result<(), Unreadable> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(Unreadable {
                line: line(span),
                cause: format!("more than {MAX_NODES} values"),
            });
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Unreadable> {
        if depth > MAX_DEPTH {
            return Err(Unreadable {
                line: line(span),
                cause: format!("nested deeper than {MAX_DEPTH}"),
            });
        }
        let line = line(span);
        let before = self.nodes;
        self.count(span, 1)?;
        let (anchor, kind) = match event {
            Event::Alias(id) => return self.alias(id, span),
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, Kind::Scalar(scalar(text, style, tag.as_deref())))
            }
            Event::SequenceStart(anchor, _) => (anchor, Kind::List(self.list(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, Kind::Map(self.map(depth)?)),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => {
                return Err(Unreadable {
                    line,
                    cause: "a value is missing".to_owned(),
                });
            }
        };
        let node = Node { line, kind };
        if anchor != 0 {
            let size = self.nodes - before;
            self.kept = self.kept.saturating_add(size);
            if self.kept > MAX_NODES {
                return Err(Unreadable {
                    line,
                    cause: format!("more than {MAX_NODES} values behind anchors"),
                });
            }
            self.anchors.push((anchor, node.clone(), size));
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<Node, Unreadable> {
        let found = self
            .anchors
            .iter()
            .rev()
            .find(|(anchor, ..)| *anchor == id)
            .map(|(_, node, size)| (node.clone(), *size));
        let Some((node, size)) = found else {
            return Err(Unreadable {
                line: line(span),
                cause: "an alias within what it stands for".to_owned(),
            });
        };
        self.count(span, size)?;
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Unreadable> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(items);
            }
            items.push(self.node(event, span, depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>, Unreadable> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        let mut merged = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let Kind::Scalar(key) = self.node(event, span, depth + 1)?.kind else {
                return Err(Unreadable {
                    line: line(span),
                    cause: "a key that is no text".to_owned(),
                });
            };
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, depth + 1)?;
            if key.text == "<<" && !key.quoted {
                merged.push(value);
                continue;
            }
            if !seen.insert(key.text.clone()) {
                return Err(Unreadable {
                    line: line(span),
                    cause: format!("key {:?} twice", key.text),
                });
            }
            entries.push((key.text, value));
        }
        // `<<` gives what the object does not say itself.
        for value in merged {
            let sources = match value.kind {
                Kind::List(items) => items,
                Kind::Map(_) | Kind::Scalar(_) => vec![value],
            };
            for source in sources {
                let Kind::Map(inherited) = source.kind else {
                    return Err(Unreadable {
                        line: source.line,
                        cause: "<< wants an object".to_owned(),
                    });
                };
                entries.extend(
                    inherited
                        .into_iter()
                        .filter(|(key, _)| seen.insert(key.clone())),
                );
            }
        }
        Ok(entries)
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    Scalar {
        text: text.into_owned(),
        quoted: style != ScalarStyle::Plain || is_text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        read(text)
            .unwrap()
            .map_or(Value::Null, |node| node.to_json())
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        let text = "[yes, Off, '1', 0644, 0x10, 1_000, 1.5, -3, ~, , 'no', x, 1e3, .5, 1.2.3, !!str 12, 0o17]";
        let found = value(&text.replace(", ,", ", null,"));
        assert_eq!(
            found,
            json!([
                true,
                false,
                "1",
                420,
                16,
                1000,
                serde_json::from_str::<Number>("1.5").unwrap(),
                -3,
                null,
                null,
                "no",
                "x",
                serde_json::from_str::<Number>("1e3").unwrap(),
                0.5,
                "1.2.3",
                "12",
                15
            ])
        );
        assert_eq!(
            value("a: 1152921504606846977").to_string(),
            r#"{"a":1152921504606846977}"#
        );
    }

    #[test]
    fn nothing_is_nothing() {
        for text in [
            "",
            "\n\n",
            "# only\n# comments\n",
            "---\n",
            "---\n# x\n...\n",
        ] {
            assert!(read(text).unwrap().is_none(), "{text:?}");
        }
        assert!(
            read("a: 1\n---\nb: 2\n")
                .unwrap_err()
                .cause
                .contains("more than one")
        );
    }

    #[test]
    fn aliases_and_merges_are_followed() {
        assert_eq!(
            value("a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, k: 3}"),
            json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}, "c": {"k": 3, "l": 2}})
        );
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        assert_eq!(
            read("a: 1\nb: 2\na: 3\n").unwrap_err(),
            Unreadable {
                line: 3,
                cause: "key \"a\" twice".to_owned()
            }
        );
        assert_eq!(read("a:\n  - [b\n").unwrap_err().line, 3);
        assert!(read("a: *x").is_err());
    }

    #[test]
    fn a_bomb_is_an_error() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let inner = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", vec![inner; 10].join(", "));
        }
        assert!(read(&text).unwrap_err().cause.contains("more than"));
        assert!(read(&"[".repeat(100_000)).is_err());
        let stairs: String = (0..200)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect();
        assert!(read(&stairs).unwrap_err().cause.contains("deeper"));
        assert!(read("a: &a [*a]").is_err());
    }
}
