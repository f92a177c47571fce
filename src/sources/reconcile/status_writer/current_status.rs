//! Objects reduced to their status. Other writers may write any value there: it is read as it is.

use serde::Deserialize;
use serde_json::{Value, json};

use super::MANAGER;
use crate::catalogue::status_condition::{conditions, has_conditions, has_messages, has_others};
use crate::kind::Key;

/// A page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusPage {
    metadata: StatusPageEnd,
    items: Option<Vec<CurrentStatus>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusPageEnd {
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl StatusPage {
    fn items(&self) -> impl Iterator<Item = &CurrentStatus> {
        self.items.iter().flatten()
    }

    pub(super) fn first(&self) -> Option<&CurrentStatus> {
        self.items().next()
    }

    /// The objects of whose status this program has written something.
    pub(super) fn ours(&self) -> impl Iterator<Item = Key> {
        let ours = self.items().filter(|item| item.is_ours());
        ours.map(|item| Key::new(&item.metadata.namespace, &item.metadata.name))
    }

    /// The token of the next page.
    pub(super) fn next(self) -> Option<String> {
        self.metadata.token.filter(|token| !token.is_empty())
    }
}

/// An object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CurrentStatus {
    metadata: ObjectMeta,
    status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMeta {
    name: String,
    namespace: String,
    uid: String,
    generation: i64,
    resource_version: String,
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
    /// Returns true if this program has messages in the status. Servers before 1.22 do not name the subresource.
    fn is_ours(&self) -> bool {
        let messages = self.fields.pointer("/f:status/f:validationMessages");
        self.manager == MANAGER && matches!(&*self.subresource, "" | "status") && messages.is_some()
    }
}

impl CurrentStatus {
    pub(super) const fn generation(&self) -> i64 {
        self.metadata.generation
    }

    pub(super) const fn uid(&self) -> &str {
        self.metadata.uid.as_str()
    }

    /// Returns true if messages of this program are there; it leaves an empty list.
    fn is_ours(&self) -> bool {
        self.metadata.managed_fields.iter().any(Manager::is_ours)
            && self.status.get("validationMessages") != Some(&json!([]))
    }

    /// The body that brings the status up to date; `None` where it is.
    pub(super) fn status_patch(
        &self,
        api_version: &str,
        kind: &str,
        messages: &[Value],
    ) -> Option<Value> {
        let ObjectMeta {
            name,
            namespace,
            generation,
            resource_version,
            ..
        } = &self.metadata;
        let mut metadata = json!({"name": name});
        if let (false, Some(fields)) = (namespace.is_empty(), metadata.as_object_mut()) {
            fields.insert("namespace".to_owned(), json!(namespace));
        }
        let there = self.status.get("conditions").unwrap_or(&Value::Null);
        let conditions = conditions(there, messages, *generation);
        // The list is one field: where others have a part of it, it is written as it was seen or not at all.
        if let (true, Some(fields)) = (has_others(&conditions), metadata.as_object_mut()) {
            fields.insert("resourceVersion".to_owned(), json!(resource_version));
        }
        let mut status = json!({});
        let fields = status.as_object_mut()?;
        if !conditions.is_empty() {
            fields.insert("conditions".to_owned(), json!(conditions));
        }
        if messages.is_empty() {
            if !self.is_ours() {
                return None;
            }
            // The server makes `null` of a status that nothing is left of, also of one that is applied empty, and definitions want
            // an object.
            fields.insert("validationMessages".to_owned(), json!([]));
        } else {
            let observed = json!(generation.to_string());
            let field = |name| self.status.get(name).unwrap_or(&Value::Null);
            if has_messages(field("validationMessages"), messages)
                && *field("observedGeneration") == observed
                && there
                    .as_array()
                    .is_some_and(|there| has_conditions(there, &conditions))
            {
                return None;
            }
            fields.insert("validationMessages".to_owned(), json!(messages));
            fields.insert("observedGeneration".to_owned(), observed);
        }
        Some(
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": status}),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn seen(status: &Value, managers: &Value) -> CurrentStatus {
        let object = json!({
            "apiVersion": "g/v1", "kind": "K", "spec": {},
            "metadata": {"name": "a", "namespace": "n", "generation": 3, "resourceVersion": "7", "managedFields": managers},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_status_is_written_where_it_says_something_else() {
        let of = |subresource, fields| json!({"manager": MANAGER, "subresource": subresource, "fieldsV1": {"f:status": fields}});
        let ours = json!([of("status", json!({"f:validationMessages": {}}))]);
        let others = json!([{"manager": "kubectl", "fieldsV1": {"f:status": {"f:x": {}}}},
            of("scale", json!({"f:validationMessages": {}})), of("status", json!({"f:conditions": {}}))]);
        let messages = [json!({"level": "WARNING", "message": "x"})];
        let bare = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "namespace": "n"},
            "status": {"validationMessages": []},
        });
        let condition = conditions(&Value::Null, &messages, 3);
        let with = |all: &[Value], written: Value, generation: Value| json!({"validationMessages": written, "observedGeneration": generation, "conditions": all});
        let mut full = bare.clone();
        full["status"] = with(&condition, json!(messages), json!("3"));
        let old = with(&condition, json!(messages), json!("2"));
        let number = with(&condition, json!(messages), json!(3));
        let without = json!({"validationMessages": messages, "observedGeneration": "3"});
        // As Istio's definitions let it be.
        let dropped = with(&condition, json!([{"level": "WARNING"}]), json!("3"));
        let theirs = json!({"type": "Healthy", "status": "True"});
        let beside = json!({"conditions": [theirs]});
        let both = [theirs.clone(), condition[0].clone()];
        let version = |status: &Value| {
            let mut patch = bare.clone();
            patch["metadata"]["resourceVersion"] = json!("7");
            patch["status"] = status.clone();
            patch
        };
        let mixed = version(&with(&both, json!(messages), json!("3")));
        let left = version(&json!({"conditions": [theirs], "validationMessages": []}));
        for (status, managers, messages, wanted) in [
            (&json!({}), &others, &messages[..], Some(&full)),
            (&old, &ours, &messages, Some(&full)),
            (&number, &ours, &messages, Some(&full)),
            (&full["status"], &ours, &messages, None),
            (&dropped, &ours, &messages, None),
            (&without, &ours, &messages, Some(&full)),
            (&beside, &others, &messages, Some(&mixed)),
            (&mixed["status"], &ours, &messages, None),
            (&mixed["status"], &ours, &[], Some(&left)),
            (&beside, &others, &[], None),
            (&left["status"], &ours, &[], None),
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
            let patch = seen(status, managers).status_patch("g/v1", "K", messages);
            assert_eq!(patch.as_ref(), wanted, "{status} {managers} {messages:?}");
        }
    }
}
