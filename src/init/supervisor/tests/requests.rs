//! Requests to stop: the first drains, the second hurries, the third kills, whatever the end has come to meanwhile.

#![forbid(unsafe_code)]

use super::*;

fn request(sim: &mut Sim) -> Vec<Action> {
    sim.on(Event::Signalled(Signal::Terminate));
    sim.ordered()
}

#[test]
fn the_first_and_the_second_after_a_stop_without_a_drain_hurry_nobody() {
    for event in [Event::QuitRequested, Event::Signalled(Signal::Quit)] {
        let mut sim = Sim::live(policy());
        sim.on(event);
        assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
        assert_eq!(request(&mut sim), []);
        assert_eq!(request(&mut sim), []);
        sim.exits(0, CLEAN);
        assert_eq!(sim.outcome, Some(Outcome::Stopped));
    }
}

#[test]
fn the_second_kills_nobody_where_there_was_nothing_to_drain() {
    let mut drained = Sim::live(policy());
    drained.on(Event::DrainRequested);
    drained.on(replied(0, Call::Drain, Reply::Draining));
    for mut sim in [Sim::new(policy()), drained] {
        sim.ordered();
        assert_eq!(request(&mut sim), [send(0, ChildSignal::Term)]);
        assert_eq!(request(&mut sim), []);
        assert_eq!(request(&mut sim), [send(0, ChildSignal::Kill)]);
        sim.exits(0, ExitStatus::Signal(9));
        assert_eq!(sim.outcome, Some(Outcome::Killed));
    }
}

/// With the wrong `--proxy-admin-port`, or none in its configuration, a proxy that served was stopped with no drain, by code 143.
#[test]
fn one_that_serves_without_an_admin_port_has_the_drain_time() {
    let mut sim = Sim::new(policy());
    sim.initialised = true;
    sim.ordered();
    assert_eq!(request(&mut sim), [ask(0, Call::Drain)]);
    let said: Vec<_> = sim.notes.iter().map(ToString::to_string).collect();
    assert!(said.contains(&"stop requested by SIGTERM, draining".to_owned()));
    // Its admin port may be about to say so.
    assert!(!sim.notes.contains(&Note::LiveByMemory(Epoch(0))));
    sim.on(replied(0, Call::Drain, Reply::Failed));
    sim.pass(millis(4_999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn quit_asks_nobody_whether_it_serves() {
    for event in [Event::QuitRequested, Event::Signalled(Signal::Quit)] {
        let mut sim = Sim::new(policy());
        sim.initialised = true;
        sim.ordered();
        sim.on(event);
        assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    }
}

/// Signals pass the queue, so the second may come before the answer.
#[test]
fn the_second_does_not_wait_for_the_memory() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    let first = sim
        .core
        .handle(sim.now, &Event::Signalled(Signal::Terminate));
    assert_eq!(first, [ask(0, Call::Memory)]);
    assert_eq!(request(&mut sim), [send(0, ChildSignal::Term)]);
    sim.on(replied(0, Call::Memory, Reply::Live));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn quit_skips_a_drain_and_never_kills() {
    let mut sim = Sim::live(policy());
    assert_eq!(request(&mut sim), [ask(0, Call::Drain)]);
    for told in [vec![send(0, ChildSignal::Term)], vec![], vec![], vec![]] {
        sim.on(Event::Signalled(Signal::Quit));
        assert_eq!(sim.ordered(), told);
    }
    assert_eq!(request(&mut sim), []);
    assert_eq!(request(&mut sim), [send(0, ChildSignal::Kill)]);
}

#[test]
fn the_log_tells_a_kill_that_was_asked_for_from_one_that_was_due() {
    let killing = |note: &Note| matches!(note, Note::Killing { .. }).then(|| note.to_string());
    let mut asked = Sim::live(policy());
    (0..3).for_each(|_| drop(request(&mut asked)));
    let mut late = Sim::live(policy());
    request(&mut late);
    late.pass(secs(10));
    let said = |sim: &Sim| sim.notes.iter().find_map(killing);
    assert_eq!(
        said(&asked).as_deref(),
        Some("asked a third time, killing the proxy")
    );
    assert_eq!(
        said(&late).as_deref(),
        Some("the proxy did not stop in time, killing it")
    );
}

#[test]
fn one_that_changes_nothing_says_so() {
    let mut sim = Sim::live(policy());
    sim.on(Event::QuitRequested);
    request(&mut sim);
    assert_eq!(
        sim.notes.last(),
        Some(&Note::Ignored("the agent is stopping"))
    );
}
