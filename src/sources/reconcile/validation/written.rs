//! A ValidatingWebhookConfiguration from a file, of version v1 or v1beta1, converted to v1.

use api::config::document;
use serde_json::{Map, Value, json};

use super::ServiceReference;

const KIND: &str = "ValidatingWebhookConfiguration";
const VERSIONS: [&str; 2] = [
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
];

/// The fields of an entry that are kept. The API server sets the others, or the reconciler does.
const FIELDS: [&str; 10] = [
    "name",
    "clientConfig",
    "rules",
    "matchPolicy",
    "matchConditions",
    "namespaceSelector",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
];

/// The metadata, and the entries.
pub(super) fn read(text: &str, service: &ServiceReference) -> Result<(Value, Vec<Value>), String> {
    let mut objects = Vec::new();
    for document in document::documents(text) {
        let document = document
            .map_err(|malformed| format!("line {}: {}", malformed.line.max(1), malformed.cause))?;
        objects.extend(document.parts().iter().map(document::Part::value));
    }
    let [object] = objects.as_slice() else {
        return Err(format!("want one {KIND}, not {} objects", objects.len()));
    };
    let field = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    if field("kind") != KIND || !VERSIONS.contains(&field("apiVersion")) {
        return Err(format!(
            "want a {KIND} of {}, not {:?} of {:?}",
            VERSIONS.join(" or "),
            field("kind"),
            field("apiVersion")
        ));
    }
    let entries = object.get("webhooks").and_then(Value::as_array);
    let entries = entries
        .filter(|entries| !entries.is_empty())
        .ok_or_else(|| "webhooks: want a list with at least one entry".to_owned())?;
    let entries = entries
        .iter()
        .enumerate()
        .map(|(at, webhook)| {
            entry(webhook, service).map_err(|cause| format!("webhooks[{at}]{cause}"))
        })
        .collect::<Result<_, _>>()?;
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    Ok((metadata, entries))
}

fn entry(written: &Value, service: &ServiceReference) -> Result<Value, String> {
    let fields = written.as_object().ok_or(": want an object")?;
    let mut entry: Map<String, Value> = Map::new();
    for field in FIELDS {
        if let Some(value) = fields.get(field).filter(|value| !value.is_null()) {
            entry.insert(field.to_owned(), value.clone());
        }
    }
    match entry.get("name") {
        Some(Value::String(name)) if !name.is_empty() => {}
        _ => return Err(".name: is required".to_owned()),
    }
    let rules = entry.get("rules");
    if !rules.is_none_or(|rules| {
        rules
            .as_array()
            .is_some_and(|rules| rules.iter().all(Value::is_object))
    }) {
        return Err(".rules: want a list of objects".to_owned());
    }
    let client = entry
        .entry("clientConfig")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .ok_or(".clientConfig: want an object")?;
    client.remove("caBundle");
    if !client.contains_key("url") {
        complete(client, service)?;
    }
    // v1 accepts no other value that fits, and the webhook has no side effects.
    if entry.get("sideEffects") != Some(&json!("NoneOnDryRun")) {
        entry.insert("sideEffects".to_owned(), json!("None"));
    }
    for (field, value) in [
        ("admissionReviewVersions", json!(["v1", "v1beta1"])),
        ("namespaceSelector", json!({})),
    ] {
        entry.entry(field).or_insert(value);
    }
    Ok(Value::Object(entry))
}

/// Completes the `service` with the API server's defaults.
fn complete(client: &mut Map<String, Value>, service: &ServiceReference) -> Result<(), String> {
    let fields = client
        .entry("service")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .ok_or(".clientConfig.service: want an object")?;
    for (field, value) in [
        ("name", json!(service.name)),
        ("namespace", json!(service.namespace)),
        ("port", json!(443)),
    ] {
        let absent = fields
            .get(field)
            .is_none_or(|value| value.is_null() || value == "");
        if absent {
            fields.insert(field.to_owned(), value);
        }
    }
    Ok(())
}
