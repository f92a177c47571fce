//! Routes by claims of tokens: a gateway knows the claims of tokens that it has verified, so without a RequestAuthentication for
//! its workloads no request takes such a route.

use std::collections::{BTreeSet, HashMap};

use api::model::Labels;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, texts};
use super::messages::Message;
use super::references::{gateway, push};
use super::workload_index::WorkloadSet;

const CLAIMS: &str = "@request.auth.claims";

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    let by_claims = all.of("VirtualService");
    let by_claims = by_claims.filter_map(|item| Some((item, first_claim(item)?)));
    let mut by_claims = by_claims.peekable();
    if by_claims.peek().is_none() {
        return;
    }
    let with_tokens = with_tokens(all);
    let mut verifies: HashMap<usize, bool> = HashMap::new();
    for (item, path) in by_claims {
        let names = texts(&item.body, "/gateways").into_iter();
        let names: BTreeSet<String> = names.filter(|name| name != "mesh").collect();
        let blind = names.into_iter().find(|name| {
            gateway(all, item, name).is_some_and(|gateway| {
                let known = verifies.entry(gateway.number);
                !*known.or_insert_with(|| verifies_tokens(all, gateway, &with_tokens))
            })
        });
        if let Some(name) = blind {
            let text = format!(
                "no request meets this: no RequestAuthentication holds for the workloads of the gateway {name:?}"
            );
            push(found, &codes::CLAIMS_WITHOUT_TOKENS, item, path, text);
        }
    }
}

/// The workloads that a RequestAuthentication holds for.
fn with_tokens(all: &Inventory) -> WorkloadSet {
    let policies = all.of("RequestAuthentication");
    let selectors: BTreeSet<(Option<&str>, Labels)> = policies
        .map(|policy| {
            // A policy of the root namespace holds in every namespace.
            let namespace = Some(&*policy.namespace).filter(|namespace| *namespace != all.root);
            (
                namespace,
                labels(policy.body.pointer("/selector/matchLabels")),
            )
        })
        .collect();
    let selected = selectors
        .iter()
        .flat_map(|(namespace, selector)| all.workloads.selected(selector, *namespace));
    let places: BTreeSet<usize> = selected.collect();
    all.workloads.set_of_places(places.into_iter().collect())
}

/// The place of the first match that wants a claim. One that wants none is met without tokens.
fn first_claim(item: &Item) -> Option<String> {
    for (route, http) in list(&item.body, "/http") {
        for (at, one) in list(http, "/match") {
            let headers = one.get("headers").and_then(Json::as_object);
            let mut names = headers.into_iter().flat_map(|headers| headers.keys());
            if let Some(name) = names.find(|name| name.starts_with(CLAIMS)) {
                return Some(format!("spec.http[{route}].match[{at}].headers[{name}]"));
            }
        }
    }
    None
}

/// Returns true if a RequestAuthentication holds for a workload of a gateway; of workloads that are not among the objects any may.
fn verifies_tokens(all: &Inventory, gateway: &Item, with_tokens: &WorkloadSet) -> bool {
    let selector = labels(gateway.body.get("selector"));
    match all.gateway_selector(&selector) {
        Some((_, workloads)) if !workloads.is_empty() => workloads.meets(with_tokens),
        _ => all.of("RequestAuthentication").next().is_some(),
    }
}
