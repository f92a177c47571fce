//! Endpoints of slices and of Endpoints.

use std::sync::Arc;

use api::model::{Labels, TlsMode};
use serde_json::{Value, json};

use super::{at, brief, endpoints, key, node, objects, place, plain, pod, service, set, slice};
use crate::kubernetes::index::wire::{EndpointSlice, Pod, Service};

#[test]
fn an_endpoint_is_served_before_its_pod_is_known() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    set(
        &mut objects,
        slice(
            "a-1",
            "a",
            json!([at("10.0.0.1", "p"), {"addresses": ["10.0.0.2"]}]),
        ),
    );
    let before = endpoints(&mut objects, "a");
    assert_eq!(
        brief(&mut objects, "a"),
        ["10.0.0.1:8080 HEALTHY", "10.0.0.2:8080 HEALTHY"]
    );
    assert!(
        before
            .iter()
            .all(|one| one.pod.is_none() && one.labels.is_empty())
    );
    // The endpoint keeps the name of its missing pod.
    assert_eq!(before[0].unknown_pod.as_deref(), Some("demo/p"));
    assert_eq!(before[1].unknown_pod, None);
    assert_eq!(objects.podless(), 1);
    let labels = json!({"app": "a", "security.istio.io/tlsMode": "istio"});
    set(&mut objects, pod("p", "10.0.0.1", labels.clone()));
    set(&mut objects, pod("q", "10.0.0.2", labels));
    let service = objects.contribution().services;
    let after = endpoints(&mut objects, "a");
    for (one, name) in after.iter().zip(["p", "q"]) {
        assert_eq!(one.pod.as_deref(), Some(&*format!("demo/{name}")));
        assert_eq!(one.unknown_pod, None);
        assert_eq!(
            one.account.as_deref(),
            Some(&*format!("spiffe://td/ns/demo/sa/{name}"))
        );
        assert_eq!(one.workload.as_deref(), Some(name));
        assert_eq!(one.tls, TlsMode::Istio);
        assert_eq!(one.labels.len(), 2);
    }
    assert!(Arc::ptr_eq(&service, &objects.contribution().services));
    assert_eq!((objects.podless(), objects.ever_podless()), (0, 1));
    // The pod goes before its endpoint.
    objects.delete::<Pod>(&key("p"));
    objects.delete::<Pod>(&key("q"));
    assert_eq!(endpoints(&mut objects, "a"), before);
}

#[test]
fn an_address_moves_to_another_pod() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    set(
        &mut objects,
        slice("a-1", "a", json!([{"addresses": ["10.0.0.1"]}])),
    );
    let mut old = pod("old", "10.0.0.1", json!({}));
    set(&mut objects, old.clone());
    let mut named = || endpoints(&mut objects, "a")[0].pod.clone();
    assert_eq!(named().as_deref(), Some("demo/old"));
    // The pod has ended, but its object still exists.
    old["status"]["phase"] = json!("Succeeded");
    set(&mut objects, old.clone());
    assert_eq!(endpoints(&mut objects, "a")[0].pod, None);
    set(&mut objects, pod("new", "10.0.0.1", json!({})));
    assert_eq!(
        endpoints(&mut objects, "a")[0].pod.as_deref(),
        Some("demo/new")
    );
    // Two pods claim the address: the newer one has it.
    old["status"]["phase"] = json!("Running");
    old["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    set(&mut objects, old);
    let mut new = pod("new", "10.0.0.1", json!({}));
    new["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:01Z");
    set(&mut objects, new);
    assert_eq!(
        endpoints(&mut objects, "a")[0].pod.as_deref(),
        Some("demo/new")
    );
    set(&mut objects, pod("new", "10.0.0.9", json!({})));
    assert_eq!(
        endpoints(&mut objects, "a")[0].pod.as_deref(),
        Some("demo/old")
    );
    // A pod on the host's network has no address of its own.
    for (on_host, found) in [(true, None), (false, Some("demo/old"))] {
        let mut old = pod("old", "10.0.0.1", json!({}));
        old["spec"]["hostNetwork"] = json!(on_host);
        set(&mut objects, old);
        assert_eq!(endpoints(&mut objects, "a")[0].pod.as_deref(), found);
    }
}

