//! The services that a proxy's workload is one of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, Port, Service, ServiceKey, Target, World, selects};

use super::directory::{Directory, EndpointKey, may_be};
use super::proxy::Proxy;

/// One port of a service that the workload serves.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) service: Arc<Service>,
    pub(crate) port: Port,
    /// The port on which the workload listens.
    pub(crate) target: u16,
}

/// Returns a proxy's instances by precedence of the services, their ports in order; never of a service of another namespace.
pub(crate) fn instances(directory: &Directory, proxy: &Proxy, world: &World) -> Vec<Instance> {
    let mut services: BTreeMap<ServiceKey, Arc<Service>> = BTreeMap::new();
    let near = directory.of_namespace(&proxy.node.namespace);
    for service in near {
        if selects(&service.selector, &proxy.labels) {
            services.insert(service.key.clone(), service.clone());
        }
    }
    let endpoints = own_endpoints(directory, proxy, world);
    for (key, _) in &endpoints {
        if let Some(service) = world.services.get(&key.service) {
            services.insert(key.service.clone(), service.clone());
        }
    }
    // The first for each name of a port.
    let mut listening: HashMap<_, HashMap<&str, u16>> = HashMap::new();
    for (key, endpoint) in &endpoints {
        let of_service = listening.entry(&key.service).or_default();
        of_service
            .entry(&*endpoint.port_name)
            .or_insert(endpoint.port);
    }
    let mut services: Vec<_> = services.into_values().collect();
    services.sort_by(|one, other| one.precedence(other));
    let mut instances = Vec::new();
    for service in &services {
        let listening = listening.get(&service.key);
        instances.extend(service.ports.iter().filter_map(|port| {
            let listening = listening.and_then(|ports| ports.get(&*port.name));
            Some(Instance {
                service: service.clone(),
                port: port.clone(),
                target: target(proxy, listening.copied(), port)?,
            })
        }));
    }
    instances
}

/// Returns true if an endpoint with one of the proxy's addresses is its workload. Pods may share the address of their machine.
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
            // A pod's name is unique in its cluster alone.
            *cluster == proxy.cluster
                && pod.split_once('/') == Some((&*proxy.node.namespace, &*proxy.node.name))
        }
        None => may_be(&proxy.node, endpoint),
    }
}

/// The endpoints that are this proxy's workload, in order, of services of its namespace.
fn own_endpoints<'a>(
    directory: &'a Directory,
    proxy: &Proxy,
    world: &'a World,
) -> Vec<(&'a EndpointKey, &'a Endpoint)> {
    let addresses = proxy.node.addresses.iter();
    let all = addresses.flat_map(|address| directory.at(&proxy.node, *address));
    let all = all.filter_map(|key| Some((key, key.endpoint(world)?)));
    let own = all.filter(|(key, endpoint)| is_of(proxy, &key.cluster, endpoint));
    let mut own: Vec<_> = own.collect();
    // A proxy may have several addresses.
    own.sort_by_key(|(key, _)| *key);
    own
}

/// The target that an endpoint says, else the service, by the workload's names of ports.
fn target(proxy: &Proxy, listening: Option<u16>, port: &Port) -> Option<u16> {
    let target = listening.or_else(|| match &port.target {
        Target::Number(number) => Some(*number),
        Target::Name(name) => proxy.workload.as_ref()?.ports.get(name).copied(),
    });
    target.filter(|target| *target > 0)
}
