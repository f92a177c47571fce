//! The agent runs: changes, hand-overs, crashes.

#![forbid(unsafe_code)]

use std::time::Instant;

use super::action::{Action, ChildSignal, Reason};
use super::epoch::{Process, State, Why};
use super::event::{Call, Cause, Epoch, Event, ExitStatus, Fingerprint, Reply, Signal};
use super::note::Note;
use super::timers::Timer;
use super::{Next, Phase, Supervisor};

impl Supervisor {
    /// One event while the agent runs.
    pub(super) fn running(&mut self, now: Instant, event: &Event, out: &mut Vec<Action>) {
        let waited_before = matches!(self.next, Next::Wanted { .. });
        match *event {
            Event::Exited { epoch, how } => self.exited(now, epoch, how, out),
            Event::CompanionExited { companion, how } => {
                self.companion_exited(now, companion, how, out);
            }
            Event::CommandExited(how) => self.command_exited(now, how, out),
            Event::ReadinessKnown(ready) => self.readiness_known(now, ready, out),
            Event::Validated { how } => self.validated(now, how, out),
            Event::FilesChanged => {
                if let Some(newest) = &mut self.newest {
                    newest.unsure |= newest.state == State::Starting;
                }
                self.timers
                    .arm_once(Timer::Debounce, now, self.policy.cert_debounce);
            }
            Event::WatchDegraded(degraded) => self.watch_degraded(now, degraded),
            Event::Hashed {
                configuration,
                cause,
                ..
            } => self.hashed(configuration, cause, out),
            Event::AdminReplied {
                process,
                call,
                reply,
            } => self.replied(now, process.epoch, (call, reply), out),
            Event::NameTaken { parent } => self.name_taken(now, parent),
            Event::Signalled(signal @ (Signal::Terminate | Signal::Interrupt)) => {
                self.stop_requested(now, signal, true, out);
            }
            Event::Signalled(Signal::Quit) => self.stop_requested(now, Signal::Quit, false, out),
            Event::Signalled(Signal::Hangup) => {
                out.push(Action::Note(Note::RestartRequested));
                self.want(Reason::Signal);
            }
            Event::Signalled(Signal::Usr1) => self.reopen(out),
            Event::Signalled(Signal::Other(number)) => self.other_signal(number, out),
            Event::DrainRequested => self.drain_only(out),
            Event::QuitRequested => self.quit(now, out),
            Event::Due(timer) => self.due(now, timer, out),
        }
        if self.phase == Phase::Running {
            self.advance(now, out);
            self.arm_refill(now);
            if let (Next::Wanted { .. }, Some(parent), false) =
                (self.next, &self.older, waited_before)
            {
                out.push(Action::Note(Note::WaitsForParent(parent.epoch)));
            }
        }
    }

    fn due(&mut self, now: Instant, timer: Timer, out: &mut Vec<Action>) {
        match timer {
            Timer::Debounce => out.push(Action::Hash(Cause::Noticed)),
            Timer::Rescan => self.rescan(now, out),
            Timer::LivePoll => self.poll_live(now, out),
            Timer::LiveDeadline | Timer::Gate => self.ask_memory(out),
            Timer::Retry => match (self.next, self.given_up) {
                (Next::Backoff(reason), _) => self.next = wanted(reason),
                (Next::Nothing, Some(reason)) => {
                    // The parent has run that long meanwhile.
                    self.budget = self.policy.retry_budget;
                    self.next = wanted(reason);
                }
                _ => {}
            },
            Timer::Refill => {
                self.budget = self.policy.retry_budget;
                out.push(Action::Note(Note::Refilled));
            }
            Timer::Hang => self.ask_whether_it_hangs(now, out),
            Timer::Ready => self.ask_ready(out),
            Timer::Command => self.command_hangs(now, out),
            Timer::Companions => self.restart_companions(now, out),
            Timer::Validation if self.validator => out.push(Action::KillValidator),
            Timer::Parent => self.parent_hangs(out),
            Timer::Look => self.look_at_parent(now, out),
            Timer::Kill => {
                for process in self.processes().filter(|process| process.is_stopping()) {
                    out.push(Action::Signal(process.epoch, ChildSignal::Kill));
                }
            }
            Timer::Validation
            | Timer::Certificates
            | Timer::PreDrain
            | Timer::Drain
            | Timer::Connections
            | Timer::Abandon => {}
        }
    }

