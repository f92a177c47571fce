//! The target of a request: `http://HOST[:PORT][/PATH]`. Pure.
//!
//! HOST is an address or `localhost`: looking up other names takes the C library's resolver, which weighs 19 kB, and what
//! these commands ask is on this machine.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::values::{self, name_and_port};

/// http's own port.
const DEFAULT_PORT: u16 = 80;

/// Whom to ask, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The path and the query, fit for a request line.
    pub(crate) path: String,
}

/// Whose port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// This machine: 127.0.0.1, and `::1` where nobody answers there.
    Loopback,
    Address(IpAddr),
}

/// Why a text is no URL for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UrlError {
    /// `https`: a helper program would have to do it, and there is none for this.
    Tls,
    /// It is not of the form that the module names.
    Form,
}

impl Url {
    /// A port of this machine. `path` is fit for a request line.
    #[must_use]
    pub(crate) const fn here(port: u16, path: String) -> Self {
        Self {
            host: Host::Loopback,
            port,
            path,
        }
    }

    /// Parses a user's text.
    ///
    /// # Errors
    /// Anything but `http://HOST[:PORT][/PATH]`.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        let after = |scheme: &str| {
            let (begin, rest) = text.split_at_checked(scheme.len())?;
            begin.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        if after("https://").is_some() {
            return Err(UrlError::Tls);
        }
        let rest = after("http://").ok_or(UrlError::Form)?;
        // A fragment is for the reader, never for the server.
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = name_and_port(authority);
        let port = port.map_or(Ok(DEFAULT_PORT), values::port);
        Ok(Self {
            host: self::host(host).ok_or(UrlError::Form)?,
            port: port.map_err(|_| UrlError::Form)?,
            path: self::path(path).ok_or(UrlError::Form)?,
        })
    }
}

/// As it stands in a `Host` header and in messages.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("localhost"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

/// A path for a request line: with its leading slash, blanks and what is not ASCII escaped. `None` when there is a
/// control character in it, which could end the line and begin another request.
#[must_use]
pub(crate) fn path(text: &str) -> Option<String> {
    let mut path = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        path.push('/');
    }
    for byte in text.bytes() {
        match byte {
            b'!' | b'"' | b'$'..=b'~' => path.push(char::from(byte)),
            b' ' | b'#' | 0x80.. => {
                path.push('%');
                path.push(hex(byte >> 4));
                path.push(hex(byte & 0xf));
            }
            0..b' ' | 0x7f => return None,
        }
    }
    Some(path)
}

fn hex(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).map_or('0', |digit| digit.to_ascii_uppercase())
}

fn host(text: &str) -> Option<Host> {
    if let Some(address) = text.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(Host::Address(address.into()));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    // RFC 6761: never a question for DNS.
    text.eq_ignore_ascii_case("localhost")
        .then_some(Host::Loopback)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_are_parsed() {
        let table = [
            (
                "http://127.0.0.1:15020/healthz/ready",
                "http://127.0.0.1:15020/healthz/ready",
            ),
            ("HTTP://10.0.0.1", "http://10.0.0.1:80/"),
            ("http://[::1]:8080/x", "http://[::1]:8080/x"),
            ("http://[fe80::1]", "http://[fe80::1]:80/"),
            ("http://localhost:1/", "http://localhost:1/"),
            ("http://0.0.0.0:80?a=b", "http://0.0.0.0:80/?a=b"),
            ("http://1.1.1.1/a b#fragment", "http://1.1.1.1:80/a%20b"),
            (
                "http://1.1.1.1/a:b@c?d/é",
                "http://1.1.1.1:80/a:b@c?d/%C3%A9",
            ),
        ];
        for (text, expected) in table {
            let url = Url::parse(text).unwrap();
            assert_eq!(url.to_string(), expected, "{text}");
        }
        let local = Url::parse("http://LocalHost/").unwrap();
        assert_eq!(local.host, Host::Loopback);
    }

    #[test]
    fn other_urls_are_refused() {
        for text in [
            "",
            "127.0.0.1:80/",
            "http://",
            "http:///x",
            "http:/x",
            "ftp://x/",
            "http://1.1.1.1:/",
            "http://1.1.1.1:0/",
            "http://1.1.1.1:65536/",
            "http://1.1.1.1:+1/",
            "http://1.1.1.1:y/",
            "http://user@1.1.1.1/",
            "http://user:1@1.1.1.1/",
            "http://example.com/",
            "http://127.1/",
            "http://::1/",
            "http://[::1/",
            "http://[::1]x/",
            "http://[1.2.3.4]/",
            "http://1.1.1.1/\r\nevil: 1",
            "http://1.1.1.1\n/",
        ] {
            assert_eq!(Url::parse(text), Err(UrlError::Form), "{text:?}");
        }
        assert_eq!(Url::parse("https://x/"), Err(UrlError::Tls));
        assert_eq!(Url::parse("HTTPS://x/"), Err(UrlError::Tls));
    }

    #[test]
    fn paths_get_a_slash_and_lose_what_would_break_the_line() {
        let table = [
            ("stats", Some("/stats")),
            (
                "/stats?filter=^a\\.(b|c)$",
                Some("/stats?filter=^a\\.(b|c)$"),
            ),
            ("//x", Some("//x")),
            ("", Some("/")),
            ("/a b#c", Some("/a%20b%23c")),
            ("/a\r\nHost: x", None),
            ("/a\tb", None),
            ("/\u{7f}", None),
        ];
        for (text, expected) in table {
            assert_eq!(path(text).as_deref(), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsed_urls_fit_into_a_request_line(text in "\\PC{0,40}|http://[ -~]{0,40}|http://(1.2.3.4|\\[::1\\])(:[0-9]{1,3})?.{0,40}") {
            if let Ok(url) = Url::parse(&text) {
                let written = url.to_string();
                prop_assert!(url.path.starts_with('/'));
                prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic()), "{written:?}");
                prop_assert_eq!(Url::parse(&written), Ok(url));
            }
        }
    }
}
