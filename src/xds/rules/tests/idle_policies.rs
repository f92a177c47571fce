//! DestinationRules of which something is for no port that there is.

use std::collections::BTreeSet;

use api::networking::Sidecar;

use super::*;

/// Messages of one rule for these services: `a` has ports of HTTP and TCP, `b` of HTTP, `t` of TCP, `u` of no protocol, `h` is
/// headless, and `n.example` is wherever its clients say.
fn told_with(spec: &str, change: impl FnOnce(&mut World)) -> Vec<String> {
    let mut world = world();
    service(&mut world, "t.demo", &[(91, "TCP")], &[]);
    service(&mut world, "u.demo", &[(93, "")], &[]);
    for (name, registry) in [
        ("h.demo", Registry::Kubernetes),
        ("n.example", Registry::External),
    ] {
        service(&mut world, name, &[(80, "HTTP")], &[]);
        let services = Arc::make_mut(&mut world.services);
        let host = name.strip_suffix(".demo");
        let host = host.map_or_else(
            || name.to_owned(),
            |host| format!("{host}.demo.svc.cluster.local"),
        );
        let service = services.get_mut(&ServiceKey::new(&host, "demo")).unwrap();
        let service = Arc::make_mut(service);
        service.resolution = Resolution::None;
        service.registry = registry;
    }
    change(&mut world);
    destination_rule(&mut world, "d", 1, spec);
    let all = snapshot(world).conflicts().into_iter();
    let all = all.filter(|one| one.metric == "pilot_total_rejected_configs");
    all.map(|one| {
        assert_eq!(one.objects[0].to_string(), "DestinationRule demo/d");
        one.message
    })
    .collect()
}

fn told(spec: &str) -> Vec<String> {
    told_with(spec, |_| {})
}

const NO_HTTP: &str = "no service with its host has a port of HTTP";
const LIMITS: &str = "connectionPool: {http: {http2MaxRequests: 9}}";

#[test]
fn settings_of_requests_are_told_where_no_port_has_any() {
    for (policy, fields) in [
        (
            "connectionPool: {http: {http2MaxRequests: 1, maxRequestsPerConnection: 1, maxRetries: 1, idleTimeout: 1s, useClientProtocol: true, maxConcurrentStreams: 1}}",
            &[
                "connectionPool.http.http2MaxRequests",
                "connectionPool.http.maxRequestsPerConnection",
                "connectionPool.http.maxRetries",
                "connectionPool.http.idleTimeout",
                "connectionPool.http.useClientProtocol",
                "connectionPool.http.maxConcurrentStreams",
            ][..],
        ),
        (
            "loadBalancer: {consistentHash: {httpHeaderName: x}}",
            &["loadBalancer.consistentHash.httpHeaderName"],
        ),
        (
            "loadBalancer: {consistentHash: {httpCookie: {name: x, ttl: 1s}}}",
            &["loadBalancer.consistentHash.httpCookie"],
        ),
        (
            "loadBalancer: {consistentHash: {httpQueryParameterName: x}}",
            &["loadBalancer.consistentHash.httpQueryParameterName"],
        ),
        (
            "outlierDetection: {splitExternalLocalOriginErrors: true, consecutive5xxErrors: 1, consecutiveGatewayErrors: 1}",
            &[
                "outlierDetection.consecutive5xxErrors",
                "outlierDetection.consecutiveGatewayErrors",
            ],
        ),
        (
            "outlierDetection: {outlierDetectionHttpErrorCodes: [429]}",
            &["outlierDetection.outlierDetectionHttpErrorCodes"],
        ),
        ("retryBudget: {percent: 10}", &["retryBudget"]),
        // Envoy counts failed connections as responses of 503, and those that wait as pending requests.
        (
            "outlierDetection: {consecutive5xxErrors: 1, consecutiveGatewayErrors: 1}",
            &[],
        ),
        (
            "connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}",
            &[],
        ),
        ("loadBalancer: {consistentHash: {useSourceIp: true}}", &[]),
    ] {
        let expected = fields.iter();
        let expected =
            expected.map(|field| format!("spec.trafficPolicy.{field} has no effect: {NO_HTTP}"));
        let mut expected: Vec<_> = expected.collect();
        let mut found = told(&format!("host: t\ntrafficPolicy: {{{policy}}}"));
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{policy}");
        for host in ["a", "b", "u", "none.example"] {
            let spec = format!("host: {host}\ntrafficPolicy: {{{policy}}}");
            assert_eq!(told(&spec), [""; 0], "{spec}");
        }
    }
}

