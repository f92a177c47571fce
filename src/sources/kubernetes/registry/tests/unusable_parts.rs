//! Objects of which a part cannot be used, in a later version.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{endpoints, key, objects, place, plain, read, served, service, set, slice};
use crate::kind::Kind as _;
use crate::kubernetes::registry::{Endpoints, Event, Objects, Pod, Service};

fn addresses(objects: &mut Objects) -> Vec<String> {
    let all = endpoints(objects, "a");
    all.iter().map(|one| one.address.to_string()).collect()
}

fn ports(objects: &mut Objects) -> Vec<String> {
    let ports = &served(objects, "a").ports;
    let ports = ports.iter();
    ports
        .map(|port| format!("{}:{}", port.name, port.number))
        .collect()
}

#[test]
fn a_port_stays_where_the_new_version_has_none_for_it() {
    let with = |ports: Value| service("a", json!({"clusterIP": "10.96.0.1", "ports": ports}));
    let both = json!([{"name": "http", "port": 80}, {"name": "tcp", "port": 9000}]);
    for (later, expected) in [
        // The field is no list.
        (json!(7), &["http:80", "tcp:9000"][..]),
        (
            json!([{"name": "http", "port": 80, "targetPort": 70000}, {"name": "tcp", "port": 9000}]),
            &["http:80", "tcp:9000"],
        ),
        // Its number is another's now.
        (
            json!([{"name": "http", "port": 0}, {"name": "tcp", "port": 80}]),
            &["tcp:80"],
        ),
        (
            json!([{"name": "tcp", "port": 80}, {"name": "http", "port": 80}]),
            &["tcp:80"],
        ),
        (
            json!([{"name": "new", "port": 70000}, {"name": "tcp", "port": 9000}]),
            &["tcp:9000"],
        ),
        // A port that is not there any more has no place.
        (json!([{"name": "http", "port": 81}]), &["http:81"]),
    ] {
        let mut objects = objects();
        set(&mut objects, with(both.clone()));
        set(&mut objects, with(later.clone()));
        assert_eq!(ports(&mut objects), expected, "{later}");
    }
}

#[test]
fn a_list_that_comes_again_changes_nothing() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    let mut broken = plain("a");
    broken["spec"]["ports"][0]["port"] = json!("web");
    broken["spec"]["clusterIP"] = json!(7);
    let broken: Arc<Service> = read(broken);
    for _ in 0..3 {
        objects.replace([Arc::clone(&broken)]);
        let before = objects.contribution();
        assert_eq!(before, {
            let mut alone = super::objects();
            set(&mut alone, plain("a"));
            alone.contribution()
        });
        assert_eq!(objects.problems().count(), 1);
        assert_eq!(objects.events()[&("Service", Event::Update)], 1);
    }
    // Readers hold the version before.
    assert!(broken.keeps_last() && !read::<Service>(plain("a")).keeps_last());
    objects.delete::<Service>(&key("a"));
    objects.replace([broken]);
    assert!(served(&mut objects, "a").ports.is_empty());
}

