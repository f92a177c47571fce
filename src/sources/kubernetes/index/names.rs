//! The parameters of the names of services, workloads and identities.

use std::sync::Arc;

use api::model::ClusterId;
use api::names::spiffe_id;

/// The parameters of the names of services and workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub cluster: ClusterId,
    /// Behind `svc.` in full names.
    pub domain: Arc<str>,
    pub trust_domain: Arc<str>,
}

impl Names {
    /// The identity of an account.
    pub(super) fn account(&self, namespace: &str, account: &str) -> Arc<str> {
        spiffe_id(&self.trust_domain, namespace, account).into()
    }
}
