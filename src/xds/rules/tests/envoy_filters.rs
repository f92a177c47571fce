//! EnvoyFilters: each operation on what each `applyTo` names, which proxies they are for, and what they cost others.

use api::networking::EnvoyFilter;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy};
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::{VirtualHost, route};
use envoy_types::pb::envoy::extensions::clusters::common::dns::v3 as common;
use envoy_types::pb::envoy::extensions::clusters::dns::v3::DnsCluster;
use envoy_types::pb::envoy::extensions::filters::http::lua::v3::Lua;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;

use super::*;
use crate::node::Dns;

const MANAGER: &str = "envoy.filters.network.http_connection_manager";
const TYPES: &str = "type.googleapis.com/envoy";

pub(super) fn envoy_filter(world: &mut World, name: &str, created: i64, spec: &str) {
    let object = object::<EnvoyFilter>(name, created, spec);
    insert(&mut world.envoy_filters, object);
}

/// The usual world, with a service that the proxy is one of.
pub(super) fn with(patches: &str) -> World {
    let mut world = world();
    service(
        &mut world,
        "own.demo",
        &[(8080, "HTTP"), (8081, "TCP")],
        &[("10.9.0.1", "v1")],
    );
    if !patches.is_empty() {
        envoy_filter(&mut world, "f", 1, &format!("configPatches:\n{patches}"));
    }
    world
}

fn patched(patches: &str) -> Arc<dyn View> {
    view(with(patches))
}

fn listener(view: &dyn View, name: &str) -> Listener {
    decoded(view, Type::Listener, name)
}

