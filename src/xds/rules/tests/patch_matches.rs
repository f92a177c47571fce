//! Patches that change nothing of any connected proxy: who is asked, and when it is told.

use super::envoy_filters::{conflicts, envoy_filter, http, with};
use super::*;

const TOLD: &str = "patch 0 of EnvoyFilter demo/f has no effect: it matches nothing of the connected proxies that it is for";

fn merge(apply_to: &str, place: &str, value: &str) -> String {
    format!(
        "- applyTo: {apply_to}\n  match: {{{place}}}\n  patch: {{operation: MERGE, value: {value}}}\n"
    )
}

fn remove(apply_to: &str, place: &str) -> String {
    format!("- applyTo: {apply_to}\n  match: {{{place}}}\n  patch: {{operation: REMOVE}}\n")
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of patches")]
fn a_patch_that_matches_nothing_is_told() {
    let random = "{lb_policy: RANDOM}";
    let backlog = "{tcp_backlog_size: 7}";
    let header = "{response_headers_to_add: [{header: {key: x, value: y}}]}";
    let added = "{name: mine, type: STATIC}";
    for (patch, is_reported) in [
        (http("INSERT_AFTER", "envoy.cors", "x"), false),
        (http("INSERT_BEFORE", "istio_authn", "x"), true),
        (http("INSERT_AFTER", "istio_authn", "x"), true),
        (http("REMOVE", "envoy.fault", ""), false),
        (http("REMOVE", "istio_authn", ""), true),
        // Of this one a note is told.
        (http("REPLACE", "", "x"), false),
        (http("REPLACE", "istio_authn", "x"), true),
        (
            merge(
                "CLUSTER",
                "cluster: {service: a.demo.svc.cluster.local}",
                random,
            ),
            false,
        ),
        (
            merge(
                "CLUSTER",
                "cluster: {service: a.demo.svc.cluster.locl}",
                random,
            ),
            true,
        ),
        (
            merge(
                "CLUSTER",
                "context: SIDECAR_INBOUND, cluster: {portNumber: 8080}",
                random,
            ),
            false,
        ),
        (
            merge(
                "CLUSTER",
                "context: SIDECAR_INBOUND, cluster: {portNumber: 80}",
                random,
            ),
            true,
        ),
        (
            remove("CLUSTER", "cluster: {service: a.demo.svc.cluster.local}"),
            false,
        ),
        (remove("CLUSTER", "cluster: {service: none}"), true),
        (
            format!("- applyTo: CLUSTER\n  patch: {{operation: ADD, value: {added}}}\n"),
            false,
        ),
        (
            merge("LISTENER", "listener: {portNumber: 80}", backlog),
            false,
        ),
        (
            merge("LISTENER", "listener: {portNumber: 81}", backlog),
            true,
        ),
        (remove("LISTENER", "listener: {portNumber: 80}"), false),
        (
            merge(
                "LISTENER",
                "context: SIDECAR_INBOUND, listener: {portNumber: 80}",
                backlog,
            ),
            true,
        ),
        // No router is connected.
        (
            merge(
                "LISTENER",
                "context: GATEWAY, listener: {portNumber: 81}",
                backlog,
            ),
            false,
        ),
        (
            merge(
                "ROUTE_CONFIGURATION",
                "routeConfiguration: {name: '80'}",
                header,
            ),
            false,
        ),
        (
            merge(
                "ROUTE_CONFIGURATION",
                "routeConfiguration: {name: '81'}",
                header,
            ),
            true,
        ),
        (
            merge(
                "VIRTUAL_HOST",
                "routeConfiguration: {vhost: {domainName: a.demo}}",
                header,
            ),
            false,
        ),
        (
            merge(
                "VIRTUAL_HOST",
                "routeConfiguration: {vhost: {domainName: a.dem}}",
                header,
            ),
            true,
        ),
        (
            remove("VIRTUAL_HOST", "routeConfiguration: {vhost: {name: none}}"),
            true,
        ),
        (
            merge(
                "HTTP_ROUTE",
                "context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 8080}",
                header,
            ),
            false,
        ),
        (
            merge(
                "HTTP_ROUTE",
                "context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 80}",
                header,
            ),
            true,
        ),
        // That of another patch counts.
        (
            http("INSERT_BEFORE", "y", "x") + &http("INSERT_FIRST", "", "y"),
            true,
        ),
    ] {
        let want: &[&str] = if is_reported { &[TOLD] } else { &[] };
        assert_eq!(conflicts(with(&patch)), want, "{patch}");
    }
    // Each by itself.
    let both = http("INSERT_FIRST", "", "y") + &http("INSERT_BEFORE", "z", "x");
    assert_eq!(conflicts(with(&both)), [TOLD.replace("patch 0", "patch 1")]);
}

fn unmatched_patches(snapshot: &Snapshot) -> usize {
    let all = snapshot.conflicts();
    assert!(
        all.iter()
            .all(|one| one.message.contains("matches nothing")),
        "{all:?}"
    );
    all.len()
}

fn make(view: &dyn View) {
    for kind in Type::ALL {
        drop(view.all(kind));
    }
}

/// As a stream does, which asks for routes by name, and for each type when it is its turn.
#[test]
fn a_patch_is_not_told_before_what_it_may_match_is_made() {
    let place = "context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: none}}";
    let patches = remove("VIRTUAL_HOST", place);
    let mut world = with(&patches);
    service(&mut world, "d.demo", &[(8088, "HTTP")], &[]);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    drop(view.all(Type::Cluster));
    drop(view.all(Type::Listener));
    assert_eq!(unmatched_patches(&snapshot), 0);
    let names = ["80", "8080", "8088"];
    for name in names {
        assert_eq!(unmatched_patches(&snapshot), 0, "{name}");
        view.get(Type::Route, name).unwrap();
    }
    assert_eq!(unmatched_patches(&snapshot), 1);
    // It is of those that are connected.
    drop(view);
    assert_eq!(unmatched_patches(&snapshot), 0);
}

#[test]
fn a_patch_is_told_if_no_proxy_of_several_matches() {
    let patch = merge(
        "CLUSTER",
        "context: SIDECAR_INBOUND, cluster: {portNumber: 8080}",
        "{lb_policy: RANDOM}",
    );
    let mut world = with("");
    let spec = format!("configPatches:\n{patch}");
    envoy_filter(&mut world, "istio-system/f", 1, &spec);
    let first = snapshot(world.clone());
    // Of the other namespace's proxy none matches.
    let other = first.view(&node("other", &[]));
    make(&*other);
    assert_eq!(unmatched_patches(&first), 1);
    let own = first.view(&node("demo", &[]));
    assert_eq!(unmatched_patches(&first), 0, "it may have it yet");
    make(&*own);
    assert_eq!(unmatched_patches(&first), 0);

    // What differs for nobody is not made again.
    let next = first.next(world.clone(), None, None).snapshot;
    next.take_over_patch_matches(&first, |_| true);
    assert_eq!(unmatched_patches(&next), 0);
    let [other, own] = [(other, "other"), (own, "demo")].map(|(older, namespace)| {
        let view = next.view(&node(namespace, &[]));
        drop(older);
        view
    });
    assert_eq!(unmatched_patches(&next), 0);

    // A proxy that is to get something else may match or not.
    let last = next.next(world, None, None).snapshot;
    last.take_over_patch_matches(&next, |proxy| proxy.contains("other"));
    assert_eq!(unmatched_patches(&last), 0);
    let newer = last.view(&node("demo", &[]));
    drop(own);
    assert_eq!(unmatched_patches(&last), 0);
    make(&*newer);
    assert_eq!(unmatched_patches(&last), 0);
    drop(newer);
    assert_eq!(unmatched_patches(&last), 1, "it is gone");
    drop(other);
    assert_eq!(unmatched_patches(&last), 0);
}
