//! The proxies that see a rule (discovery.md §13, §15), and that those who see the same share all bytes.

use super::*;

const A: &str = "outbound|80||a.demo.svc.cluster.local";

fn path(view: &dyn View, name: &str) -> Option<String> {
    let metadata = cluster(view, name).metadata?;
    match metadata.filter_metadata["istio"].fields["config"]
        .kind
        .clone()
    {
        Some(value::Kind::StringValue(path)) => path.rsplit('/').next().map(str::to_owned),
        other => panic!("{other:?}"),
    }
}

/// The rules that hold for a service, from each of these namespaces.
fn applied_rules(world: &World, namespaces: &[&str]) -> Vec<Option<String>> {
    let snapshot = snapshot(world.clone());
    let views = namespaces.iter().map(|one| snapshot.view(&node(one, &[])));
    views.map(|view| path(&*view, A)).collect()
}

#[test]
fn the_clients_namespace_comes_before_the_services_and_that_before_the_root() {
    let some = |name: &str| Some(name.to_owned());
    let host = "host: a.demo.svc.cluster.local";
    let mut world = world();
    destination_rule(
        &mut world,
        "istio-system/root",
        1,
        "host: '*.demo.svc.cluster.local'",
    );
    assert_eq!(
        applied_rules(&world, &["demo", "other", "third"]),
        [some("root"), some("root"), some("root")]
    );
    destination_rule(&mut world, "demo/own", 1, host);
    assert_eq!(
        applied_rules(&world, &["demo", "other", "third"]),
        [some("own"), some("own"), some("own")]
    );
    destination_rule(&mut world, "other/client", 1, host);
    assert_eq!(
        applied_rules(&world, &["demo", "other", "third"]),
        [some("own"), some("client"), some("own")]
    );
    // Of one namespace the more specific host.
    destination_rule(
        &mut world,
        "other/wild",
        0,
        "host: '*.demo.svc.cluster.local'",
    );
    assert_eq!(applied_rules(&world, &["other"]), [some("client")]);
}

/// Rules of the root namespace are for the mesh; a rule that no other namespace sees is for the proxies beside it.
#[test]
fn rules_for_the_mesh_come_last_for_proxies_of_the_root_namespace_too() {
    let mut world = world();
    let applied = |world: &World, name: &str| {
        let snapshot = snapshot(world.clone());
        let sidecar = node("istio-system", &[("app", "x")]);
        let all = [gateways::router("istio-system"), sidecar];
        all.map(|node| path(&*snapshot.view(&node), name).unwrap_or_default())
    };
    let mesh = "host: '*.local'\ntrafficPolicy: {tls: {mode: ISTIO_MUTUAL}}";
    destination_rule(&mut world, "istio-system/mesh", 1, mesh);
    let subset = "host: a\nsubsets: [{name: v1, labels: {version: v1}}]";
    destination_rule(&mut world, "demo/service", 1, subset);
    assert_eq!(applied(&world, A), ["service", "service"]);
    let v1 = "outbound|80|v1|a.demo.svc.cluster.local";
    assert_eq!(applied(&world, v1), ["service", "service"]);
    let c = "outbound|80||c.other.svc.cluster.local";
    assert_eq!(applied(&world, c), ["mesh", "mesh"]);
    let host = "host: a.demo.svc.cluster.local";
    for (to, wanted) in [
        ("exportTo: [demo]", ["service", "service"]),
        ("exportTo: ['.', demo]", ["service", "service"]),
        ("exportTo: ['.']", ["own", "own"]),
        ("exportTo: [istio-system]", ["own", "own"]),
        (
            "workloadSelector: {matchLabels: {app: x}}",
            ["service", "own"],
        ),
    ] {
        let mut world = world.clone();
        let own = format!("{host}\n{to}");
        destination_rule(&mut world, "istio-system/own", 2, &own);
        assert_eq!(applied(&world, A), wanted, "{to}");
        assert_eq!(
            applied_rules(&world, &["demo"]),
            [Some("service".to_owned())]
        );
    }
}

