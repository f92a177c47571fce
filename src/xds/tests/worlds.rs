//! Random worlds: equal ones give equal bytes, however they came to be.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{Endpoint, EndpointShards, Health, Locality, Resolution, TlsMode, World};
use proptest::prelude::*;
use support::{Builder, node, settings};
use xds::node::Node;
use xds::snapshot::Snapshot;
use xds::view::{Resource, Set, Type, View};

/// A service by numbers, so that it can be made again.
#[derive(Clone, Debug)]
struct Seed {
    name: u8,
    ports: Vec<(u8, u8)>,
    resolution: u8,
    addresses: u8,
    kubernetes: bool,
    created: u8,
    endpoints: Vec<EndpointSeed>,
}

#[derive(Clone, Debug)]
struct EndpointSeed {
    last: u8,
    port: u8,
    locality: u8,
    weight: u8,
    health: u8,
    tls: bool,
    pod: bool,
}

const MESHES: [&str; 4] = [
    "",
    "enableAutoMtls: true\nlocalityLbSetting: {enabled: true}\n",
    "authPolicy: MUTUAL_TLS\naccessLogFile: /dev/stdout\naccessLogEncoding: JSON\n",
    "enableAutoMtls: true\nproxyHttpPort: 15080\noutboundTrafficPolicy: {mode: REGISTRY_ONLY}\n\
     localityLbSetting: {enabled: true, distribute: [{from: 'eu/*', to: {'eu/*': 60, us: 40}}]}\n",
];

/// Each mesh, and each once more with a policy for some of its workloads and with proxies that have no certificates.
const VARIANTS: usize = MESHES.len() * 2;

const NETWORKS: &str = "networks:\n\
    \x20 one: {endpoints: [{fromCidr: 10.0.0.0/30}]}\n\
    \x20 two: {endpoints: [{fromCidr: 10.0.0.4/30}], gateways: [{address: 198.51.100.1, port: 443}, {address: 198.51.100.2, port: 443}]}\n";

fn endpoint(seed: &EndpointSeed, port: u8) -> Endpoint {
    let address = format!("10.0.0.{}", seed.last);
    let place = api::model::EndpointAddress::read(&address);
    Endpoint {
        locality: Locality::from(["", "eu/a", "eu/b", "us"][usize::from(seed.locality % 4)]),
        weight: u32::from(seed.weight % 3),
        health: [
            Health::Ready,
            Health::Ready,
            Health::Terminating,
            Health::NotReady,
        ][usize::from(seed.health % 4)],
        tls: if seed.tls {
            TlsMode::Istio
        } else {
            TlsMode::Disabled
        },
        pod: seed.pod.then(|| format!("demo/pod-{}", seed.last).into()),
        account: seed.pod.then(|| format!("spiffe://a/{}", seed.last).into()),
        ..Endpoint::new(
            place,
            8000 + u16::from(seed.port),
            &format!("p{}", 80 + port),
        )
    }
}

fn world(seeds: &[Seed], variant: usize) -> World {
    let mut builder = Builder::new(MESHES[variant % MESHES.len()]);
    builder.networks(NETWORKS);
    if variant >= MESHES.len() {
        let spec = "{selector: {matchLabels: {app: other}}, mtls: {mode: STRICT}}";
        builder.peer_authentication("other", spec);
        let plaintext = ["10.0.0.2", "10.0.0.5"].map(|address| address.parse().unwrap());
        builder.0.plaintext = Arc::new(plaintext.into());
    }
    for seed in seeds {
        let protocols = ["HTTP", "TCP", "", "GRPC", "TLS", "GRPC-WEB"];
        let mut numbers = BTreeSet::new();
        let ports: Vec<_> = seed
            .ports
            .iter()
            .filter(|(number, _)| numbers.insert(*number))
            .map(|(number, word)| format!("{}/{}", 80 + number, protocols[usize::from(word % 6)]))
            .collect();
        let ports: Vec<_> = ports.iter().map(String::as_str).collect();
        let resolution = [
            Resolution::Static,
            Resolution::Static,
            Resolution::None,
            Resolution::Dns,
        ][usize::from(seed.resolution % 4)];
        let addresses: &[&str] = [
            &[][..],
            &["10.9.0.1"],
            &["10.9.0.0/24", "10.9.0.2"],
            &["2001:db8::1"],
        ][usize::from(seed.addresses % 4)];
        let name = format!("s{}", seed.name);
        let mut described = builder
            .service(&name, &ports, resolution)
            .at(addresses)
            .with(|service| {
                service.created = Some(i64::from(seed.created));
                if seed.kubernetes {
                    service.registry = api::model::Registry::Kubernetes;
                }
            });
        for one in &seed.endpoints {
            let made = endpoint(one, one.port % 3);
            described = described.endpoint_with("10.0.0.1 80 p80", |endpoint| *endpoint = made);
        }
        described.end();
    }
    builder.0
}

