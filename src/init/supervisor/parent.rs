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

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Supervisor;
use super::action::{Action, ChildSignal};
use super::epoch::{Process, State};
use super::event::ExitStatus;
use super::note::Note;
use super::timers::Timer;

/// A draining parent that is there so long after its time hangs. Chosen: Envoy ends within 15 ms of its child's Terminate
/// (measured, idle), a busy one within a second.
const PARENT_GRACE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// The newest is LIVE, and dismisses its parent, if any, when the parent's time is over.
    pub(super) fn expect_end_of_parent(&mut self, now: Instant) {
        if self.older.is_some() {
            let time = self.policy.parent_shutdown.saturating_add(PARENT_GRACE);
            self.timers.arm(Timer::Parent, now, time);
        }
    }

    /// A parent that ended before its child had dismissed it needs a stand-in, or the child aborts (why: see above).
    pub(super) fn parent_gone(
        &self,
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

    /// The draining parent outlives its time. Its child may wait for an answer of it and do nothing else, so it is killed;
    /// then the stand-in answers the child. While no child is LIVE, nobody was there to dismiss it.
    pub(super) fn parent_hangs(&self, out: &mut Vec<Action>) {
        if let (Some(child), Some(parent)) = (&self.newest, &self.older)
            && child.serves()
            && parent.state == State::Draining
        {
            let (parent, child) = (parent.epoch, child.epoch);
            out.push(Action::Note(Note::ParentHangs { parent, child }));
            out.push(Action::Signal(parent, ChildSignal::Kill));
        }
    }
}
