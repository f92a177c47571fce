//! Snapshots of small worlds.

mod ahead;
mod black_holes;
mod certificates;
mod hostile_tenants;
mod networks;
mod partial;
mod ports;
mod proxyless;
mod resource_cache;
mod targets;
mod variables;

use std::collections::BTreeMap;

use api::mesh;
use api::model::{
    Endpoint, EndpointAddress, EndpointShards, Labels, Port, Protocol, Registry, Resolution,
    ServiceKey, Target,
};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::{self as core, TrafficDirection};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message;

use super::*;
use crate::view::Type;

pub(super) fn service(name: &str, ports: &[(u16, &str)], resolution: Resolution) -> Service {
    let hostname = if name.contains('.') {
        name.to_owned()
    } else {
        format!("{name}.demo.svc.cluster.local")
    };
    Service {
        key: ServiceKey::new(&hostname, "demo"),
        registry: Registry::External,
        ports: ports
            .iter()
            .map(|(number, word)| Port {
                name: format!("p{number}").as_str().into(),
                number: *number,
                protocol: Protocol::of_service_entry(word).unwrap(),
                target: Target::Number(*number),
            })
            .collect(),
        addresses: BTreeMap::new(),
        cluster: "Kubernetes".into(),
        resolution,
        mesh_external: false,
        selector: Labels::new(),
        created: None,
        accounts: BTreeSet::new(),
        prefers_close: false,
        exported_to: Vec::new(),
        balancers: BTreeMap::new(),
    }
}

pub(super) fn endpoint(address: &str, port: u16, port_name: &str) -> Endpoint {
    Endpoint::new(EndpointAddress::read(address), port, port_name)
}

pub(super) fn add(world: &mut World, service: Service, endpoints: Vec<Endpoint>) {
    let shards = EndpointShards::from([("Kubernetes".into(), endpoints.into())]);
    Arc::make_mut(&mut world.endpoints).insert(service.key.clone(), Arc::new(shards));
    Arc::make_mut(&mut world.services).insert(service.key.clone(), Arc::new(service));
}

/// Gives it addresses.
fn at(service: &mut Service, addresses: &[&str]) {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    service.addresses.insert("Kubernetes".into(), addresses);
}

pub(super) fn world(text: &str) -> World {
    let mesh = mesh::parse_over(&mesh::discovery_defaults(), text).unwrap();
    World::new(Arc::new(mesh.config))
}

