//! The networks of proxies, as entries give them, and the parts of other networks that they see.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;

use super::*;

const B: &str = "outbound|80||b.demo.svc.cluster.local";

fn networks(world: &mut World, text: &str) {
    world.networks = Arc::new(mesh::parse_networks(text).unwrap().config);
}

fn with_labels(id: &str, app: &str) -> Arc<Node> {
    let mut node = (*node(id, "REDIRECT")).clone();
    node.labels = labels(app);
    Arc::new(node)
}

fn labels(app: &str) -> Arc<Labels> {
    Arc::new([("app".into(), app.into())].into_iter().collect())
}

fn assignment(view: &dyn View) -> ClusterLoadAssignment {
    let assignment = view.get(Type::Endpoint, B).unwrap();
    ClusterLoadAssignment::decode(&*assignment.body).unwrap()
}

/// A world with `b` in two networks, and an entry with the client's address.
fn two_networks(entry: impl FnOnce(&mut Endpoint)) -> World {
    let mut world = world("enableAutoMtls: true\n");
    networks(
        &mut world,
        "networks:\n  vm: {gateways: [{address: 9.9.9.9, port: 15443}]}\n  \
         near: {endpoints: [{fromCidr: 127.0.0.0/8}], gateways: [{address: 8.8.8.8, port: 15443}]}\n",
    );
    let b = service("b", &[(80, "HTTP")], Resolution::Static);
    let mut far = endpoint("10.1.0.1", 80, "p80");
    far.network = Some("vm".into());
    add(&mut world, b, vec![far, endpoint("10.2.0.2", 80, "p80")]);
    let mut own = endpoint("127.0.0.2", 81, "p81");
    entry(&mut own);
    let a = service("a", &[(81, "HTTP")], Resolution::Static);
    add(&mut world, a, vec![own]);
    world
}

/// An entry gives the network that a proxy does not name itself, before the mesh's networks do.
#[test]
fn the_network_of_a_proxy_is_that_of_its_entry() {
    let inside = ["10.1.0.1 vm", "10.2.0.2 -"];
    let outside = ["10.2.0.2 -", "9.9.9.9 vm"];
    let seen = |world: World, node: &Arc<Node>| {
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        places(&*snapshot.view(node), B)
    };
    let client = node(CLIENT, "REDIRECT");
    let in_vm = |own: &mut Endpoint| own.network = Some("vm".into());
    assert_eq!(seen(two_networks(|_| ()), &client), outside);
    assert_eq!(seen(two_networks(in_vm), &client), inside);
    let mut says = (*client).clone();
    says.network = Some("near".into());
    assert_eq!(seen(two_networks(in_vm), &Arc::new(says)), outside);
    // One of another workload with this address says nothing of the proxy; nor does a pod's.
    let labelled = |own: &mut Endpoint| {
        in_vm(own);
        own.labels = labels("a");
    };
    assert_eq!(
        seen(two_networks(labelled), &with_labels(CLIENT, "a")),
        inside
    );
    assert_eq!(
        seen(two_networks(labelled), &with_labels(CLIENT, "x")),
        outside
    );
    let of_a_pod = |own: &mut Endpoint| {
        in_vm(own);
        own.pod = Some("demo/other".into());
    };
    assert_eq!(seen(two_networks(of_a_pod), &client), outside);

    // An entry that moves takes its proxy along.
    let snapshot = Snapshot::new(two_networks(|_| ()), Arc::new(Settings::default()));
    let hosts = BTreeSet::from(["a.demo.svc.cluster.local".into()]);
    let next = snapshot.next(two_networks(in_vm), Some(&hosts), None);
    assert!(!next.full);
    assert_eq!(next.moved, BTreeSet::from(["127.0.0.2".parse().unwrap()]));
    assert_eq!(places(&*next.snapshot.view(&client), B), inside);
}

