//! Routes by claims of tokens: a gateway knows the claims of tokens that it has verified, so without a RequestAuthentication for
//! its workloads no request takes such a route. By a header that a RequestAuthentication makes of a claim it chooses anew once the
//! token is verified; a client without a token keeps the route of the header that it wrote.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::model::Labels;
use serde_json::Value as Json;

use super::codes;
use super::gateways::named_gateway;
use super::inventory::{Inventory, Item, labels, list, text, texts};
use super::messages::{Message, push};
use super::workload_index::WorkloadSet;

const CLAIMS: &str = "@request.auth.claims";

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    find_without_tokens(all, messages);
    find_by_claim_headers(all, messages);
}

fn find_without_tokens(all: &Inventory, messages: &mut Vec<Message>) {
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
            named_gateway(all, item, name).is_some_and(|gateway| {
                let entry = verifies.entry(gateway.number);
                !*entry.or_insert_with(|| verifies_tokens(all, gateway, &with_tokens))
            })
        });
        if let Some(name) = blind {
            let text = format!(
                "no request meets this: no RequestAuthentication holds for the workloads of the gateway {name:?}"
            );
            push(messages, &codes::CLAIMS_WITHOUT_TOKENS, item, path, text);
        }
    }
}

/// A header that RequestAuthentications make of one claim, or of all.
struct ClaimHeader<'a> {
    /// The match that means the same, and that no client can write.
    instead: String,
    workloads: WorkloadSet,
    /// The namespaces of the RequestAuthentications.
    namespaces: BTreeSet<&'a str>,
}

/// The headers that RequestAuthentications make, by their names in lower case. Policies may make the same header of other claims.
fn claim_headers(all: &Inventory) -> BTreeMap<String, Vec<ClaimHeader<'_>>> {
    let mut policies_by_header: BTreeMap<(String, String), Vec<&Item>> = BTreeMap::new();
    let mut add = |header: Option<&Json>, claim: &str, policy| {
        if let Some(header) = header.and_then(Json::as_str) {
            let claim_header = (header.to_ascii_lowercase(), format!("{CLAIMS}.{claim}"));
            policies_by_header
                .entry(claim_header)
                .or_default()
                .push(policy);
        }
    };
    for policy in all.of("RequestAuthentication") {
        for (_, rule) in list(&policy.body, "/jwtRules") {
            add(rule.get("outputPayloadToHeader"), "NAME", policy);
            for (_, claim_header) in list(rule, "/outputClaimToHeaders") {
                add(
                    claim_header.get("header"),
                    text(claim_header, "/claim"),
                    policy,
                );
            }
        }
    }
    let mut claim_header: BTreeMap<String, Vec<ClaimHeader<'_>>> = BTreeMap::new();
    for ((header, instead), policies) in policies_by_header {
        let namespaces = policies.iter().map(|policy| policy.namespace.as_str());
        claim_header.entry(header).or_default().push(ClaimHeader {
            instead,
            namespaces: namespaces.collect(),
            workloads: workloads_of(all, policies.into_iter()),
        });
    }
    claim_header
}

fn find_by_claim_headers(all: &Inventory, messages: &mut Vec<Message>) {
    let headers = claim_headers(all);
    if headers.is_empty() {
        return;
    }
    for item in all.of("VirtualService") {
        let names = texts(&item.body, "/gateways").into_iter();
        let gateways: Vec<&Item> = names
            .filter_map(|name| named_gateway(all, item, &name))
            .collect();
        let mut by_claim_header = by_claim_header(item, &headers).into_iter();
        let reported = by_claim_header.find(|(_, _, header)| {
            let mut gateways = gateways.iter();
            gateways.any(|gateway| is_set_at(all, gateway, header))
        });
        if let Some((path, name, header)) = reported {
            let text = format!(
                "a client without a token chooses the route by writing {name:?} itself: Envoy makes the header, and chooses anew, for \
                 verified tokens alone; match {:?}",
                header.instead
            );
            push(messages, &codes::ROUTES_BY_MADE_HEADERS, item, path, text);
        }
    }
}

/// The matches that want a header which is made of claims, the first of each header: their places, with the name and the header.
fn by_claim_header<'a, 'b>(
    item: &'a Item,
    made: &'b BTreeMap<String, Vec<ClaimHeader<'b>>>,
) -> Vec<(String, &'a str, &'b ClaimHeader<'b>)> {
    let (mut matches, mut names_found) = (Vec::new(), BTreeSet::new());
    for (route, http) in list(&item.body, "/http") {
        for (at, one) in list(http, "/match") {
            for field in ["headers", "withoutHeaders"] {
                let headers = one.get(field).and_then(Json::as_object);
                for name in headers.into_iter().flat_map(|headers| headers.keys()) {
                    let Some((header, all)) = made.get_key_value(&name.to_ascii_lowercase()) else {
                        continue;
                    };
                    if names_found.insert(header) {
                        let path = format!("spec.http[{route}].match[{at}].{field}[{name}]");
                        matches.extend(all.iter().map(|one| (path.clone(), name.as_str(), one)));
                    }
                }
            }
        }
    }
    matches
}

/// Returns true if the workloads of a gateway make this header. Of workloads that are not among the objects those of its namespace
/// may, and those of the root namespace.
fn is_set_at(all: &Inventory, gateway: &Item, header: &ClaimHeader<'_>) -> bool {
    match workloads_of_gateway(all, gateway) {
        Some(workloads) => workloads.meets(&header.workloads),
        None => [gateway.namespace.as_str(), &all.root]
            .iter()
            .any(|namespace| header.namespaces.contains(namespace)),
    }
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
    match workloads_of_gateway(all, gateway) {
        Some(workloads) => workloads.meets(with_tokens),
        None => all.of("RequestAuthentication").next().is_some(),
    }
}

/// The workloads of a gateway; `None`: they are not among the objects.
fn workloads_of_gateway<'a>(all: &'a Inventory, gateway: &Item) -> Option<&'a WorkloadSet> {
    let selector = labels(gateway.body.get("selector"));
    let (_, workloads) = all.gateway_selector(&selector)?;
    (!workloads.is_empty()).then_some(workloads)
}
