//! The real Envoy reads everything that is made, each proxy's resources in one bootstrap: what it refuses, no proxy would
//! take from a stream either.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    reason = "a test may panic, and starts Envoy"
)]

#[path = "support/batch.rs"]
mod batch;
mod support;

use std::sync::Arc;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::bootstrap::v3::bootstrap::StaticResources;
use prost::Message;
use xds::node::Dns;
use xds::snapshot::Snapshot;
use xds::view::Type;

use self::batch::{EnvoyValidator, certificates};
use self::support::bootstrap::bootstrap;

/// Returns true if the line warns of the refresh of a cluster of names, in the form for Envoys that do not say that they know
/// the type of cluster that replaces it.
fn is_known(line: &str) -> bool {
    let names = ["Cluster.dns_refresh_rate'", "Cluster.respect_dns_ttl'"];
    line.contains("Deprecated field") && names.iter().any(|name| line.contains(name))
}

/// Cases that Envoy reads at once.
const TOGETHER: usize = 40;

/// Envoy's objections to each of these, by its name.
fn refused(envoy: &mut EnvoyValidator, cases: &[(String, Vec<Bootstrap>)]) -> Vec<String> {
    let refused = cases
        .chunks(TOGETHER)
        .flat_map(|cases| envoy.refused(cases));
    refused
        .map(|(case, why)| format!("{case}\n  {why}"))
        .collect()
}

#[test]
fn envoy_takes_what_every_kind_of_proxy_is_given() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = directory.path().to_str().unwrap();
    let mut failed = Vec::new();
    let mut runs = 0;
    for (dns, known) in [
        (Dns::ClusterType, (|_| false) as fn(&str) -> bool),
        (Dns::Fields, is_known),
    ] {
        let rows = support::rows(path).into_iter();
        let cases = rows
            .chain([support::patched(path), support::heavy(path)])
            .map(|row| {
                let snapshot = Snapshot::new(row.world, support::settings());
                let mut node = (*row.node).clone();
                node.dns = dns;
                let view = snapshot.view(&Arc::new(node));
                println!("{}: {} clusters", row.name, view.all(Type::Cluster).len());
                (format!("{}, {dns:?}", row.name), vec![bootstrap(&*view)])
            });
        let cases: Vec<_> = cases.collect();
        let mut envoy = EnvoyValidator::new(directory.path()).silent_but(known);
        failed.extend(refused(&mut envoy, &cases));
        runs += envoy.runs;
    }
    println!("{runs} starts of Envoy");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// One rule that Envoy refuses takes the routes of all services from every proxy that sees it: what it would refuse is refused
/// by the rules, or is made of nothing.
#[test]
fn envoy_takes_whatever_the_rules_let_through() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = directory.path().to_str().unwrap();
    let cases = support::edges().into_iter().filter_map(|(kind, spec)| {
        let row = support::with_rule(kind, &spec, path)?;
        let snapshot = Snapshot::new(row.world, support::settings());
        let all = vec![bootstrap(&*snapshot.view(&row.node))];
        let beginning: String = spec.chars().take(300).collect();
        Some((format!("{kind} {beginning}"), all))
    });
    let cases: Vec<_> = cases.collect();
    let mut envoy = EnvoyValidator::new(directory.path());
    let wrong = refused(&mut envoy, &cases);
    println!("{} rules, {} starts of Envoy", cases.len(), envoy.runs);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two listeners at one address are seen among many, where each batch has some, and so is a cluster that others have.
#[test]
fn the_search_finds_one_refused_resource_among_many() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = directory.path().to_str().unwrap();
    let rows = support::rows(path).into_iter().take(6);
    let mut cases: Vec<_> = rows
        .map(|row| {
            let snapshot = Snapshot::new(row.world, support::settings());
            (
                row.name.to_owned(),
                vec![bootstrap(&*snapshot.view(&row.node))],
            )
        })
        .collect();
    let mut envoy = EnvoyValidator::new(directory.path());
    assert_eq!(refused(&mut envoy, &cases), [""; 0]);
    let resources = cases[3].1[0].static_resources.as_mut().unwrap();
    let mut twin = resources.listeners[0].clone();
    twin.name = "twin".to_owned();
    twin.bind_to_port = None;
    resources.listeners[0].bind_to_port = None;
    resources.listeners.push(twin);
    cases[4].1[0].static_resources.as_mut().unwrap().clusters[0].lb_policy = 77;
    // The others have what this one lacks.
    let lacking = cases[5].1[0].static_resources.as_mut().unwrap();
    lacking.clusters.retain(|one| one.name != "xds-grpc");
    let refused = refused(&mut envoy, &cases);
    let has = |name: &str, why: &str| {
        refused
            .iter()
            .any(|one| one.starts_with(name) && one.contains(why))
    };
    let [twins, policy, lacking] = [3, 4, 5].map(|at| cases[at].0.as_str());
    assert!(
        refused.len() == 3
            && has(twins, "address")
            && has(policy, "lb_policy")
            && has(lacking, "xds-grpc"),
        "{refused:?}"
    );
}

/// A listener of `api` with a place for what is tried: `FILTERS` stands for filters of its chain, `ROUTE` for a route.
const CHAIN: &str = "{name: l, address: {socket_address: {address: 127.9.9.9, port_value: 1}}, filter_chains: [{filters: [FILTERS]}]}";
const MANAGER: &str = "{name: m, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, \
     stat_prefix: x, http_filters: [HTTP{name: r, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}], \
     route_config: {virtual_hosts: [{name: v, domains: ['*'], routes: [ROUTE]}]}}}";

