//! Rules for sidecars whose selectors find routers alone.

use std::collections::BTreeMap;

use api::model::{Health, Workload, WorkloadKey};
use api::security::PeerAuthentication;

use super::gateways::router;
use super::*;

const EDGE: [(&str, &str); 1] = [("istio", "edge")];

/// A Sidecar and a PeerAuthentication with a selector, and one for the whole namespace.
fn mesh() -> World {
    let mut world = world();
    let spec = "workloadSelector: {labels: {istio: edge}}\negress: [{hosts: ['./*']}]";
    sidecars::sidecar(&mut world, "demo/s", 1, spec);
    for (name, spec) in [
        (
            "p",
            "selector: {matchLabels: {istio: edge}}\nmtls: {mode: STRICT}",
        ),
        ("all", "mtls: {mode: STRICT}"),
    ] {
        let policy = object::<PeerAuthentication>(name, 1, spec);
        insert(&mut world.peer_authentications, policy);
    }
    world
}

fn pod(world: &mut World, name: &str, pairs: &[(&str, &str)]) {
    let key = WorkloadKey {
        cluster: "Kubernetes".into(),
        namespace: "demo".into(),
        name: name.into(),
    };
    let workload = Workload {
        key: key.clone(),
        addresses: Vec::new(),
        labels: Arc::new(labels(pairs)),
        locality: Locality::default(),
        network: None,
        account: None,
        ports: BTreeMap::new(),
        owner: None,
        health: Health::Ready,
    };
    Arc::make_mut(&mut world.workloads).insert(key, Arc::new(workload));
}

fn told(snapshot: &Snapshot) -> Vec<String> {
    let all = snapshot.conflicts().into_iter();
    let all = all.filter(|one| one.message.contains("routers alone"));
    all.map(|one| format!("{}: {}", one.objects[0], one.message))
        .collect()
}

/// They were accepted, and nothing came of them.
#[test]
fn a_rule_that_selects_routers_alone_says_so() {
    let snapshot = snapshot(mesh());
    assert_eq!(told(&snapshot), [""; 0], "no proxy is there");
    let _router = snapshot.view(&router("demo"));
    let expected = [
        "PeerAuthentication demo/p: is enforced by no server: its selector finds routers alone, which take the TLS that their \
         Gateways say; clients choose TLS for their endpoints by it",
        "Sidecar demo/s: holds for no proxy: its workloadSelector finds routers alone",
    ];
    assert_eq!(told(&snapshot), expected);
    // Other replicas have other proxies.
    let of_world = snapshot.conflicts_of_world();
    assert!(of_world.iter().all(|one| !one.message.contains("routers")));
    // A sidecar without a pod counts as long as it is there.
    let sidecar = node("demo", &EDGE);
    let _sidecar = snapshot.view(&sidecar);
    assert_eq!(told(&snapshot), [""; 0]);
    let next = snapshot.next(mesh(), None, None).snapshot;
    next.take_over_conflicts(&snapshot, |_| true);
    assert_eq!(told(&next), [""; 0]);
    let last = next.next(mesh(), None, None).snapshot;
    last.take_over_conflicts(&next, |proxy| *proxy != *sidecar.id);
    assert_eq!(told(&last), expected);
}

/// A router takes nothing of a Sidecar, and looks again all the same: what was said at a Sidecar that is gone would stay.
#[test]
fn a_router_looks_again_when_a_sidecar_beside_it_changes() {
    let with = mesh();
    let mut without = with.clone();
    Arc::make_mut(&mut without.sidecars).clear();
    let (edge, other) = (router("demo"), router("other"));
    let created = snapshot(without.clone()).next(with, None, None);
    assert!(created.concerns(&edge) && !created.concerns(&other));
    let created = created.snapshot;
    let _router = created.view(&edge);
    assert_eq!(told(&created).len(), 2);
    let deleted = created.next(without, None, None);
    assert!(deleted.concerns(&edge));
    let deleted = deleted.snapshot;
    deleted.take_over_conflicts(&created, |proxy| *proxy != *edge.id);
    let _router = deleted.view(&edge);
    assert_eq!(told(&deleted).len(), 1);
}

/// Pods count whether or not their proxies are connected here, and a router has pods at other replicas.
#[test]
fn a_rule_that_may_be_for_a_sidecar_is_not_told() {
    let beside = [("app", "a"), EDGE[0]];
    for (pods, count) in [
        (&[][..], 2),
        (&[&EDGE[..], &EDGE[..]], 2),
        (&[&[("app", "a")][..]], 2),
        (&[&EDGE[..], &beside], 0),
    ] {
        let mut world = mesh();
        for (at, labels) in pods.iter().enumerate() {
            pod(&mut world, &format!("edge-{at}"), labels);
        }
        let snapshot = snapshot(world);
        let _router = snapshot.view(&router("demo"));
        let told = told(&snapshot);
        assert_eq!(told.len(), count, "{pods:?}: {told:?}");
    }
    let snapshot = snapshot(mesh());
    let _others = ["other", "istio-system"].map(|namespace| snapshot.view(&router(namespace)));
    assert_eq!(told(&snapshot), [""; 0]);
}
