//! Rules for sidecars whose selectors find routers alone, as far as this replica knows: its proxies and the pods of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{Labels, ObjectRef, Workload, World, selects};

use super::{Conflict, Snapshot};
use crate::common::conflict::Conflicts;
use crate::node::Kind;
use crate::resources::proxy::Proxy;
use crate::scope::selecting::SelectingRule;

/// Rules that are remembered for one proxy. Chosen: a workload has one or two.
const MAX_PER_PROXY: usize = 20;
/// Proxies that are remembered of one rule.
const MAX_PER_RULE: usize = 100;
/// Rules of one namespace whose pods are looked at.
const MAX_PER_NAMESPACE: usize = 100;

/// Rules with the proxies that they select.
#[derive(Clone, Debug, Default)]
pub(super) struct SelectedProxies(BTreeMap<ObjectRef, ProxiesOfRule>);

#[derive(Clone, Debug)]
struct ProxiesOfRule {
    rule: SelectingRule,
    /// Routers by their ids, with the labels of their workloads.
    routers: BTreeMap<Arc<str>, Arc<Labels>>,
    /// Sidecars that no pod of the world is known for.
    sidecars: BTreeSet<Arc<str>>,
}

impl ProxiesOfRule {
    const fn new(rule: SelectingRule) -> Self {
        Self {
            rule,
            routers: BTreeMap::new(),
            sidecars: BTreeSet::new(),
        }
    }

    fn cut(&mut self) {
        while self.routers.len() > MAX_PER_RULE {
            self.routers.pop_last();
        }
        while self.sidecars.len() > MAX_PER_RULE {
            self.sidecars.pop_last();
        }
    }

    /// Returns true for a pod of the namespace that may be a sidecar's. A router has more pods than are connected here, each with
    /// the same labels.
    fn may_be_for(&self, pod: &Workload) -> bool {
        selects(&self.rule.selector, &pod.labels)
            && !self.routers.values().any(|labels| *labels == pod.labels)
    }
}

impl SelectedProxies {
    pub(super) fn add(&mut self, rules: Vec<SelectingRule>, proxy: &Proxy) {
        for rule in rules {
            let all = self.0.entry(rule.from.clone());
            let all = all.or_insert_with(|| ProxiesOfRule::new(rule));
            let id = proxy.node.id.clone();
            if proxy.node.kind == Kind::Router {
                all.routers.insert(id, proxy.labels.clone());
            } else {
                all.sidecars.insert(id);
            }
            all.cut();
        }
    }

    /// Adds those of an earlier snapshot with the proxies of which `is_unaffected` is true.
    pub(super) fn take_over(&mut self, earlier: Self, is_unaffected: impl Fn(&str) -> bool) {
        for (from, mut of_rule) in earlier.0 {
            of_rule.routers.retain(|proxy, _| is_unaffected(proxy));
            of_rule.sidecars.retain(|proxy| is_unaffected(proxy));
            if of_rule.routers.is_empty() && of_rule.sidecars.is_empty() {
                continue;
            }
            let all = self.0.entry(from);
            let all = all.or_insert_with(|| ProxiesOfRule::new(of_rule.rule));
            all.routers.extend(of_rule.routers);
            all.sidecars.extend(of_rule.sidecars);
            all.cut();
        }
    }

    /// The conflicts of rules that select routers and, as far as is known, nobody else.
    pub(super) fn conflicts(&self, world: &World) -> Vec<Conflict> {
        let all = self.0.values();
        let of_routers = all.filter(|one| one.sidecars.is_empty() && !one.routers.is_empty());
        let mut by_namespace: BTreeMap<&str, Vec<&ProxiesOfRule>> = BTreeMap::new();
        for one in of_routers {
            let of_namespace = by_namespace.entry(&one.rule.from.namespace).or_default();
            if of_namespace.len() < MAX_PER_NAMESPACE {
                of_namespace.push(one);
            }
        }
        if by_namespace.is_empty() {
            return Vec::new();
        }
        for pod in world.workloads.values() {
            if let Some(of_namespace) = by_namespace.get_mut(&*pod.key.namespace) {
                of_namespace.retain(|one| !one.may_be_for(pod));
            }
        }
        let mut conflicts = Conflicts::default();
        for one in by_namespace.into_values().flatten() {
            let first = one.routers.keys().next().cloned().unwrap_or_default();
            conflicts.add(0, one.rule.conflict().of(&first));
        }
        conflicts.finish()
    }
}

/// Remembers the rules for sidecars that select this proxy, if it is a router, or a sidecar without a pod: those of pods are
/// found in the world.
pub(super) fn note_selecting_rules(snapshot: &Snapshot, proxy: &Proxy) {
    let is_router = proxy.node.kind == Kind::Router;
    if !is_router && proxy.workload.is_some() {
        return;
    }
    let (base, namespace) = (&snapshot.base, &proxy.node.namespace);
    let of_sidecars = base
        .rules
        .sidecars_selecting(namespace, [&proxy.labels, &proxy.node.labels]);
    let of_peers = base.policies.peers_selecting(namespace, &proxy.labels);
    let rules: Vec<_> = of_sidecars
        .take(MAX_PER_PROXY)
        .chain(of_peers.take(MAX_PER_PROXY))
        .collect();
    if !rules.is_empty() {
        snapshot.caches.add_selecting_rules(rules, proxy);
    }
}
