//! Objects that say different things of the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::model::{Labels, Protocol, selects};
use api::names;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, overlap, printable, text, texts};
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
                .filter(|item| selects(&selector(item), &runs.labels))
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
    port: u64,
    shares: Shares,
    /// As it is compared; empty: all addresses.
    bind: String,
    hosts: Vec<String>,
}

/// The servers beside which discovery serves one on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    /// Those in plain text, too.
    Requests,
    /// Those that are told by the server name, too.
    ServerNames,
    /// None.
    Nothing,
}

impl Shares {
    fn of(protocol: &str) -> Self {
        match Protocol::of_service_entry(protocol) {
            Some(protocol) if protocol.is_http() => Self::Requests,
            Some(protocol) if protocol.has_server_name() => Self::ServerNames,
            Some(_) | None => Self::Nothing,
        }
    }
}

/// The selectors of all Gateways, each with the places of the workloads that it selects.
#[derive(Default)]
struct Selectors(Vec<(Labels, BTreeSet<usize>)>);

impl Selectors {
    fn number(&mut self, selector: Labels, all: &Inventory) -> usize {
        let known = self.0.iter().position(|(known, _)| *known == selector);
        known.unwrap_or_else(|| {
            let workloads = all.workloads.iter().enumerate();
            let selected = workloads.filter(|(_, runs)| selects(&selector, &runs.labels));
            let selected = selected.map(|(at, _)| at).collect();
            self.0.push((selector, selected));
            self.0.len() - 1
        })
    }

    /// Reports whether a workload that is known has both. One selector is for the same as itself, known or not.
    fn meet(&self, one: usize, other: usize) -> bool {
        let selected = |at: usize| self.0.get(at).map(|(_, selected)| selected);
        one == other
            || selected(one)
                .zip(selected(other))
                .is_some_and(|(one, other)| !one.is_disjoint(other))
    }

    fn printable(&self, at: usize) -> String {
        self.0
            .get(at)
            .map_or_else(String::new, |(labels, _)| printable(labels))
    }
}

fn bind(written: &str) -> String {
    let address = written.parse::<IpAddr>();
    match address.is_ok_and(|address| address.is_unspecified()) {
        true => String::new(),
        false => names::spelled(written),
    }
}

fn servers(item: &Item) -> impl Iterator<Item = GatewayServer<'_>> {
    list(&item.body, "/servers").map(move |(at, server)| GatewayServer {
        item,
        at,
        port: server
            .pointer("/port/number")
            .and_then(Json::as_u64)
            .unwrap_or_default(),
        shares: Shares::of(text(server, "/port/protocol")),
        bind: bind(text(server, "/bind")),
        hosts: texts(server, "/hosts"),
    })
}

/// Why two servers of one port are not both served as they are written. `port`: the port, with its workloads.
fn contradiction(one: &GatewayServer<'_>, other: &GatewayServer<'_>, port: &str) -> Option<String> {
    let bare = |host: &str| names::spelled(host.split_once('/').map_or(host, |(_, host)| host));
    if one.shares != other.shares || one.shares == Shares::Nothing {
        return Some(format!("has {port} for something else"));
    }
    let mut pairs = one
        .hosts
        .iter()
        .flat_map(|one| other.hosts.iter().map(move |two| (one, two)));
    let (host, _) = pairs.find(|(one, two)| overlap(&bare(one), &bare(two)))?;
    Some(format!("has the host {host:?} on {port}, too"))
}

fn gateways(all: &Inventory, found: &mut Vec<Message>) {
    let mut selectors = Selectors::default();
    let mut by_port: BTreeMap<(u64, String), BTreeMap<usize, Vec<GatewayServer<'_>>>> =
        BTreeMap::new();
    for item in all.of("Gateway") {
        let selector = selectors.number(labels(item.body.get("selector")), all);
        for server in servers(item) {
            let place = by_port.entry((server.port, server.bind.clone()));
            let of_selector = place.or_default().entry(selector);
            of_selector.or_default().push(server);
        }
    }
    for ((port, _), by_selector) in by_port {
        for selector in by_selector.keys() {
            let beside: Vec<_> = by_selector
                .iter()
                .filter(|(other, _)| selectors.meet(*selector, **other))
                .flat_map(|(_, servers)| servers)
                .collect();
            let port = format!(
                "port {port} of the workloads {:?}",
                selectors.printable(*selector)
            );
            for server in by_selector.get(selector).into_iter().flatten() {
                let conflict = beside.iter().find_map(|other| {
                    let is_other = other.item.number != server.item.number;
                    let why = is_other.then(|| contradiction(server, other, &port))??;
                    Some((other, why))
                });
                let Some((other, why)) = conflict else {
                    continue;
                };
                let (namespace, name) = (&other.item.namespace, &other.item.name);
                let words = format!("{namespace}/{name} {why}");
                let path = format!("spec.servers[{}]", server.at);
                push(found, &codes::GATEWAYS, server.item, path, words);
            }
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