#[test]
fn settings_of_one_port_are_told_by_its_protocol() {
    let policy =
        |number: u16| format!("portLevelSettings: [{{port: {{number: {number}}}, {LIMITS}}}]");
    let field = "spec.trafficPolicy.portLevelSettings[0]";
    let of_port = |number: u16| told(&format!("host: a\ntrafficPolicy: {{{}}}", policy(number)));
    assert_eq!(of_port(80), [""; 0]);
    assert_eq!(
        of_port(90),
        [format!(
            "{field}.connectionPool.http.http2MaxRequests has no effect: no service with its host has a port 90 of HTTP"
        )]
    );
    assert_eq!(
        of_port(81),
        [format!(
            "{field} has no effect: no service with its host has a port 81"
        )]
    );
    let of_udp = told_with(
        &format!("host: a\ntrafficPolicy: {{{}}}", policy(53)),
        |world| {
            let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
            let services = Arc::make_mut(&mut world.services);
            let service = Arc::make_mut(services.get_mut(&key).unwrap());
            service.ports.push(Port {
                name: "dns".into(),
                number: 53,
                protocol: Protocol::Udp,
                target: Target::Number(53),
            });
        },
    );
    assert_eq!(
        of_udp,
        [format!(
            "{field} has no effect: port 53 is UDP, which proxies do not serve"
        )]
    );
    // The port of HTTP has settings of its own.
    let rest = format!("host: a\ntrafficPolicy: {{{LIMITS}, {}}}", policy(80));
    assert_eq!(
        told(&rest),
        [
            "spec.trafficPolicy.connectionPool.http.http2MaxRequests has no effect: no service with its host has another port of HTTP"
        ]
    );
    let subset = format!("host: t\nsubsets: [{{name: s, trafficPolicy: {{{LIMITS}}}}}]");
    assert_eq!(
        told(&subset),
        [format!(
            "spec.subsets[0].trafficPolicy.connectionPool.http.http2MaxRequests has no effect: {NO_HTTP}"
        )]
    );
    let wide = format!("host: '*.demo.svc.cluster.local'\ntrafficPolicy: {{{LIMITS}}}");
    assert_eq!(told(&wide), [""; 0]);
}

#[test]
fn requests_and_connections_that_rules_lead_elsewhere_count() {
    let limits = format!("host: t\ntrafficPolicy: {{{LIMITS}}}");
    let tunnel = "host: b\ntrafficPolicy: {tunnel: {targetHost: x.example, targetPort: 443}}";
    assert_eq!(
        told(tunnel),
        [
            "spec.trafficPolicy.tunnel has no effect: all ports of services with its host are of HTTP, and connections alone are tunnelled"
        ]
    );
    for host in ["a", "t", "u"] {
        assert_eq!(
            told(&tunnel.replace("host: b", &format!("host: {host}"))),
            [""; 0]
        );
    }
    let with_route = |spec: &str, route: &str| {
        told_with(spec, |world| virtual_service(world, "v", 1, route)).len()
    };
    let http = "hosts: [a]\nhttp: [{route: [{destination: {host: t, port: {number: 91}}}]}]";
    let tcp = "hosts: [a]\ntcp: [{route: [{destination: {host: b, port: {number: 80}}}]}]";
    assert_eq!(with_route(&limits, http), 0);
    assert_eq!(with_route(&limits, tcp), 1);
    assert_eq!(with_route(tunnel, tcp), 0);
    assert_eq!(with_route(tunnel, http), 1);
    let with_sidecar = |spec: &str, egress: &str| {
        told_with(spec, |world| {
            insert(&mut world.sidecars, object::<Sidecar>("s", 1, egress));
        })
        .len()
    };
    let port = |protocol: &str| {
        format!("egress: [{{port: {{number: 9, name: x, protocol: {protocol}}}, hosts: ['./*']}}]")
    };
    assert_eq!(with_sidecar(&limits, &port("HTTP")), 0);
    assert_eq!(with_sidecar(&limits, &port("TCP")), 1);
    assert_eq!(with_sidecar(tunnel, &port("TCP")), 0);
    assert_eq!(with_sidecar(tunnel, &port("HTTP")), 1);
    let proxy = "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: HOST.demo.svc.cluster.local, port: {number: 80}}}";
    assert_eq!(with_sidecar(&limits, &proxy.replace("HOST", "t")), 0);
    assert_eq!(with_sidecar(tunnel, &proxy.replace("HOST", "b")), 0);
}

#[test]
fn balancers_are_told_where_clients_choose_themselves() {
    let balancer = |host: &str, balancer: &str| {
        told(&format!(
            "host: {host}\ntrafficPolicy: {{loadBalancer: {{{balancer}}}}}"
        ))
    };
    let chosen = "to the address that the client chose";
    for one in [
        "simple: RANDOM",
        "consistentHash: {httpHeaderName: x}",
        "localityLbSetting: {enabled: true}",
    ] {
        assert_eq!(
            balancer("n.example", one),
            [format!(
                "spec.trafficPolicy.loadBalancer has no effect: connections to services with its host go {chosen}"
            )],
            "{one}"
        );
        assert_eq!(
            balancer("h", one),
            [format!(
                "spec.trafficPolicy.loadBalancer counts only at routers and where connections are not intercepted: other sidecars send what is for a headless service {chosen}"
            )],
            "{one}"
        );
        assert_eq!(balancer("b", one), [""; 0], "{one}");
    }
    for one in ["simple: PASSTHROUGH", "localityLbSetting: {enabled: false}"] {
        assert_eq!(balancer("n.example", one), [""; 0], "{one}");
    }
}

