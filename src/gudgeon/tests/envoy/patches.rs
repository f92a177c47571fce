//! EnvoyFilters, each operation on each kind of place by a request, or by what Envoy says of itself.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use serde_json::Value;

use crate::backend::{Backend, Load, say};
use crate::place::{Address, Discovery, Place, SOON, documents, until};
use crate::proxy::{Proxy, Setup, in_sync, rows};

const PORT: u16 = 18130;
const TCP: u16 = 18131;
const OTHER: u16 = 18132;
const GONE: u16 = 18133;
const INBOUND: u16 = 18134;
const MINE: u16 = 18135;
const MARK: u16 = 18136;
const TYPES: &str = "type.googleapis.com/envoy.extensions";

fn object(version: &str, kind: &str, name: &str, spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: networking.istio.io/{version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n{spec}"
    )
}

fn service(name: &str, ports: &[(u16, &str)], to: &Backend, ip: IpAddr) -> String {
    let numbers = ports.iter().map(|(number, protocol)| {
        format!("{{number: {number}, name: p{number}, protocol: {protocol}}}")
    });
    let targets = ports
        .iter()
        .map(|(number, _)| format!("p{number}: {}", to.port));
    let (numbers, targets): (Vec<_>, Vec<_>) = (numbers.collect(), targets.collect());
    let spec = format!(
        "hosts: [{name}.demo.svc.cluster.local]\nlocation: MESH_INTERNAL\nresolution: STATIC\nports: [{}]\n\
         endpoints: [{{address: {ip}, ports: {{{}}}}}]",
        numbers.join(", "),
        targets.join(", ")
    );
    object("v1", "ServiceEntry", name, &spec)
}

/// The patches, and behind them one that shows that they have come.
fn filter(patches: &str, mark: &str) -> String {
    let mark = format!(
        "- applyTo: CLUSTER\n  match: {{context: SIDECAR_OUTBOUND}}\n  patch: {{operation: ADD, value: {{name: {mark}, type: STATIC, connect_timeout: 1s}}}}\n\
         - applyTo: VIRTUAL_HOST\n  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{name: '{PORT}'}}}}\n  patch: {{operation: ADD, value: {{name: {mark}, domains: [{mark}.example]}}}}\n"
    );
    let spec = format!("configPatches:\n{patches}{mark}");
    object("v1alpha3", "EnvoyFilter", "f", &spec)
}

fn write(discovery: &Discovery, proxy: &Proxy, filter: &str, mark: &str) {
    discovery.place.write("config/filter.yaml", filter);
    until(mark, || {
        let clusters = proxy.ask("/config_dump?resource=dynamic_active_clusters");
        let routes = proxy.ask("/config_dump?resource=dynamic_route_configs");
        let has = |text: &str| text.contains(&format!("\"{mark}\""));
        let listeners = proxy.ask("/config_dump?resource=dynamic_listeners");
        let warms = listeners.contains("\"warming_state\"");
        (has(&clusters) && has(&routes) && !warms && proxy.serves_its_listeners()).then_some(())
    });
}

#[derive(Debug)]
struct PatchedResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

fn ask(ip: IpAddr, port: u16, host: &str, path: &str) -> Option<PatchedResponse> {
    let mut stream = TcpStream::connect((ip, port)).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    Some(PatchedResponse {
        status,
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    })
}

