//! Services of Service objects.

use api::model::{EndpointAddress, Protocol, Resolution, Target};
use serde_json::{Value, json};

use super::{endpoints, key, objects, place, plain, served, service, set, slice};
use crate::kind::Kind as _;
use crate::kubernetes::index::wire::Service;

#[test]
fn names_of_ports_say_what_they_speak() {
    let names = [
        ("", Protocol::Auto),
        ("http", Protocol::Http),
        ("http-web", Protocol::Http),
        ("HTTP-x", Protocol::Http),
        ("httptest", Protocol::Auto),
        ("http2", Protocol::Http2),
        ("http2-x", Protocol::Http2),
        ("https", Protocol::Https),
        ("https-x", Protocol::Https),
        ("grpc", Protocol::Grpc),
        ("grpc-x", Protocol::Grpc),
        ("grpc-web", Protocol::GrpcWeb),
        ("grpc-web-x", Protocol::GrpcWeb),
        ("mongo", Protocol::Mongo),
        ("mysql-0", Protocol::MySql),
        ("redis", Protocol::Redis),
        ("tcp", Protocol::Tcp),
        ("tls-x", Protocol::Tls),
        ("web", Protocol::Auto),
    ];
    let ports: Vec<Value> = (1000..)
        .zip(names)
        .map(|(number, (name, _))| json!({"name": name, "port": number, "protocol": "TCP"}))
        .collect();
    let mut objects = objects();
    set(
        &mut objects,
        service("a", json!({"clusterIP": "10.96.0.1", "ports": ports})),
    );
    let service = served(&mut objects, "a");
    let found: Vec<_> = service
        .ports
        .iter()
        .map(|port| (&*port.name, port.protocol))
        .collect();
    assert_eq!(found, names);
    assert_eq!(service.ports[3].target, Target::Number(1003));
}

#[test]
fn a_service_of_too_many_ports_is_cut_and_said() {
    let ports: Vec<Value> = (1..=5000)
        .map(|port| json!({"name": format!("http-{port}"), "port": port}))
        .collect();
    let addresses: Vec<_> = (0..50).map(|at| format!("192.0.2.{at}")).collect();
    let spec = json!({"clusterIP": "10.96.0.1", "ports": ports, "externalIPs": addresses});
    let mut objects = objects();
    set(&mut objects, service("a", spec));
    let service = served(&mut objects, "a");
    assert_eq!(service.ports.len(), 4096);
    let addresses: usize = service.addresses.values().map(Vec::len).sum();
    assert_eq!(addresses, 24);
    let problem = objects.problems().next().unwrap();
    assert_eq!(
        problem.refusal.to_string(),
        "spec.ports: the first 4096 of 5000 are used: split the service"
    );
}

