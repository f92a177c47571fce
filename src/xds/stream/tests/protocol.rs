//! The rows of the protocol, each for both variants where they share it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use prost::Message as _;

use super::world::{Body, Wire, World, text};
use crate::resource_names::RequestReader;
use crate::stream::{
    Client, Fault, MAX_NAME_BYTES, NAMES, Protocol, PushScope, Request, RequestOutcome, Stream,
    UNKNOWN_NAMES,
};
use crate::version::Version;
use crate::view::Type;
use crate::view::Type::{Cluster, Endpoint, Listener, Route, Secret};

fn world() -> World {
    World::default()
        .eds("a", 1, 1)
        .eds("b", 1, 1)
        .simple(Cluster, "static", 1)
        .simple(Listener, "l", 1)
        .simple(Route, "80", 1)
}

/// A stream that has everything, all of it accepted.
fn settled(mut wire: Wire) -> Wire {
    for (kind, names) in [
        (Cluster, &[][..]),
        (Endpoint, &["a", "b"]),
        (Listener, &[]),
        (Route, &["80"]),
    ] {
        assert_eq!(wire.names(kind, names), RequestOutcome::Subscribed);
        assert_eq!(wire.all().len(), 1, "{kind:?}");
        assert_eq!(wire.ack(kind), RequestOutcome::Acked);
    }
    assert!(wire.all().is_empty());
    wire
}

fn in_sync(wire: &Wire, kind: Type) -> bool {
    let status = wire.stream.status(kind).unwrap();
    status.sent.is_some() && status.sent == status.acked
}

#[test]
fn the_first_request_is_answered_whatever_its_nonce() {
    for nonce in ["", "7", "of another stream"] {
        let mut wire = Wire::sotw(&world());
        let request = Request {
            nonce: nonce.to_owned(),
            ..Request::of(Cluster)
        };
        assert_eq!(wire.ask(&request), RequestOutcome::Subscribed);
        assert_eq!(wire.all(), ["cds a=1 b=1 static=1"]);
    }
}