fn manager(chain: &FilterChain) -> HttpConnectionManager {
    let mut filters = chain.filters.iter();
    let found = filters.find(|filter| filter.name == MANAGER).unwrap();
    match &found.config_type {
        Some(filter::ConfigType::TypedConfig(any)) => {
            HttpConnectionManager::decode(&*any.value).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn http_filters(manager: &HttpConnectionManager) -> Vec<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap().to_owned();
    manager
        .http_filters
        .iter()
        .map(|one| last(&one.name))
        .collect()
}

pub(super) fn conflicts(world: World) -> Vec<String> {
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    for kind in Type::ALL {
        drop(view.all(kind));
    }
    let all = snapshot.conflicts();
    all.into_iter().map(|one| one.message).collect()
}

/// A patch of a filter of requests.
pub(super) fn http(operation: &str, below: &str, name: &str) -> String {
    let filter = match below {
        "" => String::new(),
        below => format!(", filter: {{name: {MANAGER}, subFilter: {{name: {below}}}}}"),
    };
    let value = match operation {
        "REMOVE" => String::new(),
        _ => format!(
            "\n    value:\n      name: {name}\n      typed_config:\n        '@type': {TYPES}.extensions.filters.http.lua.v3.Lua\n        \
             default_source_code: {{inline_string: 'a'}}"
        ),
    };
    format!(
        "- applyTo: HTTP_FILTER\n  match: {{context: SIDECAR_OUTBOUND, listener: {{filterChain: {{{}}}}}}}\n  \
         patch:\n    operation: {operation}{value}\n",
        filter.trim_start_matches(", ")
    )
}

#[test]
fn filters_of_requests_are_where_the_operation_says() {
    for (operation, below, want) in [
        ("ADD", "", "cors fault x router"),
        ("INSERT_FIRST", "", "x cors fault router"),
        (
            "INSERT_BEFORE",
            "envoy.filters.http.fault",
            "cors x fault router",
        ),
        // As Istio 1.5 called them.
        ("INSERT_BEFORE", "envoy.router", "cors fault x router"),
        ("INSERT_AFTER", "envoy.cors", "cors x fault router"),
        ("INSERT_BEFORE", "", "x cors fault router"),
        ("INSERT_AFTER", "", "cors fault x router"),
        (
            "INSERT_AFTER",
            "envoy.filters.http.none",
            "cors fault router",
        ),
        ("REPLACE", "envoy.fault", "cors x router"),
        ("REPLACE", "", "cors fault router"),
        ("REMOVE", "envoy.fault", "cors router"),
        ("REMOVE", "", "cors fault router"),
    ] {
        let view = patched(&http(operation, below, "x"));
        let outbound = listener(&*view, "0.0.0.0_80");
        let found = http_filters(&manager(&outbound.filter_chains[0])).join(" ");
        assert_eq!(found, want, "{operation} {below}");
        // Of the other side nothing is.
        let inbound = listener(&*view, "virtualInbound");
        let chain = inbound
            .filter_chains
            .iter()
            .find(|chain| chain.filters[0].name == MANAGER);
        assert_eq!(
            http_filters(&manager(chain.unwrap())).join(" "),
            "cors fault router"
        );
    }
}

#[test]
fn patches_are_applied_one_after_the_other() {
    let all = [
        http("INSERT_FIRST", "", "x"),
        http("INSERT_AFTER", "x", "y"),
        http("REMOVE", "x", ""),
        http("INSERT_BEFORE", "y", "z"),
    ];
    let view = patched(&all.concat());
    let outbound = listener(&*view, "0.0.0.0_80");
    let found = http_filters(&manager(&outbound.filter_chains[0]));
    assert_eq!(found.join(" "), "z y cors fault router");
}

#[test]
fn a_packed_message_is_merged_with_one_of_its_type() {
    let view = patched(&format!(
        "- applyTo: NETWORK_FILTER
  match: {{context: SIDECAR_OUTBOUND, listener: {{portNumber: 80, filterChain: {{filter: {{name: envoy.http_connection_manager}}}}}}}}
  patch:
    operation: MERGE
    value:
      typed_config:
        '@type': {TYPES}.config.filter.network.http_connection_manager.v2.HttpConnectionManager
        server_name: me
        use_remote_address: true
        normalize_path: false
        stream_idle_timeout: 2.5s
        upgrade_configs: [{{upgradeType: CONNECT}}]
"
    ));
    let merged = manager(&listener(&*view, "0.0.0.0_80").filter_chains[0]);
    assert_eq!(merged.server_name, "me");
    assert_eq!(merged.use_remote_address.map(|one| one.value), Some(true));
    assert_eq!(merged.normalize_path.map(|one| one.value), Some(false));
    let timeout = merged.stream_idle_timeout.unwrap();
    assert_eq!((timeout.seconds, timeout.nanos), (2, 500_000_000));
    let upgrades: Vec<_> = merged
        .upgrade_configs
        .iter()
        .map(|one| &*one.upgrade_type)
        .collect();
    assert_eq!(upgrades, ["websocket", "CONNECT"]);
    // What is not said stays.
    assert_eq!(merged.stat_prefix, "outbound_0.0.0.0_80");
    assert_eq!(http_filters(&merged).join(" "), "cors fault router");
}

#[test]
fn a_packed_message_of_another_type_takes_the_place_and_is_told() {
    let patches = format!(
        "- applyTo: HTTP_FILTER
  match: {{context: SIDECAR_OUTBOUND, listener: {{portNumber: 80, filterChain: {{filter: {{name: {MANAGER}, subFilter: {{name: envoy.filters.http.fault}}}}}}}}}}
  patch:
    operation: MERGE
    value:
      typed_config: {{'@type': {TYPES}.extensions.filters.http.lua.v3.Lua, default_source_code: {{inline_string: a}}}}
"
    );
    let view = patched(&patches);
    let merged = manager(&listener(&*view, "0.0.0.0_80").filter_chains[0]);
    let Some(http_filter::ConfigType::TypedConfig(any)) = &merged.http_filters[1].config_type
    else {
        panic!("a filter");
    };
    assert!(any.type_url.ends_with("lua.v3.Lua"));
    assert!(
        Lua::decode(&*any.value)
            .unwrap()
            .default_source_code
            .is_some()
    );
    let messages = conflicts(with(&patches));
    let want = "patch 0 of EnvoyFilter demo/f does not merge in 0.0.0.0_80: type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault is \
                replaced by type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
    assert_eq!(messages, [want]);
}

#[test]
fn connections_pass_the_filters_that_the_operation_says() {
    let filter = |operation: &str, name: &str| {
        let chosen = match name {
            "" => String::new(),
            name => format!(", filterChain: {{filter: {{name: {name}}}}}"),
        };
        format!(
            "- applyTo: NETWORK_FILTER
  match: {{listener: {{portNumber: 90{chosen}}}}}
  patch:
    operation: {operation}
    value: {{name: x, typed_config: {{'@type': {TYPES}.extensions.filters.network.echo.v3.Echo}}}}
"
        )
    };
    let tcp = "envoy.filters.network.tcp_proxy";
    for (operation, name, want) in [
        ("ADD", "", &["x", tcp][..]),
        ("INSERT_FIRST", "", &["x", tcp]),
        ("INSERT_BEFORE", "envoy.tcp_proxy", &["x", tcp]),
        ("INSERT_AFTER", "envoy.tcp_proxy", &[tcp, "x"]),
        ("REPLACE", "envoy.tcp_proxy", &["x"]),
        ("REMOVE", "envoy.tcp_proxy", &[]),
        ("REMOVE", "envoy.echo", &[tcp]),
    ] {
        let view = patched(&filter(operation, name));
        let chain = &listener(&*view, "0.0.0.0_90").filter_chains[0];
        let names: Vec<_> = chain.filters.iter().map(|one| &*one.name).collect();
        assert_eq!(names, want, "{operation} {name}");
    }
}

#[test]
fn listeners_and_their_chains_are_patched() {
    let view = patched(
        "- applyTo: LISTENER
  match: {listener: {portNumber: 80}}
  patch: {operation: REMOVE}
- applyTo: LISTENER
  match: {context: SIDECAR_OUTBOUND, listener: {name: 0.0.0.0_90}}
  patch: {operation: MERGE, value: {name: other, connection_balance_config: {exact_balance: {}}, tcp_backlog_size: 7}}
- applyTo: LISTENER
  match: {context: SIDECAR_OUTBOUND}
  patch:
    operation: ADD
    value: {name: mine, address: {socket_address: {address: 127.0.0.1, port_value: 7777}}}
- applyTo: FILTER_CHAIN
  match: {listener: {name: mine}}
  patch: {operation: ADD, value: {name: first}}
- applyTo: FILTER_CHAIN
  match: {listener: {name: mine}}
  patch: {operation: ADD, value: {name: second, filter_chain_match: {server_names: [a.b], application_protocols: [x, y]}}}
- applyTo: FILTER_CHAIN
  match: {listener: {name: mine, filterChain: {sni: a.b, applicationProtocols: 'x,y'}}}
  patch: {operation: MERGE, value: {filter_chain_match: {transport_protocol: tls}}}
- applyTo: FILTER_CHAIN
  match: {listener: {name: mine, filterChain: {name: first}}}
  patch: {operation: REMOVE}
- applyTo: LISTENER_FILTER
  match: {listener: {name: mine}}
  patch: {operation: ADD, value: {name: envoy.listener.tls_inspector, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}}
- applyTo: FILTER_CHAIN
  match: {context: SIDECAR_INBOUND, listener: {portNumber: 8081}}
  patch: {operation: MERGE, value: {transport_socket_connect_timeout: 3s}}
",
    );
    assert!(view.get(Type::Listener, "0.0.0.0_80").is_none());
    let merged = listener(&*view, "0.0.0.0_90");
    assert_eq!(merged.name, "0.0.0.0_90");
    assert_eq!(merged.tcp_backlog_size.map(|one| one.value), Some(7));
    assert!(merged.connection_balance_config.is_some());
    let mine = listener(&*view, "mine");
    let [chain] = &mine.filter_chains[..] else {
        panic!("{mine:?}");
    };
    assert_eq!(
        chain
            .filter_chain_match
            .as_ref()
            .unwrap()
            .transport_protocol,
        "tls"
    );
    assert_eq!(
        mine.listener_filters[0].name,
        "envoy.listener.tls_inspector"
    );
    // A port of what comes in is that of chains of the one for all, and of one of its own.
    let timed = |listener: &Listener| -> Vec<u32> {
        let timed = listener.filter_chains.iter();
        let timed = timed.filter(|chain| chain.transport_socket_connect_timeout.is_some());
        let matched = timed.map(|chain| chain.filter_chain_match.clone().unwrap_or_default());
        matched
            .map(|one| one.destination_port.map_or(0, |port| port.value))
            .collect()
    };
    assert_eq!(timed(&listener(&*view, "virtualInbound")), [8081]);
    assert_eq!(timed(&listener(&*view, "10.9.0.1_8081")), [0]);
    assert_eq!(timed(&listener(&*view, "10.9.0.1_8080")), [0; 0]);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of patches")]
fn routes_are_patched_on_both_sides() {
    let view = patched(
        "- applyTo: ROUTE_CONFIGURATION
  match: {context: SIDECAR_OUTBOUND, routeConfiguration: {portNumber: 80}}
  patch: {operation: MERGE, value: {name: other, response_headers_to_add: [{header: {key: x, value: y}}]}}
- applyTo: VIRTUAL_HOST
  match: {context: SIDECAR_OUTBOUND, routeConfiguration: {name: '80'}}
  patch:
    operation: ADD
    value: {name: mine, domains: [mine.example], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}
- applyTo: VIRTUAL_HOST
  match: {routeConfiguration: {vhost: {name: 'b.demo.svc.cluster.local:80'}}}
  patch: {operation: REMOVE}
- applyTo: VIRTUAL_HOST
  match: {routeConfiguration: {vhost: {domainName: a.demo}}}
  patch: {operation: MERGE, value: {domains: [further.example], include_request_attempt_count: true}}
- applyTo: HTTP_ROUTE
  match: {routeConfiguration: {vhost: {name: 'a.demo.svc.cluster.local:80', route: {name: default, action: ROUTE}}}}
  patch: {operation: MERGE, value: {route: {timeout: 7s}}}
- applyTo: HTTP_ROUTE
  match: {routeConfiguration: {vhost: {name: 'a.demo.svc.cluster.local:80', route: {action: DIRECT_RESPONSE}}}}
  patch: {operation: REMOVE}
- applyTo: HTTP_ROUTE
  match: {routeConfiguration: {vhost: {name: 'a.demo.svc.cluster.local:80'}}}
  patch: {operation: INSERT_FIRST, value: {name: first, match: {path: /first}, direct_response: {status: 201}}}
- applyTo: HTTP_ROUTE
  match: {routeConfiguration: {vhost: {name: 'a.demo.svc.cluster.local:80', route: {name: default}}}}
  patch: {operation: INSERT_BEFORE, value: {name: second, match: {path: /second}, direct_response: {status: 202}}}
- applyTo: HTTP_ROUTE
  match: {routeConfiguration: {vhost: {name: 'a.demo.svc.cluster.local:80'}}}
  patch: {operation: ADD, value: {name: last, match: {prefix: /}, direct_response: {status: 203}}}
- applyTo: HTTP_ROUTE
  match: {context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 8080}}
  patch: {operation: MERGE, value: {response_headers_to_add: [{header: {key: in, value: y}}]}}
",
    );
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
    assert_eq!(routes.name, "80");
    assert_eq!(routes.response_headers_to_add.len(), 1);
    let hosts: Vec<_> = routes
        .virtual_hosts
        .iter()
        .map(|host| &*host.name)
        .collect();
    let want = [
        "a.demo.svc.cluster.local:80",
        "c.other.svc.cluster.local:80",
        "allow_any",
        "mine",
    ];
    assert_eq!(hosts, want);
    let host: &VirtualHost = &routes.virtual_hosts[0];
    assert!(host.domains.contains(&"further.example".to_owned()) && host.domains.len() > 2);
    assert!(host.include_request_attempt_count);
    let names: Vec<_> = host.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["first", "second", "default", "last"]);
    let Some(route::Action::Route(action)) = &host.routes[2].action else {
        panic!("a route");
    };
    assert_eq!(action.timeout.unwrap().seconds, 7);
    assert!(action.retry_policy.is_some(), "what is not said stays");
    let inbound = listener(&*view, "virtualInbound");
    let chain = inbound
        .filter_chains
        .iter()
        .find(|chain| chain.filters[0].name == MANAGER);
    let Some(RouteSpecifier::RouteConfig(inside)) = manager(chain.unwrap()).route_specifier else {
        panic!("routes");
    };
    assert_eq!(
        inside.virtual_hosts[0].routes[0]
            .response_headers_to_add
            .len(),
        1
    );
}

#[test]
fn clusters_are_meant_by_what_their_names_say() {
    let merge = |matching: &str| {
        format!(
            "- applyTo: CLUSTER\n  match: {{{matching}}}\n  patch: {{operation: MERGE, value: {{lb_policy: RANDOM}}}}\n"
        )
    };
    for (matching, want) in [
        (
            "cluster: {service: a.demo.svc.cluster.local}",
            "a80 a90 s80 s90",
        ),
        (
            "cluster: {service: a.demo.svc.cluster.local, portNumber: 80}",
            "a80 s80",
        ),
        ("cluster: {subset: v1}", "s80 s90"),
        (
            "cluster: {name: outbound|80||b.demo.svc.cluster.local}",
            "b80",
        ),
        (
            "context: SIDECAR_INBOUND, cluster: {portNumber: 8080}",
            "in",
        ),
        ("context: GATEWAY", ""),
        (
            "context: SIDECAR_INBOUND, cluster: {name: outbound|80||b.demo.svc.cluster.local}",
            "",
        ),
    ] {
        let mut world = with(&merge(matching));
        let spec = "host: a\nsubsets: [{name: v1, labels: {version: v1}}]";
        destination_rule(&mut world, "d", 1, spec);
        let view = view(world);
        let all = [
            ("a80", "outbound|80||a.demo.svc.cluster.local"),
            ("a90", "outbound|90||a.demo.svc.cluster.local"),
            ("b80", "outbound|80||b.demo.svc.cluster.local"),
            ("in", "inbound|8080|p8080|own.demo.svc.cluster.local"),
            ("s80", "outbound|80|v1|a.demo.svc.cluster.local"),
            ("s90", "outbound|90|v1|a.demo.svc.cluster.local"),
        ];
        let random = all
            .iter()
            .filter(|(_, name)| cluster(&*view, name).lb_policy() == LbPolicy::Random);
        let found: Vec<_> = random.map(|(short, _)| *short).collect();
        assert_eq!(found.join(" "), want, "{matching}");
    }
}

#[test]
fn a_router_has_the_patches_of_gateways() {
    let merge = |context: &str, policy: &str| {
        format!(
            "- applyTo: CLUSTER\n  match: {{context: {context}}}\n  patch: {{operation: MERGE, value: {{lb_policy: {policy}}}}}\n\
             - applyTo: CLUSTER\n  match: {{context: {context}}}\n  patch: {{operation: ADD, value: {{name: {context}}}}}\n"
        )
    };
    let patches = [
        merge("GATEWAY", "RANDOM"),
        merge("SIDECAR_OUTBOUND", "MAGLEV"),
        merge("SIDECAR_INBOUND", "MAGLEV"),
    ];
    let mut router = (*node("demo", &[])).clone();
    router.kind = crate::node::Kind::Router;
    let view = snapshot(with(&patches.concat())).view(&Arc::new(router));
    let name = "outbound|80||a.demo.svc.cluster.local";
    assert_eq!(cluster(&*view, name).lb_policy(), LbPolicy::Random);
    let added = ["GATEWAY", "SIDECAR_OUTBOUND", "SIDECAR_INBOUND"];
    let added = added.map(|name| view.get(Type::Cluster, name).is_some());
    assert_eq!(added, [true, false, false]);
}

#[test]
fn patches_apply_to_routes_of_routers() {
    let patches = format!(
        "{}\
- applyTo: VIRTUAL_HOST
  match: {{context: GATEWAY, routeConfiguration: {{portNumber: 80}}}}
  patch: {{operation: ADD, value: {{name: mine, domains: [mine.example]}}}}
- applyTo: VIRTUAL_HOST
  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{portNumber: 80}}}}
  patch: {{operation: ADD, value: {{name: other, domains: [other.example]}}}}
