//! Clients that come with what they have of another stream, as scripts: the world changed while no server was there.

use std::time::Duration;

use super::rollouts::{after, before, routed, without_old};
use super::world::{Wire, World, text};
use crate::stream::{Client, MAX_NAME_BYTES, Protocol, Request, RequestOutcome, UNKNOWN_NAMES};
use crate::view::Type;
use crate::view::Type::{Cluster, Endpoint, Listener, Route};

const PROTOCOLS: [Protocol; 2] = [Protocol::StateOfTheWorld, Protocol::Delta];

/// The first request of a client that has all of a type in a world.
pub(super) fn first(protocol: Protocol, had: &World, kind: Type) -> Request {
    let set = had.set(kind);
    let names: Vec<_> = match kind {
        Cluster | Listener => Vec::new(),
        Endpoint | Route | Type::Secret => set.iter().map(|one| one.name.to_string()).collect(),
    };
    let names = names.into();
    match protocol {
        Protocol::StateOfTheWorld => Request {
            version: set.version().to_string(),
            names,
            ..Request::of(kind)
        },
        Protocol::Delta => Request {
            initial: set
                .iter()
                .map(|one| (one.name.to_string(), one.version.to_string()))
                .collect(),
            names,
            ..Request::of(kind)
        },
    }
}

/// A client with the resources of one world asks for those of another, as Envoy does: for everything at once.
fn returns(protocol: Protocol, had: &World, world: &World) -> Wire {
    let mut wire = Wire::new(protocol, Client::Envoy, world);
    for kind in [Cluster, Endpoint, Listener, Route] {
        let outcome = wire.ask(&first(protocol, had, kind));
        assert_eq!(outcome, RequestOutcome::Subscribed);
    }
    wire
}

fn is_done(wire: &mut Wire) -> bool {
    wire.all().is_empty() && !wire.stream.is_pending()
}

#[test]
fn delta_makes_before_it_breaks_on_a_new_stream() {
    let mut wire = returns(Protocol::Delta, &before(), &after());
    // What is gone stays, with its assignment.
    assert_eq!(wire.all(), ["cds new=1", "eds kept=1"]);
    wire.names(Endpoint, &["new"]);
    assert_eq!(wire.all(), ["eds new=1"]);
    wire.ack(Endpoint);
    assert!(wire.all().is_empty(), "the clusters are not accepted yet");
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    assert!(wire.all().is_empty(), "the routes are not accepted yet");
    wire.ack(Route);
    assert_eq!(wire.all(), ["cds -old"]);
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["eds -old"]);
    wire.ack(Endpoint);
    assert!(is_done(&mut wire));
    let status = wire.stream.status(Cluster).unwrap();
    assert_eq!(status.acked, Some(after().version(Cluster)));
}

/// No server knows what is gone.
#[test]
fn listeners_wait_for_new_clusters_on_a_new_stream() {
    let mut wire = returns(Protocol::StateOfTheWorld, &before(), &after());
    assert_eq!(wire.all(), ["cds kept=1 new=1", "eds kept=1 old=~"]);
    wire.names(Endpoint, &["kept", "new"]);
    assert_eq!(wire.all(), ["eds new=1"]);
    wire.ack(Endpoint);
    assert!(wire.all().is_empty());
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    wire.ack(Route);
    assert!(is_done(&mut wire));
}

/// Other clients accept clusters first, and ask for their assignments then.
#[test]
fn an_ack_before_the_new_assignments_were_asked_for_ends_no_wait() {
    for protocol in PROTOCOLS {
        let mut wire = returns(protocol, &before(), &after());
        wire.all();
        wire.ack(Cluster);
        wire.ack(Endpoint);
        assert!(wire.all().is_empty(), "{protocol:?}");
        wire.names(Endpoint, &["kept", "new"]);
        assert!(wire.all().iter().all(|sent| sent.starts_with("eds")));
        wire.ack(Endpoint);
        assert_eq!(wire.all(), ["lds l=2", "rds 80=2"], "{protocol:?}");
    }
}

#[test]
fn a_client_that_answers_nothing_has_everything_after_the_waits() {
    let [cds, eds] = [
        ["cds kept=1 new=1", "cds new=1"],
        ["eds kept=1 old=~", "eds kept=1"],
    ];
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        let mut wire = returns(protocol, &before(), &after());
        assert_eq!(wire.all(), [cds[at], eds[at]]);
        let mut steps = vec![vec!["lds l=2", "rds 80=2"], vec![]];
        if protocol == Protocol::Delta {
            steps = vec![steps.remove(0), vec!["cds -old"], vec!["eds -old"]];
        }
        let start = wire.now;
        for (step, sent) in (1..).zip(steps) {
            let deadline = wire.stream.deadline().unwrap();
            assert_eq!(deadline, start + Duration::from_secs(2 * step));
            wire.now = deadline.saturating_sub(Duration::from_millis(1));
            assert!(wire.all().is_empty(), "{protocol:?}");
            wire.now = deadline;
            assert_eq!(wire.all(), sent, "{protocol:?}");
        }
        assert!(is_done(&mut wire));
    }
}

