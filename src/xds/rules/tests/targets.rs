//! Policies that name objects in place of workloads.

use api::security::{AuthorizationPolicy, RequestAuthentication};

use super::*;

fn with(namespace: &str, targets: &str) -> World {
    let mut world = world();
    let mesh = mesh::parse_over(&mesh::discovery_defaults(), "rootNamespace: demo").unwrap();
    world.mesh = Arc::new(mesh.config);
    for (name, selector) in [("a", &[("app", "a")][..]), ("b", &[])] {
        let key = ServiceKey::new(&format!("{name}.demo.svc.cluster.local"), "demo");
        let services = Arc::make_mut(&mut world.services);
        Arc::make_mut(services.get_mut(&key).unwrap()).selector = labels(selector);
    }
    let name = format!("{namespace}/p");
    let policy = object::<AuthorizationPolicy>(&name, 1, &format!("{targets}\nrules: [{{}}]"));
    insert(&mut world.authorization_policies, policy);
    let policy = object::<RequestAuthentication>(&name, 1, targets);
    insert(&mut world.request_authentications, policy);
    world
}

/// Returns the number of policies that hold for a workload.
fn hold(world: &World, namespace: &str, app: &str) -> usize {
    let node = node(namespace, &[("app", app)]);
    let all = snapshot(world.clone()).policies_in_force(&node);
    assert_eq!(all.authorization.len(), all.requests.len());
    all.authorization.len()
}

#[test]
fn target_refs_apply_a_policy_to_the_workloads_of_a_service() {
    for (namespace, targets, wanted) in [
        ("demo", "targetRefs: [{kind: Service, name: a}]", [1, 0, 0]),
        (
            "demo",
            "targetRef: {kind: Service, group: core, name: a}",
            [1, 0, 0],
        ),
        (
            "demo",
            "targetRefs: [{kind: Service, name: c}, {kind: Service, name: a}, {kind: Service, name: a}]",
            [1, 0, 0],
        ),
        // It selects nobody, or is not there.
        ("demo", "targetRefs: [{kind: Service, name: b}]", [0, 0, 0]),
        ("demo", "targetRefs: [{kind: Service, name: z}]", [0, 0, 0]),
        ("other", "targetRefs: [{kind: Service, name: a}]", [0, 0, 0]),
        (
            "demo",
            "targetRefs: [{kind: ServiceEntry, group: networking.istio.io, name: a}]",
            [0, 0, 0],
        ),
        (
            "demo",
            "targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]",
            [0, 0, 0],
        ),
        (
            "demo",
            "targetRefs: [{kind: GatewayClass, group: gateway.networking.k8s.io, name: a}]",
            [0, 0, 0],
        ),
        // Of the root, which is `demo` here.
        ("demo", "selector: {matchLabels: {app: a}}", [1, 0, 1]),
    ] {
        let world = with(namespace, targets);
        let found = [("demo", "a"), ("demo", "b"), ("other", "a")];
        let found = found.map(|(namespace, app)| hold(&world, namespace, app));
        assert_eq!(found, wanted, "{namespace} {targets}");
    }
}

/// A policy whose service is mistyped guards nothing, and is told.
#[test]
fn a_policy_without_a_target_is_reported() {
    let conflicts_of = |targets: &str| {
        let all = snapshot(with("demo", targets)).conflicts().into_iter();
        let conflicts = all.map(|one| {
            assert_eq!(one.metric, "gudgeon_policies_not_enforced_as_written");
            format!("{}: {}", one.objects[0], one.message)
        });
        conflicts.collect::<Vec<_>>()
    };
    assert_eq!(
        conflicts_of("targetRefs: [{kind: Service, name: a}]"),
        [""; 0]
    );
    let another = "targetRef: {kind: GatewayClass, group: gateway.networking.k8s.io, name: a}";
    assert_eq!(conflicts_of(another), [""; 0]);
    let of = |what: &str, name: &str, why: &str| {
        let kinds = ["AuthorizationPolicy", "RequestAuthentication"];
        let message = format!("holds for {what}: the Service {name} of its namespace {why}");
        kinds.map(|kind| format!("{kind} demo/p: {message}"))
    };
    let none = "targetRef: {kind: Service, name: z}";
    assert_eq!(conflicts_of(none), of("no workload", "z", "is not there"));
    let nobody = "targetRef: {kind: Service, name: b}";
    assert_eq!(
        conflicts_of(nobody),
        of("no workload", "b", "selects no workloads")
    );
    // Another one is there.
    let others = "its other targets alone";
    let one = "targetRefs: [{kind: Service, name: a}, {kind: Service, name: z}]";
    assert_eq!(conflicts_of(one), of(others, "z", "is not there"));
    let one = "targetRefs: [{kind: Service, name: b}, {kind: Service, name: a}]";
    assert_eq!(conflicts_of(one), of(others, "b", "selects no workloads"));
}