/// Envoy refuses the patches that lack something by the words of `api`, and no others.
#[test]
fn envoy_refuses_what_lacks_a_part_and_nothing_else() {
    let address = "address: {socket_address: {address: 127.9.9.9, port_value: 1}}";
    let listener = |text: &str| ("listener.v3.Listener", text.to_owned());
    let chain = |filters: &str| listener(&CHAIN.replace("FILTERS", filters));
    let manager = |http: &str, route: &str| {
        chain(
            &MANAGER
                .replace("HTTP{", &format!("{http}{{"))
                .replace("ROUTE", route),
        )
    };
    let route = |route: &str| manager("", route);
    let to = |matching: &str| route(&format!("{{match: {{{matching}}}, route: {{cluster: c}}}}"));
    let action = |action: &str| route(&format!("{{match: {{prefix: /}}, {action}}}"));
    let cluster = |text: &str| ("cluster.v3.Cluster", text.to_owned());
    let tcp = "'@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
    let cases = [
        to("prefix: ''"),
        to("path: ''"),
        to("prefix: /, headers: [{name: a}]"),
        action("redirect: {}"),
        action("non_forwarding_action: {}"),
        action("route: {weighted_clusters: {clusters: [{name: c, weight: 1}]}}"),
        manager("{name: a, is_optional: true}, ", ""),
        chain(&format!(
            "{{name: t, typed_config: {{{tcp}, stat_prefix: x, cluster: c}}}}"
        )),
        chain(""),
        listener(&format!(
            "{{name: l, {address}, default_filter_chain: {{}}}}"
        )),
        cluster("{name: c, type: STATIC}"),
        // And what is refused.
        to(""),
        to("safe_regex: {}"),
        to("prefix: /, headers: [{}]"),
        to("prefix: /, headers: [{name: a, string_match: {}}]"),
        to("prefix: /, query_parameters: [{}]"),
        route("{route: {cluster: c}}"),
        route("{match: {prefix: /}}"),
        action("route: {}"),
        action("route: {cluster: ''}"),
        action("route: {weighted_clusters: {}}"),
        action("route: {weighted_clusters: {clusters: [{name: c}]}}"),
        action("route: {weighted_clusters: {clusters: [{weight: 1}]}}"),
        action("route: {cluster: c, request_mirror_policies: [{}]}"),
        action("route: {cluster: c, hash_policy: [{}]}"),
        action("route: {cluster: c}, request_headers_to_add: [{}]"),
        manager("{name: a}, ", ""),
        manager(
            "{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}, ",
            "",
        ),
        chain("{name: a}"),
        chain(&format!("{{name: t, typed_config: {{{tcp}}}}}")),
        chain(&format!(
            "{{name: t, typed_config: {{{tcp}, stat_prefix: x}}}}"
        )),
        listener("{name: l, filter_chains: [{}]}"),
        listener("{name: l, address: {}, filter_chains: [{}]}"),
        listener(&format!(
            "{{name: l, {address}, filter_chains: [{{}}, {{filter_chain_match: {{}}}}]}}"
        )),
        listener(&format!(
            "{{name: l, {address}, filter_chains: [{{filter_chain_match: {{prefix_ranges: [{{}}]}}}}]}}"
        )),
        listener(&format!(
            "{{name: l, {address}, filter_chains: [{{transport_socket: {{name: a}}}}]}}"
        )),
        listener(&format!(
            "{{name: l, {address}, listener_filters: [{{name: a}}], filter_chains: [{{}}]}}"
        )),
        cluster("{type: STATIC}"),
        cluster("{name: c, type: STATIC, health_checks: [{}]}"),
        cluster("{name: c, type: STATIC, load_assignment: {}}"),
    ];
    let limits = api::yaml::Limits {
        bytes: 10_000,
        depth: 50,
        nodes: 10_000,
    };
    let mut lacking = Vec::new();
    let mut all = Vec::new();
    for (message, text) in cases {
        let message = format!("envoy.config.{message}");
        let value = api::yaml::read(&text, limits).unwrap().unwrap().to_json();
        let bytes = api::envoy::encode(&message, &value, "").unwrap();
        if api::envoy::missing_part(&message, &bytes, true).is_some() {
            lacking.push(text.clone());
        }
        let mut resources = StaticResources::default();
        if message.ends_with("Listener") {
            resources.listeners = vec![Message::decode(&*bytes).unwrap()];
            let plain = cluster("{name: c, type: STATIC}").1;
            let plain = api::yaml::read(&plain, limits).unwrap().unwrap().to_json();
            let plain = api::envoy::encode("envoy.config.cluster.v3.Cluster", &plain, "").unwrap();
            resources.clusters = vec![Message::decode(&*plain).unwrap()];
        } else {
            resources.clusters = vec![Message::decode(&*bytes).unwrap()];
        }
        let bootstrap = Bootstrap {
            static_resources: Some(resources),
            ..Bootstrap::default()
        };
        all.push((text, vec![bootstrap]));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut envoy = EnvoyValidator::new(directory.path());
    let refused = envoy.refused(&all).into_iter();
    let mut refused: Vec<_> = refused.map(|(case, _)| case).collect();
    refused.sort();
    lacking.sort();
    assert_eq!(lacking, refused);
    assert_eq!(all.len() - refused.len(), 11);
}
