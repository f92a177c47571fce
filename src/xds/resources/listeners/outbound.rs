//! Outbound listeners: one for each port that clients use, and who wins where two services want the same.

mod address;
mod built;
mod connections;
mod http_addresses;
mod socket;
mod wildcard;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, ClusterId, Network, ObjectRef, Protocol, Registry, ServiceKey};

use self::built::MAX_NAMED;
pub(crate) use self::built::{Built, Outbound};
use self::http_addresses::{HttpAddresses, OfPort};
use self::wildcard::Wildcard;
use super::chain::{self, ChainConditions, Match, key};
use super::ranges::OwnedChain;
use super::{Frame, Inspect, is_envoys, is_own, name};
use crate::common::conflict::{
    Conflict, Conflicts, HTTP_OVER_HTTPS, HTTP_OVER_TCP, INVALID_LISTENER, TCP_OVER_HTTP,
    TCP_OVER_TCP,
};
use crate::common::fair_budget::FairBudget;
use crate::common::families::Families;
use crate::common::service_ports::{ServicePort, ServicePorts};
use crate::finish::Draft;
use crate::resources::filters::{self, Extras, HttpOptions, RouteSpecifier};
use crate::resources::mesh::Mesh;
use crate::resources::routes::{ROOM, ROOM_OF_RULE};
use crate::rules::envoy_filter::{Direction, Patcher};
use crate::scope::{OutboundTrafficPolicy, ProxyRules, Socket};

/// The properties of a proxy that its outbound listeners depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutboundParameters {
    pub(crate) cluster: ClusterId,
    pub(crate) families: Families,
    /// The address that applications call, if nothing is intercepted.
    pub(crate) loopback: Option<IpAddr>,
    pub(crate) options: HttpOptions,
    pub(crate) headless: bool,
    /// The target of connections to no known service.
    pub(crate) unknown: OutboundTrafficPolicy,
}

/// The owner of the connections to a port that no chain matches.
enum CatchAll {
    Http,
    Tcp(Arc<ServicePort>),
    Auto(Arc<ServicePort>),
}

/// One port of all addresses.
#[derive(Default)]
struct SharedPort {
    catch_all: Option<CatchAll>,
    chains: Vec<OwnedChain>,
    /// Conditions of its chains: Envoy refuses two with the same.
    matched: ChainConditions,
    /// Rules that have a part in it.
    from: Vec<ObjectRef>,
    /// Services, at most [`MAX_NAMED`].
    services: Vec<ServiceKey>,
    grpc_web: bool,
    inspect: Inspect,
    /// Requests of ranges have the routes of the port.
    routed: bool,
    /// Addresses of services with requests that no range has left to them yet; `None`: they were not sought.
    unreserved: Option<OfPort>,
}

/// Addresses of the endpoints of a headless service's port.
pub(crate) type EndpointAddresses<'a> = dyn Fn(&ServicePort) -> Vec<IpAddr> + 'a;

struct Builder<'a> {
    rules: &'a ProxyRules,
    mesh: &'a Mesh,
    parameters: &'a OutboundParameters,
    /// The address that services share in the group that is made.
    wildcard: Wildcard,
    /// Its ports are those of services; else all are at this one.
    port: Option<u16>,
    /// The socket at which all services of the group are; `None`: the group has an address.
    socket: Option<Socket>,
    /// The Sidecar that says where this group is.
    sidecar: Option<&'a ObjectRef>,
    shared: BTreeMap<u16, SharedPort>,
    room: &'a mut FairBudget,
    http_addresses: &'a mut HttpAddresses,
    endpoints: &'a EndpointAddresses<'a>,
    patcher: &'a Patcher<'a>,
    out: Outbound,
    lost: &'a mut Conflicts,
}

impl SharedPort {
    fn is_for(&mut self, service_port: &ServicePort) {
        let key = &service_port.service.key;
        // The ports of a service stand together.
        if self.services.len() < MAX_NAMED && self.services.last() != Some(key) {
            self.services.push(key.clone());
        }
    }
}

