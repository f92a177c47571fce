//! The writer of the answers for people and for programs: one buffer that escapes and cuts, and the words for values of the
//! core.
//!
//! Nothing of a string reaches an answer but through `Buffer::text`: neither JSON nor HTML can be broken by what
//! somebody named his pod, and no string makes an answer large.

#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::history::Happening;
use crate::supervisor::State;

/// The context that a string is escaped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    Json,
    /// Text of an element, or a value in double quotes.
    Html,
}

/// An answer being made.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    escape: Escape,
    /// The longest string, in characters; what is cut ends in `…`.
    longest: usize,
}

impl Buffer {
    pub(super) fn new(escape: Escape, longest: usize, room: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(room),
            escape,
            longest,
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn last(&self) -> Option<u8> {
        self.bytes.last().copied()
    }

    /// Unescaped: a text of this program's, never a string from outside.
    pub(super) fn raw(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Escaped, and cut where it is too long.
    pub(super) fn text(&mut self, what: &dyn fmt::Display) {
        let left = self.longest;
        // Writing to a Buffer cannot fail; the result says only that something was cut.
        let _: fmt::Result = write!(BoundedText { buffer: self, left }, "{what}");
    }

    /// A text of this program's with a value, escaped, in the place of each `@`.
    pub(super) fn fill(&mut self, template: &str, values: &[&dyn fmt::Display]) {
        let mut values = values.iter();
        let mut pieces = template.split('@');
        self.raw(pieces.next().unwrap_or(""));
        for piece in pieces {
            if let Some(value) = values.next() {
                self.text(value);
            }
            self.raw(piece);
        }
    }

    fn escaped(&mut self, character: char) {
        let escape = match (self.escape, character) {
            (Escape::Json, '"') => "\\\"",
            (Escape::Json, '\\') => "\\\\",
            (Escape::Json, '\n') => "\\n",
            (Escape::Json, '\t') => "\\t",
            (Escape::Json, '\0'..='\u{1f}') => return self.control(character),
            (Escape::Html, '&') => "&amp;",
            (Escape::Html, '<') => "&lt;",
            (Escape::Html, '>') => "&gt;",
            (Escape::Html, '"') => "&quot;",
            // HTML has no way to write most of them.
            (Escape::Html, _) if character.is_control() => "\u{fffd}",
            (Escape::Json | Escape::Html, _) => {
                return self.raw(character.encode_utf8(&mut [0; 4]));
            }
        };
        self.raw(escape);
    }

    /// JSON's escape of a control character, all of which are below 0x20.
    fn control(&mut self, character: char) {
        self.raw(if character < '\u{10}' {
            "\\u000"
        } else {
            "\\u001"
        });
        let digit = u32::from(character) & 15;
        self.bytes
            .extend(char::from_digit(digit, 16).and_then(|digit| u8::try_from(digit).ok()));
    }
}

/// One string on its way into a buffer.
struct BoundedText<'a> {
    buffer: &'a mut Buffer,
    /// Characters that it may still have.
    left: usize,
}

impl fmt::Write for BoundedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let Some(left) = self.left.checked_sub(1) else {
                self.buffer.raw("…");
                return Err(fmt::Error);
            };
            self.left = left;
            self.buffer.escaped(character);
        }
        Ok(())
    }
}

/// A duration in its two largest units, for a person: `3d 4h`, `12s`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        if days > 0 {
            write!(f, "{days}d {hours}h")
        } else if hours > 0 {
            write!(f, "{hours}h {minutes}m")
        } else if minutes > 0 {
            write!(f, "{minutes}m {}s", seconds % 60)
        } else if seconds >= 10 {
            write!(f, "{seconds}s")
        } else {
            write!(f, "{seconds}.{}s", self.0.subsec_millis() / 100)
        }
    }
}

/// An event in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a>(pub(super) &'a Happening);

impl Words<'_> {
    /// Whether it deserves attention.
    pub(super) fn is_warning(self) -> bool {
        match self.0 {
            Happening::Note(note) => note.is_warning(),
            Happening::Started { .. } => false,
            Happening::Readiness(stage) => !stage.is_ready(),
        }
    }
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Happening::Note(note) => note.fmt(f),
            Happening::Started { epoch, pid, reason } => {
                write!(f, "{epoch} started: pid {pid}, reason {}", reason.name())
            }
            Happening::Readiness(stage) if stage.is_ready() => f.write_str("ready"),
            Happening::Readiness(stage) => write!(f, "not ready: {stage}"),
        }
    }
}

/// A process's state as `/status` says it.
pub(super) const fn state_name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Live => "live",
        State::Draining => "draining",
        State::Stopping(_) => "stopping",
    }
}
