//! Names of other objects: gateways, hosts, subsets, ports, delegates, secrets.

use std::collections::BTreeSet;

use api::model::selects;
use api::names;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, overlap, text, texts};
use super::messages::Message;

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    for item in all.of("VirtualService") {
        gateways(all, item, found);
        destinations(all, item, found);
        delegates(all, item, found);
    }
    for item in all.of("DestinationRule") {
        let host = text(&item.body, "/host");
        let full = all.full_host(host, &item.namespace);
        if all.hosts_of(&full, &item.namespace).is_empty() {
            let words = format!("no service has the host {host:?}");
            push(found, &codes::RULE_WITHOUT_HOST, item, "spec.host", words);
        }
    }
    for item in all.of("Gateway") {
        secrets(all, item, found);
    }
    for item in all.of("AuthorizationPolicy") {
        namespaces(all, item, found);
    }
}

pub(super) fn push(
    found: &mut Vec<Message>,
    code: &'static codes::Code,
    item: &Item,
    path: impl Into<String>,
    text: impl Into<String>,
) {
    found.push(Message {
        code,
        item: item.number,
        path: path.into(),
        text: text.into(),
    });
}

pub(super) fn missing(found: &mut Vec<Message>, item: &Item, path: &str, what: &str, name: &str) {
    let words = format!("the {what} {name:?} does not exist");
    push(found, &codes::NOT_FOUND, item, path, words);
}

/// The Gateway that a name means: `NAME`, `NAMESPACE/NAME`, or as releases up to 1.1 wrote it `NAME.NAMESPACE.svc.DOMAIN`.
pub(super) fn gateway<'a>(all: &'a Inventory, item: &Item, name: &str) -> Option<&'a Item> {
    let (namespace, short) = match name.split_once('/') {
        Some((".", short)) => (item.namespace.as_str(), short),
        Some(pair) => pair,
        None => {
            let mut parts = name.splitn(3, '.');
            let (short, namespace) = (parts.next().unwrap_or(name), parts.next());
            match namespace {
                Some(namespace) if all.find("Gateway", &item.namespace, name).is_none() => {
                    (namespace, short)
                }
                _ => (item.namespace.as_str(), name),
            }
        }
    };
    all.find("Gateway", namespace, short)
}

