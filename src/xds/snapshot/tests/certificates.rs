//! Mutual TLS where it can be had, and proxies that have no certificates.

use api::model::TlsMode;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;

use super::*;

const AUTO: &str = "enableAutoMtls: true\n";
const STRICT: &str = "authPolicy: MUTUAL_TLS\n";
const B: &str = "outbound|80||b.demo.svc.cluster.local";

fn labels() -> Arc<Labels> {
    Arc::new(Labels::from([(
        "security.istio.io/tlsMode".into(),
        "istio".into(),
    )]))
}

/// `a` with the address of the proxy, and `b` elsewhere; both take mutual TLS by their labels.
fn mesh(text: &str) -> World {
    let mut world = world(text);
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
        let endpoint = Endpoint {
            labels: labels(),
            tls: TlsMode::Istio,
            ..endpoint(address, 8080, "p80")
        };
        let one = service(name, &[(80, "HTTP")], Resolution::Static);
        add(&mut world, one, vec![endpoint]);
    }
    world
}

fn proxy(without_certificates: bool) -> Arc<Node> {
    let node = (*node(FIRST, "REDIRECT")).clone();
    Arc::new(Node {
        labels: labels(),
        without_certificates,
        ..node
    })
}

/// Whether it takes mutual TLS, plain connections, and calls others by mutual TLS.
fn speaks(world: &World, node: &Arc<Node>) -> [bool; 3] {
    let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let view = snapshot.view(node);
    let listener = view.get(Type::Listener, "10.0.0.1_8080").unwrap();
    let chains = Listener::decode(&*listener.body).unwrap().filter_chains;
    let secured = |chain: &envoy_types::pb::envoy::config::listener::v3::FilterChain| {
        chain.transport_socket.is_some()
    };
    let cluster = Cluster::decode(&*view.get(Type::Cluster, B).unwrap().body).unwrap();
    [
        chains.iter().any(secured),
        !chains.iter().all(secured),
        !cluster.transport_socket_matches.is_empty(),
    ]
}

#[test]
fn a_proxy_without_certificates_is_plain_on_both_sides_where_it_may_be() {
    for (mesh_text, without, expected) in [
        (AUTO, false, [true, true, true]),
        (AUTO, true, [false, true, false]),
        (STRICT, false, [true, false, true]),
        // Nobody may do without.
        (STRICT, true, [true, false, true]),
        ("", true, [false, true, false]),
    ] {
        let world = mesh(mesh_text);
        assert_eq!(
            speaks(&world, &proxy(without)),
            expected,
            "{mesh_text} {without}"
        );
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        assert_eq!(
            snapshot.is_plain(&proxy(without)),
            mesh_text == AUTO && without
        );
    }
}

/// Other proxies are told to call such an endpoint in plain text.
#[test]
fn endpoints_of_proxies_without_certificates_are_called_plain() {
    let tls = |world: &World| {
        let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
        tls_of(&*snapshot.view(&proxy(false)))
    };
    for (text, says_tls) in [(AUTO, false), (STRICT, true)] {
        let mut world = mesh(text);
        assert!(tls(&world));
        let others = BTreeSet::from(["10.0.0.3".parse().unwrap()]);
        world.plaintext = Arc::new(others);
        assert!(tls(&world));
        world.plaintext = Arc::new(BTreeSet::from(["10.0.0.2".parse().unwrap()]));
        assert_eq!(tls(&world), says_tls, "{text}");
    }
}

/// Envoy keeps the connections of an endpoint whose metadata changes: those of a cluster that changes are made anew.
#[test]
fn a_cluster_differs_with_its_plain_endpoints() {
    let cluster = |plaintext: &[&str], name: &str| {
        let mut world = mesh(AUTO);
        let plaintext = plaintext.iter().map(|address| address.parse().unwrap());
        world.plaintext = Arc::new(plaintext.collect());
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let found = snapshot.view(&proxy(false)).get(Type::Cluster, name);
        found.unwrap().version
    };
    let none = cluster(&[], B);
    assert_eq!(cluster(&["10.0.0.3"], B), none);
    assert_eq!(cluster(&["10.0.0.1"], B), none);
    let one = cluster(&["10.0.0.2"], B);
    assert_ne!(one, none);
    assert_eq!(cluster(&["10.0.0.2", "10.0.0.3"], B), one);
}

fn tls_of(view: &dyn View) -> bool {
    let assignment = view.get(Type::Endpoint, B).unwrap();
    let assignment = ClusterLoadAssignment::decode(&*assignment.body).unwrap();
    let metadata = assignment.endpoints[0].lb_endpoints[0].metadata.as_ref();
    metadata.is_some_and(|all| {
        all.filter_metadata
            .contains_key("envoy.transport_socket_match")
    })
}
