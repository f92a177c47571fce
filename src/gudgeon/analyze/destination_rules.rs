//! DestinationRules of one namespace that have the same settings for one host.

use std::collections::{BTreeMap, BTreeSet};

use super::audience::Claimants;
use super::codes;
use super::inventory::{Inventory, Item, list, text};
use super::messages::{Message, push};

/// A setting that two DestinationRules of a host may both have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleSetting<'a> {
    Policy,
    Subset(&'a str),
}

fn rule_settings(item: &Item) -> BTreeSet<RuleSetting<'_>> {
    let policy = item.body.get("trafficPolicy");
    let policy = policy.map(|_| RuleSetting::Policy);
    let subsets = list(&item.body, "/subsets");
    let subsets = subsets.map(|(_, one)| RuleSetting::Subset(text(one, "/name")));
    policy.into_iter().chain(subsets).collect()
}

/// Finds DestinationRules of one namespace that are merged: of a subset that two have, the first counts, and so does the first
/// policy.
pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let mut by_host: BTreeMap<(String, &str), Vec<&Item>> = BTreeMap::new();
    for item in all.of("DestinationRule") {
        if item.body.get("workloadSelector").is_some() {
            continue;
        }
        let host = all.full_host(text(&item.body, "/host"), &item.namespace);
        by_host
            .entry((host, &item.namespace))
            .or_default()
            .push(item);
    }
    for ((host, _), items) in by_host.into_iter().filter(|(_, items)| items.len() > 1) {
        let mut by_setting: BTreeMap<RuleSetting<'_>, Claimants<'_>> = BTreeMap::new();
        for item in &items {
            for setting in rule_settings(item) {
                by_setting.entry(setting).or_default().push(item);
            }
        }
        for item in items {
            let settings = rule_settings(item);
            let others = settings
                .iter()
                .filter_map(|one| by_setting.get(one)?.rival(item));
            let Some(other) = others.min_by_key(|other| other.number) else {
                continue;
            };
            let both = rule_settings(other);
            let twice = both.intersection(&settings).filter_map(|one| match one {
                RuleSetting::Subset(name) => Some(*name),
                RuleSetting::Policy => None,
            });
            let twice: Vec<&str> = twice.collect();
            let what = match twice.is_empty() {
                false => format!("the subset {:?}", twice.join(", ")),
                true => "a traffic policy".to_owned(),
            };
            let message = format!(
                "{}/{} has {what} for {host:?}, too: that of the older one counts",
                other.namespace, other.name
            );
            push(messages, &codes::RULES_FOR_HOST, item, "spec.host", message);
        }
    }
}
