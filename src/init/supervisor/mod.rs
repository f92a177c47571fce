//! The core: which proxy processes should run, and what follows from what happens to them.
//!
//! `Supervisor` is pure. It has four kinds of methods, called in this order by the shell:
//!
//! 1. `start`, once;
//! 2. `handle`, for every event, in the order in which they were noticed; the actions that it returns are carried out
//!    before the next event is handled, and what they yield (a spawn that failed, a hash) is an event again;
//! 3. `next_deadline`, to know how long to sleep, and `expire` on waking, until it returns nothing; what it returns is
//!    handled as `Event::Due`. Extra calls do no harm;
//! 4. getters, at any time.
//!
//! Two processes at most: `newest`, and `older`, its parent. The pair says it all:
//!
//! | newest | older | what it is |
//! |---|---|---|
//! | Starting | – | sole epoch that initialises (waits for its control plane, say): left alone |
//! | Live | – | the normal state |
//! | Starting | Live | hand-over: the parent serves until the child is LIVE; a child that dies costs nothing |
//! | Live | Draining | after the hand-over; the parent ends by itself, and is not signalled unless it hangs past its time |
//! | – | Draining | the newest crashed; a retry follows, as the draining one's child |
//! | Starting | Draining | that retry |
//! | Stopping | – or any | we asked the newest to end: to start afresh, or because it was not LIVE in time |
//!
//! INVARIANT: nothing is ordered after `Action::Exit`, which is ordered once.

#![forbid(unsafe_code)]

mod action;
mod command;
mod companions;
mod drain;
mod epoch;
mod event;
mod exits;
mod hang;
#[cfg(debug_assertions)]
mod invariants;
mod note;
mod parent;
mod policy;
mod running;
mod snapshot;
mod stopping;
#[cfg(test)]
mod tests;
mod timers;
mod upkeep;
mod waiting;

use std::time::{Duration, Instant};

pub use action::{Action, ChildSignal, Outcome, Reason};
pub use command::{CommandNote, CommandState};
pub use companions::{Companion, CompanionId, CompanionState};
pub use epoch::{Process, State, Why};
pub use event::{
    Asker, Call, Cause, Epoch, Event, ExitStatus, Fingerprint, ProcessId, Reply, Signal,
};
pub use note::{Note, Seconds, decimal_seconds};
pub use policy::{CleanExit, Policy};
pub use snapshot::{AgentState, Snapshot};
use stopping::Stop;
pub use timers::{Timer, Timers};

/// The longest wait of epoch 0 for all of its certificates. pilot-agent 1.1.5 waits two minutes for each file, one after the
/// other.
const CERTIFICATES_TIMEOUT: Duration = Duration::from_secs(120);
/// Actions of one event that need no memory. Chosen: more than any event but a stop yields.
const ROOM: usize = 8;
/// The longest backoff, whatever the flags multiply to. Chosen: an hour.
const MAX_RETRY: Duration = Duration::from_secs(3600);

/// The phase of the agent as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// MUTUAL_TLS: the certificates are not there yet.
    Waiting,
    Running,
    /// The agent ends; `Supervisor::stop` says how far it is.
    Stopping,
    /// `Exit` has been ordered.
    Done,
}

/// Whether a start is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// As soon as the processes that run allow it.
    Wanted {
        reason: Reason,
        /// `--validate` has accepted the desired configuration.
        validated: bool,
        /// The sole epoch has had its time to be LIVE.
        waited: bool,
    },
    /// The `--validate` run goes on. `stale`: for a configuration that is no longer the desired one.
    Validating {
        reason: Reason,
        stale: bool,
    },
    /// A wait that ends as `Timer::Retry` fires.
    Backoff(Reason),
}