#[test]
fn a_rule_is_seen_by_those_that_it_is_exported_to() {
    let some = |name: &str| Some(name.to_owned());
    for (to, wanted) in [
        ("['*']", [some("d"), some("d"), some("d")]),
        ("['.']", [some("d"), None, None]),
        ("[third]", [None, None, some("d")]),
        ("['.', other]", [some("d"), some("d"), None]),
    ] {
        let mut world = world();
        destination_rule(&mut world, "demo/d", 1, &format!("host: a\nexportTo: {to}"));
        assert_eq!(
            applied_rules(&world, &["demo", "other", "third"]),
            wanted,
            "{to}"
        );
    }
    let answers = |world: &World| -> Vec<usize> {
        let snapshot = snapshot(world.clone());
        let of = |namespace: &&str| {
            let view = snapshot.view(&node(namespace, &[]));
            let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
            let hosts = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
            hosts.filter(|route| route.name == "own").count()
        };
        ["demo", "other", "third"].iter().map(of).collect()
    };
    for (to, wanted) in [
        ("['*']", [1, 1, 1]),
        ("['.']", [1, 0, 0]),
        ("[third]", [0, 0, 1]),
    ] {
        let mut world = world();
        let spec = format!(
            "hosts: [a]\nexportTo: {to}\nhttp: [{{name: own, directResponse: {{status: 418}}}}]"
        );
        virtual_service(&mut world, "demo/r", 1, &spec);
        assert_eq!(answers(&world), wanted, "{to}");
    }
}

#[test]
fn two_rules_of_a_namespace_for_one_host_are_one() {
    let mut world = world();
    let policy = |simple: &str| format!("trafficPolicy: {{loadBalancer: {{simple: {simple}}}}}");
    let subsets = "subsets: [{name: v1, labels: {version: v1}}";
    destination_rule(
        &mut world,
        "later",
        2,
        &format!(
            "host: a\n{}\n{subsets}, {{name: v2, labels: {{version: v2}}}}]",
            policy("RANDOM")
        ),
    );
    destination_rule(
        &mut world,
        "first",
        1,
        &format!("host: a\n{}\n{subsets}]", policy("LEAST_REQUEST")),
    );
    let view = view(world);
    let random = cluster(&*view, A).lb_policy;
    assert_eq!(random, 1, "the older one's");
    assert_eq!(
        addresses(&*view, "outbound|80|v2|a.demo.svc.cluster.local"),
        ["10.0.1.3"]
    );
    // Each cluster names the rules that decide about it.
    for (name, count) in [(A, 1), ("outbound|80|v2|a.demo.svc.cluster.local", 2)] {
        let from = view.get(Type::Cluster, name).unwrap().from.clone();
        assert_eq!(from.len(), count, "{name}: {from:?}");
    }
}

#[test]
fn a_rule_for_some_workloads_is_for_those_of_its_namespace() {
    let mut world = world();
    destination_rule(
        &mut world,
        "demo/some",
        1,
        "host: a\nworkloadSelector: {matchLabels: {app: x}}",
    );
    let snapshot = snapshot(world);
    let of =
        |namespace: &str, app: &str| path(&*snapshot.view(&node(namespace, &[("app", app)])), A);
    assert_eq!(of("demo", "x").as_deref(), Some("some"));
    assert_eq!(of("demo", "y"), None);
    assert_eq!(of("other", "x"), None);
}