pub(super) fn node(id: &str, mode: &str) -> Arc<Node> {
    use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};
    let mode = Value {
        kind: Some(Kind::StringValue(mode.to_owned())),
    };
    let read = Node::read(Some(&core::Node {
        id: id.to_owned(),
        metadata: Some(Struct {
            fields: [("INTERCEPTION_MODE".to_owned(), mode)].into(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

fn names(view: &dyn View, kind: Type) -> String {
    let all = view.all(kind);
    let names: Vec<_> = all.iter().map(|resource| &*resource.name).collect();
    names.join(" ")
}

pub(super) const CLIENT: &str = "sidecar~127.0.0.2~a-1.demo~demo.svc.cluster.local";

/// The shortest way from a ServiceEntry to an answer: what a proxy without interception is given.
#[test]
fn one_service_is_a_cluster_an_assignment_a_listener_and_a_route() {
    let mut world = world("");
    let b = service("b", &[(8080, "HTTP")], Resolution::Static);
    add(&mut world, b, vec![endpoint("127.0.0.1", 9001, "p8080")]);
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(CLIENT, "NONE"));
    let name = "outbound|8080||b.demo.svc.cluster.local";
    assert_eq!(
        names(&*view, Type::Cluster),
        format!("BlackHoleCluster PassthroughCluster {name}")
    );
    assert_eq!(names(&*view, Type::Endpoint), name);
    assert_eq!(names(&*view, Type::Listener), "127.0.0.2_8080");
    assert_eq!(names(&*view, Type::Route), "8080");
    assert!(snapshot.conflicts().is_empty());

    use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
    let routes = view.get(Type::Route, "8080").unwrap();
    let routes = RouteConfiguration::decode(&*routes.body).unwrap();
    let [host, last] = routes.virtual_hosts.as_slice() else {
        panic!("two hosts");
    };
    assert_eq!(host.name, "b.demo.svc.cluster.local:8080");
    assert!(host.domains.contains(&"b:8080".to_owned()));
    assert_eq!(last.name, "block_all");
    assert!(view.get(Type::Route, "81").is_none());
    assert!(view.get(Type::Endpoint, "outbound|81||b").is_none());
}

/// A sidecar without interception and a router share most of what they have; who came first makes no difference.
#[test]
fn a_router_that_came_first_takes_nothing_from_a_sidecar() {
    let world = world("");
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let router = snapshot.view(&node(
        "router~127.0.0.9~gw.demo~demo.svc.cluster.local",
        "NONE",
    ));
    assert_eq!(names(&*router, Type::Cluster), "BlackHoleCluster");
    let sidecar = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(
        names(&*sidecar, Type::Cluster),
        "BlackHoleCluster PassthroughCluster"
    );
}

/// A program with gRPC in it asks for everything by name, and may call its target as short as it likes.
#[test]
fn grpc_gets_what_it_names_and_nothing_else() {
    use envoy_types::pb::envoy::config::listener::v3::Listener;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
        HttpConnectionManager, http_connection_manager::RouteSpecifier,
    };

    let mut world = world("enableAutoMtls: true\n");
    let b = service("b", &[(80, "GRPC"), (8080, "GRPC")], Resolution::Static);
    add(&mut world, b, vec![endpoint("10.0.0.1", 9001, "p8080")]);
    let one = service("one", &[(7070, "GRPC")], Resolution::None);
    add(&mut world, one, Vec::new());
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let mut client = (*node(CLIENT, "NONE")).clone();
    client.grpc = true;
    let view = snapshot.view(&Arc::new(client));
    for kind in Type::ALL {
        assert!(view.all(kind).is_empty(), "{kind:?}");
    }
    for (target, cluster) in [
        (
            "b.demo.svc.cluster.local:8080",
            Some("outbound|8080||b.demo.svc.cluster.local"),
        ),
        ("b:8080", Some("outbound|8080||b.demo.svc.cluster.local")),
        (
            "b.demo:8080",
            Some("outbound|8080||b.demo.svc.cluster.local"),
        ),
        ("b.demo.svc", Some("outbound|80||b.demo.svc.cluster.local")),
        ("one", Some("outbound|7070||one.demo.svc.cluster.local")),
        ("b:81", None),
        ("c:80", None),
        ("b:x", None),
        ("", None),
    ] {
        let found = view.get(Type::Listener, target);
        assert_eq!(found.is_some(), cluster.is_some(), "{target}");
        let (Some(found), Some(cluster)) = (found, cluster) else {
            continue;
        };
        let listener = Listener::decode(&*found.body).unwrap();
        assert_eq!(listener.name, target);
        let manager = listener.api_listener.unwrap().api_listener.unwrap();
        let manager = HttpConnectionManager::decode(manager.value.as_slice()).unwrap();
        let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier else {
            panic!("routes by name");
        };
        assert_eq!(rds.route_config_name, cluster);
        for kind in [Type::Cluster, Type::Endpoint, Type::Route] {
            let resource = view.get(kind, cluster);
            assert_eq!(
                resource.map(|found| found.name.to_string()).as_deref(),
                Some(cluster)
            );
        }
    }
    let name = "outbound|8080||b.demo.svc.cluster.local";
    let cluster = Cluster::decode(&*view.get(Type::Cluster, name).unwrap().body).unwrap();
    assert!(cluster.transport_socket_matches.is_empty() && cluster.eds_cluster_config.is_some());
    assert!(view.get(Type::Cluster, "BlackHoleCluster").is_none());
}

const FIRST: &str = "sidecar~10.0.0.1~a.demo~demo.svc.cluster.local";

/// Two services want one port of all addresses: the older has it, and the other is told of.
#[test]
fn the_older_of_two_services_on_one_port_wins() {
    let mut world = world("");
    for (name, created, word) in [("young", 2, "TCP"), ("old", 1, "TCP"), ("http", 3, "HTTP")] {
        let mut service = service(name, &[(9000, word)], Resolution::Static);
        service.created = Some(created);
        add(&mut world, service, Vec::new());
    }
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert_eq!(
        names(&*view, Type::Listener),
        "0.0.0.0_9000 10.0.0.1_9000 virtualInbound virtualOutbound"
    );
    // One of another kind finds the same, and it is told once.
    let mut other = (*node("sidecar~10.0.0.2~b.demo~demo.svc.cluster.local", "REDIRECT")).clone();
    other.addresses.push("2001:db8::1".parse().unwrap());
    let other = snapshot.view(&Arc::new(other));
    assert_eq!(
        names(&*other, Type::Listener),
        "0.0.0.0_9000 10.0.0.2_9000 2001:db8::1_9000 virtualInbound virtualOutbound"
    );
    let listener = view.get(Type::Listener, "0.0.0.0_9000").unwrap();
    let bytes = String::from_utf8_lossy(&listener.body).into_owned();
    assert!(bytes.contains("outbound|9000||old.demo") && !bytes.contains("young"));
    let messages: Vec<_> = snapshot
        .conflicts()
        .into_iter()
        .inspect(|conflict| assert_eq!(&*conflict.proxy, FIRST))
        .map(|conflict| format!("{} {} {}", conflict.metric, conflict.key, conflict.message))
        .collect();
    assert_eq!(
        messages,
        [
            "pilot_conflict_outbound_listener_http_over_current_tcp 0.0.0.0_9000 \
             http.demo.svc.cluster.local:9000 is left out: old.demo.svc.cluster.local:9000 is older",
            "pilot_conflict_outbound_listener_tcp_over_current_tcp 0.0.0.0_9000 \
             young.demo.svc.cluster.local:9000 is left out: old.demo.svc.cluster.local:9000 is older",
        ]
    );
}

/// A change that is nothing to some proxies leaves them with the snapshot that they look at, and what was found for them is true
/// still.
#[test]
fn conflicts_of_reused_resources_are_still_reported() {
    let mut world = world("");
    for (name, created) in [("young", 2), ("old", 1)] {
        let mut service = service(name, &[(9000, "TCP")], Resolution::Static);
        service.created = Some(created);
        add(&mut world, service, Vec::new());
    }
    let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let resting = snapshot.view(&node(FIRST, "REDIRECT"));
    drop(resting.all(Type::Listener));
    let own = Conflict::new(REJECTED_CONFIG, "key", "of its own".to_owned());
    let of = |proxy: &str| own.clone().of(&proxy.into());
    snapshot.caches.report([of(FIRST)], &FIRST.into());
    let metrics = |snapshot: &Snapshot| -> Vec<&'static str> {
        let all = snapshot.conflicts().into_iter();
        all.map(|one| one.metric).collect()
    };
    let listener = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
    assert_eq!(metrics(&snapshot), [listener, REJECTED_CONFIG]);

    let next = snapshot.next(world.clone(), None, None).snapshot;
    assert_eq!(metrics(&next), [listener]);
    next.take_over_conflicts(&snapshot, |proxy| proxy == FIRST);
    assert_eq!(metrics(&next), [listener, REJECTED_CONFIG]);
    let last = next.next(world, None, None).snapshot;
    last.take_over_conflicts(&next, |_| false);
    assert_eq!(metrics(&last), [listener]);
    drop((resting, snapshot, next));
    assert_eq!(metrics(&last), [""; 0]);
}

/// A caller of the ports where traffic is caught is not passed on to them, and no service can have them.
#[test]
fn the_ports_of_intercepted_traffic_lead_nowhere() {
    use envoy_types::pb::envoy::config::listener::v3::Listener;
    let mut world = world("");
    let ports = [(80, "HTTP"), (15001, "TCP"), (15006, "TCP")];
    let endpoints = ports.map(|(port, _)| endpoint("10.0.0.1", port, &format!("p{port}")));
    add(
        &mut world,
        service("own", &ports, Resolution::Static),
        endpoints.into(),
    );
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(
        "sidecar~10.0.0.1~a.demo~demo.svc.cluster.local",
        "REDIRECT",
    ));
    for (name, port) in [("virtualOutbound", 15001), ("virtualInbound", 15006)] {
        let listener = view.get(Type::Listener, name).unwrap();
        let listener = Listener::decode(&*listener.body).unwrap();
        let of_port = |chain: &&envoy_types::pb::envoy::config::listener::v3::FilterChain| {
            let matching = chain.filter_chain_match.as_ref();
            let wanted = matching.and_then(|matching| matching.destination_port);
            wanted.is_some_and(|wanted| wanted.value == port)
        };
        let chains: Vec<_> = listener.filter_chains.iter().filter(of_port).collect();
        let [chain] = chains.as_slice() else {
            panic!("{name}: {chains:?}")
        };
        let bytes = String::from_utf8_lossy(&chain.encode_to_vec()).into_owned();
        assert!(bytes.contains("BlackHoleCluster"), "{name}: {bytes}");
    }
}

fn localities(view: &dyn View, name: &str) -> Vec<(String, u32)> {
    let cluster = Cluster::decode(&*view.get(Type::Cluster, name).unwrap().body).unwrap();
    let groups = cluster.load_assignment.unwrap().endpoints.into_iter();
    groups
        .map(|group| (group.locality.unwrap().region, group.priority))
        .collect()
}

/// Near addresses come first among those of names that the proxy resolves, too; proxies of other places have other clusters
/// then.
#[test]
fn names_that_proxies_resolve_are_preferred_by_their_places() {
    let name = "outbound|80||b.demo.svc.cluster.local";
    let place = |name: &str, region: &str| {
        let mut place = endpoint("10.0.0.1", 80, "p80");
        place.address = EndpointAddress::read(name);
        place.locality = region.into();
        place
    };
    let of = |region: &str| {
        let mut node = (*node(CLIENT, "REDIRECT")).clone();
        node.locality = region.into();
        Arc::new(node)
    };
    for (mesh, prefers_close, near) in [
        ("", false, false),
        ("", true, true),
        ("localityLbSetting: {enabled: true}\n", false, true),
    ] {
        let mut world = world(mesh);
        let mut b = service("b", &[(80, "HTTP")], Resolution::Dns);
        b.prefers_close = prefers_close;
        add(
            &mut world,
            b,
            vec![place("x.eu", "eu"), place("x.us", "us")],
        );
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let [eu, us] = ["eu", "us"].map(|region| snapshot.view(&of(region)));
        let far = u32::from(near);
        let both = [("eu".to_owned(), 0), ("us".to_owned(), far)];
        assert_eq!(localities(&*eu, name), both, "{mesh}{prefers_close}");
        let both = [("eu".to_owned(), far), ("us".to_owned(), 0)];
        assert_eq!(localities(&*us, name), both, "{mesh}{prefers_close}");
    }
}

/// Shares of the mesh count unless it switches them off, and nearness where it switches it on (discovery.md §10.2).
#[test]
fn shares_of_the_mesh_count_unless_they_are_switched_off() {
    let name = "outbound|80||b.demo.svc.cluster.local";
    let place = |address: &str, region: &str| {
        let mut place = endpoint(address, 80, "p80");
        place.locality = region.into();
        place
    };
    let shares = "distribute: [{from: 'eu', to: {eu: 80, us: 20}}]";
    let of = |mesh: &str, resolution: Resolution, region: &str| {
        let mut world = world(&format!("localityLbSetting: {{{mesh}}}\n"));
        let b = service("b", &[(80, "HTTP")], resolution);
        let places = vec![place("10.0.0.1", "eu"), place("10.0.0.2", "us")];
        add(&mut world, b, places);
        let mut node = (*node(CLIENT, "REDIRECT")).clone();
        node.locality = region.into();
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&Arc::new(node));
        let body = |kind| view.get(kind, name).unwrap().body.clone();
        let assignment = if resolution == Resolution::Static {
            ClusterLoadAssignment::decode(&*body(Type::Endpoint)).unwrap()
        } else {
            let cluster = Cluster::decode(&*body(Type::Cluster)).unwrap();
            cluster.load_assignment.unwrap()
        };
        let groups = assignment.endpoints.into_iter();
        let groups = groups.map(|group| {
            (
                group.load_balancing_weight.unwrap_or_default().value,
                group.priority,
            )
        });
        groups.collect::<Vec<_>>()
    };
    let failover = "failover: [{from: eu, to: us}]";
    for resolution in [Resolution::Static, Resolution::Dns] {
        for (mesh, region, expected) in [
            (shares, "eu", [(80, 0), (20, 0)]),
            (
                &*format!("enabled: true, {shares}"),
                "eu",
                [(80, 0), (20, 0)],
            ),
            (
                &*format!("enabled: false, {shares}"),
                "eu",
                [(1, 0), (1, 0)],
            ),
            (shares, "us", [(1, 0), (1, 0)]),
            (&*format!("enabled: true, {shares}"), "us", [(1, 1), (1, 0)]),
            (failover, "eu", [(1, 0), (1, 0)]),
            (
                &*format!("enabled: true, {failover}"),
                "eu",
                [(1, 0), (1, 1)],
            ),
        ] {
            assert_eq!(
                of(mesh, resolution, region),
                expected,
                "{mesh} {region} {resolution:?}"
            );
        }
    }
}

/// Two pods share the address of their machine: what names one of them is not the other's, be it known or not.
#[test]
fn a_pod_on_the_hosts_address_is_told_by_its_name() {
    let is_own = |change: &dyn Fn(&mut Endpoint)| {
        let mut world = world("");
        let mut place = endpoint("127.0.0.2", 9001, "p80");
        change(&mut place);
        let b = service("b", &[(80, "HTTP")], Resolution::Static);
        add(&mut world, b, vec![place]);
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(CLIENT, "REDIRECT"));
        let cluster = view.get(Type::Cluster, "inbound|80|p80|b.demo.svc.cluster.local");
        assert_eq!(view.serves(), cluster.is_some());
        view.serves()
    };
    assert!(is_own(&|_| ()));
    assert!(is_own(&|place| place.pod = Some("demo/a-1".into())));
    assert!(is_own(&|place| place.unknown_pod = Some("demo/a-1".into())));
    assert!(!is_own(&|place| place.pod = Some("demo/c-1".into())));
    assert!(!is_own(&|place| place.unknown_pod = Some("demo/c-1".into())));
    assert!(!is_own(
        &|place| place.address = EndpointAddress::read("10.0.0.9")
    ));
}

