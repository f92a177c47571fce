//! The proxies that see a service (discovery.md §13), and that all others share all bytes.

use super::*;

/// The service of this name is exported to these.
fn export(world: &mut World, host: &str, to: &[&str]) {
    let services = Arc::make_mut(&mut world.services);
    for (_, service) in services
        .iter_mut()
        .filter(|(key, _)| *key.hostname == *host)
    {
        let service = Arc::make_mut(service);
        service.exported_to = to.iter().map(|&to| to.into()).collect();
    }
}

fn with_default(to: &str) -> World {
    let text = format!("defaultServiceExportTo: {to}");
    let config = mesh::parse_over(&mesh::discovery_defaults(), &text);
    World {
        mesh: Arc::new(config.unwrap().config),
        ..world()
    }
}

const A: &str = "a.demo.svc.cluster.local";
const OF_A: &str = "outbound|90||a.demo.svc.cluster.local";

/// Returns which resources of the service `a` a proxy has: its cluster, its endpoints, its listener, its route.
fn has(view: &dyn View) -> [bool; 4] {
    let routes: RouteConfiguration = decoded(view, Type::Route, "80");
    let endpoints = view.get(Type::Endpoint, OF_A);
    assert_eq!(
        endpoints.is_some(),
        view.name(Type::Endpoint, OF_A).is_some()
    );
    [
        view.get(Type::Cluster, OF_A).is_some(),
        endpoints.is_some(),
        view.get(Type::Listener, "0.0.0.0_90").is_some(),
        routes
            .virtual_hosts
            .iter()
            .any(|one| one.name == format!("{A}:80")),
    ]
}

#[test]
fn a_service_is_seen_by_those_that_it_is_exported_to() {
    let rows: [(&str, &[&str], [bool; 3]); 9] = [
        ("['*']", &[], [true, true, true]),
        ("['*']", &["*"], [true, true, true]),
        ("['*']", &["."], [true, false, false]),
        ("['*']", &["third"], [false, false, true]),
        ("['*']", &[".", "other"], [true, true, false]),
        ("['*']", &["~"], [false, false, false]),
        ("['.']", &[], [true, false, false]),
        ("['.']", &["*"], [true, true, true]),
        ("['~']", &[], [false, false, false]),
    ];
    for (usual, to, wanted) in rows {
        let mut world = with_default(usual);
        export(&mut world, A, to);
        // Somebody must be on port 80 for everybody.
        export(&mut world, "c.other.svc.cluster.local", &["*"]);
        let snapshot = snapshot(world);
        for (namespace, wanted) in ["demo", "other", "third"].into_iter().zip(wanted) {
            let view = snapshot.view(&node(namespace, &[]));
            assert_eq!(has(&*view), [wanted; 4], "{usual} {to:?} {namespace}");
        }
        assert_eq!(snapshot.conflicts(), []);
    }
}

#[test]
fn a_program_with_grpc_in_it_calls_what_its_namespace_sees() {
    let mut world = world();
    export(&mut world, A, &["."]);
    let snapshot = snapshot(world);
    for (namespace, sees) in [("demo", true), ("other", false)] {
        let mut client = (*node(namespace, &[])).clone();
        client.grpc = true;
        let view = snapshot.view(&Arc::new(client));
        let name = "outbound|80||a.demo.svc.cluster.local";
        for (kind, name) in [
            (Type::Listener, "a.demo.svc.cluster.local:80"),
            (Type::Cluster, name),
            (Type::Endpoint, name),
            (Type::Route, name),
        ] {
            assert_eq!(view.get(kind, name).is_some(), sees, "{namespace} {kind:?}");
        }
    }
}

