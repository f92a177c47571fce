//! The endpoints that a client prefers: by labels that they have in common, and by zones (discovery.md §15).

use api::istio::mesh::v1alpha1::MeshConfig;
use api::istio::networking::v1alpha3::LocalityLoadBalancerSetting;
use envoy_types::pb::envoy::config::cluster::v3::cluster::common_lb_config::LocalityConfigSpecifier;

use super::*;

const A: &str = "outbound|80||a.demo.svc.cluster.local";

/// Three endpoints in `region-v1`, one in `region-v2`, with labels each.
fn labelled() -> World {
    let mut world = world();
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    let endpoint = |address: &str, place: &str, pairs: &[(&str, &str)]| {
        let mut one = Endpoint::new(EndpointAddress::read(address), 80, "p80");
        one.locality = Locality::from(place);
        one.labels = Arc::new(labels(pairs));
        one
    };
    let all = vec![
        endpoint("10.0.1.1", "r1/z1", &[("version", "v1"), ("tier", "a")]),
        endpoint("10.0.1.2", "r1/z2", &[("version", "v1"), ("tier", "b")]),
        endpoint("10.0.1.3", "r2/z1", &[("version", "v2"), ("tier", "a")]),
        endpoint("10.0.1.4", "r3/z1", &[]),
    ];
    let shards = EndpointShards::from([("Kubernetes".into(), all.into())]);
    Arc::make_mut(&mut world.endpoints).insert(key, Arc::new(shards));
    world
}

fn client(place: &str, pairs: &[(&str, &str)]) -> Arc<Node> {
    let mut node = (*node("demo", pairs)).clone();
    node.locality = Locality::from(place);
    Arc::new(node)
}

/// Last parts of addresses by their level.
fn levels(view: &dyn View) -> Vec<String> {
    use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
    let assignment: ClusterLoadAssignment = decoded(view, Type::Endpoint, A);
    let mut all: Vec<Vec<String>> = vec![Vec::new(); 8];
    for group in &assignment.endpoints {
        assert_eq!(
            group.load_balancing_weight.unwrap().value as usize,
            group.lb_endpoints.len()
        );
        for endpoint in &group.lb_endpoints {
            let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
                panic!("an endpoint");
            };
            let text = format!("{:?}", endpoint.address);
            let last = text.split("10.0.1.").nth(1).unwrap()[..1].to_owned();
            all[group.priority as usize].push(last);
        }
    }
    while all.last().is_some_and(Vec::is_empty) {
        all.pop();
    }
    let sorted = all.into_iter().map(|mut level| {
        level.sort();
        level.concat()
    });
    sorted.collect()
}

#[test]
fn endpoints_with_the_labels_of_a_client_come_first() {
    for (setting, place, pairs, wanted) in [
        (
            "failoverPriority: [version]",
            "",
            &[("version", "v1")][..],
            "12 34",
        ),
        (
            "failoverPriority: [version]",
            "",
            &[("version", "v2")],
            "3 124",
        ),
        // It has none, and so has the last.
        ("failoverPriority: [version]", "", &[], "4 123"),
        (
            "failoverPriority: [version, tier]",
            "",
            &[("version", "v1"), ("tier", "a")],
            "1 2 34",
        ),
        (
            "failoverPriority: [tier, version]",
            "",
            &[("version", "v1"), ("tier", "a")],
            "1 3 24",
        ),
        (
            "failoverPriority: [version=v2]",
            "",
            &[("version", "v1")],
            "3 124",
        ),
        // Where something is can be asked for as a label.
        (
            "failoverPriority: [topology.kubernetes.io/region, topology.kubernetes.io/zone]",
            "r1/z2",
            &[],
            "2 1 34",
        ),
        // It does not count by itself then.
        (
            "failoverPriority: [tier]",
            "r1/z2",
            &[("tier", "a")],
            "13 24",
        ),
        // Unless others are to take over.
        (
            "failoverPriority: [tier], failover: [{from: r1, to: r3}]",
            "r1/z1",
            &[("tier", "b")],
            "2 1 4 3",
        ),
        (
            "failoverPriority: [version], enabled: false",
            "",
            &[("version", "v1")],
            "1234",
        ),
    ] {
        let mut world = labelled();
        let spec = format!(
            "host: a\ntrafficPolicy: {{outlierDetection: {{interval: 1s}}, loadBalancer: {{localityLbSetting: {{{setting}}}}}}}"
        );
        destination_rule(&mut world, "d", 1, &spec);
        let view = snapshot(world).view(&client(place, pairs));
        assert_eq!(
            levels(&*view).join(" "),
            wanted,
            "{setting} {place} {pairs:?}"
        );
    }
}

