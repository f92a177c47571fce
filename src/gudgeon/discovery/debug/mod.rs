//! Sources, services and streams, as JSON: one document for each path.

mod broken_secrets;
mod clusters;
mod dump;
mod endpoints_by_port;
mod nacks;
mod page;
mod proto_printer;
mod security;
mod selecting_services;
mod service_entry_keys;
mod services;
mod streams;
mod unserved;
mod workload_entry_note;

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

/// Discovery's answer about memory where that registry is not on.
pub(super) const NO_MEMORY: &str = "not there: see --registries Mock";

/// A document that the plain listeners have, behind the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Document {
    Page,
    Authentication,
    Authorization,
    Clusters,
    ConfigDump,
    Configuration,
    Conflicts,
    Endpoints,
    EndpointShards,
    Memory,
    /// Endpoints of all services, as the original's first version had them.
    Registration,
    Registry,
    /// The resources of one type that each stream was sent.
    Resources(Type),
    Sinks,
    Sync,
    Watches,
}

impl Document {
    const ALL: [(&str, Self); 20] = [
        ("/debug", Self::Page),
        ("/debug/", Self::Page),
        ("/debug/adsz", Self::Watches),
        ("/debug/authenticationz", Self::Authentication),
        ("/debug/authorizationz", Self::Authorization),
        ("/debug/cdsz", Self::Resources(Type::Cluster)),
        ("/debug/clusterz", Self::Clusters),
        ("/debug/config_dump", Self::ConfigDump),
        ("/debug/configz", Self::Configuration),
        ("/debug/edsz", Self::Resources(Type::Endpoint)),
        ("/debug/endpointShardz", Self::EndpointShards),
        ("/debug/endpointz", Self::Endpoints),
        ("/debug/ldsz", Self::Resources(Type::Listener)),
        ("/debug/memory", Self::Memory),
        ("/debug/push_status", Self::Conflicts),
        ("/debug/rdsz", Self::Resources(Type::Route)),
        ("/debug/registryz", Self::Registry),
        ("/debug/sinkz", Self::Sinks),
        ("/debug/syncz", Self::Sync),
        ("/v1/registration", Self::Registration),
    ];

    /// Returns the document at this path.
    pub(super) fn at(path: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(one, _)| *one == path)
            .map(|(_, document)| *document)
    }

    /// Returns true if `?push=1` makes a push.
    pub(super) fn is_pushed(self) -> bool {
        matches!(self, Self::Watches | Self::Resources(_))
    }

    /// Returns true if it is made of the snapshot alone.
    pub(super) fn is_of_snapshot(self) -> bool {
        matches!(
            self,
            Self::Registration | Self::Registry | Self::Endpoints | Self::EndpointShards
        )
    }

    /// The cache key: its path, with the one parameter of the query that changes the document.
    pub(super) fn key(self, query: &str) -> String {
        let query = Query::new(query);
        let value = match self {
            Self::Authentication | Self::Authorization | Self::ConfigDump => query.get("proxyID"),
            Self::Configuration => query.get("kind"),
            Self::Endpoints => query.is_set("brief").then(String::new),
            Self::Page
            | Self::Clusters
            | Self::Conflicts
            | Self::EndpointShards
            | Self::Memory
            | Self::Registration
            | Self::Registry
            | Self::Resources(_)
            | Self::Sinks
            | Self::Sync
            | Self::Watches => None,
        };
        let mut all = Self::ALL.iter();
        let path = all.find(|(_, document)| *document == self);
        let path = path.map_or("", |(path, _)| path);
        value.map_or_else(|| path.to_owned(), |value| format!("{path}?{value}"))
    }

    pub(super) fn answer(self, hub: &Arc<Hub>, sources: &Sources, query: &str) -> Answer {
        let query = Query::new(query);
        as_json(&match self {
            Self::Page => {
                let page = page::draw(hub, sources);
                return full(StatusCode::OK, "text/html; charset=utf-8", page.into());
            }
            Self::Memory => {
                return match sources.put(hub) {
                    Some(put) => full(StatusCode::OK, "application/yaml", put.body()),
                    None => text(StatusCode::NOT_FOUND, NO_MEMORY),
                };
            }
            Self::ConfigDump => return dump::answer(hub, &query),
            Self::Authentication => return security::authentication(hub, &query),
            Self::Authorization => return security::authorization(hub, &query),
            Self::Endpoints if query.is_set("brief") => {
                return text(StatusCode::OK, services::brief(hub).trim_end());
            }
            Self::Endpoints => services::endpoints(hub),
            Self::EndpointShards => services::shards(hub),
            Self::Registration => services::registration(hub),
            Self::Registry => services::registry(hub),
            Self::Resources(kind) => streams::resources(hub, kind),
            Self::Sync => streams::sync(hub),
            Self::Watches => streams::watches(hub),
            Self::Configuration => {
                clusters::config_objects(hub, sources, query.get("kind").as_deref())
            }
            Self::Clusters => clusters::clusters(hub),
            Self::Sinks => sources
                .mcp_sources()
                .map_or_else(|| json!([]), |mcp_sources| mcp_sources.debug_view()),
            Self::Conflicts => conflicts(hub),
        })
    }
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
