//! The services of the gRPC ports, by path: discovery in both variants, health, and what is said to all else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use prost::Message;
use tonic::Status;
use xds::stream::Protocol;

use super::conversation::Conversation;
use super::frames::Inbound;
use super::health;
use super::hub::Hub;
use super::outlet::{Messages, Outlet, trailers};
use super::peer::Peer;
use super::reflection;
use super::wire::Asked;

/// The service of discovery.
pub(super) const DISCOVERY: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
const TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

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

/// Answers one request; what takes longer goes on in a task.
pub(super) fn answer(
    hub: &Arc<Hub>,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Response<Reply> {
    let is_grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
    if request.method() != Method::POST || !request.headers().get(CONTENT_TYPE).is_some_and(is_grpc)
    {
        let mut answer = Response::new(Reply::Nothing);
        *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return answer;
    }
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().strip_prefix('/').unwrap_or_default();
    let (service, method) = path.split_once('/').unwrap_or((path, ""));
    let call = Call { hub, peer, body };
    match (service, method) {
        (DISCOVERY, "StreamAggregatedResources") => {
            call.discovery::<DiscoveryRequest>(Protocol::StateOfTheWorld)
        }
        (DISCOVERY, "DeltaAggregatedResources") => {
            call.discovery::<DeltaDiscoveryRequest>(Protocol::Delta)
        }
        (reflection::SERVICE, "ServerReflectionInfo") => call.task(reflection::answer),
        (health::SERVICE, "Check") => call.task(health::check),
        (health::SERVICE, "Watch") => call.task(health::watch),
        _ if service.starts_with("envoy.service.discovery.v2.") => refused(&Status::unimplemented(
            format!("{service} is gone: this server speaks v3, {DISCOVERY}"),
        )),
        _ => refused(&Status::unimplemented("no such service or method")),
    }
}

struct Call<'a> {
    hub: &'a Arc<Hub>,
    peer: &'a Arc<Peer>,
    body: Incoming,
}

impl Call<'_> {
    fn discovery<M>(self, protocol: Protocol) -> Response<Reply>
    where
        M: Message + Default + Into<Asked> + 'static,
    {
        let outlet = Arc::new(Outlet::default());
        let answer = streaming(&outlet);
        let conversation = Conversation {
            hub: Arc::clone(self.hub),
            outlet,
            inbound: Inbound::new(self.body),
            peer: Arc::clone(self.peer),
            protocol,
        };
        tokio::spawn(conversation.run::<M>());
        answer
    }

    fn task<F, T>(self, work: F) -> Response<Reply>
    where
        F: FnOnce(Arc<Hub>, Inbound<Incoming>, Arc<Outlet>) -> T,
        T: Future<Output = ()> + Send + 'static,
    {
        let outlet = Arc::new(Outlet::default());
        let answer = streaming(&outlet);
        tokio::spawn(work(Arc::clone(self.hub), Inbound::new(self.body), outlet));
        answer
    }
}

fn streaming(outlet: &Arc<Outlet>) -> Response<Reply> {
    let mut answer = Response::new(Reply::Messages(Messages::new(outlet)));
    answer.headers_mut().insert(CONTENT_TYPE, TYPE);
    answer
}

/// Head and trailers in one.
fn refused(status: &Status) -> Response<Reply> {
    let mut answer = Response::new(Reply::Nothing);
    let mut headers: HeaderMap = trailers(status);
    headers.insert(CONTENT_TYPE, TYPE);
    *answer.headers_mut() = headers;
    answer
}
