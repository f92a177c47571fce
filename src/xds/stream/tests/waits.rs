//! Clients of any behaviour: each wait of a stream has an end, whatever they ask for and answer.

use std::time::Duration;

use proptest::prelude::*;

use super::rollouts::{after, before, routed, without_old};
use super::world::{Wire, World};
use crate::stream::{Client, Protocol, Request};
use crate::view::Type;

/// Steps of a stream whose client says nothing: more would be a stream that never rests.
const MAX_STEPS: usize = 20;

#[derive(Clone, Debug)]
enum Nonce {
    None,
    Last,
    Foreign,
}

#[derive(Clone, Debug)]
enum Event {
    /// A request with these names, all or none of them, as a client that has the resources of a world.
    Ask {
        kind: Type,
        names: Vec<usize>,
        had: Option<usize>,
        nonce: Nonce,
        refuses: bool,
        leaves: Vec<usize>,
    },
    Push(usize),
    Endpoints(usize),
    Wait(u16),
    Read,
}

const NAMES: [&str; 6] = ["*", "kept", "old", "new", "80", "l"];

fn worlds() -> [World; 4] {
    [
        before(),
        after(),
        without_old(),
        routed("new", 7).eds("new", 7, 1),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let names = || prop::collection::vec(0..NAMES.len(), 0..3);
    let ask = (
        0..Type::ALL.len(),
        names(),
        prop::option::of(0..4_usize),
        prop_oneof![1 => Just(Nonce::None), 4 => Just(Nonce::Last), 1 => Just(Nonce::Foreign)],
        prop::bool::weighted(0.2),
        names(),
    );
    let ask = ask.prop_map(|(kind, names, had, nonce, refuses, leaves)| Event::Ask {
        kind: Type::ALL[kind],
        names,
        had,
        nonce,
        refuses,
        leaves,
    });
    prop_oneof![
        8 => ask,
        2 => (0..4_usize).prop_map(Event::Push),
        1 => (0..4_usize).prop_map(Event::Endpoints),
        2 => (0..3_000_u16).prop_map(Event::Wait),
        4 => Just(Event::Read),
    ]
}

fn happen(wire: &mut Wire, protocol: Protocol, event: Event) {
    match event {
        Event::Ask {
            kind,
            names,
            had,
            nonce,
            refuses,
            leaves,
        } => {
            let text = |all: Vec<usize>| all.into_iter().map(|at| NAMES[at].to_owned());
            let had = had.map(|at| worlds()[at].set(kind));
            let mut request = Request {
                names: text(names).collect(),
                nonce: match nonce {
                    Nonce::None => String::new(),
                    Nonce::Last => wire.nonce(kind),
                    Nonce::Foreign => "77".to_owned(),
                },
                error: refuses.then(|| "no".to_owned()),
                ..Request::of(kind)
            };
            match (protocol, had) {
                (_, None) => {}
                (Protocol::StateOfTheWorld, Some(had)) => {
                    request.version = had.version().to_string();
                }
                (Protocol::Delta, Some(had)) => {
                    let versions = had.iter();
                    request.initial = versions
                        .map(|one| (one.name.to_string(), one.version.to_string()))
                        .collect();
                }
            }
            if protocol == Protocol::Delta {
                request.unsubscribe = text(leaves).collect();
            }
            let _outcome = wire.stream.request(wire.now, &request);
        }
        Event::Push(at) => wire.stream.merge_push(worlds()[at].full()),
        Event::Endpoints(at) => wire
            .stream
            .merge_push(worlds()[at].endpoints(&["kept", "new"])),
        Event::Wait(milliseconds) => wire.wait(milliseconds.into()),
        Event::Read => drop(wire.next()),
    }
}

proptest! {
    #[test]
    fn each_wait_has_an_end(
        protocol in prop_oneof![Just(Protocol::StateOfTheWorld), Just(Protocol::Delta)],
        client in prop_oneof![4 => Just(Client::Envoy), 1 => Just(Client::Grpc)],
        world in 0..4_usize,
        events in prop::collection::vec(event(), 0..40),
    ) {
        let mut wire = Wire::new(protocol, client, &worlds()[world]);
        for event in events {
            happen(&mut wire, protocol, event);
        }
        let last = wire.now;
        for step in 0.. {
            let mut sent = 0;
            while wire.next().is_some() {
                sent += 1;
                prop_assert!(sent < MAX_STEPS, "responses without end");
            }
            let Some(deadline) = wire.stream.deadline() else {
                break;
            };
            prop_assert!(step < MAX_STEPS, "waits without end");
            wire.now = wire.now.max(deadline);
        }
        prop_assert!(!wire.stream.is_pending());
        // Two pushes, each with three waits of two seconds.
        let waited = wire.now.saturating_sub(last);
        prop_assert!(waited <= Duration::from_secs(14), "{:?}", waited);
    }
}
