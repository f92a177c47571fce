//! Answers of the status port, as bytes. Every connection is closed after its answer.

#![forbid(unsafe_code)]

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// The header fields of a 405, with the methods that would do.
pub(crate) const TEXT_GET: &str = "text/plain; charset=utf-8\r\nAllow: GET, HEAD";
pub(crate) const TEXT_POST: &str = "text/plain; charset=utf-8\r\nAllow: POST";
pub(crate) const JSON: &str = "application/json";
pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// The Prometheus text format.
pub(crate) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The shape that an answer must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    /// HEAD: the head only.
    pub(crate) head_only: bool,
    /// HTTP/1.0 knows no chunks.
    pub(crate) chunks: bool,
}

/// The mark of a body's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(usize),
    /// Chunk by chunk.
    Chunked,
    /// By the close: HTTP/1.0.
    Close,
}

/// The head of an answer.
#[must_use]
pub(crate) fn head(status: u16, kind: &str, length: Length) -> Vec<u8> {
    let status_text = status.to_string();
    let number;
    let (name, value) = match length {
        Length::Known(bytes) => {
            number = bytes.to_string();
            ("Content-Length: ", number.as_str())
        }
        Length::Chunked => ("Transfer-Encoding: ", "chunked"),
        Length::Close => ("Cache-Control: ", "no-store"),
    };
    let parts = [
        "HTTP/1.1 ",
        &status_text,
        " ",
        reason(status),
        "\r\nContent-Type: ",
        kind,
        "\r\n",
        name,
        value,
        "\r\nConnection: close\r\n\r\n",
    ];
    parts.concat().into_bytes()
}

/// The words for the codes that the agent gives; a code of the application's is passed on without.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    }
}

/// Appends `bytes` as one chunk.
pub(crate) fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let mut digits = [0_u8; 16];
    let mut left = bytes.len();
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = *b"0123456789abcdef".get(left & 15).unwrap_or(&b'0');
        used += 1;
        left >>= 4;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(16 - used..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// One line, as a body.
pub(crate) fn line(parts: &[&str]) -> Vec<u8> {
    let mut line = parts.concat().into_bytes();
    line.push(b'\n');
    line
}

/// The end of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_http() {
        let bytes = head(503, TEXT, Length::Known(9));
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn chunks_have_their_size_in_front() {
        for size in [1, 9, 10, 15, 16, 255, 4096, 70_000] {
            let mut out = Vec::new();
            chunk(&mut out, &vec![b'x'; size]);
            let expected = format!("{size:x}\r\n");
            assert!(out.starts_with(expected.as_bytes()), "{size}");
            assert_eq!(out.len(), expected.len() + size + 2);
        }
        let mut out = Vec::new();
        chunk(&mut out, b"");
        assert!(out.is_empty(), "an empty chunk would be the end");
    }
}
