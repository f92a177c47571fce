//! Objects that are written twice.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::codes;
use super::inventory::Item;
use super::messages::Message;

/// The places of objects, by group, kind, namespace and name.
#[derive(Default)]
pub(super) struct Places(HashMap<[String; 4], String>);

impl Places {
    /// Returns a message for an object that another one is before; it has no part in what is found else, for a cluster has one of
    /// them.
    pub(super) fn duplicate(&mut self, item: &Item, place: String) -> Option<Message> {
        // The API server will make a name.
        if item.name.is_empty() {
            return None;
        }
        let key = [&item.group, &item.kind, &item.namespace, &item.name].map(String::clone);
        match self.0.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(place);
                None
            }
            Entry::Occupied(entry) => Some(Message {
                code: &codes::INVALID,
                item: item.number,
                path: "metadata.name".to_owned(),
                text: format!("duplicate of {}", entry.get()),
            }),
        }
    }
}
