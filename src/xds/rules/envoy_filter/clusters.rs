//! Patches of clusters.

use std::sync::Arc;

use api::networking::envoy_filter::ApplyTo;
use api::networking::envoy_filter::patch::Operation;
use api::networking::{DiscoveryKind as _, EnvoyFilter};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use prost::Message;

use super::matching::is_cluster;
use super::{PatchBudget, Patched};
use crate::common::dns_cluster;
use crate::finish::{ClusterParts, Draft, Encode};
use crate::scope::envoy_filters::Patch;
use crate::view::Resource;

impl Patched for ClusterParts {
    type EnvoyMessage = Cluster;
    const ADDED_BY: ApplyTo = ApplyTo::Cluster;

    fn of(cluster: Cluster) -> (Arc<str>, Self) {
        let parts = Self {
            cluster,
            ..Self::default()
        };
        (parts.cluster.name.as_str().into(), parts)
    }

    fn apply(draft: &mut Draft<Self>, patch: &Patch, work: &mut PatchBudget<'_>) -> bool {
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
        let by_fields =
            is_merged_by_fields(patch, &whole, work) && dns_cluster::to_fields(&mut whole);
        let chooses_socket =
            whole.transport_socket.is_none() && !whole.transport_socket_matches.is_empty();
        let is_touched = work.is_touched_by(|| work.change(patch, &mut whole));
        if is_touched && chooses_socket && is_merge(patch) {
            merge_chosen_socket(patch, &mut whole, work);
        }
        if by_fields {
            dns_cluster::to_cluster_type(&mut whole);
        }
        if is_touched {
            // Others call it by its name.
            whole.name = draft.name.to_string();
            // Envoy refuses the cluster for an assignment without a name, and a patch of a cluster does not know it.
            if let Some(assignment) = &mut whole.load_assignment
                && assignment.cluster_name.is_empty()
            {
                assignment.cluster_name.clone_from(&whole.name);
            }
            draft.message = Self::of(whole).1;
        }
        true
    }
}

fn is_merge(patch: &Patch) -> bool {
    matches!(
        patch.operation,
        Operation::Merge | Operation::MergeAndReplaceList
    )
}

/// A socket for all endpoints has no effect beside those that endpoints choose among, the last of which fits all: a patch of it
/// means the one of its name among them, as in Istio.
fn merge_chosen_socket(patch: &Patch, whole: &mut Cluster, work: &PatchBudget<'_>) {
    let Some(merged_socket) = whole.transport_socket.take() else {
        return;
    };
    let choices = whole.transport_socket_matches.iter_mut();
    let mut sockets = choices.flat_map(|choice| &mut choice.transport_socket);
    let Some(socket) = sockets.find(|socket| socket.name == merged_socket.name) else {
        let why = format!(
            "transport_socket has no effect: endpoints choose among transport_socket_matches, and none of them is called {:?}",
            merged_socket.name
        );
        work.report_unmerged(patch, &why);
        return;
    };
    if let Some(merged) = work.laid_over(patch, &merged_socket.encode_to_vec(), socket) {
        *socket = merged;
    }
}

/// Returns true if a patch may say how names are looked up in the fields that a cluster has without a type of its own. Beside the
/// type of a cluster of names Envoy reads none of them.
fn is_merged_by_fields(patch: &Patch, whole: &Cluster, work: &PatchBudget<'_>) -> bool {
    let has_type = |cluster: &Cluster| {
        matches!(
            cluster.cluster_discovery_type,
            Some(ClusterDiscoveryType::ClusterType(_))
        )
    };
    is_merge(patch)
        && has_type(whole)
        && work.has_room_to_read(patch, patch.value.len())
        && Cluster::decode(&*patch.value).is_ok_and(|written| !has_type(&written))
}

/// Returns false if a patch made a cluster one that asks for no endpoints. Only those that a patch has changed are read.
pub(crate) fn keeps_eds(cluster: &Resource) -> bool {
    let mut from = cluster.from.iter();
    if !from.any(|one| one.kind == EnvoyFilter::NAME) {
        return true;
    }
    let eds = ClusterDiscoveryType::Type(DiscoveryType::Eds.into());
    let cluster = Cluster::decode(&*cluster.body);
    cluster.is_ok_and(|cluster| cluster.cluster_discovery_type == Some(eds))
}
