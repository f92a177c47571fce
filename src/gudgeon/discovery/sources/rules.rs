//! Configuration that comes object by object: what of it is used, and all of it for those who look.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::Object;
use cluster::registry::{AnyConfigured, Contribution, ObjectKey, SourceId, Written};
use cluster::{Origin, Revision};
use serde_json::{Value, json};

use crate::discovery::facts::{Counts, Facts, ROUTES};
use crate::discovery::inert::RuleCounts;
use crate::mcp::ReceivedObject;

/// All that there is now.
#[derive(Debug, Default)]
pub(super) struct Rules {
    said: Contribution,
    known: BTreeMap<(Arc<str>, Arc<str>), LastObject>,
}

/// An object as it came last.
#[derive(Debug)]
struct LastObject {
    taken: Arc<ReceivedObject>,
    origin: Origin,
    accepted: bool,
    messages: Vec<String>,
}

impl Rules {
    /// The rules that are used.
    pub(super) fn said(&self) -> Contribution {
        self.said.clone()
    }

    /// All objects, used or not; made on demand.
    pub(super) fn written(&self) -> impl Iterator<Item = Written> {
        self.known.values().map(LastObject::written)
    }

    /// Says how much of it can be used, beside objects that are no rules.
    pub(super) fn count(
        &self,
        facts: &Facts,
        source: &SourceId,
        objects: BTreeMap<&'static str, usize>,
    ) {
        let (used, rejected): (Vec<_>, Vec<_>) =
            self.known.values().partition(|known| known.accepted);
        let objects = objects.into_iter().filter(|(_, count)| *count > 0);
        let mut counts: Counts = objects.map(|(kind, count)| (kind.into(), count)).collect();
        for known in &used {
            let kind = known.taken.object.kind.kind;
            *counts.entry(kind.into()).or_default() += 1;
        }
        facts.count(source, counts);
        let rejected = rejected.into_iter().map(|known| {
            let object = &known.taken.object;
            let name = format!("{}/{}", object.namespace, object.name);
            (object.kind.kind.into(), name)
        });
        facts.reject(source, rejected);
        let mut counts = RuleCounts::default();
        for known in self.known.values() {
            let object = &known.taken.object;
            counts.add(object.kind.group, object.kind.kind);
        }
        facts.rule(source, counts);
        let routes = used.into_iter();
        let routes = routes.filter(|known| known.taken.object.kind.kind == ROUTES);
        facts.route(source, routes.count());
    }

    /// Puts an object that came or changed under its collection and name. An error says why discovery cannot use it; its last
    /// usable version then stays.
    pub(super) fn set(
        &mut self,
        collection: &Arc<str>,
        name: &Arc<str>,
        taken: &Arc<ReceivedObject>,
        origin: &Origin,
    ) -> Result<(), String> {
        let read = AnyConfigured::of(&taken.object, taken.created).map(|one| {
            if let Some(one) = one {
                self.said.configuration.set(one);
            }
        });
        let message = read.as_ref().err().cloned();
        let known = LastObject {
            taken: Arc::clone(taken),
            origin: origin.clone(),
            accepted: message.is_none(),
            messages: message.into_iter().collect(),
        };
        let place = (Arc::clone(collection), Arc::clone(name));
        self.known.insert(place, known);
        read
    }

    /// An object went.
    pub(super) fn remove(&mut self, collection: &Arc<str>, name: &Arc<str>) {
        let place = (Arc::clone(collection), Arc::clone(name));
        let Some(known) = self.known.remove(&place) else {
            return;
        };
        let object = &known.taken.object;
        let configuration = &mut self.said.configuration;
        configuration.remove(object.kind.kind, &key(object));
    }
}

fn key(object: &Object) -> ObjectKey {
    (
        object.namespace.as_str().into(),
        object.name.as_str().into(),
    )
}

/// The spec of an object, whose body was valid when it came.
fn spec(object: &Object) -> Result<Value, String> {
    let read = Object::of_resource(object.kind, &object.full_name(), object.body.clone());
    read.map(|object| object.spec)
        .map_err(|cause| cause.to_string())
}

