//! A parent after its hand-over: it drains, is never signalled in its time, and ends when its child dismisses it.
//!
//! # Draining parent never signalled: why
//!
//! A draining parent is never signalled, because its child needs it.
//!
//! Its child goes on asking it for statistics every 5 s until it dismisses it (Terminate), `--parent-shutdown-time-s` after
//! it was LIVE; with 6 s the parent left after 6.03. A parent that ends sooner, by a signal or for want of memory, leaves
//! the child waiting: the data path is fine, the admin port is dead from the next question on, and about 15.5 s after the
//! parent's death the child aborts (SIGABRT). With `--skip-hot-restart-parent-stats` it aborts 10 s after it would have
//! dismissed the parent; `--skip-hot-restart-on-no-parent` does not help. Seen with Envoy 1.40, parent killed by hand, and
//! in envoy#7468 and envoy#10953. So nobody signals it: a TERM to the newest ends both within 20 ms. One that dies all the
//! same gets a stand-in (`hot_restart`).
//!
//! A third epoch would dismiss it at once and cut its connections: its child tells it to end when its own child comes. So
//! no epoch starts while a parent drains.
//!
//! # Stopped parent
//!
//! A parent that somebody stops, by SIGSTOP or with a debugger, answers its child no more than a dead one, but its sockets
//! stay: the child does not abort, and its main thread waits for as long as the parent is stopped. /proc says so at once,
//! so a draining parent is looked at every second, and what is stopped at two looks in a row is replaced as one that hangs.
//! Envoy 1.40, `--parent-shutdown-time-s` 4: the child was held up for 8 s, with Istio's 60 it was 64.
//!
//! # Name that somebody else has taken
//!
//! Abstract names have no owner: when a parent dies, any process in the pod may have its name before the stand-in does.
//! Envoy's child asks that process then, and waits for ever. But it takes an answer from anybody, so it is sent one every
//! few seconds by a socket without a name, and the name is tried again. Where the taker lets nothing more in, the child
//! hangs in sending; its admin port is silent then, and it is killed after `--live-timeout`, as it would have aborted by
//! itself 15.5 s after its parent's death.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Supervisor;
use super::action::{Action, ChildSignal};
use super::epoch::{Process, State};
use super::event::{Call, Epoch, ExitStatus, Reply};
use super::note::Note;
use super::timers::Timer;

/// A draining parent that is there so long after its time hangs. Chosen: Envoy ends within 15 ms of its child's Terminate
/// (measured, idle), a busy one within a second.
const PARENT_GRACE: Duration = Duration::from_secs(5);
/// A draining parent is looked at this often. Chosen: its child, which asks it every 5 s, is held up for half of that at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The child of a dead parent is answered this often where the name is taken. Chosen: it asks every 5 s.
const ANSWER_INTERVAL: Duration = Duration::from_secs(3);

impl Supervisor {
    /// The newest is LIVE, and dismisses its parent, if any, when the parent's time is over.
    pub(super) fn expect_end_of_parent(&mut self, now: Instant) {
        if self.older.is_some() {
            let time = self.policy.parent_shutdown.saturating_add(PARENT_GRACE);
            self.timers.arm(Timer::Parent, now, time);
            if self.policy.parent_stand_in {
                self.timers.arm(Timer::Look, now, LOOK_INTERVAL);
            }
        }
    }

    /// A parent that ended before its child had dismissed it needs a stand-in, or the child aborts (why: see above).
    pub(super) fn parent_gone(
        &mut self,
        now: Instant,
        parent: &Process,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        let Some(child) = &self.newest else { return };
        // The child dismisses its parent that long after it was LIVE; a second for the clocks of three processes.
        let due = child
            .live_since
            .and_then(|live| live.checked_add(self.policy.parent_shutdown))
            .and_then(|due| due.checked_sub(Duration::from_secs(1)));
        if how == ExitStatus::Code(0) && due.is_some_and(|due| now >= due) {
            self.timers.disarm(Timer::Parent);
            out.push(Action::Note(Note::Ended {
                epoch: parent.epoch,
                how,
            }));
            return;
        }
        let (parent, child) = (parent.epoch, child.epoch);
        out.push(Action::Note(Note::ParentDied { parent, child, how }));
        if self.policy.parent_stand_in {
            out.push(Action::StandIn { parent, child });
        }
    }

    /// `Timer::Parent`: a draining parent hangs, and one that is dead is not asked any more.
    pub(super) fn parent_hangs(&mut self, out: &mut Vec<Action>) {
        self.dead_parent = None;
        if let Some(parent) = self.draining_parent() {
            self.replace_parent(parent, false, out);
        }
    }

    /// `Timer::Look`: at a draining parent, or for the name of one that is dead.
    pub(super) fn look_at_parent(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(parent) = self.draining_parent() {
            self.timers.arm(Timer::Look, now, LOOK_INTERVAL);
            out.push(Action::CallAdmin(parent, Call::Stopped));
        } else if let Some(parent) = self.dead_parent {
            let child = parent.next();
            out.push(Action::StandIn { parent, child });
        }
    }

    /// Whether somebody had stopped the parent when it was looked at.
    pub(super) fn parent_seen(&mut self, parent: Epoch, reply: Reply, out: &mut Vec<Action>) {
        let stopped = reply == Reply::Stopped;
        if self.draining_parent() == Some(parent)
            && let Some(older) = &mut self.older
            && std::mem::replace(&mut older.stopped, stopped)
            && stopped
        {
            self.timers.disarm(Timer::Look);
            self.replace_parent(parent, true, out);
        }
    }

    /// The stand-in cannot have the name of this dead parent: its child is answered now and then, until it does not ask any
    /// more.
    pub(super) fn name_taken(&mut self, now: Instant, parent: Epoch) {
        if self.dead_parent.replace(parent).is_none() {
            self.watch_hang(now);
        }
        let time = self.policy.parent_shutdown.saturating_add(PARENT_GRACE);
        self.timers.arm_once(Timer::Parent, now, time);
        self.timers.arm(Timer::Look, now, ANSWER_INTERVAL);
    }

    /// The parent that drains and that the newest will dismiss. While no child is LIVE, there is nobody to do that.
    fn draining_parent(&self) -> Option<Epoch> {
        let (child, parent) = (self.newest.as_ref()?, self.older.as_ref()?);
        (child.serves() && parent.state == State::Draining).then_some(parent.epoch)
    }

    /// The draining parent hangs. Its child may wait for an answer of it and do nothing else, so it is killed; then the
    /// stand-in answers the child.
    fn replace_parent(&self, parent: Epoch, stopped: bool, out: &mut Vec<Action>) {
        let child = parent.next();
        out.push(Action::Note(Note::ParentHangs {
            parent,
            child,
            stopped,
        }));
        out.push(Action::Signal(parent, ChildSignal::Kill));
    }
}
