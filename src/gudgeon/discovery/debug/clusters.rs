//! Sources: how far each is, and the configuration that was written in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::{self, Effect};
use api::model::ServiceKey;
use api::networking::{DiscoveryKind as _, ServiceEntry};
use api::security::RequestAuthentication;
use serde_json::{Value, json};
use sources::registry::{Registries, SourceStatus, SyncState, WrittenObject};

use super::nacks::Nacks;
use crate::discovery::hub::Hub;
use crate::discovery::sources::Sources;
use crate::log;
use crate::secrets;

pub(super) fn clusters(hub: &Hub) -> Value {
    let since = hub.sync_states.since();
    let rows = hub
        .with_registries(Registries::sources)
        .into_iter()
        .map(|status| {
            let fact = hub.facts.of(&status.source).unwrap_or_default();
            let (state, error) = match &status.sync_state {
                SyncState::Syncing => ("syncing", None),
                SyncState::Synced => ("synced", None),
                SyncState::Stale { error } => ("stale", Some(error.clone())),
            };
            let objects = objects(hub, &status);
            let error = error.or(fact.error);
            let unreadable = fact.unreadable.as_deref().filter(|_| error.is_none());
            let since = since.get(&status.source).copied().unwrap_or_default();
            json!({
                "id": status.source.cluster.as_str(),
                "provider": status.source.registry.as_str(),
                "state": state,
                "since": log::stamp(hub.clock.wall(since)),
                "objects": objects,
                "error": error.as_deref().or(unreadable),
            })
        });
    Value::Array(rows.collect())
}

/// Counts a source's objects by kind: the objects as written where the source counts them, otherwise the served ones.
pub(crate) fn objects(hub: &Hub, status: &SourceStatus) -> BTreeMap<String, usize> {
    let fact = hub.facts.of(&status.source);
    match fact.map(|fact| fact.counts) {
        Some(counts) if !counts.is_empty() => named(&counts),
        Some(_) | None => named(&status.objects),
    }
}

fn named<K: ToString>(counts: &BTreeMap<K, usize>) -> BTreeMap<String, usize> {
    let counts = counts.iter();
    counts
        .map(|(kind, count)| (kind.to_string(), *count))
        .collect()
}

/// Configuration as it was written; `kind`: only that one.
pub(super) fn written(hub: &Hub, sources: &Sources, kind: Option<&str>) -> Value {
    let derived = DerivedMessages::now(hub).with_nacks(hub);
    let of_ingresses = ingresses(hub, &derived.lost).into_iter();
    let of_ingresses = of_ingresses.filter(|_| kind.is_none_or(|kind| kind == INGRESS));
    let rows = sources
        .written(hub)
        .into_iter()
        .filter(|written| kind.is_none_or(|kind| *written.kind == *kind))
        .map(|written| {
            let mut metadata = written.metadata.clone();
            let mut spec = written.spec.value();
            secrets::redact(&mut metadata);
            secrets::redact(&mut spec);
            json!({
                "apiVersion": &*written.api_version,
                "kind": &*written.kind,
                "metadata": metadata,
                "spec": spec,
                "source": written.origin.to_string(),
                "status": derived.status(&written),
            })
        });
    Value::Array(rows.chain(of_ingresses).collect())
}

const INGRESS: &str = "Ingress";

/// Ingresses with findings, of their own or of the objects made from them.
fn ingresses(hub: &Hub, lost: &BTreeMap<ClusterObjectKey, Vec<String>>) -> Vec<Value> {
    let notes = hub.ingress_notes();
    let mut all = notes.findings;
    for (made, messages) in lost {
        if let Some(ingress) = notes.made_of.get(made) {
            let findings = all.entry(ingress.clone()).or_default();
            findings.extend(messages.iter().cloned());
        }
    }
    let rows = all.into_iter().map(|(key, messages)| {
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": INGRESS,
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": {"accepted": true, "effect": "read", "messages": messages},
        })
    });
    rows.collect()
}

/// Messages about objects that they do not say themselves.
pub(crate) struct DerivedMessages {
    lost: BTreeMap<ClusterObjectKey, Vec<String>>,
    fetched: BTreeMap<(Arc<str>, Arc<str>), Vec<String>>,
    services: BTreeMap<ServiceKey, Vec<String>>,
    /// NACKs of the proxies of this replica: pages show them, and a status that all replicas write does not.
    nacks: Option<Nacks>,
}

impl DerivedMessages {
    pub(crate) fn now(hub: &Hub) -> Self {
        Self {
            lost: lost(hub),
            fetched: hub.jwks.notes(),
            services: lost_services(hub),
            nacks: None,
        }
    }

    fn with_nacks(self, hub: &Hub) -> Self {
        Self {
            nacks: Some(Nacks::now(hub)),
            ..self
        }
    }

    /// The object in the form of the debug pages.
    pub(crate) fn status(&self, written: &WrittenObject) -> Value {
        let (namespace, name) = (&written.namespace, &written.name);
        let key = (written.kind.clone(), namespace.clone(), name.clone());
        let mut lost = self.lost.get(&key).cloned().unwrap_or_default();
        if *written.kind == *RequestAuthentication::NAME {
            let notes = self.fetched.get(&(key.1, key.2));
            lost.extend(notes.into_iter().flatten().cloned());
        }
        lost.extend(of_services(written, &self.services));
        let nacks = self.nacks.iter();
        lost.extend(nacks.flat_map(|nacks| nacks.of(&written.kind, namespace, name)));
        status(written, &lost)
    }
}