/// All programs share the resources that one of them was given: a thousand programs with one target have one copy.
#[test]
fn all_programs_with_grpc_share_what_they_name() {
    let mut world = world("");
    let b = service("b", &[(80, "GRPC")], Resolution::Static);
    add(&mut world, b, vec![endpoint("10.0.0.1", 9001, "p80")]);
    let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let program = |snapshot: &Arc<Snapshot>, id: &str| {
        let mut client = (*node(id, "NONE")).clone();
        client.grpc = true;
        snapshot.view(&Arc::new(client))
    };
    let other = CLIENT
        .replace("a-1.demo", "a-2.demo")
        .replace("127.0.0.2", "127.0.0.3");
    let (one, another) = (program(&snapshot, CLIENT), program(&snapshot, &other));
    let name = "outbound|80||b.demo.svc.cluster.local";
    let all = |view: &dyn View| {
        let named = [
            (Type::Listener, "b:80"),
            (Type::Cluster, name),
            (Type::Endpoint, name),
            (Type::Route, name),
        ];
        named.map(|(kind, name)| view.get(kind, name).unwrap())
    };
    let first = all(&*one);
    let later = program(&snapshot.next(world, None, None).snapshot, CLIENT);
    for view in [&another, &later] {
        for (one, another) in first.iter().zip(all(&**view)) {
            assert!(Arc::ptr_eq(one, &another), "{}", one.name);
        }
    }
    // The same short name is another service in another place.
    let mut stranger = (*node(&CLIENT.replace("~demo.svc", "~far.svc"), "NONE")).clone();
    stranger.grpc = true;
    let stranger = snapshot.view(&Arc::new(stranger));
    assert!(stranger.get(Type::Listener, "b:80").is_none());
}

