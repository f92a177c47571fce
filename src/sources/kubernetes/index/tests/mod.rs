//! Objects in, a contribution out.

#![allow(
    clippy::needless_pass_by_value,
    reason = "each call makes its JSON in place"
)]

mod credentials;
mod ingresses;
mod orders;
mod places;
mod pods;
mod remote;
mod restart;
mod services;
mod source;
mod stretches;

use std::sync::Arc;

use api::model::{Endpoint, Service as Served, ServiceKey};
use serde_json::{Value, json};

use super::{EndpointSlice, Endpoints, Names, Namespace, Node, Objects, Pod, Service, StoredKind};
use crate::kind::Key;

pub(super) fn objects() -> Objects {
    Objects::new(Names {
        cluster: "here".into(),
        domain: "cluster.local".into(),
        trust_domain: "td".into(),
    })
}

pub(super) fn read<K: StoredKind>(object: Value) -> Arc<K> {
    Arc::new(serde_json::from_str(&object.to_string()).unwrap())
}

/// Adds an object by its kind.
pub(super) fn set(objects: &mut Objects, object: Value) {
    match object["kind"].as_str().unwrap() {
        "Service" => objects.set(read::<Service>(object)),
        "EndpointSlice" => objects.set(read::<EndpointSlice>(object)),
        "Endpoints" => objects.set(read::<Endpoints>(object)),
        "Pod" => objects.set(read::<Pod>(object)),
        "Node" => objects.set(read::<Node>(object)),
        "Namespace" => objects.set(read::<Namespace>(object)),
        kind => panic!("{kind}"),
    }
}

pub(super) fn service(name: &str, spec: Value) -> Value {
    json!({"kind": "Service", "metadata": {"name": name, "namespace": "demo"}, "spec": spec})
}

/// One with a selector and the port `http`, 80.
pub(super) fn plain(name: &str) -> Value {
    service(
        name,
        json!({
            "clusterIP": "10.96.0.1", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        }),
    )
}

pub(super) fn slice(name: &str, service: &str, endpoints: Value) -> Value {
    json!({
        "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "demo", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

/// An endpoint that names its pod.
pub(super) fn at(address: &str, pod: &str) -> Value {
    json!({
        "addresses": [address], "conditions": {"ready": true},
        "targetRef": {"kind": "Pod", "namespace": "demo", "name": pod},
    })
}

pub(super) fn pod(name: &str, address: &str, labels: Value) -> Value {
    json!({
        "kind": "Pod", "metadata": {"name": name, "namespace": "demo", "labels": labels},
        "spec": {"serviceAccountName": name, "containers": []},
        "status": {"podIP": address, "podIPs": [{"ip": address}]},
    })
}

pub(super) fn place(name: &str) -> ServiceKey {
    ServiceKey::new(&format!("{name}.demo.svc.cluster.local"), "demo")
}

pub(super) fn served(objects: &mut Objects, name: &str) -> Arc<Served> {
    Arc::clone(&objects.contribution().services[&place(name)])
}

pub(super) fn endpoints(objects: &mut Objects, name: &str) -> Vec<Endpoint> {
    let contribution = objects.contribution();
    contribution
        .endpoints
        .get(&place(name))
        .map_or_else(Vec::new, |all| all.to_vec())
}

/// `ADDRESS:PORT HEALTH` of each.
pub(super) fn brief(objects: &mut Objects, name: &str) -> Vec<String> {
    let say = |one: &Endpoint| format!("{}:{} {}", one.address, one.port, one.health.as_str());
    endpoints(objects, name).iter().map(say).collect()
}

pub(super) fn key(name: &str) -> Key {
    Key::new("demo", name)
}

pub(super) fn node(name: &str, labels: Value) -> Value {
    json!({"kind": "Node", "metadata": {"name": name, "labels": labels}})
}
