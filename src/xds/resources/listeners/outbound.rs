//! Outbound listeners: one for each port that clients use, and who wins where two services want the same.

mod address;
mod connections;
mod wildcard;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, ClusterId, Endpoint, Network, ObjectRef, Protocol};
use envoy_types::pb::envoy::config::listener::v3::FilterChain;

use self::connections::Spent;
use self::wildcard::Wildcard;
use super::chain::key;
use super::chain::{self, Match};
use super::{Frame, Inspect, is_envoys, is_own, name};
use crate::common::conflict::{
    Conflict, HTTP_OVER_HTTPS, HTTP_OVER_TCP, INVALID_LISTENER, TCP_OVER_HTTP, TCP_OVER_TCP,
};
use crate::common::families::Families;
use crate::common::outlets::{Outlet, Outlets};
use crate::finish::Draft;
use crate::resources::filters::{self, Extras, HttpOptions, Routes};
use crate::resources::mesh::Mesh;
use crate::rules::envoy_filter::Patcher;
use crate::scope::{ProxyRules, Unknown};
use crate::view::Resource;

/// What the outbound listeners of two proxies differ by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) cluster: ClusterId,
    pub(crate) families: Families,
    /// Where nothing is intercepted: the address that applications call.
    pub(crate) loopback: Option<IpAddr>,
    pub(crate) options: HttpOptions,
    pub(crate) headless: bool,
    /// What is unknown goes there.
    pub(crate) unknown: Unknown,
}

/// A listener.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) resource: Arc<Resource>,
    /// The one address that it is for; not for the proxy that has that address itself.
    pub(crate) address: Option<IpAddr>,
    /// That is an endpoint's.
    pub(crate) endpoint: bool,
    /// Applications call it themselves.
    pub(crate) bound: bool,
}

/// All of them, and what was left out.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    pub(crate) listeners: BTreeMap<String, Built>,
    /// The names of all their routes.
    pub(crate) routes: BTreeSet<Arc<str>>,
    pub(crate) conflicts: Vec<Conflict>,
}

/// Who has what no chain of a port matches.
enum Claim {
    Http,
    Tcp(Arc<Outlet>),
    Auto(Arc<Outlet>),
}

/// One port of all addresses.
#[derive(Default)]
struct Shared {
    claim: Option<Claim>,
    chains: Vec<FilterChain>,
    /// Conditions of its chains: Envoy refuses two with the same.
    matched: BTreeSet<String>,
    /// Rules that have a part in it.
    from: Vec<ObjectRef>,
    grpc_web: bool,
    inspect: Inspect,
    /// Requests of ranges have the routes of the port.
    routed: bool,
}

struct Builder<'a> {
    rules: &'a ProxyRules,
    mesh: &'a Mesh,
    place: &'a Place,
    /// Of the group that is made.
    wildcard: Wildcard,
    /// Its ports are those of services; else all are at this one.
    port: Option<u16>,
    shared: BTreeMap<u16, Shared>,
    spent: &'a mut Spent,
    patcher: &'a Patcher<'a>,
    out: Outbound,
}

/// `endpoints`: of a headless service's port.
pub(crate) fn build<'a>(
    rules: &'a ProxyRules,
    mesh: &'a Mesh,
    place: &'a Place,
    endpoints: impl Fn(&Outlet) -> Vec<&'a Endpoint>,
    patcher: &Patcher<'_>,
) -> Outbound {
    let mut out = Outbound::default();
    let groups = rules.listeners_of();
    let mut earlier: Vec<(u16, &Outlets)> = Vec::new();
    let mut spent = Spent::default();
    for (stand, rules) in &groups {
        let outlets = rules.routed();
        let Some(wildcard) = Wildcard::new(stand, place) else {
            continue;
        };
        let mut builder = Builder {
            rules,
            mesh,
            place,
            wildcard,
            port: stand.port,
            shared: BTreeMap::new(),
            spent: &mut spent,
            patcher,
            out,
        };
        if stand.is_proxy {
            builder.proxy();
            out = builder.out;
            continue;
        }
        // Behind listeners of certain ports those of all others come.
        let is_left = |outlet: &Outlet| match stand.port {
            Some(port) => outlet.port.number == port,
            None => !earlier.iter().any(|(port, outlets)| {
                let is_routed = outlet.protocol.is_http();
                *port == outlet.port.number && (is_routed || outlets.has(&outlet.service.key))
            }),
        };
        for outlet in outlets.all().filter(|outlet| is_left(outlet)) {
            match stand.protocol.filter(|_| outlet.protocol.is_auto()) {
                Some(protocol) => {
                    let declared = Outlet {
                        protocol,
                        ..(**outlet).clone()
                    };
                    builder.outlet(&Arc::new(declared), &endpoints);
                }
                None => builder.outlet(outlet, &endpoints),
            }
        }
        out = builder.finish();
        earlier.extend(stand.port.map(|port| (port, outlets)));
    }
    out
}

