//! Hosts of rules that no service has: the ports at which they are served, and those that no listener serves.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::istio::networking::v1alpha3::Destination;
use api::model::ObjectRef;
use api::names::full_host;
use api::networking::VirtualService;

use super::Rule;
use super::hosts::BelowWildcards;
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};
use crate::common::service_ports::ServicePorts;

/// The usual port of HTTP: hosts whose requests go to no known service, or to ports that nobody listens on, are served there.
pub(crate) const USUAL_PORT: u16 = 80;

/// An address may be a service's on other ports than those of a rule's destinations.
pub(crate) fn is_name(host: &str) -> bool {
    host.parse::<IpAddr>().is_err()
}

pub(crate) fn destination_port(destination: &Destination) -> Option<u16> {
    let port = destination.port.as_ref()?;
    u16::try_from(port.number).ok().filter(|port| *port > 0)
}

/// The destinations that a rule sends requests and connections to.
pub(super) fn destinations(rule: &VirtualService) -> impl Iterator<Item = &Destination> {
    let routes = rule.http.iter().flat_map(|http| {
        let routes = http.route.iter().filter_map(|one| one.destination.as_ref());
        let mirrors = http.mirrors.iter();
        let mirrors = mirrors.filter_map(|one| one.destination.as_ref());
        routes.chain(&http.mirror).chain(mirrors)
    });
    let tcp = rule.tcp.iter().flat_map(|one| &one.route);
    let tls = rule.tls.iter().flat_map(|one| &one.route);
    routes.chain(tcp.chain(tls).filter_map(|one| one.destination.as_ref()))
}

/// The ports on which a host is served that no service has: those that destinations name, or all that they have for HTTP.
pub(super) fn ports(
    rule: &Rule<VirtualService>,
    service_ports: &ServicePorts,
    domain: &str,
) -> BTreeSet<u16> {
    let routes = rule.spec().http.iter().flat_map(|http| &http.route);
    let destinations = routes.filter_map(|route| route.destination.as_ref());
    let mut ports = BTreeSet::new();
    for destination in destinations {
        match destination_port(destination) {
            Some(port) => {
                ports.insert(port);
            }
            None => {
                let host = full_host(&destination.host, rule.namespace(), domain);
                let all = service_ports.by_host(&host);
                let all = all.filter(|service_port| service_port.carries_http());
                ports.extend(all.map(|service_port| service_port.port.number));
            }
        }
    }
    if ports.is_empty() {
        ports.insert(USUAL_PORT);
    }
    ports
}

/// A listener of a Sidecar as hosts of rules see it.
pub(super) struct ListenerOfHosts<'a> {
    pub(super) rules: &'a BTreeMap<String, Arc<Rule<VirtualService>>>,
    pub(super) below_wildcards: &'a BelowWildcards,
    pub(super) service_ports: &'a ServicePorts,
    /// Requests to all ports come in there.
    pub(super) has_all: bool,
    /// Ports whose routes are made of what it imports.
    pub(super) routed: HashSet<u16>,
}

/// The hosts of rules that a listener serves, as far as they were looked for.
struct ServedHosts<'a> {
    listener: &'a ListenerOfHosts<'a>,
    /// A rule's ports are the same for all of its names, and for all of its addresses.
    by_rule: HashMap<(&'a ObjectRef, bool), bool>,
    by_wildcard: HashMap<&'a str, bool>,
}

impl<'a> ServedHosts<'a> {
    fn new(listener: &'a ListenerOfHosts<'a>) -> Self {
        Self {
            listener,
            by_rule: HashMap::new(),
            by_wildcard: HashMap::new(),
        }
    }

    /// Returns true if the listener serves a host of a rule, which has these ports, or a wildcard around it.
    fn has(
        &mut self,
        (host, rule): (&'a str, &'a Rule<VirtualService>),
        ports: impl Fn(&str, &Rule<VirtualService>) -> BTreeSet<u16>,
    ) -> bool {
        let listener = self.listener;
        if listener.has_all {
            return true;
        }
        let of_rule = self.by_rule.entry((&rule.from, is_name(host)));
        let is_routed = *of_rule.or_insert_with(|| {
            let ports = ports(host, rule);
            ports.iter().any(|port| listener.routed.contains(port))
        });
        is_routed || {
            let wildcards = listener.below_wildcards.wildcards(host);
            wildcards.iter().any(|one| {
                let of_wildcard = self.by_wildcard.entry(one);
                *of_wildcard.or_insert_with(|| listener.has_routes_of(one))
            })
        }
    }
}

/// Tells of hosts that no service has and that no listener of a Sidecar serves. `service_ports`: those that have clusters.
pub(super) fn unserved(
    listeners: &[ListenerOfHosts<'_>],
    service_ports: &ServicePorts,
    domain: &str,
    sidecar: &ObjectRef,
) -> Vec<Conflict> {
    let all_ports = |host: &str, rule: &Rule<VirtualService>| {
        let mut ports = ports(rule, service_ports, domain);
        ports.extend(is_name(host).then_some(USUAL_PORT));
        ports
    };
    let mut served: HashSet<&str> = HashSet::new();
    let mut lost: BTreeMap<&str, &Arc<Rule<VirtualService>>> = BTreeMap::new();
    for listener in listeners {
        let mut hosts = ServedHosts::new(listener);
        let alone = listener.rules.iter();
        let alone = alone.filter(|(host, _)| !service_ports.has_host(host));
        for (host, rule) in alone {
            match hosts.has((host.as_str(), &**rule), all_ports) {
                true => drop(served.insert(host)),
                false => drop(lost.entry(host).or_insert(rule)),
            }
        }
    }
    let mut conflicts = Conflicts::default();
    for (host, rule) in lost.iter().filter(|(host, _)| !served.contains(**host)) {
        conflicts.push(REJECTED_CONFIG, Some(&rule.from), || {
            let ports = all_ports(host, rule);
            let ports: Vec<_> = ports.iter().take(MAX_LISTED_PORTS).map(u16::to_string).collect();
            let message = format!(
                "{host} of {} is served at no port of proxies that {sidecar} holds for: no service has this host, and they import \
                 none with requests at {}",
                rule.from,
                ports.join(", ")
            );
            ((*host).to_owned(), message)
        });
    }
    conflicts.finish()
}

/// Ports that a message names.
const MAX_LISTED_PORTS: usize = 8;

impl ListenerOfHosts<'_> {
    fn has_routes_of(&self, wildcard: &str) -> bool {
        let mut ports = self.service_ports.by_host(wildcard);
        ports.any(|one| one.carries_http() && self.routed.contains(&one.port.number))
    }
}
