//! Names of other objects: gateways, hosts, subsets, ports, delegates.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use api::names;
use serde_json::Value as Json;

use super::codes;
use super::gateways::named_gateway;
use super::inventory::{Inventory, Item, list, overlap, text, texts};
use super::messages::{Message, missing, push};

pub(super) fn host_of_rule(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let host = text(&item.body, "/host");
    // A host that is missing is a mistake of the object itself.
    if host.is_empty() {
        return;
    }
    let full = all.full_host(host, &item.namespace);
    if all.hosts_of(&full, &item.namespace).is_empty() {
        let message = format!("no service has the host {host:?}");
        push(
            messages,
            &codes::RULE_WITHOUT_HOST,
            item,
            "spec.host",
            message,
        );
    }
}

pub(super) fn gateways(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let mut names: Vec<(String, String)> = Vec::new();
    for (at, name) in list(&item.body, "/gateways") {
        names.push((
            format!("spec.gateways[{at}]"),
            name.as_str().unwrap_or_default().to_owned(),
        ));
    }
    for protocol in ["http", "tls", "tcp"] {
        for (rule, one) in list(&item.body, &format!("/{protocol}")) {
            for (at, one) in list(one, "/match") {
                for (gateway, name) in list(one, "/gateways") {
                    let path = format!("spec.{protocol}[{rule}].match[{at}].gateways[{gateway}]");
                    names.push((path, name.as_str().unwrap_or_default().to_owned()));
                }
            }
        }
    }
    let mut known_gateways = Vec::new();
    let mut is_any_missing = false;
    for (path, name) in names {
        if name == "mesh" || name.is_empty() {
            continue;
        }
        match named_gateway(all, item, &name) {
            Some(gateway) => known_gateways.push((path, name, gateway)),
            None => {
                is_any_missing = true;
                missing(messages, item, &path, "gateway", &name);
            }
        }
    }
    hosts_of_gateways(all, item, &known_gateways, is_any_missing, messages);
}

/// Checks that each gateway serves one of the hosts, and that one of the gateways serves each host. One that `is_any_missing` may
/// serve them all.
fn hosts_of_gateways(
    all: &Inventory,
    item: &Item,
    gateways: &[(String, String, &Item)],
    is_any_missing: bool,
    messages: &mut Vec<Message>,
) {
    let hosts = texts(&item.body, "/hosts");
    // For sidecars it may have others.
    let is_of_mesh = list(&item.body, "/gateways").any(|(_, name)| name == "mesh");
    let mut lost: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut is_all_idle = true;
    // Each match of a rule may name the same ones.
    let mut checked = HashSet::new();
    for (path, name, gateway) in gateways {
        if !checked.insert(gateway.number) {
            continue;
        }
        let unserved = unserved(all, item, gateway, &hosts);
        lost.retain(|host| unserved.contains(host));
        if unserved.len() < hosts.len() {
            is_all_idle = false;
        } else {
            let message = format!("the gateway {name:?} does not serve {}", hosts.join(", "));
            push(messages, &codes::HOST_NOT_IN_GATEWAY, item, path, message);
        }
    }
    // Gateways that serve none of the hosts have a message each.
    if lost.is_empty() || is_all_idle || is_of_mesh || is_any_missing {
        return;
    }
    let lost = lost.join(", ");
    let mut names: Vec<&str> = gateways.iter().map(|(_, name, _)| &**name).collect();
    names.sort_unstable();
    names.dedup();
    let (path, message) = match (names.as_slice(), gateways.first()) {
        ([name], Some((path, ..))) => (
            path.as_str(),
            format!("the gateway {name:?} does not serve {lost}"),
        ),
        _ => ("spec.hosts", format!("none of the gateways serves {lost}")),
    };
    push(messages, &codes::HOST_NOT_IN_GATEWAY, item, path, message);
}

/// Hosts of a VirtualService that a Gateway has no server for.
fn unserved<'a>(
    all: &Inventory,
    item: &Item,
    gateway: &Item,
    hosts: &'a [String],
) -> HashSet<&'a str> {
    let served = list(&gateway.body, "/servers")
        .flat_map(|(_, server)| texts(server, "/hosts"))
        .filter_map(|host| of_namespace(&host, &item.namespace, &gateway.namespace))
        .map(|host| names::canonical_host(&host));
    let (wild, exact): (HashSet<String>, HashSet<String>) =
        served.partition(|host| host.starts_with('*'));
    let is_served = |host: &str| {
        let mut patterns = wild.iter();
        exact.contains(host)
            || patterns.any(|served| overlap(served, host))
            || (host.starts_with('*') && exact.iter().any(|served| overlap(served, host)))
    };
    let hosts = hosts.iter().map(String::as_str);
    let lost = hosts.filter(|host| {
        let full = all.full_host(host, &item.namespace);
        !is_served(&names::canonical_host(host)) && !is_served(&full)
    });
    lost.collect()
}

/// The host of a Gateway's server, where it is for rules of this namespace: `HOST`, `NAMESPACE/HOST`.
fn of_namespace(host: &str, namespace: &str, own: &str) -> Option<String> {
    match host.split_once('/') {
        None => Some(host.to_owned()),
        Some(("*", host)) => Some(host.to_owned()),
        Some((".", host)) => (namespace == own).then(|| host.to_owned()),
        Some((of, host)) => (of == namespace).then(|| host.to_owned()),
    }
}

