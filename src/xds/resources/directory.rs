//! Services by what a proxy has, its namespace and its addresses; and what entries say of a node.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Endpoint, Locality, Service, ServiceKey, World, selects};

use crate::node::Node;

/// Look-ups by what a proxy has: its namespace and its addresses.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    by_namespace: HashMap<Arc<str>, Vec<Arc<Service>>>,
    /// By the service's namespace and an endpoint's address: an endpoint that another namespace names makes a proxy no part of
    /// that namespace's service.
    by_address: HashMap<(Arc<str>, IpAddr), BTreeSet<ServiceKey>>,
}

impl Directory {
    pub(crate) fn new(world: &World) -> Self {
        let mut directory = Self::default();
        for service in world.services.values() {
            if !service.selector.is_empty() {
                directory
                    .by_namespace
                    .entry(service.key.namespace.clone())
                    .or_default()
                    .push(service.clone());
            }
        }
        for (key, shards) in world.endpoints.iter() {
            for endpoint in shards.values().flat_map(|shard| shard.iter()) {
                if let Some(address) = endpoint.address.ip() {
                    let place = (key.namespace.clone(), address);
                    let keys = directory.by_address.entry(place).or_default();
                    if !keys.contains(key) {
                        keys.insert(key.clone());
                    }
                }
            }
        }
        directory
    }

    /// The services of a namespace that select workloads.
    pub(super) fn of_namespace(&self, namespace: &Arc<str>) -> &[Arc<Service>] {
        self.by_namespace.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The services of the node's own namespace that have an endpoint with this address.
    pub(super) fn at(&self, node: &Node, address: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        let place = (node.namespace.clone(), address);
        self.by_address.get(&place).into_iter().flatten()
    }

    /// The locality of this node, as an entry outside of Kubernetes says it.
    pub(crate) fn locality(&self, node: &Node, world: &World) -> Option<Locality> {
        let known = |endpoint: &Endpoint| {
            let locality = endpoint.locality.clone();
            (!locality.is_unknown()).then_some(locality)
        };
        self.declared(node, world, known)
    }

    /// Returns the network that an entry of the proxy's workload declares.
    pub(crate) fn network(&self, node: &Node, world: &World) -> Option<Arc<str>> {
        self.declared(node, world, |endpoint| endpoint.network.clone())
    }

    /// A property of the node that entries of its namespace declare: those of its first address of which one declares any.
    fn declared<T: Ord>(
        &self,
        node: &Node,
        world: &World,
        what: impl Fn(&Endpoint) -> Option<T>,
    ) -> Option<T> {
        let of = |address: &IpAddr| {
            self.at(node, *address)
                .flat_map(|key| world.endpoints_of(key))
                .map(|(_, endpoint)| endpoint)
                .filter(|endpoint| endpoint.address.ip() == Some(*address))
                // An endpoint that names a pod is that pod's alone, whoever else has the address.
                .filter(|endpoint| endpoint.named_pod().is_none() && may_be(node, endpoint))
                .filter_map(&what)
                // Of entries that disagree one in every order of arrival.
                .min()
        };
        node.addresses.iter().find_map(of)
    }
}

/// Returns true unless labels say that an entry is another workload with this node's address.
pub(super) fn may_be(node: &Node, endpoint: &Endpoint) -> bool {
    let either_is_silent = endpoint.labels.is_empty() || node.labels.is_empty();
    either_is_silent || selects(&endpoint.labels, &node.labels)
}
