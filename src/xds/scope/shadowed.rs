//! Rules, or parts of them, that an older rule of the same place shadows, or that of the first name where both are as old: they
//! have no effect, and their authors are told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{Labels, ObjectRef, Objects, World};
use api::networking::{DestinationRule, DiscoveryKind};

use super::exported::Exported;
use super::{Rule, labels};
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};

/// Tells of Sidecars with the selector of an older one of their namespace.
pub(super) fn sidecars(world: &World) -> Vec<Conflict> {
    by_selector(&world.sidecars, |spec| {
        let selector = spec.workload_selector.as_ref();
        selector.map_or_else(Labels::new, |selector| labels(&selector.labels))
    })
}

/// Tells of PeerAuthentications with the selector of an older one of their namespace.
pub(super) fn peer_authentications(world: &World) -> Vec<Conflict> {
    by_selector(&world.peer_authentications, |spec| {
        let selector = spec.selector.as_ref();
        selector.map_or_else(Labels::new, |selector| labels(&selector.match_labels))
    })
}

fn by_selector<T: DiscoveryKind>(
    objects: &Objects<T>,
    selector: impl Fn(&T) -> Labels,
) -> Vec<Conflict> {
    let rules = objects.values().map(|object| Rule::new(object, Vec::new()));
    let mut rules: Vec<_> = rules.collect();
    rules.sort_by(Rule::order);
    let mut oldest: BTreeMap<(Arc<str>, Labels), ObjectRef> = BTreeMap::new();
    let mut lost = Conflicts::default();
    for rule in rules {
        let place = (rule.namespace().clone(), selector(rule.spec()));
        let Some(older) = oldest.get(&place) else {
            oldest.insert(place, rule.from);
            continue;
        };
        lost.push(REJECTED_CONFIG, Some(&rule.from), || {
            let same = match place.1.is_empty() {
                true => "has no selector either",
                false => "has the same selector",
            };
            let message = format!("it has no effect: {older} comes first and {same}");
            (rule.from.to_string(), message)
        });
    }
    lost.finish()
}

/// The oldest DestinationRules of one host that have a part which only one of them can give.
#[derive(Debug, Default)]
struct OfHost<'a> {
    traffic_policy: Option<&'a ObjectRef>,
    subsets: BTreeMap<&'a str, &'a ObjectRef>,
}

/// Tells of parts of DestinationRules that an older one of the same namespace, for the same host, workloads and clients, has.
pub(super) fn destination_rules(rules: &[Exported<DestinationRule>]) -> Vec<Conflict> {
    let mut hosts: BTreeMap<_, OfHost<'_>> = BTreeMap::new();
    let mut lost = Conflicts::default();
    for Exported { rule, .. } in rules {
        let spec = rule.spec();
        let selector = spec.workload_selector.as_ref();
        let selector = selector.map_or_else(Labels::new, |one| labels(&one.match_labels));
        let clients: BTreeSet<&String> = spec.export_to.iter().collect();
        let place = (rule.namespace(), rule.hosts(), selector, clients);
        let oldest = hosts.entry(place).or_default();
        let mut report = |part: String, older: &ObjectRef| {
            lost.push(REJECTED_CONFIG, Some(&rule.from), || {
                let message =
                    format!("{part} has no effect: {older} comes first and has one for this host");
                (rule.from.to_string(), message)
            });
        };
        if spec.traffic_policy.is_some() {
            match oldest.traffic_policy {
                Some(older) => report("its trafficPolicy".to_owned(), older),
                None => oldest.traffic_policy = Some(&rule.from),
            }
        }
        for subset in &spec.subsets {
            match oldest.subsets.get(&*subset.name).copied() {
                Some(older) if *older == rule.from => {}
                Some(older) => report(format!("its subset {}", subset.name), older),
                None => drop(oldest.subsets.insert(&subset.name, &rule.from)),
            }
        }
    }
    lost.finish()
}
