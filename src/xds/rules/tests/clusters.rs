//! DestinationRules as clusters and assignments: rows of discovery.md §15.

use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, LbConfig, LbPolicy,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf::Duration;

use super::*;

const A: &str = "outbound|80||a.demo.svc.cluster.local";
const V1: &str = "outbound|80|v1|a.demo.svc.cluster.local";
const V2: &str = "outbound|80|v2|a.demo.svc.cluster.local";
const SUBSETS: &str =
    "subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]";

fn with(spec: &str) -> Arc<dyn View> {
    let mut world = world();
    destination_rule(&mut world, "d", 1, spec);
    view(world)
}

fn policy(policy: &str) -> Cluster {
    cluster(&*with(&format!("host: a\ntrafficPolicy: {{{policy}}}")), A)
}

#[test]
fn a_subset_is_a_cluster_of_the_endpoints_with_its_labels() {
    let view = with(&format!("host: a\n{SUBSETS}"));
    assert_eq!(addresses(&*view, A), ["10.0.1.1", "10.0.1.2", "10.0.1.3"]);
    assert_eq!(addresses(&*view, V1), ["10.0.1.1", "10.0.1.2"]);
    assert_eq!(addresses(&*view, V2), ["10.0.1.3"]);
    let one = cluster(&*view, V2);
    assert_eq!(one.eds_cluster_config.unwrap().service_name, V2);
    assert!(
        view.get(Type::Endpoint, "outbound|80|v3|a.demo.svc.cluster.local")
            .is_none()
    );
    assert!(
        view.get(Type::Endpoint, "outbound|80|v1|b.demo.svc.cluster.local")
            .is_none()
    );
    // A name is one string for all who have it.
    let name = view.name(Type::Endpoint, V1).unwrap();
    let cluster = view.all(Type::Cluster).get(V1).unwrap().name.clone();
    assert!(Arc::ptr_eq(&name, &cluster));
    let from = view.get(Type::Endpoint, V1).unwrap().from.clone();
    assert_eq!(from[0].to_string(), "DestinationRule demo/d");
    let path = cluster_path(&*view, V1);
    assert_eq!(
        path,
        "/apis/networking.istio.io/v1alpha3/namespaces/demo/destination-rule/d"
    );
    let all = view.all(Type::Endpoint);
    assert!(all.get(V1).is_some() && all.get(A).is_some());
}

/// Nobody writes the labels of a place at a workload.
#[test]
fn a_subset_may_be_of_a_place() {
    let of = |label: &str| {
        let view = with(&format!(
            "host: a\nsubsets: [{{name: v1, labels: {{{label}}}}}]"
        ));
        addresses(&*view, V1)
    };
    let all = ["10.0.1.1", "10.0.1.2", "10.0.1.3"];
    assert_eq!(of("topology.kubernetes.io/region: region-v2"), all[2..]);
    assert_eq!(of("topology.istio.io/cluster: Kubernetes"), all);
    let both = "version: v1, topology.kubernetes.io/region: region-v1";
    assert_eq!(of(both), all[..2]);
    assert!(of("topology.kubernetes.io/region: elsewhere").is_empty());
    assert!(of("topology.kubernetes.io/zone: ''").is_empty());
}

/// A rule for some workloads stands in place of those for the namespace, however old these are, and takes nothing from them.
#[test]
fn a_rule_for_the_workload_comes_first() {
    let mut world = world();
    let pool = |max: u32| format!("connectionPool: {{tcp: {{maxConnections: {max}}}}}");
    let general = format!("host: a\ntrafficPolicy: {{{}}}", pool(10));
    let general = format!("{general}\n{SUBSETS}");
    let selecting = "host: a\nworkloadSelector: {matchLabels: {app: c}}";
    let with_pool = format!("{selecting}\ntrafficPolicy: {{{}}}", pool(3));
    destination_rule(&mut world, "general", 1, &general);
    destination_rule(&mut world, "selecting", 2, &with_pool);
    let subset = "subsets: [{name: v2, labels: {version: v2}}]";
    let with_subset = format!("{selecting}\n{subset}");
    destination_rule(&mut world, "also-selecting", 3, &with_subset);
    let snapshot = snapshot(world);
    let seen = |app: &str| snapshot.view(&node("demo", &[("app", app)]));
    let max = |app: &str| {
        let thresholds = cluster(&*seen(app), A).circuit_breakers.unwrap().thresholds;
        thresholds[0].max_connections.unwrap().value
    };
    let subsets = |app: &str| [V1, V2].map(|name| seen(app).all(Type::Cluster).get(name).is_some());
    assert_eq!((max("c"), subsets("c")), (3, [false, true]));
    assert_eq!((max("d"), subsets("d")), (10, [true, true]));
}

