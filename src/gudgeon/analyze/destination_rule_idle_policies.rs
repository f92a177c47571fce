//! Settings of DestinationRules that no port of their hosts is for, as discovery tells them once it serves the mesh.

use std::collections::{BTreeMap, BTreeSet};

use api::model::Protocol;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, list, text};
use super::messages::{Message, push};
use super::sidecars;

/// Settings that requests alone have.
const OF_REQUESTS: [&str; 11] = [
    "connectionPool.http.http2MaxRequests",
    "connectionPool.http.maxRequestsPerConnection",
    "connectionPool.http.maxRetries",
    "connectionPool.http.idleTimeout",
    "connectionPool.http.h2UpgradePolicy",
    "connectionPool.http.useClientProtocol",
    "connectionPool.http.maxConcurrentStreams",
    "connectionPool.http.http2KeepAlive",
    "loadBalancer.consistentHash.httpHeaderName",
    "loadBalancer.consistentHash.httpCookie",
    "loadBalancer.consistentHash.httpQueryParameterName",
];

/// The ports of a host by number: true if requests are told apart there.
type NumberedPorts = BTreeMap<u64, bool>;

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let carries_http = |one: Protocol| one.is_http() || one.is_auto();
    // A Sidecar may say that connections are requests.
    let declares_requests = sidecars::declared_protocols(all, &["/egress", "/ingress"])
        .any(|(_, protocol)| carries_http(protocol));
    let reached = reached_by_requests(all);
    for item in all.of("DestinationRule") {
        let host = all.full_host(text(&item.body, "/host"), &item.namespace);
        let services = all.hosts.get(&host).filter(|_| !host.contains('*'));
        let services = services.into_iter().flatten();
        let mut ports = NumberedPorts::new();
        for service in services {
            ports.extend(service.ports.iter().map(|number| (*number, false)));
            let requests = service.protocols.iter();
            let requests = requests.filter(|(_, protocol)| carries_http(*protocol));
            ports.extend(requests.map(|(number, _)| (*number, true)));
        }
        // Of a host that no service has another finding tells.
        if !ports.is_empty() {
            let may_be_requests = declares_requests || reached.contains(&host);
            policies(item, &ports, may_be_requests, messages);
        }
    }
}

/// Hosts that routes of requests lead to, whatever the protocols of their ports are.
fn reached_by_requests(all: &Inventory) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    for item in all.of("VirtualService") {
        let mut add = |host: &str| {
            reached.insert(all.full_host(host, &item.namespace));
        };
        for (_, route) in list(&item.body, "/http") {
            let to = list(route, "/route").chain(list(route, "/mirrors"));
            to.for_each(|(_, one)| add(text(one, "/destination/host")));
            add(text(route, "/mirror/host"));
        }
    }
    reached.extend(sidecars::egress_proxies(all));
    reached
}

fn policies(
    item: &Item,
    ports: &NumberedPorts,
    may_be_requests: bool,
    messages: &mut Vec<Message>,
) {
    let own = item.body.get("trafficPolicy");
    let own = own.map(|policy| ("spec.trafficPolicy".to_owned(), policy));
    let of_subsets = list(&item.body, "/subsets").filter_map(|(at, subset)| {
        let path = format!("spec.subsets[{at}].trafficPolicy");
        Some((path, subset.get("trafficPolicy")?))
    });
    for (path, policy) in own.into_iter().chain(of_subsets) {
        let number = |port: &Json| port.pointer("/port/number").and_then(Json::as_u64);
        let with_own: BTreeSet<_> = list(policy, "/portLevelSettings")
            .filter_map(|(_, port)| number(port))
            .collect();
        let mut rest = ports.iter().filter(|(at, _)| !with_own.contains(at));
        if !may_be_requests && rest.clone().count() > 0 && !rest.any(|(_, requests)| *requests) {
            let port = match with_own.is_empty() {
                true => "a port",
                false => "another port",
            };
            of_requests(item, &path, policy, port, messages);
        }
        for (at, settings) in list(policy, "/portLevelSettings") {
            let path = format!("{path}.portLevelSettings[{at}]");
            let number = number(settings).unwrap_or_default();
            match ports.get(&number) {
                None => {
                    let why =
                        format!("has no effect: no service with its host has a port {number}");
                    push(messages, &codes::IDLE_POLICIES, item, path, why);
                }
                Some(false) if !may_be_requests => {
                    let port = format!("a port {number}");
                    of_requests(item, &path, settings, &port, messages);
                }
                Some(_) => {}
            }
        }
    }
}

fn of_requests(item: &Item, path: &str, settings: &Json, port: &str, messages: &mut Vec<Message>) {
    let is_set = |field: &&&str| {
        let place = format!("/{}", field.replace('.', "/"));
        let value = settings.pointer(&place);
        value.is_some_and(|value| match value {
            Json::Null | Json::Bool(false) => false,
            Json::Number(number) => number.as_i64() != Some(0),
            Json::String(text) => text != "DEFAULT",
            Json::Bool(true) | Json::Array(_) | Json::Object(_) => true,
        })
    };
    for field in OF_REQUESTS.iter().filter(is_set) {
        let why = format!("has no effect: no service with its host has {port} of HTTP");
        push(
            messages,
            &codes::IDLE_POLICIES,
            item,
            format!("{path}.{field}"),
            why,
        );
    }
}
