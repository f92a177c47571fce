//! Tabs in the indentation: the parser takes some of them, and every reader of Kubernetes refuses all.

use granit_parser::{Event, Span};

use super::{Malformed, malformed};

/// Checks the indentation of each node of a text.
pub(super) struct Indents<'a> {
    text: &'a str,
    /// For each open list and object, whether it is in brackets: there a tab is a blank like any other.
    in_brackets: Vec<bool>,
}

impl<'a> Indents<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let in_brackets = Vec::new();
        Self { text, in_brackets }
    }

    /// Refuses a node that a tab has moved to its column.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "of the stream, or presentation: there may be more of it"
    )]
    pub(super) fn check(&mut self, event: &Event<'_>, span: Span) -> Result<(), Malformed> {
        let Some(begin) = span.start.byte_offset() else {
            return Ok(());
        };
        let in_brackets = self.in_brackets.last() == Some(&true);
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let first = self.text.as_bytes().get(begin);
                let opens = matches!(first, Some(b'[' | b'{'));
                self.in_brackets.push(in_brackets || opens);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.in_brackets.pop();
                return Ok(());
            }
            Event::Scalar(..) | Event::Alias(_) => {}
            _ => return Ok(()),
        }
        if in_brackets || !self.is_behind_a_tab(begin) {
            return Ok(());
        }
        let cause = "a tab in the indentation; YAML wants spaces";
        Err(malformed(span.start.line(), cause))
    }

    /// Returns true if only blanks and structural marks precede this place in its line, and one of them is a tab.
    fn is_behind_a_tab(&self, begin: usize) -> bool {
        let before = self.text.as_bytes().get(..begin).unwrap_or_default();
        let is_structure = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'-' | b'?' | b':');
        let line = before.iter().rev().take_while(is_structure);
        let (mut length, mut tabs) = (0_usize, 0_usize);
        for byte in line {
            length += 1;
            tabs += usize::from(*byte == b'\t');
        }
        if tabs == 0 {
            return false;
        }
        let (rest, line) = before.split_at(before.len().saturating_sub(length));
        // After `---` on the same line a tab is a blank, too.
        matches!(rest.last(), None | Some(b'\n' | b'\r')) && !line.starts_with(b"---")
    }
}
