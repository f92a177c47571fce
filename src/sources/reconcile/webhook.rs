//! Webhook configurations, as much of them as their reconciler needs: both kinds are read by one type.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::Value;

use crate::kind::{Key, Kind, Metadata, Resource};

/// The resource of validating webhooks.
pub(crate) const VALIDATING: Resource = Resource {
    group: "admissionregistration.k8s.io",
    version: "v1",
    name: "validatingwebhookconfigurations",
};

/// Equal only at the same `resourceVersion`: a patch carries it, so each is news.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WebhookConfiguration {
    pub metadata: Metadata,
    #[serde(default)]
    pub webhooks: Option<Vec<Webhook>>,
}

/// An entry, as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Webhook(pub(crate) Value);

impl Webhook {
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/name")
    }

    /// Returns the CA bundle as PEM; empty if there is none.
    #[must_use]
    pub fn bundle(&self) -> Vec<u8> {
        let bundle = self.0.pointer("/clientConfig/caBundle").cloned();
        let bytes = bundle.and_then(|bundle| serde_json::from_value(bundle).ok());
        bytes.map_or_else(Vec::new, |ByteString(bytes)| bytes)
    }

    /// Returns true if the failure policy is `Ignore`. The default is `Fail`.
    pub(crate) fn ignores(&self) -> bool {
        self.text("/failurePolicy") == "Ignore"
    }

    fn text(&self, path: &str) -> &str {
        let text = self.0.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default()
    }
}

impl Kind for WebhookConfiguration {
    const RESOURCE: Resource = Resource {
        group: "admissionregistration.k8s.io",
        version: "v1",
        name: "mutatingwebhookconfigurations",
    };

    fn key(&self) -> Key {
        self.metadata.key()
    }

    fn size(&self) -> usize {
        let webhooks = self.webhooks.iter().flatten();
        let webhooks = webhooks.map(|Webhook(value)| value_size(value));
        webhooks.sum::<usize>().saturating_add(size_of::<Self>())
    }
}

/// Bytes that a value holds.
fn value_size(value: &Value) -> usize {
    let inner = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_size).sum(),
        Value::Object(entries) => entries
            .iter()
            .map(|(name, value)| name.len() + value_size(value))
            .sum(),
    };
    size_of::<Value>() + inner
}