/// Kind, namespace and name.
type ClusterObjectKey = (Arc<str>, Arc<str>, Arc<str>);

/// Messages about the conflicts that objects lose, by object.
fn lost(hub: &Hub) -> BTreeMap<ClusterObjectKey, Vec<String>> {
    let mut lost: BTreeMap<ClusterObjectKey, Vec<String>> = BTreeMap::new();
    let conflicts = hub.snapshot().map(|snapshot| snapshot.conflicts());
    for conflict in conflicts.into_iter().flatten() {
        let message = format!("{}: {}", conflict.key, conflict.message);
        for object in conflict.objects {
            let key = (object.kind.into(), object.namespace, object.name);
            lost.entry(key).or_default().push(message.clone());
        }
    }
    lost
}

/// Conflicts that services lose, by service.
fn lost_services(hub: &Hub) -> BTreeMap<ServiceKey, Vec<String>> {
    let mut lost: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
    let conflicts = hub.snapshot().map(|snapshot| snapshot.conflicts());
    for conflict in conflicts.into_iter().flatten() {
        let message = format!("{}: {}", conflict.key, conflict.message);
        for service in conflict.services {
            lost.entry(service).or_default().push(message.clone());
        }
    }
    lost
}

/// The conflicts of the ServiceEntry that a service was made from: by its hosts, in its namespace.
fn of_services(written: &WrittenObject, lost: &BTreeMap<ServiceKey, Vec<String>>) -> Vec<String> {
    if lost.is_empty() || *written.kind != *ServiceEntry::NAME {
        return Vec::new();
    }
    let spec = written.spec.value();
    let hosts = spec.get("hosts").and_then(Value::as_array);
    let hosts = hosts.into_iter().flatten().filter_map(Value::as_str);
    let found = hosts.filter_map(|host| {
        let name = host.to_ascii_lowercase();
        let as_written = ServiceKey::new(host, &written.namespace);
        let in_lower_case = || lost.get(&ServiceKey::new(&name, &written.namespace));
        lost.get(&as_written).or_else(in_lower_case)
    });
    found.flatten().cloned().collect()
}

/// The verdict on an object, and the notes of a valid one: as `validate`, which notes nothing of what is refused.
fn status(written: &WrittenObject, lost: &[String]) -> Value {
    let group = written
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    let mut messages = written.messages.clone();
    let Some(kind) = config::named(group, &written.kind) else {
        return json!({"accepted": written.accepted, "messages": messages});
    };
    if kind.effect == Effect::None {
        messages.push(config::without_effect(kind));
    } else if written.accepted {
        let spec = written.spec.value();
        let dry_run = written.metadata.pointer("/annotations/istio.io~1dry-run");
        let dry_run = config::dry_run_note(kind, &spec, dry_run.and_then(Value::as_str));
        let notes = config::notes(kind, &spec).into_iter().chain(dry_run);
        messages.extend(notes.map(|note| format!("{}: {}", note.path, note.message)));
        messages.extend_from_slice(lost);
    }
    if !written.accepted {
        return json!({"accepted": false, "messages": messages});
    }
    // A kind is enforced in part for fields that few objects have.
    let effect = match kind.effect {
        Effect::Enforced { .. } if messages.is_empty() => "enforced",
        Effect::Enforced { .. } | Effect::Read | Effect::None => kind.effect.as_str(),
    };
    json!({"accepted": true, "effect": effect, "messages": messages})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &str, spec: Value) -> WrittenObject {
        WrittenObject {
            api_version: "networking.istio.io/v1".into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: "a".into(),
            metadata: json!({}),
            spec: spec.into(),
            origin: sources::Origin::file("a.yaml"),
            accepted: true,
            messages: Vec::new(),
            revision: sources::Revision::default(),
        }
    }

    #[test]
    fn a_refused_object_has_no_notes() {
        let of = |accepted: bool| {
            let written = WrittenObject {
                accepted,
                messages: vec!["said".to_owned()],
                ..written("ServiceEntry", json!({"hosts": ["a.b"]}))
            };
            status(&written, &["lost".to_owned()])["messages"].clone()
        };
        assert_eq!(of(false), json!(["said"]));
        let note = "spec.ports: is not served: there is no port";
        assert_eq!(of(true), json!(["said", note, "lost"]));
    }

    #[test]
    fn an_object_with_messages_is_enforced_in_part() {
        let of = |server: Value| {
            let spec = json!({"selector": {"a": "b"}, "servers": [server]});
            status(&written("Gateway", spec), &[])["effect"].clone()
        };
        let port = json!({"number": 80, "name": "a", "protocol": "HTTP"});
        assert_eq!(of(json!({"hosts": ["*"], "port": port})), "enforced");
        let part = json!({"hosts": ["*"], "port": port, "defaultEndpoint": "127.0.0.1:1"});
        assert_eq!(of(part), "enforced in part");
    }
}
