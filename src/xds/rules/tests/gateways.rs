//! Gateways, and VirtualServices that are bound to them (discovery.md §16).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use api::networking::Gateway;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::rbac::v3::{Permission, permission, rbac};
use envoy_types::pb::envoy::config::route::v3::{self as route, VirtualHost, virtual_host};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager,
};
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, UpstreamConnectMode, tcp_proxy,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    DownstreamTlsContext, common_tls_context,
};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::*;
use crate::common::steps::steps;

pub(super) fn gateway(world: &mut World, name: &str, created: i64, spec: &str) {
    let object = object::<Gateway>(name, created, spec);
    insert(&mut world.gateways, object);
}

/// A router with the label `istio`, `word~NAMESPACE`.
fn router_of(word: &str, namespace: &str, fields: &[(&str, &str)]) -> Arc<Node> {
    let text = |text: &str| Value {
        kind: Some(value::Kind::StringValue(text.to_owned())),
    };
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| ((*name).to_owned(), text(value)));
    let read = Node::read(Some(&core::Node {
        id: format!("{word}~10.9.0.1~edge-1.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct {
            fields: fields.collect(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

/// A router that Gateways for `istio: edge` are for.
pub(super) fn router(namespace: &str) -> Arc<Node> {
    router_of("router", namespace, &[("istio", "edge")])
}

/// One that runs with so many trusted proxies.
fn configured_router(trusted: &str) -> Arc<Node> {
    let object = |name: &str, kind: value::Kind| {
        let value = Value { kind: Some(kind) };
        value::Kind::StructValue(Struct {
            fields: [(name.to_owned(), value)].into(),
        })
    };
    let trusted = match trusted.parse() {
        Ok(number) => value::Kind::NumberValue(number),
        Err(_) => value::Kind::StringValue(trusted.to_owned()),
    };
    let topology = object("gatewayTopology", object("numTrustedProxies", trusted));
    let texts = object("istio", value::Kind::StringValue("edge".to_owned()));
    let value::Kind::StructValue(mut metadata) = texts else {
        panic!("no object")
    };
    let config = Value {
        kind: Some(topology),
    };
    metadata.fields.insert("PROXY_CONFIG".to_owned(), config);
    let read = Node::read(Some(&core::Node {
        id: "router~10.9.0.1~edge-1.edge~edge.svc.cluster.local".to_owned(),
        metadata: Some(metadata),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

fn manager(chain: &FilterChain) -> HttpConnectionManager {
    decoded_filter(chain, "envoy.filters.network.http_connection_manager").unwrap()
}

fn decoded_filter<M: Message + Default>(chain: &FilterChain, name: &str) -> Option<M> {
    let found = chain.filters.iter().find(|one| one.name == name)?;
    match found.config_type.as_ref()? {
        filter::ConfigType::TypedConfig(config) => Some(M::decode(&*config.value).unwrap()),
        filter::ConfigType::ConfigDiscovery(_) => None,
    }
}

pub(super) fn context(chain: &FilterChain) -> Option<DownstreamTlsContext> {
    let socket = chain.transport_socket.as_ref()?;
    match socket.config_type.as_ref()? {
        core::transport_socket::ConfigType::TypedConfig(config) => {
            Some(DownstreamTlsContext::decode(&*config.value).unwrap())
        }
    }
}

/// `[NAMES] tls http.80`, or the clusters of what is no HTTP.
fn chain_text(chain: &FilterChain) -> String {
    let mut text = String::new();
    if let Some(matching) = &chain.filter_chain_match {
        if !matching.server_names.is_empty() {
            write!(text, "[{}] ", matching.server_names.join(" ")).unwrap();
        }
        for range in &matching.prefix_ranges {
            write!(text, "to {} ", range.address_prefix).unwrap();
        }
        for range in &matching.source_prefix_ranges {
            write!(text, "from {} ", range.address_prefix).unwrap();
        }
    }
    if context(chain).is_some() {
        text.push_str("tls ");
    }
    if let Some(proxy) = decoded_filter::<TcpProxy>(chain, "envoy.filters.network.tcp_proxy") {
        let mut filters = chain.filters.iter();
        let named = filters.any(|filter| filter.name.ends_with("sni_cluster"));
        text.push_str(if named { "sni_cluster " } else { "" });
        match proxy.cluster_specifier.unwrap() {
            tcp_proxy::ClusterSpecifier::Cluster(name) => text.push_str(&name),
            tcp_proxy::ClusterSpecifier::WeightedClusters(all) => {
                for one in all.clusters {
                    write!(text, "{}*{} ", one.name, one.weight).unwrap();
                }
            }
        }
        return text.trim_end().to_owned();
    }
    let Some(http_connection_manager::RouteSpecifier::Rds(rds)) = manager(chain).route_specifier
    else {
        panic!("routes by name");
    };
    text + &rds.route_config_name
}

fn listeners(view: &dyn View) -> Vec<(Listener, Vec<String>)> {
    let all = view.all(Type::Listener);
    let all = all.iter().map(|resource| {
        let listener = Listener::decode(&*resource.body).unwrap();
        let chains = listener.filter_chains.iter().map(chain_text).collect();
        (listener, chains)
    });
    all.collect()
}

/// `NAME: CHAIN; CHAIN`, sorted.
fn listener_texts(view: &dyn View) -> Vec<String> {
    let all = listeners(view).into_iter();
    all.map(|(listener, chains)| format!("{}: {}", listener.name, chains.join("; ")))
        .collect()
}

fn route_text(route: &Route) -> String {
    let matching = route.r#match.as_ref().unwrap();
    let path = match matching.path_specifier.as_ref().unwrap() {
        route::route_match::PathSpecifier::Prefix(path) => format!("{path}*"),
        route::route_match::PathSpecifier::Path(path) => path.clone(),
        other => format!("{other:?}"),
    };
    let to = match route.action.as_ref().unwrap() {
        route::route::Action::Route(action) => match action.cluster_specifier.as_ref().unwrap() {
            route::route_action::ClusterSpecifier::Cluster(name) => name.clone(),
            other => format!("{other:?}"),
        },
        route::route::Action::DirectResponse(answer) => answer.status.to_string(),
        other => format!("{other:?}"),
    };
    format!("{path} {to}")
}

fn host_text(host: &VirtualHost) -> String {
    let redirects = host.require_tls() == virtual_host::TlsRequirementType::All;
    let redirects = if redirects { " redirects" } else { "" };
    let routes: Vec<_> = host.routes.iter().map(route_text).collect();
    let domains = host.domains.join(" ");
    format!(
        "{} [{domains}]{redirects}: {}",
        host.name,
        routes.join(", ")
    )
}

fn hosts(view: &dyn View, name: &str) -> Vec<String> {
    let routes: RouteConfiguration = decoded(view, Type::Route, name);
    assert!(routes.ignore_port_in_host_matching);
    routes.virtual_hosts.iter().map(host_text).collect()
}

fn seen(world: World) -> Arc<dyn View> {
    snapshot(world).view(&router("edge"))
}

const HTTP: &str = "selector: {istio: edge}\nservers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]";
const TO_A: &str = "http: [{route: [{destination: {host: a}}]}]";
const A: &str = "outbound|80||a.demo.svc.cluster.local";
const B: &str = "outbound|80||b.demo.svc.cluster.local";

#[test]
fn a_gateway_without_rules_answers_404() {
    let mut world = world();
    gateway(&mut world, "g", 1, HTTP);
    let view = seen(world);
    assert_eq!(listener_texts(&*view), ["0.0.0.0_80: http.80"]);
    assert_eq!(hosts(&*view, "http.80"), ["blackhole:80 [*]: /* 404"]);
    assert!(view.get(Type::Route, "http.81").is_none());
    assert_eq!(view.all(Type::Route).len(), 1);
    let (listener, _) = listeners(&*view).remove(0);
    assert_eq!(listener.bind_to_port, None);
    assert_eq!(
        listener.traffic_direction(),
        core::TrafficDirection::Outbound
    );
    assert_eq!(listener.listener_filters.len(), 0);
    let manager = manager(&listener.filter_chains[0]);
    assert_eq!(manager.stat_prefix, "outbound_0.0.0.0_80");
    assert!(manager.use_remote_address.unwrap().value);
    assert_eq!(
        manager.forward_client_cert_details(),
        http_connection_manager::ForwardClientCertDetails::SanitizeSet
    );
    let details = manager.set_current_client_cert_details.unwrap();
    assert!(details.subject.unwrap().value && details.uri && details.dns && !details.cert);
    let filters: Vec<_> = manager.http_filters.iter().map(|one| &*one.name).collect();
    assert_eq!(
        filters,
        ["cors", "fault", "router"].map(|name| format!("envoy.filters.http.{name}"))
    );
}

/// The address of a client decides which requests AuthorizationPolicies let in.
#[test]
fn proxies_in_front_of_a_router_are_believed_as_far_as_its_topology_says() {
    let of = |mesh: &str, own: Option<&str>| {
        let mut world = world();
        let config = mesh::parse_over(&mesh::discovery_defaults(), mesh).unwrap();
        world.mesh = Arc::new(config.config);
        gateway(&mut world, "g", 1, HTTP);
        let router = match own {
            Some(own) => configured_router(own),
            None => router("edge"),
        };
        let (listener, _) = listeners(&*snapshot(world).view(&router)).remove(0);
        manager(&listener.filter_chains[0]).xff_num_trusted_hops
    };
    let two = "defaultConfig: {gatewayTopology: {numTrustedProxies: 2}}";
    assert_eq!(of("", None), 0);
    assert_eq!(of(two, None), 2);
    assert_eq!(of(two, Some("3")), 3);
    assert_eq!(of(two, Some("0")), 0);
    assert_eq!(of("", Some("1")), 1);
    for unusable in ["-1", "1.5", "many"] {
        assert_eq!(of(two, Some(unusable)), 2, "{unusable}");
    }
}

#[test]
fn a_router_listens_for_the_gateways_that_select_it() {
    let with = |selector: &str| {
        let mut world = world();
        let spec = HTTP.replace("selector: {istio: edge}", selector);
        gateway(&mut world, "g", 1, &spec);
        snapshot(world)
    };
    let ports = |snapshot: &Arc<Snapshot>, node: &Arc<Node>| listeners(&*snapshot.view(node)).len();
    for (selector, word, fields, listens) in [
        (
            "selector: {istio: edge}",
            "router",
            &[("istio", "edge")][..],
            1,
        ),
        (
            "selector: {istio: edge}",
            "ingress",
            &[("istio", "edge")],
            1,
        ),
        (
            "selector: {istio: edge}",
            "router",
            &[("istio", "other")],
            0,
        ),
        (
            "selector: {istio: edge, app: x}",
            "router",
            &[("istio", "edge")],
            0,
        ),
        (
            "selector: {istio: edge}",
            "sidecar",
            &[("istio", "edge")],
            0,
        ),
        ("selector: {istio: ingress}", "ingress", &[], 1),
        ("selector: {istio: ingress}", "router", &[], 0),
        ("selector: {}", "router", &[], 1),
    ] {
        let node = router_of(word, "edge", fields);
        let found = ports(&with(selector), &node);
        let found = if word == "sidecar" {
            found.saturating_sub(6)
        } else {
            found
        };
        assert_eq!(found, listens, "{selector} {word} {fields:?}");
    }
    // By labels of its pod, too; and with the switch those of its own namespace alone.
    let mut labelled = (*router_of("router", "edge", &[])).clone();
    labelled.labels = Arc::new(labels(&[("istio", "edge"), ("app", "x")]));
    let (all, labelled) = (with("selector: {istio: edge, app: x}"), Arc::new(labelled));
    assert_eq!(ports(&all, &labelled), 1);
    let settings = Settings {
        gateways_of_own_namespace: true,
        ..Settings::default()
    };
    let own = Snapshot::new(all.world().clone(), Arc::new(settings));
    assert_eq!(ports(&own, &labelled), 0);
    assert_eq!(ports(&own, &router("demo")), 0);
    let node = router_of("router", "demo", &[("istio", "edge")]);
    let mut node = (*node).clone();
    node.labels = labelled.labels.clone();
    assert_eq!(ports(&own, &Arc::new(node)), 1);
}

#[test]
fn rules_are_bound_to_gateways_by_name_and_host() {
    // Hosts of the server, gateways and hosts of the rule, and its namespace: what comes of it.
    let own = "a.example:80 [a.example a.example:80]: /* outbound|80||a.demo.svc.cluster.local";
    let none = "blackhole:80 [*]: /* 404";
    for (servers, gateways, of_rule, rule, expected) in [
        ("'*'", "[g]", "[a.example]", "demo/v", &[own][..]),
        ("'*'", "[demo/g]", "[a.example]", "other/v", &[own]),
        (
            "'*'",
            "[g.demo.svc.cluster.local]",
            "[a.example]",
            "other/v",
            &[own],
        ),
        ("'*'", "[mesh, demo/g]", "[a.example]", "demo/v", &[own]),
        ("'*'", "[g]", "[a.example]", "other/v", &[none]),
        ("'*'", "[x]", "[a.example]", "demo/v", &[none]),
        ("'*'", "[mesh]", "[a.example]", "demo/v", &[none]),
        ("a.example", "[g]", "['*.example']", "demo/v", &[own]),
        ("'*.example'", "[g]", "[a.example]", "demo/v", &[own]),
        ("b.example", "[g]", "[a.example]", "demo/v", &[none]),
        ("./a.example", "[g]", "[a.example]", "demo/v", &[own]),
        ("./a.example", "[demo/g]", "[a.example]", "other/v", &[none]),
        (
            "other/a.example",
            "[demo/g]",
            "[a.example]",
            "other/v",
            &[own],
        ),
        (
            "'*/a.example'",
            "[demo/g]",
            "[a.example]",
            "other/v",
            &[own],
        ),
        (
            "'*'",
            "[g]",
            "['*']",
            "demo/v",
            &["*:80 [*]: /* outbound|80||a.demo.svc.cluster.local"],
        ),
        (
            "'*'",
            "[g]",
            "[10.0.0.1, a]",
            "demo/v",
            &[
                "10.0.0.1:80 [10.0.0.1 10.0.0.1:80]: /* outbound|80||a.demo.svc.cluster.local",
                "a.demo.svc.cluster.local:80 [a.demo.svc.cluster.local a.demo.svc.cluster.local:80]: \
                 /* outbound|80||a.demo.svc.cluster.local",
            ],
        ),
    ] {
        let mut world = world();
        gateway(&mut world, "g", 1, &HTTP.replace("'*'", servers));
        let to = "http: [{route: [{destination: {host: a.demo.svc.cluster.local}}]}]";
        let spec = format!("hosts: {of_rule}\ngateways: {gateways}\n{to}");
        virtual_service(&mut world, rule, 1, &spec);
        assert_eq!(
            hosts(&*seen(world), "http.80"),
            expected,
            "{servers} {gateways} {of_rule} {rule}"
        );
    }
}

#[test]
fn rules_that_are_not_exported_are_not_bound() {
    for (export, namespace, is_bound) in [
        ("['*']", "edge", true),
        ("[.]", "edge", false),
        ("[edge]", "edge", true),
        ("[other]", "edge", false),
        ("[.]", "demo", true),
    ] {
        let mut world = world();
        gateway(&mut world, "g", 1, HTTP);
        let spec = format!("hosts: [a.example]\ngateways: [g]\nexportTo: {export}\n{TO_A}");
        virtual_service(&mut world, "v", 1, &spec);
        let view = snapshot(world).view(&router(namespace));
        let found = hosts(&*view, "http.80")[0].starts_with("a.example");
        assert_eq!(found, is_bound, "{export} {namespace}");
    }
}

/// A rule that a sidecar has is no rule of a gateway, and the reverse.
#[test]
fn matches_hold_for_the_gateways_and_ports_that_they_name() {
    let mut world = world();
    gateway(&mut world, "g", 1, HTTP);
    gateway(&mut world, "h", 2, &HTTP.replace("80", "81"));
    let to = |matching: &str, path: &str| {
        format!(
            "- {{match: [{{uri: {{exact: {path}}}, {matching}}}], route: [{{destination: {{host: b}}}}]}}\n"
        )
    };
    let mut spec = "hosts: [a]\ngateways: [mesh, g, demo/h]\nhttp:\n".to_owned();
    for (path, matching) in [
        ("/all", "ignoreUriCase: false"),
        ("/g", "gateways: [g]"),
        ("/h", "gateways: [demo/h]"),
        ("/mesh", "gateways: [mesh]"),
        ("/80", "port: 80"),
        ("/81", "port: 81"),
        ("/labels", "sourceLabels: {istio: edge}"),
        ("/others", "sourceLabels: {istio: x}"),
        ("/namespace", "sourceNamespace: edge"),
        ("/elsewhere", "sourceNamespace: x"),
        ("/named", "gateways: [g], sourceLabels: {istio: x}"),
        ("/both", "gateways: [mesh, demo/h], sourceNamespace: x"),
    ] {
        spec += &to(matching, path);
    }
    virtual_service(&mut world, "v", 1, &spec);
    let snapshot = snapshot(world);
    let paths = |view: &dyn View, name: &str, host: &str| -> Vec<String> {
        let routes = routes_of(view, name, host);
        routes
            .iter()
            .map(|one| route_text(one).split(' ').next().unwrap().to_owned())
            .collect()
    };
    let edge = snapshot.view(&router("edge"));
    let host = "a.demo.svc.cluster.local";
    assert_eq!(
        paths(&*edge, "http.80", &format!("{host}:80")),
        ["/all", "/g", "/80", "/labels", "/namespace", "/named"]
    );
    assert_eq!(
        paths(&*edge, "http.81", &format!("{host}:81")),
        ["/all", "/h", "/81", "/labels", "/namespace", "/both"]
    );
    let sidecar = snapshot.view(&node("demo", &[]));
    assert_eq!(
        paths(&*sidecar, "80", &format!("{host}:80")),
        ["/all", "/mesh", "/80"]
    );
}

#[test]
fn rules_with_one_host_are_merged_and_catch_alls_come_last() {
    let mut world = world();
    let twice = HTTP.replace(
        "hosts: ['*']}]",
        "hosts: ['*']}, {port: {number: 80, name: b, protocol: HTTP}, hosts: [x.example]}]",
    );
    gateway(&mut world, "g", 1, &twice);
    let rule = |gateways: &str, path: &str, host: &str| {
        format!(
            "hosts: [x.example]\ngateways: {gateways}\nhttp:\n- {{match: [{{uri: {{prefix: {path}}}}}], \
             route: [{{destination: {{host: {host}}}}}]}}\n- {{route: [{{destination: {{host: {host}}}}}]}}"
        )
    };
    virtual_service(&mut world, "second", 2, &rule("[g]", "/2", "b"));
    virtual_service(&mut world, "first", 1, &rule("[g]", "/1", "a"));
    let third = rule("[g]", "/3", "a");
    virtual_service(
        &mut world,
        "third",
        3,
        third.split("\n- {route").next().unwrap(),
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    assert_eq!(
        hosts(&*view, "http.80"),
        [format!(
            "x.example:80 [x.example x.example:80]: /1* {A}, /2* {B}, /3* {A}, /* {A}"
        )]
    );
    let messages: Vec<_> = snapshot
        .conflicts()
        .into_iter()
        .map(|one| one.message)
        .collect();
    assert_eq!(
        messages,
        [
            "the route of VirtualService demo/second for all requests to x.example is left out: VirtualService demo/first has one"
        ]
    );
    // Two servers that have the host are as one.
    let routes = view.get(Type::Route, "http.80").unwrap();
    assert_eq!(routes.from.len(), 4, "{:?}", routes.from);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn gateways_on_one_port_are_merged_and_the_older_wins() {
    let server = |port: u16, name: &str, protocol: &str, hosts: &str, more: &str| {
        format!(
            "{{port: {{number: {port}, name: {name}, protocol: {protocol}}}, hosts: {hosts}{more}}}"
        )
    };
    let spec = |servers: &[String]| {
        format!(
            "selector: {{istio: edge}}\nservers: [{}]",
            servers.join(", ")
        )
    };
    let tls = ", tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}";
    for (first, second, listens, left_out) in [
        (
            server(80, "a", "HTTP", "[a.example]", ""),
            server(80, "a", "HTTP", "[a.example, b.example]", ""),
            "0.0.0.0_80: http.80",
            "",
        ),
        (
            server(80, "a", "HTTP", "[a.example]", ""),
            server(80, "a", "GRPC", "[b.example]", ""),
            "0.0.0.0_80: http.80",
            "",
        ),
        (
            server(80, "a", "HTTP", "['*']", ""),
            server(80, "a", "TCP", "['*']", ""),
            "0.0.0.0_80: http.80",
            "spec.servers[0] of Gateway demo/second is left out: Gateway demo/first has port 80 with a protocol that cannot share it",
        ),
        (
            server(443, "a", "HTTPS", "[a.example]", tls),
            server(443, "a", "HTTP", "['*']", ""),
            "0.0.0.0_443: [a.example] tls https.443.a.first.demo",
            "spec.servers[0] of Gateway demo/second is left out: Gateway demo/first has port 443 with a protocol that cannot share it",
        ),
        (
            server(443, "a", "HTTPS", "[a.example]", tls),
            server(443, "a", "HTTPS", "['*']", tls),
            "0.0.0.0_443: [a.example] tls https.443.a.first.demo; tls https.443.a.second.demo",
            "",
        ),
        (
            server(443, "a", "HTTPS", "[a.example]", tls),
            server(443, "a", "HTTPS", "[./A.example]", tls),
            "0.0.0.0_443: [a.example] tls https.443.a.first.demo",
            "spec.servers[0] of Gateway demo/second is left out: an older server of port 443 has \"a.example\"",
        ),
        (
            server(443, "a", "HTTPS", "[a.example, x.example]", tls),
            server(443, "a", "HTTPS", "[a.example, b.example, x.example]", tls),
            "0.0.0.0_443: [a.example x.example] tls https.443.a.first.demo; [b.example] tls https.443.a.second.demo",
            "spec.servers[0] of Gateway demo/second is served in part: an older server of port 443 has \"a.example\" and 1 more",
        ),
        (
            server(80, "a", "HTTP", "['*']", ""),
            server(15001, "a", "HTTP", "['*']", ""),
            "0.0.0.0_80: http.80",
            "spec.servers[0] of Gateway demo/second is left out: the proxy itself listens on port 15001",
        ),
        (
            server(80, "a", "HTTP", "['*']", ""),
            server(80, "a", "HTTP", "['*']", ", bind: 10.9.0.1"),
            "0.0.0.0_80: http.80|10.9.0.1_80: http.80.10.9.0.1",
            "",
        ),
    ] {
        let mut world = world();
        gateway(
            &mut world,
            "second",
            2,
            &spec(std::slice::from_ref(&second)),
        );
        gateway(&mut world, "first", 1, &spec(std::slice::from_ref(&first)));
        let snapshot = snapshot(world);
        let view = snapshot.view(&router("edge"));
        let mut found = listener_texts(&*view);
        found.sort();
        let mut listens: Vec<_> = listens.split('|').collect();
        listens.sort_unstable();
        assert_eq!(found, listens, "{first} {second}");
        let conflicts: Vec<_> = snapshot.conflicts();
        let messages: Vec<_> = conflicts
            .iter()
            .map(|one| {
                assert_eq!(one.metric, "pilot_total_rejected_configs");
                assert_eq!(one.objects[0].to_string(), "Gateway demo/second");
                &*one.message
            })
            .collect();
        let expected: Vec<_> = Some(left_out)
            .filter(|text| !text.is_empty())
            .into_iter()
            .collect();
        assert_eq!(messages, expected);
    }
}

/// Envoy refuses a listener that it cannot bind, and a router that starts is never ready.
#[test]
fn a_server_that_the_router_cannot_bind_is_left_out() {
    let conflict_of = |bind: &str, addresses: &str| {
        let mut world = world();
        let spec = HTTP.replace("hosts:", &format!("bind: '{bind}', hosts:"));
        gateway(&mut world, "g", 1, &spec);
        let snapshot = snapshot(world);
        let fields = [("istio", "edge"), ("INSTANCE_IPS", addresses)];
        let view = snapshot.view(&router_of("router", "edge", &fields));
        let listens = listener_texts(&*view).len();
        let mut conflicts = snapshot.conflicts().into_iter();
        let conflict = conflicts.next().map(|one| {
            assert_eq!(one.metric, "pilot_total_rejected_configs");
            assert_eq!(one.objects[0].to_string(), "Gateway demo/g");
            one.message
        });
        assert_eq!(listens, usize::from(conflict.is_none()), "{bind}");
        conflict
    };
    for (bind, addresses, address) in [
        ("10.9.0.1", "", None),
        ("10.9.0.7", "10.9.0.1,10.9.0.7", None),
        ("2001:db8::1", "10.9.0.1,2001:db8::1", None),
        ("0.0.0.0", "", None),
        ("::", "", None),
        ("127.0.0.9", "", None),
        ("::1", "10.9.0.1,2001:db8::1", None),
        ("::1", "", Some("::1")),
        ("192.0.2.77", "", Some("192.0.2.77")),
        ("fe80::1", "10.9.0.1,fe80::1", Some("fe80::1")),
        ("::ffff:10.9.0.1", "", Some("::ffff:10.9.0.1")),
        ("255.255.255.255", "", Some("255.255.255.255")),
        ("224.0.0.1", "", Some("224.0.0.1")),
    ] {
        let expected = address.map(|address| {
            format!(
                "spec.servers[0] of Gateway demo/g is left out: {address} is no address of the router"
            )
        });
        assert_eq!(conflict_of(bind, addresses), expected, "{bind} {addresses}");
    }
}

/// Routers that differ in what they can bind share no routes.
#[test]
fn a_router_has_routes_for_its_own_servers_alone() {
    let bound = HTTP.replace("hosts:", "bind: 10.9.0.1, hosts:");
    let mut world = world();
    gateway(&mut world, "a/first", 1, &bound);
    gateway(&mut world, "b/second", 2, &HTTP.replace("'*'", "b.example"));
    gateway(&mut world, "a/third", 3, &HTTP.replace("'*'", "a.example"));
    for (rule, host) in [("b/b", "b.example"), ("a/a", "a.example")] {
        let spec = format!(
            "hosts: [{host}]\ngateways: [a/third, b/second]\nhttp: [{{directResponse: {{status: 200}}}}]"
        );
        virtual_service(&mut world, rule, 1, &spec);
    }
    let snapshot = snapshot(world);
    let other = Node {
        addresses: vec!["10.9.0.2".parse().unwrap()],
        ..(*router("edge")).clone()
    };
    let a = "a.example:80 [a.example a.example:80]: /* 200";
    let b = "b.example:80 [b.example b.example:80]: /* 200";
    assert_eq!(hosts(&*snapshot.view(&router("edge")), "http.80"), [a]);
    let other = snapshot.view(&Arc::new(other));
    assert_eq!(hosts(&*other, "http.80"), [a, b]);
}

/// The kernel gives connections to whoever listens on their address alone: one port is one place.
#[test]
fn a_server_on_one_address_takes_no_connections_from_another_namespace() {
    let on_all = "0.0.0.0_80: http.80";
    let on_one = "10.9.0.1_80: http.80.10.9.0.1";
    let bound = HTTP.replace("hosts:", "bind: 10.9.0.1, hosts:");
    let elsewhere = bound.replace("number: 80", "number: 81");
    let (bound, elsewhere) = (&*bound, &*elsewhere);
    let both = [on_all, on_one];
    for (gateways, listens, left_out) in [
        (
            &[("demo/a", HTTP), ("evil/b", bound)][..],
            &both[..1],
            Some(
                "evil/b is left out: Gateway demo/a of another namespace has port 80 on all addresses",
            ),
        ),
        (
            &[("demo/a", bound), ("evil/b", HTTP)],
            &both[1..],
            Some(
                "evil/b is left out: Gateway demo/a of another namespace has port 80 on one address",
            ),
        ),
        (&[("demo/a", HTTP), ("demo/b", bound)], &both[..], None),
        // Whoever shares the port has connections, too.
        (
            &[("demo/a", HTTP), ("other/b", HTTP), ("demo/c", bound)],
            &both[..1],
            Some(
                "demo/c is left out: Gateway other/b of another namespace has port 80 on all addresses",
            ),
        ),
        (
            &[("demo/a", HTTP), ("evil/b", elsewhere)],
            &["0.0.0.0_80: http.80", "10.9.0.1_81: http.81.10.9.0.1"][..],
            None,
        ),
    ] {
        let mut world = world();
        for (created, (name, spec)) in (1..).zip(gateways) {
            gateway(&mut world, name, created, spec);
        }
        let snapshot = snapshot(world);
        let view = snapshot.view(&router("edge"));
        assert_eq!(listener_texts(&*view), listens, "{gateways:?}");
        let conflicts: Vec<_> = snapshot.conflicts();
        let messages: Vec<_> = conflicts.iter().map(|one| &*one.message).collect();
        let left_out = left_out.map(|what| format!("spec.servers[0] of Gateway {what}"));
        assert_eq!(messages, Vec::from_iter(left_out));
    }
}

/// A tenant's Gateway beside an older one of `demo`: what is served, and what is told at which objects.
fn beside(
    gateways: &[(&str, &str)],
    rules: &[(&str, &str, &str)],
) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let mut world = world();
    for (created, (name, server)) in (1..).zip(gateways) {
        let spec = format!(
            "selector: {{istio: edge}}\nservers: [{{port: {{number: 80, name: http, protocol: HTTP}}, {server}}}]"
        );
        gateway(&mut world, name, created, &spec);
    }
    for (created, (name, of, http)) in (1..).zip(rules) {
        let spec = format!("{of}\nhttp: [{http}]");
        virtual_service(&mut world, name, created, &spec);
    }
    let snapshot = snapshot(world);
    let hosts = hosts(&*snapshot.view(&router("edge")), "http.80");
    let conflicts = snapshot.conflicts().into_iter().map(|one| {
        assert_eq!(one.metric, "pilot_total_rejected_configs");
        let objects = one.objects.iter().map(ToString::to_string);
        (one.message, objects.collect())
    });
    (hosts, conflicts.collect())
}

#[test]
fn a_younger_gateway_of_another_namespace_redirects_no_host_of_an_older_one() {
    let answers = (
        "demo/v",
        "hosts: [v.example]\ngateways: [demo/g]",
        "{directResponse: {status: 200}}",
    );
    let redirects = "hosts: [v.example, e.example], tls: {httpsRedirect: true}";
    let own = "v.example:80 [v.example v.example:80]: /* 200";
    let evil = "e.example:80 [e.example e.example:80] redirects: ";
    let left_out = "the redirect of v.example at spec.servers[0] of Gateway evil/g is left out: Gateway demo/g of another namespace \
                    is older and has the host";
    for hosts in ["hosts: [v.example]", "hosts: ['*']"] {
        let (served, conflicts) = beside(&[("demo/g", hosts), ("evil/g", redirects)], &[answers]);
        assert_eq!(served, [evil, own], "{hosts}");
        assert_eq!(
            conflicts,
            [(left_out.to_owned(), vec!["Gateway evil/g".to_owned()])]
        );
    }
    // Of one namespace each server may say so.
    let (served, conflicts) = beside(
        &[("demo/g", "hosts: ['*']"), ("demo/h", redirects)],
        &[answers],
    );
    let redirected = own.replace("]:", "] redirects:");
    assert_eq!(served, [evil, &*redirected]);
    assert!(conflicts.is_empty(), "{conflicts:?}");
    // Nor does it serve in plain text what the older one redirects.
    let (served, _) = beside(
        &[("demo/g", redirects), ("evil/g", "hosts: [v.example]")],
        &[answers],
    );
    assert_eq!(served, [evil, &*redirected]);
}

#[test]
fn a_host_is_the_older_servers_where_namespaces_differ() {
    let v = "hosts: [v.example]";
    let rule = |status: u16| {
        format!("{{match: [{{uri: {{prefix: /{status}}}}}], directResponse: {{status: {status}}}}}")
    };
    let (first, second) = (rule(201), rule(202));
    let (first, second) = (&*first, &*second);
    let own = "v.example:80 [v.example v.example:80]: /201* 201";
    let both = "v.example:80 [v.example v.example:80]: /201* 201, /202* 202";
    let others = "v.example:80 [v.example v.example:80]: /202* 202";
    let none = "blackhole:80 [*]: /* 404";
    let of = "hosts: [v.example]\ngateways: [demo/g]";
    let evil = "hosts: [v.example]\ngateways: [evil/g]";
    let all = "hosts: [v.example]\ngateways: [demo/g, evil/g]";
    let any = "hosts: ['*']";
    let other = of.replace("v.e", "x.e");
    let same = "hosts: [v.example]\ngateways: [demo/h]";
    let left_out = "the routes of VirtualService evil/w for v.example at spec.servers[0] of Gateway evil/g is left out: Gateway \
                    demo/g of another namespace is older and has the host";
    for (gateways, rules, served, is_reported) in [
        // Two servers that name it, a wildcard with routes for it, and one that has none.
        (
            &[("demo/g", v), ("evil/g", v)][..],
            &[("demo/v", of, first), ("evil/w", evil, second)][..],
            &[own][..],
            true,
        ),
        (
            &[("demo/g", any), ("evil/g", v)],
            &[("demo/v", of, first), ("evil/w", evil, second)],
            &[own],
            true,
        ),
        (
            &[("demo/g", any), ("evil/g", v)],
            &[("evil/w", evil, second)],
            &[others],
            false,
        ),
        (
            &[("demo/g", any), ("evil/g", any)],
            &[("evil/w", evil, second)],
            &[others],
            false,
        ),
        (
            &[("demo/g", v), ("evil/g", any)],
            &[("evil/w", evil, second)],
            &[none],
            true,
        ),
        (
            &[("demo/g", any), ("evil/g", v)],
            &[("demo/v", &*other, first), ("evil/w", evil, second)],
            &[others, "x.example:80 [x.example x.example:80]: /201* 201"],
            false,
        ),
        // Of one namespace all are merged, and rules that name both Gateways are there by the older one.
        (
            &[("demo/g", v), ("demo/h", v)],
            &[("demo/v", of, first), ("evil/w", same, second)],
            &[both],
            false,
        ),
        (
            &[("demo/g", v), ("evil/g", v)],
            &[("demo/v", all, first), ("evil/w", all, second)],
            &[both],
            false,
        ),
    ] {
        let (found, conflicts) = beside(gateways, rules);
        assert_eq!(found, served, "{gateways:?} {rules:?}");
        let objects = ["Gateway evil/g", "VirtualService evil/w"].map(str::to_owned);
        let expected =
            is_reported.then(|| (left_out.replace("is left", "are left"), objects.to_vec()));
        assert_eq!(
            conflicts,
            Vec::from_iter(expected),
            "{gateways:?} {rules:?}"
        );
    }
}

/// A tenant has any number of servers on one port.
#[test]
fn servers_of_one_port_are_not_asked_one_by_one() {
    let looks = |count: usize| {
        let mut world = world();
        let servers: Vec<_> = (0..count)
            .map(|at| {
                format!(
                    "{{port: {{number: 443, name: p{at}, protocol: TLS}}, hosts: [h{at}.example], tls: {{mode: PASSTHROUGH}}}}"
                )
            })
            .collect();
        let servers = servers.join(", ");
        let spec = format!("selector: {{istio: edge}}\nservers: [{servers}]");
        gateway(&mut world, "g", 1, &spec);
        let snapshot = snapshot(world);
        steps(|| drop(snapshot.view(&router("edge"))))
    };
    assert_eq!([100, 200].map(looks), [100, 200]);
}

/// Policies hold at each chain of a router: a tenant's servers take the room of their own namespace, and close nobody's.
#[test]
fn servers_of_one_namespace_leave_policies_and_servers_of_others_their_room() {
    let mut world = world();
    gateway(&mut world, "demo/g", 1, HTTP);
    let servers: Vec<_> = (0..3000)
        .map(|at| {
            let port = 2000 + at;
            format!("{{port: {{number: {port}, name: p{at}, protocol: HTTP}}, hosts: ['*']}}")
        })
        .collect();
    let servers = servers.join(", ");
    let spec = format!("selector: {{istio: edge}}\nservers: [{servers}]");
    gateway(&mut world, "evil/g", 2, &spec);
    gateway(&mut world, "late/g", 3, &HTTP.replace("80", "81"));
    let blocks: Vec<_> = (0..1000)
        .map(|at| format!("10.{}.{}.0/24", at / 250, at % 250))
        .collect();
    let blocks = blocks.join(", ");
    let deny = format!(
        "selector: {{matchLabels: {{istio: edge}}}}\naction: DENY\nrules: [{{from: [{{source: {{remoteIpBlocks: [{blocks}]}}}}]}}]"
    );
    let policy = object::<api::security::AuthorizationPolicy>("edge/p", 1, &deny);
    insert(&mut world.authorization_policies, policy);
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let names = listener_texts(&*view);
    for name in ["0.0.0.0_80: http.80", "0.0.0.0_81: http.81"] {
        assert!(names.iter().any(|one| one == name), "{name}");
    }
    let bytes: usize = view
        .all(Type::Listener)
        .iter()
        .map(|one| one.body.len())
        .sum();
    assert!(
        names.len() > 500 && bytes < 26 << 20,
        "{} {bytes}",
        names.len()
    );
    let conflicts = snapshot.conflicts();
    assert_eq!(conflicts.len(), 21, "{:?}", conflicts.first());
    for one in &conflicts {
        assert_eq!(one.objects[0].to_string(), "Gateway evil/g");
    }
    assert!(conflicts.iter().any(|one| one.message.ends_with(
        "is left out: the policies of the router leave no room for more servers of its namespace"
    )));
}

/// Each match of a rule has a chain, and each chain has all policies in it.
#[test]
fn policies_in_the_chains_of_a_rule_take_the_room_of_that_rule() {
    let mut world = world();
    let server = "selector: {istio: edge}\nservers: [{port: {number: 443, name: tls, protocol: TLS}, hosts: ['*.example'], tls: {mode: \
                  PASSTHROUGH}}]";
    gateway(&mut world, "demo/g", 1, server);
    let rule = |name: &str, count: usize| {
        let matches = (0..count).map(|at| {
            format!("{{match: [{{sniHosts: [{name}{at}.example]}}], route: [{{destination: {{host: a, port: {{number: 90}}}}}}]}}")
        });
        let matches: Vec<_> = matches.collect();
        format!(
            "hosts: ['*.example']\ngateways: [demo/g]\ntls: [{}]",
            matches.join(", ")
        )
    };
    virtual_service(&mut world, "evil/v", 1, &rule("e", 1000));
    // It has a name that the one before would have had.
    virtual_service(&mut world, "shop/v", 2, &rule("e", 3));
    let blocks: Vec<_> = (0..3000)
        .map(|at| format!("10.{}.{}.0/24", at / 250, at % 250))
        .collect();
    let deny = format!(
        "selector: {{matchLabels: {{istio: edge}}}}\naction: DENY\nrules: [{{from: [{{source: {{ipBlocks: [{}]}}}}]}}]",
        blocks.join(", ")
    );
    let policy = object::<api::security::AuthorizationPolicy>("edge/p", 1, &deny);
    insert(&mut world.authorization_policies, policy);
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let listener: Listener = decoded(&*view, Type::Listener, "0.0.0.0_443");
    let names: Vec<_> = listener
        .filter_chains
        .iter()
        .map(|chain| {
            chain
                .filter_chain_match
                .as_ref()
                .unwrap()
                .server_names
                .join(" ")
        })
        .collect();
    assert_eq!(names, ["e0.example", "e1.example", "e2.example"]);
    let conflicts = snapshot.conflicts();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(conflicts[0].objects[0].to_string(), "VirtualService evil/v");
    assert!(
        conflicts[0]
            .message
            .contains("its chains are larger than 4 MiB")
    );
}

#[test]
fn plain_servers_redirect_where_they_say_so() {
    let mut world = world();
    let redirect = "selector: {istio: edge}\nservers: [{port: {number: 80, name: http, protocol: HTTP}, \
                    hosts: [a.example, b.example], tls: {httpsRedirect: true}}, \
                    {port: {number: 80, name: other, protocol: HTTP}, hosts: [c.example]}]";
    gateway(&mut world, "g", 1, redirect);
    virtual_service(
        &mut world,
        "v",
        1,
        &format!("hosts: [a.example, c.example]\ngateways: [g]\n{TO_A}"),
    );
    assert_eq!(
        hosts(&*seen(world), "http.80"),
        [
            format!("a.example:80 [a.example a.example:80] redirects: /* {A}"),
            "b.example:80 [b.example b.example:80] redirects: ".to_owned(),
            format!("c.example:80 [c.example c.example:80]: /* {A}"),
        ]
    );
}

/// Envoy refuses all routes of the port for a domain that is there twice.
#[test]
fn an_address_is_one_host_however_it_is_spelled() {
    let mut world = world();
    let servers = "selector: {istio: edge}\nservers: [{port: {number: 80, name: http, protocol: HTTP}, \
                   hosts: ['2001:db8::1', '2001:0DB8::0:1'], tls: {httpsRedirect: true}}]";
    gateway(&mut world, "g", 1, servers);
    let hosts_of = "hosts: ['2001:0db8:0::1']";
    virtual_service(
        &mut world,
        "v",
        1,
        &format!("{hosts_of}\ngateways: [g]\n{TO_A}"),
    );
    assert_eq!(
        hosts(&*seen(world), "http.80"),
        [format!(
            "2001:db8::1:80 [2001:db8::1 [2001:db8::1] [2001:db8::1]:80] redirects: /* {A}"
        )]
    );
}

/// A pod that may not bind low ports has a Service that leads to others.
#[test]
fn a_router_listens_where_its_own_services_lead() {
    let mut world = world();
    gateway(&mut world, "g", 1, HTTP);
    gateway(
        &mut world,
        "h",
        2,
        &HTTP.replace("80", "8080").replace("'*'", "h.example"),
    );
    virtual_service(
        &mut world,
        "v",
        1,
        &format!(
            "hosts: ['*']\ngateways: [g]\nhttp: [{{match: [{{port: 80}}], {}",
            &TO_A[8..]
        ),
    );
    service(&mut world, "edge.edge", &[(80, "HTTP")], &[]);
    let services = Arc::make_mut(&mut world.services);
    let own = services
        .values_mut()
        .find(|one| &*one.key.namespace == "edge")
        .unwrap();
    let own = Arc::make_mut(own);
    own.ports[0].target = Target::Number(8080);
    own.selector = labels(&[("istio", "edge")]);
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    assert_eq!(listener_texts(&*view), ["0.0.0.0_8080: http.8080"]);
    assert_eq!(hosts(&*view, "http.8080"), [format!("*:80 [*]: /* {A}")]);
    // Of another namespace none is its own.
    let other = snapshot.view(&router("elsewhere"));
    assert_eq!(
        listener_texts(&*other),
        ["0.0.0.0_80: http.80", "0.0.0.0_8080: http.8080"]
    );
    assert_eq!(hosts(&*other, "http.8080"), ["blackhole:8080 [*]: /* 404"]);
}

fn tls_of(tls: &str) -> Option<DownstreamTlsContext> {
    let mut world = world();
    let spec = format!(
        "selector: {{istio: edge}}\nservers: [{{port: {{number: 443, name: a, protocol: HTTPS}}, hosts: ['*'], tls: {tls}}}]"
    );
    gateway(&mut world, "g", 1, &spec);
    let (listener, _) = listeners(&*seen(world)).pop()?;
    assert_eq!(listener.listener_filters.len(), 1);
    context(&listener.filter_chains[0])
}

#[test]
fn tls_ends_as_its_mode_says() {
    let files = "serverCertificate: /c, privateKey: /k";
    let of_mesh = "/etc/certs/cert-chain.pem /etc/certs/key.pem";
    for (tls, certificates, root, requires, alpn) in [
        (format!("{{mode: SIMPLE, {files}}}"), "/c /k", None, false, "h2 http/1.1"),
        (
            format!("{{mode: SIMPLE, {files}, caCertificates: /r, subjectAltNames: [x]}}"),
            "/c /k",
            None,
            false,
            "h2 http/1.1",
        ),
        (
            format!("{{mode: MUTUAL, {files}, caCertificates: /r}}"),
            "/c /k",
            Some("/r"),
            true,
            "h2 http/1.1",
        ),
        (
            format!("{{mode: OPTIONAL_MUTUAL, {files}, caCertificates: /r}}"),
            "/c /k",
            Some("/r"),
            false,
            "h2 http/1.1",
        ),
        (
            "{mode: SIMPLE, tlsCertificates: [{serverCertificate: /1, privateKey: /2}, {serverCertificate: /3, privateKey: /4}]}".to_owned(),
            "/1 /2 /3 /4",
            None,
            false,
            "h2 http/1.1",
        ),
        (
            "{mode: ISTIO_MUTUAL}".to_owned(),
            of_mesh,
            Some("/etc/certs/root-cert.pem"),
            true,
            "h2 http/1.1",
        ),
    ] {
        let context = tls_of(&tls).unwrap();
        assert_eq!(context.require_client_certificate.unwrap().value, requires, "{tls}");
        let common = context.common_tls_context.unwrap();
        let file = |source: Option<core::DataSource>| match source.unwrap().specifier.unwrap() {
            core::data_source::Specifier::Filename(name) => name,
            other => panic!("{other:?}"),
        };
        // The mesh's own are in the listener, others by the names of their files.
        let by_name = common.tls_certificate_sds_secret_configs.into_iter();
        let by_name = by_name.map(|one| one.name.strip_prefix("file-cert:").unwrap().replace('~', " "));
        let found: Vec<_> = common
            .tls_certificates
            .into_iter()
            .flat_map(|one| [file(one.certificate_chain), file(one.private_key)])
            .chain(by_name)
            .collect();
        assert_eq!(found.join(" "), certificates, "{tls}");
        let found = common.validation_context_type.map(|validation| match validation {
            common_tls_context::ValidationContextType::ValidationContext(validation) => {
                file(validation.trusted_ca)
            }
            common_tls_context::ValidationContextType::CombinedValidationContext(both) => {
                let name = both.validation_context_sds_secret_config.unwrap().name;
                name.strip_prefix("file-root:").unwrap().to_owned()
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(found.as_deref(), root, "{tls}");
        assert_eq!(common.alpn_protocols.join(" "), alpn);
        assert_eq!(common.tls_params.unwrap().tls_minimum_protocol_version, 3, "{tls}");
    }
}

#[test]
fn versions_ciphers_and_pins_are_as_written() {
    let pin = "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=";
    let hash = "ab".repeat(32);
    let tls = |more: &str| {
        tls_of(&format!(
            "{{mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /r, {more}}}"
        ))
    };
    let context = tls(&format!(
        "minProtocolVersion: TLSV1_1, maxProtocolVersion: TLSV1_3, \
         cipherSuites: [AES128-SHA, AES128-GCM-SHA384, AES128-SHA, ECDHE-RSA-AES128-GCM-SHA256], \
         subjectAltNames: [spiffe://x], verifyCertificateSpki: ['{pin}'], verifyCertificateHash: ['{hash}'], caCrl: /crl"
    ));
    let common = context.unwrap().common_tls_context.unwrap();
    let parameters = common.tls_params.unwrap();
    assert_eq!(parameters.tls_minimum_protocol_version, 2);
    assert_eq!(parameters.tls_maximum_protocol_version, 4);
    assert_eq!(
        parameters.cipher_suites,
        ["AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256"]
    );
    let Some(common_tls_context::ValidationContextType::CombinedValidationContext(both)) =
        common.validation_context_type
    else {
        panic!("a context");
    };
    let validation = both.default_validation_context.unwrap();
    assert_eq!(validation.match_typed_subject_alt_names.len(), 2);
    assert_eq!(validation.verify_certificate_spki, [pin]);
    assert_eq!(validation.verify_certificate_hash, [hash]);
    let root = both.validation_context_sds_secret_config.unwrap().name;
    assert_eq!(root, "file-root:/r~/crl");
    // Without what it asks for more clients would be let in.
    assert!(tls("verifyCertificateSpki: [x]").is_none());
    assert!(tls("verifyCertificateHash: [x]").is_none());
    // A proxy without certificates of the mesh would refuse the listener.
    let mut world = world();
    let spec = "servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ['*'], tls: {mode: ISTIO_MUTUAL}}]";
    gateway(&mut world, "g", 1, spec);
    let node = router_of("router", "edge", &[("CERTIFICATES", "none")]);
    let snapshot = snapshot(world);
    assert!(listeners(&*snapshot.view(&node)).is_empty());
    assert_eq!(
        snapshot.conflicts()[0].message,
        "spec.servers[0] of Gateway demo/g is left out: the proxy has no certificates of the mesh"
    );
}

/// One server, and what a rule makes of it.
fn carried(server: &str, rule: &str) -> Vec<String> {
    let mut world = world();
    gateway(
        &mut world,
        "g",
        1,
        &format!("selector: {{istio: edge}}\nservers: [{server}]"),
    );
    virtual_service(&mut world, "v", 1, &format!("gateways: [g]\n{rule}"));
    listener_texts(&*seen(world))
}

#[test]
fn tls_goes_on_as_it_is_by_server_names() {
    let server = |hosts: &str| {
        format!(
            "{{port: {{number: 443, name: a, protocol: TLS}}, hosts: {hosts}, tls: {{mode: PASSTHROUGH}}}}"
        )
    };
    let route = |matching: &str| {
        format!(
            "hosts: ['*.example']\ntls:\n- {{match: [{{{matching}}}], route: [{{destination: {{host: a, port: {{number: 90}}}}}}]}}"
        )
    };
    let a = "outbound|90||a.demo.svc.cluster.local";
    for (hosts, rule, listens) in [
        ("['*.example']", route("sniHosts: [x.example, y.example]"), Some(format!("[x.example y.example] {a}"))),
        ("[x.example]", route("sniHosts: [x.example, y.example]"), Some(format!("[x.example] {a}"))),
        ("[x.example]", route("sniHosts: ['*.example']"), Some(format!("[x.example] {a}"))),
        ("['*']", route("sniHosts: ['*.example']"), Some(format!("[*.example] {a}"))),
        ("[z.other]", route("sniHosts: [x.example]"), None),
        ("['*']", route("sniHosts: [x.example], port: 443"), Some(format!("[x.example] {a}"))),
        ("['*']", route("sniHosts: [x.example], port: 444"), None),
        ("['*']", route("sniHosts: [x.example], gateways: [mesh]"), None),
        (
            "['*']",
            route("sniHosts: [x.example], destinationSubnets: [10.0.0.0/8]"),
            Some(format!("[x.example] to 10.0.0.0 {a}")),
        ),
        (
            "['*']",
            "hosts: [x.example]\ntls:\n- {match: [{sniHosts: [x.example]}], route: [{destination: {host: a, port: {number: 90}}, weight: 25}, \
             {destination: {host: b}, weight: 75}]}"
                .to_owned(),
            Some(format!("[x.example] {a}*25 {B}*75")),
        ),
        ("['*']", format!("hosts: [x.example]\n{TO_A}"), None),
    ] {
        let expected: Vec<_> = listens.map(|chains| format!("0.0.0.0_443: {chains}")).into_iter().collect();
        assert_eq!(carried(&server(hosts), &rule), expected, "{hosts} {rule}");
    }
}

/// Envoy takes no two chains with the same match.
#[test]
fn a_rule_is_told_of_the_older_one_that_has_its_connections() {
    let told = |server: &str, rules: [&str; 2]| -> Vec<(String, String)> {
        let mut world = world();
        let spec = format!("selector: {{istio: edge}}\nservers: [{server}]");
        gateway(&mut world, "g", 1, &spec);
        for (at, rule) in rules.into_iter().enumerate() {
            let spec = format!("hosts: ['*.example']\ngateways: [g]\n{rule}");
            virtual_service(
                &mut world,
                &format!("r{at}"),
                10 + i64::try_from(at).unwrap(),
                &spec,
            );
        }
        let snapshot = snapshot(world);
        let view = snapshot.view(&router("edge"));
        assert_eq!(listener_texts(&*view).len(), 1);
        let conflicts = snapshot.conflicts().into_iter();
        conflicts
            .map(|one| {
                assert_eq!(one.metric, "pilot_total_rejected_configs");
                (one.objects[0].to_string(), one.message)
            })
            .collect()
    };
    let to = "route: [{destination: {host: a, port: {number: 90}}}]";
    let tls = "{port: {number: 443, name: a, protocol: TLS}, hosts: ['*.example'], tls: {mode: PASSTHROUGH}}";
    let tcp = "{port: {number: 3306, name: a, protocol: TCP}, hosts: ['*.example']}";
    let by_name = |names: &str| format!("tls: [{{match: [{{sniHosts: [{names}]}}], {to}}}]");
    let all = format!("tcp: [{{{to}}}]");
    let of = "VirtualService demo/r1".to_owned();
    let message = "some of the connections that VirtualService demo/r1 matches at spec.servers[0] of Gateway demo/g go where VirtualService \
                   demo/r0 says: it matches the same, and comes first";
    let lost = [(of, message.to_owned())];
    let x = by_name("x.example");
    assert_eq!(told(tls, [&x, &by_name("x.example, y.example")]), lost);
    assert_eq!(told(tcp, [&all, &all]), lost);
    assert_eq!(told(tls, [&x, &by_name("y.example")]), []);
    // What a rule says twice it knows itself.
    let twice = format!(
        "tls: [{{match: [{{sniHosts: [x.example]}}], {to}}}, {{match: [{{sniHosts: [x.example, z.example]}}], {to}}}]"
    );
    assert_eq!(told(tls, [&twice, &by_name("y.example")]), []);
}

#[test]
fn other_connections_go_where_rules_send_them() {
    let tcp = "{port: {number: 3306, name: a, protocol: MYSQL}, hosts: ['*.example']}";
    let tls = "{port: {number: 3306, name: a, protocol: TLS}, hosts: [x.example], tls: {mode: ISTIO_MUTUAL}}";
    let a = "outbound|90||a.demo.svc.cluster.local";
    let to = "route: [{destination: {host: a, port: {number: 90}}}]";
    for (server, rule, listens) in [
        (
            tcp,
            format!("hosts: [x.example]\ntcp: [{{{to}}}]"),
            Some(a.to_owned()),
        ),
        (tcp, format!("hosts: [x.other]\ntcp: [{{{to}}}]"), None),
        (
            tcp,
            format!("hosts: [x.example]\ntcp: [{{match: [{{port: 3307}}], {to}}}]"),
            None,
        ),
        (
            tcp,
            format!(
                "hosts: [x.example]\ntcp: [{{match: [{{port: 3306, sourceSubnet: 10.0.0.0/8}}], {to}}}, {{{to}}}]"
            ),
            Some(format!("from 10.0.0.0 {a}; {a}")),
        ),
        (
            tcp,
            format!("hosts: [x.example]\ntcp: [{{{to}}}, {{match: [{{port: 3306}}], {to}}}]"),
            Some(a.to_owned()),
        ),
        // A router does not know the workloads of its clients.
        (
            tcp,
            format!(
                "hosts: [x.example]\ntcp: [{{match: [{{sourceLabels: {{app: x}}, sourceNamespace: x}}], {to}}}]"
            ),
            Some(a.to_owned()),
        ),
        (
            tls,
            format!("hosts: [x.example]\ntcp: [{{{to}}}]"),
            Some(format!("[x.example] tls {a}")),
        ),
        (tls, format!("hosts: [x.example]\n{TO_A}"), None),
    ] {
        let expected: Vec<_> = listens
            .map(|chains| format!("0.0.0.0_3306: {chains}"))
            .into_iter()
            .collect();
        assert_eq!(carried(server, &rule), expected, "{server} {rule}");
    }
}

/// Clients of gRPC end a connection that agrees on no protocol, whatever carries it on.
#[test]
fn connections_whose_tls_ends_agree_on_a_protocol() {
    let files = "serverCertificate: /c, privateKey: /k";
    for (tls, protocols) in [
        (format!("{{mode: SIMPLE, {files}}}"), "h2 http/1.1"),
        (
            format!("{{mode: MUTUAL, {files}, caCertificates: /r}}"),
            "h2 http/1.1",
        ),
        ("{mode: ISTIO_MUTUAL}".to_owned(), "istio"),
    ] {
        let mut world = world();
        let spec = format!(
            "selector: {{istio: edge}}\nservers: [{{port: {{number: 443, name: a, protocol: TLS}}, hosts: [x.example], tls: {tls}}}]"
        );
        gateway(&mut world, "g", 1, &spec);
        let rule = "hosts: [x.example]\ngateways: [g]\ntcp: [{route: [{destination: {host: a, port: {number: 90}}}]}]";
        virtual_service(&mut world, "v", 1, rule);
        let (listener, _) = listeners(&*seen(world)).remove(0);
        let common = context(&listener.filter_chains[0])
            .unwrap()
            .common_tls_context;
        assert_eq!(common.unwrap().alpn_protocols.join(" "), protocols, "{tls}");
    }
}

/// Two chains with one condition make Envoy refuse the listener.
#[test]
fn no_two_chains_have_the_same_condition() {
    let mut world = world();
    let through = "servers: [{port: {number: 443, name: a, protocol: TLS}, hosts: ['*.example'], tls: {mode: PASSTHROUGH}}]";
    gateway(&mut world, "first", 1, through);
    let ends = "servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [x.example, y.example], tls: {mode: ISTIO_MUTUAL}}]";
    gateway(&mut world, "second", 2, ends);
    for at in 1..3 {
        let spec = "hosts: [x.example]\ngateways: [first]\ntls:\n\
                    - {match: [{sniHosts: [x.example, x.example]}], route: [{destination: {host: b}}]}";
        virtual_service(&mut world, &format!("v{at}"), at, spec);
    }
    assert_eq!(
        listener_texts(&*seen(world)),
        [format!(
            "0.0.0.0_443: [x.example] {B}; [y.example] tls https.443.a.second.demo"
        )]
    );
}

#[test]
fn tls_is_led_to_a_cluster_by_its_server_name() {
    let mut world = world();
    let spec = "servers: [{port: {number: 15443, name: a, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}]";
    gateway(&mut world, "g", 1, spec);
    destination_rule(
        &mut world,
        "a",
        1,
        "host: a\ntrafficPolicy: {tls: {mode: ISTIO_MUTUAL}}\nsubsets: [{name: v2, labels: {version: v2}}]",
    );
    let snapshot = snapshot(world.clone());
    let view = snapshot.view(&router("edge"));
    assert_eq!(
        listener_texts(&*view),
        ["0.0.0.0_15443: [*.local] sni_cluster BlackHoleCluster"]
    );
    let names = |view: &dyn View| -> BTreeMap<String, usize> {
        let all = view.all(Type::Cluster);
        let all = all.iter().filter(|one| one.name.starts_with("outbound_."));
        all.map(|one| (one.name.to_string(), addresses(view, &one.name).len()))
            .collect()
    };
    let expected = [
        ("outbound_.80_._.a.demo.svc.cluster.local", 3),
        ("outbound_.80_._.b.demo.svc.cluster.local", 1),
        ("outbound_.80_._.c.other.svc.cluster.local", 1),
        ("outbound_.80_.v2_.a.demo.svc.cluster.local", 1),
        ("outbound_.90_._.a.demo.svc.cluster.local", 3),
        ("outbound_.90_.v2_.a.demo.svc.cluster.local", 1),
    ];
    let expected = BTreeMap::from(expected.map(|(name, count)| (name.to_owned(), count)));
    assert_eq!(names(&*view), expected);
    let one = cluster(&*view, "outbound_.80_.v2_.a.demo.svc.cluster.local");
    assert!(one.transport_socket.is_none() && one.transport_socket_matches.is_empty());
    assert_eq!(one.eds_cluster_config.unwrap().service_name, one.name);
    assert!(cluster(&*view, A).transport_socket.is_some());
    // Whoever does not lead TLS on has none of these.
    let sidecar = snapshot.view(&node("demo", &[]));
    assert!(names(&*sidecar).is_empty());
    assert!(
        sidecar
            .get(Type::Endpoint, "outbound_.80_._.a.demo.svc.cluster.local")
            .is_none()
    );
    world.gateways = Arc::default();
    let snapshot = super::snapshot(world);
    assert!(names(&*snapshot.view(&router("edge"))).is_empty());
    let old = router_of("router", "edge", &[("ROUTER_MODE", "sni-dnat")]);
    assert_eq!(names(&*snapshot.view(&old)), expected);
}

/// The proxy begins mutual TLS to all other clusters, as itself: a stranger who said their names in SNI was the router.
#[test]
fn a_server_name_means_no_other_cluster() {
    let mut world = world();
    let spec = "servers: [{port: {number: 15443, name: a, protocol: TLS}, hosts: ['*'], tls: {mode: AUTO_PASSTHROUGH}}]";
    gateway(&mut world, "g", 1, spec);
    let key = ServiceKey::new("b.demo.svc.cluster.local", "demo");
    let outside = Arc::make_mut(&mut world.services).get_mut(&key).unwrap();
    Arc::make_mut(outside).mesh_external = true;
    let view = seen(world);
    let (listener, _) = listeners(&*view).remove(0);
    let chain = &listener.filter_chains[0];
    let names: Vec<_> = chain.filters.iter().map(|one| &*one.name).collect();
    assert_eq!(
        names,
        ["rbac", "sni_cluster", "tcp_proxy"].map(|name| format!("envoy.filters.network.{name}"))
    );
    let rules = decoded_filter::<NetworkRbac>(chain, names[0])
        .unwrap()
        .rules
        .unwrap();
    assert_eq!(rules.action(), rbac::Action::Allow);
    let [policy] = rules.policies.values().collect::<Vec<_>>()[..] else {
        panic!("{rules:?}")
    };
    let prefix = StringMatcher {
        match_pattern: Some(MatchPattern::Prefix("outbound_.".to_owned())),
        ..StringMatcher::default()
    };
    let named = permission::Rule::RequestedServerName(prefix);
    assert_eq!(policy.permissions, [Permission { rule: Some(named) }]);
    let proxy = decoded_filter::<TcpProxy>(chain, names[2]).unwrap();
    assert_eq!(
        proxy.upstream_connect_mode(),
        UpstreamConnectMode::OnDownstreamData
    );
    // Services outside of the mesh ask no client for a certificate.
    let clusters = view.all(Type::Cluster);
    let has = |name: &str| clusters.iter().any(|one| &*one.name == name);
    assert!(has("outbound_.80_._.a.demo.svc.cluster.local") && has(B));
    let outside = "outbound_.80_._.b.demo.svc.cluster.local";
    assert!(!has(outside) && view.get(Type::Endpoint, outside).is_none());
}

/// A client said the name of the wider server in TLS, and asked for the host of the other one without a certificate.
#[test]
fn a_wider_server_answers_for_no_host_that_requires_certificates() {
    let tls = |mode: &str| {
        let files = match mode {
            "ISTIO_MUTUAL" => "",
            _ => ", serverCertificate: /c, privateKey: /k, caCertificates: /r",
        };
        format!("tls: {{mode: {mode}{files}}}")
    };
    let server = |name: &str, hosts: &str, mode: &str| {
        format!(
            "{{port: {{number: 443, name: {name}, protocol: HTTPS}}, hosts: [{hosts}], {}}}",
            tls(mode)
        )
    };
    let of_rule =
        "gateways: [wide, narrow]\nhttp: [{route: [{destination: {host: a, port: {number: 80}}}]}]";
    let of = |narrow: &str, hosts: &str, wide: &str, rule: &str| {
        let mut world = world();
        let narrow = format!("servers: [{}]", server("n", hosts, narrow));
        gateway(&mut world, "narrow", 2, &narrow);
        let wide = format!("servers: [{}]", server("w", wide, "SIMPLE"));
        gateway(&mut world, "wide", 1, &wide);
        virtual_service(&mut world, "v", 1, &format!("hosts: [{rule}]\n{of_rule}"));
        let view = seen(world);
        ["w.wide", "n.narrow"].map(|name| {
            let all = self::hosts(&*view, &format!("https.443.{name}.demo"));
            all.join("; ")
        })
    };
    let to_a = format!("[a.x a.x:443]: /* {A}");
    let elsewhere = "misdirected:443 [a.x a.x:443]: /* 421";
    for mode in ["MUTUAL", "ISTIO_MUTUAL"] {
        for wide in ["'*.x'", "'*'"] {
            assert_eq!(
                of(mode, "a.x", wide, "a.x, b.x"),
                [
                    format!("b.x:443 [b.x b.x:443]: /* {A}; {elsewhere}"),
                    format!("a.x:443 {to_a}")
                ],
                "{mode} {wide}"
            );
        }
    }
    // Clients may have a certificate, or need not: there is nothing to go around.
    for mode in ["SIMPLE", "OPTIONAL_MUTUAL"] {
        assert_eq!(
            of(mode, "a.x", "'*'", "a.x"),
            [format!("a.x:443 {to_a}"), format!("a.x:443 {to_a}")],
            "{mode}"
        );
    }
    // All below a wildcard, but for what the wider server names itself.
    assert_eq!(
        of("MUTUAL", "'*.b.x'", "'*.x', a.b.x", "a.b.x, c.b.x, d.x")[0],
        format!(
            "a.b.x:443 [a.b.x a.b.x:443]: /* {A}; d.x:443 [d.x d.x:443]: /* {A}; \
             misdirected:443 [*.b.x *.b.x:443]: /* 421"
        )
    );
    // Without routes of its own, too.
    assert_eq!(
        of("MUTUAL", "a.x", "'*.x'", "a.x")[0],
        format!("blackhole:443 [*]: /* 404; {elsewhere}")
    );
}

/// The user who binds a rule to the wider Gateway alone would look for its routes in vain.
#[test]
fn routes_that_give_way_to_certificates_are_told() {
    let conflicts_of = |gateways: &str, wide: &str| {
        let mut world = world();
        for (name, hosts, mode) in [("wide", wide, "SIMPLE"), ("narrow", "a.x", "MUTUAL")] {
            let spec = format!(
                "servers: [{{port: {{number: 443, name: n, protocol: HTTPS}}, hosts: [{hosts}], \
                 tls: {{mode: {mode}, serverCertificate: /c, privateKey: /k, caCertificates: /r}}}}]"
            );
            gateway(&mut world, name, 1, &spec);
        }
        let spec = format!("hosts: [a.x, b.x]\ngateways: [{gateways}]\n{TO_A}");
        virtual_service(&mut world, "v", 1, &spec);
        let snapshot = snapshot(world);
        drop(snapshot.view(&router("edge")).all(Type::Route));
        let conflicts = snapshot.conflicts().into_iter();
        conflicts.map(|one| one.message).collect::<Vec<_>>()
    };
    let lost = "the routes of VirtualService demo/v for a.x are left out at Gateways with wider hosts: \
                Gateway demo/narrow requires certificates of clients there";
    assert_eq!(conflicts_of("wide", "'*.x'"), [lost]);
    assert_eq!(conflicts_of("wide, narrow", "'*.x'"), [""; 0]);
    assert_eq!(conflicts_of("wide", "b.x"), [""; 0]);
}

/// A host of a hundred labels has a hundred wildcards above it: 1 MB of one tenant came to 240 MB of routes.
#[test]
fn hosts_that_require_certificates_are_not_copied_to_each_wildcard_above_them() {
    const DEPTH: usize = 60;
    let suffixes: Vec<_> = (0..DEPTH)
        .map(|depth| format!("{}x", "abc.".repeat(depth)))
        .collect();
    let deepest = &suffixes[DEPTH - 1];
    let server = |name: &str, hosts: &str, mode: &str| {
        format!(
            "{{port: {{number: 443, name: {name}, protocol: HTTPS}}, hosts: [{hosts}], \
             tls: {{mode: {mode}, serverCertificate: /c, privateKey: /k, caCertificates: /r}}}}"
        )
    };
    let hosts: Vec<_> = (0..400).map(|at| format!("h{at}.{deepest}")).collect();
    let wide = suffixes.iter().enumerate();
    let wide =
        wide.map(|(at, suffix)| server(&format!("w{at}"), &format!("'*.{suffix}'"), "SIMPLE"));
    let mut servers: Vec<_> = wide.collect();
    servers.push(server("narrow", &hosts.join(", "), "MUTUAL"));
    let mut world = world();
    gateway(
        &mut world,
        "g",
        1,
        &format!("servers: [{}]", servers.join(", ")),
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let bytes = |name: usize| view.get(Type::Route, &format!("https.443.w{name}.g.demo"));
    let bytes: usize = (0..DEPTH).map(|at| bytes(at).unwrap().body.len()).sum();
    // 12 MB, were each host at each wildcard.
    assert!(bytes < 3 << 20, "{bytes}");
    // No wildcard answers for what is below it all the same.
    for (at, suffix) in suffixes.iter().enumerate() {
        let routes: RouteConfiguration =
            decoded(&*view, Type::Route, &format!("https.443.w{at}.g.demo"));
        let misdirected = routes.virtual_hosts.iter();
        let misdirected = misdirected.filter(|host| host.name.starts_with("misdirected"));
        let domains: BTreeSet<_> = misdirected.flat_map(|host| &host.domains).collect();
        assert!(!domains.contains(&format!("*.{suffix}")));
        for host in &hosts {
            let mut above = crate::scope::patterns(host).into_iter();
            assert!(
                above.any(|pattern| domains.contains(&pattern)),
                "{at} {host}"
            );
        }
    }
    drop(view.all(Type::Listener));
    let told = snapshot.conflicts().into_iter().map(|one| one.message);
    let told: Vec<_> = told.collect();
    assert!(
        told.iter()
            .any(|message| message.contains(" of Gateway demo/g answers 421 for all of *.abc.")),
        "{told:?}"
    );
}

/// 4,000 rules for `*` held against a server with 50,000 hosts took ten seconds.
#[test]
fn wildcards_of_rules_are_held_against_the_hosts_of_a_server_once() {
    let mut world = world();
    let names: Vec<_> = (0..1000).map(|at| format!("n{at}.example")).collect();
    gateway(&mut world, "g", 1, &HTTP.replace("'*'", &names.join(", ")));
    for number in 0..10 {
        let spec = format!("hosts: ['*']\ngateways: [g]\n{TO_A}");
        virtual_service(&mut world, &format!("v{number}"), 1, &spec);
    }
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let looks = steps(|| drop(view.get(Type::Route, "http.80")));
    // Once for all rules to estimate their routes, and once for each while these are made.
    assert!((11_000..12_000).contains(&looks), "{looks}");
}

/// A wildcard has the names of the server in its routes: forty servers with 1,000 long ones came to 50 MB.
#[test]
fn long_names_below_the_wildcard_of_a_rule_take_room() {
    let mut world = world();
    let names: Vec<_> = (0..1000)
        .map(|at| format!("n{at:03}.{}example", "a-long-label.".repeat(17)))
        .collect();
    let spec = HTTP.replace("'*'", &names.join(", "));
    let mut object = (*object::<Gateway>("g", 1, &spec)).clone();
    let server = object.spec.servers[0].clone();
    for number in 81..120 {
        let mut server = server.clone();
        server.port.as_mut().unwrap().number = number;
        object.spec.servers.push(server);
    }
    insert(&mut world.gateways, Arc::new(object));
    let spec = format!("hosts: ['*']\ngateways: [g]\n{TO_A}");
    virtual_service(&mut world, "v", 1, &spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let bytes: usize = view.all(Type::Route).iter().map(|one| one.body.len()).sum();
    assert!(bytes < 1 << 20, "{bytes}");
    let conflicts = snapshot.conflicts();
    assert!(
        conflicts
            .iter()
            .any(|one| one.metric == "gudgeon_rules_too_large"),
        "{conflicts:?}"
    );
}

/// Servers of requests make nothing of rules for connections.
#[test]
fn rules_for_connections_leave_the_room_of_routes_to_others() {
    let mut world = world();
    let names: Vec<_> = (0..1000)
        .map(|at| format!("n{at:03}.{}example", "a-long-label.".repeat(17)))
        .collect();
    gateway(&mut world, "g", 1, &HTTP.replace("'*'", &names.join(", ")));
    let tls = "tls: [{match: [{sniHosts: ['*']}], route: [{destination: {host: a, port: {number: 90}}}]}]";
    for number in 0..80 {
        let spec = format!("hosts: ['*']\ngateways: [g]\n{tls}");
        virtual_service(&mut world, &format!("v{number}"), 1, &spec);
    }
    let spec = format!("hosts: ['*']\ngateways: [g]\n{TO_A}");
    virtual_service(&mut world, "z", 2, &spec);
    let hosts = hosts(&*seen(world), "http.80");
    assert_eq!(hosts[0], format!("{0}:80 [{0} {0}:80]: /* {A}", names[0]));
    assert_eq!(hosts.len(), 1000);
}

/// They kept the addresses of pods that were gone until something else changed.
#[test]
fn endpoints_behind_a_server_name_follow_a_push_of_endpoints_alone() {
    let mut before = world();
    let spec = "servers: [{port: {number: 15443, name: a, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}]";
    gateway(&mut before, "g", 1, spec);
    destination_rule(
        &mut before,
        "d",
        1,
        "host: a\nsubsets: [{name: v1, labels: {version: v1}}]",
    );
    let first = snapshot(before.clone());
    let edge = router("edge");
    let names =
        ["", "v1"].map(|subset| format!("outbound_.80_.{subset}_.a.demo.svc.cluster.local"));
    let found = |snapshot: &Arc<Snapshot>| {
        let view = snapshot.view(&edge);
        names.each_ref().map(|name| addresses(&*view, name).len())
    };
    assert_eq!(found(&first), [3, 2]);
    let mut after = before;
    service(
        &mut after,
        "a.demo",
        &[(80, "HTTP"), (90, "TCP")],
        &[("10.0.1.1", "v1")],
    );
    let host = "a.demo.svc.cluster.local".into();
    let next = first.next(after, Some(&[host].into()), None);
    assert!(!next.full);
    assert_eq!(found(&next.snapshot), [1, 1]);
}

#[test]
fn a_change_concerns_the_routers_that_it_is_for() {
    let mut world = world();
    gateway(&mut world, "g", 1, HTTP);
    virtual_service(
        &mut world,
        "v",
        1,
        &format!("hosts: [x.example]\ngateways: [g]\n{TO_A}"),
    );
    let before = snapshot(world.clone());
    let (edge, other) = (router("edge"), router_of("router", "edge", &[]));
    let sidecar = node("elsewhere", &[]);
    let concerned = |world: &World| {
        let next = before.next(world.clone(), None, None);
        [&edge, &other, &sidecar].map(|node| next.concerns(node))
    };
    let mut changed = world.clone();
    virtual_service(
        &mut changed,
        "v",
        1,
        &format!("hosts: [y.example]\ngateways: [g]\n{TO_A}"),
    );
    assert_eq!(concerned(&changed), [true, false, false]);
    let mut changed = world.clone();
    gateway(&mut changed, "g", 1, &HTTP.replace("80", "81"));
    assert_eq!(concerned(&changed), [true, false, false]);
    let mut changed = world.clone();
    gateway(&mut changed, "h", 1, &HTTP.replace("edge", "x"));
    assert_eq!(concerned(&changed), [false, false, false]);
    let mut changed = world;
    changed.gateways = Arc::default();
    assert_eq!(concerned(&changed), [true, false, false]);
}

/// A tenant's wildcards must not make a million names of others' hosts.
#[test]
fn a_rule_has_so_much_room_and_no_more() {
    let mut world = world();
    let names: Vec<_> = (0..2000)
        .map(|at| format!("host-{at}.a-rather-long-name.example"))
        .collect();
    gateway(&mut world, "g", 1, &HTTP.replace("'*'", &names.join(", ")));
    let route = "{match: [{uri: {prefix: /x}}], route: [{destination: {host: a}}]}";
    let routes = vec![route; 200].join(", ");
    let spec = format!("hosts: ['*.example']\ngateways: [g]\nhttp: [{routes}]");
    virtual_service(&mut world, "v", 1, &spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    assert!(view.get(Type::Route, "http.80").unwrap().body.len() < 8 << 20);
    let conflicts = snapshot.conflicts();
    assert_eq!(
        conflicts
            .iter()
            .filter(|one| one.metric == "gudgeon_rules_too_large")
            .count(),
        1
    );
}

/// 200 kB of ports and hosts came to half a gigabyte of routes.
#[test]
fn rules_of_one_namespace_share_its_room_at_all_servers() {
    let mut world = world();
    let servers: Vec<_> = (0..40)
        .map(|at| {
            format!(
                "{{port: {{number: {0}, name: h{0}, protocol: HTTP}}, hosts: ['*']}}",
                8000 + at
            )
        })
        .collect();
    let spec = format!(
        "selector: {{istio: edge}}\nservers: [{}]",
        servers.join(", ")
    );
    gateway(&mut world, "g", 1, &spec);
    for number in 0..20 {
        let hosts: Vec<_> = (0..200)
            .map(|at| format!("n{at}.v{number}.example"))
            .collect();
        let spec = format!("hosts: [{}]\ngateways: [g]\n{TO_A}", hosts.join(", "));
        virtual_service(&mut world, &format!("v{number:02}"), number, &spec);
    }
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let all = view.all(Type::Route);
    let bytes = all.iter().map(|one| one.body.len()).sum::<usize>();
    assert!((16 << 20..40 << 20).contains(&bytes), "{bytes}");
    let conflicts = snapshot.conflicts();
    let lost = conflicts.iter();
    let lost = lost.filter(|one| one.metric == "gudgeon_rules_too_large");
    let lost: BTreeSet<_> = lost
        .flat_map(|one| &one.objects)
        .map(|rule| &*rule.name)
        .collect();
    assert!(lost.contains("v19") && !lost.contains("v00"), "{lost:?}");
}

/// Requests from outside pass them first.
#[test]
fn policies_hold_at_gateways() {
    let mut world = world();
    let spec = "selector: {istio: edge}\nservers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*']}, \
                {port: {number: 90, name: b, protocol: TCP}, hosts: ['*']}]";
    gateway(&mut world, "g", 1, spec);
    let to = "route: [{destination: {host: a, port: {number: 90}}}]";
    virtual_service(
        &mut world,
        "v",
        1,
        &format!("hosts: ['*']\ngateways: [g]\ntcp: [{{{to}}}]"),
    );
    let deny = "selector: {matchLabels: {istio: edge}}\naction: DENY\nrules: [{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}]";
    let policy = object::<api::security::AuthorizationPolicy>("edge/p", 1, deny);
    insert(&mut world.authorization_policies, policy);
    let snapshot = snapshot(world);
    let first = |node: &Arc<Node>| -> Vec<String> {
        let all = listeners(&*snapshot.view(node)).into_iter();
        all.map(|(listener, _)| {
            let chain = &listener.filter_chains[0];
            match &*chain.filters[0].name {
                "envoy.filters.network.http_connection_manager" => {
                    manager(chain).http_filters[0].name.clone()
                }
                name => name.to_owned(),
            }
        })
        .collect()
    };
    assert_eq!(
        first(&router("edge")),
        ["envoy.filters.http.rbac", "envoy.filters.network.rbac"]
    );
    assert_eq!(
        first(&router("other")),
        ["envoy.filters.http.cors", "envoy.filters.network.tcp_proxy"]
    );
}

/// Policies that select a router hold for the requests that come in to it, in their order.
#[test]
fn tokens_and_policies_hold_at_a_router() {
    let mut world = world();
    gateway(
        &mut world,
        "g",
        1,
        "selector: {istio: edge}\nservers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]",
    );
    let names = |world: World| -> Vec<String> {
        let snapshot = snapshot(world);
        let listener: Listener = decoded(
            &*snapshot.view(&router("demo")),
            Type::Listener,
            "0.0.0.0_80",
        );
        let filters = manager(&listener.filter_chains[0]).http_filters.into_iter();
        filters.map(|filter| filter.name).collect()
    };
    let bare = names(world.clone());
    let jwks = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}]}"#;
    tokens::policy(
        &mut world,
        "p",
        &format!(
            "selector: {{matchLabels: {{istio: edge}}}}\njwtRules: [{{issuer: a, jwks: '{jwks}'}}]"
        ),
    );
    let deny = object::<api::security::AuthorizationPolicy>(
        "d",
        1,
        "selector: {matchLabels: {istio: edge}}\naction: DENY\nrules: [{to: [{operation: {paths: [/admin]}}]}]",
    );
    insert(&mut world.authorization_policies, deny);
    let guarded = names(world);
    let (before, after) = guarded.split_at(guarded.len() - bare.len());
    assert_eq!(after, bare);
    assert_eq!(
        before,
        ["envoy.filters.http.jwt_authn", "envoy.filters.http.rbac"]
    );
}

#[test]
fn rules_without_routes_that_a_server_serves_are_told() {
    let through = "{port: {number: 443, name: a, protocol: TLS}, hosts: ['*.example'], tls: {mode: PASSTHROUGH}}";
    let plain = "{port: {number: 80, name: b, protocol: HTTP}, hosts: ['*.example']}";
    let http = "http: [{route: [{destination: {host: a}}]}]";
    let tls = "tls: [{match: [{sniHosts: [x.example]}], route: [{destination: {host: a, port: {number: 90}}}]}]";
    let conflicts_of = |servers: &[&str], host: &str, rules: &str| {
        let mut world = world();
        let spec = format!(
            "selector: {{istio: edge}}\nservers: [{}]",
            servers.join(", ")
        );
        gateway(&mut world, "g", 1, &spec);
        let spec = format!("hosts: [{host}]\ngateways: [g]\n{rules}");
        virtual_service(&mut world, "v", 1, &spec);
        let snapshot = snapshot(world);
        drop(snapshot.view(&router("demo")).all(Type::Listener));
        let conflicts = snapshot.conflicts().into_iter();
        conflicts.map(|one| one.message).collect::<Vec<_>>()
    };
    let connections = "{port: {number: 90, name: c, protocol: TCP}, hosts: ['*.example']}";
    let ends = "{port: {number: 444, name: d, protocol: TLS}, hosts: ['*.example'], tls: {mode: SIMPLE, credentialName: c}}";
    let tcp = "tcp: [{route: [{destination: {host: a, port: {number: 90}}}]}]";
    for (server, rules, does) in [
        (through, http, "passes TLS through; use tls routes there"),
        (through, tcp, "passes TLS through; use tls routes there"),
        (plain, tls, "serves requests; use http routes there"),
        (plain, tcp, "serves requests; use http routes there"),
        (
            connections,
            http,
            "serves connections; use tcp routes there",
        ),
        (
            ends,
            tls,
            "ends TLS and serves connections; use tcp routes there",
        ),
    ] {
        let want = format!(
            "none of its routes applies at spec.servers[0] of Gateway demo/g, which {does}"
        );
        let found = conflicts_of(&[server], "x.example", rules);
        assert!(found.contains(&want), "{server} {rules}: {found:?}");
    }
    for (servers, host, rules) in [
        (&[through][..], "x.example", tls),
        (&[through], "x.example", &format!("{tls}\n{http}")),
        (&[through], "x.other", http),
        // Its requests are those of another port.
        (&[through, plain], "x.example", http),
        (&[plain], "x.example", http),
        (&[connections, through], "x.example", tcp),
        (&[plain, connections], "x.example", tcp),
    ] {
        assert_eq!(
            conflicts_of(servers, host, rules),
            [""; 0],
            "{servers:?} {rules}"
        );
    }
}

/// A tenant has any number of rules, and of servers.
#[test]
fn rules_for_requests_where_tls_goes_on_are_told() {
    let conflicts_of = |servers: u16, rules: usize| {
        let mut world = world();
        let through = |at| {
            let port = 1000 + at;
            format!(
                "{{port: {{number: {port}, name: p{at}, protocol: TLS}}, hosts: ['*.example'], tls: {{mode: PASSTHROUGH}}}}"
            )
        };
        let servers: Vec<_> = (0..servers).map(through).collect();
        let servers = servers.join(", ");
        gateway(
            &mut world,
            "g",
            1,
            &format!("selector: {{istio: edge}}\nservers: [{servers}]"),
        );
        for rule in 0..rules {
            let spec = format!(
                "hosts: [h{rule}.example]\ngateways: [g]\nhttp: [{{route: [{{destination: {{host: a}}}}]}}]"
            );
            virtual_service(&mut world, &format!("v{rule}"), 1, &spec);
        }
        let snapshot = snapshot(world);
        drop(snapshot.view(&router("demo")).all(Type::Listener));
        let all = snapshot.conflicts().into_iter().map(|one| one.message);
        let (more, each): (Vec<_>, Vec<_>) =
            all.partition(|message| message.contains(" more conflicts of "));
        assert!(
            each.iter()
                .all(|message| message.contains("passes TLS through"))
        );
        (each.len(), more)
    };
    let more = "10 more conflicts of VirtualService demo/v0 are not listed";
    assert_eq!(conflicts_of(30, 1), (20, vec![more.to_owned()]));
    // No rule of a namespace beyond its limit is left out in silence.
    let (each, more) = conflicts_of(1, 250);
    assert_eq!((each, more.len()), (200, 50));
    assert!(
        more.iter()
            .all(|one| one.starts_with("1 more conflicts of VirtualService demo/v"))
    );
}

/// A tenant has any number of both, and each rule is told at some servers.
#[test]
fn rules_for_requests_are_not_held_against_each_server_where_tls_goes_on() {
    let looks = |count: usize| {
        let mut world = world();
        let servers: Vec<_> = (0..count)
            .map(|at| {
                format!(
                    "{{port: {{number: 443, name: p{at}, protocol: TLS}}, hosts: [h{at}.example], tls: {{mode: PASSTHROUGH}}}}"
                )
            })
            .collect();
        let servers = servers.join(", ");
        gateway(
            &mut world,
            "g",
            1,
            &format!("selector: {{istio: edge}}\nservers: [{servers}]"),
        );
        for rule in 0..count {
            let spec = format!(
                "hosts: [h{rule}.example, other.example]\ngateways: [g]\nhttp: [{{directResponse: {{status: 200}}}}]"
            );
            virtual_service(&mut world, &format!("v{rule}"), 1, &spec);
        }
        let snapshot = snapshot(world);
        let view = snapshot.view(&router("edge"));
        steps(|| drop(view.all(Type::Listener)))
    };
    let [some, more] = [50, 100].map(looks);
    assert!(more <= 2 * some + 10, "{some} {more}");
}

/// One rule has thousands of hosts, and one Gateway hundreds of servers: a rule is looked at as long as it has room.
#[test]
fn hosts_of_rules_for_connections_are_looked_at_within_their_room() {
    let mut world = world();
    let server = |at: u16| {
        format!(
            "{{port: {{number: {}, name: p{at}, protocol: TCP}}, hosts: [x.other]}}",
            1000 + at
        )
    };
    let servers: Vec<_> = (0..200).map(server).collect();
    let spec = format!(
        "selector: {{istio: edge}}\nservers: [{}]",
        servers.join(", ")
    );
    gateway(&mut world, "g", 1, &spec);
    let hosts: Vec<_> = (0..10_000)
        .map(|at| format!("a-longer-name-{at}.example"))
        .collect();
    let spec = format!(
        "hosts: [{}]\ngateways: [g]\ntcp: [{{route: [{{destination: {{host: a, port: {{number: 90}}}}}}]}}]",
        hosts.join(", ")
    );
    virtual_service(&mut world, "v", 1, &spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&router("edge"));
    let looks = steps(|| drop(view.all(Type::Listener)));
    // 2,000,000 without a bound.
    assert!((10_000..500_000).contains(&looks), "{looks}");
    let conflicts = snapshot.conflicts();
    assert!(
        conflicts
            .iter()
            .any(|one| one.message.contains("its chains are larger than 4 MiB")),
        "{conflicts:?}"
    );
}
