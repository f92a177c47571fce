//! The services that a proxy's workload is one of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, Port, Service, ServiceKey, Target, World, selects};

use super::directory::{Directory, may_be};
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
    let addresses = proxy.node.addresses.iter();
    let keys = addresses.flat_map(|address| directory.at(&proxy.node, *address));
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
        let listening = listening_ports(proxy, world, service);
        instances.extend(service.ports.iter().filter_map(|port| {
            Some(Instance {
                service: service.clone(),
                port: port.clone(),
                target: target(proxy, &listening, port)?,
            })
        }));
    }
    instances
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
            // A pod's name is unique in its cluster alone.
            *cluster == proxy.cluster
                && pod.split_once('/') == Some((&*proxy.node.namespace, &*proxy.node.name))
        }
        None => may_be(&proxy.node, endpoint),
    }
}

/// Ports on which the workload listens, by its endpoints, the first for each name. One pass finds them all.
fn listening_ports<'a>(
    proxy: &Proxy,
    world: &'a World,
    service: &Service,
) -> HashMap<&'a str, u16> {
    let mut listening = HashMap::new();
    for (cluster, endpoint) in world.endpoints_of(&service.key) {
        if is_of(proxy, cluster, endpoint) {
            listening
                .entry(&*endpoint.port_name)
                .or_insert(endpoint.port);
        }
    }
    listening
}

/// The target that an endpoint says, else the service, by the workload's names of ports.
fn target(proxy: &Proxy, listening: &HashMap<&str, u16>, port: &Port) -> Option<u16> {
    let listening = listening.get(&*port.name).copied();
    let target = listening.or_else(|| match &port.target {
        Target::Number(number) => Some(*number),
        Target::Name(name) => proxy.workload.as_ref()?.ports.get(name).copied(),
    });
    target.filter(|target| *target > 0)
}
