//! Pushes as scripts: (time, event) and what goes out.

use std::time::Duration;

use super::world::{Body, Wire, World};
use crate::stream::{Client, Protocol, Request, RequestOutcome, Stall};
use crate::view::Type::{Cluster, Endpoint, Listener, Route};
use crate::view::{Type, VIRTUAL_OUTBOUND, View};
use api::model::TriggerReason;

/// Routes lead to `old` before and to `new` after.
pub(super) fn before() -> World {
    routed("old", 1).eds("old", 1, 1)
}

pub(super) fn after() -> World {
    routed("new", 2).eds("new", 1, 1)
}

pub(super) fn routed(to: &str, revision: u32) -> World {
    let mut world = World::default().eds("kept", 1, 1);
    let routes = Body {
        revision,
        names: [to.to_owned()].into(),
        ..Body::default()
    };
    world.put(Route, "80", routes);
    world.simple(Listener, "l", revision)
}

/// A stream that has everything, all of it accepted.
pub(super) fn settled(mut wire: Wire, endpoints: &[&str]) -> Wire {
    for (kind, names) in [
        (Cluster, &[][..]),
        (Endpoint, endpoints),
        (Listener, &[]),
        (Route, &["80"]),
    ] {
        wire.names(kind, names);
        wire.all();
        wire.ack(kind);
    }
    assert!(wire.all().is_empty() && !wire.stream.is_pending());
    wire
}

fn sotw() -> Wire {
    settled(Wire::sotw(&before()), &["kept", "old"])
}

fn delta() -> Wire {
    settled(Wire::delta(&before()), &["kept", "old"])
}

#[test]
fn make_before_break_step_by_step() {
    let mut wire = sotw();
    wire.stream.merge_push(after().full());
    // New clusters and those that vanish, as they were.
    assert_eq!(wire.all(), ["cds kept=1 new=1 old=1"]);
    // Envoy asks for the new assignments before it accepts the clusters.
    assert_eq!(
        wire.names(Endpoint, &["kept", "new", "old"]),
        RequestOutcome::Asked
    );
    assert_eq!(wire.all(), ["eds new=1"]);
    assert_eq!(wire.ack(Endpoint), RequestOutcome::Acked);
    assert!(wire.all().is_empty(), "the clusters are not accepted yet");
    assert_eq!(wire.ack(Cluster), RequestOutcome::Acked);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    assert_eq!(wire.ack(Listener), RequestOutcome::Acked);
    assert!(wire.all().is_empty(), "the routes are not accepted yet");
    assert_eq!(wire.ack(Route), RequestOutcome::Acked);
    assert_eq!(wire.all(), ["cds kept=1 new=1"]);
    assert_eq!(
        wire.names(Endpoint, &["kept", "new"]),
        RequestOutcome::Asked
    );
    assert_eq!(wire.ack(Cluster), RequestOutcome::Acked);
    assert!(wire.all().is_empty());
    assert!(!wire.stream.is_pending());
    let status = wire.stream.status(Cluster).unwrap();
    assert_eq!(status.acked, Some(after().version(Cluster)));
    let last = wire.stream.last_push().unwrap();
    assert_eq!(last.types, [Cluster, Listener, Route]);
    assert!(last.reasons.has(TriggerReason::Service));
}

fn listening(caught: bool, revision: u32) -> World {
    let mut world = World::default().simple(Listener, "kept", 1);
    let body = Body {
        revision,
        caught,
        ..Body::default()
    };
    world.put(Listener, "l", body);
    world
}

/// A port that is lost is being closed when the client answers.
fn closing(wire: &mut Wire, is_lost: bool) {
    if is_lost {
        wire.wait(199);
        assert!(wire.all().is_empty() && wire.stream.is_pending());
        let end = wire.now + Duration::from_millis(1);
        assert_eq!(wire.stream.deadline(), Some(end));
        wire.now = end;
    }
}

