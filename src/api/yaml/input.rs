//! Text in the form for the parser, with two differences from YAML 1.2 that manifests of Kubernetes count on.

use granit_parser::input::{SkipTabs, WhitespaceResult, is_flow};
use granit_parser::{BorrowedInput, ErrorKind, Input, StrInput};

use super::quoted::ScanPosition;

/// In flow style a colon before `,`, `]` or `}` is a part of the plain scalar, as for kubectl: `[2001:db8::, 10.0.0.1]` is a
/// list of two strings. YAML 1.2 has a map in it.
///
/// Lines of a quoted scalar may begin left of its key, as for kubectl: Istio's own manifests have dashboards like that. YAML 1.2
/// refuses them, so the parser is given the blanks that they lack.
pub(super) struct Text<'a> {
    input: StrInput<'a>,
    text: &'a str,
    position: ScanPosition,
    /// Blanks to give before the text goes on; the parser passes them one by one.
    blanks: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            input: StrInput::new(text),
            text,
            position: ScanPosition::default(),
            blanks: 0,
        }
    }

    /// Returns true if the plain scalar goes on at a colon where the parser's own rule ends it.
    fn goes_on(&self, in_flow: bool) -> bool {
        in_flow && self.input.peek() == ':' && is_flow(self.input.peek_nth(1))
    }

    /// Returns the blanks that a line lacks which begins here. A document indicator stays one, as it ends the document for every
    /// reader, and a line without text needs none.
    fn lacking(&self) -> usize {
        let offset = self.input.byte_offset();
        let (Some(quote), Some(offset)) = (self.position.quote(), offset) else {
            return 0;
        };
        match self.input.next_is_break() || self.input.next_is_document_indicator() {
            true => 0,
            false => quote.lacking(self.text, offset),
        }
    }
}

impl<'a> BorrowedInput<'a> for Text<'a> {
    fn slice_borrowed(&self, start: usize, end: usize) -> Option<&'a str> {
        self.input.slice_borrowed(start, end)
    }
}

/// Methods that are as they were.
macro_rules! as_they_were {
    ($(ref $name:ident($($given:ident: $type:ty),*) -> $out:ty;)* $(mut $changes:ident($($with:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($given: $type),*) -> $out {
            self.input.$name($($given),*)
        })*
        $(fn $changes(&mut self, $($with: $of),*) -> $result {
            self.input.$changes($($with),*)
        })*
    };
}

impl Input for Text<'_> {
    as_they_were! {
        ref buflen() -> usize;
        ref bufmaxlen() -> usize;
        ref peek_nth(n: usize) -> char;
        ref byte_offset() -> Option<usize>;
        ref slice_bytes(start: usize, end: usize) -> Option<&str>;
        ref next_2_are(c1: char, c2: char) -> bool;
        ref next_3_are(c1: char, c2: char, c3: char) -> bool;
        ref next_is_document_indicator() -> bool;
        ref next_is_document_start() -> bool;
        ref next_is_document_end() -> bool;
        ref next_is_blank_or_break() -> bool;
        ref next_is_blank_or_breakz() -> bool;
        ref next_is_break() -> bool;
        ref next_is_breakz() -> bool;
        ref next_is_z() -> bool;
        ref next_is_flow() -> bool;
        ref next_is_digit() -> bool;
        ref next_is_alpha() -> bool;
        mut raw_read_ch() -> char;
        mut raw_read_non_breakz_ch() -> Option<char>;
        mut skip_n(count: usize) -> ();
        mut skip_ws_to_eol(tabs: SkipTabs) -> (usize, Result<WhitespaceResult, ErrorKind>);
        mut skip_ws_to_eol_blanks(tabs: SkipTabs) -> (usize, WhitespaceResult);
        mut skip_while_non_breakz() -> usize;
        mut skip_while_blank() -> usize;
        mut fetch_while_is_alpha(out: &mut String) -> usize;
        mut fetch_while_is_yaml_non_space(out: &mut String) -> usize;
        mut fetch_block_scalar_line(out: &mut String) -> usize;
        mut take_quoted_scalar_ascii_chunk(single: bool) -> &str;
        mut take_quoted_scalar_chunk(single: bool) -> (&str, usize);
    }

    fn peek(&self) -> char {
        match self.blanks {
            0 => self.input.peek(),
            _ => ' ',
        }
    }

    fn next_is_blank(&self) -> bool {
        self.blanks > 0 || self.input.next_is_blank()
    }

    fn lookahead(&mut self, count: usize) {
        self.position = self.position.lookahead(count);
        self.input.lookahead(count);
    }

    fn skip(&mut self) {
        if let Some(rest) = self.blanks.checked_sub(1) {
            self.blanks = rest;
            return;
        }
        let (character, next) = (self.input.peek(), self.input.peek_nth(1));
        let offset = self.input.byte_offset().unwrap_or_default();
        self.position = self.position.behind(character, next, offset);
        self.input.skip();
        if character == '\n' || (character == '\r' && next != '\n') {
            self.blanks = self.lacking();
        }
    }

    fn fetch_plain_scalar_chunk(
        &mut self,
        out: &mut String,
        count: usize,
        in_flow: bool,
    ) -> (bool, usize) {
        let mut length = 0_usize;
        loop {
            let (stops, letters) = self.input.fetch_plain_scalar_chunk(out, count, in_flow);
            length = length.saturating_add(letters);
            if !stops || !self.goes_on(in_flow) {
                return (stops, length);
            }
            out.push(':');
            self.input.skip();
            length = length.saturating_add(1);
        }
    }

    fn skip_plain_scalar_chunk(&mut self, count: usize, in_flow: bool) -> (bool, usize) {
        let mut length = 0_usize;
        loop {
            let (stops, letters) = self.input.skip_plain_scalar_chunk(count, in_flow);
            length = length.saturating_add(letters);
            if !stops || !self.goes_on(in_flow) {
                return (stops, length);
            }
            self.input.skip();
            length = length.saturating_add(1);
        }
    }
}
