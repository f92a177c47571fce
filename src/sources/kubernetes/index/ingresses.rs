//! Ingresses, as far as rules are made of them.

use std::sync::Arc;

use api::well_known::INGRESS_CLASS;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::contribution::Ingresses;
use crate::kind::{INGRESSES, Key, Kind, Resource};
use crate::kubernetes::connect::Cluster;
use crate::kubernetes::store::{Change, store};
use crate::kubernetes::watcher::{ObjectSource as _, Selection, WatchTiming, Watcher};

/// Keeps the fields of an Ingress that rules are made of, as JSON.
pub(crate) fn trimmed(ingress: &Value) -> Arc<str> {
    let of = |path: &str| ingress.pointer(path);
    let class = of("/metadata/annotations").and_then(|all| all.get(INGRESS_CLASS));
    let annotations = class.map_or_else(|| json!({}), |class| json!({INGRESS_CLASS: class}));
    let trimmed = json!({
        "metadata": {
            "name": of("/metadata/name"),
            "namespace": of("/metadata/namespace"),
            "creationTimestamp": of("/metadata/creationTimestamp"),
            "annotations": annotations,
        },
        "spec": of("/spec"),
    });
    trimmed.to_string().into()
}

/// An Ingress of an API server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Value")]
struct ServedIngress {
    key: Key,
    json: Arc<str>,
}

impl From<Value> for ServedIngress {
    fn from(ingress: Value) -> Self {
        let of = |path: &str| ingress.pointer(path).and_then(Value::as_str);
        let of = |path: &str| of(path).unwrap_or_default();
        Self {
            key: Key::new(of("/metadata/namespace"), of("/metadata/name")),
            json: trimmed(&ingress),
        }
    }
}

impl Kind for ServedIngress {
    const RESOURCE: Resource = INGRESSES;

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        self.json.len().saturating_add(size_of::<Self>())
    }
}

/// Watches all Ingresses, or those of a namespace, and emits them for as long as there is a receiver. `None`: they are not known
/// yet. An account without the right to read them gets an empty map.
pub async fn ingresses(
    cluster: Cluster,
    namespace: Option<String>,
    pace: WatchTiming,
    to: watch::Sender<Option<Arc<Ingresses>>>,
) {
    let selection = Selection {
        namespace,
        ..Selection::default()
    };
    let (writer, mut reader) = store::<ServedIngress>();
    let watcher = Watcher::new(cluster, selection, pace);
    let emit = async {
        let mut all = Ingresses::new();
        while let Some(changes) = reader.changed().await {
            if changes.whole {
                all.clear();
            }
            for change in changes.changes {
                let key = |key: Key| (Arc::from(&*key.namespace), Arc::from(&*key.name));
                match change {
                    Change::Set(name, one) => all.insert(key(name), Arc::clone(&one.json)),
                    Change::Gone(name) => all.remove(&key(name)),
                };
            }
            let freshness = changes.freshness;
            if freshness.listed || freshness.refused {
                to.send_if_modified(|ingresses| {
                    let is_same = ingresses
                        .as_ref()
                        .is_some_and(|ingresses| **ingresses == all);
                    if !is_same {
                        *ingresses = Some(Arc::new(all.clone()));
                    }
                    !is_same
                });
            }
        }
    };
    tokio::select! {
        never = watcher.run(writer) => match never {},
        () = emit => {}
        () = to.closed() => {}
    }
}