fn extras(outlet: &Outlet) -> Extras<'static> {
    Extras {
        grpc_web: outlet.protocol == Protocol::GrpcWeb,
        ..Extras::default()
    }
}

impl Builder<'_> {
    /// Whether its port may be one of the address that all share: there the proxy needs some for itself.
    fn may_share(&mut self, outlet: &Outlet) -> bool {
        let port = outlet.port.number;
        let taken = if self.wildcard.bound {
            is_own(port, self.mesh) || port == self.mesh.http_port
        } else {
            is_envoys(port, self.mesh)
        };
        if taken {
            let message = format!("{} is left out: the proxy listens there", outlet.name);
            let conflict = Conflict::new(INVALID_LISTENER, &*outlet.name, message);
            let conflict = conflict.of_service(&outlet.service.key);
            self.out.conflicts.push(conflict);
        }
        !taken
    }

    fn outlet<'e>(
        &mut self,
        outlet: &Arc<Outlet>,
        endpoints: &impl Fn(&Outlet) -> Vec<&'e Endpoint>,
    ) {
        let protocol = outlet.protocol;
        // Where it may not have all connections to its port it has those to its own addresses.
        let has_own = outlet.is_plain_on_https && !self.wildcard.for_all;
        if protocol.is_http() && !(has_own && self.has_address(outlet)) {
            return self.claim_http(outlet);
        }
        if self.wildcard.for_all {
            return self.without_address(outlet);
        }
        if outlet.service.is_headless() && self.place.headless {
            return self.each_endpoint(outlet, &endpoints(outlet));
        }
        let cluster = self.place.cluster.as_str();
        let addresses = outlet.addresses(cluster, self.place.families);
        let mut ranges = Vec::new();
        for address in addresses {
            match address {
                Address::Plain(address) => self.own_address(outlet, address, false),
                Address::Range(range) => ranges.push(range),
            }
        }
        let by_name = protocol.has_server_name() && !outlet.has_plain_address(cluster);
        if by_name || !outlet.has_address(cluster) {
            self.without_address(outlet);
        } else if !ranges.is_empty() {
            self.ranges(outlet, &ranges);
        }
    }

    fn has_address(&self, outlet: &Outlet) -> bool {
        outlet.has_address(self.place.cluster.as_str())
    }

    /// Whether it may have all connections to its port that no other service is meant by.
    fn may_have_all(&mut self, outlet: &Outlet) -> bool {
        let takes_tls = outlet.is_plain_on_https && !self.has_address(outlet);
        if takes_tls {
            let message = format!(
                "{}/{} is left out: its listener would take the TLS connections of all proxies to port {}; declare HTTPS or TLS \
                 there, or give it an address",
                outlet.service.key.namespace,
                outlet.authority(),
                outlet.port.number
            );
            let conflict = Conflict::new(HTTP_OVER_HTTPS, outlet.host(), message);
            let conflict = conflict.of_service(&outlet.service.key);
            self.out.conflicts.push(conflict);
        }
        !takes_tls && self.may_share(outlet)
    }

    fn without_address(&mut self, outlet: &Arc<Outlet>) {
        if !self.may_have_all(outlet) {
            return;
        }
        if outlet.protocol.has_server_name() {
            self.server_name(outlet);
        } else {
            self.claim_connections(outlet);
        }
    }

    fn lose(&mut self, metric: &'static str, outlet: &Outlet, port: u16, winner: &str) {
        let key = name(self.wildcard.address, port);
        let message = format!("{} is left out: {winner} is older", outlet.authority());
        let conflict = Conflict::new(metric, key, message).of_service(&outlet.service.key);
        self.out.conflicts.push(conflict);
    }

    fn claim_http(&mut self, outlet: &Arc<Outlet>) {
        if !self.may_have_all(outlet) {
            return;
        }
        let port = outlet.port.number;
        let shared = self.shared.entry(port).or_default();
        match &shared.claim {
            Some(Claim::Tcp(winner)) => {
                let winner = winner.authority();
                self.lose(HTTP_OVER_TCP, outlet, port, &winner);
                return;
            }
            Some(Claim::Http | Claim::Auto(_)) => {}
            None => shared.claim = Some(Claim::Http),
        }
        shared.grpc_web |= outlet.protocol == Protocol::GrpcWeb;
    }

    /// What is TCP, or may be.
    fn claim_connections(&mut self, outlet: &Arc<Outlet>) {
        let port = outlet.port.number;
        let shared = self.shared.entry(port).or_default();
        let auto = outlet.protocol.is_auto();
        match &shared.claim {
            Some(Claim::Http) => self.lose(TCP_OVER_HTTP, outlet, port, "an HTTP service"),
            // Requests of both are told apart by their hosts.
            Some(Claim::Auto(_)) if auto => {}
            Some(Claim::Tcp(winner) | Claim::Auto(winner)) => {
                let winner = winner.authority();
                self.lose(TCP_OVER_TCP, outlet, port, &winner);
            }
            None if auto => shared.claim = Some(Claim::Auto(outlet.clone())),
            None => shared.claim = Some(Claim::Tcp(outlet.clone())),
        }
    }

    fn server_name(&mut self, outlet: &Arc<Outlet>) {
        let port = outlet.port.number;
        let host = outlet.host().to_ascii_lowercase();
        if let Some(rule) = self.connections(outlet) {
            self.add_chains(outlet, rule, |matching, tcp| vec![matching.chain(tcp)]);
            self.shared.entry(port).or_default().inspect.tls = true;
            return;
        }
        let filter = filters::tcp(self.mesh, &outlet.name);
        let shared = self.shared.entry(port).or_default();
        if shared.matched.insert(key(None, &host, None)) {
            shared.inspect.tls = true;
            shared
                .chains
                .push(Match::any().server_name(&host).chain(filter));
        } else {
            self.lose(TCP_OVER_TCP, outlet, port, "a service of that name");
        }
    }

    fn ranges(&mut self, outlet: &Arc<Outlet>, ranges: &[Network]) {
        if !self.may_share(outlet) {
            return;
        }
        let port = outlet.port.number;
        let (auto, http) = (outlet.protocol.is_auto(), outlet.protocol.is_http());
        let listener = name(self.wildcard.address, port);
        let sniffed = auto || http;
        let requests = sniffed.then(|| self.http(&listener, port.to_string(), extras(outlet)));
        let make = |matching: Match, tcp| match &requests {
            Some(requests) if http => vec![matching.chain(requests.clone())],
            Some(requests) => chain::sniffed(&matching, requests.clone(), vec![tcp]),
            None => vec![matching.chain(tcp)],
        };
        let mut tcp = filters::tcp(self.mesh, &outlet.name);
        if !http && let Some(rule) = self.connections(outlet) {
            if let Some(rest) = &rule.rest {
                tcp = filters::tcp_to(self.mesh, &outlet.name, rest);
            }
            self.add_chains(outlet, rule, make);
        }
        let shared = self.shared.entry(port).or_default();
        let mut own: Vec<_> = ranges.to_vec();
        own.retain(|range| shared.matched.insert(key(Some(range), "", None)));
        if own.len() < ranges.len() {
            self.lose(TCP_OVER_TCP, outlet, port, "a service of that range");
        }
        if own.is_empty() {
            return;
        }
        let chains = make(Match::any().ranges(&own), tcp);
        let shared = self.shared.entry(port).or_default();
        shared.inspect.tls |= auto;
        shared.inspect.http |= auto;
        shared.routed |= auto || http;
        shared.chains.extend(chains);
    }

    fn http(
        &self,
        listener: &str,
        routes: String,
        extras: Extras<'_>,
    ) -> envoy_types::pb::envoy::config::listener::v3::Filter {
        filters::http(
            self.mesh,
            self.place.options,
            format!("outbound_{listener}"),
            Routes::Named(routes),
            extras,
        )
    }

    fn insert(
        &mut self,
        frame: Frame,
        routes: Vec<Arc<str>>,
        address: Option<IpAddr>,
        endpoint: bool,
        from: Vec<ObjectRef>,
    ) {
        let (name, bound) = (frame.name.clone(), frame.bound);
        let draft = Draft {
            from,
            ..super::draft(frame.listener(self.mesh))
        };
        let Some(resource) = self.patcher.finish(draft, false) else {
            return;
        };
        let built = Built {
            resource: Arc::new(resource),
            address,
            endpoint,
            bound,
        };
        self.out.routes.extend(routes);
        self.out.listeners.insert(name, built);
    }
}
