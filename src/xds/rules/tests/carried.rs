//! DestinationRules where connections without requests come in: rows of discovery.md §15.

use envoy_types::pb::envoy::config::listener::v3::{Listener, filter};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf::Duration;

use super::*;

const LISTENER: &str = "0.0.0.0_90";

/// Filters that carry the connections of a listener, chain by chain.
fn carriers(view: &dyn View, name: &str) -> Vec<TcpProxy> {
    let listener: Listener = decoded(view, Type::Listener, name);
    let all = listener.filter_chains.iter();
    let all = all.flat_map(|chain| &chain.filters).map(|one| {
        let Some(filter::ConfigType::TypedConfig(any)) = &one.config_type else {
            panic!("a filter");
        };
        TcpProxy::decode(any.value.as_slice()).unwrap()
    });
    all.collect()
}

fn by(rules: &[&str]) -> Arc<dyn View> {
    let mut world = world();
    for (at, spec) in rules.iter().enumerate() {
        destination_rule(&mut world, &format!("d{at}"), 1, spec);
    }
    view(world)
}

/// In words: how long it may be idle, and live; whether it stays with one endpoint; where its tunnel leads.
fn proxy_text(proxy: &TcpProxy) -> String {
    let seconds =
        |time: &Option<Duration>| time.map_or("-".to_owned(), |time| time.seconds.to_string());
    let tunnel = proxy.tunneling_config.as_ref();
    let tunnel = tunnel.map(|one| {
        format!(
            " {}{}",
            one.hostname,
            if one.use_post { " POST" } else { "" }
        )
    });
    format!(
        "{} {} {}{}",
        seconds(&proxy.idle_timeout),
        seconds(&proxy.max_downstream_connection_duration),
        proxy.hash_policy.len(),
        tunnel.unwrap_or_default()
    )
}

#[test]
fn connections_have_what_a_rule_says_of_their_destination() {
    for (policy, wanted) in [
        ("connectionPool: {tcp: {maxConnections: 1}}", "- - 0"),
        ("connectionPool: {tcp: {idleTimeout: 7s}}", "7 - 0"),
        ("connectionPool: {tcp: {idleTimeout: 0s}}", "0 - 0"),
        (
            "connectionPool: {tcp: {maxConnectionDuration: 9s}}",
            "- 9 0",
        ),
        ("connectionPool: {http: {idleTimeout: 7s}}", "- - 0"),
        (
            "loadBalancer: {consistentHash: {useSourceIp: true}}",
            "- - 1",
        ),
        (
            "loadBalancer: {consistentHash: {httpHeaderName: a}}",
            "- - 0",
        ),
        (
            "tunnel: {targetHost: t.example, targetPort: 443}",
            "- - 0 t.example:443",
        ),
        (
            "tunnel: {protocol: POST, targetHost: '2001:db8::1', targetPort: 443}",
            "- - 0 [2001:db8::1]:443 POST",
        ),
        (
            "portLevelSettings: [{port: {number: 90}, connectionPool: {tcp: {idleTimeout: 3s}}}]",
            "3 - 0",
        ),
        (
            "portLevelSettings: [{port: {number: 80}, connectionPool: {tcp: {idleTimeout: 3s}}}]",
            "- - 0",
        ),
    ] {
        let view = by(&[&format!("host: a\ntrafficPolicy: {{{policy}}}")]);
        let all = carriers(&*view, LISTENER);
        assert_eq!(
            all.iter().map(proxy_text).collect::<Vec<_>>(),
            [wanted],
            "{policy}"
        );
        let from = &view.get(Type::Listener, LISTENER).unwrap().from;
        let expected = usize::from(wanted != "- - 0");
        assert_eq!(from.len(), expected, "{policy}: {from:?}");
    }
}

/// A rule for connections names the subset; of several clusters what holds for the whole of the first counts.
#[test]
fn a_subset_has_its_own_where_a_rule_leads_to_it_alone() {
    let rule = "host: a\ntrafficPolicy: {connectionPool: {tcp: {idleTimeout: 7s}}}\nsubsets: [{name: v1, labels: {version: \
                v1}, trafficPolicy: {tunnel: {targetHost: t.example, targetPort: 1}}}]";
    let to = |route: &str| {
        let mut world = world();
        destination_rule(&mut world, "d", 1, rule);
        let spec = format!("hosts: [a]\ntcp: [{{route: [{route}]}}]");
        virtual_service(&mut world, "v", 1, &spec);
        let all = carriers(&*view(world), LISTENER);
        all.iter().map(proxy_text).collect::<Vec<_>>()
    };
    let one = "{destination: {host: a, subset: v1, port: {number: 90}}";
    assert_eq!(to(&format!("{one}}}")), ["7 - 0 t.example:1"]);
    let other = "{destination: {host: b, port: {number: 80}}, weight: 50}";
    assert_eq!(to(&format!("{one}, weight: 50}}, {other}")), ["7 - 0"]);
    assert_eq!(to(&format!("{other}, {one}, weight: 50}}")), ["- - 0"]);
}