/// The network of an endpoint is known without gateways and without mutual TLS, too.
#[test]
fn an_endpoint_says_its_network() {
    let networks = "networks:\n  near: {endpoints: [{fromCidr: 10.1.0.0/16}]}\n  far: {endpoints: [{fromRegistry: east}]}\n";
    for text in ["", "enableAutoMtls: true\n"] {
        let mut world = world(text);
        world.networks = Arc::new(mesh::parse_networks(networks).unwrap().config);
        let mut own = endpoint("10.1.0.2", 80, "p80");
        own.network = Some("mine".into());
        let b = service("b", &[(80, "HTTP")], Resolution::Static);
        let shards = EndpointShards::from([
            (
                "Kubernetes".into(),
                vec![
                    endpoint("10.1.0.1", 80, "p80"),
                    own,
                    endpoint("10.9.0.1", 80, "p80"),
                ]
                .into(),
            ),
            (
                "east".into(),
                vec![
                    endpoint("10.1.0.3", 80, "p80"),
                    endpoint("10.9.0.3", 80, "p80"),
                ]
                .into(),
            ),
        ]);
        Arc::make_mut(&mut world.endpoints).insert(b.key.clone(), Arc::new(shards));
        Arc::make_mut(&mut world.services).insert(b.key.clone(), Arc::new(b));
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(CLIENT, "NONE"));
        assert_eq!(
            places(&*view, "outbound|80||b.demo.svc.cluster.local"),
            [
                "10.1.0.1 near",
                "10.1.0.2 mine",
                "10.1.0.3 near",
                "10.9.0.1 -",
                "10.9.0.3 far",
            ],
            "{text}"
        );
    }
}

