//! Services and endpoints, as the snapshot has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use api::model::{ClusterId, Endpoint, Health, Port, Service, World};
use serde_json::{Map, Value, json};
use xds::snapshot::Snapshot;

use super::unserved;
use crate::discovery::hub::Hub;

/// Nothing is served before the first snapshot.
fn world(hub: &Hub) -> Option<World> {
    hub.snapshot().map(|snapshot| snapshot.world().clone())
}

fn services(world: &World) -> impl Iterator<Item = &Arc<Service>> {
    world.services.values()
}

/// Endpoints of one port, with the cluster that each is in.
fn of_port<'a>(
    world: &'a World,
    service: &'a Service,
    port: &'a Port,
) -> impl Iterator<Item = (&'a ClusterId, &'a Endpoint)> {
    world
        .endpoints_of(&service.key)
        .filter(|(_, endpoint)| endpoint.port_name == port.name)
}

/// Those of them that get requests: while none is ready, those that serve until they end.
pub(crate) fn served<'a>(
    world: &'a World,
    service: &'a Service,
    port: &'a Port,
) -> impl Iterator<Item = &'a Endpoint> {
    let of = move |health: Health| {
        of_port(world, service, port)
            .map(|(_, endpoint)| endpoint)
            .filter(move |endpoint| endpoint.health == health && endpoint.weight > 0)
    };
    let best = match of(Health::Ready).next() {
        Some(_) => Health::Ready,
        None => Health::Terminating,
    };
    of(best)
}

pub(crate) fn registration(hub: &Hub) -> Value {
    let Some(world) = world(hub) else {
        return Value::Array(Vec::new());
    };
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for service in services(&world) {
        for port in &service.ports {
            let key = format!("{}|{}", service.key.hostname, port.name);
            let hosts = served(&world, service, port).map(|endpoint| {
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

/// As metadata of objects has it.
fn stamp(seconds: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(seconds);
    time.map_or_else(
        |_| seconds.to_string(),
        |t| {
            let (date, clock) = (t.date(), t.time());
            format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                date.year(),
                u8::from(date.month()),
                date.day(),
                clock.hour(),
                clock.minute(),
                clock.second()
            )
        },
    )
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

fn shown(snapshot: &Snapshot, cluster: &ClusterId, endpoint: &Endpoint) -> Value {
    json!({
        "address": endpoint.address.to_string(),
        "port": endpoint.port,
        "cluster": cluster.as_str(),
        "network": snapshot.network_of(cluster, endpoint),
        "locality": endpoint.locality.as_str(),
        "labels": texts(&endpoint.labels),
        "service_account": endpoint.account.as_deref().unwrap_or_default(),
        "tls_mode": snapshot.tls_of(endpoint).as_str(),
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
        service.ports.iter().map(move |port| {
            let all: Vec<Value> = of_port(world, service, port)
                .map(|(cluster, endpoint)| shown(snapshot, cluster, endpoint))
                .collect();
            let name = format!("{}:{}", service.key.hostname, port.name);
            let mut row = Map::from_iter([
                ("svc".to_owned(), name.into()),
                ("ep".to_owned(), all.into()),
            ]);
            if let Some(reason) = unserved::reason(world, service, port) {
                row.insert("reason".to_owned(), reason.into());
            }
            Value::Object(row)
        })
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
        for port in &service.ports {
            for (_, endpoint) in of_port(&world, service, port) {
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
                let endpoints = endpoints.iter().map(|one| shown(&snapshot, cluster, one));
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
