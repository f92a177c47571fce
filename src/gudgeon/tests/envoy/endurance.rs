//! Rules that change all the time, with hot restarts in between, under load: `CHANGES_SECONDS` says for how long, and build/long
//! says five minutes.

use std::time::{Duration, Instant};

use crate::backend::{Backend, Load};
use crate::place::{Address, Place, documents, until};
use crate::proxy::{Proxy, in_sync};

const PORT: u16 = 18190;
/// A hundred changes a minute.
const TURN: Duration = Duration::from_millis(600);
/// A restart takes as long as the older process has time to end, and some more.
const RESTART: Duration = Duration::from_secs(10);

fn object(version: &str, kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/{version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec: {spec}\n"
    )
}

fn services(ip: std::net::Ipv4Addr, ports: [u16; 2]) -> String {
    let endpoints = ports.map(|port| {
        let version = usize::from(port == ports[1]) + 1;
        format!("{{address: {ip}, ports: {{main: {port}}}, labels: {{version: v{version}}}}}")
    });
    let of = |name: &str| {
        let spec = format!(
            "{{hosts: [{name}.demo.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, \
             ports: [{{number: {PORT}, name: main, protocol: HTTP}}], endpoints: [{}]}}",
            endpoints.join(", ")
        );
        object("v1", "ServiceEntry", name, &spec)
    };
    documents(&["a", "b"].map(of))
}

/// All rules at one turn: subsets have new names each time, weights move, a filter comes and goes, policies change.
fn rules(turn: usize) -> String {
    let share = turn * 7 % 101;
    let balancer = ["ROUND_ROBIN", "RANDOM", "LEAST_REQUEST"][turn % 3];
    let mut all = vec![
        object(
            "v1",
            "DestinationRule",
            "a",
            &format!(
                "{{host: a, trafficPolicy: {{loadBalancer: {{simple: {balancer}}}}}, subsets: [\
                 {{name: one-{turn}, labels: {{version: v1}}}}, {{name: two-{turn}, labels: {{version: v2}}}}]}}"
            ),
        ),
        object(
            "v1",
            "VirtualService",
            "a",
            &format!(
                "{{hosts: [a], http: [{{name: turn-{turn}, headers: {{response: {{set: {{x-turn: '{turn}'}}}}}}, timeout: {}s, route: [\
                 {{destination: {{host: a, subset: one-{turn}}}, weight: {share}}}, \
                 {{destination: {{host: a, subset: two-{turn}}}, weight: {}}}]}}]}}",
                10 + turn % 5,
                100 - share
            ),
        ),
        object(
            "v1",
            "DestinationRule",
            "b",
            &format!(
                "{{host: b, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {}}}}}}}}}",
                1000 + turn
            ),
        ),
    ];
    if turn % 4 < 2 {
        let spec = "{configPatches: [{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND, \
            listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}, \
            patch: {operation: INSERT_BEFORE, value: {name: lua, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, \
            default_source_code: {inline_string: 'function envoy_on_response(handle) handle:headers():add(\"x-lua\", \"a\") end'}}}}}]}";
        all.push(object("v1alpha3", "EnvoyFilter", "lua", spec));
    }
    documents(&all)
}

#[test]
fn a_hundred_changes_a_minute_with_hot_restarts_lose_no_request() {
    let seconds = std::env::var("CHANGES_SECONDS").map_or(12, |text| text.parse().unwrap());
    let length = Duration::from_secs(seconds);
    let ip = Address::new();
    let backends = ["v1", "v2"].map(|name| Backend::new(ip.ip, name));
    let ports = [backends[0].port, backends[1].port];
    let discovery = Place::new()
        .with("config/services.yaml", &services(ip.ip, ports))
        .with("config/rules.yaml", &rules(0))
        .start();
    let proxy = Proxy::start(discovery.grpc);
    until("the services", || {
        let answers = ["a", "b"].map(|host| proxy.get(host, PORT));
        let is_there =
            |one: &Option<(u16, String)>| one.as_ref().is_some_and(|(status, _)| *status == 200);
        answers.iter().all(is_there).then_some(())
    });
    let loads = ["a", "a", "b"].map(|host| Load::new(proxy.ip, host, PORT));
    let begun = Instant::now();
    let (mut turn, mut restarts) = (0, 0_u32);
    while begun.elapsed() < length {
        turn += 1;
        discovery.place.write("config/rules.yaml", &rules(turn));
        // The first comes soon, and in time for its end.
        if begun.elapsed() >= RESTART * restarts + RESTART / 5 {
            restarts += 1;
            proxy.signal("HUP");
        }
        // The pace is what is asked for: nothing is waited for.
        std::thread::sleep((TURN * u32::try_from(turn).unwrap()).saturating_sub(begun.elapsed()));
    }
    let last = format!("turn-{turn}");
    until("the last change", || proxy.knows(&last).then_some(()));
    until("the last restart", || {
        (proxy.stat("server.hot_restart_epoch") == u64::from(restarts)).then_some(())
    });
    in_sync(&discovery, &proxy.name);
    let least = usize::try_from(seconds * 20).unwrap();
    let loads = loads.into_iter();
    let answered: usize = loads.map(|load| load.end_after(least)).sum();
    assert!(
        turn + 2 >= usize::try_from(seconds * 100 / 60).unwrap(),
        "{turn} changes"
    );
    assert!(u64::from(restarts) >= seconds / 10, "{restarts} restarts");
    for kind in ["cds", "eds", "lds", "rds"] {
        let refused = discovery.metric(&format!("pilot_total_xds_rejects{{type=\"{kind}\"}}"));
        assert_eq!(refused, 0.0, "{kind}");
    }
    assert_eq!(discovery.metric("gudgeon_panics_total"), 0.0);
    eprintln!(
        "{turn} changes, {restarts} hot restarts, {answered} requests in {seconds} s, none failed"
    );
}
