//! An HTTP/1.1 response, fed in pieces: `Decoder` passes its body on, `Response` keeps the beginning of it. Pure.

#![forbid(unsafe_code)]

use super::{Malformed, content_length};

/// The longest head taken, in bytes. Chosen: Envoy's are about 250 bytes, applications have cookies and policies.
const HEAD_BYTES: usize = 16 * 1024;
/// Interim responses (100 Continue, 103 Early Hints) before the final one, in heads. Chosen: more than the five
/// that Go's client, and so kubelet, takes.
const INTERIM_HEADS: u8 = 16;
/// Headers of an answer. Chosen: as many as of a request.
const HEADERS: usize = 64;
/// A chunk-size line with its end, in bytes. Chosen: 16 digits and a little extension.
const CHUNK_LINE_BYTES: usize = 64;

/// The mark of the body's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    /// `content-length`: so many bytes are left.
    Length(u64),
    /// Chunked: so many bytes of this chunk are left.
    Chunk(u64),
    /// Chunked: the line break after a chunk, then a size line.
    ChunkEnd,
    ChunkSize,
    /// Until the connection closes.
    Close,
    Done,
}

/// A response that is arriving; its body goes to a sink as it comes.
#[derive(Debug)]
#[cfg_attr(any(test, fuzzing), derive(PartialEq, Eq))]
pub(crate) struct Decoder {
    /// Bytes not understood yet: the head, or a chunk-size line.
    pending: Vec<u8>,
    head: Option<Head>,
    /// Interim answers so far.
    interim: u8,
    framing: BodyFraming,
    /// Answers to HEAD have no body, whatever their head says.
    bodiless: bool,
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// `location`, of a redirect only.
    pub(crate) location: Option<String>,
    /// The body is compressed, although nobody asked for that.
    pub(crate) encoded: bool,
}

/// Takes pieces of a body.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8]);

impl Decoder {
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self {
            pending: Vec::new(),
            head: None,
            interim: 0,
            framing: BodyFraming::Close,
            bodiless: false,
        }
    }

    /// For the answer to a HEAD request.
    #[must_use]
    pub(crate) const fn without_body() -> Self {
        let mut this = Self::new();
        this.bodiless = true;
        this
    }

    /// Takes what arrived; the body in it goes to `sink`.
    ///
    /// # Errors
    /// A head or a chunk that is not HTTP, or too long.
    pub(crate) fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if self.head.is_none() {
            self.pending.extend_from_slice(bytes);
            let Some(rest) = self.final_head()? else {
                return Ok(());
            };
            let joined = std::mem::take(&mut self.pending);
            return self.feed_body(joined.get(rest..).unwrap_or_default(), sink);
        }
        if !self.pending.is_empty() {
            // The beginning of a size line waits for its end.
            self.pending.extend_from_slice(bytes);
            let joined = std::mem::take(&mut self.pending);
            return self.feed_body(&joined, sink);
        }
        self.feed_body(bytes, sink)
    }

    /// As `feed`, and nothing means that the other side closed. Whether the response is whole.
    ///
    /// # Errors
    /// As for `feed`.
    pub(crate) fn take(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<bool, Malformed> {
        if bytes.is_empty() {
            return Ok(self.close());
        }
        self.feed(bytes, sink)?;
        Ok(self.is_done())
    }

    /// The other side closed. Whether the response is whole.
    pub(crate) fn close(&mut self) -> bool {
        if self.head.is_some() && self.framing == BodyFraming::Close {
            self.framing = BodyFraming::Done;
        }
        self.is_done()
    }

    /// The response is whole.
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.head.is_some() && self.framing == BodyFraming::Done
    }

    /// Once it has arrived.
    #[must_use]
    pub(crate) const fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Parses the head, if it is whole; returns where the body begins. 100 Continue and its like are skipped.
    fn final_head(&mut self) -> Result<Option<usize>, Malformed> {
        loop {
            let Some(rest) = self.parse_head()? else {
                return Ok(None);
            };
            if self.head.as_ref().is_none_or(|head| head.status >= 200) {
                return Ok(Some(rest));
            }
            self.head = None;
            if self.interim == INTERIM_HEADS {
                return Err(Malformed);
            }
            self.interim = self.interim.saturating_add(1);
            self.pending.drain(..rest.min(self.pending.len()));
        }
    }

    /// Parses a head, if it is whole; returns where it ends.
    fn parse_head(&mut self) -> Result<Option<usize>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        match head.parse(&self.pending) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES => {
                let status = head.code.unwrap_or_default();
                self.framing = if self.bodiless {
                    BodyFraming::Done
                } else {
                    framing(status, head.headers)?
                };
                self.head = Some(Head {
                    status,
                    location: find(head.headers, "location")
                        .filter(|_| matches!(status, 300..=399))
                        .map(|value| String::from_utf8_lossy(value).into_owned()),
                    encoded: find(head.headers, "content-encoding")
                        .is_some_and(|value| !value.eq_ignore_ascii_case(b"identity")),
                });
                Ok(Some(length))
            }
            Ok(httparse::Status::Partial) if self.pending.len() < HEAD_BYTES => Ok(None),
            Ok(_) | Err(_) => Err(Malformed),
        }
    }

    fn feed_body(&mut self, mut bytes: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            bytes = match self.framing {
                BodyFraming::Close => {
                    sink(bytes);
                    &[]
                }
                BodyFraming::Length(left) => {
                    let (left, rest) = take(left, bytes, sink);
                    self.framing = if left == 0 {
                        BodyFraming::Done
                    } else {
                        BodyFraming::Length(left)
                    };
                    rest
                }
                BodyFraming::Chunk(left) => {
                    let (left, rest) = take(left, bytes, sink);
                    self.framing = if left == 0 {
                        BodyFraming::ChunkEnd
                    } else {
                        BodyFraming::Chunk(left)
                    };
                    rest
                }
                BodyFraming::ChunkEnd => match bytes {
                    [b'\r', b'\n', rest @ ..] => {
                        self.framing = BodyFraming::ChunkSize;
                        rest
                    }
                    [b'\r'] => return self.wait(bytes),
                    _ => return Err(Malformed),
                },
                BodyFraming::ChunkSize => match httparse::parse_chunk_size(bytes) {
                    Ok(httparse::Status::Complete((length, _))) if length > CHUNK_LINE_BYTES => {
                        return Err(Malformed);
                    }
                    Ok(httparse::Status::Complete((length, size))) => {
                        self.framing = if size == 0 {
                            BodyFraming::Done
                        } else {
                            BodyFraming::Chunk(size)
                        };
                        bytes.get(length..).unwrap_or_default()
                    }
                    Ok(httparse::Status::Partial) => return self.wait(bytes),
                    Err(_) => return Err(Malformed),
                },
                // Trailers, or rubbish after the end: ignored.
                BodyFraming::Done => &[],
            };
        }
        Ok(())
    }

    fn wait(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() > CHUNK_LINE_BYTES {
            return Err(Malformed);
        }
        self.pending = bytes.to_vec();
        Ok(())
    }
}

