//! Listeners that every sidecar has: where intercepted traffic comes in, and the port for applications that use a proxy.

use std::net::IpAddr;

use api::model::Network;
use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};

use super::chain::{self, Match};
use super::inbound::InboundParameters;
use super::{Frame, INBOUND_PORT, Inspect, ListenAddress, is_own, name};
use crate::common::conflict::{Conflict, INVALID_LISTENER};
use crate::common::{tls, wire};
use crate::finish::Draft;
use crate::node::Mode;
use crate::resources::clusters;
use crate::resources::filters::{self, Extras, HttpOptions, RouteSpecifier};
use crate::resources::mesh::Mesh;
use crate::resources::proxy::Proxy;
use crate::resources::routes::HTTP_PROXY;
use crate::rules::peer_authentication::MtlsMode;
use crate::scope::OutboundTrafficPolicy;
use crate::view::{VIRTUAL_INBOUND, VIRTUAL_OUTBOUND};

/// The filter for connections to no known service.
pub(crate) fn unknown(mesh: &Mesh, to: &OutboundTrafficPolicy, intercepted: bool) -> Filter {
    let cluster = clusters::of_unknown(to, intercepted);
    filters::tcp(mesh, cluster.as_deref().unwrap_or(clusters::BLACK_HOLE))
}

fn transparent(listener: Listener, proxy: &Proxy) -> Listener {
    Listener {
        transparent: (proxy.node.mode == Mode::Tproxy)
            .then(|| wire::boolean(true))
            .flatten(),
        ..listener
    }
}

/// Builds the listener of all outbound traffic; listeners that are not bound take from it what is theirs.
pub(crate) fn outbound(proxy: &Proxy, mesh: &Mesh, to: &OutboundTrafficPolicy) -> Draft<Listener> {
    let (address, more) = proxy.families.wildcards();
    let itself = Match::any().addresses(&proxy.node.addresses);
    let frame = Frame {
        name: VIRTUAL_OUTBOUND.to_owned(),
        address: ListenAddress::Port(address, more, mesh.listen_port),
        direction: TrafficDirection::Outbound,
        bound: true,
        inspect: Inspect::default(),
        chains: vec![
            // What came from this machine, for this machine, would come in again and again.
            itself.chain(filters::tcp(mesh, clusters::BLACK_HOLE)),
            direct(mesh, mesh.listen_port),
            Match::any().chain(unknown(mesh, to, true)),
        ],
        default: None,
    };
    let listener = Listener {
        use_original_dst: wire::boolean(true),
        ..transparent(frame.listener(mesh), proxy)
    };
    super::draft(listener)
}

/// A chain that ends connections to the port itself, which were not intercepted: passed on, one connection would come in again
/// and again until the proxy has no descriptors left.
fn direct(mesh: &Mesh, port: u16) -> FilterChain {
    let matching = Match::any().port(Some(port));
    matching.chain(filters::tcp(mesh, clusters::BLACK_HOLE))
}

/// Builds a listener that ends intercepted connections to one of the proxy's own addresses.
pub(crate) fn black_hole(address: IpAddr, port: u16, mesh: &Mesh) -> Draft<Listener> {
    let frame = Frame {
        name: name(address, port),
        address: ListenAddress::Port(address, None, port),
        direction: TrafficDirection::Inbound,
        bound: false,
        inspect: Inspect::default(),
        chains: vec![Match::any().chain(filters::tcp(mesh, clusters::BLACK_HOLE))],
        default: None,
    };
    super::draft(frame.listener(mesh))
}

