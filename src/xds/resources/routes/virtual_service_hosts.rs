//! Hosts that rules have in routes without services of these names.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::Registry;
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::route::v3::VirtualHost;

use super::default_routes::operation;
use super::{RoutesBuilder, is_with_port};
use crate::common::conflict::{Conflict, DUPLICATE_DOMAIN};
use crate::common::service_ports::ServicePort;
use crate::resources::domains;
use crate::scope::{Rule, USUAL_PORT, is_name};

/// The ports of hosts that a rule has without services.
pub(super) struct PortsAlone {
    ports: BTreeSet<u16>,
    /// No routes that are made here are those of one of these ports.
    is_elsewhere: bool,
}

impl PortsAlone {
    fn has(&self, host: &str, port: u16) -> bool {
        self.ports.contains(&port) || self.is_elsewhere && port == USUAL_PORT && is_name(host)
    }
}

/// Ports of one wildcard at which a host stands behind a port that applications use as a proxy. Chosen: services have a few.
const MAX_PORTS: usize = 100;

impl<'a> RoutesBuilder<'a> {
    /// Hosts that rules alone have, on this port, or on all that their destinations have; and hosts below wildcards of services, on
    /// the ports of these: a wildcard would have their requests.
    pub(super) fn hosts_of_rules(
        &mut self,
        port: Option<u16>,
        is_asked: impl Fn(&str) -> bool,
    ) -> Vec<VirtualHost> {
        let mut hosts = Vec::new();
        let rules = self.rules;
        for (host, rule) in rules.hosts().filter(|(host, _)| is_asked(host)) {
            let is_alone = !rules.service_ports().has_host(host);
            let wildcards = rules.wildcards_above(host);
            if !is_alone && wildcards.is_empty() {
                continue;
            }
            let address = host.parse::<IpAddr>().ok();
            if let Some(holder) = address.and_then(|address| self.holder(address, rule, port)) {
                let message = format!("{host} is left out: {holder} has it");
                let conflict = Conflict::new(DUPLICATE_DOMAIN, host, message);
                self.conflicts.add(0, conflict.because_of(&rule.from));
                continue;
            }
            self.share_room(rule, port);
            for number in self.numbers((host, rule), is_alone, wildcards, port) {
                hosts.extend(self.host_of_rule(host, rule, number, port.is_none()));
            }
        }
        hosts
    }

    /// Hosts of rules that the wildcard of a service means, where its port has routes of its own.
    pub(super) fn hosts_below(&mut self, service_port: &ServicePort) -> Vec<VirtualHost> {
        let rules = self.rules;
        let number = service_port.port.number;
        let wildcard = service_port.host().to_ascii_lowercase();
        let all = rules.hosts_below(&wildcard).map(|(host, rule)| {
            self.share_room(rule, Some(number));
            self.host_of_rule(host, rule, number, false)
        });
        all.flatten().collect()
    }

    /// Ports at which a host of a rule stands for itself.
    fn numbers(
        &self,
        (host, rule): (&str, &Rule<VirtualService>),
        is_alone: bool,
        wildcards: &[Arc<str>],
        port: Option<u16>,
    ) -> Vec<u16> {
        let routed = self.rules.routed();
        let of_rule = self.ports.get(&rule.from).filter(|_| is_alone);
        // A service of this name has it.
        let is_own = |number: u16| {
            let mut own = routed.by_host(host);
            !is_alone && own.any(|one| one.port.number == number && one.carries_http())
        };
        let Some(port) = port else {
            let mut numbers = of_rule.map_or_else(BTreeSet::new, |alone| alone.ports.clone());
            for wildcard in wildcards {
                numbers.extend(self.requests_of(wildcard));
            }
            return numbers.into_iter().filter(|one| !is_own(*one)).collect();
        };
        let is_below = |wildcard: &Arc<str>| {
            let mut all = routed.at_wildcard(wildcard, port);
            all.any(|service_port| service_port.carries_http())
        };
        let is_there = of_rule.is_some_and(|alone| alone.has(host, port))
            || wildcards.iter().any(is_below) && !is_own(port);
        is_there.then_some(port).into_iter().collect()
    }

    /// Ports of a wildcard at which requests are told apart, as many as a host below it stands at where all ports are in one
    /// configuration.
    fn requests_of(&self, wildcard: &str) -> impl Iterator<Item = u16> {
        let all = self.rules.routed().by_host(wildcard);
        let all = all.filter(|service_port| service_port.carries_http());
        all.map(|service_port| service_port.port.number)
            .take(MAX_PORTS)
    }