/// A response whose body is kept up to a limit.
#[derive(Debug)]
#[cfg_attr(any(test, fuzzing), derive(PartialEq, Eq))]
pub(crate) struct Response {
    decoder: Decoder,
    body: Vec<u8>,
    /// Body bytes kept at most; the rest is cut.
    limit: usize,
    cut: bool,
}

impl Response {
    #[must_use]
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            decoder: Decoder::new(),
            body: Vec::new(),
            limit,
            cut: false,
        }
    }

    /// For the answer to a HEAD request.
    #[must_use]
    pub(crate) fn without_body() -> Self {
        let mut this = Self::new(0);
        this.decoder = Decoder::without_body();
        this
    }

    /// Takes what arrived.
    ///
    /// # Errors
    /// A head or a chunk that is not HTTP, or too long.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let Self {
            decoder,
            body,
            limit,
            cut,
        } = self;
        decoder.feed(bytes, &mut |piece| {
            let room = limit.saturating_sub(body.len());
            *cut |= piece.len() > room;
            body.extend_from_slice(piece.get(..room).unwrap_or(piece));
        })
    }

    /// As `feed`, and nothing means that the other side closed. Whether nothing more is needed.
    ///
    /// # Errors
    /// As for `feed`.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        if bytes.is_empty() {
            return Ok(self.close());
        }
        self.feed(bytes)?;
        Ok(self.is_done())
    }

    /// The other side closed. Whether the response is whole.
    pub(crate) fn close(&mut self) -> bool {
        self.decoder.close() || self.is_done()
    }

    /// Nothing more is needed: it is whole, or as much was read as is kept.
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.decoder.is_done() || (self.decoder.head.is_some() && self.cut)
    }

    #[must_use]
    pub(crate) fn status(&self) -> Option<u16> {
        self.decoder.head.as_ref().map(|head| head.status)
    }

    /// Once it has arrived.
    #[must_use]
    pub(crate) const fn head(&self) -> Option<&Head> {
        self.decoder.head()
    }

    /// The body as far as it was kept.
    #[must_use]
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes held that are not understood yet.
    #[cfg(any(test, fuzzing))]
    pub(super) const fn held(&self) -> usize {
        self.decoder.pending.len()
    }

    /// The body was longer than the limit.
    #[must_use]
    pub(crate) const fn is_cut(&self) -> bool {
        self.cut
    }
}

/// Passes up to `left` bytes on; returns how many are left then, and the rest.
fn take<'a>(left: u64, bytes: &'a [u8], sink: Sink<'_>) -> (u64, &'a [u8]) {
    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    let (mine, rest) = bytes.split_at(here);
    sink(mine);
    (left.saturating_sub(mine.len() as u64), rest)
}

fn find<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    let mut found = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name));
    found.next().map(|header| header.value)
}