/// Returns the listeners, with the conflicts of what is left out.
pub(crate) fn build(
    rules: &ProxyRules,
    mesh: &Mesh,
    parameters: &OutboundParameters,
    endpoints: &EndpointAddresses<'_>,
    patcher: &Patcher<'_>,
) -> (Outbound, Vec<Conflict>) {
    let (mut out, mut lost) = (Outbound::default(), Conflicts::default());
    let groups = rules.listeners_of();
    let mut earlier: Vec<(u16, &ServicePorts)> = Vec::new();
    // A wildcard must not give each service of a mesh a thousand chains.
    let mut room = FairBudget::new(ROOM, ROOM_OF_RULE, rules.namespaces());
    let mut http_addresses = HttpAddresses::default();
    for (listener, rules) in &groups {
        let service_ports = rules.routed();
        let Some(wildcard) = Wildcard::new(listener, parameters) else {
            continue;
        };
        let mut builder = Builder {
            rules,
            mesh,
            parameters,
            wildcard,
            port: listener.port,
            socket: listener.socket.clone(),
            sidecar: rules.imported_by().filter(|_| !listener.is_of_all_ports()),
            shared: BTreeMap::new(),
            room: &mut room,
            http_addresses: &mut http_addresses,
            endpoints,
            patcher,
            out,
            lost: &mut lost,
        };
        if listener.socket.is_some() {
            builder.at_socket(service_ports, listener);
            out = builder.finish();
            continue;
        }
        if listener.is_proxy {
            builder.proxy(listener);
            out = builder.out;
            continue;
        }
        // Behind listeners of certain ports those of all others come.
        let all = service_ports.all();
        let left = all.filter(|service_port| match listener.port {
            Some(port) => service_port.port.number == port,
            None => !is_served(service_port, &earlier),
        });
        builder.service_ports(left.collect(), listener.protocol);
        out = builder.finish();
        earlier.extend(listener.port.map(|port| (port, service_ports)));
    }
    (out, lost.finish())
}

/// Returns true if one of the earlier listeners, each of a port with its services, has the requests or connections to this port.
fn is_served(service_port: &ServicePort, earlier: &[(u16, &ServicePorts)]) -> bool {
    earlier.iter().any(|(port, service_ports)| {
        // An earlier listener has all requests to its number; connections may have an address.
        let is_routed = service_port.protocol.is_http();
        *port == service_port.port.number
            && (is_routed || service_ports.has(&service_port.service.key))
    })
}

/// The port with the protocol that a Sidecar gives its listener. It may say that requests are to be connections; what a service
/// calls connections has no routes.
fn declared(service_port: &Arc<ServicePort>, protocol: Option<Protocol>) -> Arc<ServicePort> {
    let counts = |declared: &Protocol| {
        service_port.protocol.is_auto() || (service_port.protocol.is_http() && !declared.is_http())
    };
    match protocol.filter(counts) {
        Some(protocol) => Arc::new(ServicePort {
            protocol,
            ..(**service_port).clone()
        }),
        None => service_port.clone(),
    }
}

/// The order in which ports take their places. Those with addresses, of their own or of endpoints, go by precedence; a port that services share
/// is the older one's, for a Service of Kubernetes has no more right to the port of a ServiceEntry than others.
fn turns<'a>(
    all: Vec<&'a Arc<ServicePort>>,
    parameters: &OutboundParameters,
) -> Vec<&'a Arc<ServicePort>> {
    let cluster = parameters.cluster.as_str();
    let has_own = |one: &&Arc<ServicePort>| {
        let of_endpoints = parameters.headless && one.has_listeners();
        of_endpoints || !one.protocol.is_http() && one.has_plain_address(cluster)
    };
    let own: Vec<_> = all.iter().copied().filter(has_own).collect();
    let mut own = own.into_iter();
    let mut turns = all;
    turns.sort_by(|one, other| one.service.older(&other.service));
    // Ports with addresses trade places among themselves alone, so that the others keep their order by age.
    for turn in turns.iter_mut().filter(|turn| has_own(turn)) {
        if let Some(next) = own.next() {
            *turn = next;
        }
    }
    turns
}

fn extras(service_port: &ServicePort) -> Extras<'static> {
    Extras {
        grpc_web: service_port.protocol == Protocol::GrpcWeb,
        ..Extras::default()
    }
}

