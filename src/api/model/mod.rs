//! The mesh as plain values: services, endpoints, workloads, and the [`World`] that holds the state of one moment.
//!
//! Registries make these values, resources for Envoy are made from them, and neither knows the other. Texts are `Arc<str>`,
//! because one name stands in many places; values are compared and cloned often, so that large ones are behind an `Arc`.

mod address;
mod changes;
mod credential;
mod endpoint;
pub mod kinds;
mod object;
mod protocol;
mod push_request;
mod service;
mod workload;
mod world;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use address::{Address, Network};
pub use changes::{ChangedKind, ChangedName, Changes};
pub use credential::{CertificatePair, Credential, CredentialKey, Credentials, ROOT_SUFFIX};
pub use endpoint::{Endpoint, EndpointAddress, Health, Locality, TlsMode};
pub use object::ObjectRef;
pub use protocol::{Protocol, UnknownProtocol};
pub use push_request::{PushRequest, TriggerReason};
pub use service::{Port, Registry, Resolution, Service, ServiceKey, Target};
pub use workload::{Workload, WorkloadKey};
pub use world::{
    Configured, DISTRIBUTION, DRY_RUN, EndpointShards, Objects, World, is_dry_run, is_near,
    is_near_by_field,
};

/// Labels of a pod, or the labels that a selector wants.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Returns true if `labels` have all that `selector` wants. An empty selector selects all: a caller for which it means none
/// checks that first.
#[must_use]
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

/// The name of a cluster; also of a source that is not Kubernetes, such as a directory of files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(Arc<str>);

impl ClusterId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ClusterId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for ClusterId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn a_selector_wants_all_its_labels() {
        let pod = labels(&[("app", "b"), ("version", "1")]);
        for (selector, selected) in [
            (labels(&[]), true),
            (labels(&[("app", "b")]), true),
            (labels(&[("app", "b"), ("version", "1")]), true),
            (labels(&[("app", "c")]), false),
            (labels(&[("app", "b"), ("tier", "")]), false),
        ] {
            assert_eq!(selects(&selector, &pod), selected, "{selector:?}");
        }
    }

    #[test]
    fn a_cluster_is_found_by_its_text() {
        let clusters = BTreeMap::from([(ClusterId::from("east"), 1)]);
        assert_eq!(clusters.get("east"), Some(&1));
        assert_eq!(ClusterId::from("east").to_string(), "east");
    }
}
