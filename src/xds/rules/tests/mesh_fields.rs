//! Fields of the mesh configuration that stand for what rules say of single hosts and ports.

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::RetryPolicy;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    DownstreamTlsContext, TlsParameters, UpstreamTlsContext, tls_parameters::TlsProtocol,
};
use envoy_types::pb::google::protobuf::Any;

use super::*;

const A: &str = "outbound|80||a.demo.svc.cluster.local";

fn mesh_of(text: &str) -> Arc<mesh::MeshConfig> {
    let read = mesh::parse_over(&mesh::discovery_defaults(), text);
    Arc::new(read.unwrap().config)
}

fn world_of(text: &str) -> World {
    World {
        mesh: mesh_of(text),
        ..world()
    }
}

fn manager(chain: &FilterChain) -> HttpConnectionManager {
    let Some(filter::ConfigType::TypedConfig(any)) = &chain.filters.last().unwrap().config_type
    else {
        panic!("a typed filter");
    };
    HttpConnectionManager::decode(&*any.value).unwrap()
}

#[test]
fn paths_are_normalized_as_the_mesh_says() {
    for (written, expected) in [
        ("{}", (true, false, 0)),
        ("pathNormalization: {}", (true, false, 0)),
        (
            "pathNormalization: {normalization: DEFAULT}",
            (true, false, 0),
        ),
        ("pathNormalization: {normalization: BASE}", (true, false, 0)),
        (
            "pathNormalization: {normalization: NONE}",
            (false, false, 0),
        ),
        (
            "pathNormalization: {normalization: MERGE_SLASHES}",
            (true, true, 0),
        ),
        (
            "pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}",
            (true, true, 4),
        ),
    ] {
        let view = view(world_of(written));
        let listener: Listener = decoded(&*view, Type::Listener, "0.0.0.0_80");
        let one = manager(&listener.filter_chains[0]);
        let paths = (
            one.normalize_path.unwrap().value,
            one.merge_slashes,
            one.path_with_escaped_slashes_action,
        );
        assert_eq!(paths, expected, "{written}");
    }
}

/// The mesh's own policy, of routes that no rule has a part in and of those whose rule has none.
#[test]
fn requests_are_tried_again_as_the_mesh_says_unless_a_rule_says_otherwise() {
    let of = |mesh: &str, retries: Option<&str>| -> Option<RetryPolicy> {
        let mut world = world_of(mesh);
        if let Some(retries) = retries {
            let spec =
                format!("hosts: [a]\nhttp: [{{{retries}route: [{{destination: {{host: b}}}}]}}]");
            virtual_service(&mut world, "v", 1, &spec);
        }
        let routes = routes_of(&*view(world), "80", "a.demo.svc.cluster.local:80");
        let Some(Action::Route(action)) = routes[0].action.clone() else {
            panic!("a route");
        };
        action.retry_policy
    };
    let five =
        "defaultHttpRetryPolicy: {attempts: 5, perTryTimeout: 3s, backoff: 0s, retryOn: '5xx,409'}";
    for rule in [None, Some("")] {
        assert_eq!(of("{}", rule).unwrap().num_retries.unwrap().value, 2);
        let policy = of(five, rule).unwrap();
        assert_eq!(policy.num_retries.unwrap().value, 5, "{rule:?}");
        assert_eq!(policy.per_try_timeout.unwrap().seconds, 3);
        assert_eq!(policy.retry_on, "5xx,retriable-status-codes");
        assert_eq!(
            (policy.retry_back_off, &*policy.retriable_status_codes),
            (None, &[409][..])
        );
        assert_eq!(of("defaultHttpRetryPolicy: {attempts: 0}", rule), None);
    }
    let own = of(five, Some("retries: {attempts: 1}, ")).unwrap();
    assert_eq!(
        (own.num_retries.unwrap().value, own.per_try_timeout),
        (1, None)
    );
}

#[test]
fn clients_speak_http2_where_the_mesh_wants_it_and_no_rule_says_otherwise() {
    let of = |mesh: &str, rule: &str, name: &str| {
        let mut world = world_of(mesh);
        service(&mut world, "auto.demo", &[(70, "")], &[("10.0.4.1", "v1")]);
        if !rule.is_empty() {
            let spec = format!("host: a\ntrafficPolicy: {{connectionPool: {{http: {{{rule}}}}}}}");
            destination_rule(&mut world, "d", 1, &spec);
        }
        let options = cluster(&*view(world), name).typed_extension_protocol_options;
        let spoken_text = format!("{:?}", options.values().map(spoken).collect::<Vec<_>>());
        ["Clients", "Http2", "Http1"]
            .into_iter()
            .find(|one| spoken_text.contains(one))
            .unwrap_or("")
    };
    let upgrade = "h2UpgradePolicy: UPGRADE";
    assert_eq!(of("{}", "", A), "");
    assert_eq!(of("h2UpgradePolicy: DO_NOT_UPGRADE", "", A), "");
    assert_eq!(of(upgrade, "", A), "Http2");
    assert_eq!(of(upgrade, "maxRetries: 3", A), "Http2");
    assert_eq!(of(upgrade, "h2UpgradePolicy: DEFAULT", A), "Http2");
    assert_eq!(of(upgrade, "h2UpgradePolicy: DO_NOT_UPGRADE", A), "");
    let idle = "h2UpgradePolicy: DO_NOT_UPGRADE, idleTimeout: 1s";
    assert_eq!(of(upgrade, idle, A), "Http1");
    assert_eq!(of(upgrade, "useClientProtocol: true", A), "Clients");
    // A port that carries no HTTP, or whose protocol its first bytes say, stays as it is.
    assert_eq!(of(upgrade, "", "outbound|90||a.demo.svc.cluster.local"), "");
    let auto = "outbound|70||auto.demo.svc.cluster.local";
    assert_eq!(of(upgrade, "", auto), "Clients");
}

