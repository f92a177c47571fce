//! Any object of an API server, with the fields that this crate reads. One type for all kinds: the watch knows its kind.

use api::well_known::LAST_APPLIED;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::kind::{Key, Kind, Resource};

/// An object. Two objects are equal if this crate would treat them the same.
#[derive(Debug)]
pub(super) struct WatchedObject {
    key: Key,
    pub(super) uid: Box<str>,
    /// The length and the hash of the content.
    pub(super) content: (usize, u64),
    pub(super) version: Box<str>,
    /// `metadata.generation`; 0 if unknown.
    pub(super) generation: i64,
    /// `status.validationMessages`.
    pub(super) messages: Option<Box<RawValue>>,
    /// `status.conditions` of an object that is neither a definition nor a pod.
    pub(super) conditions: Option<Box<RawValue>>,
    /// The object's text until it is taken: each text is decoded once.
    text: Mutex<Option<Box<str>>>,
}

impl PartialEq for WatchedObject {
    fn eq(&self, other: &Self) -> bool {
        // The text is gone once it is taken, so that the content's length and hash stand for it.
        (&self.key, &self.uid, self.content) == (&other.key, &other.uid, other.content)
    }
}

/// An object as it is watched. With its status it differs after a write of its messages or conditions.
#[derive(Debug)]
pub(super) struct Watched<const WITH_STATUS: bool>(pub(super) Arc<WatchedObject>);

impl<const WITH_STATUS: bool> PartialEq for Watched<WITH_STATUS> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 && (!WITH_STATUS || self.0.status() == other.0.status())
    }
}

impl<'de, const WITH_STATUS: bool> Deserialize<'de> for Watched<WITH_STATUS> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        WatchedObject::deserialize(from).map(|object| Self(Arc::new(object)))
    }
}

impl<const WITH_STATUS: bool> Kind for Watched<WITH_STATUS> {
    /// A placeholder: each kind is read from a resource of its own.
    const RESOURCE: Resource = Resource {
        group: "",
        version: "v1",
        name: "*",
    };

    fn key(&self) -> Key {
        self.0.key.clone()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    /// The object may be refused, and then the last good version is served on; that is not known yet.
    fn keeps_last_good(&self) -> bool {
        true
    }
}

impl WatchedObject {
    /// Bytes of the content.
    pub(super) const fn size(&self) -> usize {
        self.content.0
    }

    /// The fields of the status that are written.
    fn status(&self) -> [Option<&str>; 2] {
        [&self.messages, &self.conditions].map(|field| field.as_deref().map(RawValue::get))
    }

    /// Takes the text as JSON; `None` if it was taken before.
    pub(super) fn take(&self) -> Option<Box<str>> {
        self.text
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialMetadata {
    name: Box<str>,
    namespace: Option<Box<str>>,
    uid: Option<Box<str>>,
    labels: Option<Box<RawValue>>,
    annotations: Option<BTreeMap<Box<str>, Box<RawValue>>>,
    creation_timestamp: Option<Box<RawValue>>,
    resource_version: Option<Box<str>>,
    generation: Option<i64>,
}

/// The fields of a status that are read: a pod's address, a definition's conditions, and the messages written by this
/// program.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<Box<RawValue>>,
    accepted_names: Option<Box<RawValue>>,
    conditions: Option<Box<RawValue>>,
    validation_messages: Option<Box<RawValue>>,
}

/// Fields in the order of the text. They are decoded after the object's key is known: an object that is nested too deeply
/// must not spoil a whole list.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Fields;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Fields(all))
            }
        }
        from.deserialize_map(All)
    }
}

impl<'de> Deserialize<'de> for WatchedObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let Fields(fields) = Fields::deserialize(from)?;
        let mut metadata = PartialMetadata::default();
        let mut text = Text::default();
        let (mut messages, mut conditions) = (None, None);
        for (name, value) in &fields {
            match name.as_str() {
                "metadata" => {
                    metadata = serde_json::from_str(value.get()).map_err(D::Error::custom)?;
                }
                "status" => {
                    // Other fields of the status are not read.
                    let mut status: PartialStatus =
                        serde_json::from_str(value.get()).unwrap_or_default();
                    messages = status.validation_messages.take();
                    if status.accepted_names.is_none() && status.pod_ip.is_none() {
                        conditions = status.conditions.take();
                    }
                    text.add(name, &of_status(status));
                }
                // Items of a list lack these fields, and the client knows them.
                "apiVersion" | "kind" => {}
                name => text.add(name, value.get()),
            }
        }
        let key = Key {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone(),
        };
        let version = metadata.resource_version.take().unwrap_or_default();
        let uid = metadata.uid.take().unwrap_or_default();
        let generation = metadata.generation.unwrap_or_default();
        let metadata = of_metadata(metadata);
        let content = text.content(&metadata);
        // `resourceVersion` is added afterwards: a new version with equal content is no change.
        let with_version = serde_json::Value::from(&*version);
        text.add(
            "metadata",
            &format!("{{{metadata},\"resourceVersion\":{with_version}}}"),
        );
        Ok(Self {
            key,
            uid,
            content,
            version,
            generation,
            messages,
            conditions,
            text: Mutex::new(Some(text.end())),
        })
    }
}