/// Envoy 1.40 dies of a listener that gets a port of its own while it runs.
#[test]
fn a_listener_that_gets_or_loses_its_port_is_gone_for_a_moment() {
    for (wire, removed, added) in [
        (
            Wire::sotw(&listening(true, 1)),
            "lds kept=1",
            ["lds kept=1 l=2", "lds kept=1 l=3"],
        ),
        (
            Wire::delta(&listening(true, 1)),
            "lds -l",
            ["lds l=2", "lds l=3"],
        ),
    ] {
        let mut wire = wire;
        wire.names(Listener, &[]);
        assert_eq!(wire.all().len(), 1);
        wire.ack(Listener);
        for (caught, revision, added) in [(false, 2, added[0]), (true, 3, added[1])] {
            let world = listening(caught, revision);
            wire.stream.merge_push(world.full());
            assert_eq!(wire.all(), [removed]);
            assert!(wire.stream.is_pending() && wire.stream.deadline().is_some());
            // Nor does another push bring it before that is answered.
            wire.stream.merge_push(world.full());
            assert!(wire.all().is_empty());
            wire.ack(Listener);
            closing(&mut wire, caught);
            assert_eq!(wire.all(), [added]);
            wire.ack(Listener);
            assert!(wire.all().is_empty() && !wire.stream.is_pending());
            let status = wire.stream.status(Listener).unwrap();
            assert_eq!(status.acked, Some(world.version(Listener)));
        }
        // Without an answer it comes after two seconds; what changes otherwise waits for nothing.
        let body = listening(false, 5).get(Listener, "l").unwrap().clone();
        let mut other = World::default().simple(Listener, "kept", 7);
        other.put(Listener, "l", body);
        wire.stream.merge_push(listening(false, 4).full());
        assert_eq!(wire.all(), [removed]);
        wire.stream.merge_push(other.full());
        assert_eq!(wire.all(), ["lds kept=7"]);
        wire.wait(1_999);
        assert!(wire.all().is_empty());
        wire.wait(1);
        assert_eq!(wire.all().len(), 1);
        // One that goes before it comes again is gone.
        wire.ack(Listener);
        wire.stream.merge_push(listening(true, 6).full());
        assert_eq!(wire.all().len(), 1);
        wire.stream
            .merge_push(World::default().simple(Listener, "kept", 1).full());
        assert!(wire.all().is_empty());
        wire.ack(Listener);
        closing(&mut wire, true);
        assert!(wire.all().is_empty() && !wire.stream.is_pending());
    }
}

/// Envoy asks for clusters first. Without that its listeners wait for them.
fn ask_for_clusters(wire: &mut Wire) {
    wire.names(Cluster, &[]);
    assert_eq!(wire.all(), ["cds"]);
}

/// A client that has the listeners of a world by another stream asks for those of a new one.
fn came_with(protocol: Protocol, before: &World, after: &World) -> Wire {
    let mut wire = Wire::new(protocol, Client::Envoy, after);
    ask_for_clusters(&mut wire);
    let request = match protocol {
        Protocol::StateOfTheWorld => Request {
            version: before.version(Listener).to_string(),
            ..Request::of(Listener)
        },
        Protocol::Delta => {
            let set = before.set(Listener);
            let initial = set
                .iter()
                .map(|one| (one.name.to_string(), one.version.to_string()));
            Request {
                names: ["*"].into(),
                initial: initial.collect(),
                ..Request::of(Listener)
            }
        }
    };
    wire.ask(&request);
    wire
}

fn intercepted(caught: bool, revision: u32) -> World {
    listening(caught, revision).simple(Listener, VIRTUAL_OUTBOUND, 1)
}

