//! URLs in messages and on pages, without the credentials that they may carry.

use std::borrow::Cow;

/// The text in place of user and password.
const REDACTED: &str = "…";
/// Characters that end a URL within a text.
pub const BETWEEN: [char; 3] = ['"', ' ', '\n'];

/// Returns the text without the user and the password of any URL in it (RFC 3986, 3.2.1). Where a password has an unescaped
/// slash, the text up to the last `@` of the URL is redacted.
#[must_use]
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let runs = text.split_inclusive(BETWEEN);
    Cow::Owned(runs.map(value_without_credentials).collect())
}

/// The same of a text that is one value: a password goes on behind blanks and quotes, for which the URL may be refused.
#[must_use]
pub fn value_without_credentials(text: &str) -> Cow<'_, str> {
    let Some((before, mut rest)) = text.split_once("://") else {
        return Cow::Borrowed(text);
    };
    let mut out = format!("{before}://");
    // The last one: a password may have unescaped ones. It is sought once, so that many beginnings of URLs take linear time.
    let last = text.rfind('@').map_or(0, |at| at + 1);
    loop {
        let user_end = last.saturating_sub(text.len() - rest.len());
        if user_end > 0 && has_user(rest) {
            out.push_str(REDACTED);
            out.push('@');
            rest = rest.get(user_end..).unwrap_or_default();
        }
        let Some((inner, next)) = rest.split_once("://") else {
            break;
        };
        out.push_str(inner);
        out.push_str("://");
        rest = next;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns true if a text begins as a URL does: with a scheme and `://` (RFC 3986, 3.1).
#[must_use]
pub fn starts_with_scheme(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.bytes().all(is_letter))
}

/// Returns a quoted value without user and password, also where it lacks the scheme or the `://` that a URL has: for that it may
/// be quoted.
#[must_use]
pub fn quotation_without_credentials(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('@') {
        Some((before, behind)) if !starts_with_scheme(text) && is_login(before, behind) => {
            Cow::Owned(format!("{REDACTED}@{behind}"))
        }
        Some(_) | None => value_without_credentials(text),
    }
}

/// Returns true if the text before the last `@` is a user and a password, and neither a path, a pattern, the tag of an image with a
/// digest nor the beginning of an address of mail.
fn is_login(before: &str, behind: &str) -> bool {
    // RFC 3986, 3.2.1, and what is left of a scheme in front of the user.
    let is_letter =
        |letter: char| letter.is_alphanumeric() || "-._~%!$&'()*+,;=@/".contains(letter);
    !behind.starts_with("sha256:")
        && before.split_once(':').is_some_and(|(user, password)| {
            !is_path(user) && !is_mail(user, password) && user.chars().all(is_letter)
        })
}

/// Returns true if the text before a colon is a path with a second segment. One slash alone may be left of the `//` of a URL, with a
/// user behind it.
fn is_path(user: &str) -> bool {
    let first_segment = user.strip_prefix('/');
    first_segment.is_some_and(|segment| !segment.starts_with('/') && segment.contains('/'))
}

/// Returns true if a text is a URI of mail (RFC 6068): its local part has neither a colon nor a slash.
fn is_mail(scheme: &str, local_part: &str) -> bool {
    scheme.eq_ignore_ascii_case("mailto") && !local_part.contains([':', '/'])
}

