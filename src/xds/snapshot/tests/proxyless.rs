//! Resources that programs with gRPC in them are given in place of those of an Envoy.

use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::endpoint::v3::LocalityLbEndpoints;

use super::*;

const B: &str = "outbound|80||b.demo.svc.cluster.local";

fn program(snapshot: &Arc<Snapshot>) -> Arc<dyn View> {
    let mut client = (*node(CLIENT, "NONE")).clone();
    client.grpc = true;
    snapshot.view(&Arc::new(client))
}

fn in_zone(address: &str, zone: &str) -> Endpoint {
    let mut endpoint = endpoint(address, 80, "p80");
    endpoint.locality = format!("r/{zone}").as_str().into();
    endpoint
}

fn snapshot_of(
    mut world: World,
    resolution: Resolution,
    endpoints: Vec<Endpoint>,
) -> Arc<Snapshot> {
    add(
        &mut world,
        service("b", &[(80, "GRPC")], resolution),
        endpoints,
    );
    Snapshot::new(world, Arc::new(Settings::default()))
}

fn assignment(view: &dyn View) -> ClusterLoadAssignment {
    ClusterLoadAssignment::decode(&*view.get(Type::Endpoint, B).unwrap().body).unwrap()
}

/// The cluster, which is of this type.
fn cluster(view: &dyn View, kind: DiscoveryType) -> Cluster {
    let cluster = view.get(Type::Cluster, B).unwrap();
    let cluster = Cluster::decode(&*cluster.body).unwrap();
    let expected = ClusterDiscoveryType::Type(kind.into());
    assert_eq!(cluster.cluster_discovery_type, Some(expected));
    cluster
}

/// Weights of the groups, with their priorities.
fn weights(assignment: &ClusterLoadAssignment) -> Vec<(u32, u32)> {
    let groups = assignment.endpoints.iter();
    let weight = |weight: Option<_>| {
        weight.map_or(0, |it: envoy_types::pb::google::protobuf::UInt32Value| {
            it.value
        })
    };
    groups
        .map(|group| (weight(group.load_balancing_weight), group.priority))
        .collect()
}

/// The messages of all conflicts, each at one service.
fn messages(snapshot: &Snapshot) -> Vec<String> {
    let all = snapshot.conflicts().into_iter();
    all.map(|conflict| {
        assert_eq!(conflict.services.len(), 1, "{conflict:?}");
        conflict.message
    })
    .collect()
}

/// gRPC refuses an assignment that has an address twice, and with it loses the whole service.
#[test]
fn an_address_in_two_localities_is_given_to_grpc_once() {
    let endpoints = || {
        vec![
            in_zone("10.0.0.1", "z1"),
            in_zone("10.0.0.1", "z2"),
            in_zone("10.0.0.2", "z2"),
            in_zone("10.0.0.1", "z3"),
        ]
    };
    let snapshot = snapshot_of(world(""), Resolution::Static, endpoints());
    let view = program(&snapshot);
    assert_eq!(places(&*view, B), ["10.0.0.1 -", "10.0.0.2 -"]);
    assert_eq!(weights(&assignment(&*view)), [(3, 0), (1, 0)]);
    let message = "the endpoint 10.0.0.1, port 80, and 1 more, of demo/b.demo.svc.cluster.local is there in another locality, too: \
                   clients with gRPC in them are given it in the first one alone";
    assert_eq!(messages(&snapshot), [message]);

    // An Envoy is given what there is, and nothing is told of it.
    let snapshot = snapshot_of(world(""), Resolution::Static, endpoints());
    let sidecar = snapshot.view(&node(CLIENT, "NONE"));
    assert_eq!(places(&*sidecar, B).len(), 4);
    assert_eq!(messages(&snapshot), Vec::<String>::new());

    // The nearest level has it, and levels have no gap.
    let near = snapshot_of(
        world("localityLbSetting: {enabled: true}\n"),
        Resolution::Static,
        vec![
            in_zone("10.0.0.1", "z9"),
            in_zone("10.0.0.1", "z1"),
            in_zone("10.0.0.2", "z1"),
        ],
    );
    let mut client = (*node(CLIENT, "NONE")).clone();
    client.grpc = true;
    client.locality = "r/z1".into();
    let view = near.view(&Arc::new(client));
    assert_eq!(places(&*view, B), ["10.0.0.1 -", "10.0.0.2 -"]);
    assert_eq!(weights(&assignment(&*view)), [(2, 0)]);
}

