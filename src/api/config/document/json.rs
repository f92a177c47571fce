//! Documents of JSON that are not YAML as they stand.

use std::fmt::Write as _;
use std::iter;

use serde::de::IgnoredAny;
use serde_json::de::{StrRead, StreamDeserializer};

use super::LIMITS;
use crate::yaml::{self, Malformed, Node};

/// JSON is YAML, but for halves of characters (`\ud83d\ude00`), for tabs and characters that YAML has as escapes only, which all
/// stand nowhere else in it, and for values that follow each other with nothing between them, which kubectl takes.
pub(super) fn documents(text: &str) -> Option<impl Iterator<Item = Result<Node, Malformed>> + '_> {
    if !text.trim_start().starts_with(['{', '[']) || text.len() > LIMITS.bytes {
        return None;
    }
    let mut count = 0;
    for value in values(text) {
        value.ok()?;
        count += 1;
    }
    let odd = text.contains(is_only_json) || text.contains("\\ud") || text.contains("\\uD");
    (odd || count > 1).then(|| each(text))
}

fn values(text: &str) -> StreamDeserializer<'_, StrRead<'_>, IgnoredAny> {
    serde_json::Deserializer::from_str(text).into_iter()
}

/// One after the other: all of them together may take many times the text.
fn each(text: &str) -> impl Iterator<Item = Result<Node, Malformed>> + '_ {
    let mut values = values(text);
    let (mut begin, mut above) = (0, 0);
    iter::from_fn(move || {
        values.next()?.ok()?;
        let piece = text.get(begin..values.byte_offset())?;
        begin = values.byte_offset();
        let mut read = yaml::documents(&whole(piece), LIMITS).next()?;
        match &mut read {
            Ok(node) => node.move_down(above),
            Err(malformed) => malformed.line += above,
        }
        above += piece.matches('\n').count();
        Some(read)
    })
}

/// Whether JSON may have it where YAML does not.
fn is_only_json(letter: char) -> bool {
    matches!(
        letter,
        '\t' | '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

/// The same JSON without such characters, and with whole ones.
fn whole(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|letter| letter == '\\' || is_only_json(letter)) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let taken = match after.chars().next() {
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
        rest = after.get(taken..).unwrap_or_default();
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
        .filter(|letter| letter.len_utf16() == 2)
}
