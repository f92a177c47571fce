//! The number of resources to make for a proxy, and the proxies for which they were made with the snapshot.

use api::model::{Health, Resolution, Workload};

use super::*;

/// One of so many kinds: their options differ.
fn of_kind(number: usize) -> Arc<Node> {
    use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};
    let timeout = Value {
        kind: Some(Kind::StringValue(format!("{}s", number + 1))),
    };
    let read = Node::read(Some(&core::Node {
        id: format!("sidecar~10.0.0.9~x-{number}.demo~d{number}.svc.cluster.local"),
        metadata: Some(Struct {
            fields: [("IDLE_TIMEOUT".to_owned(), timeout)].into(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

fn small() -> World {
    let mut world = world("");
    let b = service("b", &[(80, "HTTP"), (9000, "TCP")], Resolution::Static);
    add(&mut world, b, vec![endpoint("10.0.0.1", 80, "p80")]);
    world
}

#[test]
fn it_is_known_for_which_kinds_all_was_made_ahead() {
    let earlier = Snapshot::new(small(), Arc::new(Settings::default()));
    let nodes: Vec<_> = (0..=KINDS_AHEAD).map(of_kind).collect();
    let next = earlier.next(small(), None, None).snapshot;
    assert!(!next.is_ahead(&nodes[0]));
    next.make_ahead(&earlier, &nodes);
    for (number, node) in nodes.iter().enumerate() {
        let is_ahead = number < KINDS_AHEAD;
        assert_eq!(next.is_ahead(node), is_ahead, "{number}");
        let view = next.view(node);
        assert_eq!(
            view.unbuilt(Type::Listener, &ResourceNames::default()) == 0,
            is_ahead,
            "{number}"
        );
        view.make_ahead(Type::Listener, &ResourceNames::default());
        assert_eq!(view.unbuilt(Type::Listener, &ResourceNames::default()), 0);
    }
    // Another of a kind that was.
    assert!(next.is_ahead(&of_kind(0)));
}

/// A proxy whose metadata has no labels, of a pod of this name.
fn of_pod(name: &str) -> Arc<Node> {
    let id = format!("sidecar~10.0.0.9~{name}.demo~demo.svc.cluster.local");
    node(&id, "REDIRECT")
}

fn add_pod(world: &mut World, node: &Node, app: &str, region: &str) {
    let key = node.workload_key(&Settings::default().cluster);
    let pod = Workload {
        key: key.clone(),
        addresses: Vec::new(),
        labels: Arc::new([("app".into(), app.into())].into()),
        locality: region.into(),
        network: None,
        account: None,
        ports: BTreeMap::new(),
        owner: None,
        health: Health::Ready,
    };
    Arc::make_mut(&mut world.workloads).insert(key, Arc::new(pod));
}

/// A Sidecar of the one made the other's listeners, and the first build of the other's was taken for a lookup on the event loop.
#[test]
fn pods_are_alike_by_their_own_labels_and_places() {
    let mut world = small();
    sidecar(
        &mut world,
        "workloadSelector: {labels: {app: narrow}}\negress:\n- hosts: ['~/*']\n",
    );
    let pods = ["x-1", "x-2", "x-3", "x-4"].map(of_pod);
    let facts = [
        ("wide", "east"),
        ("wide", "east"),
        ("narrow", "east"),
        ("wide", "west"),
    ];
    for (pod, (app, region)) in pods.iter().zip(facts) {
        add_pod(&mut world, pod, app, region);
    }
    let earlier = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let next = earlier.next(world, None, None).snapshot;
    next.make_ahead(&earlier, &pods[..1]);
    let are_ahead = pods.each_ref().map(|pod| next.is_ahead(pod));
    assert_eq!(are_ahead, [true, true, false, false]);
}

#[test]
fn addresses_and_names_are_counted_where_they_are_made() {
    let size = |addresses: usize, accounts: usize, endpoints: usize, resolution| {
        let mut world = world("");
        let mut b = service("b", &[(80, "HTTP"), (9000, "TCP")], resolution);
        if resolution == Resolution::None {
            b.registry = Registry::Kubernetes;
        }
        let all: Vec<_> = (0..addresses)
            .map(|last| format!("10.1.0.{last}"))
            .collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        if !all.is_empty() {
            at(&mut b, &all);
        }
        b.accounts = (0..accounts).map(|at| format!("a{at}").into()).collect();
        let endpoints =
            (0..endpoints).map(|last| endpoint(&format!("10.0.0.{last}"), 9000, "p9000"));
        add(&mut world, b, endpoints.collect());
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(CLIENT, "REDIRECT"));
        let made = view.unbuilt(Type::Listener, &ResourceNames::default());
        assert_eq!(view.unbuilt(Type::Cluster, &ResourceNames::default()), made);
        made
    };
    assert_eq!(size(0, 0, 5, Resolution::Static), 2);
    assert_eq!(size(10, 0, 0, Resolution::Static), 22);
    assert_eq!(size(0, 10, 0, Resolution::Static), 22);
    assert_eq!(size(0, 0, 5, Resolution::None), 7);
}

#[test]
fn one_of_many_ports_counts_its_own_endpoints() {
    let mut world = world("");
    let ports: Vec<_> = (1..=100).map(|number| (number, "HTTP")).collect();
    let endpoints = (1..=100).map(|port| endpoint("10.0.0.1", port, &format!("p{port}")));
    let b = service("b", &ports, Resolution::Static);
    add(&mut world, b, endpoints.collect());
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(CLIENT, "REDIRECT"));
    let names: Vec<_> = (1..=100)
        .map(|port| format!("outbound|{port}||b.demo.svc.cluster.local"))
        .collect();
    assert_eq!(view.unbuilt(Type::Endpoint, &names.clone().into()), 200);
    let one = view.get(Type::Endpoint, &names[6]).unwrap();
    use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
    let one = ClusterLoadAssignment::decode(&*one.body).unwrap();
    let places: usize = one
        .endpoints
        .iter()
        .map(|group| group.lb_endpoints.len())
        .sum();
    assert_eq!(places, 1);
    assert_eq!(view.unbuilt(Type::Endpoint, &names.clone().into()), 198);
}
