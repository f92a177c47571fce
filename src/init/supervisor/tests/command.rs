//! Stories of the command of `pintle run`.

#![forbid(unsafe_code)]

use super::*;

pub(super) fn with_command() -> Policy {
    Policy {
        command: true,
        ..policy()
    }
}

/// The command runs beside epoch 0.
fn running() -> Sim {
    Sim::live(with_command())
}

fn companion_too() -> Policy {
    Policy {
        command: true,
        ..with_companions(1)
    }
}

const fn to_command(number: u8) -> Action {
    Action::SignalCommand(number)
}

fn ends(sim: &mut Sim, how: ExitStatus) {
    sim.on(Event::CommandExited(how));
}

fn term(sim: &mut Sim) {
    sim.on(Event::Signalled(Signal::Terminate));
}

#[test]
fn it_starts_after_the_companions_once_the_proxy_is_live_and_ready() {
    let mut sim = Sim::new(companion_too());
    sim.ready = false;
    sim.pass(secs(60));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Start)]);
    sim.is_live(0);
    assert_eq!(sim.ordered(), [start_companion(0)]);
    sim.pass(secs(3));
    assert_eq!(sim.ordered(), []);
    let waits = |note: &&Note| **note == Note::Command(CommandNote::Waits);
    assert_eq!(sim.notes.iter().filter(waits).count(), 1, "said once");
    sim.ready = true;
    sim.pass(millis(500));
    assert_eq!(sim.ordered(), [Action::SpawnCommand]);
    sim.pass(secs(60));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn it_starts_at_once_when_the_proxy_is_ready_as_soon_as_it_is_live() {
    let mut sim = Sim::new(with_command());
    sim.ordered();
    sim.is_live(0);
    assert_eq!(sim.ordered(), [Action::SpawnCommand]);
}

#[test]
fn an_answer_that_comes_after_the_proxys_crash_is_too_late() {
    let mut sim = Sim::new(with_command());
    sim.ready = false;
    sim.is_live(0);
    sim.exits(0, CRASH);
    sim.ordered();
    sim.ready = true;
    sim.on(Event::ReadinessKnown(true));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(200));
    sim.is_live(0);
    assert_eq!(
        sim.ordered(),
        [spawn(0, Reason::Crash), Action::SpawnCommand]
    );
}

#[test]
fn its_end_drains_the_proxy_and_its_code_is_the_agents() {
    let mut sim = running();
    sim.pass(secs(3600));
    sim.ordered();
    ends(&mut sim, ExitStatus::Code(3));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(
        sim.outcome,
        Some(Outcome::CommandEnded(ExitStatus::Code(3)))
    );
    assert_eq!(Outcome::CommandEnded(ExitStatus::Code(3)).code(), 3);
    assert_eq!(Outcome::CommandEnded(ExitStatus::Signal(15)).code(), 143);
}

#[test]
fn its_code_is_the_agents_even_if_the_proxy_had_to_be_killed() {
    let mut sim = running();
    ends(&mut sim, CLEAN);
    sim.pass(secs(10));
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.outcome, Some(Outcome::CommandEnded(CLEAN)));
}

#[test]
fn one_that_cannot_be_started_ends_the_agent_with_the_shells_code() {
    for code in [127, 126] {
        let mut sim = running();
        ends(&mut sim, ExitStatus::NotStarted(code));
        sim.pass(secs(5));
        sim.exits(0, CLEAN);
        assert_eq!(sim.outcome.map(Outcome::code), Some(code));
    }
}

#[test]
fn it_ends_before_companions_and_they_before_the_proxy() {
    let mut sim = Sim::live(companion_too());
    ends(&mut sim, CLEAN);
    sim.pass(secs(5));
    assert_eq!(
        sim.ordered(),
        [ask(0, Call::Drain), send_companion(0, ChildSignal::Term)]
    );
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::CommandEnded(CLEAN)));
}

