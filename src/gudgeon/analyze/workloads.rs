//! Checks of selectors against the workloads that exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::config::discovery_notes::{PEERS_OF_ROUTERS, SIDECAR_OF_ROUTERS};
use api::model::{Labels, selects};
use api::well_known::NETWORK;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, ServiceHost, labels, list, printable, text};
use super::messages::Message;
use super::references::push;
use super::workload_index::WorkloadSet;

/// Kinds with a selector of their own namespace's workloads, where it is, and the note at one that finds routers alone.
const SELECTORS: [(&str, &str, Option<&str>); 6] = [
    ("AuthorizationPolicy", "selector.matchLabels", None),
    ("DestinationRule", "workloadSelector.matchLabels", None),
    ("EnvoyFilter", "workloadSelector.labels", None),
    (
        "PeerAuthentication",
        "selector.matchLabels",
        Some(PEERS_OF_ROUTERS),
    ),
    ("RequestAuthentication", "selector.matchLabels", None),
    (
        "Sidecar",
        "workloadSelector.labels",
        Some(SIDECAR_OF_ROUTERS),
    ),
];

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    for item in all.of("Service") {
        service(all, item, found);
    }
    for item in all.of("ServiceEntry") {
        entry(all, item, found);
        without_addresses(item, found);
    }
    for item in all.of("DestinationRule") {
        subsets(all, item, found);
    }
    // Without any workload among the objects, nothing is known about them.
    if all.workloads.is_empty() {
        return;
    }
    for (kind, place, of_routers) in SELECTORS {
        for item in all.of(kind) {
            let pointer = format!("/{}", place.replace('.', "/"));
            let selector = labels(item.body.pointer(&pointer));
            if selector.is_empty() {
                continue;
            }
            let path = format!("spec.{place}");
            if let Some(note) = of_routers
                && all.selects_routers_alone(&selector, &item.namespace)
            {
                push(found, &codes::SELECTS_NOTHING, item, path, note);
            } else if !all.selects_any(&selector, &item.namespace) {
                let message = format!("no workload has the labels {}", printable(&selector));
                // The one of a Sidecar is a reference, as istioctl has it.
                let code = match kind {
                    "Sidecar" => &codes::NOT_FOUND,
                    _ => &codes::SELECTS_NOTHING,
                };
                push(found, code, item, path, message);
            }
        }
    }
    for item in all.of("AuthorizationPolicy") {
        whole_namespace(all, item, found);
    }
    let ports = gateway_ports(all);
    for item in all.of("Gateway") {
        gateway(all, item, &ports, found);
    }
}

/// A policy without a selector is for the workloads of its namespace, of which there is none; that of the root namespace is for
/// all.
fn whole_namespace(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let narrows = ["selector", "targetRef", "targetRefs"];
    let is_narrow = narrows.iter().any(|field| item.body.get(field).is_some());
    if !is_narrow && item.namespace != all.root && all.workloads.places(&item.namespace).is_empty()
    {
        let message = format!("no workload is in the namespace {:?}", item.namespace);
        push(found, &codes::SELECTS_NOTHING, item, "spec", message);
    }
}

fn service(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let selector = labels(item.body.pointer("/spec/selector"));
    let is_external = text(&item.body, "/spec/type") == "ExternalName";
    let here = (item.namespace.clone(), item.name.clone());
    if is_external || all.with_endpoints.contains(&here) {
        return;
    }
    let mut selected = all.workloads.selected(&selector, Some(&item.namespace));
    if selector.is_empty() {
        let message = "has no endpoints: it has no selector, and there are no Endpoints or EndpointSlices of its name";
        push(found, &codes::WITHOUT_ENDPOINTS, item, "spec", message);
    } else if !all.workloads.is_empty() && selected.next().is_none() {
        let message = format!(
            "has no endpoints: no workload has the labels {}",
            printable(&selector)
        );
        push(
            found,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec.selector",
            message,
        );
    }
}

fn entry(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let body = &item.body;
    let selector = labels(body.pointer("/workloadSelector/labels"));
    let has_own = list(body, "/endpoints").next().is_some();
    if has_own || text(body, "/resolution") != "STATIC" {
        return;
    }
    let mut selected = all.workloads.selected(&selector, Some(&item.namespace));
    if selector.is_empty() {
        push(
            found,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec",
            "has no endpoints: it names none",
        );
    } else if !all.workloads.is_empty() && selected.next().is_none() {
        let message = format!(
            "has no endpoints: no workload has the labels {}",
            printable(&selector)
        );
        push(
            found,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec.workloadSelector",
            message,
        );
    }
}

const HTTPS: u64 = 443;

/// Requests are told apart by host and TLS by server name; other connections by their address alone.
fn without_addresses(item: &Item, found: &mut Vec<Message>) {
    if list(&item.body, "/addresses").next().is_some() {
        return;
    }
    for (at, port) in list(&item.body, "/ports") {
        let protocol = text(port, "/protocol").to_ascii_uppercase();
        // Connections to a port that declares nothing are told apart when they are there.
        if matches!(&*protocol, "" | "TCP" | "MONGO" | "MYSQL" | "REDIS") {
            let number = port
                .get("number")
                .and_then(Json::as_u64)
                .unwrap_or_default();
            let message = if protocol.is_empty() && number == HTTPS {
                "it has no addresses: a port 443 that declares no protocol has no listener, which would take all TLS; declare TLS or HTTPS".to_owned()
            } else {
                format!(
                    "it has no addresses: whatever is sent to port {number} of any address, and is no other service's, goes to the \
                     oldest such entry"
                )
            };
            let path = format!("spec.ports[{at}]");
            push(found, &codes::ADDRESSES_WANTED, item, path, message);
        }
    }
}

