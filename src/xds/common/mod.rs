//! Vocabulary of the generators: ports of services, families of addresses, small parts of Envoy's messages.

pub(crate) mod conflict;
pub(crate) mod conflict_pool;
pub(crate) mod dns_cluster;
pub(crate) mod fair_budget;
pub(crate) mod families;
pub(crate) mod keepalive;
pub(crate) mod metadata_value;
pub(crate) mod regex;
pub(crate) mod retries;
pub(crate) mod service_ports;
pub(crate) mod steps;
pub(crate) mod tls;
pub(crate) mod trust;
pub(crate) mod upstream_http;
pub(crate) mod wire;
