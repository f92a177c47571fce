//! Slots of a text: scalars that may be replaced without changing how the rest is parsed.
//!
//! A template prints names and labels of a pod into a text that is otherwise the same for all pods. If such a name is a
//! scalar of its own at the end of its line, and its field is a string, the parser reads any other name of the same plain
//! style as itself. So a text that differs from a known one in such slots only need not be parsed.
//!
//! The plain style is much narrower than YAML allows, and both texts are checked for it: text in double quotes, on one line
//! and with few escapes; words of letters and digits; a block of one line.

use crate::output_types::Text;

/// A place for another text.
#[derive(Debug)]
pub(crate) struct TextSlot {
    begin: usize,
    end: usize,
    style: Style,
    /// The path to the text in the parsed value.
    pub(crate) trail: Box<[usize]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Text in double quotes.
    Quoted,
    Plain,
    /// The line below `|`.
    Line,
    /// The line below `|-`.
    BareLine,
}

impl Style {
    /// Returns the length in bytes of such a scalar at the start of `text`; `None` if there is none, or a more complex one.
    fn length(self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Quoted => quoted(text),
            Self::Plain => plain_scalar(text),
            Self::Line | Self::BareLine => line(text),
        }
    }

    /// The value of the scalar.
    fn decode(self, text: &str) -> String {
        match self {
            Self::Quoted => unescaped(text),
            Self::Plain | Self::BareLine => text.to_owned(),
            Self::Line => format!("{text}\n"),
        }
    }
}

impl TextSlot {
    /// Returns the slot at a scalar that was parsed as `value`.
    pub(crate) fn at(text: &str, scalar: &Text, value: &str) -> Option<Self> {
        let begin = scalar.begin;
        let (before, here) = text.split_at_checked(begin)?;
        let style = match here.as_bytes() {
            _ if scalar.plain => Style::Plain,
            [b'"', ..] => Style::Quoted,
            _ => block(before)?,
        };
        let end = begin + style.length(here.as_bytes())?;
        let slot = Self {
            begin,
            end,
            style,
            trail: scalar.trail.clone(),
        };
        // A scalar that the parser reads otherwise than this narrow style does is no slot.
        (style.decode(text.get(begin..end)?) == value).then_some(slot)
    }

    pub(crate) fn begin(&self) -> usize {
        self.begin
    }
}

/// Returns the values of the slots of `cached`, by index, that differ in `text`; `None` if anything else differs.
pub(crate) fn differences(
    cached: &str,
    slots: &[TextSlot],
    text: &str,
) -> Option<Vec<(usize, String)>> {
    let (mut from, mut rest) = (0, text);
    let mut differences = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        rest = behind(rest, cached.get(from..slot.begin)?)?;
        let (written, after) = rest.split_at_checked(slot.style.length(rest.as_bytes())?)?;
        if cached.get(slot.begin..slot.end)? != written {
            differences.push((number, slot.style.decode(written)));
        }
        (from, rest) = (slot.end, after);
    }
    behind(rest, cached.get(from..)?)?
        .is_empty()
        .then_some(differences)
}

/// The rest of `text` after `begin`; `None` if it begins otherwise.
fn behind<'a>(text: &'a str, begin: &str) -> Option<&'a str> {
    let (found, rest) = text.split_at_checked(begin.len())?;
    let (found, rest_of_found) = found.as_bytes().as_chunks::<16>();
    let (begin, rest_of_begin) = begin.as_bytes().as_chunks::<16>();
    // The C library compares byte by byte, of which there are thousands here.
    let is_same =
        |(a, b): (&[u8; 16], &[u8; 16])| u128::from_ne_bytes(*a) == u128::from_ne_bytes(*b);
    (found.iter().zip(begin).all(is_same) && rest_of_found == rest_of_begin).then_some(rest)
}

fn quoted(text: &[u8]) -> Option<usize> {
    let (b'"', text) = text.split_first()? else {
        return None;
    };
    let mut escaped = false;
    for (place, byte) in text.iter().enumerate() {
        match byte {
            b'"' | b'\\' | b'n' | b't' if escaped => escaped = false,
            _ if escaped => return None,
            b'\\' => escaped = true,
            b'"' => return Some(place + 2),
            b' '..=b'~' => {}
            _ => return None,
        }
    }
    None
}

fn unescaped(escaped: &str) -> String {
    let inner = escaped.get(1..escaped.len() - 1).unwrap_or_default();
    let mut text = String::with_capacity(inner.len());
    let mut parts = inner.split('\\');
    text.push_str(parts.next().unwrap_or_default());
    while let Some(part) = parts.next() {
        match part.as_bytes().first() {
            // An escaped backslash: the text after the second one has no escape before it.
            None => {
                text.push('\\');
                text.push_str(parts.next().unwrap_or_default());
            }
            Some(b'n') => {
                text.push('\n');
                text.push_str(part.get(1..).unwrap_or_default());
            }
            Some(b't') => {
                text.push('\t');
                text.push_str(part.get(1..).unwrap_or_default());
            }
            Some(_) => text.push_str(part),
        }
    }
    text
}

fn plain_scalar(text: &[u8]) -> Option<usize> {
    let inner = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'.' | b'_' | b'/' | b'-' | b'$' | b'(' | b')')
    };
    if !matches!(text.first()?, byte if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'$'))
    {
        return None;
    }
    let length = text.iter().position(|byte| !inner(byte))?;
    let is_nothing = matches!(text.get(..length)?, b"null" | b"Null" | b"NULL");
    (!is_nothing).then_some(length)
}

fn line(text: &[u8]) -> Option<usize> {
    if matches!(text.first()?, b' ' | b'#' | b'\n') {
        return None;
    }
    let length = text.iter().position(|byte| !matches!(byte, b' '..=b'~'))?;
    (text.get(length) == Some(&b'\n')).then_some(length)
}

/// The style of the block whose first line begins behind `before`.
fn block(before: &str) -> Option<Style> {
    let header = before.trim_end_matches(' ');
    if header.len() == before.len() {
        return None;
    }
    match header.as_bytes() {
        [.., b' ', b'|', b'\n'] => Some(Style::Line),
        [.., b' ', b'|', b'-', b'\n'] => Some(Style::BareLine),
        _ => None,
    }
}