/// Two tenants may have a service of one name, each its own.
#[test]
fn a_name_means_what_each_namespace_sees_by_it() {
    let mut world = world();
    let of = |namespace: &str, address: &str, world: &mut World| {
        let name = format!("twin.{namespace}");
        service(
            world,
            &name,
            &[(80, "HTTP"), (90, "TCP")],
            &[(address, "v1")],
        );
        let key = ServiceKey::new(&format!("{name}.svc.cluster.local"), namespace);
        let shared = ServiceKey::new("twin.example", namespace);
        let mut twin = (*Arc::make_mut(&mut world.services).remove(&key).unwrap()).clone();
        let shards = Arc::make_mut(&mut world.endpoints).remove(&key).unwrap();
        twin.key = shared.clone();
        twin.exported_to = vec![".".into()];
        Arc::make_mut(&mut world.services).insert(shared.clone(), Arc::new(twin));
        Arc::make_mut(&mut world.endpoints).insert(shared, shards);
    };
    of("demo", "10.0.7.1", &mut world);
    of("other", "10.0.7.2", &mut world);
    let twin = "outbound|80||twin.example";
    let snapshot = snapshot(world.clone());
    let seen = |namespace: &str| {
        let view = snapshot.view(&node(namespace, &[]));
        let there = view.get(Type::Cluster, twin).is_some();
        assert_eq!(there, view.get(Type::Endpoint, twin).is_some());
        there.then(|| addresses(&*view, twin))
    };
    assert_eq!(seen("demo").unwrap(), ["10.0.7.1"]);
    assert_eq!(seen("other").unwrap(), ["10.0.7.2"]);
    assert_eq!(seen("third"), None);
    assert_eq!(snapshot.conflicts(), [], "nobody sees both");
    // Whoever sees both has the older one, and that is told.
    export(&mut world, "twin.example", &["third"]);
    let snapshot = super::snapshot(world);
    let view = snapshot.view(&node("third", &[]));
    assert_eq!(addresses(&*view, twin), ["10.0.7.1"]);
    let conflicts = snapshot.conflicts();
    let twice = conflicts
        .iter()
        .filter(|one| one.metric == "pilot_duplicate_envoy_clusters");
    assert_eq!(twice.clone().count(), 2, "{conflicts:?}");
    // That is so for none but those.
    let message = "other/twin.example is left out for proxies that see demo/twin.example, too, which is older";
    assert!(
        twice.clone().all(|one| one.message == message),
        "{conflicts:?}"
    );
}

#[test]
fn proxies_that_see_the_same_services_share_their_bytes() {
    let mut world = world();
    export(&mut world, A, &["."]);
    let snapshot = snapshot(world);
    let [demo, third, fourth] =
        ["demo", "third", "fourth"].map(|one| snapshot.view(&node(one, &[])));
    for kind in [Type::Cluster, Type::Listener] {
        assert!(Arc::ptr_eq(&third.all(kind), &fourth.all(kind)), "{kind:?}");
    }
    // Of the others' each resource that is the same.
    let b = "outbound|80||b.demo.svc.cluster.local";
    for (kind, name) in [
        (Type::Cluster, b),
        (Type::Endpoint, b),
        (Type::Listener, "0.0.0.0_80"),
    ] {
        let both = [&demo, &third].map(|view| view.get(kind, name).unwrap());
        assert!(Arc::ptr_eq(&both[0], &both[1]), "{name}");
    }
}

/// The application of a service that nobody else is to call has its proxy, and the limits of its rules.
#[test]
fn workloads_serve_what_their_own_namespace_does_not_see() {
    let mut world = world();
    export(&mut world, A, &["third"]);
    let services = Arc::make_mut(&mut world.services);
    let key = ServiceKey::new(A, "demo");
    Arc::make_mut(services.get_mut(&key).unwrap()).selector = labels(&[("app", "a")]);
    destination_rule(
        &mut world,
        "d",
        1,
        "host: a\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}",
    );
    let view = snapshot(world).view(&node("demo", &[("app", "a")]));
    let one = cluster(&*view, "inbound|80|p80|a.demo.svc.cluster.local");
    let thresholds = &one.circuit_breakers.unwrap().thresholds[0];
    assert_eq!(thresholds.max_connections.unwrap().value, 7);
}

/// A NACK names clusters and listeners: whoever knows what services were made of tells it there.
#[test]
fn a_resource_says_the_services_that_it_is_about() {
    let mut world = world();
    destination_rule(
        &mut world,
        "d",
        1,
        "host: a\nsubsets: [{name: v1, labels: {version: v1}}]",
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let of = |kind: Type, name: &str| -> Vec<String> {
        let keys = view.services_of(kind, name).into_iter();
        keys.map(|key| format!("{}/{}", key.namespace, key.hostname))
            .collect()
    };
    let [a, b, c] = ["demo/a.demo", "demo/b.demo", "other/c.other"];
    let [a, b, c] = [a, b, c].map(|name| format!("{name}.svc.cluster.local"));
    for kind in [Type::Cluster, Type::Endpoint] {
        for name in ["outbound|90||a", "outbound|80|v1|a"] {
            let name = format!("{name}.demo.svc.cluster.local");
            assert_eq!(of(kind, &name), [&*a], "{name}");
        }
    }
    assert_eq!(of(Type::Route, "a.demo.svc.cluster.local:80"), [&*a]);
    let mut all = of(Type::Listener, "0.0.0.0_80");
    all.sort();
    assert_eq!(all, [a, b, c]);
    for (kind, name) in [
        (Type::Cluster, "BlackHoleCluster"),
        (Type::Cluster, "inbound|80|p80|a.demo.svc.cluster.local"),
        (Type::Listener, "virtualInbound"),
        (Type::Route, "80"),
        (Type::Secret, "x"),
    ] {
        assert!(of(kind, name).is_empty(), "{name}");
    }
}
