//! Objects as far as their status matters. Whoever may write a status may write anything there: it is read as it is.

use serde::Deserialize;
use serde_json::{Value, json};

use super::MANAGER;
use crate::kind::Key;

/// A page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusPage {
    metadata: StatusPageEnd,
    items: Option<Vec<SeenStatus>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusPageEnd {
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl StatusPage {
    fn items(&self) -> impl Iterator<Item = &SeenStatus> {
        self.items.iter().flatten()
    }

    pub(super) fn first(&self) -> Option<&SeenStatus> {
        self.items().next()
    }

    /// The objects of whose status this program has written something.
    pub(super) fn ours(&self) -> impl Iterator<Item = Key> {
        let ours = self.items().filter(|seen| seen.is_ours());
        ours.map(|seen| Key::new(&seen.metadata.namespace, &seen.metadata.name))
    }

    /// The token of the next page.
    pub(super) fn next(self) -> Option<String> {
        self.metadata.token.filter(|token| !token.is_empty())
    }
}

/// An object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SeenStatus {
    metadata: ObjectMeta,
    status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMeta {
    name: String,
    namespace: String,
    generation: i64,
    managed_fields: Vec<Manager>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Manager {
    manager: String,
    subresource: String,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

impl Manager {
    /// Returns whether this program has written something of the status. Servers before 1.22 do not name the subresource.
    fn is_ours(&self) -> bool {
        let has_fields = || {
            let fields = self.fields.get("f:status").and_then(Value::as_object);
            fields.is_some_and(|fields| !fields.is_empty())
        };
        self.manager == MANAGER && matches!(&*self.subresource, "" | "status") && has_fields()
    }
}

impl SeenStatus {
    pub(super) const fn generation(&self) -> i64 {
        self.metadata.generation
    }

    fn is_ours(&self) -> bool {
        self.metadata.managed_fields.iter().any(Manager::is_ours)
    }

    /// The body that brings the status up to date; `None` where it is.
    pub(super) fn patch(&self, api_version: &str, kind: &str, messages: &[Value]) -> Option<Value> {
        let ObjectMeta {
            name,
            namespace,
            generation,
            ..
        } = &self.metadata;
        let mut metadata = json!({"name": name});
        if let (false, Some(fields)) = (namespace.is_empty(), metadata.as_object_mut()) {
            fields.insert("namespace".to_owned(), json!(namespace));
        }
        let mut patch = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        let fields = patch.as_object_mut()?;
        if messages.is_empty() {
            // Without it the server would make `null` of a status that has no other fields, and definitions want an object.
            fields.insert("status".to_owned(), json!({}));
            return self.is_ours().then_some(patch);
        }
        let said =
            json!({"validationMessages": messages, "observedGeneration": generation.to_string()});
        let is_there = |(name, value): (&String, &Value)| self.status.get(name) == Some(value);
        if said.as_object()?.iter().all(is_there) {
            return None;
        }
        fields.insert("status".to_owned(), said);
        Some(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn seen(status: &Value, managers: &Value) -> SeenStatus {
        let object = json!({
            "apiVersion": "g/v1", "kind": "K", "spec": {},
            "metadata": {"name": "a", "namespace": "n", "generation": 3, "managedFields": managers},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_status_is_written_where_it_says_something_else() {
        let of = |subresource, fields| json!({"manager": MANAGER, "subresource": subresource, "fieldsV1": {"f:status": fields}});
        let ours = json!([of("status", json!({"f:validationMessages": {}}))]);
        let others = json!([{"manager": "kubectl", "fieldsV1": {"f:status": {"f:x": {}}}},
            of("scale", json!({"f:x": {}})), of("status", json!({}))]);
        let messages = [json!({"level": "WARNING", "message": "x"})];
        let bare = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "namespace": "n"}, "status": {},
        });
        let mut full = bare.clone();
        full["status"] = json!({"validationMessages": messages, "observedGeneration": "3"});
        let old = json!({"validationMessages": messages, "observedGeneration": "2"});
        let number = json!({"validationMessages": messages, "observedGeneration": 3});
        for (status, managers, messages, wanted) in [
            (&json!({}), &others, &messages[..], Some(&full)),
            (&old, &ours, &messages, Some(&full)),
            (&number, &ours, &messages, Some(&full)),
            (&full["status"], &ours, &messages, None),
            // The same of whoever wrote it.
            (&full["status"], &others, &messages, None),
            (&full["status"], &ours, &[], Some(&bare)),
            (
                &json!({"validationMessages": [{"by": "another"}]}),
                &others,
                &[],
                None,
            ),
        ] {
            let patch = seen(status, managers).patch("g/v1", "K", messages);
            assert_eq!(patch.as_ref(), wanted, "{status} {managers} {messages:?}");
        }
    }
}
