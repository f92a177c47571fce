//! REGEX: patterns as RE2 takes them, the library of Envoy.
//!
//! The grammar is RE2's own, read as it reads it: from left to right, with a stack of the groups that are open. A parser of
//! another dialect takes and refuses other things in a hundred corners (a dash behind a class, a repetition behind a flag),
//! and each pattern that is refused here and runs there is a route that works and cannot be changed any more.
//!
//! A pattern that RE2 finds too large when it compiles it is no error here, nor is a pattern that only RE2 with letters of one
//! byte refuses, as Envoy runs it: discovery leaves both out, and says so.

mod class;
mod escape;

use super::cursor::Violation;

/// An error in a pattern.
type Fault = &'static str;

/// Numbers of letters, with the whole of Unicode and with one byte for each.
const MAX_CODE_POINT: u32 = char::MAX as u32;
const MAX_BYTE: u32 = 0xff;
const MAX_PATTERN_BYTES: usize = 1024;
const MAX_REPETITIONS: u32 = 1000;
/// Stands for `*`, `+` and `?`: none of them reaches the limit by itself.
const ANY: Count = Count { min: 0, max: None };

/// REGEX.
pub(super) fn regex(text: &str) -> Violation {
    let reason = if text.is_empty() {
        "it is empty".to_owned()
    } else if text.len() > MAX_PATTERN_BYTES {
        format!("it is longer than {MAX_PATTERN_BYTES} bytes")
    } else {
        read(text, MAX_CODE_POINT).err()?.to_owned()
    };
    Some(format!("not a regular expression: {reason}"))
}

/// Returns true if RE2 takes a pattern whose letters are bytes each (`RE2::Latin1`), which is how Envoy has it: text beyond ASCII
/// means its bytes in UTF-8 then, and no number is above `\xff`.
pub(in crate::config) fn is_of_bytes(text: &str) -> bool {
    let letters: String = text.bytes().map(char::from).collect();
    read(&letters, MAX_BYTE).is_ok()
}

/// Checks the replacement of a valid pattern's match: `\1` is its first group, `\0` all of it, `\\` one backslash. RE2 writes
/// nothing for a replacement that it does not understand.
pub(super) fn substitution(text: &str, pattern: &str) -> Violation {
    let groups = read(pattern, MAX_CODE_POINT).ok()?;
    let mut letters = text.chars();
    while letters.by_ref().any(|letter| letter == '\\') {
        let group = match letters.next() {
            Some('\\') => continue,
            letter => letter.and_then(|letter| letter.to_digit(10)),
        };
        let Some(group) = group else {
            return Some("behind a backslash there is neither a digit nor another one".to_owned());
        };
        if group > groups {
            return Some(format!("match has no group {group}"));
        }
    }
    None
}

/// A group so far. Items count by how often their innermost letter repeats.
#[derive(Default)]
struct Group {
    /// The item that a repetition would repeat.
    last: Option<u32>,
    max: u32,
}

impl Group {
    fn add(&mut self, repeats: u32) {
        self.last = Some(repeats);
        self.max = self.max.max(repeats);
    }

    fn repeat(&mut self, count: &Count) -> Result<(), Fault> {
        let Some(last) = self.last else {
            return Err("repetition operator missing expression");
        };
        let max = count.max.unwrap_or(count.min);
        let repeats = last.saturating_mul(max.max(1));
        if repeats.max(count.min) > MAX_REPETITIONS {
            return Err("a count over 1000");
        }
        if count.max.is_some_and(|max| max < count.min) {
            return Err("a count that ends before it begins");
        }
        self.add(repeats);
        Ok(())
    }
}

/// The bounds of a repetition; `max` is `None` for any number.
struct Count {
    min: u32,
    max: Option<u32>,
}

/// Returns the number of groups that can be referred to. `max`: the number of the last letter.
fn read(text: &str, max: u32) -> Result<u32, Fault> {
    let mut groups: u32 = 0;
    let mut open: Vec<Group> = Vec::new();
    let mut group = Group::default();
    let mut rest = text;
    let mut is_repeated = false;
    let names_end = class::names_end(text);
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        let repetition = match letter {
            '*' | '+' | '?' => Some((ANY, after)),
            '{' => count(after),
            _ => None,
        };
        if let Some((count, after)) = repetition {
            if is_repeated {
                return Err("repetition of a repetition");
            }
            group.repeat(&count)?;
            is_repeated = true;
            // A question mark behind a repetition makes it lazy.
            rest = after.strip_prefix('?').unwrap_or(after);
            continue;
        }
        is_repeated = false;
        rest = match letter {
            '(' => {
                let is_numbered = is_numbered(after);
                let (opens, after) = opening(after, max)?;
                if opens {
                    open.push(std::mem::take(&mut group));
                    groups = groups.saturating_add(u32::from(is_numbered));
                }
                after
            }
            ')' => {
                let inside = group.max.max(1);
                group = open.pop().ok_or("unopened group")?;
                group.add(inside);
                after
            }
            '|' => {
                // An alternative begins, with nothing that a repetition could repeat.
                group.last = None;
                after
            }
            '[' => {
                group.add(1);
                class::read(after, max, names_end)?
            }
            '\\' => escaped(rest, &mut group, max)?,
            _ => {
                group.add(1);
                after
            }
        };
    }
    if open.is_empty() {
        Ok(groups)
    } else {
        Err("unclosed group")
    }
}

