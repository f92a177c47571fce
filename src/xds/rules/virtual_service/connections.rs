//! Targets of connections that carry no requests: a rule's `tls` by server names, and its `tcp` (discovery.md §14).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::discovery_notes::is_server_name;
use api::istio::networking::v1alpha3::{L4MatchAttributes, RouteDestination, TlsMatchAttributes};
use api::model::{Network, ObjectRef};
use api::networking::VirtualService;

use super::{destination_port, only};
use crate::common::service_ports::{ServicePort, subset_name};
use crate::rules::gateway::Serving;
use crate::scope::gateways::holds_at;
use crate::scope::{ProxyRules, Rule, is_of_mesh};

/// Clusters with their weights; one alone may have none.
pub(crate) type Shares = Vec<(Arc<str>, u32)>;

/// Connections that a match distinguishes from others of their port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConnectionMatch {
    /// In lower case; none: whatever name the client says.
    pub(crate) names: Vec<String>,
    /// Original destinations of connections; none: any.
    pub(crate) ranges: Vec<Network>,
    pub(crate) source: Option<Network>,
    pub(crate) to: Shares,
}

/// The targets of a rule for connections to a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    /// In order: of two with the same conditions the first counts.
    pub(crate) targets: Vec<ConnectionMatch>,
    /// The clusters of connections that no target matches; `None`: no route names any.
    pub(crate) rest: Option<Shares>,
    pub(crate) from: ObjectRef,
}

impl Connections {
    /// Returns true if some are told by the name that the client says.
    pub(crate) fn has_names(&self) -> bool {
        self.targets.iter().any(|target| !target.names.is_empty())
    }
}

/// The number of matches that are looked at for connections to one port.
pub(crate) fn count_matches(rule: &Rule<VirtualService>) -> usize {
    let spec = rule.spec();
    let tcp = spec.tcp.iter().map(|route| route.r#match.len());
    let tls = spec.tls.iter().map(|route| route.r#match.len());
    tcp.chain(tls).sum()
}

/// `None`: no rule says anything of connections of this proxy to this port.
pub(crate) fn connections(rules: &ProxyRules, service_port: &ServicePort) -> Option<Connections> {
    let rule = rules.connection_rule(service_port.host())?;
    match service_port.protocol.has_server_name() {
        true => tls(rules, rule, service_port.port.number),
        false => tcp(rules, rule, service_port),
    }
}

/// TLS to hosts that the wildcard of a service means, as a rule for some of them says. A name that a service has for itself at the
/// port is left to that. `None`: the rule says nothing of it.
pub(crate) fn tls_below_wildcard(
    rules: &ProxyRules,
    rule: &Rule<VirtualService>,
    service_port: &ServicePort,
) -> Option<Connections> {
    let number = service_port.port.number;
    let mut routes = tls(rules, rule, number)?;
    let wildcard = service_port.host().to_ascii_lowercase();
    let suffix = wildcard.strip_prefix('*')?;
    let has_own = |name: &str| {
        let mut all = rules.service_ports().by_host(name);
        all.any(|one| one.port.number == number && one.protocol.has_server_name())
    };
    for target in &mut routes.targets {
        let names = &mut target.names;
        names.retain(|name| name.ends_with(suffix) && *name != wildcard && !has_own(name));
    }
    routes.targets.retain(|target| !target.names.is_empty());
    (!routes.targets.is_empty()).then_some(routes)
}

fn tls(rules: &ProxyRules, rule: &Rule<VirtualService>, number: u16) -> Option<Connections> {
    let mut targets = Vec::new();
    for route in &rule.spec().tls {
        let holding = route.r#match.iter().filter(|one| {
            let TlsMatchAttributes {
                port,
                source_labels,
                gateways,
                source_namespace,
                ..
            } = one;
            let has_port = *port == 0 || *port == u32::from(number);
            has_port
                && is_of_mesh(gateways)
                && rules.is_in(source_namespace)
                && rules.meets(source_labels)
        });
        for one in holding {
            let names = server_names(one);
            // All its names are invalid: a match without names would mean every name.
            if names.is_empty() {
                continue;
            }
            targets.push(ConnectionMatch {
                names,
                ranges: networks(&one.destination_subnets),
                source: None,
                to: shares(rules, number, &route.route, rule.namespace())?,
            });
        }
    }
    (!targets.is_empty()).then(|| Connections {
        targets,
        rest: None,
        from: rule.from.clone(),
    })
}

