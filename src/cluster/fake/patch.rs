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

    /// A strategic merge patch: entries are found by their name.
    pub(super) fn patch(&self, asked: &Asked) -> (u16, Value) {
        let patch: Value = serde_json::from_slice(&asked.body).unwrap();
        let Some(mut object) = self
            .state
            .lock()
            .unwrap()
            .objects
            .get(&asked.place())
            .cloned()
        else {
            return (404, status(404));
        };
        if patch["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return (409, status(409));
        }
        for entry in patch["webhooks"].as_array().unwrap() {
            let entries = object["webhooks"].as_array_mut().unwrap();
            let found = entries.iter_mut().find(|old| old["name"] == entry["name"]);
            found.unwrap()["clientConfig"]["caBundle"] = entry["clientConfig"]["caBundle"].clone();
        }
        self.put(object);
        (200, self.get(&asked.name))
    }
}
