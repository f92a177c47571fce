//! PeerAuthentications of one namespace for the same workloads: one alone counts.

use std::collections::BTreeMap;

use api::model::Labels;

use super::audience::Named;
use super::codes;
use super::inventory::{Inventory, Item, labels};
use super::messages::{Message, push};

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let mut by_selector: BTreeMap<(&str, Labels), Vec<&Item>> = BTreeMap::new();
    for item in all.of("PeerAuthentication") {
        let selector = labels(item.body.pointer("/selector/matchLabels"));
        let place = (item.namespace.as_str(), selector);
        by_selector.entry(place).or_default().push(item);
    }
    for ((_, selector), items) in by_selector {
        if items.len() < 2 {
            continue;
        }
        let names = Named::of(&items);
        let same = match selector.is_empty() {
            true => "have no selector",
            false => "have one selector",
        };
        for item in items {
            let text = format!("{names} {same}: the oldest alone counts, or the first by name");
            push(messages, &codes::PEERS_SELECT, item, "", text);
        }
    }
}
