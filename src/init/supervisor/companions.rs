//! Companions: further processes beside the proxy, with a life of their own.
//!
//! | state | leaves it by |
//! |---|---|
//! | Waiting | the first epoch that is LIVE: all start, in the order of their flags |
//! | Running | its exit (Backoff, without end and without a budget); the agent's end (Stopping) |
//! | Backoff | its time (Running) |
//! | Stopping | its exit (Ended) |
//!
//! INVARIANT: what happens to a companion changes nothing for a proxy, but that proxies are stopped after companions.
//! Nothing is started once the agent ends: who waits or backs off then is Ended, and so is who exits.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use super::action::{Action, ChildSignal};
use super::event::ExitStatus;
use super::exits::MAX_DOUBLINGS;
use super::note::Note;
use super::timers::Timer;
use super::{Phase, Supervisor};

/// A companion's place among the `--companion` flags, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompanionId(pub u8);

impl fmt::Display for CompanionId {
    /// People count flags from 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "companion {}", u16::from(self.0) + 1)
    }
}

/// A state in the life of a companion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompanionState {
    /// No epoch was LIVE yet.
    Waiting,
    Running,
    /// It ended; started again when this is due.
    Backoff(Instant),
    /// We asked it to end.
    Stopping,
    /// It will not be started again: the agent ends.
    Ended,
}

impl CompanionState {
    /// As `/status` says it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Backoff(_) => "backoff",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }
}

/// A process that is kept running beside the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    pub id: CompanionId,
    pub state: CompanionState,
    /// The number of times that it was started again.
    pub restarts: u64,
    /// The time of its last start.
    pub started: Option<Instant>,
    /// Ends in a row, for the delay.
    failures: u32,
}

impl Companion {
    pub(super) const fn new(id: CompanionId) -> Self {
        Self {
            id,
            state: CompanionState::Waiting,
            restarts: 0,
            started: None,
            failures: 0,
        }
    }

    /// Whether there is a process that has not been reaped.
    #[must_use]
    pub const fn has_process(&self) -> bool {
        matches!(
            self.state,
            CompanionState::Running | CompanionState::Stopping
        )
    }

    fn start(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.state = CompanionState::Running;
        self.started = Some(now);
        out.push(Action::SpawnCompanion(self.id));
    }

    /// Counts this end, and returns the number of times that the first delay is doubled after it.
    fn fail(&mut self, now: Instant, reset: Duration) -> u32 {
        let ran = self
            .started
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        if ran >= reset {
            self.failures = 0;
        }
        let doublings = self.failures.min(MAX_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
        doublings
    }
}

impl Supervisor {
    /// The companions, in the order of their flags.
    pub(super) fn companions(&self) -> impl Iterator<Item = &Companion> {
        self.companions.iter()
    }

    /// Whether a companion has not been reaped.
    pub(super) fn companions_live(&self) -> bool {
        self.companions().any(Companion::has_process)
    }

    /// An epoch is LIVE: those that waited for it start, unless the agent ends already.
    pub(super) fn start_companions(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.phase != Phase::Running {
            return;
        }
        for companion in &mut self.companions {
            if companion.state == CompanionState::Waiting {
                companion.start(now, out);
            }
        }
    }

    /// A companion ended by itself, or could not be started: it comes again, whatever its code.
    pub(super) fn companion_exited(
        &mut self,
        now: Instant,
        id: CompanionId,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        let reset = self.policy.retry_reset;
        let Some(companion) = self.process_of(id) else {
            return;
        };
        let doublings = companion.fail(now, reset);
        let delay = self.delay(doublings);
        // `delay` has a bound that no clock is near.
        let due = now.checked_add(delay).unwrap_or(now);
        if let Some(companion) = self.process_of(id) {
            companion.state = CompanionState::Backoff(due);
        }
        self.timers.arm_at_most(Timer::Companions, now, delay);
        out.push(Action::Note(Note::CompanionFailed { id, how, delay }));
    }

    /// `Timer::Companions` while the agent runs: whose backoff is over is started again.
    pub(super) fn restart_companions(&mut self, now: Instant, out: &mut Vec<Action>) {
        for companion in &mut self.companions {
            let CompanionState::Backoff(due) = companion.state else {
                continue;
            };
            if due <= now {
                companion.restarts = companion.restarts.saturating_add(1);
                companion.start(now, out);
            } else {
                let left = due.saturating_duration_since(now);
                self.timers.arm_at_most(Timer::Companions, now, left);
            }
        }
    }

    /// The agent ends: nobody is started any more. Those that run go on until the drain is over.
    pub(super) fn retire_companions(&mut self) {
        for companion in &mut self.companions {
            if !companion.has_process() {
                companion.state = CompanionState::Ended;
            }
        }
    }

    /// SIGTERM to those that have not had it, the last one first.
    pub(super) fn term_companions(&mut self, now: Instant, out: &mut Vec<Action>) {
        let running = |companion: &&mut Companion| companion.state == CompanionState::Running;
        for companion in self.companions.iter_mut().rev().filter(running) {
            companion.state = CompanionState::Stopping;
            out.push(Action::SignalCompanion(companion.id, ChildSignal::Term));
            self.timers
                .arm_once(Timer::Companions, now, self.policy.kill_timeout);
        }
    }

    /// SIGKILL to those that are left.
    pub(super) fn kill_companions(&mut self, out: &mut Vec<Action>) {
        self.timers.disarm(Timer::Companions);
        for companion in self.companions.iter_mut().rev() {
            if companion.has_process() {
                companion.state = CompanionState::Stopping;
                out.push(Action::Note(Note::KillingCompanion(companion.id)));
                out.push(Action::SignalCompanion(companion.id, ChildSignal::Kill));
            }
        }
    }

    /// A companion ended while the agent ends.
    pub(super) fn companion_ended(
        &mut self,
        id: CompanionId,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        let Some(companion) = self.process_of(id) else {
            return;
        };
        companion.state = CompanionState::Ended;
        out.push(Action::Note(Note::CompanionEnded { id, how }));
        if !self.companions_live() {
            self.timers.disarm(Timer::Companions);
        }
    }

    /// The companion, if it has a process: the exit of another is ignored.
    fn process_of(&mut self, id: CompanionId) -> Option<&mut Companion> {
        self.companions
            .iter_mut()
            .find(|companion| companion.id == id && companion.has_process())
    }
}
