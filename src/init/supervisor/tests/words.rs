//! The words about an end: of a proxy, and of the agent.

use super::*;

/// The last words of an agent that ended.
fn last_words(sim: &Sim) -> String {
    let (outcome, by) = (sim.outcome.unwrap(), sim.core.asker());
    Note::Finished { outcome, by }.to_string()
}

fn said(sim: &Sim, words: &str) -> bool {
    sim.notes.iter().any(|note| note.to_string() == words)
}

#[test]
fn the_end_says_by_what_it_was_asked_for() {
    for (event, name, how) in [
        (Event::Signalled(Signal::Terminate), "SIGTERM", "draining"),
        (Event::Signalled(Signal::Interrupt), "SIGINT", "draining"),
        (Event::Signalled(Signal::Quit), "SIGQUIT", "no drain"),
        (Event::QuitRequested, "/quitquitquit", "no drain"),
    ] {
        let mut sim = Sim::live(policy());
        sim.on(event);
        // Who asks after that asks for it to be quicker.
        if how == "draining" {
            sim.on(Event::Signalled(Signal::Interrupt));
        }
        sim.exits(0, CLEAN);
        assert!(said(&sim, &format!("stop requested by {name}, {how}")));
        let words = format!("stopped on request ({name}), exit code 0");
        assert_eq!(last_words(&sim), words);
    }
    let mut sim = Sim::new(Policy {
        wait_for_certificates: true,
        ..policy()
    });
    sim.on(Event::Signalled(Signal::Interrupt));
    assert_eq!(
        last_words(&sim),
        "stopped on request (SIGINT) before the proxy was ever LIVE, exit code 143"
    );
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(10));
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(
        last_words(&sim),
        "stopped on request (SIGTERM), a process had to be killed, exit code 137"
    );
    let mut sim = Sim::live(policy());
    sim.exits(0, CLEAN);
    assert_eq!(
        last_words(&sim),
        "the proxy exited with code 0 by itself, exit code 0"
    );
    let mut sim = Sim::new(command::with_command());
    sim.exits(0, CLEAN);
    assert_eq!(
        last_words(&sim),
        "the proxy exited with code 0 by itself before the command was started, exit code 143"
    );
}

#[test]
fn a_death_that_nobody_asked_for_is_a_warning_that_names_the_signal() {
    for (how, words) in [
        (
            ExitStatus::Signal(11),
            "epoch 0 was killed by signal 11 (SIGSEGV)",
        ),
        (
            ExitStatus::Signal(1),
            "epoch 0 was killed by signal 1 (SIGHUP)",
        ),
        (
            ExitStatus::Signal(31),
            "epoch 0 was killed by signal 31 (SIGSYS)",
        ),
        (ExitStatus::Signal(40), "epoch 0 was killed by signal 40"),
        (
            ExitStatus::OutOfMemory,
            "epoch 0 was killed by signal 9 (SIGKILL, out of memory)",
        ),
        (ExitStatus::Code(3), "epoch 0 exited with code 3"),
    ] {
        let mut running = Sim::live(policy());
        running.exits(0, how);
        let mut draining = Sim::live(policy());
        draining.on(Event::Signalled(Signal::Terminate));
        draining.exits(0, how);
        for sim in [running, draining] {
            let warning = |note: &Note| note.is_warning() && note.to_string() == words;
            assert!(sim.notes.iter().any(warning), "{:?}", sim.notes);
        }
    }
    assert_eq!(ExitStatus::OutOfMemory.code(), 137);
}

#[test]
fn an_end_that_was_asked_for_is_no_warning() {
    let mut sim = Sim::live(Policy {
        hot_restart: false,
        ..policy()
    });
    sim.change(2);
    sim.exits(0, ExitStatus::Signal(15));
    sim.is_live(0);
    sim.on(Event::Signalled(Signal::Quit));
    sim.exits(0, ExitStatus::Signal(15));
    assert!(said(&sim, "epoch 0 was killed by signal 15 (SIGTERM)"));
    assert!(!sim.notes.iter().any(Note::is_warning), "{:?}", sim.notes);
}
