//! Sources: how far each is, and the configuration that was written in them.

use std::collections::BTreeMap;

use cluster::registry::{Registries, Standing, Status};
use serde_json::{Value, json};

use crate::discovery::hub::Hub;
use crate::discovery::sources::Sources;
use crate::log;

pub(super) fn clusters(hub: &Hub) -> Value {
    let since = hub.standing_since();
    let rows = hub.look(Registries::sources).into_iter().map(|status| {
        let fact = hub.facts.of(&status.source).unwrap_or_default();
        let (state, error) = match &status.standing {
            Standing::Syncing => ("syncing", None),
            Standing::Synced => ("synced", None),
            Standing::Stale { error } => ("stale", Some(error.clone())),
        };
        let objects = objects(hub, &status);
        let since = since.get(&status.source).copied().unwrap_or_default();
        json!({
            "id": status.source.cluster.as_str(),
            "provider": status.source.registry.as_str(),
            "state": state,
            "since": log::stamp(hub.clock.wall(since)),
            "objects": objects,
            "error": error.or(fact.error).as_deref(),
        })
    });
    Value::Array(rows.collect())
}

/// By kind: those that somebody wrote, where it is known how they were written; else what came of them.
pub(crate) fn objects(hub: &Hub, status: &Status) -> BTreeMap<String, usize> {
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
    let rows = sources
        .written(hub)
        .into_iter()
        .filter(|written| kind.is_none_or(|kind| *written.kind == *kind))
        .map(|written| {
            json!({
                "apiVersion": &*written.api_version,
                "kind": &*written.kind,
                "metadata": written.metadata,
                "spec": written.spec,
                "source": &*written.source,
                "status": {"accepted": written.accepted, "messages": written.messages},
            })
        });
    Value::Array(rows.collect())
}