/// Builds the listener of all inbound traffic.
pub(crate) fn inbound(proxy: &Proxy, mesh: &Mesh, own: &InboundParameters<'_>) -> Draft<Listener> {
    let (address, more) = proxy.families.wildcards();
    let mut chains = own.intercepted();
    chains.push(direct(mesh, INBOUND_PORT));
    chains.extend(passthrough_filter_chains(proxy, own));
    let frame = Frame {
        name: VIRTUAL_INBOUND.to_owned(),
        address: ListenAddress::Port(address, more, INBOUND_PORT),
        direction: TrafficDirection::Inbound,
        bound: true,
        inspect: Inspect {
            tls: true,
            http: own.sniffs(),
        },
        chains,
        default: None,
    };
    let mut listener = transparent(frame.listener(mesh), proxy);
    // It restores the destination, by which Envoy chooses the chain.
    listener.listener_filters.insert(0, filters::original_dst());
    own.draft(listener)
}

/// Ports that are no service's go to the application as they came.
fn passthrough_filter_chains(proxy: &Proxy, own: &InboundParameters<'_>) -> Vec<FilterChain> {
    // A range of all addresses tells the families apart: each cluster binds a source of one family.
    let everything = |address: IpAddr| Network::new(address, 0);
    let v4 = everything(IpAddr::from([0, 0, 0, 0])).filter(|_| proxy.families.v4);
    let v6 = everything(IpAddr::from([0u16; 8])).filter(|_| proxy.families.v6);
    [(v4, clusters::INBOUND_V4), (v6, clusters::INBOUND_V6)]
        .into_iter()
        .filter_map(|(range, cluster)| Some((range?, cluster)))
        .flat_map(|(range, cluster)| {
            let chains = move |port| {
                let matching = Match::any().port(port).ranges(&[range]);
                let passed =
                    |matching: &Match| matching.clone().chain_of(own.passed_through(cluster));
                let ended = |matching: &Match| {
                    chain::secured(
                        passed(matching),
                        tls::server(&proxy.node.server, false, own.mesh.oldest_tls),
                    )
                };
                match own.mtls_mode(port) {
                    MtlsMode::Strict => vec![ended(&matching.tls())],
                    // The application's own TLS goes on as it is: Envoy looks for it among chains for TLS alone.
                    MtlsMode::Permissive if own.mtls_modes.has_mode(port) => vec![
                        ended(&matching.clone().mesh_tls()),
                        passed(&matching.clone().tls()),
                        passed(&matching),
                    ],
                    MtlsMode::Permissive | MtlsMode::Disable => vec![passed(&matching)],
                }
            };
            // A policy may say something else of one of them.
            let others = own.mtls_modes.ports().into_iter();
            let others = others.filter(|port| *port != INBOUND_PORT && !own.intercepts(*port));
            let others = others.filter(|port| own.mtls_mode(Some(*port)) != own.mtls_mode(None));
            others.map(Some).chain([None]).flat_map(chains)
        })
        .collect()
}

/// The conflict of a `proxyHttpPort` that is a port of the proxy's own: applications have no port to use it through then.
pub(crate) fn no_http_proxy(mesh: &Mesh) -> Option<Conflict> {
    let port = mesh.http_port;
    (port != 0 && is_own(port, mesh)).then(|| {
        let message = format!("proxyHttpPort {port} is left out: the proxy listens there");
        Conflict::new(INVALID_LISTENER, HTTP_PROXY, message)
    })
}

/// Builds the listener of `proxyHttpPort`, for applications that use an HTTP proxy.
pub(crate) fn http_proxy(address: IpAddr, mesh: &Mesh, options: HttpOptions) -> Draft<Listener> {
    let name = name(address, mesh.http_port);
    let http = filters::http(
        mesh,
        options,
        format!("outbound_{name}"),
        RouteSpecifier::Named(HTTP_PROXY.to_owned()),
        Extras::default(),
    );
    let frame = Frame {
        name,
        address: ListenAddress::Port(address, None, mesh.http_port),
        direction: TrafficDirection::Outbound,
        bound: true,
        inspect: Inspect::default(),
        chains: vec![Match::any().chain(http)],
        default: None,
    };
    super::draft(frame.listener(mesh))
}
