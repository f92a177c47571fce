//! Text as the parser is given it, with one difference from YAML 1.2 that everything written for Kubernetes counts on.

use granit_parser::input::{SkipTabs, WhitespaceResult, is_flow};
use granit_parser::{BorrowedInput, ErrorKind, Input, StrInput};

/// In flow style a colon before `,`, `]` or `}` is a part of the plain scalar, as for kubectl: `[2001:db8::, 10.0.0.1]` is a
/// list of two strings. YAML 1.2 has a map in it.
pub(super) struct Text<'a>(StrInput<'a>);

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self(StrInput::new(text))
    }

    /// Returns true if the plain scalar goes on at a colon where the parser's own rule ends it.
    fn goes_on(&self, in_flow: bool) -> bool {
        in_flow && self.0.peek() == ':' && is_flow(self.0.peek_nth(1))
    }
}

impl<'a> BorrowedInput<'a> for Text<'a> {
    fn slice_borrowed(&self, start: usize, end: usize) -> Option<&'a str> {
        self.0.slice_borrowed(start, end)
    }
}

/// Methods that are as they were.
macro_rules! as_they_were {
    ($(ref $name:ident($($given:ident: $type:ty),*) -> $out:ty;)* $(mut $changes:ident($($with:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($given: $type),*) -> $out {
            self.0.$name($($given),*)
        })*
        $(fn $changes(&mut self, $($with: $of),*) -> $result {
            self.0.$changes($($with),*)
        })*
    };
}

impl Input for Text<'_> {
    as_they_were! {
        ref buflen() -> usize;
        ref bufmaxlen() -> usize;
        ref peek() -> char;
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
        ref next_is_blank() -> bool;
        ref next_is_break() -> bool;
        ref next_is_breakz() -> bool;
        ref next_is_z() -> bool;
        ref next_is_flow() -> bool;
        ref next_is_digit() -> bool;
        ref next_is_alpha() -> bool;
        mut lookahead(count: usize) -> ();
        mut raw_read_ch() -> char;
        mut raw_read_non_breakz_ch() -> Option<char>;
        mut skip() -> ();
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

    fn fetch_plain_scalar_chunk(
        &mut self,
        out: &mut String,
        count: usize,
        in_flow: bool,
    ) -> (bool, usize) {
        let mut taken = 0_usize;
        loop {
            let (stops, letters) = self.0.fetch_plain_scalar_chunk(out, count, in_flow);
            taken = taken.saturating_add(letters);
            if !stops || !self.goes_on(in_flow) {
                return (stops, taken);
            }
            out.push(':');
            self.0.skip();
            taken = taken.saturating_add(1);
        }
    }

    fn skip_plain_scalar_chunk(&mut self, count: usize, in_flow: bool) -> (bool, usize) {
        let mut taken = 0_usize;
        loop {
            let (stops, letters) = self.0.skip_plain_scalar_chunk(count, in_flow);
            taken = taken.saturating_add(letters);
            if !stops || !self.goes_on(in_flow) {
                return (stops, taken);
            }
            self.0.skip();
            taken = taken.saturating_add(1);
        }
    }
}
