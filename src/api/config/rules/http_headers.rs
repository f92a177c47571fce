//! A VirtualService's operations on headers.

use super::cursor::{Cursor, Violation};
use super::{parts, predicates as is};
use crate::finding::quoted;

/// `headers` of a route or of one of its destinations; `route` may set the authority, too.
pub(super) fn check(headers: &Cursor<'_>, route: &Cursor<'_>) {
    let mut authorities = usize::from(route.get("rewrite").has("authority"));
    for direction in ["request", "response"] {
        for operation in ["set", "add"] {
            let authority = match direction {
                "request" => Authority::Allowed,
                _ => Authority::Refused,
            };
            for (name, value) in headers.to([direction, operation]).sorted_entries() {
                if value.check(self::name(name, authority)) && !is_authority(name) {
                    is_sendable(&value, name);
                }
                value.check(self::value(value.text()));
                if authority == Authority::Allowed && is_authority(name) {
                    if !value.text().contains('%') {
                        parts::authority(&value);
                    }
                    authorities += 1;
                    if authorities > 1 {
                        value.fail("authority is set twice");
                    }
                }
            }
        }
        for item in headers.to([direction, "remove"]).items() {
            if item.check(name(item.text(), Authority::Refused)) {
                is_sendable(&item, item.text());
            }
        }
    }
}

/// Warns of a name that HTTP knows none of: Envoy takes it, and each request or response with it is malformed.
fn is_sendable(at: &Cursor<'_>, name: &str) {
    if !is::is_token(name) {
        at.warn(format!(
            "{} is not a header name: requests and responses with it are refused",
            quoted(name)
        ));
    }
}

fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case(":authority") || name.eq_ignore_ascii_case("host")
}

/// The authority among the names of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Authority {
    Allowed,
    Refused,
}

fn name(name: &str, authority: Authority) -> Violation {
    if name.is_empty() {
        return Some("must not be empty".to_owned());
    }
    if is_authority(name) {
        let message = "the authority may only stand in request.set and request.add";
        return (authority == Authority::Refused).then(|| message.to_owned());
    }
    name.starts_with(':')
        .then(|| "no name starts with \":\" except \":authority\"".to_owned())
}

fn value(text: &str) -> Violation {
    if text
        .chars()
        .any(|letter| letter.is_control() && letter != '\t')
    {
        return Some("no control characters here".to_owned());
    }
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        rest = match after.strip_prefix('%') {
            Some(rest) => rest,
            None => match command(after) {
                Some(rest) => rest,
                None => return Some("a % only doubled or as %COMMAND%".to_owned()),
            },
        };
    }
    None
}

/// Returns the rest of a text behind `COMMAND%`, `COMMAND(X)%` or either with `:N` before the end.
fn command(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| {
        !letter.is_ascii_uppercase() && !letter.is_ascii_digit() && letter != '_'
    })?;
    let (name, rest) = text.split_at_checked(end)?;
    if !name.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        return None;
    }
    let Some(inside) = rest.strip_prefix('(') else {
        return command_end(rest);
    };
    // A parameter may have parentheses of its own: `%CEL(size(request.headers))%`.
    let mut ends = inside.match_indices(')');
    ends.find_map(|(at, _)| command_end(inside.get(at + 1..)?))
}

/// Returns the rest of a text behind `%` or `:N%`.
fn command_end(text: &str) -> Option<&str> {
    let Some(digits) = text.strip_prefix(':') else {
        return text.strip_prefix('%');
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit())?;
    let rest = digits.get(end..).filter(|_| end > 0)?;
    rest.strip_prefix('%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_commands_or_doubled_signs() {
        for good in [
            "",
            "a\tb",
            "100%%",
            "%REQ(X)%",
            "%START_TIME%",
            "%REQ(X?Y):10%",
            "%BYTES:3%%%x",
            "%CEL(size(request.headers) > 1)%",
            "%REQ(A)%)%%",
            "é",
        ] {
            assert_eq!(value(good), None, "{good}");
        }
        for bad in [
            "100%",
            "% %",
            "%req%",
            "%REQ(X%",
            "%CEL(size(x))",
            "%REQ(X):%",
            "%REQ:x%",
            "%9%",
            "a\nb",
            "a\u{7f}",
        ] {
            assert!(value(bad).is_some(), "{bad}");
        }
    }
}
