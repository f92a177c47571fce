//! Text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use api::text::first_letters;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{DecodeError, Engine as _, alphabet};
use gotmpl::{TemplateError, Value};
use regex_lite::{Regex, RegexBuilder};
use sha2::{Digest as _, Sha256};

use super::{Function, MANY, arg, list_of, numbers, printed, session, string, within, wrong};

pub(super) const ROWS: &[Function] = &[
    Function("quote", 0, MANY, |args| joined(args, |text| quoted(&text))),
    Function("squote", 0, MANY, |args| {
        joined(args, |text| format!("'{text}'"))
    }),
    Function("cat", 0, MANY, |args| joined(args, |text| text)),
    Function("trim", 1, 1, |args| {
        Ok(Value::from(string(args, 0)?.trim()))
    }),
    Function("trimAll", 2, 2, |args| {
        // A set, so that no letter is compared with all others. Each of its letters costs a search.
        let letters = string(args, 0)?;
        session::charge(u64::try_from(letters.len()).unwrap_or(u64::MAX))?;
        let set: BTreeSet<char> = letters.chars().collect();
        let is_in = |letter: char| set.contains(&letter);
        Ok(Value::from(string(args, 1)?.trim_matches(is_in)))
    }),
    Function("trimPrefix", 2, 2, |args| {
        let text = string(args, 1)?;
        Ok(Value::from(
            text.strip_prefix(string(args, 0)?).unwrap_or(text),
        ))
    }),
    Function("trimSuffix", 2, 2, |args| {
        let text = string(args, 1)?;
        Ok(Value::from(
            text.strip_suffix(string(args, 0)?).unwrap_or(text),
        ))
    }),
    Function("trunc", 2, 2, trunc),
    Function("upper", 1, 1, |args| {
        Ok(Value::from(string(args, 0)?.to_uppercase()))
    }),
    Function("lower", 1, 1, |args| {
        Ok(Value::from(string(args, 0)?.to_lowercase()))
    }),
    Function("toLower", 1, 1, |args| {
        Ok(Value::from(string(args, 0)?.to_lowercase()))
    }),
    Function("title", 1, 1, title),
    Function("replace", 3, 3, replace),
    Function("repeat", 2, 2, |args| {
        let (count, text) = (numbers::index(arg(args, 0))?, string(args, 1)?);
        within(text.len().saturating_mul(count))?;
        Ok(Value::from(text.repeat(count)))
    }),
    Function("indent", 2, 2, |args| indented(args, "")),
    Function("nindent", 2, 2, |args| indented(args, "\n")),
    Function("contains", 2, 2, |args| {
        Ok(Value::Bool(string(args, 1)?.contains(string(args, 0)?)))
    }),
    Function("hasPrefix", 2, 2, |args| {
        Ok(Value::Bool(string(args, 1)?.starts_with(string(args, 0)?)))
    }),
    Function("hasSuffix", 2, 2, |args| {
        Ok(Value::Bool(string(args, 1)?.ends_with(string(args, 0)?)))
    }),
    Function("splitList", 2, 2, |args| {
        Ok(Value::from(
            pieces(args)?
                .into_iter()
                .map(Value::from)
                .collect::<Vec<_>>(),
        ))
    }),
    Function("split", 2, 2, |args| {
        let pieces = pieces(args)?.into_iter().enumerate();
        Ok(Value::Map(Arc::new(
            pieces
                .map(|(index, piece)| (Arc::from(format!("_{index}")), Value::from(piece)))
                .collect::<BTreeMap<_, _>>(),
        )))
    }),
    Function("join", 2, 2, join),
    Function("toString", 1, 1, |args| match arg(args, 0) {
        Value::Nil => Ok(Value::from("<nil>")),
        other => printed(other).map(Value::from),
    }),
    Function("b64enc", 1, 1, |args| {
        Ok(Value::from(STANDARD.encode(string(args, 0)?)))
    }),
    Function("b64dec", 1, 1, |args| {
        Ok(Value::from(from_base64(string(args, 0)?)))
    }),
    Function("sha256sum", 1, 1, |args| {
        Ok(Value::from(hex(&Sha256::digest(string(args, 0)?))))
    }),
    Function("regexMatch", 2, 2, |args| {
        let (pattern, text) = (string(args, 0)?, string(args, 1)?);
        match regex(pattern, text) {
            Ok(regex) => Ok(Value::Bool(regex.is_match(text))),
            // A malformed pattern, which Go cannot compile either, matches nothing.
            Err(Pattern::Malformed(_)) if !is_of_go(pattern) => Ok(Value::Bool(false)),
            Err(cause) => Err(cause.into()),
        }
    }),
    Function("regexFind", 2, 2, |args| {
        let text = string(args, 1)?;
        Ok(Value::from(
            regex(string(args, 0)?, text)?
                .find(text)
                .map_or("", |found| found.as_str()),
        ))
    }),
    Function("regexReplaceAll", 3, 3, |args| {
        let (text, by) = (string(args, 1)?, string(args, 2)?);
        // An empty match at every place: the replacement comes in that often.
        within(
            text.len()
                .saturating_add(1)
                .saturating_mul(by.len().saturating_add(1)),
        )?;
        Ok(Value::from(
            regex(string(args, 0)?, text)?
                .replace_all(text, by)
                .into_owned(),
        ))
    }),
];

