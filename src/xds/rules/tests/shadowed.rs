//! Rules that an older one shadows are told, whatever proxies there are.

use api::networking::Sidecar;
use api::security::PeerAuthentication;

use super::*;

/// Conflicts as `KIND NAMESPACE/NAME: MESSAGE`, each at the object that it is about.
fn conflict_texts(world: World) -> Vec<String> {
    let all = snapshot(world).conflicts().into_iter();
    all.map(|conflict| {
        let object = conflict.objects.first().unwrap();
        assert_eq!(conflict.key, object.to_string());
        format!("{object}: {}", conflict.message)
    })
    .collect()
}

fn named<T: DiscoveryKind + Clone>(rules: &[(&str, &str)]) -> Arc<Objects<T>> {
    let mut all = Arc::default();
    for (created, (name, spec)) in (0..).zip(rules) {
        insert(&mut all, object::<T>(name, created, spec));
    }
    all
}

#[test]
fn sidecars_with_the_selector_of_an_older_one_are_told() {
    let mut world = world();
    let web = "{workloadSelector: {labels: {app: web}}, egress: [{hosts: ['*/*']}]}";
    let api = "{workloadSelector: {labels: {app: api}}, egress: [{hosts: ['*/*']}]}";
    let all = "{egress: [{hosts: ['./*']}]}";
    world.sidecars = named::<Sidecar>(&[
        ("demo/z", all),
        ("demo/a", all),
        ("demo/b", web),
        ("demo/c", api),
        ("demo/d", web),
        ("other/e", all),
    ]);
    assert_eq!(
        conflict_texts(world),
        [
            "Sidecar demo/a: it has no effect: Sidecar demo/z comes first and has no selector either",
            "Sidecar demo/d: it has no effect: Sidecar demo/b comes first and has the same selector",
        ]
    );
}

/// Somebody believes that his workloads take mutual TLS alone.
#[test]
fn a_strict_policy_that_loses_to_a_permissive_one_is_told() {
    let mut world = world();
    world.peer_authentications = named::<PeerAuthentication>(&[
        ("demo/usual", "{mtls: {mode: PERMISSIVE}}"),
        ("demo/strict", "{mtls: {mode: STRICT}}"),
        (
            "demo/web",
            "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}",
        ),
        (
            "demo/web-2",
            "{selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}}",
        ),
        ("other/strict", "{mtls: {mode: STRICT}}"),
    ]);
    assert_eq!(
        conflict_texts(world),
        [
            "PeerAuthentication demo/strict: it has no effect: PeerAuthentication demo/usual comes first and has no selector either",
            "PeerAuthentication demo/web-2: it has no effect: PeerAuthentication demo/web comes first and has the same selector",
        ]
    );
}

#[test]
fn parts_of_destination_rules_that_an_older_one_has_are_told() {
    let mut world = world();
    let policy = "trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}";
    let subset = |name: &str| format!("{{name: {name}, labels: {{version: {name}}}}}");
    let subsets = |names: &[&str]| {
        let all: Vec<_> = names.iter().map(|name| subset(name)).collect();
        format!("subsets: [{}]", all.join(", "))
    };
    let (v1, v2) = (subsets(&["v1"]), subsets(&["v1", "v2"]));
    world.destination_rules = named::<DestinationRule>(&[
        ("demo/a", &format!("{{host: a, {policy}, {v1}}}")),
        (
            "demo/b",
            &format!("{{host: a.demo.svc.cluster.local, {policy}, {v2}}}"),
        ),
        // Other clients, other workloads, another namespace.
        ("demo/c", &format!("{{host: a, {policy}, exportTo: ['.']}}")),
        (
            "demo/d",
            &format!("{{host: a, {policy}, workloadSelector: {{matchLabels: {{app: b}}}}}}"),
        ),
        (
            "other/e",
            &format!("{{host: a.demo.svc.cluster.local, {policy}}}"),
        ),
        ("demo/f", &format!("{{host: a, {}}}", subsets(&["v3"]))),
    ]);
    let older = "has no effect: DestinationRule demo/a comes first and has one for this host";
    assert_eq!(
        conflict_texts(world),
        [
            format!("DestinationRule demo/b: its subset v1 {older}"),
            format!("DestinationRule demo/b: its trafficPolicy {older}"),
        ]
    );
}
