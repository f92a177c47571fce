//! Sets of resources: what tells them from others, and one in place of an equal older one.

use std::sync::Arc;

use super::reuse::Reusable as _;
use crate::version::Version;
use crate::view::{Resource, Set};

/// The set, or the older one where that is equal: then proxies that have it are told nothing.
pub(super) fn or_older(set: Set, older: Option<Arc<Set>>) -> Arc<Set> {
    let set = Arc::new(set);
    match older {
        Some(older) => set.reuse_older(&older),
        None => set,
    }
}

/// Names and versions, which tell a set from others.
pub(super) fn versions(resources: &[Arc<Resource>]) -> Vec<(Arc<str>, Version)> {
    resources
        .iter()
        .map(|resource| (resource.name.clone(), resource.version))
        .collect()
}
