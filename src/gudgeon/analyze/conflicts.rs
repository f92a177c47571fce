//! Objects that say different things of the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::names;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, overlap, shown, text, texts};
use super::messages::Message;
use super::references::push;

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    hosts_of_mesh(all, found);
    sidecars(all, found);
    gateways(all, found);
    rules_for_host(all, found);
    for item in all.of("EnvoyFilter") {
        relative(item, found);
    }
}

fn names<'a>(items: impl IntoIterator<Item = &'a &'a Item>) -> String {
    let names = items
        .into_iter()
        .map(|item| format!("{}/{}", item.namespace, item.name));
    names.collect::<Vec<_>>().join(", ")
}

/// Namespaces that see an object; `None`: all.
fn audience(item: &Item) -> Option<BTreeSet<String>> {
    let to = texts(&item.body, "/exportTo");
    if to.is_empty() || to.iter().any(|one| one == "*") {
        return None;
    }
    let own = |one: String| match one.as_str() {
        "." => item.namespace.clone(),
        _ => one,
    };
    Some(to.into_iter().map(own).filter(|one| one != "~").collect())
}

/// Reports whether one namespace sees both.
fn meet(one: &Item, other: &Item) -> bool {
    match (audience(one), audience(other)) {
        (Some(one), Some(other)) => !one.is_disjoint(&other),
        (Some(only), None) | (None, Some(only)) => !only.is_empty(),
        (None, None) => true,
    }
}

fn is_of_mesh(item: &Item) -> bool {
    let gateways = texts(&item.body, "/gateways");
    gateways.is_empty() || gateways.iter().any(|one| one == "mesh")
}

/// For sidecars one VirtualService counts: discovery takes the oldest.
fn hosts_of_mesh(all: &Inventory, found: &mut Vec<Message>) {
    let mut by_host: BTreeMap<String, Vec<&Item>> = BTreeMap::new();
    for item in all.of("VirtualService").filter(|item| is_of_mesh(item)) {
        let hosts: BTreeSet<String> = texts(&item.body, "/hosts")
            .iter()
            .map(|host| all.full_host(host, &item.namespace))
            .collect();
        for host in hosts {
            by_host.entry(host).or_default().push(item);
        }
    }
    for (host, items) in by_host {
        for item in &items {
            let others: Vec<&Item> = items
                .iter()
                .copied()
                .filter(|other| other.number != item.number && meet(item, other))
                .collect();
            if !others.is_empty() {
                let words = format!(
                    "{} has the host {host:?} for sidecars, too: the oldest alone counts",
                    names(&others)
                );
                push(found, &codes::MESH_HOSTS, item, "spec.hosts", words);
            }
        }
    }
}

fn sidecars(all: &Inventory, found: &mut Vec<Message>) {
    let mut by_namespace: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in all.of("Sidecar") {
        by_namespace.entry(&item.namespace).or_default().push(item);
    }
    for (namespace, items) in by_namespace {
        let selector = |item: &Item| labels(item.body.pointer("/workloadSelector/labels"));
        let (without, with): (Vec<&Item>, Vec<&Item>) = items
            .into_iter()
            .partition(|item| selector(item).is_empty());
        if without.len() > 1 {
            for item in &without {
                let words = format!(
                    "{} have no selector: the oldest alone counts",
                    names(&without)
                );
                push(found, &codes::SIDECARS_WITHOUT_SELECTOR, item, "", words);
            }
        }
        let mut told: BTreeSet<(usize, usize)> = BTreeSet::new();
        for runs in all
            .workloads
            .iter()
            .filter(|runs| runs.namespace == namespace)
        {
            let selecting: Vec<&Item> = with
                .iter()
                .copied()
                .filter(|item| api::model::selects(&selector(item), &runs.labels))
                .collect();
            for item in &selecting {
                let other = selecting.iter().find(|other| other.number != item.number);
                let Some(other) = other.filter(|other| told.insert((item.number, other.number)))
                else {
                    continue;
                };
                let words = format!(
                    "{}/{} selects the workload {}, too: the oldest alone counts",
                    other.namespace, other.name, runs.name
                );
                push(
                    found,
                    &codes::SIDECARS_SELECT,
                    item,
                    "spec.workloadSelector",
                    words,
                );
            }
        }
    }
}

/// A server, by what tells it from others.
struct GatewayServer<'a> {
    item: &'a Item,
    at: usize,
    selector: String,
    port: u64,
    protocol: String,
    /// As it is compared; empty: all addresses.
    bind: String,
    hosts: Vec<String>,
}

