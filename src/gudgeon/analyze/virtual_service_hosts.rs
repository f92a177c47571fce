//! Hosts of several VirtualServices for sidecars, of which discovery takes the oldest.

use std::collections::{BTreeMap, BTreeSet};

use super::audience::Claimants;
use super::codes;
use super::inventory::{Inventory, Item, texts};
use super::messages::{Message, push};

fn is_of_mesh(item: &Item) -> bool {
    let gateways = texts(&item.body, "/gateways");
    gateways.is_empty() || gateways.iter().any(|one| one == "mesh")
}

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
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
            push(messages, &codes::MESH_HOSTS, item, "spec.hosts", message);
        }
    }
}