/// Envoy keeps what it has while no server is there.
#[test]
fn a_listener_that_turned_while_the_client_was_away_is_gone_for_a_moment() {
    let firsts = ["lds kept=1 virtualOutbound=1", "lds -l"];
    let laters = ["lds kept=1 l=2 virtualOutbound=1", "lds l=2"];
    let protocols = [Protocol::StateOfTheWorld, Protocol::Delta];
    for ((protocol, first), later) in protocols.into_iter().zip(firsts).zip(laters) {
        for caught in [false, true] {
            let (before, after) = (intercepted(!caught, 1), intercepted(caught, 2));
            let mut wire = came_with(protocol, &before, &after);
            assert_eq!(wire.all(), [first]);
            assert!(wire.stream.is_pending() && wire.stream.deadline().is_some());
            wire.ack(Listener);
            closing(&mut wire, caught);
            assert_eq!(wire.all(), [later]);
            wire.ack(Listener);
            assert!(wire.all().is_empty() && !wire.stream.is_pending());
            let status = wire.stream.status(Listener).unwrap();
            assert_eq!(status.acked, Some(after.version(Listener)));
            // One that has kept its port, or has none, is changed in place, and an equal one stays.
            let before = intercepted(caught, 1);
            let mut wire = came_with(protocol, &before, &after);
            assert_eq!(wire.all(), [later]);
            let mut wire = came_with(protocol, &before, &before);
            assert!(wire.all().is_empty());
            // A client that has nothing is given everything at once.
            let mut wire = Wire::new(protocol, Client::Envoy, &after);
            wire.names(Listener, &[]);
            let all = wire.all();
            assert_eq!(all, ["lds kept=1 l=2 virtualOutbound=1"]);
        }
    }
}

/// Listeners without a port where `caught` has their names, in a mesh that intercepts.
fn some_caught(caught: &[&str], revision: u32) -> World {
    let mut world = World::default().simple(Listener, VIRTUAL_OUTBOUND, 1);
    for name in ["0.0.0.0_80", "127.0.0.1_90", "10.0.0.9_70", "::_60"] {
        let body = Body {
            revision,
            caught: caught.contains(&name),
            ..Body::default()
        };
        world.put(Listener, name, body);
    }
    world
}

/// One version says how many turned only if it was one, or if there was none that could lose its port.
#[test]
fn listeners_that_may_have_lost_their_ports_while_the_client_was_away_are_gone_for_a_moment() {
    const ALL: &[&str] = &["0.0.0.0_80", "127.0.0.1_90", "10.0.0.9_70", "::_60"];
    let without = |names: &[&str]| {
        let mut world = some_caught(ALL, 1);
        names.iter().for_each(|name| world.remove(Listener, name));
        world
    };
    let gone = some_caught(ALL, 1).simple(Listener, "127.0.0.1_50", 1);
    for (before, after, first) in [
        // Two have lost theirs; no machine has the address of a service.
        (
            some_caught(&["10.0.0.9_70", "::_60"], 1),
            some_caught(ALL, 1),
            "lds 10.0.0.9_70=1 virtualOutbound=1",
        ),
        // So may others when one has gone.
        (
            gone.clone(),
            some_caught(ALL, 1),
            "lds 10.0.0.9_70=1 virtualOutbound=1",
        ),
        // One has lost its port, and one has got one.
        (
            some_caught(&["10.0.0.9_70", "127.0.0.1_90"], 1),
            some_caught(&["0.0.0.0_80", "10.0.0.9_70"], 1),
            "lds 10.0.0.9_70=1 virtualOutbound=1",
        ),
        // None was bound, and two are.
        (
            some_caught(ALL, 1),
            some_caught(&["0.0.0.0_80", "10.0.0.9_70"], 1),
            "lds 0.0.0.0_80=1 10.0.0.9_70=1 virtualOutbound=1",
        ),
        // One has come.
        (
            some_caught(ALL, 1),
            gone,
            "lds 0.0.0.0_80=1 10.0.0.9_70=1 127.0.0.1_90=1 ::_60=1 virtualOutbound=1",
        ),
        // Those without a port come and go in silence.
        (
            without(&["0.0.0.0_80", "::_60"]),
            some_caught(ALL, 1),
            "lds 0.0.0.0_80=1 10.0.0.9_70=1 127.0.0.1_90=1 ::_60=1 virtualOutbound=1",
        ),
    ] {
        let mut wire = came_with(Protocol::StateOfTheWorld, &before, &after);
        assert_eq!(wire.all(), [first]);
        wire.ack(Listener);
        let whole = after.set(Listener);
        wire.wait(200);
        let later = wire.all();
        let count = later
            .first()
            .map_or(first, |later| later)
            .split('=')
            .count();
        assert_eq!(count, whole.len() + 1, "{later:?}");
        wire.ack(Listener);
        assert!(wire.all().is_empty() && !wire.stream.is_pending());
        let status = wire.stream.status(Listener).unwrap();
        assert_eq!(status.acked, Some(after.version(Listener)));
    }
}

