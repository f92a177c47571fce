//! URLs in messages and on pages, without the credentials that they may carry.

use std::borrow::Cow;

/// The text in place of user and password.
const REDACTED: &str = "…";
/// Bytes of a URL in which a password may go on. Chosen: a text with many beginnings of URLs is read in time.
const LONGEST: usize = 512;
/// Characters that end the authority of a URL: those of RFC 3986, and those that end a URL within a text.
const ENDS: [char; 5] = ['/', '?', '#', '"', ' '];

/// Returns the text without the user and the password of any URL in it (RFC 3986, 3.2.1). Where a password has an unescaped
/// slash, the text up to the last `@` of the URL is redacted.
#[must_use]
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    let Some((before, after)) = text.split_once("://") else {
        return Cow::Borrowed(text);
    };
    let mut out = format!("{before}://");
    let mut rest = after;
    loop {
        let begin = rest.len() - after_user(rest).len();
        if begin > 0 {
            out.push_str(REDACTED);
            out.push('@');
        }
        rest = rest.get(begin..).unwrap_or_default();
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

/// Returns the host and the rest.
fn after_user(rest: &str) -> &str {
    let url = crate::text::cut(rest, LONGEST);
    let url = url
        .find(['"', ' '])
        .map_or(url, |end| crate::text::cut(url, end));
    let authority = url.find(ENDS).map_or(url, |end| crate::text::cut(url, end));
    // A host has nothing behind its colon but a port: this is a password that is not escaped.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_number = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = |port: &str| port.ends_with(']') || is_number(port);
    if port.is_none_or(is_port) && !authority.contains('@') {
        return rest;
    }
    // The last one: a password may have unescaped ones.
    let end = url.rfind('@').map_or(0, |at| at + 1);
    rest.get(end..).unwrap_or_default()
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
    }

    #[test]
    fn many_beginnings_are_read_in_time() {
        let text = "://a:b/".repeat(100_000);
        assert_eq!(without_credentials(&text), text);
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[a-z:/@?# \"…]{0,40}") {
            let redacted = without_credentials(&text);
            prop_assert_eq!(without_credentials(&redacted).into_owned(), redacted.into_owned());
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