#[test]
fn before_it_was_started_signals_end_the_agent_as_they_do_without_it() {
    for signal in [Signal::Terminate, Signal::Interrupt, Signal::Quit] {
        let mut sim = Sim::new(with_command());
        sim.ordered();
        sim.on(Event::Signalled(signal));
        assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
        sim.is_live(0);
        sim.on(Event::ReadinessKnown(true));
        sim.exits(0, CLEAN);
        assert_eq!(sim.outcome, Some(Outcome::NeverLive));
        assert!(sim.ordered().is_empty());
        let mut sim = Sim::new(Policy {
            wait_for_certificates: true,
            ..with_command()
        });
        sim.on(Event::Signalled(signal));
        assert_eq!(sim.outcome, Some(Outcome::NeverLive));
    }
}

#[test]
fn term_of_a_live_proxy_that_is_not_ready_drains_never_starts_it_and_is_143() {
    let mut sim = Sim::new(with_command());
    sim.ready = false;
    sim.is_live(0);
    sim.ordered();
    term(&mut sim);
    sim.ready = true;
    sim.pass(secs(5));
    assert_eq!(
        sim.ordered(),
        [ask(0, Call::Drain), send(0, ChildSignal::Term)]
    );
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::NeverStarted));
    assert_eq!(sim.core.command_state(), Some(CommandState::Cancelled));
    assert_eq!(Outcome::NeverStarted.code(), 143);
}

/// It was 0, and the Job a success.
#[test]
fn a_proxy_that_exits_with_0_before_the_command_was_started_is_143() {
    for drained in [false, true] {
        let mut sim = Sim::new(with_command());
        sim.ready = false;
        sim.is_live(0);
        if drained {
            sim.on(Event::DrainRequested);
        }
        sim.exits(0, CLEAN);
        assert_eq!(sim.outcome, Some(Outcome::NeverStarted));
        assert!(!sim.ordered().contains(&Action::SpawnCommand));
    }
    let mut sim = Sim::new(with_command());
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::NeverStarted));
}

#[test]
fn signals_are_its_own_while_it_runs_but_hup_and_usr1() {
    let mut sim = running();
    for signal in [Signal::Interrupt, Signal::Quit, Signal::Other(12)] {
        sim.on(Event::Signalled(signal));
        assert_eq!(sim.ordered(), [to_command(signal.number())]);
    }
    sim.on(Event::Signalled(Signal::Usr1));
    assert_eq!(
        sim.ordered(),
        [send(0, ChildSignal::Reopen), Action::ReopenLog]
    );
    sim.on(Event::Signalled(Signal::Hangup));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Signal)]);
    term(&mut sim);
    assert_eq!(sim.ordered(), [to_command(15)]);
}

#[test]
fn signals_of_the_agents_own_writes_are_not_forwarded() {
    let mut sim = running();
    for number in [13, 22, 25] {
        sim.on(Event::Signalled(Signal::Other(number)));
        assert_eq!(sim.ordered(), [Action::IgnoreSignal(number)]);
    }
}

#[test]
fn without_a_command_other_signals_go_to_nobody() {
    for mut sim in [Sim::live(policy()), Sim::new(with_command())] {
        sim.ordered();
        sim.on(Event::Signalled(Signal::Other(12)));
        assert_eq!(sim.ordered(), [Action::IgnoreSignal(12)]);
    }
}

#[test]
fn int_means_to_the_proxy_what_term_does() {
    for signal in [Signal::Terminate, Signal::Interrupt] {
        let mut sim = Sim::live(policy());
        let told = [
            ask(0, Call::Drain),
            send(0, ChildSignal::Term),
            send(0, ChildSignal::Kill),
        ];
        for order in told {
            sim.on(Event::Signalled(signal));
            assert_eq!(sim.ordered(), [order]);
        }
    }
}