/// Its versions do not say what was bound. Without interception every listener is bound.
#[test]
fn a_listener_of_another_server_is_gone_for_a_moment_where_it_may_have_turned() {
    for (protocol, world, expected) in [
        (
            Protocol::StateOfTheWorld,
            listening(false, 2),
            "lds kept=1 l=2",
        ),
        (Protocol::Delta, listening(false, 2), "lds kept=1 l=2"),
        (
            Protocol::StateOfTheWorld,
            intercepted(false, 2),
            "lds virtualOutbound=1",
        ),
        (
            Protocol::Delta,
            intercepted(false, 2),
            "lds kept=1 virtualOutbound=1 -l",
        ),
        (
            Protocol::Delta,
            intercepted(true, 2),
            "lds kept=1 l=2 virtualOutbound=1",
        ),
    ] {
        let mut wire = Wire::new(protocol, Client::Envoy, &world);
        ask_for_clusters(&mut wire);
        let request = match protocol {
            Protocol::StateOfTheWorld => Request {
                version: "7".to_owned(),
                ..Request::of(Listener)
            },
            Protocol::Delta => Request {
                names: ["*"].into(),
                initial: vec![("l".to_owned(), "7".to_owned())],
                ..Request::of(Listener)
            },
        };
        wire.ask(&request);
        assert_eq!(wire.all(), [expected], "{protocol:?}");
    }
}

#[test]
fn make_before_break_in_delta() {
    let mut wire = delta();
    wire.stream.merge_push(after().full());
    assert_eq!(wire.all(), ["cds new=1"]);
    wire.names(Endpoint, &["new"]);
    assert_eq!(wire.all(), ["eds new=1"]);
    wire.ack(Endpoint);
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    wire.ack(Route);
    assert_eq!(wire.all(), ["cds -old"]);
    wire.ack(Cluster);
    // It still wants the assignment of what is gone.
    assert_eq!(wire.all(), ["eds -old"]);
}

#[test]
fn without_answers_each_step_takes_two_seconds() {
    for (wire, sent) in [
        (
            sotw(),
            [
                "cds kept=1 new=1 old=1",
                "lds l=2",
                "rds 80=2",
                "cds kept=1 new=1",
                "eds old=~",
            ],
        ),
        (
            delta(),
            ["cds new=1", "lds l=2", "rds 80=2", "cds -old", "eds -old"],
        ),
    ] {
        let mut wire = wire;
        wire.stream.merge_push(after().full());
        let mut log = wire.all();
        let start = wire.now;
        for step in 1..=3 {
            let deadline = wire.stream.deadline().unwrap();
            assert_eq!(deadline, start + Duration::from_secs(2 * step));
            wire.now = deadline.saturating_sub(Duration::from_millis(1));
            assert!(wire.all().is_empty());
            wire.now = deadline;
            log.extend(wire.all());
        }
        assert_eq!(log, sent);
        assert_eq!(wire.stream.deadline(), None);
    }
}

#[test]
fn a_refusal_ends_a_wait() {
    let mut wire = sotw();
    wire.stream.merge_push(after().full());
    wire.all();
    wire.nack(Cluster, "no");
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.nack(Listener, "no");
    wire.nack(Route, "no");
    assert_eq!(wire.all(), ["cds kept=1 new=1"]);
}

