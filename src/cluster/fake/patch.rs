//! Patches, of the two kinds that are sent.

use serde_json::Value;

use super::Fake;
use super::wire::{Asked, status};

impl Fake {
    /// A merge patch of a status, which has one level here.
    pub(super) fn patch_status(&self, asked: &Asked, name: &str) -> (u16, Value) {
        let patch: Value = serde_json::from_slice(&asked.body).unwrap();
        let place = (asked.kind.clone(), name.to_owned());
        let Some(mut object) = self.state.lock().unwrap().objects.get(&place).cloned() else {
            return (404, status(404));
        };
        if patch["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return (409, status(409));
        }
        for (field, value) in patch["status"].as_object().unwrap() {
            object["status"][field] = value.clone();
        }
        self.put_in(&asked.kind, object.clone());
        (200, object)
    }

    /// Applies a strategic merge patch: entries are found by their name. A patch without effect is no event.
    pub(super) fn patch(&self, asked: &Asked) -> (u16, Value) {
        let patch: Value = serde_json::from_slice(&asked.body).unwrap();
        let Some(before) = self.find_in(&asked.kind, &asked.name) else {
            return (404, status(404));
        };
        if patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] {
            return (409, status(409));
        }
        let mut object = before.clone();
        for entry in patch["webhooks"].as_array().unwrap() {
            let entries = object["webhooks"].as_array_mut().unwrap();
            match entries.iter_mut().find(|old| old["name"] == entry["name"]) {
                Some(found) => merge(found, entry),
                None => entries.push(entry.clone()),
            }
        }
        if object != before {
            self.put_in(&asked.kind, object);
        }
        (200, self.find_in(&asked.kind, &asked.name).unwrap())
    }
}

/// Merges maps, unless they have a directive.
fn merge(old: &mut Value, new: &Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            if new.contains_key("$patch") {
                old.clear();
            }
            for (key, value) in new.iter().filter(|(key, _)| *key != "$patch") {
                merge(old.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (old, new) => *old = new.clone(),
    }
}
