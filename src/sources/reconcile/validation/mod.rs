//! The configuration of the validating webhook: its desired state, and the condition for its failure policy.
//!
//! It is created if it is missing, and repaired when another client changes it. Until the webhook was seen to refuse an
//! object, or no kind is installed that it could refuse, its failure policy is `Ignore`: a control plane that is installed in the wrong order must not lock out its own
//! rules.

mod configuration_patch;
mod coverage;
mod webhook_probe;
mod written;

use serde_json::{Value, json};

use super::webhook::Webhook;

pub(crate) use configuration_patch::{complete, decide};
pub(crate) use coverage::foreign_entries;
pub(crate) use webhook_probe::WebhookProbe;

/// A Service, by which the API server finds a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
}

/// A ValidatingWebhookConfiguration that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    pub(crate) name: String,
    pub(crate) service: ServiceReference,
    /// The object to create, without bundle, policy and owner, which are found out later.
    pub(crate) object: Value,
    /// Existing entries are held to the file's, too.
    pub(crate) enforced: bool,
    /// The configuration is to be deleted.
    pub(crate) unregistered: bool,
}

impl Validation {
    /// Creates the built-in configuration: one entry for all kinds of rules.
    #[must_use]
    pub fn built_in(name: &str, service: ServiceReference) -> Self {
        let Webhook(entry) = coverage::default_entry(&service);
        Self {
            object: configuration_object(name, &Value::Null, &[entry]),
            name: name.to_owned(),
            service,
            enforced: false,
            unregistered: false,
        }
    }

    /// Reads the configuration from a file in YAML or JSON.
    ///
    /// # Errors
    /// The file is no ValidatingWebhookConfiguration.
    pub fn of_file(text: &str, name: &str, service: ServiceReference) -> Result<Self, String> {
        let (metadata, entries) = written::read(text, &service)?;
        Ok(Self {
            object: configuration_object(name, &metadata, &entries),
            name: name.to_owned(),
            service,
            enforced: true,
            unregistered: false,
        })
    }

    /// Deletes the webhook configuration wherever it is found, in place of keeping it.
    #[must_use]
    pub fn unregistered(mut self) -> Self {
        self.unregistered = true;
        self
    }

    /// Returns the name of the ClusterRole that owns the configuration, so that it is deleted with the installation.
    pub(crate) fn owner(&self) -> String {
        format!("{}-{}", self.service.name, self.service.namespace)
    }

    /// The entries as they are made.
    pub(crate) fn entries(&self) -> Vec<Webhook> {
        let entries = self.object.get("webhooks").and_then(Value::as_array);
        entries
            .into_iter()
            .flatten()
            .cloned()
            .map(Webhook)
            .collect()
    }
}

fn configuration_object(name: &str, metadata: &Value, entries: &[Value]) -> Value {
    let mut named = json!({"name": name});
    if let Some(fields) = named.as_object_mut() {
        for key in ["labels", "annotations"] {
            if let Some(map) = metadata.get(key).filter(|map| map.is_object()) {
                fields.insert(key.to_owned(), map.clone());
            }
        }
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": named,
        "webhooks": entries,
    })
}

#[cfg(test)]
mod tests;