/// Arguments that are not nil, each changed, with blanks between.
fn joined(args: &[Value], change: impl Fn(String) -> String) -> Result<Value, TemplateError> {
    let mut out = String::new();
    let values = args.iter().filter(|value| !matches!(value, Value::Nil));
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(&change(printed(value)?));
        within(out.len())?;
    }
    Ok(Value::from(out))
}

/// Quotes as Go's `%q` does: its escapes are valid in YAML, which Rust's are not.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        let short = match letter {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            _ if is_printable(letter) => {
                out.push(letter);
                continue;
            }
            _ => "",
        };
        out.push_str(short);
        if short.is_empty() {
            // Writing to a string cannot fail.
            let _ = match u32::from(letter) {
                code @ (..0x20 | 0x7f) => write!(out, "\\x{code:02x}"),
                code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            };
        }
    }
    out.push('"');
    out
}

/// Letters, marks, numbers, punctuation and symbols, and of all blanks the plain one. Rust's own escapes leave the same, where a
/// mark has a letter before it.
fn is_printable(letter: char) -> bool {
    if letter.is_ascii() {
        return letter == ' ' || letter.is_ascii_graphic();
    }
    let pair: String = ['.', letter].iter().collect();
    pair.escape_debug().eq(pair.chars())
}

fn trunc(args: &[Value]) -> Result<Value, TemplateError> {
    let (length, text) = (numbers::integer(arg(args, 0)), string(args, 1)?);
    let count = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
    // Sprig counts bytes and may cut a letter in two, which no Rust string can hold.
    let cut = if length < 0 {
        let all = text.chars().count();
        text.chars().skip(all.saturating_sub(count)).collect()
    } else {
        first_letters(text, count).to_owned()
    };
    Ok(Value::from(cut))
}

/// Writes the first letter of each word in upper case, where words end as Go's `strings.Title` has it: at each ASCII character
/// that is no letter, digit or underscore, and of the others at blanks alone.
fn title(args: &[Value]) -> Result<Value, TemplateError> {
    let mut out = String::new();
    let mut first = true;
    for letter in string(args, 0)?.chars() {
        if first {
            out.extend(letter.to_uppercase());
        } else {
            out.push(letter);
        }
        first = match letter.is_ascii() {
            true => !letter.is_ascii_alphanumeric() && letter != '_',
            false => letter.is_whitespace(),
        };
    }
    Ok(Value::from(out))
}

fn replace(args: &[Value]) -> Result<Value, TemplateError> {
    let (from, to, text) = (string(args, 0)?, string(args, 1)?, string(args, 2)?);
    let count = if from.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(from).count()
    };
    within(text.len().saturating_add(count.saturating_mul(to.len())))?;
    Ok(Value::from(text.replace(from, to)))
}

