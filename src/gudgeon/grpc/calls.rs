//! Calls between a connection and the services behind it, and their responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tonic::Status;

use super::peer::Peer;
use super::response_sender::{Messages, ResponseSender, trailers};

const TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The services of a port.
pub(crate) trait Calls: Send + Sync + 'static {
    /// Answers one request; what takes longer goes on in a task.
    fn answer(&self, peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Reply>;

    /// A client could not agree with the server on a key.
    fn handshake_failed(&self);

    /// A connection was closed because its address has as many as it may.
    fn connection_refused(&self) {}
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Reply {
    Messages(Messages),
    Nothing,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut *self {
            Self::Messages(messages) => Pin::new(messages).poll_frame(cx),
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Messages(messages) => messages.is_end_stream(),
            Self::Nothing => true,
        }
    }
}

/// Returns the service and the method that are called; `None`: it is no call of gRPC.
pub(crate) fn call(request: &Request<Incoming>) -> Option<(&str, &str)> {
    // The type may name its encoding: `application/grpc+proto`.
    let is_grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
    if request.method() != Method::POST || !request.headers().get(CONTENT_TYPE).is_some_and(is_grpc)
    {
        return None;
    }
    let path = request.uri().path();
    let path = path.strip_prefix('/').unwrap_or_default();
    Some(path.split_once('/').unwrap_or((path, "")))
}

/// Responds to a request that is no gRPC call.
pub(crate) fn no_call() -> Response<Reply> {
    let mut answer = Response::new(Reply::Nothing);
    *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    answer
}

/// Streams the messages that are put into the sender, for as long as it lasts.
pub(crate) fn streaming(sender: &Arc<ResponseSender>) -> Response<Reply> {
    let mut answer = Response::new(Reply::Messages(Messages::new(sender)));
    answer.headers_mut().insert(CONTENT_TYPE, TYPE);
    answer
}

/// Head and trailers in one.
pub(crate) fn refused(status: &Status) -> Response<Reply> {
    let mut answer = Response::new(Reply::Nothing);
    // gRPC calls this Trailers-Only: the head carries the status, and HTTP's own status stays 200.
    let mut headers: HeaderMap = trailers(status);
    headers.insert(CONTENT_TYPE, TYPE);
    *answer.headers_mut() = headers;
    answer
}
