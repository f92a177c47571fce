//! A parent after its hand-over: it drains, is never signalled in its time, and ends when its child dismisses it.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Supervisor;
use super::action::{Action, Send};
use super::epoch::{Process, State};
use super::event::Exit;
use super::note::Note;
use super::timers::Timer;

/// A draining parent that is there so long after its time hangs. Ours; dismissed by its child, it ends within a second.
const PARENT_GRACE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// The newest is LIVE, and dismisses its parent, if any, when the parent's time is over.
    pub(super) fn expect_end_of_parent(&mut self, now: Instant) {
        if self.older.is_some() {
            let time = self.policy.parent_shutdown.saturating_add(PARENT_GRACE);
            self.timers.arm(Timer::Parent, now, time);
        }
    }

    /// A parent that ended before its child had dismissed it needs somebody to answer for it (peers.md §3.6).
    pub(super) fn parent_gone(
        &self,
        now: Instant,
        parent: &Process,
        how: Exit,
        out: &mut Vec<Action>,
    ) {
        let Some(child) = &self.newest else { return };
        // The child dismisses its parent that long after it was LIVE; a second for the clocks of three processes.
        let due = child
            .live_since
            .and_then(|live| live.checked_add(self.policy.parent_shutdown))
            .and_then(|due| due.checked_sub(Duration::from_secs(1)));
        if how == Exit::Code(0) && due.is_some_and(|due| now >= due) {
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
    /// the child has somebody else to answer it then. While no child is LIVE, nobody was there to dismiss it.
    pub(super) fn parent_hangs(&self, out: &mut Vec<Action>) {
        if let (Some(child), Some(parent)) = (&self.newest, &self.older)
            && child.serves()
            && parent.state == State::Draining
        {
            let (parent, child) = (parent.epoch, child.epoch);
            out.push(Action::Note(Note::ParentHangs { parent, child }));
            out.push(Action::Signal(parent, Send::Kill));
        }
    }
}
