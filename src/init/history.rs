//! The last events and the lives of the last epochs, for `/status` and the page.
//!
//! The history has a fixed size and holds no text: an event is kept as the note that it was and put into words when it is asked
//! for.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::Instant;

use crate::readiness::Stage;
use crate::supervisor::{Epoch, ExitStatus, Fingerprint, Note, Reason};

/// Events kept, and lives of epochs kept. Chosen: with 32 of each, `/status` has about 10 kB.
pub(crate) const KEPT: usize = 32;

/// Something worth telling.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// The core said so.
    Note(Note),
    /// A proxy process was started.
    Started {
        epoch: Epoch,
        pid: u32,
        reason: Reason,
    },
    /// Readiness changed.
    Readiness(Stage),
}

/// One epoch, from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) epoch: Epoch,
    pub(crate) pid: u32,
    pub(crate) reason: Reason,
    pub(crate) configuration: Fingerprint,
    pub(crate) started: Instant,
    /// The moment at which it was LIVE.
    pub(crate) live: Option<Instant>,
    /// The moment at which it had handed over.
    pub(crate) draining: Option<Instant>,
    /// The moment and the manner of its end.
    pub(crate) ended: Option<(Instant, ExitStatus)>,
    /// Its end is a failure: a crash, or a child that died before it was LIVE.
    pub(crate) failed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: VecDeque<(Instant, Happening)>,
    lives: VecDeque<Life>,
}

impl History {
    /// The events, the oldest first.
    pub(crate) fn events(&self) -> impl DoubleEndedIterator<Item = &(Instant, Happening)> {
        self.events.iter()
    }

    /// The lives, the oldest first.
    pub(crate) fn lives(&self) -> impl DoubleEndedIterator<Item = &Life> {
        self.lives.iter()
    }

    /// A proxy process was started.
    pub(crate) fn started(&mut self, life: Life) {
        let (epoch, pid, reason) = (life.epoch, life.pid, life.reason);
        self.happened(life.started, Happening::Started { epoch, pid, reason });
        push(&mut self.lives, life);
    }

    /// The core said something.
    pub(crate) fn noted(&mut self, now: Instant, note: &Note) {
        if let Note::Live { epoch, .. } = note {
            self.living(*epoch, |life| life.live = Some(now));
        } else if let Note::Draining(epoch) = note {
            self.living(*epoch, |life| life.draining = Some(now));
        } else if let Note::ChildFailed { epoch, how, .. } = note
            && !matches!(how, ExitStatus::NotStarted(_))
        {
            // One that was never started has no life; the last of its number was another's.
            self.last(*epoch, |life| life.failed = true);
        }
        self.happened(now, Happening::Note(*note));
    }

    /// A proxy process was reaped.
    pub(crate) fn ended(&mut self, now: Instant, epoch: Epoch, how: ExitStatus) {
        self.living(epoch, |life| {
            life.ended = Some((now, how));
            life.failed |= how != ExitStatus::Code(0) && life.draining.is_none();
        });
    }

    pub(crate) fn happened(&mut self, now: Instant, what: Happening) {
        push(&mut self.events, (now, what));
    }

    /// Numbers come again: the epoch of that number that still runs is meant.
    fn living(&mut self, epoch: Epoch, change: impl FnOnce(&mut Life)) {
        let lives = self.lives.iter_mut().rev();
        if let Some(life) = lives
            .filter(|life| life.ended.is_none())
            .find(|life| life.epoch == epoch)
        {
            change(life);
        }
    }

    /// The latest epoch of that number.
    fn last(&mut self, epoch: Epoch, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.lives.iter_mut().rev().find(|life| life.epoch == epoch) {
            change(life);
        }
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T) {
    if ring.capacity() == 0 {
        // Once and for all.
        ring.reserve_exact(KEPT);
    }
    if ring.len() >= KEPT {
        ring.pop_front();
    }
    ring.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some moment to begin with")]
    fn a_child_that_never_started_is_no_failure_of_who_had_its_number() {
        let (now, epoch) = (Instant::now(), Epoch(1));
        let mut history = History::default();
        history.started(Life {
            epoch,
            pid: 7,
            reason: Reason::Change,
            configuration: Fingerprint([1; 32]),
            started: now,
            live: Some(now),
            draining: None,
            ended: None,
            failed: false,
        });
        history.ended(now, epoch, ExitStatus::Code(0));
        for (how, failed) in [
            (ExitStatus::NotStarted(71), false),
            (ExitStatus::Code(0), true),
        ] {
            let parent = Epoch(0);
            history.noted(now, &Note::ChildFailed { epoch, how, parent });
            assert_eq!(history.lives().any(|life| life.failed), failed, "{how}");
        }
    }
}
