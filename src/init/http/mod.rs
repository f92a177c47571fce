//! HTTP/1.1 messages: requests that clients send to the status port, responses of Envoy and of applications, and the
//! socket on which a request goes out.
//!
//! Both parsers are pure and are fed in pieces of any size; httparse reads heads; framing and limits are here.

#![forbid(unsafe_code)]

mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod request;
mod response;

pub(crate) use exchange::{Exchange, READ_BYTES, request_head};
pub(crate) use request::{HEAD_BYTES, Parsed, Request};
pub(crate) use response::{Decoder, Malformed, Response};