/// A push of endpoints keeps what is told of rules, so this is more than one.
#[test]
fn the_first_endpoint_and_the_last_change_what_is_told_of_balancers() {
    let key = ServiceKey::new("n.example", "demo");
    let hosts = BTreeSet::from([key.hostname.clone()]);
    let with_rule = |policy: &str| {
        let mut world = world();
        service(
            &mut world,
            "n.example",
            &[(80, "HTTP")],
            &[("10.0.9.1", "v1")],
        );
        let one = Arc::make_mut(&mut world.services).get_mut(&key).unwrap();
        let one = Arc::make_mut(one);
        (one.resolution, one.registry) = (Resolution::None, Registry::External);
        let spec = format!("host: n.example\ntrafficPolicy: {{{policy}}}");
        destination_rule(&mut world, "d", 1, &spec);
        world
    };
    let told = |snapshot: &Arc<Snapshot>| {
        let all = snapshot.conflicts();
        all.iter()
            .filter(|one| one.message.contains("loadBalancer has no effect"))
            .count()
    };
    let without = |world: &World| {
        let mut world = world.clone();
        let endpoints = Arc::make_mut(&mut world.endpoints);
        endpoints.remove(&key).unwrap();
        world
    };
    for (policy, notes) in [("loadBalancer: {simple: RANDOM}", 1), (LIMITS, 0)] {
        let some = with_rule(policy);
        let none = without(&some);
        let first = snapshot(none.clone());
        assert_eq!(told(&first), notes, "{policy}");
        let with = first.next(some.clone(), Some(&hosts), None);
        assert_eq!(
            (told(&with.snapshot), with.full),
            (0, notes == 1),
            "{policy}"
        );
        let mut more = some;
        let endpoints = Arc::make_mut(&mut more.endpoints);
        let shards = Arc::make_mut(endpoints.get_mut(&key).unwrap());
        let shard = shards.values_mut().next().unwrap();
        let mut two: Vec<_> = shard.to_vec();
        two.push(two[0].clone());
        *shard = two.into();
        let with = with.snapshot.next(more, Some(&hosts), None);
        assert_eq!((told(&with.snapshot), with.full), (0, false), "{policy}");
        let last = with.snapshot.next(none, Some(&hosts), None);
        assert_eq!(
            (told(&last.snapshot), last.full),
            (notes, notes == 1),
            "{policy}"
        );
    }
}

/// Tenants write any number of them.
#[test]
fn a_rule_with_thousands_of_ports_is_bounded() {
    let ports: Vec<_> = (1000..9000)
        .map(|number| format!("{{port: {{number: {number}}}, {LIMITS}}}"))
        .collect();
    let spec = format!(
        "host: t\ntrafficPolicy: {{portLevelSettings: [{}]}}",
        ports.join(", ")
    );
    assert_eq!(told(&spec).len(), 21);
}

#[test]
fn settings_of_http2_are_told_where_no_connection_speaks_it() {
    let of = |host: &str, http: &str| {
        told(&format!(
            "host: {host}\ntrafficPolicy: {{connectionPool: {{http: {{{http}}}}}}}"
        ))
    };
    let field = |name: &str, why: &str| {
        format!(
            "spec.trafficPolicy.connectionPool.http.{name} has no effect: no service with its host has a port {why}"
        )
    };
    let undeclared = "declared as HTTP, and undeclared ones are spoken to as their clients speak";
    assert_eq!(
        of("u", "h2UpgradePolicy: UPGRADE"),
        [field("h2UpgradePolicy", undeclared)]
    );
    assert_eq!(of("b", "h2UpgradePolicy: UPGRADE"), [""; 0]);
    assert_eq!(
        of("t", "h2UpgradePolicy: UPGRADE"),
        [format!(
            "spec.trafficPolicy.connectionPool.http.h2UpgradePolicy has no effect: {NO_HTTP}"
        )]
    );
    let http1 = "of HTTP/2, and h2UpgradePolicy does not upgrade to it";
    let both = "maxConcurrentStreams: 9, http2KeepAlive: {interval: 1s, timeout: 1s}";
    assert_eq!(
        of("b", both),
        ["http2KeepAlive", "maxConcurrentStreams"].map(|name| field(name, http1))
    );
    for other in ["h2UpgradePolicy: UPGRADE", "useClientProtocol: true"] {
        assert_eq!(of("b", &format!("{both}, {other}")), [""; 0], "{other}");
    }
    assert_eq!(of("u", both), [""; 0]);
    let of_mesh = |policy: &str, change: &str| {
        let spec =
            format!("host: b\ntrafficPolicy: {{connectionPool: {{http: {{{both}{policy}}}}}}}");
        told_with(&spec, |world| {
            let config = mesh::parse_over(&mesh::discovery_defaults(), change).unwrap();
            world.mesh = Arc::new(config.config);
        })
        .len()
    };
    let upgraded = "h2UpgradePolicy: UPGRADE";
    assert_eq!(of_mesh("", upgraded), 0);
    assert_eq!(of_mesh(", h2UpgradePolicy: DO_NOT_UPGRADE", upgraded), 2);
    assert_eq!(of_mesh("", ""), 2);
}
