//! Documents of JSON that are not YAML as they stand.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::vec;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::de::{StrRead, StreamDeserializer};
use serde_json::value::RawValue;

use super::lists::{self, ItemType};
use crate::yaml::{self, Limits, Malformed, Node};

/// JSON is YAML, but for halves of characters (`\ud83d\ude00`), for tabs and characters that YAML has as escapes only, which all
/// stand nowhere else in it, and for values that follow each other with nothing between them, which kubectl takes.
pub(super) fn documents(
    text: &str,
    limits: Limits,
) -> Option<impl Iterator<Item = Result<Node, Malformed>> + '_> {
    if !text.trim_start().starts_with(['{', '[']) || text.len() > limits.bytes {
        return None;
    }
    let mut count = 0;
    // The reader of YAML reports the errors of a text that is no JSON.
    for value in values::<IgnoredAny>(text) {
        value.ok()?;
        count += 1;
    }
    let odd = text.contains(is_only_json) || text.contains("\\ud") || text.contains("\\uD");
    (odd || count > 1).then(|| Values::new(text, limits).filter(is_there))
}

/// Leaves out a null, as a blank document of YAML.
fn is_there(read: &Result<Node, Malformed>) -> bool {
    !read.as_ref().is_ok_and(Node::is_null)
}

fn values<'a, T: Deserialize<'a>>(text: &'a str) -> StreamDeserializer<'a, StrRead<'a>, T> {
    serde_json::Deserializer::from_str(text).into_iter()
}

/// The top of a value that may be a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Top<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// One after the other: all of them together may take many times the text.
struct Values<'a> {
    text: &'a str,
    limits: Limits,
    values: StreamDeserializer<'a, StrRead<'a>, &'a RawValue>,
    /// Items of the list that came last.
    items: vec::IntoIter<&'a RawValue>,
    of: ItemType,
    /// Up to where lines are counted, and how many there are.
    counted: (usize, usize),
}

impl<'a> Values<'a> {
    fn new(text: &'a str, limits: Limits) -> Self {
        Self {
            text,
            limits,
            values: values(text),
            items: Vec::new().into_iter(),
            of: ItemType::default(),
            counted: (0, 0),
        }
    }

    /// The number of lines above a piece of the text; callers ask in the text's order.
    fn above(&mut self, piece: &str) -> usize {
        // Pieces are borrowed from the text, so their addresses are places in it.
        let begin = piece
            .as_ptr()
            .addr()
            .saturating_sub(self.text.as_ptr().addr());
        let (counted, lines) = self.counted;
        let between = self.text.get(counted..begin).unwrap_or_default();
        let lines = lines.saturating_add(between.matches('\n').count());
        self.counted = (begin.max(counted), lines);
        lines
    }

    fn node(&mut self, piece: &str, is_item: bool) -> Option<Result<Node, Malformed>> {
        let above = self.above(piece);
        let read = yaml::documents(&as_yaml(piece), self.limits).next()?;
        let read = read.and_then(|mut node| {
            if is_item {
                self.of.complete(&mut node);
            }
            lists::complete(&mut node)?;
            Ok(node)
        });
        Some(match read {
            Ok(mut node) => {
                node.move_down(above);
                Ok(node)
            }
            Err(mut malformed) => {
                malformed.line = malformed.line.saturating_add(above);
                Err(lists::divisible(malformed, is_item))
            }
        })
    }
}

impl Iterator for Values<'_> {
    type Item = Result<Node, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.items.next() {
                return self.node(item.get(), true);
            }
            let value = self.values.next()?.ok()?.get();
            match serde_json::from_str::<Top<'_>>(value) {
                Ok(top) if let Some(of) = ItemType::of(&top.api_version, &top.kind, true) => {
                    (self.of, self.items) = (of, top.items.into_iter());
                }
                Ok(_) | Err(_) => return self.node(value, false),
            }
        }
    }
}

/// Returns true for a character that JSON may have unescaped and YAML may not.
fn is_only_json(letter: char) -> bool {
    matches!(
        letter,
        '\t' | '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

/// The same JSON without such characters, and with whole ones.
fn as_yaml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|letter| letter == '\\' || is_only_json(letter)) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let length = match after.chars().next() {
            // Between values.
            Some('\t') => {
                out.push(' ');
                1
            }
            Some(letter) if is_only_json(letter) => {
                // Writing to a String does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
                letter.len_utf8()
            }
            _ => {
                if let Some(letter) = after.get(..12).and_then(pair) {
                    out.push(letter);
                    12
                } else {
                    let end = after.char_indices().nth(2);
                    let end = end.map_or(after.len(), |(at, _)| at);
                    out.push_str(after.get(..end).unwrap_or_default());
                    end
                }
            }
        };
        rest = after.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// `\ud83d\ude00` as the character that it is.
fn pair(escape: &str) -> Option<char> {
    let half = |at: usize| {
        let digits = escape.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    char::decode_utf16([half(0)?, half(6)?])
        .next()?
        .ok()
        // Two escapes of whole characters are no pair.
        .filter(|letter| letter.len_utf16() == 2)
}
