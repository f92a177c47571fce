//! Stories of changes that must not be lost: validations that fail by themselves, configurations that were given up. And of
//! what is known of a process that has gone.

use super::*;

fn validating() -> Sim {
    let mut sim = Sim::live(Policy {
        validate: true,
        retry_budget: 2,
        ..policy()
    });
    sim.change(2);
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
    sim
}

// ---- validation

#[test]
fn a_validation_that_is_no_refusal_is_tried_again() {
    for how in [
        // Killed, or a shell's word for that; not started: no process, disk full, no such file, binary busy; a shell's words.
        ExitStatus::Signal(9),
        ExitStatus::Signal(6),
        ExitStatus::Code(137),
        ExitStatus::NotStarted(71),
        ExitStatus::NotStarted(126),
        ExitStatus::NotStarted(127),
        ExitStatus::Code(126),
        ExitStatus::Code(127),
    ] {
        let mut sim = validating();
        sim.on(Event::Validated { how });
        assert_eq!(sim.ordered(), [], "{how}");
        let refused = |note: &Note| matches!(note, Note::Refused { .. });
        assert!(!sim.notes.iter().any(refused), "{how} is no refusal");
        sim.pass(millis(199));
        assert_eq!(sim.ordered(), []);
        sim.pass(millis(1));
        assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))], "{how}");
        sim.on(Event::Validated { how: CLEAN });
        assert_eq!(sim.ordered(), [spawn(1, Reason::Change)], "{how}");
    }
}

#[test]
fn a_refusal_is_final_until_the_next_change() {
    for code in [1, 2, 125] {
        let mut sim = validating();
        let how = ExitStatus::Code(code);
        sim.on(Event::Validated { how });
        let keeps = Some(Epoch(0));
        assert_eq!(sim.notes.last(), Some(&Note::Refused { how, keeps }));
        sim.pass(secs(7200));
        assert_eq!(sim.ordered(), []);
    }
}

#[test]
fn a_validation_that_is_too_slow_is_killed_and_tried_again() {
    let mut sim = validating();
    sim.pass(secs(20));
    assert_eq!(sim.ordered(), [Action::KillValidator]);
    let how = ExitStatus::Signal(9);
    sim.on(Event::Validated { how });
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
}

#[test]
fn a_change_that_comes_while_a_validation_waits_is_validated_at_once() {
    let mut sim = validating();
    let how = ExitStatus::NotStarted(71);
    sim.on(Event::Validated { how });
    sim.on(hashed(3));
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
}

#[test]
fn a_validation_that_never_runs_spends_the_budget_and_is_given_up_like_a_child() {
    let mut sim = validating();
    for _ in 0..2 {
        sim.on(Event::Validated {
            how: ExitStatus::NotStarted(71),
        });
        sim.pass(secs(1));
    }
    sim.ordered();
    sim.on(Event::Validated {
        how: ExitStatus::NotStarted(71),
    });
    let given_up = |note: &Note| matches!(note, Note::GaveUp { .. });
    assert!(sim.notes.last().is_some_and(given_up));
    assert_eq!(sim.running(), [(0, State::Live)]);
    assert_eq!(sim.outcome, None);
}

// ---- given up

/// Epoch 0 serves; what came after it was given up.
fn given_up() -> Sim {
    let mut sim = Sim::live(Policy {
        retry_budget: 1,
        ..policy()
    });
    sim.change(2);
    for _ in 0..2 {
        sim.exits(1, ExitStatus::Code(1));
        sim.pass(millis(200));
    }
    let snapshot = sim.core.snapshot();
    assert!(snapshot.given_up);
    assert_eq!(snapshot.state, AgentState::Live);
    sim.ordered();
    sim
}

fn gave_up(sim: &Sim) -> (usize, usize) {
    let count = |is_again| {
        let same = |note: &&Note| matches!(note, Note::GaveUp { again, .. } if *again == is_again);
        sim.notes.iter().filter(same).count()
    };
    (count(false), count(true))
}

