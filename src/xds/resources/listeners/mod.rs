//! Listeners: where a proxy takes connections.

pub(crate) mod chain;
pub(crate) mod gateway;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod ranges;
pub(crate) mod virtual_listeners;

use std::net::IpAddr;
use std::sync::Arc;

use api::model::EndpointAddress;
use api::proxy_ports;
use envoy_types::pb::envoy::config::core::v3::{self as core, TrafficDirection};
use envoy_types::pb::envoy::config::listener::v3::{AdditionalAddress, FilterChain, Listener};

use super::filters;
use super::mesh::Mesh;
use crate::common::wire;
use crate::finish::Draft;
use crate::node::Node;

/// Returns true if a bound listener on this port would be in the proxy's own way.
pub(crate) fn is_own(port: u16, mesh: &Mesh) -> bool {
    proxy_ports::LISTENED.contains(&port) || port == mesh.listen_port
}

/// Returns true if the proxy itself listens on a port of its loopback: its admin page, its status, a listener. No connection from
/// outside may be led there.
pub(crate) fn is_proxys(port: u16, node: &Node, mesh: &Mesh) -> bool {
    is_usual(port, mesh) || node.ports.contains(&port)
}

/// Returns true if that is so of every proxy of the mesh that says nothing else.
fn is_usual(port: u16, mesh: &Mesh) -> bool {
    let others = mesh.proxy_ports.iter().chain([&mesh.http_port]);
    is_own(port, mesh)
        || others
            .filter(|other| **other > 0)
            .any(|other| *other == port)
}

/// Returns true if an address means every proxy that calls it, and the port is one of such a proxy's own.
pub(crate) fn is_every_proxys(address: &EndpointAddress, port: u16, mesh: &Mesh) -> bool {
    let is_pipe = matches!(address, EndpointAddress::Pipe(_));
    !is_pipe && is_beside(address) && is_usual(port, mesh)
}

/// Returns true if an address is beside every proxy that calls it: on the loopback of its pod, or a socket of its files. Servers
/// there belong to the pod alone: applications listen so that the network does not reach them, and interception as Istio 1.1 had
/// it looks for inbound traffic among the listeners of services.
pub(crate) fn is_beside(address: &EndpointAddress) -> bool {
    match address {
        EndpointAddress::Ip(address) => {
            // `::ffff:127.0.0.1` is the loopback, too.
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        }
        EndpointAddress::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            // Every name below `localhost` is the loopback (RFC 6761).
            let last = name.rsplit('.').next().unwrap_or(name);
            last.eq_ignore_ascii_case("localhost")
        }
        EndpointAddress::Pipe(_) => true,
    }
}

/// Returns true if a listener on all addresses would be in the way of one that Envoy has there: its own two for intercepted
/// traffic and the one for Prometheus in its bootstrap. Envoy compares addresses also where nothing is bound, and refuses the
/// later.
pub(crate) fn is_envoys(port: u16, mesh: &Mesh) -> bool {
    let its_own = [proxy_ports::OUTBOUND, INBOUND_PORT, proxy_ports::METRICS];
    its_own.contains(&port) || port == mesh.listen_port
}

/// The port of the listener that catches inbound traffic.
pub(crate) const INBOUND_PORT: u16 = proxy_ports::INBOUND;

/// The inspectors that look at the first bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspect {
    pub(crate) tls: bool,
    pub(crate) http: bool,
}

/// `ADDRESS_PORT`.
pub(crate) fn name(address: IpAddr, port: u16) -> String {
    format!("{address}_{port}")
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// A port of an address, and of one of the other family.
    Port(IpAddr, Option<IpAddr>, u16),
    /// A socket: a path, or `@NAME`.
    Socket(Arc<str>),
}

/// A user that reaches the directory of a socket may connect, as to a port of the loopback: applications run as other users
/// than their proxy, and Envoy's umask would keep them out.
const SOCKET_MODE: u32 = 0o666;

impl ListenAddress {
    fn addresses(&self) -> (core::Address, Option<core::Address>) {
        match self {
            Self::Port(address, more, port) => {
                let more = more.map(|address| wire::address(address, *port));
                (wire::address(*address, *port), more)
            }
            // Envoy refuses a mode of what is no file.
            Self::Socket(path) if path.starts_with('@') => (wire::pipe(path, 0), None),
            Self::Socket(path) => (wire::pipe(path, SOCKET_MODE), None),
        }
    }
}

/// The parts of a listener: its place, its inspectors and its chains.
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) address: ListenAddress,
    pub(crate) direction: TrafficDirection,
    pub(crate) bound: bool,
    pub(crate) inspect: Inspect,
    pub(crate) chains: Vec<FilterChain>,
    /// The chain of connections that no other chain matches.
    pub(crate) default: Option<FilterChain>,
}

impl Frame {
    /// Returns the port of a listener that has connections to all addresses, and no port of its own.
    pub(crate) fn port_of_all(&self) -> Option<u16> {
        match self.address {
            ListenAddress::Port(address, _, port) if !self.bound && address.is_unspecified() => {
                Some(port)
            }
            ListenAddress::Port(..) | ListenAddress::Socket(_) => None,
        }
    }

    pub(crate) fn listener(self, mesh: &Mesh) -> Listener {
        let mut inspectors = Vec::new();
        // The HTTP inspector passes over what the TLS inspector has marked, so it comes second.
        if self.inspect.tls {
            inspectors.push(filters::tls_inspector());
        }
        if self.inspect.http {
            inspectors.push(filters::http_inspector());
        }
        let inspects = !inspectors.is_empty();
        let timeout = match self.direction {
            TrafficDirection::Inbound => mesh.inbound_detection_timeout,
            TrafficDirection::Outbound | TrafficDirection::Unspecified => mesh.detection_timeout,
        };
        let (address, more) = self.address.addresses();
        Listener {
            name: self.name,
            address: Some(address),
            additional_addresses: more
                .map(|address| AdditionalAddress {
                    address: Some(address),
                    ..AdditionalAddress::default()
                })
                .into_iter()
                .collect(),
            traffic_direction: self.direction.into(),
            // Bound is what Envoy does by itself.
            bind_to_port: if self.bound {
                None
            } else {
                wire::boolean(false)
            },
            listener_filters: inspectors,
            listener_filters_timeout: inspects.then(|| wire::duration(timeout)),
            // A client that waits for its server to speak sends nothing to look at: the connection goes on.
            continue_on_listener_filters_timeout: inspects,
            filter_chains: self.chains,
            default_filter_chain: self.default,
            ..Listener::default()
        }
    }
}

/// Creates a draft under the listener's own name.
pub(crate) fn draft(listener: Listener) -> Draft<Listener> {
    let name: Arc<str> = listener.name.as_str().into();
    Draft::new(name, listener)
}