fn proxies() -> Vec<Arc<Node>> {
    let id = |address: &str| format!("sidecar~{address}~pod-2.demo~demo.svc.cluster.local");
    let mut nodes: Vec<_> = [
        (
            "10.0.0.2",
            &[
                "INTERCEPTION_MODE=REDIRECT",
                "label:security.istio.io/tlsMode=istio",
            ][..],
        ),
        ("10.0.0.3", &["INTERCEPTION_MODE=NONE"][..]),
        (
            "10.0.0.2",
            &[
                "INTERCEPTION_MODE=TPROXY",
                "INSTANCE_IPS=10.0.0.2,2001:db8::2",
                "NETWORK=one",
            ][..],
        ),
    ]
    .iter()
    .map(|(address, metadata)| node(&id(address), metadata, "/etc/certs"))
    .collect();
    nodes.push(node(
        "router~10.0.0.9~gw.demo~demo.svc.cluster.local",
        &[],
        "/etc/certs",
    ));
    nodes
}

fn everything(view: &dyn View) -> Vec<Arc<Set>> {
    Type::ALL.map(|kind| view.all(kind)).into()
}

fn bytes(sets: &[Arc<Set>]) -> Vec<Vec<Resource>> {
    sets.iter()
        .map(|set| set.iter().map(|resource| (**resource).clone()).collect())
        .collect()
}

/// Keeps the last of names that are there twice, as a registry does.
fn last_of_each(seeds: Vec<Seed>) -> Vec<Seed> {
    let mut known = BTreeSet::new();
    let mut last: Vec<_> = seeds
        .into_iter()
        .rev()
        .filter(|seed| known.insert(seed.name))
        .collect();
    last.reverse();
    last
}

prop_compose! {
    fn an_endpoint()(last in 1u8..9, port in 0u8..3, locality: u8, weight: u8, health: u8, tls: bool, pod: bool) -> EndpointSeed {
        EndpointSeed { last, port, locality, weight, health, tls, pod }
    }
}

prop_compose! {
    fn a_service()(
        name in 0u8..8,
        ports in prop::collection::vec((0u8..3, any::<u8>()), 1..4),
        resolution: u8, addresses: u8, kubernetes: bool, created in 0u8..3,
        endpoints in prop::collection::vec(an_endpoint(), 0..5),
    ) -> Seed {
        Seed { name, ports, resolution, addresses, kubernetes, created, endpoints }
    }
}

fn is_equal_in_any_order(seeds: &[Seed], mesh: usize) -> Result<(), TestCaseError> {
    let mut turned = seeds.to_vec();
    turned.reverse();
    for seed in &mut turned {
        seed.endpoints.reverse();
    }
    let one = Snapshot::new(world(seeds, mesh), settings());
    let before = Snapshot::new(world(&seeds[..seeds.len() / 2], 0), settings());
    for node in proxies() {
        let _made = everything(&*before.view(&node));
    }
    let other = before.next(world(&turned, mesh), None, None);
    prop_assert!(other.full);
    for node in proxies() {
        let (one, other) = (one.view(&node), other.snapshot.view(&node));
        prop_assert_eq!(
            bytes(&everything(&*one)),
            bytes(&everything(&*other)),
            "{:?}",
            node
        );
    }
    Ok(())
}

fn an_endpoint_of(last: u8, port: u8) -> EndpointSeed {
    EndpointSeed {
        last,
        port,
        locality: 0,
        weight: 0,
        health: 0,
        tls: false,
        pod: false,
    }
}

fn a_service_of(name: u8, ports: Vec<(u8, u8)>, endpoints: Vec<EndpointSeed>) -> Seed {
    Seed {
        name,
        ports,
        resolution: 0,
        addresses: 0,
        kubernetes: false,
        created: 0,
        endpoints,
    }
}

/// Two entries have the proxy's address, and say that it is in two places.
#[test]
fn entries_that_disagree_about_a_proxys_place() {
    let endpoint = |last, locality, weight| EndpointSeed {
        locality,
        weight,
        ..an_endpoint_of(last, 0)
    };
    let seeds = [
        a_service_of(3, vec![(0, 0)], vec![endpoint(1, 0, 1), endpoint(1, 1, 1)]),
        a_service_of(0, vec![(0, 0)], vec![endpoint(2, 1, 0), endpoint(2, 3, 0)]),
    ];
    is_equal_in_any_order(&seeds, 1).unwrap();
}