/// A filter of requests that adds to a header of what comes back: the first that sees it adds last.
fn lua(operation: &str, context: &str, below: &str, name: &str) -> String {
    let below = match below {
        "" => String::new(),
        below => format!(", subFilter: {{name: {below}}}"),
    };
    format!(
        "- applyTo: HTTP_FILTER
  match: {{context: {context}, listener: {{filterChain: {{filter: {{name: envoy.http_connection_manager{below}}}}}}}}}
  patch:
    operation: {operation}
    value:
      name: lua-{name}
      typed_config:
        '@type': type.googleapis.com/envoy.config.filter.http.lua.v2.Lua
        inlineCode: |
          function envoy_on_response(handle) handle:headers():add(\"x-lua\", \"{name}\") end
"
    )
}

struct Scene {
    discovery: Discovery,
    proxy: Proxy,
    backends: Vec<Backend>,
    at: Address,
}

/// Services `a` and `b`, each by HTTP and TCP, `gone` alone on its port, and an application beside the proxy.
fn scene() -> Scene {
    let ip = Address::new();
    let [a, b, gone] = ["a", "b", "gone"].map(|body| Backend::new(ip.ip, body));
    let own = Backend::new([127, 0, 0, 1], "own");
    let address = ip.ip.into();
    let sidecar = format!(
        "workloadSelector: {{labels: {{app: web}}}}\ningress: [{{port: {{number: {INBOUND}, name: http, protocol: HTTP}}, defaultEndpoint: '127.0.0.1:{}'}}]",
        own.port
    );
    let config = documents(&[
        service("a", &[(PORT, "HTTP"), (TCP, "TCP")], &a, address),
        service("b", &[(PORT, "HTTP"), (OTHER, "TCP")], &b, address),
        service("gone", &[(GONE, "TCP")], &gone, address),
        service("mark", &[(MARK, "HTTP")], &a, address),
        object("v1", "Sidecar", "own", &sidecar),
    ]);
    let discovery = Place::new().with("config/all.yaml", &config).start();
    let proxy = Setup::new("web", discovery.grpc)
        .label("app", "web")
        .start();
    let backends = vec![a, b, gone, own];
    Scene {
        discovery,
        proxy,
        backends,
        at: ip,
    }
}

#[test]
fn filters_routes_clusters_and_listeners_are_as_patches_say() {
    let Scene {
        discovery,
        proxy,
        backends,
        at,
    } = scene();
    let (ip, a) = (proxy.ip, &backends[0]);
    until("the services", || {
        let is_there = |host: &str| ask(ip, PORT, host, "/").is_some_and(|one| one.status == 200);
        (is_there("a.demo") && is_there("b.demo")).then_some(())
    });
    let (http, own) = ("SIDECAR_OUTBOUND", "SIDECAR_INBOUND");
    let mut patches = String::new();
    for one in [
        lua("INSERT_BEFORE", http, "envoy.router", "before"),
        lua("INSERT_FIRST", http, "", "first"),
        lua("INSERT_AFTER", http, "envoy.filters.http.cors", "after"),
        lua("ADD", http, "", "add"),
        lua("REPLACE", http, "envoy.fault", "replace"),
        lua("INSERT_FIRST", own, "", "in"),
    ] {
        patches.push_str(&one);
    }
    patches.push_str(&format!(
        "- applyTo: HTTP_FILTER
  match: {{context: SIDECAR_OUTBOUND}}
  patch:
    operation: INSERT_FIRST
    value:
      name: envoy.filters.http.local_ratelimit
      typed_config:
        '@type': type.googleapis.com/udpa.type.v1.TypedStruct
        type_url: {TYPES}.filters.http.local_ratelimit.v3.LocalRateLimit
        value: {{stat_prefix: all}}
- applyTo: NETWORK_FILTER
  match: {{context: SIDECAR_OUTBOUND, listener: {{filterChain: {{filter: {{name: envoy.filters.network.http_connection_manager}}}}}}}}
  patch:
    operation: MERGE
    value:
      typed_config: {{'@type': {TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager, server_name: patched, server_header_transformation: OVERWRITE}}
- applyTo: NETWORK_FILTER
  match: {{listener: {{portNumber: {OTHER}, filterChain: {{filter: {{name: envoy.tcp_proxy}}}}}}}}
  patch:
    operation: INSERT_BEFORE
    value:
      name: envoy.filters.network.rbac
      typed_config:
        '@type': {TYPES}.filters.network.rbac.v3.RBAC
        stat_prefix: nobody
        rules: {{action: ALLOW, policies: {{}}}}
- applyTo: ROUTE_CONFIGURATION
  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{portNumber: {PORT}}}}}
  patch: {{operation: MERGE, value: {{response_headers_to_add: [{{header: {{key: x-routes, value: merged}}}}]}}}}
- applyTo: VIRTUAL_HOST
  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: 'a.demo.svc.cluster.local:{PORT}'}}}}}}
  patch: {{operation: MERGE, value: {{domains: [further.example], response_headers_to_add: [{{header: {{key: x-host, value: merged}}}}]}}}}