#[test]
fn app_protocol_wins_and_what_no_proxy_carries_is_dropped() {
    let mut objects = objects();
    let ports = json!([
        {"name": "http", "port": 80, "appProtocol": "grpc", "targetPort": "api"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        {"name": "sctp", "port": 90, "protocol": "SCTP"},
        {"name": "udp-x", "port": 91},
    ]);
    set(
        &mut objects,
        service("a", json!({"clusterIP": "10.96.0.1", "ports": ports})),
    );
    let service = served(&mut objects, "a");
    let found: Vec<_> = service
        .ports
        .iter()
        .map(|port| (port.number, port.protocol))
        .collect();
    assert_eq!(found, [(80, Protocol::Grpc), (53, Protocol::Tcp)]);
    assert_eq!(service.ports[0].target, Target::Name("api".into()));
    assert_eq!(objects.problems().count(), 0);
}

#[test]
fn a_service_has_its_addresses_in_their_order_and_its_balancers_apart() {
    let mut objects = objects();
    let mut object = service(
        "a",
        json!({
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "externalIPs": ["192.0.2.1", "10.96.0.1"], "selector": {"app": "a"},
            "ports": [{"port": 80}], "trafficDistribution": "PreferClose",
        }),
    );
    object["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:00Z");
    object["metadata"]["annotations"] = json!({
        "alpha.istio.io/canonical-serviceaccounts": "spiffe://other/x, ,me@example.com",
        "alpha.istio.io/kubernetes-serviceaccounts": "b,c",
    });
    object["status"] =
        json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}, {"hostname": "lb.example"}]}});
    set(&mut objects, object.clone());
    let service = served(&mut objects, "a");
    let addresses: Vec<_> = service
        .addresses_in("here")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(addresses, ["10.96.0.1", "fd00::1", "192.0.2.1"]);
    assert_eq!(
        service.balancers["here"],
        ["198.51.100.1".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(service.created, Some(60));
    assert_eq!(service.resolution, Resolution::Static);
    assert!(service.prefers_close && !service.mesh_external);
    let accounts: Vec<_> = service.accounts.iter().map(AsRef::as_ref).collect();
    assert_eq!(
        accounts,
        [
            "me@example.com",
            "spiffe://other/x",
            "spiffe://td/ns/demo/sa/b",
            "spiffe://td/ns/demo/sa/c"
        ]
    );
    objects.set_trust_domain("new");
    assert!(
        served(&mut objects, "a")
            .accounts
            .contains("spiffe://new/ns/demo/sa/b")
    );
    assert_eq!(served(&mut objects, "a").exported_to, []);
    object["metadata"]["annotations"] = json!({
        "networking.istio.io/traffic-distribution": "PreferClose",
        "networking.istio.io/exportTo": "., web",
    });
    set(&mut objects, object);
    let service = served(&mut objects, "a");
    assert!(service.prefers_close);
    assert_eq!(service.exported_to, [".".into(), "web".into()]);
    assert_eq!(objects.problems().count(), 0);
}

#[test]
fn an_export_to_no_namespace_is_one_to_the_own() {
    let mut objects = objects();
    let mut object = service(
        "a",
        json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}),
    );
    for (written, exported) in [
        ("bogus ns", &[".".into()][..]),
        ("bogus ns, web", &["web".into()]),
    ] {
        object["metadata"]["annotations"] = json!({"networking.istio.io/exportTo": written});
        set(&mut objects, object.clone());
        assert_eq!(served(&mut objects, "a").exported_to, exported);
        let problem = objects.problems().next().unwrap();
        assert_eq!(
            problem.refusal.to_string(),
            "networking.istio.io/exportTo: want \".\", \"*\", \"~\" or namespaces, got \"bogus ns\""
        );
    }
}

#[test]
fn a_distribution_that_kubernetes_does_not_know_is_told() {
    let mut objects = objects();
    let mut object = service(
        "a",
        json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}),
    );
    for word in ["PreferSameZone", "PreferSameNode"] {
        object["spec"]["trafficDistribution"] = json!(word);
        set(&mut objects, object.clone());
        assert!(served(&mut objects, "a").prefers_close, "{word}");
    }
    assert_eq!(objects.problems().count(), 0);
    object["spec"]["trafficDistribution"] = json!("PreferSameRack");
    set(&mut objects, object.clone());
    assert!(!served(&mut objects, "a").prefers_close);
    let problem = objects.problems().next().unwrap();
    assert_eq!(
        problem.refusal.to_string(),
        "spec.trafficDistribution: want PreferClose, PreferSameZone or PreferSameNode, got \"PreferSameRack\""
    );
    let long = "x".repeat(100_000);
    object["spec"]["trafficDistribution"] = json!(long);
    set(&mut objects, object.clone());
    let problem = objects.problems().next().unwrap();
    assert!(problem.refusal.to_string().len() < 200, "it is kept");
    object["spec"]["trafficDistribution"] = json!("preferclose");
    set(&mut objects, object.clone());
    assert!(
        !served(&mut objects, "a").prefers_close,
        "an annotation may have any case, the field not"
    );
    object["spec"]["trafficDistribution"] = Value::Null;
    object["metadata"]["annotations"] =
        json!({"networking.istio.io/traffic-distribution": "preferclose"});
    set(&mut objects, object.clone());
    assert!(served(&mut objects, "a").prefers_close);
    object["metadata"]["annotations"] = Value::Null;
    set(&mut objects, object.clone());
    assert!(!served(&mut objects, "a").prefers_close);
    assert_eq!(objects.problems().count(), 0);
}

