//! Stories, a table and properties, all on a simulated clock.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::match_wildcard_for_single_variants,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "a test looks at what it is about"
)]

mod changes;
mod command;
mod hang;
mod posted;
mod requests;
mod words;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn with_companions(companions: u8) -> Policy {
    Policy {
        companions,
        ..policy()
    }
}

fn policy() -> Policy {
    Policy {
        cert_debounce: secs(10),
        rescan_interval: Some(secs(300)),
        wait_for_certificates: false,
        termination_drain: secs(5),
        exit_on_zero: None,
        pre_drain_delay: Duration::ZERO,
        kill_timeout: secs(5),
        retry_budget: 10,
        retry_initial: millis(200),
        retry_reset: secs(600),
        on_clean_exit: CleanExit::Exit,
        live_timeout: secs(20),
        admin: "127.0.0.1:15000",
        hang_timeout: None,
        validate: false,
        hot_restart: true,
        parent_shutdown: secs(60),
        parent_stand_in: true,
        companions: 0,
        command: false,
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn configuration(byte: u8) -> Fingerprint {
    Fingerprint([byte; 32])
}

/// The core with a clock of its own; files and processes are what the test says.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, not a state"
)]
struct Sim {
    core: Supervisor,
    now: Instant,
    began: Instant,
    /// The hash of the files.
    files: u8,
    complete: bool,
    /// Orders that have been given, notes left out, with their time since the start.
    orders: Vec<(Duration, Action)>,
    notes: Vec<Note>,
    /// Calls under way, of stories of silence.
    calls: Vec<(Instant, u32)>,
    outcome: Option<Outcome>,
    /// The flag in Envoy's shared memory.
    initialised: bool,
    /// The status port's answer.
    ready: bool,
    /// The states of the draining parent and of the newest by /proc.
    parent_stopped: bool,
    newest_stopped: bool,
    /// Somebody else has the name of a dead parent.
    name_taken: bool,
}

impl Sim {
    #[expect(
        clippy::disallowed_methods,
        reason = "an instant to begin with; time then is the test's"
    )]
    fn new(policy: Policy) -> Self {
        let now = Instant::now();
        let mut sim = Self {
            core: Supervisor::new(policy),
            now,
            began: now,
            files: 1,
            complete: true,
            orders: Vec::new(),
            notes: Vec::new(),
            calls: Vec::new(),
            outcome: None,
            initialised: false,
            ready: true,
            parent_stopped: false,
            newest_stopped: false,
            name_taken: false,
        };
        sim.complete = !sim.core.policy.wait_for_certificates;
        let actions = sim.core.start(now, configuration(1), sim.complete);
        sim.carry_out(actions);
        sim
    }

    /// A core whose epoch 0 is LIVE, with the orders so far forgotten.
    fn live(policy: Policy) -> Self {
        let mut sim = Self::new(policy);
        sim.is_live(0);
        sim.orders.clear();
        sim
    }

    fn carry_out(&mut self, mut actions: Vec<Action>) {
        for action in actions.drain(..) {
            assert_eq!(self.outcome, None, "{action:?} was ordered after the end");
            match action {
                Action::Note(note) => {
                    assert!(!note.to_string().is_empty());
                    self.notes.push(note);
                }
                Action::Hash(cause) => {
                    let configuration = configuration(self.files);
                    self.on(Event::Hashed {
                        configuration,
                        complete: self.complete,
                        cause,
                    });
                }
                Action::CallAdmin(epoch, Call::Memory) => {
                    let reply = if self.initialised {
                        Reply::Live
                    } else {
                        Reply::NotLive
                    };
                    self.on(replied(epoch.0, Call::Memory, reply));
                }
                Action::CallAdmin(epoch, Call::Stopped) => {
                    let newest = self.core.newest.as_ref();
                    let stopped = if newest.is_some_and(|newest| newest.epoch == epoch) {
                        self.newest_stopped
                    } else {
                        self.parent_stopped
                    };
                    let reply = if stopped {
                        Reply::Stopped
                    } else {
                        Reply::Failed
                    };
                    self.on(replied(epoch.0, Call::Stopped, reply));
                }
                Action::StandIn { parent, .. } => {
                    self.orders.push((self.now - self.began, action));
                    if self.name_taken {
                        self.on(Event::NameTaken { parent });
                    }
                }
                Action::Exit(outcome) => self.outcome = Some(outcome),
                Action::CheckReady => self.on(Event::ReadinessKnown(self.ready)),
                Action::SpawnCommand => {
                    assert!(self.ready && self.core.ever_live);
                    assert_eq!(self.core.phase, Phase::Running, "after the end began");
                    self.orders.push((self.now - self.began, action));
                }
                Action::SpawnCompanion(id) => {
                    assert!(self.core.ever_live, "{id} before the first LIVE");
                    assert_eq!(self.core.phase, Phase::Running, "{id} after the end began");
                    self.orders.push((self.now - self.began, action));
                }
                order => self.orders.push((self.now - self.began, order)),
            }
        }
        self.core.take_back(actions);
    }

    fn on(&mut self, event: Event) {
        let event = self.meant(event);
        let actions = self.core.handle(self.now, &event);
        self.carry_out(actions);
    }

    /// An answer without a serial number is of the process that has the number of its epoch now.
    fn meant(&self, mut event: Event) -> Event {
        if let Event::AdminReplied { process, .. } = &mut event
            && process.serial == 0
        {
            *process = self.core.process(process.epoch).unwrap_or(*process);
        }
        event
    }

    /// Time passes; every timer fires at its deadline. LIVE polls are left out of the orders.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(deadline) = self.core.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(deadline);
            while let Some(timer) = self.core.expire(self.now) {
                self.on(Event::Due(timer));
            }
        }
        self.now = end;
        self.orders
            .retain(|(_, order)| !matches!(order, Action::CallAdmin(_, Call::Live)));
    }

    fn is_live(&mut self, epoch: u32) {
        self.on(replied(epoch, Call::Live, Reply::Live));
    }

    fn exits(&mut self, epoch: u32, how: ExitStatus) {
        self.on(Event::Exited {
            epoch: Epoch(epoch),
            how,
        });
    }

    fn companion_exits(&mut self, id: u8, how: ExitStatus) {
        let companion = CompanionId(id);
        self.on(Event::CompanionExited { companion, how });
    }

    fn companion_states(&self) -> Vec<&'static str> {
        self.core.companions().map(|c| c.state.name()).collect()
    }

    /// The files change and the debounce passes.
    fn change(&mut self, files: u8) {
        self.files = files;
        self.on(Event::FilesChanged);
        self.pass(self.core.policy.cert_debounce);
    }

    /// The orders since the last call.
    fn ordered(&mut self) -> Vec<Action> {
        self.orders.drain(..).map(|(_, order)| order).collect()
    }

    fn running(&self) -> Vec<(u32, State)> {
        let mut running: Vec<_> = self
            .core
            .processes()
            .map(|p| (p.epoch.0, p.state))
            .collect();
        running.reverse();
        running
    }
}

fn replied(epoch: u32, call: Call, reply: Reply) -> Event {
    let (epoch, serial) = (Epoch(epoch), 0);
    let process = ProcessId { epoch, serial };
    Event::AdminReplied {
        process,
        call,
        reply,
    }
}

fn spawn(epoch: u32, reason: Reason) -> Action {
    Action::Spawn {
        epoch: Epoch(epoch),
        reason,
    }
}

fn send(epoch: u32, what: ChildSignal) -> Action {
    Action::Signal(Epoch(epoch), what)
}

fn ask(epoch: u32, call: Call) -> Action {
    Action::CallAdmin(Epoch(epoch), call)
}

const fn start_companion(id: u8) -> Action {
    Action::SpawnCompanion(CompanionId(id))
}

const fn send_companion(id: u8, what: ChildSignal) -> Action {
    Action::SignalCompanion(CompanionId(id), what)
}

const fn stand_in(parent: u32, child: u32) -> Action {
    Action::StandIn {
        parent: Epoch(parent),
        child: Epoch(child),
    }
}

const CRASH: ExitStatus = ExitStatus::Signal(11);
const CLEAN: ExitStatus = ExitStatus::Code(0);

// ---- start

#[test]
fn an_event_needs_no_memory() {
    let mut sim = Sim::live(policy());
    let room = sim.core.room.as_ptr();
    for _ in 0..3 {
        let actions = sim.core.handle(sim.now, &Event::Signalled(Signal::Usr1));
        assert_eq!((actions.len(), actions.as_ptr()), (2, room));
        sim.core.take_back(actions);
    }
    // One that has grown is not kept.
    sim.core.take_back(Vec::with_capacity(1000));
    assert!(sim.core.room.capacity() <= ROOM);
}