- applyTo: LISTENER
  match: {{context: GATEWAY}}
  patch: {{operation: ADD, value: {{name: added, address: {{socket_address: {{address: 127.0.0.1, port_value: 7777}}}}}}}}
",
        http("INSERT_FIRST", "", "x").replace("SIDECAR_OUTBOUND", "GATEWAY")
    );
    let mut world = with(&patches);
    let servers = "selector: {istio: edge}\nservers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]";
    gateways::gateway(&mut world, "g", 1, servers);
    virtual_service(
        &mut world,
        "v",
        1,
        "hosts: [web.example]\ngateways: [g]\nhttp: [{route: [{destination: {host: a, port: {number: 80}}}]}]",
    );
    let view = snapshot(world).view(&gateways::router("demo"));
    let found = listener(&*view, "0.0.0.0_80");
    let filters = http_filters(&manager(&found.filter_chains[0]));
    assert_eq!(filters[0], "x", "{filters:?}");
    assert!(view.get(Type::Listener, "added").is_some());
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "http.80");
    let hosts: Vec<_> = routes
        .virtual_hosts
        .iter()
        .map(|host| &*host.name)
        .collect();
    assert!(
        hosts.contains(&"mine") && !hosts.contains(&"other"),
        "{hosts:?}"
    );
}

