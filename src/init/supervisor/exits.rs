//! Consequences of the end of a process while the agent runs.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::action::{Action, ChildSignal, Outcome, Reason};
use super::command::CommandState;
use super::epoch::{Process, State, Why};
use super::event::{Epoch, ExitStatus};
use super::note::Note;
use super::policy::CleanExit;
use super::running::wanted;
use super::timers::Timer;
use super::{MAX_RETRY, Next, Place, Supervisor};

/// A child whose parent dies during the hand-over is LIVE in a moment or never: it asks for its parent ten times, a second
/// apart, then aborts (10.1 s, measured with Envoy 1.40). Nothing serves meanwhile, so it gets this long. Chosen: forty
/// times the 50 ms that a small Envoy takes to be LIVE.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest delay where no budget ends the retries (`--on-clean-exit=restart`, companions) is `--retry-initial` times 2 to
/// this power. Chosen: 102 s, with the default of 200 ms.
pub(super) const MAX_DOUBLINGS: u32 = 9;

/// A proxy that ends with 1 within that has refused its configuration, or a port of it was taken. Envoy 1.40 takes 0.1 s for
/// either; chosen: ten times that.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Whether the next try would end like this one, by what a start that has never worked ended by: not found, not
/// executable, refused. A base id that is taken is another matter: its holder goes, and says so (`NotStarted`).
fn is_hopeless(how: ExitStatus, age: Duration) -> bool {
    matches!(how.code(), 126 | 127) || how == ExitStatus::Code(1) && age < AT_ONCE
}

/// Returns the line about an end. A warning, if nobody asked for it, and it went wrong or the process served.
pub(super) fn ended(process: &Process, how: ExitStatus) -> Action {
    let epoch = process.epoch;
    let clean = how == ExitStatus::Code(0) && !process.serves();
    Action::Note(if clean || process.is_stopping() {
        Note::Ended { epoch, how }
    } else {
        Note::Crashed { epoch, how }
    })
}

impl Supervisor {
    /// A process ended, or could not be started.
    pub(super) fn exited(
        &mut self,
        now: Instant,
        epoch: Epoch,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        match self.remove(epoch) {
            Some((process, Place::Newest)) => self.newest_exited(now, &process, how, out),
            Some((process, Place::Older)) => self.older_exited(now, &process, how, out),
            None => {}
        }
    }

    fn newest_exited(
        &mut self,
        now: Instant,
        process: &Process,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        if process.state == State::Stopping(Why::Afresh) {
            out.push(Action::Note(Note::Ended {
                epoch: process.epoch,
                how,
            }));
            if self.next == Next::Nothing {
                self.next = wanted(Reason::Change);
            }
            return;
        }
        if let Some(parent) = self.older.take_if(|older| older.serves()) {
            self.child_failed(now, process, how, parent, out);
            return;
        }
        self.forget_given_up();
        out.push(ended(process, how));
        if how == ExitStatus::Code(0) {
            self.ended_cleanly(now, process, out);
        } else {
            self.crashed(now, process, how, out);
        }
    }

    /// A child died before it was LIVE: its parent has lost nothing.
    fn child_failed(
        &mut self,
        now: Instant,
        child: &Process,
        how: ExitStatus,
        mut parent: Process,
        out: &mut Vec<Action>,
    ) {
        let kept = parent.epoch;
        // If the child got far enough, it has closed the parent's admin port for good.
        parent.admin_gone = true;
        self.newest = Some(parent);
        self.watch_hang(now);
        out.push(Action::Note(Note::ChildFailed {
            epoch: child.epoch,
            how,
            parent: kept,
        }));
        // The parent was LIVE when the child was started, and no other child lives: so clearing the stuck flag is safe.
        out.push(Action::ClearInitializing);
        if self.next == Next::Nothing {
            self.try_again(now, child.reason, out);
        }
    }

    /// Tries again a process that failed beside a parent that serves on, as long as the budget allows; then it is given up, and
    /// has one try every `--retry-reset`: a control plane that it needs, say, may have been away.
    pub(super) fn try_again(&mut self, now: Instant, reason: Reason, out: &mut Vec<Action>) {
        let again = self.given_up.is_some();
        if !again && self.retry(now, reason, out) {
            return;
        }
        let Some(parent) = self.newest.as_ref().map(|newest| newest.epoch) else {
            return;
        };
        let delay = self.policy.retry_reset;
        self.given_up = Some(reason);
        self.timers.arm(Timer::Retry, now, delay);
        let note = Note::GaveUp {
            parent,
            delay,
            again,
        };
        out.push(Action::Note(note));
    }

