//! Services that programs with gRPC in them ask for: what such a program does not do, and an Envoy would (discovery.md §10.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{Endpoint, EndpointAddress, Health, Locality, Resolution, Service, ServiceKey};

use super::{Conflict, Snapshot};
use crate::common::conflict::{Conflicts, REJECTED_CONFIG};
use crate::resources::networks::Networks;
use crate::resources::proxy::Proxy;

/// Programs that are remembered of one service: the first ones by their ids.
const MAX_PER_SERVICE: usize = 100;

/// A service, and the network of those who ask for it, if that has a gateway: clients may write any other one.
type ServiceFromNetwork = (ServiceKey, Option<Arc<str>>);

/// Services with the programs that ask for them.
#[derive(Clone, Debug, Default)]
pub(super) struct GrpcServices(BTreeMap<ServiceFromNetwork, BTreeSet<Arc<str>>>);

impl GrpcServices {
    pub(super) fn add(&mut self, service: &ServiceKey, proxy: &Proxy, networks: &Networks) {
        let network = networks.has_gateway(&proxy.network);
        let network = network.then(|| proxy.network.clone());
        self.unite((service.clone(), network), [proxy.node.id.clone()].into());
    }

    fn unite(&mut self, place: ServiceFromNetwork, proxies: BTreeSet<Arc<str>>) {
        let known = self.0.entry(place).or_default();
        known.extend(proxies);
        while known.len() > MAX_PER_SERVICE {
            known.pop_last();
        }
    }

    /// Adds those of an earlier snapshot with the programs of which `is_unaffected` is true.
    pub(super) fn take_over(&mut self, earlier: Self, is_unaffected: impl Fn(&str) -> bool) {
        for (place, mut proxies) in earlier.0 {
            proxies.retain(|proxy| is_unaffected(proxy));
            if !proxies.is_empty() {
                self.unite(place, proxies);
            }
        }
    }

    /// Says what these programs do not do, by the endpoints that there are now.
    pub(super) fn conflicts(&self, snapshot: &Snapshot) -> Vec<Conflict> {
        // Clients of several networks have most messages in common.
        let mut told: BTreeMap<(&ServiceKey, String), &Arc<str>> = BTreeMap::new();
        for ((key, network), proxies) in &self.0 {
            let service = snapshot.world.services.get(key);
            let (Some(service), Some(proxy)) = (service, proxies.first()) else {
                continue;
            };
            for message in messages(snapshot, service, network.as_deref()) {
                let first = told.entry((key, message)).or_insert(proxy);
                *first = proxy.min(first);
            }
        }
        let mut conflicts = Conflicts::default();
        for ((key, message), proxy) in told {
            let conflict = Conflict::new(REJECTED_CONFIG, &*key.hostname, message);
            conflicts.add(0, conflict.of_service(key).of(proxy));
        }
        conflicts.finish()
    }
}

/// Endpoints of one service for which one thing holds.
#[derive(Default)]
struct Concerned {
    first: Option<(EndpointAddress, u16)>,
    count: usize,
}

impl Concerned {
    fn add(&mut self, endpoint: &Endpoint) {
        let place = || (endpoint.address.clone(), endpoint.port);
        self.first.get_or_insert_with(place);
        self.count += 1;
    }