/// Every line but the first, or with `before` a line break every one.
fn indented(args: &[Value], before: &str) -> Result<Value, TemplateError> {
    let (count, text) = (numbers::index(arg(args, 0))?, string(args, 1)?);
    within(
        text.matches('\n')
            .count()
            .saturating_add(1)
            .saturating_mul(count)
            .saturating_add(text.len()),
    )?;
    let blanks = " ".repeat(count);
    let body = text.replace('\n', &format!("\n{blanks}"));
    let first = if before.is_empty() { "" } else { &blanks };
    Ok(Value::from(format!("{before}{first}{body}")))
}

fn pieces(args: &[Value]) -> Result<Vec<&str>, TemplateError> {
    let (separator, text) = (string(args, 0)?, string(args, 1)?);
    let count = if separator.is_empty() {
        text.chars().count()
    } else {
        text.matches(separator).count()
    };
    // A slice, a value, and a text of its own for each.
    let bytes = session::ELEMENT_BYTES.saturating_add(session::ENTRY_BYTES);
    session::charge_elements(count.saturating_add(1), bytes)?;
    session::charge_bytes(text.len().saturating_mul(8))?;
    if separator.is_empty() {
        return Ok(text.split("").filter(|piece| !piece.is_empty()).collect());
    }
    Ok(text.split(separator).collect())
}

fn join(args: &[Value]) -> Result<Value, TemplateError> {
    let separator = string(args, 0)?;
    // Sprig takes a single text as a list of one.
    if let Value::String(_) = arg(args, 1) {
        return Ok(arg(args, 1).clone());
    }
    let mut out = String::new();
    let items = list_of(args, 1)?.iter();
    let items = items.filter(|item| !matches!(item, Value::Nil));
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(&printed(item)?);
        within(out.len())?;
    }
    Ok(Value::from(out))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of the longest text that a pattern is matched with, and of the largest program of a pattern: their product bounds
/// the time.
const MAX_TEXT_BYTES: usize = 1 << 16;
const PROGRAM: usize = 1 << 16;

/// Reasons for which a pattern is not compiled.
enum Pattern {
    Malformed(String),
    Refused(TemplateError),
}

impl From<Pattern> for TemplateError {
    fn from(pattern: Pattern) -> Self {
        match pattern {
            Pattern::Malformed(cause) => wrong(cause),
            Pattern::Refused(error) => error,
        }
    }
}

fn regex(pattern: &str, text: &str) -> Result<Regex, Pattern> {
    if text.len() > MAX_TEXT_BYTES {
        let cause = wrong(format!("wants a text of {MAX_TEXT_BYTES} bytes at most"));
        return Err(Pattern::Refused(cause));
    }
    session::charge(u64::try_from(1000 + text.len() * 8).unwrap_or(u64::MAX))
        .map_err(Pattern::Refused)?;
    RegexBuilder::new(pattern)
        .size_limit(PROGRAM)
        .build()
        .map_err(|error| Pattern::Malformed(error.to_string()))
}

/// Returns true if the pattern may use Go syntax that this engine lacks: classes of Unicode, whose tables are large, quotes,
/// octal numbers, and patterns that are too large here.
fn is_of_go(pattern: &str) -> bool {
    let escapes = pattern.as_bytes().windows(2);
    let is_other = |pair: &[u8]| matches!(pair, [b'\\', b'p' | b'P' | b'Q' | b'C' | b'0'..=b'9']);
    escapes.into_iter().any(is_other) || pattern.len() > PROGRAM / 64 || pattern.contains('{')
}

/// The decoded text or, as in Sprig, the text of the error. Go skips line breaks, and bits that are left over.
fn from_base64(text: &str) -> String {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let text = text.replace(['\r', '\n'], "");
    let place = match LENIENT.decode(&text) {
        Ok(bytes) => return String::from_utf8_lossy(&bytes).into_owned(),
        Err(DecodeError::InvalidByte(place, _)) => place,
        Err(_) => text.len() - text.len() % 4,
    };
    format!("illegal base64 data at input byte {place}")
}