#[test]
fn the_third_request_kills_it_and_then_the_agent_ends_as_after_its_end() {
    let mut sim = running();
    for signal in [Signal::Terminate, Signal::Quit, Signal::Interrupt] {
        sim.on(Event::Signalled(signal));
        assert_eq!(sim.ordered(), [to_command(signal.number())]);
    }
    term(&mut sim);
    assert_eq!(sim.ordered(), [Action::KillCommand]);
    term(&mut sim);
    assert_eq!(sim.ordered(), [], "killed already");
    ends(&mut sim, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    term(&mut sim);
    assert_eq!(
        sim.ordered(),
        [send(0, ChildSignal::Term)],
        "the drain is skipped"
    );
    sim.exits(0, CLEAN);
    assert_eq!(
        sim.outcome,
        Some(Outcome::CommandEnded(ExitStatus::Signal(9)))
    );
}

#[test]
fn one_that_cannot_be_killed_does_not_hold_the_agent() {
    let mut sim = running();
    (0..3).for_each(|_| term(&mut sim));
    sim.pass(secs(10));
    sim.exits(0, CLEAN);
    assert_eq!(
        sim.outcome,
        Some(Outcome::CommandEnded(ExitStatus::Signal(9)))
    );
}

#[test]
fn the_proxy_may_crash_and_come_back_beside_it() {
    let mut sim = running();
    sim.exits(0, CRASH);
    sim.pass(millis(200));
    sim.is_live(0);
    assert_eq!(
        sim.ordered(),
        [spawn(0, Reason::Crash)],
        "and no second one"
    );
    sim.exits(0, CRASH);
    ends(&mut sim, ExitStatus::Code(4));
    assert_eq!(
        sim.outcome,
        Some(Outcome::CommandEnded(ExitStatus::Code(4)))
    );
}

#[test]
fn a_proxy_that_fails_for_good_takes_it_along_and_gives_the_code() {
    let mut sim = Sim::live(Policy {
        retry_budget: 0,
        ..companion_too()
    });
    sim.exits(0, CRASH);
    assert_eq!(sim.ordered(), [to_command(15)]);
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [Action::KillCommand]);
    ends(&mut sim, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [send_companion(0, ChildSignal::Term)]);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::BudgetSpent(CRASH)));
}

#[test]
fn a_proxy_that_fails_for_good_before_it_was_started_ends_the_agent_as_without_it() {
    let mut sim = Sim::new(Policy {
        retry_budget: 0,
        ..with_command()
    });
    sim.ordered();
    sim.exits(0, CRASH);
    assert_eq!(sim.outcome, Some(Outcome::BudgetSpent(CRASH)));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_clean_exit_of_the_proxy_leaves_it_its_time_and_then_its_own_code() {
    let mut sim = running();
    sim.exits(0, CLEAN);
    sim.pass(millis(4_999));
    assert_eq!(sim.ordered(), []);
    ends(&mut sim, ExitStatus::Code(3));
    assert_eq!(
        sim.outcome,
        Some(Outcome::CommandEnded(ExitStatus::Code(3)))
    );
}

#[test]
fn a_clean_exit_of_the_proxy_ends_one_that_goes_on() {
    let mut sim = running();
    sim.exits(0, CLEAN);
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [to_command(15)]);
    ends(&mut sim, ExitStatus::Signal(15));
    // It has not done its work: that is no success of a Job.
    assert_eq!(sim.outcome.map(Outcome::code), Some(143));
    let mut traps = running();
    traps.exits(0, CLEAN);
    traps.pass(secs(5));
    ends(&mut traps, ExitStatus::Code(7));
    assert_eq!(traps.outcome.map(Outcome::code), Some(7));
    let mut deaf = running();
    deaf.exits(0, CLEAN);
    deaf.pass(secs(10));
    ends(&mut deaf, ExitStatus::Signal(9));
    assert_eq!(deaf.outcome.map(Outcome::code), Some(137));
}

#[test]
fn quitquitquit_stops_the_proxy_at_once_and_leaves_the_command_its_time_and_its_code() {
    let mut sim = Sim::live(companion_too());
    sim.on(Event::QuitRequested);
    let at_once = [
        send_companion(0, ChildSignal::Term),
        send(0, ChildSignal::Term),
    ];
    assert_eq!(sim.ordered(), at_once);
    sim.exits(0, CLEAN);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.outcome, None);
    ends(&mut sim, ExitStatus::Code(3));
    assert_eq!(
        sim.outcome,
        Some(Outcome::CommandEnded(ExitStatus::Code(3)))
    );
}

