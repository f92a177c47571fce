//! The output on stdout: one HTTP/1.1 response with the parts that a probe looks at, and nothing else of the server's.

#![forbid(unsafe_code)]

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};

use crate::failure::Failure;

/// A body that is passed on, in bytes: kubelet reads no more of a probe's answer either.
pub(crate) const MAX_BODY_BYTES: usize = 10 * 1024;
/// The headers that are passed on, as they are written.
const KEPT: [(HeaderName, &str); 2] = [(LOCATION, "Location"), (CONTENT_TYPE, "Content-Type")];

/// One response.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    /// Whole lines.
    headers: Vec<u8>,
    body: Vec<u8>,
}

impl Answer {
    /// The server's, of which two headers are kept.
    pub(crate) fn new(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Self {
        let mut lines = Vec::new();
        for (name, written) in KEPT {
            // A second one would contradict the first.
            if let Some(value) = headers.get(name) {
                lines.extend([written.as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
            }
        }
        Self {
            status,
            headers: lines,
            body,
        }
    }

    /// The helper's own, with one line of text.
    pub(crate) fn text(status: StatusCode, line: &str) -> Self {
        let mut headers = HeaderMap::new();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, plain);
        Self::new(status, &headers, line.as_bytes().to_vec())
    }

    /// A 500 that says why.
    pub(crate) fn failure(failure: &Failure) -> Self {
        let line = [&failure.to_string(), "\n"].concat();
        Self::text(StatusCode::INTERNAL_SERVER_ERROR, &line)
    }

    /// As it is written.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = self.body.get(..MAX_BODY_BYTES).unwrap_or(&self.body);
        // A code that nobody knows has no reason: the line ends with a space then.
        let reason = self.status.canonical_reason().unwrap_or_default();
        [
            format!("HTTP/1.1 {} {reason}\r\n", self.status.as_str()).as_bytes(),
            &self.headers,
            format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(),
            body,
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_probe_looks_at_is_passed_on() {
        let mut headers = HeaderMap::new();
        headers.insert("set-cookie", HeaderValue::from_static("a=b"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        headers.insert(LOCATION, HeaderValue::from_static("/next"));
        let answer = Answer::new(StatusCode::FOUND, &headers, b"moved".to_vec());
        assert_eq!(
            String::from_utf8(answer.encode()).unwrap(),
            "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nmoved"
        );
    }

    #[test]
    fn a_long_body_is_cut() {
        let body = vec![b'x'; MAX_BODY_BYTES + 1];
        let encoded = Answer::new(StatusCode::OK, &HeaderMap::new(), body).encode();
        let text = String::from_utf8(encoded).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 10240\r\n\r\nxxx"));
        assert!(text.ends_with(&"x".repeat(MAX_BODY_BYTES)));
    }

    #[test]
    fn an_unknown_code_is_passed_on() {
        let code = StatusCode::from_u16(599).unwrap();
        let encoded = Answer::new(code, &HeaderMap::new(), Vec::new()).encode();
        assert_eq!(encoded, b"HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n");
    }
}