#[test]
fn a_headless_service_has_no_address() {
    let mut objects = objects();
    let spec = json!({
        "clusterIP": "None", "clusterIPs": ["None"], "externalIPs": ["192.0.2.1"], "ports": [{"name": "http", "port": 80}],
    });
    set(&mut objects, service("a", spec));
    set(
        &mut objects,
        slice("a-1", "a", json!([{"addresses": ["10.0.0.1"]}])),
    );
    let service = served(&mut objects, "a");
    assert!(service.is_headless() && service.addresses.is_empty());
    assert_eq!(endpoints(&mut objects, "a").len(), 1);
}

#[test]
fn an_external_name_is_resolved_by_the_proxy() {
    let mut objects = objects();
    let named = |name: &str, ports: Value| {
        service(
            "a",
            json!({"type": "ExternalName", "externalName": name, "ports": ports, "selector": {"app": "a"}}),
        )
    };
    let ports =
        json!([{"name": "http", "port": 80}, {"name": "tls", "port": 443, "targetPort": 8443}]);
    set(&mut objects, named("one.example", ports.clone()));
    let service = served(&mut objects, "a");
    assert_eq!(service.resolution, Resolution::Dns);
    assert!(service.mesh_external && service.addresses.is_empty() && service.selector.is_empty());
    let found = endpoints(&mut objects, "a");
    assert_eq!(
        found.iter().map(|one| one.port).collect::<Vec<_>>(),
        [80, 443]
    );
    set(&mut objects, named("two.example", ports.clone()));
    let found = endpoints(&mut objects, "a");
    assert!(
        found
            .iter()
            .all(|one| one.address == EndpointAddress::Name("two.example".into()))
    );
    // Without ports, or without a name, there is no service.
    set(&mut objects, named("two.example", Value::Null));
    let contribution = objects.contribution();
    assert!(contribution.services.is_empty() && contribution.endpoints.is_empty());
    assert_eq!(objects.problems().count(), 0);
    for name in [
        "not a name",
        "one.example:80",
        "One.example",
        "one_.example",
    ] {
        set(&mut objects, named(name, ports.clone()));
        assert!(objects.contribution().services.is_empty());
        let problem = objects.problems().next().unwrap();
        assert_eq!((problem.kind, &problem.object), ("Service", &key("a")));
        let message = format!("spec.externalName: want a name, got {name:?}");
        assert_eq!(problem.refusal.to_string(), message);
    }
}

#[test]
fn invalid_fields_of_a_service_are_reported_and_others_used() {
    let mut objects = objects();
    let spec = json!({
        "clusterIPs": ["10.96.0.1", "nowhere"],
        "ports": [{"name": "http", "port": 70000}, {"name": "tcp", "port": 9000}, {"name": "tcp", "port": 9001}],
    });
    set(&mut objects, service("a", spec));
    let service = served(&mut objects, "a");
    assert_eq!(
        service
            .ports
            .iter()
            .map(|port| port.number)
            .collect::<Vec<_>>(),
        [9000]
    );
    assert_eq!(service.addresses_in("here").len(), 1);
    let problem = objects.problems().next().unwrap();
    assert_eq!(
        problem.refusal.to_string(),
        "spec.clusterIPs: want an address, got \"nowhere\""
    );
    set(&mut objects, plain("a"));
    assert_eq!(objects.problems().count(), 0);
}

#[test]
fn unread_fields_of_a_service_change_nothing() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    set(&mut objects, plain("b"));
    let before = objects.contribution();
    let mut same = plain("a");
    same["metadata"]["resourceVersion"] = json!("77");
    same["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    same["metadata"]["labels"] = json!({"x": "y"});
    set(&mut objects, same);
    let after = objects.contribution();
    assert!(std::sync::Arc::ptr_eq(&before.services, &after.services));
    // A change leaves all other services the same pointer.
    let mut other = plain("b");
    other["spec"]["ports"][0]["port"] = json!(81);
    set(&mut objects, other);
    let after = objects.contribution();
    assert!(std::sync::Arc::ptr_eq(
        &before.services[&place("a")],
        &after.services[&place("a")]
    ));
    assert_ne!(before.services[&place("b")], after.services[&place("b")]);
    objects.delete::<Service>(&key("a"));
    let after = objects.contribution();
    assert_eq!(after.services.keys().collect::<Vec<_>>(), [&place("b")]);
}

