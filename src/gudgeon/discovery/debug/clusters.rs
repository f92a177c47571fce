//! Sources: how far each is, and the configuration that was written in them.

use cluster::registry::{Registries, Standing};
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
        let mut objects = status.objects;
        objects.extend(fact.counts);
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

/// Configuration as it was written; `kind`: only that one.
pub(super) fn written(sources: &Sources, kind: Option<&str>) -> Value {
    let rows = sources
        .written()
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
