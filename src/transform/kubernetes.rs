//! Objects of Kubernetes, reduced to the fields that transforms read. Other fields are skipped; `null` is the default.

use std::collections::BTreeMap;

use api::google::protobuf::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Lists and maps are written as `null`, too.
fn nullable<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else {
        return Ok(None);
    };
    let read = api::timestamp::parse(&text);
    read.map(Some)
        .ok_or_else(|| D::Error::custom("want a time such as 2020-01-02T03:04:05Z"))
}

/// The metadata that a transform reads of an object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    #[serde(deserialize_with = "moment")]
    pub creation_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub spec: ServiceSpec,
}

/// A Service's `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(rename = "clusterIP", deserialize_with = "nullable")]
    pub cluster_ip: String,
    #[serde(deserialize_with = "nullable")]
    pub external_name: String,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    pub port: u16,
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
}

/// The Endpoints of a service: all of its addresses in one object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub subsets: Vec<Subset>,
}

/// Addresses of Endpoints that share ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Subset {
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<Address>,
    #[serde(deserialize_with = "nullable")]
    pub not_ready_addresses: Vec<Address>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<EndpointPort>,
}

/// An address of a subset.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Address {
    pub ip: String,
    pub target_ref: Option<TargetRef>,
}

/// The object behind an address: a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// `None`: any.
    pub port: Option<u16>,
}

/// A part of a service's endpoints; the label [`Self::SERVICE`] names the service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`; names are not used as addresses.
    #[serde(deserialize_with = "nullable")]
    pub address_type: String,
    #[serde(deserialize_with = "nullable")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<EndpointPort>,
}

impl EndpointSlice {
    /// The label that names the service.
    pub const SERVICE: &'static str = "kubernetes.io/service-name";
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Conditions,
    pub target_ref: Option<TargetRef>,
}

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Absent means true.
    pub ready: Option<bool>,
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

/// A Pod's `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub service_account_name: String,
}

/// A Pod's `status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    #[serde(rename = "podIP", deserialize_with = "nullable")]
    pub pod_ip: String,
}

/// A Node: only its labels matter, for the locality.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Metadata,
}

/// An Ingress of either shape: `networking.k8s.io/v1`, or `extensions/v1beta1`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Ingress {
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub spec: IngressSpec,
}

/// An Ingress's `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressSpec {
    pub ingress_class_name: Option<String>,
    #[serde(alias = "backend")]
    pub default_backend: Option<Backend>,
    #[serde(deserialize_with = "nullable")]
    pub tls: Vec<IngressTls>,
    #[serde(deserialize_with = "nullable")]
    pub rules: Vec<IngressRule>,
}

/// Hosts of an Ingress that are served with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressTls {
    #[serde(deserialize_with = "nullable")]
    pub hosts: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub secret_name: String,
}

/// The paths of one host.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IngressRule {
    #[serde(deserialize_with = "nullable")]
    pub host: String,
    #[serde(deserialize_with = "nullable")]
    pub http: IngressHttp,
}

/// The HTTP part of a rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IngressHttp {
    #[serde(deserialize_with = "nullable")]
    pub paths: Vec<IngressPath>,
}

/// A path, and the backend of its requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IngressPath {
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    #[serde(deserialize_with = "nullable")]
    pub path_type: String,
    #[serde(deserialize_with = "nullable")]
    pub backend: Backend,
}

/// The destination of requests, in either shape.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Backend {
    pub service: Option<BackendService>,
    /// The older shape.
    pub service_name: Option<String>,
    pub service_port: Option<PortOrName>,
}

/// A Service as a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BackendService {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub port: BackendPort,
}

/// A port of a backend's Service, by name or number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BackendPort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub number: u16,
}

/// A port in the older shape.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PortOrName {
    Port(u16),
    Name(String),
}
