//! The proxy's bootstrap document, as bytes. Pure: values in, bytes out.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::HostPort;

/// The values that the generated bootstrap is made of.
#[derive(Clone, Debug)]
pub struct Generated {
    /// `type~ip~id~domain`.
    pub node_id: String,
    pub cluster: String,
    pub metadata: Map<String, Value>,
    pub locality: Locality,
    /// Inclusion prefixes, suffixes and regexes of the annotations, beyond the required ones.
    pub stats: StatsInclusion,
    pub admin: SocketAddr,
    pub discovery: HostPort,
    pub connect_timeout: Duration,
    /// `Some`: MUTUAL_TLS towards the control plane.
    pub control_plane_tls: Option<ControlPlaneTls>,
    pub tracing: Option<Tracing>,
    pub statsd: Option<SocketAddr>,
    pub metrics_service: Option<HostPort>,
    /// The Prometheus listener's port (15090).
    pub prometheus_port: u16,
    /// The host has no IPv4 address.
    pub ipv6_only: bool,
    /// The drain counts connections: keep `downstream_cx_active`.
    pub count_connections: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Locality {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
}

#[derive(Clone, Debug, Default)]
pub struct StatsInclusion {
    pub prefixes: Vec<String>,
    pub suffixes: Vec<String>,
    pub regexes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ControlPlaneTls {
    pub certificate_chain: PathBuf,
    pub private_key: PathBuf,
    pub root_certificate: PathBuf,
    pub subject_alt_names: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Tracing {
    Zipkin(HostPort),
    Datadog(HostPort),
}

/// A JSON document of the user's, with the names it may use.
#[derive(Clone, Debug)]
pub struct Template {
    pub file: PathBuf,
    /// Name (kebab-case) and value; `epoch` is added at each rendering.
    pub values: Vec<(String, Value)>,
}