/// Weights of endpoints say how their group's share is divided, so that those of two groups have no unit in common.
#[test]
fn an_address_in_two_localities_has_its_part_of_both_shares() {
    let client = |shares: &str, endpoints: Vec<Endpoint>| {
        let settings = format!(
            "localityLbSetting: {{enabled: true, distribute: [{{from: r/z1, to: {{{shares}}}}}]}}\n"
        );
        let snapshot = snapshot_of(world(&settings), Resolution::Static, endpoints);
        let mut client = (*node(CLIENT, "NONE")).clone();
        client.grpc = true;
        client.locality = "r/z1".into();
        assignment(&*snapshot.view(&Arc::new(client)))
    };
    let of_endpoints = |group: &LocalityLbEndpoints| -> Vec<u32> {
        let all = group.lb_endpoints.iter();
        all.map(|one| one.load_balancing_weight.as_ref().unwrap().value)
            .collect()
    };
    let ten = (10..20).map(|at| in_zone(&format!("10.0.0.{at}"), "z1"));
    let repeated = [in_zone("10.0.0.10", "z2")];
    let all = client("r/z1: 10, r/z2: 90", ten.chain(repeated).collect());
    // Of 100 %, 1 % and the 90 % of the other zone.
    assert_eq!(weights(&all), [(1_000_000, 0)]);
    let first = of_endpoints(&all.endpoints[0]);
    assert_eq!(first[0], 910_000);
    assert_eq!(first[1..], [10_000; 9]);

    // The rest of a group keeps its share; percentages that come out uneven are finer already, and all fit into 32 bits.
    let far = [("1", "s/z2"), ("2", "s/z2"), ("1", "s/z3"), ("1", "s/z4")];
    let far = far.map(|(address, place)| Endpoint {
        locality: place.into(),
        ..in_zone(&format!("10.0.0.{address}"), "")
    });
    let mut endpoints = vec![in_zone("10.0.0.1", "z1")];
    endpoints.extend(far);
    let all = client("r/z1: 10, 's/*': 90", endpoints);
    let sums: Vec<_> = weights(&all).iter().map(|(weight, _)| *weight).collect();
    let sum: u32 = sums.iter().sum();
    assert_eq!(sums.len(), 2);
    // 10 % and three quarters of 90 %.
    assert_eq!(u64::from(sums[0]) * 1000 / u64::from(sum), 775);
    assert_eq!(of_endpoints(&all.endpoints[0]).len(), 1);

    // Nothing changes where no address has a repeat.
    let two = vec![in_zone("10.0.0.1", "z1"), in_zone("10.0.0.2", "z2")];
    assert_eq!(
        weights(&client("r/z1: 10, r/z2: 90", two)),
        [(10, 0), (90, 0)]
    );
}

fn name(host: &str) -> Endpoint {
    Endpoint {
        address: EndpointAddress::read(host),
        ..endpoint("10.0.0.1", 80, "p80")
    }
}

/// gRPC resolves one name (its proposal A37), by the fields that Envoy gives up, and balances over no others.
#[test]
fn grpc_resolves_the_only_name_of_a_cluster() {
    for resolution in [Resolution::Dns, Resolution::DnsRoundRobin] {
        for (endpoints, expected) in [
            (vec![name("db.example.com")], "db.example.com -"),
            // The host itself.
            (Vec::new(), "b.demo.svc.cluster.local -"),
        ] {
            let snapshot = snapshot_of(world(""), resolution, endpoints);
            let view = program(&snapshot);
            let cluster = cluster(&*view, DiscoveryType::LogicalDns);
            assert_eq!(places_of(cluster.load_assignment.unwrap()), [expected]);
            assert!(view.get(Type::Endpoint, B).is_none());
            assert_eq!(messages(&snapshot), Vec::<String>::new());
        }
        for endpoints in [
            vec![name("a.example.com"), name("b.example.com")],
            vec![endpoint("10.0.0.1", 80, "p80")],
        ] {
            let snapshot = snapshot_of(world(""), resolution, endpoints);
            cluster(&*program(&snapshot), DiscoveryType::Eds);
        }
    }
}