/// Addresses of an assignment, each with its network.
fn places(view: &dyn View, name: &str) -> Vec<String> {
    let assignment = view.get(Type::Endpoint, name).unwrap();
    places_of(ClusterLoadAssignment::decode(&*assignment.body).unwrap())
}

fn places_of(assignment: ClusterLoadAssignment) -> Vec<String> {
    use envoy_types::pb::envoy::config::core::v3::address::Address;
    use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
    use envoy_types::pb::google::protobuf::value::Kind;

    let all = assignment
        .endpoints
        .into_iter()
        .flat_map(|group| group.lb_endpoints);
    let mut places: Vec<_> = all
        .map(|place| {
            let Some(HostIdentifier::Endpoint(endpoint)) = place.host_identifier else {
                panic!("an endpoint");
            };
            let Some(Address::SocketAddress(address)) = endpoint.address.unwrap().address else {
                panic!("an address");
            };
            let metadata = place.metadata.unwrap_or_default();
            let istio = metadata.filter_metadata.get("istio");
            let network = istio.and_then(|istio| istio.fields.get("network")?.kind.clone());
            match network {
                Some(Kind::StringValue(network)) => format!("{} {network}", address.address),
                _ => format!("{} -", address.address),
            }
        })
        .collect();
    places.sort();
    places
}