/// Envoy warms a changed cluster until its assignment comes after it.
#[test]
fn a_changed_cluster_is_followed_by_its_assignment_and_nothing_waits() {
    for wire in [sotw(), delta()] {
        let mut wire = wire;
        wire.stream
            .merge_push(before().eds("old", 2, 1).simple(Listener, "l", 3).full());
        let sent = wire.all();
        assert!(["cds kept=1 old=2", "cds old=2"].contains(&&*sent[0]));
        assert_eq!(sent[1..], ["eds old=1", "lds l=3"]);
        assert!(!wire.stream.is_pending());
    }
}

#[test]
fn without_new_clusters_nothing_waits_before_the_last_step() {
    let mut wire = sotw();
    wire.stream.merge_push(routed("kept", 2).full());
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    wire.ack(Route);
    assert_eq!(wire.all(), ["cds kept=1"]);
}

/// A world without `old`; nothing comes in its place, so that no cluster warms.
pub(super) fn without_old() -> World {
    routed("kept", 1)
}

#[test]
fn an_assignment_goes_with_its_cluster_while_the_client_subscribes_to_it() {
    for (mut wire, clusters, assignment) in [
        (sotw(), "cds kept=1", "eds old=~"),
        (delta(), "cds -old", "eds -old"),
    ] {
        wire.stream.merge_push(without_old().full());
        assert_eq!(wire.all(), ["rds 80=1"]);
        wire.ack(Route);
        assert_eq!(wire.all(), [clusters]);
        assert!(wire.all().is_empty(), "the client may let it go by itself");
        wire.ack(Cluster);
        assert_eq!(wire.all(), [assignment]);
        wire.ack(Endpoint);
        assert!(wire.all().is_empty() && !wire.stream.is_pending());
        // It comes again, and is sent again.
        wire.stream.merge_push(before().full());
        assert!(wire.all().contains(&"eds old=1".to_owned()));
    }
}

#[test]
fn a_client_without_all_clusters_loses_assignments_as_well() {
    for (protocol, assignment) in [
        (Protocol::StateOfTheWorld, "eds old=~"),
        (Protocol::Delta, "eds -old"),
    ] {
        for clusters in [None, Some("kept")] {
            let mut wire = Wire::new(protocol, Client::Envoy, &before());
            for (kind, name) in clusters
                .map(|name| (Cluster, name))
                .into_iter()
                .chain([(Endpoint, "kept"), (Endpoint, "old")])
            {
                wire.names(kind, &[name]);
                wire.all();
                wire.ack(kind);
            }
            wire.names(Endpoint, &["kept", "old"]);
            wire.all();
            wire.ack(Endpoint);
            wire.stream.merge_push(without_old().full());
            assert_eq!(wire.all(), [assignment], "{clusters:?}");
            wire.ack(Endpoint);
            assert!(wire.all().is_empty() && !wire.stream.is_pending());
        }
    }
}

#[test]
fn an_assignment_goes_where_its_cluster_finds_endpoints_otherwise() {
    for (mut wire, assignment) in [(sotw(), "eds old=~"), (delta(), "eds -old")] {
        let mut world = before().simple(Cluster, "old", 2);
        world.remove(Endpoint, "old");
        wire.stream.merge_push(world.full());
        // As any changed cluster it is followed by its assignment, which the view before still has.
        assert_eq!(wire.all()[1..], ["eds old=1"]);
        wire.ack(Endpoint);
        wire.ack(Cluster);
        assert_eq!(wire.all(), [assignment]);
    }
}

#[test]
fn a_push_that_changes_nothing_sends_nothing() {
    let mut wire = sotw();
    wire.stream.merge_push(before().full());
    assert!(wire.all().is_empty());
    assert!(!wire.stream.is_pending());
}

#[test]
fn only_types_that_differ_are_sent() {
    for (world, sent) in [
        (before().simple(Listener, "l", 7), vec!["lds l=7"]),
        (before().simple(Route, "80", 7), vec!["rds 80=7"]),
        (before().eds("old", 1, 7), vec!["eds old=7"]),
        (before().simple(Route, "81", 7), vec![]),
    ] {
        let mut wire = sotw();
        wire.stream.merge_push(world.full());
        assert_eq!(wire.all(), sent);
    }
}

