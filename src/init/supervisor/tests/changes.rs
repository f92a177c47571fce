//! Stories of changes that must not be lost: validations that fail by themselves, configurations that were given up.

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
        Exit::Signal(9),
        Exit::Signal(6),
        Exit::Code(137),
        Exit::NotStarted(71),
        Exit::NotStarted(126),
        Exit::NotStarted(127),
        Exit::Code(126),
        Exit::Code(127),
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
        let how = Exit::Code(code);
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
    let how = Exit::Signal(9);
    sim.on(Event::Validated { how });
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
}

#[test]
fn a_change_that_comes_while_a_validation_waits_is_validated_at_once() {
    let mut sim = validating();
    let how = Exit::NotStarted(71);
    sim.on(Event::Validated { how });
    sim.on(hashed(3));
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
}

#[test]
fn a_validation_that_never_runs_spends_the_budget_and_is_given_up_like_a_child() {
    let mut sim = validating();
    for _ in 0..2 {
        sim.on(Event::Validated {
            how: Exit::NotStarted(71),
        });
        sim.pass(secs(1));
    }
    sim.ordered();
    sim.on(Event::Validated {
        how: Exit::NotStarted(71),
    });
    let given_up = |note: &Note| matches!(note, Note::GaveUp { .. });
    assert!(sim.notes.last().is_some_and(given_up));
    assert_eq!(sim.running(), [(0, State::Live)]);
    assert_eq!(sim.outcome, None);
}
