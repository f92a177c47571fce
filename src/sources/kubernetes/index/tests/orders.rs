//! Property: events in any order lead to the contribution of the objects that exist in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{key, objects, service, set};
use crate::contribution::Contribution;
use crate::kind::Key;
use crate::kubernetes::index::objects::Objects;
use crate::kubernetes::index::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};

/// One object of few, in one of a few shapes, so that all kinds interact.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    name: u8,
    shape: u8,
    /// Instead of being set.
    deleted: bool,
    /// A contribution is computed after this step.
    settled: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0..6_u8,
        0..3_u8,
        any::<u8>(),
        prop::bool::weighted(0.25),
        prop::bool::weighted(0.4),
    );
    let step = step.prop_map(|(kind, name, shape, deleted, settled)| Step {
        kind,
        name,
        shape,
        deleted,
        settled,
    });
    prop::collection::vec(step, 1..60)
}

fn ready(shape: u8) -> Value {
    match shape % 3 {
        0 => json!({"ready": true}),
        1 => json!({"ready": false, "serving": true, "terminating": true}),
        _ => json!({"ready": false}),
    }
}

fn object(
    Step {
        kind, name, shape, ..
    }: &Step,
) -> Value {
    let bit = |n: u8| shape >> n & 1 == 1;
    let named = |n: u8| format!("x{}", n % 3);
    let address = |n: u8| format!("10.0.0.{}", n % 3);
    match kind {
        0 if shape % 7 == 0 => service(
            &named(*name),
            json!({"type": "ExternalName", "externalName": address(*shape), "ports": [{"port": 80, "name": "http"}]}),
        ),
        0 => service(
            &named(*name),
            json!({
                "clusterIP": if bit(0) { "None" } else { "10.96.0.1" }, "publishNotReadyAddresses": bit(1),
                "ports": [{"name": if bit(2) { "http" } else { "tcp" }, "port": 80}],
            }),
        ),
        1 => {
            let place = |n: u8| {
                let reference = bit(n).then(|| json!({"kind": "Pod", "name": named(shape >> n)}));
                json!({"addresses": [address(shape >> (n + 1))], "conditions": ready(shape >> n), "targetRef": reference, "nodeName": named(n)})
            };
            super::slice(&named(*name), &named(*shape), json!([place(1), place(4)]))
        }
        2 => json!({
            "kind": "Endpoints", "metadata": {"name": named(*name), "namespace": "demo"},
            "subsets": [{
                "addresses": [{"ip": address(*shape), "nodeName": named(shape >> 2)}],
                "notReadyAddresses": [{"ip": address(shape >> 1), "targetRef": {"kind": "Pod", "name": named(shape >> 3)}}],
                "ports": [{"name": "http", "port": 8080}],
            }],
        }),
        3 => {
            let mut pod = super::pod(
                &named(*name),
                &address(*shape),
                json!({"v": (shape % 2).to_string()}),
            );
            pod["spec"]["hostNetwork"] = json!(bit(3));
            pod["spec"]["nodeName"] = json!(named(shape >> 4));
            pod["status"]["phase"] = json!(if shape % 5 == 0 { "Failed" } else { "Running" });
            pod
        }
        4 => {
            json!({"kind": "Node", "metadata": {"name": named(*name), "labels": {"topology.kubernetes.io/region": address(*shape)}}})
        }
        _ => {
            json!({"kind": "Namespace", "metadata": {"name": "demo", "labels": {"topology.istio.io/network": address(*shape)}}})
        }
    }
}

fn delete(objects: &mut Objects, step: &Step) {
    let name = format!("x{}", step.name % 3);
    match step.kind {
        0 => objects.delete::<Service>(&key(&name)),
        1 => objects.delete::<EndpointSlice>(&key(&name)),
        2 => objects.delete::<Endpoints>(&key(&name)),
        3 => objects.delete::<Pod>(&key(&name)),
        4 => objects.delete::<Node>(&Key::new("", &name)),
        _ => objects.delete::<Namespace>(&Key::new("", "demo")),
    }
}

fn shares_equal_values<K: Ord, T: PartialEq + ?Sized>(
    before: &Arc<BTreeMap<K, Arc<T>>>,
    after: &Arc<BTreeMap<K, Arc<T>>>,
) -> bool {
    let each = after.iter().all(|(key, new)| {
        before
            .get(key)
            .is_none_or(|old| old != new || Arc::ptr_eq(old, new))
    });
    each && (before != after || Arc::ptr_eq(before, after))
}

fn is_kept(before: &Contribution, after: &Contribution) -> bool {
    shares_equal_values(&before.services, &after.services)
        && shares_equal_values(&before.endpoints, &after.endpoints)
        && shares_equal_values(&before.workloads, &after.workloads)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_comes_to_the_same(steps in steps()) {
        let mut stepped = objects();
        let mut there = BTreeMap::new();
        let mut before = stepped.contribution();
        for step in &steps {
            let place = (step.kind, if step.kind == 5 { 0 } else { step.name % 3 });
            if step.deleted {
                delete(&mut stepped, step);
                there.remove(&place);
            } else {
                set(&mut stepped, object(step));
                there.insert(place, step.clone());
            }
            if step.settled {
                let after = stepped.contribution();
                prop_assert!(is_kept(&before, &after));
                before = after;
            }
        }
        let contribution = stepped.contribution();
        for backwards in [false, true] {
            let mut scratch = objects();
            let mut all: Vec<_> = there.values().map(object).collect();
            if backwards {
                all.reverse();
            }
            for object in all {
                set(&mut scratch, object);
            }
            prop_assert_eq!(&scratch.contribution(), &contribution);
        }
        // No trace remains of deleted objects.
        for step in there.values() {
            delete(&mut stepped, step);
        }
        prop_assert_eq!(stepped.contribution(), Contribution::default());
        prop_assert!(stepped.is_empty());
    }
}
