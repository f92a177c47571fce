//! What is to be done about a configuration: the bundle and the object in, the patch out. Pure.

use std::time::SystemTime;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::bundle::Bundle;
use crate::webhook::{Webhook, WebhookConfiguration};

#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// No entry is this program's.
    NoEntry,
    /// Every entry of this program's has the bundle.
    Held { entries: Vec<String> },
    /// These fields and no others are to become these, of the object as it was seen and of no later one.
    Patch { entries: Vec<String>, patch: Value },
}

/// Whether an entry is meant: by its whole name, or by what stands behind a dot.
fn meant(entry: &str, name: &str) -> bool {
    entry == name
        || entry
            .strip_suffix(name)
            .is_some_and(|before| before.len() > 1 && before.ends_with('.'))
}

pub(crate) fn decide(
    configuration: &WebhookConfiguration,
    name: &str,
    bundle: &Bundle,
    now: SystemTime,
) -> Decision {
    let own: Vec<&Webhook> = configuration
        .webhooks
        .iter()
        .flatten()
        .filter(|webhook| meant(&webhook.name, name))
        .collect();
    if own.is_empty() {
        return Decision::NoEntry;
    }
    let entries = own.iter().map(|webhook| webhook.name.clone()).collect();
    let patches: Vec<Value> = own
        .into_iter()
        .filter_map(|webhook| {
            let present = webhook.client_config.ca_bundle.as_ref();
            let wanted = bundle.wanted(present.map_or(&[], |bytes| &bytes.0), now)?;
            Some(json!({
                "name": webhook.name,
                "clientConfig": {"caBundle": ByteString(wanted)},
            }))
        })
        .collect();
    if patches.is_empty() {
        return Decision::Held { entries };
    }
    // A strategic merge patch: entries are found by their name, and what it does not name stays. The version makes the
    // server refuse it where the object is another by now.
    let patch = json!({
        "metadata": {"resourceVersion": configuration.metadata.resource_version},
        "webhooks": patches,
    });
    Decision::Patch { entries, patch }
}

#[cfg(test)]
mod tests;