#[test]
fn an_endpoint_stays_by_its_pod_or_by_its_place() {
    let of = |pod: &str, address: &str| json!({"addresses": [address], "targetRef": {"kind": "Pod", "name": pod}});
    let good = json!([of("one", "10.0.0.1"), of("two", "10.0.0.2")]);
    let plain_ones = json!([{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]);
    for (first, later, expected) in [
        (
            &good,
            json!([of("two", "nowhere"), of("three", "10.0.0.3")]),
            &["10.0.0.2", "10.0.0.3"][..],
        ),
        (
            &good,
            json!([of("four", "nowhere"), of("one", "10.0.0.1")]),
            &["10.0.0.1"],
        ),
        (
            &plain_ones,
            json!([{"addresses": ["nowhere"]}, {"addresses": ["10.0.0.3"]}]),
            &["10.0.0.1", "10.0.0.3"],
        ),
        (&plain_ones, json!([{"addresses": 7}]), &["10.0.0.1"]),
        (&plain_ones, json!("none"), &["10.0.0.1", "10.0.0.2"]),
        (&plain_ones, json!([]), &[]),
    ] {
        let mut objects = objects();
        set(&mut objects, plain("a"));
        set(&mut objects, slice("a-1", "a", first.clone()));
        set(&mut objects, slice("a-1", "a", later.clone()));
        assert_eq!(addresses(&mut objects), expected, "{later}");
    }
}

#[test]
fn parts_of_older_endpoints_stay_in_their_subset() {
    let of = |subsets: Value| -> Arc<Endpoints> {
        read(json!({"metadata": {"name": "a", "namespace": "demo"}, "subsets": subsets}))
    };
    let ports = json!([{"name": "http", "port": 8080}]);
    let good = of(json!([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": ports}]));
    for (later, expected) in [
        (
            json!([{"addresses": [{"ip": "10.0.0.3"}, {"ip": "x"}], "ports": ports}]),
            &["10.0.0.2", "10.0.0.3"][..],
        ),
        (
            json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "http", "port": "x"}]}]),
            &["10.0.0.1"],
        ),
        (json!([7]), &["10.0.0.1", "10.0.0.2"]),
        (json!(7), &["10.0.0.1", "10.0.0.2"]),
    ] {
        let mut objects = objects();
        set(&mut objects, plain("a"));
        objects.set(Arc::clone(&good));
        let later = of(later);
        assert!(later.keeps_last());
        objects.set(later);
        assert_eq!(addresses(&mut objects), expected);
        let problems: Vec<_> = objects.problems().collect();
        assert!(
            problems[0]
                .refusal
                .message
                .ends_with(": the last good one stays")
        );
    }
}

#[test]
fn a_service_without_an_address_gets_none_by_mistake() {
    let mut objects = objects();
    let with = |address: &str| {
        let ports = json!([{"name": "http", "port": 80}]);
        service("a", json!({"clusterIP": address, "ports": ports}))
    };
    set(&mut objects, with("None"));
    set(&mut objects, with("none"));
    assert!(served(&mut objects, "a").is_headless());
    set(&mut objects, with("10.96.0.1"));
    set(&mut objects, with("none"));
    let service = served(&mut objects, "a");
    assert!(!service.is_headless() && service.addresses_in("here").len() == 1);
}

#[test]
fn addresses_of_balancers_and_ports_of_pods_stay() {
    let mut objects = objects();
    let mut balanced = service(
        "a",
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1", "ports": [{"port": 80}]}),
    );
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}});
    set(&mut objects, balanced.clone());
    let before = objects.contribution().services;
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "lb"}, {}]}});
    set(&mut objects, balanced);
    assert_eq!(
        objects.contribution().services[&place("a")],
        before[&place("a")]
    );
    let pod = |port: Value| -> Arc<Pod> {
        read(json!({
            "metadata": {"name": "p", "namespace": "demo"},
            "spec": {"containers": [{"ports": [{"name": "web", "containerPort": port}]}]},
            "status": {"podIP": "10.0.0.1"},
        }))
    };
    objects.set(pod(json!(8080)));
    let before = objects.contribution().workloads;
    objects.set(pod(json!("web")));
    assert_eq!(objects.contribution().workloads, before);
    assert_eq!(objects.problems().count(), 2);
    let mut moved =
        json!({"metadata": {"name": "p", "namespace": "demo"}, "status": {"podIP": "here"}});
    objects.set::<Pod>(read(moved.clone()));
    let workloads = objects.contribution().workloads;
    let addresses = workloads.values().map(|pod| pod.addresses.len());
    assert_eq!(addresses.collect::<Vec<_>>(), [1]);
    moved["status"] = json!({});
    objects.set::<Pod>(read(moved));
    assert_eq!(objects.problems().count(), 1);
}
