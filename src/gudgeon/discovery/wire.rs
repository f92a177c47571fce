//! Requests and responses between the messages of gRPC and what a stream speaks.
//!
//! Responses are encoded from messages of their own: same fields and numbers, but the resources are shared bytes, copied
//! once for all streams that are being sent the same.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::rpc::Status as GrpcStatus;
use prost::Message;
use xds::resource_names::ResourceNames;
use xds::stream::{Protocol, Request, Response};
use xds::view::Type;

use super::encoded_pieces::PieceCache;
use crate::cli::VERSION;
use crate::grpc::{FromMessage, begun};

/// The service of discovery.
pub(super) const DISCOVERY: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

/// One request of either protocol, as it came.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) node: Option<Node>,
    pub(crate) url: String,
    /// `None`: a type that is not served.
    pub(crate) request: Option<Request>,
}

/// `DiscoveryRequest` without its names.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WithoutNames {
    #[prost(string, tag = "1")]
    version_info: String,
    #[prost(message, optional, tag = "2")]
    node: Option<Node>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    response_nonce: String,
    #[prost(message, optional, tag = "6")]
    error_detail: Option<GrpcStatus>,
}

/// `DiscoveryRequest`. Its names stay where they came in, or are those that the stream has.
#[derive(Debug)]
pub(super) struct StateRequest {
    request: WithoutNames,
    names: ResourceNames,
}

impl StateRequest {
    pub(super) fn new(request: WithoutNames, names: ResourceNames) -> Self {
        Self { request, names }
    }
}

impl FromMessage for StateRequest {
    fn from_message(message: Bytes) -> Result<Self, String> {
        let request = WithoutNames::decode(&*message).map_err(|cause| cause.to_string())?;
        let names = ResourceNames::of_request(message).map_err(|cause| cause.to_string())?;
        Ok(Self { request, names })
    }
}

impl From<StateRequest> for ClientRequest {
    fn from(received: StateRequest) -> Self {
        let StateRequest { request, names } = received;
        let known_request = Type::from_url(&request.type_url).map(|kind| Request {
            version: request.version_info,
            nonce: request.response_nonce,
            names,
            error: request.error_detail.map(|error| error.message),
            ..Request::of(kind)
        });
        Self {
            node: request.node,
            url: request.type_url,
            request: known_request,
        }
    }
}

