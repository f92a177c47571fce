//! Patches of clusters.

use std::sync::Arc;

use api::networking::envoy_filter::ApplyTo;
use api::networking::envoy_filter::patch::Operation;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use prost::Message;

use super::matching::is_cluster;
use super::{Patched, Work};
use crate::finish::{ClusterParts, Draft, Encode};
use crate::scope::envoy_filters::Patch;

impl Patched for ClusterParts {
    type Whole = Cluster;
    const ADDED_BY: ApplyTo = ApplyTo::Cluster;

    fn of(cluster: Cluster) -> (Arc<str>, Self) {
        let parts = Self {
            cluster,
            ..Self::default()
        };
        (parts.cluster.name.as_str().into(), parts)
    }

    fn apply(draft: &mut Draft<Self>, patch: &Patch, work: &mut Work<'_>) -> bool {
        if patch.apply_to != ApplyTo::Cluster
            || patch.operation == Operation::Add
            || !is_cluster(patch, &draft.name)
        {
            return true;
        }
        if patch.operation == Operation::Remove {
            return false;
        }
        // All parts as one.
        let Ok(mut whole) = Cluster::decode(&*draft.message.clone().encode()) else {
            return true;
        };
        if work.is_touched_by(|| work.change(patch, &mut whole)) {
            // Others call it by its name.
            whole.name = draft.name.to_string();
            draft.message = Self::of(whole).1;
        }
        true
    }
}
