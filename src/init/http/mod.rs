//! HTTP/1.1 messages, as bytes: requests that clients send to the status port, responses of Envoy and of applications.
//!
//! Both parsers are pure and are fed in pieces of any size; heads are httparse's affair, framing and limits are ours.

#![forbid(unsafe_code)]

mod request;
mod response;

pub(crate) use request::{Parsed, Request};
pub(crate) use response::{Decoder, Head, Response};