#[test]
fn epoch_0_starts_at_once() {
    let mut sim = Sim::new(policy());
    assert_eq!(sim.ordered(), [spawn(0, Reason::Start)]);
}

#[test]
fn mutual_tls_waits_for_the_certificates() {
    let mut sim = Sim::new(Policy {
        wait_for_certificates: true,
        ..policy()
    });
    sim.pass(secs(60));
    assert_eq!(sim.ordered(), []);
    sim.complete = true;
    sim.on(Event::FilesChanged);
    sim.pass(millis(100));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Start)]);
}

#[test]
fn certificates_that_never_come_delay_the_start_by_two_minutes() {
    let mut sim = Sim::new(Policy {
        wait_for_certificates: true,
        ..policy()
    });
    sim.pass(secs(119));
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(1));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Start)]);
}

#[test]
fn term_while_waiting_for_certificates_ends_at_once_with_143() {
    let mut sim = Sim::new(Policy {
        wait_for_certificates: true,
        ..policy()
    });
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.outcome, Some(Outcome::NeverLive));
    assert_eq!(Outcome::NeverLive.code(), 143);
}

#[test]
fn a_sole_epoch_that_initialises_is_left_alone() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    sim.pass(secs(3600));
    assert_eq!(sim.ordered(), []);
    assert_eq!(sim.running(), [(0, State::Starting)]);
}

// ---- change

#[test]
fn a_change_starts_the_next_epoch_after_the_debounce() {
    let mut sim = Sim::live(policy());
    sim.files = 2;
    sim.on(Event::FilesChanged);
    sim.pass(millis(9_999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
    sim.is_live(1);
    assert_eq!(sim.running(), [(0, State::Draining), (1, State::Live)]);
}

#[test]
fn a_burst_of_changes_starts_one_epoch() {
    let mut sim = Sim::live(policy());
    for files in 2..50 {
        sim.files = files;
        sim.on(Event::FilesChanged);
        sim.pass(millis(200));
    }
    sim.pass(secs(10));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

#[test]
fn the_debounce_is_not_put_off_by_further_changes() {
    let mut sim = Sim::live(policy());
    for files in 2..23 {
        sim.files = files;
        sim.on(Event::FilesChanged);
        sim.pass(millis(500));
    }
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

#[test]
fn the_same_bytes_start_nothing() {
    let mut sim = Sim::live(policy());
    sim.change(1);
    sim.pass(secs(1000));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_rescan_finds_what_inotify_missed() {
    let mut sim = Sim::live(policy());
    sim.files = 2;
    sim.pass(secs(300));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Rescan)]);
}

#[test]
fn without_inotify_files_are_hashed_every_ten_seconds_even_if_rescans_are_off() {
    let mut sim = Sim::live(Policy {
        rescan_interval: None,
        ..policy()
    });
    sim.on(Event::WatchDegraded(true));
    sim.files = 2;
    sim.pass(secs(10));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Rescan)]);
    sim.on(Event::WatchDegraded(false));
    sim.is_live(1);
    sim.exits(0, CLEAN);
    sim.ordered();
    sim.files = 3;
    sim.pass(secs(1000));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_change_waits_until_the_older_parent_has_drained() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.change(3);
    sim.change(4);
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(40));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), [spawn(2, Reason::Change)]);
    assert_eq!(
        sim.core.newest.as_ref().unwrap().configuration,
        configuration(4)
    );
}

#[test]
fn a_change_waits_for_live_and_then_starts() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    sim.change(2);
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(15));
    sim.is_live(0);
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

#[test]
fn a_sole_epoch_that_is_never_live_is_started_afresh_for_a_change() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    sim.change(2);
    sim.pass(millis(19_999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), [spawn(0, Reason::Change)]);
}

#[test]
fn a_change_during_a_hand_over_is_started_after_it() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.change(3);
    assert_eq!(sim.ordered(), []);
    sim.is_live(1);
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(60));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), [spawn(2, Reason::Change)]);
}

/// The process may have read the files of the change that was taken back.
#[test]
fn a_change_during_the_start_that_is_taken_back_is_started() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    // While epoch 1 starts; the change is hashed only when it is LIVE.
    sim.files = 1;
    sim.on(Event::FilesChanged);
    sim.is_live(1);
    sim.pass(secs(10));
    sim.change(2);
    sim.pass(secs(40));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), [spawn(2, Reason::Change)]);
}

/// The change before the start is hashed after it.
#[test]
fn a_change_just_before_the_start_that_is_taken_back_is_started() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.change(3);
    sim.ordered();
    sim.files = 2;
    sim.on(Event::FilesChanged);
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered().last(), Some(&spawn(2, Reason::Change)));
    sim.is_live(2);
    sim.pass(secs(10));
    sim.change(3);
    sim.pass(secs(40));
    sim.exits(1, CLEAN);
    assert_eq!(sim.ordered().last(), Some(&spawn(3, Reason::Change)));
}

#[test]
fn a_change_that_is_taken_back_while_it_waits_is_called_off() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.change(3);
    sim.change(2);
    sim.pass(secs(40));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), []);
}

#[test]
fn sighup_restarts_although_nothing_changed_and_is_not_called_off() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Hangup));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Signal)]);
    sim.is_live(1);
    sim.on(Event::Signalled(Signal::Hangup));
    sim.change(2);
    sim.change(1);
    sim.pass(secs(40));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), [spawn(2, Reason::Signal)]);
}

#[test]
fn without_hot_restart_the_proxy_is_stopped_first() {
    let mut sim = Sim::live(Policy {
        hot_restart: false,
        ..policy()
    });
    sim.change(2);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Change)]);
}

#[test]
fn ten_changes_in_a_row_are_ten_epochs() {
    let mut sim = Sim::live(policy());
    for epoch in 1..=10_u32 {
        sim.change(u8::try_from(epoch).unwrap() + 1);
        assert_eq!(sim.ordered(), [spawn(epoch, Reason::Change)]);
        sim.is_live(epoch);
        sim.pass(secs(60));
        sim.exits(epoch - 1, CLEAN);
    }
    assert_eq!(sim.running(), [(10, State::Live)]);
}

#[test]
fn a_child_whose_admin_port_is_elsewhere_is_not_killed_once_it_has_initialised() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.initialised = true;
    sim.pass(secs(20));
    assert_eq!(sim.ordered(), []);
    assert_eq!(sim.running(), [(0, State::Draining), (1, State::Live)]);
    assert!(sim.notes.contains(&Note::LiveByMemory(Epoch(1))));
}

#[test]
fn a_sole_epoch_whose_admin_port_is_elsewhere_is_hot_restarted() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    sim.initialised = true;
    sim.change(2);
    sim.pass(secs(20));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

// ---- validation

#[test]
fn a_bootstrap_that_is_refused_is_not_started() {
    let mut sim = Sim::live(Policy {
        validate: true,
        ..policy()
    });
    sim.change(2);
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
    sim.on(Event::Validated {
        how: ExitStatus::Code(1),
    });
    sim.pass(secs(100));
    assert_eq!(sim.ordered(), []);
    sim.change(3);
    sim.on(Event::Validated { how: CLEAN });
    assert_eq!(
        sim.ordered(),
        [Action::Validate(Epoch(1)), spawn(1, Reason::Change)]
    );
}

#[test]
fn a_change_during_validation_is_validated_again() {
    let mut sim = Sim::live(Policy {
        validate: true,
        ..policy()
    });
    sim.change(2);
    sim.change(3);
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
    sim.on(Event::Validated { how: CLEAN });
    assert_eq!(sim.ordered(), [Action::Validate(Epoch(1))]);
    sim.on(Event::Validated { how: CLEAN });
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

#[test]
fn a_crash_during_validation_is_not_held_up_by_it() {
    let mut sim = Sim::live(Policy {
        validate: true,
        ..policy()
    });
    sim.change(2);
    sim.ordered();
    sim.exits(0, CRASH);
    sim.pass(millis(200));
    assert_eq!(
        sim.ordered(),
        [Action::KillValidator, spawn(0, Reason::Crash)]
    );
    sim.on(Event::Validated {
        how: ExitStatus::Signal(9),
    });
    sim.pass(secs(100));
    assert_eq!(sim.ordered(), []);
}

// ---- children that fail

#[test]
fn a_child_that_fails_costs_the_parent_nothing_and_is_tried_again() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.exits(1, ExitStatus::Code(1));
    assert_eq!(sim.ordered(), [Action::ClearInitializing]);
    assert_eq!(sim.running(), [(0, State::Live)]);
    sim.pass(millis(199));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
    sim.is_live(1);
    assert_eq!(sim.running(), [(0, State::Draining), (1, State::Live)]);
}