/// The socket of a cluster that chooses one by the endpoint.
#[test]
fn a_socket_is_merged_with_the_one_of_its_name() {
    let world = |name: &str| {
        let patches = format!(
            "- applyTo: CLUSTER
  match: {{context: SIDECAR_OUTBOUND, cluster: {{service: a.demo.svc.cluster.local, portNumber: 80}}}}
  patch:
    operation: MERGE
    value:
      lb_policy: RANDOM
      transport_socket:
        name: {name}
        typed_config: {{'@type': {TYPES}.extensions.transport_sockets.tls.v3.UpstreamTlsContext, allow_renegotiation: true}}
"
        );
        let mut world = with(&patches);
        let config = mesh::parse_over(&mesh::discovery_defaults(), "enableAutoMtls: true").unwrap();
        world.mesh = Arc::new(config.config);
        world
    };
    let name = "outbound|80||a.demo.svc.cluster.local";
    let sockets = |world: World| {
        let merged = cluster(&*view(world), name);
        assert_eq!(merged.lb_policy(), LbPolicy::Random);
        assert!(merged.transport_socket.is_none());
        let sockets = merged.transport_socket_matches.into_iter();
        sockets
            .flat_map(|one| one.transport_socket)
            .collect::<Vec<_>>()
    };
    let plain = cluster(&*view(world("envoy.transport_sockets.other")), name);
    assert_eq!(plain.transport_socket_matches.len(), 2);
    let merged = sockets(world("envoy.transport_sockets.tls"));
    let Some(ConfigType::TypedConfig(any)) = &merged[0].config_type else {
        panic!("{merged:?}");
    };
    let context = UpstreamTlsContext::decode(&*any.value).unwrap();
    assert!(context.allow_renegotiation && context.common_tls_context.is_some());
    assert_eq!(conflicts(world("envoy.transport_sockets.tls")), [""; 0]);

    let other = world("envoy.transport_sockets.other");
    let untouched = sockets(other.clone());
    assert_eq!(untouched[1], merged[1]);
    assert_ne!(untouched[0], merged[0]);
    let want = format!(
        "patch 0 of EnvoyFilter demo/f does not merge in {name}: transport_socket has no effect: endpoints choose among \
         transport_socket_matches, and none of them is called \"envoy.transport_sockets.other\""
    );
    assert_eq!(conflicts(other), [want]);
}

#[test]
fn clusters_come_go_and_change() {
    let patches = format!(
        "- applyTo: CLUSTER
  match: {{context: SIDECAR_OUTBOUND, cluster: {{service: b.demo.svc.cluster.local}}}}
  patch: {{operation: REMOVE}}
- applyTo: CLUSTER
  match: {{context: SIDECAR_OUTBOUND, cluster: {{service: a.demo.svc.cluster.local, portNumber: 80}}}}
  patch:
    operation: MERGE
    value:
      name: other
      connect_timeout: 0.25s
      circuit_breakers: {{thresholds: [{{priority: HIGH, max_connections: 3}}]}}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          '@type': {TYPES}.extensions.upstreams.http.v3.HttpProtocolOptions
          common_http_protocol_options: {{idle_timeout: 9s}}
          explicit_http_config: {{http2_protocol_options: {{}}}}
- applyTo: CLUSTER
  match: {{context: SIDECAR_OUTBOUND}}
  patch:
    operation: ADD
    value: {{name: mine, type: STRICT_DNS, connect_timeout: 1s}}
- applyTo: CLUSTER
  match: {{context: SIDECAR_OUTBOUND}}
  patch: {{operation: ADD, value: {{name: BlackHoleCluster}}}}
- applyTo: CLUSTER
  match: {{context: SIDECAR_INBOUND}}
  patch: {{operation: ADD, value: {{name: in, type: STATIC}}}}
"
    );
    let world = with(&patches);
    let all = snapshot(world.clone());
    let view = all.view(&node("demo", &[]));
    assert!(
        view.get(Type::Cluster, "outbound|80||b.demo.svc.cluster.local")
            .is_none()
    );
    let merged = cluster(&*view, "outbound|80||a.demo.svc.cluster.local");
    assert_eq!(merged.name, "outbound|80||a.demo.svc.cluster.local");
    let timeout = merged.connect_timeout.unwrap();
    assert_eq!((timeout.seconds, timeout.nanos), (0, 250_000_000));
    let thresholds = merged.circuit_breakers.unwrap().thresholds;
    assert_eq!(thresholds.len(), 2, "lists are joined");
    let (_, options) = merged
        .typed_extension_protocol_options
        .into_iter()
        .next()
        .unwrap();
    let options = HttpProtocolOptions::decode(&*options.value).unwrap();
    assert!(options.common_http_protocol_options.is_some());
    assert!(options.upstream_protocol_options.is_some());
    let mine = cluster(&*view, "mine");
    let strict = ClusterDiscoveryType::Type(DiscoveryType::StrictDns.into());
    assert_eq!(mine.cluster_discovery_type, Some(strict));
    assert_eq!(cluster(&*view, "in").name, "in");
    let resource = view.get(Type::Cluster, "mine").unwrap();
    assert_eq!(resource.from[0].to_string(), "EnvoyFilter demo/f");
    let messages = conflicts(world);
    let want =
        "patch 3 of EnvoyFilter demo/f is not applied: there is one of the name BlackHoleCluster";
    assert_eq!(messages, [want]);
}

/// Envoy ignores the cluster that it is sent by the name of one of its bootstrap.
#[test]
fn clusters_of_the_bootstrap_are_not_added() {
    let add = |context: &str, name: &str| {
        format!(
            "- applyTo: CLUSTER\n  match: {{context: {context}}}\n  patch: {{operation: ADD, value: {{name: {name}}}}}\n"
        )
    };
    let names = ["xds-grpc", "prometheus_stats"];
    let patches = add("SIDECAR_OUTBOUND", names[0]) + &add("SIDECAR_INBOUND", names[1]);
    let world = with(&patches);
    let view = snapshot(world.clone()).view(&node("demo", &[]));
    assert_eq!(
        names.map(|name| view.get(Type::Cluster, name).is_some()),
        [false; 2]
    );
    let mut messages = conflicts(world);
    messages.sort();
    let told = |at: usize, name: &str| {
        format!("patch {at} of EnvoyFilter demo/f is not applied: there is one of the name {name}")
    };
    assert_eq!(messages, [told(0, names[0]), told(1, names[1])]);
}

