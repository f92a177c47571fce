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
use xds::node::Dns;
use xds::snapshot::Snapshot;
use xds::view::Type;

use self::batch::{Envoy, certificates};
use self::support::bootstrap::bootstrap;

/// How a cluster of names is refreshed, for Envoys that do not say that they know the type of cluster that says it today.
fn is_known(line: &str) -> bool {
    let names = ["Cluster.dns_refresh_rate'", "Cluster.respect_dns_ttl'"];
    line.contains("Deprecated field") && names.iter().any(|name| line.contains(name))
}

/// Cases that Envoy reads at once.
const TOGETHER: usize = 40;

/// Envoy's objections to each of these, by its name.
fn refused(envoy: &mut Envoy, cases: &[(String, Vec<Bootstrap>)]) -> Vec<String> {
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
        let mut envoy = Envoy::new(directory.path()).silent_but(known);
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
    let mut envoy = Envoy::new(directory.path());
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
    let mut envoy = Envoy::new(directory.path());
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