#[test]
fn a_configuration_given_up_has_one_try_every_retry_reset() {
    let mut sim = given_up();
    for turn in 0..3 {
        sim.pass(secs(599));
        assert_eq!(sim.ordered(), []);
        sim.pass(secs(1));
        assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
        assert_eq!(gave_up(&sim), (1, turn));
        sim.exits(1, ExitStatus::Code(1));
        assert_eq!(sim.ordered(), [Action::ClearInitializing], "one try each");
    }
    sim.pass(secs(600));
    sim.is_live(1);
    sim.exits(0, CLEAN);
    sim.ordered();
    assert!(!sim.core.snapshot().given_up);
    sim.pass(secs(7200));
    assert_eq!(sim.ordered(), []);
    assert_eq!(sim.running(), [(1, State::Live)]);
}

#[test]
fn the_snapshot_says_when_what_was_given_up_is_tried() {
    let sim = given_up();
    let snapshot = sim.core.snapshot();
    assert_eq!(snapshot.next, Some(Reason::Change));
    let left = snapshot.next_try.map(|at| at - sim.now);
    assert!(
        left.is_some_and(|left| left > secs(590) && left <= secs(600)),
        "{left:?}"
    );
}

#[test]
fn a_change_ends_what_was_given_up() {
    let mut sim = given_up();
    sim.change(3);
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
    assert!(!sim.core.snapshot().given_up);
    sim.exits(1, ExitStatus::Code(1));
    sim.pass(millis(200));
    let again = [Action::ClearInitializing, spawn(1, Reason::Change)];
    assert_eq!(sim.ordered(), again, "it has a whole budget");
}

#[test]
fn a_change_back_to_what_serves_ends_the_tries() {
    let mut sim = given_up();
    sim.change(1);
    assert!(!sim.core.snapshot().given_up);
    sim.pass(secs(7200));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_configuration_given_up_does_not_wake_an_idle_agent() {
    let mut sim = Sim::live(Policy {
        retry_budget: 0,
        on_clean_exit: CleanExit::Idle,
        ..policy()
    });
    sim.change(2);
    sim.exits(1, CRASH);
    assert!(sim.core.snapshot().given_up);
    sim.exits(0, CLEAN);
    sim.ordered();
    sim.pass(secs(7200));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_validation_that_was_given_up_is_tried_again_too() {
    let mut sim = validating();
    for _ in 0..3 {
        sim.on(Event::Validated {
            how: ExitStatus::NotStarted(71),
        });
        sim.pass(secs(1));
    }
    sim.ordered();
    sim.pass(secs(600));
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
    sim.on(Event::Validated { how: CLEAN });
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

/// The control plane's or a file's fault, say: the refusal was the end of the tries.
#[test]
fn a_configuration_given_up_is_tried_again_after_a_refusal_too() {
    let mut sim = validating();
    for _ in 0..3 {
        sim.on(Event::Validated { how: CLEAN });
        sim.exits(1, ExitStatus::Code(1));
        sim.pass(secs(1));
    }
    assert_eq!(gave_up(&sim), (1, 0));
    for turn in 1..3 {
        sim.ordered();
        sim.pass(secs(600));
        assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
        let how = ExitStatus::Code(1);
        sim.on(Event::Validated { how });
        assert_eq!(gave_up(&sim), (1, turn));
        assert!(sim.core.snapshot().next_try.is_some());
    }
}

#[test]
fn a_parent_that_ran_long_has_a_whole_budget_whatever_its_children_spent() {
    let mut sim = Sim::live(policy());
    sim.pass(secs(86_400));
    sim.change(2);
    for _ in 0..11 {
        sim.exits(1, ExitStatus::Code(1));
        sim.pass(secs(103));
    }
    sim.ordered();
    sim.exits(0, CRASH);
    assert_eq!(sim.outcome, None);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Crash)]);
}

// ---- epochs whose number comes again

#[test]
fn answers_of_a_process_that_has_gone_are_not_taken_for_the_next_one() {
    let mut sim = Sim::live(Policy {
        hot_restart: false,
        ..policy()
    });
    let gone = sim.core.process(Epoch(0)).unwrap();
    sim.on(Event::Signalled(Signal::Hangup));
    sim.exits(0, CLEAN);
    assert_eq!(sim.running(), [(0, State::Starting)]);
    for call in [Call::Live, Call::Memory] {
        sim.on(Event::AdminReplied {
            process: gone,
            call,
            reply: Reply::Live,
        });
        assert_eq!(sim.running(), [(0, State::Starting)]);
    }
    sim.is_live(0);
    assert_eq!(sim.running(), [(0, State::Live)]);
}
