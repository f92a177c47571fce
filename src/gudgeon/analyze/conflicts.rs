//! Objects that say different things of the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::model::{Labels, Protocol, selects};
use api::names;
use serde_json::Value as Json;

use super::audience::Claimants;
use super::codes;
use super::inventory::{Inventory, Item, labels, list, overlap, printable, text, texts};
use super::messages::Message;
use super::references::push;
use super::sidecars;

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    hosts_of_mesh(all, found);
    sidecars::find(all, found);
    gateways(all, found);
    rules_for_host(all, found);
    for item in all.of("EnvoyFilter") {
        relative(item, found);
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
    // Whoever is alone has no rival, however many namespaces see it.
    for (host, items) in by_host.into_iter().filter(|(_, items)| items.len() > 1) {
        let mut claimants = Claimants::default();
        items.iter().for_each(|item| claimants.push(item));
        for item in items {
            let Some(others) = claimants.rivals(item) else {
                continue;
            };
            let has = if others.count == 1 { "has" } else { "have" };
            let words = format!(
                "{others} {has} the host {host:?} for sidecars, too: the oldest alone counts"
            );
            push(found, &codes::MESH_HOSTS, item, "spec.hosts", words);
        }
    }
}

/// A server, by what tells it from others.
struct GatewayServer<'a> {
    item: &'a Item,
    at: usize,
    port: u64,
    shares: Shares,
    /// The address in comparable form; empty: all addresses.
    bind: String,
    hosts: Vec<String>,
    /// The hosts without namespaces, in comparable form.
    bare: Vec<String>,
}

/// The servers beside which discovery serves one on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    /// Those in plain text, too.
    Requests,
    /// Servers that SNI distinguishes, too.
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

    /// Returns true if a workload that is known has both. One selector is for the same as itself, known or not.
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
    let bare = |host: &String| names::spelled(host.split_once('/').map_or(host, |(_, host)| host));
    list(&item.body, "/servers").map(move |(at, server)| {
        let hosts = texts(server, "/hosts");
        GatewayServer {
            item,
            at,
            port: server
                .pointer("/port/number")
                .and_then(Json::as_u64)
                .unwrap_or_default(),
            shares: Shares::of(text(server, "/port/protocol")),
            bind: bind(text(server, "/bind")),
            bare: hosts.iter().map(bare).collect(),
            hosts,
        }
    })
}

/// Why two servers of one port are not both served as they are written. `port`: the port, with its workloads.
fn contradiction(one: &GatewayServer<'_>, other: &GatewayServer<'_>, port: &str) -> Option<String> {
    if one.shares != other.shares || one.shares == Shares::Nothing {
        return Some(format!("has {port} for something else"));
    }
    let overlaps = |bare: &String| other.bare.iter().any(|other| overlap(bare, other));
    let (host, _) = one
        .hosts
        .iter()
        .zip(&one.bare)
        .find(|(_, bare)| overlaps(bare))?;
    Some(format!("has the host {host:?} on {port}, too"))
}

fn gateways(all: &Inventory, found: &mut Vec<Message>) {
    let mut selectors = Selectors::default();
    let mut by_port: BTreeMap<(u64, String), BTreeMap<usize, Vec<GatewayServer<'_>>>> =
        BTreeMap::new();
    for item in all.of("Gateway") {
        let selector = selectors.number(labels(item.body.get("selector")), all);
        // A server without a port is on none.
        for server in servers(item).filter(|server| server.port != 0) {
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

/// A setting that two DestinationRules of a host may both have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleSetting<'a> {
    Policy,
    Subset(&'a str),
}

fn rule_settings(item: &Item) -> BTreeSet<RuleSetting<'_>> {
    let policy = item.body.get("trafficPolicy");
    let policy = policy.map(|_| RuleSetting::Policy);
    let subsets = list(&item.body, "/subsets");
    let subsets = subsets.map(|(_, one)| RuleSetting::Subset(text(one, "/name")));
    policy.into_iter().chain(subsets).collect()
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
    for ((host, _), items) in by_host.into_iter().filter(|(_, items)| items.len() > 1) {
        let mut by_setting: BTreeMap<RuleSetting<'_>, Claimants<'_>> = BTreeMap::new();
        for item in &items {
            for setting in rule_settings(item) {
                by_setting.entry(setting).or_default().push(item);
            }
        }
        for item in items {
            let settings = rule_settings(item);
            let others = settings
                .iter()
                .filter_map(|one| by_setting.get(one)?.rival(item));
            let Some(other) = others.min_by_key(|other| other.number) else {
                continue;
            };
            let both = rule_settings(other);
            let twice = both.intersection(&settings).filter_map(|one| match one {
                RuleSetting::Subset(name) => Some(*name),
                RuleSetting::Policy => None,
            });
            let twice: Vec<&str> = twice.collect();
            let what = match twice.is_empty() {
                false => format!("the subset {:?}", twice.join(", ")),
                true => "a traffic policy".to_owned(),
            };
            let words = format!(
                "{}/{} has {what} for {host:?}, too: that of the older one counts",
                other.namespace, other.name
            );
            push(found, &codes::RULES_FOR_HOST, item, "spec.host", words);
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
        let target = text(patch, "/applyTo");
        let is_relative = match operation {
            "INSERT_BEFORE" | "INSERT_AFTER" => true,
            "REMOVE" => !["ROUTE_CONFIGURATION", "HTTP_ROUTE"].contains(&target),
            "REPLACE" => ["HTTP_FILTER", "NETWORK_FILTER", "VIRTUAL_HOST"].contains(&target),
            _ => false,
        };
        if is_relative {
            let meets = match operation {
                "REMOVE" | "REPLACE" => {
                    "takes away or replaces what another EnvoyFilter may have put there"
                }
                _ => "wants a filter or route that may be another EnvoyFilter's",
            };
            let words = format!(
                "{operation} {meets}: without a priority their age decides which comes first"
            );
            let path = format!("spec.configPatches[{at}].patch.operation");
            push(found, &codes::RELATIVE_PATCH, item, path, words);
        }
    }
}