/// Labels that endpoints have from where they run, not from their workload.
const OF_PLACES: [&str; 6] = [
    "kubernetes.io/hostname",
    "topology.istio.io/cluster",
    NETWORK,
    "topology.istio.io/subzone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The ports of the Services of a Gateway's workloads, and their target ports, by the selectors of Gateways. The workloads of
/// each Service are looked for once, and so are the Services of each selector.
fn gateway_ports(all: &Inventory) -> BTreeMap<&Labels, BTreeSet<u64>> {
    let mut services: HashMap<(&str, Labels), (WorkloadSet, BTreeSet<u64>)> = HashMap::new();
    if all.gateway_selectors().next().is_some() {
        for service in all.of("Service") {
            let selector = labels(service.body.pointer("/spec/selector"));
            if selector.is_empty() {
                continue;
            }
            let (_, ports) = services
                .entry((&service.namespace, selector))
                .or_insert_with_key(|(namespace, selector)| {
                    (
                        all.workloads.set(selector, Some(namespace)),
                        BTreeSet::new(),
                    )
                });
            for (_, port) in list(&service.body, "/spec/ports") {
                ports.insert(port.get("port").and_then(Json::as_u64).unwrap_or_default());
                ports.extend(port.get("targetPort").and_then(Json::as_u64));
            }
        }
    }
    let of_selector = |(selector, workloads)| {
        let theirs = services.values().filter(|(set, _)| set.meets(workloads));
        let ports = theirs.flat_map(|(_, ports)| ports).copied();
        (selector, ports.collect())
    };
    all.gateway_selectors().map(of_selector).collect()
}

/// Gateways select workloads of any namespace. `ports`: those of the workloads' Services.
fn gateway(
    all: &Inventory,
    item: &Item,
    ports: &BTreeMap<&Labels, BTreeSet<u64>>,
    found: &mut Vec<Message>,
) {
    let selector = labels(item.body.get("selector"));
    if selector.is_empty() {
        return;
    }
    if all
        .gateway_selector(&selector)
        .is_none_or(|(_, workloads)| workloads.is_empty())
    {
        // The gateway of Istio's own installation need not be among the objects.
        if printable(&selector) != "istio=ingressgateway" {
            let message = format!("no workload has the labels {}", printable(&selector));
            push(found, &codes::NOT_FOUND, item, "spec.selector", message);
        }
        return;
    }
    let Some(ports) = ports.get(&selector).filter(|ports| !ports.is_empty()) else {
        return;
    };
    for (at, server) in list(&item.body, "/servers") {
        let number = server
            .pointer("/port/number")
            .and_then(Json::as_u64)
            .unwrap_or_default();
        if number != 0 && !ports.contains(&number) {
            let message = format!(
                "no service of the workloads {} has the port {number}",
                printable(&selector)
            );
            push(
                found,
                &codes::GATEWAY_PORT,
                item,
                format!("spec.servers[{at}].port"),
                message,
            );
        }
    }
}

/// The selector of what two find; `None`: nothing has two values of one label.
fn both(one: &Labels, other: &Labels) -> Option<Labels> {
    let mut both = one.clone();
    for (name, value) in other {
        let known = both.insert(Arc::clone(name), Arc::clone(value));
        if known.is_some_and(|known| known != *value) {
            return None;
        }
    }
    Some(both)
}

fn subsets(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let host = all.full_host(text(&item.body, "/host"), &item.namespace);
    let hosts = all.hosts_of(&host, &item.namespace);
    // Nothing is known about a host that is not here, or whose endpoints have no written labels.
    let is_known = |host: &&ServiceHost| {
        host.is_selecting || host.endpoints.iter().any(|labels| !labels.is_empty())
    };
    if hosts.is_empty() || !hosts.iter().all(is_known) || host.starts_with('*') {
        return;
    }
    for (at, subset) in list(&item.body, "/subsets") {
        let mut wanted = labels(subset.get("labels"));
        let written = wanted.len();
        // An empty one is no place's.
        wanted.retain(|name, value| value.is_empty() || !OF_PLACES.contains(&&**name));
        if wanted.is_empty() && written > 0 {
            continue;
        }
        let is_there = hosts.iter().any(|host| {
            let mut own = host.endpoints.iter();
            let both = || both(&host.selector, &wanted);
            let runs = |both: Labels| {
                let mut selected = all.workloads.selected(&both, Some(&host.namespace));
                selected.next().is_some()
            };
            own.any(|labels| selects(&wanted, labels))
                || (host.is_selecting && both().is_some_and(runs))
        });
        if !is_there {
            let message = format!(
                "no workload of {host:?} has the labels {}",
                printable(&wanted)
            );
            push(
                found,
                &codes::SUBSET_EMPTY,
                item,
                format!("spec.subsets[{at}].labels"),
                message,
            );
        }
    }
}
