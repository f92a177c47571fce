//! Sidecars, of what comes in: TLS that they end, and limits of what goes on (discovery.md §10.6, §17).

use api::networking::Sidecar;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;

use super::peers::objects;
use super::*;

fn with(spec: &str) -> World {
    let mut world = world();
    let object = object::<Sidecar>("s", 1, spec);
    let sidecars = Arc::make_mut(&mut world.sidecars);
    sidecars.insert(("demo".into(), "s".into()), object);
    world
}

/// Certificate that ends TLS of a chain, and what the chain asks of clients: nothing, the mesh's, or files.
fn ends(chain: &FilterChain) -> String {
    use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
    let Some(socket) = &chain.transport_socket else {
        return "plain".to_owned();
    };
    let Some(ConfigType::TypedConfig(any)) = &socket.config_type else {
        panic!("a context");
    };
    let context = DownstreamTlsContext::decode(&*any.value).unwrap();
    let asks = context
        .require_client_certificate
        .is_some_and(|one| one.value);
    let text = format!("{:?}", context.common_tls_context);
    match (text.contains("/own/tls.crt"), asks) {
        (false, _) => "mesh".to_owned(),
        (true, false) => "files".to_owned(),
        (true, true) => format!(
            "files of clients{}",
            if text.contains("/own/ca.crt") {
                ""
            } else {
                "?"
            }
        ),
    }
}

/// Chains of the port in the listener of all that is intercepted: what ends TLS, and what carries what is in it.
fn chains(view: &dyn View, port: u32) -> Vec<String> {
    let listener: Listener = decoded(view, Type::Listener, "virtualInbound");
    let all = listener.filter_chains.iter().filter(|chain| {
        let matching = chain.filter_chain_match.as_ref();
        matching.is_some_and(|one| one.destination_port.is_some_and(|one| one.value == port))
    });
    let all = all.map(|chain| {
        let matching = chain.filter_chain_match.as_ref().unwrap();
        let last = chain.filters.last().unwrap();
        let kind = last.name.rsplit('.').next().unwrap();
        let alpn = matching.application_protocols.join(",");
        format!(
            "{} {alpn} {} {kind}",
            matching.transport_protocol,
            ends(chain)
        )
        .replace("  ", " ")
    });
    all.collect()
}

const SIMPLE: &str = "{mode: SIMPLE, serverCertificate: /own/tls.crt, privateKey: /own/tls.key}";
const MUTUAL: &str = "{mode: MUTUAL, serverCertificate: /own/tls.crt, privateKey: /own/tls.key, caCertificates: /own/ca.crt}";

#[test]
fn tls_of_clients_that_are_not_of_the_mesh_ends_at_a_sidecar() {
    let http = "http_connection_manager";
    for (protocol, tls, mode, wanted) in [
        (
            "HTTPS",
            SIMPLE,
            "DISABLE",
            vec![format!("tls files {http}")],
        ),
        (
            "HTTPS",
            MUTUAL,
            "DISABLE",
            vec![format!("tls files of clients {http}")],
        ),
        (
            "TLS",
            SIMPLE,
            "DISABLE",
            vec!["tls files tcp_proxy".to_owned()],
        ),
        // Beside that of the mesh, and nothing plain.
        (
            "HTTPS",
            SIMPLE,
            "PERMISSIVE",
            vec![
                format!("tls istio mesh {http}"),
                format!("tls files {http}"),
            ],
        ),
        ("HTTPS", SIMPLE, "STRICT", vec![format!("tls mesh {http}")]),
        // It goes on as it is.
        (
            "HTTPS",
            "{mode: PASSTHROUGH}",
            "DISABLE",
            vec![" plain tcp_proxy".to_owned()],
        ),
    ] {
        let spec = format!(
            "ingress: [{{port: {{number: 8443, name: a, protocol: {protocol}}}, defaultEndpoint: '127.0.0.1:8080', tls: {tls}}}]"
        );
        let mut world = with(&spec);
        let policy = format!("mtls: {{mode: {mode}}}");
        world.peer_authentications = objects(&[("demo", &policy)]);
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        assert_eq!(chains(&*view, 8443), wanted, "{protocol} {tls} {mode}");
        let messages: Vec<_> = snapshot
            .conflicts()
            .into_iter()
            .map(|one| one.message)
            .collect();
        let strict = "the tls of Sidecar demo/s on 8443 has no effect: a policy requires mutual TLS of the mesh there";
        let expected = (mode == "STRICT").then(|| strict.to_owned());
        assert_eq!(messages, expected.into_iter().collect::<Vec<_>>());
        if tls == SIMPLE {
            let from = view
                .get(Type::Listener, "virtualInbound")
                .unwrap()
                .from
                .clone();
            assert!(
                from.iter().any(|one| one.to_string() == "Sidecar demo/s"),
                "{from:?}"
            );
        }
    }
}

