//! Secrets that Gateways and DestinationRules name.

use std::collections::BTreeSet;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, text};
use super::messages::{Message, push};

/// Looks for the Secrets where the gateway's workloads are; if those are unknown, in its own namespace.
pub(super) fn of_gateway(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let selector = labels(item.body.get("selector"));
    let mut namespaces = all.namespaces_of_gateway(&selector);
    if namespaces.is_empty() {
        namespaces = [item.namespace.as_str(), all.root.as_str()].into();
    }
    for (at, server) in list(&item.body, "/servers") {
        let path = format!("spec.servers[{at}].tls");
        let name = text(server, "/tls/credentialName");
        secret(
            all,
            item,
            (&format!("{path}.credentialName"), name),
            &namespaces,
            messages,
        );
        for (at, name) in list(server, "/tls/credentialNames") {
            let path = format!("{path}.credentialNames[{at}]");
            let name = name.as_str().unwrap_or_default();
            secret(all, item, (&path, name), &namespaces, messages);
        }
    }
}

/// Looks for the Secrets of a rule for some workloads in its namespace; other rules' are in those of gateways.
pub(super) fn of_destination_rule(all: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    if item.body.get("workloadSelector").is_none() {
        return;
    }
    let namespaces = [item.namespace.as_str()].into();
    let mut policies = vec![(
        "spec.trafficPolicy".to_owned(),
        item.body.get("trafficPolicy"),
    )];
    for (at, subset) in list(&item.body, "/subsets") {
        let path = format!("spec.subsets[{at}].trafficPolicy");
        policies.push((path, subset.get("trafficPolicy")));
    }
    for (path, policy) in policies {
        let Some(policy) = policy else { continue };
        let name = text(policy, "/tls/credentialName");
        let of_policy = format!("{path}.tls.credentialName");
        secret(all, item, (&of_policy, name), &namespaces, messages);
        for (at, port) in list(policy, "/portLevelSettings") {
            let path = format!("{path}.portLevelSettings[{at}].tls.credentialName");
            let name = text(port, "/tls/credentialName");
            secret(all, item, (&path, name), &namespaces, messages);
        }
    }
}

fn secret(
    all: &Inventory,
    item: &Item,
    (path, name): (&str, &str),
    namespaces: &BTreeSet<&str>,
    messages: &mut Vec<Message>,
) {
    if name.is_empty() {
        return;
    }
    let short = name.strip_prefix("kubernetes://").unwrap_or(name);
    let (of, short) = short
        .split_once('/')
        .map_or((None, short), |(of, short)| (Some(of), short));
    let places: Vec<&str> = of.map_or_else(|| namespaces.iter().copied().collect(), |of| vec![of]);
    let is_there = places.iter().any(|namespace| {
        all.secrets
            .contains(&((*namespace).to_owned(), short.to_owned()))
    });
    if !is_there {
        let message = format!("the secret {short:?} is not in {}", places.join(" or "));
        push(messages, &codes::NOT_FOUND, item, path, message);
    }
}
