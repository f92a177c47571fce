//! Workloads of Pods, and the fields taken from their Nodes and Namespaces.

use std::sync::Arc;

use api::model::{Health, WorkloadKey};
use serde_json::json;

use super::{at, endpoints, node, objects, plain, pod, set, slice};
use crate::kubernetes::index::objects::Objects;
use crate::kubernetes::index::wire::Node;

fn localities(objects: &mut Objects, name: &str) -> Vec<String> {
    let all = endpoints(objects, name);
    all.iter().map(|one| one.locality.to_string()).collect()
}

#[test]
fn a_place_is_said_by_the_pod_then_by_its_node_then_by_the_slice() {
    let mut objects = objects();
    set(&mut objects, plain("a"));
    let mut on = at("10.0.0.1", "p");
    on["nodeName"] = json!("n");
    on["zone"] = json!("z0");
    set(&mut objects, slice("a-1", "a", json!([on])));
    assert_eq!(localities(&mut objects, "a"), ["/z0"]);
    set(
        &mut objects,
        node(
            "n",
            json!({"failure-domain.beta.kubernetes.io/region": "r1", "failure-domain.beta.kubernetes.io/zone": "z1"}),
        ),
    );
    assert_eq!(localities(&mut objects, "a"), ["r1/z1"]);
    let labels = json!({
        "failure-domain.beta.kubernetes.io/region": "r1", "topology.kubernetes.io/region": "r2",
        "topology.kubernetes.io/zone": "z2", "topology.istio.io/subzone": "s2",
    });
    set(&mut objects, node("n", labels));
    assert_eq!(localities(&mut objects, "a"), ["r2/z2/s2"]);
    let mut labelled = pod("p", "10.0.0.1", json!({"istio-locality": "r3.z3.s3"}));
    labelled["spec"]["nodeName"] = json!("n");
    set(&mut objects, labelled.clone());
    assert_eq!(localities(&mut objects, "a"), ["r3/z3/s3"]);
    labelled["metadata"]["labels"] = json!({});
    set(&mut objects, labelled);
    assert_eq!(localities(&mut objects, "a"), ["r2/z2/s2"]);
    // The node's label changes: its endpoints move, and so does the workload.
    set(
        &mut objects,
        node("n", json!({"topology.kubernetes.io/region": "r4"})),
    );
    assert_eq!(localities(&mut objects, "a"), ["r4"]);
    let workloads = objects.contribution().workloads;
    assert_eq!(workloads.values().next().unwrap().locality, "r4".into());
    objects.delete::<Node>(&crate::kind::Key::new("", "n"));
    assert_eq!(localities(&mut objects, "a"), ["/z0"]);
}

#[test]
fn a_pod_whose_address_is_null_has_none_yet() {
    let mut objects = objects();
    for status in [
        json!({"podIP": null}),
        json!({"podIP": null, "podIPs": null}),
        json!({"podIP": null, "podIPs": [{"ip": null}, {}]}),
        json!({"podIP": "", "podIPs": [{"ip": ""}]}),
        json!({"podIPs": [], "conditions": [{"type": null, "status": null}]}),
    ] {
        let mut waiting = pod("p", "10.0.0.1", json!({}));
        waiting["status"] = status.clone();
        set(&mut objects, waiting);
        let workloads = objects.contribution().workloads;
        let workload = workloads.values().next().unwrap();
        assert!(workload.addresses.is_empty(), "{status}");
    }
    let mut known = pod("p", "10.0.0.1", json!({}));
    known["status"]["podIPs"] = json!([{"ip": null}]);
    set(&mut objects, known);
    let workloads = objects.contribution().workloads;
    assert_eq!(workloads.values().next().unwrap().addresses.len(), 1);
}

