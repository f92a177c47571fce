//! Much of everything: what is found is looked up, so that twice as much takes about twice as long. The bounds are generous; a
//! look at each with each is up to a billion looks and more.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::inventory::{Inventory, Item};
use super::super::messages::Message;
use super::super::{gateway_ports, gateways, workloads};
use crate::growth::cpu_time;

const PATIENCE: Duration = Duration::from_secs(20);

fn items(all: impl IntoIterator<Item = (&'static str, Json)>) -> Vec<Item> {
    let item = |(number, (kind, body)): (usize, (&str, Json))| Item {
        number,
        group: String::new(),
        kind: kind.to_owned(),
        namespace: "n".to_owned(),
        name: format!("i{number}"),
        body,
        annotations: Json::Null,
    };
    all.into_iter().enumerate().map(item).collect()
}

fn found(items: Vec<Item>, find: fn(&Inventory, &mut Vec<Message>)) -> Vec<Message> {
    let begun = cpu_time();
    let mut found = Vec::new();
    find(
        &Inventory::new(items, "istio-system", "cluster.local"),
        &mut found,
    );
    let took = cpu_time().saturating_sub(begun);
    assert!(took < PATIENCE, "{took:?}");
    found
}

fn labels(count: usize) -> Json {
    let labels = (0..count).map(|at| (format!("k{at}"), json!("v")));
    Json::Object(labels.collect())
}

fn pod(labels: &Json) -> (&'static str, Json) {
    ("Pod", json!({"metadata": {"labels": labels}}))
}

fn gateway(selector: &Json, port: u64, hosts: &[String]) -> (&'static str, Json) {
    let server = json!({"port": {"number": port, "protocol": "HTTP"}, "hosts": hosts});
    (
        "Gateway",
        json!({"selector": selector, "servers": [server]}),
    )
}

#[test]
fn gateways_times_services_times_workloads() {
    const MANY: usize = 2000;
    let with = |name: &str| {
        let mut labels = labels(20);
        labels[name] = json!("x");
        labels
    };
    let service = |at: usize| {
        let ports = json!([{"port": at + 1, "targetPort": 8080}]);
        (
            "Service",
            json!({"spec": {"selector": with("other"), "ports": ports}}),
        )
    };
    let pods = (0..MANY).map(|_| pod(&labels(20)));
    let services = (0..MANY).map(service);
    // One of them is theirs.
    let theirs = (
        "Service",
        json!({"spec": {"selector": {"k1": "v"}, "ports": [{"port": 80}]}}),
    );
    let gateways = (0..MANY).map(|at| gateway(&json!({"k0": "v"}), 80 + (at as u64 % 2), &[]));
    let all = items(pods.chain(services).chain([theirs]).chain(gateways));
    let found = found(all, gateway_ports::find);
    let of_port = found
        .iter()
        .filter(|one| one.text.contains("has the port 81"));
    assert_eq!(of_port.count(), MANY / 2);
}

#[test]
fn selectors_that_match_nothing() {
    const MANY: usize = 10_000;
    let pods = (0..MANY).map(|_| pod(&labels(20)));
    let policy = |at: usize| {
        let mut labels = labels(19);
        labels["zz"] = json!(at.to_string());
        (
            "AuthorizationPolicy",
            json!({"selector": {"matchLabels": labels}}),
        )
    };
    let found = found(
        items(pods.chain((0..MANY).map(policy))),
        workloads::selectors,
    );
    assert_eq!(found.len(), MANY);
}

#[test]
fn servers_of_one_port() {
    const MANY: usize = 40_000;
    let host = |at: usize| match at % 10 {
        0 => format!("*.w{at}.example"),
        1 => format!("a.w{}.example", at - 1),
        _ => format!("h{at}.example"),
    };
    let gateways = (0..MANY).map(|at| gateway(&json!({"k0": "v"}), 80, &[host(at)]));
    let found = found(items(gateways.chain([pod(&labels(1))])), gateways::find);
    // A wildcard and the host that it covers.
    assert_eq!(found.len(), MANY / 10 * 2);
}

#[test]
fn selectors_of_the_same_workloads() {
    const MANY: usize = 1500;
    let selector = |at: usize| {
        let mut selector = json!({});
        selector[format!("k{}", at / 60)] = json!("v");
        selector[format!("k{}", at % 60)] = json!("v");
        selector
    };
    let gateways = (0..MANY).map(|at| gateway(&selector(at), 80, &[format!("h{at}.example")]));
    let pods = (0..4000).map(|_| pod(&labels(60)));
    assert_eq!(found(items(gateways.chain(pods)), gateways::find).len(), 0);
}