#[test]
fn endpoints_of_a_service_are_bounded_by_its_ports() {
    let with = |ports: usize, names: usize, addresses: usize, protocol: &str| {
        let ports: Vec<_> = (1..=ports)
            .map(|at| json!({"name": format!("{protocol}-{at}"), "port": at}))
            .collect();
        let addresses: Vec<_> = (0..addresses)
            .map(|at| format!("10.1.{}.{}", at >> 8, at & 255))
            .collect();
        let spec = json!({"clusterIP": "10.96.0.1", "externalIPs": addresses, "ports": ports});
        let mut one = service("a", spec);
        let names: Vec<_> = (0..names).map(|at| format!("n{at}")).collect();
        one["metadata"]["annotations"] = json!({
            "alpha.istio.io/canonical-serviceaccounts": names.join(","),
            "alpha.istio.io/kubernetes-serviceaccounts": "last",
        });
        one
    };
    let canonical = "alpha.istio.io/canonical-serviceaccounts";
    let kubernetes = "alpha.istio.io/kubernetes-serviceaccounts";
    for (ports, names, addresses, protocol, expected, wanted) in [
        (1_000, 99, 99, "http", (100, 100), None),
        (
            1_000,
            100,
            99,
            "http",
            (100, 100),
            Some(format!("{kubernetes}: the first 0 of 1")),
        ),
        (
            1_000,
            101,
            99,
            "http",
            (100, 100),
            Some(format!("{canonical}: the first 100 of 101")),
        ),
        (
            1_000,
            1,
            100,
            "http",
            (2, 100),
            Some("spec.externalIPs: the first 100 of 101".to_owned()),
        ),
        (64, 1, 63, "tcp", (2, 64), None),
        (
            64,
            1,
            64,
            "tcp",
            (2, 64),
            Some("spec.externalIPs: the first 64 of 65".to_owned()),
        ),
        (4_096, 1, 1, "tcp", (2, 2), None),
    ] {
        let mut objects = objects();
        set(&mut objects, with(ports, names, addresses, protocol));
        let one = served(&mut objects, "a");
        let found = (one.accounts.len(), one.addresses_in("here").len());
        assert_eq!(found, expected, "{ports} {names} {addresses}");
        let message = objects.problems().next();
        let message = message.map(|one| one.refusal.to_string());
        let message = message.map(|message| message.split(" are used").next().unwrap().to_owned());
        assert_eq!(message, wanted);
    }
}

#[test]
fn a_name_that_is_too_long_is_no_identity() {
    let mut one = service(
        "a",
        json!({"clusterIP": "10.96.0.1", "ports": [{"name": "tcp", "port": 1}]}),
    );
    let names = format!("n1,{}", "x".repeat(1025));
    one["metadata"]["annotations"] = json!({"alpha.istio.io/canonical-serviceaccounts": names});
    let mut objects = objects();
    set(&mut objects, one);
    let one = served(&mut objects, "a");
    assert!(one.accounts.iter().all(|name| name.len() < 100));
    assert_eq!(objects.problems().count(), 1);
}

/// 64 MiB of Services that counted for what the objects take alone were half a gigabyte of worlds and snapshots.
#[test]
fn services_count_for_what_is_served_of_them() {
    let size = |ports: usize| {
        let ports: Vec<_> = (1..=ports)
            .map(|port| format!(r#"{{"name": "p{port}", "port": {port}}}"#))
            .collect();
        let text = format!(
            r#"{{"metadata": {{"namespace": "demo", "name": "b"}}, "spec": {{"clusterIP": "10.0.0.1", "ports": [{}]}}}}"#,
            ports.join(", ")
        );
        serde_json::from_str::<Service>(&text).unwrap().size()
    };
    assert!((3_000..4_500).contains(&size(1)), "{}", size(1));
    assert!((2_000..2_500).contains(&(size(11) - size(10))));
}