/// One address is there twice, and only one of the two takes mutual TLS.
#[test]
fn entries_that_disagree_about_tls() {
    let endpoint = |tls| EndpointSeed {
        tls,
        weight: 1,
        ..an_endpoint_of(5, 0)
    };
    let seeds = [a_service_of(
        0,
        vec![(0, 0)],
        vec![endpoint(true), endpoint(false)],
    )];
    is_equal_in_any_order(&seeds, 0).unwrap();
}

/// The endpoint of a headless service serves another port of it: there is a listener more, though no address is new.
#[test]
fn an_endpoint_that_serves_another_port() {
    let of = |port| {
        let mut endpoint = an_endpoint_of(5, port);
        endpoint.weight = 1;
        [Seed {
            kubernetes: true,
            resolution: 2,
            ..a_service_of(0, vec![(0, 1)], vec![endpoint])
        }]
    };
    let node = &proxies()[0];
    let before = Snapshot::new(world(&of(1), 0), settings());
    let _made = everything(&*before.view(node));
    let hosts = BTreeSet::from(["s0.demo.svc.cluster.local".into()]);
    let next = before.next(world(&of(0), 0), Some(&hosts), None);
    let fresh = Snapshot::new(world(&of(0), 0), settings());
    let [after, fresh] =
        [next.snapshot, fresh].map(|snapshot| bytes(&everything(&*snapshot.view(node))));
    assert_eq!(after, fresh);
}