/// A Sidecar `inbound` for the whole namespace.
fn sidecar(world: &mut World, text: &str) {
    let limits = api::yaml::Limits {
        bytes: 10_000,
        depth: 20,
        nodes: 1_000,
    };
    let spec: String = text.lines().map(|line| format!("  {line}\n")).collect();
    let object = format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: inbound, namespace: demo}}\nspec:\n{spec}"
    );
    let node = api::yaml::read(&object, limits).unwrap().unwrap();
    let checked = api::networking::check::<api::networking::Sidecar>(&node.to_json());
    let sidecar = api::model::Configured {
        name: "inbound".into(),
        namespace: "demo".into(),
        created: None,
        prefers_close: false,
        dry_run: false,
        spec: checked.spec.unwrap(),
    };
    let key = (sidecar.namespace.clone(), sidecar.name.clone());
    Arc::make_mut(&mut world.sidecars).insert(key, Arc::new(sidecar));
}

/// A port that a Sidecar writes down has the name for figures that the mesh wants, where it is one of a service.
#[test]
fn written_doors_have_names_for_figures() {
    let mut world = world("inboundClusterStatName: '%SERVICE%'\n");
    let b = service("b", &[(80, "HTTP")], Resolution::Static);
    add(&mut world, b, vec![endpoint("127.0.0.2", 80, "p80")]);
    let text = "ingress:\n- {port: {number: 80, protocol: HTTP, name: a}, defaultEndpoint: '127.0.0.1:80'}\n\
                - {port: {number: 81, protocol: HTTP, name: b}, defaultEndpoint: '127.0.0.1:81'}\n";
    sidecar(&mut world, text);
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(CLIENT, "NONE"));
    let name_of = |cluster: &str| {
        let cluster = view.get(Type::Cluster, cluster).unwrap();
        Cluster::decode(&*cluster.body).unwrap().alt_stat_name
    };
    assert_eq!(
        name_of("inbound|80|a|b.demo.svc.cluster.local"),
        "b.demo.svc.cluster.local"
    );
    assert_eq!(name_of("inbound|81|b|inbound.demo"), "");
}