    /// The files' hash is known. Only a different one means anything.
    fn hashed(&mut self, configuration: Fingerprint, cause: Cause, out: &mut Vec<Action>) {
        if configuration == self.desired {
            return;
        }
        self.desired = configuration;
        self.budget = self.policy.retry_budget;
        self.forget_given_up();
        // Compared with what runs, not with what failed: a change that is taken back needs no restart, unless the process has
        // read its files in between.
        let runs = self.newest.as_ref().is_some_and(|newest| {
            newest.configuration == configuration && !newest.unsure && !newest.is_stopping()
        });
        let called_off = match self.next {
            Next::Nothing => true,
            Next::Wanted { reason, .. }
            | Next::Validating { reason, .. }
            | Next::Backoff(reason) => matches!(reason, Reason::Change | Reason::Rescan),
        };
        if runs && called_off {
            self.call_off(out);
            out.push(Action::Note(Note::ChangedBack(configuration)));
            return;
        }
        out.push(Action::Note(Note::Changed(configuration)));
        self.want(match cause {
            Cause::Noticed => Reason::Change,
            Cause::Rescan => Reason::Rescan,
        });
    }

    fn call_off(&mut self, out: &mut Vec<Action>) {
        self.next = Next::Nothing;
        self.timers.disarm(Timer::Retry);
        self.timers.disarm(Timer::Gate);
        self.kill_validator(out);
    }

    /// A start is wanted, merged with one that waits: the latest configuration wins, and a restart that was asked for
    /// or is needed is not forgotten because a file changed back.
    fn want(&mut self, new: Reason) {
        let merge = |old| match old {
            Reason::Signal | Reason::Crash => old,
            Reason::Start | Reason::Change | Reason::Rescan => new,
        };
        self.next = match self.next {
            Next::Nothing => wanted(new),
            Next::Wanted { reason, waited, .. } => Next::Wanted {
                reason: merge(reason),
                validated: false,
                waited,
            },
            Next::Validating { reason, .. } => Next::Validating {
                reason: merge(reason),
                stale: true,
            },
            // A new configuration, or a person who asks, need not wait for the old one's backoff.
            Next::Backoff(reason) => {
                self.timers.disarm(Timer::Retry);
                wanted(merge(reason))
            }
        };
    }

    /// Starts what is wanted, if the processes that run allow it now.
    fn advance(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Next::Wanted {
            reason,
            validated,
            waited,
        } = self.next
        else {
            return;
        };
        let Some(newest) = &self.newest else {
            // Nothing serves. A draining parent, if any, gets a new child; one that is being stopped does not.
            if !self.older.as_ref().is_some_and(Process::is_stopping) {
                self.spawn(now, reason, out);
            }
            return;
        };
        if self.older.is_some() || newest.is_stopping() {
            return;
        }
        let live = newest.state == State::Live;
        if !live && !waited && self.policy.hot_restart {
            if !self.timers.is_armed(Timer::Gate) {
                self.timers.arm(Timer::Gate, now, self.policy.live_timeout);
                out.push(Action::Note(Note::WaitsForLive(newest.epoch)));
            }
            return;
        }
        if self.policy.validate && !validated {
            self.validate(now, reason, out);
        } else if live && self.policy.hot_restart {
            self.spawn(now, reason, out);
        } else {
            self.stop_afresh(now, out);
        }
    }

    fn validate(&mut self, now: Instant, reason: Reason, out: &mut Vec<Action>) {
        // One at a time: a run that was called off is still being killed.
        if self.validator {
            return;
        }
        let epoch = self
            .newest
            .as_ref()
            .map_or(Epoch(0), |newest| newest.epoch.next());
        self.validator = true;
        self.next = Next::Validating {
            reason,
            stale: false,
        };
        self.timers
            .arm(Timer::Validation, now, self.policy.live_timeout);
        out.push(Action::Validate(epoch));
    }

    fn validated(&mut self, now: Instant, how: ExitStatus, out: &mut Vec<Action>) {
        self.validator = false;
        self.timers.disarm(Timer::Validation);
        let Next::Validating { reason, stale } = self.next else {
            return;
        };
        self.next = Next::Nothing;
        if stale {
            self.next = wanted(reason);
        } else if how == ExitStatus::Code(0) {
            self.next = Next::Wanted {
                reason,
                validated: true,
                waited: true,
            };
        } else if is_refusal(how) {
            let keeps = self.newest.as_ref().map(|newest| newest.epoch);
            out.push(Action::Note(Note::Refused { how, keeps }));
            if self.given_up.is_some() {
                self.try_again(now, reason, out);
            }
        } else {
            out.push(Action::Note(Note::NotValidated(how)));
            self.try_again(now, reason, out);
        }
    }

