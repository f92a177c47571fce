//! What a debug build checks after every event.

#![forbid(unsafe_code)]

use super::{Phase, State, Supervisor};

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
        if self.phase == Phase::Done {
            debug_assert!(
                self.timers.next().is_none(),
                "a timer is armed after the end"
            );
        }
    }
}
