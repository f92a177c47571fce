//! EndpointSlice and Endpoints: the addresses and ports behind a Service.

use serde::Deserialize;

use super::{Items, Lenient, ObjectMeta, nullable};

/// The Endpoints of a service: all of its addresses in one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    pub metadata: ObjectMeta,
    pub subsets: Items<Subset>,
}

/// Addresses of Endpoints that share ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "a subset")]
pub struct Subset {
    pub addresses: Items<SubsetAddress>,
    pub not_ready_addresses: Items<SubsetAddress>,
    pub ports: Items<EndpointPort>,
}

/// An address of a subset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "an address")]
pub struct SubsetAddress {
    pub ip: String,
    pub target_ref: Option<TargetRef>,
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
}

/// The object behind an address: a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
}

/// A port of Endpoints or of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "a port")]
pub struct EndpointPort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// `None`: any.
    pub port: Lenient<Option<i64>>,
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
}

/// A part of a service's endpoints; the label [`Self::SERVICE`] names the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    pub metadata: ObjectMeta,
    /// `IPv4`, `IPv6` or `FQDN`; names are not used as addresses.
    #[serde(deserialize_with = "nullable")]
    pub address_type: String,
    pub endpoints: Items<SliceEndpoint>,
    pub ports: Items<EndpointPort>,
}

impl EndpointSlice {
    /// The label that names the service.
    pub const SERVICE: &'static str = "kubernetes.io/service-name";
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "an endpoint")]
pub struct SliceEndpoint {
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: EndpointConditions,
    pub target_ref: Option<TargetRef>,
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub zone: String,
}

/// The conditions of an endpoint. A missing one counts as true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}
