//! The documents of a text, one after the other.

use std::collections::BTreeSet;
use std::fmt;

use granit_parser::{ErrorKind, Event, Options, Parser, ScanError};

use super::builder::{Builder, ListItems, TOO_DEEP};
use super::indent::Indents;
use super::input::Text;
use super::{Limits, Malformed, MalformedKind, Node, Tags, malformed};

/// The documents of a text, each with its own count of values; an error ends them.
pub struct Documents<'a> {
    parser: Parser<'a, Text<'a>>,
    text: &'a str,
    indents: Indents<'a>,
    limits: Limits,
    tags: Tags,
    /// The line where the current document begins.
    line: usize,
    /// Indices of the documents whose `items` come one by one.
    split: BTreeSet<usize>,
    /// The builder of a document that is split, between two of its items.
    builder: Option<Builder>,
    /// The number of documents that have ended.
    behind: usize,
    too_long: bool,
    ended: bool,
}

/// A document, or an item of a document that is split.
#[derive(Clone, Debug)]
pub struct Piece {
    pub node: Node,
    /// The index of its document in the text.
    pub document: usize,
    pub is_item: bool,
}

/// The documents of a text, with no tags but those of the core.
#[must_use]
pub fn documents(text: &str, limits: Limits) -> Documents<'_> {
    Documents::new(text, limits, Tags::Core)
}

pub(super) fn options(limits: Limits) -> Options {
    let mut options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
    };
    // Else a long comment is an error, where another crate has switched them on.
    options.set_emit_comments(false);
    options
}

/// The parser's words, with the remedy of a mistake that stars and ampersands invite to.
pub(super) fn wrong(error: &ScanError) -> Malformed {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the parser has words for all other mistakes"
    )]
    let cause = match error.kind() {
        ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => {
            "an alias (`*`) or an anchor (`&`) that leads nowhere; if it is text, quote it"
                .to_owned()
        }
        ErrorKind::RecursionLimitExceeded => TOO_DEEP.to_owned(),
        _ => error.info(),
    };
    malformed(error.marker().line(), cause)
}

/// Says of a mistake in a line with an action of a template that the text is one. In quotes and comments it is text, as in alerts and
/// dashboards.
fn of_template(text: &str, error: Malformed) -> Malformed {
    let at = error.line.checked_sub(1);
    let line = at.and_then(|at| text.lines().nth(at)).unwrap_or_default();
    let action = line.split_once("{{");
    let is_action = action.is_some_and(|(before, _)| !before.contains(['"', '\'', '#']));
    match error.kind {
        MalformedKind::Other if is_action => {
            malformed(error.line, "it is a template: render it first")
        }
        MalformedKind::Other | MalformedKind::TooManyValues => error,
    }
}

impl<'a> Documents<'a> {
    pub(super) fn new(text: &'a str, limits: Limits, tags: Tags) -> Self {
        Self {
            parser: Parser::with_options(Text::new(text), options(limits)),
            text,
            indents: Indents::new(text),
            limits,
            tags,
            line: 0,
            split: BTreeSet::new(),
            builder: None,
            behind: 0,
            too_long: text.len() > limits.bytes,
            ended: false,
        }
    }

    /// Splits documents: their items come one by one, each with its own count, and their other fields are dropped. The documents are
    /// named by their index, and must be documents in which [`outlines`](super::outlines) finds items.
    #[must_use]
    pub fn split(mut self, documents: BTreeSet<usize>) -> Self {
        self.split = documents;
        self
    }

    /// The line where the document that came last begins.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The number of documents that have ended.
    #[must_use]
    pub fn behind(&self) -> usize {
        self.behind
    }

    /// The next, with its place.
    pub fn piece(&mut self) -> Option<Result<Piece, Malformed>> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        let read = read.map(|read| read.map_err(|error| of_template(self.text, error)));
        // Behind text that is no YAML no document's beginning is known.
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }

    fn read(&mut self) -> Result<Option<Piece>, Malformed> {
        if self.too_long {
            let cause = crate::size::longer_than(self.limits.bytes);
            return Err(malformed(0, cause));
        }
        let mut builder = match self.builder.take() {
            Some(builder) => builder,
            None => self.fresh(),
        };
        while let Some(event) = self.parser.next_event() {
            let (event, span) = event.map_err(|error| wrong(&error))?;
            if matches!(event, Event::DocumentStart(..)) {
                self.line = span.start.line();
            }
            let document = self.behind;
            if matches!(event, Event::DocumentEnd) {
                self.behind = self.behind.saturating_add(1);
                if self.split.contains(&document) {
                    builder = self.fresh();
                    continue;
                }
                let root = builder.root.map(|built| built.node);
                return Ok(root.map(|node| Piece {
                    node,
                    document,
                    is_item: false,
                }));
            }
            self.indents.check(&event, span)?;
            builder.take(event, span)?;
            if let Some(node) = builder.item() {
                self.builder = Some(builder);
                return Ok(Some(Piece {
                    node,
                    document,
                    is_item: true,
                }));
            }
        }
        Ok(None)
    }

    /// Returns a builder for the next document.
    fn fresh(&self) -> Builder {
        let items = match self.split.contains(&self.behind) {
            true => ListItems::OneByOne,
            false => ListItems::WithRoot,
        };
        Builder::new(self.limits, self.tags, items)
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Node, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.piece()?;
        Some(piece.map(|piece| piece.node))
    }
}

impl fmt::Debug for Documents<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Documents")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}
