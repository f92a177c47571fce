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
        .ok_or_else(|| D::Error::custom("a moment is expected, such as 2020-01-02T03:04:05Z"))
}

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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub spec: ServiceSpec,
}

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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Address {
    pub ip: String,
    pub target_ref: Option<TargetRef>,
}

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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// `None`: any.
    pub port: Option<u16>,
}

/// Some endpoints of a service, which a label names.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    pub metadata: Metadata,
    /// Names are no addresses.
    #[serde(deserialize_with = "nullable")]
    pub address_type: String,
    #[serde(deserialize_with = "nullable")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<EndpointPort>,
}

impl EndpointSlice {
    /// The label.
    pub const SERVICE: &'static str = "kubernetes.io/service-name";
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Conditions,
    pub target_ref: Option<TargetRef>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Absent is true.
    pub ready: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub service_account_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    #[serde(rename = "podIP", deserialize_with = "nullable")]
    pub pod_ip: String,
}

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

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IngressTls {
    #[serde(deserialize_with = "nullable")]
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IngressRule {
    #[serde(deserialize_with = "nullable")]
    pub host: String,
    #[serde(deserialize_with = "nullable")]
    pub http: IngressHttp,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IngressHttp {
    #[serde(deserialize_with = "nullable")]
    pub paths: Vec<IngressPath>,
}

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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Backend {
    pub service: Option<BackendService>,
    /// The older shape.
    pub service_name: Option<String>,
    pub service_port: Option<PortOrName>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BackendService {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub port: BackendPort,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BackendPort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub number: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PortOrName {
    Port(u16),
    Name(String),
}
