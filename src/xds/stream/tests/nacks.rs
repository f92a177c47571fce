//! NACKs of delta clients: which resources each is about, how long it stands, and what waits for it.

use api::model::ServiceKey;

use super::world::{Wire, World};
use crate::stream::{Request, RequestOutcome};
use crate::view::Type;
use crate::view::Type::{Cluster, Endpoint, Listener, Route};

fn world() -> World {
    World::default()
        .eds("kept", 1, 1)
        .simple(Cluster, "a", 1)
        .simple(Cluster, "b", 1)
        .simple(Listener, "l", 1)
        .simple(Route, "80", 1)
}

/// A delta stream that has everything, all of it accepted.
fn settled(world: &World) -> Wire {
    super::rollouts::settled(Wire::delta(world), &["kept"])
}

/// Sends a world, and returns the nonce of the clusters.
fn push(wire: &mut Wire, world: &World, sent: &str) -> String {
    wire.stream.merge_push(world.full());
    assert_eq!(wire.all(), [sent]);
    wire.nonce(Cluster)
}

/// Answers one response, be it the last or not.
fn answer(wire: &mut Wire, kind: Type, nonce: &str, error: Option<&str>) -> RequestOutcome {
    wire.ask(&Request {
        nonce: nonce.to_owned(),
        error: error.map(str::to_owned),
        ..Request::of(kind)
    })
}

fn ack(wire: &mut Wire, nonce: &str) {
    let outcome = answer(wire, Cluster, nonce, None);
    assert_eq!(outcome, RequestOutcome::Acked);
}

fn nack(wire: &mut Wire, nonce: &str, names: &[&str]) {
    let causes: Vec<_> = names.iter().map(|name| format!("{name}: no")).collect();
    let message = format!("Error adding/updating cluster(s) {}", causes.join(", "));
    let outcome = answer(wire, Cluster, nonce, Some(&message));
    assert!(matches!(outcome, RequestOutcome::Nacked(_)), "{outcome:?}");
}

/// The message of the NACK that is shown.
fn nack_message(wire: &Wire, kind: Type) -> Option<String> {
    let status = wire.stream.status(kind).unwrap();
    status.nack.map(|nack| nack.message.to_string())
}

/// The names of the clusters that the shown NACK is about.
fn refused(wire: &Wire) -> String {
    let message = nack_message(wire, Cluster).unwrap_or_default();
    let names = message.strip_prefix("Error adding/updating cluster(s) ");
    names.unwrap_or_default().replace(": no", "")
}

#[test]
fn a_push_waits_for_its_new_clusters_while_an_older_nack_stands() {
    let mut wire = settled(&world());
    let bad = world().simple(Cluster, "a", 2);
    let nonce = push(&mut wire, &bad, "cds a=2");
    nack(&mut wire, &nonce, &["a"]);
    let next = bad.eds("new", 1, 1).simple(Listener, "l", 2);
    let nonce = push(&mut wire, &next, "cds new=1");
    ack(&mut wire, &nonce);
    assert_eq!(refused(&wire), "a");
    assert!(wire.all().is_empty(), "the assignment was not sent yet");
    wire.names(Endpoint, &["new"]);
    assert_eq!(wire.all(), ["eds new=1"]);
    assert!(wire.all().is_empty(), "the assignment is not accepted yet");
    wire.ack(Endpoint);
    assert_eq!(wire.all(), ["lds l=2"]);
}

#[test]
fn a_nack_of_its_new_clusters_ends_the_wait_of_a_push() {
    let mut wire = settled(&world());
    let next = world().eds("new", 1, 1).simple(Listener, "l", 2);
    let nonce = push(&mut wire, &next, "cds new=1");
    nack(&mut wire, &nonce, &["new"]);
    assert_eq!(wire.all(), ["lds l=2"]);
}