fn inbound_port(number: u16, more: &str) -> String {
    format!(
        "- {{port: {{number: {number}, protocol: HTTP, name: a}}, defaultEndpoint: '127.0.0.1:80'{more}}}\n"
    )
}

fn direction(view: &dyn View, name: &str) -> TrafficDirection {
    let listener = view.get(Type::Listener, name).unwrap();
    let listener = Listener::decode(&*listener.body).unwrap();
    listener.traffic_direction()
}

/// Key, message and the address of the proxy, of ports that are the proxy's own.
fn invalid(snapshot: &Snapshot) -> Vec<(String, String, String)> {
    let conflicts = snapshot.conflicts().into_iter();
    conflicts
        .inspect(|conflict| assert_eq!(conflict.metric, "pilot_invalid_out_listeners"))
        .map(|conflict| {
            let address = conflict.proxy.split('~').nth(1).unwrap_or("").to_owned();
            (conflict.key, conflict.message, address)
        })
        .collect()
}

/// Listeners that rules ask for at a port where the proxy itself listens are reported, in each mode as far as they are lost
/// there.
#[test]
fn listeners_at_the_proxys_own_ports_are_reported() {
    let mut world = world("proxyListenPort: 16001\nproxyHttpPort: 15020\n");
    let ingress = [
        inbound_port(9080, ""),
        inbound_port(15090, ", captureMode: NONE"),
        inbound_port(15021, ""),
        inbound_port(16001, ""),
    ];
    sidecar(&mut world, &format!("ingress:\n{}", ingress.concat()));
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let http = (
        "http_proxy".to_owned(),
        "proxyHttpPort 15020 is left out: the proxy listens there".to_owned(),
        String::new(),
    );
    let lost = |number: u16, proxy: &str| {
        let message = format!(
            "the ingress of Sidecar demo/inbound on {number} is left out: the proxy listens there"
        );
        let key = format!("inbound|{number}|a|inbound.demo");
        (key, message, proxy.to_owned())
    };
    assert_eq!(invalid(&snapshot), std::slice::from_ref(&http));
    // What is only intercepted may have any port.
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert_eq!(
        names(&*view, Type::Listener),
        "10.0.0.1_15021 10.0.0.1_16001 10.0.0.1_9080 virtualInbound virtualOutbound"
    );
    assert_eq!(invalid(&snapshot), [http.clone(), lost(15090, "10.0.0.1")]);
    let view = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(names(&*view, Type::Listener), "127.0.0.2_9080");
    let all = [
        http,
        lost(15021, "127.0.0.2"),
        lost(15090, "10.0.0.1"),
        lost(16001, "127.0.0.2"),
    ];
    assert_eq!(invalid(&snapshot), all);
    // It is mended.
    let mut mended = self::world("");
    sidecar(
        &mut mended,
        &format!("ingress:\n{}", inbound_port(9080, "")),
    );
    let snapshot = snapshot.next(mended, None, None).snapshot;
    let view = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(names(&*view, Type::Listener), "127.0.0.2_9080");
    assert_eq!(invalid(&snapshot), []);
}

