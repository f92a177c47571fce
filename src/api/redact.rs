//! Redacts quotations in a text: a misplaced value may be a password.

use std::borrow::Cow;

/// Replaces redacted text.
pub const REDACTED: &str = "…";

/// Returns the text without anything that is quoted with `"`.
pub fn redact_quoted(text: &str) -> String {
    redact_quoted_if(text, |_| true)
}

/// The text without the parts between double quotation marks that are to be hidden.
pub fn redact_quoted_if(text: &str, hides: impl Fn(&str) -> bool) -> String {
    map_quoted(text, |quotation| match hides(quotation.inner) {
        true => Cow::Borrowed(REDACTED),
        false => Cow::Borrowed(quotation.inner),
    })
}

/// A part of a text between double quotation marks, as it is escaped there.
#[derive(Clone, Copy, Debug)]
pub struct Quotation<'a> {
    /// The text since the quotation before it.
    pub before: &'a str,
    pub inner: &'a str,
    /// The rest of the text.
    pub after: &'a str,
}

/// The text with others in place of the parts between double quotation marks. A quotation without an end is redacted.
pub fn map_quoted<'a>(text: &'a str, map: impl Fn(Quotation<'a>) -> Cow<'a, str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('"') {
        out.push_str(before);
        let Some(end) = closing(after) else {
            // The text was cut within a quotation.
            out.push('"');
            out.push_str(REDACTED);
            return out;
        };
        let (inner, behind) = after.split_at(end);
        rest = behind.strip_prefix('"').unwrap_or(behind);
        let quotation = Quotation {
            before,
            inner,
            after: rest,
        };
        out.push('"');
        out.push_str(&map(quotation));
        out.push('"');
    }
    out.push_str(rest);
    out
}

/// Returns the end of a quotation that has begun.
fn closing(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(at)
    })
}
