//! A Pod becomes a workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{ClusterId, Locality, Workload, WorkloadKey};
use api::well_known::NETWORK;

use super::links::LookupTarget;
use super::names::Names;
use super::tables::Tables;
use super::wire::Pod;
use crate::kind::Key;

const LOCALITY: &str = "istio-locality";

/// A pod's place among those of all clusters.
pub(super) fn key(cluster: &ClusterId, pod: &Key) -> WorkloadKey {
    WorkloadKey {
        cluster: cluster.clone(),
        namespace: (*pod.namespace).into(),
        name: (*pod.name).into(),
    }
}

/// Returns the workload of a pod, and the objects that it was looked up in.
pub(super) fn of(names: &Names, tables: &Tables, pod: &Pod) -> (Workload, BTreeSet<LookupTarget>) {
    let mut targets = BTreeSet::new();
    let labelled = pod.labels.get(LOCALITY).filter(|text| !text.is_empty());
    let locality = match (labelled, &pod.node) {
        (Some(text), _) => Locality::of_label(text),
        (None, Some(node)) => {
            targets.insert(LookupTarget::Node(node.clone()));
            of_node(tables, node)
        }
        (None, None) => Locality::default(),
    };
    let labelled = pod.labels.get(NETWORK).filter(|text| !text.is_empty());
    let network = if let Some(network) = labelled {
        Some(Arc::clone(network))
    } else {
        let namespace = pod.key.namespace.clone();
        targets.insert(LookupTarget::Namespace(namespace));
        of_namespace(tables, &pod.key.namespace)
    };
    let account = match &pod.identity {
        Some(identity) if identity.contains("://") => (**identity).into(),
        Some(identity) => format!("spiffe://{}/{identity}", names.trust_domain).into(),
        None => names.account(&pod.key.namespace, &pod.account),
    };
    let workload = Workload {
        key: key(&names.cluster, &pod.key),
        addresses: pod.addresses.clone(),
        labels: Arc::clone(&pod.labels),
        locality,
        network,
        account: Some(account),
        ports: pod.ports.clone(),
        owner: Some(Arc::clone(&pod.owner)),
        health: pod.health,
    };
    (workload, targets)
}

/// Returns the locality of a node; empty while the node is unknown.
pub(super) fn of_node(tables: &Tables, node: &str) -> Locality {
    let node = tables.nodes.get(&Key::new("", node));
    node.map(|node| node.locality.clone()).unwrap_or_default()
}

/// Returns the network that a namespace sets for all its pods.
pub(super) fn of_namespace(tables: &Tables, namespace: &str) -> Option<Arc<str>> {
    let namespace = tables.namespaces.get(&Key::new("", namespace))?;
    namespace.network.clone()
}
