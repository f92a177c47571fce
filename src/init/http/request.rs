//! The head of a request to the status port. Bodies are never read: no request here means anything by one.

#![forbid(unsafe_code)]

use super::content_length;

/// The longest head taken, in bytes; more is 431. Chosen: what nginx and Apache take of one header line by default.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;
/// Headers of a request. Chosen: kubelet sends five, a browser fifteen.
const HEADERS: usize = 64;

/// The state of the bytes so far.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for the length of one call"
)]
pub(crate) enum Parsed<'a> {
    /// The head goes on.
    Incomplete,
    /// 431: the head, or the number of its headers, is over the limit.
    TooLarge,
    /// 400: not HTTP/1, or it says two things about its length.
    Malformed,
    Request(Request<'a>),
}

/// A request's head, borrowed from the bytes that arrived.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Without scheme, host and query.
    pub(crate) path: &'a str,
    /// Host and port of a target that names them: they count, not the header.
    pub(crate) authority: Option<&'a str>,
    /// After `?`; without it.
    pub(crate) query: Option<&'a str>,
    /// HTTP/1.0 knows no chunks.
    pub(crate) chunks: bool,
    /// More follows the head: a body, or another request. It is not read.
    pub(crate) more: bool,
    /// It says that it has a body.
    pub(crate) body: bool,
    headers: [httparse::Header<'a>; HEADERS],
    count: usize,
}

impl<'a> Request<'a> {
    /// Parses the bytes that have arrived so far.
    #[must_use]
    pub(crate) fn parse(bytes: &'a [u8]) -> Parsed<'a> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Parsed::Incomplete,
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::TooLarge,
            Err(_) => return Parsed::Malformed,
        };
        let (method, target) = (
            head.method.unwrap_or_default(),
            head.path.unwrap_or_default(),
        );
        let (minor, count) = (head.version, head.headers.len());
        let (authority, local) = local(target);
        let Some((path, query)) = split(local) else {
            return Parsed::Malformed;
        };
        let mut request = Request {
            method,
            path,
            authority,
            query,
            chunks: minor == Some(1),
            more: bytes.len() > length,
            body: false,
            headers,
            count,
        };
        match request.says_body() {
            Some(body) => request.body = body,
            None => return Parsed::Malformed,
        }
        Parsed::Request(request)
    }

    /// All headers, in their order.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.headers
            .iter()
            .take(self.count)
            .map(|header| (header.name, header.value))
    }

    /// The first header of that name, whatever its case.
    #[must_use]
    pub(crate) fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Whether there is a body; `None` where the headers contradict each other (request smuggling begins there).
    fn says_body(&self) -> Option<bool> {
        let chunked = self.header("transfer-encoding").is_some();
        match content_length(self.headers.get(..self.count)?).ok()? {
            Some(_) if chunked => None,
            length => Some(chunked || length.unwrap_or_default() > 0),
        }
    }
}

/// Returns the part before the path of a request target, and the path: `/x?y` or `http://host/x?y`.
fn local(target: &str) -> (Option<&str>, &str) {
    match crate::search::split_once(target, "://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            let at = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, local) = rest.split_at(at);
            (Some(authority), if local.is_empty() { "/" } else { local })
        }
        _ => (None, target),
    }
}

/// Path and query.
fn split(local: &str) -> Option<(&str, Option<&str>)> {
    let (path, query) = match local.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (local, None),
    };
    match path {
        "" if query.is_some() => Some(("/", query)),
        path if path.starts_with('/') => Some((path, query)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it wants")]

    use super::*;

    const PROBE: &[u8] = b"GET /healthz/ready?verbose HTTP/1.1\r\nHost: 10.0.0.7:15020\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\nConnection: close\r\n\r\n";

    fn request(bytes: &[u8]) -> Request<'_> {
        match Request::parse(bytes) {
            Parsed::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kubelets_probe() {
        let request = request(PROBE);
        assert_eq!((request.method, request.path), ("GET", "/healthz/ready"));
        assert_eq!(request.query, Some("verbose"));
        assert_eq!(request.header("user-agent"), Some(&b"kube-probe/1.35"[..]));
        assert!(request.chunks && !request.more && !request.body);
    }

    #[test]
    fn a_head_cut_at_any_byte_is_incomplete() {
        for cut in 0..PROBE.len() {
            assert!(
                matches!(Request::parse(&PROBE[..cut]), Parsed::Incomplete),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn targets_in_every_form() {
        for (target, expected) in [
            ("/", Some(("/", None))),
            ("/a?b?c", Some(("/a", Some("b?c")))),
            (
                "http://h:15020/healthz/ready",
                Some(("/healthz/ready", None)),
            ),
            ("http://h", Some(("/", None))),
            ("http://h?x", Some(("/", Some("x")))),
            ("/x?u=http://h/y", Some(("/x", Some("u=http://h/y")))),
            ("*", None),
            ("h:443", None),
            ("healthz", None),
        ] {
            assert_eq!(split(local(target).1), expected, "{target}");
        }
    }

    #[test]
    fn lengths_are_believed_only_when_they_agree() {
        let with = |headers: &str| {
            let text = ["POST /drain HTTP/1.1\r\n", headers, "\r\n"].concat();
            match Request::parse(text.as_bytes()) {
                Parsed::Request(request) => Some(request.body),
                _ => None,
            }
        };
        assert_eq!(with(""), Some(false));
        assert_eq!(with("Content-Length: 0\r\n"), Some(false));
        assert_eq!(with("Content-Length: 5\r\n"), Some(true));
        assert_eq!(
            with("Content-Length: 5\r\ncontent-length: 5\r\n"),
            Some(true)
        );
        assert_eq!(with("Transfer-Encoding: chunked\r\n"), Some(true));
        for lie in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: x\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(with(lie), None, "{lie}");
        }
    }

    #[test]
    fn rubbish_and_giants() {
        for bytes in [
            &b"\0\0\0\0"[..],
            b"GET /\0 HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET http HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        ] {
            assert!(
                matches!(Request::parse(bytes), Parsed::Malformed),
                "{bytes:?}"
            );
        }
        let long = [b"GET /".to_vec(), vec![b'a'; HEAD_BYTES]].concat();
        assert!(matches!(Request::parse(&long), Parsed::TooLarge));
        let mut many = b"GET / HTTP/1.1\r\n".to_vec();
        many.extend(b"x: y\r\n".repeat(HEADERS + 1));
        assert!(matches!(Request::parse(&many), Parsed::TooLarge));
    }

    #[test]
    fn bytes_behind_the_head_are_noticed() {
        let two = [PROBE, PROBE].concat();
        assert!(request(&two).more);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(0..=255_u8, 0..400)) {
            let parsed = Request::parse(&bytes);
            proptest::prop_assert!(!matches!(parsed, Parsed::Request(_)) || bytes.len() > 15);
        }

        #[test]
        fn a_mutated_probe_never_panics(at in 0..PROBE.len(), byte in 0..=255_u8) {
            let mut bytes = PROBE.to_vec();
            bytes[at] = byte;
            if let Parsed::Request(request) = Request::parse(&bytes) {
                proptest::prop_assert!(request.path.starts_with('/'));
            }
        }
    }
}
