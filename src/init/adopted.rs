//! Children that the agent has adopted, at its end: orphans of its proxies, companions and commands that left their process
//! groups.
//!
//! With PID 1 the kernel kills them. An agent that is a subreaper would leave them to the next one, so it ends them as it
//! ends a proxy: TERM, their time, KILL. What they have started becomes the agent's in turn, so it looks again after each
//! that it has reaped. Their ends say nothing about the agent's own, and so do not change its code.
//!
//! A child that was there before the agent (`exec pintle` in a shell that has started a log reader) is no orphan of anything
//! the agent has started, and goes on.
//!
//! Only /proc tells who they are; where it is missing they go on, and the log says so.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::children::Children;
use crate::log;
use sys::{Pid, signal};

/// A child that KILL has not removed by then hangs in the kernel, or starts others faster than they are killed. Chosen: KILL
/// takes milliseconds.
const ABANDON_AFTER: Duration = Duration::from_secs(2);

/// The end of what was adopted.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// They have had TERM.
    told: Vec<Pid>,
    killing: bool,
    /// The next step is due at this time.
    deadline: Instant,
}

impl Adopted {
    /// Gives them `patience` from now on.
    #[must_use]
    pub(crate) fn new(now: Instant, patience: Duration) -> Self {
        Self {
            told: Vec::new(),
            killing: false,
            deadline: now.checked_add(patience).unwrap_or(now),
        }
    }

    /// The time at which `have_ended` is due again, unless one of them ends before.
    #[must_use]
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Their time is over.
    pub(crate) fn hurry(&mut self, now: Instant) {
        if !self.killing {
            self.deadline = now;
        }
    }

    /// Signals those that are there, `own` left out, which have been killed; to be called when one was reaped, and when
    /// `deadline` is due. `true`: none is left, or nothing more can be done.
    #[must_use]
    pub(crate) fn have_ended(&mut self, now: Instant, own: &Children) -> bool {
        if !sys::has_children() {
            return true;
        }
        let mut children = match sys::children() {
            Ok(children) => children,
            Err(error) => {
                log::warning!("cannot end the adopted processes: /proc does not tell: {error}");
                return true;
            }
        };
        children.retain(|child| !own.inherited(*child));
        if children.is_empty() {
            return true;
        }
        if self.deadline <= now {
            if self.killing {
                log::warning!("adopted processes are still there after KILL, ending without them");
                return true;
            }
            log::warning!("adopted processes have had their time, killing them");
            self.killing = true;
            self.deadline = now.checked_add(ABANDON_AFTER).unwrap_or(now);
        }
        for child in children {
            if self.killing {
                sys::kill(child, signal::SIGKILL);
            } else if !own.knows(child) && !self.told.contains(&child) {
                log::info!("stopping adopted process {}", child.number());
                self.told.push(child);
                sys::kill(child, signal::SIGTERM);
            }
        }
        false
    }
}