/// Returns true if the text behind a bracket is that of a group with a number: a name is beside that.
fn is_numbered(text: &str) -> bool {
    !text.starts_with('?') || text.starts_with("?P<") || text.starts_with("?<")
}

/// Reads the text behind a bracket that opens; true if it opens a group, false if it sets flags for the rest.
fn opening(text: &str, max: u32) -> Result<(bool, &str), Fault> {
    let Some(text) = text.strip_prefix('?') else {
        return Ok((true, text));
    };
    if ["=", "!", "<=", "<!"]
        .iter()
        .any(|sign| text.starts_with(sign))
    {
        return Err("look-around, including look-ahead and look-behind, is not supported");
    }
    let group = text.strip_prefix("P<").or_else(|| text.strip_prefix('<'));
    if let Some(group) = group {
        let (name, after) = group.split_once('>').ok_or("unclosed name of a group")?;
        return match is_name(name, max) {
            true => Ok((true, after)),
            false => Err("a name of a group has only letters, digits and _"),
        };
    }
    flags(text)
}

/// Returns true for a valid name of a group. RE2 goes by tables of Unicode; here any letter that is not ASCII is taken where all
/// of Unicode is.
fn is_name(name: &str, max: u32) -> bool {
    let is_letter = |letter: char| {
        letter.is_ascii_alphanumeric()
            || letter == '_'
            || !letter.is_ascii() && (max > MAX_BYTE || letter.is_alphabetic())
    };
    !name.is_empty() && name.chars().all(is_letter)
}

/// `i m s U`, those that are switched off behind a `-`, in any number and order.
fn flags(text: &str) -> Result<(bool, &str), Fault> {
    let mut letters = text.chars();
    let mut is_off = false;
    // A dash switches off something.
    let mut is_complete = true;
    loop {
        match letters.next() {
            Some('i' | 'm' | 's' | 'U') => is_complete = true,
            Some('-') if !is_off => (is_off, is_complete) = (true, false),
            Some(end @ (':' | ')')) if is_complete => return Ok((end == ':', letters.as_str())),
            Some(_) => return Err("unknown flag"),
            None => return Err("unclosed group"),
        }
    }
}

/// Reads an escape sequence.
fn escaped<'a>(text: &'a str, group: &mut Group, max: u32) -> Result<&'a str, Fault> {
    if let Some(literal) = text.strip_prefix("\\Q") {
        let (literal, after) = literal.split_once("\\E").unwrap_or((literal, ""));
        // An empty literal leaves the letter before it for a repetition.
        if !literal.is_empty() {
            group.add(1);
        }
        return Ok(after);
    }
    group.add(1);
    let known = ["\\A", "\\B", "\\C", "\\b", "\\z"];
    if let Some(after) = known.iter().find_map(|known| text.strip_prefix(known)) {
        return Ok(after);
    }
    match escape::class(text)? {
        Some(after) => Ok(after),
        None => escape::letter(text, max).map(|(_, after)| after),
    }
}

/// Reads a count behind a brace, `3}`, `3,}` or `3,5}`, and returns the text behind it. Otherwise the brace is a letter.
fn count(text: &str) -> Option<(Count, &str)> {
    // Two numbers, a comma and the brace: a pattern of many braces is not searched to its end for each.
    const MAX_COUNT_LENGTH: usize = 2 * MAX_DIGITS + 2;
    let end = text
        .bytes()
        .take(MAX_COUNT_LENGTH)
        .position(|letter| letter == b'}')?;
    let (inside, after) = text.split_at_checked(end)?;
    let after = after.strip_prefix('}')?;
    let (min, max) = match inside.split_once(',') {
        Some((min, "")) => (number(min)?, None),
        Some((min, max)) => (number(min)?, Some(number(max)?)),
        None => {
            let exactly = number(inside)?;
            (exactly, Some(exactly))
        }
    };
    Some((Count { min, max }, after))
}

/// Digits of a number of a count.
const MAX_DIGITS: usize = 9;

/// A number as RE2 reads it: without zeros before it, and not of more than nine digits.
fn number(text: &str) -> Option<u32> {
    let is_one = text.bytes().all(|digit| digit.is_ascii_digit())
        && text.len() <= MAX_DIGITS
        && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_one)
}

#[cfg(test)]
mod tests;
