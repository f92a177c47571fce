//! The pod, or the WorkloadEntry, that a proxy stands beside.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{ClusterId, Health, Labels, Locality};

/// The identity of a workload. A proxy names the three in its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    pub cluster: ClusterId,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// A pod or a WorkloadEntry, whether or not it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub key: WorkloadKey,
    /// All of them, the primary one first.
    pub addresses: Vec<IpAddr>,
    pub labels: Arc<Labels>,
    pub locality: Locality,
    /// As the label of the pod or of its namespace says it.
    pub network: Option<Arc<str>>,
    /// Its identity, `spiffe://cluster.local/ns/demo/sa/b`.
    pub account: Option<Arc<str>>,
    /// Named ports of its containers.
    pub ports: BTreeMap<Arc<str>, u16>,
    /// The name of its owner, such as its Deployment.
    pub owner: Option<Arc<str>>,
    /// Tells whether a ServiceEntry that selects it by its labels sends it requests.
    pub health: Health,
}