fn cluster_path(view: &dyn View, name: &str) -> String {
    let metadata = cluster(view, name).metadata.unwrap();
    let path = metadata.filter_metadata["istio"].fields["config"]
        .kind
        .clone();
    match path {
        Some(value::Kind::StringValue(path)) => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_spread_as_a_rule_says() {
    for (balancer, wanted) in [
        ("simple: ROUND_ROBIN", LbPolicy::RoundRobin),
        ("simple: LEAST_REQUEST", LbPolicy::LeastRequest),
        ("simple: LEAST_CONN", LbPolicy::LeastRequest),
        ("simple: RANDOM", LbPolicy::Random),
        ("consistentHash: {useSourceIp: true}", LbPolicy::RingHash),
        (
            "consistentHash: {useSourceIp: true, maglev: {}}",
            LbPolicy::Maglev,
        ),
    ] {
        let one = policy(&format!("loadBalancer: {{{balancer}}}"));
        assert_eq!(one.lb_policy, i32::from(wanted), "{balancer}");
    }
    for (written, size) in [
        ("", 1024),
        (", minimumRingSize: 5", 5),
        (", ringHash: {minimumRingSize: 7}", 7),
        (", ringHash: {minimumRingSize: 99999999}", 1 << 16),
    ] {
        let hash = format!("{{useSourceIp: true{written}}}");
        assert_eq!(ring(&hash, 0), [size, 1 << 16], "{written}");
    }
    assert_eq!(table(65_537, 0), Some(65_537));
}

/// The cluster of `a`, where its rule hashes, and has so many subsets; `a` has two ports.
fn hashing(hash: &str, subsets: usize) -> Cluster {
    let subsets = (0..subsets).map(|at| format!("{{name: s{at}}}"));
    let subsets = subsets.collect::<Vec<_>>().join(", ");
    let spec = format!(
        "host: a\ntrafficPolicy: {{loadBalancer: {{consistentHash: {hash}}}}}\nsubsets: [{subsets}]"
    );
    cluster(&*with(&spec), A)
}

fn ring(hash: &str, subsets: usize) -> [u64; 2] {
    let Some(LbConfig::RingHashLbConfig(ring)) = hashing(hash, subsets).lb_config else {
        panic!("a ring");
    };
    [ring.minimum_ring_size, ring.maximum_ring_size].map(|size| size.unwrap().value)
}

fn table(size: u64, subsets: usize) -> Option<u64> {
    let hash = format!("{{useSourceIp: true, maglev: {{tableSize: {size}}}}}");
    let Some(LbConfig::MaglevLbConfig(table)) = hashing(&hash, subsets).lb_config else {
        panic!("a table");
    };
    table.table_size.map(|size| size.value)
}

/// All proxies that see a service have its rings: it has no more of them than others, whatever its rule says.
#[test]
fn the_clusters_of_a_service_share_what_rings_may_have() {
    let largest = "{useSourceIp: true, ringHash: {minimumRingSize: 99999999}}";
    for (subsets, size) in [(7, 65_536), (15, 32_768), (511, 1024), (1000, 1024)] {
        assert_eq!(ring(largest, subsets), [size, size], "{subsets}");
    }
    // Envoy makes a ring as large as the lightest endpoint needs.
    assert_eq!(ring("{useSourceIp: true}", 511), [1024, 1024]);
    assert_eq!(table(131_071, 3), Some(131_071));
    assert_eq!(table(131_071, 4), None);
    assert_eq!(table(65_537, 1000), Some(65_537));
}

/// Envoy refuses all routes of a port for one cookie.
#[test]
fn an_attribute_of_a_cookie_has_a_length() {
    use envoy_types::pb::envoy::config::route::v3::route::Action;
    use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::PolicySpecifier;
    let (long, longest) = ("x".repeat(16_385), "x".repeat(16_384));
    let view = with(&format!(
        "host: a\ntrafficPolicy: {{loadBalancer: {{consistentHash: {{httpCookie: {{name: c, ttl: 1s, attributes: \
         [{{name: {long}}}, {{name: b, value: {long}}}, {{name: {longest}}}, {{name: d}}]}}}}}}}}"
    ));
    let routes = routes_of(&*view, "80", "a.demo.svc.cluster.local:80");
    let Some(Action::Route(action)) = &routes[0].action else {
        panic!("a route");
    };
    let Some(PolicySpecifier::Cookie(cookie)) = &action.hash_policy[0].policy_specifier else {
        panic!("a cookie");
    };
    let names: Vec<_> = cookie.attributes.iter().map(|one| &one.name).collect();
    assert_eq!(names, [&longest, "d"]);
}

#[test]
fn connections_go_where_they_wanted_to_where_a_rule_says_so() {
    let view = with("host: a\ntrafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}");
    let one = cluster(&*view, A);
    let kind = DiscoveryType::OriginalDst.into();
    assert_eq!(
        one.cluster_discovery_type,
        Some(ClusterDiscoveryType::Type(kind))
    );
    assert_eq!(one.lb_policy, i32::from(LbPolicy::ClusterProvided));
    assert!(one.eds_cluster_config.is_none());
    assert!(
        view.get(Type::Endpoint, A).is_none(),
        "nobody waits for them"
    );
}

const fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

#[test]
fn endpoints_that_fail_are_left_out() {
    let one = policy(
        "outlierDetection: {consecutive5xxErrors: 7, consecutiveGatewayErrors: 0, interval: 5m, baseEjectionTime: 15s, \
         maxEjectionPercent: 50, minHealthPercent: 30}",
    );
    let detection = one.outlier_detection.unwrap();
    let number = |value: Option<envoy_types::pb::google::protobuf::UInt32Value>| {
        value.map(|value| value.value)
    };
    assert_eq!(number(detection.consecutive_5xx), Some(7));
    assert_eq!(number(detection.enforcing_consecutive_5xx), Some(100));
    assert_eq!(number(detection.consecutive_gateway_failure), Some(0));
    assert_eq!(
        number(detection.enforcing_consecutive_gateway_failure),
        Some(0)
    );
    assert_eq!(number(detection.enforcing_success_rate), Some(0));
    assert_eq!(number(detection.max_ejection_percent), Some(50));
    // Half of one endpoint, and the usual 10 % of nine, would be none.
    assert!(detection.always_eject_one_host.unwrap().value);
    assert_eq!(
        (detection.interval, detection.base_ejection_time),
        (seconds(300), seconds(15))
    );
    let panic = one
        .common_lb_config
        .unwrap()
        .healthy_panic_threshold
        .unwrap();
    assert!((panic.value - 30.0).abs() < f64::EPSILON);

    let old = policy("outlierDetection: {consecutiveErrors: 3}")
        .outlier_detection
        .unwrap();
    assert_eq!(number(old.consecutive_gateway_failure), Some(3));
    assert_eq!(number(old.enforcing_consecutive_5xx), Some(0));
    let panic = policy("outlierDetection: {interval: 1s}")
        .common_lb_config
        .unwrap();
    assert!(panic.healthy_panic_threshold.unwrap().value.abs() < f64::EPSILON);
}

#[test]
fn connections_have_limits() {
    let one = policy(
        "connectionPool: {tcp: {maxConnections: 5, connectTimeout: 3s, tcpKeepalive: {probes: 4, time: 9s}}, \
         http: {http1MaxPendingRequests: 6, http2MaxRequests: 7, maxRetries: 8}}",
    );
    assert_eq!(one.connect_timeout, seconds(3));
    let limits = &one.circuit_breakers.unwrap().thresholds[0];
    let all = [
        limits.max_connections,
        limits.max_pending_requests,
        limits.max_requests,
        limits.max_retries,
    ];
    assert_eq!(all.map(|limit| limit.unwrap().value), [5, 6, 7, 8]);
    let keepalive = one
        .upstream_connection_options
        .unwrap()
        .tcp_keepalive
        .unwrap();
    assert_eq!(keepalive.keepalive_probes.unwrap().value, 4);
    assert_eq!(keepalive.keepalive_time.unwrap().value, 9);
    // What is not written stays without a limit.
    let limits = &policy("connectionPool: {http: {maxRetries: 8}}")
        .circuit_breakers
        .unwrap()
        .thresholds[0];
    assert_eq!(limits.max_connections.unwrap().value, u32::MAX);
}

fn options(cluster: &Cluster) -> HttpProtocolOptions {
    let mut all = cluster.typed_extension_protocol_options.values();
    HttpProtocolOptions::decode(&*all.next().unwrap().value).unwrap()
}

#[test]
fn connections_speak_what_a_rule_says() {
    let options_text = |http: &str| {
        let one = policy(&format!("connectionPool: {{http: {{{http}}}}}"));
        format!("{:?}", options(&one))
    };
    let upgraded = options_text(
        "h2UpgradePolicy: UPGRADE, maxConcurrentStreams: 9, http2KeepAlive: {interval: 7s, timeout: 1s}",
    );
    for part in [
        "Http2ProtocolOptions",
        "UInt32Value { value: 9 }",
        "seconds: 7",
    ] {
        assert!(upgraded.contains(part), "{part} in {upgraded}");
    }
    assert!(options_text("useClientProtocol: true").contains("UseDownstreamProtocolConfig"));
    let common = |pool: &str| {
        let one = policy(&format!("connectionPool: {{{pool}}}"));
        options(&one).common_http_protocol_options.unwrap()
    };
    let limits = common("http: {maxRequestsPerConnection: 3, idleTimeout: 4s}");
    assert_eq!(limits.max_requests_per_connection.unwrap().value, 3);
    assert_eq!(limits.idle_timeout, seconds(4));
    assert_eq!(
        common("tcp: {maxConnectionDuration: 5s}").max_connection_duration,
        seconds(5)
    );
    // A port that carries no HTTP has none of that.
    let view =
        with("host: a\ntrafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 3}}}");
    let tcp = cluster(&*view, "outbound|90||a.demo.svc.cluster.local");
    assert!(tcp.typed_extension_protocol_options.is_empty());
}

fn upstream(cluster: &Cluster) -> UpstreamTlsContext {
    use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
    let Some(ConfigType::TypedConfig(any)) = cluster.transport_socket.clone().unwrap().config_type
    else {
        panic!("a context");
    };
    UpstreamTlsContext::decode(&*any.value).unwrap()
}

#[test]
fn http2_clusters_offer_h2_by_alpn() {
    let alpn = |more: &str| {
        let spec = format!("host: a\ntrafficPolicy: {{tls: {{mode: SIMPLE}}{more}}}");
        upstream(&cluster(&*with(&spec), A))
            .common_tls_context
            .unwrap()
            .alpn_protocols
    };
    assert_eq!(alpn(""), [""; 0]);
    assert_eq!(
        alpn(", connectionPool: {http: {h2UpgradePolicy: UPGRADE}}"),
        ["h2"]
    );
}

#[test]
fn connections_are_secured_as_a_rule_says_whatever_the_mesh_does() {
    let mut world = world();
    let config = mesh::parse_over(&mesh::discovery_defaults(), "enableAutoMtls: true").unwrap();
    world.mesh = Arc::new(config.config);
    let of = |tls: &str| {
        let mut world = world.clone();
        destination_rule(
            &mut world,
            "d",
            1,
            &format!("host: a\n{SUBSETS}\ntrafficPolicy: {{tls: {{{tls}}}}}"),
        );
        view(world)
    };
    assert_eq!(
        cluster(&*view(world.clone()), A)
            .transport_socket_matches
            .len(),
        2
    );
    let plain = cluster(&*of("mode: DISABLE"), A);
    assert!(plain.transport_socket_matches.is_empty() && plain.transport_socket.is_none());

    let mesh = of("mode: ISTIO_MUTUAL");
    assert!(cluster(&*mesh, A).transport_socket_matches.is_empty());
    let context = upstream(&cluster(&*mesh, V1));
    assert_eq!(context.sni, "outbound_.80_.v1_.a.demo.svc.cluster.local");
    assert_eq!(
        context.common_tls_context.unwrap().alpn_protocols,
        ["istio"]
    );

    let named = of("mode: ISTIO_MUTUAL, sni: own.example");
    assert_eq!(upstream(&cluster(&*named, A)).sni, "own.example");
    let long = format!("mode: ISTIO_MUTUAL, sni: {}", "a".repeat(256));
    let of_mesh = "outbound_.80_._.a.demo.svc.cluster.local";
    assert_eq!(upstream(&cluster(&*of(&long), A)).sni, of_mesh);

    let simple = cluster(&*of("mode: SIMPLE"), A);
    let context = upstream(&simple);
    assert_eq!(context.sni, "");
    assert!(
        context
            .common_tls_context
            .unwrap()
            .tls_certificates
            .is_empty()
    );
    assert!(
        options(&simple)
            .upstream_http_protocol_options
            .unwrap()
            .auto_sni
    );

    let mutual = of(
        "mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /r, sni: d.example, subjectAltNames: [e.example]",
    );
    let mutual = cluster(&*mutual, A);
    let context = upstream(&mutual);
    assert_eq!(context.sni, "d.example");
    let common = context.common_tls_context.unwrap();
    let pairs = common.tls_certificate_sds_secret_configs.iter();
    let pairs: Vec<_> = pairs.map(|pair| pair.name.as_str()).collect();
    assert_eq!(pairs, ["file-cert:/c~/k"]);
    assert!(mutual.typed_extension_protocol_options.is_empty());
}

/// Envoy 1.40 checks nothing where `system_root_certs` stands alone.
#[test]
fn the_systems_roots_are_those_of_a_file() {
    let of = |tls: &str| with(&format!("host: a\ntrafficPolicy: {{tls: {{{tls}}}}}"));
    for tls in [
        "mode: SIMPLE",
        "mode: SIMPLE, caCertificates: system",
        "mode: SIMPLE, subjectAltNames: [e.example]",
        "mode: MUTUAL, clientCertificate: /c, privateKey: /k",
    ] {
        let context = format!("{:?}", upstream(&cluster(&*of(tls), A)));
        let file = "name: \"file-root:/etc/ssl/certs/ca-certificates.crt\"";
        assert!(
            context.contains(file) && context.contains("system_root_certs: None"),
            "{tls}: {context}"
        );
    }
    let open = upstream(&cluster(&*of("mode: SIMPLE, insecureSkipVerify: true"), A));
    let open = format!("{open:?}");
    assert!(open.contains("trusted_ca: None") && !open.contains("file-root"));
}

/// Envoy refuses a cluster for a longer name.
#[test]
fn a_name_that_tls_says_has_a_length() {
    let sni_length = |host: &str, tls: &str| {
        let mut world = world();
        if let Some(name) = host.strip_suffix(".svc.cluster.local") {
            service(&mut world, name, &[(80, "HTTP")], &[]);
        }
        let rule = format!("host: {host}\ntrafficPolicy: {{tls: {{{tls}}}}}");
        destination_rule(&mut world, "d", 1, &rule);
        let name = if host == "a" {
            A
        } else {
            &format!("outbound|80||{host}")
        };
        let one = cluster(&*view(world), name);
        let by_host = !one.typed_extension_protocol_options.is_empty();
        (upstream(&one).sni.len(), by_host)
    };
    for (length, expected_length) in [(255, 255), (256, 0)] {
        let tls = format!("mode: SIMPLE, sni: {}", "x".repeat(length));
        assert_eq!(
            sni_length("a", &tls),
            (expected_length, expected_length == 0),
            "{length}"
        );
    }
    // `outbound_.80_._.` stands before it.
    for (length, expected_length) in [(239, 255), (240, 0)] {
        let end = ".svc.cluster.local";
        let mut host = "x.".repeat(length / 2);
        host.truncate(length - end.len() - 1);
        let host = format!("{host}x{end}");
        assert_eq!(host.len(), length);
        assert_eq!(
            sni_length(&host, "mode: ISTIO_MUTUAL").0,
            expected_length,
            "{length}"
        );
    }
}

/// Routes of requests lead to ports of all protocols. A name that the client says, or that the rule lists, is the one to prove.
#[test]
fn servers_prove_the_host_that_connections_say() {
    let of = |protocol: &str, tls: &str| {
        let mut world = world();
        service(&mut world, "u.demo", &[(81, protocol)], &[]);
        let spec = format!("host: u\ntrafficPolicy: {{tls: {{{tls}}}}}");
        destination_rule(&mut world, "d", 1, &spec);
        let one = cluster(&*view(world), "outbound|81||u.demo.svc.cluster.local");
        let http = one.typed_extension_protocol_options.values().next();
        http.map(|_| {
            let options = options(&one);
            assert!(options.upstream_protocol_options.is_some(), "{protocol}");
            let upstream = options.upstream_http_protocol_options.unwrap_or_default();
            (upstream.auto_sni, upstream.auto_san_validation)
        })
    };
    for protocol in ["HTTP", "HTTP2", "", "HTTPS", "TLS", "TCP", "MONGO"] {
        let mutual = "mode: MUTUAL, clientCertificate: /c, privateKey: /k";
        for tls in ["mode: SIMPLE", mutual] {
            assert_eq!(of(protocol, tls), Some((true, true)), "{protocol} {tls}");
        }
    }
    for (more, expected) in [
        ("caCertificates: /r", Some((true, true))),
        ("subjectAltNames: [e.example]", Some((true, false))),
        ("insecureSkipVerify: true", Some((true, false))),
        ("sni: e.example", None),
    ] {
        let tls = format!("mode: SIMPLE, {more}");
        assert_eq!(of("HTTPS", &tls), expected, "{more}");
    }
    for other in ["mode: DISABLE", "mode: ISTIO_MUTUAL"] {
        assert_eq!(of("HTTPS", other), None, "{other}");
    }
}

/// The names by which a cluster knows its servers, each with its kind.
fn names_to_prove(cluster: &Cluster) -> Vec<String> {
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
    let common = upstream(cluster).common_tls_context.unwrap();
    let validation = match common.validation_context_type {
        Some(ValidationContextType::CombinedValidationContext(both)) => {
            both.default_validation_context.unwrap()
        }
        Some(ValidationContextType::ValidationContext(one)) => one,
        other => panic!("{other:?}"),
    };
    let names = validation.match_typed_subject_alt_names.iter();
    names
        .map(|name| {
            let kind = name.san_type().as_str_name();
            match name.matcher.as_ref().unwrap().match_pattern.as_ref() {
                Some(MatchPattern::Exact(text)) => format!("{kind} {text}"),
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

/// A name may be of several kinds, and costs a matcher for each that it may be.
#[test]
fn names_to_prove_are_of_any_kind() {
    let names =
        "subjectAltNames: [e.example, 'spiffe://td/a', 10.0.0.1, '2001:DB8:0::1', me@e.example]";
    assert_eq!(
        names_to_prove(&policy(&format!("tls: {{mode: SIMPLE, {names}}}"))),
        [
            "URI e.example",
            "DNS e.example",
            "URI spiffe://td/a",
            "DNS spiffe://td/a",
            "IP_ADDRESS 10.0.0.1",
            "DNS 10.0.0.1",
            "IP_ADDRESS 2001:db8::1",
            "DNS 2001:db8::1",
            "URI me@e.example",
            "EMAIL me@e.example",
        ]
    );
}

/// As in Istio, the names that a ServiceEntry lists are those of its servers where a rule lists none.
#[test]
fn servers_of_an_entry_prove_the_names_that_it_lists() {
    let of = |registry: Registry, tls: &str| {
        let mut world = world();
        let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
        let one = Arc::make_mut(Arc::make_mut(&mut world.services).get_mut(&key).unwrap());
        one.registry = registry;
        one.accounts = ["e.example".into()].into();
        let spec = format!("host: a\ntrafficPolicy: {{tls: {{{tls}}}}}");
        destination_rule(&mut world, "d", 1, &spec);
        let one = cluster(&*view(world), A);
        let by_host = !one.typed_extension_protocol_options.is_empty()
            && options(&one)
                .upstream_http_protocol_options
                .is_some_and(|http| http.auto_san_validation);
        (names_to_prove(&one).join(", "), by_host)
    };
    let of_entry = ("URI e.example, DNS e.example".to_owned(), false);
    let mutual = "mode: MUTUAL, clientCertificate: /c, privateKey: /k";
    for tls in ["mode: SIMPLE", "mode: SIMPLE, sni: s.example", mutual] {
        assert_eq!(of(Registry::External, tls), of_entry, "{tls}");
    }
    let named = "mode: SIMPLE, subjectAltNames: [f.example]";
    let of_rule = ("URI f.example, DNS f.example".to_owned(), false);
    assert_eq!(of(Registry::External, named), of_rule);
    let open = "mode: SIMPLE, insecureSkipVerify: true";
    assert_eq!(of(Registry::External, open), (String::new(), false));
    assert_eq!(
        of(Registry::Kubernetes, "mode: SIMPLE"),
        (String::new(), true)
    );
}

/// A name that an endpoint alone brings comes to the cluster although nothing else has changed.
#[test]
fn a_rule_whose_names_are_an_entrys_follows_them() {
    use crate::rules::destination_rule::ServerChecks;
    use crate::scope::Rules;
    for (tls, expected) in [
        ("mode: SIMPLE", [false, true]),
        ("mode: ISTIO_MUTUAL", [true, false]),
        ("mode: SIMPLE, subjectAltNames: [e.example]", [false, false]),
        ("mode: DISABLE", [false, false]),
    ] {
        let mut world = world();
        let spec = format!("host: a\ntrafficPolicy: {{tls: {{{tls}}}}}");
        destination_rule(&mut world, "d", 1, &spec);
        let rules = Rules::new(&world, &Settings::default(), &Arc::default());
        let checks = ServerChecks::of(&rules);
        assert_eq!([checks.accounts, checks.names], expected, "{tls}");
    }
}

#[test]
fn a_servers_own_cluster_has_the_limits_of_its_service() {
    let mut world = world();
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    let services = Arc::make_mut(&mut world.services);
    let one = Arc::make_mut(services.get_mut(&key).unwrap());
    one.selector = labels(&[("app", "a")]);
    destination_rule(
        &mut world,
        "d",
        1,
        "host: a\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 5}, http: {h2UpgradePolicy: UPGRADE}}, \
         loadBalancer: {simple: RANDOM}}",
    );
    let view = snapshot(world).view(&node("demo", &[("app", "a")]));
    let one = cluster(&*view, "inbound|80|p80|a.demo.svc.cluster.local");
    let limits = &one.circuit_breakers.unwrap().thresholds[0];
    assert_eq!(limits.max_connections.unwrap().value, 5);
    assert_eq!(one.lb_policy, 0);
    // The application may speak HTTP/1 alone.
    assert!(one.typed_extension_protocol_options.is_empty());
}

/// A rule for some workloads is for connections of theirs, and for none that come to them.
#[test]
fn a_rule_for_some_workloads_sets_no_limits_of_a_server() {
    let mut world = world();
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    let services = Arc::make_mut(&mut world.services);
    let one = Arc::make_mut(services.get_mut(&key).unwrap());
    one.selector = labels(&[("app", "a")]);
    let pool = |max: u32| {
        format!("host: a\ntrafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {max}}}}}}}")
    };
    let selector = "workloadSelector: {matchLabels: {app: a}}";
    let selecting = format!("{}\n{selector}", pool(3));
    destination_rule(&mut world, "selecting", 2, &selecting);
    let limits = |world: &World| {
        let view = snapshot(world.clone()).view(&node("demo", &[("app", "a")]));
        let max = |name: &str| {
            let thresholds = cluster(&*view, name).circuit_breakers.unwrap().thresholds;
            thresholds[0].max_connections.unwrap().value
        };
        ["inbound|80|p80|a.demo.svc.cluster.local", A].map(max)
    };
    let [inbound, outbound] = limits(&world);
    assert!(inbound > 5 && outbound == 3, "{inbound} {outbound}");
    destination_rule(&mut world, "general", 3, &pool(5));
    assert_eq!(limits(&world), [5, 3]);
}

/// A program with gRPC in it has providers of certificates, and refuses files: it never calls in plain text what a rule secures.
#[test]
fn a_program_with_grpc_is_told_of_tls() {
    let of = |tls: &str| {
        let mut world = world();
        destination_rule(
            &mut world,
            "d",
            1,
            &format!("host: a\ntrafficPolicy: {{tls: {{{tls}}}}}"),
        );
        let mut node = (*node("demo", &[])).clone();
        node.grpc = true;
        cluster(&*snapshot(world).view(&Arc::new(node)), A)
    };
    let mutual = of("mode: ISTIO_MUTUAL, subjectAltNames: [spiffe://x/ns/y/sa/z]");
    let context = upstream(&mutual);
    assert_eq!(context.sni, "outbound_.80_._.a.demo.svc.cluster.local");
    let context_text = format!("{:?}", context.common_tls_context.unwrap());
    for part in [
        "\"default\"",
        "\"ROOTCA\"",
        "Exact(\"spiffe://x/ns/y/sa/z\")",
    ] {
        assert!(context_text.contains(part), "{part}: {context_text}");
    }
    assert!(!context_text.contains(".pem"), "{context_text}");
    assert!(mutual.transport_socket_matches.is_empty());
    let simple = of("mode: SIMPLE");
    assert!(
        simple.transport_socket.is_some() && simple.typed_extension_protocol_options.is_empty()
    );
    assert!(of("mode: DISABLE").transport_socket.is_none());
}

/// An ingress has the number of where the application is, and the pool is that of the service's port.
#[test]
fn an_ingress_has_the_limits_of_its_service() {
    let mut world = world();
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    let services = Arc::make_mut(&mut world.services);
    let one = Arc::make_mut(services.get_mut(&key).unwrap());
    one.selector = labels(&[("app", "a")]);
    one.ports[0].target = Target::Number(8080);
    let pool = |max: u32| format!("connectionPool: {{tcp: {{maxConnections: {max}}}}}");
    let ports = format!(
        "portLevelSettings: [{{port: {{number: 80}}, {}}}, {{port: {{number: 8080}}, {}}}]",
        pool(6),
        pool(7)
    );
    destination_rule(
        &mut world,
        "d",
        1,
        &format!("host: a\ntrafficPolicy: {{{ports}}}"),
    );
    let ingress = "ingress: [{port: {number: 8080, protocol: HTTP, name: web}, defaultEndpoint: '127.0.0.1:9000'}]";
    let object = object::<api::networking::Sidecar>("s", 1, ingress);
    insert(&mut world.sidecars, object);
    let view = snapshot(world).view(&node("demo", &[("app", "a")]));
    let one = cluster(&*view, "inbound|8080|web|a.demo.svc.cluster.local");
    let limits = &one.circuit_breakers.unwrap().thresholds[0];
    assert_eq!(limits.max_connections.unwrap().value, 6);
}

#[test]
fn a_subset_comes_over_its_rule_and_a_port_replaces_both() {
    let view = with(
        "host: a\n\
         trafficPolicy: {loadBalancer: {simple: RANDOM}, outlierDetection: {interval: 1s}, \
          portLevelSettings: [{port: {number: 90}, loadBalancer: {simple: LEAST_REQUEST}}]}\n\
         subsets: [{name: v1, labels: {version: v1}}, \
          {name: v2, labels: {version: v2}, trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}}]",
    );
    let what = |name: &str| {
        let one = cluster(&*view, name);
        (
            LbPolicy::try_from(one.lb_policy).unwrap(),
            one.outlier_detection.is_some(),
        )
    };
    assert_eq!(what(A), (LbPolicy::Random, true));
    assert_eq!(what(V1), (LbPolicy::Random, true));
    // The first of the enumeration is what nobody writes.
    assert_eq!(what(V2), (LbPolicy::RoundRobin, true));
    assert_eq!(
        what("outbound|90||a.demo.svc.cluster.local"),
        (LbPolicy::LeastRequest, false)
    );
    assert_eq!(
        what("outbound|90|v1|a.demo.svc.cluster.local"),
        (LbPolicy::LeastRequest, false)
    );
    assert_eq!(
        what("outbound|90|v2|a.demo.svc.cluster.local"),
        (LbPolicy::RoundRobin, false)
    );
}

#[test]
fn localities_of_a_rule_come_in_place_of_the_mesh() {
    let failover =
        "loadBalancer: {localityLbSetting: {failover: [{from: region-v1, to: region-v3}]}}";
    let detected = format!("{failover}, outlierDetection: {{interval: 1s}}");
    assert_regions_have_levels(&detected);
    // Regions without ready endpoints are taken over from, too.
    assert_regions_have_levels(failover);
}

fn assert_regions_have_levels(policy: &str) {
    let mut world = world();
    let spec = format!("host: a\ntrafficPolicy: {{{policy}}}");
    destination_rule(&mut world, "d", 1, &spec);
    let read = Node::read(Some(&core::Node {
        id: "sidecar~10.9.0.1~x-1.demo~demo.svc.cluster.local".to_owned(),
        locality: Some(core::Locality {
            region: "region-v2".to_owned(),
            ..core::Locality::default()
        }),
        ..core::Node::default()
    }));
    let view = snapshot(world).view(&Arc::new(read.unwrap()));
    let levels = |name: &str| -> Vec<String> {
        let assignment: ClusterLoadAssignment = decoded(&*view, Type::Endpoint, name);
        let groups = assignment.endpoints.iter();
        groups
            .map(|group| {
                format!(
                    "{} {}",
                    group.priority,
                    group.locality.as_ref().unwrap().region
                )
            })
            .collect()
    };
    assert_eq!(levels(A), ["1 region-v1", "0 region-v2"]);
    assert_eq!(
        levels("outbound|80||b.demo.svc.cluster.local"),
        ["0 region-v1"]
    );
}

/// A list of all rules at each cluster would take gigabytes: 1,000 rules for `*.x.com` with a subset each did.
#[test]
fn a_cluster_names_the_rules_that_decide_about_it() {
    let mut world = world();
    let host = "a.demo.svc.cluster.local";
    let subset =
        |at: usize| format!("host: {host}\nsubsets: [{{name: s{at}, labels: {{version: v1}}}}]\n");
    for at in 0..150 {
        destination_rule(&mut world, &format!("r{at:03}"), 10, &subset(at));
    }
    // A policy of a younger rule, as no older one has any; and one that an older one shadows.
    for (name, created, retries) in [("policy", 9, 7), ("shadowed", 9, 8)] {
        let spec = format!(
            "host: {host}\ntrafficPolicy: {{connectionPool: {{http: {{maxRetries: {retries}}}}}}}\n"
        );
        destination_rule(&mut world, name, created, &spec);
    }
    destination_rule(&mut world, "first", 1, &subset(999));
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let from = |name: &str| {
        let cluster = view.get(Type::Cluster, name).unwrap();
        let names = cluster.from.iter().map(|one| one.name.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(from(&format!("outbound|80||{host}")), ["first", "policy"]);
    assert_eq!(
        from(&format!("outbound|80|s3|{host}")),
        ["first", "policy", "r003"]
    );
    let assigned = view.get(Type::Endpoint, &format!("outbound|80|s3|{host}"));
    assert_eq!(assigned.unwrap().from.len(), 3);
    // The younger ones beyond a hundred are told.
    assert!(
        view.get(Type::Cluster, &format!("outbound|80|s97|{host}"))
            .is_none()
    );
    let lost: Vec<_> = snapshot
        .conflicts()
        .into_iter()
        .filter(|one| one.message.contains("older rules of its namespace for"))
        .collect();
    assert_eq!(lost.len(), 53);
    let message = format!(
        "it has no effect: proxies that see it see 100 older rules of its namespace for {host}"
    );
    assert_eq!(lost[0].message, message);
}

/// Nobody sees more than one of them.
#[test]
fn rules_for_others_do_not_use_up_the_limit_of_a_host() {
    let mut world = world();
    let host = "a.demo.svc.cluster.local";
    for at in 0..150 {
        let spec = format!(
            "host: {host}\nexportTo: [team{at}]\ntrafficPolicy: {{connectionPool: {{tcp: {{maxConnections: 7}}}}}}\n"
        );
        destination_rule(&mut world, &format!("exported{at:03}"), 1, &spec);
        let spec = format!(
            "host: {host}\nworkloadSelector: {{matchLabels: {{app: x{at}}}}}\n\
             trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: 8}}}}}}\n"
        );
        destination_rule(&mut world, &format!("selected{at:03}"), 2, &spec);
    }
    let snapshot = snapshot(world);
    for (node, rule) in [
        (node("team149", &[]), "exported149"),
        (node("demo", &[("app", "x149")]), "selected149"),
    ] {
        let view = snapshot.view(&node);
        let cluster = view
            .get(Type::Cluster, &format!("outbound|80||{host}"))
            .unwrap();
        let from: Vec<_> = cluster.from.iter().map(|one| &*one.name).collect();
        assert_eq!(from, [rule]);
    }
}