    /// `None`: there are none.
    fn message(&self, service: &ServiceKey, what_holds: &str) -> Option<String> {
        let (address, port) = self.first.as_ref()?;
        let more = match self.count {
            0 | 1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let (namespace, hostname) = (&service.namespace, &service.hostname);
        Some(format!(
            "the endpoint {address}, port {port}{more}, of {namespace}/{hostname} {what_holds}"
        ))
    }
}

fn messages(snapshot: &Snapshot, service: &Service, network: Option<&str>) -> Vec<String> {
    let world = &snapshot.world;
    let key = &service.key;
    if world.endpoints_of(key).next().is_none() {
        return without_endpoints(service).into_iter().collect();
    }
    let uses_gateways = snapshot.replaces() && snapshot.has_tls(key);
    let (mut unresolved, mut sockets) = (Concerned::default(), Concerned::default());
    let (mut repeats, mut remote) = (Concerned::default(), Concerned::default());
    let mut known: BTreeMap<(&EndpointAddress, u16, &str), &Locality> = BTreeMap::new();
    let served = world.endpoints_of(key);
    let served =
        served.filter(|(_, endpoint)| endpoint.weight > 0 && endpoint.health != Health::NotReady);
    let served: Vec<_> = served.collect();
    let mut ports = BTreeMap::new();
    for (_, endpoint) in &served {
        *ports.entry(&*endpoint.port_name).or_insert(0) += 1;
    }
    let is_alone = |endpoint: &Endpoint| ports.get(&*endpoint.port_name) == Some(&1);
    for (cluster, endpoint) in served {
        match &endpoint.address {
            EndpointAddress::Pipe(_) => sockets.add(endpoint),
            EndpointAddress::Name(_) if is_alone(endpoint) => {}
            EndpointAddress::Name(_) => unresolved.add(endpoint),
            EndpointAddress::Ip(_) => {
                let place = (&endpoint.address, endpoint.port, &*endpoint.port_name);
                let first = *known.entry(place).or_insert(&endpoint.locality);
                if *first != endpoint.locality {
                    repeats.add(endpoint);
                }
                let other = snapshot.network_of(cluster, endpoint);
                if uses_gateways
                    && network != Some(other)
                    && snapshot.base.networks.has_gateway(other)
                {
                    remote.add(endpoint);
                }
            }
        }
    }
    let all = [
        unresolved.message(
            key,
            "is left out for clients with gRPC in them: they resolve a name where it is the only endpoint",
        ),
        sockets.message(
            key,
            "is left out for clients with gRPC in them: they call no sockets of files",
        ),
        repeats.message(
            key,
            "is there in another locality, too: clients with gRPC in them are given it in the first one alone",
        ),
        remote.message(
            key,
            "is called without its network's gateway by clients with gRPC in them: they speak no mutual TLS to gateways",
        ),
    ];
    all.into_iter().flatten().collect()
}

/// `None`: a service that may have endpoints at any time.
fn without_endpoints(service: &Service) -> Option<String> {
    // The host is the only endpoint of one by DNS.
    if service.resolution != Resolution::None || !service.selector.is_empty() {
        return None;
    }
    let (namespace, hostname) = (&service.key.namespace, &service.key.hostname);
    Some(format!(
        "calls of clients with gRPC in them to {namespace}/{hostname} fail: its resolution is NONE and it has no endpoints, \
         of which such clients are given addresses alone"
    ))
}

#[cfg(test)]
mod tests {
    use api::mesh;

    use super::super::tests::{CLIENT, add, endpoint, node, service, world};
    use super::*;
    use crate::settings::Settings;
    use crate::view::Type;

    /// A client may write any network, and what it says is remembered for as long as it is connected.
    #[test]
    fn networks_of_clients_count_if_they_have_gateways() {
        let mut world = world("");
        let gateways = |count: usize| {
            let network =
                |at| format!("  n{at}: {{gateways: [{{address: 9.9.9.{at}, port: 15443}}]}}\n");
            (0..count).map(network).collect::<String>()
        };
        let text = format!("networks:\n{}", gateways(25));
        world.networks = Arc::new(mesh::parse_networks(&text).unwrap().config);
        let mut endpoints = vec![endpoint("10.0.0.1", 80, "p80"); 2];
        endpoints[0].locality = "r/z1".into();
        let b = service("b", &[(80, "GRPC")], Resolution::Static);
        add(&mut world, b, endpoints);
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        for at in (0..60).rev() {
            let mut client = (*node(CLIENT, "NONE")).clone();
            client.grpc = true;
            client.id = format!("program{at:02}.demo").into();
            client.network = Some(format!("n{at}").into());
            let view = snapshot.view(&Arc::new(client));
            view.get(Type::Endpoint, "outbound|80||b.demo.svc.cluster.local")
                .unwrap();
        }
        let known = snapshot.caches.found.lock().unwrap().grpc_services.0.len();
        // One of each network with a gateway, and one of all others.
        assert_eq!(known, 25 + 1);
        let conflicts = snapshot.conflicts();
        let [conflict] = &*conflicts else {
            panic!("not one: {conflicts:?}");
        };
        assert!(conflict.message.contains("in another locality"));
        assert_eq!(&*conflict.proxy, "program00.demo");
    }
}
