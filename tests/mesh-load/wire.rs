//! Streams: requests and responses of either protocol over gRPC.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Streaming;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Channel;

use crate::Failure;
use crate::facts::{Kind, Library};
use crate::proxy::{Protocol, Request, Response};

/// The requests of a proxy, as a stream.
pub(crate) struct RequestStream<T>(pub(crate) UnboundedReceiver<T>);

impl<T> Stream for RequestStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

/// The stream of one proxy.
pub(crate) enum Line {
    State(
        UnboundedSender<DiscoveryRequest>,
        Streaming<DiscoveryResponse>,
    ),
    Delta(
        UnboundedSender<DeltaDiscoveryRequest>,
        Streaming<DeltaDiscoveryResponse>,
    ),
}

/// A response as it came, and its resources' bytes.
pub(crate) enum Came {
    State(DiscoveryResponse),
    Delta(DeltaDiscoveryResponse),
}

impl Line {
    /// Opens a stream, and sends the first request on it with the proxy's node.
    pub(crate) async fn open(
        channel: Channel,
        protocol: Protocol,
        node: Node,
        first: Request,
    ) -> Result<Self, Failure> {
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        // The server answers only after the first request.
        match protocol {
            Protocol::State => {
                let (say, requests) = unbounded_channel();
                let request = DiscoveryRequest {
                    node: Some(node),
                    ..state(first)
                };
                say.send(request)?;
                let response = client
                    .stream_aggregated_resources(RequestStream(requests))
                    .await?;
                Ok(Self::State(say, response.into_inner()))
            }
            Protocol::Delta => {
                let (say, requests) = unbounded_channel();
                let request = DeltaDiscoveryRequest {
                    node: Some(node),
                    ..delta(first)
                };
                say.send(request)?;
                let response = client
                    .delta_aggregated_resources(RequestStream(requests))
                    .await?;
                Ok(Self::Delta(say, response.into_inner()))
            }
        }
    }

    pub(crate) fn say(&self, request: Request) -> Result<(), Failure> {
        match self {
            Self::State(say, _) => say.send(state(request))?,
            Self::Delta(say, _) => say.send(delta(request))?,
        }
        Ok(())
    }

    pub(crate) async fn hear(&mut self) -> Result<Came, Failure> {
        let came = match self {
            Self::State(_, responses) => responses.message().await?.map(Came::State),
            Self::Delta(_, responses) => responses.message().await?.map(Came::Delta),
        };
        Ok(came.ok_or("the server ended a stream")?)
    }
}

impl Came {
    /// Bytes of its resources are added to the count.
    pub(crate) fn read(self, library: &mut Library, count: &mut u64) -> Result<Response, String> {
        match self {
            Self::State(came) => {
                let kind = Kind::of(&came.type_url)?;
                let resources = came.resources.into_iter();
                let resources = resources.map(|any| body(kind, any, count, library));
                Ok(Response {
                    kind,
                    version: came.version_info,
                    nonce: came.nonce,
                    resources: resources.collect::<Result<_, _>>()?,
                    removed: Vec::new(),
                })
            }
            Self::Delta(came) => {
                let kind = Kind::of(&came.type_url)?;
                let resources = came.resources.into_iter().map(|one| {
                    let any = one
                        .resource
                        .ok_or_else(|| format!("{} is nothing", one.name))?;
                    let facts = body(kind, any, count, library)?;
                    if facts.name != one.name || one.version.is_empty() {
                        return Err(format!("{} is called {}", facts.name, one.name));
                    }
                    Ok(facts)
                });
                Ok(Response {
                    kind,
                    version: came.system_version_info,
                    nonce: came.nonce,
                    resources: resources.collect::<Result<_, _>>()?,
                    removed: came.removed_resources,
                })
            }
        }
    }
}

fn body(
    kind: Kind,
    any: Any,
    count: &mut u64,
    library: &mut Library,
) -> Result<std::rc::Rc<crate::facts::Facts>, String> {
    if any.type_url != kind.url() {
        return Err(format!("{} among {}", any.type_url, kind.url()));
    }
    *count += any.value.len() as u64;
    library.read(kind, Bytes::from(any.value))
}

fn state(request: Request) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: request.version,
        resource_names: request.names,
        type_url: request.kind.url().to_owned(),
        response_nonce: request.nonce,
        ..DiscoveryRequest::default()
    }
}

fn delta(request: Request) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: request.kind.url().to_owned(),
        resource_names_subscribe: request.names,
        resource_names_unsubscribe: request.unsubscribe,
        response_nonce: request.nonce,
        ..DeltaDiscoveryRequest::default()
    }
}
