//! Services and endpoints, as the snapshot has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use api::google::protobuf::Timestamp;
use api::model::{ClusterId, Endpoint, Service, World};
use api::timestamp;
use serde_json::{Map, Value, json};
use xds::snapshot::Snapshot;

use super::endpoints_by_port::EndpointsByPort;
use super::unserved::Unserved;
use crate::discovery::hub::Hub;

/// The world of the current snapshot; `None` before the first one.
fn world(hub: &Hub) -> Option<World> {
    hub.snapshot().map(|snapshot| snapshot.world().clone())
}

fn services(world: &World) -> impl Iterator<Item = &Arc<Service>> {
    world.services.values()
}

pub(super) fn registration(hub: &Hub) -> Value {
    let Some(world) = world(hub) else {
        return Value::Array(Vec::new());
    };
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for service in services(&world) {
        let endpoints = EndpointsByPort::new(&world, service);
        for port in &service.ports {
            let key = format!("{}|{}", service.key.hostname, port.name);
            let hosts = endpoints.served(port).map(|endpoint| {
                json!({"ip_address": endpoint.address.to_string(), "port": endpoint.port})
            });
            all.entry(key).or_default().extend(hosts);
        }
    }
    let rows = all
        .into_iter()
        .map(|(key, hosts)| json!({"service-key": key, "hosts": hosts}));
    Value::Array(rows.collect())
}

pub(super) fn registry(hub: &Hub) -> Value {
    let Some(world) = world(hub) else {
        return Value::Array(Vec::new());
    };
    let rows = services(&world).map(|service| {
        let clusters: Map<String, Value> = service
            .addresses
            .iter()
            .map(|(cluster, addresses)| {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                (cluster.to_string(), addresses.into())
            })
            .collect();
        let ports: Vec<Value> = service
            .ports
            .iter()
            .map(|port| json!({"name": &*port.name, "port": port.number, "protocol": port.protocol.as_str()}))
            .collect();
        json!({
            "hostname": &*service.key.hostname,
            "namespace": &*service.key.namespace,
            "registry": service.registry.as_str(),
            "clusters": clusters,
            "ports": ports,
            "resolution": service.resolution.as_str(),
            "mesh_external": service.mesh_external,
            "service_accounts": accounts(&world, service),
            "selector": texts(&service.selector),
            "created": service.created.map(stamp),
            "export_to": service.exported_to.iter().map(|to| &**to).collect::<Vec<_>>(),
        })
    });
    Value::Array(rows.collect())
}

/// Formats a time as the metadata of objects has it.
fn stamp(seconds: i64) -> String {
    timestamp::text(&Timestamp { seconds, nanos: 0 })
}

fn texts(labels: &api::model::Labels) -> Map<String, Value> {
    labels
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect()
}

fn accounts(world: &World, service: &Service) -> BTreeSet<String> {
    let of_endpoints = world.endpoints_of(&service.key);
    of_endpoints
        .filter_map(|(_, endpoint)| endpoint.account.as_ref())
        .chain(&service.accounts)
        .map(ToString::to_string)
        .collect()
}

fn debug_view(
    snapshot: &Snapshot,
    namespace: &Arc<str>,
    cluster: &ClusterId,
    endpoint: &Endpoint,
) -> Value {
    json!({
        "address": endpoint.address.to_string(),
        "port": endpoint.port,
        "cluster": cluster.as_str(),
        "network": snapshot.network_of(cluster, endpoint),
        "locality": endpoint.locality.as_str(),
        "labels": texts(&endpoint.labels),
        "service_account": endpoint.account.as_deref().unwrap_or_default(),
        "tls_mode": snapshot.tls_of(namespace, endpoint).as_str(),
        "health": endpoint.health.as_str(),
        "weight": endpoint.weight,
        "workload": endpoint.workload.as_deref().unwrap_or_default(),
    })
}

pub(super) fn endpoints(hub: &Hub) -> Value {
    let Some(snapshot) = hub.snapshot() else {
        return Value::Array(Vec::new());
    };
    let (snapshot, world) = (&snapshot, snapshot.world());
    let rows = services(world).flat_map(|service| {
        let endpoints = EndpointsByPort::new(world, service);
        let unserved = Unserved::new(world, service, &endpoints);
        let rows = service.ports.iter().map(|port| {
            let all: Vec<Value> = endpoints
                .of(port)
                .map(|(cluster, endpoint)| {
                    debug_view(snapshot, &service.key.namespace, cluster, endpoint)
                })
                .collect();
            let name = format!("{}:{}", service.key.hostname, port.name);
            let mut row = Map::from_iter([
                ("svc".to_owned(), name.into()),
                ("ep".to_owned(), all.into()),
            ]);
            if let Some(reason) = unserved.reason(port) {
                row.insert("reason".to_owned(), reason.into());
            }
            Value::Object(row)
        });
        rows.collect::<Vec<_>>()
    });
    Value::Array(rows.collect())
}

