//! Checks of selectors against the workloads that exist.

use std::sync::Arc;

use api::config::{KINDS, SelectorField};
use api::model::{Labels, selects};
use api::well_known::NETWORK;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, ServiceHost, labels, list, printable, text};
use super::messages::{Message, push};

/// Finds objects whose selectors match no workload of their namespaces.
pub(super) fn selectors(all: &Inventory, messages: &mut Vec<Message>) {
    // Without any workload among the objects, nothing is known about them.
    if all.workloads.is_empty() {
        return;
    }
    for kind in KINDS {
        let Some(SelectorField {
            labels: place,
            of_routers,
        }) = kind.selector
        else {
            continue;
        };
        for item in all.of(kind.kind) {
            let pointer = format!("/{}", place.replace('.', "/"));
            let selector = labels(item.body.pointer(&pointer));
            if selector.is_empty() {
                continue;
            }
            let path = format!("spec.{place}");
            if let Some(note) = of_routers
                && all.selects_routers_alone(&selector, &item.namespace)
            {
                push(messages, &codes::SELECTS_NOTHING, item, path, note);
            } else if !all.selects_any(&selector, &item.namespace) {
                let message = format!("no workload has the labels {}", printable(&selector));
                push(messages, codes::of_selector(kind.kind), item, path, message);
            }
        }
    }
}

/// A policy without a selector is for the workloads of its namespace, of which there is none; that of the root namespace is for
/// all.
pub(super) fn whole_namespace(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    if all.workloads.is_empty() {
        return;
    }
    let narrows = ["selector", "targetRef", "targetRefs"];
    let is_narrow = narrows.iter().any(|field| item.body.get(field).is_some());
    if !is_narrow && item.namespace != all.root && all.workloads.places(&item.namespace).is_empty()
    {
        let message = format!("no workload is in the namespace {:?}", item.namespace);
        push(messages, &codes::SELECTS_NOTHING, item, "spec", message);
    }
}

pub(super) fn service_without_endpoints(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let selector = labels(item.body.pointer("/spec/selector"));
    let is_external = text(&item.body, "/spec/type") == "ExternalName";
    let here = (item.namespace.clone(), item.name.clone());
    if is_external || all.with_endpoints.contains(&here) {
        return;
    }
    let without_selector = "has no endpoints: it has no selector, and there are no Endpoints or EndpointSlices of its name";
    endpoints(
        all,
        item,
        (&selector, "spec.selector"),
        without_selector,
        messages,
    );
}

pub(super) fn entry_without_endpoints(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let body = &item.body;
    let selector = labels(body.pointer("/workloadSelector/labels"));
    let has_own = list(body, "/endpoints").next().is_some();
    if has_own || text(body, "/resolution") != "STATIC" {
        return;
    }
    let place = "spec.workloadSelector";
    endpoints(
        all,
        item,
        (&selector, place),
        "has no endpoints: it names none",
        messages,
    );
}

/// Finds a service without endpoints: its selector, at this place, is empty or matches no workload.
fn endpoints(
    all: &Inventory,
    item: &Item,
    (selector, path): (&Labels, &str),
    without_selector: &str,
    messages: &mut Vec<Message>,
) {
    let mut selected = all.workloads.selected(selector, Some(&item.namespace));
    if selector.is_empty() {
        push(
            messages,
            &codes::WITHOUT_ENDPOINTS,
            item,
            "spec",
            without_selector,
        );
    } else if !all.workloads.is_empty() && selected.next().is_none() {
        let message = format!(
            "has no endpoints: no workload has the labels {}",
            printable(selector)
        );
        push(messages, &codes::WITHOUT_ENDPOINTS, item, path, message);
    }
}

const HTTPS: u64 = 443;

/// Requests are told apart by host and TLS by server name; other connections by their address alone.
pub(super) fn without_addresses(_: &Inventory, item: &Item, messages: &mut Vec<Message>) {
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
            push(messages, &codes::ADDRESSES_WANTED, item, path, message);
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

/// The selector of what two find; `None`: nothing has two values of one label.
fn both(one: &Labels, other: &Labels) -> Option<Labels> {
    let mut both = one.clone();
    for (name, value) in other {
        let earlier = both.insert(Arc::clone(name), Arc::clone(value));
        if earlier.is_some_and(|earlier| earlier != *value) {
            return None;
        }
    }
    Some(both)
}

pub(super) fn subsets(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
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
        let count = wanted.len();
        // An empty one is no place's.
        wanted.retain(|name, value| value.is_empty() || !OF_PLACES.contains(&&**name));
        if wanted.is_empty() && count > 0 {
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
                messages,
                &codes::SUBSET_EMPTY,
                item,
                format!("spec.subsets[{at}].labels"),
                message,
            );
        }
    }
}