/// See the module.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, not a state"
)]
pub struct Supervisor {
    policy: Policy,
    phase: Phase,
    newest: Option<Process>,
    older: Option<Process>,
    /// Proxy processes started so far.
    serial: u32,
    next: Next,
    /// The configuration that should run.
    desired: Fingerprint,
    /// `desired` was given up, and is tried again every `--retry-reset`, for this reason.
    given_up: Option<Reason>,
    /// It died before its child had dismissed it, and somebody else has its name; the child is answered all the same.
    dead_parent: Option<Epoch>,
    /// Crash restarts that are left.
    budget: u32,
    /// Clean exits in a row, for the delay of `--on-clean-exit=restart`.
    clean_exits: u32,
    /// A `--validate` run has not been reaped yet.
    validator: bool,
    /// inotify does not work.
    degraded: bool,
    ever_live: bool,
    /// POST `/drain` was served: not ready from then on, and a later stop does not drain again.
    drained: bool,
    /// True if the proxy has taken that; `None`: its answer is under way. A stop waits for it, and drains after all where it
    /// was a failure.
    drain_taken: Option<bool>,
    stop: Stop,
    companions: Vec<Companion>,
    /// The command of `run`.
    command: Option<command::Command>,
    /// For the actions of the next event.
    room: Vec<Action>,
    timers: Timers,
}

