//! Checks of selectors against the workloads that exist.

use api::model::{Labels, selects};
use api::well_known::NETWORK;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, ServiceHost, labels, list, printable, text};
use super::messages::Message;
use super::references::push;

/// Kinds with a selector of their own namespace's workloads, and where it is.
const SELECTORS: [(&str, &str); 6] = [
    ("AuthorizationPolicy", "selector.matchLabels"),
    ("DestinationRule", "workloadSelector.matchLabels"),
    ("EnvoyFilter", "workloadSelector.labels"),
    ("PeerAuthentication", "selector.matchLabels"),
    ("RequestAuthentication", "selector.matchLabels"),
    ("Sidecar", "workloadSelector.labels"),
];

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    for item in all.of("Service") {
        service(all, item, found);
    }
    for item in all.of("ServiceEntry") {
        entry(all, item, found);
    }
    for item in all.of("DestinationRule") {
        subsets(all, item, found);
    }
    // Where no workload is among the objects nothing is known of them.
    if all.workloads.is_empty() {
        return;
    }
    for (kind, place) in SELECTORS {
        for item in all.of(kind) {
            let pointer = format!("/{}", place.replace('.', "/"));
            let selector = labels(item.body.pointer(&pointer));
            let is_met = all.selected(&selector, &item.namespace).next().is_some();
            if !selector.is_empty() && !is_met {
                let words = format!("no workload has the labels {}", printable(&selector));
                let path = format!("spec.{place}");
                // The one of a Sidecar is a reference, as istioctl has it.
                let code = match kind {
                    "Sidecar" => &codes::NOT_FOUND,
                    _ => &codes::SELECTS_NOTHING,
                };
                push(found, code, item, path, words);
            }
        }
    }
    for item in all.of("AuthorizationPolicy") {
        whole_namespace(all, item, found);
    }
    for item in all.of("Gateway") {
        gateway(all, item, found);
    }
}

/// A policy without a selector is for the workloads of its namespace, of which there is none; that of the root namespace is for
/// all.
fn whole_namespace(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let narrows = ["selector", "targetRef", "targetRefs"];
    let is_narrow = narrows.iter().any(|field| item.body.get(field).is_some());
    let mut workloads = all.workloads.iter();
    if !is_narrow
        && item.namespace != all.root
        && !workloads.any(|runs| runs.namespace == item.namespace)
    {
        let words = format!("no workload is in the namespace {:?}", item.namespace);
        push(found, &codes::SELECTS_NOTHING, item, "spec", words);
    }
}

fn service(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let selector = labels(item.body.pointer("/spec/selector"));
    let is_external = text(&item.body, "/spec/type") == "ExternalName";
    let here = (item.namespace.clone(), item.name.clone());
    if is_external || all.with_endpoints.contains(&here) {
        return;
    }
    let in_namespace = |labels: &Labels| {
        let mut all = all
            .workloads
            .iter()
            .filter(|runs| runs.namespace == item.namespace);
        all.any(|runs| selects(labels, &runs.labels))
    };
    if selector.is_empty() {
        let words = "has no endpoints: it has no selector, and there are no Endpoints or EndpointSlices of its name";
        push(found, &codes::WITHOUT_ENDPOINTS, item, "spec", words);
    } else if !all.workloads.is_empty() && !in_namespace(&selector) {
        let words = format!(
            "has no endpoints: no workload has the labels {}",
            printable(&selector)
        );
        push(
            found,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec.selector",
            words,
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
    let mut workloads = all
        .workloads
        .iter()
        .filter(|runs| runs.namespace == item.namespace);
    if selector.is_empty() {
        push(
            found,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec",
            "has no endpoints: it names none",
        );
    } else if !all.workloads.is_empty() && !workloads.any(|runs| selects(&selector, &runs.labels)) {
        let words = format!(
            "has no endpoints: no workload has the labels {}",
            printable(&selector)
        );
        push(
            found,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec.workloadSelector",
            words,
        );
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

/// Gateways select workloads of any namespace.
fn gateway(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let selector = labels(item.body.get("selector"));
    if selector.is_empty() {
        return;
    }
    let selected: Vec<_> = all
        .workloads
        .iter()
        .filter(|runs| selects(&selector, &runs.labels))
        .collect();
    // The gateway of Istio's own installation need not be among the objects.
    if selected.is_empty() && printable(&selector) == "istio=ingressgateway" {
        return;
    }
    if selected.is_empty() {
        let words = format!("no workload has the labels {}", printable(&selector));
        push(found, &codes::NOT_FOUND, item, "spec.selector", words);
        return;
    }
    let mut ports: Vec<(u64, Json)> = Vec::new();
    for service in all.of("Service") {
        let wanted = labels(service.body.pointer("/spec/selector"));
        let is_theirs = selected
            .iter()
            .any(|runs| runs.namespace == service.namespace && selects(&wanted, &runs.labels));
        if wanted.is_empty() || !is_theirs {
            continue;
        }
        for (_, port) in list(&service.body, "/spec/ports") {
            let number = port.get("port").and_then(Json::as_u64).unwrap_or_default();
            ports.push((
                number,
                port.get("targetPort").cloned().unwrap_or(Json::Null),
            ));
        }
    }
    if ports.is_empty() {
        return;
    }
    for (at, server) in list(&item.body, "/servers") {
        let number = server
            .pointer("/port/number")
            .and_then(Json::as_u64)
            .unwrap_or_default();
        let has = |(port, target): &(u64, Json)| *port == number || target.as_u64() == Some(number);
        if number != 0 && !ports.iter().any(has) {
            let words = format!(
                "no service of the workloads {} has the port {number}",
                printable(&selector)
            );
            push(
                found,
                &codes::GATEWAY_PORT,
                item,
                format!("spec.servers[{at}].port"),
                words,
            );
        }
    }
}

fn subsets(all: &Inventory, item: &Item, found: &mut Vec<Message>) {
    let host = all.full_host(text(&item.body, "/host"), &item.namespace);
    let hosts = all.hosts_of(&host, &item.namespace);
    // Of a host that is not here, or whose endpoints have labels that nobody wrote, nothing is known.
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
            let mut workloads = all
                .workloads
                .iter()
                .filter(|runs| runs.namespace == host.namespace);
            own.any(|labels| selects(&wanted, labels))
                || (host.is_selecting
                    && workloads.any(|runs| {
                        selects(&host.selector, &runs.labels) && selects(&wanted, &runs.labels)
                    }))
        });
        if !is_there {
            let words = format!(
                "no workload of {host:?} has the labels {}",
                printable(&wanted)
            );
            push(
                found,
                &codes::SUBSET_EMPTY,
                item,
                format!("spec.subsets[{at}].labels"),
                words,
            );
        }
    }
}
