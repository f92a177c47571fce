//! Sidecars: what proxies import, where they listen for it, and whom a change concerns (discovery.md §17).

use std::collections::BTreeSet;

use api::model::{ChangedKind, Changes};
use api::networking::Sidecar;
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter};
use envoy_types::pb::envoy::config::route::v3::{route::Action, route_action::ClusterSpecifier};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier as Tcp,
};

use super::*;
use super::{authorization, peers};

pub(super) fn sidecar(world: &mut World, name: &str, created: i64, spec: &str) {
    let object = object::<Sidecar>(name, created, spec);
    insert(&mut world.sidecars, object);
}

/// The world with two more services: one outside of the mesh, one that is TCP alone.
fn mesh() -> World {
    let mut world = world();
    service(
        &mut world,
        "x.example",
        &[(443, "TLS")],
        &[("10.0.4.1", "v1")],
    );
    service(
        &mut world,
        "t.other",
        &[(7000, "TCP")],
        &[("10.0.5.1", "v1")],
    );
    world
}

/// Services that have clusters, by the first letter of their names, sorted.
fn clusters(view: &dyn View) -> String {
    let all = view.all(Type::Cluster);
    let hosts = all
        .iter()
        .filter_map(|one| one.name.strip_prefix("outbound|"));
    let letters: BTreeSet<_> = hosts
        .filter_map(|name| name.rsplit('|').next()?.chars().next())
        .collect();
    letters.into_iter().collect()
}

fn names(view: &dyn View, kind: Type) -> Vec<String> {
    let all = view.all(kind);
    let names = all.iter().map(|one| one.name.to_string());
    names.filter(|name| !name.starts_with("virtual")).collect()
}

/// Virtual hosts of a configuration, by their services' letters and ports.
fn hosts(view: &dyn View, name: &str) -> Vec<String> {
    let Some(routes) = view.get(Type::Route, name) else {
        return Vec::new();
    };
    let routes = RouteConfiguration::decode(&*routes.body).unwrap();
    let names = routes.virtual_hosts.iter().map(|one| one.name.as_str());
    names
        .filter_map(|name| {
            let (host, port) = name.rsplit_once(':')?;
            Some(format!("{}:{port}", host.split('.').next()?))
        })
        .collect()
}

fn seen(spec: &str) -> Arc<dyn View> {
    let mut world = mesh();
    sidecar(&mut world, "demo/s", 1, spec);
    view(world)
}

#[test]
fn a_proxy_has_what_its_sidecar_imports() {
    for (imports, wanted) in [
        ("'*/*'", "abctx"),
        ("'./*'", "abx"),
        ("'demo/*'", "abx"),
        ("'other/*'", "ct"),
        ("'~/*'", ""),
        ("'none/*'", ""),
        ("'*/a.demo.svc.cluster.local'", "a"),
        ("'other/a.demo.svc.cluster.local'", ""),
        ("'*/*.demo.svc.cluster.local'", "ab"),
        ("'*/*.svc.cluster.local'", "abct"),
        ("'*/*.cluster.local', './x.example'", "abctx"),
        ("'./b.demo.svc.cluster.local', 'other/*'", "bct"),
        ("'*/*', '~other/*'", "abx"),
        ("'*/*', '~other/t.other.svc.cluster.local'", "abcx"),
        // Without a namespace, an exclusion is of every one.
        ("'*/*', '~/t.other.svc.cluster.local'", "abcx"),
        ("'*/*', '~/*.other.svc.cluster.local'", "abx"),
        ("'*/*', '~/*.cluster.local'", "x"),
        ("'./*', '~/x.example'", "ab"),
        ("'~/b.demo.svc.cluster.local', 'demo/*'", "ax"),
        // Without a host it excludes nothing, as in earlier releases.
        ("'*/*', '~/*'", "abctx"),
        ("'~/*', 'other/*'", "ct"),
        ("'~/a.demo.svc.cluster.local'", ""),
    ] {
        let view = seen(&format!("egress: [{{hosts: [{imports}]}}]"));
        assert_eq!(clusters(&*view), wanted, "{imports}");
        for name in ["a.demo.svc.cluster.local", "c.other.svc.cluster.local"] {
            let has = wanted.contains(&name[..1]);
            let cluster = format!("outbound|80||{name}");
            assert_eq!(view.get(Type::Endpoint, &cluster).is_some(), has);
            let routed = hosts(&*view, "80").contains(&format!("{}:80", &name[..1]));
            assert_eq!(routed, has, "{imports} {name}");
        }
        let tcp = view.get(Type::Listener, "0.0.0.0_7000");
        assert_eq!(tcp.is_some(), wanted.contains('t'), "{imports}");
        let tls = view.get(Type::Listener, "0.0.0.0_443");
        assert_eq!(tls.is_some(), wanted.contains('x'), "{imports}");
    }
}