fn gateways(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let hosts = texts(&item.body, "/hosts");
    let mut named: Vec<(String, String)> = Vec::new();
    for (at, name) in list(&item.body, "/gateways") {
        named.push((
            format!("spec.gateways[{at}]"),
            name.as_str().unwrap_or_default().to_owned(),
        ));
    }
    for protocol in ["http", "tls", "tcp"] {
        for (rule, one) in list(&item.body, &format!("/{protocol}")) {
            for (at, one) in list(one, "/match") {
                for (gateway, name) in list(one, "/gateways") {
                    let path = format!("spec.{protocol}[{rule}].match[{at}].gateways[{gateway}]");
                    named.push((path, name.as_str().unwrap_or_default().to_owned()));
                }
            }
        }
    }
    for (path, name) in named {
        if name == "mesh" || name.is_empty() {
            continue;
        }
        let Some(gateway) = gateway(all, item, &name) else {
            missing(found, item, &path, "gateway", &name);
            continue;
        };
        let served: Vec<String> = list(&gateway.body, "/servers")
            .flat_map(|(_, server)| texts(server, "/hosts"))
            .filter_map(|host| of_namespace(&host, &item.namespace, &gateway.namespace))
            .map(|host| names::spelled(&host))
            .collect();
        let lost: Vec<&str> = hosts
            .iter()
            .map(String::as_str)
            .filter(|host| {
                let full = all.full_host(host, &item.namespace);
                let host = names::spelled(host);
                let is_served = |served: &String| overlap(served, &host) || overlap(served, &full);
                !served.iter().any(is_served)
            })
            .collect();
        // For sidecars it may have others.
        let is_of_mesh = list(&item.body, "/gateways").any(|(_, name)| name == "mesh");
        let is_fine = lost.is_empty() || (is_of_mesh && lost.len() < hosts.len());
        if !is_fine {
            let words = format!("the gateway {name:?} does not serve {}", lost.join(", "));
            push(found, &codes::HOST_NOT_IN_GATEWAY, item, path, words);
        }
    }
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

fn destinations(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    for (path, to) in each_destination(&item.body) {
        let host = text(to, "/host");
        let full = all.full_host(host, &item.namespace);
        let hosts = all.hosts_of(&full, &item.namespace);
        if hosts.is_empty() {
            missing(found, item, &format!("{path}.host"), "host", host);
        }
        let subset = text(to, "/subset");
        if !subset.is_empty() && !has_subset(all, &full, subset, &item.namespace) {
            let words = format!("no DestinationRule has the subset {subset:?} of {host:?}");
            push(
                found,
                &codes::NOT_FOUND,
                item,
                format!("{path}.subset"),
                words,
            );
        }
        let numbers: BTreeSet<u64> = hosts.iter().flat_map(|host| &host.ports).copied().collect();
        match to.pointer("/port/number").and_then(Json::as_u64) {
            Some(port) if !hosts.is_empty() && !numbers.contains(&port) => {
                let words = format!("{host:?} has no port {port}");
                push(
                    found,
                    &codes::NOT_FOUND,
                    item,
                    format!("{path}.port"),
                    words,
                );
            }
            None if numbers.len() > 1 => {
                let shown: Vec<String> = numbers.iter().map(u64::to_string).collect();
                let words = format!("{host:?} has the ports {}: say which one", shown.join(", "));
                push(found, &codes::PORT_WANTED, item, path, words);
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

fn delegates(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    for (at, http) in list(&item.body, "/http") {
        let Some(delegate) = http.get("delegate") else {
            continue;
        };
        let namespace = match text(delegate, "/namespace") {
            "" => item.namespace.as_str(),
            namespace => namespace,
        };
        let name = text(delegate, "/name");
        if all.find("VirtualService", namespace, name).is_none() {
            let name = format!("{namespace}/{name}");
            missing(
                found,
                item,
                &format!("spec.http[{at}].delegate"),
                "VirtualService",
                &name,
            );
        }
    }
}

/// They are looked for where the gateway's workloads are; where those are not known, in its own namespace.
fn secrets(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let selector = labels(item.body.get("selector"));
    let mut namespaces: BTreeSet<&str> = all
        .workloads
        .iter()
        .filter(|runs| !selector.is_empty() && selects(&selector, &runs.labels))
        .map(|runs| runs.namespace.as_str())
        .collect();
    if namespaces.is_empty() {
        namespaces = [item.namespace.as_str(), all.root.as_str()].into();
    }
    for (at, server) in list(&item.body, "/servers") {
        let name = text(server, "/tls/credentialName");
        if name.is_empty() {
            continue;
        }
        let short = name.strip_prefix("kubernetes://").unwrap_or(name);
        let (of, short) = short
            .split_once('/')
            .map_or((None, short), |(of, short)| (Some(of), short));
        let places: Vec<&str> =
            of.map_or_else(|| namespaces.iter().copied().collect(), |of| vec![of]);
        let is_there = places.iter().any(|namespace| {
            all.secrets
                .contains(&((*namespace).to_owned(), short.to_owned()))
        });
        if !is_there {
            let words = format!("the secret {short:?} is not in {}", places.join(" or "));
            let path = format!("spec.servers[{at}].tls.credentialName");
            push(found, &codes::NOT_FOUND, item, path, words);
        }
    }
}

/// Reports unknown namespaces if the objects have any Namespace among them.
fn namespaces(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    if all.namespaces.is_empty() {
        return;
    }
    for (rule, one) in list(&item.body, "/rules") {
        for (from, one) in list(one, "/from") {
            for (at, name) in list(one, "/source/namespaces") {
                let name = name.as_str().unwrap_or_default();
                if !name.contains('*') && !all.namespaces.contains(name) {
                    let path = format!("spec.rules[{rule}].from[{from}].source.namespaces[{at}]");
                    missing(found, item, &path, "namespace", name);
                }
            }
        }
    }
}
