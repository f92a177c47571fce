//! The decision about a configuration: the bundle and the object in, the patch out. Pure.

use std::time::SystemTime;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::ca_bundle::CaBundle;
use super::webhook::{Webhook, WebhookConfiguration};

#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// The configuration does not exist, and this program does not create it.
    Missing,
    /// The configuration does not exist, as desired.
    Gone,
    /// The configuration has no entry of this program.
    NoEntry,
    /// Every entry of this program's is as it should be.
    Held {
        entries: Vec<String>,
    },
    Write(Write),
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Patches these fields only, on condition of the `resourceVersion` that was read.
    Patch {
        entries: Vec<String>,
        patch: Value,
    },
    /// Creates the configuration.
    Create(Value),
    Delete,
}

/// Returns true if `name` is the entry's whole name, or its end behind a dot.
fn is_entry(entry: &str, name: &str) -> bool {
    entry == name
        || entry
            .strip_suffix(name)
            .is_some_and(|before| before.len() > 1 && before.ends_with('.'))
}

/// Decides for a configuration of another program: only the bundle in entries of this name is reconciled.
pub(crate) fn decide_ca_bundle(
    configuration: Option<&WebhookConfiguration>,
    name: &str,
    bundle: &CaBundle,
    now: SystemTime,
) -> Decision {
    let Some(configuration) = configuration else {
        return Decision::Missing;
    };
    let own: Vec<&Webhook> = configuration
        .webhooks
        .iter()
        .flatten()
        .filter(|webhook| is_entry(webhook.name(), name))
        .collect();
    if own.is_empty() {
        return Decision::NoEntry;
    }
    let entries = own.iter().map(|webhook| webhook.name().to_owned());
    let entries = entries.collect();
    let patches: Vec<Value> = own
        .into_iter()
        .filter_map(|webhook| {
            let wanted = bundle.replacement(&webhook.bundle(), now)?;
            Some(json!({
                "name": webhook.name(),
                "clientConfig": {"caBundle": ByteString(wanted)},
            }))
        })
        .collect();
    patched(configuration, entries, &patches)
}

/// Builds a strategic merge patch: entries are found by their name, and fields that it does not name stay. The version makes
/// the server refuse the patch with 409 if the object has changed.
pub(crate) fn patched(
    configuration: &WebhookConfiguration,
    entries: Vec<String>,
    patches: &[Value],
) -> Decision {
    if patches.is_empty() {
        return Decision::Held { entries };
    }
    let patch = json!({
        "metadata": {"resourceVersion": configuration.metadata.resource_version},
        "webhooks": patches,
    });
    Decision::Write(Write::Patch { entries, patch })
}

#[cfg(test)]
mod tests;
