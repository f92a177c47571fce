//! Routes by claims of tokens: a gateway knows the claims of tokens that it has verified, so without a RequestAuthentication for
//! its workloads no request takes such a route. Of a header that a RequestAuthentication makes of a claim it knows what the client
//! wrote: Envoy chooses the route first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::model::Labels;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, labels, list, texts};
use super::messages::Message;
use super::references::{gateway, push};
use super::workload_index::WorkloadSet;

const CLAIMS: &str = "@request.auth.claims";

pub(super) fn find(all: &Inventory, found: &mut Vec<Message>) {
    find_without_tokens(all, found);
    find_by_made_headers(all, found);
}

fn find_without_tokens(all: &Inventory, found: &mut Vec<Message>) {
    let by_claims = all.of("VirtualService");
    let by_claims = by_claims.filter_map(|item| Some((item, first_claim(item)?)));
    let mut by_claims = by_claims.peekable();
    if by_claims.peek().is_none() {
        return;
    }
    let with_tokens = workloads_of(all, all.of("RequestAuthentication"));
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

/// A header that RequestAuthentications make of a claim, or of all.
struct MadeHeader {
    /// The match that means the same, and that no client can write.
    instead: String,
    workloads: WorkloadSet,
}

/// The headers that RequestAuthentications make, by their names in lower case.
fn made_headers(all: &Inventory) -> BTreeMap<String, MadeHeader> {
    let mut policies_by_header: BTreeMap<String, (String, Vec<&Item>)> = BTreeMap::new();
    let mut add = |header: Option<&Json>, instead: String, policy| {
        if let Some(header) = header.and_then(Json::as_str) {
            let header = header.to_ascii_lowercase();
            let of_header = policies_by_header.entry(header);
            let (_, policies) = of_header.or_insert_with(|| (instead, Vec::new()));
            policies.push(policy);
        }
    };
    for policy in all.of("RequestAuthentication") {
        for (_, rule) in list(&policy.body, "/jwtRules") {
            add(rule.get("outputPayloadToHeader"), CLAIMS.to_owned(), policy);
            for (_, made) in list(rule, "/outputClaimToHeaders") {
                let claim = made.get("claim").and_then(Json::as_str).unwrap_or_default();
                add(made.get("header"), format!("{CLAIMS}.{claim}"), policy);
            }
        }
    }
    let headers = policies_by_header.into_iter();
    let headers = headers.map(|(header, (instead, policies))| {
        let workloads = workloads_of(all, policies.into_iter());
        (header, MadeHeader { instead, workloads })
    });
    headers.collect()
}

fn find_by_made_headers(all: &Inventory, found: &mut Vec<Message>) {
    let made = made_headers(all);
    if made.is_empty() {
        return;
    }
    for item in all.of("VirtualService") {
        let Some((path, name, header)) = first_made(item, &made) else {
            continue;
        };
        let names = texts(&item.body, "/gateways").into_iter();
        let mut gateways = names.filter_map(|name| gateway(all, item, &name));
        if gateways.any(|gateway| verifies_tokens(all, gateway, &header.workloads)) {
            let text = format!(
                "a client that writes {name:?} itself chooses the route: the header is made of claims after that; match {:?}",
                header.instead
            );
            push(found, &codes::ROUTES_BY_MADE_HEADERS, item, path, text);
        }
    }
}

/// The place of the first match that wants a header which is made of claims, and that header.
fn first_made<'a, 'b>(
    item: &'a Item,
    made: &'b BTreeMap<String, MadeHeader>,
) -> Option<(String, &'a str, &'b MadeHeader)> {
    for (route, http) in list(&item.body, "/http") {
        for (at, one) in list(http, "/match") {
            for field in ["headers", "withoutHeaders"] {
                let headers = one.get(field).and_then(Json::as_object);
                for name in headers.into_iter().flat_map(|headers| headers.keys()) {
                    if let Some(header) = made.get(&name.to_ascii_lowercase()) {
                        let path = format!("spec.http[{route}].match[{at}].{field}[{name}]");
                        return Some((path, name, header));
                    }
                }
            }
        }
    }
    None
}

/// The workloads that these RequestAuthentications hold for.
fn workloads_of<'a>(all: &Inventory, policies: impl Iterator<Item = &'a Item>) -> WorkloadSet {
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

/// Returns true if RequestAuthentications, which hold for these workloads, hold for one of a gateway; of workloads that are not
/// among the objects any may.
fn verifies_tokens(all: &Inventory, gateway: &Item, with_tokens: &WorkloadSet) -> bool {
    let selector = labels(gateway.body.get("selector"));
    match all.gateway_selector(&selector) {
        Some((_, workloads)) if !workloads.is_empty() => workloads.meets(with_tokens),
        _ => all.of("RequestAuthentication").next().is_some(),
    }
}
