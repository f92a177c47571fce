//! The endpoints of a service by the names of its ports.

use std::collections::{BTreeSet, HashMap};

use api::model::{ClusterId, Endpoint, Health, Port, Service, World};

/// The endpoints of a service by the names of its ports, with the cluster that each is in. Each is looked at once: a service may
/// have hundreds of ports, and endpoints for each of them.
#[derive(Debug)]
pub(crate) struct EndpointsByPort<'a>(HashMap<&'a str, Vec<(&'a ClusterId, &'a Endpoint)>>);

impl<'a> EndpointsByPort<'a> {
    pub(crate) fn new(world: &'a World, service: &Service) -> Self {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for (cluster, endpoint) in world.endpoints_of(&service.key) {
            let of_port = all.entry(&*endpoint.port_name).or_default();
            of_port.push((cluster, endpoint));
        }
        Self(all)
    }

    /// The number of endpoints, and the first names of their ports.
    pub(super) fn names(&self, max: usize) -> (usize, Vec<&'a str>) {
        let count = self.0.values().map(Vec::len).sum();
        let names: BTreeSet<&str> = self.0.keys().copied().collect();
        (count, names.into_iter().take(max).collect())
    }

    pub(super) fn of(&self, port: &Port) -> impl Iterator<Item = (&'a ClusterId, &'a Endpoint)> {
        self.0.get(&*port.name).into_iter().flatten().copied()
    }

    /// The endpoints of a port that get requests: while none is ready, those that serve until they end.
    pub(crate) fn served(&self, port: &Port) -> impl Iterator<Item = &'a Endpoint> {
        let of = |health: Health| {
            self.of(port)
                .map(|(_, endpoint)| endpoint)
                .filter(move |endpoint| endpoint.health == health && endpoint.weight > 0)
        };
        let best = match of(Health::Ready).next() {
            Some(_) => Health::Ready,
            None => Health::Terminating,
        };
        of(best)
    }
}
