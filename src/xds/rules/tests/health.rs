//! Endpoints that get requests: those that are ready, and while none is, those that serve until they end (discovery.md §5.1).

use api::model::Health;

use super::*;

/// The addresses of `HEALTH VERSION` endpoints, 10.0.0.1 onwards, that a cluster of the service is served.
fn served(endpoints: &[(Health, &str, u32)], subset: &str) -> Vec<String> {
    let mut world = world();
    let addresses: Vec<_> = (1..=endpoints.len())
        .map(|at| format!("10.0.0.{at}"))
        .collect();
    let places = addresses.iter().zip(endpoints);
    let places: Vec<_> = places
        .map(|(address, (_, version, _))| (address.as_str(), *version))
        .collect();
    service(&mut world, "h.demo", &[(80, "HTTP")], &places);
    let key = ServiceKey::new("h.demo.svc.cluster.local", "demo");
    let shards = Arc::make_mut(&mut world.endpoints).get_mut(&key).unwrap();
    for shard in Arc::make_mut(shards).values_mut() {
        let mut all = shard.to_vec();
        for (endpoint, (health, _, weight)) in all.iter_mut().zip(endpoints) {
            endpoint.health = *health;
            endpoint.weight = *weight;
        }
        *shard = all.into();
    }
    let subsets =
        "host: h\nsubsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]";
    destination_rule(&mut world, "d", 1, subsets);
    let snapshot = snapshot(world);
    let name = format!("outbound|80|{subset}|h.demo.svc.cluster.local");
    let view = snapshot.view(&node("demo", &[]));
    let assignment: ClusterLoadAssignment = decoded(&*view, Type::Endpoint, &name);
    let endpoints = assignment.endpoints.iter();
    let endpoints = endpoints.flat_map(|group| &group.lb_endpoints);
    let mut all: Vec<_> = endpoints
        .map(|endpoint| format!("{endpoint:?}"))
        .map(|text| {
            let at = text.find("10.0.0.").unwrap();
            let digits = text[at + 7..].chars().take_while(char::is_ascii_digit);
            digits.collect::<String>()
        })
        .collect();
    all.sort();
    all
}

#[test]
fn endpoints_that_terminate_are_served_while_none_is_ready() {
    use Health::{NotReady, Ready, Terminating};
    for (endpoints, expected) in [
        (
            &[
                (Ready, "v1", 1),
                (Terminating, "v1", 1),
                (NotReady, "v1", 1),
            ][..],
            &["1"][..],
        ),
        (&[(Terminating, "v1", 1), (NotReady, "v1", 1)], &["1"]),
        (&[(NotReady, "v1", 1)], &[]),
        (&[(Ready, "v1", 0), (Ready, "v1", 2)], &["2"]),
        // One that gets no requests does not keep those from serving that terminate.
        (&[(Ready, "v1", 0), (Terminating, "v1", 1)], &["2"]),
        (&[(Ready, "v1", 1), (Ready, "v2", 1)], &["1", "2"]),
    ] {
        assert_eq!(served(endpoints, ""), expected, "{endpoints:?}");
    }
}

/// Requests to a subset went to a pod that ended, although the service had ready ones.
#[test]
fn a_subset_serves_none_that_terminates_while_the_port_has_a_ready_one() {
    use Health::{Ready, Terminating};
    let none: [&str; 0] = [];
    let mixed = [(Terminating, "v1", 1), (Ready, "v2", 1)];
    assert_eq!(served(&mixed, "v1"), none);
    assert_eq!(served(&mixed, "v2"), ["2"]);
    let all_end = [(Terminating, "v1", 1), (Terminating, "v2", 1)];
    assert_eq!(served(&all_end, "v1"), ["1"]);
}
