//! Conditions of patches: which listeners, chains, clusters and routes they mean.

use std::net::IpAddr;

use api::envoy::todays_name;
use api::networking::envoy_filter::envoy_config_object_match::ObjectTypes;
use api::networking::envoy_filter::listener_match::FilterChainMatch;
use api::networking::envoy_filter::route_configuration_match::{
    RouteMatch, VirtualHostMatch, route_match,
};
use api::networking::envoy_filter::{
    ClusterMatch, ListenerMatch, PatchContext, RouteConfigurationMatch,
};
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::{Route, VirtualHost, route};

use crate::cluster_names;
use crate::scope::envoy_filters::Patch;
use crate::view::VIRTUAL_INBOUND;

pub(super) fn of_listener(patch: &Patch) -> Option<&ListenerMatch> {
    match &patch.matching.object_types {
        Some(ObjectTypes::Listener(one)) => Some(one),
        _ => None,
    }
}

fn of_chain(patch: &Patch) -> Option<&FilterChainMatch> {
    of_listener(patch)?.filter_chain.as_ref()
}

/// The name of a filter of connections.
pub(super) fn filter_name(patch: &Patch) -> &str {
    let filter = of_chain(patch).and_then(|chain| chain.filter.as_ref());
    filter.map_or("", |filter| &filter.name)
}

/// The name of a filter of requests.
pub(super) fn sub_filter_name(patch: &Patch) -> &str {
    let filter = of_chain(patch).and_then(|chain| chain.filter.as_ref());
    let below = filter.and_then(|filter| filter.sub_filter.as_ref());
    below.map_or("", |below| &below.name)
}

/// Returns true if a name, which may be one of earlier releases, means a filter. None means all.
pub(super) fn is_named(wanted: &str, name: &str) -> bool {
    wanted.is_empty() || todays_name(wanted) == todays_name(name)
}

fn port(listener: &Listener) -> Option<u32> {
    let address = listener.address.as_ref()?.address.as_ref()?;
    let Address::SocketAddress(socket) = address else {
        return None;
    };
    match socket.port_specifier.as_ref()? {
        PortSpecifier::PortValue(port) => Some(*port),
        PortSpecifier::NamedPort(_) => None,
    }
}

/// Returns true if a patch means something of a listener. Ports of what comes in are those of chains, too: see [`is_chain`].
pub(super) fn is_listener(patch: &Patch, listener: &Listener) -> bool {
    let Some(wanted) = of_listener(patch) else {
        return true;
    };
    let is_port = is_port(patch, listener)
        || (listener.name == VIRTUAL_INBOUND
            && all_chains(listener)
                .any(|chain| destination_port(chain) == Some(wanted.port_number)));
    let is_named = wanted.name.is_empty() || wanted.name == listener.name;
    is_port && is_named
}

/// Returns true if it means the listener as a whole.
pub(super) fn is_whole_listener(patch: &Patch, listener: &Listener) -> bool {
    is_listener(patch, listener)
        && is_port(patch, listener)
        && (of_chain(patch).is_none()
            || all_chains(listener).any(|chain| is_chain(patch, true, chain)))
}

fn all_chains(listener: &Listener) -> impl Iterator<Item = &FilterChain> {
    let chains = listener.filter_chains.iter();
    chains.chain(&listener.default_filter_chain)
}

fn destination_port(chain: &FilterChain) -> Option<u32> {
    let port = chain.filter_chain_match.as_ref()?.destination_port;
    port.map(|port| port.value)
}

/// Returns true if the port that a patch means, if any, is the listener's own.
pub(super) fn is_port(patch: &Patch, listener: &Listener) -> bool {
    let wanted = of_listener(patch).map_or(0, |wanted| wanted.port_number);
    wanted == 0 || port(listener) == Some(wanted)
}

/// Returns true if a patch means a chain of a listener that it means; `is_port`: as [`is_port`] says of that listener.
pub(super) fn is_chain(patch: &Patch, is_port: bool, chain: &FilterChain) -> bool {
    let wanted = of_listener(patch).map_or(0, |wanted| wanted.port_number);
    let is_port = is_port || destination_port(chain) == Some(wanted);
    is_port && of_chain(patch).is_none_or(|wanted| fits(wanted, chain))
}

fn fits(wanted: &FilterChainMatch, chain: &FilterChain) -> bool {
    let matched = chain.filter_chain_match.clone().unwrap_or_default();
    let mut protocols = wanted.application_protocols.split(',').map(str::trim);
    let has = |protocol: &str| {
        let mut all = matched.application_protocols.iter();
        protocol.is_empty() || all.any(|one| one == protocol)
    };
    (wanted.name.is_empty() || wanted.name == chain.name)
        && (wanted.sni.is_empty() || matched.server_names.contains(&wanted.sni))
        && (wanted.transport_protocol.is_empty()
            || wanted.transport_protocol == matched.transport_protocol)
        && protocols.all(has)
        && (wanted.destination_port == 0
            || destination_port(chain) == Some(wanted.destination_port))
}

