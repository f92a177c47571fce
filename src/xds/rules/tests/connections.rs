//! VirtualServices as chains of listeners: `tls` and `tcp` (discovery.md §14).

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};

use super::*;

/// A service `s` with TLS and TCP, with and without an address; and where rules send connections: `x` and `y`.
fn mesh(address: bool) -> World {
    let mut world = world();
    let ports: &[(u16, &str)] = &[(443, "TLS"), (444, "HTTPS"), (7000, "TCP"), (7001, "MONGO")];
    service(&mut world, "s.demo", ports, &[("10.0.5.1", "v1")]);
    for name in ["x.demo", "y.demo"] {
        service(&mut world, name, &[(9000, "TCP")], &[("10.0.6.1", "v1")]);
    }
    if address {
        let services = Arc::make_mut(&mut world.services);
        let key = ServiceKey::new("s.demo.svc.cluster.local", "demo");
        let service = Arc::make_mut(services.get_mut(&key).unwrap());
        let place = "10.96.0.1".parse().unwrap();
        service.addresses.insert("Kubernetes".into(), vec![place]);
    }
    world
}

/// A chain in words: names, ranges, sources, and where it leads.
fn chain_text(chain: &FilterChain) -> String {
    let short = |name: &str| {
        let host = name.rsplit('|').next().unwrap_or_default();
        let port = name.split('|').nth(1).unwrap_or_default();
        match port {
            "" => name.to_owned(),
            port => format!("{}:{port}", host.split('.').next().unwrap()),
        }
    };
    let mut parts = Vec::new();
    if let Some(matching) = &chain.filter_chain_match {
        parts.extend(matching.server_names.iter().cloned());
        for (sign, ranges) in [
            ("", &matching.prefix_ranges),
            ("from ", &matching.source_prefix_ranges),
        ] {
            parts.extend(ranges.iter().map(|range| {
                let bits = range.prefix_len.unwrap().value;
                format!("{sign}{}/{bits}", range.address_prefix)
            }));
        }
    }
    let Some(filter::ConfigType::TypedConfig(any)) = &chain.filters[0].config_type else {
        panic!("a filter");
    };
    let proxy = TcpProxy::decode(any.value.as_slice()).unwrap();
    let to = match proxy.cluster_specifier.unwrap() {
        ClusterSpecifier::Cluster(cluster) => short(&cluster),
        ClusterSpecifier::WeightedClusters(all) => {
            let all = all.clusters.iter();
            let all = all.map(|one| format!("{} {}", one.weight, short(&one.name)));
            all.collect::<Vec<_>>().join(" + ")
        }
    };
    format!("{} -> {to}", parts.join(" ")).trim().to_owned()
}

fn chains(view: &dyn View, name: &str) -> Vec<String> {
    let listener: Listener = decoded(view, Type::Listener, name);
    let all = listener.filter_chains.iter();
    let rest = listener.default_filter_chain.iter();
    all.map(chain_text)
        .chain(rest.map(|chain| format!("else {}", chain_text(chain))))
        .collect()
}

/// The listener of a port of `s`, where this is its rule.
fn of(address: bool, port: u16, spec: &str) -> Vec<String> {
    let mut world = mesh(address);
    let spec = format!("hosts: [s.demo.svc.cluster.local, '*.example']\n{spec}");
    virtual_service(&mut world, "r", 1, &spec);
    let place = if address { "10.96.0.1" } else { "0.0.0.0" };
    chains(&*view(world), &format!("{place}_{port}"))
}

const X: &str = "route: [{destination: {host: x}}]";

