//! Routes of VirtualServices for sidecars that no port of their hosts is for, as discovery tells them once it serves the mesh.

use std::collections::BTreeSet;

use api::model::Protocol;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, is_meant, list, texts};
use super::messages::{Message, push};
use super::sidecars;

/// A list of routes, with the protocols of its ports, in words, and whether one is among them.
type RouteList = (&'static str, &'static str, fn(Protocol) -> bool);

const KINDS: [RouteList; 3] = [
    ("http", "HTTP", |one| one.is_http() || one.is_auto()),
    ("tls", "HTTPS or TLS", Protocol::has_server_name),
    ("tcp", "TCP", |one| {
        !one.is_http() && !one.has_server_name() && one != Protocol::Udp
    }),
];

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    let wildcards = all.hosts.keys().filter(|host| host.starts_with('*'));
    let wildcards: Vec<_> = wildcards.collect();
    // A Sidecar may say that requests are connections.
    let declares_connections = sidecars::declared_protocols(all, &["/egress"])
        .any(|(declared, protocol)| !declared.is_empty() && !protocol.is_http());
    for item in all.of("VirtualService") {
        let hosts = texts(&item.body, "/hosts");
        let hosts = hosts
            .iter()
            .map(|host| all.full_host(host, &item.namespace));
        let hosts: Vec<String> = hosts.collect();
        // Requests to a host come in at the ports of a service with a star, too.
        let is_below = |host: &String| wildcards.iter().any(|one| is_meant(one, host));
        let are_below = hosts.iter().any(is_below);
        let hosts = hosts.into_iter();
        // A host that no service has stands by itself, and one with a star may mean others.
        let services = hosts.map(|host| all.hosts.get(&host).filter(|_| !host.contains('*')));
        let Some(services) = services.collect::<Option<Vec<_>>>() else {
            continue;
        };
        let ports = services
            .into_iter()
            .flatten()
            .flat_map(|one| &one.protocols);
        let ports: BTreeSet<_> = ports.copied().collect();
        if !ports.is_empty() && is_for_sidecars(&item.body) {
            let kinds = KINDS.iter();
            kinds
                .filter(|(kind, ..)| match *kind {
                    "http" => !are_below,
                    _ => !declares_connections,
                })
                .for_each(|kind| routes(item, kind, &ports, messages));
        }
    }
}

/// Returns true if nothing names gateways, or `mesh` is among them.
fn is_for_sidecars(one: &Json) -> bool {
    let gateways = texts(one, "/gateways");
    gateways.is_empty() || gateways.iter().any(|one| one == "mesh")
}

fn routes(
    item: &Item,
    (kind, protocols, is_at): &RouteList,
    ports: &BTreeSet<(u64, Protocol)>,
    messages: &mut Vec<Message>,
) {
    let all = || list(&item.body, &format!("/{kind}")).collect::<Vec<_>>();
    let are_any = all().iter().any(|(_, route)| {
        let mut matches = list(route, "/match").peekable();
        matches.peek().is_none() || matches.any(|(_, one)| is_for_sidecars(one))
    });
    if !are_any {
        return;
    }
    let numbers = ports.iter().filter(|(_, protocol)| is_at(*protocol));
    let numbers: BTreeSet<u64> = numbers.map(|(number, _)| *number).collect();
    if numbers.is_empty() {
        let text = format!(
            "no {kind} route applies to sidecars: no service with one of the hosts has a port of {protocols}"
        );
        push(
            messages,
            &codes::IDLE_ROUTES,
            item,
            format!("spec.{kind}"),
            text,
        );
        return;
    }
    // Gateways have ports of their own.
    let of_rule = texts(&item.body, "/gateways");
    let are_gateways = |names: &[String]| names.iter().any(|one| one != "mesh");
    for (route, matches) in all() {
        for (at, one) in list(matches, "/match") {
            let names = texts(one, "/gateways");
            let port = one.get("port").and_then(Json::as_u64).unwrap_or_default();
            let is_elsewhere = are_gateways(&names) || names.is_empty() && are_gateways(&of_rule);
            if port == 0 || is_elsewhere || numbers.contains(&port) {
                continue;
            }
            let text = format!(
                "it never matches: no service with one of the hosts has a port {port} of {protocols}"
            );
            let path = format!("spec.{kind}[{route}].match[{at}].port");
            push(messages, &codes::IDLE_ROUTES, item, path, text);
        }
    }
}
