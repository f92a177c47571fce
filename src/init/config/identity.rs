//! The proxy's identity: addresses, id, domain, trust domain and the control plane's name.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};

use super::HostFacts;
use super::layers::Layers;
use crate::values::HostPort;

/// The second half of the node id, and what it is made of.
#[derive(Debug)]
pub(super) struct Identity {
    /// Never empty, each once; the first is the proxy's.
    pub(super) ips: Vec<IpAddr>,
    pub(super) id: String,
    pub(super) domain: String,
    pub(super) trust_domain: String,
    /// `type~ip~id~domain`.
    pub(super) node: String,
}

impl Identity {
    pub(super) fn new(layers: &Layers<'_>, host: &HostFacts) -> Self {
        let ips = ips(layers, host);
        let ip = first(&ips).to_string();
        let registry = layers.text("serviceregistry");
        let namespace = layers.variable("POD_NAMESPACE").unwrap_or("");
        let pod = layers.variable("POD_NAME").unwrap_or("");
        let id = part(layers, "id", || match registry {
            "Kubernetes" => [pod, ".", namespace].concat(),
            "Consul" => [&ip, ".service.consul"].concat(),
            _ => ip.clone(),
        });
        let domain = part(layers, "domain", || match registry {
            "Kubernetes" => [namespace, ".svc.cluster.local"].concat(),
            "Consul" => "service.consul".to_owned(),
            _ => String::new(),
        });
        let trust_domain = part(layers, "trust-domain", || "cluster.local".to_owned());
        let node = [layers.args.role.name(), &ip, &id, &domain].join("~");
        Self {
            ips,
            id,
            domain,
            trust_domain,
            node,
        }
    }

    /// Whether the host has no IPv4 address.
    pub(super) fn ipv6_only(&self) -> bool {
        !self.ips.iter().any(IpAddr::is_ipv4)
    }

    pub(super) fn ip(&self) -> IpAddr {
        first(&self.ips)
    }

    /// The control plane's SPIFFE name. Its namespace is read from the discovery address.
    pub(super) fn control_plane_name(&self, layers: &Layers<'_>, discovery: &HostPort) -> String {
        let trust = self.trust_domain.replace('@', ".");
        if let Some(given) = layers.some("pilot-identity") {
            // As pilot-agent 1.2 to 1.6 made it; who writes all of it means that.
            return match given.strip_prefix("spiffe://") {
                Some(_) => given.to_owned(),
                None => ["spiffe://", &trust, "/", given].concat(),
            };
        }
        let own = layers.variable("POD_NAMESPACE");
        let istio = layers.variable("ISTIO_NAMESPACE").unwrap_or("istio-system");
        let labels: Vec<&str> = discovery.host.split('.').collect();
        let namespace = match labels.as_slice() {
            _ if layers.text("serviceregistry") != "Kubernetes" => istio,
            [_] => own.unwrap_or(istio),
            [_, namespace] => namespace,
            _ => istio,
        };
        [
            "spiffe://",
            &trust,
            "/ns/",
            namespace,
            "/sa/istio-pilot-service-account",
        ]
        .concat()
    }
}

/// `--ip` or `INSTANCE_IP`, then the host's.
fn ips(layers: &Layers<'_>, host: &HostFacts) -> Vec<IpAddr> {
    let mut ips = Vec::with_capacity(host.addresses.len() + 1);
    if layers.some("ip").is_some() {
        ips.push(layers.address("ip"));
    }
    for address in &host.addresses {
        // Nobody reaches the pod at an address of one link.
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if link_local {
            continue;
        }
        // Loopback's stands alone: it is the proxy's where there is nothing else.
        if !ips.contains(address) && (ips.is_empty() || !address.is_loopback()) {
            ips.push(*address);
        }
    }
    if ips.is_empty() {
        ips.push(LOOPBACK);
    }
    ips
}

fn part(layers: &Layers<'_>, name: &'static str, default: impl FnOnce() -> String) -> String {
    let given = layers.text(name);
    if given.contains('~') {
        layers.wrong(name, "~ separates the parts of the node id");
    }
    if given.is_empty() {
        return default();
    }
    given.to_owned()
}

fn first(ips: &[IpAddr]) -> IpAddr {
    ips.first().copied().unwrap_or(LOOPBACK)
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
