//! Objects that say different things of the same.

use std::collections::{BTreeMap, BTreeSet};

use api::config::discovery_notes::names_nothing;
use serde_json::Value as Json;

use super::audience::Claimants;
use super::codes;
use super::gateways;
use super::inventory::{Inventory, Item, list, text, texts};
use super::messages::Message;
use super::references::push;
use super::{peer_authentications, sidecars};

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    hosts_of_mesh(all, found);
    sidecars::find(all, found);
    peer_authentications::find(all, found);
    gateways::find(all, found);
    rules_for_host(all, found);
    for item in all.of("EnvoyFilter") {
        relative(item, found);
    }
}

fn is_of_mesh(item: &Item) -> bool {
    let gateways = texts(&item.body, "/gateways");
    gateways.is_empty() || gateways.iter().any(|one| one == "mesh")
}

/// Finds hosts of several VirtualServices for sidecars, of which discovery takes the oldest.
fn hosts_of_mesh(all: &Inventory, found: &mut Vec<Message>) {
    let mut by_host: BTreeMap<String, Vec<&Item>> = BTreeMap::new();
    for item in all.of("VirtualService").filter(|item| is_of_mesh(item)) {
        let hosts: BTreeSet<String> = texts(&item.body, "/hosts")
            .iter()
            .map(|host| all.full_host(host, &item.namespace))
            .collect();
        for host in hosts {
            by_host.entry(host).or_default().push(item);
        }
    }
    // A single object has no rival, however many namespaces see it.
    for (host, items) in by_host.into_iter().filter(|(_, items)| items.len() > 1) {
        let mut claimants = Claimants::default();
        items.iter().for_each(|item| claimants.push(item));
        for item in items {
            let Some(others) = claimants.rivals(item) else {
                continue;
            };
            let has = if others.count == 1 { "has" } else { "have" };
            let message = format!(
                "{others} {has} the host {host:?} for sidecars, too: the oldest alone counts"
            );
            push(found, &codes::MESH_HOSTS, item, "spec.hosts", message);
        }
    }
}

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

/// Two of one namespace are merged: of a subset that both have the first counts, and so does the first policy.
fn rules_for_host(all: &Inventory, found: &mut Vec<Message>) {
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
            push(found, &codes::RULES_FOR_HOST, item, "spec.host", message);
        }
    }
}

fn relative(item: &Item, found: &mut Vec<Message>) {
    let priority = item
        .body
        .get("priority")
        .and_then(Json::as_i64)
        .unwrap_or_default();
    if priority != 0 {
        return;
    }
    for (at, patch) in list(&item.body, "/configPatches") {
        let operation = text(patch, "/patch/operation");
        let target = text(patch, "/applyTo");
        // The object has a note about that already.
        if names_nothing(patch) {
            continue;
        }
        let is_relative = match operation {
            "INSERT_BEFORE" | "INSERT_AFTER" => true,
            // The API ignores a REMOVE of these two.
            "REMOVE" => !["ROUTE_CONFIGURATION", "HTTP_ROUTE"].contains(&target),
            "REPLACE" => ["HTTP_FILTER", "NETWORK_FILTER", "VIRTUAL_HOST"].contains(&target),
            _ => false,
        };
        if is_relative {
            let meets = match operation {
                "REMOVE" | "REPLACE" => {
                    "takes away or replaces what another EnvoyFilter may have put there"
                }
                _ => "wants a filter or route that may be another EnvoyFilter's",
            };
            let message = format!(
                "{operation} {meets}: without a priority their age decides which comes first"
            );
            let path = format!("spec.configPatches[{at}].patch.operation");
            push(found, &codes::RELATIVE_PATCH, item, path, message);
        }
    }
}