#[test]
fn the_mesh_may_name_labels_for_all_services() {
    let mut world = labelled();
    let setting = LocalityLoadBalancerSetting {
        failover_priority: vec!["version".to_owned()],
        enabled: Some(api::google::protobuf::BoolValue { value: true }),
        ..LocalityLoadBalancerSetting::default()
    };
    world.mesh = Arc::new(MeshConfig {
        locality_lb_setting: Some(setting),
        ..(*world.mesh).clone()
    });
    let view = snapshot(world).view(&client("", &[("version", "v2")]));
    assert_eq!(levels(&*view), ["3", "124"]);
}

#[test]
fn zones_are_left_to_envoy_and_regions_are_not() {
    for (setting, pairs, wanted) in [
        ("enabled: true", &[][..], "12 34"),
        ("failover: [{from: r1, to: r3}]", &[], "12 4 3"),
        ("failoverPriority: [tier]", &[("tier", "b")], "2 1 34"),
        ("enabled: false", &[], "1234"),
    ] {
        let mut world = labelled();
        let spec = format!(
            "host: a\ntrafficPolicy: {{loadBalancer: {{zoneAwareLbSetting: {{{setting}, minClusterSize: 3}}}}}}"
        );
        destination_rule(&mut world, "d", 1, &spec);
        let view = snapshot(world).view(&client("r1/z1", pairs));
        assert_eq!(levels(&*view).join(" "), wanted, "{setting}");
        let common = cluster(&*view, A).common_lb_config.unwrap();
        let Some(LocalityConfigSpecifier::ZoneAwareLbConfig(zones)) =
            common.locality_config_specifier
        else {
            panic!("{setting}");
        };
        assert_eq!(zones.min_cluster_size.unwrap().value, 3);
        let off = zones.routing_enabled.map(|percent| percent.value);
        assert_eq!(off, setting.contains("false").then_some(0.0));
    }
}

/// Proxies share what is made for them however they are labelled, but for labels that a rule names; and those are all that a
/// client can make more of.
#[test]
fn labels_that_no_rule_names_do_not_split_the_cache() {
    let mut world = labelled();
    destination_rule(
        &mut world,
        "d",
        1,
        "host: a\ntrafficPolicy: {loadBalancer: {localityLbSetting: {failoverPriority: [version]}}}",
    );
    let snapshot = snapshot(world);
    let of = |name: &str, pairs: &[(&str, &str)]| {
        let view = snapshot.view(&client("", pairs));
        (view.get(Type::Endpoint, name).unwrap(), view)
    };
    let b = "outbound|80||b.demo.svc.cluster.local";
    let (one, _kept) = of(A, &[("version", "v1"), ("pod", "1")]);
    let (other, _kept) = of(A, &[("version", "v1"), ("pod", "2")]);
    assert!(Arc::ptr_eq(&one, &other));
    let (third, _kept) = of(A, &[("version", "v2")]);
    assert_ne!(one, third);
    // And services of which no rule says it have one for all.
    let (one, _kept) = of(b, &[("version", "v1")]);
    let (other, _kept) = of(b, &[("version", "v2")]);
    assert!(Arc::ptr_eq(&one, &other));
    for at in 0..1000 {
        let _gone = of(A, &[("version", &format!("x{at}"))]);
    }
    assert!(
        snapshot.assignment_count() < 200,
        "{}",
        snapshot.assignment_count()
    );
}

/// Names that proxies resolve have their levels in the cluster.
#[test]
fn resolved_names_have_levels_too() {
    let mut world = labelled();
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    let services = Arc::make_mut(&mut world.services);
    Arc::make_mut(services.get_mut(&key).unwrap()).resolution = Resolution::Dns;
    destination_rule(
        &mut world,
        "d",
        1,
        "host: a\ntrafficPolicy: {loadBalancer: {localityLbSetting: {failoverPriority: [version]}}}",
    );
    let snapshot = snapshot(world);
    let first = |version: &str| {
        let view = snapshot.view(&client("", &[("version", version)]));
        let assignment = cluster(&*view, A).load_assignment.unwrap();
        let groups = assignment.endpoints.iter();
        groups
            .filter(|group| group.priority == 0)
            .map(|group| group.lb_endpoints.len())
            .sum::<usize>()
    };
    assert_eq!(["v1", "v2", "v3"].map(first), [2, 1, 4]);
}