#[test]
fn pods_of_one_host_are_told_apart_by_their_names() {
    let mut objects = objects();
    for (name, port) in [("a", 8080), ("b", 9090)] {
        set(&mut objects, plain(name));
        let mut slice = slice(name, name, json!([at("192.0.2.1", name)]));
        slice["ports"][0]["port"] = json!(port);
        set(&mut objects, slice);
        let mut pod = pod(name, "192.0.2.1", json!({"app": name}));
        pod["spec"]["hostNetwork"] = json!(true);
        set(&mut objects, pod);
    }
    // An address without a `targetRef` matches neither pod.
    set(&mut objects, plain("c"));
    set(
        &mut objects,
        slice("c", "c", json!([{"addresses": ["192.0.2.1"]}])),
    );
    for (name, port) in [("a", 8080), ("b", 9090)] {
        let [one] = &endpoints(&mut objects, name)[..] else {
            panic!("{name}");
        };
        assert_eq!(one.port, port);
        assert_eq!(*one.labels, Labels::from([("app".into(), name.into())]));
        assert_eq!(
            one.account.as_deref(),
            Some(&*format!("spiffe://td/ns/demo/sa/{name}"))
        );
    }
    assert_eq!(endpoints(&mut objects, "c")[0].pod, None);
}

#[test]
fn terminating_endpoints_differ_from_unready_ones() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    let of = |ready: Value, serving: Value, terminating: Value| json!({"ready": ready, "serving": serving, "terminating": terminating});
    let (yes, no, unsaid) = (json!(true), json!(false), Value::Null);
    for (conditions, health) in [
        (Value::Null, "HEALTHY"),
        (
            of(unsaid.clone(), unsaid.clone(), unsaid.clone()),
            "HEALTHY",
        ),
        (of(yes.clone(), yes.clone(), no.clone()), "HEALTHY"),
        // With `publishNotReadyAddresses`.
        (of(yes.clone(), yes.clone(), yes.clone()), "HEALTHY"),
        (of(no.clone(), yes.clone(), yes.clone()), "DRAINING"),
        (of(no.clone(), no.clone(), yes.clone()), "UNHEALTHY"),
        (of(no.clone(), yes.clone(), no.clone()), "UNHEALTHY"),
        (of(no.clone(), unsaid.clone(), yes.clone()), "UNHEALTHY"),
        (of(no.clone(), unsaid.clone(), unsaid.clone()), "UNHEALTHY"),
    ] {
        set(
            &mut objects,
            slice(
                "a-1",
                "a",
                json!([{"addresses": ["10.0.0.1"], "conditions": conditions}]),
            ),
        );
        assert_eq!(
            brief(&mut objects, "a"),
            [format!("10.0.0.1:8080 {health}")],
            "{conditions}"
        );
    }
    set(&mut objects, slice("a-1", "a", Value::Null));
    let contribution = objects.contribution();
    assert!(contribution.endpoints.is_empty() && contribution.services.contains_key(&place("a")));
}

#[test]
fn slices_of_a_service_count_together() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    let ending = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false, "serving": true, "terminating": true}});
    set(
        &mut objects,
        slice("a-1", "a", json!([ending, at("10.0.0.2", "q")])),
    );
    set(
        &mut objects,
        slice(
            "a-2",
            "a",
            json!([at("10.0.0.1", "p"), at("10.0.0.3", "r")]),
        ),
    );
    let mut six = slice("a-6", "a", json!([at("fd00::1", "p")]));
    six["addressType"] = json!("IPv6");
    set(&mut objects, six);
    let mut names = slice("a-n", "a", json!([{"addresses": ["x.example"]}]));
    names["addressType"] = json!("FQDN");
    set(&mut objects, names);
    set(
        &mut objects,
        slice("b-1", "b", json!([at("10.0.0.9", "z")])),
    );
    let all = [
        "10.0.0.1:8080 HEALTHY",
        "10.0.0.2:8080 HEALTHY",
        "10.0.0.3:8080 HEALTHY",
        "fd00::1:8080 HEALTHY",
    ];
    assert_eq!(brief(&mut objects, "a"), all);
    assert_eq!(objects.problems().count(), 0);
    // A slice without its Service has no effect.
    assert!(!objects.contribution().endpoints.contains_key(&place("b")));
    objects.delete::<EndpointSlice>(&key("a-2"));
    assert_eq!(
        brief(&mut objects, "a"),
        [
            "10.0.0.1:8080 DRAINING",
            "10.0.0.2:8080 HEALTHY",
            "fd00::1:8080 HEALTHY"
        ]
    );
    // The slice changes its service.
    set(
        &mut objects,
        slice("a-1", "b", json!([at("10.0.0.2", "q")])),
    );
    assert_eq!(brief(&mut objects, "a"), ["fd00::1:8080 HEALTHY"]);
    objects.delete::<Service>(&key("a"));
    let contribution = objects.contribution();
    assert!(contribution.services.is_empty() && contribution.endpoints.is_empty());
}