#[test]
fn types_that_are_not_watched_are_not_waited_for() {
    let mut wire = Wire::sotw(&before());
    wire.names(Listener, &[]);
    assert_eq!(wire.all(), ["lds l=1"]);
    wire.stream.merge_push(after().full());
    assert_eq!(wire.all(), ["lds l=2"]);
    assert!(!wire.stream.is_pending());
}

#[test]
fn endpoints_go_to_those_who_subscribe_them() {
    let mut wire = sotw();
    wire.stream
        .merge_push(before().eds("old", 1, 2).endpoints(&["old", "other"]));
    assert_eq!(wire.all(), ["eds old=2"]);
    wire.stream
        .merge_push(before().eds("old", 1, 2).endpoints(&["other"]));
    assert!(wire.all().is_empty());
    // Said to be dirty, and the same.
    wire.stream
        .merge_push(before().eds("old", 1, 2).endpoints(&["old"]));
    assert!(wire.all().is_empty());
    assert!(
        wire.stream
            .last_push()
            .unwrap()
            .reasons
            .has(TriggerReason::Endpoint)
    );
}

#[test]
fn endpoints_wait_for_no_step() {
    let mut wire = sotw();
    wire.stream.merge_push(after().full());
    assert_eq!(wire.all(), ["cds kept=1 new=1 old=1"]);
    wire.stream
        .merge_push(after().eds("kept", 1, 2).endpoints(&["kept"]));
    assert_eq!(wire.all(), ["eds kept=2"]);
    // Also when another full push waits; the endpoints of what vanishes stay.
    wire.stream.merge_push(after().eds("kept", 2, 2).full());
    assert!(wire.all().is_empty());
    let names = ["kept", "old"];
    wire.stream
        .merge_push(after().eds("kept", 2, 3).endpoints(&names));
    assert_eq!(wire.all(), ["eds kept=3"]);
}

#[test]
fn pushes_that_wait_are_one() {
    let mut wire = sotw();
    wire.stream.merge_push(after().full());
    assert_eq!(wire.all(), ["cds kept=1 new=1 old=1"]);
    for revision in 3..9 {
        let world = routed("new", revision).eds("new", revision, 1);
        wire.stream.merge_push(world.full());
        assert!(wire.all().is_empty());
    }
    wire.names(Endpoint, &["kept", "new", "old"]);
    // The listeners are those of the push under way.
    assert_eq!(wire.all(), ["eds new=1"]);
    wire.ack(Endpoint);
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    wire.ack(Route);
    let sent = wire.all();
    let last = [
        "cds kept=1 new=1",
        "cds kept=1 new=8",
        "eds new=1",
        "lds l=8",
        "rds 80=8",
    ];
    assert_eq!(sent, last);
}

/// Resources that lead to new clusters are held back before these are warm, even from a client that asks for them meanwhile.
#[test]
fn listeners_and_routes_are_those_before_until_new_clusters_are_warm() {
    let mut wire = Wire::sotw(&before());
    wire.names(Cluster, &[]);
    wire.all();
    wire.ack(Cluster);
    wire.stream.merge_push(after().full());
    assert_eq!(wire.all(), ["cds kept=1 new=1 old=1"]);
    wire.names(Listener, &[]);
    wire.names(Route, &["80"]);
    assert_eq!(wire.all(), ["lds l=1", "rds 80=1"]);
    wire.ack(Cluster);
    wire.names(Endpoint, &["kept", "new", "old"]);
    assert_eq!(wire.all(), ["eds kept=1 new=1 old=1"]);
    wire.ack(Endpoint);
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
}

