//! Properties of the parsers whatever arrives, for fuzzing and for tests: the places where the bytes are cut make no
//! difference, and nothing grows beyond its limit.

#![forbid(unsafe_code)]

use super::{Decoder, HEAD_BYTES, Parsed, READ_BYTES, Request, Response};

/// Nothing of an answer is cut off, so that all of it can be compared.
const ALL: usize = 1 << 20;

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Incomplete,
    Refused,
    Request(String),
}

/// Read as a connection to the status port does it: all that is there is parsed again with each piece.
pub(crate) fn request(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    let mut so_far = Vec::new();
    let mut seen = Seen::Incomplete;
    for piece in pieces {
        so_far.extend_from_slice(piece);
        seen = see(&so_far);
        if seen != Seen::Incomplete {
            break;
        }
        assert!(so_far.len() < HEAD_BYTES, "a head without a limit");
    }
    assert_eq!(seen, see(&whole));
}

fn see(bytes: &[u8]) -> Seen {
    match Request::parse(bytes) {
        Parsed::Incomplete => Seen::Incomplete,
        Parsed::TooLarge | Parsed::Malformed => Seen::Refused,
        Parsed::Request(request) => {
            assert!(request.path.starts_with('/'));
            // What goes on to an application must stay one line.
            let target = request
                .path
                .bytes()
                .chain(request.query.unwrap_or_default().bytes());
            assert!(target.into_iter().all(|byte| byte > b' ' && byte != 0x7F));
            let broken = |value: &[u8]| value.iter().any(|byte| b"\r\n\0".contains(byte));
            assert!(!request.headers().any(|(_, value)| broken(value)));
            let headers: Vec<_> = request.headers().collect();
            let (method, path, query) = (request.method, request.path, request.query);
            let (chunks, body) = (request.chunks, request.body);
            Seen::Request(format!(
                "{method} {path} {query:?} {chunks} {body} {headers:?}"
            ))
        }
    }
}

/// An answer of an admin port or an application.
pub(crate) fn response(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    assert_eq!(answer(pieces, ALL), answer(&[&whole], ALL));
    let (_, short) = answer(pieces, 3);
    assert!(short.body().len() <= 3);
    let mut decoder = Decoder::without_body();
    for piece in pieces {
        let fed = decoder.feed(piece, &mut |body| assert!(body.is_empty()));
        if fed.is_err() {
            break;
        }
    }
}

/// The answer as far as it goes, and whether it is whole; `None`: it is no answer.
#[must_use]
pub(crate) fn answer(pieces: &[&[u8]], limit: usize) -> (Option<bool>, Response) {
    let mut response = Response::new(limit);
    for piece in pieces {
        if response.feed(piece).is_err() {
            // What was taken before that is of no use to anybody.
            return (None, Response::new(limit));
        }
        assert!(response.held() <= HEAD_BYTES.saturating_add(piece.len()).max(READ_BYTES));
        if response.is_done() {
            break;
        }
    }
    (Some(response.is_done()), response)
}
