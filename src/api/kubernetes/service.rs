//! Service.

use serde::Deserialize;

use super::{Items, Lenient, ObjectMeta, PortOrName, Texts, nullable, texts};

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceObject {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ServiceSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: ServiceStatus,
}

/// A Service's `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Lenient<String>,
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Items<String>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Items<String>,
    pub external_name: Lenient<String>,
    pub ports: Items<ServicePort>,
    #[serde(deserialize_with = "texts")]
    pub selector: Texts,
    #[serde(deserialize_with = "nullable")]
    pub traffic_distribution: String,
    #[serde(deserialize_with = "nullable")]
    pub publish_not_ready_addresses: bool,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "a port")]
pub struct ServicePort {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    pub port: Lenient<i64>,
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub app_protocol: String,
    pub target_port: Lenient<Option<PortOrName<i64>>>,
}

/// A Service's `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    #[serde(deserialize_with = "nullable")]
    pub load_balancer: LoadBalancerStatus,
}

/// The addresses of a Service's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    pub ingress: Items<LoadBalancerIngress>,
}

/// An address of a load balancer; a host name is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "an address of a load balancer")]
pub struct LoadBalancerIngress {
    #[serde(deserialize_with = "nullable")]
    pub ip: String,
}
