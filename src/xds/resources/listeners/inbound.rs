//! The inbound side of a sidecar: a cluster, a chain and a listener for each port of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{EndpointAddress, Protocol, ServiceKey};
use envoy_types::pb::envoy::config::core::v3::{self as core, TrafficDirection};
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};

use super::chain::{self, Match};
use super::{Frame, INBOUND_PORT, Inspect, is_proxys, name};
use crate::common::conflict::{Conflict, INVALID_LISTENER};
use crate::common::{tls, wire};
use crate::finish::{ClusterParts, Draft};
use crate::resources::endpoints;
use crate::resources::filters::{self, Extras, HttpOptions, Routes};
use crate::resources::instances::Instance;
use crate::resources::mesh::Mesh;
use crate::resources::proxy::Proxy;
use crate::resources::{clusters, routes};
use crate::rules::authorization_policy::Filters;
use crate::rules::peer_authentication::{PeerMode, PeerModes};

/// One port that the proxy takes for its application.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// Where connections come in.
    pub(crate) bind: IpAddr,
    pub(crate) port: u16,
    /// A real port; else what is intercepted only.
    pub(crate) bound: bool,
    pub(crate) protocol: Protocol,
    /// `inbound|PORT|PORTNAME|HOST`.
    pub(crate) cluster: Arc<str>,
    pub(crate) host: Arc<str>,
    /// Of the service.
    pub(crate) service_port: u16,
    /// Where the application is.
    pub(crate) place: (EndpointAddress, u16),
    pub(crate) alt_stat_name: String,
}

/// All doors, with what a listener of them needs.
pub(crate) struct Own<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) mesh: &'a Mesh,
    pub(crate) doors: &'a [Door],
    /// Who may come in.
    pub(crate) filters: &'a Filters,
    /// Whether by mutual TLS.
    pub(crate) peers: &'a PeerModes,
}

pub(crate) fn cluster_name(port: u16, port_name: &str, host: &str) -> Arc<str> {
    format!("inbound|{port}|{port_name}|{host}").into()
}

/// Those that lead to an application. A door to where the proxy itself listens would open its admin page to the network, or lead
/// in a circle; who asked for it makes no difference. `lost`: what was left out.
pub(crate) fn to_applications(
    doors: Vec<Door>,
    proxy: &Proxy,
    mesh: &Mesh,
    lost: &mut Vec<Conflict>,
) -> Vec<Door> {
    let bound: BTreeSet<(IpAddr, u16)> = doors
        .iter()
        .filter(|door| door.bound)
        .map(|door| (door.bind, door.port))
        .collect();
    let takes = |address: IpAddr, port| {
        let (all, all6) = (IpAddr::from([0; 4]), IpAddr::from([0u16; 8]));
        [address, all, all6]
            .iter()
            .any(|bind| bound.contains(&(*bind, port)))
    };
    let is_proxys = |door: &Door| match &door.place {
        (EndpointAddress::Ip(address), port) => {
            is_proxys(*port, &proxy.node, mesh) || takes(*address, *port)
        }
        (EndpointAddress::Pipe(_) | EndpointAddress::Name(_), _) => false,
    };
    let (refused, kept): (Vec<_>, Vec<_>) = doors.into_iter().partition(is_proxys);
    lost.extend(refused.iter().map(|door| {
        let (address, port) = &door.place;
        let message = format!(
            "{} is left out: the proxy itself listens on port {port} of {address}",
            door.cluster
        );
        // A proxy's own services are those of its namespace.
        let service = ServiceKey::new(&door.host, &proxy.node.namespace);
        Conflict::new(INVALID_LISTENER, &*door.cluster, message).of_service(&service)
    }));
    kept
}

/// The doors of services that the proxy's workload is one of.
pub(crate) fn of_instances(
    instances: &[Instance],
    proxy: &Proxy,
    mesh: &Mesh,
    sniffs: bool,
) -> Vec<Door> {
    let mut known = BTreeSet::new();
    instances
        .iter()
        .filter(|instance| known.insert((instance.port.number, instance.target)))
        .map(|instance| {
            let service = &instance.service;
            let port = &instance.port;
            Door {
                bind: proxy.address,
                port: instance.target,
                bound: false,
                protocol: declared(port.protocol, sniffs),
                cluster: cluster_name(port.number, &port.name, &service.key.hostname),
                host: service.key.hostname.clone(),
                service_port: port.number,
                place: (
                    EndpointAddress::Ip(proxy.families.loopback()),
                    instance.target,
                ),
                alt_stat_name: clusters::stat_name(
                    &mesh.inbound_stat,
                    service,
                    (&port.name, port.number),
                    "",
                ),
            }
        })
        .collect()
}

pub(crate) const fn declared(protocol: Protocol, sniffs: bool) -> Protocol {
    if protocol.is_auto() && !sniffs {
        return Protocol::Tcp;
    }
    protocol
}

