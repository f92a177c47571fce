//! The resources of one proxy, in the form of Envoy's own configuration dump.
//!
//! Resources are bytes here. Descriptors of Envoy's messages read them, parsed for each request and dropped with it: they take
//! no memory between requests.

use std::sync::Arc;

use api::envoy::{DescriptorPool, ENVOY};
use hyper::StatusCode;
use serde_json::{Map, Value, json};
use xds::node::clipped;
use xds::view::{Resource, Type};

use super::proto_printer::printed;
use crate::discovery::hub::Hub;
use crate::discovery::session::Session;
use crate::log;
use crate::serve::{Answer, Query, as_json, text};

/// `proxyID`: `NAME.NAMESPACE` or a whole node id.
pub(super) fn answer(hub: &Hub, query: &Query<'_>) -> Answer {
    let Some(wanted) = query.get("proxyID").filter(|wanted| !wanted.is_empty()) else {
        return no_proxy();
    };
    let Some(session) = connected(hub, &wanted) else {
        return text(StatusCode::NOT_FOUND, &format!("{wanted} is not connected"));
    };
    match DescriptorPool::new(ENVOY) {
        Ok(pool) => as_json(&json!({"configs": configs(hub, &pool, &session)})),
        Err(_) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot read the descriptors of messages",
        ),
    }
}

/// The answer to a request that names no proxy.
pub(super) fn no_proxy() -> Answer {
    text(StatusCode::BAD_REQUEST, "want ?proxyID=NAME.NAMESPACE")
}

/// The newest connection of a proxy, by `NAME.NAMESPACE` or its whole node id.
pub(super) fn connected(hub: &Hub, wanted: &str) -> Option<Arc<Session>> {
    let is_it = |session: &Session| {
        let node = &session.node;
        *node.id == *wanted || format!("{}.{}", node.name, node.namespace) == wanted
    };
    let mut sessions = hub.sessions.all().into_iter().rev();
    sessions.find(|session| is_it(session))
}

fn configs(hub: &Hub, pool: &DescriptorPool<'_>, session: &Session) -> Vec<Value> {
    let states = |kind: Type, field: &str| states(hub, pool, session, (kind, field));
    let listed = |kind: Type, field: &str| {
        let all = states(kind, field).into_iter();
        Value::Array(all.map(|(_, state)| state.into()).collect())
    };
    let listeners = states(Type::Listener, "listener").into_iter();
    let listeners = listeners.map(|(name, mut state)| match state.remove(ERROR_STATE) {
        Some(error) => json!({"name": name, "active_state": state, ERROR_STATE: error}),
        None => json!({"name": name, "active_state": state}),
    });
    let version = |kind: Type| {
        let sent = session.with_stream(|stream| stream.status(kind).and_then(|status| status.sent));
        sent.map(|version| version.to_string()).unwrap_or_default()
    };
    let dump = |name: &str| format!("type.googleapis.com/envoy.admin.v3.{name}ConfigDump");
    vec![
        json!({"@type": dump("Bootstrap")}),
        json!({
            "@type": dump("Clusters"),
            "version_info": version(Type::Cluster),
            "dynamic_active_clusters": listed(Type::Cluster, "cluster"),
        }),
        json!({
            "@type": dump("Listeners"),
            "version_info": version(Type::Listener),
            "dynamic_listeners": listeners.collect::<Vec<_>>(),
        }),
        json!({
            "@type": dump("Routes"),
            "dynamic_route_configs": listed(Type::Route, "route_config"),
        }),
        json!({
            "@type": dump("Endpoints"),
            "dynamic_endpoint_configs": listed(Type::Endpoint, "endpoint_config"),
        }),
    ]
}

const ERROR_STATE: &str = "error_state";

/// The resources of a type by name, each with its version and itself as this field: istioctl reads the field of each. One that the
/// proxy refused has an error state beside it, as a listener has in Envoy's own dump: the proxy may have an older one, or none.
fn states(
    hub: &Hub,
    pool: &DescriptorPool<'_>,
    session: &Session,
    (kind, field): (Type, &str),
) -> Vec<(String, Map<String, Value>)> {
    let (all, refused) =
        session.with_stream(|stream| (stream.resources(kind), stream.refused(kind)));
    let state = |resource: &Resource| {
        let version = Value::from(resource.version.to_string());
        let body = debug_view(pool, kind, resource);
        let error = refused.get(&resource.name).map(|nack| {
            json!({
                "failed_configuration": body,
                "last_update_attempt": log::stamp(hub.clock.wall(nack.at)),
                "details": clipped(&nack.message),
                "version_info": version,
            })
        });
        let mut state = Map::from_iter([
            ("version_info".to_owned(), version),
            (field.to_owned(), body),
        ]);
        state.extend(error.map(|error| (ERROR_STATE.to_owned(), error)));
        state
    };
    let all = all.iter();
    all.map(|resource| (resource.name.to_string(), state(resource)))
        .collect()
}

