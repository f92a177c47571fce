//! Requests and responses between the messages of gRPC and what a stream speaks.
//!
//! Responses are encoded from messages of their own: same fields and numbers, but the resources are shared bytes, copied
//! once, into what is written.

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use prost::Message;
use xds::stream::{Protocol, Request, Response};
use xds::view::Type;

use super::frames::framed;
use crate::cli::VERSION;

/// One request of either protocol, as it came.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) node: Option<Node>,
    pub(crate) url: String,
    /// `None`: a type that is not served.
    pub(crate) request: Option<Request>,
}

impl From<DiscoveryRequest> for Asked {
    fn from(asked: DiscoveryRequest) -> Self {
        let request = Type::from_url(&asked.type_url).map(|kind| Request {
            version: asked.version_info,
            nonce: asked.response_nonce,
            names: asked.resource_names,
            error: asked.error_detail.map(|error| error.message),
            ..Request::of(kind)
        });
        Self {
            node: asked.node,
            url: asked.type_url,
            request,
        }
    }
}

impl From<DeltaDiscoveryRequest> for Asked {
    fn from(asked: DeltaDiscoveryRequest) -> Self {
        let request = Type::from_url(&asked.type_url).map(|kind| Request {
            nonce: asked.response_nonce,
            names: asked.resource_names_subscribe,
            unsubscribe: asked.resource_names_unsubscribe,
            initial: asked.initial_resource_versions.into_iter().collect(),
            error: asked.error_detail.map(|error| error.message),
            ..Request::of(kind)
        });
        Self {
            node: asked.node,
            url: asked.type_url,
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
struct State {
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

/// A response as it goes over the stream.
pub(crate) fn encode(protocol: Protocol, response: &Response) -> Vec<u8> {
    let url = Bytes::from_static(response.kind.url().as_bytes());
    let any = |body: &Bytes| Any {
        type_url: url.clone(),
        value: body.clone(),
    };
    let version = response.version.to_string();
    let nonce = response.nonce.to_string();
    match protocol {
        Protocol::StateOfTheWorld => framed(&State {
            version_info: version,
            resources: response
                .resources
                .iter()
                .map(|one| any(&one.body))
                .collect(),
            type_url: url.clone(),
            nonce,
            control_plane: ControlPlane::this(),
        }),
        Protocol::Delta => framed(&Delta {
            system_version_info: version,
            resources: response
                .resources
                .iter()
                .map(|one| Resource {
                    version: one.version.to_string(),
                    resource: Some(any(&one.body)),
                    name: one.name.to_string(),
                })
                .collect(),
            type_url: url.clone(),
            nonce,
            removed_resources: response.removed.iter().map(ToString::to_string).collect(),
            control_plane: ControlPlane::this(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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

    /// With the messages that clients have, which are not the ones that were encoded.
    #[test]
    fn clients_read_what_is_written() {
        let response = response();
        let state = encode(Protocol::StateOfTheWorld, &response);
        let state = DiscoveryResponse::decode(state.get(5..).unwrap()).unwrap();
        let delta = encode(Protocol::Delta, &response);
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