#[test]
fn a_child_that_is_not_live_in_time_is_killed_and_counts_as_failed() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.pass(secs(20));
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Kill)]);
    sim.exits(1, ExitStatus::Signal(9));
    sim.pass(millis(200));
    assert_eq!(
        sim.ordered(),
        [Action::ClearInitializing, spawn(1, Reason::Change)]
    );
}

#[test]
fn when_the_budget_is_spent_on_a_child_the_parent_goes_on_until_the_next_change() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    for _ in 0..11 {
        sim.exits(1, ExitStatus::Code(1));
        sim.pass(secs(110));
    }
    let starts = sim
        .ordered()
        .into_iter()
        .filter(|o| *o == spawn(1, Reason::Change))
        .count();
    assert_eq!(starts, 11);
    let given_up = |note: &Note| matches!(note, Note::GaveUp { again: false, .. });
    assert!(sim.notes.iter().any(given_up));
    assert_eq!(sim.running(), [(0, State::Live)]);
    assert_eq!(sim.outcome, None);
    sim.change(3);
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

#[test]
fn a_change_while_a_child_fails_is_started_without_backoff() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.change(3);
    sim.ordered();
    sim.exits(1, ExitStatus::Code(1));
    assert_eq!(
        sim.ordered(),
        [Action::ClearInitializing, spawn(1, Reason::Change)]
    );
}

#[test]
fn a_change_during_the_backoff_is_started_at_once() {
    let mut sim = Sim::live(Policy {
        cert_debounce: millis(1),
        ..policy()
    });
    sim.change(2);
    sim.exits(1, ExitStatus::Code(1));
    sim.ordered();
    sim.change(3);
    assert_eq!(sim.ordered(), [spawn(1, Reason::Change)]);
}

#[test]
fn a_change_back_to_what_the_parent_runs_ends_the_retries() {
    let mut sim = Sim::live(Policy {
        cert_debounce: millis(1),
        ..policy()
    });
    sim.change(2);
    sim.exits(1, ExitStatus::Code(1));
    sim.ordered();
    sim.change(1);
    sim.pass(secs(1000));
    assert_eq!(sim.ordered(), []);
}

// ---- crashes

#[test]
fn crashes_are_retried_eleven_starts_in_all_with_doubling_delays() {
    let mut sim = Sim::new(policy());
    for _ in 0..11 {
        assert_eq!(sim.outcome, None);
        sim.exits(0, ExitStatus::Code(3));
        sim.pass(secs(103));
    }
    let gaps: Vec<_> = sim.orders.iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(gaps.len(), 11);
    let delays: Vec<_> = gaps
        .iter()
        .enumerate()
        .skip(1)
        .map(|(n, at)| at - (n as u128 - 1) * 103_000)
        .collect();
    assert_eq!(
        delays,
        [
            200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 102_400
        ]
    );
    assert_eq!(sim.outcome, Some(Outcome::BudgetSpent(ExitStatus::Code(3))));
}

#[test]
fn the_exit_code_is_the_last_proxys_own() {
    for (how, code) in [
        (ExitStatus::Code(3), 3),
        (ExitStatus::Signal(11), 139),
        (ExitStatus::NotStarted(127), 127),
        (ExitStatus::NotStarted(126), 126),
    ] {
        let mut sim = Sim::new(Policy {
            retry_budget: 0,
            ..policy()
        });
        sim.exits(0, how);
        assert_eq!(sim.outcome.unwrap().code(), code);
    }
}

#[test]
fn a_long_run_gives_the_whole_budget_back() {
    let mut sim = Sim::live(policy());
    for _ in 0..9 {
        sim.exits(0, CRASH);
        sim.pass(secs(103));
    }
    assert_eq!(sim.core.budget, 1);
    sim.pass(secs(600));
    assert_eq!(sim.core.budget, 10);
    sim.ordered();
    sim.exits(0, CRASH);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Crash)]);
}

#[test]
fn a_new_hash_refills_the_budget() {
    let mut sim = Sim::live(policy());
    sim.exits(0, CRASH);
    sim.pass(secs(1));
    assert_eq!(sim.core.budget, 9);
    sim.change(2);
    assert_eq!(sim.core.budget, 10);
}

#[test]
fn a_crash_beside_a_draining_parent_is_retried_as_its_child() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.exits(1, CRASH);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Crash)]);
    assert_eq!(sim.running(), [(0, State::Draining), (1, State::Starting)]);
}

/// Not found, not executable, refused: before anything was LIVE a second try shows that a third would not help.
#[test]
fn a_lasting_failure_before_the_first_live_ends_after_two_tries() {
    for (how, code) in [
        (ExitStatus::NotStarted(127), 127),
        (ExitStatus::NotStarted(126), 126),
        (ExitStatus::Code(127), 127),
        (ExitStatus::Code(1), 1),
    ] {
        let mut sim = Sim::new(policy());
        sim.exits(0, how);
        assert_eq!(sim.outcome, None, "{how}");
        sim.pass(millis(200));
        sim.exits(0, how);
        let outcome = sim.outcome.unwrap();
        assert_eq!((outcome, outcome.code()), (Outcome::Hopeless(how), code));
        let mut sim = Sim::live(policy());
        sim.exits(0, how);
        sim.pass(millis(200));
        sim.exits(0, how);
        assert_eq!(sim.outcome, None, "{how} after an epoch was LIVE");
    }
}

/// A crash, an id that is taken, and an end that took its time may be others the next time; so may what follows a change.
#[test]
fn a_passing_failure_has_all_tries() {
    for (how, after) in [
        (CRASH, millis(1)),
        (ExitStatus::NotStarted(1), millis(1)),
        (ExitStatus::NotStarted(71), millis(1)),
        (ExitStatus::Code(1), millis(1500)),
    ] {
        let mut sim = Sim::new(policy());
        for _ in 0..10 {
            sim.pass(after);
            sim.exits(0, how);
            assert_eq!(sim.outcome, None, "{how}");
            sim.pass(secs(103));
        }
    }
    let mut sim = Sim::new(policy());
    sim.exits(0, ExitStatus::Code(1));
    sim.change(2);
    sim.exits(0, ExitStatus::Code(1));
    assert_eq!(sim.outcome, None);
}

#[test]
fn a_spent_budget_beside_a_draining_parent_stops_it_and_ends() {
    let mut sim = Sim::live(Policy {
        retry_budget: 0,
        ..policy()
    });
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.exits(1, CRASH);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::BudgetSpent(CRASH)));
}

#[test]
fn after_a_crash_of_everything_epochs_begin_at_0() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.pass(secs(60));
    sim.exits(0, CLEAN);
    sim.ordered();
    sim.exits(1, CRASH);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Crash)]);
}

#[test]
fn a_parent_that_dies_while_it_drains_gets_a_stand_in() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [stand_in(0, 1)]);
}

#[test]
fn a_parent_that_is_told_to_stop_too_soon_gets_a_stand_in_too() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.pass(secs(30));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), [stand_in(0, 1)]);
}

#[test]
fn no_stand_in_when_it_is_switched_off() {
    let mut sim = Sim::live(Policy {
        parent_stand_in: false,
        ..policy()
    });
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_draining_parent_that_hangs_is_killed_after_its_time_and_replaced() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.change(3);
    sim.ordered();
    sim.pass(secs(54));
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [stand_in(0, 1), spawn(2, Reason::Change)]);
}

/// Nobody was there to dismiss it: it has not outlived its time, and is the next child's parent.
#[test]
fn a_draining_parent_without_a_live_child_is_left_alone() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.pass(secs(40));
    sim.ordered();
    sim.exits(1, CRASH);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Crash)]);
    sim.pass(secs(15));
    sim.is_live(1);
    sim.pass(secs(64));
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
}

#[test]
fn a_parent_that_hangs_is_replaced_during_a_long_drain_too() {
    let mut sim = Sim::live(Policy {
        termination_drain: secs(300),
        ..policy()
    });
    sim.change(2);
    sim.is_live(1);
    sim.pass(secs(50));
    sim.on(Event::Signalled(Signal::Terminate));
    sim.ordered();
    sim.pass(secs(15));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [stand_in(0, 1)]);
}