/// The wildcard `*.example` with these ports, and rules for TLS to hosts below it; `own.example` is a service, too.
fn below_a_wildcard(ports: &[(u16, &str)], address: &str) -> World {
    let mut world = mesh(false);
    wildcards::wildcard(&mut world, "*.example", ports, address);
    service(
        &mut world,
        "own.example",
        &[(443, "TLS")],
        &[("10.0.7.1", "v1")],
    );
    for (host, to) in [
        ("a.example", "x"),
        ("*.deep.example", "y"),
        ("own.example", "x"),
        ("a.other", "x"),
    ] {
        let spec = format!(
            "hosts: ['{host}']\ntls: [{{match: [{{sniHosts: ['{host}']}}], route: [{{destination: {{host: {to}}}}}]}}]"
        );
        let name = host.replace('*', "w");
        virtual_service(&mut world, &name, 1, &spec);
    }
    world
}

/// They had no effect: no service has these hosts.
#[test]
fn tls_to_a_host_below_a_wildcard_goes_where_its_rule_says() {
    let world = below_a_wildcard(&[(443, "TLS"), (8443, "HTTPS"), (7000, "TCP")], "");
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let sorted = |name: &str| {
        let mut all = chains(&*view, name);
        all.sort();
        all
    };
    let below = ["*.deep.example -> y:9000", "a.example -> x:9000"];
    let mut expected = vec![
        "*.example -> *:443",
        "else -> PassthroughCluster",
        "own.example -> x:9000",
        "s.demo.svc.cluster.local -> s:443",
    ];
    expected.extend(below);
    expected.sort_unstable();
    assert_eq!(sorted("0.0.0.0_443"), expected);
    // There `own.example` has no port of its own.
    assert_eq!(
        sorted("0.0.0.0_8443"),
        [
            "*.deep.example -> y:9000",
            "*.example -> *:8443",
            "a.example -> x:9000",
            "else -> PassthroughCluster",
            "own.example -> x:9000",
        ]
    );
    let conflicts = snapshot.conflicts().into_iter();
    let told: Vec<_> = conflicts.flat_map(|one| one.objects).collect();
    let told: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["VirtualService demo/a.other"]);
}

#[test]
fn tls_to_a_host_below_a_wildcard_with_an_address_goes_where_its_rule_says() {
    let view = view(below_a_wildcard(&[(443, "TLS")], "10.96.0.9"));
    assert_eq!(
        chains(&*view, "10.96.0.9_443"),
        [
            "a.example -> x:9000",
            "*.deep.example -> y:9000",
            "-> *:443"
        ]
    );
}

