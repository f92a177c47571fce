//! Chains of rules for connections: by server names, by where they want to go, by where they come from.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::ObjectRef;
use api::networking::VirtualService;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain};

use super::Builder;
use crate::common::conflict::{Conflict, REJECTED_CONFIG, TOO_LARGE};
use crate::common::service_ports::ServicePort;
use crate::resources::filters;
use crate::resources::listeners::chain::{self, Match};
use crate::resources::listeners::ranges::OwnedChain;
use crate::resources::routes::{ROOM, ROOM_OF_RULE};
use crate::rules::virtual_service::connections::{
    ConnectionMatch, Connections, Shares, connections, lacks_server_names,
};
use crate::scope::Rule;

/// The clusters of connections that no target of a rule matches; `None`: the service's own.
pub(super) fn rest(rules: &[Connections]) -> Option<&[(Arc<str>, u32)]> {
    rules.last()?.rest.as_deref()
}

/// About what its chains come to, and what it takes to look through them.
fn weight(connections: &Connections) -> usize {
    let of = |shares: &Shares| shares.iter().map(|(name, _)| name.len()).sum::<usize>();
    let targets = connections.targets.iter().map(ConnectionMatch::weight);
    targets.sum::<usize>() + connections.rest.as_ref().map_or(0, of)
}

impl Builder<'_> {
    /// Connections to a port as rules send them, in order; none without a rule, or without room for its chains. The last may have
    /// all that those before it leave.
    pub(super) fn connections(&mut self, service_port: &ServicePort) -> Vec<Connections> {
        let rules = self.rules;
        let host = service_port.host();
        let all = rules.connection_rules(host);
        let own = rules.connection_rule(host).map(|rule| &rule.from);
        let by_name = !all.is_empty() && service_port.protocol.has_server_name();
        let lower = host.to_ascii_lowercase();
        let mut others = rules.service_ports().by_host(&lower);
        let is_for_others = by_name && others.any(|one| !one.protocol.has_server_name());
        let mut found = Vec::new();
        for rule in all {
            let Some(of_rule) = self.connections_of(rule, service_port) else {
                let number = service_port.port.number;
                // A wildcard may have many ports, and many rules below it: each of these says it once.
                if by_name
                    && self.room.of(&rule.from).is_some()
                    && lacks_server_names(rules, rule, number, is_for_others)
                    && (own == Some(&rule.from) || self.without_names.insert(rule.from.clone()))
                {
                    self.report_without_names(rule, service_port);
                }
                continue;
            };
            let is_last = of_rule.rest.is_some();
            found.push(of_rule);
            if is_last {
                break;
            }
        }
        found
    }

    fn report_without_names(&mut self, rule: &Rule<VirtualService>, service_port: &ServicePort) {
        let message = format!(
            "tcp of {} does not apply to {}: tls routes match connections of TLS and HTTPS",
            rule.from,
            service_port.authority()
        );
        let conflict = Conflict::new(REJECTED_CONFIG, &*service_port.name, message);
        self.out.conflicts.push(conflict.because_of(&rule.from));
    }

    /// `None`: it says nothing of connections to this port, or has no room left for its chains.
    fn connections_of(
        &mut self,
        rule: &Rule<VirtualService>,
        service_port: &ServicePort,
    ) -> Option<Connections> {
        let left = self.room.of(&rule.from)?;
        let spec = rule.spec();
        let tcp = spec.tcp.iter().map(|route| route.r#match.len() + 1);
        let tls = spec.tls.iter().map(|route| route.r#match.len() + 1);
        let looked = tcp.chain(tls).sum::<usize>().saturating_mul(8);
        let found = connections(self.rules, rule, service_port);
        let more = found.as_ref().map_or(0, weight).saturating_add(looked);
        if more <= left {
            self.room.spend(&rule.from, more);
            return found;
        }
        // It is not tried at the next port.
        self.room.give_up(&rule.from);
        let message = format!(
            "{} is left out: its chains are larger than {} MiB, or those of all rules than {} MiB and those of its namespace than \
             their share",
            rule.from,
            ROOM_OF_RULE >> 20,
            ROOM >> 20
        );
        let conflict = Conflict::new(TOO_LARGE, &*service_port.name, message);
        self.out.conflicts.push(conflict.because_of(&rule.from));
        None
    }

    /// Carries connections to a port, or where a rule says instead. Adds the rules that had a part in it.
    pub(super) fn tcp(
        &self,
        service_port: &ServicePort,
        to: Option<&[(Arc<str>, u32)]>,
        from: &mut Vec<ObjectRef>,
    ) -> Filter {
        let itself = [(service_port.name.clone(), 0)];
        let to = to.unwrap_or(&itself);
        filters::tcp_to((self.mesh, self.rules), &service_port.name, to, from)
    }

    /// Adds what a rule tells from others to the listener that services share.
    pub(super) fn add_chains(
        &mut self,
        service_port: &ServicePort,
        rules: &[Connections],
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) {
        let port = self.port_of(service_port);
        let shared = self.shared.entry(port).or_default();
        let mut matched = std::mem::take(&mut shared.matched);
        let mut from = Vec::new();
        let chains = self.chains((service_port, rules), &mut matched, &mut from, make);
        let shared = self.shared.entry(port).or_default();
        shared.matched = matched;
        shared.chains.extend(chains);
        shared.from.extend(from);
    }

    /// Chains of a port that one service has to itself.
    pub(super) fn claimed(
        &mut self,
        service_port: &ServicePort,
        matched: &mut BTreeSet<String>,
        from: &mut Vec<ObjectRef>,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) -> Vec<OwnedChain> {
        let rules = self.connections(service_port);
        let mut chains = self.chains((service_port, &rules), matched, from, &make);
        let tcp = self.tcp(service_port, rest(&rules), from);
        let rest = make(Match::any(), tcp);
        chains.extend(rest.into_iter().map(OwnedChain::from));
        chains
    }

    /// Chains of those that rules tell from others, as `make` makes them of a match and of what becomes of them. Adds the rules
    /// that have a part in it.
    pub(super) fn chains(
        &self,
        (service_port, rules): (&ServicePort, &[Connections]),
        matched: &mut BTreeSet<String>,
        from: &mut Vec<ObjectRef>,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) -> Vec<OwnedChain> {
        let mut chains = Vec::new();
        for rule in rules {
            from.push(rule.from.clone());
            for target in &rule.targets {
                let is_new = |key| matched.insert(key);
                for matching in chain::of_target(target, self.place.families, is_new) {
                    let filter = self.tcp(service_port, Some(&target.to), from);
                    let made = make(matching, filter).into_iter();
                    chains.extend(made.map(|chain| OwnedChain::of(&rule.from, chain)));
                }
            }
        }
        chains
    }
}
