//! A request with a review in it, from its first byte to the last of its answer: 429 if it gets no permit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode, Version};

use super::object;
use crate::serve::{
    Answer, Connection, ConnectionAborted, Permit, RequestLimit, RequestProgress, UnreadBody,
    Worker, full, read, text,
};

/// Larger reviews, and those of more values, are decided on the worker thread.
const SMALL_BYTES: usize = 64 << 10;
/// Values of a review that is decided on the event loop, within a few milliseconds; a pod or a rule has some hundreds.
const SMALL_VALUES: usize = 2_000;
/// Separators of such a review, those in its texts included: an annotation of 60 kB has thousands of volumes, which take 60 ms.
const SMALL_SEPARATORS: usize = 2 * SMALL_VALUES;

/// A review as it came, with its permit.
#[derive(Debug)]
pub(crate) struct ReviewBody {
    /// The path of the request.
    pub(crate) path: String,
    body: Bytes,
    permit: Permit,
}

/// The answer to a review.
#[derive(Debug)]
pub(crate) struct ReviewAnswer {
    pub(crate) answer: Vec<u8>,
    /// The body was a review as an API server sends it.
    pub(crate) is_review: bool,
}

/// The result of receiving a request.
#[derive(Debug)]
pub(crate) enum Received {
    Body(ReviewBody),
    /// The response to a request without a review.
    Refused(Answer),
}

/// Receives a review of at most `max` bytes, if there is a permit for it.
///
/// # Errors
/// The body does not arrive: its connection must be closed, over HTTP/2 its stream.
pub(crate) async fn take(
    request_limit: &Arc<RequestLimit>,
    request: Request<Incoming>,
    connection: &Arc<Connection>,
    max: usize,
) -> Result<Received, ConnectionAborted> {
    let (head, body) = request.into_parts();
    let declared = body
        .size_hint()
        .exact()
        .and_then(|bytes| usize::try_from(bytes).ok());
    // A body that is too large is refused without room for it.
    let expected = declared.filter(|bytes| *bytes <= max).unwrap_or_default();
    let read = match request_limit.acquire_in_turn(connection, expected).await {
        Ok(permit) => read(&permit, body, max).await.map(|body| (permit, body)),
        Err(rejected) => Err(rejected.into()),
    };
    let (permit, body) = match read {
        Ok(read) => read,
        Err(UnreadBody::Gone) => return Err(ConnectionAborted("the body did not arrive")),
        Err(UnreadBody::TooLarge) => {
            connection.finish();
            let message = format!("body over {} MiB", max >> 20);
            let answer = text(StatusCode::PAYLOAD_TOO_LARGE, &message);
            return Ok(Received::Refused(unread(answer, head.version)));
        }
        // Over HTTP/2 only this stream ends: the others on its connection are not slow.
        Err(UnreadBody::Evicted) => {
            let message = "too many requests: the body arrived too slowly";
            let answer = text(StatusCode::TOO_MANY_REQUESTS, message);
            return Ok(Received::Refused(unread(answer, head.version)));
        }
        Err(UnreadBody::Full) => {
            return Ok(Received::Refused(unread(too_many_requests(), head.version)));
        }
    };
    if body.is_empty() {
        let answer = text(StatusCode::BAD_REQUEST, "no body found");
        return Ok(Received::Refused(answer));
    }
    if let Err(message) = check_content(&head.headers) {
        return Ok(Received::Refused(text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            message,
        )));
    }
    Ok(Received::Body(ReviewBody {
        path: head.uri.path().to_owned(),
        body,
        permit,
    }))
}

/// Errors of a review that gets no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewError {
    /// Too many others are before it: the client should retry.
    Rejected,
    Panicked,
}

impl ReviewError {
    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::Rejected => too_many_requests(),
            Self::Panicked => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error; the request failed, see the log",
            ),
        }
    }
}