    pub(super) fn kill_validator(&mut self, out: &mut Vec<Action>) {
        // The timer is armed exactly while the run has not been told to end.
        if self.timers.is_armed(Timer::Validation) {
            self.timers.disarm(Timer::Validation);
            out.push(Action::KillValidator);
        }
    }

    /// Ends the sole epoch so that a new one can take its place.
    fn stop_afresh(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(newest) = &mut self.newest {
            newest.state = State::Stopping(Why::Afresh);
            out.push(Action::Note(Note::StoppedAfresh(newest.epoch)));
            out.push(Action::Signal(newest.epoch, ChildSignal::Term));
            self.timers.disarm(Timer::LivePoll);
            self.timers.arm(Timer::Kill, now, self.policy.kill_timeout);
        }
    }

    /// The newest epoch is not LIVE in time, as far as its admin port tells.
    fn ask_memory(&self, out: &mut Vec<Action>) {
        if let Some(newest) = &self.newest
            && newest.state == State::Starting
        {
            out.push(Action::CallAdmin(newest.epoch, Call::Memory));
        }
    }

    fn replied(
        &mut self,
        now: Instant,
        epoch: Epoch,
        answer: (Call, Reply),
        out: &mut Vec<Action>,
    ) {
        match answer {
            (Call::Live, reply) => {
                if reply == Reply::Live {
                    self.became_live(now, epoch, out);
                }
                self.tell_no_answer(now, epoch, reply, out);
                self.heard(now, epoch, reply, out);
            }
            (Call::Memory, Reply::Live) => self.live_by_memory(now, epoch, out),
            (Call::Memory, _) => {
                if self.newest.as_ref().is_some_and(|newest| newest.had_parent) {
                    self.too_late(out);
                } else if let Next::Wanted { waited, .. } = &mut self.next {
                    // A sole epoch is left alone until a change has waited for it in vain.
                    *waited = true;
                }
            }
            (Call::Drain, _) if self.admin_owner() != Some(epoch) => {}
            (Call::Drain, reply) => {
                self.drain_taken = Some(reply != Reply::Failed);
                if reply == Reply::Failed {
                    out.push(Action::Note(Note::DrainRefused { stopping: false }));
                }
            }
            (Call::Stopped, reply) => {
                self.parent_seen(epoch, reply, out);
                self.newest_seen(epoch, reply, out);
            }
            (Call::Connections, _) => {}
        }
    }

    /// It has initialised, though its admin port does not say so.
    fn live_by_memory(&mut self, now: Instant, epoch: Epoch, out: &mut Vec<Action>) {
        if self.became_live(now, epoch, out) {
            if let Some(newest) = &mut self.newest {
                newest.admin_gone = true;
            }
            out.push(Action::Note(Note::LiveByMemory(epoch)));
        }
    }

    /// The child is not LIVE in time. It has no connections to lose, so it is killed outright.
    fn too_late(&mut self, out: &mut Vec<Action>) {
        if let Some(newest) = &mut self.newest
            && newest.state == State::Starting
        {
            newest.state = State::Stopping(Why::TooLate);
            self.timers.disarm(Timer::LivePoll);
            out.push(Action::Note(Note::TooLate(newest.epoch)));
            out.push(Action::Signal(newest.epoch, ChildSignal::Kill));
        }
    }

    /// The budget comes back once the newest epoch has run long enough with nothing pending.
    fn arm_refill(&mut self, now: Instant) {
        let settled = self.next == Next::Nothing
            && self.budget < self.policy.retry_budget
            && self
                .newest
                .as_ref()
                .is_some_and(|newest| !newest.is_stopping());
        if settled {
            self.timers
                .arm_once(Timer::Refill, now, self.policy.retry_reset);
        } else {
            self.timers.disarm(Timer::Refill);
        }
    }
}

/// Whether the proxy itself has said no, at the end of its run. A shell around it says 126 and 127 for what it cannot
/// start, and 128 + n for what was killed: that is no word of the proxy's.
const fn is_refusal(how: ExitStatus) -> bool {
    matches!(how, ExitStatus::Code(1..126))
}

pub(super) const fn wanted(reason: Reason) -> Next {
    Next::Wanted {
        reason,
        validated: false,
        waited: false,
    }
}
