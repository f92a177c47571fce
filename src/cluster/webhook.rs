//! MutatingWebhookConfiguration, as much of it as the keeper of CA bundles needs.

use k8s_openapi::ByteString;
use serde::Deserialize;

use crate::kind::{Key, Kind, Metadata, Resource};

/// Equal only at the same `resourceVersion`: a patch carries it, so each is news.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WebhookConfiguration {
    pub metadata: Metadata,
    #[serde(default)]
    pub webhooks: Option<Vec<Webhook>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub name: String,
    #[serde(default)]
    pub client_config: ClientConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConfig {
    /// Decoded: PEM.
    pub ca_bundle: Option<ByteString>,
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
}