/// A WorkloadEntry may name a network alone. Envoy would refuse an empty address, of any resolution.
#[test]
fn endpoints_without_an_address_are_reached_by_gateways_alone() {
    for resolution in [Resolution::Static, Resolution::Dns] {
        let is_assigned = resolution == Resolution::Static;
        let seen = |client: &Arc<Node>| {
            let mut world = two_networks(|_| ());
            let mut b = service("b", &[(80, "HTTP")], resolution);
            b.registry = Registry::External;
            let mut absent = endpoint("10.1.0.1", 80, "p80");
            absent.address = EndpointAddress::read("");
            absent.network = Some("vm".into());
            add(&mut world, b, vec![absent, endpoint("10.2.0.2", 80, "p80")]);
            let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
            let view = snapshot.view(client);
            if is_assigned {
                return places(&*view, B);
            }
            let cluster = view.get(Type::Cluster, B).unwrap();
            let cluster = Cluster::decode(&*cluster.body).unwrap();
            places_of(cluster.load_assignment.unwrap())
        };
        let client = node(CLIENT, "REDIRECT");
        // Gateways stand in for endpoints that are assigned, and not for those that a proxy resolves.
        let expected = match is_assigned {
            true => &["10.2.0.2 -", "9.9.9.9 vm"][..],
            false => &["10.2.0.2 -"],
        };
        assert_eq!(seen(&client), expected, "{resolution:?}");
        let mut beside = (*client).clone();
        beside.network = Some("vm".into());
        assert_eq!(seen(&Arc::new(beside)), ["10.2.0.2 -"], "{resolution:?}");
    }
}

/// Two entries have the address of one machine: the one with the proxy's labels says where it is.
#[test]
fn the_locality_of_a_proxy_is_that_of_its_own_entry() {
    let mut world = world("localityLbSetting: {enabled: true}\n");
    for (name, region) in [("x", "r1"), ("a", "r2")] {
        let mut own = endpoint("127.0.0.2", 81, "p81");
        (own.labels, own.locality) = (labels(name), region.into());
        add(
            &mut world,
            service(name, &[(81, "HTTP")], Resolution::Static),
            vec![own],
        );
    }
    let place = |address: &str, region: &str| {
        let mut place = endpoint(address, 80, "p80");
        place.locality = region.into();
        place
    };
    add(
        &mut world,
        service("b", &[(80, "HTTP")], Resolution::Static),
        vec![place("10.1.0.1", "r1"), place("10.1.0.2", "r2")],
    );
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let first = |node: &Arc<Node>| {
        let groups = assignment(&*snapshot.view(node)).endpoints.into_iter();
        let first: Vec<_> = groups
            .filter(|group| group.priority == 0)
            .map(|group| group.locality.unwrap().region)
            .collect();
        first.join(" ")
    };
    assert_eq!(first(&with_labels(CLIENT, "a")), "r2");
    assert_eq!(first(&with_labels(CLIENT, "x")), "r1");
    assert_eq!(first(&with_labels(CLIENT, "y")), "r1 r2");
    // A proxy without labels may be either: one of the two, the same everywhere.
    assert_eq!(first(&node(CLIENT, "REDIRECT")), "r1");
}

