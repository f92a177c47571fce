//! Answers that every listener gives.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use serde_json::Value;

use super::{Answer, Answering};

pub(crate) fn not_allowed(allow: &'static str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

/// The way from `/`, where a browser begins, to the page.
pub(crate) fn to_page() -> Answer {
    let mut answer = text(StatusCode::FOUND, "see /debug");
    answer
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static("/debug"));
    answer
}

/// A line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Answer {
    full(
        status,
        "text/plain; charset=utf-8",
        format!("{line}\n").into(),
    )
}

pub(crate) fn full(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// A document, for people too.
pub(crate) fn as_json(value: &Value) -> Answer {
    let mut body = format!("{value:#}");
    body.push('\n');
    full(StatusCode::OK, "application/json", body.into())
}

pub(crate) fn ready(answer: Answer) -> Answering {
    Box::pin(std::future::ready(Ok(answer)))
}
