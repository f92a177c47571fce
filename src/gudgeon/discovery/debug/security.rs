//! Security of one proxy: mutual TLS with the services that it calls, and policies of its workload. The documents have the
//! names that pilot-discovery 1.5 has for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{Configured, ObjectRef};
use api::networking::{DiscoveryKind, json as spec};
use hyper::StatusCode;
use serde_json::{Map, Value, json};
use xds::snapshot::{Agreement, PortSecurity};

use super::dump::{connected, no_proxy};
use crate::discovery::hub::Hub;
use crate::secrets;
use crate::serve::{Answer, Query, as_json, full};

/// The text of a column without a value.
const NONE: &str = "-";

fn unknown(document: &'static str) -> Answer {
    full(StatusCode::NOT_FOUND, "application/json", document.into())
}

/// Mutual TLS between a proxy and the services that it sees, port by port.
pub(super) fn authentication(hub: &Hub, query: &Query<'_>) -> Answer {
    let Some(wanted) = query.get("proxyID").filter(|wanted| !wanted.is_empty()) else {
        return no_proxy();
    };
    let (Some(session), Some(snapshot)) = (connected(hub, &wanted), hub.snapshot()) else {
        return unknown("[]");
    };
    let rows = snapshot.port_security(&session.node);
    as_json(&Value::Array(rows.iter().map(row).collect()))
}

fn row(port: &PortSecurity) -> Value {
    let host = match &*port.subset {
        "" => port.host.to_string(),
        subset => format!("{}|{subset}", port.host),
    };
    let named = |object: &ObjectRef| format!("{}/{}", object.namespace, object.name);
    let joined = |parts: Vec<String>| match parts.is_empty() {
        true => NONE.to_owned(),
        false => parts.join("|"),
    };
    let servers = port.servers.iter().map(ToString::to_string);
    json!({
        "host": host,
        "port": port.port,
        "authentication_policy_name": joined(port.policies.iter().map(named).collect()),
        "destination_rule_name": port.rule.as_ref().map_or_else(|| NONE.to_owned(), named),
        "server_protocol": joined(servers.collect()),
        "client_protocol": port.client.unwrap_or(NONE),
        "TLS_conflict_status": match port.agreement {
            Agreement::Agree => "OK",
            Agreement::Conflict => "CONFLICT",
            Agreement::Auto => "AUTO",
        },
    })
}

/// Policies of a proxy's workload, by namespace and in the order in which they count; without a proxy, those of all.
pub(super) fn authorization(hub: &Hub, query: &Query<'_>) -> Answer {
    let Some(snapshot) = hub.snapshot() else {
        return unknown("{}");
    };
    let world = snapshot.world();
    let (policies, requests) = match query.get("proxyID").filter(|wanted| !wanted.is_empty()) {
        Some(wanted) => {
            let Some(session) = connected(hub, &wanted) else {
                return unknown("{}");
            };
            let all = snapshot.policies_in_force(&session.node);
            (all.authorization, all.requests)
        }
        None => (
            world.authorization_policies.values().cloned().collect(),
            world.request_authentications.values().cloned().collect(),
        ),
    };
    as_json(&json!({
        "authorization_policies": {
            "namespace_to_v1alpha1_policies": {},
            "rbac_config": null,
            "namespace_to_v1beta1_policies": by_namespace(&policies, "authorization_policy"),
            "root_namespace": world.mesh.root_namespace,
        },
        "request_authentications": by_namespace(&requests, "request_authentication"),
    }))
}

fn by_namespace<T: DiscoveryKind>(
    objects: &[Arc<Configured<T>>],
    name: &str,
) -> BTreeMap<String, Vec<Value>> {
    let mut all = BTreeMap::<String, Vec<Value>>::new();
    for object in objects {
        let fields = spec(&object.spec).unwrap_or_default();
        let fields: Map<String, Value> = fields.into_iter().collect();
        let mut redacted =
            json!({"name": &*object.name, "namespace": &*object.namespace, name: fields});
        secrets::redact(&mut redacted);
        let of = all.entry(object.namespace.to_string()).or_default();
        of.push(redacted);
    }
    all
}
