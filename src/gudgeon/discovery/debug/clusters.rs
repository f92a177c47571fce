//! Sources: how far each is, and the configuration that was written in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::config::{self, Effect, Finding};
use api::model::{Labels, ServiceKey};
use serde_json::{Value, json};
use sources::aggregate::SourceStatus;
use sources::catalogue::ConfigObject;
use sources::contribution::SyncState;
use transform::ingress::without_router;
use xds::node::Kind;
use xds::snapshot::Conflict;

use super::broken_secrets;
use super::nacks::Nacks;
use super::selecting_services::SelectingServices;
use super::service_entry_keys::service_keys;
use super::workload_entry_note::note_selected_by_service;
use crate::discovery::hub::{Hub, IngressNotes};
use crate::discovery::sources::Sources;
use crate::log;
use crate::secrets;

pub(super) fn clusters(hub: &Hub) -> Value {
    let since = hub.sync_states.since();
    let rows = hub.source_statuses().into_iter().map(|status| {
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
pub(super) fn config_objects(hub: &Hub, sources: &Sources, kind: Option<&str>) -> Value {
    let derived = DerivedMessages::of_replica(hub);
    let of_ingresses = ingresses(hub, &derived.lost).into_iter();
    let of_ingresses = of_ingresses.filter(|_| kind.is_none_or(|kind| kind == INGRESS));
    let rows = sources
        .config_objects(hub)
        .into_iter()
        .filter(|object| kind.is_none_or(|kind| *object.kind == *kind))
        .map(|object| {
            let mut metadata = object.metadata.clone();
            let mut spec = object.spec.value();
            secrets::redact(&mut metadata);
            secrets::redact(&mut spec);
            put_namespace(&mut metadata, &object.namespace);
            json!({
                "apiVersion": &*object.api_version,
                "kind": &*object.kind,
                "metadata": metadata,
                "spec": spec,
                "source": object.origin.to_string(),
                "status": derived.status(&object),
            })
        });
    Value::Array(rows.chain(of_ingresses).collect())
}

/// An object of a file without a namespace is in `default`. Objects of a cluster have none.
fn put_namespace(metadata: &mut Value, namespace: &str) {
    let is_named = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if let Some(metadata) = metadata.as_object_mut()
        && !namespace.is_empty()
        && !metadata.get("namespace").is_some_and(is_named)
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

const INGRESS: &str = "Ingress";

/// Ingresses with findings, of their own or of the objects made from them.
fn ingresses(hub: &Hub, lost: &BTreeMap<ClusterObjectKey, Vec<Finding>>) -> Vec<Value> {
    let notes = hub.ingress_notes();
    let own = notes.findings.iter().map(|(ingress, words)| {
        let findings = words.iter().map(|words| warning(words));
        (ingress.clone(), findings.collect())
    });
    let mut all: BTreeMap<_, BTreeSet<Finding>> = own.collect();
    for (name, findings) in lost {
        if let Some(ingress) = notes.generated_from.get(name) {
            let of_ingress = all.entry(ingress.clone()).or_default();
            of_ingress.extend(findings.iter().cloned());
        }
    }
    for (ingress, finding) in unserved_ingresses(hub, &notes) {
        all.entry(ingress).or_default().insert(finding);
    }
    let rows = all.into_iter().map(|(key, findings)| {
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": INGRESS,
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": {"accepted": true, "effect": "read", "messages": messages(&findings)},
        })
    });
    rows.collect()
}

/// The Ingresses whose Gateway no router has: none that is connected, and no workload that may become one.
fn unserved_ingresses(hub: &Hub, notes: &IngressNotes) -> Vec<(transform::Key, Finding)> {
    let Some(snapshot) = hub.snapshot() else {
        return Vec::new();
    };
    let world = snapshot.world();
    let sessions = hub.sessions.all();
    let nodes = || sessions.iter().map(|session| &session.node);
    let routers = || nodes().filter(|node| node.kind == Kind::Router);
    let is_selected = |selector: &BTreeMap<String, String>| {
        let selects = |labels: &Labels| {
            let mut wanted = selector.iter();
            wanted.all(|(name, value)| labels.get(&**name).is_some_and(|has| **has == **value))
        };
        routers().any(|node| selects(&node.labels))
            || world.workloads.values().any(|one| selects(&one.labels))
    };
    let gateways = notes.gateways();
    // One setting of the mesh selects the routers of all.
    let mut last: Option<(&BTreeMap<String, String>, bool)> = None;
    let unserved = gateways.filter_map(|((_, namespace, name), ingress)| {
        let gateway = world.gateways.get(&(namespace.clone(), name.clone()))?;
        let selector = &gateway.spec.selector;
        let is_served = match last {
            Some((of, is_served)) if of == selector => is_served,
            Some(_) | None => is_selected(selector),
        };
        last = Some((selector, is_served));
        // A Gateway of the user's may stand under the name, with any selector.
        let label = selector.get("istio")?;
        (!is_served).then(|| {
            let words = without_router(label, "this replica knows", "pod and no connected router");
            (ingress.clone(), warning(&words))
        })
    });
    unserved.collect()
}

/// Messages about objects that they do not say themselves.
pub(crate) struct DerivedMessages {
    lost: BTreeMap<ClusterObjectKey, Vec<Finding>>,
    fetched: BTreeMap<ClusterObjectKey, Vec<String>>,
    services: BTreeMap<ServiceKey, Vec<Finding>>,
    selecting: SelectingServices,
    /// NACKs of the proxies of this replica: pages show them, and a status that all replicas write does not.
    nacks: Option<Nacks>,
}

impl DerivedMessages {
    /// Collects messages for pages, which show what this replica knows.
    fn of_replica(hub: &Hub) -> Self {
        Self::of(hub, Some(Nacks::now(hub)))
    }

    /// Collects messages for statuses. It is much work where there are many proxies.
    pub(crate) fn of_all_replicas(hub: &Hub) -> Self {
        Self::of(hub, None)
    }

    fn of(hub: &Hub, nacks: Option<Nacks>) -> Self {
        let snapshot = hub.snapshot();
        let is_of_replica = nacks.is_some();
        // Each replica would take back what another one has found for its proxies.
        let conflicts = snapshot.as_ref().map(|snapshot| match is_of_replica {
            true => snapshot.conflicts(),
            false => snapshot.conflicts_of_world(),
        });
        let conflicts = conflicts.unwrap_or_default();
        let mut lost = lost(&conflicts);
        let broken = snapshot.iter();
        let broken = broken.flat_map(|one| broken_secrets::findings(hub, one, is_of_replica));
        for (object, finding) in broken {
            let key = (object.kind.into(), object.namespace, object.name);
            lost.entry(key).or_default().push(finding);
        }
        Self {
            lost,
            fetched: hub.jwks.notes(),
            services: lost_services(&conflicts),
            selecting: snapshot
                .map(|one| SelectingServices::new(one.world()))
                .unwrap_or_default(),
            nacks,
        }
    }

    /// The object in the form of the debug pages.
    fn status(&self, object: &ConfigObject) -> Value {
        status(object, &self.findings(object))
    }

    /// Returns all findings of the object.
    pub(crate) fn findings(&self, object: &ConfigObject) -> Vec<Finding> {
        let mut findings: Vec<_> = object.all_findings().cloned().collect();
        if object.is_accepted {
            findings.extend(self.derived(object));
        }
        findings
    }

    fn derived(&self, object: &ConfigObject) -> Vec<Finding> {
        // A Gateway of the Gateway API may have the name of one of Istio's, which the messages are about.
        if config::unread_api(&object.api_version).is_some() {
            return Vec::new();
        }
        let (namespace, name) = (&object.namespace, &object.name);
        let key = (object.kind.clone(), namespace.clone(), name.clone());
        let mut lost = self.lost.get(&key).cloned().unwrap_or_default();
        let notes = self.fetched.get(&key).into_iter().flatten();
        lost.extend(notes.map(|words| warning(words)));
        lost.extend(of_services(object, &self.services));
        lost.extend(note_selected_by_service(object, &self.selecting));
        let nacks = self.nacks.iter();
        let nacks = nacks.flat_map(|nacks| nacks.of(&object.kind, namespace, name));
        lost.extend(nacks.map(|words| warning(&words)));
        lost.extend(self.nacks_of_services(object));
        lost
    }
}

impl DerivedMessages {
    /// The NACKs of resources of the services that a ServiceEntry makes.
    fn nacks_of_services(&self, object: &ConfigObject) -> Vec<Finding> {
        let Some(nacks) = &self.nacks else {
            return Vec::new();
        };
        let keys = service_keys(object).into_iter().flatten();
        let words: BTreeSet<_> = keys.flat_map(|key| nacks.of_service(&key)).collect();
        words.iter().map(|words| warning(words)).collect()
    }
}

/// Kind, namespace and name.
type ClusterObjectKey = (Arc<str>, Arc<str>, Arc<str>);

/// The words of a conflict, with its key where they do not name the object already.
fn message_of(conflict: &Conflict) -> String {
    let is_said = conflict.objects.iter().any(|object| {
        let whole = object.to_string();
        let short = format!("{}/{}", object.namespace, object.name);
        let key = &conflict.key;
        let rest = key
            .strip_prefix(&*whole)
            .or_else(|| key.strip_prefix(&*short));
        // Another key is a host, a port or a cluster, which the words may not have.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            && conflict.message.contains(&whole)
    });
    if is_said {
        return conflict.message.clone();
    }
    format!("{}: {}", conflict.key, conflict.message)
}

/// Messages about the conflicts that objects lose, by object.
fn lost(conflicts: &[Conflict]) -> BTreeMap<ClusterObjectKey, Vec<Finding>> {
    let mut lost: BTreeMap<ClusterObjectKey, Vec<Finding>> = BTreeMap::new();
    for conflict in conflicts {
        let message = warning(&message_of(conflict));
        for object in &conflict.objects {
            let (namespace, name) = (&object.namespace, &object.name);
            let key = (object.kind.into(), namespace.clone(), name.clone());
            lost.entry(key).or_default().push(message.clone());
        }
    }
    lost
}

/// Conflicts that services lose, by service.
fn lost_services(conflicts: &[Conflict]) -> BTreeMap<ServiceKey, Vec<Finding>> {
    let mut lost: BTreeMap<ServiceKey, Vec<Finding>> = BTreeMap::new();
    for conflict in conflicts {
        let message = warning(&message_of(conflict));
        for service in &conflict.services {
            let of_service = lost.entry(service.clone()).or_default();
            of_service.push(message.clone());
        }
    }
    lost
}

/// The conflicts of the ServiceEntry that a service was made from: by its hosts, in its namespace.
fn of_services(object: &ConfigObject, lost: &BTreeMap<ServiceKey, Vec<Finding>>) -> Vec<Finding> {
    if lost.is_empty() {
        return Vec::new();
    }
    let keys = service_keys(object).into_iter();
    let conflicts = keys.filter_map(|keys| keys.iter().find_map(|key| lost.get(key)));
    conflicts.flatten().cloned().collect()
}

/// A finding that is about no field.
fn warning(words: &str) -> Finding {
    Finding::warning("", words)
}

/// Findings as pages show them: in the words of `validate`.
pub(super) fn messages<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Vec<String> {
    findings.into_iter().map(ToString::to_string).collect()
}

/// The verdict on an object, with the findings.
fn status(object: &ConfigObject, findings: &[Finding]) -> Value {
    let group = object
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    let messages = messages(findings);
    let kind = config::named(group, &object.kind).filter(|_| object.is_accepted);
    let Some(kind) = kind else {
        let is_unread = config::unread_api(&object.api_version).is_some();
        let effect = is_unread.then_some(Effect::None.as_str());
        return match effect {
            Some(effect) => json!({"accepted": true, "effect": effect, "messages": messages}),
            None => json!({"accepted": object.is_accepted, "messages": messages}),
        };
    };
    let effect = kind.effect.of_object(findings);
    json!({"accepted": true, "effect": effect, "messages": messages})
}

#[cfg(test)]
mod tests {
    use api::model::{Registry, Resolution, Service, World};

    use super::*;

    fn config_object(kind: &str, spec: Value) -> ConfigObject {
        ConfigObject {
            api_version: "networking.istio.io/v1".into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: "a".into(),
            metadata: json!({}),
            spec: spec.into(),
            origin: sources::catalogue::Origin::file("a.yaml"),
            is_accepted: true,
            findings: Vec::new(),
            notes: Vec::new(),
            revision: sources::Revision::default(),
        }
    }

    fn derived(message: &str) -> DerivedMessages {
        let key = ("ServiceEntry".into(), "n".into(), "a".into());
        DerivedMessages {
            lost: BTreeMap::from([(key, vec![warning(message)])]),
            fetched: BTreeMap::new(),
            services: BTreeMap::new(),
            selecting: SelectingServices::default(),
            nacks: None,
        }
    }

    #[test]
    fn a_namespace_is_printed_that_nobody_wrote() {
        for (object, namespace, printed) in [
            (json!({"name": "a"}), "default", json!("default")),
            (json!({"namespace": ""}), "default", json!("default")),
            (json!({"namespace": "n"}), "n", json!("n")),
            (json!({"name": "a"}), "", Value::Null),
        ] {
            let mut metadata = object;
            put_namespace(&mut metadata, namespace);
            assert_eq!(metadata["namespace"], printed);
        }
    }

    #[test]
    fn a_message_names_its_object_once() {
        let object = api::model::ObjectRef {
            kind: "EnvoyFilter",
            namespace: "default".into(),
            name: "e".into(),
        };
        let said_of = |key: &str, message: &str| {
            let conflict = Conflict {
                metric: "m",
                key: key.to_owned(),
                message: message.to_owned(),
                proxy: Arc::default(),
                objects: vec![object.clone()],
                services: Vec::new(),
                occurrences: 1,
            };
            message_of(&conflict)
        };
        let said = |message: &str| said_of("default/e 2", message);
        let whole = "patch 2 of EnvoyFilter default/e is not applied: why";
        assert_eq!(said(whole), whole);
        assert_eq!(said("is not applied"), "default/e 2: is not applied");
        // Another key is a host, which the words do not have.
        assert_eq!(said_of("b.example", whole), format!("b.example: {whole}"));
    }

    #[test]
    fn a_workload_entry_says_that_a_service_does_not_take_it() {
        let service = |name: &str, registry: Registry, label: &str| {
            let key = ServiceKey::new(&format!("{name}.n.svc.cluster.local"), "n");
            let service = Service {
                key: key.clone(),
                registry,
                ports: Vec::new(),
                addresses: BTreeMap::new(),
                cluster: "c".into(),
                resolution: Resolution::Static,
                mesh_external: false,
                selector: Labels::from([("app".into(), label.into())]),
                created: None,
                accounts: BTreeSet::new(),
                prefers_close: false,
                exported_to: Vec::new(),
                balancers: BTreeMap::new(),
            };
            (key, Arc::new(service))
        };
        let mut world = World::new(Arc::new(api::mesh::discovery_defaults()));
        world.services = Arc::new(BTreeMap::from([
            service("pods", Registry::Kubernetes, "web"),
            service("entries", Registry::External, "vm"),
        ]));
        let derived = DerivedMessages {
            selecting: SelectingServices::new(&world),
            ..derived("lost")
        };
        for (label, namespace, is_told) in
            [("web", "n", true), ("web", "m", false), ("vm", "n", false)]
        {
            let spec = json!({"address": "10.0.0.1", "labels": {"app": label, "version": "1"}});
            let mut entry = config_object("WorkloadEntry", spec);
            entry.namespace = namespace.into();
            let found = derived.findings(&entry);
            assert_eq!(!found.is_empty(), is_told, "{label} {namespace}");
            let words = "is no endpoint of pods.n.svc.cluster.local";
            assert!(
                found.iter().all(|one| one.message.starts_with(words)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn an_object_of_the_gateway_api_has_no_effect() {
        let mut route = config_object("HTTPRoute", json!({}));
        route.api_version = "gateway.networking.k8s.io/v1".into();
        route.notes.extend(config::unread_api(&route.api_version));
        let status = derived("lost").status(&route);
        assert_eq!(
            (&status["accepted"], &status["effect"]),
            (&json!(true), &json!("none"))
        );
        assert_eq!(
            status["messages"],
            json!([
                "warning: kind: gudgeon does not read Gateway API objects; they have no effect"
            ])
        );
    }

    #[test]
    fn a_refused_object_has_no_notes() {
        let of = |is_accepted: bool| {
            let object = ConfigObject {
                is_accepted,
                findings: vec![Finding::error("spec.a", "said")],
                notes: vec![Finding::warning("spec.b", "noted")],
                ..config_object("ServiceEntry", json!({"hosts": ["a.b"]}))
            };
            derived("lost").status(&object)["messages"].clone()
        };
        assert_eq!(of(false), json!(["spec.a: said"]));
        let all = ["spec.a: said", "warning: spec.b: noted", "warning: lost"];
        assert_eq!(of(true), json!(all));
    }

    #[test]
    fn an_object_is_enforced_in_part_where_something_is_said_of_it() {
        let of = |notes: Vec<Finding>| {
            let object = ConfigObject {
                notes,
                ..config_object("Gateway", json!({}))
            };
            derived("lost").status(&object)["effect"].clone()
        };
        assert_eq!(of(Vec::new()), "enforced");
        let note = Finding::warning("spec.servers[0].defaultEndpoint", "has no effect");
        assert_eq!(of(vec![note]), "enforced in part");
    }
}
