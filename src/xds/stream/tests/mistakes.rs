//! A view that cannot make something: the push ends, the client keeps what it has, and the next push is a push again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::returns::first;
use super::world::{Wire, World, text};
use crate::stream::{Client, Protocol, Push, PushScope, Stream, UNKNOWN_NAMES};
use crate::view::{Resource, Set, Type, View};
use api::model::TriggerReason;

/// Falls over what has this name, and over all of its type.
#[derive(Debug)]
struct Broken {
    view: Arc<dyn View>,
    kind: Type,
    name: &'static str,
}

impl View for Broken {
    fn all(&self, kind: Type) -> Arc<Set> {
        assert!(kind != self.kind, "a mistake");
        self.view.all(kind)
    }

    fn get(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        assert!(kind != self.kind || name != self.name, "a mistake");
        self.view.get(kind, name)
    }
}

fn broken(world: &World, kind: Type, name: &'static str) -> Push {
    Push {
        view: Arc::new(Broken {
            view: world.view(),
            kind,
            name,
        }),
        scope: PushScope::Full,
        reasons: TriggerReason::Service.into(),
    }
}

fn before() -> World {
    World::default()
        .eds("a", 1, 1)
        .eds("b", 1, 1)
        .simple(Type::Listener, "l", 1)
        .simple(Type::Route, "r", 1)
}

fn after() -> World {
    World::default()
        .eds("a", 2, 2)
        .eds("b", 1, 2)
        .eds("c", 1, 1)
        .simple(Type::Listener, "l", 2)
        .simple(Type::Route, "r", 2)
}

/// A client that has all of it.
fn settled(protocol: Protocol) -> Wire {
    let world = before();
    let mut wire = match protocol {
        Protocol::StateOfTheWorld => Wire::sotw(&world),
        Protocol::Delta => Wire::delta(&world),
    };
    for (kind, names) in [
        (Type::Cluster, &[][..]),
        (Type::Endpoint, &["a", "b"]),
        (Type::Listener, &[]),
        (Type::Route, &["r"]),
    ] {
        wire.names(kind, names);
        assert_eq!(wire.all().len(), 1, "{kind:?}");
        wire.ack(kind);
    }
    wire
}

/// All that goes out, with the client's consent and with time.
fn play(wire: &mut Wire) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..8 {
        while let Some(response) = wire.next() {
            texts.push(text(&response));
            wire.ack(response.kind);
        }
        wire.wait(2001);
    }
    texts
}

#[test]
fn a_push_that_cannot_be_made_leaves_the_client_as_it_is() {
    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        for kind in [Type::Cluster, Type::Listener] {
            let mut wire = settled(protocol);
            wire.stream.merge_push(broken(&after(), kind, ""));
            let texts = play(&mut wire);
            let has = |word: &str| texts.iter().any(|text| text.starts_with(word));
            assert!(!has(kind.as_str()), "{texts:?}");
            // What comes after it waits with it.
            assert!(!has("lds") && !has("rds"), "{texts:?}");
            assert_eq!(wire.stream.take_failed(), BTreeSet::from([kind]));
            assert_eq!(wire.stream.take_failed(), BTreeSet::new());
            assert!(!wire.stream.is_pending());
            // The next one can be made.
            wire.stream.merge_push(after().full());
            play(&mut wire);
            for kind in [Type::Cluster, Type::Listener] {
                let sent: Set = wire.stream.resources(kind).iter().cloned().collect();
                assert_eq!(sent.version(), after().version(kind), "{kind:?}");
            }
            assert_eq!(wire.stream.take_failed(), BTreeSet::new());
        }
    }
}

#[test]
fn one_assignment_that_cannot_be_made_stays_and_the_others_go_out() {
    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        let mut wire = settled(protocol);
        let world = before().eds("a", 1, 2).eds("b", 1, 2);
        wire.stream.merge_push(broken(&world, Type::Endpoint, "a"));
        assert_eq!(play(&mut wire), ["eds b=2"]);
        assert_eq!(wire.stream.take_failed(), BTreeSet::from([Type::Endpoint]));
        wire.stream.merge_push(world.full());
        assert_eq!(play(&mut wire), ["eds a=2"]);
    }
}

#[test]
fn a_request_for_what_cannot_be_made_is_answered_by_the_next_push() {
    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        for (kind, names, answer) in [
            (Type::Cluster, &[][..], "cds a=1 b=1"),
            (Type::Endpoint, &["a"], "eds a=1"),
            (Type::Listener, &[], "lds l=1"),
            (Type::Route, &["r"], "rds r=1"),
        ] {
            let mut wire = match protocol {
                Protocol::StateOfTheWorld => Wire::sotw(&before()),
                Protocol::Delta => Wire::delta(&before()),
            };
            let name = names.first().copied().unwrap_or_default();
            wire.stream.merge_push(broken(&before(), kind, name));
            assert_eq!(play(&mut wire), Vec::<String>::new());
            wire.names(kind, names);
            assert_eq!(play(&mut wire), Vec::<String>::new(), "{kind:?}");
            assert_eq!(wire.stream.take_failed(), BTreeSet::from([kind]));
            wire.stream.merge_push(before().full());
            assert_eq!(play(&mut wire), [answer], "{kind:?}");
        }
    }
}

/// Each wake-up of the stream made the target again, which panicked again, for as long as the names waited.
#[test]
fn names_of_nothing_have_no_target_made_again_and_again() {
    for kind in [Type::Cluster, Type::Listener] {
        let mut wire = Wire::delta(&before());
        wire.stream.merge_push(broken(&before(), kind, "x00000"));
        play(&mut wire);
        // One that cannot be made, those that are remembered, and one beyond.
        let names = (0..UNKNOWN_NAMES + 2).map(|at| format!("x{at:05}"));
        let names: Vec<_> = names.collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        wire.names(kind, &names);
        assert_eq!(wire.next(), None);
        assert_eq!(wire.stream.take_failed(), BTreeSet::from([kind]));
        assert_eq!(wire.next(), None);
        assert_eq!(wire.stream.take_failed(), BTreeSet::new(), "{kind:?}");
        // The next push can make it.
        wire.stream.merge_push(after().full());
        let last = format!("-{}", names[UNKNOWN_NAMES + 1]);
        assert!(play(&mut wire).concat().contains(&last), "{kind:?}");
    }
}

#[test]
fn a_client_that_came_back_has_listeners_where_its_clusters_cannot_be_made() {
    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        let mut wire = Wire::new(protocol, Client::Envoy, &after());
        let view = broken(&after(), Type::Cluster, "").view;
        wire.stream = Stream::new(protocol, Client::Envoy, view);
        for kind in [Type::Cluster, Type::Endpoint, Type::Listener, Type::Route] {
            wire.ask(&first(protocol, &before(), kind));
        }
        let others = ["eds a=2 b=2", "lds l=2", "rds r=2"];
        assert_eq!(wire.all(), others, "{protocol:?}");
        assert_eq!(wire.stream.take_failed(), BTreeSet::from([Type::Cluster]));
        wire.stream.merge_push(after().full());
        let all = wire.all();
        assert!(all[0].starts_with("cds a=2"), "{protocol:?} {all:?}");
    }
}