/// The lookups of a cluster as a proxy since 1.34 has it, whose service has names for addresses; and the cluster.
fn lookups(value: &str) -> (Option<DnsCluster>, Cluster) {
    let mut world = with(&format!(
        "- applyTo: CLUSTER\n  match: {{cluster: {{service: a.demo.svc.cluster.local, portNumber: 80}}}}\n  \
         patch: {{operation: MERGE, value: {{{value}}}}}\n"
    ));
    let services = Arc::make_mut(&mut world.services);
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    Arc::make_mut(services.get_mut(&key).unwrap()).resolution = Resolution::Dns;
    let mut node = (*node("demo", &[])).clone();
    node.dns = Dns::ClusterType;
    let view = snapshot(world).view(&Arc::new(node));
    let cluster = cluster(&*view, "outbound|80||a.demo.svc.cluster.local");
    let own = match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(kind)) => {
            let any = kind.typed_config.as_ref().unwrap();
            Some(DnsCluster::decode(&*any.value).unwrap())
        }
        _ => None,
    };
    (own, cluster)
}

#[test]
#[allow(deprecated, reason = "patches are written in the fields")]
fn fields_of_lookups_are_merged_where_envoy_reads_them() {
    let (untouched, _) = lookups("connect_timeout: 7s");
    let untouched = untouched.unwrap();
    assert!(untouched.respect_dns_ttl);
    let (changed, cluster) = lookups(
        "dns_lookup_family: V6_ONLY, dns_refresh_rate: 61s, dns_failure_refresh_rate: {base_interval: 2s, max_interval: 3s}, \
         dns_jitter: 4s, typed_dns_resolver_config: {name: x}",
    );
    let changed = changed.unwrap();
    let rate = changed.dns_failure_refresh_rate.unwrap();
    let seconds = [
        changed.dns_refresh_rate,
        rate.base_interval,
        rate.max_interval,
        changed.dns_jitter,
    ];
    assert_eq!(seconds.map(|one| one.unwrap().seconds), [61, 2, 3, 4]);
    assert_eq!(changed.dns_lookup_family(), common::DnsLookupFamily::V6Only);
    assert_eq!(changed.typed_dns_resolver_config.unwrap().name, "x");
    // What is not said stays.
    assert!(changed.respect_dns_ttl);
    assert_eq!(
        changed.all_addresses_in_single_endpoint,
        untouched.all_addresses_in_single_endpoint
    );
    // And Envoy reads nothing at the cluster.
    let bare = Cluster {
        name: cluster.name.clone(),
        ..Cluster::default()
    };
    assert_eq!(cluster.dns_lookup_family, bare.dns_lookup_family);
    assert_eq!(cluster.dns_refresh_rate, bare.dns_refresh_rate);
    assert_eq!(cluster.dns_jitter, bare.dns_jitter);
    assert!(!cluster.respect_dns_ttl && cluster.dns_failure_refresh_rate.is_none());
    assert_eq!(cluster.typed_dns_resolver_config, None);
}

#[test]
#[allow(deprecated, reason = "patches are written in the fields")]
fn types_of_clusters_of_names_are_merged_like_their_fields() {
    let (logical, _) = lookups("type: LOGICAL_DNS, dns_lookup_family: V4_PREFERRED");
    let logical = logical.unwrap();
    assert!(logical.all_addresses_in_single_endpoint && logical.respect_dns_ttl);
    assert_eq!(
        logical.dns_lookup_family(),
        common::DnsLookupFamily::V4Preferred
    );
    // A patch of the type itself is laid over it, as it is written.
    let (own, _) = lookups(&format!(
        "cluster_type: {{name: envoy.cluster.dns, typed_config: {{'@type': {TYPES}.extensions.clusters.dns.v3.DnsCluster, dns_jitter: 5s}}}}"
    ));
    let own = own.unwrap();
    assert_eq!(own.dns_jitter.unwrap().seconds, 5);
    assert!(own.respect_dns_ttl);
    // The type has no field for these.
    let (none, cluster) = lookups("use_tcp_for_dns_lookups: true, dns_refresh_rate: 61s");
    assert_eq!(none, None);
    assert!(cluster.use_tcp_for_dns_lookups && cluster.respect_dns_ttl);
    assert_eq!(cluster.dns_refresh_rate.unwrap().seconds, 61);
    // And what is no cluster of names any more is left alone.
    let (none, cluster) = lookups("type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED");
    assert_eq!(none, None);
    let kind = ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into());
    assert_eq!(cluster.cluster_discovery_type, Some(kind));
}

/// A patch of a cluster of names is read for its fields before it is merged: each byte of it counts twice.
#[test]
fn reading_patches_of_clusters_of_names_counts_as_work() {
    let named_last = |resolution| {
        let mut world = world();
        for at in 0..200 {
            service(&mut world, &format!("s{at}.demo"), &[(80, "HTTP")], &[]);
        }
        let services = Arc::make_mut(&mut world.services);
        let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
        Arc::make_mut(services.get_mut(&key).unwrap()).resolution = resolution;
        let ports = services.values().map(|one| one.ports.len()).sum::<usize>();
        // A hundredth of the bytes that patches may add to one cluster; their work is four times as much.
        let part = (32 << 20) / crate::rules::envoy_filter::round_up(ports) / 100;
        let patch = |value: &str| {
            format!(
                "- applyTo: CLUSTER\n  match: {{cluster: {{service: a.demo.svc.cluster.local, portNumber: 80}}}}\n  \
                 patch: {{operation: MERGE, value: {{{value}}}}}\n"
            )
        };
        let long = |parts: usize| "x".repeat(parts * part);
        let metadata = format!("metadata: {{filter_metadata: {{a: {{b: {}}}}}}}", long(48));
        let mut patches = patch(&metadata);
        for at in 0..4 {
            patches += &patch(&format!("alt_stat_name: n{at}{}", long(12)));
        }
        envoy_filter(&mut world, "f", 1, &format!("configPatches:\n{patches}"));
        let mut node = (*node("demo", &[])).clone();
        node.dns = Dns::ClusterType;
        let snapshot = snapshot(world);
        let view = snapshot.view(&Arc::new(node));
        let cluster = cluster(&*view, "outbound|80||a.demo.svc.cluster.local");
        let messages = snapshot.conflicts().into_iter().map(|one| one.message);
        let messages =
            messages.filter(|message| message.contains("patches would make it too large"));
        (cluster.alt_stat_name[..2].to_owned(), messages.count())
    };
    assert_eq!(named_last(Resolution::Static), ("n3".to_owned(), 0));
    assert_eq!(named_last(Resolution::Dns), ("n2".to_owned(), 1));
}

#[test]
fn clusters_that_a_patch_made_static_await_no_endpoints() {
    let world = with(
        "- applyTo: CLUSTER
  match: {cluster: {service: a.demo.svc.cluster.local}}
  patch: {operation: MERGE, value: {type: STATIC, load_assignment: {cluster_name: x}}}
- applyTo: CLUSTER
  match: {cluster: {service: b.demo.svc.cluster.local}}
  patch: {operation: REMOVE}
",
    );
    let view = view(world);
    for (host, want) in [("a.demo", false), ("b.demo", false), ("c.other", true)] {
        let name = format!("outbound|80||{host}.svc.cluster.local");
        assert_eq!(view.get(Type::Endpoint, &name).is_some(), want, "{name}");
        assert_eq!(view.name(Type::Endpoint, &name).is_some(), want, "{name}");
    }
}