/// Places of destinations in a VirtualService.
fn each_destination(body: &Json) -> Vec<(String, &Json)> {
    let mut all = Vec::new();
    for protocol in ["http", "tls", "tcp"] {
        for (rule, one) in list(body, &format!("/{protocol}")) {
            let place = format!("spec.{protocol}[{rule}]");
            for (at, route) in list(one, "/route") {
                let to = route.get("destination");
                all.extend(to.map(|to| (format!("{place}.route[{at}].destination"), to)));
            }
            all.extend(one.get("mirror").map(|to| (format!("{place}.mirror"), to)));
            for (at, mirror) in list(one, "/mirrors") {
                let to = mirror.get("destination");
                all.extend(to.map(|to| (format!("{place}.mirrors[{at}].destination"), to)));
            }
        }
    }
    all
}

pub(super) fn destinations(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    for (path, to) in each_destination(&item.body) {
        let host = text(to, "/host");
        if host.is_empty() {
            continue;
        }
        let full = all.full_host(host, &item.namespace);
        let hosts = all.hosts_of(&full, &item.namespace);
        if hosts.is_empty() {
            missing(messages, item, &format!("{path}.host"), "host", host);
        }
        let subset = text(to, "/subset");
        if !subset.is_empty() && !has_subset(all, &full, subset, &item.namespace) {
            let message = format!("no DestinationRule has the subset {subset:?} of {host:?}");
            push(
                messages,
                &codes::NOT_FOUND,
                item,
                format!("{path}.subset"),
                message,
            );
        }
        let numbers: BTreeSet<u64> = hosts.iter().flat_map(|host| &host.ports).copied().collect();
        match to.pointer("/port/number").and_then(Json::as_u64) {
            Some(port) if !hosts.is_empty() && !numbers.contains(&port) => {
                let message = format!("{host:?} has no port {port}");
                push(
                    messages,
                    &codes::NOT_FOUND,
                    item,
                    format!("{path}.port"),
                    message,
                );
            }
            None if numbers.len() > 1 => {
                let ports: Vec<String> = numbers.iter().map(u64::to_string).collect();
                let message = format!("{host:?} has the ports {}: say which one", ports.join(", "));
                push(messages, &codes::PORT_WANTED, item, path, message);
            }
            _ => {}
        }
    }
}

/// Returns true if a DestinationRule that the namespace sees has a subset of a host.
fn has_subset(all: &Inventory, host: &str, subset: &str, namespace: &str) -> bool {
    all.rules_of(host).any(|rule| {
        let exported = texts(&rule.body, "/exportTo");
        let sees = exported.is_empty()
            || exported.iter().any(|to| match to.as_str() {
                "*" => true,
                "." => rule.namespace == namespace,
                to => to == namespace,
            });
        let mut subsets = list(&rule.body, "/subsets");
        sees && subsets.any(|(_, one)| text(one, "/name") == subset)
    })
}

pub(super) fn delegates(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    for (at, http) in list(&item.body, "/http") {
        let Some(delegate) = http.get("delegate") else {
            continue;
        };
        let namespace = match text(delegate, "/namespace") {
            "" => item.namespace.as_str(),
            namespace => namespace,
        };
        let name = text(delegate, "/name");
        // A delegate is of the same kind.
        if all.find(&item.kind, namespace, name).is_none() {
            let name = format!("{namespace}/{name}");
            missing(
                messages,
                item,
                &format!("spec.http[{at}].delegate"),
                &item.kind,
                &name,
            );
        }
    }
}

/// Namespaces that a policy admits or turns away, by names and patterns of which none is met.
pub(super) fn source_namespaces(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    // Namespaces are checked where any is among the objects.
    if !all.has_namespaces {
        return;
    }
    for (rule, one) in list(&item.body, "/rules") {
        for (from, one) in list(one, "/from") {
            for field in ["namespaces", "notNamespaces"] {
                for (at, namespace) in list(one, &format!("/source/{field}")) {
                    let namespace = namespace.as_str().unwrap_or_default();
                    if !is_met(&all.namespaces, namespace) {
                        let path = format!("spec.rules[{rule}].from[{from}].source.{field}[{at}]");
                        missing(messages, item, &path, "namespace", namespace);
                    }
                }
            }
        }
    }
}

/// Returns true if a policy's pattern means one of these names: `*` alone, in front or at the end stands for anything.
fn is_met(names: &BTreeSet<String>, pattern: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => names.iter().any(|name| name.ends_with(end)),
        (None, Some(start)) => {
            let behind = (Bound::Included(start), Bound::Unbounded);
            let mut behind = names.range::<str, _>(behind);
            behind.next().is_some_and(|name| name.starts_with(start))
        }
        (None, None) => names.contains(pattern),
    }
}

pub(super) fn exports(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    for (at, to) in list(&item.body, "/exportTo") {
        let path = format!("spec.exportTo[{at}]");
        export(all, item, &path, to.as_str().unwrap_or_default(), messages);
    }
}

pub(super) fn exports_of_service(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let annotation = text(&item.annotations, "/networking.istio.io~1exportTo");
    for to in annotation.split(',').map(str::trim) {
        export(all, item, "metadata.annotations", to, messages);
    }
}

/// A namespace that an object is exported to; `*`, `.` and `~` mean all, its own and none.
fn export(all: &Inventory, item: &Item, path: &str, to: &str, messages: &mut Vec<Message>) {
    let is_known = ["", "*", ".", "~"].contains(&to) || all.namespaces.contains(to);
    if all.has_namespaces && !is_known && to != item.namespace {
        missing(messages, item, path, "namespace", to);
    }
}