/// gRPC refuses an assignment with a socket of a file, too.
#[test]
fn sockets_and_names_are_left_out_for_grpc_and_told() {
    let mut pipe = endpoint("10.0.0.1", 0, "p80");
    pipe.address = EndpointAddress::read("unix:///tmp/a.sock");
    let snapshot = snapshot_of(
        world(""),
        Resolution::Static,
        vec![endpoint("10.0.0.1", 80, "p80"), pipe],
    );
    assert_eq!(places(&*program(&snapshot), B), ["10.0.0.1 -"]);
    let [message] = &*messages(&snapshot) else {
        panic!("not one: {:?}", messages(&snapshot));
    };
    assert!(message.contains("/tmp/a.sock") && message.ends_with("they call no sockets of files"));

    let snapshot = snapshot_of(world(""), Resolution::None, Vec::new());
    assert!(assignment(&*program(&snapshot)).endpoints.is_empty());
    let [message] = &*messages(&snapshot) else {
        panic!("not one: {:?}", messages(&snapshot));
    };
    assert!(message.contains("it has no endpoints"), "{message}");
    let endpoints = vec![endpoint("10.0.0.1", 80, "p80"), name("db.example.com")];
    let snapshot = snapshot_of(world(""), Resolution::Dns, endpoints);
    assert_eq!(places(&*program(&snapshot), B), ["10.0.0.1 -"]);
    let [message] = &*messages(&snapshot) else {
        panic!("not one: {:?}", messages(&snapshot));
    };
    let end = "they resolve a name where it is the only endpoint";
    assert!(message.contains("db.example.com") && message.ends_with(end));
    // A service with none at present needs no word.
    let snapshot = snapshot_of(world(""), Resolution::Static, Vec::new());
    assert!(assignment(&*program(&snapshot)).endpoints.is_empty());
    assert_eq!(messages(&snapshot), Vec::<String>::new());
}

/// Gateways between networks take nothing but mutual TLS, and gRPC would call them in plain text.
#[test]
fn grpc_is_not_led_to_gateways_of_networks() {
    let mut world = world("enableAutoMtls: true\n");
    let text = "networks:\n  vm: {gateways: [{address: 9.9.9.9, port: 15443}]}\n";
    world.networks = Arc::new(mesh::parse_networks(text).unwrap().config);
    let far = |address: &str, zone: &str| {
        let mut far = in_zone(address, zone);
        far.network = Some("vm".into());
        far
    };
    let endpoints = vec![
        endpoint("10.2.0.2", 80, "p80"),
        far("10.1.0.1", "z1"),
        far("10.1.0.2", "z2"),
    ];
    let snapshot = snapshot_of(world, Resolution::Static, endpoints);
    let view = program(&snapshot);
    let all = ["10.1.0.1 vm", "10.1.0.2 vm", "10.2.0.2 -"];
    assert_eq!(places(&*view, B), all);
    let [message] = &*messages(&snapshot) else {
        panic!("not one: {:?}", messages(&snapshot));
    };
    assert!(
        message.contains("port 80, and 1 more, of")
            && message.contains("without its network's gateway")
    );
    let sidecar = snapshot.view(&node(CLIENT, "REDIRECT"));
    let gateways = ["10.2.0.2 -", "9.9.9.9 vm", "9.9.9.9 vm"];
    assert_eq!(places(&*sidecar, B), gateways);
    // The word goes with its cause, of which a change of endpoints alone may be one.
    let mut later = snapshot.world().clone();
    add(
        &mut later,
        service("b", &[(80, "GRPC")], Resolution::Static),
        vec![endpoint("10.2.0.2", 80, "p80")],
    );
    let hosts = BTreeSet::from(["b.demo.svc.cluster.local".into()]);
    let next = snapshot.next(later, Some(&hosts), None);
    assert!(!next.full);
    assert_eq!(messages(&next.snapshot), Vec::<String>::new());
}
