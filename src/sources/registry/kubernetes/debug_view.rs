//! Configuration of an API server, for pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{ClusterId, Configured};
use api::networking;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::configuration::{Configuration, ConfigurationKind, EachKind};
use super::cluster_state::ClusterUpdate;
use super::custom::api_version;
use crate::catalogue::Origin;
use crate::kind::{Key, Revision};
use crate::registry::WrittenObject;
use crate::registry::refusal::Refusal;

impl ClusterUpdate {
    /// Returns the configuration of this cluster as it is used, with the errors of newer versions.
    #[must_use]
    pub fn written(&self, cluster: &ClusterId) -> Vec<WrittenObject> {
        let all = Vec::new();
        let mut objects = WrittenObjects {
            update: self,
            cluster,
            all,
        };
        Configuration::each_kind(&mut objects);
        objects.all.extend(self.others(cluster));
        objects.all
    }

    fn others(&self, cluster: &ClusterId) -> impl Iterator<Item = WrittenObject> {
        self.others.iter().map(move |(effectless, key, plain)| {
            let api_version = effectless.api_version();
            let metadata = metadata(&key.namespace, &key.name, plain.created);
            let (spec, (accepted, messages)) = match plain.spec() {
                Ok(spec) => {
                    let found = check_object(&api_version, effectless.kind.kind, &metadata, &spec);
                    (spec, found)
                }
                Err(message) => (Value::Null, (!plain.has_spec(), vec![message])),
            };
            WrittenObject {
                api_version: api_version.into(),
                kind: effectless.kind.kind.into(),
                namespace: (*key.namespace).into(),
                name: (*key.name).into(),
                metadata,
                spec: spec.into(),
                origin: Origin::of_cluster(cluster, key, &plain.version),
                accepted,
                messages,
                revision: Revision::default(),
            }
        })
    }

    fn of_kind<T: ConfigurationKind>(&self, cluster: &ClusterId) -> Vec<WrittenObject> {
        let objects = T::of(&self.contribution.configuration);
        let problems = self
            .problems
            .iter()
            .filter(|problem| problem.is_about::<T>());
        let mut wrong: BTreeMap<&Key, &Refusal> = problems
            .map(|problem| (&problem.object, &problem.refusal))
            .collect();
        let origin = |key: &Key| {
            let known = self.origins.of(T::NAME, key).cloned();
            known.unwrap_or_else(|| Origin::of_cluster(cluster, key, ""))
        };
        let mut all: Vec<WrittenObject> = objects
            .values()
            .map(|one| {
                let key = Key::new(&one.namespace, &one.name);
                let refusal = wrong.remove(&key);
                written(origin(&key), one, refusal)
            })
            .collect();
        all.extend(wrong.into_iter().map(|(key, refusal)| WrittenObject {
            api_version: api_version::<T>().into(),
            kind: T::NAME.into(),
            namespace: (*key.namespace).into(),
            name: (*key.name).into(),
            metadata: json!({"name": key.name, "namespace": key.namespace}),
            spec: Value::Null.into(),
            origin: origin(key),
            accepted: false,
            messages: refusal.findings.to_vec(),
            revision: refusal.revision.clone(),
        }));
        all
    }
}

struct WrittenObjects<'a> {
    update: &'a ClusterUpdate,
    cluster: &'a ClusterId,
    all: Vec<WrittenObject>,
}

impl EachKind for WrittenObjects<'_> {
    fn kind<T: ConfigurationKind>(&mut self) {
        self.all.extend(self.update.of_kind::<T>(self.cluster));
    }
}

fn metadata(namespace: &str, name: &str, created: Option<i64>) -> Value {
    let mut metadata = json!({"name": name, "namespace": namespace});
    let created = created.and_then(|at| Timestamp::from_second(at).ok());
    if let (Some(created), Some(metadata)) = (created, metadata.as_object_mut()) {
        let created = Value::String(created.to_string());
        metadata.insert("creationTimestamp".to_owned(), created);
    }
    metadata
}

/// Renders an object that is used, or whose last good version is.
fn written<T: ConfigurationKind>(
    origin: Origin,
    one: &Configured<T>,
    refusal: Option<&Refusal>,
) -> WrittenObject {
    let metadata = metadata(&one.namespace, &one.name, one.created);
    let spec = Value::from(networking::json(&one.spec).unwrap_or_default());
    let version = api_version::<T>();
    let messages = match refusal {
        Some(refusal) => refusal.findings.to_vec(),
        None => check_object(&version, T::NAME, &metadata, &spec).1,
    };
    WrittenObject {
        api_version: version.into(),
        kind: T::NAME.into(),
        namespace: Arc::clone(&one.namespace),
        name: Arc::clone(&one.name),
        metadata,
        spec: spec.into(),
        origin,
        accepted: refusal.is_none(),
        messages,
        revision: refusal.map_or_else(Revision::default, |refusal| refusal.revision.clone()),
    }
}

/// The verdict of the rules on an object, and their findings as text.
fn check_object(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    spec: &Value,
) -> (bool, Vec<String>) {
    let (_, findings) = api::config::check(&json!({
        "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec,
    }));
    let messages = findings.iter().map(ToString::to_string).collect();
    (Refusal::of(&findings).is_none(), messages)
}

/// The verdict on an object as an API server has it, and the messages that `configz` shows.
#[cfg(test)]
pub(in crate::registry) fn check_as_served(object: &Value) -> (bool, Vec<String>) {
    struct Judge<'a> {
        object: &'a Value,
        said: Option<(bool, Vec<String>)>,
    }
    impl EachKind for Judge<'_> {
        fn kind<T: ConfigurationKind>(&mut self) {
            if self.object["kind"] != T::NAME {
                return;
            }
            let text = self.object.to_string();
            let custom: super::custom::Custom<T> = serde_json::from_str(&text).unwrap();
            self.said = Some(match custom.read() {
                Ok(one) => {
                    let written = written(Origin::default(), one, None);
                    (written.accepted, written.messages)
                }
                Err(refusal) => (false, refusal.findings.to_vec()),
            });
        }
    }
    let mut judge = Judge { object, said: None };
    Configuration::each_kind(&mut judge);
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    judge.said.unwrap_or_else(|| {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        check_object(text("apiVersion"), text("kind"), metadata, spec)
    })
}
