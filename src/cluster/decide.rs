//! The decision about a configuration: the bundle and the object in, the patch out. Pure.

use std::time::SystemTime;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::bundle::Bundle;
use crate::webhook::{Webhook, WebhookConfiguration};

#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// The configuration does not exist, and this program does not create it.
    Missing,
    /// There is none, as it is wanted.
    Gone,
    /// No entry is this program's.
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
    /// These fields and no others are to become these, of the object as it was seen and of no later one.
    Patch {
        entries: Vec<String>,
        patch: Value,
    },
    /// It is to be there, as this.
    Create(Value),
    Delete,
}

/// Whether an entry is meant: by its whole name, or by what stands behind a dot.
fn meant(entry: &str, name: &str) -> bool {
    entry == name
        || entry
            .strip_suffix(name)
            .is_some_and(|before| before.len() > 1 && before.ends_with('.'))
}

/// Only the bundle is kept, in the entries of this name.
pub(crate) fn decide(
    configuration: Option<&WebhookConfiguration>,
    name: &str,
    bundle: &Bundle,
    now: SystemTime,
) -> Decision {
    let Some(configuration) = configuration else {
        return Decision::Missing;
    };
    let own: Vec<&Webhook> = configuration
        .webhooks
        .iter()
        .flatten()
        .filter(|webhook| meant(webhook.name(), name))
        .collect();
    if own.is_empty() {
        return Decision::NoEntry;
    }
    let entries = own.iter().map(|webhook| webhook.name().to_owned());
    let entries = entries.collect();
    let patches: Vec<Value> = own
        .into_iter()
        .filter_map(|webhook| {
            let wanted = bundle.wanted(&webhook.bundle(), now)?;
            Some(json!({
                "name": webhook.name(),
                "clientConfig": {"caBundle": ByteString(wanted)},
            }))
        })
        .collect();
    patched(configuration, entries, &patches)
}

/// A strategic merge patch: entries are found by their name, and what it does not name stays. The version makes the server
/// refuse it where the object is another by now.
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
