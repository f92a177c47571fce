//! Rules for hosts below the wildcards of services: they count on the ports of these.

use envoy_types::pb::envoy::config::route::v3::VirtualHost;

use super::routes::goes;
use super::*;

const ANSWER: &str = "http: [{directResponse: {status: 403}}]";

/// Adds a service with a wildcard for its host, and with an address where one is written.
pub(super) fn wildcard(world: &mut World, host: &str, ports: &[(u16, &str)], address: &str) {
    service(world, "w.example", ports, &[("10.0.8.1", "v1")]);
    let (old, new) = (
        ServiceKey::new("w.example", "demo"),
        ServiceKey::new(host, "demo"),
    );
    let services = Arc::make_mut(&mut world.services);
    let mut service = (*services.remove(&old).unwrap()).clone();
    service.key = new.clone();
    if !address.is_empty() {
        let address = address.parse().unwrap();
        service.addresses.insert("Kubernetes".into(), vec![address]);
    }
    services.insert(new.clone(), Arc::new(service));
    let endpoints = Arc::make_mut(&mut world.endpoints);
    let places = endpoints.remove(&old).unwrap();
    endpoints.insert(new, places);
}

/// Virtual hosts of a configuration below `w.example`, each with its domains and where its first route leads.
fn below(view: &dyn View, name: &str) -> Vec<String> {
    let Some(routes) = view.get(Type::Route, name) else {
        return Vec::new();
    };
    let routes = RouteConfiguration::decode(&*routes.body).unwrap();
    let hosts = routes.virtual_hosts.iter();
    let hosts = hosts.filter(|host| host.name.contains("w.example"));
    let text =
        |host: &VirtualHost| format!("{}: {}", host.domains.join(" "), goes(&host.routes[0]));
    hosts.map(text).collect()
}

/// The host of a rule below a wildcard comes before this on each of its ports with requests, and nowhere else.
#[test]
fn a_rule_below_a_wildcard_counts_on_the_ports_of_the_wildcard() {
    let mut world = world();
    let ports = [(18080, "HTTP"), (18081, ""), (18082, "TCP"), (18083, "TLS")];
    wildcard(&mut world, "*.w.example", &ports, "");
    let spec = |host: &str, http: &str| format!("hosts: ['{host}']\n{http}");
    virtual_service(&mut world, "bad", 1, &spec("bad.w.example", ANSWER));
    virtual_service(&mut world, "deep", 1, &spec("*.deep.w.example", ANSWER));
    virtual_service(&mut world, "beside", 1, &spec("bad.v.example", ANSWER));
    let to = "http: [{route: [{destination: {host: b}}]}]";
    virtual_service(&mut world, "led", 1, &spec("led.w.example", to));
    let view = view(world);
    for port in [18080, 18081] {
        let wanted = [
            format!("*.deep.w.example *.deep.w.example:{port}: answer 403"),
            format!("*.w.example *.w.example:{port}: outbound|{port}||*.w.example"),
            format!("bad.w.example bad.w.example:{port}: answer 403"),
            format!("led.w.example led.w.example:{port}: outbound|80||b.demo.svc.cluster.local"),
        ];
        assert_eq!(below(&*view, &port.to_string()), wanted);
    }
    for port in ["18082", "18083"] {
        assert!(view.get(Type::Route, port).is_none(), "{port}");
    }
    // Where its destinations are it stays what it was.
    let at_80 = below(&*view, "80").join(", ");
    assert!(
        at_80.contains("led.w.example:80") && !at_80.contains("18080"),
        "{at_80}"
    );
}

/// A port that looks at bytes and has an address of its own has routes of its own.
#[test]
fn a_rule_below_a_wildcard_counts_at_an_address_of_the_wildcard() {
    let mut world = world();
    wildcard(
        &mut world,
        "*.w.example",
        &[(9000, ""), (9001, "")],
        "10.96.0.9",
    );
    let spec = format!("hosts: [bad.w.example, bad.v.example]\n{ANSWER}");
    virtual_service(&mut world, "bad", 1, &spec);
    let view = view(world);
    for port in [9000, 9001] {
        assert_eq!(
            below(&*view, &format!("*.w.example:{port}")),
            [
                format!("bad.w.example bad.w.example:{port}: answer 403"),
                format!("*: outbound|{port}||*.w.example"),
            ]
        );
    }
}

