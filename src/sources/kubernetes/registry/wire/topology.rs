//! Node and Namespace: the fields that apply to all pods in them.

use std::sync::Arc;

use api::model::Locality;
use api::well_known::NETWORK;
use serde::Deserialize;

use super::{RawMetadata, shared};
use crate::kind::{Key, Kind, Resource};

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawTopology")]
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
#[serde(from = "RawTopology")]
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawTopology {
    metadata: RawMetadata,
}

impl RawMetadata {
    /// Returns a key without a namespace: both kinds are cluster-scoped, even if a file sets one.
    fn alone(&self) -> Key {
        Key::new("", &self.name)
    }
}

impl From<RawTopology> for Node {
    fn from(raw: RawTopology) -> Self {
        let label = |names: [&str; 2]| {
            let found = names.into_iter().find_map(|name| raw.metadata.label(name));
            found.unwrap_or_default()
        };
        Self {
            key: raw.metadata.alone(),
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

impl From<RawTopology> for Namespace {
    fn from(raw: RawTopology) -> Self {
        Self {
            key: raw.metadata.alone(),
            network: raw.metadata.label(NETWORK).map(shared),
        }
    }
}