impl Own<'_> {
    pub(crate) fn clusters(&self) -> Vec<(&Door, Draft<ClusterParts>)> {
        let mut known = BTreeSet::new();
        self.doors
            .iter()
            .filter(|door| known.insert(door.cluster.clone()))
            .map(|door| {
                let place: core::Address = match &door.place {
                    (EndpointAddress::Ip(address), port) => wire::address(*address, *port),
                    (EndpointAddress::Pipe(path) | EndpointAddress::Name(path), _) => {
                        endpoints::pipe(path)
                    }
                };
                let draft = clusters::inbound(
                    &door.cluster,
                    self.mesh,
                    door.protocol,
                    place,
                    door.alt_stat_name.clone(),
                );
                (door, draft)
            })
            .collect()
    }

    /// One for each port; of two services on one the first.
    fn listening(&self) -> Vec<&Door> {
        let mut known = BTreeSet::new();
        self.doors
            .iter()
            .filter(|door| known.insert((door.bind, door.port)))
            .collect()
    }

    pub(crate) fn listeners(&self) -> Vec<Draft<Listener>> {
        self.listening()
            .into_iter()
            .map(|door| {
                let sniffs = door.protocol.is_auto();
                let chains = self.chains(door, None);
                let frame = Frame {
                    name: name(door.bind, door.port),
                    address: door.bind,
                    more: None,
                    port: door.port,
                    direction: TrafficDirection::Inbound,
                    bound: door.bound,
                    inspect: Inspect {
                        tls: sniffs || self.mode(Some(door.port)) != PeerMode::Disable,
                        http: sniffs,
                    },
                    chains,
                    default: None,
                };
                self.draft(frame.listener(self.mesh))
            })
            .collect()
    }

    /// With the policies that it is made by.
    pub(crate) fn draft(&self, listener: Listener) -> Draft<Listener> {
        Draft {
            from: self.filters.from.clone(),
            ..super::draft(listener)
        }
    }

    /// The chains of all ports that are intercepted, each with its port; an address counts no more there. No application is
    /// behind the port where they are caught.
    pub(crate) fn intercepted(&self) -> Vec<FilterChain> {
        let mut known = BTreeSet::new();
        self.doors
            .iter()
            .filter(|door| !door.bound && door.port != INBOUND_PORT && known.insert(door.port))
            .flat_map(|door| self.chains(door, Some(door.port)))
            .collect()
    }

    /// Whether there are chains for a port among those.
    pub(crate) fn intercepts(&self, port: u16) -> bool {
        let mut doors = self.doors.iter();
        doors.any(|door| !door.bound && door.port == port)
    }

    pub(crate) fn sniffs(&self) -> bool {
        self.doors
            .iter()
            .any(|door| !door.bound && door.protocol.is_auto())
    }

    /// What a port takes; `None`: any that nothing is said of. Where both are taken, and there are no certificates, nothing is
    /// lost without.
    pub(crate) fn mode(&self, port: Option<u16>) -> PeerMode {
        let mode = self.peers.of_server(port);
        if mode == PeerMode::Permissive && self.proxy.node.without_certificates {
            return PeerMode::Disable;
        }
        mode
    }

    fn chains(&self, door: &Door, port: Option<u16>) -> Vec<FilterChain> {
        let matching = Match::any().port(port);
        let tcp = || self.tcp(&door.cluster);
        let mode = self.mode(Some(door.port));
        let takes_both = mode == PeerMode::Permissive;
        let plain = || {
            if door.protocol.is_http() {
                vec![matching.clone().chain(self.http(door))]
            } else if door.protocol.is_auto() {
                chain::sniffed(&matching, self.http(door), tcp())
            } else if takes_both {
                // Beside the mesh's TLS the application's own is taken as it is.
                vec![
                    matching.clone().tls().chain_of(tcp()),
                    matching.clone().chain_of(tcp()),
                ]
            } else {
                vec![matching.clone().chain_of(tcp())]
            }
        };
        let http = door.protocol.is_http();
        let secured = |matching: Match| {
            let filters = if http { vec![self.http(door)] } else { tcp() };
            let socket = tls::server(&self.proxy.node.server, http);
            chain::secured(matching.chain_of(filters), socket)
        };
        match mode {
            PeerMode::Strict => vec![secured(matching.clone().tls())],
            PeerMode::Permissive => {
                let mut chains = vec![secured(matching.clone().mesh_tls())];
                chains.extend(plain());
                chains
            }
            PeerMode::Disable => plain(),
        }
    }

    /// To a cluster, for those who may go there.
    pub(crate) fn tcp(&self, cluster: &str) -> Vec<Filter> {
        let mut filters = self.filters.tcp.clone();
        filters.push(filters::tcp(self.mesh, cluster));
        filters
    }

    fn http(&self, door: &Door) -> Filter {
        let options = HttpOptions {
            idle_timeout: self.proxy.node.idle_timeout,
            http10: self.proxy.node.http10,
        };
        let routes = routes::inbound(&door.cluster, &door.host, door.service_port);
        filters::http(
            self.mesh,
            options,
            format!("inbound_{}", name(door.bind, door.port)),
            Routes::Inside(Box::new(routes)),
            Extras {
                first: &self.filters.http,
                grpc_web: door.protocol == Protocol::GrpcWeb,
                grpc_stats: door.protocol == Protocol::Grpc,
                at_edge: false,
            },
        )
    }
}