/// A service has its own ports to itself, and its rule counts on those that only the wildcard has.
#[test]
fn a_service_below_a_wildcard_keeps_its_own_ports() {
    let mut world = world();
    let ports = [(18080, "HTTP"), (18081, "HTTP")];
    wildcard(&mut world, "*.example", &ports, "");
    service(&mut world, "x.example", &[(18080, "HTTP")], &[]);
    let rule =
        "hosts: [x.example]\nhttp: [{match: [{port: 18081}], directResponse: {status: 403}}]";
    virtual_service(&mut world, "x", 1, rule);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let led =
        |port: u16| goes(&routes_of(&*view, &port.to_string(), &format!("x.example:{port}"))[0]);
    assert_eq!(led(18080), "outbound|18080||x.example");
    assert_eq!(led(18081), "answer 403");
    assert_eq!(snapshot.conflicts(), []);
}

/// The same behind the port that applications use as a proxy, where all ports have one configuration.
#[test]
fn a_rule_below_a_wildcard_counts_at_a_port_that_is_used_as_a_proxy() {
    let mut world = world();
    wildcard(&mut world, "*.w.example", &[(18080, "HTTP")], "");
    let spec = format!("hosts: [bad.w.example]\n{ANSWER}");
    virtual_service(&mut world, "bad", 1, &spec);
    let proxy = "egress: [{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}]";
    sidecars::sidecar(&mut world, "demo/s", 1, proxy);
    let hosts = below(&*view(world), "3128").join(", ");
    assert!(hosts.contains("bad.w.example:18080: answer 403"), "{hosts}");
}

/// A wildcard of a stranger has any number of ports: a rule has the room of its own ones all the same.
#[test]
fn the_ports_of_a_wildcard_take_no_room_from_those_of_a_rule() {
    let mut world = world();
    let ports: Vec<(u16, &str)> = (1000..5096).map(|port| (port, "HTTP")).collect();
    wildcard(&mut world, "*.example", &ports, "");
    let routes = (0..20).map(|at| {
        let path = "x".repeat(100);
        format!("- {{match: [{{uri: {{prefix: /{at}/{path}}}}}], directResponse: {{status: 403}}}}")
    });
    let routes: Vec<_> = routes.collect();
    let rule = format!("hosts: [bad.w.example]\nhttp:\n{}", routes.join("\n"));
    virtual_service(&mut world, "bad", 1, &rule);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(
        below(&*view, "80"),
        ["bad.w.example bad.w.example:80: answer 403"]
    );
    for port in 1000..1010 {
        assert!(view.get(Type::Route, &port.to_string()).is_some());
    }
    // Once for all ports of the wildcard.
    let conflicts = snapshot.conflicts().into_iter();
    let keys: Vec<_> = conflicts.map(|one| one.key).collect();
    assert_eq!(keys, ["bad.w.example"]);
}

/// A host is looked for at the longest wildcards, of which a tenant can have a hundred above it.
#[test]
fn a_host_counts_on_the_ports_of_the_nearest_wildcards() {
    let mut world = world();
    let host = "bad.a.b.c.d.e.w.example";
    let mut wildcards = Vec::new();
    for (at, (_, rest)) in (0..).zip(host.match_indices('.').map(|(at, _)| host.split_at(at))) {
        let port = 9000 + at;
        wildcard(&mut world, &format!("*{rest}"), &[(port, "HTTP")], "");
        wildcards.push(port);
    }
    virtual_service(&mut world, "bad", 1, &format!("hosts: [{host}]\n{ANSWER}"));
    let view = view(world);
    let has = |port: &u16| below(&*view, &port.to_string()).join(" ").contains(host);
    let found: Vec<_> = wildcards.into_iter().filter(has).collect();
    assert_eq!(found, [9000, 9001, 9002, 9003]);
}

/// A Sidecar that imports a host below a wildcard imports the service that has it.
#[test]
fn a_wildcard_is_imported_by_a_host_below_it() {
    for (imports, wanted) in [
        ("./x.w.example", true),
        ("*/x.w.example", true),
        ("./*.x.w.example", true),
        ("./*.w.example", true),
        ("./*.example", true),
        ("./w.example", false),
        ("./x.v.example", false),
        ("other/x.w.example", false),
        ("./x.w.example', '~demo/*.w.example", false),
        ("./*', '~demo/x.w.example", true),
    ] {
        let mut world = world();
        wildcard(&mut world, "*.w.example", &[(80, "HTTP")], "");
        let spec = format!("egress: [{{hosts: ['{imports}']}}]");
        sidecars::sidecar(&mut world, "demo/s", 1, &spec);
        let view = view(world);
        let has = view
            .get(Type::Cluster, "outbound|80||*.w.example")
            .is_some();
        assert_eq!(has, wanted, "{imports}");
        assert_eq!(!below(&*view, "80").is_empty(), wanted, "{imports}");
    }
}