#[test]
fn a_child_orphaned_in_the_hand_over_is_not_waited_for_long() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.exits(0, ExitStatus::Signal(9));
    sim.pass(secs(2));
    assert_eq!(sim.ordered(), [stand_in(0, 1), send(1, ChildSignal::Kill)]);
    sim.exits(1, ExitStatus::Signal(9));
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Crash)]);
}

/// Somebody stops it, by SIGSTOP say: it answers its child no more, and is not waited for.
#[test]
fn a_draining_parent_that_is_stopped_is_killed_at_once_and_replaced() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.pass(millis(1500));
    sim.ordered();
    sim.parent_stopped = true;
    sim.pass(secs(2));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
    let note = sim.notes.last().unwrap().to_string();
    assert_eq!(note, "epoch 0 was stopped, killing it for epoch 1");
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.ordered(), [stand_in(0, 1)]);
}

#[test]
fn a_draining_parent_that_is_continued_meanwhile_is_left_alone() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    for _ in 0..20 {
        // Seen at one look each.
        sim.parent_stopped = true;
        sim.pass(secs(1));
        sim.parent_stopped = false;
        sim.pass(secs(1));
    }
    assert_eq!(sim.ordered(), []);
    // It ends in its time, and nobody looks any more.
    sim.pass(secs(20));
    sim.exits(0, CLEAN);
    sim.pass(secs(2));
    assert_eq!(
        sim.core.next_deadline().map(|at| at > sim.now + secs(60)),
        Some(true)
    );
}

#[test]
fn a_parent_that_is_stopped_without_a_stand_in_has_its_time() {
    let mut sim = Sim::live(Policy {
        parent_stand_in: false,
        ..policy()
    });
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.parent_stopped = true;
    sim.pass(secs(64));
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
}

#[test]
fn a_stopped_parent_is_replaced_during_a_drain_too() {
    let mut sim = Sim::live(Policy {
        termination_drain: secs(300),
        ..policy()
    });
    sim.change(2);
    sim.is_live(1);
    sim.on(Event::Signalled(Signal::Terminate));
    sim.ordered();
    sim.parent_stopped = true;
    sim.pass(secs(3));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
}

/// The order comes again for as long as the child asks.
#[test]
fn the_child_of_a_dead_parent_whose_name_is_taken_is_answered_while_it_asks() {
    let mut sim = Sim::live(policy());
    sim.name_taken = true;
    sim.change(2);
    sim.is_live(1);
    sim.pass(secs(5));
    sim.ordered();
    sim.exits(0, ExitStatus::Signal(9));
    sim.pass(secs(60));
    let orders = sim.ordered();
    assert!(orders.iter().all(|order| *order == stand_in(0, 1)));
    assert!((15..=25).contains(&orders.len()), "{}", orders.len());
    sim.pass(secs(200));
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_name_that_is_free_again_is_answered_from_and_not_asked_for_any_more() {
    let mut sim = Sim::live(policy());
    sim.name_taken = true;
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.exits(0, ExitStatus::Signal(9));
    sim.name_taken = false;
    sim.pass(secs(60));
    assert_eq!(sim.ordered(), [stand_in(0, 1), stand_in(0, 1)]);
}

/// It waits for whoever has taken its parent's name, and nobody else could end that.
#[test]
fn a_child_that_waits_for_who_has_its_dead_parents_name_is_killed_and_started_afresh() {
    let mut sim = Sim::live(policy());
    sim.name_taken = true;
    sim.change(2);
    sim.is_live(1);
    sim.exits(0, ExitStatus::Signal(9));
    for _ in 0..40 {
        sim.pass(secs(1));
        sim.on(replied(1, Call::Live, Reply::Silent));
    }
    let orders = sim.ordered();
    assert!(orders.contains(&send(1, ChildSignal::Kill)), "{orders:?}");
    sim.exits(1, ExitStatus::Signal(9));
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Crash)]);
    // Its successor has as much time as it wants.
    sim.is_live(0);
    for _ in 0..100 {
        sim.pass(secs(1));
        sim.on(replied(0, Call::Live, Reply::Silent));
    }
    assert_eq!(sim.ordered(), []);
}

// ---- clean exits

#[test]
fn a_clean_exit_ends_the_agent_with_0() {
    let mut sim = Sim::live(policy());
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::ProxyEnded));
}

#[test]
fn a_clean_exit_restarts_without_spending_the_budget() {
    let mut sim = Sim::live(Policy {
        on_clean_exit: CleanExit::Restart,
        ..policy()
    });
    for _ in 0..30 {
        sim.exits(0, CLEAN);
        sim.pass(secs(103));
    }
    assert_eq!(sim.core.budget, 10);
    assert_eq!(sim.ordered().len(), 30);
}

#[test]
fn an_idle_agent_starts_again_for_a_change() {
    let mut sim = Sim::live(Policy {
        on_clean_exit: CleanExit::Idle,
        ..policy()
    });
    sim.exits(0, CLEAN);
    sim.pass(secs(1000));
    assert_eq!(sim.ordered(), []);
    sim.change(2);
    assert_eq!(sim.ordered(), [spawn(0, Reason::Change)]);
}

#[test]
fn a_clean_exit_beside_a_draining_parent_takes_the_parent_along() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.exits(1, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::ProxyEnded));
}

// ---- the end

#[test]
fn a_graceful_end_drains_terminates_and_exits_0() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim.pass(millis(4999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn quitquitquit_does_not_drain_and_is_0_even_before_any_epoch_was_live() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    sim.on(Event::QuitRequested);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, ExitStatus::Signal(15));
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
    let mut draining = Sim::live(policy());
    draining.on(Event::Signalled(Signal::Terminate));
    draining.ordered();
    draining.on(Event::QuitRequested);
    draining.on(Event::QuitRequested);
    assert_eq!(
        draining.ordered(),
        [send(0, ChildSignal::Term)],
        "it never kills"
    );
}

#[test]
fn the_snapshot_says_what_the_agent_does() {
    let mut sim = Sim::new(policy());
    assert_eq!(sim.core.snapshot().state, AgentState::Starting);
    sim.is_live(0);
    assert_eq!(sim.core.snapshot().state, AgentState::Live);
    sim.change(2);
    let snapshot = sim.core.snapshot();
    assert_eq!(snapshot.state, AgentState::Restarting);
    assert_eq!(snapshot.newest.map(|process| process.epoch), Some(Epoch(1)));
    sim.exits(1, CRASH);
    let snapshot = sim.core.snapshot();
    assert_eq!(snapshot.next, Some(Reason::Change));
    assert_eq!(snapshot.retry_budget, (9, 10));
    assert!(snapshot.next_try.is_some());
    assert!(snapshot.newest.is_some_and(|process| process.admin_gone));
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.core.snapshot().state, AgentState::Draining);
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.core.snapshot().state, AgentState::Stopping);
}

#[test]
fn the_pre_drain_delay_comes_before_the_drain() {
    let mut sim = Sim::live(Policy {
        pre_drain_delay: secs(3),
        ..policy()
    });
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), []);
    sim.pass(secs(3));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
}

#[test]
fn a_drain_that_is_refused_takes_its_time_all_the_same() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Terminate));
    sim.on(replied(0, Call::Drain, Reply::Failed));
    sim.ordered();
    sim.pass(millis(4999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
}

#[test]
fn the_drain_ends_when_no_connection_is_left() {
    let quick = Policy {
        exit_on_zero: Some(secs(2)),
        termination_drain: secs(60),
        ..policy()
    };
    let mut sim = Sim::live(quick);
    sim.on(Event::Signalled(Signal::Terminate));
    sim.ordered();
    sim.pass(millis(1999));
    assert_eq!(sim.ordered(), []);
    let count = |connections| replied(0, Call::Connections, Reply::Connections(connections));
    sim.pass(millis(1));
    sim.on(count(2));
    sim.pass(secs(1));
    assert_eq!(
        sim.ordered(),
        [ask(0, Call::Connections), ask(0, Call::Connections)]
    );
    sim.on(count(0));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
}

#[test]
fn connections_that_stay_do_not_outlast_the_longest_drain() {
    let quick = Policy {
        exit_on_zero: Some(secs(2)),
        termination_drain: secs(6),
        ..policy()
    };
    let mut sim = Sim::live(quick);
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(6));
    assert_eq!(sim.ordered().last(), Some(&send(0, ChildSignal::Term)));
}

