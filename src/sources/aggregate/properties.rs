//! Property: for any order of contributions the world is that of the last ones, and each step states what changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::mesh;
use api::model::{Changes, PushRequest, Registry, TriggerReason, World};
use proptest::prelude::*;

use super::Registries;
use super::tests::{ContributionBuilder, endpoint, pod, registries, service, source};
use crate::contribution::{Contribution, SourceId};

#[derive(Clone, Debug)]
enum Object {
    Service {
        host: u8,
        port: u8,
        kubernetes: bool,
    },
    Endpoints {
        host: u8,
        last: Vec<u8>,
    },
    Pod {
        name: u8,
        app: u8,
    },
    Selecting {
        name: u8,
        host: u8,
        app: u8,
    },
    Listing {
        name: u8,
        host: u8,
        last: Vec<u8>,
    },
    Place {
        name: u8,
        app: u8,
        last: u8,
    },
    Sidecar {
        name: u8,
        port: u8,
    },
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<Object>),
    Remove(usize),
    TrustDomain(bool),
}

fn ids() -> [SourceId; 4] {
    [
        source(Registry::External, "local"),
        source(Registry::Kubernetes, "local"),
        source(Registry::Kubernetes, "east"),
        source(Registry::Memory, "v2-debug"),
    ]
}

fn host(of: u8) -> String {
    format!("s{of}.example")
}

fn contribution(of: &SourceId, objects: &[Object]) -> Contribution {
    let cluster = of.cluster.as_str();
    let head = |of: &u8| {
        let host = host(*of);
        format!("hosts: [{host}], resolution: STATIC, ports: [{{number: 80, name: http}}]")
    };
    let mut builder = ContributionBuilder::default();
    for object in objects {
        builder = match object {
            Object::Service {
                host: name,
                port,
                kubernetes,
            } => {
                let mut one = service(&host(*name), cluster, &format!("10.9.{port}.{name}"));
                one.ports[0].number = 80 + u16::from(*port);
                if !kubernetes {
                    one.registry = of.registry;
                }
                builder.service(one)
            }
            Object::Endpoints { host: of, last } => {
                let all = last.iter().map(|last| endpoint(&format!("10.0.0.{last}")));
                builder.endpoints(&host(*of), all.collect())
            }
            Object::Pod { name, app } => builder.pod(pod(
                cluster,
                &format!("p{name}"),
                &format!("10.0.1.{name}"),
                &format!("app={app}"),
            )),
            Object::Selecting { name, host, app } => builder.entry(
                &format!("e{name}"),
                &format!(
                    "{{{}, workloadSelector: {{labels: {{app: '{app}'}}}}}}",
                    head(host)
                ),
            ),
            Object::Listing { name, host, last } => {
                let all: Vec<_> = last
                    .iter()
                    .map(|last| format!("{{address: 10.0.2.{last}, serviceAccount: a}}"))
                    .collect();
                builder.entry(
                    &format!("e{name}"),
                    &format!("{{{}, endpoints: [{}]}}", head(host), all.join(",")),
                )
            }
            Object::Place { name, app, last } => builder.place(
                &format!("w{name}"),
                &format!("{{address: 10.0.3.{last}, labels: {{app: '{app}'}}}}"),
            ),
            Object::Sidecar { name, port } => builder.sidecar(
                &format!("c{name}"),
                &format!(
                    "{{ingress: [{{port: {{number: {}, name: http}}, defaultEndpoint: ':80'}}]}}",
                    80 + port
                ),
            ),
        };
    }
    builder.0
}

fn object() -> impl Strategy<Value = Object> {
    let last = || prop::collection::vec(1u8..4, 0..3);
    prop_oneof![
        (0u8..3, 0u8..2, any::<bool>()).prop_map(|(host, port, kubernetes)| Object::Service {
            host,
            port,
            kubernetes
        }),
        (0u8..3, last()).prop_map(|(host, last)| Object::Endpoints { host, last }),
        (0u8..3, 0u8..2).prop_map(|(name, app)| Object::Pod { name, app }),
        (0u8..3, 0u8..3, 0u8..2).prop_map(|(name, host, app)| Object::Selecting {
            name,
            host,
            app
        }),
        (0u8..3, 0u8..3, last()).prop_map(|(name, host, last)| Object::Listing {
            name,
            host,
            last
        }),
        (0u8..2, 0u8..2, 1u8..3).prop_map(|(name, app, last)| Object::Place { name, app, last }),
        (0u8..2, 0u8..2).prop_map(|(name, port)| Object::Sidecar { name, port }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..4, prop::collection::vec(object(), 0..6))
            .prop_map(|(source, objects)| Step::Put(source, objects)),
        1 => (0usize..4).prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::TrustDomain),
    ]
}

/// Asserts that the changes state each difference, and nothing else.
fn assert_changes(before: &World, after: &World, changes: &Changes) {
    let pushes = changes.pushes(|_| true);
    let full = pushes
        .iter()
        .any(|change| matches!(change, PushRequest::Full(_)));
    let global = pushes.contains(&PushRequest::Full(TriggerReason::Global));
    let same = before.services == after.services
        && before.sidecars == after.sidecars
        && before.mesh == after.mesh;
    assert!(same || full, "{changes}");
    assert!(!same || !full || global, "{changes}");
    let reported: Vec<_> = pushes
        .iter()
        .filter_map(|change| match change {
            PushRequest::Endpoints(hosts) => Some(hosts),
            PushRequest::Full(_) | PushRequest::Proxy(_) => None,
        })
        .flatten()
        .cloned()
        .collect();
    if !full {
        let keys = after.services.keys();
        let changed: Vec<_> = keys
            .filter(|key| before.endpoints.get(*key) != after.endpoints.get(*key))
            .map(|key| key.hostname.clone())
            .collect();
        assert_eq!(reported, changed);
        let proxies = pushes
            .iter()
            .filter(|change| matches!(change, PushRequest::Proxy(_)));
        assert_eq!(proxies.count() > 0, before.workloads != after.workloads);
    }
    assert!(
        after
            .endpoints
            .keys()
            .all(|key| after.services.contains_key(key))
    );
}

fn trust(registries: &mut Registries, other: bool) -> Changes {
    let text = if other { "trustDomain: other" } else { "" };
    registries.set_mesh(Arc::new(mesh::parse(text).unwrap().config))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_world_is_what_was_said_last(steps in prop::collection::vec(step(), 1..12)) {
        let ids = ids();
        let mut stepped = registries("");
        let mut last: BTreeMap<usize, Contribution> = BTreeMap::new();
        let mut other = false;
        for step in &steps {
            let before = stepped.world();
            let changes = match step {
                Step::Put(of, objects) => {
                    let contribution = contribution(&ids[*of], objects);
                    last.insert(*of, contribution.clone());
                    stepped.put(&ids[*of], contribution)
                }
                Step::Remove(of) => {
                    last.remove(of);
                    stepped.remove(&ids[*of])
                }
                Step::TrustDomain(to) => {
                    other = *to;
                    trust(&mut stepped, *to)
                }
            };
            assert_changes(&before, &stepped.world(), &changes);
        }
        for turned in [false, true] {
            let mut fresh = registries("");
            let mut all: Vec<_> = last.iter().collect();
            if turned {
                all.reverse();
            } else {
                trust(&mut fresh, other);
            }
            for (of, contribution) in all {
                fresh.put(&ids[*of], contribution.clone());
            }
            trust(&mut fresh, other);
            prop_assert_eq!(stepped.world(), fresh.world());
            prop_assert_eq!(stepped.reports(), fresh.reports());
        }
    }
}
