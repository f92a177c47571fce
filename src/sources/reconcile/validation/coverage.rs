//! The owner of an entry, and the kinds that the entries leave out. Pure.

use api::config::{KINDS, Kind};
use serde_json::{Value, json};

use super::{ServiceReference, Validation};
use crate::reconcile::webhook::{Webhook, WebhookConfiguration};

/// The operations that must reach the webhook.
const OPERATIONS: [&str; 2] = ["CREATE", "UPDATE"];

/// The path that accepts all kinds.
const PATH: &str = "/validate";

/// Names for the entry that takes all kinds that the others leave out. The second one serves when another program owns the
/// first, or a file defines it.
const REST: [&str; 2] = ["validation.istio.io", OWN];
/// The name that no other program gives.
const OWN: &str = "gudgeon.validation.istio.io";

/// Returns true if the entry's `clientConfig` names the Service.
fn leads_to(entry: &Webhook, service: &ServiceReference) -> bool {
    let ServiceReference { namespace, name } = service;
    let client = entry.0.get("clientConfig");
    let has = |path: &str, value: &str| {
        client.and_then(|client| client.pointer(path)?.as_str()) == Some(value)
    };
    if has("/service/name", name) && has("/service/namespace", namespace) {
        return true;
    }
    let url = client.and_then(|client| client.get("url")?.as_str());
    let host = url
        .and_then(|url| url.split_once("://"))
        .map(|(_, rest)| rest.split(['/', ':', '?']).next().unwrap_or_default());
    host.is_some_and(|host| {
        let rest = host
            .strip_prefix(name.as_str())
            .and_then(|rest| rest.strip_prefix('.')?.strip_prefix(namespace.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest == ".svc" || rest.starts_with(".svc."))
    })
}

/// Returns true if the entry is this program's: by its name, or because it leads to this program.
pub(super) fn is_ours(wanted: &Validation, desired: &[Webhook], entry: &Webhook) -> bool {
    desired.iter().any(|desired| desired.name() == entry.name())
        || entry.name() == OWN
        || leads_to_us(wanted, desired, entry)
}

/// Returns true if the entry leads to this program's Service, or to where an entry of the file leads.
fn leads_to_us(wanted: &Validation, desired: &[Webhook], entry: &Webhook) -> bool {
    let is_known =
        path(entry) == PATH || desired.iter().any(|desired| path(desired) == path(entry));
    let leads_beside = |desired: &Webhook| is_known && leads_beside(desired, entry);
    leads_to(entry, &wanted.service) || desired.iter().any(leads_beside)
}

/// The path on its server: one host may have other programs at others.
fn path(entry: &Webhook) -> &str {
    let client = entry.0.get("clientConfig");
    let of_service = client.and_then(|client| client.pointer("/service/path")?.as_str());
    let url = client.and_then(|client| client.get("url")?.as_str());
    let of_url = url.and_then(|url| {
        let (_, rest) = url.split_once("://")?;
        rest.find('/').and_then(|at| rest.get(at..))
    });
    of_url.or(of_service).unwrap_or("/")
}

/// Returns the file's entry of this name, or the client of an entry that has this program's own name and leads elsewhere.
pub(super) fn desired_entry(
    wanted: &Validation,
    desired: &[Webhook],
    entry: &Webhook,
) -> Option<Webhook> {
    let own = desired
        .iter()
        .find(|desired| desired.name() == entry.name());
    if own.is_some() || entry.name() != OWN || leads_to_us(wanted, desired, entry) {
        return own.cloned();
    }
    let client = desired.iter().find_map(beside);
    let client = client.unwrap_or_else(|| client_of(&wanted.service));
    Some(Webhook(json!({"name": OWN, "clientConfig": client})))
}

/// Returns true if both entries lead to one server, by any paths.
fn leads_beside(one: &Webhook, other: &Webhook) -> bool {
    let server = |entry: &Webhook| {
        let mut client = beside(entry)?;
        // The API server adds the default.
        if let Some(service) = client.get_mut("service").and_then(Value::as_object_mut) {
            service.entry("port").or_insert_with(|| json!(443));
        }
        Some(client)
    };
    server(one).is_some_and(|one| server(other) == Some(one))
}

/// Names of the entries that other programs own.
pub(crate) fn foreign_entries(
    wanted: &Validation,
    configuration: &WebhookConfiguration,
) -> Vec<String> {
    let desired = desired_entries(wanted, configuration);
    let entries = configuration.webhooks.iter().flatten();
    entries
        .filter(|entry| !is_ours(wanted, &desired, entry))
        .map(|entry| entry.name().to_owned())
        .collect()
}

/// Returns the wanted entries that are enforced: all of them if the file enforces them, or if the configuration is empty.
pub(super) fn desired_entries(
    wanted: &Validation,
    configuration: &WebhookConfiguration,
) -> Vec<Webhook> {
    let is_empty = configuration.webhooks.iter().flatten().next().is_none();
    match wanted.enforced || is_empty {
        true => wanted.entries(),
        false => Vec::new(),
    }
}

/// Returns true if the entry's rules match the kind.
fn takes(entry: &Webhook, kind: &Kind) -> bool {
    let rules = entry.0.get("rules").and_then(Value::as_array);
    let by_any_version = entry.0.get("matchPolicy") != Some(&json!("Exact"));
    rules.into_iter().flatten().any(|rule| {
        let has = |field: &str, value: &str| {
            let all = rule.get(field).and_then(Value::as_array);
            all.is_some_and(|all| all.iter().any(|one| one == value || one == "*"))
        };
        // `Equivalent`, the default, has the API server convert an object to the version of the rule.
        let versions = match by_any_version {
            true => kind
                .versions
                .iter()
                .any(|version| has("apiVersions", version)),
            false => kind
                .versions
                .iter()
                .all(|version| has("apiVersions", version)),
        };
        versions
            && has("apiGroups", kind.group)
            && (has("resources", kind.plural) || has("resources", "*/*"))
            && OPERATIONS.iter().all(|one| has("operations", one))
    })
}

/// Rules for some kinds: one for each group, in all versions.
pub(super) fn rules<'a>(kinds: impl Iterator<Item = &'a Kind>) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in kinds {
        match groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, plurals)) => plurals.push(kind.plural),
            None => groups.push((kind.group, vec![kind.plural])),
        }
    }
    groups
        .into_iter()
        .map(|(group, plurals)| {
            json!({"apiGroups": [group], "apiVersions": ["*"], "operations": OPERATIONS, "resources": plurals})
        })
        .collect()
}