/// Envoy refuses a cluster whose assignment has no name, and a patch of many clusters knows none.
#[test]
fn an_assignment_of_a_patch_has_the_name_of_its_cluster() {
    let world = with(
        "- applyTo: CLUSTER
  match: {cluster: {service: a.demo.svc.cluster.local}}
  patch:
    operation: MERGE
    value: {type: STATIC, hosts: [{socket_address: {address: 10.0.0.9, port_value: 80}}]}
",
    );
    let name = "outbound|80||a.demo.svc.cluster.local";
    let patched = cluster(&*view(world), name);
    assert_eq!(patched.load_assignment.unwrap().cluster_name, name);
}

/// Names that the filters of a proxy give to its connection manager, in order: each is merged over the others.
fn server_name(world: &World, node: &Arc<Node>) -> String {
    let view = snapshot(world.clone()).view(node);
    manager(&listener(&*view, "0.0.0.0_80").filter_chains[0]).server_name
}

fn naming(name: &str, matching: &str, selector: &str) -> String {
    format!(
        "{selector}configPatches:
- applyTo: NETWORK_FILTER
  match: {{{matching}}}
  patch:
    operation: MERGE
    value: {{name: {MANAGER}, typed_config: {{'@type': {TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, server_name: {name}}}}}
"
    )
}

#[test]
fn filters_hold_for_those_that_they_select_in_order() {
    let mut world = world();
    let listener = "context: SIDECAR_OUTBOUND, listener: {portNumber: 80}";
    envoy_filter(
        &mut world,
        "istio-system/r",
        9,
        &naming("root", listener, ""),
    );
    let of = |world: &World, namespace: &str, pairs: &[(&str, &str)]| {
        server_name(world, &node(namespace, pairs))
    };
    assert_eq!(of(&world, "demo", &[]), "root");
    assert_eq!(of(&world, "istio-system", &[]), "root");
    let selector = "workloadSelector: {labels: {app: x}}\n";
    envoy_filter(&mut world, "b", 2, &naming("own", listener, selector));
    assert_eq!(of(&world, "demo", &[("app", "x"), ("b", "c")]), "own");
    assert_eq!(of(&world, "demo", &[("app", "y")]), "root");
    assert_eq!(of(&world, "other", &[("app", "x")]), "root");
    // The younger one comes later, and so does the greater priority.
    envoy_filter(&mut world, "a", 3, &naming("younger", listener, ""));
    assert_eq!(of(&world, "demo", &[("app", "x")]), "younger");
    envoy_filter(
        &mut world,
        "a",
        3,
        &naming("younger", listener, "priority: -1\n"),
    );
    assert_eq!(of(&world, "demo", &[("app", "x")]), "own");
    assert_eq!(of(&world, "demo", &[]), "younger");
    envoy_filter(&mut world, "c", 2, &naming("named", listener, ""));
    assert_eq!(of(&world, "demo", &[]), "named", "the same age: by name");
    // Of releases up to 1.2.
    let labels = "workloadLabels: {app: z}\n";
    envoy_filter(&mut world, "d", 9, &naming("labelled", listener, labels));
    assert_eq!(of(&world, "demo", &[]), "named");
    assert_eq!(of(&world, "demo", &[("app", "z")]), "labelled");
}

#[test]
fn filters_ask_proxies_for_their_version_and_metadata() {
    let saying = |pairs: &[(&str, &str)]| {
        let text = |text: &str| Value {
            kind: Some(value::Kind::StringValue(text.to_owned())),
        };
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), text(value)));
        let read = Node::read(Some(&core::Node {
            id: "sidecar~10.9.0.1~x-1.demo~demo.svc.cluster.local".to_owned(),
            metadata: Some(Struct {
                fields: pairs.collect(),
            }),
            ..core::Node::default()
        }));
        Arc::new(read.unwrap())
    };
    for (proxy, pairs, want) in [
        (
            "proxyVersion: '^1\\.5.*'",
            &[("ISTIO_VERSION", "1.5.2")][..],
            true,
        ),
        (
            "proxyVersion: '^1\\.5.*'",
            &[("ISTIO_VERSION", "1.4.2")],
            false,
        ),
        ("proxyVersion: '^1\\.5.*'", &[], false),
        ("proxyVersion: '5'", &[("ISTIO_VERSION", "1.5.2")], true),
        ("metadata: {A: b}", &[("A", "b"), ("C", "d")], true),
        ("metadata: {A: b, C: e}", &[("A", "b"), ("C", "d")], false),
        ("metadata: {A: b}", &[("A", "c")], false),
    ] {
        let mut world = world();
        let matching = format!("proxy: {{{proxy}}}");
        envoy_filter(&mut world, "f", 1, &naming("me", &matching, ""));
        let found = server_name(&world, &saying(pairs));
        assert_eq!(found == "me", want, "{proxy} {pairs:?}");
    }
}

/// Replicas answer alike: the bytes of a shared resource must not depend on the proxy that asks for it first. The limit on patches is
/// smaller in a namespace of many filters.
#[test]
fn limits_on_patches_do_not_depend_on_who_asks_first() {
    let mut world = world();
    let ports: Vec<_> = (1..=3000).map(|port| (port, "TCP")).collect();
    service(&mut world, "many.demo", &ports, &[]);
    // Longer than the limit of a set among sixteen, shorter than that of one alone.
    let long = "x".repeat(6 << 10);
    let patch = format!(
        "configPatches:
- applyTo: CLUSTER
  match: {{cluster: {{service: many.demo.svc.cluster.local, portNumber: 7}}}}
  patch: {{operation: MERGE, value: {{metadata: {{filter_metadata: {{a: {{b: {long}}}}}}}}}}}
"
    );
    envoy_filter(&mut world, "istio-system/root", 1, &patch);
    let listener = "context: SIDECAR_OUTBOUND, listener: {portNumber: 80}";
    for at in 0..16 {
        let selector = format!("workloadSelector: {{labels: {{app: x{at}}}}}\n");
        envoy_filter(
            &mut world,
            &format!("f{at}"),
            2,
            &naming("own", listener, &selector),
        );
    }
    let nodes = [
        node("demo", &[]),
        node("other", &[]),
        // It has a patch of its own namespace, of listeners.
        node("demo", &[("app", "x3")]),
    ];
    let made = |nodes: &[Arc<Node>]| {
        let snapshot = snapshot(world.clone());
        let made = nodes.iter().map(|node| {
            let view = snapshot.view(node);
            let cluster = cluster(&*view, "outbound|7||many.demo.svc.cluster.local");
            (
                node.labels.clone(),
                node.namespace.clone(),
                cluster.metadata.is_some(),
            )
        });
        let mut made: Vec<_> = made.collect();
        made.sort();
        made
    };
    let backwards: Vec<_> = nodes.iter().rev().cloned().collect();
    let all = made(&nodes);
    assert_eq!(all, made(&backwards));
    // No filter of its namespace holds for the first one.
    let is_patched: Vec<_> = all.iter().map(|(.., is_patched)| *is_patched).collect();
    assert_eq!(is_patched, [true, true, false]);
}