fn tcp(
    rules: &ProxyRules,
    rule: &Rule<VirtualService>,
    service_port: &ServicePort,
) -> Option<Connections> {
    let number = service_port.port.number;
    let shares = |route: &[RouteDestination]| shares(rules, number, route, rule.namespace());
    let (mut targets, mut rest) = (Vec::new(), None);
    let mut is_matched = false;
    'all: for route in &rule.spec().tcp {
        if route.r#match.is_empty() {
            is_matched = true;
            rest = shares(&route.route);
            break;
        }
        let at = ConnectionContext::at_sidecar(rules, rule, number);
        for one in route.r#match.iter().filter(|one| at.holds(one)) {
            is_matched = true;
            let target = target(one, shares(&route.route)?);
            // No later match gets a connection.
            if target.is_everything() {
                rest = Some(target.to);
                break 'all;
            }
            targets.push(target);
        }
    }
    is_matched.then(|| Connections {
        targets,
        // What no match is for goes where it would without the rule.
        rest: rest.or_else(|| Some(vec![(service_port.name.clone(), 0)])),
        from: rule.from.clone(),
    })
}

/// Envoy refuses the listener, which is of all services of the port, for one name that is none.
fn server_names(one: &TlsMatchAttributes) -> Vec<String> {
    let names = one.sni_hosts.iter().filter(|name| is_server_name(name));
    names.map(|name| name.to_ascii_lowercase()).collect()
}

/// Returns true if a rule has connections to this port without their server names, which are told by these alone there: then
/// nothing comes of it. One that has others to be for is not meant so, unless it names the port.
pub(crate) fn lacks_server_names(rules: &ProxyRules, service_port: &ServicePort) -> bool {
    if !service_port.protocol.has_server_name() {
        return false;
    }
    let Some(rule) = rules.connection_rule(service_port.host()) else {
        return false;
    };
    let number = service_port.port.number;
    let at = ConnectionContext::at_sidecar(rules, rule, number);
    let is_for_others = || {
        let host = service_port.host().to_ascii_lowercase();
        let mut all = rules.service_ports().by_host(&host);
        all.any(|one| !one.protocol.has_server_name())
    };
    let mut tcp = rule.spec().tcp.iter();
    tcp.any(|route| match route.r#match.as_slice() {
        [] => !is_for_others(),
        all => all
            .iter()
            .any(|one| at.holds(one) && (one.port == u32::from(number) || !is_for_others())),
    })
}

/// A port at which connections come in, as matches of a rule see it.
#[derive(Clone, Copy)]
struct ConnectionContext<'a> {
    rules: &'a ProxyRules,
    number: u16,
    /// `None`: at a sidecar.
    gateway: Option<&'a ObjectRef>,
    namespace: &'a str,
}

impl<'a> ConnectionContext<'a> {
    fn at_sidecar(rules: &'a ProxyRules, rule: &'a Rule<VirtualService>, number: u16) -> Self {
        Self {
            rules,
            number,
            gateway: None,
            namespace: rule.namespace(),
        }
    }

    fn at_server(
        rules: &'a ProxyRules,
        rule: &'a Rule<VirtualService>,
        server: &'a Serving,
    ) -> Self {
        Self {
            rules,
            number: server.number,
            gateway: Some(server.from()),
            namespace: rule.namespace(),
        }
    }

    fn holds(&self, one: &L4MatchAttributes) -> bool {
        let has_port = one.port == 0 || one.port == u32::from(self.number);
        has_port
            && holds_at(&one.gateways, self.namespace, self.gateway)
            && self.is_from(&one.source_namespace, &one.source_labels)
    }

    fn holds_tls(&self, one: &TlsMatchAttributes) -> bool {
        let has_port = one.port == 0 || one.port == u32::from(self.number);
        has_port
            && holds_at(&one.gateways, self.namespace, self.gateway)
            && self.is_from(&one.source_namespace, &one.source_labels)
    }

    /// As in Istio: a router does not ask who the clients of its connections are, and it is not one of them.
    fn is_from(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.gateway.is_some() || self.rules.is_in(namespace) && self.rules.meets(labels)
    }
}

