//! POST `/drain`, and the stop that comes after it.

#![forbid(unsafe_code)]

use super::*;

fn asked() -> Sim {
    let mut sim = Sim::live(policy());
    sim.on(Event::DrainRequested);
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim
}

fn answer(sim: &mut Sim, reply: Reply) {
    sim.on(replied(0, Call::Drain, reply));
}

fn term(sim: &mut Sim) -> Vec<Action> {
    sim.on(Event::Signalled(Signal::Terminate));
    sim.ordered()
}

#[test]
fn a_drain_that_was_posted_is_not_repeated_by_term() {
    let mut sim = asked();
    assert_eq!(sim.core.snapshot().state, AgentState::Draining);
    sim.on(Event::DrainRequested);
    assert_eq!(sim.ordered(), []);
    answer(&mut sim, Reply::Draining);
    assert_eq!(term(&mut sim), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

/// They may need the proxy for their end. Those of a stop that drains had their time, those of this one did not.
#[test]
fn companions_stop_before_the_proxy_after_a_drain_that_was_posted() {
    let mut sim = Sim::live(with_companions(1));
    sim.on(Event::DrainRequested);
    answer(&mut sim, Reply::Draining);
    sim.ordered();
    assert_eq!(term(&mut sim), [send_companion(0, ChildSignal::Term)]);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    // And beside a proxy that has crashed, and starts again.
    let mut sim = Sim::live(with_companions(1));
    sim.exits(0, CRASH);
    sim.pass(millis(200));
    sim.ordered();
    assert_eq!(term(&mut sim), [send_companion(0, ChildSignal::Term)]);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
}

#[test]
fn one_that_the_proxy_did_not_take_leaves_the_stop_its_drain() {
    let mut sim = asked();
    answer(&mut sim, Reply::Failed);
    let said = sim.notes.last().map(ToString::to_string);
    assert_eq!(
        said.as_deref(),
        Some("cannot ask the proxy to drain, a stop will wait the drain time")
    );
    assert_eq!(term(&mut sim), [ask(0, Call::Drain)]);
    // Taken this time: from now on it takes what it takes.
    answer(&mut sim, Reply::Draining);
    sim.pass(millis(4_999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
}

/// A `preStop` hook that posts it has TERM on its heels.
#[test]
fn a_stop_waits_for_the_answer() {
    let mut taken = asked();
    assert_eq!(term(&mut taken), [], "it is asked already");
    answer(&mut taken, Reply::Draining);
    assert_eq!(taken.ordered(), [send(0, ChildSignal::Term)]);
    let mut failed = asked();
    assert_eq!(term(&mut failed), []);
    answer(&mut failed, Reply::Failed);
    assert_eq!(failed.ordered(), []);
    failed.pass(secs(5));
    assert_eq!(failed.ordered(), [send(0, ChildSignal::Term)]);
}

#[test]
fn an_answer_in_the_pre_drain_delay_ends_the_wait_or_leaves_it() {
    let policy = Policy {
        pre_drain_delay: secs(3),
        ..policy()
    };
    for (reply, told) in [
        (Reply::Draining, vec![send(0, ChildSignal::Term)]),
        (Reply::Failed, vec![]),
    ] {
        let mut sim = Sim::live(policy.clone());
        sim.on(Event::DrainRequested);
        sim.ordered();
        assert_eq!(term(&mut sim), []);
        answer(&mut sim, reply);
        assert_eq!(sim.ordered(), told);
        if reply == Reply::Failed {
            sim.pass(secs(3));
            assert_eq!(sim.ordered(), [ask(0, Call::Drain)], "asked again");
        }
    }
}

#[test]
fn an_epoch_that_follows_is_drained_too_and_its_own_answer_counts() {
    let mut sim = asked();
    answer(&mut sim, Reply::Draining);
    sim.change(2);
    sim.ordered();
    sim.is_live(1);
    assert_eq!(sim.ordered(), [ask(1, Call::Drain)]);
    sim.on(replied(1, Call::Drain, Reply::Failed));
    assert_eq!(term(&mut sim), [ask(1, Call::Drain)]);
}

/// Nobody asks the parent that drains any more; before that, nobody asks the child.
#[test]
fn the_answer_of_another_epoch_does_not_count() {
    for (of_child, told) in [
        (Reply::Draining, send(1, ChildSignal::Term)),
        (Reply::Failed, ask(1, Call::Drain)),
    ] {
        let of_parent = if of_child == Reply::Failed {
            Reply::Draining
        } else {
            Reply::Failed
        };
        for child_first in [true, false] {
            let mut sim = asked();
            sim.change(2);
            sim.is_live(1);
            sim.ordered();
            let mut answers = [(1, of_child), (0, of_parent)];
            if !child_first {
                answers.reverse();
            }
            for (epoch, reply) in answers {
                sim.on(replied(epoch, Call::Drain, reply));
            }
            assert_eq!(term(&mut sim), [told], "{child_first}");
        }
    }
}

#[test]
fn the_answer_of_another_epoch_does_not_count_in_the_stop() {
    let mut sim = asked();
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    assert_eq!(term(&mut sim), [], "it is asked already");
    sim.on(replied(0, Call::Drain, Reply::Draining));
    assert_eq!(sim.ordered(), []);
    sim.on(replied(1, Call::Drain, Reply::Draining));
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Term)]);
}