/// A resource as proto JSON, with its type.
fn debug_view(pool: &DescriptorPool<'_>, kind: Type, resource: &Resource) -> Value {
    let url = kind.url();
    let mut fields = Map::from_iter([("@type".to_owned(), url.into())]);
    // The proxy has it of an earlier stream: a server knows its content no more.
    if resource.body.is_empty() {
        fields.insert(name_field(kind).to_owned(), (&*resource.name).into());
    }
    match read(pool, url, resource) {
        Ok(Value::Object(read)) => fields.extend(read),
        Ok(_) => {}
        // It is shown that there is one.
        Err(cause) => {
            fields.insert("name".to_owned(), (&*resource.name).into());
            fields.insert("error".to_owned(), cause.into());
        }
    }
    fields.into()
}

const fn name_field(kind: Type) -> &'static str {
    match kind {
        Type::Endpoint => "cluster_name",
        Type::Cluster | Type::Listener | Type::Route | Type::Secret => "name",
    }
}

fn read(pool: &DescriptorPool<'_>, url: &str, resource: &Resource) -> Result<Value, String> {
    let name = url.rsplit('/').next().unwrap_or_default();
    printed(pool, name, &resource.body)
}

#[cfg(test)]
mod tests {
    use api::mesh::discovery_defaults;
    use api::model::World;
    use envoy_types::pb::envoy::config::core::v3 as core;
    use prost_reflect::{DescriptorPool as ReflectPool, DynamicMessage, SerializeOptions};
    use std::sync::Arc;
    use xds::node::Node;
    use xds::settings::Settings;
    use xds::snapshot::Snapshot;

    use super::*;

    /// Prints a resource with another reader of descriptors.
    fn other(pool: &ReflectPool, kind: Type, resource: &Resource) -> Value {
        let url = kind.url();
        let name = url.rsplit('/').next().unwrap();
        let message = pool.get_message_by_name(name).unwrap();
        let message = DynamicMessage::decode(message, resource.body.clone()).unwrap();
        let options = SerializeOptions::new().use_proto_field_name(true);
        let read = message.serialize_with_options(serde_json::value::Serializer, &options);
        let mut read = read.unwrap();
        read["@type"] = url.into();
        read
    }

    /// All that a sidecar is given, with each filter in it, is described.
    #[test]
    fn every_resource_of_a_sidecar_can_be_read() {
        let pool = DescriptorPool::new(ENVOY).unwrap();
        let reflected = ReflectPool::decode(ENVOY).unwrap();
        let mut mesh = discovery_defaults();
        mesh.access_log_file = "/dev/stdout".to_owned();
        mesh.proxy_http_port = 15002;
        let snapshot = Snapshot::new(World::new(Arc::new(mesh)), Arc::new(Settings::default()));
        let node = Node::read(Some(&core::Node {
            id: "sidecar~10.0.0.1~b-1.demo~demo.svc.cluster.local".to_owned(),
            ..core::Node::default()
        }));
        let view = snapshot.view(&Arc::new(node.unwrap()));
        let mut count = 0;
        for kind in Type::ALL {
            for resource in view.all(kind).iter() {
                let rendered = debug_view(&pool, kind, resource);
                assert_eq!(rendered.get("error"), None, "{rendered}");
                assert_eq!(rendered["@type"], kind.url());
                assert_eq!(rendered["name"], *resource.name);
                assert_eq!(rendered, other(&reflected, kind, resource));
                count += 1;
            }
        }
        assert!(count > 5, "{count}");
    }

    /// It had its type alone.
    #[test]
    fn a_resource_of_an_earlier_stream_has_its_name() {
        let pool = DescriptorPool::new(ENVOY).unwrap();
        let earlier = Resource::new("a", Vec::new());
        for kind in Type::ALL {
            let rendered = debug_view(&pool, kind, &earlier);
            let field = if kind == Type::Endpoint {
                "cluster_name"
            } else {
                "name"
            };
            assert_eq!(rendered, json!({"@type": kind.url(), field: "a"}));
        }
    }
}
