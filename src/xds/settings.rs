//! The settings of the program that resources depend on.

use std::sync::Arc;
use std::time::Duration;

use api::model::ClusterId;

/// Flags and variables of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The cluster of a proxy that names none.
    pub cluster: ClusterId,
    /// Services of Kubernetes end in it: hosts without a dot that rules write are `HOST.NAMESPACE.svc.` and this.
    pub domain: Arc<str>,
    /// The trust domain of the mesh's identities, unless the mesh configuration names another.
    pub trust_domain: Arc<str>,
    /// The time for which Envoy waits for the resources that another names; 0 is for ever.
    pub initial_fetch_timeout: Duration,
    /// Percent of requests that are traced.
    pub trace_sampling: f64,
    /// Directions in which proxies detect the protocol of undeclared ports; otherwise these are TCP.
    pub sniffing: Sniffing,
    /// HTTP/1.0 is taken from every proxy's clients.
    pub http10: bool,
    pub headless: Headless,
    /// Port 443 of all addresses is left to TLS: a service without an address that is HTTP there, or undeclared, has no listener.
    pub block_http_on_443: bool,
    /// The time for which listeners of inbound connections wait for the first bytes, by which a protocol is detected. `None`: as
    /// long as those of outbound connections do, which is the mesh's `protocolDetectionTimeout`.
    pub inbound_detection_timeout: Option<Duration>,
    pub dns_refresh: DnsRefresh,
    /// A router listens for Gateways of its own namespace alone.
    pub gateways_of_own_namespace: bool,
}

/// The time at which proxies resolve a name again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRefresh {
    /// The TTL of its record says when.
    ByTtl,
    /// The mesh's `dnsRefreshRate` says when.
    AtRate,
}

/// Protocol detection on undeclared ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sniffing {
    pub outbound: bool,
    pub inbound: bool,
}

/// The handling of services without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headless {
    /// A listener for each endpoint of a port that is not HTTP.
    pub listeners: bool,
    /// The proxy chooses among endpoints, instead of going where the client wanted to.
    pub eds: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster: "Kubernetes".into(),
            domain: "cluster.local".into(),
            trust_domain: "cluster.local".into(),
            initial_fetch_timeout: Duration::ZERO,
            trace_sampling: 1.0,
            sniffing: Sniffing {
                outbound: true,
                inbound: true,
            },
            http10: false,
            headless: Headless {
                listeners: true,
                eds: false,
            },
            block_http_on_443: true,
            inbound_detection_timeout: None,
            dns_refresh: DnsRefresh::ByTtl,
            gateways_of_own_namespace: false,
        }
    }
}