/// The first endpoint that is called in plain text changes its clusters, another one of the same reason does not.
#[test]
fn endpoints_that_are_called_plain_come_and_go() {
    let of = |lasts: &[u8]| {
        let endpoints = lasts.iter().map(|last| EndpointSeed {
            tls: true,
            weight: 1,
            ..an_endpoint_of(*last, 0)
        });
        [a_service_of(0, vec![(0, 0)], endpoints.collect())]
    };
    let node = &proxies()[0];
    let hosts = BTreeSet::from(["s0.demo.svc.cluster.local".into()]);
    for (variant, before, after, is_full) in [
        (MESHES.len(), &[1_u8][..], &[1, 3][..], false),
        (MESHES.len(), &[1, 3], &[3], false),
        // Without mutual TLS in the mesh the policy is for other workloads.
        (MESHES.len(), &[], &[1], false),
        (MESHES.len() + 1, &[1], &[1, 2], true),
        (MESHES.len() + 1, &[1, 2], &[2, 3], false),
        (MESHES.len() + 1, &[1, 2], &[1], true),
    ] {
        let old = Snapshot::new(world(&of(before), variant), settings());
        let earlier = everything(&*old.view(node));
        let next = old.next(world(&of(after), variant), Some(&hosts), None);
        let fresh = Snapshot::new(world(&of(after), variant), settings());
        let case = format!("{variant} {before:?} {after:?}");
        assert_eq!(next.full, is_full, "{case}");
        let [after, fresh] =
            [next.snapshot, fresh].map(|snapshot| everything(&*snapshot.view(node)));
        assert_eq!(bytes(&after), bytes(&fresh), "{case}");
        let clusters = Type::ALL
            .iter()
            .position(|kind| *kind == Type::Cluster)
            .unwrap();
        let is_same = earlier[clusters].version() == after[clusters].version();
        assert_eq!(is_same, !is_full, "{case}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Services and endpoints in another order, on a replica that made other things before.
    #[test]
    fn equal_worlds_give_equal_bytes(seeds in prop::collection::vec(a_service(), 0..8), mesh in 0..VARIANTS) {
        is_equal_in_any_order(&last_of_each(seeds), mesh)?;
    }

    /// Resources taken over from the snapshot before are those that would have been made.
    #[test]
    fn a_change_of_endpoints_gives_what_a_start_would(
        seeds in prop::collection::vec(a_service(), 1..6),
        endpoints in prop::collection::vec(an_endpoint(), 0..5),
        at in 0usize..6,
        mesh in 0..VARIANTS,
    ) {
        let mut seeds = last_of_each(seeds);
        let before = Snapshot::new(world(&seeds, mesh), settings());
        let nodes = proxies();
        let views: Vec<_> = nodes.iter().map(|node| before.view(node)).collect();
        let earlier: Vec<_> = views.iter().map(|view| everything(&**view)).collect();
        let at = at % seeds.len();
        seeds[at].endpoints = endpoints;
        let changed = format!("s{}.demo.svc.cluster.local", seeds[at].name);
        let hosts = BTreeSet::from([Arc::from(changed.as_str())]);
        let next = before.next(world(&seeds, mesh), Some(&hosts), None);
        let fresh = Snapshot::new(world(&seeds, mesh), settings());
        for ((node, view), earlier) in nodes.iter().zip(&views).zip(earlier) {
            let after = everything(&*next.snapshot.view_after(view, node));
            prop_assert_eq!(bytes(&after), bytes(&everything(&*fresh.view(node))), "{:?}", node);
            // Whoever did not change and has no address that moved, holds what he held.
            let moved = node.addresses.iter().any(|address| next.moved.contains(address));
            if !next.full && !moved {
                for (kind, (earlier, after)) in Type::ALL.into_iter().zip(earlier.iter().zip(&after)) {
                    let same = kind == Type::Endpoint || earlier.version() == after.version();
                    prop_assert!(same, "{:?} of {:?}", kind, node);
                }
            }
            // The bytes of what did not change are the same bytes.
            // But where it matters where the proxy is, an endpoint may say that.
            let by_locality = MESHES[mesh % MESHES.len()].contains("locality");
            for (kind, (earlier, after)) in Type::ALL.into_iter().zip(earlier.iter().zip(&after)) {
                if by_locality && matches!(kind, Type::Endpoint | Type::Cluster) {
                    continue;
                }
                for resource in after.iter() {
                    if let Some(known) = earlier.get(&resource.name) {
                        let shared = known.version != resource.version || Arc::ptr_eq(known, resource) || is_own(&resource.name);
                        prop_assert!(shared, "{:?}", resource);
                    }
                }
            }
        }
    }
}

/// Made for each proxy.
fn is_own(name: &str) -> bool {
    name.starts_with("inbound|")
        || name.starts_with("virtual")
        || name.starts_with("10.0.0.")
        || name.starts_with("2001:db8::2_")
        || name.ends_with("_15080")
}

#[test]
fn two_proxies_that_see_the_same_share_it() {
    let mut builder = Builder::new("");
    builder
        .service("b", &["80/HTTP"], Resolution::Static)
        .endpoint("10.0.0.1 80 p80")
        .end();
    let snapshot = Snapshot::new(builder.0, settings());
    let views = ["10.0.0.2", "10.0.0.3"].map(|address| {
        let id = format!("sidecar~{address}~a.demo~demo.svc.cluster.local");
        snapshot.view(&node(&id, &["INTERCEPTION_MODE=NONE"], "/etc/certs"))
    });
    for kind in Type::ALL {
        let [one, other] = [0, 1].map(|at: usize| views[at].all(kind));
        // Secrets are for routers.
        assert_eq!(one.is_empty(), kind == Type::Secret, "{kind:?}");
        for (one, other) in one.iter().zip(&*other) {
            assert!(Arc::ptr_eq(one, other), "{one:?}");
        }
    }
}

#[test]
fn shards_of_a_cluster_that_goes_take_their_endpoints_along() {
    let mut builder = Builder::new("");
    builder
        .service("b", &["80/HTTP"], Resolution::Static)
        .endpoint("10.0.0.1 80 p80")
        .end();
    let mut world = builder.0;
    let key = world.services.keys().next().unwrap().clone();
    let shards = EndpointShards::from([(
        "east".into(),
        Arc::from([Endpoint::new(
            api::model::EndpointAddress::read("10.0.0.2"),
            80,
            "p80",
        )]),
    )]);
    let both = {
        let mut both = (*world.endpoints[&key]).clone();
        both.extend(shards);
        both
    };
    let before = world.clone();
    Arc::make_mut(&mut world.endpoints).insert(key.clone(), Arc::new(both));
    let size = |snapshot: &Arc<Snapshot>| {
        let view = snapshot.view(&node(
            "sidecar~10.0.0.9~a.demo~demo.svc.cluster.local",
            &[],
            "/c",
        ));
        view.get(Type::Endpoint, "outbound|80||b.demo.svc.cluster.local")
            .unwrap()
            .body
            .len()
    };
    let two = Snapshot::new(world, settings());
    let one = two.next(before, Some(&BTreeSet::from([key.hostname])), None);
    assert!(!one.full);
    assert!(size(&one.snapshot) < size(&two));
}