#[test]
fn ports_of_slices_join_by_name() {
    let mut objects = objects();
    let ports = json!([{"name": "http", "port": 80}, {"name": "tcp", "port": 90}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    set(
        &mut objects,
        service("a", json!({"clusterIP": "10.96.0.1", "ports": ports})),
    );
    let mut object = slice(
        "a-1",
        "a",
        json!([{"addresses": ["10.0.0.1", "name.example"]}]),
    );
    object["ports"] = json!([
        {"name": "tcp", "port": 9090}, {"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "other", "port": 1},
        {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": null}, {"name": "http", "port": 99999},
    ]);
    set(&mut objects, object);
    let found: Vec<_> = endpoints(&mut objects, "a")
        .iter()
        .map(|one| (one.port_name.to_string(), one.port))
        .collect();
    assert_eq!(found, [("http".to_owned(), 8080), ("tcp".to_owned(), 9090)]);
    let problem = objects.problems().next().unwrap();
    assert_eq!(problem.kind, "EndpointSlice");
    assert_eq!(
        problem.refusal.to_string(),
        "ports.port: want a port, 1 to 65535, got 99999"
    );
}

#[test]
fn endpoints_count_where_there_is_no_slice() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    let mut object = json!({
        "kind": "Endpoints", "metadata": {"name": "a", "namespace": "demo"},
        "subsets": [{
            "addresses": [{"ip": "10.0.0.1", "nodeName": "n", "targetRef": {"kind": "Pod", "name": "p"}}],
            "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"name": "http", "port": 8080}],
        }],
    });
    set(&mut objects, object.clone());
    set(&mut objects, pod("p", "10.0.0.1", json!({})));
    set(
        &mut objects,
        node("n", json!({"topology.kubernetes.io/region": "r"})),
    );
    assert_eq!(
        brief(&mut objects, "a"),
        ["10.0.0.1:8080 HEALTHY", "10.0.0.2:8080 UNHEALTHY"]
    );
    let found = endpoints(&mut objects, "a");
    assert_eq!(found[0].pod.as_deref(), Some("demo/p"));
    assert_eq!(found[0].locality, "r".into());
    let mut publishes = plain("a");
    publishes["spec"]["publishNotReadyAddresses"] = json!(true);
    set(&mut objects, publishes);
    assert_eq!(
        brief(&mut objects, "a"),
        ["10.0.0.1:8080 HEALTHY", "10.0.0.2:8080 HEALTHY"]
    );
    set(
        &mut objects,
        slice("a-1", "a", json!([{"addresses": ["10.0.0.7"]}])),
    );
    assert_eq!(brief(&mut objects, "a"), ["10.0.0.7:8080 HEALTHY"]);
    objects.delete::<EndpointSlice>(&key("a-1"));
    object["subsets"] = Value::Null;
    set(&mut objects, object);
    assert!(endpoints(&mut objects, "a").is_empty());
}

#[test]
fn a_list_takes_the_place_of_what_was_there() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    set(&mut objects, plain("b"));
    let before = objects.contribution();
    objects.replace([
        super::read::<Service>(plain("b")),
        super::read::<Service>(plain("c")),
    ]);
    let after = objects.contribution();
    assert_eq!(
        after.services.keys().collect::<Vec<_>>(),
        [&place("b"), &place("c")]
    );
    assert!(Arc::ptr_eq(
        &before.services[&place("b")],
        &after.services[&place("b")]
    ));
    assert_eq!(objects.counts()["Service"], 2);
    let events: Vec<_> = objects.events().values().copied().collect();
    assert_eq!(events, [3, 1]);
}

/// A service with ports `p1` to `pN`.
fn of_ports(count: usize) -> (Value, Vec<Value>) {
    let ports: Vec<_> = (1..=count)
        .map(|at| json!({"name": format!("p{at}"), "port": at}))
        .collect();
    let spec = json!({"clusterIP": "10.96.0.1", "ports": ports});
    (service("a", spec), ports)
}

fn addresses(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|at| format!("10.{}.{}.{}", at >> 16, at >> 8 & 255, at & 255))
}

#[test]
fn a_service_has_as_many_places_as_there_is_room_for() {
    for (count, used) in [(250, 400), (4_096, 24)] {
        for slices in [false, true] {
            let mut objects = objects();
            let (mut one, ports) = of_ports(count);
            set(&mut objects, one.clone());
            for (more, expected) in [(0, None), (1, Some(used + 1))] {
                let all = addresses(used + more);
                let object = if slices {
                    let all: Vec<_> = all.map(|text| json!({"addresses": [text]})).collect();
                    let mut object = slice("a-1", "a", json!(all));
                    object["ports"] = json!(ports);
                    object
                } else {
                    let all: Vec<_> = all.map(|text| json!({"ip": text})).collect();
                    let name = json!({"name": "a", "namespace": "demo"});
                    json!({
                        "kind": "Endpoints", "metadata": name,
                        "subsets": [{"addresses": all, "ports": ports}],
                    })
                };
                set(&mut objects, object);
                assert_eq!(endpoints(&mut objects, "a").len(), count * used);
                let problems: Vec<_> = objects.problems().collect();
                let messages: Vec<_> = problems
                    .iter()
                    .map(|one| (one.kind, one.refusal.to_string()))
                    .collect();
                let wanted = expected.map(|all| {
                    format!(
                        "the first {used} of {all} addresses are used: more than 100000 places with its ports: split the service"
                    )
                });
                let wanted = wanted.into_iter().map(|message| ("Service", message));
                let wanted: Vec<_> = wanted.collect();
                assert_eq!(messages, wanted);
            }
            // With fewer ports there is room for all.
            one["spec"]["ports"] = json!(ports[..1]);
            set(&mut objects, one);
            assert_eq!(endpoints(&mut objects, "a").len(), used + 1);
            assert_eq!(objects.problems().count(), 0);
        }
    }
}

/// Endpoints written by hand must name their ports as the service does, or they match none.
#[test]
fn endpoints_for_other_ports_are_reported() {
    for slices in [false, true] {
        let mut objects = objects();
        let (one, _) = of_ports(1);
        set(&mut objects, one);
        let mut of = |ports: Value| {
            let object = if slices {
                let mut object = slice("a-1", "a", json!([{"addresses": ["10.0.0.1"]}]));
                object["ports"] = ports;
                object
            } else {
                let subset = json!({"addresses": [{"ip": "10.0.0.1"}], "ports": ports});
                json!({"kind": "Endpoints", "metadata": {"name": "a", "namespace": "demo"}, "subsets": [subset]})
            };
            set(&mut objects, object);
            let count = endpoints(&mut objects, "a").len();
            let messages = objects.problems().map(|one| one.refusal.to_string());
            (count, messages.collect::<Vec<_>>())
        };
        let own = of_ports(1).1;
        let name = own[0]["name"].as_str().unwrap().to_owned();
        let message = format!(
            "no endpoints: the addresses have ports named \"web\", and the Service has ports named {name:?}"
        );
        assert_eq!(of(json!([{"name": "web", "port": 80}])), (0, vec![message]));
        assert_eq!(of(json!([])), (0, vec![]));
        assert_eq!(of(json!(own)), (1, vec![]));
    }
}

#[test]
fn ports_that_a_service_does_not_have_take_no_room() {
    let mut objects = objects();
    let (one, ports) = of_ports(2);
    set(&mut objects, one);
    let all: Vec<_> = addresses(2)
        .map(|text| json!({"addresses": [text]}))
        .collect();
    let mut object = slice("a-1", "a", json!(all));
    let others = (1..100_000).map(|at| json!({"name": format!("x{at}"), "port": 1}));
    object["ports"] = json!(others.chain(ports).collect::<Vec<_>>());
    set(&mut objects, object);
    assert_eq!(endpoints(&mut objects, "a").len(), 4);
    assert_eq!(objects.problems().count(), 0);
}