/// A service with the port for applications that use a proxy: who has one address for both has the one that the mesh wants.
#[test]
fn a_service_on_the_port_for_applications_is_left_out_where_both_are_bound() {
    let mut world = world("proxyHttpPort: 15080\n");
    let clash = service("clash", &[(15080, "HTTP")], Resolution::Static);
    add(&mut world, clash, Vec::new());
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert!(view.get(Type::Listener, "0.0.0.0_15080").is_some());
    assert_eq!(invalid(&snapshot), []);
    let view = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(names(&*view, Type::Listener), "127.0.0.2_15080");
    assert_eq!(names(&*view, Type::Route), "http_proxy");
    let name = "outbound|15080||clash.demo.svc.cluster.local";
    let message = format!("{name} is left out: the proxy listens there");
    let expected = (name.to_owned(), message, "127.0.0.2".to_owned());
    assert_eq!(invalid(&snapshot), [expected]);
}

/// The ingress is kept where one address serves services and a Sidecar's ingress; on the port for applications, the services'
/// listener.
#[test]
fn an_ingress_in_the_place_of_another_listener_is_told() {
    let mut world = world("proxyHttpPort: 15080\n");
    let b = service("b", &[(8080, "HTTP")], Resolution::Static);
    add(&mut world, b, Vec::new());
    let bound = ", bind: 127.0.0.2";
    let ingress = [inbound_port(8080, bound), inbound_port(15080, bound)];
    sidecar(&mut world, &format!("ingress:\n{}", ingress.concat()));
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert!(view.get(Type::Listener, "0.0.0.0_8080").is_some());
    assert_eq!(invalid(&snapshot), []);
    let view = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(
        names(&*view, Type::Listener),
        "127.0.0.2_15080 127.0.0.2_8080"
    );
    let direction = |name| direction(&*view, name);
    assert_eq!(direction("127.0.0.2_15080"), TrafficDirection::Outbound);
    assert_eq!(direction("127.0.0.2_8080"), TrafficDirection::Inbound);
    let expected =
        |key: &str, message: &str| (key.to_owned(), message.to_owned(), "127.0.0.2".to_owned());
    assert_eq!(
        invalid(&snapshot),
        [
            expected(
                "127.0.0.2_8080",
                "listener 127.0.0.2_8080 of services is left out: the proxy has one of its own there"
            ),
            expected(
                "inbound|15080|a|inbound.demo",
                "the ingress of Sidecar demo/inbound on 15080 is left out: the proxy listens there"
            ),
        ]
    );
    // Elsewhere it is in nobody's way.
    let mut elsewhere = self::world("proxyHttpPort: 15080\n");
    let ingress = inbound_port(15080, ", bind: 127.0.0.3");
    sidecar(&mut elsewhere, &format!("ingress:\n{ingress}"));
    let snapshot = snapshot.next(elsewhere, None, None).snapshot;
    let view = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(
        names(&*view, Type::Listener),
        "127.0.0.2_15080 127.0.0.3_15080"
    );
    assert_eq!(invalid(&snapshot), []);
}