/// Requests over it are idle as a rule says of connections, unless it says so of requests.
#[test]
fn connections_with_requests_are_idle_for_as_long() {
    let idle = |pool: &str| {
        let view = by(&[&format!(
            "host: a\ntrafficPolicy: {{connectionPool: {{{pool}}}}}"
        )]);
        let one = cluster(&*view, "outbound|80||a.demo.svc.cluster.local");
        let mut all = one.typed_extension_protocol_options.values();
        let options = HttpProtocolOptions::decode(&*all.next().unwrap().value).unwrap();
        options
            .common_http_protocol_options
            .unwrap()
            .idle_timeout
            .unwrap()
            .seconds
    };
    assert_eq!(idle("tcp: {idleTimeout: 7s}"), 7);
    assert_eq!(idle("tcp: {idleTimeout: 7s}, http: {idleTimeout: 3s}"), 3);
    assert_eq!(idle("tcp: {idleTimeout: 7s}, http: {maxRetries: 3}"), 7);
}

/// Listeners are shared by namespaces that nothing tells from others: these are told.
#[test]
fn each_namespace_has_its_own() {
    let mut world = world();
    let rule = |idle: u32| {
        format!(
            "host: a.demo.svc.cluster.local\ntrafficPolicy: {{connectionPool: {{tcp: {{idleTimeout: {idle}s}}}}}}"
        )
    };
    destination_rule(&mut world, "demo/d", 1, &rule(1));
    destination_rule(
        &mut world,
        "other/d",
        1,
        &format!("{}\nexportTo: ['.']", rule(2)),
    );
    let selecting = format!("{}\nworkloadSelector: {{matchLabels: {{app: x}}}}", rule(3));
    destination_rule(&mut world, "third/d", 1, &selecting);
    let snapshot = snapshot(world);
    for (namespace, labels, wanted) in [
        ("demo", &[][..], "1 - 0"),
        ("fourth", &[], "1 - 0"),
        ("other", &[], "2 - 0"),
        ("third", &[("app", "x")], "3 - 0"),
        ("third", &[("app", "y")], "1 - 0"),
    ] {
        let view = snapshot.view(&node(namespace, labels));
        let all = carriers(&*view, LISTENER);
        assert_eq!(
            all.iter().map(proxy_text).collect::<Vec<_>>(),
            [wanted],
            "{namespace} {labels:?}"
        );
    }
    let same = ["demo", "fourth"].map(|namespace| {
        let view = snapshot.view(&node(namespace, &[]));
        view.get(Type::Listener, LISTENER).unwrap()
    });
    assert!(Arc::ptr_eq(&same[0], &same[1]), "they have the same bytes");
}

#[test]
fn responses_that_count_as_errors_are_those_that_a_rule_lists() {
    let error_matcher = |codes: &str, port: u16| {
        let spec = format!(
            "host: a\ntrafficPolicy: {{outlierDetection: {{outlierDetectionHttpErrorCodes: [{codes}]}}}}"
        );
        let view = by(&[&spec]);
        let one = cluster(
            &*view,
            &format!("outbound|{port}||a.demo.svc.cluster.local"),
        );
        let all = one
            .typed_extension_protocol_options
            .values()
            .next()
            .cloned();
        let options = HttpProtocolOptions::decode(&*all?.value).unwrap();
        Some(format!("{:?}", options.outlier_detection?.error_matcher?))
    };
    let both = error_matcher("429, 500, 429, 9", 80).unwrap();
    assert_eq!(both.matches("Exact(").count(), 2, "{both}");
    assert!(
        both.contains("Exact(\"429\")") && both.contains("OrMatch"),
        "{both}"
    );
    let one = error_matcher("429", 80).unwrap();
    assert!(
        one.contains("Exact(\"429\")") && !one.contains("OrMatch"),
        "{one}"
    );
    assert_eq!(error_matcher("9", 80), None, "no response has it");
    assert_eq!(error_matcher("429", 90), None, "there are no requests");
}