#[test]
fn a_refusal_of_new_clusters_ends_the_wait() {
    for protocol in PROTOCOLS {
        let mut wire = returns(protocol, &before(), &after());
        wire.all();
        wire.nack(Cluster, "no");
        assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    }
}

/// A server that starts has a thousand clients, and the requests of one come far apart.
#[test]
fn requests_of_a_new_stream_that_come_late_are_waited_for() {
    let mut wire = Wire::delta(&after());
    let ask = |wire: &mut Wire, kind| wire.ask(&first(Protocol::Delta, &before(), kind));
    ask(&mut wire, Cluster);
    assert_eq!(wire.all(), ["cds new=1"]);
    wire.wait(1_300);
    ask(&mut wire, Endpoint);
    assert_eq!(wire.all(), ["eds kept=1"]);
    for kind in [Listener, Route] {
        wire.wait(1_300);
        ask(&mut wire, kind);
        assert!(wire.all().is_empty());
    }
    wire.wait(100);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);

    // With nothing new the routes have their answer at once, and what is gone stays until they have it.
    let had = before();
    let mut wire = Wire::delta(&without_old());
    for (kind, sent) in [
        (Cluster, vec![]),
        (Endpoint, vec![]),
        (Listener, vec![]),
        (Route, vec!["rds 80=1"]),
    ] {
        wire.ask(&first(Protocol::Delta, &had, kind));
        assert_eq!(wire.all(), sent);
        wire.wait(1_300);
        assert!(wire.all().is_empty() && wire.stream.is_pending());
    }
    wire.ack(Route);
    assert_eq!(wire.all(), ["cds -old"]);
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["eds -old"]);
}

/// A push may stand behind the steps, with a policy that denies.
#[test]
fn late_requests_prolong_the_steps_of_a_new_stream_by_two_seconds() {
    let mut wire = Wire::delta(&after());
    let start = wire.now;
    let mut sent = Vec::new();
    let mut read = |wire: &mut Wire| {
        let now = wire.now.saturating_sub(start).as_millis();
        sent.extend(wire.all().into_iter().map(|text| (now, text)));
    };
    wire.ask(&first(Protocol::Delta, &before(), Cluster));
    read(&mut wire);
    wire.stream
        .merge_push(after().simple(Listener, "l", 7).full());
    for (at, kind) in (1..).zip([Endpoint, Listener, Route, Type::Secret]) {
        let late = start + Duration::from_millis(1_400 * at);
        while let Some(deadline) = wire.stream.deadline().filter(|at| *at < late) {
            wire.now = deadline;
            read(&mut wire);
        }
        wire.now = late;
        wire.ask(&first(Protocol::Delta, &before(), kind));
        read(&mut wire);
    }
    wire.now = wire.stream.deadline().unwrap();
    read(&mut wire);
    let sent: Vec<_> = sent.iter().map(|(at, text)| (*at, &**text)).collect();
    assert_eq!(
        sent,
        [
            (0, "cds new=1"),
            (1_400, "eds kept=1"),
            (4_000, "lds l=2"),
            (4_200, "rds 80=2"),
            (6_000, "cds -old"),
            (6_000, "lds l=7"),
        ]
    );
}

/// A client whose clusters warm: it asks for all but them.
fn warms(protocol: Protocol, had: &World, world: &World) -> Wire {
    let mut wire = Wire::new(protocol, Client::Envoy, world);
    for kind in [Endpoint, Listener, Route] {
        wire.ask(&first(protocol, had, kind));
    }
    wire
}

/// Its assignments come at once, so that it goes on to ask for clusters.
#[test]
fn listeners_wait_for_the_clusters_of_a_client_that_warms() {
    let assignments = ["eds kept=1 old=~", "eds kept=1 -old"];
    let clusters = ["cds kept=1 new=1", "cds new=1"];
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        let mut wire = warms(protocol, &before(), &after());
        assert_eq!(wire.all(), [assignments[at]]);
        wire.ack(Endpoint);
        assert!(wire.all().is_empty(), "{protocol:?}");
        wire.ask(&first(protocol, &before(), Cluster));
        assert_eq!(text(&wire.next().unwrap()), clusters[at]);
        wire.names(Endpoint, &["kept", "new"]);
        assert!(wire.all().iter().all(|sent| sent.starts_with("eds")));
        wire.ack(Endpoint);
        assert!(wire.all().is_empty(), "{protocol:?}");
        wire.ack(Cluster);
        assert_eq!(wire.all(), ["lds l=2", "rds 80=2"], "{protocol:?}");
        wire.ack(Listener);
        wire.ack(Route);
        let gone = wire.all();
        match protocol {
            Protocol::StateOfTheWorld => assert!(gone.is_empty()),
            Protocol::Delta => assert_eq!(gone, ["cds -old"]),
        }
        wire.ack(Cluster);
        assert!(is_done(&mut wire), "{protocol:?}");
    }
}

