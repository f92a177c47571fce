//! Invariants that a debug build checks after every event.

#![forbid(unsafe_code)]

use super::timers::Timer;
use super::{Next, Phase, Process, State, Supervisor};

impl Supervisor {
    pub(super) fn check(&self) {
        if let (Some(newest), Some(older)) = (&self.newest, &self.older) {
            debug_assert!(
                newest.epoch == older.epoch.next(),
                "{newest:?} beside {older:?}"
            );
            debug_assert!(
                newest.state != State::Draining,
                "{newest:?} drains without a child"
            );
        }
        let alone = self.older.is_none() && self.newest.as_ref().is_some_and(Process::serves);
        if alone && self.next == Next::Nothing && self.given_up.is_some() {
            debug_assert!(
                self.timers.is_armed(Timer::Retry),
                "what was given up is never tried again"
            );
        }
        if self.phase == Phase::Done {
            debug_assert!(
                self.timers.next().is_none(),
                "a timer is armed after the end"
            );
        }
    }
}
