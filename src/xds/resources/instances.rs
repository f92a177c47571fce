//! Which services a proxy's workload is one of.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{
    ClusterId, Endpoint, Locality, Port, Service, ServiceKey, Target, World, selects,
};

use super::proxy::Proxy;
use crate::node::Node;

/// One port of a service that the workload serves.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) service: Arc<Service>,
    pub(crate) port: Port,
    /// The port on which the workload listens.
    pub(crate) target: u16,
}

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

    /// The services of the node's own namespace that have an endpoint with this address.
    fn at(&self, node: &Node, address: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        let place = (node.namespace.clone(), address);
        self.by_address.get(&place).into_iter().flatten()
    }

    /// All of a proxy's, by precedence of the services, their ports in order. A service of another namespace is never one.
    pub(crate) fn instances(&self, proxy: &Proxy, world: &World) -> Vec<Instance> {
        let mut services: BTreeMap<ServiceKey, Arc<Service>> = BTreeMap::new();
        let near = self.by_namespace.get(&proxy.node.namespace);
        for service in near.into_iter().flatten() {
            if selects(&service.selector, &proxy.labels) {
                services.insert(service.key.clone(), service.clone());
            }
        }
        let addresses = proxy.node.addresses.iter();
        let keys = addresses.flat_map(|address| self.at(&proxy.node, *address));
        for key in keys {
            let found = world
                .endpoints_of(key)
                .any(|(cluster, endpoint)| is_of(proxy, cluster, endpoint));
            if let Some(service) = world.services.get(key).filter(|_| found) {
                services.insert(key.clone(), service.clone());
            }
        }
        let mut services: Vec<_> = services.into_values().collect();
        services.sort_by(|one, other| one.precedence(other));
        let mut instances = Vec::new();
        for service in &services {
            let said = said(proxy, world, service);
            instances.extend(service.ports.iter().filter_map(|port| {
                Some(Instance {
                    service: service.clone(),
                    port: port.clone(),
                    target: target(proxy, &said, port)?,
                })
            }));
        }
        instances
    }

    /// The locality of this node, as an entry outside of Kubernetes says it.
    pub(crate) fn locality(&self, node: &Node, world: &World) -> Option<Locality> {
        let known = |endpoint: &Endpoint| {
            let locality = endpoint.locality.clone();
            (!locality.is_unknown()).then_some(locality)
        };
        self.said(node, world, known)
    }

    /// Which network an entry says that it is in.
    pub(crate) fn network(&self, node: &Node, world: &World) -> Option<Arc<str>> {
        self.said(node, world, |endpoint| endpoint.network.clone())
    }

    /// A property of the node, as entries of its namespace say it: those of its first address of which one says anything.
    fn said<T: Ord>(
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
                .filter(|endpoint| endpoint.named_pod().is_none() && may_be(node, endpoint))
                .filter_map(&what)
                // Of entries that disagree one in every order of arrival.
                .min()
        };
        node.addresses.iter().find_map(of)
    }
}

/// Returns true if an endpoint is this proxy's workload. Pods may share the address of their machine.
fn is_of(proxy: &Proxy, cluster: &ClusterId, endpoint: &Endpoint) -> bool {
    let here = endpoint
        .address
        .ip()
        .is_some_and(|address| proxy.node.addresses.contains(&address));
    if !here {
        return false;
    }
    // A pod is told by its name, also before anything else is known of it.
    match endpoint.named_pod() {
        Some(pod) => {
            *cluster == proxy.cluster
                && pod.split_once('/') == Some((&*proxy.node.namespace, &*proxy.node.name))
        }
        None => may_be(&proxy.node, endpoint),
    }
}

/// Returns true unless labels say that an entry is another workload with this node's address.
fn may_be(node: &Node, endpoint: &Endpoint) -> bool {
    let either_is_silent = endpoint.labels.is_empty() || node.labels.is_empty();
    either_is_silent || selects(&endpoint.labels, &node.labels)
}

/// Ports on which the workload listens, as its endpoints say them, the first for each name. One look finds them all.
fn said<'a>(proxy: &Proxy, world: &'a World, service: &Service) -> HashMap<&'a str, u16> {
    let mut said = HashMap::new();
    for (cluster, endpoint) in world.endpoints_of(&service.key) {
        if is_of(proxy, cluster, endpoint) {
            said.entry(&*endpoint.port_name).or_insert(endpoint.port);
        }
    }
    said
}

/// The target that an endpoint says, else the service, by the workload's names of ports.
fn target(proxy: &Proxy, said: &HashMap<&str, u16>, port: &Port) -> Option<u16> {
    let said = said.get(&*port.name).copied();
    let target = said.or_else(|| match &port.target {
        Target::Number(number) => Some(*number),
        Target::Name(name) => proxy.workload.as_ref()?.ports.get(name).copied(),
    });
    target.filter(|target| *target > 0)
}