#[test]
fn current_versions_are_told_nothing() {
    let world = world();
    let mut wire = Wire::sotw(&world);
    let of = |kind, names: &[&str], version: Version| Request {
        version: version.to_string(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Request::of(kind)
    };
    wire.ask(&of(Cluster, &[], world.version(Cluster)));
    wire.ask(&of(Endpoint, &["a", "b"], world.version(Endpoint)));
    wire.ask(&of(Listener, &[], world.version(Listener)));
    wire.ask(&of(Route, &["80"], world.version(Route)));
    assert!(wire.all().is_empty());
    for kind in [Cluster, Endpoint, Listener, Route] {
        assert!(in_sync(&wire, kind), "{kind:?}");
    }
    // And later pushes come.
    wire.stream
        .merge_push(world.eds("a", 1, 2).endpoints(&["a"]));
    assert_eq!(wire.all(), ["eds a=2"]);
}

#[test]
fn a_version_of_other_names_is_not_current() {
    let world = world();
    let mut wire = Wire::sotw(&world);
    let a = world.resource(Endpoint, "a").unwrap();
    wire.names(Cluster, &[]);
    wire.all();
    let request = Request {
        version: a.version.to_string(),
        names: vec!["a".to_owned(), "b".to_owned()].into(),
        ..Request::of(Endpoint)
    };
    wire.ask(&request);
    assert_eq!(wire.all(), ["eds a=1 b=1"]);
}

/// While clusters warm, Envoy asks for their endpoints on a new stream, with the version that it has, and not for clusters.
#[test]
fn endpoints_are_answered_in_full_unless_current_clusters_were_asked_for_before() {
    let world = world();
    let endpoints = Request {
        version: world.version(Endpoint).to_string(),
        names: vec!["a".to_owned(), "b".to_owned()].into(),
        ..Request::of(Endpoint)
    };
    let clusters = |version: String| Request {
        version,
        ..Request::of(Cluster)
    };
    let full = "eds a=1 b=1".to_owned();

    let mut none = Wire::sotw(&world);
    none.ask(&endpoints);
    assert_eq!(none.all(), std::slice::from_ref(&full));
    // They come when all are warm, and are current.
    none.ask(&clusters(world.version(Cluster).to_string()));
    assert!(none.all().is_empty());

    let mut old = Wire::sotw(&world);
    old.ask(&clusters(Version::of(b"old").to_string()));
    old.ask(&endpoints);
    assert_eq!(old.all(), ["cds a=1 b=1 static=1", &full]);

    // Current ones were asked for, but others have been sent since: they warm.
    let mut since = Wire::sotw(&world);
    since.ask(&clusters(world.version(Cluster).to_string()));
    since.stream.merge_push(world.eds("a", 2, 1).full());
    assert_eq!(since.all(), ["cds a=2 b=1 static=1"]);
    since.ask(&endpoints);
    assert_eq!(since.all(), [full]);
}

#[test]
fn clusters_that_come_after_their_endpoints_are_followed_by_them() {
    let world = world();
    let mut wire = Wire::sotw(&world);
    wire.names(Endpoint, &["a", "b"]);
    assert_eq!(wire.all(), ["eds a=1 b=1"]);
    wire.names(Cluster, &[]);
    assert_eq!(wire.all(), ["cds a=1 b=1 static=1", "eds a=1 b=1"]);
}

#[test]
fn an_ack_moves_the_accepted_version_and_a_nack_does_not() {
    let world = world();
    for wire in [Wire::sotw(&world), Wire::delta(&world)] {
        let mut wire = settled(wire);
        let before = wire.stream.status(Listener).unwrap().acked;
        let changed = world.clone().simple(Listener, "l", 2);
        wire.stream.merge_push(changed.full());
        assert_eq!(wire.all(), ["lds l=2"]);
        assert_eq!(
            wire.nack(Listener, "no such file"),
            RequestOutcome::Nacked(1)
        );
        let status = wire.stream.status(Listener).unwrap();
        assert_eq!(
            (status.acked, status.sent),
            (before, Some(changed.version(Listener)))
        );
        assert_eq!(&*status.nack.unwrap().message, "no such file");
        // The same again: nothing for two seconds, and nothing after a push that does not change it.
        assert!(wire.all().is_empty());
        wire.wait(2_000);
        wire.stream.merge_push(changed.full());
        assert!(wire.all().is_empty());
        // Another content is sent, and its ACK clears the refusal.
        wire.stream
            .merge_push(world.clone().simple(Listener, "l", 3).full());
        assert_eq!(wire.all(), ["lds l=3"]);
        assert_eq!(wire.ack(Listener), RequestOutcome::Acked);
        assert!(in_sync(&wire, Listener));
        assert_eq!(wire.stream.status(Listener).unwrap().nack, None);
    }
}

#[test]
fn names_in_a_nack_count() {
    let mut wire = settled(Wire::sotw(&world()));
    wire.stream
        .merge_push(world().eds("a", 1, 2).endpoints(&["a"]));
    assert_eq!(wire.all(), ["eds a=2"]);
    let request = Request {
        nonce: wire.nonce(Endpoint),
        names: ["a", "b", "c"].into(),
        error: Some("no".to_owned()),
        ..Request::of(Endpoint)
    };
    assert_eq!(wire.ask(&request), RequestOutcome::Nacked(1));
    assert_eq!(wire.all(), ["eds c=~"]);
}

#[test]
fn a_push_of_endpoints_concerns_those_that_the_client_watches() {
    let wire = settled(Wire::sotw(&world()));
    let concerned = |scope: &PushScope| -> Vec<(Type, Vec<String>)> {
        let concerned = wire.stream.concerned(scope).into_iter();
        concerned
            .map(|(kind, names)| (kind, names.iter().map(str::to_owned).collect()))
            .collect()
    };
    let changed = |names: &[&str]| {
        let names = names.iter().map(|name| Arc::from(*name));
        PushScope::of_endpoints(&Arc::new(names.collect()))
    };
    assert_eq!(concerned(&changed(&[])), []);
    assert_eq!(
        concerned(&changed(&["a", "elsewhere"])),
        [(Endpoint, vec!["a".to_owned()])]
    );
    let all = concerned(&PushScope::Full);
    assert!(
        all.len() > 1
            && all
                .iter()
                .any(|(kind, names)| *kind == Endpoint && names.len() == 2),
        "{all:?}"
    );
}

#[test]
fn a_stale_nonce_is_ignored_and_the_newer_subscription_holds() {
    let mut wire = settled(Wire::sotw(&world()));
    let stale = wire.nonce(Endpoint);
    wire.stream
        .merge_push(world().eds("a", 1, 2).endpoints(&["a"]));
    assert_eq!(wire.all(), ["eds a=2"]);
    let request = Request {
        nonce: stale,
        names: ["a", "b", "c"].into(),
        ..Request::of(Endpoint)
    };
    assert_eq!(wire.ask(&request), RequestOutcome::Expired);
    assert!(wire.all().is_empty());
    assert_eq!(wire.stream.watches(Endpoint).names.len(), 2);
    // Its answer to the newer response has the names, too.
    assert_eq!(
        wire.names(Endpoint, &["a", "b", "c"]),
        RequestOutcome::Acked
    );
    assert_eq!(wire.all(), ["eds c=~"]);
}

/// A name that goes and comes while a response is on its way is new to the client, though no request that counts lacks it.
#[test]
fn a_name_that_was_let_go_in_a_stale_request_is_answered_again() {
    let mut wire = settled(Wire::sotw(&world()));
    let stale = wire.nonce(Endpoint);
    wire.stream
        .merge_push(world().eds("a", 1, 2).endpoints(&["a"]));
    assert_eq!(wire.all(), ["eds a=2"]);
    let request = Request {
        nonce: stale,
        names: vec!["a".to_owned()].into(),
        ..Request::of(Endpoint)
    };
    assert_eq!(wire.ask(&request), RequestOutcome::Expired);
    assert!(wire.all().is_empty());
    assert_eq!(wire.names(Endpoint, &["a", "b"]), RequestOutcome::Acked);
    assert_eq!(wire.all(), ["eds b=1"]);
}

#[test]
fn added_names_are_answered_and_removed_ones_are_not() {
    let mut wire = Wire::sotw(&world());
    wire.names(Endpoint, &["a"]);
    assert_eq!(wire.all(), ["eds a=1"]);
    assert_eq!(
        wire.names(Endpoint, &["a", "b", "c"]),
        RequestOutcome::Acked
    );
    assert_eq!(wire.all(), ["eds b=1 c=~"]);
    assert_eq!(wire.names(Endpoint, &["a"]), RequestOutcome::Acked);
    assert!(wire.all().is_empty());
    assert_eq!(wire.names(Endpoint, &["a", "b"]), RequestOutcome::Asked);
    assert_eq!(wire.all(), ["eds b=1"]);
}

#[test]
fn names_before_the_first_answer_are_joined_to_it() {
    let mut wire = Wire::sotw(&world());
    assert_eq!(wire.names(Endpoint, &["a"]), RequestOutcome::Subscribed);
    assert_eq!(wire.names(Endpoint, &["a", "b"]), RequestOutcome::Asked);
    assert_eq!(wire.all(), ["eds a=1 b=1"]);
}

#[test]
fn a_wildcard_stays_through_acks_without_names() {
    for first in [&[][..], &["*"]] {
        let mut wire = Wire::sotw(&world());
        wire.names(Cluster, first);
        assert_eq!(wire.all(), ["cds a=1 b=1 static=1"]);
        assert_eq!(wire.names(Cluster, &[]), RequestOutcome::Acked);
        assert!(wire.stream.watches(Cluster).wildcard);
        wire.stream.merge_push(world().eds("c", 1, 1).full());
        assert_eq!(wire.all(), ["cds a=1 b=1 c=1 static=1"]);
    }
}

#[test]
fn clusters_by_name_are_those_only() {
    let mut wire = Wire::sotw(&world());
    wire.names(Cluster, &["a", "unknown"]);
    assert_eq!(wire.all(), ["cds a=1"]);
    wire.names(Cluster, &["a", "unknown", "b"]);
    assert_eq!(wire.all(), ["cds a=1 b=1"]);
    wire.names(Cluster, &["b"]);
    wire.stream.merge_push(world().eds("a", 2, 1).full());
    assert!(wire.all().is_empty());
}

#[test]
fn no_names_of_endpoints_or_routes_are_nothing() {
    for wire in [Wire::sotw(&world()), Wire::delta(&world())] {
        let mut wire = wire;
        for kind in [Endpoint, Route] {
            assert_eq!(wire.names(kind, &[]), RequestOutcome::Subscribed);
            assert_eq!(wire.names(kind, &["*"]), RequestOutcome::Asked);
        }
        assert!(wire.all().is_empty());
    }
}

#[test]
fn an_empty_response_is_an_answer() {
    for wire in [
        Wire::sotw(&World::default()),
        Wire::delta(&World::default()),
    ] {
        let mut wire = wire;
        wire.names(Listener, &[]);
        assert_eq!(wire.all(), ["lds"]);
        assert_eq!(wire.ack(Listener), RequestOutcome::Acked);
        assert!(in_sync(&wire, Listener));
    }
}

#[test]
fn unknown_names_are_empty_and_pushed_when_they_appear() {
    let mut wire = settled(Wire::sotw(&world()));
    wire.names(Endpoint, &["a", "b", "c"]);
    wire.names(Route, &["80", "81"]);
    assert_eq!(wire.all(), ["eds c=~", "rds 81=~"]);
    wire.stream.merge_push(world().full());
    assert!(wire.all().is_empty());
    let more = world().eds("c", 1, 4).simple(Route, "81", 5);
    wire.stream.merge_push(more.full());
    let sent = wire.all();
    assert_eq!(sent, ["cds a=1 b=1 c=1 static=1", "eds c=4"]);
    wire.ack(Endpoint);
    wire.ack(Cluster);
    assert_eq!(wire.all(), ["rds 81=5"]);
}

/// An empty secret would be refused, and with it whatever comes beside it.
#[test]
fn a_missing_secret_is_answered_once_it_is_there() {
    let one = world().simple(Secret, "a", 1);
    let mut wire = settled(Wire::sotw(&one));
    assert_eq!(wire.names(Secret, &["b"]), RequestOutcome::Subscribed);
    assert!(wire.all().is_empty());
    wire.names(Secret, &["a", "b"]);
    assert_eq!(wire.all(), ["sds a=1"]);
    assert_eq!(wire.ack(Secret), RequestOutcome::Acked);
    wire.stream.merge_push(one.full());
    assert!(wire.all().is_empty());
    // A rotation is of nothing else, and one that appears comes alone.
    wire.stream
        .merge_push(world().simple(Secret, "a", 2).full());
    assert_eq!(wire.all(), ["sds a=2"]);
    let last = wire.stream.last_push().unwrap();
    assert_eq!(last.types, [Secret]);
    wire.ack(Secret);
    let both = world().simple(Secret, "a", 2).simple(Secret, "b", 3);
    wire.stream.merge_push(both.full());
    assert_eq!(wire.all(), ["sds b=3"]);
    wire.ack(Secret);
    // One that goes is not spoken of: what named it goes, too.
    wire.stream
        .merge_push(world().simple(Secret, "b", 3).full());
    assert!(wire.all().is_empty());
    wire.stream.merge_push(both.full());
    assert_eq!(wire.all(), ["sds a=2"]);

    let mut wire = settled(Wire::delta(&one));
    wire.names(Secret, &["a", "b"]);
    assert_eq!(wire.all(), ["sds a=1 -b"]);
    wire.ack(Secret);
    wire.stream.merge_push(both.full());
    assert_eq!(wire.all(), ["sds a=2 b=3"]);
}

/// They come behind the listeners that name them.
#[test]
fn secrets_are_the_last_of_a_push() {
    let mut wire = settled(Wire::sotw(&world().simple(Secret, "a", 1)));
    wire.names(Secret, &["a"]);
    assert_eq!(wire.all(), ["sds a=1"]);
    wire.ack(Secret);
    let next = world().simple(Listener, "l", 7).simple(Route, "80", 7);
    wire.stream.merge_push(next.simple(Secret, "a", 2).full());
    assert_eq!(wire.all(), ["lds l=7", "rds 80=7", "sds a=2"]);
}

/// Two responses come to one state: the first has another version than the last.
#[test]
fn a_response_has_the_version_of_all_that_the_client_has_after_it() {
    let mut wire = Wire::sotw(&world());
    wire.names(Endpoint, &["a"]);
    let first = wire.next().unwrap();
    assert_eq!(
        first.version,
        world().resource(Endpoint, "a").unwrap().version
    );
    wire.names(Endpoint, &["a", "b"]);
    let second = wire.next().unwrap();
    assert_eq!(second.resources.len(), 1);
    assert_eq!(second.version, world().version(Endpoint));
    assert_ne!(first.nonce, second.nonce);
}

#[test]
fn grpc_names_what_it_wants_and_misses_what_is_not_there() {
    let world = world();
    let mut wire = Wire::new(Protocol::StateOfTheWorld, Client::Grpc, &world);
    assert_eq!(wire.names(Cluster, &[]), RequestOutcome::Subscribed);
    assert!(wire.all().is_empty());
    wire.names(Listener, &["l", "unknown"]);
    assert_eq!(wire.all(), ["lds l=1"]);
    wire.names(Route, &["unknown"]);
    assert_eq!(wire.all(), ["rds"]);
    wire.names(Cluster, &["a"]);
    assert_eq!(wire.all(), ["cds a=1"]);
    // Nothing is wanted any more.
    assert_eq!(wire.names(Cluster, &[]), RequestOutcome::Acked);
    wire.stream
        .merge_push(world.eds("a", 2, 1).simple(Listener, "l2", 1).full());
    assert!(wire.all().is_empty());
}

fn endpoints(names: &[String]) -> World {
    let mut world = World::default();
    for name in names {
        world.put(Endpoint, name, Body::default());
    }
    world
}

/// One at a time they are no more.
#[test]
fn names_of_nothing_that_come_one_by_one_have_the_same_bound() {
    for kind in [Cluster, Listener] {
        let mut wire = Wire::delta(&world());
        for name in (0..UNKNOWN_NAMES + 100).map(|at| format!("x{at:05}")) {
            let names = [name].into();
            let request = Request {
                names,
                ..Request::of(kind)
            };
            wire.ask(&request);
            assert_eq!(wire.all().len(), 1);
        }
        let known = wire.stream.watches(kind).names.len();
        assert_eq!(known, UNKNOWN_NAMES, "{kind:?}");
    }
}

/// Each name that there is nothing of is remembered, for it may come to be there: so they are bounded, in both protocols. A client
/// that was told of more by another server is answered, and its stream goes on.
#[test]
fn names_of_nothing_beyond_a_bound_are_answered_and_forgotten() {
    let names = |word: &str, count: usize| -> Vec<String> {
        (0..count).map(|at| format!("{word}{at:05}")).collect()
    };
    for kind in Type::ALL {
        for (wire, delta) in [(Wire::sotw(&world()), false), (Wire::delta(&world()), true)] {
            let mut wire = wire;
            let many = [names("x", UNKNOWN_NAMES), names("y", 500)].concat();
            let mut request = Request {
                names: many.into(),
                ..Request::of(kind)
            };
            assert_eq!(wire.ask(&request), RequestOutcome::Subscribed);
            let mut answered = 0;
            while let Some(response) = wire.next() {
                let all = response.resources.iter().map(|one| &one.name);
                let all = all.chain(&response.removed);
                answered += all.filter(|name| name.starts_with(['x', 'y'])).count();
            }
            let all_answered = match kind {
                Endpoint | Route => true,
                Cluster | Listener => delta,
                Secret => false,
            };
            if all_answered {
                assert_eq!(answered, UNKNOWN_NAMES + 500, "{kind:?} {delta}");
            }
            let known = wire.stream.watches(kind).names.len();
            assert_eq!(known, UNKNOWN_NAMES, "{kind:?} {delta}");
            // The acknowledgement says them all again, and has no answer.
            request.nonce = wire.nonce(kind);
            if delta {
                request.names = crate::resource_names::ResourceNames::default();
            }
            wire.ask(&request);
            assert!(wire.all().is_empty(), "{kind:?} {delta}");
            assert_eq!(wire.stream.watches(kind).names.len(), UNKNOWN_NAMES);
        }
    }
    // One of them that comes to be there is sent when it is named again.
    let mut wire = Wire::sotw(&world());
    let many = [names("x", UNKNOWN_NAMES), names("y", 1)].concat();
    let mut request = Request {
        names: many.into(),
        ..Request::of(Endpoint)
    };
    wire.ask(&request);
    assert_eq!(wire.all().len(), 1);
    let mut later = world();
    later.put(Endpoint, "y00000", Body::default());
    wire.stream.merge_push(later.endpoints(&["y00000"]));
    assert!(wire.all().is_empty());
    request.nonce = wire.nonce(Endpoint);
    wire.ask(&request);
    let sent = wire.next().unwrap();
    let sent: Vec<_> = sent.resources.iter().map(|one| &*one.name).collect();
    assert_eq!(sent, ["y00000"]);

    let mut wire = Wire::sotw(&world());
    let long = Request {
        names: vec!["x".repeat(MAX_NAME_BYTES + 1)].into(),
        ..Request::of(Endpoint)
    };
    let fault = wire.stream.request(wire.now, &long);
    assert_eq!(fault, Err(Fault::LongName(MAX_NAME_BYTES + 1)));
}

/// A request without names asks for everything.
#[test]
fn a_request_whose_names_are_all_beyond_the_bound_asks_for_none_but_them() {
    let names: Vec<_> = (0..UNKNOWN_NAMES).map(|at| format!("x{at}")).collect();
    let request = Request {
        names: names.into(),
        ..Request::of(Endpoint)
    };
    for (mut wire, prefix) in [
        (Wire::sotw(&world()), "lds"),
        (Wire::delta(&world()), "lds -nothing"),
    ] {
        wire.ask(&request);
        assert_eq!(wire.all().len(), 1);
        wire.names(Listener, &["nothing"]);
        let all = wire.all();
        assert!(all.len() == 1 && all[0].starts_with(prefix), "{all:?}");
        let watches = wire.stream.watches(Listener);
        assert!(!watches.wildcard && watches.names.len() == 1, "{watches:?}");
    }
}

/// An acknowledgement makes nothing: the resources that a push has changed were made before it went out.
#[test]
fn an_acknowledgement_repeats_the_names_and_no_other_request_does() {
    let names = ["a", "b"].map(str::to_owned);
    let mut wire = Wire::sotw(&endpoints(&names));
    let of = |names: &[&str]| Request {
        names: names.iter().collect(),
        ..Request::of(Endpoint)
    };
    assert!(!wire.stream.repeats(&of(&["a", "b"])));
    wire.ask(&of(&["a", "b"]));
    assert!(wire.stream.repeats(&of(&["a", "b"])));
    for other in [&["a"][..], &["a", "c"], &["a", "b", "c"], &[]] {
        assert!(!wire.stream.repeats(&of(other)), "{other:?}");
    }
    assert!(!wire.stream.repeats(&Request::of(Cluster)));
}

/// It is not the client's doing, and it says all its names with each ACK.
#[test]
fn names_that_vanish_later_do_not_count() {
    let names: Vec<String> = (0..3 * UNKNOWN_NAMES)
        .map(|at| format!("n{at:05}"))
        .collect();
    let mut wire = Wire::sotw(&endpoints(&names));
    let mut request = Request {
        names: names.clone().into(),
        ..Request::of(Endpoint)
    };
    wire.ask(&request);
    assert_eq!(wire.all().len(), 1);
    let gone: Vec<&str> = names.iter().map(String::as_str).collect();
    wire.stream.merge_push(World::default().endpoints(&gone));
    assert_eq!(wire.all().len(), 1);
    assert_eq!(wire.stream.resources(Endpoint).iter().count(), 0);
    let more = names.iter().map(String::as_str).chain(["other"]);
    request.names = more.collect();
    request.nonce = wire.nonce(Endpoint);
    wire.ask(&request);
    assert_eq!(wire.stream.watches(Endpoint).names.len(), names.len() + 1);
    // A proxy that was away meanwhile is told of all of them, or of a part, and says the others on its next stream.
    let many = |count: usize| -> Vec<(String, String)> {
        let names = (0..count).map(|at| format!("n{at:05}"));
        names.map(|name| (name, "v".to_owned())).collect()
    };
    for (count, streams) in [(3 * UNKNOWN_NAMES, 1), (50 * UNKNOWN_NAMES, 4)] {
        let mut left = many(count);
        for stream in 1..=streams {
            let mut wire = Wire::delta(&World::default());
            let request = Request {
                initial: left.clone(),
                ..Request::of(Cluster)
            };
            let outcome = wire.stream.request(wire.now, &request);
            let all = wire.in_time().into_iter();
            let removed: BTreeSet<_> = all.flat_map(|response| response.removed).collect();
            assert!(removed.len() > 2 * UNKNOWN_NAMES, "{}", removed.len());
            left.retain(|(name, _)| !removed.contains(name.as_str()));
            let ends = Err(Fault::UnknownNames);
            let last = stream == streams;
            assert_eq!(left.is_empty(), last, "{count}: {} left", left.len());
            assert_eq!(
                outcome,
                if last {
                    Ok(RequestOutcome::Subscribed)
                } else {
                    ends
                }
            );
        }
    }
}

#[test]
fn too_many_names_end_the_stream() {
    let many = |count| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let large = endpoints(&many(2 * NAMES));
    for wire in [Wire::sotw(&large), Wire::delta(&large)] {
        let mut wire = wire;
        let mut request = Request {
            names: many(NAMES).into(),
            ..Request::of(Endpoint)
        };
        assert_eq!(wire.ask(&request), RequestOutcome::Subscribed);
        request.names = many(NAMES + 1).into();
        let fault = wire.stream.request(wire.now, &request);
        assert_eq!(fault, Err(Fault::TooManyNames(NAMES + 1)));
    }
    let mut wire = Wire::delta(&large);
    let half = |from: usize| Request {
        names: many(from + NAMES / 2 + 1).split_off(from).into(),
        ..Request::of(Endpoint)
    };
    assert_eq!(wire.ask(&half(0)), RequestOutcome::Subscribed);
    let fault = wire.stream.request(wire.now, &half(NAMES));
    assert_eq!(fault, Err(Fault::TooManyNames(NAMES + 2)));
}

fn delta(kind: Type, initial: &[(&str, String)], subscribe: &[&str]) -> Request {
    Request {
        names: subscribe.iter().map(|name| (*name).to_owned()).collect(),
        initial: initial
            .iter()
            .map(|(name, version)| ((*name).to_owned(), version.clone()))
            .collect(),
        ..Request::of(kind)
    }
}

#[test]
fn delta_sends_what_differs_from_the_initial_versions() {
    let world = world();
    let of = |name: &str| world.resource(Cluster, name).unwrap().version.to_string();
    for (initial, sent) in [
        (
            vec![("a", of("a")), ("b", of("b")), ("static", of("static"))],
            vec![],
        ),
        (
            vec![("a", of("b")), ("b", of("b")), ("static", of("static"))],
            vec!["cds a=1"],
        ),
        (
            vec![("a", of("a")), ("b", "?".to_owned()), ("gone", of("a"))],
            vec!["cds b=1 static=1", "cds -gone"],
        ),
        (vec![], vec!["cds a=1 b=1 static=1"]),
    ] {
        let mut wire = Wire::delta(&world);
        assert_eq!(
            wire.ask(&delta(Cluster, &initial, &["*"])),
            RequestOutcome::Subscribed
        );
        let all: Vec<_> = wire.in_time().iter().map(text).collect();
        assert_eq!(all, sent);
        let status = wire.stream.status(Cluster).unwrap();
        assert_eq!(status.sent, Some(world.version(Cluster)));
        assert_eq!(status.acked.is_some(), sent.is_empty());
    }
}

#[test]
fn delta_endpoints_are_answered_in_full_unless_clusters_are_current() {
    let world = world();
    let of = |kind, name: &str| world.resource(kind, name).unwrap().version.to_string();
    let endpoints = [("a", of(Endpoint, "a")), ("b", of(Endpoint, "b"))];
    let clusters = ["a", "b", "static"].map(|name| (name, of(Cluster, name)));
    let request = delta(Endpoint, &endpoints, &["a", "b"]);

    let mut held_back = Wire::delta(&world);
    held_back.ask(&request);
    assert_eq!(held_back.all(), ["eds a=1 b=1"]);

    let mut current = Wire::delta(&world);
    current.ask(&delta(Cluster, &clusters, &[]));
    current.ask(&request);
    assert!(current.all().is_empty());

    // One name is not current.
    let mut one = Wire::delta(&world);
    one.ask(&delta(Cluster, &clusters, &[]));
    one.ask(&delta(Endpoint, &endpoints[..1], &["a", "b"]));
    assert_eq!(one.all(), ["eds b=1"]);
}

#[test]
fn delta_says_at_once_what_is_not_there_and_sends_it_when_it_appears() {
    let mut wire = settled(Wire::delta(&world()));
    for kind in [Endpoint, Route] {
        assert_eq!(wire.names(kind, &["c"]), RequestOutcome::Asked);
        assert_eq!(wire.all(), [format!("{} -c", kind.as_str())]);
        assert_eq!(wire.ack(kind), RequestOutcome::Acked);
    }
    wire.stream.merge_push(world().full());
    assert!(wire.all().is_empty());
    let more = world().simple(Endpoint, "c", 4).simple(Route, "c", 5);
    wire.stream.merge_push(more.full());
    assert_eq!(wire.all(), ["eds c=4", "rds c=5"]);
}

#[test]
fn delta_by_name_for_clusters_too() {
    let mut wire = Wire::delta(&world());
    wire.names(Cluster, &["a", "c"]);
    assert_eq!(wire.all(), ["cds a=1 -c"]);
    assert_eq!(wire.names(Cluster, &["static"]), RequestOutcome::Acked);
    assert_eq!(wire.all(), ["cds static=1"]);
    wire.stream
        .merge_push(world().eds("c", 3, 1).eds("b", 2, 1).full());
    assert_eq!(wire.all(), ["cds c=3"]);
    // The wildcard and back.
    wire.names(Cluster, &["*"]);
    assert_eq!(wire.all(), ["cds b=2"]);
    let request = Request {
        unsubscribe: vec!["*".to_owned()],
        ..Request::of(Cluster)
    };
    wire.ask(&request);
    wire.stream
        .merge_push(world().eds("c", 4, 1).eds("b", 3, 1).full());
    assert_eq!(wire.all(), ["cds c=4"]);
}

#[test]
fn delta_sends_a_name_again_that_is_subscribed_again() {
    let mut wire = settled(Wire::delta(&world()));
    wire.names(Endpoint, &["a"]);
    wire.names(Cluster, &["a"]);
    assert_eq!(wire.all(), ["cds a=1", "eds a=1"]);
}

#[test]
fn delta_sends_nothing_of_what_was_unsubscribed() {
    let mut wire = settled(Wire::delta(&world()));
    let request = Request {
        unsubscribe: vec!["b".to_owned(), "unknown".to_owned()],
        ..Request::of(Endpoint)
    };
    assert_eq!(wire.ask(&request), RequestOutcome::Asked);
    wire.stream
        .merge_push(world().eds("b", 1, 7).endpoints(&["b"]));
    assert!(wire.all().is_empty());
    let mut less = world();
    less.remove(Endpoint, "b");
    wire.stream.merge_push(less.endpoints(&["b"]));
    assert!(wire.all().is_empty());
}

/// In delta an expired answer still has names that are said once.
#[test]
fn delta_takes_names_whatever_the_nonce() {
    let mut wire = settled(Wire::delta(&world()));
    let stale = wire.nonce(Endpoint);
    wire.stream
        .merge_push(world().eds("a", 1, 2).endpoints(&["a"]));
    assert_eq!(wire.all(), ["eds a=2"]);
    let request = Request {
        nonce: stale,
        names: vec!["c".to_owned()].into(),
        ..Request::of(Endpoint)
    };
    assert_eq!(wire.ask(&request), RequestOutcome::Expired);
    assert_eq!(wire.all(), ["eds -c"]);
}

#[test]
fn delta_does_not_send_a_refused_resource_until_it_changes() {
    let mut wire = settled(Wire::delta(&world()));
    wire.stream
        .merge_push(world().simple(Cluster, "static", 2).full());
    assert_eq!(wire.all(), ["cds static=2"]);
    assert_eq!(wire.nack(Cluster, "no"), RequestOutcome::Nacked(1));
    let other = world().simple(Cluster, "static", 2).eds("a", 2, 1);
    wire.stream.merge_push(other.full());
    assert_eq!(wire.all(), ["cds a=2", "eds a=1"]);
}

/// Envoy takes the others of a delta response, and a later ACK is about what was in that response.
#[test]
fn a_delta_nack_stands_until_what_it_names_changes_or_goes() {
    let is_refused = |wire: &Wire| wire.stream.status(Cluster).unwrap().nack.is_some();
    let refused = || {
        let mut wire = settled(Wire::delta(&world()));
        let bad = world().simple(Cluster, "static", 2);
        wire.stream.merge_push(bad.full());
        assert_eq!(wire.all(), ["cds static=2"]);
        let message = "Error adding/updating cluster(s) static: no such file";
        assert_eq!(wire.nack(Cluster, message), RequestOutcome::Nacked(1));
        wire.stream.merge_push(bad.eds("a", 2, 1).full());
        assert_eq!(wire.all(), ["cds a=2", "eds a=1"]);
        assert_eq!(wire.ack(Cluster), RequestOutcome::Acked);
        wire.ack(Endpoint);
        assert!(is_refused(&wire));
        wire
    };
    let mut wire = refused();
    let good = world().simple(Cluster, "static", 3).eds("a", 2, 1);
    wire.stream.merge_push(good.full());
    assert_eq!(wire.all(), ["cds static=3"]);
    assert!(is_refused(&wire));
    wire.ack(Cluster);
    assert!(!is_refused(&wire));

    let mut wire = refused();
    let mut gone = world().eds("a", 2, 1);
    gone.remove(Cluster, "static");
    wire.stream.merge_push(gone.full());
    assert_eq!(wire.all(), ["cds -static"]);
    wire.ack(Cluster);
    assert!(!is_refused(&wire));
}

/// Envoy names the field that breaks a constraint, and not the resource that has it.
#[test]
fn a_refusal_that_names_no_resource_may_be_by_any_rule() {
    let world = ["static", "by-a", "by-b"]
        .into_iter()
        .fold(World::default(), |world, name| {
            world.simple(Cluster, name, 1)
        });
    for (message, blame) in [
        ("Error adding cluster by-b: no", "made by EnvoyFilter n/b"),
        ("Error adding cluster static: no", ""),
        (
            "Proto constraint validation failed (ConnectTimeout: -5s)",
            "perhaps made by EnvoyFilter n/a, EnvoyFilter n/b",
        ),
    ] {
        let mut wire = Wire::sotw(&world);
        wire.ask(&Request::of(Cluster));
        assert_eq!(wire.all().len(), 1);
        assert_eq!(wire.nack(Cluster, message), RequestOutcome::Nacked(1));
        assert_eq!(
            wire.stream.nacked_rules_text(Cluster, 5),
            blame,
            "{message}"
        );
    }
}

/// A subscription costs one walk: nothing is walked for each name again.
#[test]
fn a_hundred_thousand_names_are_one_walk() {
    let names: Vec<String> = (0..NAMES).map(|n| format!("outbound|{n}||host")).collect();
    let mut wire = Wire::sotw(&endpoints(&names));
    let request = Request {
        names: names.clone().into(),
        ..Request::of(Endpoint)
    };
    wire.ask(&request);
    let response = wire.next().unwrap();
    assert_eq!(response.resources.len(), NAMES);
    assert_eq!(
        response.version,
        response.resources.iter().map(|found| found.version).sum()
    );
    assert_eq!(wire.stream.resources(Endpoint).iter().count(), NAMES);
    assert_eq!(wire.ack(Endpoint), RequestOutcome::Acked);
    assert!(wire.next().is_none());
}

/// Envoy takes nothing of a response behind what it refuses; so what is in files of its own, of which nobody knows whether they
/// are there, comes by itself and last.
#[test]
fn secrets_in_files_of_a_client_stand_alone() {
    let world = World::default()
        .simple(Secret, "file-cert:/a~/b", 1)
        .simple(Secret, "file-cert:/c~/d", 1)
        .simple(Secret, "kubernetes://a", 1);
    let names = ["file-cert:/a~/b", "file-cert:/c~/d", "kubernetes://a"];
    for (mut wire, repeats) in [(Wire::sotw(&world), true), (Wire::delta(&world), false)] {
        wire.names(Secret, &names);
        assert_eq!(wire.all(), ["sds kubernetes://a=1"]);
        assert_ne!(
            wire.stream.status(Secret).unwrap().sent,
            Some(world.version(Secret)),
            "there is more to come"
        );
        wire.ack(Secret);
        assert_eq!(wire.all(), ["sds file-cert:/a~/b=1"]);
        let all = names.iter().map(|name| (*name).to_owned());
        wire.ask(&Request {
            nonce: wire.nonce(Secret),
            names: all.filter(|_| repeats).collect(),
            error: Some("no such file: /a".to_owned()),
            ..Request::of(Secret)
        });
        assert_eq!(wire.all(), ["sds file-cert:/c~/d=1"]);
        assert_eq!(
            wire.stream.status(Secret).unwrap().sent,
            Some(world.version(Secret))
        );
        wire.ack(Secret);
        assert_eq!(wire.all(), [""; 0]);
        // The answer to the other one takes nothing back.
        let refused = |wire: &Wire| {
            let refusals = wire.stream.nacks(Secret).into_iter();
            let messages = refusals.map(|one| one.nack.message.to_string());
            let status_nack = wire.stream.status(Secret).unwrap().nack;
            (status_nack.is_some(), messages.collect::<Vec<_>>())
        };
        let stands = (true, vec!["no such file: /a".to_owned()]);
        assert_eq!(refused(&wire), stands);
        // What was refused is not sent again with another's change.
        let later = world.clone().simple(Secret, "kubernetes://a", 2);
        wire.stream.merge_push(later.full());
        assert_eq!(wire.all(), ["sds kubernetes://a=2"]);
        wire.ack(Secret);
        assert_eq!(wire.all(), [""; 0]);
        assert_eq!(refused(&wire), stands);
        // Another one of that name is another thing.
        let later = later.simple(Secret, "file-cert:/a~/b", 2);
        wire.stream.merge_push(later.full());
        assert_eq!(wire.all(), ["sds file-cert:/a~/b=2"]);
        assert_eq!(refused(&wire), (false, Vec::new()));
        wire.ack(Secret);
        assert_eq!(refused(&wire), (false, Vec::new()));
    }
    // Alone from the beginning; and what is not wanted any more does not come.
    let mut wire = Wire::sotw(&world);
    wire.names(Secret, &names[..2]);
    assert_eq!(wire.all(), ["sds file-cert:/a~/b=1"]);
    wire.names(Secret, &names[..1]);
    assert_eq!(wire.all(), [""; 0]);
}

/// No response follows by whose acknowledgement it would go.
#[test]
fn a_nack_ends_with_the_subscription_of_its_secret() {
    let names = ["file-cert:/a~/b"];
    let world = World::default().simple(Secret, names[0], 1);
    for mut wire in [Wire::sotw(&world), Wire::delta(&world)] {
        wire.names(Secret, &names);
        assert_eq!(wire.all(), ["sds file-cert:/a~/b=1"]);
        wire.ask(&Request {
            nonce: wire.nonce(Secret),
            names: [names[0].to_owned()].into(),
            error: Some("no such file: /a".to_owned()),
            ..Request::of(Secret)
        });
        assert!(wire.stream.status(Secret).unwrap().nack.is_some());
        wire.ask(&Request {
            nonce: wire.nonce(Secret),
            unsubscribe: vec![names[0].to_owned()],
            ..Request::of(Secret)
        });
        assert_eq!(wire.all(), [""; 0]);
        assert!(wire.stream.status(Secret).unwrap().nack.is_none());
        assert!(wire.stream.nacks(Secret).is_empty());
    }
}

/// In delta a client asks for each when it needs it, and answers each when it has looked for its files.
#[test]
fn a_secret_that_stands_alone_may_be_answered_behind_another() {
    let names = ["file-cert:/a~/b", "file-cert:/c~/d"];
    let world = names.iter().fold(World::default(), |world, name| {
        world.simple(Secret, name, 1)
    });
    let mut wire = Wire::delta(&world);
    let nonces = names.map(|name| {
        wire.ask(&Request {
            names: [name].into(),
            ..Request::of(Secret)
        });
        assert_eq!(wire.all(), [format!("sds {name}=1")]);
        wire.nonce(Secret)
    });
    let answers = [Some("no such file: /a"), None];
    for (nonce, error) in nonces.into_iter().zip(answers) {
        wire.ask(&Request {
            nonce,
            error: error.map(str::to_owned),
            ..Request::of(Secret)
        });
    }
    assert_eq!(wire.all(), [""; 0]);
    let refused = wire.stream.nacks(Secret).into_iter();
    let messages: Vec<_> = refused.map(|one| one.nack.message.to_string()).collect();
    assert_eq!(messages, ["no such file: /a"]);
}

/// Envoy writes names as its sets and lists of watches have them.
#[test]
fn an_acknowledgement_in_another_order_leaves_the_list_as_it_is() {
    let mut wire = settled(Wire::sotw(&world()));
    let list = |wire: &Wire| wire.stream.list_with("b").unwrap();
    let before = list(&wire);
    assert_eq!(wire.names(Endpoint, &["b", "a"]), RequestOutcome::Asked);
    assert_eq!(wire.all(), [""; 0]);
    assert!(Arc::ptr_eq(&list(&wire), &before));
    // One name more or less is another list.
    for names in [&["b"][..], &["c", "b", "a"]] {
        wire.names(Endpoint, names);
        assert_eq!(wire.stream.watches(Endpoint).names.len(), names.len());
    }
}

/// Whose names were compared while it came.
#[test]
fn an_acknowledgement_that_was_compared_is_one_whatever_was_sent_since() {
    let mut wire = settled(Wire::sotw(&world()));
    let names: Vec<_> = wire.stream.watches(Endpoint).names;
    let message = DiscoveryRequest {
        resource_names: names.iter().rev().map(ToString::to_string).collect(),
        ..DiscoveryRequest::default()
    };
    let compared = |stream: &Stream| {
        let mut reader = RequestReader::default();
        let message = message.encode_to_vec();
        let find = |name: &str| stream.list_with(name);
        assert_eq!(reader.take(&message, find), message.len());
        let names = reader.finish(Bytes::new()).1.unwrap();
        Request {
            names,
            ..Request::of(Endpoint)
        }
    };
    let before = compared(&wire.stream);
    assert!(wire.stream.repeats(&before));
    let world = world().simple(Endpoint, "a", 2);
    wire.stream.merge_push(world.endpoints(&["a"]));
    assert_eq!(wire.all(), ["eds a=2"]);
    for (request, outcome) in [
        (before, RequestOutcome::Acked),
        (compared(&wire.stream), RequestOutcome::Asked),
    ] {
        assert!(wire.stream.repeats(&request));
        let nonce = wire.nonce(Endpoint);
        assert_eq!(wire.ask(&Request { nonce, ..request }), outcome);
    }
    assert!(wire.all().is_empty());
}