#[test]
fn a_proxy_that_does_not_end_is_killed_and_the_code_is_137() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(10));
    assert_eq!(
        sim.ordered(),
        [
            ask(0, Call::Drain),
            send(0, ChildSignal::Term),
            send(0, ChildSignal::Kill)
        ]
    );
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.outcome, Some(Outcome::Killed));
}

#[test]
fn a_process_that_cannot_be_killed_does_not_hold_the_agent() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(15));
    assert_eq!(sim.outcome, Some(Outcome::Killed));
}

#[test]
fn the_second_request_skips_the_drain_and_the_third_kills() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Terminate));
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(
        sim.ordered(),
        [ask(0, Call::Drain), send(0, ChildSignal::Term)]
    );
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
}

#[test]
fn quit_does_not_drain() {
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Quit));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn term_before_the_first_live_ends_at_once_with_143() {
    let mut sim = Sim::new(policy());
    sim.ordered();
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::NeverLive));
}

#[test]
fn term_during_a_hand_over_drains_the_parent_and_then_the_child_that_took_over() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim.is_live(1);
    assert_eq!(sim.ordered(), [ask(1, Call::Drain)]);
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Term)]);
    sim.exits(1, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn a_draining_parent_is_never_signalled_in_its_time_while_its_child_lives() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.pass(secs(59));
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(5));
    assert_eq!(
        sim.ordered(),
        [ask(1, Call::Drain), send(1, ChildSignal::Term)]
    );
}

#[test]
fn a_stop_during_the_backoff_ends_at_once() {
    let mut sim = Sim::live(policy());
    sim.exits(0, CRASH);
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn usr1_reopens_logs_of_every_proxy_that_can_take_it() {
    let mut sim = Sim::live(policy());
    sim.change(2);
    sim.ordered();
    sim.on(Event::Signalled(Signal::Usr1));
    assert_eq!(
        sim.ordered(),
        [send(0, ChildSignal::Reopen), Action::ReopenLog]
    );
    sim.is_live(1);
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Reopen)]);
    sim.on(Event::Signalled(Signal::Usr1));
    assert_eq!(
        sim.ordered(),
        [
            send(1, ChildSignal::Reopen),
            send(0, ChildSignal::Reopen),
            Action::ReopenLog
        ]
    );
}

// ---- companions

#[test]
fn companions_start_with_the_first_live_in_the_order_of_their_flags() {
    let mut sim = Sim::new(with_companions(2));
    sim.pass(secs(60));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Start)]);
    assert_eq!(sim.companion_states(), ["waiting", "waiting"]);
    sim.is_live(0);
    assert_eq!(sim.ordered(), [start_companion(0), start_companion(1)]);
    assert_eq!(sim.companion_states(), ["running", "running"]);
}

#[test]
fn companions_live_through_hot_restarts_and_crashes_of_the_proxy() {
    let mut sim = Sim::live(with_companions(1));
    sim.change(2);
    sim.is_live(1);
    sim.exits(0, CLEAN);
    sim.exits(1, CRASH);
    sim.pass(millis(200));
    sim.is_live(0);
    assert_eq!(
        sim.ordered(),
        [
            spawn(1, Reason::Change),
            Action::StandIn {
                parent: Epoch(0),
                child: Epoch(1)
            },
            spawn(0, Reason::Crash)
        ]
    );
}

#[test]
fn a_companion_comes_back_with_a_doubling_delay_that_has_a_bound_and_no_budget() {
    let mut sim = Sim::live(Policy {
        retry_budget: 0,
        ..with_companions(2)
    });
    let mut delays = Vec::new();
    for how in [CRASH, CLEAN, ExitStatus::NotStarted(127)]
        .into_iter()
        .cycle()
        .take(15)
    {
        let ended = sim.now;
        sim.companion_exits(1, how);
        assert_eq!(sim.ordered(), []);
        while sim.orders.is_empty() {
            let next = sim.core.timers.next().unwrap();
            sim.pass(next - sim.now);
        }
        assert_eq!(sim.ordered(), [start_companion(1)]);
        delays.push((sim.now - ended).as_millis());
    }
    let doubling: Vec<_> = (0..15).map(|n| 200_u128 << n.min(9)).collect();
    assert_eq!(delays, doubling);
    assert_eq!(sim.core.companions().map(|c| c.restarts).sum::<u64>(), 15);
    sim.pass(secs(600));
    sim.companion_exits(1, CRASH);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [start_companion(1)], "it ran long enough");
}

#[test]
fn companions_that_end_together_come_back_each_in_its_time() {
    let mut sim = Sim::live(with_companions(3));
    sim.companion_exits(2, CRASH);
    sim.pass(millis(100));
    sim.companion_exits(0, CRASH);
    sim.pass(millis(100));
    assert_eq!(sim.ordered(), [start_companion(2)]);
    sim.pass(millis(100));
    assert_eq!(sim.ordered(), [start_companion(0)]);
    assert_eq!(sim.companion_states(), ["running"; 3]);
}

#[test]
fn companions_are_stopped_after_the_drain_and_before_the_proxy() {
    let mut sim = Sim::live(with_companions(2));
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim.pass(secs(5));
    let told = [
        send_companion(1, ChildSignal::Term),
        send_companion(0, ChildSignal::Term),
    ];
    assert_eq!(sim.ordered(), told);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.ordered(), []);
    sim.companion_exits(1, CLEAN);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
    assert_eq!(sim.companion_states(), ["ended", "ended"]);
}

#[test]
fn a_companion_that_ends_during_the_drain_stays_away() {
    let mut sim = Sim::live(with_companions(2));
    sim.companion_exits(1, CRASH);
    sim.on(Event::Signalled(Signal::Terminate));
    sim.companion_exits(0, CRASH);
    sim.pass(secs(4));
    assert_eq!(sim.ordered(), [ask(0, Call::Drain)]);
    sim.pass(secs(1));
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Term)]);
}

#[test]
fn a_companion_that_does_not_end_is_killed_then_the_proxy_has_its_own_time_and_the_code_is_137() {
    let mut sim = Sim::live(with_companions(2));
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(5));
    sim.companion_exits(0, CLEAN);
    sim.ordered();
    sim.pass(millis(4_999));
    assert_eq!(sim.ordered(), []);
    sim.pass(millis(1));
    let killed = [
        send_companion(1, ChildSignal::Kill),
        send(0, ChildSignal::Term),
    ];
    assert_eq!(sim.ordered(), killed);
    sim.pass(millis(4_999));
    sim.companion_exits(1, ExitStatus::Signal(9));
    sim.exits(0, CLEAN);
    assert_eq!(sim.ordered(), []);
    assert_eq!(sim.outcome, Some(Outcome::Killed));
}

#[test]
fn a_companion_that_cannot_be_killed_does_not_hold_the_agent() {
    let mut sim = Sim::live(with_companions(1));
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(10));
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, None);
    sim.pass(secs(5));
    assert_eq!(sim.outcome, Some(Outcome::Killed));
}

#[test]
fn the_second_request_does_not_wait_for_companions_and_the_third_kills_them() {
    for drained in [0, 5] {
        let mut sim = Sim::live(with_companions(1));
        sim.on(Event::Signalled(Signal::Terminate));
        sim.pass(secs(drained));
        sim.on(Event::Signalled(Signal::Terminate));
        let told = [
            ask(0, Call::Drain),
            send_companion(0, ChildSignal::Term),
            send(0, ChildSignal::Term),
        ];
        assert_eq!(sim.ordered(), told);
        sim.on(Event::Signalled(Signal::Terminate));
        let killed = [
            send_companion(0, ChildSignal::Kill),
            send(0, ChildSignal::Kill),
        ];
        assert_eq!(sim.ordered(), killed);
        sim.exits(0, ExitStatus::Signal(9));
        assert_eq!(sim.outcome, None);
        sim.companion_exits(0, ExitStatus::Signal(9));
        assert_eq!(sim.outcome, Some(Outcome::Killed));
    }
}

#[test]
fn quit_stops_companions_and_proxy_at_once() {
    let mut sim = Sim::live(with_companions(1));
    sim.on(Event::Signalled(Signal::Quit));
    assert_eq!(
        sim.ordered(),
        [
            send_companion(0, ChildSignal::Term),
            send(0, ChildSignal::Term)
        ]
    );
    sim.exits(0, CLEAN);
    assert_eq!(sim.outcome, None);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn term_while_the_proxy_is_down_stops_the_companions() {
    let mut sim = Sim::live(with_companions(1));
    sim.exits(0, CRASH);
    sim.on(Event::Signalled(Signal::Terminate));
    assert_eq!(sim.ordered(), [send_companion(0, ChildSignal::Term)]);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.outcome, Some(Outcome::Stopped));
}

