//! Sidecars of one workload: one alone counts.

use std::collections::{BTreeMap, BTreeSet};

use api::model::{Labels, Protocol};

use super::audience::Named;
use super::codes;
use super::inventory::{Inventory, Item, labels, list, text};
use super::messages::{Message, push};

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let mut by_namespace: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in all.of("Sidecar") {
        by_namespace.entry(&item.namespace).or_default().push(item);
    }
    for (namespace, items) in by_namespace {
        let mut by_selector: BTreeMap<Labels, Vec<&Item>> = BTreeMap::new();
        for item in items {
            let selector = labels(item.body.pointer("/workloadSelector/labels"));
            by_selector.entry(selector).or_default().push(item);
        }
        if let Some(without) = by_selector.remove(&Labels::default())
            && without.len() > 1
        {
            let all = Named::of(&without);
            for item in without {
                let message = format!("{all} have no selector: the oldest alone counts");
                push(
                    messages,
                    &codes::SIDECARS_WITHOUT_SELECTOR,
                    item,
                    "",
                    message,
                );
            }
        }
        selecting(all, namespace, &by_selector, messages);
    }
}

/// Returns the protocols that listeners of Sidecars declare, as they are written and as they are understood. `lists`: `/egress`,
/// `/ingress`.
pub(super) fn declared_protocols<'a>(
    all: &'a Inventory,
    lists: &'a [&str],
) -> impl Iterator<Item = (&'a str, Protocol)> {
    let listeners = all.of("Sidecar").flat_map(|sidecar| {
        let lists = lists.iter();
        lists.flat_map(|pointer| list(&sidecar.body, pointer))
    });
    let ports = listeners.filter_map(|(_, listener)| listener.get("port"));
    ports.filter_map(|port| {
        let declared = text(port, "/protocol");
        Some((declared, Protocol::of_service_entry(declared)?))
    })
}

/// Returns the hosts of the proxies to which Sidecars send requests to unknown hosts.
pub(super) fn egress_proxies(all: &Inventory) -> impl Iterator<Item = String> {
    all.of("Sidecar").map(|sidecar| {
        let host = text(&sidecar.body, "/outboundTrafficPolicy/egressProxy/host");
        all.full_host(host, &sidecar.namespace)
    })
}

/// Finds two Sidecars that select one workload.
fn selecting(
    all: &Inventory,
    namespace: &str,
    by_selector: &BTreeMap<Labels, Vec<&Item>>,
    messages: &mut Vec<Message>,
) {
    let places = all.workloads.places(namespace);
    let mut selectors: Vec<Vec<&Labels>> = vec![Vec::new(); places.len()];
    for selector in by_selector.keys() {
        for at in all.workloads.selected(selector, Some(namespace)) {
            // A namespace's workloads stand together, from `places.start` on.
            if let Some(of_workload) = selectors.get_mut(at - places.start) {
                of_workload.push(selector);
            }
        }
    }
    // Replicas are selected alike, and said once.
    let mut reported_selectors: BTreeSet<Vec<&Labels>> = BTreeSet::new();
    let mut reported: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (at, selectors) in places.zip(selectors) {
        let Some(runs) = all.workloads.get(at) else {
            continue;
        };
        let items = selectors.iter().filter_map(|one| by_selector.get(*one));
        let mut items: Vec<&Item> = items.flatten().copied().collect();
        if !reported_selectors.insert(selectors) {
            continue;
        }
        items.sort_by_key(|item| item.number);
        let firsts: Vec<&Item> = items.iter().take(2).copied().collect();
        for item in items {
            let other = firsts.iter().find(|other| other.number != item.number);
            let Some(other) = other.filter(|other| reported.insert((item.number, other.number)))
            else {
                continue;
            };
            let message = format!(
                "{}/{} selects the workload {}, too: the oldest alone counts",
                other.namespace, other.name, runs.name
            );
            let path = "spec.workloadSelector";
            push(messages, &codes::SIDECARS_SELECT, item, path, message);
        }
    }
}
