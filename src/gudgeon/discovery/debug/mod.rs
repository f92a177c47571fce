//! What is known of sources, services and streams, as JSON: one document for each path.

mod clusters;
mod descriptions;
mod dump;
mod printed;
mod services;
mod streams;

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use xds::view::Type;

use super::hub::Hub;
use super::page;
use super::sources::Sources;
use crate::serve::{Answer, Query, as_json, full, text};

pub(super) use descriptions::{Descriptions, ENVOY};
pub(super) use services::registration;
pub(super) use streams::sorted;

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
    if (kind.is_some() || path == "/debug/adsz") && query.is_set("push") {
        return text(
            StatusCode::OK,
            &format!("Pushed to {} servers", hub.push_all()),
        );
    }
    if let Some(kind) = kind {
        return as_json(&streams::resources(hub, kind));
    }
    let document = match path {
        "/debug/config_dump" => return dump::answer(hub, &query),
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
        "/debug/configz" => clusters::written(sources, query.get("kind").as_deref()),
        "/debug/sinkz" => sources
            .sinks()
            .map_or_else(|| json!([]), |sinks| sinks.shown()),
        "/debug/clusterz" => clusters::clusters(hub),
        "/debug/push_status" => conflicts(hub),
        _ => return text(StatusCode::NOT_FOUND, "not found"),
    };
    as_json(&document)
}

/// Of the last snapshot: by metric, then by what is in two minds.
fn conflicts(hub: &Hub) -> Value {
    let mut all = serde_json::Map::new();
    let Some(snapshot) = hub.snapshot() else {
        return all.into();
    };
    for conflict in snapshot.conflicts() {
        let of_metric = all
            .entry(conflict.metric)
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Value::Object(of_metric) = of_metric {
            let said = json!({"proxy": &*conflict.proxy, "message": conflict.message});
            of_metric.insert(conflict.key, said);
        }
    }
    all.into()
}