- applyTo: VIRTUAL_HOST
  match: {{routeConfiguration: {{vhost: {{domainName: b.demo}}}}}}
  patch: {{operation: REMOVE}}
- applyTo: VIRTUAL_HOST
  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{name: '{PORT}'}}}}
  patch: {{operation: ADD, value: {{name: mine, domains: [mine.example], routes: [{{match: {{prefix: /}}, route: {{cluster: mine}}}}]}}}}
- applyTo: HTTP_ROUTE
  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: 'a.demo.svc.cluster.local:{PORT}', route: {{name: default, action: ROUTE}}}}}}}}
  patch: {{operation: MERGE, value: {{response_headers_to_add: [{{header: {{key: x-route, value: merged}}}}]}}}}
- applyTo: HTTP_ROUTE
  match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: 'a.demo.svc.cluster.local:{PORT}'}}}}}}
  patch:
    operation: INSERT_FIRST
    value:
      match: {{path: /limited}}
      direct_response: {{status: 201}}
      typed_per_filter_config:
        envoy.filters.http.local_ratelimit:
          '@type': {TYPES}.filters.http.local_ratelimit.v3.LocalRateLimit
          stat_prefix: limited
          token_bucket: {{max_tokens: 1, tokens_per_fill: 1, fill_interval: 3600s}}
          filter_enabled: {{default_value: {{numerator: 100}}}}
          filter_enforced: {{default_value: {{numerator: 100}}}}
- applyTo: HTTP_ROUTE
  match: {{context: SIDECAR_INBOUND, routeConfiguration: {{portNumber: {INBOUND}}}}}
  patch: {{operation: INSERT_FIRST, value: {{match: {{path: /own}}, direct_response: {{status: 202}}}}}}
- applyTo: CLUSTER
  match: {{cluster: {{service: a.demo.svc.cluster.local, portNumber: {PORT}}}}}
  patch: {{operation: MERGE_AND_REPLACE_LIST, value: {{circuit_breakers: {{thresholds: [{{max_connections: 77}}]}}}}}}
- applyTo: CLUSTER
  match: {{context: SIDECAR_OUTBOUND}}
  patch:
    operation: ADD
    value:
      name: mine
      type: STATIC
      connect_timeout: 1s
      load_assignment: {{cluster_name: mine, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {ip}, port_value: {port}}}}}}}}}]}}]}}
- applyTo: CLUSTER
  match: {{cluster: {{service: b.demo.svc.cluster.local}}}}
  patch: {{operation: REMOVE}}
- applyTo: LISTENER
  match: {{context: SIDECAR_OUTBOUND, listener: {{portNumber: {GONE}}}}}
  patch: {{operation: REMOVE}}
- applyTo: LISTENER
  match: {{context: SIDECAR_OUTBOUND}}
  patch:
    operation: ADD
    value:
      name: mine
      address: {{socket_address: {{address: {own}, port_value: {MINE}}}}}
      filter_chains:
      - filters: [{{name: envoy.filters.network.tcp_proxy, typed_config: {{'@type': {TYPES}.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: mine, cluster: mine}}}}]
- applyTo: LISTENER_FILTER
  match: {{listener: {{portNumber: {TCP}}}}}
  patch: {{operation: INSERT_FIRST, value: {{name: envoy.filters.listener.tls_inspector, typed_config: {{'@type': {TYPES}.filters.listener.tls_inspector.v3.TlsInspector}}}}}}
- applyTo: FILTER_CHAIN
  match: {{listener: {{portNumber: {TCP}}}}}
  patch: {{operation: ADD, value: {{filter_chain_match: {{transport_protocol: tls}}, filters: [{{name: x, typed_config: {{'@type': {TYPES}.filters.network.echo.v3.Echo}}}}]}}}}
