//! Patches, of the kinds that are sent.

use serde_json::{Value, json};

use super::Fake;
use super::wire::{FakeRequest, status, value};

impl Fake {
    /// A merge patch of a status, which has one level here.
    pub(super) fn patch_status(&self, asked: &FakeRequest, name: &str) -> (u16, Value) {
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

    /// Server-side apply of a status, which has one level here: the manager's fields are those that it applied last. An apply
    /// without effect is no event. A status that loses all of its fields is `null`, which is no object.
    pub(super) fn apply_status(&self, asked: &FakeRequest, name: &str) -> (u16, Value) {
        let patch: Value = serde_json::from_slice(&asked.body).unwrap();
        let Some(before) = self.find_in(&asked.kind, name) else {
            return (404, status(404));
        };
        if self.is_broken(name) {
            return (500, status(500));
        }
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != before["metadata"]["resourceVersion"] {
            return (409, status(409));
        }
        let manager = value(&asked.query, "fieldManager").unwrap();
        let mut object = before.clone();
        let entries = object["metadata"]["managedFields"].take();
        let mut entries = entries.as_array().cloned().unwrap_or_default();
        let is_its =
            |entry: &Value| entry["manager"] == *manager && entry["subresource"] == "status";
        let empty = serde_json::Map::new();
        let of_status = |fields: &Value| fields["f:status"].as_object().cloned();
        let old = entries.iter().find(|entry| is_its(entry)).cloned();
        for field in old
            .as_ref()
            .and_then(|old| of_status(&old["fieldsV1"]))
            .iter()
            .flat_map(|all| all.keys())
        {
            let fields = object["status"].as_object_mut().unwrap();
            fields.remove(field.trim_start_matches("f:"));
        }
        entries.retain(|entry| !is_its(entry));
        let new = patch["status"].as_object().unwrap_or(&empty);
        let is_empty = object["status"]
            .as_object()
            .is_none_or(serde_json::Map::is_empty);
        if old.is_some() && is_empty && new.is_empty() {
            return (422, status(422));
        }
        for (field, value) in new {
            object["status"][field] = value.clone();
        }
        if !new.is_empty() {
            let owned: serde_json::Map<_, _> = new
                .keys()
                .map(|field| (format!("f:{field}"), json!({})))
                .collect();
            entries.push(json!({
                "manager": manager, "operation": "Apply", "subresource": "status",
                "fieldsV1": {"f:status": owned},
            }));
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        match entries.is_empty() {
            true => drop(metadata.remove("managedFields")),
            false => drop(metadata.insert("managedFields".to_owned(), json!(entries))),
        }
        if object != before {
            self.put_in(&asked.kind, object);
        }
        (200, self.find_in(&asked.kind, name).unwrap())
    }

    /// Applies a strategic merge patch: entries are found by their name. A patch without effect is no event.
    pub(super) fn patch(&self, asked: &FakeRequest) -> (u16, Value) {
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
