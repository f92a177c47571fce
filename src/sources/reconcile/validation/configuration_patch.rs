//! The decision about a whole configuration: the desired state and the object in, the write out. Pure.

use std::time::SystemTime;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::Validation;
use super::coverage::{self, RemainingKinds};
use crate::reconcile::ca_bundle::CaBundle;
use crate::reconcile::ca_bundle_patch::{Decision, Write, patched};
use crate::reconcile::webhook::{Webhook, WebhookConfiguration};

/// Maps that must equal the wanted ones: an additional label would exclude objects.
const EXACT: [&str; 3] = ["clientConfig", "namespaceSelector", "objectSelector"];

/// Decides the write. `fail`: the webhook was seen to refuse, so the policy becomes `Fail`.
pub(crate) fn decide(
    wanted: &Validation,
    configuration: Option<&WebhookConfiguration>,
    bundle: &CaBundle,
    fail: bool,
    now: SystemTime,
) -> Decision {
    let Some(configuration) = configuration else {
        return match wanted.unregistered {
            true => Decision::Gone,
            false => Decision::Write(Write::Create(created(wanted, bundle, fail, now))),
        };
    };
    if wanted.unregistered {
        return Decision::Write(Write::Delete);
    }
    let present = configuration.webhooks.as_deref().unwrap_or_default();
    let desired = coverage::desired_entries(wanted, configuration);
    let ours = present
        .iter()
        .filter(|entry| coverage::is_ours(wanted, &desired, entry));
    let mut patches = Vec::new();
    for entry in ours.clone() {
        let desired = coverage::desired_entry(wanted, &desired, entry);
        patches.extend(mended(entry, desired.as_ref(), bundle, fail, now));
    }
    let lacking = desired
        .iter()
        .filter(|desired| present.iter().all(|entry| entry.name() != desired.name()));
    patches.extend(
        lacking
            .clone()
            .map(|desired| completed(desired, bundle, fail, now)),
    );
    // As they will be.
    let entries = ours.clone().map(|entry| {
        let desired = desired
            .iter()
            .find(|desired| desired.name() == entry.name());
        ruled(entry, desired)
    });
    let entries: Vec<Webhook> = entries.chain(lacking.cloned()).collect();
    let known: Vec<&str> = present.iter().map(Webhook::name).collect();
    match coverage::rest(wanted, &entries, &known) {
        None => {}
        Some(RemainingKinds::Entry(entry)) => patches.push(completed(&entry, bundle, fail, now)),
        Some(RemainingKinds::Rules(name, rules)) => set_rules(&mut patches, &name, rules),
    }
    let names = ours.map(|entry| entry.name().to_owned());
    patched(configuration, names.collect(), &patches)
}

/// Returns an existing entry with the rules of the wanted one.
fn ruled(entry: &Webhook, desired: Option<&Webhook>) -> Webhook {
    let mut ruled = entry.clone();
    let rules = desired.and_then(|desired| desired.0.get("rules"));
    if let (Some(entry), Some(rules)) = (ruled.0.as_object_mut(), rules) {
        entry.insert("rules".to_owned(), rules.clone());
    }
    ruled
}

/// Sets the rules of an entry, in its patch if there is one.
fn set_rules(patches: &mut Vec<Value>, name: &str, rules: Vec<Value>) {
    let rules_patch = patches.iter_mut().find(|patch| {
        let patched = patch.get("name").and_then(Value::as_str);
        patched == Some(name)
    });
    match rules_patch.and_then(Value::as_object_mut) {
        Some(patch) => drop(patch.insert("rules".to_owned(), Value::Array(rules))),
        None => patches.push(json!({"name": name, "rules": rules})),
    }
}