impl ReviewBody {
    /// Decides the review: on the event loop if it is small, else on the worker thread. Keeps the permit until the response
    /// is sent.
    ///
    /// # Errors
    /// The worker's queue is full, or the task panicked.
    pub(crate) async fn decide(
        self,
        worker: &Worker,
        check: impl FnOnce(&str, Bytes) -> ReviewAnswer + Send + 'static,
    ) -> Result<Answer, ReviewError> {
        let Self { path, body, permit } = self;
        let is_small = body.len() <= SMALL_BYTES
            && object::bounded(&body, SMALL_VALUES).is_ok()
            && object::is_light(&body, SMALL_SEPARATORS);
        let (flow, eviction) = (permit.owner(), permit.eviction());
        let job = move || {
            permit
                .begin(RequestProgress::Working)
                .map_err(|_| ReviewError::Rejected)?;
            // A panic ends this review alone: on the event loop it would take the connection along.
            let decided = catch_unwind(AssertUnwindSafe(|| check(&path, body)));
            let decided = decided.map_err(|_told_by_the_hook| ReviewError::Panicked)?;
            if decided.is_review {
                permit.establish();
            }
            permit
                .begin(RequestProgress::Answering)
                .map_err(|_| ReviewError::Rejected)?;
            Ok(PermittedAnswer {
                answer: decided.answer,
                _permit: permit,
            })
        };
        let done = async {
            match is_small {
                true => worker.run_here(flow, job).await,
                false => worker.run(flow, job).await,
            }
        };
        let permitted = tokio::select! {
            biased;
            done = done => done.map_err(|_| ReviewError::Rejected)??,
            () = eviction.notified() => return Err(ReviewError::Rejected),
        };
        Ok(full(
            StatusCode::OK,
            "application/json",
            Bytes::from_owner(permitted),
        ))
    }
}

/// The response to a review without a permit: 429, after which the API server tries again.
fn too_many_requests() -> Answer {
    text(StatusCode::TOO_MANY_REQUESTS, "too many reviews at once")
}

/// An answer to a request whose body was not read to its end: over HTTP/1 the begin of the next request is unknown.
fn unread(mut answer: Answer, version: Version) -> Answer {
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
}

/// Checks that the body is JSON without an encoding.
fn check_content(headers: &HeaderMap) -> Result<(), &'static str> {
    // `identity` means no encoding.
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if !encodings.all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err("invalid Content-Type, want `application/json` without a Content-Encoding");
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let json = types
        .next()
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            let essence = value.split(';').next().unwrap_or_default();
            essence.trim().eq_ignore_ascii_case("application/json")
        });
    match json && types.next().is_none() {
        true => Ok(()),
        false => Err("invalid Content-Type, want `application/json`"),
    }
}

/// An answer that is not taken yet has its permit still.
#[derive(Debug)]
struct PermittedAnswer {
    answer: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for PermittedAnswer {
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
            check_content(&headers)
        };
        let wrong = Err("invalid Content-Type, want `application/json`");
        for (kind, expected) in [
            ("application/json", Ok(())),
            ("Application/JSON ; charset=utf-8", Ok(())),
            ("application/jsonx", wrong),
            ("text/plain", wrong),
        ] {
            assert_eq!(check(&[("content-type", kind)]), expected, "{kind}");
        }
        assert_eq!(check(&[]), wrong);
        // The type alone is right, which an error must not blame.
        let encoded =
            Err("invalid Content-Type, want `application/json` without a Content-Encoding");
        for (encoding, expected) in [
            ("identity", Ok(())),
            ("Identity", Ok(())),
            ("gzip", encoded),
            ("identity, gzip", encoded),
            ("", encoded),
        ] {
            let headers = [
                ("content-type", "application/json"),
                ("content-encoding", encoding),
            ];
            assert_eq!(check(&headers), expected, "{encoding}");
        }
        let twice = [
            ("content-type", "application/json"),
            ("content-encoding", "identity"),
            ("content-encoding", "gzip"),
        ];
        assert_eq!(check(&twice), encoded);
    }
}
