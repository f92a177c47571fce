//! Chains of rules for connections: by server names, by where they want to go, by where they come from.

use std::sync::Arc;

use api::model::ObjectRef;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain};

use super::Builder;
use crate::common::conflict::{Conflict, REJECTED_CONFIG, TOO_LARGE};
use crate::common::service_ports::ServicePort;
use crate::resources::filters;
use crate::resources::listeners::chain::{self, ChainConditions, Match, Reservation};
use crate::resources::listeners::ranges::OwnedChain;
use crate::resources::routes::{ROOM, ROOM_OF_RULE};
use crate::rules::virtual_service::connections::{
    ConnectionMatch, Connections, Shares, connections, count_matches, lacks_server_names,
    tls_below_wildcard,
};

/// About what its chains come to, and what it takes to look through them.
fn weight(connections: &Connections) -> usize {
    let of = |shares: &Shares| shares.iter().map(|(name, _)| name.len()).sum::<usize>();
    let targets = connections.targets.iter().map(ConnectionMatch::weight);
    targets.sum::<usize>() + connections.rest.as_ref().map_or(0, of)
}

impl Builder<'_> {
    /// Connections to a port as a rule sends them; `None` without a rule, or without room for its chains.
    pub(super) fn connections(&mut self, service_port: &ServicePort) -> Option<Connections> {
        let rules = self.rules;
        let rule = rules.connection_rule(service_port.host())?;
        let matches = count_matches(rule);
        let find = || connections(rules, service_port);
        let routes = self.within_room((&rule.from, matches), service_port, find);
        let has_room = self.room.of(&rule.from).is_some();
        if routes.is_none() && has_room && lacks_server_names(rules, service_port) {
            let message = format!(
                "tcp of {} does not apply to {}: tls routes match connections of TLS and HTTPS",
                rule.from,
                service_port.authority()
            );
            let conflict = Conflict::new(REJECTED_CONFIG, &*service_port.name, message);
            self.lost.add(0, conflict.because_of(&rule.from));
        }
        routes
    }

    /// Connections of TLS to hosts that the wildcard of a service means, as the rules for these hosts send them.
    pub(super) fn tls_below_wildcard(&mut self, service_port: &ServicePort) -> Vec<Connections> {
        if !service_port.protocol.has_server_name() || !service_port.host().starts_with('*') {
            return Vec::new();
        }
        let rules = self.rules;
        let own = rules.connection_rule(service_port.host());
        let wildcard = service_port.host().to_ascii_lowercase();
        let below = rules.tls_below_wildcard(&wildcard).into_iter();
        let below = below.filter(|rule| own.is_none_or(|own| own.from != rule.from));
        below
            .filter_map(|rule| {
                let find = || tls_below_wildcard(rules, rule, service_port);
                self.within_room((&rule.from, count_matches(rule)), service_port, find)
            })
            .collect()
    }

    /// Connections as a rule sends them, if there is room for its chains and for the look through its matches.
    fn within_room(
        &mut self,
        (rule, matches): (&ObjectRef, usize),
        service_port: &ServicePort,
        find: impl FnOnce() -> Option<Connections>,
    ) -> Option<Connections> {
        let room = self.room.of(rule)?;
        let looked = matches.saturating_mul(8);
        let routes = find();
        let more = routes.as_ref().map_or(0, weight).saturating_add(looked);
        if more <= room {
            self.room.spend(rule, more);
            return routes;
        }
        // It is not tried at the next port.
        self.room.give_up(rule);
        let message = format!(
            "{} is left out: its chains are larger than {} MiB, or those of all rules than {} MiB and those of its namespace than \
             their share",
            rule,
            ROOM_OF_RULE >> 20,
            ROOM >> 20
        );
        let conflict = Conflict::new(TOO_LARGE, &*service_port.name, message);
        self.lost.add(0, conflict.because_of(rule));
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
        rule: Connections,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) {
        let port = self.port_of(service_port);
        let shared = self.shared.entry(port).or_default();
        let mut matched = std::mem::take(&mut shared.matched);
        let mut from = Vec::new();
        let mut reservation = Reservation::new(&mut matched, &rule.from);
        let chains = self.chains((service_port, &rule), &mut reservation, &mut from, make);
        let conflict = reservation.conflict(&service_port.authority());
        self.lost.extend(conflict);
        let shared = self.shared.entry(port).or_default();
        shared.matched = matched;
        let owned = chains
            .into_iter()
            .map(|chain| OwnedChain::of(&rule.from, chain));
        shared.chains.extend(owned);
        shared.from.push(rule.from);
        shared.from.extend(from);
    }

    /// Chains for TLS to hosts below the wildcard of a service that has an address to itself. Adds the rules that had a part in them.
    pub(super) fn chains_below_wildcard(
        &mut self,
        service_port: &ServicePort,
        matched: &mut ChainConditions,
        from: &mut Vec<ObjectRef>,
    ) -> Vec<OwnedChain> {
        let mut owned = Vec::new();
        for rule in self.tls_below_wildcard(service_port) {
            let mut reservation = Reservation::new(matched, &rule.from);
            let chains = self.chains(
                (service_port, &rule),
                &mut reservation,
                from,
                |matching, tcp| vec![matching.chain(tcp)],
            );
            let conflict = reservation.conflict(&service_port.authority());
            self.lost.extend(conflict);
            let chains = chains.into_iter();
            owned.extend(chains.map(|chain| OwnedChain::of(&rule.from, chain)));
            from.push(rule.from);
        }
        owned
    }

    /// Chains of a port that one service has to itself.
    pub(super) fn chains_of_one(
        &mut self,
        service_port: &ServicePort,
        matched: &mut ChainConditions,
        from: &mut Vec<ObjectRef>,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) -> Vec<OwnedChain> {
        let Some(rule) = self.connections(service_port) else {
            let own = make(Match::any(), self.tcp(service_port, None, from));
            return own.into_iter().map(OwnedChain::from).collect();
        };
        let mut reservation = Reservation::new(matched, &rule.from);
        let mut chains = self.chains((service_port, &rule), &mut reservation, from, &make);
        let conflict = reservation.conflict(&service_port.authority());
        self.lost.extend(conflict);
        if let Some(rest) = &rule.rest {
            let tcp = self.tcp(service_port, Some(rest), from);
            chains.extend(make(Match::any(), tcp));
        }
        let owned = chains.into_iter();
        let owned = owned
            .map(|chain| OwnedChain::of(&rule.from, chain))
            .collect();
        from.push(rule.from);
        owned
    }

    /// Chains of those that a rule tells from others, as `make` makes them of a match and of what becomes of them.
    pub(super) fn chains(
        &self,
        (service_port, connections): (&ServicePort, &Connections),
        reservation: &mut Reservation<'_>,
        from: &mut Vec<ObjectRef>,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) -> Vec<FilterChain> {
        let mut chains = Vec::new();
        for target in &connections.targets {
            for matching in chain::of_target(target, self.parameters.families, reservation) {
                let filter = self.tcp(service_port, Some(&target.to), from);
                chains.extend(make(matching, filter));
            }
        }
        chains
    }
}