impl Builder<'_> {
    /// Returns true if its port may be one of the shared address, where the proxy needs some for itself; otherwise adds a
    /// conflict.
    fn may_share(&mut self, service_port: &ServicePort) -> bool {
        let port = service_port.port.number;
        let is_taken = if self.wildcard.bound {
            is_own(port, self.mesh) || port == self.mesh.http_port
        } else {
            is_envoys(port, self.mesh)
        };
        if is_taken {
            let message = format!("{} is left out: the proxy listens there", service_port.name);
            let conflict = Conflict::new(INVALID_LISTENER, &*service_port.name, message);
            let conflict = conflict.of_service(&service_port.service.key);
            self.lost.add(0, conflict);
        }
        !is_taken
    }

    /// `protocol`: the Sidecar's.
    fn service_ports(&mut self, all: Vec<&Arc<ServicePort>>, protocol: Option<Protocol>) {
        if all.is_empty() {
            self.is_for_nothing();
        }
        for service_port in turns(all, self.parameters) {
            self.service_port(&declared(service_port, protocol));
        }
    }

    fn service_port(&mut self, service_port: &Arc<ServicePort>) {
        let protocol = service_port.protocol;
        // Where it may not have all connections to its port it has those to its own addresses.
        let has_own = service_port.is_plain_on_https && !self.wildcard.for_all;
        if protocol.is_http() && !(has_own && self.has_address(service_port)) {
            return self.reserve_for_http(service_port);
        }
        if self.wildcard.for_all {
            return self.without_address(service_port);
        }
        if service_port.service.is_headless() && self.parameters.headless {
            return self.each_endpoint(service_port);
        }
        let cluster = self.parameters.cluster.as_str();
        let addresses = service_port.addresses(cluster, self.parameters.families);
        let mut ranges = Vec::new();
        for address in addresses {
            match address {
                Address::Plain(address) => self.own_address(service_port, address, false),
                Address::Range(range) => ranges.push(range),
            }
        }
        let by_name = protocol.has_server_name() && !service_port.has_plain_address(cluster);
        if by_name || !service_port.has_address(cluster) {
            self.without_address(service_port);
        } else if !ranges.is_empty() {
            self.ranges(service_port, &ranges);
        }
    }

    fn has_address(&self, service_port: &ServicePort) -> bool {
        service_port.has_address(self.parameters.cluster.as_str())
    }

    /// Returns true if it may have all connections to its port that are for no other service; otherwise adds a conflict.
    fn may_have_all(&mut self, service_port: &ServicePort) -> bool {
        let takes_tls = service_port.is_plain_on_https && !self.has_address(service_port);
        if takes_tls {
            let message = format!(
                "{}/{} is left out: its listener would take the TLS connections of all proxies to port {}; declare HTTPS or TLS \
                 there, or give it an address",
                service_port.service.key.namespace,
                service_port.authority(),
                service_port.port.number
            );
            let conflict = Conflict::new(HTTP_OVER_HTTPS, service_port.host(), message);
            // A ServiceEntry tells it itself, before any proxy asks.
            let conflict = match service_port.service.registry == Registry::External {
                true => conflict,
                false => conflict.of_service(&service_port.service.key),
            };
            self.lost.add(0, conflict);
        }
        !takes_tls && self.may_share(service_port)
    }

    fn without_address(&mut self, service_port: &Arc<ServicePort>) {
        if !self.may_have_all(service_port) {
            return;
        }
        if service_port.protocol.has_server_name() {
            self.server_name(service_port);
        } else {
            self.reserve_for_connections(service_port);
        }
    }

    fn lose(&mut self, metric: &'static str, service_port: &ServicePort, port: u16, why: &str) {
        let key = self.name(port);
        let message = format!("{} is left out: {why}", service_port.authority());
        let conflict = Conflict::new(metric, key, message).of_service(&service_port.service.key);
        self.lost.add(0, conflict);
    }

    fn reserve_for_http(&mut self, service_port: &Arc<ServicePort>) {
        if !self.may_have_all(service_port) {
            return;
        }
        let port = service_port.port.number;
        let shared = self.shared.entry(port).or_default();
        match &shared.catch_all {
            Some(CatchAll::Tcp(winner)) => {
                let why = format!("{} is older", winner.authority());
                self.lose(HTTP_OVER_TCP, service_port, port, &why);
                return;
            }
            Some(CatchAll::Http | CatchAll::Auto(_)) => {}
            None => shared.catch_all = Some(CatchAll::Http),
        }
        shared.is_for(service_port);
        shared.grpc_web |= service_port.protocol == Protocol::GrpcWeb;
    }

    /// Reserves the connections to a port that is TCP, or may be.
    fn reserve_for_connections(&mut self, service_port: &Arc<ServicePort>) {
        let port = service_port.port.number;
        let shared = self.shared.entry(port).or_default();
        let auto = service_port.protocol.is_auto();
        match &shared.catch_all {
            Some(CatchAll::Http) => {
                self.lose(
                    TCP_OVER_HTTP,
                    service_port,
                    port,
                    "an HTTP service is older",
                );
            }
            // Requests of both are told apart by their hosts.
            Some(CatchAll::Auto(_)) if auto => shared.is_for(service_port),
            Some(CatchAll::Tcp(winner) | CatchAll::Auto(winner)) => {
                let why = format!("{} is older", winner.authority());
                self.lose(TCP_OVER_TCP, service_port, port, &why);
            }
            None => {
                let catch_all = if auto { CatchAll::Auto } else { CatchAll::Tcp };
                shared.catch_all = Some(catch_all(service_port.clone()));
                shared.is_for(service_port);
            }
        }
    }

    fn server_name(&mut self, service_port: &Arc<ServicePort>) {
        let port = self.port_of(service_port);
        let host = service_port.host().to_ascii_lowercase();
        for rule in self.tls_below_wildcard(service_port) {
            self.add_chains(service_port, rule, |matching, tcp| {
                vec![matching.chain(tcp)]
            });
            let shared = self.shared.entry(port).or_default();
            shared.inspect.tls = true;
            shared.is_for(service_port);
        }
        if let Some(rule) = self.connections(service_port) {
            self.add_chains(service_port, rule, |matching, tcp| {
                vec![matching.chain(tcp)]
            });
            let shared = self.shared.entry(port).or_default();
            shared.inspect.tls = true;
            shared.is_for(service_port);
            return;
        }
        let mut from = Vec::new();
        let filter = self.tcp(service_port, None, &mut from);
        let shared = self.shared.entry(port).or_default();
        if shared.matched.reserve(key(None, &host, None), None) {
            shared.inspect.tls = true;
            shared.is_for(service_port);
            shared.from.extend(from);
            shared
                .chains
                .push(Match::any().server_name(&host).chain(filter).into());
        } else {
            let why = "connections by that server name go elsewhere already";
            self.lose(TCP_OVER_TCP, service_port, port, why);
        }
    }

    fn ranges(&mut self, service_port: &Arc<ServicePort>, ranges: &[Network]) {
        if !self.may_share(service_port) {
            return;
        }
        let port = service_port.port.number;
        let (auto, http) = (
            service_port.protocol.is_auto(),
            service_port.protocol.is_http(),
        );
        let listener = name(self.wildcard.address, port);
        let sniffed = auto || http;
        let requests =
            sniffed.then(|| self.http(&listener, port.to_string(), extras(service_port)));
        let make = |matching: Match, tcp| match &requests {
            Some(requests) if http => vec![matching.chain(requests.clone())],
            Some(requests) => chain::sniffed(&matching, requests.clone(), vec![tcp]),
            None => vec![matching.chain(tcp)],
        };
        let mut from = Vec::new();
        let mut rest = None;
        let mut rule = match http {
            true => None,
            false => self.connections(service_port),
        };
        let mut own: Vec<_> = ranges.to_vec();
        // Envoy takes the narrowest range: the addresses of services that come first keep their requests.
        if !sniffed {
            let of_rule = rule
                .as_mut()
                .map(|rule| self.without_http_addresses(service_port, rule));
            let all = own.iter().copied().chain(of_rule.into_iter().flatten());
            let addresses = self.http_addresses_in(service_port, all);
            self.route_http_addresses(port, &addresses);
            own.retain(|range| !self.is_http_address(service_port, range));
        }
        if let Some(mut rule) = rule {
            rest = rule.rest.take();
            self.add_chains(service_port, rule, make);
        }
        let tcp = self.tcp(service_port, rest.as_deref(), &mut from);
        let shared = self.shared.entry(port).or_default();
        own.retain(|range| shared.matched.reserve(key(Some(range), "", None), None));
        if own.len() < ranges.len() {
            let why = "connections to a range of it go elsewhere already";
            self.lose(TCP_OVER_TCP, service_port, port, why);
        }
        if own.is_empty() {
            return;
        }
        let chains = make(Match::any().ranges(&own), tcp);
        let shared = self.shared.entry(port).or_default();
        shared.inspect.tls |= auto;
        shared.inspect.http |= auto;
        shared.routed |= auto || http;
        shared.is_for(service_port);
        shared.from.extend(from);
        shared
            .chains
            .extend(chains.into_iter().map(OwnedChain::from));
    }

    fn http(
        &self,
        listener: &str,
        routes: String,
        extras: Extras<'_>,
    ) -> envoy_types::pb::envoy::config::listener::v3::Filter {
        filters::http(
            self.mesh,
            self.parameters.options,
            format!("outbound_{listener}"),
            RouteSpecifier::Named(routes),
            extras,
        )
    }

    fn insert(
        &mut self,
        frame: Frame,
        routes: Vec<Arc<str>>,
        address: Option<IpAddr>,
        endpoint: bool,
        mut from: Vec<ObjectRef>,
        services: &[ServiceKey],
    ) {
        let (name, bound, port_of_all) = (frame.name.clone(), frame.bound, frame.port_of_all());
        from.extend(self.sidecar.cloned());
        from.sort();
        from.dedup();
        let draft = Draft {
            from,
            ..super::draft(frame.listener(self.mesh))
        };
        // An EnvoyFilter may remove the listener.
        let Some(resource) = self.patcher.finish(draft, Direction::Outbound) else {
            return;
        };
        let built = Built {
            resource: Arc::new(resource),
            address,
            endpoint,
            bound,
            port_of_all,
            socket: self.socket.as_ref().map(|socket| socket.path.clone()),
            services: services.into(),
        };
        self.out.routes.extend(routes);
        self.out.listeners.insert(name, built);
    }
}
