//! Sources, services and streams, as JSON: one document for each path.

mod clusters;
mod dump;
mod endpoints_by_port;
mod nacks;
mod page;
mod proto_printer;
mod security;
mod selecting_services;
mod services;
mod streams;
mod unserved;

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use xds::snapshot::Conflict;
use xds::view::Type;

use super::hub::Hub;
use super::sources::Sources;
use crate::serve::{Answer, Query, as_json, full, text};

pub(super) use clusters::DerivedMessages;
pub(super) use endpoints_by_port::EndpointsByPort;
pub(super) use page::sections;
pub(super) use services::registration;

/// Returns true if [`answer`] has a document for this path.
pub(super) fn is_path(path: &str) -> bool {
    const PAGES: [&str; 19] = [
        "",
        "/",
        "/adsz",
        "/authenticationz",
        "/authorizationz",
        "/cdsz",
        "/clusterz",
        "/config_dump",
        "/configz",
        "/edsz",
        "/endpointShardz",
        "/endpointz",
        "/ldsz",
        "/memory",
        "/push_status",
        "/rdsz",
        "/registryz",
        "/sinkz",
        "/syncz",
    ];
    let page = path.strip_prefix("/debug");
    page.is_some_and(|page| PAGES.contains(&page))
}

/// Returns true if `?push=1` makes a push on this path.
pub(super) fn is_pushed(path: &str) -> bool {
    matches!(
        path,
        "/debug/adsz" | "/debug/cdsz" | "/debug/edsz" | "/debug/ldsz" | "/debug/rdsz"
    )
}

/// Returns true if a document is made of the snapshot alone.
pub(super) fn is_of_snapshot(path: &str) -> bool {
    matches!(
        path,
        "/v1/registration" | "/debug/registryz" | "/debug/endpointz" | "/debug/endpointShardz"
    )
}

/// The cache key of a document: its path, with the one parameter of the query that changes it.
pub(super) fn key(path: &str, query: &str) -> String {
    let query = Query::new(query);
    let value = match path {
        "/debug/authenticationz" | "/debug/authorizationz" | "/debug/config_dump" => {
            query.get("proxyID")
        }
        "/debug/configz" => query.get("kind"),
        "/debug/endpointz" => query.is_set("brief").then(String::new),
        _ => None,
    };
    value.map_or_else(|| path.to_owned(), |value| format!("{path}?{value}"))
}

/// A path below /debug.
pub(super) fn answer(hub: &Arc<Hub>, sources: &Sources, path: &str, query: &str) -> Answer {
    let query = Query::new(query);
    let kind = match path {
        "/debug/cdsz" => Some(Type::Cluster),
        "/debug/edsz" => Some(Type::Endpoint),
        "/debug/ldsz" => Some(Type::Listener),
        "/debug/rdsz" => Some(Type::Route),
        _ => None,
    };
    if let Some(kind) = kind {
        return as_json(&streams::resources(hub, kind));
    }
    let document = match path {
        "/debug/config_dump" => return dump::answer(hub, &query),
        "/debug/authenticationz" => return security::authentication(hub, &query),
        "/debug/authorizationz" => return security::authorization(hub, &query),
        "/debug" | "/debug/" => {
            let page = page::draw(hub, sources);
            return full(StatusCode::OK, "text/html; charset=utf-8", page.into());
        }
        "/debug/syncz" => streams::sync(hub),
        "/debug/adsz" => streams::watches(hub),
        "/debug/registryz" => services::registry(hub),
        "/debug/endpointz" if query.is_set("brief") => {
            return text(StatusCode::OK, services::brief(hub).trim_end());
        }
        "/debug/endpointz" => services::endpoints(hub),
        "/debug/endpointShardz" => services::shards(hub),
        "/debug/configz" => clusters::written(hub, sources, query.get("kind").as_deref()),
        "/debug/sinkz" => sources
            .sinks()
            .map_or_else(|| json!([]), |sinks| sinks.debug_view()),
        "/debug/clusterz" => clusters::clusters(hub),
        "/debug/push_status" => conflicts(hub),
        _ => return text(StatusCode::NOT_FOUND, "not found"),
    };
    as_json(&document)
}

/// Conflicts of the last snapshot: by metric, then by the key that they are about.
fn conflicts(hub: &Hub) -> Value {
    let mut all = serde_json::Map::new();
    let Some(snapshot) = hub.snapshot() else {
        return all.into();
    };
    for (metric, keys) in by_key(snapshot.conflicts()) {
        let of_metric = keys.into_iter().map(|(key, (proxy, messages))| {
            let conflict = json!({"proxy": &*proxy, "message": messages.join("; ")});
            (key, conflict)
        });
        let of_metric: serde_json::Map<String, Value> = of_metric.collect();
        all.insert(metric.to_owned(), of_metric.into());
    }
    all.into()
}

/// A proxy, and the messages about one key at it.
type ProxyMessages = (Arc<str>, Vec<String>);

/// Groups conflicts by key: several objects may lose the same name.
fn by_key(conflicts: Vec<Conflict>) -> BTreeMap<&'static str, BTreeMap<String, ProxyMessages>> {
    let mut all: BTreeMap<_, BTreeMap<String, ProxyMessages>> = BTreeMap::new();
    for conflict in conflicts {
        let of_metric = all.entry(conflict.metric).or_default();
        let (proxy, messages) = of_metric.entry(conflict.key).or_default();
        if proxy.is_empty() {
            *proxy = conflict.proxy;
        }
        messages.push(conflict.message);
    }
    all
}