    /// Finds the ports of a rule's hosts. Each port has a configuration of its own: a short rule with many hosts and ports would be
    /// long in all of them.
    fn share_room(&mut self, rule: &'a Rule<VirtualService>, port: Option<u16>) {
        // A rule's room is divided once in a configuration, at its first host.
        if self.ports.contains_key(&rule.from) {
            return;
        }
        let rules = self.rules;
        let ports = rules.ports_alone(rule);
        let alone = PortsAlone {
            is_elsewhere: !rules.have_routes(&ports),
            ports,
        };
        if let Some(port) = port {
            let mut own = alone.ports.clone();
            own.extend(alone.is_elsewhere.then_some(USUAL_PORT));
            // At its own ports a rule has the room for these alone: a wildcard of another namespace has any number of ports.
            let parts = match own.contains(&port) {
                true => own.len(),
                false => self.ports_of_wildcards(rule),
            };
            self.room.divide(&rule.from, parts);
        }
        self.ports.insert(&rule.from, alone);
    }

    /// The host and the port at which a rule has no room; the host alone for all ports of wildcards, of which a stranger's may have
    /// any number.
    pub(super) fn place(&self, rule: &Rule<VirtualService>, operation: &str) -> String {
        let place = operation.trim_end_matches("/*");
        let host = place.rsplit_once(':').and_then(|(host, port)| {
            let alone = self.ports.get(&rule.from)?;
            (!alone.has(host, port.parse().ok()?)).then_some(host)
        });
        host.unwrap_or(place).to_owned()
    }

    /// The number of ports that all wildcards above the hosts of a rule have.
    fn ports_of_wildcards(&self, rule: &Rule<VirtualService>) -> usize {
        let hosts = rule.hosts().iter();
        let wildcards: BTreeSet<_> = hosts
            .flat_map(|host| self.rules.wildcards_above(host))
            .collect();
        let all = self.rules.routed();
        let ports = wildcards.iter().map(|one| all.count_at_wildcard(one));
        ports.sum()
    }

    /// `None` where nothing is for this proxy and port, or there is no room for it. `has_all`: all ports are in one configuration.
    fn host_of_rule(
        &mut self,
        host: &str,
        rule: &Rule<VirtualService>,
        number: u16,
        has_all: bool,
    ) -> Option<VirtualHost> {
        let context = self.context(number);
        let routes = self.routes(rule, &operation(host, number), &context)?;
        let address = host.parse::<IpAddr>().ok();
        let mut domains = match address {
            Some(address) => domains::address_forms(address, number),
            None => {
                let forms = domains::forms(host, &self.parameters.domain).into_iter();
                let all = forms.flat_map(|form| domains::with_port(&form, number));
                all.collect()
            }
        };
        // Where all ports share a configuration, a host without a port means 80.
        if has_all && number != 80 {
            domains.retain(|domain| is_with_port(domain));
        }
        let domains = self.free_domains(domains, &rule.from.to_string(), |conflict| {
            conflict.because_of(&rule.from)
        });
        if domains.is_empty() {
            return None;
        }
        // Names count, too: a rule may have any number of hosts.
        self.spend(rule, domains.iter().map(String::len).sum());
        self.of_rules
            .extend(address.map(|address| ((address, number), rule.namespace().clone())));
        Some(VirtualHost {
            name: format!("{host}:{number}"),
            domains,
            routes,
            ..VirtualHost::default()
        })
    }

    /// The service of another namespace that has the address of a rule before it: one of Kubernetes, or an older one. The rule is
    /// asked before all others there.
    fn holder(
        &self,
        address: IpAddr,
        rule: &Rule<VirtualService>,
        port: Option<u16>,
    ) -> Option<String> {
        let (cluster, families) = (self.parameters.cluster.as_str(), self.parameters.families);
        let all = self.rules.service_ports();
        let owner_list = match port {
            Some(port) => all.at_address(address, port, cluster, families).collect(),
            None => all.by_address(address, cluster, families),
        };
        let mut owners = owner_list.into_iter().filter(|one| {
            let service = &one.service;
            let comes_first =
                service.registry == Registry::Kubernetes || service.created <= rule.object.created;
            comes_first && service.key.namespace != *rule.namespace()
        });
        owners.next().map(|one| one.authority())
    }
}
