//! Configuration of an API server, for pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::{self, Finding};
use api::model::{ClusterId, Configured, DRY_RUN};
use api::networking;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster_state::ClusterUpdate;
use super::custom::api_version;
use crate::catalogue::{ConfigObject, Origin};
use crate::contribution::Refusal;
use crate::contribution::{Configuration, ConfigurationKind, EachKind};
use crate::kind::{Key, Revision};

impl ClusterUpdate {
    /// Returns the configuration of this cluster as it is used, with the errors of newer versions.
    #[must_use]
    pub fn config_objects(&self, cluster: &ClusterId) -> Vec<ConfigObject> {
        let all = Vec::new();
        let mut objects = ConfigObjects {
            update: self,
            cluster,
            all,
        };
        Configuration::each_kind(&mut objects);
        objects.all.extend(self.others(cluster));
        objects.all
    }

    fn others(&self, cluster: &ClusterId) -> impl Iterator<Item = ConfigObject> {
        self.others.iter().map(move |(effectless, key, checked)| {
            let plain = &checked.object;
            let api_version = effectless.api_version();
            let metadata = metadata(&key.namespace, &key.name, plain.created);
            let (spec, checked) = match plain.spec() {
                Ok(spec) => {
                    let checked = check(&api_version, effectless.kind.kind, &metadata, &spec);
                    (spec, checked)
                }
                Err(message) => (Value::Null, without_spec(&message, !plain.has_spec())),
            };
            ConfigObject {
                api_version: api_version.into(),
                kind: effectless.kind.kind.into(),
                namespace: (*key.namespace).into(),
                name: (*key.name).into(),
                metadata,
                spec: spec.into(),
                origin: Origin::of_cluster(cluster, key, &plain.version),
                is_accepted: checked.is_accepted,
                findings: checked.findings,
                notes: checked.notes,
                revision: Revision::default(),
            }
        })
    }

    fn of_kind<T: ConfigurationKind>(&self, cluster: &ClusterId) -> Vec<ConfigObject> {
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
        let mut all: Vec<ConfigObject> = objects
            .values()
            .map(|one| {
                let key = Key::new(&one.namespace, &one.name);
                let refusal = wrong.remove(&key);
                config_object(origin(&key), one, refusal)
            })
            .collect();
        all.extend(wrong.into_iter().map(|(key, refusal)| ConfigObject {
            api_version: api_version::<T>().into(),
            kind: T::NAME.into(),
            namespace: (*key.namespace).into(),
            name: (*key.name).into(),
            metadata: json!({"name": key.name, "namespace": key.namespace}),
            spec: Value::Null.into(),
            origin: origin(key),
            is_accepted: false,
            findings: refusal.findings.to_vec(),
            notes: Vec::new(),
            revision: refusal.revision.clone(),
        }));
        all
    }
}

struct ConfigObjects<'a> {
    update: &'a ClusterUpdate,
    cluster: &'a ClusterId,
    all: Vec<ConfigObject>,
}

impl EachKind for ConfigObjects<'_> {
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
fn config_object<T: ConfigurationKind>(
    origin: Origin,
    one: &Configured<T>,
    refusal: Option<&Refusal>,
) -> ConfigObject {
    let mut metadata = metadata(&one.namespace, &one.name, one.created);
    if one.dry_run
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.insert("annotations".to_owned(), json!({DRY_RUN: "true"}));
    }
    let spec = Value::from(networking::json(&one.spec).unwrap_or_default());
    let version = api_version::<T>();
    let (findings, notes) = match refusal {
        Some(refusal) => (refusal.findings.to_vec(), Vec::new()),
        None => {
            let checked = check(&version, T::NAME, &metadata, &spec);
            (checked.findings, checked.notes)
        }
    };
    ConfigObject {
        api_version: version.into(),
        kind: T::NAME.into(),
        namespace: Arc::clone(&one.namespace),
        name: Arc::clone(&one.name),
        metadata,
        spec: spec.into(),
        origin,
        is_accepted: refusal.is_none(),
        findings,
        notes,
        revision: refusal.map_or_else(Revision::default, |refusal| refusal.revision.clone()),
    }
}

/// The result of the rule book for an object.
struct Checked {
    is_accepted: bool,
    findings: Vec<Finding>,
    notes: Vec<Finding>,
}

fn check(api_version: &str, kind: &str, metadata: &Value, spec: &Value) -> Checked {
    let (object, findings) = config::check(&json!({
        "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec,
    }));
    let is_accepted = !findings.iter().any(Finding::is_error);
    let used = object.filter(|_| is_accepted);
    Checked {
        is_accepted,
        notes: used
            .as_ref()
            .map(config::limited_notes_of)
            .unwrap_or_default(),
        findings,
    }
}

/// An object whose spec is not stored, or is no JSON.
fn without_spec(message: &str, is_accepted: bool) -> Checked {
    let finding = match is_accepted {
        true => Finding::warning("", message),
        false => Finding::error("", message),
    };
    Checked {
        is_accepted,
        findings: vec![finding],
        notes: Vec::new(),
    }
}

/// An object of an API server as `configz` shows it; `None`: its kind is not looked for.
#[cfg(test)]
pub(crate) fn as_served(object: &Value) -> Option<ConfigObject> {
    struct AsServed<'a> {
        object: &'a Value,
        written: Option<ConfigObject>,
    }
    impl EachKind for AsServed<'_> {
        fn kind<T: ConfigurationKind>(&mut self) {
            if self.object["kind"] != T::NAME {
                return;
            }
            let text = self.object.to_string();
            let custom: super::custom::Custom<T> = serde_json::from_str(&text).unwrap();
            let object = match custom.read() {
                Ok(one) => config_object(Origin::default(), one, None),
                Err(refusal) => ConfigObject {
                    api_version: "".into(),
                    kind: T::NAME.into(),
                    namespace: "".into(),
                    name: "".into(),
                    metadata: Value::Null,
                    spec: Value::Null.into(),
                    origin: Origin::default(),
                    is_accepted: false,
                    findings: refusal.findings.to_vec(),
                    notes: Vec::new(),
                    revision: refusal.revision.clone(),
                },
            };
            self.written = Some(object);
        }
    }
    let mut served = AsServed {
        object,
        written: None,
    };
    Configuration::each_kind(&mut served);
    served.written.or_else(|| {
        let update = ClusterUpdate {
            others: super::effectless::EffectlessObjects::of(object)?,
            ..ClusterUpdate::default()
        };
        let written = update.config_objects(&"here".into()).pop()?;
        let is_counted = update.others.accepted().next().is_some();
        assert_eq!(written.is_accepted, is_counted, "{object}");
        let problems: Vec<_> = update.others.problems(&"here".into()).collect();
        assert_eq!(problems.is_empty(), is_counted, "{problems:?}");
        Some(written)
    })
}