#[test]
fn routes_are_told_apart_by_who_asks() {
    let mut world = world();
    virtual_service(
        &mut world,
        "r",
        1,
        "hosts: [a]\nhttp:\n\
         - {name: labels, match: [{sourceLabels: {app: x}}], directResponse: {status: 401}}\n\
         - {name: namespace, match: [{sourceNamespace: other}], directResponse: {status: 402}}\n\
         - {name: rest, directResponse: {status: 403}}",
    );
    let snapshot = snapshot(world);
    let of = |namespace: &str, app: &str| -> Vec<String> {
        let view = snapshot.view(&node(namespace, &[("app", app)]));
        let routes = routes_of(&*view, "80", "a.demo.svc.cluster.local:80");
        routes.into_iter().map(|route| route.name).collect()
    };
    let clusters = ["x", "y"].map(|app| {
        snapshot
            .view(&node("demo", &[("app", app)]))
            .all(Type::Cluster)
    });
    assert!(
        Arc::ptr_eq(&clusters[0], &clusters[1]),
        "they depend on no such labels"
    );
    assert_eq!(of("demo", "x"), ["labels"]);
    assert_eq!(of("other", "y"), ["namespace"]);
    assert_eq!(of("demo", "y"), ["rest"]);
}

#[test]
fn proxies_of_one_scope_share_their_bytes() {
    let mut world = world();
    destination_rule(
        &mut world,
        "demo/d",
        1,
        "host: a\nsubsets: [{name: v1, labels: {version: v1}}]",
    );
    destination_rule(&mut world, "other/d", 1, "host: a.demo.svc.cluster.local");
    let snapshot = snapshot(world);
    let [demo, third, fourth, other] =
        ["demo", "third", "fourth", "other"].map(|one| snapshot.view(&node(one, &[])));
    let all = demo.all(Type::Cluster);
    for view in [&third, &fourth] {
        assert!(Arc::ptr_eq(&all, &view.all(Type::Cluster)));
    }
    let others = other.all(Type::Cluster);
    let shared = |name: &str| Arc::ptr_eq(all.get(name).unwrap(), others.get(name).unwrap());
    assert!(!shared(A), "it has a rule of its own");
    assert!(shared("outbound|80||b.demo.svc.cluster.local"));
    assert!(
        others
            .get("outbound|80|v1|a.demo.svc.cluster.local")
            .is_none()
    );
    // And of the assignments all.
    let name = "outbound|80|v1|a.demo.svc.cluster.local";
    let both = [&demo, &third].map(|view| view.get(Type::Endpoint, name).unwrap());
    assert!(Arc::ptr_eq(&both[0], &both[1]));
    assert!(Arc::ptr_eq(
        &demo.get(Type::Endpoint, A).unwrap(),
        &other.get(Type::Endpoint, A).unwrap()
    ));
}

#[test]
fn endpoints_of_a_subset_are_no_full_push() {
    let mut before = world();
    destination_rule(
        &mut before,
        "d",
        1,
        "host: a\nsubsets: [{name: v1, labels: {version: v1}}]",
    );
    let first = snapshot(before.clone());
    let node = node("demo", &[]);
    let v1 = "outbound|80|v1|a.demo.svc.cluster.local";
    let older = first.view(&node);
    assert_eq!(addresses(&*older, v1).len(), 2);
    let mut after = before;
    service(
        &mut after,
        "a.demo",
        &[(80, "HTTP"), (90, "TCP")],
        &[("10.0.1.1", "v1"), ("10.0.1.3", "v2")],
    );
    let host = "a.demo.svc.cluster.local".into();
    let next = first.next(after, Some(&[host].into()), None);
    assert!(!next.full);
    let view = next.snapshot.view(&node);
    assert_eq!(addresses(&*view, v1), ["10.0.1.1"]);
    assert!(Arc::ptr_eq(
        &older.all(Type::Cluster),
        &view.all(Type::Cluster)
    ));
}