/// Envoy asks for types in the order in which it first wanted them: for the assignments of clusters that came behind its first
/// listeners last, and for none where it has none to ask for.
#[test]
fn listeners_of_a_client_that_warms_wait_whenever_it_asks_for_assignments() {
    for protocol in PROTOCOLS {
        for kinds in [&[Listener, Route][..], &[Listener, Route, Endpoint]] {
            let mut wire = Wire::new(protocol, Client::Envoy, &after());
            for kind in kinds {
                wire.ask(&first(protocol, &before(), *kind));
                let all = wire.all();
                let is_answered = *kind == Endpoint;
                assert_eq!(!all.is_empty(), is_answered, "{protocol:?} {all:?}");
            }
            wire.ask(&first(protocol, &before(), Cluster));
            assert!(wire.all()[0].starts_with("cds"), "{protocol:?}");
            wire.names(Endpoint, &["kept", "new"]);
            assert!(wire.all().iter().all(|sent| sent.starts_with("eds")));
            wire.ack(Endpoint);
            wire.ack(Cluster);
            assert_eq!(wire.all(), ["lds l=2", "rds 80=2"], "{protocol:?}");
        }
    }
}

/// Nothing tells it from one whose clusters warm.
#[test]
fn a_client_with_clusters_of_its_own_has_its_listeners_within_two_seconds() {
    for protocol in PROTOCOLS {
        let mut wire = Wire::new(protocol, Client::Envoy, &after());
        for kind in [Listener, Route] {
            wire.ask(&first(protocol, &before(), kind));
        }
        wire.wait(1_999);
        assert!(wire.all().is_empty(), "{protocol:?}");
        wire.wait(1);
        assert_eq!(wire.all(), ["lds l=2", "rds 80=2"], "{protocol:?}");
        assert!(is_done(&mut wire));
        // It is waited for once.
        wire.stream
            .merge_push(after().simple(Listener, "l", 3).full());
        assert_eq!(wire.all(), ["lds l=3"], "{protocol:?}");
    }
}

#[test]
fn a_client_that_has_all_clusters_once_they_are_warm_waits_no_longer() {
    for protocol in PROTOCOLS {
        let had = before().eds("new", 1, 1);
        let mut wire = warms(
            protocol,
            &had,
            &routed("new", 2).eds("old", 1, 1).eds("new", 1, 1),
        );
        assert_eq!(wire.all(), ["eds kept=1 new=1 old=1"]);
        wire.ask(&first(protocol, &had, Cluster));
        assert_eq!(wire.all(), ["lds l=2", "rds 80=2"], "{protocol:?}");
        wire.ack(Listener);
        wire.ack(Route);
        assert!(is_done(&mut wire));
    }
}

/// A cluster of DNS may warm for long.
#[test]
fn a_client_that_warms_has_its_listeners_within_four_seconds() {
    let listeners = ["lds l=2", "rds 80=2"];
    for protocol in PROTOCOLS {
        let mut wire = warms(protocol, &before(), &after());
        wire.all();
        // Nor does a full push come before.
        wire.stream.merge_push(after().full());
        wire.wait(1_999);
        assert!(wire.all().is_empty(), "{protocol:?}");
        wire.wait(1);
        assert_eq!(wire.all(), listeners, "{protocol:?}");
        assert!(is_done(&mut wire));

        let mut wire = warms(protocol, &before(), &after());
        wire.all();
        wire.wait(1_900);
        wire.ask(&first(protocol, &before(), Cluster));
        assert!(wire.all()[0].starts_with("cds"));
        // A late request would prolong the wait by two seconds.
        wire.wait(1_900);
        wire.names(Type::Secret, &[]);
        wire.wait(199);
        assert!(wire.all().is_empty(), "{protocol:?}");
        wire.wait(1);
        assert_eq!(wire.all(), listeners, "{protocol:?}");
    }
}

#[test]
fn assignments_of_a_client_that_warms_wait_for_nothing() {
    for protocol in PROTOCOLS {
        let mut wire = warms(protocol, &before(), &after());
        wire.all();
        let later = after().eds("kept", 1, 2);
        wire.stream.merge_push(later.endpoints(&["kept"]));
        assert_eq!(wire.all(), ["eds kept=2"], "{protocol:?}");
    }
}

