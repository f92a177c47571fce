//! What one source has to say, all of it, at one moment.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::model::{
    ClusterId, Credentials, Endpoint, Registry, Service, ServiceKey, Workload, WorkloadKey,
};

use super::Configuration;
use super::kubernetes::Ingresses;

/// Which source: its kind, and the cluster that it speaks for.
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

/// All that a source has at one moment. Two of equal content are equal, whatever order things came in; what did not change
/// since the last one is the same `Arc`.
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

/// How far a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not read completely yet.
    Syncing,
    Synced,
    /// Lost; what it said last is served on.
    Stale {
        error: Arc<str>,
    },
}
