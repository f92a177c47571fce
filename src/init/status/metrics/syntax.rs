//! Samples and comments as Prometheus' parser of the text format 0.0.4 takes them. Pure.
//!
//! Stricter in one thing: labels are separated by commas. Of numbers it has the syntax alone, and the size of the largest;
//! `str::parse` would be 10 kB of the program.

#![forbid(unsafe_code)]

/// The largest number has so many digits in front of its point, of which the first is a 1.
const MAX_DIGITS: i64 = 309;

/// The sample in a line, `name{labels} number` and maybe a time, without the exemplar of `OpenMetrics` that may follow.
pub(super) fn sample(text: &str) -> Option<&str> {
    let mut rest = text.as_bytes();
    let named = name(&mut rest, true);
    let begins = next(&mut rest) == Some(b'{');
    // A name in quotes stands behind the brace, and nothing before it.
    if begins && !named && !text.starts_with('{') {
        return None;
    }
    if !(if begins {
        labels(&mut rest, named)
    } else {
        named
    }) || !number(word(&mut rest))
    {
        return None;
    }
    let mut end = rest.len();
    if !matches!(next(&mut rest), None | Some(b'#')) {
        let time = word(&mut rest);
        time.first().filter(|first| first.is_ascii_digit())?;
        integer(time)?;
        end = rest.len();
    }
    match next(&mut rest) {
        None => Some(text),
        Some(_) if rest.starts_with(b"# {") => text.get(..text.len().checked_sub(end)?),
        Some(_) => None,
    }
}

/// True if a line that begins with `#` is a comment in the text format, too. `OpenMetrics` has more types, and an end, behind
/// which goes on what is merged.
pub(super) fn is_comment(text: &str) -> bool {
    let behind = text.as_bytes().get(1..).unwrap_or_default();
    let mut rest = behind;
    next(&mut rest);
    let kind = word(&mut rest);
    // With no blank before it, it is a remark.
    if rest.len() + kind.len() == behind.len() || !matches!(kind, b"HELP" | b"TYPE") {
        // What reads it ends at a NUL, as at a file's end.
        return text != "# EOF" && !behind.contains(&0);
    }
    let quoted = next(&mut rest) == Some(b'"');
    let named = if quoted {
        string(&mut rest)
    } else {
        name(&mut rest, true)
    };
    named
        && match rest {
            [] => kind == b"HELP",
            [b' ' | b'\t', what @ ..] => {
                kind == b"HELP"
                    || matches!(
                        what,
                        b"counter" | b"gauge" | b"histogram" | b"summary" | b"untyped"
                    )
            }
            _ => false,
        }
}

/// Goes to the next byte that is no blank.
fn next(rest: &mut &[u8]) -> Option<u8> {
    while let [b' ' | b'\t', behind @ ..] = rest {
        *rest = behind;
    }
    rest.first().copied()
}

/// Takes all up to a blank.
fn word<'t>(rest: &mut &'t [u8]) -> &'t [u8] {
    take(rest, |byte| !matches!(byte, b' ' | b'\t'))
}

fn take<'t>(rest: &mut &'t [u8], belongs: fn(u8) -> bool) -> &'t [u8] {
    let end = rest.iter().position(|byte| !belongs(*byte));
    let (taken, behind) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = behind;
    taken
}

/// Takes a name, of a label without colons.
fn name(rest: &mut &[u8], colons: bool) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    let name = take(rest, letters);
    name.first().is_some_and(|first| !first.is_ascii_digit()) && (colons || !name.contains(&b':'))
}

/// Takes a text in quotes, in which a backslash stands before a quote that does not end it.
fn string(rest: &mut &[u8]) -> bool {
    let mut text = rest.get(1..).unwrap_or_default();
    loop {
        text = match text {
            [] => return false,
            [b'\\', _, behind @ ..] => behind,
            [b'"', behind @ ..] => {
                *rest = behind;
                return true;
            }
            [_, behind @ ..] => behind,
        }
    }
}

/// Takes what is in braces: labels and, where it has not come before them, the name, in quotes.
fn labels(rest: &mut &[u8], mut named: bool) -> bool {
    loop {
        *rest = rest.get(1..).unwrap_or_default();
        let first = next(rest);
        if first == Some(b'}') {
            break;
        }
        let quoted = first == Some(b'"');
        if !(if quoted {
            string(rest)
        } else {
            name(rest, false)
        }) {
            return false;
        }
        if next(rest) == Some(b'=') {
            *rest = rest.get(1..).unwrap_or_default();
            if next(rest) != Some(b'"') || !string(rest) {
                return false;
            }
        } else if quoted && !named {
            named = true;
        } else {
            return false;
        }
        match next(rest) {
            Some(b',') => {}
            Some(b'}') => break,
            _ => return false,
        }
    }
    *rest = rest.get(1..).unwrap_or_default();
    next(rest);
    named
}

/// True if it is a number: decimal, of a size that Prometheus has, or none of these in words.
fn number(word: &[u8]) -> bool {
    let is = |text: &[u8], name: &str| text.eq_ignore_ascii_case(name.as_bytes());
    let mut rest = match word {
        [b'+' | b'-', rest @ ..] => rest,
        rest => rest,
    };
    if is(rest, "inf") || is(rest, "infinity") || is(word, "nan") {
        return true;
    }
    let zeros = take(&mut rest, |byte| byte == b'0');
    let first = rest.first().copied();
    let whole = take(&mut rest, |byte| byte.is_ascii_digit());
    let mut fraction: &[u8] = &[];
    if let [b'.', behind @ ..] = rest {
        rest = behind;
        fraction = take(&mut rest, |byte| byte.is_ascii_digit());
    }
    let exponent = match rest {
        [] => Some(0),
        [b'e' | b'E', exponent @ ..] => integer(exponent),
        _ => None,
    };
    let length = i64::try_from(whole.len()).unwrap_or(MAX_DIGITS);
    let largest = MAX_DIGITS - i64::from(first != Some(b'1'));
    zeros.len() + whole.len() + fraction.len() > 0
        && exponent.is_some_and(|exponent| exponent.saturating_add(length) <= largest)
}

/// Digits, with a sign or without.
fn integer(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