/// A line for each.
pub(super) fn brief(hub: &Hub) -> String {
    let mut lines = String::new();
    let Some(world) = world(hub) else {
        return lines;
    };
    for service in services(&world) {
        let endpoints = EndpointsByPort::new(&world, service);
        for port in &service.ports {
            for (_, endpoint) in endpoints.of(port) {
                // Writing to a string cannot fail.
                let _written = writeln!(
                    lines,
                    "{}:{} {}:{} {} {}",
                    service.key.hostname,
                    port.name,
                    endpoint.address,
                    endpoint.port,
                    endpoint.locality,
                    endpoint.account.as_deref().unwrap_or_default()
                );
            }
        }
    }
    lines
}

pub(super) fn shards(hub: &Hub) -> Value {
    let mut all: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let Some(snapshot) = hub.snapshot() else {
        return Value::Object(Map::new());
    };
    let world = snapshot.world();
    for service in services(world) {
        let shards = world.endpoints.get(&service.key).into_iter();
        let shards: Map<String, Value> = shards
            .flat_map(|shards| shards.iter())
            .map(|(cluster, endpoints)| {
                let namespace = &service.key.namespace;
                let endpoints = endpoints.iter();
                let endpoints = endpoints.map(|one| debug_view(&snapshot, namespace, cluster, one));
                (cluster.to_string(), Value::Array(endpoints.collect()))
            })
            .collect();
        let accounts: Map<String, Value> = accounts(world, service)
            .into_iter()
            .map(|account| (account, true.into()))
            .collect();
        let of_host = all.entry(service.key.hostname.to_string()).or_default();
        of_host.insert(
            service.key.namespace.to_string(),
            json!({"Shards": shards, "ServiceAccounts": accounts}),
        );
    }
    json!(all)
}

#[cfg(test)]
mod tests {
    use api::model::{
        EndpointAddress, EndpointShards, Health, Labels, Port, Protocol, Registry, Resolution,
        ServiceKey, Target,
    };

    use super::*;

    /// A service with so many ports, and with one endpoint that serves and one that ends at each.
    fn service(ports: u16) -> (World, Service) {
        let name = |number: u16| Arc::<str>::from(format!("p{number}"));
        let service = Service {
            key: ServiceKey::new("b.demo.svc.cluster.local", "demo"),
            registry: Registry::External,
            ports: (1..=ports)
                .map(|number| Port {
                    name: name(number),
                    number,
                    protocol: Protocol::of_service_entry("TCP").unwrap(),
                    target: Target::Number(number),
                })
                .collect(),
            addresses: BTreeMap::new(),
            cluster: "Kubernetes".into(),
            resolution: Resolution::Static,
            mesh_external: false,
            selector: Labels::new(),
            created: None,
            accounts: BTreeSet::new(),
            prefers_close: false,
            exported_to: Vec::new(),
            balancers: BTreeMap::new(),
        };
        let endpoints = (1..=ports).flat_map(|number| {
            [Health::Ready, Health::Terminating].map(|health| Endpoint {
                health,
                ..Endpoint::new(EndpointAddress::read("10.0.0.1"), number, &name(number))
            })
        });
        let endpoints: Vec<_> = endpoints.collect();
        let shards = EndpointShards::from([("Kubernetes".into(), endpoints.into())]);
        let mut world = World::new(Arc::new(api::mesh::discovery_defaults()));
        let all = Arc::make_mut(&mut world.endpoints);
        all.insert(service.key.clone(), Arc::new(shards));
        (world, service)
    }

    /// Each metric and page looked at all endpoints of a service for each of its ports: here half a billion of them.
    #[test]
    fn endpoints_are_looked_at_once_however_many_ports_there_are() {
        let work = |ports: u16| {
            let (world, service) = service(ports);
            move || {
                let endpoints = EndpointsByPort::new(&world, &service);
                for port in &service.ports {
                    let served: Vec<_> = endpoints.served(port).collect();
                    assert_eq!(served.len(), 1);
                    assert_eq!(
                        (served[0].port, served[0].health),
                        (port.number, Health::Ready)
                    );
                    assert_eq!(endpoints.of(port).count(), 2);
                }
            }
        };
        crate::growth::assert_linear(32, work(500), work(16_000));
    }
}