fn bind(written: &str) -> String {
    let address = written.parse::<IpAddr>();
    match address.is_ok_and(|address| address.is_unspecified()) {
        true => String::new(),
        false => names::spelled(written),
    }
}

fn servers<'a>(item: &'a Item) -> impl Iterator<Item = GatewayServer<'a>> {
    let selector = shown(&labels(item.body.get("selector")));
    list(&item.body, "/servers").map(move |(at, server)| GatewayServer {
        item,
        at,
        selector: selector.clone(),
        port: server
            .pointer("/port/number")
            .and_then(Json::as_u64)
            .unwrap_or_default(),
        protocol: text(server, "/port/protocol").to_ascii_uppercase(),
        bind: bind(text(server, "/bind")),
        hosts: texts(server, "/hosts"),
    })
}

fn gateways(all: &Inventory, found: &mut Vec<Message>) {
    let all: Vec<GatewayServer<'_>> = all.of("Gateway").flat_map(servers).collect();
    let mut by_port: BTreeMap<(&str, u64, &str), Vec<&GatewayServer<'_>>> = BTreeMap::new();
    for server in &all {
        let key = (server.selector.as_str(), server.port, server.bind.as_str());
        by_port.entry(key).or_default().push(server);
    }
    let bare = |host: &str| names::spelled(host.split_once('/').map_or(host, |(_, host)| host));
    for ((selector, port, _), servers) in by_port {
        for server in &servers {
            let conflict = servers.iter().find_map(|other| {
                if other.item.number == server.item.number {
                    return None;
                }
                let mut pairs = server
                    .hosts
                    .iter()
                    .flat_map(|one| other.hosts.iter().map(move |two| (one, two)));
                let shared = pairs.find(|(one, two)| overlap(&bare(one), &bare(two)))?;
                Some((other, shared.0, server.protocol == other.protocol))
            });
            let Some((other, host, _)) = conflict else {
                continue;
            };
            let words = format!(
                "{}/{} has the host {host:?} on port {port} of the workloads {selector:?}, too",
                other.item.namespace, other.item.name
            );
            let path = format!("spec.servers[{}]", server.at);
            push(found, &codes::GATEWAYS, server.item, path, words);
        }
    }
}

/// Two of one namespace are merged: of a subset that both have the first counts, and so does the first policy.
fn rules_for_host(all: &Inventory, found: &mut Vec<Message>) {
    let mut by_host: BTreeMap<(String, &str), Vec<&Item>> = BTreeMap::new();
    for item in all.of("DestinationRule") {
        if item.body.get("workloadSelector").is_some() {
            continue;
        }
        let host = all.full_host(text(&item.body, "/host"), &item.namespace);
        by_host
            .entry((host, &item.namespace))
            .or_default()
            .push(item);
    }
    for ((host, _), items) in by_host {
        for item in &items {
            let says = |pointer: &str| item.body.pointer(pointer).is_some();
            let subsets: BTreeSet<&str> = list(&item.body, "/subsets")
                .map(|(_, one)| text(one, "/name"))
                .collect();
            for other in items
                .iter()
                .filter(|other| other.number != item.number && meet(item, other))
            {
                let both = list(&other.body, "/subsets").map(|(_, one)| text(one, "/name"));
                let twice: Vec<&str> = both.filter(|name| subsets.contains(name)).collect();
                let policies = says("/trafficPolicy") && other.body.get("trafficPolicy").is_some();
                let what = match (twice.is_empty(), policies) {
                    (false, _) => format!("the subset {:?}", twice.join(", ")),
                    (true, true) => "a traffic policy".to_owned(),
                    (true, false) => continue,
                };
                let words = format!(
                    "{}/{} has {what} for {host:?}, too: that of the older one counts",
                    other.namespace, other.name
                );
                push(found, &codes::RULES_FOR_HOST, item, "spec.host", words);
                break;
            }
        }
    }
}

fn relative(item: &Item, found: &mut Vec<Message>) {
    let priority = item
        .body
        .get("priority")
        .and_then(Json::as_i64)
        .unwrap_or_default();
    if priority != 0 {
        return;
    }
    for (at, patch) in list(&item.body, "/configPatches") {
        let operation = text(patch, "/patch/operation");
        if matches!(operation, "INSERT_BEFORE" | "INSERT_AFTER") {
            let words = format!(
                "{operation} wants a filter or route that may be another EnvoyFilter's: without a priority their age decides which comes first"
            );
            let path = format!("spec.configPatches[{at}].patch.operation");
            push(found, &codes::RELATIVE_PATCH, item, path, words);
        }
    }
}
