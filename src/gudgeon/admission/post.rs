//! A request with a review in it, from its first byte to the last of its answer.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode, Version};

use crate::serve::{Answer, Cut, Desk, Desks, Line, NoDesk, Unread, full, read, text};

/// A review as it came, at its desk.
#[derive(Debug)]
pub(crate) struct Post {
    /// Of the request.
    pub(crate) path: String,
    pub(crate) body: Bytes,
    desk: Desk,
}

/// What came of taking a review in.
#[derive(Debug)]
pub(crate) enum Taken {
    Post(Post),
    /// There is no review in it.
    Refused(Answer),
}

/// Takes a review of at most `most` bytes in, at one of the desks.
///
/// # Errors
/// The body does not come: its connection has to go, over HTTP/2 its stream.
pub(crate) async fn take(
    desks: &Arc<Desks>,
    request: Request<Incoming>,
    line: &Arc<Line>,
    most: usize,
) -> Result<Taken, Cut> {
    let desk = match desks.sit(line).await {
        Ok(desk) => desk,
        Err(NoDesk::Gone) => return Err(Cut("others waited too long")),
        Err(NoDesk::Full) => {
            let said = "too many reviews at once";
            return Ok(Taken::Refused(text(StatusCode::TOO_MANY_REQUESTS, said)));
        }
    };
    let (head, body) = request.into_parts();
    let body = match read(&desk, body, most).await {
        Ok(read) => read,
        Err(Unread::Gone) => return Err(Cut("the body did not come")),
        Err(Unread::TooLarge) => {
            line.finish();
            let said = format!("body over {} MiB", most >> 20);
            let answer = text(StatusCode::PAYLOAD_TOO_LARGE, &said);
            return Ok(Taken::Refused(unread(answer, head.version)));
        }
        Err(Unread::SentAway) => {
            // Over HTTP/2 it is one stream that ends: the others on its connection have done nothing.
            let said = "the body came too slowly, and others waited";
            let answer = text(StatusCode::TOO_MANY_REQUESTS, said);
            return Ok(Taken::Refused(unread(answer, head.version)));
        }
    };
    if body.is_empty() {
        let answer = text(StatusCode::BAD_REQUEST, "no body found");
        return Ok(Taken::Refused(answer));
    }
    if !is_json(&head.headers) {
        let said = "invalid Content-Type, want `application/json`";
        return Ok(Taken::Refused(text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            said,
        )));
    }
    Ok(Taken::Post(Post {
        path: head.uri.path().to_owned(),
        body,
        desk,
    }))
}

/// An answer to a body that is not there whole: over HTTP/1 nobody knows where the next request begins.
fn unread(mut answer: Answer, version: Version) -> Answer {
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
}

/// The review's answer, which keeps the desk until it is taken.
pub(crate) fn answered(post: Post, answer: Vec<u8>) -> Answer {
    post.desk.answers();
    let kept = Kept {
        answer,
        _desk: post.desk,
    };
    full(StatusCode::OK, "application/json", Bytes::from_owner(kept))
}

fn is_json(headers: &HeaderMap) -> bool {
    // It says that there is none.
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let plain = encodings.all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let json = types
        .next()
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            let essence = value.split(';').next().unwrap_or_default();
            essence.trim().eq_ignore_ascii_case("application/json")
        });
    plain && json && types.next().is_none()
}

/// An answer that is not taken yet has its desk still.
#[derive(Debug)]
struct Kept {
    answer: Vec<u8>,
    _desk: Desk,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types() {
        let check = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            is_json(&headers)
        };
        assert!(check(&[("content-type", "application/json")]));
        assert!(check(&[(
            "content-type",
            "Application/JSON ; charset=utf-8"
        )]));
        assert!(!check(&[]));
        assert!(!check(&[("content-type", "application/jsonx")]));
        assert!(!check(&[("content-type", "text/plain")]));
        for (encoding, is_taken) in [
            ("identity", true),
            ("Identity", true),
            ("gzip", false),
            ("identity, gzip", false),
            ("", false),
        ] {
            let headers = [
                ("content-type", "application/json"),
                ("content-encoding", encoding),
            ];
            assert_eq!(check(&headers), is_taken, "{encoding}");
        }
        assert!(!check(&[
            ("content-type", "application/json"),
            ("content-encoding", "identity"),
            ("content-encoding", "gzip")
        ]));
    }
}