#[test]
fn an_agent_that_ends_by_itself_takes_its_companions_along_and_keeps_its_reason() {
    let mut sim = Sim::live(Policy {
        retry_budget: 0,
        ..with_companions(1)
    });
    sim.exits(0, CRASH);
    assert_eq!(sim.ordered(), [send_companion(0, ChildSignal::Term)]);
    sim.pass(secs(5));
    assert_eq!(sim.ordered(), [send_companion(0, ChildSignal::Kill)]);
    sim.companion_exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.outcome, Some(Outcome::BudgetSpent(CRASH)));
}

#[test]
fn a_child_that_takes_over_while_companions_stop_is_the_one_that_is_told_to_end() {
    let mut sim = Sim::live(with_companions(1));
    sim.change(2);
    sim.on(Event::Signalled(Signal::Terminate));
    sim.pass(secs(5));
    sim.ordered();
    sim.is_live(1);
    assert_eq!(sim.running(), [(0, State::Draining), (1, State::Live)]);
    sim.companion_exits(0, CLEAN);
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Term)]);
}

// ---- the table

/// The phases in which the core can be, each with a way to get there.
fn phases() -> Vec<(&'static str, Sim)> {
    let waiting = Sim::new(Policy {
        wait_for_certificates: true,
        ..policy()
    });
    let starting = Sim::new(policy());
    let live = Sim::live(policy());
    let mut handing_over = Sim::live(policy());
    handing_over.change(2);
    let mut draining_parent = Sim::live(policy());
    draining_parent.change(2);
    draining_parent.is_live(1);
    let mut backoff = Sim::live(policy());
    backoff.exits(0, CRASH);
    let mut validating = Sim::live(Policy {
        validate: true,
        ..policy()
    });
    validating.change(2);
    let mut afresh = Sim::live(Policy {
        hot_restart: false,
        ..policy()
    });
    afresh.change(2);
    let mut idle = Sim::live(Policy {
        on_clean_exit: CleanExit::Idle,
        ..policy()
    });
    idle.exits(0, CLEAN);
    let mut pre_drain = Sim::live(Policy {
        pre_drain_delay: secs(3),
        ..policy()
    });
    pre_drain.on(Event::Signalled(Signal::Terminate));
    let mut draining = Sim::live(policy());
    draining.on(Event::Signalled(Signal::Terminate));
    let mut posted = Sim::live(policy());
    posted.on(Event::DrainRequested);
    posted.on(Event::Signalled(Signal::Terminate));
    let mut terminating = Sim::live(policy());
    terminating.on(Event::Signalled(Signal::Quit));
    let mut killing = Sim::live(policy());
    (0..3).for_each(|_| killing.on(Event::Signalled(Signal::Terminate)));
    let mut with_companion = Sim::live(with_companions(1));
    with_companion.orders.clear();
    let mut companion_backoff = Sim::live(with_companions(1));
    companion_backoff.companion_exits(0, CRASH);
    companion_backoff.now += millis(200);
    let mut companion_draining = Sim::live(with_companions(1));
    companion_draining.on(Event::Signalled(Signal::Terminate));
    let mut dismissing = Sim::live(with_companions(1));
    dismissing.on(Event::Signalled(Signal::Terminate));
    dismissing.pass(secs(5));
    let mut dismissing_alone = Sim::live(with_companions(1));
    dismissing_alone.exits(0, CLEAN);
    let mut companion_terminating = Sim::live(with_companions(1));
    companion_terminating.on(Event::Signalled(Signal::Quit));
    let mut companion_killing = Sim::live(with_companions(1));
    (0..3).for_each(|_| companion_killing.on(Event::Signalled(Signal::Terminate)));
    let mut done = Sim::live(policy());
    done.exits(0, CLEAN);
    vec![
        ("waiting", waiting),
        ("starting", starting),
        ("live", live),
        ("hand-over", handing_over),
        ("parent drains", draining_parent),
        ("backoff", backoff),
        ("validating", validating),
        ("stop afresh", afresh),
        ("idle", idle),
        ("pre-drain", pre_drain),
        ("draining", draining),
        ("posted, TERM", posted),
        ("terminating", terminating),
        ("killing", killing),
        ("c live", with_companion),
        ("c backoff", companion_backoff),
        ("c draining", companion_draining),
        ("c dismissing", dismissing),
        ("c alone", dismissing_alone),
        ("c terminating", companion_terminating),
        ("c killing", companion_killing),
        ("done", done),
    ]
    .into_iter()
    .chain(command::phases())
    .collect()
}

fn events() -> Vec<(&'static str, Event)> {
    let mut events = vec![
        (
            "0 crashes",
            Event::Exited {
                epoch: Epoch(0),
                how: CRASH,
            },
        ),
        (
            "0 exits 0",
            Event::Exited {
                epoch: Epoch(0),
                how: CLEAN,
            },
        ),
        (
            "1 crashes",
            Event::Exited {
                epoch: Epoch(1),
                how: CRASH,
            },
        ),
        (
            "1 exits 0",
            Event::Exited {
                epoch: Epoch(1),
                how: CLEAN,
            },
        ),
        (
            "c0 exits 0",
            Event::CompanionExited {
                companion: CompanionId(0),
                how: CLEAN,
            },
        ),
        (
            "c1 crashes",
            Event::CompanionExited {
                companion: CompanionId(1),
                how: CRASH,
            },
        ),
        ("valid", Event::Validated { how: CLEAN }),
        (
            "invalid",
            Event::Validated {
                how: ExitStatus::Code(1),
            },
        ),
        ("files", Event::FilesChanged),
        ("degraded", Event::WatchDegraded(true)),
        ("hash", hashed(9)),
        ("same hash", hashed(1)),
        ("name taken", Event::NameTaken { parent: Epoch(0) }),
        ("0 LIVE", replied(0, Call::Live, Reply::Live)),
        ("1 LIVE", replied(1, Call::Live, Reply::Live)),
        ("not LIVE", replied(0, Call::Live, Reply::NotLive)),
        ("drain refused", replied(0, Call::Drain, Reply::Failed)),
        ("drain taken", replied(0, Call::Drain, Reply::Draining)),
        (
            "0 conns",
            replied(0, Call::Connections, Reply::Connections(0)),
        ),
        ("TERM", Event::Signalled(Signal::Terminate)),
        ("QUIT", Event::Signalled(Signal::Quit)),
        ("HUP", Event::Signalled(Signal::Hangup)),
        ("USR1", Event::Signalled(Signal::Usr1)),
        ("POST /drain", Event::DrainRequested),
        ("POST /quitquitquit", Event::QuitRequested),
    ];
    events.extend(
        Timer::ALL
            .into_iter()
            .map(|timer| ("due", Event::Due(timer))),
    );
    events
}

fn hashed(byte: u8) -> Event {
    Event::Hashed {
        configuration: configuration(byte),
        complete: true,
        cause: Cause::Noticed,
    }
}

fn cell(action: &Action) -> Option<String> {
    Some(match action {
        Action::Hash(_) => "hash".into(),
        Action::Spawn { epoch, .. } => format!("start {}", epoch.0),
        Action::Validate(epoch) => format!("validate {}", epoch.0),
        Action::KillValidator => "kill validator".into(),
        Action::Signal(epoch, what) => format!("{what:?} {}", epoch.0),
        Action::SpawnCompanion(id) => format!("start c{}", id.0),
        Action::SignalCompanion(id, what) => format!("{what:?} c{}", id.0),
        Action::CheckReady => "ready?".into(),
        Action::SpawnCommand => "start command".into(),
        Action::SignalCommand(number) => format!("{number} to command"),
        Action::KillCommand => "Kill command".into(),
        Action::IgnoreSignal(number) => format!("ignore {number}"),
        Action::CallAdmin(epoch, call) => format!("ask {} {call:?}", epoch.0),
        Action::ClearInitializing => "clear flag".into(),
        Action::StandIn { parent, .. } => format!("stand in for {}", parent.0),
        Action::ReopenLog => "reopen log".into(),
        Action::Note(_) => return None,
        Action::Exit(outcome) => format!("exit {}", outcome.code()),
    })
}