fn framing(status: u16, headers: &[httparse::Header<'_>]) -> Result<BodyFraming, Malformed> {
    if matches!(status, 204 | 304) {
        return Ok(BodyFraming::Done);
    }
    if find(headers, "transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"))
    {
        return Ok(BodyFraming::ChunkSize);
    }
    Ok(match content_length(headers)? {
        None => BodyFraming::Close,
        Some(0) => BodyFraming::Done,
        Some(length) => BodyFraming::Length(length),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nServer: envoy\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10;x=y\r\n, chunked world!\r\n0\r\n\r\n";
    const LENGTH: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope";

    fn fed_in_two(bytes: &[u8], cut: usize) -> Response {
        let mut response = Response::new(1024);
        let (first, second) = bytes.split_at(cut);
        response.feed(first).unwrap();
        response.feed(second).unwrap();
        response
    }

    #[test]
    fn a_response_split_at_every_byte_is_the_same() {
        for cut in 0..=CHUNKED.len() {
            let response = fed_in_two(CHUNKED, cut);
            assert_eq!(response.body(), b"hello, chunked world!", "cut at {cut}");
            assert!(response.is_done(), "cut at {cut}");
        }
        for cut in 0..=LENGTH.len() {
            let response = fed_in_two(LENGTH, cut);
            assert_eq!(
                (response.status(), response.body()),
                (Some(404), &b"nope"[..])
            );
            assert!(response.is_done());
        }
    }

    #[test]
    fn a_response_byte_by_byte_is_the_same() {
        let mut response = Response::new(1024);
        for byte in CHUNKED {
            response.feed(&[*byte]).unwrap();
        }
        assert_eq!(response.body(), b"hello, chunked world!");
        assert!(response.is_done());
    }

    #[test]
    fn without_a_length_the_close_is_the_end() {
        let mut response = Response::new(1024);
        response.feed(b"HTTP/1.0 200 OK\r\n\r\nsome").unwrap();
        assert!(!response.is_done());
        assert!(response.close());
        assert_eq!(response.body(), b"some");
    }

    #[test]
    fn a_connection_that_closes_early_is_not_a_whole_response() {
        for cut in 0..LENGTH.len() {
            let mut response = Response::new(1024);
            response.feed(&LENGTH[..cut]).unwrap();
            assert!(!response.close(), "closed after {cut}");
        }
    }

    #[test]
    fn a_long_body_is_cut_and_that_is_said() {
        let mut response = Response::new(3);
        response.feed(LENGTH).unwrap();
        assert_eq!(response.body(), b"nop");
        assert!(response.is_cut() && response.is_done());
    }

    #[test]
    fn a_length_may_stand_twice_if_it_is_the_same() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2 \r\nContent-Length:2\r\n\r\n";
        let mut response = Response::new(64);
        response.feed(head).unwrap();
        assert!(!response.is_done());
        response.feed(b"hi").unwrap();
        assert!(response.is_done());
    }

    #[test]
    fn rubbish_is_refused() {
        let endless = [b'a'; HEAD_BYTES + 1];
        let mut many = b"HTTP/1.1 200 OK\r\n".to_vec();
        many.extend(b"x: y\r\n".repeat(HEADERS + 1));
        for bytes in [
            &endless[..],
            &many,
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nContent-Length: 3\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert_eq!(Response::new(64).feed(bytes), Err(Malformed));
        }
    }

    #[test]
    fn an_interim_answer_is_not_the_answer() {
        let mut response = Response::new(1024);
        response
            .feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
            .unwrap();
        assert_eq!(response.status(), Some(204));
        assert!(response.is_done());
    }

    /// `100 Continue` without end kept the loop in one read for as long as it came.
    #[test]
    fn interim_answers_have_an_end() {
        const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let fed = |count: usize, pieces: usize| {
            let bytes = [&INTERIM.repeat(count), LENGTH].concat();
            let mut response = Response::new(1024);
            let mut pieces = bytes.chunks(pieces);
            pieces
                .try_for_each(|piece| response.feed(piece))
                .map(|()| response.status())
        };
        for pieces in [1, 20, 2048, 1 << 20] {
            assert_eq!(fed(INTERIM_HEADS.into(), pieces), Ok(Some(404)));
            assert_eq!(fed(usize::from(INTERIM_HEADS) + 1, pieces), Err(Malformed));
            assert_eq!(fed(10_000, pieces), Err(Malformed));
        }
    }

    #[test]
    fn the_answer_to_head_has_no_body() {
        let mut response = Response::without_body();
        response
            .feed(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 500\r\n\r\n")
            .unwrap();
        assert!(response.is_done());
        let location = response.head().and_then(|head| head.location.as_deref());
        assert_eq!(location, Some("/x"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_grow(pieces in proptest::collection::vec(proptest::collection::vec(0..=255_u8, 0..300), 0..20)) {
            let mut response = Response::new(100);
            for piece in &pieces {
                if response.feed(piece).is_err() {
                    break;
                }
                assert!(response.body().len() <= 100 && response.decoder.pending.len() <= HEAD_BYTES + 300);
            }
        }
    }
}
