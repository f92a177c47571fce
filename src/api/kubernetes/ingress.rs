//! Ingress.

use serde::Deserialize;

use super::{ObjectMeta, PortOrName, nullable};

/// An Ingress of either shape: `networking.k8s.io/v1`, or `extensions/v1beta1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ingress {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: IngressSpec,
}

/// An Ingress's `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IngressRule {
    #[serde(deserialize_with = "nullable")]
    pub host: String,
    #[serde(deserialize_with = "nullable")]
    pub http: IngressHttp,
}

/// The HTTP part of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IngressHttp {
    #[serde(deserialize_with = "nullable")]
    pub paths: Vec<IngressPath>,
}

/// A path, and the backend of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Backend {
    pub service: Option<BackendService>,
    /// The older shape.
    pub service_name: Option<String>,
    pub service_port: Option<PortOrName<u16>>,
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
