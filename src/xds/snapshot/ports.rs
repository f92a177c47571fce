//! The endpoints of services with many ports, by the name of the port: looking through all of a service for each of its ports
//! would cost their product.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, Service, ServiceKey, World};

/// A service with so many ports or fewer is looked through as it is: that is as quick, and takes no memory.
const FEW: usize = 8;

/// Endpoints of the services with more ports than [`FEW`].
#[derive(Debug, Default)]
pub(super) struct EndpointsByPort(HashMap<ServiceKey, PortEndpoints>);

#[derive(Debug, Default)]
struct PortEndpoints {
    by_port: HashMap<Arc<str>, Vec<ClusterEndpoints>>,
    accounts: Arc<BTreeSet<Arc<str>>>,
}

/// Endpoints that one cluster knows of a port: their indices in its shard, in order.
#[derive(Debug)]
struct ClusterEndpoints {
    cluster: ClusterId,
    shard: Arc<[Endpoint]>,
    places: Vec<usize>,
}

impl EndpointsByPort {
    pub(super) fn new(world: &World) -> Self {
        let services = world.services.values();
        let services = services.filter(|service| service.ports.len() > FEW);
        Self(
            services
                .map(|service| (service.key.clone(), PortEndpoints::new(world, service)))
                .collect(),
        )
    }

    /// The endpoints of a port, cluster by cluster.
    pub(super) fn of<'a>(
        &'a self,
        world: &'a World,
        service: &ServiceKey,
        port: &Arc<str>,
    ) -> Box<dyn Iterator<Item = (&'a ClusterId, &'a Endpoint)> + 'a> {
        let Some(many) = self.0.get(service) else {
            let port = Arc::clone(port);
            let shards = world.endpoints.get(service);
            let shards = shards.into_iter().flat_map(|shards| shards.iter());
            let all = shards
                .flat_map(|(cluster, shard)| shard.iter().map(move |endpoint| (cluster, endpoint)));
            return Box::new(all.filter(move |(_, endpoint)| endpoint.port_name == port));
        };
        let parts = many.by_port.get(port).into_iter().flatten();
        Box::new(parts.flat_map(|part| {
            let endpoints = part.places.iter().filter_map(|at| part.shard.get(*at));
            endpoints.map(|endpoint| (&part.cluster, endpoint))
        }))
    }

    /// The number of a port's endpoints; for a service with few ports the number of all its endpoints, which is quicker.
    pub(super) fn count(&self, world: &World, service: &ServiceKey, port: &str) -> usize {
        match self.0.get(service) {
            Some(many) => {
                let parts = many.by_port.get(port).into_iter().flatten();
                parts.map(|part| part.places.len()).sum()
            }
            None => world.endpoints_of(service).count(),
        }
    }

    /// The accounts that may answer for a service.
    pub(super) fn accounts(&self, world: &World, service: &Service) -> Arc<BTreeSet<Arc<str>>> {
        match self.0.get(&service.key) {
            Some(many) => Arc::clone(&many.accounts),
            None => Arc::new(super::accounts(world, service)),
        }
    }
}

impl PortEndpoints {
    fn new(world: &World, service: &Service) -> Self {
        let mut by_port: HashMap<Arc<str>, Vec<ClusterEndpoints>> = HashMap::new();
        let shards = world.endpoints.get(&service.key);
        for (cluster, shard) in shards.iter().flat_map(|shards| shards.iter()) {
            for (at, endpoint) in shard.iter().enumerate() {
                let parts = by_port.entry(Arc::clone(&endpoint.port_name)).or_default();
                // Shards come cluster by cluster, so only the last part can be of this cluster.
                match parts.last_mut().filter(|part| part.cluster == *cluster) {
                    Some(part) => part.places.push(at),
                    None => parts.push(ClusterEndpoints {
                        cluster: cluster.clone(),
                        shard: Arc::clone(shard),
                        places: vec![at],
                    }),
                }
            }
        }
        Self {
            by_port,
            accounts: Arc::new(super::accounts(world, service)),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::model::{EndpointShards, Resolution};

    use super::super::tests::{add, endpoint, service, world};
    use super::*;

    #[test]
    fn a_service_says_the_same_with_few_ports_and_with_many() {
        for count in [FEW, FEW + 1] {
            let count = u16::try_from(count).unwrap();
            let ports: Vec<_> = (1..=count).map(|number| (number, "TCP")).collect();
            let mut world = world("");
            let one = service("b", &ports, Resolution::Static);
            let key = one.key.clone();
            add(&mut world, one.clone(), Vec::new());
            let mut shards = EndpointShards::new();
            for (cluster, first) in [("east", 1), ("west", 3)] {
                let places = (first..first + 2).flat_map(|last| {
                    (1..=count).map(move |port| {
                        let mut one =
                            endpoint(&format!("10.0.0.{last}"), port, &format!("p{port}"));
                        one.account = Some(format!("a{last}").into());
                        one
                    })
                });
                shards.insert(cluster.into(), places.collect());
            }
            Arc::make_mut(&mut world.endpoints).insert(key.clone(), Arc::new(shards));
            let by_port = EndpointsByPort::new(&world);
            assert_eq!(by_port.0.len(), usize::from(usize::from(count) > FEW));
            for port in 1..=count {
                let name = format!("p{port}");
                let found: Vec<_> = by_port
                    .of(&world, &key, &name.as_str().into())
                    .map(|(cluster, endpoint)| {
                        assert_eq!(endpoint.port, port);
                        format!("{cluster} {}", endpoint.address)
                    })
                    .collect();
                let expected = [
                    "east 10.0.0.1",
                    "east 10.0.0.2",
                    "west 10.0.0.3",
                    "west 10.0.0.4",
                ];
                assert_eq!(found, expected);
            }
            assert_eq!(by_port.of(&world, &key, &"none".into()).count(), 0);
            let accounts = by_port.accounts(&world, &one);
            let accounts: Vec<_> = accounts.iter().map(|account| &**account).collect();
            assert_eq!(accounts, ["a1", "a2", "a3", "a4"]);
        }
    }

    #[test]
    fn a_port_of_many_counts_its_own_endpoints_alone() {
        let ports: Vec<_> = (1..=100).map(|number| (number, "TCP")).collect();
        let mut world = world("");
        let one = service("b", &ports, Resolution::Static);
        let key = one.key.clone();
        let endpoints = (1..=100).map(|port| endpoint("10.0.0.1", port, &format!("p{port}")));
        add(&mut world, one, endpoints.collect());
        let by_port = EndpointsByPort::new(&world);
        assert_eq!(by_port.count(&world, &key, "p7"), 1);
    }
}