#[test]
fn answers_go_before_endpoints_and_endpoints_before_full_pushes() {
    let mut wire = Wire::sotw(&before());
    wire.names(Endpoint, &["old"]);
    wire.all();
    wire.stream
        .merge_push(before().eds("old", 1, 2).endpoints(&["old"]));
    wire.stream.merge_push(after().eds("old", 1, 2).full());
    wire.names(Listener, &[]);
    assert_eq!(wire.next().unwrap().kind, Listener);
    let sent = wire.all();
    assert_eq!(sent, ["eds old=2", "lds l=2"]);
}

#[test]
fn grpc_is_led_over_too() {
    let mut wire = Wire::new(Protocol::StateOfTheWorld, Client::Grpc, &before());
    for (kind, name) in [
        (Listener, "l"),
        (Route, "80"),
        (Cluster, "old"),
        (Endpoint, "old"),
    ] {
        wire.names(kind, &[name]);
        assert_eq!(wire.all(), [format!("{} {name}=1", kind.as_str())]);
        wire.ack(kind);
    }
    wire.stream.merge_push(after().full());
    assert_eq!(wire.all(), ["lds l=2", "rds 80=2"]);
    wire.ack(Listener);
    // It asks for the cluster that the routes name, while the old one stays.
    wire.names(Cluster, &["old", "new"]);
    assert_eq!(wire.all(), ["cds new=1 old=1"]);
    wire.names(Endpoint, &["old", "new"]);
    assert_eq!(wire.all(), ["eds new=1"]);
    wire.ack(Route);
    assert_eq!(wire.all(), ["cds new=1"]);
}

#[test]
fn a_client_that_does_not_read_holds_one_response_and_one_push() {
    let mut wire = sotw();
    wire.stream
        .merge_push(before().eds("old", 1, 2).endpoints(&["old"]));
    let response = wire.stream.next(wire.now).unwrap();
    let mut views = Vec::new();
    for revision in 3..100 {
        let push = before()
            .eds("old", 1, revision)
            .simple(Listener, "l", revision)
            .full();
        views.push(std::sync::Arc::downgrade(&push.view));
        wire.stream.merge_push(push);
        assert_eq!(wire.stream.next(wire.now), None);
    }
    let alive = views
        .iter()
        .filter(|view: &&std::sync::Weak<dyn View>| view.strong_count() > 0);
    assert_eq!(alive.count(), 1, "of the views that waited");
    assert_eq!(
        wire.stream.deadline(),
        Some(wire.now + Duration::from_secs(5))
    );
    wire.wait(5_000);
    assert_eq!(wire.stream.stall(wire.now), Some(Stall::Slow));
    assert_eq!(wire.stream.stall(wire.now), None);
    wire.wait(55_000);
    assert_eq!(wire.stream.stall(wire.now), Some(Stall::Closed));
    // Had it read at last, it would have got the last of them.
    wire.last.insert(response.kind, response.nonce);
    wire.stream.written();
    assert_eq!(wire.all(), ["eds old=99", "lds l=99"]);
}

#[test]
fn two_streams_of_one_node_do_not_know_each_other() {
    let mut old = sotw();
    let mut new = sotw();
    let push = before().eds("old", 1, 2).endpoints(&["old"]);
    old.stream.merge_push(push.clone());
    new.stream.merge_push(push);
    assert_eq!(
        (old.all(), new.all()),
        (vec!["eds old=2".to_owned()], vec!["eds old=2".to_owned()])
    );
    drop(old);
    new.stream
        .merge_push(before().eds("old", 1, 3).endpoints(&["old"]));
    assert_eq!(new.all(), ["eds old=3"]);
}

#[test]
fn the_share_of_subscribed_endpoints_is_counted() {
    let mut wire = settled(Wire::sotw(&before()), &["kept"]);
    assert_eq!(wire.stream.endpoint_percent(), 50);
    wire.names(Endpoint, &["kept", "old"]);
    assert_eq!(wire.stream.endpoint_percent(), 100);
    let names = |kind: Type| wire.stream.watches(kind).names;
    assert_eq!(names(Endpoint).len(), 2);
    assert!(wire.stream.watches(Cluster).wildcard && names(Cluster).is_empty());
}