/// Builds the object to create.
fn created(wanted: &Validation, bundle: &CaBundle, fail: bool, now: SystemTime) -> Value {
    let mut all = wanted.entries();
    let names: Vec<String> = all.iter().map(|entry| entry.name().to_owned()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(RemainingKinds::Entry(entry)) = coverage::rest(wanted, &all, &names) {
        all.push(entry);
    }
    let entries = all.iter().map(|entry| completed(entry, bundle, fail, now));
    let entries: Vec<Value> = entries.collect();
    let mut whole = wanted.object.clone();
    if let Some(whole) = whole.as_object_mut() {
        whole.insert("webhooks".to_owned(), Value::Array(entries));
    }
    whole
}

/// Adds the owner reference to an object that is created.
pub(crate) fn complete(mut object: Value, owner: &str, uid: &str) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        let owner = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": owner, "uid": uid});
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    object
}

/// Completes an entry: bundle, policy and defaults.
fn completed(entry: &Webhook, bundle: &CaBundle, fail: bool, now: SystemTime) -> Value {
    let mut made = entry.0.clone();
    if let Some(fields) = made.as_object_mut() {
        let policy = if fail { "Fail" } else { "Ignore" };
        fields.insert("failurePolicy".to_owned(), json!(policy));
        let client = fields
            .get_mut("clientConfig")
            .and_then(Value::as_object_mut);
        if let (Some(client), Some(bundle)) = (client, bundle.replacement(b"", now)) {
            client.insert("caBundle".to_owned(), json!(ByteString(bundle)));
        }
    }
    made
}

/// The fields of an entry that must change, by its name.
fn mended(
    entry: &Webhook,
    desired: Option<&Webhook>,
    bundle: &CaBundle,
    fail: bool,
    now: SystemTime,
) -> Option<Value> {
    let mut patch = Map::new();
    // A policy of `Fail` stays: another replica has seen the webhook refuse.
    if fail && entry.ignores() {
        patch.insert("failurePolicy".to_owned(), json!("Fail"));
    }
    let wanted = bundle.replacement(&entry.bundle(), now);
    if let Some(bundle) = &wanted {
        let bundle = ByteString(bundle.clone());
        patch.insert("clientConfig".to_owned(), json!({"caBundle": bundle}));
    }
    let fields = desired.and_then(|desired| desired.0.as_object());
    for (field, desired) in fields.into_iter().flatten() {
        let present = entry.0.get(field).unwrap_or(&Value::Null);
        if is_so(field, present, desired) {
            continue;
        }
        let mut value = desired.clone();
        if let Some(map) = value
            .as_object_mut()
            .filter(|_| EXACT.contains(&field.as_str()))
        {
            if field == "clientConfig" {
                // This value replaces the bundle's patch above and the whole present map, so that it carries
                // the bundle.
                let bundle = wanted.clone().unwrap_or_else(|| entry.bundle());
                map.insert("caBundle".to_owned(), json!(ByteString(bundle)));
            }
            map.insert("$patch".to_owned(), json!("replace"));
        }
        patch.insert(field.clone(), value);
    }
    if patch.is_empty() {
        return None;
    }
    patch.insert("name".to_owned(), json!(entry.name()));
    Some(Value::Object(patch))
}

/// Returns true if the field has the wanted value.
fn is_so(field: &str, present: &Value, desired: &Value) -> bool {
    match (field, present, desired) {
        ("clientConfig", Value::Object(present), Value::Object(desired)) => {
            let url = present
                .get("url")
                .is_none_or(|url| desired.get("url") == Some(url));
            url && desired.iter().all(|(key, desired)| {
                present
                    .get(key)
                    .is_some_and(|present| covers(present, desired))
            })
        }
        ("namespaceSelector" | "objectSelector", present, desired) => {
            let is_empty =
                |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
            present == desired || (is_empty(present) && is_empty(desired))
        }
        (_, present, desired) => covers(present, desired),
    }
}

/// Returns true if all wanted fields are present; the API server adds defaults for others.
fn covers(present: &Value, desired: &Value) -> bool {
    match (present, desired) {
        (Value::Object(present), Value::Object(desired)) => desired.iter().all(|(key, desired)| {
            present
                .get(key)
                .is_some_and(|present| covers(present, desired))
        }),
        (Value::Array(present), Value::Array(desired)) => {
            present.len() == desired.len()
                && present
                    .iter()
                    .zip(desired)
                    .all(|(present, desired)| covers(present, desired))
        }
        (present, desired) => present == desired,
    }
}
