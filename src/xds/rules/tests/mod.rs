//! The effect of rules on a small world: one service `a` with two versions, one `b` without rules, one `c` of another
//! namespace.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::match_wildcard_for_single_variants,
    reason = "a test may panic at what it does not know"
)]

mod addresses;
mod authorization;
mod carried;
mod changes;
mod clusters;
mod connections;
mod custom;
mod delegates;
mod envoy_filters;
mod gateways;
mod grpc_matches;
mod health;
mod idle_policies;
mod idle_routes;
mod ingress;
mod levels;
mod limits;
mod mesh_fields;
mod patch_matches;
mod peers;
mod routes;
mod scopes;
mod secrets;
mod secured;
mod selecting;
mod services;
mod shadowed;
mod sidecars;
mod sockets;
mod targets;
mod tokens;
mod upstream;
mod wildcards;

use std::sync::Arc;

use api::mesh;
use api::model::{
    Configured, Endpoint, EndpointAddress, EndpointShards, Labels, Locality, Objects, Port,
    Protocol, Registry, Resolution, Service, ServiceKey, Target, World,
};
use api::networking::{DestinationRule, DiscoveryKind, VirtualService};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::route::v3::{Route, RouteConfiguration};
use envoy_types::pb::google::protobuf::{Struct, Value, value};
use prost::Message;

use crate::node::Node;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::view::{Type, View};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

fn service(world: &mut World, name: &str, ports: &[(u16, &str)], endpoints: &[(&str, &str)]) {
    let (host, namespace) = name.split_once('.').unwrap();
    let hostname = if namespace == "example" {
        name.to_owned()
    } else {
        format!("{host}.{namespace}.svc.cluster.local")
    };
    let key = ServiceKey::new(
        &hostname,
        if namespace == "example" {
            "demo"
        } else {
            namespace
        },
    );
    let service = Service {
        key: key.clone(),
        registry: Registry::Kubernetes,
        ports: ports
            .iter()
            .map(|(number, word)| Port {
                name: format!("p{number}").as_str().into(),
                number: *number,
                protocol: Protocol::of_service_entry(word).unwrap(),
                target: Target::Number(*number),
            })
            .collect(),
        addresses: std::collections::BTreeMap::default(),
        cluster: "Kubernetes".into(),
        resolution: Resolution::Static,
        mesh_external: false,
        selector: Labels::new(),
        created: None,
        accounts: std::collections::BTreeSet::default(),
        prefers_close: false,
        exported_to: Vec::new(),
        balancers: std::collections::BTreeMap::default(),
    };
    let places = endpoints.iter().flat_map(|(address, version)| {
        ports.iter().map(move |(number, _)| {
            let address = EndpointAddress::read(address);
            let mut one = Endpoint::new(address, *number, &format!("p{number}"));
            one.labels = Arc::new(labels(&[("version", version)]));
            one.locality = Locality::from(format!("region-{version}").as_str());
            one
        })
    });
    let shards = EndpointShards::from([("Kubernetes".into(), places.collect())]);
    Arc::make_mut(&mut world.endpoints).insert(key.clone(), Arc::new(shards));
    Arc::make_mut(&mut world.services).insert(key, Arc::new(service));
}

fn world() -> World {
    let config = mesh::parse_over(&mesh::discovery_defaults(), "")
        .unwrap()
        .config;
    let mut world = World::new(Arc::new(config));
    service(
        &mut world,
        "a.demo",
        &[(80, "HTTP"), (90, "TCP")],
        &[("10.0.1.1", "v1"), ("10.0.1.2", "v1"), ("10.0.1.3", "v2")],
    );
    service(&mut world, "b.demo", &[(80, "HTTP")], &[("10.0.2.1", "v1")]);
    service(
        &mut world,
        "c.other",
        &[(80, "HTTP")],
        &[("10.0.3.1", "v1")],
    );
    world
}

/// A valid object of the namespace `demo`, or of another: `NAMESPACE/NAME`.
fn object<T: DiscoveryKind>(name: &str, created: i64, spec: &str) -> Arc<Configured<T>> {
    let (namespace, name) = name.split_once('/').unwrap_or(("demo", name));
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!(
        "apiVersion: {}/{}\nkind: {}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n{spec}",
        T::GROUP,
        T::VERSIONS[0],
        T::NAME
    );
    let limits = api::yaml::Limits {
        bytes: 10_000_000,
        depth: 30,
        nodes: 100_000,
    };
    let node = api::yaml::read(&text, limits).unwrap().unwrap();
    let checked = api::networking::check::<T>(&node.to_json());
    Arc::new(Configured {
        name: name.into(),
        namespace: namespace.into(),
        created: Some(created),
        prefers_close: false,
        dry_run: false,
        spec: checked
            .spec
            .unwrap_or_else(|| panic!("{text}: {:?}", checked.findings)),
    })
}

fn insert<T: DiscoveryKind + Clone>(objects: &mut Arc<Objects<T>>, object: Arc<Configured<T>>) {
    let key = (object.namespace.clone(), object.name.clone());
    Arc::make_mut(objects).insert(key, object);
}

fn virtual_service(world: &mut World, name: &str, created: i64, spec: &str) {
    let object = object::<VirtualService>(name, created, spec);
    insert(&mut world.virtual_services, object);
}

fn destination_rule(world: &mut World, name: &str, created: i64, spec: &str) {
    let object = object::<DestinationRule>(name, created, spec);
    insert(&mut world.destination_rules, object);
}

/// A sidecar of a namespace.
fn node(namespace: &str, pairs: &[(&str, &str)]) -> Arc<Node> {
    let text = |text: &str| Value {
        kind: Some(value::Kind::StringValue(text.to_owned())),
    };
    let labels = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), text(value)));
    let labels = Value {
        kind: Some(value::Kind::StructValue(Struct {
            fields: labels.collect(),
        })),
    };
    let read = Node::read(Some(&core::Node {
        id: format!("sidecar~10.9.0.1~x-1.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct {
            fields: [("LABELS".to_owned(), labels)].into(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

fn snapshot(world: World) -> Arc<Snapshot> {
    Snapshot::new(world, Arc::new(Settings::default()))
}

fn view(world: World) -> Arc<dyn View> {
    snapshot(world).view(&node("demo", &[]))
}

fn decoded<M: Message + Default>(view: &dyn View, kind: Type, name: &str) -> M {
    let resource = view.get(kind, name).unwrap_or_else(|| panic!("{name}"));
    M::decode(&*resource.body).unwrap()
}

fn cluster(view: &dyn View, name: &str) -> Cluster {
    decoded(view, Type::Cluster, name)
}

/// The addresses of an assignment.
fn addresses(view: &dyn View, name: &str) -> Vec<String> {
    use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
    let assignment: ClusterLoadAssignment = decoded(view, Type::Endpoint, name);
    let endpoints = assignment
        .endpoints
        .iter()
        .flat_map(|group| &group.lb_endpoints);
    let mut found: Vec<_> = endpoints
        .map(|endpoint| {
            let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
                panic!("an endpoint");
            };
            match endpoint.address.as_ref().unwrap().address.as_ref().unwrap() {
                core::address::Address::SocketAddress(socket) => socket.address.clone(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    found.sort();
    found
}

/// The routes of a virtual host.
fn routes_of(view: &dyn View, configuration: &str, host: &str) -> Vec<Route> {
    let routes: RouteConfiguration = decoded(view, Type::Route, configuration);
    let mut hosts = routes.virtual_hosts.into_iter();
    hosts
        .find(|one| one.name == host)
        .unwrap_or_else(|| panic!("{host}"))
        .routes
}
