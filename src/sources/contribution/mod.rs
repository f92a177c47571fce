//! The contribution of a source: all its objects at one moment, in the form in which the [`aggregate`](crate::aggregate) merges
//! those of all sources.
//!
//! ```text
//!  directories ─┐
//!  Kubernetes, one per cluster ─┤
//!  Consul ─┼──► Contribution ──► Registries ──► World + Changes
//!  memory ─┘
//! ```
//!
//! After each change a source sends all its objects, as a [`Contribution`]. Unchanged objects are the same pointers in it,
//! so that sending all is cheap and no history is needed.

mod configuration;
mod credential;
mod refusal;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::model::{
    ClusterId, Credentials, Endpoint, Registry, Service, ServiceKey, Workload, WorkloadKey,
};

pub use configuration::{AnyConfigured, Configuration, ObjectKey};
pub(crate) use configuration::{ConfigurationKind, EachKind};
pub(crate) use credential::SecretData;
pub use credential::credential_of;
pub use refusal::Refusal;

/// Identifies a source: its registry, and its cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    pub registry: Registry,
    pub cluster: ClusterId,
}

impl fmt::Display for SourceId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.registry.as_str(), self.cluster)
    }
}

/// Ingresses by their namespaces and names, each as JSON: its name, its class and its spec.
pub type Ingresses = BTreeMap<ObjectKey, Arc<str>>;

/// All objects of a source at one moment. Contributions of equal content are equal, in every order of arrival;
/// unchanged objects keep their `Arc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contribution {
    pub services: Arc<BTreeMap<ServiceKey, Arc<Service>>>,
    /// Sorted, none twice. Also of services that another source has: a cluster's endpoints of a service it shares.
    pub endpoints: Arc<BTreeMap<ServiceKey, Arc<[Endpoint]>>>,
    /// Pods.
    pub workloads: Arc<BTreeMap<WorkloadKey, Arc<Workload>>>,
    /// ServiceEntries become services where sources are merged, because they select the workloads of others.
    pub configuration: Configuration,
    /// Certificates that Gateways may name.
    pub credentials: Arc<Credentials>,
    /// Rules are made of them.
    pub ingresses: Arc<Ingresses>,
}

impl Contribution {
    /// The number of its objects and endpoints, by which callers choose the thread that merges them.
    #[must_use]
    pub fn size(&self) -> usize {
        let endpoints = self.endpoints.values().map(|shard| shard.len());
        let configuration = self.configuration.counts().map(|(_, count)| count);
        let others = [
            self.services.len(),
            self.workloads.len(),
            self.credentials.len(),
            self.ingresses.len(),
        ];
        endpoints.chain(configuration).chain(others).sum()
    }
}

/// The progress of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// Not all objects are read yet.
    Syncing,
    Synced,
    /// Lost: the last contribution is still served.
    Stale {
        error: Arc<str>,
    },
}