/// Returns true if a URL's authority has a user, or a password that is cut by an unescaped slash.
fn has_user(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A host has nothing behind its colon but a port: this is a password that is not escaped.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_number = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = |port: &str| port.ends_with(']') || is_number(port);
    authority.contains('@') || !port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_go_and_the_rest_stays() {
        for (text, redacted) in [
            ("", ""),
            ("no URL at all: a@b", "no URL at all: a@b"),
            ("http://c:8500/v1?a=b@c", "http://c:8500/v1?a=b@c"),
            ("https://me:secret@c:443/", "https://…@c:443/"),
            ("https://secret@c", "https://…@c"),
            ("https://me:sec@ret@c", "https://…@c"),
            ("https://me:sec/ret@c/x", "https://…@c/x"),
            ("https://me:s@ec/ret@c:8500", "https://…@c:8500"),
            ("https://:p:/secret@c", "https://…@c"),
            ("https://me@corp.com:se/cret@c:8500", "https://…@c:8500"),
            ("https://[::1]:80/a@b", "https://[::1]:80/a@b"),
            ("https://[::1]/a@b", "https://[::1]/a@b"),
            (
                "cannot use \"mcp://me:secret@c\": not mcp://c, x@y",
                "cannot use \"mcp://…@c\": not mcp://c, x@y",
            ),
            (
                "http://a:secret@b and http://c:secret@d",
                "http://…@b and http://…@d",
            ),
        ] {
            assert_eq!(without_credentials(text), redacted);
        }
        let long = format!("no \"https://me:{}@c/x\"", "s".repeat(9000));
        assert_eq!(without_credentials(&long), "no \"https://…@c/x\"");
    }

    #[test]
    fn a_value_has_one_password_with_blanks_and_quotes() {
        for (text, redacted) in [
            ("a@b c", "a@b c"),
            ("https://c:443/a b@c", "https://c:443/a b@c"),
            ("https://me:pass word@c/x", "https://…@c/x"),
            ("https://me:pass\"word@c/x", "https://…@c/x"),
            ("https://me:pa/ss wo\"rd@c/x", "https://…@c/x"),
            ("https://me:a b://c@d/x", "https://…@d/x"),
        ] {
            assert_eq!(value_without_credentials(text), redacted);
        }
    }

    #[test]
    fn a_quotation_has_no_password_without_a_scheme() {
        for (text, redacted) in [
            ("me:S3CRET@a/x", "…@a/x"),
            ("http:/me:S3CRET@a/x", "…@a/x"),
            ("http:me:S3CRET@a/x", "…@a/x"),
            ("https//me:S3CRET@a/x", "…@a/x"),
            ("//me:S3CRET@a/x", "…@a/x"),
            (":S3CRET@a", "…@a"),
            ("me@corp.com:S3CRET@a", "…@a"),
            ("me:S3 CR\"E/T@a", "…@a"),
            ("me:S3://CRET@a", "…@a"),
            ("me:S3CRET@a?b=c://d", "…@a?b=c://d"),
            ("/me:S3CRET@a/x", "…@a/x"),
            ("/me:S3/CRET@a", "…@a"),
            ("/me@corp.com:S3CRET@a", "…@a"),
            ("/:S3CRET@a", "…@a"),
            ("/http:/me:S3CRET@a/x", "…@a/x"),
            ("mailto:me:S3CRET@a", "…@a"),
            ("https://me:S3 CRET@a/x", "https://…@a/x"),
        ] {
            assert_eq!(quotation_without_credentials(text), redacted);
        }
        for text in [
            "",
            "@",
            "10:30:00",
            "2024-01-01T10:30:00Z",
            "10m30s",
            "a:80",
            "::1",
            "fe80::1%eth0",
            "[::1]:80/a@b",
            "ops@example.com",
            "ops@example.com: none",
            "mailto:ops@example.com",
            "MailTo:a@example.com,b@example.com",
            "spiffe://td/ns/a/sa/b",
            "spiffe://td/ns/a:b@c",
            "/v1/a:b@c",
            "/v1/a:b/c@d",
            "/v1@a",
            "^(?:a|b)@c$",
            "(?i:a)@c",
            "docker.io/a/b:1.2@sha256:0f",
            "localhost:5000/b:1.2@sha256:0f",
            "{\"a\": \"b@c\"}",
        ] {
            assert_eq!(quotation_without_credentials(text), text);
        }
    }

    #[test]
    fn many_beginnings_are_read_in_time() {
        let text = "://a:b/".repeat(100_000);
        assert_eq!(without_credentials(&text), text);
        let mut all = format!("{text}@c{text}");
        assert_eq!(without_credentials(&all), format!("://…@c{text}"));
        all.push(' ');
        assert_eq!(without_credentials(&all), format!("://…@c{text} "));
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[a-z:/@?# \"…]{0,40}") {
            let redacted = without_credentials(&text);
            prop_assert_eq!(without_credentials(&redacted).into_owned(), redacted.into_owned());
            let redacted = value_without_credentials(&text);
            prop_assert_eq!(value_without_credentials(&redacted).into_owned(), redacted.into_owned());
            let redacted = quotation_without_credentials(&text);
            prop_assert_eq!(quotation_without_credentials(&redacted).into_owned(), redacted.into_owned());
        }

        #[test]
        fn no_password_is_shown(
            user in "[a-z@.]{0,6}", sign in "[@/:]{0,2}", host in "[a-z.]{1,8}", path in "[a-z/?@]{0,8}",
        ) {
            let text = format!("x https://{user}:p{sign}S3CRET@{host}/{path}");
            prop_assert!(!without_credentials(&text).contains("S3CRET"));
        }
    }
}