#[test]
fn proxies_without_patches_share_what_they_did() {
    let mut world = world();
    let plain = snapshot(world.clone());
    let listener = "context: SIDECAR_OUTBOUND, listener: {portNumber: 80}";
    let selector = "workloadSelector: {labels: {app: x}}\n";
    envoy_filter(&mut world, "f", 1, &naming("me", listener, selector));
    let next = plain.next(world.clone(), None, None);
    let view = |pairs: &[(&str, &str)]| next.snapshot.view(&node("demo", pairs));
    let (one, other) = (view(&[("app", "x")]), view(&[("app", "y")]));
    let before = plain.view(&node("demo", &[("app", "y")]));
    for kind in Type::ALL {
        assert_eq!(before.all(kind), other.all(kind), "{kind:?}");
        let is_same = one.all(kind) == other.all(kind);
        assert_eq!(is_same, kind != Type::Listener, "{kind:?}");
    }
    // Two with the same patches share bytes, and so do those that have none.
    let (again, third) = (view(&[("app", "x"), ("b", "c")]), view(&[]));
    assert!(Arc::ptr_eq(
        &one.all(Type::Listener),
        &again.all(Type::Listener)
    ));
    assert!(Arc::ptr_eq(
        &other.all(Type::Listener),
        &third.all(Type::Listener)
    ));
    assert!(Arc::ptr_eq(
        &one.all(Type::Cluster),
        &third.all(Type::Cluster)
    ));
    // A change concerns those that have it.
    for (pairs, namespace, want) in [
        (&[("app", "x")][..], "demo", true),
        (&[("app", "y")], "demo", false),
        (&[("app", "x")], "other", false),
    ] {
        assert_eq!(
            next.concerns(&node(namespace, pairs)),
            want,
            "{namespace} {pairs:?}"
        );
    }
    let mut without = world.clone();
    without.envoy_filters = Arc::default();
    let last = next.snapshot.next(without, None, None);
    assert!(last.full && last.concerns(&node("demo", &[("app", "x")])));
    assert!(!last.concerns(&node("demo", &[])));
}

#[test]
fn patches_that_cannot_be_read_leave_the_others() {
    let mut patches = String::from(
        "- applyTo: CLUSTER\n  patch: {operation: MERGE, value: {no_such_field: 1}}\n\
         - applyTo: BOOTSTRAP\n  patch: {operation: MERGE, value: {a: 1}}\n\
         - applyTo: LISTENER\n  match: {listener: {portName: http}}\n  patch: {operation: REMOVE}\n\
         - applyTo: CLUSTER\n  match: {proxy: {proxyVersion: '(?i)a{1000}{1000}|b'}}\n  patch: {operation: REMOVE}\n",
    );
    patches
        .push_str("- applyTo: CLUSTER\n  patch: {operation: MERGE, value: {lb_policy: RANDOM}}\n");
    let mut world = world();
    let spec = format!("configPatches:\n{patches}");
    let limits = api::yaml::Limits {
        bytes: 100_000,
        depth: 30,
        nodes: 10_000,
    };
    let read = api::yaml::read(&spec, limits).unwrap().unwrap().to_json();
    // The expression is one that the rules of the object refuse; discovery does not rely on that.
    let body = api::wire::encode(<EnvoyFilter as api::schema::Typed>::MESSAGE, &read);
    let object = Configured {
        name: "f".into(),
        namespace: "demo".into(),
        created: None,
        prefers_close: false,
        dry_run: false,
        spec: EnvoyFilter::decode(&*body).unwrap(),
    };
    insert(&mut world.envoy_filters, Arc::new(object));
    let view = view(world.clone());
    assert_eq!(
        cluster(&*view, "outbound|80||a.demo.svc.cluster.local").lb_policy(),
        LbPolicy::Random
    );
    assert!(view.get(Type::Listener, "0.0.0.0_80").is_some());
    let messages = conflicts(world);
    assert!(
        messages.iter().all(|one| one.starts_with(
            "patch 3 of EnvoyFilter demo/f is not applied: match.proxy.proxyVersion:"
        )),
        "{messages:?}"
    );
    assert_eq!(messages.len(), 1);
}

/// Envoy refuses the whole listener for a filter without a name, and all routes for a host without one.
#[test]
fn patches_without_a_name_change_nothing() {
    let resources = |patches: &str| {
        let view = patched(patches);
        let all = Type::ALL.map(|kind| {
            view.all(kind)
                .iter()
                .map(|one| (one.name.clone(), one.version))
                .collect::<Vec<_>>()
        });
        all.concat()
    };
    let unpatched = resources("");
    for (apply_to, operation, value) in [
        ("HTTP_FILTER", "INSERT_FIRST", "{}"),
        (
            "HTTP_FILTER",
            "ADD",
            "{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}",
        ),
        ("NETWORK_FILTER", "INSERT_FIRST", "{name: ''}"),
        ("LISTENER_FILTER", "ADD", "{}"),
        ("VIRTUAL_HOST", "ADD", "{}"),
        ("VIRTUAL_HOST", "ADD", "{name: a}"),
        ("HTTP_ROUTE", "ADD", "{}"),
        ("CLUSTER", "ADD", "{}"),
        ("LISTENER", "ADD", "{}"),
        // And for a part below that lacks something.
        ("LISTENER", "ADD", "{name: a}"),
        ("HTTP_FILTER", "ADD", "{name: a}"),
        ("HTTP_ROUTE", "ADD", "{match: {}, route: {cluster: a}}"),
        ("HTTP_ROUTE", "ADD", "{match: {prefix: /}, route: {}}"),
        (
            "VIRTUAL_HOST",
            "MERGE",
            "{routes: [{match: {prefix: /}, route: {}}]}",
        ),
        (
            "FILTER_CHAIN",
            "ADD",
            "{filter_chain_match: {server_names: [a]}, filters: [{name: a}]}",
        ),
        ("CLUSTER", "MERGE", "{health_checks: [{}]}"),
    ] {
        let patch =
            format!("- {{applyTo: {apply_to}, patch: {{operation: {operation}, value: {value}}}}}");
        assert_eq!(resources(&patch), unpatched, "{patch}");
    }
    let named = "- {applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: a, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}}}";
    assert_ne!(resources(named), unpatched);
}