",
        ip = at.ip,
        port = a.port,
        own = proxy.ip,
    ));
    write(
        &discovery,
        &proxy,
        &filter(&patches, "all-is-there"),
        "all-is-there",
    );

    let answer = ask(ip, PORT, "a.demo", "/").unwrap();
    assert_eq!((answer.status, &*answer.body), (200, "a"));
    // Answers pass the filters from behind; a header that was added twice has both values.
    let text = proxy_text(ip, "a.demo");
    let added: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("x-lua: "))
        .collect();
    assert_eq!(added, ["add", "before", "replace", "after", "first"]);
    for (name, value) in [
        ("server", "patched"),
        ("x-routes", "merged"),
        ("x-host", "merged"),
        ("x-route", "merged"),
    ] {
        assert_eq!(
            answer.headers.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    let status = |host: &str, path: &str| ask(ip, PORT, host, path).unwrap().status;
    assert_eq!(status("further.example", "/"), 200);
    assert_eq!(ask(ip, PORT, "mine.example", "/").unwrap().body, "a");
    // Its host is gone, and there is nobody who is meant by it.
    assert_eq!(status("b.demo", "/"), 502);
    assert_eq!(
        [status("a.demo", "/limited"), status("a.demo", "/limited")],
        [201, 429]
    );
    let inbound = ask(ip, INBOUND, "own", "/own").unwrap();
    assert_eq!(
        (
            inbound.status,
            inbound.headers.get("x-lua").map(String::as_str)
        ),
        (202, Some("in"))
    );
    assert_eq!(ask(ip, INBOUND, "own", "/").unwrap().body, "own");
    let clusters = proxy.ask("/clusters");
    let breaker =
        format!("outbound|{PORT}||a.demo.svc.cluster.local::default_priority::max_connections::77");
    assert!(clusters.contains(&breaker), "{clusters}");
    assert!(!clusters.contains("b.demo.svc.cluster.local"), "{clusters}");
    // Connections.
    let connect = |port: u16| TcpStream::connect(SocketAddr::new(ip, port));
    assert!(connect(GONE).is_err());
    assert_eq!(say(connect(MINE).unwrap(), "x"), Some("a x".to_owned()));
    // The inspector wants five bytes before it says that it is no TLS.
    let plain = say(connect(TCP).unwrap(), "hello");
    assert_eq!(plain, Some("a hello".to_owned()));
    assert_eq!(say(connect(OTHER).unwrap(), "x"), None, "nobody is let in");
    // TLS goes to the chain that was added: it comes back as it went.
    let mut stream = connect(TCP).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let hello = client_hello();
    stream.write_all(&hello).unwrap();
    let mut back = vec![0; hello.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, hello);

    // All of it is described: discovery's dump shows what is packed, too.
    let id = format!(
        "/debug/config_dump?proxyID={}",
        in_sync(&discovery, "web")["proxy"].as_str().unwrap()
    );
    let dump = discovery.json(&id).to_string();
    assert!(
        dump.contains("envoy_on_response") && dump.contains("\"max_tokens\":1"),
        "{dump}"
    );
    assert!(!dump.contains("is not described"), "{dump}");

    // Without the filter all is as before.
    discovery.place.write("config/filter.yaml", "");
    until("what was before", || {
        let answer = ask(ip, PORT, "b.demo", "/")?;
        (answer.status == 200 && !answer.headers.contains_key("x-lua") && connect(GONE).is_ok())
            .then_some(())
    });
    assert_eq!(say(connect(OTHER).unwrap(), "x"), Some("b x".to_owned()));
}

/// An answer as it came.
fn proxy_text(ip: IpAddr, host: &str) -> String {
    let mut stream = TcpStream::connect((ip, PORT)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.replace("\r\n", "\n").to_ascii_lowercase()
}

/// The first bytes of a TLS connection.
fn client_hello() -> Vec<u8> {
    use rustls::pki_types::ServerName;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn a_filter_comes_and_goes_under_load_without_a_lost_request() {
    let Scene {
        discovery,
        proxy,
        backends: _backends,
        at: _at,
    } = scene();
    let ip = proxy.ip;
    let header = || ask(ip, PORT, "a.demo", "/").and_then(|one| one.headers.get("x-lua").cloned());
    until("the service", || {
        (ask(ip, PORT, "a.demo", "/")?.status == 200).then_some(())
    });
    let load = Load::new(ip, "a.demo", PORT);
    for name in ["one", "two"] {
        let patches = lua("INSERT_BEFORE", "SIDECAR_OUTBOUND", "envoy.router", name);
        let merge = "- applyTo: CLUSTER\n  match: {context: SIDECAR_OUTBOUND}\n  patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 65536}}\n";
        let text = filter(&format!("{patches}{merge}"), name);
        discovery.place.write("config/filter.yaml", &text);
        until(name, || (header()? == name).then_some(()));
        discovery.place.write("config/filter.yaml", "");
        until("no filter", || header().is_none().then_some(()));
    }
    load.end_after(50);
}

#[test]
fn a_nack_is_reported_at_its_envoy_filters_and_others_stay_in_use() {
    let Scene {
        discovery,
        proxy,
        backends: _backends,
        at: _at,
    } = scene();
    let ip = proxy.ip;
    until("the service", || {
        (ask(ip, PORT, "a.demo", "/")?.status == 200).then_some(())
    });
    // A script that is none, one port alone; and patches that cannot be read beside one that can.
    let broken = format!(
        "- applyTo: HTTP_FILTER
  match: {{listener: {{portNumber: {MARK}}}}}
  patch: {{operation: INSERT_FIRST, value: {{name: broken, typed_config: {{'@type': {TYPES}.filters.http.lua.v3.Lua, default_source_code: {{inline_string: 'no lua (('}}}}}}}}
- applyTo: CLUSTER
  patch: {{operation: MERGE, value: {{no_such_field: 1}}}}
- applyTo: HTTP_FILTER
  match: {{context: SIDECAR_OUTBOUND}}
  patch: {{operation: ADD, value: {{name: x, typed_config: {{'@type': type.googleapis.com/envoy.no.such.Type}}}}}}
"
    );
    let patches = format!(
        "{broken}{}",
        lua("INSERT_FIRST", "SIDECAR_INBOUND", "", "in")
    );
    discovery
        .place
        .write("config/filter.yaml", &filter(&patches, "broken-is-there"));
    let row = until("the refusal", || {
        let row = rows(&discovery, "web").pop()?;
        row["errors"]["listener"].is_object().then_some(row)
    });
    let listener = &row["errors"]["listener"];
    let message = listener["message"].as_str().unwrap();
    assert!(
        message.contains("script load error") && message.contains(&format!("_{MARK}")),
        "{message}"
    );
    let blamed = listener["rules"].to_string();
    assert!(
        blamed.contains("EnvoyFilter") && blamed.contains("\"f\"") || blamed.contains("demo/f"),
        "{blamed}"
    );
    // The others of that response are taken, and what was there goes on.
    until("the filter of what comes in", || {
        let answer = ask(ip, INBOUND, "own", "/")?;
        (answer.headers.get("x-lua").map(String::as_str) == Some("in")).then_some(())
    });
    assert_eq!(ask(ip, PORT, "a.demo", "/").unwrap().body, "a");
    assert_eq!(
        ask(ip, MARK, "mark.demo", "/").unwrap().body,
        "a",
        "as it was before"
    );
    let filters = discovery.json("/debug/configz?kind=EnvoyFilter");
    let status: &Value = &filters[0]["status"];
    assert_eq!(status["accepted"], true, "{filters}");
    let messages = status["messages"].to_string();
    for text in [
        "spec.configPatches[1].patch.value.no_such_field: the patch is not applied: unknown field of envoy.config.cluster.v3.Cluster",
        "no type of Envoy 1.40 is known as",
    ] {
        assert!(messages.contains(text), "{messages}");
    }
}