/// The server does not know what it was.
#[test]
fn a_cluster_that_is_gone_is_none_to_a_client_that_names_it_meanwhile() {
    let mut wire = returns(Protocol::Delta, &before(), &after());
    wire.all();
    wire.names(Cluster, &["old", "kept"]);
    assert_eq!(wire.all(), ["cds kept=1 -old"]);
}

/// Those beyond the bound of names that a stream remembers, too.
#[test]
fn thousands_of_clusters_that_are_gone_stay_until_the_routes_are_answered() {
    let count = 3 * UNKNOWN_NAMES;
    let mut had = before();
    for at in 0..count {
        had = had.simple(Cluster, &format!("gone-{at}"), 1);
    }
    let mut wire = returns(Protocol::Delta, &had, &without_old());
    assert_eq!(wire.all(), ["eds kept=1", "rds 80=1"]);
    wire.ack(Route);
    let last = wire.next().unwrap();
    assert_eq!((last.kind, last.removed.len()), (Cluster, count + 1));
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["eds -old"]);
    assert_eq!(wire.stream.resources(Cluster).iter().count(), 1);
}

/// A stream remembers no name of that length, and has no version for it.
#[test]
fn a_cluster_that_is_gone_goes_however_long_its_name_is() {
    let (long, kept) = ("x".repeat(MAX_NAME_BYTES + 1), without_old());
    let mut request = first(Protocol::Delta, &kept, Cluster);
    let version = before().version(Cluster).to_string();
    request.initial.push((long.clone(), version));
    let mut wire = Wire::delta(&kept);
    wire.ask(&request);
    let sent: Vec<_> = wire.in_time().iter().map(text).collect();
    assert_eq!(sent, [format!("cds -{long}")]);
}

#[test]
fn a_push_waits_for_the_steps_of_a_client_that_came_back() {
    let mut wire = returns(Protocol::Delta, &before(), &after());
    wire.all();
    let later = routed("new", 7).eds("new", 7, 1);
    wire.stream.merge_push(later.full());
    assert!(wire.all().is_empty());
    // Endpoints wait for nothing.
    wire.stream.merge_push(
        routed("new", 7)
            .eds("new", 7, 1)
            .eds("kept", 1, 2)
            .endpoints(&["kept"]),
    );
    assert_eq!(wire.all(), ["eds kept=2"]);
    wire.names(Endpoint, &["new"]);
    assert_eq!(wire.all(), ["eds new=1"]);
    wire.ack(Endpoint);
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    wire.ack(Route);
    let all = wire.all();
    assert_eq!(
        all,
        ["cds -old", "cds new=7", "eds new=1", "lds l=7", "rds 80=7"]
    );
}

/// A process that starts, and clients that learn of their clusters from their routes.
#[test]
fn others_wait_for_nothing() {
    let listeners = ["lds l=2", "rds 80=2"];
    for protocol in PROTOCOLS {
        let had = before();
        let mut starts = Wire::new(protocol, Client::Envoy, &after());
        for (kind, names) in [(Cluster, &[][..]), (Listener, &[]), (Route, &["80"])] {
            starts.names(kind, names);
        }
        assert_eq!(starts.all()[1..], listeners, "{protocol:?}");

        let [cluster, endpoint] = [(Cluster, "kept"), (Endpoint, "kept")];
        let [listener, route] = [(Listener, "l"), (Route, "80")];
        for client in [Client::Envoy, Client::Grpc] {
            // The last is that of a client whose clusters are not asked for yet.
            for requests in [
                &[cluster, listener, route][..],
                &[listener, route, cluster, endpoint],
                &[endpoint, listener, route],
            ] {
                let mut by_name = Wire::new(protocol, client, &after());
                let mut all = Vec::new();
                for (kind, name) in requests {
                    let request = first(protocol, &had.clone().eds("kept", 2, 1), *kind);
                    by_name.ask(&Request {
                        names: [*name].into(),
                        ..request
                    });
                    all.extend(by_name.all());
                }
                all.retain(|sent| sent.starts_with("lds") || sent.starts_with("rds"));
                assert_eq!(all, listeners, "{protocol:?} {client:?}");
            }
        }
    }
    // A changed cluster serves as it was while it warms.
    let mut changed = returns(
        Protocol::Delta,
        &before().eds("kept", 2, 1),
        &routed("old", 2).eds("old", 1, 1),
    );
    let sent = ["cds kept=1", "eds kept=1 old=1", "lds l=2", "rds 80=2"];
    assert_eq!(changed.all(), sent);
}
