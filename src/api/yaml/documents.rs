//! The documents of a text, one after the other.

use std::fmt;

use granit_parser::{Event, Parser, StrInput};

use super::builder::Builder;
use super::{Limits, Malformed, Node, malformed};

/// Each with its own account of values; what is no YAML ends it.
pub struct Documents<'a> {
    parser: Parser<'a, StrInput<'a>>,
    limits: Limits,
    strict: bool,
    /// Where the current one begins.
    line: usize,
    too_long: bool,
    ended: bool,
}

/// The documents of a text, with no tags but those of the core.
#[must_use]
pub fn documents(text: &str, limits: Limits) -> Documents<'_> {
    Documents::new(text, limits, true)
}

impl<'a> Documents<'a> {
    pub(super) fn new(text: &'a str, limits: Limits, strict: bool) -> Self {
        let mut options = granit_parser::options! {
            flow_nesting_limit: limits.depth,
            block_nesting_limit: limits.depth,
        };
        // Else a long comment is an error, where another crate has switched them on.
        options.set_emit_comments(false);
        Self {
            parser: Parser::new_from_str_with_options(text, options),
            limits,
            strict,
            line: 0,
            too_long: text.len() > limits.bytes,
            ended: false,
        }
    }

    /// Where the document that came last begins.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    fn read(&mut self) -> Result<Option<Node>, Malformed> {
        if self.too_long {
            let cause = format!("longer than {} bytes", self.limits.bytes);
            return Err(malformed(0, cause));
        }
        let mut builder = Builder::new(self.limits, self.strict);
        while let Some(event) = self.parser.next_event() {
            let (event, span) =
                event.map_err(|error| malformed(error.marker().line(), error.info()))?;
            if matches!(event, Event::DocumentEnd) {
                return Ok(builder.root.map(|built| built.node));
            }
            if matches!(event, Event::DocumentStart(..)) {
                self.line = span.start.line();
            }
            builder.take(event, span)?;
        }
        Ok(None)
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Node, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

impl fmt::Debug for Documents<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Documents")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}