/// JSON, field by field.
#[derive(Default)]
struct Text(String);

impl Text {
    fn add(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        field(&mut self.0, name, value);
    }

    fn content(&self, more: &str) -> (usize, u64) {
        let mut hasher = DefaultHasher::new();
        (self.0.as_str(), more).hash(&mut hasher);
        (self.0.len().saturating_add(more.len()), hasher.finish())
    }

    fn end(mut self) -> Box<str> {
        self.0.push('}');
        self.0.into()
    }
}

fn field(to: &mut String, name: &str, value: &str) {
    to.push_str(&serde_json::Value::from(name).to_string());
    to.push(':');
    to.push_str(value);
}

fn of_status(status: PartialStatus) -> String {
    let mut all = Text::default();
    if let Some(address) = status.pod_ip {
        all.add("podIP", address.get());
    }
    if let Some(conditions) = status.accepted_names.and(status.conditions) {
        all.add("conditions", conditions.get());
    }
    if all.0.is_empty() {
        "{}".to_owned()
    } else {
        all.end().into()
    }
}

/// Renders the fields without braces and without the version.
fn of_metadata(metadata: PartialMetadata) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = String::new();
    field(&mut text, "name", &quoted(&metadata.name));
    let mut add = |name: &str, value: &str| {
        text.push(',');
        field(&mut text, name, value);
    };
    if let Some(namespace) = metadata.namespace {
        add("namespace", &quoted(&namespace));
    }
    if let Some(labels) = metadata.labels {
        add("labels", labels.get());
    }
    if let Some(mut annotations) = metadata.annotations {
        annotations.remove(LAST_APPLIED);
        if let Ok(annotations) = to_raw_value(&annotations) {
            add("annotations", annotations.get());
        }
    }
    if let Some(time) = metadata.creation_timestamp {
        add("creationTimestamp", time.get());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(value: &Value) -> WatchedObject {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn object() -> Value {
        json!({
            "apiVersion": "x/v1", "kind": "X",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "1"},
                "annotations": {LAST_APPLIED: "{}", "x": "y\""}, "managedFields": [{"a": 1}],
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"b": 1, "a": [2]}, "extra": null, "status": {"x": 1},
        })
    }

    #[test]
    fn an_object_keeps_the_order_of_its_fields() {
        let seen = seen(&object());
        assert_eq!((seen.key.to_string(), &*seen.uid), ("n/a".to_owned(), "u"));
        let text: Value = serde_json::from_str(&seen.take().unwrap()).unwrap();
        assert_eq!(
            text.to_string(),
            r#"{"spec":{"b":1,"a":[2]},"extra":null,"status":{},"metadata":{"name":"a","namespace":"n","labels":{"l":"1"},"annotations":{"x":"y\""},"creationTimestamp":"2026-01-01T00:00:00Z","resourceVersion":"7"}}"#
        );
        assert!(seen.take().is_none());
    }

    #[test]
    fn unread_fields_cause_no_change() {
        let first = seen(&object());
        for (path, value) in [
            ("/metadata/resourceVersion", json!("8")),
            ("/metadata/managedFields", json!([])),
            (
                "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
                json!("x"),
            ),
            ("/status", json!({"x": 2, "conditions": [1]})),
            ("/status", json!({"validationMessages": [1]})),
            ("/status", json!(5)),
        ] {
            let mut other = object();
            *other.pointer_mut(path).unwrap() = value;
            assert_eq!(first, seen(&other), "{path}");
        }
        for (path, value) in [
            ("/metadata/uid", json!("v")),
            ("/metadata/labels/l", json!("2")),
            ("/metadata/annotations/x", json!("z")),
            ("/spec/b", json!(2)),
            ("/extra", json!(1)),
            ("/status", json!({"podIP": "10.0.0.1"})),
            ("/status", json!({"acceptedNames": {}, "conditions": [1]})),
        ] {
            let mut other = object();
            *other.pointer_mut(path).unwrap() = value;
            assert_ne!(first, seen(&other), "{path}");
        }
    }

    #[test]
    fn a_status_that_somebody_writes_is_a_change_where_it_is_watched() {
        let plain = |value: &Value| Watched::<false>(Arc::new(seen(value)));
        let with_status = |value: &Value| Watched::<true>(Arc::new(seen(value)));
        for (status, is_change) in [
            (json!({"x": 2}), false),
            (json!({"validationMessages": []}), true),
            (json!({"conditions": [1]}), true),
        ] {
            let mut other = object();
            other["status"] = status;
            assert_eq!(plain(&object()), plain(&other), "{other}");
            let is_other = with_status(&object()) != with_status(&other);
            assert_eq!(is_other, is_change, "{other}");
        }
    }

    #[test]
    fn one_that_is_nested_too_deeply_does_not_spoil_a_list() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let text = format!(
            r#"[{{"metadata": {{"name": "a"}}, "spec": {deep}}}, {{"metadata": {{"name": "b"}}}}]"#
        );
        let all: Vec<WatchedObject> = serde_json::from_str(&text).unwrap();
        assert_eq!(all.len(), 2);
        assert!(all[0].take().unwrap().contains(&deep));
    }
}
