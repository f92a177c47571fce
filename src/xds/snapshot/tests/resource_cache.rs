//! Proxies that say something else of themselves than all others, one after the other.

use std::sync::Weak;

use api::model::Resolution;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};

use super::super::resource_cache::SPARE_ENTRIES;
use super::*;

fn other(number: usize) -> Arc<Node> {
    let text = |text: String| Value {
        kind: Some(Kind::StringValue(text)),
    };
    let fields = [
        ("TLS_CLIENT_KEY", format!("/certs/{number}/key.pem")),
        ("IDLE_TIMEOUT", format!("{}s", number + 1)),
        ("NETWORK", format!("n{number}")),
    ];
    let fields = fields.map(|(key, value)| (key.to_owned(), text(value)));
    let read = Node::read(Some(&core::Node {
        id: format!("sidecar~10.0.0.9~x.demo~d{number}.svc.cluster.local"),
        locality: Some(core::Locality {
            region: format!("r{number}"),
            ..core::Locality::default()
        }),
        metadata: Some(Struct {
            fields: fields.into(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

fn all(view: &dyn View) -> Vec<Arc<Set>> {
    // A sidecar has no secrets.
    let kinds = Type::ALL.iter().filter(|kind| **kind != Type::Secret);
    kinds.map(|kind| view.all(*kind)).collect()
}

fn assert_same_bytes(one: &[Arc<Set>], other: &[Arc<Set>]) {
    for (one, other) in one.iter().zip(other) {
        assert!(!one.is_empty() && one.len() == other.len());
        for (one, other) in one.iter().zip(other.iter()) {
            assert!(Arc::ptr_eq(one, other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn nothing_is_kept_for_those_who_are_gone_but_a_few() {
    let mesh = "enableAutoMtls: true\nlocalityLbSetting: {enabled: true}\n";
    let world = || {
        let mut world = world(mesh);
        let mut b = service("b", &[(80, "HTTP"), (9000, "TCP")], Resolution::Static);
        at(&mut b, &["10.1.0.1"]);
        let endpoints = vec![
            endpoint("10.0.0.1", 80, "p80"),
            endpoint("10.0.0.9", 9, "p9000"),
        ];
        add(&mut world, b, endpoints);
        world
    };
    let snapshot = Snapshot::new(world(), Arc::new(Settings::default()));
    let stays = snapshot.view(&other(0));
    let first = all(&*stays);
    let mut gone: Vec<Weak<Resource>> = Vec::new();
    let mut of_each = 0;
    for number in 1..600 {
        let view = snapshot.view(&other(number));
        let sets = all(&*view);
        of_each = sets.iter().map(|set| set.len()).sum();
        gone.extend(sets.iter().flat_map(|set| set.iter()).map(Arc::downgrade));
    }
    let places: BTreeSet<_> = gone
        .iter()
        .filter_map(Weak::upgrade)
        .map(|resource| Arc::as_ptr(&resource))
        .collect();
    assert!(places.len() <= SPARE_ENTRIES * of_each, "{}", places.len());
    assert!(snapshot.assignment_count() <= 4 * (SPARE_ENTRIES + 1));
    // Whoever is there shares with those who come, and with the next snapshot.
    assert_same_bytes(&first, &all(&*snapshot.view(&other(0))));
    let next = snapshot.next(world(), None, None).snapshot;
    let later = next.view(&other(0));
    drop((snapshot, stays));
    assert_same_bytes(&first, &all(&*later));
    let hosts = [Arc::from("none.demo.svc.cluster.local")].into();
    let next = next.next(world(), Some(&hosts), None);
    assert!(!next.full);
    let last = next.snapshot.view(&other(0));
    drop(later);
    assert_same_bytes(&first, &all(&*last));
}
