//! The tops of documents (`apiVersion`, `kind` and `items`), read without a tree.

use std::fmt;

use granit_parser::{Event, Parser};

use super::documents::{options, wrong};
use super::input::Text;
use super::{Limits, Malformed};

/// The top of a document, as far as it tells a list from an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Empty where it is missing or no scalar.
    pub api_version: String,
    /// Empty where it is missing or no scalar.
    pub kind: String,
    /// `items` is a list that no alias can repeat.
    pub has_items: bool,
}

/// The tops of all documents of a text; an error ends them.
pub struct Outlines<'a> {
    parser: Parser<'a, Text<'a>>,
    ended: bool,
}

/// Bounded in depth, and kept nowhere: a text of any length may be asked.
#[must_use]
pub fn outlines(text: &str, limits: Limits) -> Outlines<'_> {
    Outlines {
        parser: Parser::with_options(Text::new(text), options(limits)),
        ended: false,
    }
}

impl Iterator for Outlines<'_> {
    type Item = Result<Outline, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut top = OpenDocument::default();
        while let Some(event) = self.parser.next_event() {
            match event {
                Ok((Event::DocumentEnd, _)) => return Some(Ok(top.outline)),
                Ok((event, _)) => top.take(&event),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(wrong(&error)));
                }
            }
        }
        self.ended = true;
        None
    }
}

impl fmt::Debug for Outlines<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Outlines")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// A document on its way by.
#[derive(Default)]
struct OpenDocument {
    outline: Outline,
    depth: usize,
    is_map: bool,
    /// Waiting for its value; empty where it is none of those that count.
    key: Option<String>,
}

impl OpenDocument {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "of the stream, or presentation: there may be more of it"
    )]
    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Scalar(text, ..) => {
                if let Some(key) = self.at_top(text) {
                    self.set_field(&key, text);
                }
            }
            // An alias may be a key or a value, so it takes its turn.
            Event::Alias(_) => drop(self.at_top("")),
            Event::SequenceStart(_, anchor, _) => {
                // With an anchor the list may be wanted again, when its items are gone.
                let key = self.at_top("");
                self.outline.has_items |= key.as_deref() == Some("items") && *anchor == 0;
                self.depth = self.depth.saturating_add(1);
            }
            Event::MappingStart(..) => {
                self.is_map |= self.depth == 0;
                drop(self.at_top(""));
                self.depth = self.depth.saturating_add(1);
            }
            Event::SequenceEnd | Event::MappingEnd => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns the key of a value at the top. A key at the top is remembered, and yields `None`.
    fn at_top(&mut self, text: &str) -> Option<String> {
        if self.depth != 1 || !self.is_map {
            return None;
        }
        let key = self.key.take();
        if key.is_none() {
            let counts = ["apiVersion", "kind", "items"].contains(&text);
            self.key = Some(if counts {
                text.to_owned()
            } else {
                String::new()
            });
        }
        key
    }

    fn set_field(&mut self, key: &str, text: &str) {
        match key {
            "apiVersion" => text.clone_into(&mut self.outline.api_version),
            "kind" => text.clone_into(&mut self.outline.kind),
            _ => {}
        }
    }
}