/// An endpoint behind a gateway is called by the gateway's address: the family of its own makes no difference.
#[test]
fn families_count_for_whom_the_proxy_calls() {
    let seen = |gateways: &[&str], endpoints: &[&str], id: &str| -> Vec<String> {
        let mut world = world("enableAutoMtls: true\n");
        let gateways: Vec<_> = gateways
            .iter()
            .map(|address| format!("{{address: '{address}', port: 15443}}"))
            .collect();
        let text = format!(
            "networks: {{vm: {{gateways: [{}]}}}}\n",
            gateways.join(", ")
        );
        networks(&mut world, &text);
        let all = endpoints.iter().map(|text| {
            let (address, network) = text.split_once(' ').unwrap_or((text, ""));
            let mut place = endpoint(address, 80, "p80");
            place.network = Some(network.into()).filter(|_| !network.is_empty());
            place
        });
        let b = service("b", &[(80, "HTTP")], Resolution::Static);
        add(&mut world, b, all.collect());
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(id, "REDIRECT"));
        let weights = assignment(&*view).endpoints.into_iter();
        let weights: Vec<_> = weights
            .flat_map(|group| group.lb_endpoints)
            .map(|place| place.load_balancing_weight.unwrap().value.to_string())
            .collect();
        let mut seen = places(&*view, B);
        seen.push(weights.join(" "));
        seen
    };
    let (v4, v6) = (FIRST, "sidecar~2001:db8::a~a.demo~demo.svc.cluster.local");
    let far = ["2001:db8::7 vm", "10.2.0.2"];
    assert_eq!(
        seen(&["9.9.9.9"], &far, v4),
        ["10.2.0.2 -", "9.9.9.9 vm", "1 1"]
    );
    // Of two families' gateways the proxy's own stand for all that is there.
    let both = ["9.9.9.9", "2001:db8::99"];
    let more = ["2001:db8::7 vm", "10.3.0.1 vm", "10.2.0.2"];
    assert_eq!(seen(&both, &more, v4), ["10.2.0.2 -", "9.9.9.9 vm", "1 2"]);
    assert_eq!(seen(&both, &more, v6), ["2001:db8::99 vm", "2"]);
    // Gateways of the other family are passed over where anything else is there, and else the best there is.
    let only = ["2001:db8::99"];
    assert_eq!(seen(&only, &more, v4), ["10.2.0.2 -", "1"]);
    assert_eq!(seen(&only, &["10.3.0.1 vm"], v4), ["2001:db8::99 vm", "1"]);
    assert_eq!(
        seen(&only, &["10.3.0.1 vm", "10.2.0.2"], v6),
        ["2001:db8::99 vm", "1"]
    );
    // What is called directly is as ever.
    let direct = ["2001:db8::8", "10.2.0.2"];
    assert_eq!(seen(&["9.9.9.9"], &direct, v4), ["10.2.0.2 -", "1"]);
    assert_eq!(seen(&["9.9.9.9"], &direct[..1], v4), ["2001:db8::8 -", "1"]);
}

/// A load balancer may have a name only; it is told, and the others of the network serve.
#[test]
fn a_gateway_without_an_address_is_told() {
    let mut world = two_networks(|_| ());
    networks(
        &mut world,
        "networks:\n  vm: {gateways: [{address: 9.9.9.9, port: 15443}, {registryServiceName: gw.demo.svc.cluster.local, port: \
         15443}, {registryServiceName: gone.demo.svc.cluster.local, port: 15443}, {address: lb.example.com, port: 15443}]}\n",
    );
    let lost_gateways = |world: &World| {
        let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
        let all = snapshot.conflicts().into_iter();
        let lost: Vec<_> = all
            .map(|conflict| (conflict.metric, conflict.key))
            .collect();
        assert_eq!(snapshot.lost_gateways().count(), lost.len());
        let places = places(&*snapshot.view(&node(CLIENT, "REDIRECT")), B);
        (lost, places.len())
    };
    let metric = "gudgeon_network_gateways_without_address";
    let of = |name: &str| (metric, format!("vm {name}.demo.svc.cluster.local"));
    let lb = (metric, "vm lb.example.com".to_owned());
    add(
        &mut world,
        service("gw", &[(15443, "TLS")], Resolution::Static),
        Vec::new(),
    );
    assert_eq!(
        lost_gateways(&world),
        (vec![of("gone"), of("gw"), lb.clone()], 2)
    );
    let mut gateway = service("gw", &[(15443, "TLS")], Resolution::Static);
    let address = "9.9.9.8".parse().unwrap();
    gateway.balancers.insert("Kubernetes".into(), vec![address]);
    add(&mut world, gateway, Vec::new());
    assert_eq!(lost_gateways(&world), (vec![of("gone"), lb], 3));
}