fn spoken(any: &Any) -> &'static str {
    use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
    use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::UpstreamProtocolOptions as Options;
    let options = HttpProtocolOptions::decode(&*any.value).unwrap();
    match &options.upstream_protocol_options {
        Some(Options::UseDownstreamProtocolConfig(_)) => "Clients",
        Some(Options::ExplicitHttpConfig(_))
            if crate::common::upstream_http::is_http2(&options) =>
        {
            "Http2"
        }
        Some(Options::ExplicitHttpConfig(_)) => "Http1",
        Some(Options::AutoConfig(_)) | None => "",
    }
}

/// Servers take no older TLS, and clients speak what those take: 1.2 is the most that they speak otherwise.
#[test]
fn mutual_tls_of_the_mesh_is_as_new_as_the_mesh_says() {
    use super::core::transport_socket::ConfigType;
    let typed = |socket: &Option<core::TransportSocket>| match socket.clone()?.config_type? {
        ConfigType::TypedConfig(any) => Some(any.value),
    };
    let of = |mesh: &str| -> (Option<TlsParameters>, Option<TlsParameters>) {
        let text = format!("enableAutoMtls: true\n{mesh}");
        let policies = [("demo", "mtls: {mode: STRICT}")];
        let world = peers::peer_world(&text, &policies);
        let view = snapshot(world).view(&node("demo", &peers::LABELS));
        let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
        let sockets = listener.filter_chains.iter();
        let sockets = sockets.filter_map(|chain| typed(&chain.transport_socket));
        let servers: Vec<_> = sockets
            .map(|body| DownstreamTlsContext::decode(&*body).unwrap())
            .map(|context| context.common_tls_context.unwrap().tls_params)
            .collect();
        assert!(servers.len() > 2, "of ports and of those without a service");
        assert!(servers.iter().all(|one| *one == servers[0]));
        let name = "outbound|9080||web.demo.svc.cluster.local";
        let client = cluster(&*view, name).transport_socket_matches;
        let client = typed(&client[0].transport_socket).unwrap();
        let client = UpstreamTlsContext::decode(&*client).unwrap();
        (
            servers[0].clone(),
            client.common_tls_context.unwrap().tls_params,
        )
    };
    assert_eq!(of(""), (None, None));
    assert_eq!(of("meshMTLS: {minProtocolVersion: TLS_AUTO}"), (None, None));
    let (server, client) = of("meshMTLS: {minProtocolVersion: TLSV1_2}");
    let server = server.unwrap().tls_minimum_protocol_version();
    assert_eq!((server, client), (TlsProtocol::TlSv12, None));
    let (server, client) = of("meshMTLS: {minProtocolVersion: TLSV1_3}");
    let server = server.unwrap().tls_minimum_protocol_version();
    let client = client.unwrap().tls_maximum_protocol_version();
    assert_eq!([server, client], [TlsProtocol::TlSv13; 2]);
}

/// Loggers of a cluster that a proxy does not know lose every line: whoever has them has the cluster.
#[test]
fn every_proxy_with_loggers_has_the_cluster_of_the_log_service() {
    let text = "enableEnvoyAccessLogService: true\ndefaultConfig: {envoyAccessLogService: {address: 'logs:15000', \
                tlsSettings: {mode: SIMPLE, caCertificates: /r}}}";
    let snapshot = snapshot(world_of(text));
    let has = |node: &Arc<Node>| {
        let view = snapshot.view(node);
        let files = view.get(Type::Secret, "file-root:/r");
        let cluster = view.get(Type::Cluster, "envoy_accesslog_service");
        [cluster.is_some(), files.is_some()]
    };
    let sidecar = node("demo", &[]);
    let mut grpc = (*sidecar).clone();
    grpc.grpc = true;
    assert_eq!(has(&sidecar), [true, true]);
    assert_eq!(has(&gateways::router("demo")), [true, true]);
    assert_eq!(has(&Arc::new(grpc)), [false, false]);
}