#[test]
fn quitquitquit_ends_one_that_goes_on_and_is_0() {
    let mut sim = running();
    sim.on(Event::QuitRequested);
    sim.exits(0, CLEAN);
    sim.ordered();
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [to_command(15)]);
    ends(&mut sim, ExitStatus::Signal(15));
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn quitquitquit_kills_one_that_does_not_obey_and_is_137() {
    let mut sim = Sim::live(companion_too());
    sim.on(Event::QuitRequested);
    sim.exits(0, CLEAN);
    sim.pass(secs(10));
    assert_eq!(
        sim.ordered()[2..],
        [
            send_companion(0, ChildSignal::Kill),
            to_command(15),
            Action::KillCommand
        ]
    );
    ends(&mut sim, ExitStatus::Signal(9));
    assert_eq!(sim.outcome, None);
    sim.pass(secs(5));
    assert_eq!(sim.outcome, Some(Outcome::Killed), "the companion hangs");
}

#[test]
fn requests_hurry_one_that_has_its_time() {
    let mut sim = running();
    sim.on(Event::QuitRequested);
    sim.ordered();
    term(&mut sim);
    assert_eq!(sim.ordered(), [to_command(15)]);
    sim.on(Event::Signalled(Signal::Other(28)));
    assert_eq!(sim.ordered(), [to_command(28)]);
    term(&mut sim);
    assert_eq!(sim.ordered(), [], "the second is no third");
    term(&mut sim);
    assert_eq!(
        sim.ordered(),
        [Action::KillCommand, send(0, ChildSignal::Kill)]
    );
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.outcome, None);
    ends(&mut sim, ExitStatus::Signal(9));
    assert_eq!(sim.outcome, Some(Outcome::Killed));
}

#[test]
fn the_first_request_after_its_end_leaves_the_drain_its_time() {
    let mut sim = running();
    ends(&mut sim, CLEAN);
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    for told in [
        vec![],
        vec![send(0, ChildSignal::Term)],
        vec![send(0, ChildSignal::Kill)],
    ] {
        term(&mut sim);
        assert_eq!(sim.ordered(), told);
    }
}

#[test]
fn after_a_posted_drain_its_end_does_not_drain_again() {
    let mut sim = running();
    sim.on(Event::DrainRequested);
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim.on(replied(0, Call::Drain, Reply::Draining));
    sim.pass(secs(60));
    ends(&mut sim, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
}

#[test]
fn after_a_posted_drain_it_is_not_started() {
    let mut sim = Sim::new(with_command());
    sim.on(Event::DrainRequested);
    sim.is_live(0);
    sim.on(Event::ReadinessKnown(true));
    sim.pass(secs(60));
    assert!(!sim.ordered().contains(&Action::SpawnCommand));
    term(&mut sim);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::NeverStarted));
}

// ---- rows of the table

pub(super) fn phases() -> Vec<(&'static str, Sim)> {
    let mut waiting = Sim::new(with_command());
    waiting.ready = false;
    waiting.is_live(0);
    let killed_by = |mut sim: Sim| {
        (0..3).for_each(|_| term(&mut sim));
        sim
    };
    let mut recalling = Sim::live(Policy {
        retry_budget: 0,
        ..with_command()
    });
    recalling.exits(0, CRASH);
    let mut leaving = running();
    leaving.exits(0, CLEAN);
    let mut quitting = running();
    quitting.on(Event::QuitRequested);
    let mut draining = running();
    ends(&mut draining, ExitStatus::Code(3));
    let mut killing = running();
    killing.on(Event::QuitRequested);
    (0..3).for_each(|_| term(&mut killing));
    vec![
        ("r starting", Sim::new(with_command())),
        ("r waiting", waiting),
        ("r running", running()),
        ("r killed", killed_by(running())),
        ("r recalling", recalling),
        ("r leaving", leaving),
        ("r quitting", quitting),
        ("r killing", killing),
        ("r draining", draining),
    ]
}

pub(super) fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("INT", Event::Signalled(Signal::Interrupt)),
        ("USR2", Event::Signalled(Signal::Other(12))),
        ("PIPE", Event::Signalled(Signal::Other(13))),
        ("command exits 0", Event::CommandExited(CLEAN)),
        (
            "command 127",
            Event::CommandExited(ExitStatus::NotStarted(127)),
        ),
        ("ready", Event::ReadinessKnown(true)),
        ("not ready", Event::ReadinessKnown(false)),
    ]
}