/// Returns true if a patch means a cluster: by its name, `outbound|PORT|SUBSET|HOST` or `inbound|PORT|PORTNAME|HOST`.
pub(super) fn is_cluster(patch: &Patch, name: &str) -> bool {
    let Some(ObjectTypes::Cluster(wanted)) = &patch.matching.object_types else {
        return patch.matching.object_types.is_none();
    };
    let ClusterMatch {
        port_number,
        service,
        subset,
        name: whole,
    } = wanted;
    if !whole.is_empty() {
        return whole == name;
    }
    if *port_number == 0 && service.is_empty() && subset.is_empty() {
        return true;
    }
    // Those of gateways that go by names of servers have other signs between the parts.
    let parts: Vec<&str> = match cluster_names::server_name_parts(name) {
        Some(parts) => parts.map(|part| part.trim_end_matches('_')).into(),
        None => name.splitn(4, '|').skip(1).collect(),
    };
    let &[port, group, host] = parts.as_slice() else {
        return false;
    };
    let is_inbound = name.starts_with("inbound|");
    (*port_number == 0 || port.parse() == Ok(*port_number))
        && (service.is_empty() || service == host)
        && (subset.is_empty() || (!is_inbound && subset == group))
}

fn of_routes(patch: &Patch) -> Option<&RouteConfigurationMatch> {
    match &patch.matching.object_types {
        Some(ObjectTypes::RouteConfiguration(one)) => Some(one),
        _ => None,
    }
}

fn of_host(patch: &Patch) -> Option<&VirtualHostMatch> {
    of_routes(patch)?.vhost.as_ref()
}

pub(super) fn of_route(patch: &Patch) -> Option<&RouteMatch> {
    of_host(patch)?.route.as_ref()
}

/// The parts of a route configuration's name: its port, the name of the gateway's port, and the gateway.
fn parts(name: &str) -> (Option<u32>, &str, Option<(&str, &str)>) {
    if let Some(rest) = name.strip_prefix("http.") {
        // All Gateways of a port share it.
        let port = rest.split_once('.').map_or(rest, |(port, _)| port);
        return (port.parse().ok(), "", None);
    }
    if let Some(rest) = name.strip_prefix("https.") {
        let mut parts = rest.splitn(2, '.');
        let port = parts.next().and_then(|port| port.parse().ok());
        // A port's name may have dots; those of objects and namespaces have none that are last.
        let mut from_behind = without_bind(parts.next().unwrap_or_default()).rsplitn(3, '.');
        let (namespace, gateway) = (from_behind.next(), from_behind.next());
        let port_name = from_behind.next().unwrap_or_default();
        return (port, port_name, namespace.zip(gateway));
    }
    if let Some(rest) = name.strip_prefix("inbound|") {
        return (
            rest.split('|').next().and_then(|port| port.parse().ok()),
            "",
            None,
        );
    }
    // `80`, or `HOST:80`.
    let port = name.rsplit(':').next().and_then(|port| port.parse().ok());
    (port, "", None)
}

/// `PORTNAME.GATEWAY.NAMESPACE` without the address that may stand behind it.
fn without_bind(name: &str) -> &str {
    // The first two dots divide the three parts.
    let mut dots = name.match_indices('.').skip(2);
    let bind = dots.find_map(|(at, _)| {
        let (rest, address) = (name.get(..at)?, name.get(at + 1..)?);
        address.parse::<IpAddr>().is_ok().then_some(rest)
    });
    bind.unwrap_or(name)
}

pub(super) fn are_routes(patch: &Patch, name: &str) -> bool {
    let Some(wanted) = of_routes(patch) else {
        return patch.matching.object_types.is_none();
    };
    let (port, port_name, gateway) = parts(name);
    let is_gateway = || {
        let wanted_gateway = wanted.gateway.split_once('/');
        gateway.is_some_and(|(namespace, gateway)| wanted_gateway == Some((namespace, gateway)))
    };
    (wanted.name.is_empty() || wanted.name == name)
        && (wanted.port_number == 0 || port == Some(wanted.port_number))
        && (wanted.port_name.is_empty() || wanted.port_name == port_name)
        && (wanted.gateway.is_empty() || is_gateway())
}

/// Returns true if a patch names routes of requests in plain text, and a portName or a gateway, which such routes lack.
pub(super) fn matches_no_http_route(patch: &Patch, name: &str) -> bool {
    patch.context == PatchContext::Gateway
        && name.starts_with("http.")
        && of_routes(patch).is_some_and(|wanted| {
            let is_named = wanted.name == name;
            let has_port = wanted.port_number != 0 && parts(name).0 == Some(wanted.port_number);
            let asks = !wanted.port_name.is_empty() || !wanted.gateway.is_empty();
            asks && (is_named || (wanted.name.is_empty() && has_port))
        })
}

pub(super) fn is_host(patch: &Patch, host: &VirtualHost) -> bool {
    of_host(patch).is_none_or(|wanted| {
        let domain = &wanted.domain_name;
        (wanted.name.is_empty() || wanted.name == host.name)
            && (domain.is_empty() || host.domains.contains(domain))
    })
}

pub(super) fn is_route(patch: &Patch, route: &Route) -> bool {
    of_route(patch).is_none_or(|wanted| {
        let does = match wanted.action() {
            route_match::Action::Any => true,
            route_match::Action::Route => matches!(route.action, Some(route::Action::Route(_))),
            route_match::Action::Redirect => {
                matches!(route.action, Some(route::Action::Redirect(_)))
            }
            route_match::Action::DirectResponse => {
                matches!(route.action, Some(route::Action::DirectResponse(_)))
            }
        };
        does && (wanted.name.is_empty() || wanted.name == route.name)
    })
}
