//! Ports of Gateways, against those of the Services of their workloads.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::model::Labels;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, printable};
use super::messages::{Message, push};
use super::workload_index::WorkloadSet;

/// The ports of the Services of a Gateway's workloads, and their target ports, by the selectors of Gateways. The workloads of
/// each Service are looked for once, and so are the Services of each selector.
fn ports_by_selector(all: &Inventory) -> BTreeMap<&Labels, BTreeSet<u64>> {
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

/// Finds Gateways without workloads, and ports of their servers that no Service of the workloads has.
pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    // Without any workload among the objects, nothing is known about them.
    if all.workloads.is_empty() {
        return;
    }
    let ports = ports_by_selector(all);
    for item in all.of("Gateway") {
        servers(all, item, &ports, messages);
    }
}

/// Gateways select workloads of any namespace. `ports`: those of the workloads' Services.
fn servers(
    all: &Inventory,
    item: &Item,
    ports: &BTreeMap<&Labels, BTreeSet<u64>>,
    messages: &mut Vec<Message>,
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
            push(messages, &codes::NOT_FOUND, item, "spec.selector", message);
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
                messages,
                &codes::GATEWAY_PORT,
                item,
                format!("spec.servers[{at}].port"),
                message,
            );
        }
    }
}
