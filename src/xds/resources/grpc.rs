//! Resources for programs with gRPC in them, which ask for everything by name.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};

use super::domains;
use super::filters;
use super::mesh::Mesh;
use crate::common::families::Families;
use crate::common::service_ports::{ServicePort, ServicePorts};
use crate::common::wire::{self, LocalityLbEndpoints};
use crate::finish::Draft;

/// The properties of a client that decide which service a name means.
pub(crate) struct GrpcClient<'a> {
    pub(crate) domain: &'a str,
    pub(crate) cluster: &'a str,
    pub(crate) families: Families,
}

/// The host of a target such as `b.demo:8080`.
enum Host {
    /// In lower case.
    Name(String),
    Address(IpAddr),
}

/// A target in its parts.
pub(crate) struct Target {
    host: Host,
    port: Option<u16>,
}

impl Target {
    pub(crate) fn read(name: &str) -> Option<Self> {
        // IPv6 without a port may be without brackets, too.
        if let Ok(address) = name.parse() {
            let host = Host::Address(address);
            return Some(Self { host, port: None });
        }
        // Before a closing bracket the last colon belongs to the address.
        let (host, port) = match name.rsplit_once(':').filter(|_| !name.ends_with(']')) {
            Some((host, port)) => (host, Some(port.parse::<u16>().ok()?)),
            None => (name, None),
        };
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address = match inner {
            Some(inner) => Some(IpAddr::V6(inner.parse().ok()?)),
            None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        };
        let named = || Host::Name(host.to_ascii_lowercase());
        let host = address.map_or_else(named, Host::Address);
        Some(Self { host, port })
    }

    /// Returns true if this is the usual form of the name. It has other forms without end.
    pub(crate) fn is_written(&self, name: &str) -> bool {
        let host = match &self.host {
            Host::Name(host) => host.clone(),
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            Host::Address(IpAddr::V4(address)) => address.to_string(),
        };
        match self.port {
            Some(port) => name == format!("{host}:{port}"),
            None => name == host,
        }
    }

    /// The port that it means.
    pub(crate) fn service_port<'a>(
        &self,
        service_ports: &'a ServicePorts,
        client: &GrpcClient<'_>,
    ) -> Option<&'a Arc<ServicePort>> {
        let found: Vec<_> = match &self.host {
            Host::Name(host) => full_names(host, client.domain)
                .into_iter()
                .map(|full| service_ports.by_host(&full).collect::<Vec<_>>())
                .find(|found| !found.is_empty())?,
            Host::Address(address) => {
                service_ports.by_address(*address, client.cluster, client.families)
            }
        };
        if let Some(port) = self.port {
            return found
                .into_iter()
                .find(|service_port| service_port.port.number == port);
        }
        // Of services that share an address the oldest.
        let host = found.first()?.host();
        let mut own: Vec<_> = found.iter().filter(|one| one.host() == host).collect();
        if own.len() > 1 {
            own.retain(|service_port| service_port.port.number == 80);
        }
        own.first().map(|service_port| **service_port)
    }
}

/// The full names that a host may be short for.
fn full_names(host: &str, domain: &str) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    let domain = domain.to_ascii_lowercase();
    let parts: Vec<&str> = domain.split('.').filter(|part| !part.is_empty()).collect();
    for at in 0..parts.len() {
        let Some(rest) = parts.get(at..) else {
            continue;
        };
        let full = format!("{host}.{}", rest.join("."));
        // A target counts only in the forms that a proxy's routes have for the host.
        if domains::forms(&full, &domain)
            .iter()
            .any(|form| form == host)
        {
            names.push(full);
        }
    }
    names
}

/// Returns true if the endpoints are one name: such a client resolves it itself, and never more than one of a cluster.
pub(crate) fn is_one_name(groups: &[LocalityLbEndpoints]) -> bool {
    let [group] = groups else {
        return false;
    };
    let [one] = &*group.lb_endpoints else {
        return false;
    };
    let place = one.endpoint.as_ref().and_then(|it| it.address.as_ref());
    match place.and_then(|place| place.address.as_ref()) {
        Some(Address::SocketAddress(socket)) => socket.address.parse::<IpAddr>().is_err(),
        _ => false,
    }
}

/// The listener of exactly this name; requests go to the port's cluster by a route of its name.
pub(crate) fn listener(
    name: &Arc<str>,
    service_port: &ServicePort,
    mesh: &Mesh,
) -> Draft<Listener> {
    let manager = filters::grpc(mesh, service_port.name.to_string());
    let listener = Listener {
        name: name.to_string(),
        api_listener: Some(ApiListener {
            api_listener: Some(wire::any(&manager)),
        }),
        ..Listener::default()
    };
    Draft::new(name.clone(), listener)
}
