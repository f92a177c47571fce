//! `--proxy-hang-timeout`: a LIVE proxy whose admin port is silent for so long is killed, and counts as crashed.
//!
//! A port is silent when it accepts or drops connections and does not answer, as when Envoy's main thread hangs. A port
//! that refuses has been closed (for example by a child that took over and died); any answer proves a live process. A port
//! that has never answered for this process may belong to another. No call is made during a hand-over, when the port
//! changes its owner, nor while the agent stops, which has time-outs of its own.
//!
//! Silence counts from the first call without an answer, so no proxy is killed before the time-out. Two such calls are
//! needed: after one, the whole machine may have been suspended.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Supervisor;
use super::action::{Action, ChildSignal};
use super::epoch::{Process, State, Why};
use super::event::{Call, Epoch, Reply};
use super::note::Note;
use super::timers::Timer;

/// Calls within the time-out. Chosen: three find a hang in at most four thirds of it.
const CALLS: u32 = 3;
/// The shortest interval between calls: the admin client's time-out.
const SECOND: Duration = Duration::from_secs(1);
/// Calls in a row without an answer that make a hang. Chosen: one may be a machine that stood still.
const UNANSWERED: u32 = 2;

/// The first epoch's admin port has this time, and a call's second, to answer. Chosen: Envoy opens it after some 30 ms, before
/// it asks its control plane, and a reader of the log waits no longer.
const FIRST_ANSWER: Duration = Duration::from_secs(4);

/// The silence of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Silence {
    /// Its port has answered for it.
    answered: bool,
    /// The time of the first call since the last answer.
    asked: Option<Instant>,
    /// Calls since then whose time is over.
    unanswered: u32,
}

impl Supervisor {
    /// Returns the longest silence that the newest is allowed. Without `--proxy-hang-timeout` only one whose dead parent's name
    /// is taken has a limit: it may wait for the taker.
    fn silence_limit(&self) -> Option<Duration> {
        let orphan = self.dead_parent.is_some();
        let limit = self.policy.hang_timeout;
        limit.or_else(|| orphan.then_some(self.policy.live_timeout))
    }

    /// The newest epoch has begun to serve, or its parent is gone: its answers are waited for anew.
    pub(super) fn watch_hang(&mut self, now: Instant) {
        if let Some(limit) = self.silence_limit()
            && let Some(newest) = &mut self.newest
        {
            newest.silence.asked = None;
            newest.silence.unanswered = 0;
            self.timers.arm(Timer::Hang, now, interval(limit));
        }
    }

    /// `Timer::Hang`.
    pub(super) fn ask_whether_it_hangs(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(limit) = self.silence_limit()
            && let Some(newest) = self.newest.as_mut().filter(|newest| newest.serves())
        {
            newest.silence.asked.get_or_insert(now);
            self.timers.arm(Timer::Hang, now, interval(limit));
            out.push(Action::CallAdmin(newest.epoch, Call::Live));
        }
    }

    /// A sole epoch that nothing answers for is told once: with the wrong `--proxy-admin-port` it is never ready, and Envoy's
    /// own log shows nothing wrong.
    pub(super) fn tell_no_answer(
        &mut self,
        now: Instant,
        epoch: Epoch,
        reply: Reply,
        out: &mut Vec<Action>,
    ) {
        let Some(newest) = self.newest.as_mut().filter(|newest| newest.unheard) else {
            return;
        };
        if newest.epoch != epoch || newest.state != State::Starting || newest.had_parent {
            return;
        }
        if !matches!(reply, Reply::Failed | Reply::Silent) {
            newest.unheard = false;
        } else if newest.age(now) >= FIRST_ANSWER {
            newest.unheard = false;
            out.push(Action::Note(Note::NoAnswer(self.policy.admin)));
        }
    }

    /// Takes the result of a call to the admin port of `epoch`.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        epoch: Epoch,
        reply: Reply,
        out: &mut Vec<Action>,
    ) {
        let limit = self.silence_limit();
        let Some(newest) = self.newest.as_mut().filter(|newest| newest.serves()) else {
            return;
        };
        if newest.epoch != epoch {
            return;
        }
        let silence = &mut newest.silence;
        if reply != Reply::Silent {
            silence.answered |= reply == Reply::Live;
            silence.asked = None;
            silence.unanswered = 0;
            return;
        }
        let (Some(limit), Some(asked), true) = (limit, silence.asked, silence.answered) else {
            return;
        };
        silence.unanswered = silence.unanswered.saturating_add(1);
        let silent = now.saturating_duration_since(asked);
        if silent < limit || silence.unanswered < UNANSWERED {
            // The last call is over when its time is.
            let left = limit.saturating_sub(silent).saturating_sub(SECOND);
            self.timers.arm_at_most(Timer::Hang, now, left);
            return;
        }
        if self.older.is_some() {
            // It may wait for an answer of its parent, which is replaced when its time is over: until then, and from then
            // on, it has its time. Its workers serve meanwhile; one started in its place would wait for the same parent.
            // One that somebody has stopped waits for nobody.
            self.watch_hang(now);
            out.push(Action::CallAdmin(epoch, Call::Stopped));
            return;
        }
        self.hangs(silent, out);
    }

    /// Handles the reply about the newest, which was silent beside its draining parent: one that was stopped hangs.
    pub(super) fn newest_seen(&mut self, epoch: Epoch, reply: Reply, out: &mut Vec<Action>) {
        let asked = self.newest.as_ref().filter(|newest| newest.epoch == epoch);
        if asked.is_some_and(Process::serves)
            && reply == Reply::Stopped
            && let Some(limit) = self.silence_limit()
        {
            self.hangs(limit, out);
        }
    }

    fn hangs(&mut self, silent: Duration, out: &mut Vec<Action>) {
        if let Some(newest) = &mut self.newest {
            let epoch = newest.epoch;
            newest.state = State::Stopping(Why::Hangs);
            self.timers.disarm(Timer::Hang);
            out.push(Action::Note(Note::Hangs { epoch, silent }));
            out.push(Action::Signal(epoch, ChildSignal::Kill));
        }
    }
}

fn interval(limit: Duration) -> Duration {
    limit.checked_div(CALLS).unwrap_or(limit).max(SECOND)
}