impl LastObject {
    fn written(&self) -> Written {
        let object = &self.taken.object;
        let (namespace, name) = key(object);
        let spec = spec(object).unwrap_or_default();
        let version = object.kind.versions.last().copied().unwrap_or_default();
        Written {
            api_version: format!("{}/{version}", object.kind.group).into(),
            kind: object.kind.kind.into(),
            namespace,
            name,
            metadata: metadata(object),
            spec: spec.into(),
            origin: self.origin.clone(),
            accepted: self.accepted,
            messages: self.messages.clone(),
            revision: Revision::default(),
        }
    }
}

fn metadata(object: &Object) -> Value {
    let mut metadata = json!({"name": object.name});
    if let Value::Object(fields) = &mut metadata {
        if !object.namespace.is_empty() {
            fields.insert("namespace".to_owned(), json!(object.namespace));
        }
        let texts = [
            ("labels", &object.labels),
            ("annotations", &object.annotations),
        ];
        for (name, texts) in texts.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            fields.insert(name.to_owned(), json!(texts));
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::DISTRIBUTION;

    fn taken(kind: &str, spec: &Value) -> Arc<ReceivedObject> {
        let written = json!({
            "apiVersion": "networking.istio.io/v1", "kind": kind,
            "metadata": {"name": "a", "namespace": "n", "annotations": {DISTRIBUTION: "PreferClose"}},
            "spec": spec,
        });
        Arc::new(ReceivedObject {
            object: Arc::new(api::config::read(&written).0.unwrap()),
            created: Some(7),
            origin: None,
        })
    }

    fn entry(host: &str) -> Arc<ReceivedObject> {
        let port = json!({"number": 80, "name": "http", "protocol": "HTTP"});
        taken(
            "ServiceEntry",
            &json!({"hosts": [host], "ports": [port], "resolution": "DNS"}),
        )
    }

    #[test]
    fn objects_come_change_and_go() {
        let mut rules = Rules::default();
        let (collection, name): (Arc<str>, Arc<str>) = ("entries".into(), "n/a".into());
        let source = Origin::Source("mcp://x".into());
        let set = |rules: &mut Rules, taken: &Arc<ReceivedObject>| {
            rules.set(&collection, &name, taken, &source)
        };
        set(&mut rules, &entry("a.example")).unwrap();
        let said = rules.said();
        let [one] = &said.configuration.entries.values().collect::<Vec<_>>()[..] else {
            panic!("{said:?}")
        };
        assert_eq!(
            (&*one.namespace, &*one.name, one.created),
            ("n", "a", Some(7))
        );
        assert!(one.prefers_close);
        set(&mut rules, &entry("a.example")).unwrap();
        assert!(Arc::ptr_eq(
            &said.configuration.entries,
            &rules.said().configuration.entries
        ));
        let written = rules.written().next().unwrap();
        assert!(written.accepted && written.spec.value()["hosts"][0] == "a.example");
        // Bytes that are no such thing; what it said before stays.
        let mut object = (*entry("a.example").object).clone();
        object.body = vec![0xff].into();
        let broken = Arc::new(ReceivedObject {
            object: Arc::new(object),
            created: None,
            origin: None,
        });
        assert!(set(&mut rules, &broken).is_err());
        assert!(Arc::ptr_eq(
            &said.configuration.entries,
            &rules.said().configuration.entries
        ));
        let written = rules.written().next().unwrap();
        assert!(!written.accepted && !written.messages.is_empty());
        assert_eq!(&*written.api_version, "networking.istio.io/v1");
        rules.remove(&collection, &name);
        assert!(rules.said().configuration.entries.is_empty() && rules.written().next().is_none());
        // A kind that discovery does not act on is there to be looked at.
        let role = json!({
            "apiVersion": "rbac.istio.io/v1alpha1", "kind": "ServiceRole",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"rules": []},
        });
        let role = Arc::new(ReceivedObject {
            object: Arc::new(api::config::read(&role).0.unwrap()),
            created: None,
            origin: None,
        });
        set(&mut rules, &role).unwrap();
        assert_eq!(
            (rules.written().count(), rules.said()),
            (1, Contribution::default())
        );
    }
}
