//! Sidecars of one workload: one alone counts.

use std::collections::{BTreeMap, BTreeSet};

use api::model::{Labels, selects};

use super::audience::Named;
use super::codes;
use super::inventory::{Inventory, Item, Runs, labels};
use super::messages::Message;
use super::references::push;

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    let mut by_namespace: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in all.of("Sidecar") {
        by_namespace.entry(&item.namespace).or_default().push(item);
    }
    let mut workloads: BTreeMap<&str, Vec<&Runs>> = BTreeMap::new();
    for runs in &all.workloads {
        workloads.entry(&runs.namespace).or_default().push(runs);
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
                let words = format!("{all} have no selector: the oldest alone counts");
                push(found, &codes::SIDECARS_WITHOUT_SELECTOR, item, "", words);
            }
        }
        let workloads = workloads.get(namespace).map_or(&[][..], Vec::as_slice);
        selecting(&by_selector, workloads, found);
    }
}

/// Two that select one workload.
fn selecting(
    by_selector: &BTreeMap<Labels, Vec<&Item>>,
    workloads: &[&Runs],
    found: &mut Vec<Message>,
) {
    let mut selectors: Vec<Vec<&Labels>> = vec![Vec::new(); workloads.len()];
    let with_label = WithLabel::of(workloads);
    for selector in by_selector.keys() {
        for at in with_label.candidates(selector) {
            let runs = workloads.get(*at);
            if runs.is_some_and(|runs| selects(selector, &runs.labels))
                && let Some(of_workload) = selectors.get_mut(*at)
            {
                of_workload.push(selector);
            }
        }
    }
    // Replicas are selected alike, and said once.
    let mut known: BTreeSet<Vec<&Labels>> = BTreeSet::new();
    let mut told: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (runs, selectors) in workloads.iter().zip(selectors) {
        let items = selectors.iter().filter_map(|one| by_selector.get(*one));
        let mut items: Vec<&Item> = items.flatten().copied().collect();
        if !known.insert(selectors) {
            continue;
        }
        items.sort_by_key(|item| item.number);
        let firsts: Vec<&Item> = items.iter().take(2).copied().collect();
        for item in items {
            let other = firsts.iter().find(|other| other.number != item.number);
            let Some(other) = other.filter(|other| told.insert((item.number, other.number))) else {
                continue;
            };
            let words = format!(
                "{}/{} selects the workload {}, too: the oldest alone counts",
                other.namespace, other.name, runs.name
            );
            let path = "spec.workloadSelector";
            push(found, &codes::SIDECARS_SELECT, item, path, words);
        }
    }
}

/// Places of workloads, by the name and the value of each of their labels.
struct WithLabel<'a>(BTreeMap<&'a str, BTreeMap<&'a str, Vec<usize>>>);

impl<'a> WithLabel<'a> {
    fn of(workloads: &[&'a Runs]) -> Self {
        let mut places: BTreeMap<_, BTreeMap<_, Vec<usize>>> = BTreeMap::new();
        for (at, runs) in workloads.iter().enumerate() {
            for (name, value) in &runs.labels {
                let values = places.entry(&**name).or_default();
                values.entry(&**value).or_default().push(at);
            }
        }
        Self(places)
    }

    /// Those that have the rarest label of a selector.
    fn candidates(&self, selector: &Labels) -> &[usize] {
        let places = selector.iter().map(|(name, value)| {
            let places = self.0.get(&**name).and_then(|values| values.get(&**value));
            places.map_or(&[][..], Vec::as_slice)
        });
        places.min_by_key(|places| places.len()).unwrap_or_default()
    }
}
