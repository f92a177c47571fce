//! Settings of DestinationRules for connections and new endpoints: slow start, PROXY's line, retry budgets, cookies, lists of
//! revoked certificates.

use envoy_types::pb::envoy::config::cluster::v3::cluster::{LbConfig, SlowStartConfig};
use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::PolicySpecifier;
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;

use super::*;

const A: &str = "outbound|80||a.demo.svc.cluster.local";

fn with(policy: &str) -> Arc<dyn View> {
    let mut world = world();
    let spec = format!("host: a\ntrafficPolicy: {{{policy}}}");
    destination_rule(&mut world, "d", 1, &spec);
    view(world)
}

fn policy(policy: &str) -> Cluster {
    cluster(&*with(policy), A)
}

fn slow_start(balancer: &str) -> Option<SlowStartConfig> {
    match policy(&format!("loadBalancer: {{{balancer}}}")).lb_config? {
        LbConfig::RoundRobinLbConfig(config) => config.slow_start_config,
        LbConfig::LeastRequestLbConfig(config) => config.slow_start_config,
        LbConfig::RingHashLbConfig(_)
        | LbConfig::OriginalDstLbConfig(_)
        | LbConfig::MaglevLbConfig(_) => None,
    }
}

#[test]
fn new_endpoints_warm_up() {
    for simple in ["", "simple: ROUND_ROBIN, ", "simple: LEAST_REQUEST, "] {
        let old = slow_start(&format!("{simple}warmupDurationSecs: 90s")).unwrap();
        assert_eq!(old.slow_start_window.unwrap().seconds, 90, "{simple}");
        assert_eq!((old.aggression, old.min_weight_percent), (None, None));
        let warmup = "warmup: {duration: 60s, minimumPercent: 25, aggression: 1.5}";
        let new = slow_start(&format!("{simple}{warmup}")).unwrap();
        assert_eq!(new.slow_start_window.unwrap().seconds, 60);
        assert!((new.min_weight_percent.unwrap().value - 25.0).abs() < f64::EPSILON);
        assert!((new.aggression.unwrap().default_value - 1.5).abs() < f64::EPSILON);
        // The newer field counts.
        let both = slow_start(&format!("{simple}{warmup}, warmupDurationSecs: 90s")).unwrap();
        assert_eq!(both.slow_start_window.unwrap().seconds, 60);
    }
    for other in ["simple: RANDOM", "consistentHash: {useSourceIp: true}"] {
        assert_eq!(
            slow_start(&format!("{other}, warmupDurationSecs: 90s")),
            None
        );
    }
}

/// The socket inside of PROXY's, by its name, and the version of that.
fn announced(socket: &TransportSocket) -> (String, i32) {
    assert_eq!(
        socket.name,
        "envoy.transport_sockets.upstream_proxy_protocol"
    );
    let Some(ConfigType::TypedConfig(any)) = &socket.config_type else {
        panic!("a message");
    };
    let outer = ProxyProtocolUpstreamTransport::decode(&*any.value).unwrap();
    let inner = outer.transport_socket.unwrap();
    (inner.name, outer.config.unwrap().version)
}

#[test]
fn connections_begin_with_proxys_line() {
    let raw = "envoy.transport_sockets.raw_buffer";
    let plain = policy("proxyProtocol: {}").transport_socket.unwrap();
    assert_eq!(announced(&plain), (raw.to_owned(), 0));
    let plain = policy("proxyProtocol: {version: V2}").transport_socket;
    assert_eq!(announced(&plain.unwrap()), (raw.to_owned(), 1));
    let secured = policy("proxyProtocol: {}, tls: {mode: SIMPLE}").transport_socket;
    let tls = "envoy.transport_sockets.tls";
    assert_eq!(announced(&secured.unwrap()), (tls.to_owned(), 0));
    // What the mesh chooses by endpoint, chosen inside.
    let mut world = world();
    let config = mesh::parse_over(&mesh::discovery_defaults(), "enableAutoMtls: true").unwrap();
    world.mesh = Arc::new(config.config);
    let spec = "host: a\ntrafficPolicy: {proxyProtocol: {}}";
    destination_rule(&mut world, "d", 1, spec);
    let chosen = cluster(&*view(world), A);
    assert!(chosen.transport_socket.is_none());
    let all = chosen.transport_socket_matches.iter();
    let inner: Vec<_> = all
        .map(|one| announced(one.transport_socket.as_ref().unwrap()).0)
        .collect();
    assert_eq!(inner, [tls, raw]);
}

#[test]
fn retries_have_a_budget() {
    for (written, percent, min, interval) in [
        ("{}", 20.0, 3, None),
        (
            "{percent: 12.5, minRetryConcurrency: 7, budgetInterval: 2s}",
            12.5,
            7,
            Some(2),
        ),
    ] {
        let one = policy(&format!("retryBudget: {written}"));
        let limits = &one.circuit_breakers.unwrap().thresholds[0];
        let budget = limits.retry_budget.unwrap();
        assert!((budget.budget_percent.unwrap().value - percent).abs() < f64::EPSILON);
        assert_eq!(budget.min_retry_concurrency.unwrap().value, min);
        assert_eq!(budget.budget_interval.map(|time| time.seconds), interval);
    }
}

#[test]
fn a_cookie_is_made_with_its_attributes() {
    let cookie = "{name: c, path: /p, ttl: 0s, attributes: [{name: SameSite, value: Strict}, {name: Secure}]}";
    let view = with(&format!(
        "loadBalancer: {{consistentHash: {{httpCookie: {cookie}}}}}"
    ));
    let routes = routes_of(&*view, "80", "a.demo.svc.cluster.local:80");
    let Some(Action::Route(action)) = &routes[0].action else {
        panic!("a route");
    };
    let Some(PolicySpecifier::Cookie(cookie)) = &action.hash_policy[0].policy_specifier else {
        panic!("a cookie");
    };
    let attributes = cookie.attributes.iter();
    let attributes: Vec<_> = attributes.map(|one| (&*one.name, &*one.value)).collect();
    assert_eq!(attributes, [("SameSite", "Strict"), ("Secure", "")]);
}

#[test]
fn revoked_certificates_are_refused() {
    let revoked = |tls: &str| {
        let one = policy(&format!("tls: {{mode: SIMPLE, {tls}}}"));
        let Some(ConfigType::TypedConfig(any)) = one.transport_socket.unwrap().config_type else {
            panic!("a context");
        };
        let context = UpstreamTlsContext::decode(&*any.value).unwrap();
        let common = context.common_tls_context.unwrap();
        match common.validation_context_type.unwrap() {
            ValidationContextType::CombinedValidationContext(both) => {
                both.validation_context_sds_secret_config.unwrap().name
            }
            ValidationContextType::ValidationContext(one) => {
                assert!(one.crl.is_none());
                String::new()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        revoked("caCertificates: /a.pem, caCrl: /b.pem"),
        "file-root:/a.pem~/b.pem"
    );
    assert_eq!(
        revoked("caCrl: /b.pem"),
        "file-root:/etc/ssl/certs/ca-certificates.crt~/b.pem"
    );
    assert_eq!(
        revoked("sni: a"),
        "file-root:/etc/ssl/certs/ca-certificates.crt"
    );
    assert_eq!(revoked("caCrl: /b.pem, insecureSkipVerify: true"), "");
}