/// The Sidecar of the root namespace stands for those that namespaces have not: with its ports, too, as in Istio.
#[test]
fn ports_of_the_root_namespaces_sidecar_are_everybodys() {
    let ingress = |name: &str, port: u16| {
        let spec = format!("ingress: [{{port: {{number: {port}, name: a, protocol: TCP}}}}]");
        object::<Sidecar>(name, 1, &spec)
    };
    let mut world = world();
    insert(&mut world.sidecars, ingress("istio-system/all", 8443));
    let plain = || vec![" plain tcp_proxy".to_owned()];
    let served = |world: &World, namespace: &str| {
        let view = snapshot(world.clone()).view(&node(namespace, &[]));
        [8443, 8444].map(|port| chains(&*view, port))
    };
    assert_eq!(served(&world, "demo"), [plain(), Vec::new()]);
    assert_eq!(served(&world, "istio-system"), [plain(), Vec::new()]);
    insert(&mut world.sidecars, ingress("demo/own", 8444));
    assert_eq!(served(&world, "demo"), [Vec::new(), plain()]);
    assert_eq!(served(&world, "other"), [plain(), Vec::new()]);
}

#[test]
fn a_listener_with_unusable_tls_admits_no_client() {
    let tls = MUTUAL.replace("mode", "verifyCertificateHash: [no], mode");
    let spec =
        format!("ingress: [{{port: {{number: 8443, name: a, protocol: HTTPS}}, tls: {tls}}}]");
    let snapshot = snapshot(with(&spec));
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(chains(&*view, 8443), [" plain tcp_proxy"]);
    let listener = view.get(Type::Listener, "virtualInbound").unwrap();
    let listener = Listener::decode(&*listener.body).unwrap();
    let first = listener.filter_chains[0].filters.last().unwrap();
    let Some(filter::ConfigType::TypedConfig(any)) = &first.config_type else {
        panic!("a filter");
    };
    let proxy = format!("{:?}", TcpProxy::decode(&*any.value).unwrap());
    assert!(proxy.contains("BlackHoleCluster"), "{proxy}");
    let messages: Vec<_> = snapshot
        .conflicts()
        .into_iter()
        .map(|one| one.message)
        .collect();
    assert_eq!(
        messages,
        [
            "the tls of Sidecar demo/s on 8443 denies all connections: tls.verifyCertificateHash has no hash of a certificate"
        ]
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn limits_of_a_sidecar_come_before_those_of_its_service() {
    let pool = |max: u32| {
        format!(
            "{{tcp: {{maxConnections: {max}, idleTimeout: {max}s}}, http: {{maxRequestsPerConnection: {max}}}}}"
        )
    };
    let port = "port: {number: 80, name: p80, protocol: HTTP}";
    let tcp = "port: {number: 90, name: p90, protocol: TCP}";
    let (own, all) = (pool(1), pool(2));
    for (spec, wanted) in [
        (
            "outboundTrafficPolicy: {mode: ALLOW_ANY}".to_owned(),
            [3, 3],
        ),
        (format!("inboundConnectionPool: {all}"), [2, 2]),
        (
            format!("ingress: [{{{port}, connectionPool: {own}}}, {{{tcp}}}]"),
            [1, 3],
        ),
        (
            format!(
                "inboundConnectionPool: {all}\ningress: [{{{port}, connectionPool: {own}}}, {{{tcp}}}]"
            ),
            [1, 2],
        ),
        (
            format!(
                "inboundConnectionPool: {all}\ningress: [{{{port}}}, {{{tcp}, connectionPool: {own}}}]"
            ),
            [2, 1],
        ),
    ] {
        let mut world = with(&spec);
        let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
        let services = Arc::make_mut(&mut world.services);
        Arc::make_mut(services.get_mut(&key).unwrap()).selector = labels(&[("app", "a")]);
        destination_rule(
            &mut world,
            "d",
            1,
            &format!("host: a\ntrafficPolicy: {{connectionPool: {}}}", pool(3)),
        );
        let view = snapshot(world).view(&node("demo", &[("app", "a")]));
        let found = [80, 90].map(|port| {
            let one = cluster(
                &*view,
                &format!("inbound|{port}|p{port}|a.demo.svc.cluster.local"),
            );
            let max = one.circuit_breakers.unwrap().thresholds[0]
                .max_connections
                .unwrap()
                .value;
            if port == 80 {
                let mut all = one.typed_extension_protocol_options.values();
                let options = HttpProtocolOptions::decode(&*all.next().unwrap().value).unwrap();
                let common = options.common_http_protocol_options.unwrap();
                assert_eq!(common.max_requests_per_connection.unwrap().value, max);
            }
            max
        });
        assert_eq!(found, wanted, "{spec}");
        let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
        let idle = listener
            .filter_chains
            .iter()
            .flat_map(|chain| &chain.filters)
            .find_map(|one| {
                let Some(filter::ConfigType::TypedConfig(any)) = &one.config_type else {
                    return None;
                };
                let proxy = TcpProxy::decode(&*any.value)
                    .ok()
                    .filter(|_| one.name.ends_with("tcp_proxy"))?;
                proxy
                    .stat_prefix
                    .starts_with("inbound|90|")
                    .then(|| proxy.idle_timeout.unwrap().seconds)
            });
        assert_eq!(idle, Some(wanted[1].into()), "{spec}");
    }
}