/// The rule of the wildcard itself is for all other names.
#[test]
fn the_rule_of_a_wildcard_leaves_hosts_below_it_to_theirs() {
    let mut world = below_a_wildcard(&[(8443, "HTTPS")], "");
    let spec = "hosts: ['*.example']\ntls: [{match: [{sniHosts: ['*.example', a.example]}], route: [{destination: {host: y}}]}]";
    virtual_service(&mut world, "wide", 2, spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(
        chains(&*view, "0.0.0.0_8443"),
        [
            "a.example -> x:9000",
            "own.example -> x:9000",
            "*.deep.example -> y:9000",
            "*.example -> y:9000",
            "else -> PassthroughCluster"
        ]
    );
}

/// Nothing tells connections of TCP below a wildcard apart.
#[test]
fn tcp_of_a_host_below_a_wildcard_says_that_it_has_no_effect() {
    let mut world = mesh(false);
    let ports = [(7100, "TCP"), (7443, "TLS")];
    wildcards::wildcard(&mut world, "*.example", &ports, "");
    let tls = format!("tls: [{{match: [{{port: 7443, sniHosts: [a.example]}}], {X}}}]");
    let spec = format!("hosts: [a.example]\n{tls}\ntcp: [{{{X}}}]");
    virtual_service(&mut world, "r", 1, &spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(chains(&*view, "0.0.0.0_7100"), ["-> *:7100"]);
    let conflicts = snapshot.conflicts().into_iter();
    let of_rules = conflicts.filter(|one| !one.objects.is_empty());
    let told: Vec<_> = of_rules.map(|one| one.message).collect();
    assert_eq!(
        told,
        [
            "no tcp route of it applies to sidecars: services have its hosts below wildcards alone, and connections of TCP do not \
          say which host they are for"
        ]
    );
}

/// Services without an address share the chains of a port.
#[test]
fn a_rule_is_told_of_the_one_that_has_its_names() {
    let mut world = mesh(false);
    service(&mut world, "t.demo", &[(443, "TLS")], &[("10.0.5.2", "v1")]);
    for (name, host, names) in [("r", "s", "a.example"), ("q", "t", "a.example, b.example")] {
        let spec = format!(
            "hosts: [{host}.demo.svc.cluster.local, '*.example']\ntls: [{{match: [{{sniHosts: [{names}]}}], {X}}}]"
        );
        virtual_service(&mut world, name, 1, &spec);
    }
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(
        chains(&*view, "0.0.0.0_443"),
        [
            "a.example -> x:9000",
            "b.example -> x:9000",
            "else -> PassthroughCluster"
        ]
    );
    let conflicts = snapshot.conflicts();
    let about = conflicts
        .iter()
        .find(|one| one.message.contains("comes first"))
        .unwrap();
    assert_eq!(about.objects[0].to_string(), "VirtualService demo/q");
    assert_eq!(
        about.message,
        "some of the connections that VirtualService demo/q matches at t.demo.svc.cluster.local:443 go where VirtualService demo/r \
         says: it matches the same, and comes first"
    );
}

#[test]
fn tls_goes_by_the_name_that_the_client_says() {
    let unknown = "else -> PassthroughCluster";
    let own = "s.demo.svc.cluster.local -> s:443";
    let two = "route: [{destination: {host: x}, weight: 30}, {destination: {host: y}, weight: 70}, {destination: {host: s}, weight: 0}]";
    for (written, wanted) in [
        (
            format!("[{{match: [{{sniHosts: [A.example, b.example]}}], {X}}}]"),
            vec!["a.example b.example -> x:9000", unknown],
        ),
        (
            format!("[{{match: [{{sniHosts: ['*.example']}}], {two}}}]"),
            vec!["*.example -> 30 x:9000 + 70 y:9000", unknown],
        ),
        (
            format!(
                "[{{match: [{{sniHosts: [a.example], destinationSubnets: [10.1.0.0/16, 10.2.0.1]}}], {X}}}]"
            ),
            vec!["a.example 10.1.0.0/16 10.2.0.1/32 -> x:9000", unknown],
        ),
        // Of two with the same conditions the first counts.
        (
            format!(
                "[{{match: [{{sniHosts: [a.example]}}], {X}}}, {{match: [{{sniHosts: [a.example, b.example]}}], route: [{{destination: {{host: y}}}}]}}]"
            ),
            vec!["a.example -> x:9000", "b.example -> y:9000", unknown],
        ),
        (
            format!("[{{match: [{{sniHosts: [a.example], port: 443}}], {X}}}]"),
            vec!["a.example -> x:9000", unknown],
        ),
        // What holds for nobody here is as if there were no rule.
        (
            format!("[{{match: [{{sniHosts: [a.example], port: 9}}], {X}}}]"),
            vec![own, unknown],
        ),
        (
            format!("[{{match: [{{sniHosts: [a.example], sourceLabels: {{app: x}}}}], {X}}}]"),
            vec![own, unknown],
        ),
        (
            format!("[{{match: [{{sniHosts: [a.example], sourceNamespace: other}}], {X}}}]"),
            vec![own, unknown],
        ),
        (
            format!("[{{match: [{{sniHosts: [a.example], gateways: [g]}}], {X}}}]"),
            vec![own, unknown],
        ),
        // Envoy would refuse the listener of all services for a part of a name.
        (
            format!("[{{match: [{{sniHosts: ['*a.example', b.example]}}], {X}}}]"),
            vec!["b.example -> x:9000", unknown],
        ),
        (
            format!("[{{match: [{{sniHosts: ['*a.example']}}], {X}}}]"),
            vec![own, unknown],
        ),
    ] {
        assert_eq!(
            of(false, 443, &format!("tls: {written}")),
            wanted,
            "{written}"
        );
    }
    let names = format!("tls: [{{match: [{{sniHosts: [a.example]}}], {X}}}]");
    // At an address of its own other names lead to the service, and other ports are as they were.
    assert_eq!(of(true, 443, &names), ["a.example -> x:9000", "-> s:443"]);
    assert_eq!(of(true, 444, &names), ["a.example -> x:9000", "-> s:444"]);
    assert_eq!(of(true, 7000, &names), ["-> s:7000"]);
}

#[test]
fn tcp_goes_by_where_it_wants_to_and_where_it_comes_from() {
    for (written, wanted) in [
        (format!("[{{{X}}}]"), vec!["-> x:9000"]),
        (
            "[{route: [{destination: {host: x}, weight: 25}, {destination: {host: y, port: {number: 9001}}, weight: 75}]}]".to_owned(),
            vec!["-> 25 x:9000 + 75 y:9001"],
        ),
        (
            format!("[{{match: [{{destinationSubnets: [10.1.0.0/16]}}], {X}}}]"),
            vec!["10.1.0.0/16 -> x:9000", "-> s:7000"],
        ),
        (
            format!("[{{match: [{{sourceSubnet: 10.9.0.0/16}}], {X}}}]"),
            vec!["from 10.9.0.0/16 -> x:9000", "-> s:7000"],
        ),
        (
            format!(
                "[{{match: [{{destinationSubnets: [10.1.0.0/16]}}], {X}}}, {{route: [{{destination: {{host: y}}}}]}}]"
            ),
            vec!["10.1.0.0/16 -> x:9000", "-> y:9000"],
        ),
        // From elsewhere they go where they would without the range.
        (
            format!("[{{match: [{{destinationSubnets: [10.0.0.0/8], sourceSubnet: 10.9.0.0/16}}], {X}}}]"),
            vec![
                "10.0.0.0/8 from 10.9.0.0/16 -> x:9000",
                "-> s:7000",
                "10.0.0.0/8 -> s:7000",
            ],
        ),
        // Behind one without conditions nothing is reached.
        (
            format!(
                "[{{{X}}}, {{match: [{{destinationSubnets: [10.1.0.0/16]}}], route: [{{destination: {{host: y}}}}]}}]"
            ),
            vec!["-> x:9000"],
        ),
        (format!("[{{match: [{{port: 7000}}], {X}}}]"), vec!["-> x:9000"]),
        (format!("[{{match: [{{port: 7001}}], {X}}}]"), vec!["-> s:7000"]),
        (
            format!("[{{match: [{{sourceLabels: {{app: x}}}}], {X}}}]"),
            vec!["-> s:7000"],
        ),
        (
            "[{route: [{destination: {host: gone.example, subset: v1}}]}]".to_owned(),
            vec!["-> gone:7000"],
        ),
    ] {
        let spec = format!("tcp: {written}");
        assert_eq!(of(false, 7000, &spec), wanted, "{written}");
        assert_eq!(of(true, 7000, &spec), wanted, "{written}");
        assert_eq!(of(false, 443, &spec).len(), 2, "TLS is not TCP: {written}");
    }
}

/// TLS is told by its names: a rule that has none is said to have no effect there, unless it is for other ports.
#[test]
fn tcp_is_not_for_ports_of_tls() {
    let conflicts_of = |ports: &[(u16, &str)], spec: &str| {
        let mut world = world();
        service(&mut world, "s.demo", ports, &[]);
        virtual_service(
            &mut world,
            "r",
            1,
            &format!("hosts: [s.demo.svc.cluster.local]\n{spec}"),
        );
        let snapshot = snapshot(world);
        let listener = chains(&*snapshot.view(&node("demo", &[])), "0.0.0.0_443");
        assert_eq!(
            listener[0], "s.demo.svc.cluster.local -> s:443",
            "as without the rule"
        );
        let conflicts = snapshot.conflicts().into_iter();
        let of_rule = conflicts.filter(|one| !one.objects.is_empty());
        of_rule.map(|one| one.message).collect::<Vec<_>>()
    };
    let message = "tcp of VirtualService demo/r does not apply to s.demo.svc.cluster.local:443: tls routes match connections of TLS and HTTPS";
    let (tls, both) = ([(443, "TLS")], [(443, "HTTPS"), (7000, "TCP")]);
    let all = format!("tcp: [{{{X}}}]");
    let of_port = format!("tcp: [{{match: [{{port: 443}}], {X}}}]");
    assert_eq!(conflicts_of(&tls, &all), [message]);
    assert_eq!(conflicts_of(&tls, &of_port), [message]);
    assert_eq!(conflicts_of(&both, &of_port), [message]);
    assert_eq!(conflicts_of(&both, &all), [""; 0]);
    let of_others = format!("tcp: [{{match: [{{port: 7000}}], {X}}}]");
    assert_eq!(conflicts_of(&both, &of_others), [""; 0]);
    let with_tls = format!(
        "{all}\ntls: [{{match: [{{sniHosts: [s.demo.svc.cluster.local]}}], route: [{{destination: {{host: s}}}}]}}]"
    );
    assert_eq!(conflicts_of(&tls, &with_tls), [""; 0]);
}

/// Listeners are told apart by labels and namespaces only where rules for connections ask for them.
#[test]
fn connections_are_told_apart_by_who_asks() {
    let mut world = mesh(false);
    virtual_service(
        &mut world,
        "r",
        1,
        &format!(
            "hosts: [s]\ntcp: [{{match: [{{sourceLabels: {{app: x}}}}], {X}}}, {{match: [{{sourceNamespace: other}}], route: [{{destination: {{host: y}}}}]}}]"
        ),
    );
    virtual_service(
        &mut world,
        "h",
        1,
        "hosts: [b]\nhttp: [{match: [{sourceLabels: {kind: z}}], directResponse: {status: 418}}]",
    );
    let snapshot = snapshot(world);
    let view = |namespace: &str, labels: &[(&str, &str)]| snapshot.view(&node(namespace, labels));
    let of =
        |namespace: &str, app: &str| chains(&*view(namespace, &[("app", app)]), "0.0.0.0_7000");
    assert_eq!(of("demo", "x"), ["-> x:9000"]);
    assert_eq!(of("demo", "y"), ["-> s:7000"]);
    assert_eq!(of("other", "y"), ["-> y:9000"]);
    let plain = view("demo", &[]).all(Type::Listener);
    let other = view("demo", &[("kind", "z")]).all(Type::Listener);
    assert!(Arc::ptr_eq(&plain, &other), "they depend on no such labels");
    let from = view("demo", &[])
        .get(Type::Listener, "0.0.0.0_7000")
        .unwrap();
    assert_eq!(from.from.len(), 0);
    let from = view("other", &[])
        .get(Type::Listener, "0.0.0.0_7000")
        .unwrap();
    assert_eq!(from.from[0].to_string(), "VirtualService demo/r");
}

/// A tenant's wildcard must not give each service of a mesh a thousand chains.
#[test]
fn routes_of_connections_are_bounded() {
    let mut world = world();
    for at in 0..200 {
        service(&mut world, &format!("s{at}.demo"), &[(443, "TLS")], &[]);
    }
    let routes: String = (0..1000)
        .map(|at| {
            let name = format!("n{at}-{}.demo.svc.cluster.local", "x".repeat(50));
            format!(
                "- {{match: [{{sniHosts: [{name}], destinationSubnets: [10.{}.{}.0/24]}}], {X}}}\n",
                at / 250,
                at % 250
            )
        })
        .collect();
    let hosts = "hosts: ['*.demo.svc.cluster.local']";
    virtual_service(&mut world, "wide", 1, &format!("{hosts}\ntls:\n{routes}"));
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let listener = view.get(Type::Listener, "0.0.0.0_443").unwrap();
    assert!(listener.body.len() < 6 << 20, "{}", listener.body.len());
    let conflicts = snapshot.conflicts();
    let conflicts = conflicts
        .iter()
        .filter(|one| one.metric == "gudgeon_rules_too_large");
    // One of the rule's chains at all ports, one of those that are copied at this one.
    assert_eq!(conflicts.count(), 2);
}

/// Returns true if connections of the one chain stay together by the client's address, where these are the rules.
fn is_by_source(rule: &str, route: &str) -> bool {
    let mut world = mesh(true);
    destination_rule(&mut world, "d", 1, rule);
    if !route.is_empty() {
        virtual_service(&mut world, "r", 1, route);
    }
    let listener: Listener = decoded(&*view(world), Type::Listener, "10.96.0.1_7000");
    let chains = &listener.filter_chains;
    let chain = chains.last().or(listener.default_filter_chain.as_ref());
    let Some(filter::ConfigType::TypedConfig(any)) = &chain.unwrap().filters[0].config_type else {
        panic!("a filter");
    };
    let proxy = TcpProxy::decode(any.value.as_slice()).unwrap();
    proxy.hash_policy.len() == 1
}

#[test]
fn connections_stay_together_by_the_clients_address_where_a_rule_says_so() {
    let hash = |host: &str, key: &str| {
        format!("host: {host}\ntrafficPolicy: {{loadBalancer: {{consistentHash: {{{key}}}}}}}")
    };
    let to_x = "hosts: [s]\ntcp: [{route: [{destination: {host: x, subset: v1}}]}]";
    let source = "useSourceIp: true";
    assert!(is_by_source(&hash("s", source), ""));
    assert!(!is_by_source(&hash("s", "useSourceIp: false"), ""));
    assert!(!is_by_source(&hash("s", "httpHeaderName: a"), ""));
    // It is that of where they go, and of its subset.
    assert!(!is_by_source(&hash("s", source), to_x));
    assert!(is_by_source(&hash("x", source), to_x));
    let of_subset = format!(
        "host: x\nsubsets: [{{name: v1, labels: {{version: v1}}, trafficPolicy: {{loadBalancer: {{consistentHash: {{{source}}}}}}}}}]"
    );
    assert!(is_by_source(&of_subset, to_x));
}

/// Listeners have connections by the services that they are to: a rule for other hosts comes to nothing, and it is told.
#[test]
fn routes_for_hosts_that_no_service_has_are_told() {
    let tls = "tls: [{match: [{sniHosts: [x.example]}], route: [{destination: {host: a}}]}]";
    let of_edge = tls.replace("[{sniHosts", "[{gateways: [g], sniHosts");
    let tcp = "tcp: [{route: [{destination: {host: a, port: {number: 90}}}]}]";
    let rules_without_service = |spec: &str| {
        let mut world = world();
        service(&mut world, "own.example", &[(443, "TLS")], &[]);
        virtual_service(&mut world, "v", 1, spec);
        let all = snapshot(world).conflicts().into_iter();
        let all = all.filter(|one| one.message.contains("no service has one of its hosts"));
        all.map(|one| one.objects[0].to_string())
            .collect::<Vec<_>>()
    };
    for spec in [
        format!("hosts: [x.example]\n{tls}"),
        format!("hosts: [x.example]\n{tcp}"),
        format!("hosts: ['*.other.example']\ngateways: [mesh, g]\n{tls}")
            .replace("x.example", "x.other.example"),
    ] {
        assert_eq!(
            rules_without_service(&spec),
            ["VirtualService demo/v"],
            "{spec}"
        );
    }
    for spec in [
        format!("hosts: [x.example, OWN.example]\n{tls}"),
        format!("hosts: ['*.example']\n{tls}"),
        format!("hosts: [a]\n{tcp}"),
        format!("hosts: [x.example]\ngateways: [g]\n{tls}"),
        format!("hosts: [x.example]\ngateways: [mesh, g]\n{of_edge}"),
        "hosts: [x.example]\nhttp: [{route: [{destination: {host: a}}]}]".to_owned(),
    ] {
        assert_eq!(rules_without_service(&spec), [""; 0], "{spec}");
    }
}
