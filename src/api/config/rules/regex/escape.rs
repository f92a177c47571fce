//! Escapes: a backslash and the letters behind it.

use super::super::unicode::is_class;
use super::Fault;

const UNKNOWN: Fault = "unknown escape sequence";

/// The text behind a class by its letter (`\d`) or by its name in Unicode (`\pL`, `\p{Greek}`), where one stands.
pub(super) fn class(text: &str) -> Result<Option<&str>, Fault> {
    let mut letters = text.chars();
    if letters.next() != Some('\\') {
        return Ok(None);
    }
    match letters.next() {
        Some('d' | 'D' | 's' | 'S' | 'w' | 'W') => Ok(Some(letters.as_str())),
        Some('p' | 'P') => unicode(letters.as_str()).map(Some),
        _ => Ok(None),
    }
}

fn unicode(text: &str) -> Result<&str, Fault> {
    let (name, after) = match text.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or("unclosed class of Unicode")?,
        None => text.split_at(text.chars().next().map_or(0, char::len_utf8)),
    };
    match is_class(name) {
        true => Ok(after),
        false => Err("unknown class of Unicode"),
    }
}

/// The letter that an escape stands for, by its number, `max` at most, and the text behind it.
pub(super) fn letter(text: &str, max: u32) -> Result<(u32, &str), Fault> {
    let mut letters = text.chars();
    letters.next();
    let Some(letter) = letters.next() else {
        return Err("a backslash at the end");
    };
    let after = letters.as_str();
    match letter {
        'a' => Ok((0x07, after)),
        'f' => Ok((0x0c, after)),
        'n' => Ok((0x0a, after)),
        'r' => Ok((0x0d, after)),
        't' => Ok((0x09, after)),
        'v' => Ok((0x0b, after)),
        'x' => hex(after, max),
        '0'..='7' => octal(letter, after, max),
        '8' | '9' => Err("backreferences are not supported"),
        letter if letter.is_ascii() && !letter.is_ascii_alphanumeric() => {
            Ok((u32::from(letter), after))
        }
        _ => Err(UNKNOWN),
    }
}

/// `\x41` and `\x{41}`.
fn hex(text: &str, max: u32) -> Result<(u32, &str), Fault> {
    let (digits, after) = match text.strip_prefix('{') {
        Some(inside) => inside.split_once('}').ok_or(UNKNOWN)?,
        None => text.split_at_checked(2).ok_or(UNKNOWN)?,
    };
    // The standard library would take a sign.
    let is_one = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16)
        .ok()
        .filter(|number| is_one && *number <= max)
        .map(|number| (number, after))
        .ok_or(UNKNOWN)
}

/// Up to three digits. One alone, other than 0, would be a reference back.
fn octal(first: char, after: &str, max: u32) -> Result<(u32, &str), Fault> {
    const MAX_DIGITS: usize = 2;
    let more = after.bytes().take(MAX_DIGITS);
    let more = more
        .take_while(|digit| matches!(digit, b'0'..=b'7'))
        .count();
    if more == 0 && first != '0' {
        return Err("backreferences are not supported");
    }
    let (digits, after) = after.split_at(more);
    let number = digits
        .bytes()
        .fold(u32::from(first) - u32::from('0'), |number, digit| {
            number * 8 + u32::from(digit - b'0')
        });
    if number > max {
        return Err(UNKNOWN);
    }
    Ok((number, after))
}
