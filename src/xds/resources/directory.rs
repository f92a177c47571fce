//! Services by what a proxy has, its namespace and its addresses; and what entries say of a node.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, Locality, Service, ServiceKey, World, selects};

use crate::node::Node;

/// Look-ups by what a proxy has: its namespace and its addresses.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    by_namespace: HashMap<Arc<str>, Vec<Arc<Service>>>,
    /// By the service's namespace and an endpoint's address, in order: an endpoint that another namespace names makes a proxy no
    /// part of that namespace's service. A proxy never looks through all endpoints of its service: of one with 2,000 pods, that
    /// would be millions of them at each full push.
    by_address: HashMap<(Arc<str>, IpAddr), Vec<EndpointKey>>,
}

/// The place of an endpoint in a world.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndpointKey {
    pub(super) service: ServiceKey,
    pub(super) cluster: ClusterId,
    index: usize,
}

impl EndpointKey {
    /// `world`: that of which the directory was made.
    pub(super) fn endpoint<'a>(&self, world: &'a World) -> Option<&'a Endpoint> {
        let shards = world.endpoints.get(&self.service)?;
        shards.get(&self.cluster)?.get(self.index)
    }
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
        for (service, shards) in world.endpoints.iter() {
            for (cluster, shard) in shards.iter() {
                for (index, endpoint) in shard.iter().enumerate() {
                    let Some(address) = endpoint.address.ip() else {
                        continue;
                    };
                    let place = (service.namespace.clone(), address);
                    let (service, cluster) = (service.clone(), cluster.clone());
                    directory
                        .by_address
                        .entry(place)
                        .or_default()
                        .push(EndpointKey {
                            service,
                            cluster,
                            index,
                        });
                }
            }
        }
        directory
    }

    /// The services of a namespace that select workloads.
    pub(super) fn of_namespace(&self, namespace: &Arc<str>) -> &[Arc<Service>] {
        self.by_namespace.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The endpoints with this address of services of the node's own namespace.
    pub(super) fn at(&self, node: &Node, address: IpAddr) -> &[EndpointKey] {
        let place = (node.namespace.clone(), address);
        self.by_address.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Returns true if the directory of another world has the same endpoints at the addresses of a node.
    pub(crate) fn is_same_for(
        &self,
        node: &Node,
        world: &World,
        (other, world_of_other): (&Self, &World),
    ) -> bool {
        node.addresses.iter().all(|address| {
            let (own, others) = (self.at(node, *address), other.at(node, *address));
            let mut pairs = own.iter().zip(others);
            own.len() == others.len()
                && pairs.all(|(one, other)| {
                    (&one.service, &one.cluster) == (&other.service, &other.cluster)
                        && one.endpoint(world) == other.endpoint(world_of_other)
                })
        })
    }

    /// The locality of this node, as an entry outside of Kubernetes says it.
    pub(crate) fn locality(&self, node: &Node, world: &World) -> Option<Locality> {
        let has_locality = |endpoint: &Endpoint| {
            let locality = endpoint.locality.clone();
            (!locality.is_unknown()).then_some(locality)
        };
        self.declared(node, world, has_locality)
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
                .iter()
                .filter_map(|key| key.endpoint(world))
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
