//! Configuration of an API server, for those who look at it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{Configured, Objects};
use api::networking;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::custom::{GROUP, Spec, VERSIONS};
use super::heard::Told;
use crate::kind::Key;
use crate::registry::Written;

impl Told {
    /// The mesh's configuration as it is used, and what is wrong with newer versions of it; `source` is this cluster's name.
    #[must_use]
    pub fn written(&self, source: &str) -> Vec<Written> {
        let said = &self.contribution;
        let mut all = self.of_kind(&said.entries, source);
        all.extend(self.of_kind(&said.workload_entries, source));
        all.extend(self.of_kind(&said.sidecars, source));
        all.extend(self.others(source));
        all
    }

    fn others(&self, source: &str) -> impl Iterator<Item = Written> {
        self.others.iter().map(move |(inert, key, plain)| {
            let (spec, message) = match plain.spec() {
                Ok(spec) => (spec, None),
                Err(words) => (Value::Null, Some(words)),
            };
            Written {
                api_version: inert.api_version().into(),
                kind: inert.kind.kind.into(),
                namespace: (*key.namespace).into(),
                name: (*key.name).into(),
                metadata: metadata(&key.namespace, &key.name, plain.created),
                spec: spec.into(),
                source: source.into(),
                accepted: message.is_none() || !plain.is_kept(),
                messages: message.into_iter().collect(),
            }
        })
    }

    fn of_kind<T: Spec>(&self, objects: &Objects<T>, source: &str) -> Vec<Written> {
        let problems = self
            .problems
            .iter()
            .filter(|problem| problem.kind == T::NAME);
        let mut wrong: BTreeMap<&Key, &Arc<str>> = problems
            .map(|problem| (&problem.object, &problem.words))
            .collect();
        let mut all: Vec<Written> = objects
            .values()
            .map(|one| {
                let words = wrong.remove(&Key::new(&one.namespace, &one.name));
                written(source, one, words)
            })
            .collect();
        all.extend(wrong.into_iter().map(|(key, words)| Written {
            api_version: version(),
            kind: T::NAME.into(),
            namespace: (*key.namespace).into(),
            name: (*key.name).into(),
            metadata: json!({"name": key.name, "namespace": key.namespace}),
            spec: Value::Null.into(),
            source: source.into(),
            accepted: false,
            messages: vec![words.to_string()],
        }));
        all
    }
}

fn version() -> Arc<str> {
    format!("{GROUP}/{}", VERSIONS[0]).into()
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

/// One that is used, or was good once.
fn written<T: Spec>(source: &str, one: &Configured<T>, words: Option<&Arc<str>>) -> Written {
    Written {
        api_version: version(),
        kind: T::NAME.into(),
        namespace: Arc::clone(&one.namespace),
        name: Arc::clone(&one.name),
        metadata: metadata(&one.namespace, &one.name, one.created),
        spec: Value::from(networking::json(&one.spec).unwrap_or_default()).into(),
        source: source.into(),
        accepted: words.is_none(),
        messages: words.map(ToString::to_string).into_iter().collect(),
    }
}
