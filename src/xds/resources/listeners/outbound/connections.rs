//! Chains of rules for connections: by server names, by where they want to go, by where they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::ObjectRef;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain};

use super::Builder;
use crate::common::conflict::{Conflict, TOO_LARGE};
use crate::common::outlets::Outlet;
use crate::resources::filters;
use crate::resources::listeners::chain::{self, Match};
use crate::resources::routes::{ROOM, ROOM_OF_RULE};
use crate::rules::virtual_service::connections::{Connections, Shares, Target, connections};

/// What rules have of the room that their chains share: a wildcard must not give each service of a mesh a thousand of them.
#[derive(Debug, Default)]
pub(super) struct Spent {
    all: usize,
    by_rule: BTreeMap<ObjectRef, usize>,
}

/// About what its chains come to, and what it takes to look through them.
fn weight(connections: &Connections) -> usize {
    let of = |shares: &Shares| shares.iter().map(|(name, _)| name.len()).sum::<usize>();
    let targets = connections.targets.iter().map(Target::weight);
    targets.sum::<usize>() + connections.rest.as_ref().map_or(0, of)
}

impl Builder<'_> {
    /// What a rule says of connections to a port, where there is room for it.
    pub(super) fn connections(&mut self, outlet: &Outlet) -> Option<Connections> {
        let rule = self.rules.connection_rule(outlet.host())?;
        let spent = self.spent.by_rule.get(&rule.from).copied();
        let spent = spent.unwrap_or_default();
        if spent == usize::MAX {
            return None;
        }
        let spec = rule.spec();
        let tcp = spec.tcp.iter().map(|route| route.r#match.len());
        let tls = spec.tls.iter().map(|route| route.r#match.len());
        let looked = tcp.chain(tls).sum::<usize>().saturating_mul(8);
        let found = connections(self.rules, outlet);
        let more = found.as_ref().map_or(0, weight).saturating_add(looked);
        let own = spent.saturating_add(more);
        self.spent.all = self.spent.all.saturating_add(more);
        if own <= ROOM_OF_RULE && self.spent.all <= ROOM {
            self.spent.by_rule.insert(rule.from.clone(), own);
            return found;
        }
        // It is not tried at the next port.
        self.spent.by_rule.insert(rule.from.clone(), usize::MAX);
        let message = format!(
            "{} is left out: its chains are larger than {} MiB, or those of all rules than {} MiB",
            rule.from,
            ROOM_OF_RULE >> 20,
            ROOM >> 20
        );
        let conflict = Conflict::new(TOO_LARGE, &*outlet.name, message);
        self.out.conflicts.push(conflict.because_of(&rule.from));
        None
    }

    /// Carries connections to a port, or where a rule says instead. Adds the rules that had a part in it.
    pub(super) fn tcp(
        &self,
        outlet: &Outlet,
        to: Option<&[(Arc<str>, u32)]>,
        from: &mut Vec<ObjectRef>,
    ) -> Filter {
        let itself = [(outlet.name.clone(), 0)];
        let to = to.unwrap_or(&itself);
        filters::tcp_to((self.mesh, self.rules), &outlet.name, to, from)
    }

    /// Adds what a rule tells from others to the listener that services share.
    pub(super) fn add_chains(
        &mut self,
        outlet: &Outlet,
        rule: Connections,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) {
        let shared = self.shared.entry(outlet.port.number).or_default();
        let mut matched = std::mem::take(&mut shared.matched);
        let mut from = Vec::new();
        let chains = self.chains((outlet, &rule), &mut matched, &mut from, make);
        let shared = self.shared.entry(outlet.port.number).or_default();
        shared.matched = matched;
        shared.from.push(rule.from);
        shared.from.extend(from);
        shared.chains.extend(chains);
    }

    /// Chains of a port that one service has to itself.
    pub(super) fn claimed(
        &mut self,
        outlet: &Outlet,
        matched: &mut BTreeSet<String>,
        from: &mut Vec<ObjectRef>,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) -> Vec<FilterChain> {
        let Some(rule) = self.connections(outlet) else {
            return make(Match::any(), self.tcp(outlet, None, from));
        };
        let mut chains = self.chains((outlet, &rule), matched, from, &make);
        if let Some(rest) = &rule.rest {
            let tcp = self.tcp(outlet, Some(rest), from);
            chains.extend(make(Match::any(), tcp));
        }
        from.push(rule.from);
        chains
    }

    /// Chains of those that a rule tells from others, as `make` makes them of a match and of what becomes of them.
    pub(super) fn chains(
        &self,
        (outlet, connections): (&Outlet, &Connections),
        matched: &mut BTreeSet<String>,
        from: &mut Vec<ObjectRef>,
        make: impl Fn(Match, Filter) -> Vec<FilterChain>,
    ) -> Vec<FilterChain> {
        let mut chains = Vec::new();
        for target in &connections.targets {
            for matching in chain::of_target(target, self.place.families, matched) {
                let filter = self.tcp(outlet, Some(&target.to), from);
                chains.extend(make(matching, filter));
            }
        }
        chains
    }
}
