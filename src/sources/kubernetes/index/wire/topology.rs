//! Node and Namespace: the fields that apply to all pods in them.

use std::sync::Arc;

use api::kubernetes::PartialObjectMetadata;
use api::model::Locality;
use api::well_known::NETWORK;
use serde::Deserialize;

use super::{MetadataView as _, shared};
use crate::kind::{Key, Kind, Resource};

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PartialObjectMetadata")]
pub struct Node {
    pub key: Key,
    pub(crate) locality: Locality,
}

impl Kind for Node {
    const RESOURCE: Resource = Resource::core("nodes");

    fn key(&self) -> Key {
        self.key.clone()
    }
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PartialObjectMetadata")]
pub struct Namespace {
    pub key: Key,
    pub(crate) network: Option<Arc<str>>,
}

impl Kind for Namespace {
    const RESOURCE: Resource = Resource::core("namespaces");

    fn key(&self) -> Key {
        self.key.clone()
    }
}

impl From<PartialObjectMetadata> for Node {
    fn from(raw: PartialObjectMetadata) -> Self {
        let label = |names: [&str; 2]| {
            let found = names.into_iter().find_map(|name| raw.metadata.label(name));
            found.unwrap_or_default()
        };
        Self {
            key: raw.metadata.cluster_key(),
            locality: Locality::new(
                label([
                    "topology.kubernetes.io/region",
                    "failure-domain.beta.kubernetes.io/region",
                ]),
                label([
                    "topology.kubernetes.io/zone",
                    "failure-domain.beta.kubernetes.io/zone",
                ]),
                raw.metadata
                    .label("topology.istio.io/subzone")
                    .unwrap_or_default(),
            ),
        }
    }
}

impl From<PartialObjectMetadata> for Namespace {
    fn from(raw: PartialObjectMetadata) -> Self {
        Self {
            key: raw.metadata.cluster_key(),
            network: raw.metadata.label(NETWORK).map(shared),
        }
    }
}