/// Envoy refuses a listener with two chains that match the same.
#[test]
fn a_chain_that_matches_what_another_does_is_not_added() {
    let listener_of = |patches: &str| {
        let view = patched(patches);
        listener(&*view, "0.0.0.0_80").filter_chains.len()
    };
    let add = |value: &str| {
        format!(
            "- {{applyTo: FILTER_CHAIN, match: {{context: SIDECAR_OUTBOUND}}, patch: {{operation: ADD, value: {value}}}}}\n"
        )
    };
    let twin = add("{filter_chain_match: {}}");
    let other = add("{filter_chain_match: {server_names: [a]}}");
    assert_eq!(listener_of(""), 1);
    assert_eq!(listener_of(&twin), 1);
    assert_eq!(listener_of(&other), 2);
    assert_eq!(listener_of(&format!("{other}{other}")), 2);
    let told = conflicts(with(&twin));
    let why = "patch 0 of EnvoyFilter demo/f is not applied: 0.0.0.0_80: a filter chain of it matches the same";
    assert!(told.iter().any(|one| one == why), "{told:?}");
    // The one that it takes the place of goes after it.
    let place = "address: {socket_address: {address: 127.0.0.1, port_value: 7777}}";
    let mine =
        "match: {context: SIDECAR_OUTBOUND, listener: {name: mine, filterChain: {name: first}}}";
    let patches = format!(
        "- {{applyTo: LISTENER, match: {{context: SIDECAR_OUTBOUND}}, patch: {{operation: ADD, value: {{name: mine, {place}, filter_chains: [{{name: first}}]}}}}}}
- {{applyTo: FILTER_CHAIN, match: {{context: SIDECAR_OUTBOUND, listener: {{name: mine}}}}, patch: {{operation: ADD, value: {{name: second}}}}}}
- {{applyTo: FILTER_CHAIN, {mine}, patch: {{operation: REMOVE}}}}
"
    );
    let chains = listener(&*patched(&patches), "mine").filter_chains;
    let names: Vec<_> = chains.iter().map(|chain| &*chain.name).collect();
    assert_eq!(names, ["second"]);
}

#[test]
fn bytes_added_by_patches_are_bounded() {
    let mut world = world();
    // Each adds 100 kB to the routes of each host.
    let long = "x".repeat(100_000);
    let patch = format!(
        "- applyTo: HTTP_ROUTE\n  match: {{context: SIDECAR_OUTBOUND}}\n  patch: {{operation: INSERT_FIRST, value: {{match: {{path: /{long}}}, direct_response: {{status: 200}}}}}}\n"
    );
    for name in 0..40 {
        envoy_filter(
            &mut world,
            &format!("f{name}"),
            name,
            &format!("configPatches:\n{patch}"),
        );
    }
    for at in 0..200 {
        service(
            &mut world,
            &format!("s{at}.demo"),
            &[(80, "HTTP")],
            &[("10.0.2.1", "v1")],
        );
    }
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let routes = view.get(Type::Route, "80").unwrap();
    assert!(routes.body.len() < 2 << 20, "{}", routes.body.len());
    let conflicts: Vec<_> = snapshot.conflicts();
    assert!(
        conflicts
            .iter()
            .any(|one| one.message.contains("patches would make it too large"))
    );
    assert!(conflicts.iter().any(|one| {
        one.message
            .contains("a proxy has more than 500, or more than 3 MiB")
    }));
    let other = snapshot.view(&node("other", &[]));
    assert!(other.get(Type::Route, "80").unwrap().body.len() < 200_000);
}

/// Names of route configurations of a router to which a patch with this match is applied.
fn patched_routes(matching: &str) -> (Vec<String>, Vec<String>) {
    let mut world = with(&format!(
        "- applyTo: HTTP_ROUTE\n  match: {{context: GATEWAY, routeConfiguration: {{{matching}}}}}\n  \
         patch: {{operation: INSERT_FIRST, value: {{name: first, match: {{prefix: /first}}, direct_response: {{status: 219}}}}}}\n"
    ));
    let tls = "tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}";
    let server = |bind: &str, port: u16, name: &str, protocol: &str, tls: &str| {
        format!(
            "- {{{bind}port: {{number: {port}, name: {name}, protocol: {protocol}}}, hosts: [web.example], {tls}}}\n"
        )
    };
    let servers: String = [
        server("bind: 10.9.0.1, ", 80, "a", "HTTP", ""),
        server("bind: '::1', ", 80, "a2", "HTTP", ""),
        server("", 81, "a3", "HTTP", ""),
        server("bind: 10.9.0.1, ", 443, "b", "HTTPS", tls),
        server("bind: '::1', ", 443, "b2", "HTTPS", tls),
        server("", 444, "c.d", "HTTPS", tls),
    ]
    .concat();
    gateways::gateway(
        &mut world,
        "g",
        1,
        &format!("selector: {{istio: edge}}\nservers:\n{servers}"),
    );
    virtual_service(
        &mut world,
        "v",
        1,
        "hosts: [web.example]\ngateways: [g]\nhttp: [{route: [{destination: {host: a, port: {number: 80}}}]}]",
    );
    let snapshot = snapshot(world);
    let mut node = (*gateways::router("demo")).clone();
    node.addresses.push("2001:db8::1".parse().unwrap());
    let view = snapshot.view(&Arc::new(node));
    let routes = view.all(Type::Route);
    let patched = routes.iter().filter(|one| {
        let routes = RouteConfiguration::decode(&*one.body).unwrap();
        let mut all = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
        all.any(|route| route.name == "first")
    });
    let mut patched: Vec<_> = patched.map(|one| one.name.to_string()).collect();
    patched.sort();
    let conflicts = snapshot.conflicts().into_iter();
    (patched, conflicts.map(|one| one.message).collect())
}

#[test]
fn routes_of_routers_are_meant_by_port_server_and_gateway_whatever_they_are_bound_to() {
    let plain = ["http.80.10.9.0.1", "http.80.::1"];
    let secure = ["https.443.b.g.demo.10.9.0.1", "https.443.b2.g.demo.::1"];
    let open = "https.444.c.d.g.demo";
    for (matching, want) in [
        ("portNumber: 80", &plain[..]),
        ("portNumber: 81", &["http.81"]),
        ("name: http.80.10.9.0.1", &["http.80.10.9.0.1"]),
        ("portNumber: 443", &secure),
        (
            "portNumber: 443, portName: b, gateway: demo/g",
            &secure[..1],
        ),
        ("portName: b2", &secure[1..]),
        ("portName: c.d", &[open]),
        ("gateway: demo/g", &[secure[0], secure[1], open]),
        ("gateway: demo/h", &[]),
        ("portName: a", &[]),
    ] {
        let (patched, conflicts) = patched_routes(matching);
        assert_eq!(patched, want, "{matching}");
        assert_eq!(conflicts, [""; 0], "{matching}");
    }
    // Routes in plain text are those of all Gateways of a port, as in Istio.
    for (matching, of) in [
        ("portNumber: 81, portName: a3", "http.81"),
        ("name: http.81, gateway: demo/g", "http.81"),
    ] {
        let (patched, conflicts) = patched_routes(matching);
        assert_eq!(patched, [""; 0], "{matching}");
        let want = format!(
            "patch 0 of EnvoyFilter demo/f does not match {of}: routes of requests in plain text are those of all Gateways of a port: they have no gateway \
             and no portName"
        );
        assert_eq!(conflicts, [want]);
    }
}