#[test]
fn a_network_is_said_by_the_pod_or_by_its_namespace() {
    let mut objects = objects();
    let network = "topology.istio.io/network";
    set(&mut objects, plain("a"));
    set(
        &mut objects,
        slice(
            "a-1",
            "a",
            json!([
                at("10.0.0.1", "p"),
                at("10.0.0.2", "q"),
                at("10.0.0.3", "unknown")
            ]),
        ),
    );
    set(&mut objects, pod("p", "10.0.0.1", json!({network: "own"})));
    set(&mut objects, pod("q", "10.0.0.2", json!({})));
    let found = |objects: &mut Objects| -> Vec<Option<String>> {
        let all = endpoints(objects, "a");
        all.iter()
            .map(|one| one.network.as_deref().map(str::to_owned))
            .collect()
    };
    let own = || Some("own".to_owned());
    assert_eq!(found(&mut objects), [own(), None, None]);
    set(
        &mut objects,
        json!({"kind": "Namespace", "metadata": {"name": "demo", "labels": {network: "all"}}}),
    );
    let all = || Some("all".to_owned());
    assert_eq!(found(&mut objects), [own(), all(), all()]);
    set(
        &mut objects,
        json!({"kind": "Namespace", "metadata": {"name": "demo"}}),
    );
    assert_eq!(found(&mut objects), [own(), None, None]);
}

#[test]
fn a_pod_is_a_workload_whether_or_not_it_is_ready() {
    let mut objects = objects();
    let mut object = pod(
        "web-5d9c-x",
        "10.0.0.1",
        json!({"pod-template-hash": "5d9c"}),
    );
    object["metadata"]["ownerReferences"] = json!([
        {"kind": "Thing", "name": "other"}, {"kind": "ReplicaSet", "name": "web-5d9c", "controller": true},
    ]);
    object["metadata"]["annotations"] = json!({"alpha.istio.io/identity": "custom"});
    object["spec"]["containers"] = json!([
        {"name": "c", "ports": [{"name": "api", "containerPort": 8080}, {"containerPort": 9}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
        {"name": "d", "ports": [{"name": "api", "containerPort": 1}]},
    ]);
    object["spec"]["initContainers"] = json!([
        {"name": "once", "ports": [{"name": "once", "containerPort": 2}]},
        {"name": "stays", "restartPolicy": "Always", "ports": [{"name": "stays", "containerPort": 3}]},
    ]);
    object["status"] = json!({"phase": "Pending", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]});
    set(&mut objects, object.clone());
    let key = WorkloadKey {
        cluster: "here".into(),
        namespace: "demo".into(),
        name: "web-5d9c-x".into(),
    };
    let workload = Arc::clone(&objects.contribution().workloads[&key]);
    assert_eq!(workload.addresses.len(), 2);
    assert_eq!(workload.health, Health::Ready);
    object["status"]["conditions"] =
        json!([{"type": "Initialized", "status": "False"}, {"type": "Ready", "status": "False"}]);
    set(&mut objects, object.clone());
    let unready = objects.contribution().workloads[&key].health;
    assert_eq!(unready, Health::NotReady);
    let mut deleted = object.clone();
    deleted["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    deleted["status"]["conditions"][1]["status"] = json!("True");
    set(&mut objects, deleted);
    let ending = objects.contribution().workloads[&key].health;
    assert_eq!(ending, Health::Terminating);
    assert_eq!(workload.owner.as_deref(), Some("web"));
    assert_eq!(workload.account.as_deref(), Some("spiffe://td/custom"));
    assert_eq!(
        workload
            .ports
            .iter()
            .map(|(name, port)| (&**name, *port))
            .collect::<Vec<_>>(),
        [("api", 8080), ("stays", 3)]
    );
    for (kind, name, owner) in [
        ("Job", "tick-28734567", "tick"),
        ("Job", "once", "once"),
        ("StatefulSet", "db", "db"),
        ("ReplicaSet", "alone", "alone"),
    ] {
        object["metadata"]["ownerReferences"] =
            json!([{"kind": kind, "name": name, "controller": true}]);
        object["metadata"]["annotations"] = json!({"alpha.istio.io/identity": "spiffe://x/y"});
        set(&mut objects, object.clone());
        let workload = Arc::clone(&objects.contribution().workloads[&key]);
        assert_eq!(workload.owner.as_deref(), Some(owner));
        assert_eq!(workload.account.as_deref(), Some("spiffe://x/y"));
    }
    // Neither without an address nor with a broken one it stops being one.
    object["status"] = json!({"podIP": "here"});
    set(&mut objects, object.clone());
    assert!(objects.contribution().workloads[&key].addresses.is_empty());
    assert_eq!(objects.problems().count(), 1);
    object["status"] = json!({"phase": "Failed"});
    set(&mut objects, object);
    assert!(objects.contribution().workloads.is_empty());
}
