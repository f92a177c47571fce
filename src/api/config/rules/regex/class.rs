//! A class in brackets: `[a-z[:digit:]\d]`.

use super::Fault;
use super::escape;

const NAMES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Returns the number of bytes from the last end of a class's name on, `:]`; `None` if a pattern has none.
pub(super) fn names_end(pattern: &str) -> Option<usize> {
    let end = pattern.rfind(":]")?;
    Some(pattern.len().saturating_sub(end))
}

/// Reads a class behind its opening bracket; returns the text behind the closing one. `names_end`: as [`names_end`] has it, so that
/// names without an end are not searched for it one by one.
pub(super) fn read(text: &str, max: u32, names_end: Option<usize>) -> Result<&str, Fault> {
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    // A bracket that stands first is a letter.
    let mut is_first = true;
    loop {
        let end = rest.strip_prefix(']').filter(|_| !is_first);
        if let Some(after) = end {
            return Ok(after);
        }
        is_first = false;
        rest = match class(rest, names_end)? {
            Some(after) => after,
            None => range(rest, max)?,
        };
    }
}

/// The text behind a class within the class, where one stands.
fn class(text: &str, names_end: Option<usize>) -> Result<Option<&str>, Fault> {
    let posix_class = text
        .strip_prefix("[:")
        .filter(|name| names_end.is_some_and(|end| end <= name.len()))
        .and_then(|name| name.split_once(":]"));
    let Some((name, after)) = posix_class else {
        return escape::class(text);
    };
    match NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        true => Ok(Some(after)),
        false => Err("unknown class of characters"),
    }
}

/// Two letters with a dash between, or one letter. A dash is a letter wherever it does not stand between two: behind a class,
/// before the bracket that closes.
fn range(text: &str, max: u32) -> Result<&str, Fault> {
    let (low, after) = letter(text, max)?;
    let high = after
        .strip_prefix('-')
        .filter(|high| !high.starts_with(']'));
    // At the end of the text the missing bracket is the error.
    let Some(high) = high.filter(|high| !high.is_empty()) else {
        return Ok(after);
    };
    let (high, after) = letter(high, max)?;
    if high < low {
        return Err("a range that ends before it begins");
    }
    Ok(after)
}

fn letter(text: &str, max: u32) -> Result<(u32, &str), Fault> {
    if text.starts_with('\\') {
        return escape::letter(text, max);
    }
    let mut letters = text.chars();
    match letters.next() {
        Some(letter) => Ok((u32::from(letter), letters.as_str())),
        None => Err("unclosed character class"),
    }
}
