//! Quoted scalars: which characters of a text belong to them, and the blanks that their lines lack.

/// The deepest column of a quoted scalar that counts, so that a line costs no more than this, however far to the right the scalar begins.
const MAX_COLUMN: usize = 64;

/// The parser asks for this many characters at the beginning of a quoted scalar, to see a document indicator, and behind no other
/// quote.
const DOCUMENT_INDICATOR: usize = 4;

/// The opening quote.
#[derive(Clone, Copy)]
pub(super) struct Quote {
    character: char,
    offset: usize,
}

/// The parser's place in the text.
#[derive(Clone, Copy, Default)]
pub(super) enum ScanPosition {
    #[default]
    Outside,
    /// Behind a quote that may be a letter of a plain scalar, a tag or an anchor.
    BehindQuote(Quote),
    Inside(Quote),
    /// Inside, and the next character is escaped.
    Escaped(Quote),
}

impl ScanPosition {
    /// Returns the place behind `character`, which stands at `offset`.
    pub(super) fn behind(self, character: char, next: char, offset: usize) -> Self {
        match self {
            Self::Outside | Self::BehindQuote(_) if matches!(character, '\'' | '"') => {
                Self::BehindQuote(Quote { character, offset })
            }
            Self::Outside | Self::BehindQuote(_) => Self::Outside,
            Self::Escaped(quote) => Self::Inside(quote),
            Self::Inside(quote) => match (quote.character, character) {
                ('\'', '\'') if next == '\'' => Self::Escaped(quote),
                ('"', '\\') => Self::Escaped(quote),
                (open, close) if open == close => Self::Outside,
                _ => self,
            },
        }
    }

    /// Returns the place when the parser asks for `count` characters.
    pub(super) fn lookahead(self, count: usize) -> Self {
        match self {
            Self::BehindQuote(quote) if count == DOCUMENT_INDICATOR => Self::Inside(quote),
            Self::BehindQuote(_) => Self::Outside,
            Self::Outside | Self::Inside(_) | Self::Escaped(_) => self,
        }
    }

    /// The opening quote of the scalar that goes on.
    pub(super) fn quote(self) -> Option<Quote> {
        match self {
            Self::Inside(quote) | Self::Escaped(quote) => Some(quote),
            Self::Outside | Self::BehindQuote(_) => None,
        }
    }
}

impl Quote {
    /// Returns the blanks that the line at `offset` lacks to begin no further left than the quote, which stands deeper than its
    /// key. Folding drops them.
    pub(super) fn lacking(self, text: &str, offset: usize) -> usize {
        let is_in_line = |byte: &&u8| !matches!(byte, b'\n' | b'\r');
        let before = text.as_bytes().get(..self.offset).unwrap_or_default();
        let column = before.iter().rev().take(MAX_COLUMN);
        let column = column.take_while(is_in_line).count();
        let line = text.as_bytes().get(offset..).unwrap_or_default();
        let blanks = line.iter().take(column).take_while(|byte| **byte == b' ');
        column.saturating_sub(blanks.count())
    }
}