impl ConnectionMatch {
    /// About what its chains come to.
    pub(crate) fn weight(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name.len() + 16).sum();
        let to: usize = self.to.iter().map(|(name, _)| name.len()).sum();
        // Each range is looked at for each name, and may come to a chain of its own.
        let pairs = self.names.len().max(1).saturating_mul(self.ranges.len());
        let to = to.saturating_mul(self.ranges.len().max(1));
        pairs
            .saturating_mul(32)
            .saturating_add(to)
            .saturating_add(64 + names)
    }

    /// Returns true if no connection is left for others.
    pub(crate) fn is_everything(&self) -> bool {
        self.names.is_empty() && self.ranges.is_empty() && self.source.is_none()
    }
}

fn target(one: &L4MatchAttributes, to: Shares) -> ConnectionMatch {
    ConnectionMatch {
        names: Vec::new(),
        ranges: networks(&one.destination_subnets),
        source: one.source_subnet.parse().ok(),
        to,
    }
}

/// Connections of TLS that goes on as it is, which come in at a server of a Gateway: each match of the rule's `tls`, with the
/// names that the server has. `None`: there is no room for them.
pub(crate) fn passed_through(
    rules: &ProxyRules,
    rule: &Rule<VirtualService>,
    server: &Serving,
    room: &mut usize,
) -> Option<Vec<ConnectionMatch>> {
    let at = ConnectionContext::at_server(rules, rule, server);
    let mut targets = Vec::new();
    for route in &rule.spec().tls {
        let Some(to) = shares(rules, server.number, &route.route, rule.namespace()) else {
            continue;
        };
        for one in route.r#match.iter().filter(|one| at.holds_tls(one)) {
            let mut names: Vec<String> = Vec::new();
            for host in &one.sni_hosts {
                let name = host.to_ascii_lowercase();
                names.extend(server.hosts.common(&name, rule.namespace(), room)?);
            }
            names.retain(|name| name == "*" || is_server_name(name));
            if names.is_empty() {
                continue;
            }
            // Any name will do.
            if names.iter().any(|name| name == "*") {
                names.clear();
            }
            targets.push(ConnectionMatch {
                names,
                ranges: networks(&one.destination_subnets),
                source: None,
                to: to.clone(),
            });
        }
    }
    Some(targets)
}

/// Connections without requests that come in at a server of a Gateway, in order; the last may be of all. Each host that is looked
/// at takes its length of the room; `None`: there are more.
pub(crate) fn carried(
    rules: &ProxyRules,
    rule: &Rule<VirtualService>,
    server: &Serving,
    room: &mut usize,
) -> Option<Vec<ConnectionMatch>> {
    let at = ConnectionContext::at_server(rules, rule, server);
    let mut targets = Vec::new();
    let mut meets = false;
    for host in rule.hosts() {
        *room = room.checked_sub(host.len())?;
        meets = server.hosts.meet(host, rule.namespace());
        if meets {
            break;
        }
    }
    if !meets {
        return Some(targets);
    }
    for route in &rule.spec().tcp {
        let Some(to) = shares(rules, server.number, &route.route, rule.namespace()) else {
            continue;
        };
        let all = L4MatchAttributes::default();
        let any = route.r#match.is_empty().then_some(&all);
        let holding = route.r#match.iter().chain(any).filter(|one| at.holds(one));
        targets.extend(holding.map(|one| target(one, to.clone())));
    }
    Some(targets)
}

/// Reads ranges that were checked when the object was read.
fn networks(subnets: &[String]) -> Vec<Network> {
    subnets
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// `None`: there is nowhere to go.
fn shares(
    rules: &ProxyRules,
    listens: u16,
    route: &[RouteDestination],
    namespace: &str,
) -> Option<Shares> {
    let mut all: Shares = Vec::new();
    for one in route {
        let Some(to) = &one.destination else {
            continue;
        };
        let host = rules.full_host(&to.host, namespace);
        let service_ports: Vec<_> = rules.service_ports().by_host(&host).collect();
        let port = destination_port(to).or_else(|| only(&service_ports));
        let port = port.unwrap_or(listens);
        let weight = u32::try_from(one.weight).unwrap_or_default();
        all.push((subset_name(port, &to.subset, &host), weight));
    }
    if all.iter().any(|(_, weight)| *weight > 0) {
        all.retain(|(_, weight)| *weight > 0);
    } else {
        all.truncate(1);
    }
    (!all.is_empty()).then_some(all)
}