    /// There is another configuration, or no parent that goes on with the old one.
    pub(super) fn forget_given_up(&mut self) {
        if self.given_up.take().is_some() {
            self.timers.disarm(Timer::Retry);
        }
    }

    /// The newest epoch crashed, and nothing serves.
    fn crashed(&mut self, now: Instant, process: &Process, how: ExitStatus, out: &mut Vec<Action>) {
        self.kill_validator(out);
        // Failures of its child must not shorten its own budget.
        if process.age(now) >= self.policy.retry_reset {
            self.budget = self.policy.retry_budget;
        }
        let tried = self.budget < self.policy.retry_budget;
        if tried && !self.ever_live && is_hopeless(how, process.age(now)) {
            self.end(now, Outcome::Hopeless(how), out);
        } else if !self.retry(now, Reason::Crash, out) {
            self.end(now, Outcome::BudgetSpent(how), out);
        }
    }

    /// Whether the budget allows another try; if so, it comes after the backoff.
    fn retry(&mut self, now: Instant, reason: Reason, out: &mut Vec<Action>) -> bool {
        let Some(left) = self.budget.checked_sub(1) else {
            return false;
        };
        let used = self.policy.retry_budget.saturating_sub(self.budget);
        self.budget = left;
        self.backoff(
            now,
            reason,
            used,
            |delay| Note::RetryIn { delay, left },
            out,
        );
        true
    }

    fn backoff(
        &mut self,
        now: Instant,
        reason: Reason,
        doublings: u32,
        note: impl FnOnce(Duration) -> Note,
        out: &mut Vec<Action>,
    ) {
        let delay = self.delay(doublings);
        self.next = Next::Backoff(reason);
        self.timers.arm(Timer::Retry, now, delay);
        out.push(Action::Note(note(delay)));
    }

    /// The backoff after so many failures in a row.
    pub(super) fn delay(&self, doublings: u32) -> Duration {
        let factor = 2_u32.saturating_pow(doublings);
        self.policy
            .retry_initial
            .saturating_mul(factor)
            .min(MAX_RETRY)
    }

    /// The newest epoch ended with 0, not asked for.
    fn ended_cleanly(&mut self, now: Instant, process: &Process, out: &mut Vec<Action>) {
        self.kill_validator(out);
        // A change or a SIGHUP that waits is not lost with the process that it waited for.
        if let Next::Validating { reason, .. } | Next::Backoff(reason) = self.next {
            self.next = wanted(reason);
        }
        if process.age(now) >= self.policy.retry_reset {
            self.clean_exits = 0;
        }
        if let Some(parent) = &mut self.older {
            // Nobody is left to dismiss it, and no child that its end could hurt. Envoy ended it along with its child
            // on purpose, most likely; if not, this does.
            parent.state = State::Stopping(Why::Leftover);
            out.push(Action::Signal(parent.epoch, ChildSignal::Term));
            self.timers.arm(Timer::Kill, now, self.policy.kill_timeout);
        } else {
            self.follow_clean_exit(now, out);
        }
    }

    /// `--on-clean-exit`, once no process is left.
    fn follow_clean_exit(&mut self, now: Instant, out: &mut Vec<Action>) {
        match self.policy.on_clean_exit {
            // A Job whose command never ran is no success.
            CleanExit::Exit if self.command_state() == Some(CommandState::Waiting) => {
                self.end(now, Outcome::NeverStarted, out);
            }
            CleanExit::Exit => self.end(now, Outcome::ProxyEnded, out),
            // What waits is started at once.
            CleanExit::Idle | CleanExit::Restart if self.next != Next::Nothing => {}
            CleanExit::Idle => out.push(Action::Note(Note::Idle)),
            CleanExit::Restart => {
                let doublings = self.clean_exits.min(MAX_DOUBLINGS);
                self.clean_exits = self.clean_exits.saturating_add(1);
                let note = |delay| Note::Restarting { delay };
                self.backoff(now, Reason::Start, doublings, note, out);
            }
        }
    }

    fn older_exited(
        &mut self,
        now: Instant,
        process: &Process,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        if process.is_stopping() {
            self.timers.disarm(Timer::Kill);
            out.push(Action::Note(Note::Ended {
                epoch: process.epoch,
                how,
            }));
            self.follow_clean_exit(now, out);
            return;
        }
        if self.newest.is_none() {
            out.push(ended(process, how));
            return;
        }
        self.parent_gone(now, process, how, out);
        self.watch_hang(now);
        if process.serves() {
            self.timers
                .arm_at_most(Timer::LiveDeadline, now, ORPHAN_TIMEOUT);
        }
    }
}