#[test]
fn an_earlier_nack_stands_when_a_later_one_is_mended() {
    let mut wire = settled(&world());
    let bad = world().simple(Cluster, "a", 2);
    let nonce = push(&mut wire, &bad, "cds a=2");
    nack(&mut wire, &nonce, &["a"]);
    let worse = bad.simple(Cluster, "b", 2);
    let nonce = push(&mut wire, &worse, "cds b=2");
    nack(&mut wire, &nonce, &["b"]);
    assert_eq!(refused(&wire), "b");
    let nacks = wire.stream.nacks(Cluster);
    let services = |of: &str| [ServiceKey::new(of, "demo")].into();
    let about: Vec<_> = nacks.into_iter().map(|nack| nack.services).collect();
    assert_eq!(about, [services("b"), services("a")]);
    let names = |wire: &Wire| {
        let all = wire.stream.refused(Cluster).into_keys();
        all.map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&wire), ["a", "b"]);
    let better = worse.simple(Cluster, "b", 3);
    let nonce = push(&mut wire, &better, "cds b=3");
    ack(&mut wire, &nonce);
    assert_eq!(refused(&wire), "a");
    assert_eq!(names(&wire), ["a"]);
    let good = better.simple(Cluster, "a", 3);
    let nonce = push(&mut wire, &good, "cds a=3");
    assert_eq!(refused(&wire), "a");
    // What was sent since then is not refused yet.
    assert_eq!(names(&wire), [""; 0]);
    ack(&mut wire, &nonce);
    assert_eq!(nack_message(&wire, Cluster), None);
}

/// The mended version was on its way already.
#[test]
fn a_nack_is_about_the_version_of_its_own_response() {
    let mut wire = settled(&world());
    let bad = world().simple(Cluster, "a", 2);
    let first = push(&mut wire, &bad, "cds a=2");
    let second = push(&mut wire, &world().simple(Cluster, "a", 3), "cds a=3");
    nack(&mut wire, &first, &["a"]);
    assert_eq!(refused(&wire), "a");
    ack(&mut wire, &second);
    assert_eq!(nack_message(&wire, Cluster), None);
}

/// The names of a first response are not kept, and the removal was on its way before the NACK came.
#[test]
fn a_nack_of_the_first_response_ends_with_the_removal_of_what_it_names() {
    let mut wire = Wire::delta(&world().simple(Cluster, "bad", 1));
    wire.names(Cluster, &["*"]);
    assert_eq!(wire.all(), ["cds a=1 b=1 bad=1 kept=1"]);
    let first = wire.nonce(Cluster);
    let second = push(&mut wire, &world(), "cds -bad");
    nack(&mut wire, &first, &["bad"]);
    assert_eq!(nack_message(&wire, Cluster), None, "it is gone");
    ack(&mut wire, &second);
    assert_eq!(nack_message(&wire, Cluster), None);
}

/// The ACK of an older response says nothing of a mended version that is on its way.
#[test]
fn an_ack_is_about_the_resources_of_its_own_response() {
    let mut wire = settled(&world());
    let bad = world().simple(Cluster, "a", 2);
    let nonce = push(&mut wire, &bad, "cds a=2");
    nack(&mut wire, &nonce, &["a"]);
    let other = bad.simple(Cluster, "b", 2);
    let older = push(&mut wire, &other, "cds b=2");
    let newer = push(&mut wire, &other.simple(Cluster, "a", 3), "cds a=3");
    ack(&mut wire, &older);
    assert_eq!(refused(&wire), "a");
    ack(&mut wire, &newer);
    assert_eq!(nack_message(&wire, Cluster), None);
}

/// Envoy takes the others of a response with clusters or listeners.
#[test]
fn a_nack_accepts_the_clusters_that_it_does_not_name() {
    let mut wire = settled(&world());
    let bad = world().simple(Cluster, "a", 2).simple(Cluster, "b", 2);
    let nonce = push(&mut wire, &bad, "cds a=2 b=2");
    nack(&mut wire, &nonce, &["a", "b"]);
    let half = world().simple(Cluster, "a", 3).simple(Cluster, "b", 3);
    let nonce = push(&mut wire, &half, "cds a=3 b=3");
    nack(&mut wire, &nonce, &["b"]);
    assert_eq!(wire.stream.nacks(Cluster).len(), 1);
    let good = half.simple(Cluster, "b", 4);
    let nonce = push(&mut wire, &good, "cds b=4");
    ack(&mut wire, &nonce);
    assert_eq!(nack_message(&wire, Cluster), None);
}

/// No response follows.
#[test]
fn a_nack_ends_with_the_subscription_of_what_it_names() {
    let mut wire = settled(&world().simple(Route, "81", 1));
    wire.names(Route, &["81"]);
    assert_eq!(wire.all(), ["rds 81=1"]);
    let nonce = wire.nonce(Route);
    answer(&mut wire, Route, &nonce, Some("81: no"));
    assert!(wire.all().is_empty() && nack_message(&wire, Route).is_some());
    wire.ask(&Request {
        nonce,
        unsubscribe: vec!["81".to_owned()],
        ..Request::of(Route)
    });
    assert_eq!(nack_message(&wire, Route), None);
}