impl From<DeltaDiscoveryRequest> for ClientRequest {
    fn from(received: DeltaDiscoveryRequest) -> Self {
        let request = Type::from_url(&received.type_url).map(|kind| Request {
            nonce: received.response_nonce,
            names: received.resource_names_subscribe.into(),
            unsubscribe: received.resource_names_unsubscribe,
            initial: received.initial_resource_versions.into_iter().collect(),
            error: received.error_detail.map(|error| error.message),
            ..Request::of(kind)
        });
        Self {
            node: received.node,
            url: received.type_url,
            request,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(bytes = "bytes", tag = "1")]
    type_url: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct ControlPlane {
    #[prost(string, tag = "1")]
    identifier: String,
}

impl ControlPlane {
    fn this() -> Option<Self> {
        Some(Self {
            identifier: format!("gudgeon/{VERSION}"),
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct StateResponse {
    #[prost(string, tag = "1")]
    version_info: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Any>,
    #[prost(bytes = "bytes", tag = "4")]
    type_url: Bytes,
    #[prost(string, tag = "5")]
    nonce: String,
    #[prost(message, optional, tag = "6")]
    control_plane: Option<ControlPlane>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, optional, tag = "2")]
    resource: Option<Any>,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Delta {
    #[prost(string, tag = "1")]
    system_version_info: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Resource>,
    #[prost(bytes = "bytes", tag = "4")]
    type_url: Bytes,
    #[prost(string, tag = "5")]
    nonce: String,
    #[prost(string, repeated, tag = "6")]
    removed_resources: Vec<String>,
    #[prost(message, optional, tag = "7")]
    control_plane: Option<ControlPlane>,
}

/// Resources up to this length go with what stands before them: two writes of a client's connection for one word are dear.
const SHORT_BYTES: usize = 4 << 10;

/// A response as it goes over the stream, in pieces. The second and later ones are shared with other streams.
pub(crate) fn encode(protocol: Protocol, response: &Response, pieces: &PieceCache) -> Vec<Bytes> {
    // A message is what its parts are, one behind the other: the resources are one part, all else the other.
    let (kind, resources) = (response.kind, &response.resources);
    let runs = pieces.of(protocol, kind, resources, |run| match protocol {
        Protocol::StateOfTheWorld => state_of(kind, run).encode_to_vec(),
        Protocol::Delta => delta_of(kind, run).encode_to_vec(),
    });
    let more = runs.iter().map(Bytes::len).sum();
    let mut begin = match protocol {
        Protocol::StateOfTheWorld => begun(&state_without(response), more),
        Protocol::Delta => begun(&delta_without(response), more),
    };
    if more <= SHORT_BYTES {
        runs.iter().for_each(|run| begin.extend_from_slice(run));
        return vec![begin.into()];
    }
    std::iter::once(begin.into()).chain(runs).collect()
}

fn url_of(kind: Type) -> Bytes {
    Bytes::from_static(kind.url().as_bytes())
}

fn any(kind: Type, body: &Bytes) -> Any {
    Any {
        type_url: url_of(kind),
        value: body.clone(),
    }
}

fn state_of(kind: Type, run: &[Arc<xds::view::Resource>]) -> StateResponse {
    StateResponse {
        resources: run.iter().map(|one| any(kind, &one.body)).collect(),
        ..StateResponse::default()
    }
}

fn state_without(response: &Response) -> StateResponse {
    StateResponse {
        version_info: response.version.to_string(),
        type_url: url_of(response.kind),
        nonce: response.nonce.to_string(),
        control_plane: ControlPlane::this(),
        ..StateResponse::default()
    }
}

fn delta_of(kind: Type, run: &[Arc<xds::view::Resource>]) -> Delta {
    let resources = run.iter().map(|one| Resource {
        version: one.version.to_string(),
        resource: Some(any(kind, &one.body)),
        name: one.name.to_string(),
    });
    Delta {
        resources: resources.collect(),
        ..Delta::default()
    }
}

fn delta_without(response: &Response) -> Delta {
    Delta {
        system_version_info: response.version.to_string(),
        type_url: url_of(response.kind),
        nonce: response.nonce.to_string(),
        removed_resources: response.removed.iter().map(ToString::to_string).collect(),
        control_plane: ControlPlane::this(),
        ..Delta::default()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, DiscoveryResponse,
    };
    use xds::view::Resource;

    use super::*;

    fn response() -> Response {
        Response {
            kind: Type::Endpoint,
            version: xds::version::Version::of(b"all"),
            nonce: 7,
            resources: vec![Arc::new(Resource::new("a", "body"))],
            removed: vec!["b".into()],
        }
    }

    /// Clients have messages of their own, which are not the encoded ones.
    #[test]
    fn clients_read_what_is_written() {
        let response = response();
        let pieces = PieceCache::default();
        let state = encode(Protocol::StateOfTheWorld, &response, &pieces).concat();
        let state = DiscoveryResponse::decode(state.get(5..).unwrap()).unwrap();
        let delta = encode(Protocol::Delta, &response, &pieces).concat();
        let delta = DeltaDiscoveryResponse::decode(delta.get(5..).unwrap()).unwrap();
        let version = response.version.to_string();
        assert_eq!(
            (state.version_info, state.nonce),
            (version.clone(), "7".to_owned())
        );
        assert_eq!(
            (delta.system_version_info, delta.nonce),
            (version, "7".to_owned())
        );
        assert_eq!(
            (&*state.type_url, &state.type_url),
            (Type::Endpoint.url(), &delta.type_url)
        );
        let any = &state.resources[0];
        assert_eq!(
            (&*any.type_url, &*any.value),
            (Type::Endpoint.url(), &b"body"[..])
        );
        let resource = &delta.resources[0];
        assert_eq!(
            (&*resource.name, &resource.resource),
            ("a", &Some(any.clone()))
        );
        assert_eq!(resource.version, response.resources[0].version.to_string());
        assert_eq!(delta.removed_resources, ["b"]);
        for plane in [state.control_plane, delta.control_plane] {
            assert!(plane.unwrap().identifier.starts_with("gudgeon/"));
        }
    }
}