#[test]
fn a_listener_that_is_for_nothing_is_told() {
    let conflicts_of = |port: u16, protocol: &str| {
        let mut world = mesh();
        let port = format!("{{number: {port}, protocol: {protocol}, name: p}}");
        let spec = format!("egress: [{{port: {port}, hosts: ['./*']}}, {{hosts: ['*/*']}}]");
        sidecar(&mut world, "demo/s", 1, &spec);
        let snapshot = snapshot(world);
        let _made = snapshot.view(&node("demo", &[])).all(Type::Listener);
        let conflicts = snapshot.conflicts().into_iter();
        conflicts
            .map(|one| (one.objects[0].to_string(), one.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(conflicts_of(80, "HTTP"), []);
    assert_eq!(conflicts_of(3128, "HTTP_PROXY"), []);
    let message = "the egress listener on 7000 of Sidecar demo/s is left out: no service that it imports has that port";
    assert_eq!(
        conflicts_of(7000, "TCP"),
        [("Sidecar demo/s".to_owned(), message.to_owned())]
    );
}

/// Objects and services that are named, each with what is told of them.
fn conflict_texts(world: World, spec: &str, kinds: &[Type]) -> Vec<String> {
    let mut world = world;
    sidecar(&mut world, "demo/s", 1, spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    for kind in kinds {
        drop(view.all(*kind));
    }
    let texts = snapshot.conflicts().into_iter().map(|one| {
        let objects = one.objects.iter().map(ToString::to_string);
        let services = one.services.iter().map(|one| one.hostname.to_string());
        let at: Vec<_> = objects.chain(services).collect();
        format!("{}: {}", at.join(", "), one.message)
    });
    texts.collect()
}

#[test]
fn conflicts_with_a_sidecar_listener_name_their_objects() {
    let at = |world: World, spec: &str| conflict_texts(world, spec, &[Type::Listener]);
    assert_eq!(
        at(
            mesh(),
            "egress: [{port: {number: 15006, protocol: HTTP_PROXY, name: p}, bind: 0.0.0.0, hosts: ['./*']}]"
        ),
        ["Sidecar demo/s: 0.0.0.0_15006 is left out: the proxy listens there"]
    );
    // Both are behind the port of all addresses.
    let mut world = mesh();
    service(&mut world, "u.demo", &[(80, "TCP")], &[]);
    assert_eq!(
        at(
            world,
            "egress: [{port: {number: 80, protocol: HTTP, name: h}, hosts: ['other/*']}, {hosts: ['./u.demo.svc.cluster.local']}]"
        ),
        ["u.demo.svc.cluster.local: 0.0.0.0_80 is left out: an earlier listener has its address"]
    );
    // The one that a Sidecar binds is no service's, and no older one's.
    let mut world = mesh();
    service(&mut world, "u.demo", &[(7000, "TCP")], &[]);
    let services = Arc::make_mut(&mut world.services);
    let u = services
        .values_mut()
        .find(|one| one.key.hostname.starts_with("u."));
    let address = api::model::Address::Plain("10.7.7.7".parse().unwrap());
    let own = std::collections::BTreeMap::from([("Kubernetes".into(), vec![address])]);
    Arc::make_mut(u.unwrap()).addresses = own;
    assert_eq!(
        at(
            world.clone(),
            "egress: [{port: {number: 7000, protocol: TCP, name: t}, bind: 10.7.7.7, hosts: ['other/*']}, {hosts: ['./*']}]"
        ),
        [
            "u.demo.svc.cluster.local: u.demo.svc.cluster.local:7000 is left out: Sidecar demo/s has a listener there"
        ]
    );
    // Whatever is at an address of the proxy itself: of what it is made, rules and services.
    let mut world = mesh();
    service(&mut world, "u.demo", &[(7000, "TCP")], &[]);
    virtual_service(
        &mut world,
        "other/v",
        1,
        "hosts: [t.other.svc.cluster.local]\ntcp: [{route: [{destination: {host: t.other.svc.cluster.local}}]}]",
    );
    assert_eq!(
        at(
            world,
            "egress: [{port: {number: 7000, protocol: TCP, name: t}, bind: 10.9.0.1, hosts: ['other/*']}]"
        ),
        [
            "Sidecar demo/s, VirtualService other/v, t.other.svc.cluster.local: listener 10.9.0.1_7000 of services is left out: the \
             address is the proxy's own"
        ]
    );
}

/// Sidecars of two namespaces lose a listener of one name: each is told, whoever asks first.
#[test]
fn conflicts_of_two_namespaces_name_the_objects_of_both() {
    let mut world = mesh();
    let spec = "egress: [{port: {number: 7000, protocol: TCP, name: t}, bind: 10.9.0.1, hosts: ['other/*']}]";
    for name in ["demo/s", "third/s"] {
        sidecar(&mut world, name, 1, spec);
    }
    let conflicts_after = |namespaces: [&str; 2]| {
        let snapshot = snapshot(world.clone());
        for namespace in namespaces {
            drop(snapshot.view(&node(namespace, &[])).all(Type::Listener));
        }
        snapshot.conflicts()
    };
    let conflicts = conflicts_after(["demo", "third"]);
    let [conflict] = &*conflicts else {
        panic!("not told once: {conflicts:?}");
    };
    let objects: Vec<_> = conflict.objects.iter().map(ToString::to_string).collect();
    assert_eq!(objects, ["Sidecar demo/s", "Sidecar third/s"]);
    assert_eq!(conflicts_after(["third", "demo"]), conflicts);
}

/// A rule is left out where the older one is seen, and nowhere else; and what has a domain is named.
#[test]
fn conflicts_name_the_older_rule_that_won() {
    let mut world = mesh();
    let rule = "hosts: [a.demo.svc.cluster.local]\nhttp: [{directResponse: {status: STATUS}}]";
    for (name, created, status) in [("other/old", 1, "201"), ("young", 2, "202")] {
        let spec = rule.replace("STATUS", status);
        virtual_service(&mut world, name, created, &spec);
    }
    let view_of = |imports: &str| {
        let mut world = world.clone();
        sidecar(
            &mut world,
            "demo/s",
            1,
            &format!("egress: [{{hosts: [{imports}]}}]"),
        );
        let view = view(world);
        routes::goes(&routes_of(&*view, "80", "a.demo.svc.cluster.local:80")[0])
    };
    assert_eq!(view_of("'*/*'"), "answer 201");
    assert_eq!(
        view_of("'./*'"),
        "answer 202",
        "it does not see the older one"
    );
    assert_eq!(
        conflict_texts(world.clone(), "egress: [{hosts: ['./*']}]", &[Type::Route]),
        [
            "VirtualService demo/young: http of VirtualService demo/young is left out at sidecars that see VirtualService other/old, \
             too, which is older"
        ]
    );
    // No service is older than a rule that has its address.
    let mut world = mesh();
    virtual_service(
        &mut world,
        "v",
        9,
        "hosts: [b.demo]\nhttp: [{route: [{destination: {host: a.demo.svc.cluster.local}}]}]",
    );
    let all = conflict_texts(world, "egress: [{hosts: ['*/*']}]", &[Type::Route]);
    let one = "VirtualService demo/v: VirtualService demo/v is left out: b.demo.svc.cluster.local:80 has it";
    assert!(all.iter().any(|text| text == one), "{all:?}");
}

/// A host that no service has is served where its destinations listen, else where requests usually come in, or it is told.
#[test]
fn a_host_whose_destinations_are_not_imported_has_the_usual_port_or_is_told() {
    let seen = |egress: &str| {
        let mut world = mesh();
        service(&mut world, "far.other", &[(8081, "HTTP")], &[]);
        service(&mut world, "near.demo", &[(8082, "HTTP")], &[]);
        virtual_service(
            &mut world,
            "api",
            1,
            "hosts: [api.internal]\nhttp: [{route: [{destination: {host: far.other.svc.cluster.local}}]}]",
        );
        sidecar(&mut world, "demo/s", 1, &format!("egress: [{egress}]"));
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        let ports = ["80", "8081", "8082", "3128"];
        let has = |port: &&str| {
            hosts(&*view, port)
                .iter()
                .any(|host| host.starts_with("api:"))
        };
        let served: Vec<_> = ports.into_iter().filter(has).collect();
        for port in &served {
            let routes: RouteConfiguration = decoded(&*view, Type::Route, port);
            let mut hosts = routes.virtual_hosts.iter();
            let host = hosts.find(|host| host.name.starts_with("api.internal:"));
            let to = routes::goes(&host.unwrap().routes[0]);
            assert_eq!(to, "outbound|8081||far.other.svc.cluster.local", "{egress}");
        }
        let conflicts = snapshot.conflicts().into_iter();
        let conflicts = conflicts.filter(|one| one.key == "api.internal");
        let conflicts: Vec<_> = conflicts
            .map(|one| (one.objects[0].to_string(), one.message))
            .collect();
        (served.join(" "), conflicts)
    };
    let proxy = "{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, captureMode: NONE, hosts: ['./*']}";
    let of_others =
        "{port: {number: 80, protocol: HTTP, name: h}, hosts: ['other/*']}, {hosts: ['./*']}";
    let without = "{hosts: [./near.demo.svc.cluster.local, ./api.internal]}";
    for (egress, served, is_reported) in [
        ("{hosts: ['*/*']}", "8081", false),
        ("{hosts: ['./*']}", "80", false),
        ("{hosts: ['other/*']}", "", false),
        (proxy, "3128", false),
        (of_others, "", true),
        (without, "", true),
    ] {
        let message = "api.internal of VirtualService demo/api is served at no port of proxies that Sidecar demo/s holds for: no service \
                       has this host, and they import none with requests at 80, 8081";
        let expected =
            is_reported.then(|| ("VirtualService demo/api".to_owned(), message.to_owned()));
        let wanted = (served.to_owned(), Vec::from_iter(expected));
        assert_eq!(seen(egress), wanted, "{egress}");
    }
}

/// An older service that is not imported takes nothing from those that are.
#[test]
fn services_that_are_not_imported_hide_no_other() {
    let mut world = mesh();
    let host = "www.google.example";
    for (namespace, created, port) in [("one", 1, 80), ("demo", 2, 80), ("two", 3, 80)] {
        service(
            &mut world,
            &format!("www.{namespace}"),
            &[(port, "HTTP"), (7001, "TCP")],
            &[],
        );
        let services = Arc::make_mut(&mut world.services);
        let old = ServiceKey::new(&format!("www.{namespace}.svc.cluster.local"), namespace);
        let mut service = (*services.remove(&old).unwrap()).clone();
        service.key = ServiceKey::new(host, namespace);
        service.created = Some(created);
        services.insert(service.key.clone(), Arc::new(service));
        let rule = format!(
            "hosts: [{host}]\nhttp: [{{directResponse: {{status: 20{created}}}}}]\ntcp: [{{route: [{{destination: {{host: {host}, subset: s{created}}}}}]}}]"
        );
        virtual_service(&mut world, &format!("{namespace}/v"), created, &rule);
    }
    let seen = |imports: &str| {
        let mut world = world.clone();
        if !imports.is_empty() {
            sidecar(&mut world, "demo/s", 1, &format!("egress: [{imports}]"));
        }
        let view = view(world);
        let has = view
            .get(Type::Cluster, &format!("outbound|80||{host}"))
            .is_some();
        let status = has.then(|| routes::goes(&routes_of(&*view, "80", &format!("{host}:80"))[0]));
        let to = view.get(Type::Listener, "0.0.0.0_7001");
        let to = to.map(|one| String::from_utf8_lossy(&one.body).contains("outbound|7001|s2|"));
        (status.unwrap_or_default(), to)
    };
    let answer = |status: u16| format!("answer {status}");
    assert_eq!(seen(""), (answer(201), Some(false)));
    assert_eq!(seen("{hosts: ['*/*']}"), (answer(201), Some(false)));
    assert_eq!(seen("{hosts: ['./*']}"), (answer(202), Some(true)));
    assert_eq!(seen("{hosts: ['two/*']}").0, answer(203));
    assert_eq!(seen("{hosts: ['two/*', './*']}"), (answer(202), Some(true)));
    assert_eq!(seen("{hosts: ['other/*']}"), (String::new(), None));
}

#[test]
fn the_oldest_that_selects_a_proxy_holds_then_its_namespaces_then_the_roots() {
    let mut world = mesh();
    let imports = |hosts: &str| format!("egress: [{{hosts: [{hosts}]}}]");
    let select = |app: &str| format!("workloadSelector: {{labels: {{app: {app}}}}}\n");
    sidecar(
        &mut world,
        "istio-system/all",
        9,
        &imports("'*/c.other.svc.cluster.local'"),
    );
    sidecar(
        &mut world,
        "istio-system/some",
        1,
        &(select("x") + &imports("'~/*'")),
    );
    let of = |world: &World, namespace: &str, app: &str| {
        clusters(&*snapshot(world.clone()).view(&node(namespace, &[("app", app)])))
    };
    assert_eq!(
        of(&world, "demo", "x"),
        "c",
        "one with a selector is its own namespace's"
    );
    assert_eq!(of(&world, "istio-system", "x"), "");
    sidecar(
        &mut world,
        "demo/later",
        3,
        &imports("'./a.demo.svc.cluster.local'"),
    );
    sidecar(
        &mut world,
        "demo/whole",
        2,
        &imports("'./b.demo.svc.cluster.local'"),
    );
    assert_eq!(of(&world, "demo", "x"), "b");
    assert_eq!(of(&world, "other", "x"), "c");
    sidecar(
        &mut world,
        "demo/late-x",
        8,
        &(select("x") + &imports("'./x.example'")),
    );
    sidecar(
        &mut world,
        "demo/early-x",
        7,
        &(select("x") + &imports("'other/t.other.svc.cluster.local'")),
    );
    assert_eq!(of(&world, "demo", "x"), "t");
    assert_eq!(of(&world, "demo", "y"), "b");
    // A router has none.
    let mut router = (*node("demo", &[])).clone();
    router.kind = crate::node::Kind::Router;
    let view = snapshot(world).view(&Arc::new(router));
    assert_eq!(clusters(&*view), "abctx");
}

/// The one for all namespaces means each one's own by a dot.
#[test]
fn a_dot_of_the_root_is_each_namespace() {
    let mut world = mesh();
    sidecar(
        &mut world,
        "istio-system/all",
        1,
        "egress: [{hosts: ['./*']}]",
    );
    let snapshot = snapshot(world);
    let views = ["demo", "other", "third", "fourth"].map(|one| snapshot.view(&node(one, &[])));
    let found = views.each_ref().map(|view| clusters(&**view));
    assert_eq!(found, ["abx", "ct", "", ""]);
    assert!(Arc::ptr_eq(
        &views[2].all(Type::Cluster),
        &views[3].all(Type::Cluster)
    ));
}

/// Proxies of all namespaces that one Sidecar holds for share all bytes; whoever has more shares what is the same.
#[test]
fn proxies_with_the_same_imports_share_their_bytes() {
    let mut world = mesh();
    sidecar(
        &mut world,
        "istio-system/all",
        1,
        "egress: [{hosts: ['other/*']}]",
    );
    sidecar(&mut world, "demo/own", 1, "egress: [{hosts: ['*/*']}]");
    let snapshot = snapshot(world);
    let [demo, third, fourth] =
        ["demo", "third", "fourth"].map(|one| snapshot.view(&node(one, &[])));
    for kind in [Type::Cluster, Type::Listener] {
        assert!(Arc::ptr_eq(&third.all(kind), &fourth.all(kind)), "{kind:?}");
    }
    for (kind, name) in [
        (Type::Cluster, "outbound|80||c.other.svc.cluster.local"),
        (Type::Endpoint, "outbound|80||c.other.svc.cluster.local"),
        (Type::Listener, "0.0.0.0_7000"),
    ] {
        let both = [&demo, &third].map(|view| view.get(kind, name).unwrap());
        assert!(Arc::ptr_eq(&both[0], &both[1]), "{name}");
    }
}

#[test]
fn routes_of_rules_are_imported_by_namespace_and_host() {
    let answers = |imports: &str, rule: &str, host: &str| {
        let mut world = mesh();
        let spec =
            format!("hosts: ['{host}']\nhttp: [{{name: own, directResponse: {{status: 418}}}}]");
        virtual_service(&mut world, rule, 1, &spec);
        sidecar(
            &mut world,
            "demo/s",
            1,
            &format!("egress: [{{hosts: [{imports}]}}]"),
        );
        let view = view(world);
        let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
        let mut all = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
        all.any(|route| route.name == "own")
    };
    let (a, other) = (
        "a.demo.svc.cluster.local",
        "'other/*', './b.demo.svc.cluster.local'",
    );
    for (imports, rule, host, wanted) in [
        ("'./*'", "demo/r", a, true),
        ("'./*'", "other/r", a, false),
        ("'*/*'", "other/r", a, true),
        (other, "demo/r", a, false),
        ("'./*'", "demo/r", "no.example", true),
        (other, "demo/r", "no.example", false),
        (
            "'./a.demo.svc.cluster.local'",
            "demo/r",
            "*.demo.svc.cluster.local",
            true,
        ),
        (
            "'./b.demo.svc.cluster.local'",
            "demo/r",
            "*.other.svc.cluster.local",
            false,
        ),
    ] {
        assert_eq!(
            answers(imports, rule, host),
            wanted,
            "{imports} {rule} {host}"
        );
    }
}

/// A route that is imported leads to its destination, though nobody imports that by its name.
#[test]
fn destinations_of_routes_have_clusters_and_nothing_else() {
    let mut world = mesh();
    virtual_service(
        &mut world,
        "r",
        1,
        "hosts: [a]\nhttp: [{route: [{destination: {host: c.other.svc.cluster.local}}]}]",
    );
    sidecar(
        &mut world,
        "demo/s",
        1,
        "egress: [{hosts: [./a.demo.svc.cluster.local]}]",
    );
    let view = view(world);
    assert_eq!(clusters(&*view), "ac");
    assert_eq!(hosts(&*view, "80"), ["a:80"]);
    let name = "outbound|80||c.other.svc.cluster.local";
    assert_eq!(addresses(&*view, name), ["10.0.3.1"]);
}

/// Returns the destination of connections that no chain before matches.
fn leads(view: &dyn View, name: &str) -> String {
    let listener: Listener = decoded(view, Type::Listener, name);
    let last = listener.filter_chains.last().unwrap();
    let Some(filter::ConfigType::TypedConfig(any)) = &last.filters[0].config_type else {
        panic!("a filter");
    };
    let proxy = TcpProxy::decode(any.value.as_slice()).unwrap();
    match proxy.cluster_specifier.unwrap() {
        Tcp::Cluster(cluster) => cluster,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sidecar_says_where_the_unknown_goes() {
    for (policy, cluster, host) in [
        ("{mode: ALLOW_ANY}", "PassthroughCluster", "allow_any"),
        ("{mode: REGISTRY_ONLY}", "BlackHoleCluster", "block_all"),
        ("{}", "BlackHoleCluster", "block_all"),
        (
            "{mode: ALLOW_ANY, egressProxy: {host: c.other.svc.cluster.local, port: {number: 80}}}",
            "outbound|80||c.other.svc.cluster.local",
            "allow_any",
        ),
    ] {
        let view = seen(&format!(
            "egress: [{{hosts: ['./*']}}]\noutboundTrafficPolicy: {policy}"
        ));
        assert_eq!(leads(&*view, "virtualOutbound"), cluster, "{policy}");
        let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
        let last = routes.virtual_hosts.last().unwrap();
        assert_eq!(last.name, host, "{policy}");
        if let Some(Action::Route(action)) = &last.routes[0].action {
            let to = action.cluster_specifier.clone().unwrap();
            assert_eq!(to, ClusterSpecifier::Cluster(cluster.to_owned()));
        }
        if cluster.starts_with("outbound") {
            assert!(view.get(Type::Cluster, cluster).is_some());
        }
        // What it does not say is the mesh's.
        let view = seen(&format!("outboundTrafficPolicy: {policy}"));
        assert_eq!(clusters(&*view), "abctx");
        assert_eq!(leads(&*view, "virtualOutbound"), cluster, "{policy}");
    }
}

#[test]
fn listeners_of_a_port_come_before_those_of_all_services() {
    let rest = "{hosts: ['*/*']}";
    for (first, listeners, routes) in [
        // Of one port the services of that port, and all others by their own.
        (
            "{port: {number: 80, protocol: HTTP, name: h}, hosts: ['other/*']}",
            vec!["0.0.0.0_443", "0.0.0.0_7000", "0.0.0.0_80", "0.0.0.0_90"],
            vec!["c:80"],
        ),
        (
            "{port: {number: 80, protocol: HTTP, name: h}, bind: 10.7.7.7, hosts: ['other/*']}",
            vec!["0.0.0.0_443", "0.0.0.0_7000", "0.0.0.0_90", "10.7.7.7_80"],
            vec!["c:80"],
        ),
        (
            "{port: {number: 80, protocol: HTTP, name: h}, captureMode: NONE, hosts: ['./*']}",
            vec!["0.0.0.0_443", "0.0.0.0_7000", "0.0.0.0_90", "127.0.0.1_80"],
            vec!["a:80", "b:80"],
        ),
        // A port that no service has.
        (
            "{port: {number: 81, protocol: HTTP, name: h}, hosts: ['*/*']}",
            vec!["0.0.0.0_443", "0.0.0.0_7000", "0.0.0.0_80", "0.0.0.0_90"],
            vec!["a:80", "b:80", "c:80"],
        ),
        (
            "{port: {number: 7000, protocol: TCP, name: t}, bind: 127.0.0.9, captureMode: NONE, hosts: ['*/*']}",
            vec!["0.0.0.0_443", "0.0.0.0_80", "0.0.0.0_90", "127.0.0.9_7000"],
            vec!["a:80", "b:80", "c:80"],
        ),
    ] {
        let view = seen(&format!("egress: [{first}, {rest}]"));
        let mut of_services = names(&*view, Type::Listener);
        of_services.retain(|name| !name.starts_with("10.9.0.1_"));
        assert_eq!(of_services, listeners, "{first}");
        assert_eq!(hosts(&*view, "80"), routes, "{first}");
        for name in listeners {
            let listener: Listener = decoded(&*view, Type::Listener, name);
            let bound = listener.bind_to_port.is_none_or(|bound| bound.value);
            assert_eq!(bound, name.starts_with("127."), "{name}");
        }
    }
    // Without one for all, what no listener has is unknown.
    let view = seen("egress: [{port: {number: 80, protocol: HTTP, name: h}, hosts: ['./*']}]");
    assert_eq!(names(&*view, Type::Listener), ["0.0.0.0_80", "10.9.0.1_80"]);
    assert_eq!(names(&*view, Type::Route), ["80"]);
}

#[test]
fn a_port_for_applications_that_use_a_proxy_has_all_http_services() {
    let view = seen(
        "egress: [{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, captureMode: NONE, hosts: ['other/*']}]",
    );
    assert_eq!(names(&*view, Type::Listener), ["127.0.0.1_3128"]);
    assert_eq!(names(&*view, Type::Route), ["3128"]);
    assert_eq!(hosts(&*view, "3128"), ["c:80"]);
    // Each of several has the services that it imports.
    let view = seen(
        "egress: [{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, captureMode: NONE, hosts: ['other/*']}, \
         {port: {number: 3129, protocol: HTTP_PROXY, name: q}, bind: 127.0.0.1, captureMode: NONE, hosts: ['./b.demo.svc.cluster.local']}]",
    );
    assert_eq!(names(&*view, Type::Route), ["3128", "3129"]);
    assert_eq!(hosts(&*view, "3128"), ["c:80"]);
    assert_eq!(hosts(&*view, "3129"), ["b:80"]);
}

/// A service may have requests at the number of a port that applications use as a proxy, be it that of another listener.
#[test]
fn a_port_for_applications_that_use_a_proxy_has_routes_of_its_own() {
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as manager;

    let routes_of = |view: &dyn View, name: &str| {
        let listener: Listener = decoded(view, Type::Listener, name);
        let Some(filter::ConfigType::TypedConfig(any)) =
            &listener.filter_chains[0].filters[0].config_type
        else {
            panic!("a filter");
        };
        let manager = manager::HttpConnectionManager::decode(any.value.as_slice()).unwrap();
        match manager.route_specifier.unwrap() {
            manager::http_connection_manager::RouteSpecifier::Rds(rds) => rds.route_config_name,
            other => panic!("{other:?}"),
        }
    };
    let mut world = mesh();
    service(&mut world, "d.demo", &[(8080, "HTTP")], &[]);
    let spec = "egress: [{port: {number: 8080, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, captureMode: NONE, hosts: ['other/*']}, \
                {hosts: ['*/*']}]";
    sidecar(&mut world, "demo/s", 1, spec);
    let view = snapshot(world).view(&node("demo", &[]));
    for (listener, routes, found) in [
        ("127.0.0.1_8080", "http_proxy.8080", "c:80"),
        ("0.0.0.0_8080", "8080", "d:8080"),
    ] {
        assert_eq!(routes_of(&*view, listener), routes);
        assert_eq!(hosts(&*view, routes), [found], "{listener}");
    }
}

/// The protocol that a Sidecar declares for a port counts where a service says another, as far as it can be served.
#[test]
fn requests_are_connections_where_a_sidecar_says_so() {
    let spec = |protocol: &str| {
        format!(
            "egress: [{{port: {{number: 80, protocol: {protocol}, name: p}}, hosts: ['./b.demo.svc.cluster.local']}}]"
        )
    };
    assert_eq!(names(&*seen(&spec("HTTP")), Type::Route), ["80"]);
    let view = seen(&spec("TCP"));
    assert_eq!(names(&*view, Type::Listener), ["0.0.0.0_80", "10.9.0.1_80"]);
    assert_eq!(names(&*view, Type::Route), [""; 0]);
}

/// Applications call the loopback, or the address that the Sidecar binds, where nothing is intercepted.
#[test]
fn without_interception_listeners_are_bound() {
    let mut world = mesh();
    sidecar(
        &mut world,
        "demo/s",
        1,
        "egress: [{port: {number: 80, protocol: HTTP, name: h}, bind: 127.0.0.7, hosts: ['./*']}, {hosts: ['other/*']}]",
    );
    let mut client = (*node("demo", &[])).clone();
    client.mode = crate::node::Mode::None;
    let view = snapshot(world).view(&Arc::new(client));
    assert_eq!(
        names(&*view, Type::Listener),
        ["127.0.0.1_7000", "127.0.0.7_80"]
    );
    assert_eq!(hosts(&*view, "80"), ["a:80", "b:80"]);
}

/// A change is looked at by those alone that see something of it.
#[test]
fn a_change_concerns_those_who_see_it() {
    let mut before = mesh();
    for (name, imports) in [("demo/s", "'./*'"), ("third/s", "'other/*'")] {
        sidecar(
            &mut before,
            name,
            1,
            &format!("egress: [{{hosts: [{imports}]}}]"),
        );
    }
    let of = ChangedKind::Configuration;
    let nodes = ["demo", "other", "third", "fourth"].map(|one| node(one, &[]));
    let concerned = |named: &[(ChangedKind, &str)], change: &dyn Fn(&mut World)| {
        let mut changes = Changes::default();
        for (kind, name) in named {
            let (namespace, name) = name.split_once('/').unwrap();
            changes.add(*kind, &(namespace.into(), name.into()));
        }
        let first = snapshot(before.clone());
        let older = nodes.each_ref().map(|node| first.view(node));
        let mut after = before.clone();
        change(&mut after);
        let next = first.next(after.clone(), None, Some(&changes));
        let found = nodes.each_ref().map(|node| next.concerns(node));
        // Objects that are not known by name are found.
        let compared = first.next(after, None, None);
        assert_eq!(found, nodes.each_ref().map(|node| compared.concerns(node)));
        for ((node, older), concerned) in nodes.iter().zip(older).zip(found) {
            // Whoever is not concerned has nothing else to be sent.
            let newer = next.snapshot.view(node);
            let differs = Type::ALL
                .into_iter()
                .any(|kind| older.all(kind).version() != newer.all(kind).version());
            assert!(concerned || !differs, "{}", node.id);
        }
        found.map(usize::from)
    };
    let route = |world: &mut World, name: &str, host: &str| {
        let spec = format!("hosts: [{host}]\nhttp: [{{directResponse: {{status: 418}}}}]");
        virtual_service(world, name, 1, &spec);
    };
    // demo imports its own, third what is in other, the rest everything.
    assert_eq!(
        concerned(
            &[
                (ChangedKind::Service, "demo/b.demo.svc.cluster.local"),
                (of("Sidecar"), "third/s"),
                (of("VirtualService"), "demo/none")
            ],
            &|_| {}
        ),
        [0, 0, 0, 0]
    );
    assert_eq!(
        concerned(
            &[(ChangedKind::Service, "demo/n.demo.svc.cluster.local")],
            &|world| service(world, "n.demo", &[(80, "HTTP")], &[])
        ),
        [1, 1, 0, 1]
    );
    assert_eq!(
        concerned(
            &[(ChangedKind::Service, "other/t.other.svc.cluster.local")],
            &|world| service(world, "t.other", &[(7000, "TCP"), (7001, "TCP")], &[])
        ),
        [0, 1, 1, 1]
    );
    assert_eq!(
        concerned(
            &[(ChangedKind::Service, "demo/a.demo.svc.cluster.local")],
            &|world| {
                Arc::make_mut(&mut world.services).retain(|key, _| !key.hostname.starts_with('a'));
            }
        ),
        [1, 1, 0, 1]
    );
    assert_eq!(
        concerned(&[(of("VirtualService"), "demo/r")], &|world| route(
            world, "demo/r", "a"
        )),
        [1, 1, 0, 1]
    );
    assert_eq!(
        concerned(&[(of("VirtualService"), "other/r")], &|world| route(
            world, "other/r", "c"
        )),
        [0, 1, 1, 1]
    );
    assert_eq!(
        concerned(&[(of("DestinationRule"), "demo/d")], &|world| {
            destination_rule(world, "demo/d", 1, "host: a");
        }),
        [1, 1, 0, 1]
    );
    assert_eq!(
        concerned(&[(of("DestinationRule"), "other/d")], &|world| {
            destination_rule(world, "other/d", 1, "host: c\nexportTo: [third]");
        }),
        [0, 0, 1, 0]
    );
    assert_eq!(
        concerned(&[(of("Sidecar"), "third/s")], &|world| sidecar(
            world,
            "third/s",
            1,
            "egress: [{hosts: ['./*']}]"
        )),
        [0, 0, 1, 0]
    );
    // Policies of who may come in concern workloads of their namespace, those of the root namespace all.
    assert_eq!(
        concerned(&[(of("AuthorizationPolicy"), "other/deny")], &|world| {
            authorization::policy(world, "other/deny", "{}");
        }),
        [0, 1, 0, 0]
    );
    assert_eq!(
        concerned(
            &[(of("AuthorizationPolicy"), "istio-system/deny")],
            &|world| authorization::policy(world, "istio-system/deny", "{}")
        ),
        [1, 1, 1, 1]
    );
    assert_eq!(
        concerned(&[(of("RequestAuthentication"), "other/t")], &|world| {
            tokens::policy(world, "other/t", "{}");
        }),
        [0, 1, 0, 0]
    );
    assert_eq!(
        concerned(
            &[(of("RequestAuthentication"), "istio-system/t")],
            &|world| tokens::policy(world, "istio-system/t", "{}")
        ),
        [1, 1, 1, 1]
    );
    // Of mutual TLS clients everywhere are to know.
    let strict = [("other", "mtls: {mode: STRICT}")];
    assert_eq!(
        concerned(&[(of("PeerAuthentication"), "other/p0")], &|world| world
            .peer_authentications =
            peers::objects(&strict)),
        [1, 1, 1, 1]
    );
    assert_eq!(
        concerned(&[], &|world| world.earlier_peer_authentications =
            vec![peers::objects(&strict)]),
        [1, 1, 1, 1]
    );
    assert_eq!(
        concerned(&[], &|world| {
            let config = mesh::parse_over(&mesh::discovery_defaults(), "connectTimeout: 3s");
            world.mesh = Arc::new(config.unwrap().config);
        }),
        [1, 1, 1, 1]
    );
}
