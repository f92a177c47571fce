//! Streams: in sync or not and why not, what they ask for, what they were sent.

use std::sync::Arc;

use api::model::TriggerReason;
use serde_json::{Map, Value, json};
use xds::node::clipped;
use xds::stream::Protocol;
use xds::view::Type;

use crate::discovery::hub::Hub;
use crate::discovery::session::Session;
use crate::log;

/// Maximum number of rules listed beside a NACK.
pub(crate) const MAX_RULES: usize = 20;

/// The name of a type in this document.
const fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Cluster => "cluster",
        Type::Endpoint => "endpoint",
        Type::Listener => "listener",
        Type::Route => "route",
        Type::Secret => "secret",
    }
}

/// Sorted by proxy, then by connection.
pub(crate) fn sorted(hub: &Hub) -> Vec<Arc<Session>> {
    let mut sessions = hub.sessions.all();
    sessions.sort_by(|one, other| (&one.node.id, one.number).cmp(&(&other.node.id, other.number)));
    sessions
}

pub(super) fn sync(hub: &Hub) -> Value {
    let rows = sorted(hub).into_iter().map(|session| row(hub, &session));
    Value::Array(rows.collect())
}

fn row(hub: &Hub, session: &Session) -> Value {
    let node = &session.node;
    let cluster = node
        .cluster
        .as_ref()
        .unwrap_or(&hub.options.settings.cluster);
    let mut row = Map::new();
    let mut put = |name: &str, value: Value| row.insert(name.to_owned(), value);
    put("cluster_id", clipped(cluster.as_str()).into());
    put("proxy", (*node.id).into());
    put("proxy_type", node.proxy_type.into());
    put("proxy_version", clipped(&node.proxy_version).into());
    put("istio_version", clipped(&node.version).into());
    put("namespace", clipped(&node.namespace).into());
    put("connection", session.connection().into());
    put("peer", session.peer.to_string().into());
    let connected = log::stamp(hub.clock.wall(session.connected));
    put("connected_at", connected.into());
    let protocol = match session.protocol {
        Protocol::StateOfTheWorld => "sotw",
        Protocol::Delta => "delta",
    };
    put("protocol", protocol.into());
    let mut errors = Map::new();
    session.with_stream(|stream| {
        for kind in Type::ALL {
            let Some(status) = stream.status(kind) else {
                continue;
            };
            let name = type_name(kind);
            let text = |version: Option<xds::version::Version>| {
                Value::from(
                    version
                        .map(|version| version.to_string())
                        .unwrap_or_default(),
                )
            };
            put(&format!("{name}_sent"), text(status.sent));
            put(&format!("{name}_acked"), text(status.acked));
            if kind == Type::Endpoint {
                put("endpoint_percent", stream.endpoint_percent().into());
            }
            if let Some(nack) = status.nack {
                let rules = stream.nacked_rules(kind).into_iter().take(MAX_RULES);
                let rules: Vec<_> = rules.map(|rule| rule.to_string()).collect();
                let error = json!({
                    "version": nack.version.to_string(),
                    "message": clipped(&nack.message),
                    "at": log::stamp(hub.clock.wall(nack.at)),
                    "rules": rules,
                });
                errors.insert(name.to_owned(), error);
            }
        }
    });
    put("errors", errors.into());
    row.into()
}

pub(super) fn watches(hub: &Hub) -> Value {
    let rows = sorted(hub).into_iter().map(|session| {
        let mut watches = Map::new();
        let last = session.with_stream(|stream| {
            for kind in Type::ALL {
                if stream.status(kind).is_none() {
                    continue;
                }
                let watched = stream.watches(kind);
                let all = watched.wildcard.then_some("*").into_iter();
                let names: Vec<&str> = all
                    .chain(watched.names.iter().map(|name| clipped(name)))
                    .collect();
                watches.insert(kind.as_str().to_uppercase(), names.into());
            }
            stream.last_push().cloned()
        });
        let last = last.map(|last| {
            let reasons: Vec<_> = last.reasons.iter().map(TriggerReason::as_str).collect();
            let types: Vec<_> = last
                .types
                .iter()
                .map(|kind| kind.as_str().to_uppercase())
                .collect();
            json!({"at": log::stamp(hub.clock.wall(last.at)), "reasons": reasons, "types": types})
        });
        json!({
            "connection": session.connection(),
            "proxy": &*session.node.id,
            "peer": session.peer.to_string(),
            "connected_at": log::stamp(hub.clock.wall(session.connected)),
            "watches": watches,
            "last_push": last,
            "pending": session.is_pending(),
        })
    });
    Value::Array(rows.collect())
}

pub(super) fn resources(hub: &Hub, kind: Type) -> Value {
    let rows = sorted(hub).into_iter().map(|session| {
        let all = session.with_stream(|stream| stream.resources(kind));
        let one = |one: &Arc<xds::view::Resource>| {
            (clipped(&one.name).to_owned(), Value::from(one.version.to_string()))
        };
        let resources: Map<String, Value> = all.iter().map(one).collect();
        json!({"connection": session.connection(), "proxy": &*session.node.id, "resources": resources})
    });
    Value::Array(rows.collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use envoy_types::pb::envoy::config::core::v3 as core;
    use xds::node::Node;
    use xds::stream::Request;

    use super::*;
    use crate::discovery::testing::hub;
    use crate::grpc::Address;

    /// The longest text but for a proxy's id.
    fn lengths(value: &Value, max: &mut usize) {
        match value {
            Value::String(text) => *max = text.len().max(*max),
            Value::Array(items) => items.iter().for_each(|item| lengths(item, max)),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                if name == "proxy" {
                    return;
                }
                *max = name.len().max(*max);
                lengths(value, max);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The words of a NACK, which may be megabytes, stood in each answer as they came. An id stands there as a whole: other pages
    /// want it so, and it is a kilobyte at most.
    #[tokio::test]
    async fn texts_of_proxies_are_truncated() {
        let hub = hub();
        let long = "n".repeat(900);
        let node = Node::read(Some(&core::Node {
            id: format!("sidecar~10.0.0.1~b.{long}~demo.svc.cluster.local"),
            ..core::Node::default()
        }));
        let node = Arc::new(node.unwrap());
        let view = hub.current.first().await.view(&node);
        let peer = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        let joined = hub.join(&node, &peer, Protocol::StateOfTheWorld, view);
        let session = &joined.session;
        let mut asked = Request::of(Type::Endpoint);
        asked.names = vec!["x".repeat(500)].into();
        session.receive(hub.clock.now(), &asked).unwrap();
        let sent = session.next(hub.clock.now()).unwrap();
        session.written();
        asked.nonce = sent.nonce.to_string();
        asked.error = Some("é".repeat(10_000));
        session.receive(hub.clock.now(), &asked).unwrap();
        let pages = [sync(&hub), watches(&hub), resources(&hub, Type::Endpoint)];
        let nack = &pages[0][0]["errors"]["endpoint"]["message"];
        assert_eq!(nack.as_str().map(str::len), Some(256));
        for value in &pages {
            let mut max = 0;
            lengths(value, &mut max);
            let row = &value[0]["proxy"];
            assert_eq!(row.as_str(), Some(&*session.node.id));
            // A connection's number stands behind its id.
            assert!((200..=258).contains(&max), "{max}: {value}");
        }
    }
}