/// One object of a megabyte must not become gigabytes.
#[test]
fn routes_of_one_rule_are_bounded() {
    let mut world = world();
    let matches: Vec<_> = (0..5000)
        .map(|at| format!("{{uri: {{exact: /{at}}}}}"))
        .collect();
    let http = format!(
        "http: [{{match: [{}], directResponse: {{status: 200, body: {{string: {}}}}}}}]",
        matches.join(", "),
        "x".repeat(500_000)
    );
    virtual_service(&mut world, "wide", 1, &format!("hosts: [a]\n{http}"));
    virtual_service(
        &mut world,
        "b",
        1,
        "hosts: [b]\nhttp: [{directResponse: {status: 200}}]",
    );
    let names = "y".repeat(400_000);
    let subsets: Vec<_> = (0..900)
        .map(|at| format!("{{name: s{at}, labels: {{a: b}}}}"))
        .collect();
    let policy = format!(
        "trafficPolicy: {{tls: {{mode: SIMPLE, caCertificates: /c, subjectAltNames: [{names}]}}}}"
    );
    destination_rule(
        &mut world,
        "wide",
        1,
        &format!("host: a\n{policy}\nsubsets: [{}]", subsets.join(", ")),
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(
        routes_of(&*view, "80", "a.demo.svc.cluster.local:80")[0].name,
        "default"
    );
    assert_eq!(
        routes_of(&*view, "80", "b.demo.svc.cluster.local:80")[0].name,
        ""
    );
    let bytes: usize = view
        .all(Type::Cluster)
        .iter()
        .map(|one| one.body.len())
        .sum();
    assert!(bytes < 40 << 20, "{bytes}");
    let conflicts = snapshot
        .conflicts()
        .into_iter()
        .filter(|one| one.metric == "gudgeon_rules_too_large");
    assert!(conflicts.count() >= 1);
}

/// A tenant's wildcard must not give every service of the mesh as much as one rule may have.
#[test]
fn routes_of_a_wildcard_are_bounded() {
    let mut world = world();
    for at in 0..100 {
        service(&mut world, &format!("s{at}.demo"), &[(80, "HTTP")], &[]);
    }
    let routes: String = (0..1000)
        .map(|at| format!("- {{match: [{{uri: {{exact: /{at}}}}}], directResponse: {{status: 200, body: {{string: {}}}}}}}\n", "x".repeat(600)))
        .collect();
    let hosts = "hosts: ['*.demo.svc.cluster.local']";
    virtual_service(&mut world, "wide", 1, &format!("{hosts}\nhttp:\n{routes}"));
    let subsets: Vec<_> = (0..500)
        .map(|at| format!("{{name: s{at}, labels: {{a: b}}}}"))
        .collect();
    let host = "host: '*.demo.svc.cluster.local'";
    destination_rule(
        &mut world,
        "wide",
        1,
        &format!("{host}\nsubsets: [{}]", subsets.join(", ")),
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let routes = view.get(Type::Route, "80").unwrap();
    assert!(routes.body.len() < 5 << 20, "{}", routes.body.len());
    let clusters = view.all(Type::Cluster).len();
    assert!((10_000..11_000).contains(&clusters), "{clusters}");
    // Who gets none of it is served as without.
    let rest = routes_of(&*view, "80", "s99.demo.svc.cluster.local:80");
    assert_eq!((rest.len(), &*rest[0].name), (1, "default"));
    assert!(
        view.get(Type::Cluster, "outbound|80||s99.demo.svc.cluster.local")
            .is_some()
    );
    assert!(
        view.get(Type::Endpoint, "outbound|80|s1|s99.demo.svc.cluster.local")
            .is_none()
    );
    let conflicts = snapshot.conflicts();
    for rule in ["VirtualService demo/wide", "DestinationRule demo/wide"] {
        let conflicts = conflicts.iter().filter(|one| {
            let mut objects = one.objects.iter();
            objects.any(|object| object.to_string() == rule)
        });
        assert!(
            conflicts.clone().count() > 0
                && conflicts
                    .clone()
                    .all(|one| one.metric == "gudgeon_rules_too_large"),
            "{rule}"
        );
    }
}
