//! Work beside the epochs: reopening logs, rescans.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Supervisor;
use super::action::{Action, ChildSignal};
use super::epoch::State;
use super::event::Cause;
use super::timers::Timer;

/// Without inotify the files are hashed this often: the default of `--cert-debounce`, so a change takes no longer.
const DEGRADED_RESCAN: Duration = Duration::from_secs(10);

impl Supervisor {
    /// USR1 goes to every process that can take it: before Envoy has its handlers, USR1 would kill it.
    pub(super) fn reopen(&mut self, out: &mut Vec<Action>) {
        for process in self.newest.iter_mut().chain(&mut self.older) {
            match process.state {
                State::Starting => process.owes_reopen = true,
                State::Live | State::Draining => {
                    out.push(Action::Signal(process.epoch, ChildSignal::Reopen));
                }
                State::Stopping(_) => {}
            }
        }
        out.push(Action::ReopenLog);
    }

    pub(super) fn rescan(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.arm_rescan(now);
        out.push(Action::Hash(Cause::Rescan));
    }

    pub(super) fn arm_rescan(&mut self, now: Instant) {
        let usual = self.policy.rescan_interval;
        let interval = if self.degraded {
            Some(usual.map_or(DEGRADED_RESCAN, |usual| usual.min(DEGRADED_RESCAN)))
        } else {
            usual
        };
        self.timers.disarm(Timer::Rescan);
        if let Some(interval) = interval {
            self.timers.arm(Timer::Rescan, now, interval);
        }
    }

    pub(super) fn watch_degraded(&mut self, now: Instant, degraded: bool) {
        if self.degraded != degraded {
            self.degraded = degraded;
            self.arm_rescan(now);
        }
    }
}