/// The entry that takes the kinds that these leave out.
#[derive(Debug)]
pub(super) enum RemainingKinds {
    /// Adds these rules to an existing entry.
    Rules(String, Vec<Value>),
    /// Adds an entry.
    Entry(Webhook),
}

/// `entries`: those of ours, as they are to be; `reserved`: names that are taken, too.
pub(super) fn rest(
    wanted: &Validation,
    entries: &[Webhook],
    reserved: &[&str],
) -> Option<RemainingKinds> {
    let left_out = KINDS
        .iter()
        .filter(|kind| !entries.iter().any(|entry| takes(entry, kind)));
    let missing = rules(left_out);
    if missing.is_empty() {
        return None;
    }
    let desired = if wanted.enforced {
        wanted.entries()
    } else {
        Vec::new()
    };
    let is_desired = |name: &str| desired.iter().any(|desired| desired.name() == name);
    let mut own = REST.into_iter().filter(|name| !is_desired(name));
    let there = own
        .clone()
        .find_map(|name| entries.iter().find(|entry| entry.name() == name));
    if let Some(there) = there {
        let rules = there.0.get("rules").and_then(Value::as_array);
        let mut rules = rules.cloned().unwrap_or_default();
        rules.extend(missing);
        return Some(RemainingKinds::Rules(there.name().to_owned(), rules));
    }
    let name = own.find(|name| !reserved.contains(name))?;
    // The client of the other entries leads to this program: there may be no Service.
    let client = entries.iter().find_map(beside);
    let client = client.unwrap_or_else(|| client_of(&wanted.service));
    Some(RemainingKinds::Entry(entry(&client, name, &missing)))
}

/// The client configuration of an entry, for all kinds.
fn beside(entry: &Webhook) -> Option<Value> {
    let client = entry.0.get("clientConfig")?;
    if let Some(url) = client.get("url").and_then(Value::as_str) {
        let (scheme, rest) = url.split_once("://")?;
        let host = rest.split('/').next()?;
        return Some(json!({"url": format!("{scheme}://{host}{PATH}")}));
    }
    let mut service = client.get("service")?.clone();
    service
        .as_object_mut()?
        .insert("path".to_owned(), json!(PATH));
    Some(json!({"service": service}))
}

/// The way by a Service.
fn client_of(service: &ServiceReference) -> Value {
    let ServiceReference { namespace, name } = service;
    json!({"service": {"name": name, "namespace": namespace, "path": PATH, "port": 443}})
}

/// An entry with some rules.
fn entry(client: &Value, name: &str, rules: &[Value]) -> Webhook {
    Webhook(json!({
        "name": name,
        "clientConfig": client,
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1", "v1beta1"],
        "namespaceSelector": {},
        "timeoutSeconds": 10,
    }))
}

/// The default entry for all kinds.
pub(super) fn default_entry(service: &ServiceReference) -> Webhook {
    let [name, _] = REST;
    entry(&client_of(service), name, &rules(KINDS.iter()))
}