/// Every phase × every event, against the table in tests/data: a change of behaviour is a change of that file.
#[test]
fn the_table_of_phases_and_events_is_the_written_one() {
    let mut table = String::new();
    for (phase, _) in phases() {
        let more = phase.starts_with("r ").then(command::events);
        for (name, event) in events().into_iter().chain(more.unwrap_or_default()) {
            let mut sim = phases()
                .into_iter()
                .find(|(other, _)| *other == phase)
                .unwrap()
                .1;
            let actions = sim.core.handle(sim.now, &sim.meant(event));
            let cells: Vec<_> = actions.iter().filter_map(cell).collect();
            let name = match event {
                Event::Due(timer) => format!("{timer:?} due"),
                _ => name.to_owned(),
            };
            if !cells.is_empty() {
                table.push_str(&format!("{phase:14}| {name:18}| {}\n", cells.join(", ")));
            }
        }
    }
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/supervisor-table.txt"
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, &table).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        table == written,
        "{file} differs from what the core does now:\n{table}"
    );
}

// ---- properties

#[derive(Clone, Debug)]
enum Step {
    /// The newest, or the older, process ends.
    Exit {
        older: bool,
        how: ExitStatus,
    },
    /// The newest process says that it is LIVE.
    Live,
    /// The newest's admin port is.
    Silent,
    Files(u8),
    Signal(Signal),
    Drain,
    Quit,
    Validated(ExitStatus),
    Degraded(bool),
    Connections(u64),
    Stray(u32, ExitStatus),
    /// A companion ends.
    Companion(u8, ExitStatus),
    /// The command ends.
    Command(ExitStatus),
    /// Readiness changes, and an answer comes that nobody waits for.
    Ready(bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        Just(CLEAN),
        Just(CRASH),
        Just(ExitStatus::Code(1)),
        Just(ExitStatus::Signal(9)),
        Just(ExitStatus::NotStarted(127))
    ];
    let signal = prop_oneof![
        1 => Just(Signal::Terminate),
        1 => Just(Signal::Interrupt),
        1 => Just(Signal::Quit),
        2 => (1..65_u8).prop_map(Signal::Other),
        8 => Just(Signal::Hangup),
        4 => Just(Signal::Usr1)
    ];
    prop_oneof![
        6 => (any::<bool>(), how.clone()).prop_map(|(older, how)| Step::Exit { older, how }),
        6 => Just(Step::Live),
        4 => Just(Step::Silent),
        5 => (1..5_u8).prop_map(Step::Files),
        2 => signal.prop_map(Step::Signal),
        1 => prop_oneof![9 => Just(Step::Drain), 1 => Just(Step::Quit)],
        2 => how.clone().prop_map(Step::Validated),
        1 => any::<bool>().prop_map(Step::Degraded),
        1 => (0..3_u64).prop_map(Step::Connections),
        1 => (0..4_u32, how.clone()).prop_map(|(epoch, how)| Step::Stray(epoch, how)),
        3 => (0..4_u8, how.clone()).prop_map(|(id, how)| Step::Companion(id, how)),
        2 => how.prop_map(Step::Command),
        2 => any::<bool>().prop_map(Step::Ready),
        8 => prop_oneof![0..400_u64, 0..30_000_u64, 0..2_000_000_u64].prop_map(Step::Pass),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let clean = prop_oneof![
        Just(CleanExit::Exit),
        Just(CleanExit::Restart),
        Just(CleanExit::Idle)
    ];
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (
        clean,
        switches,
        0..4_u32,
        prop_oneof![Just(None), (0..9_u64).prop_map(Some)],
        (0..3_u64, 0..4_u8, any::<bool>(), 0..2_u64),
    )
        .prop_map(
            |(on_clean_exit, (validate, hot_restart, wait, rescan), retry_budget, zero, more)| {
                let (delay, companions, command, hang) = more;
                Policy {
                    command,
                    companions,
                    on_clean_exit,
                    validate,
                    hot_restart,
                    wait_for_certificates: wait,
                    rescan_interval: rescan.then(|| secs(300)),
                    retry_budget,
                    hang_timeout: (hang > 0).then(|| secs(3)),
                    exit_on_zero: zero.map(secs),
                    pre_drain_delay: secs(delay),
                    ..policy()
                }
            },
        )
}

/// A world that keeps the books on what the core orders.
struct World {
    sim: Sim,
    /// Epochs that were spawned and have not ended.
    alive: BTreeMap<u32, bool>,
    /// Companions that were spawned and have not ended.
    companions: BTreeMap<u8, bool>,
    validator: bool,
    /// The command lives; whether it was killed.
    command: Option<bool>,
    commands_started: u32,
    stop_asked: bool,
    seen: usize,
}

impl World {
    fn new(policy: Policy) -> Self {
        let sim = Sim::new(policy);
        let mut world = Self {
            sim,
            alive: BTreeMap::new(),
            companions: BTreeMap::new(),
            validator: false,
            command: None,
            commands_started: 0,
            stop_asked: false,
            seen: 0,
        };
        world.book();
        world
    }

    /// Checks every order since the last call against what lives.
    fn book(&mut self) {
        let orders: Vec<_> = self.sim.orders.drain(..).map(|(_, order)| order).collect();
        self.seen += orders.len();
        for order in orders {
            match order {
                Action::Spawn { epoch, .. } => {
                    let next = self.alive.keys().max().map_or(0, |highest| highest + 1);
                    assert_eq!(epoch.0, next, "next epoch is the highest running + 1");
                    assert!(!self.stop_asked, "an epoch was started after a stop");
                    self.alive.insert(epoch.0, false);
                    assert!(self.alive.len() <= 2, "two processes at most");
                    let hot = self.sim.core.policy.hot_restart;
                    assert!(
                        hot || self.alive.len() == 1,
                        "two processes without hot restart"
                    );
                }
                Action::Validate(_) => {
                    assert!(!self.validator, "one validation at a time");
                    self.validator = true;
                }
                Action::Signal(epoch, what) => {
                    assert!(
                        self.alive.contains_key(&epoch.0),
                        "{epoch} is signalled but gone"
                    );
                    let core = &self.sim.core;
                    let serves = |parent: &Process| parent.epoch == epoch && parent.serves();
                    assert!(
                        what == ChildSignal::Reopen
                            || core.phase != Phase::Running
                            || !core.older.as_ref().is_some_and(serves),
                        "{epoch} is signalled, and serves while its child starts"
                    );
                    if what == ChildSignal::Kill {
                        self.alive.insert(epoch.0, true);
                    }
                }
                Action::SpawnCompanion(id) => {
                    assert!(!self.stop_asked, "{id} was started after a stop");
                    let before = self.companions.insert(id.0, false);
                    assert_eq!(before, None, "{id} twice");
                }
                Action::SpawnCommand => {
                    assert!(self.sim.core.policy.command && !self.stop_asked);
                    self.commands_started += 1;
                    assert_eq!(self.commands_started, 1, "the command was started twice");
                    self.command = Some(false);
                }
                Action::SignalCommand(_) => {
                    assert!(self.command.is_some(), "the command is signalled but gone");
                }
                Action::KillCommand => {
                    assert_eq!(self.command, Some(false), "killed once, while it lives");
                    self.command = Some(true);
                }
                Action::SignalCompanion(id, what) => {
                    let killed = self.companions.get_mut(&id.0);
                    let killed = killed.unwrap_or_else(|| panic!("{id} is signalled but gone"));
                    assert_ne!(what, ChildSignal::Reopen);
                    *killed |= what == ChildSignal::Kill;
                }
                _ => {}
            }
        }
    }

    fn exits(&mut self, epoch: u32, how: ExitStatus) {
        if self.alive.remove(&epoch).is_some() {
            self.sim.exits(epoch, how);
            self.book();
        }
    }

    /// While the agent runs, no order follows from it; in particular none for a proxy.
    fn companion_exits(&mut self, id: u8, how: ExitStatus) {
        let known = self.companions.remove(&id).is_some();
        let running = self.sim.core.phase == Phase::Running;
        let before = self.sim.core.timers.clone();
        self.sim.companion_exits(id, how);
        assert!(known || before == self.sim.core.timers);
        assert!(self.sim.orders.is_empty() || (known && !running));
    }

