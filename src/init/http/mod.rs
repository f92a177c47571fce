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
pub(crate) use response::{Decoder, Response};

/// The message is not HTTP as we know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The length that a head gives its body. Two different lengths are an error: readers of the first and of the last would see
/// two different messages (RFC 9112, 6.3).
fn content_length(headers: &[httparse::Header<'_>]) -> Result<Option<u64>, Malformed> {
    let mut length = None;
    for header in headers {
        if !header.name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        // `u64` takes a plus sign, too.
        let digits = header.value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(header.value).ok();
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        match number.filter(|_| digits) {
            Some(number) if length.is_none_or(|known| known == number) => length = Some(number),
            Some(_) | None => return Err(Malformed),
        }
    }
    Ok(length)
}