impl Supervisor {
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            budget: policy.retry_budget,
            companions: (0..policy.companions)
                .map(|place| Companion::new(CompanionId(place)))
                .collect(),
            command: policy.command.then(command::Command::new),
            policy,
            phase: Phase::Waiting,
            newest: None,
            older: None,
            serial: 0,
            next: Next::Nothing,
            desired: Fingerprint([0; 32]),
            given_up: None,
            dead_parent: None,
            clean_exits: 0,
            validator: false,
            degraded: false,
            ever_live: false,
            drained: false,
            drain_taken: None,
            stop: Stop::default(),
            timers: Timers::default(),
            room: Vec::with_capacity(ROOM),
        }
    }

    /// Begins, with the files' first hash.
    pub fn start(
        &mut self,
        now: Instant,
        configuration: Fingerprint,
        complete: bool,
    ) -> Vec<Action> {
        let mut out = Vec::new();
        self.desired = configuration;
        self.arm_rescan(now);
        if self.policy.wait_for_certificates && !complete {
            self.timers
                .arm(Timer::Certificates, now, CERTIFICATES_TIMEOUT);
            out.push(Action::Note(Note::WaitingForCertificates));
        } else {
            self.begin(now, &mut out);
        }
        out
    }

    /// Takes a fact and says what to do about it.
    pub fn handle(&mut self, now: Instant, event: &Event) -> Vec<Action> {
        let mut out = std::mem::take(&mut self.room);
        if let Event::AdminReplied { process, .. } = *event
            && self.process(process.epoch) != Some(process)
        {
            // Of one that has gone; its number may be another's by now.
            return out;
        }
        if let Event::Signalled(Signal::Terminate | Signal::Interrupt) = event {
            self.stop.requests = self.stop.requests.saturating_add(1);
        }
        match self.phase {
            Phase::Waiting => self.waiting(now, event, &mut out),
            Phase::Running => self.running(now, event, &mut out),
            Phase::Stopping => self.stopping(now, event, &mut out),
            Phase::Done => {}
        }
        #[cfg(debug_assertions)]
        self.check();
        out
    }

    /// Takes the list back for the next event, so that a signal does not wait for memory: allocating was a quarter of an idle
    /// agent's work for one.
    pub fn take_back(&mut self, mut room: Vec<Action>) {
        room.clear();
        if room.capacity() <= ROOM {
            self.room = room;
        }
    }

    /// Returns the origin of the wish to end, if there was one.
    #[must_use]
    pub const fn asker(&self) -> Option<Asker> {
        self.stop.asker
    }

    /// Returns true once nothing is started any more.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Done)
    }

    /// Returns the time at which `expire` has an action.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// A timer that is due; it is disarmed. Hand it to `handle` as `Event::Due`.
    pub fn expire(&mut self, now: Instant) -> Option<Timer> {
        self.timers.expire(now)
    }

    /// POST `/drain`: not ready from now on, the listeners drain, the processes stay.
    fn drain_only(&mut self, out: &mut Vec<Action>) {
        if std::mem::replace(&mut self.drained, true) {
            return;
        }
        out.push(Action::Note(Note::DrainRequested));
        if let Some(epoch) = self.admin_owner() {
            out.push(Action::CallAdmin(epoch, Call::Drain));
        }
    }

    /// The process that has this number now.
    #[must_use]
    pub fn process(&self, epoch: Epoch) -> Option<ProcessId> {
        self.processes()
            .map(Process::id)
            .find(|process| process.epoch == epoch)
    }

    /// The processes that live, the newest first.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.newest.iter().chain(&self.older)
    }

    /// Orders the next epoch: the highest running number + 1, or 0.
    ///
    /// INVARIANT: at most one process lives when this is called.
    fn spawn(&mut self, now: Instant, reason: Reason, out: &mut Vec<Action>) {
        if let Some(process) = self.newest.take() {
            self.older = Some(process);
        }
        let epoch = self
            .older
            .as_ref()
            .map_or(Epoch(0), |older| older.epoch.next());
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let mut process = Process::new(ProcessId { epoch, serial }, reason, self.desired, now);
        process.unsure = self.timers.is_armed(Timer::Debounce);
        self.timers.arm(Timer::LivePoll, now, process.poll_delay());
        if self.older.is_some() {
            process.had_parent = true;
            self.timers
                .arm(Timer::LiveDeadline, now, self.policy.live_timeout);
        }
        self.newest = Some(process);
        self.next = Next::Nothing;
        self.timers.disarm(Timer::Retry);
        self.timers.disarm(Timer::Gate);
        self.timers.disarm(Timer::Refill);
        self.timers.disarm(Timer::Hang);
        out.push(Action::Spawn { epoch, reason });
    }

    /// Asks the newest epoch whether it is LIVE, and again later.
    fn poll_live(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(process) = &mut self.newest
            && process.state == State::Starting
        {
            self.timers.arm(Timer::LivePoll, now, process.poll_delay());
            out.push(Action::CallAdmin(process.epoch, Call::Live));
        }
    }

    /// The newest epoch is LIVE: its parent, if any, drains from now on.
    fn became_live(&mut self, now: Instant, epoch: Epoch, out: &mut Vec<Action>) -> bool {
        let Some(process) = &mut self.newest else {
            return false;
        };
        if process.epoch != epoch || process.state != State::Starting {
            return false;
        }
        process.state = State::Live;
        process.live_since = Some(now);
        self.ever_live = true;
        self.given_up = None;
        out.push(Action::Note(Note::Live {
            epoch,
            after: process.age(now),
        }));
        if std::mem::take(&mut process.owes_reopen) {
            out.push(Action::Signal(epoch, ChildSignal::Reopen));
        }
        if self.drained {
            // Its parent was asked to drain; it listens anew.
            if self.phase == Phase::Running {
                self.drain_taken = None;
            }
            out.push(Action::CallAdmin(epoch, Call::Drain));
        }
        for timer in [Timer::LivePoll, Timer::LiveDeadline, Timer::Gate] {
            self.timers.disarm(timer);
        }
        if let Some(older) = &mut self.older
            && older.serves()
        {
            older.state = State::Draining;
            out.push(Action::Note(Note::Draining(older.epoch)));
        }
        self.watch_hang(now);
        self.expect_end_of_parent(now);
        self.start_companions(now, out);
        self.ask_ready(out);
        true
    }

    /// Takes the process out of the pair; its exit has been seen.
    fn remove(&mut self, epoch: Epoch) -> Option<(Process, Place)> {
        self.dead_parent.take_if(|parent| parent.next() == epoch);
        let newest = self.newest.take_if(|process| process.epoch == epoch);
        if let Some(process) = newest {
            for timer in [
                Timer::LivePoll,
                Timer::LiveDeadline,
                Timer::Gate,
                Timer::Hang,
                Timer::Kill,
                Timer::Parent,
                Timer::Look,
            ] {
                self.timers.disarm(timer);
            }
            return Some((process, Place::Newest));
        }
        let older = self.older.take_if(|process| process.epoch == epoch)?;
        Some((older, Place::Older))
    }

    /// The exit code is decided: `outcome` has it. What led to it is in `stopping`, and in `exits` where a proxy ended by itself.
    fn exit(&mut self, outcome: Outcome, out: &mut Vec<Action>) {
        self.phase = Phase::Done;
        self.next = Next::Nothing;
        self.timers.disarm_all();
        out.push(Action::Exit(outcome));
    }
}

/// The place of a process: one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Newest,
    Older,
}