    /// Its end is the agent's, whatever it is; a stray one means nothing.
    fn command_exits(&mut self, how: ExitStatus) {
        let known = self.command.take().is_some();
        self.stop_asked |= known;
        let before = self.sim.core.timers.clone();
        self.sim.on(Event::CommandExited(how));
        assert!(known || before == self.sim.core.timers);
        let ending = matches!(self.sim.core.phase, Phase::Stopping | Phase::Done);
        assert!(!known || ending);
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Exit { older, how } => {
                let epochs: Vec<_> = self.alive.keys().copied().collect();
                let epoch = if older { epochs.first() } else { epochs.last() };
                if let Some(epoch) = epoch {
                    self.exits(*epoch, how);
                }
            }
            Step::Live => {
                if let Some(newest) = self.alive.keys().max().copied() {
                    self.sim.is_live(newest);
                }
            }
            Step::Silent => {
                if let Some(newest) = self.alive.keys().max().copied() {
                    self.sim.on(replied(newest, Call::Live, Reply::Silent));
                }
            }
            Step::Files(files) => {
                self.sim.files = files;
                self.sim.complete = true;
                self.sim.on(Event::FilesChanged);
            }
            Step::Signal(signal) => {
                let stops = matches!(signal, Signal::Terminate | Signal::Interrupt | Signal::Quit);
                // While the command lives it is the command's affair.
                self.stop_asked |= stops && self.command.is_none();
                self.sim.on(Event::Signalled(signal));
            }
            Step::Drain => self.sim.on(Event::DrainRequested),
            Step::Quit => {
                self.stop_asked = true;
                self.sim.on(Event::QuitRequested);
            }
            Step::Validated(how) => {
                if std::mem::take(&mut self.validator) {
                    self.sim.on(Event::Validated { how });
                }
            }
            Step::Degraded(degraded) => self.sim.on(Event::WatchDegraded(degraded)),
            Step::Connections(connections) => {
                if let Some(newest) = self.alive.keys().max().copied() {
                    let reply = Reply::Connections(connections);
                    self.sim.on(replied(newest, Call::Connections, reply));
                }
            }
            // Facts about processes that do not live must change nothing.
            Step::Stray(epoch, how) => {
                if !self.alive.contains_key(&epoch) {
                    let before = self.sim.core.timers.clone();
                    self.sim.exits(epoch, how);
                    assert_eq!(before, self.sim.core.timers);
                }
            }
            Step::Companion(id, how) => self.companion_exits(id, how),
            Step::Command(how) => self.command_exits(how),
            Step::Ready(ready) => {
                self.sim.ready = ready;
                self.sim.on(Event::ReadinessKnown(ready));
            }
            Step::Pass(millis) => self.sim.pass(Duration::from_millis(millis)),
        }
        self.book();
        self.check();
    }

    fn check(&self) {
        let core = &self.sim.core;
        let lives: Vec<_> = core.processes().map(|process| process.epoch.0).collect();
        if self.sim.outcome.is_some() {
            let left = self.companions.values().chain(self.alive.values());
            let mut left = left.chain(&self.command);
            assert!(left.all(|killed| *killed), "the end leaves somebody behind");
            return;
        }
        self.check_companions();
        self.check_command();
        assert!(lives.iter().all(|epoch| self.alive.contains_key(epoch)));
        assert_eq!(lives.len(), self.alive.len(), "the core lost a process");
        let idle = core.policy.on_clean_exit == CleanExit::Idle;
        let ending = self.stop_asked || matches!(core.phase, Phase::Stopping);
        if !ending && lives.is_empty() && !idle {
            let pending = [Timer::Retry, Timer::Certificates];
            assert!(
                pending.into_iter().any(|timer| core.timers.is_armed(timer)),
                "no proxy runs, and nothing will start one: {core:?}"
            );
        }
    }

    fn check_command(&self) {
        let core = &self.sim.core;
        // One that was killed and is still there is not waited for without end.
        let known = core.command_lives() == self.command.is_some();
        assert!(known || self.command == Some(true), "{core:?}");
        let ending = matches!(core.phase, Phase::Stopping);
        let serves = core.processes().any(Process::serves);
        let armed = |timer| core.timers.is_armed(timer);
        match core.command_state() {
            Some(CommandState::Waiting) => {
                let asks = armed(Timer::Ready) || core.drained || !serves;
                assert!(!ending && asks, "nobody will ask again: {core:?}");
            }
            Some(CommandState::Leaving | CommandState::Stopping) => {
                assert!(ending && armed(Timer::Command), "{core:?}");
            }
            Some(CommandState::Killed) => {
                assert!(armed(Timer::Command) || armed(Timer::Abandon));
            }
            Some(CommandState::Ended(_) | CommandState::Cancelled) => assert!(ending),
            Some(CommandState::Running) => assert!(!ending, "it was told nothing: {core:?}"),
            None => assert!(!core.policy.command),
        }
    }

    fn check_companions(&self) {
        let core = &self.sim.core;
        let lives = |companion: &&Companion| companion.has_process();
        let lives: Vec<_> = core.companions().filter(lives).map(|c| c.id.0).collect();
        let known: Vec<_> = self.companions.keys().copied().collect();
        assert_eq!(lives, known, "the core lost a companion");
        let ending = matches!(core.phase, Phase::Stopping);
        for companion in core.companions() {
            let armed = core.timers.is_armed(Timer::Companions);
            match companion.state {
                CompanionState::Waiting => assert!(!core.ever_live && !ending, "{companion:?}"),
                CompanionState::Running => assert!(core.ever_live, "{companion:?}"),
                CompanionState::Backoff(_) => assert!(armed && !ending, "{companion:?}"),
                CompanionState::Stopping | CompanionState::Ended => assert!(ending),
            }
        }
    }

    /// The world behaves from now on: what is killed dies, what starts becomes LIVE, validation succeeds.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.apply(&Step::Pass(2_000));
            let killed: Vec<_> = self
                .alive
                .iter()
                .filter(|(_, k)| **k)
                .map(|(e, _)| *e)
                .collect();
            killed
                .into_iter()
                .for_each(|epoch| self.exits(epoch, ExitStatus::Signal(9)));
            let stopping: Vec<_> = self
                .sim
                .core
                .processes()
                .filter(|process| process.is_stopping())
                .map(|process| process.epoch.0)
                .collect();
            stopping
                .into_iter()
                .for_each(|epoch| self.exits(epoch, CLEAN));
            let stopping = |c: &&Companion| c.state == CompanionState::Stopping;
            let stopping = self.sim.core.companions().filter(stopping);
            let stopping: Vec<_> = stopping.map(|c| c.id.0).collect();
            stopping
                .into_iter()
                .for_each(|id| self.apply(&Step::Companion(id, CLEAN)));
            self.apply(&Step::Validated(CLEAN));
            self.apply(&Step::Live);
            let oldest = self
                .sim
                .core
                .older
                .as_ref()
                .filter(|p| p.state == State::Draining);
            if let Some(epoch) = oldest.map(|process| process.epoch.0) {
                self.sim.pass(secs(60));
                self.book();
                self.exits(epoch, CLEAN);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        // CI sets PROPTEST_CASES to 100,000 and more.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// At most two processes, the right numbers, one exit and nothing after it, never stuck: checked in `World`.
    #[test]
    fn any_sequence_of_events_keeps_the_books(
        policy in any_policy(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new(policy);
        steps.iter().for_each(|step| world.apply(step));
    }

    /// Once a stop is asked for and time passes, an exit comes; even if no process ever dies.
    #[test]
    fn a_stop_always_ends(
        policy in any_policy(),
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let mut world = World::new(policy);
        steps.iter().for_each(|step| world.apply(step));
        for _ in 0..3 {
            // The first two may be the command's.
            world.apply(&Step::Signal(Signal::Terminate));
        }
        world.apply(&Step::Pass(60_000));
        prop_assert!(world.sim.outcome.is_some());
    }

    /// No change is lost: when the world behaves again, what runs is what the files say.
    #[test]
    fn no_change_is_lost(
        policy in any_policy(),
        steps in prop::collection::vec(step(), 0..40),
        last in 5..9_u8,
    ) {
        let mut world = World::new(policy);
        steps.iter().for_each(|step| world.apply(step));
        if world.sim.outcome.is_none() && !world.stop_asked {
            world.apply(&Step::Files(last));
            world.settle();
            if world.sim.outcome.is_none() {
                let newest = world.sim.core.newest.as_ref().unwrap();
                prop_assert_eq!(newest.configuration, configuration(last));
                prop_assert_eq!(newest.state, State::Live);
            }
        }
    }

    /// The same script gives the same orders.
    #[test]
    fn the_core_is_deterministic(
        policy in any_policy(),
        steps in prop::collection::vec(step(), 0..30),
    ) {
        let run = || {
            let mut world = World::new(policy.clone());
            steps.iter().for_each(|step| world.apply(step));
            (world.sim.notes, world.seen, world.sim.outcome)
        };
        prop_assert_eq!(run(), run());
    }
}