/// The stream owes the resource that it names, and has not sent it again yet.
#[test]
fn a_nack_stands_while_its_resource_is_asked_for_again() {
    let mut wire = settled(&world());
    wire.stream
        .merge_push(world().eds("kept", 1, 2).endpoints(&["kept"]));
    assert_eq!(wire.all(), ["eds kept=2"]);
    let nonce = wire.nonce(Endpoint);
    answer(&mut wire, Endpoint, &nonce, Some("kept: no"));
    wire.names(Endpoint, &["kept"]);
    assert!(nack_message(&wire, Endpoint).is_some());
    assert_eq!(wire.all(), ["eds kept=2"]);
    wire.ack(Endpoint);
    assert_eq!(nack_message(&wire, Endpoint), None);
}

/// A client that refuses ever more, and a response too old to be remembered.
#[test]
fn nacks_that_stand_are_few_and_none_is_forgotten() {
    let names: Vec<_> = (0..40).map(|at| format!("c{at}")).collect();
    let with = |count: usize, revision| {
        let first = names.iter().take(count);
        first.fold(world(), |world, name| world.simple(Cluster, name, revision))
    };
    let mut wire = settled(&world());
    for (at, name) in names.iter().enumerate() {
        let sent = format!("cds {name}=1");
        let nonce = push(&mut wire, &with(at + 1, 1), &sent);
        nack(&mut wire, &nonce, &[name]);
    }
    assert_eq!(wire.stream.nacks(Cluster).len(), 8);
    // All but the first are mended.
    let mended = with(40, 2).simple(Cluster, "c0", 1);
    wire.stream.merge_push(mended.full());
    assert_eq!(wire.all().len(), 1);
    let nonce = wire.nonce(Cluster);
    ack(&mut wire, &nonce);
    assert_eq!(wire.stream.nacks(Cluster).len(), 1);
    let nonce = push(&mut wire, &with(40, 2), "cds c0=2");
    ack(&mut wire, &nonce);
    assert_eq!(nack_message(&wire, Cluster), None);

    let nonces: Vec<_> = (3..20)
        .map(|revision| {
            let world = world().simple(Cluster, "a", revision);
            wire.stream.merge_push(world.full());
            assert!(!wire.all().is_empty());
            wire.wait(10_000);
            wire.all();
            wire.nonce(Cluster)
        })
        .collect();
    nack(&mut wire, &nonces[0], &["a"]);
    ack(&mut wire, nonces.last().unwrap());
    assert_eq!(nack_message(&wire, Cluster), None);
}

#[test]
fn names_of_resources_are_found_in_messages() {
    for (name, message) in [
        ("::_80", "Error adding/updating listener(s) ::_80: no"),
        ("::_80", "listener '::_80': no"),
        ("0.0.0.0_80", "(0.0.0.0_80): no; 0.0.0.0_81: no"),
        ("l2", "no: \"l2\"."),
    ] {
        let mut wire = settled(&world());
        let bad = world().simple(Listener, name, 1);
        push(&mut wire, &bad, &format!("lds {name}=1"));
        wire.nack(Listener, message);
        // Of another listener.
        push(&mut wire, &bad.simple(Listener, "l", 2), "lds l=2");
        wire.ack(Listener);
        assert_eq!(nack_message(&wire, Listener).as_deref(), Some(message));
    }
}

/// It may have been about any of them, and a response that was on its way before it says nothing of these.
#[test]
fn a_nack_that_names_nothing_stands_until_a_later_response_is_accepted() {
    let mut wire = settled(&world());
    let bad = world().simple(Cluster, "a", 2);
    let first = push(&mut wire, &bad, "cds a=2");
    let other = bad.simple(Cluster, "b", 2);
    let second = push(&mut wire, &other, "cds b=2");
    answer(
        &mut wire,
        Cluster,
        &first,
        Some("some field breaks its rule"),
    );
    ack(&mut wire, &second);
    assert!(nack_message(&wire, Cluster).is_some());
    let nonce = push(&mut wire, &other.simple(Cluster, "a", 3), "cds a=3");
    ack(&mut wire, &nonce);
    assert_eq!(nack_message(&wire, Cluster), None);
}
