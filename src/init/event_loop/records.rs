//! Ends of processes and changes of readiness, in counters, history and log.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::EventLoop;
use crate::clock;
use crate::counters::Asked;
use crate::history::{Happening, Life};
use crate::log;
use crate::readiness::Stage;
use crate::supervisor::{Epoch, ExitStatus, Note, Reason};
use sys::Pid;

/// A greater difference between the two clocks means that the host's was set. Chosen: well above a day's drift.
const CLOCK_SET: Duration = Duration::from_secs(1);

impl EventLoop {
    pub(super) fn proxy_started(&mut self, epoch: Epoch, pid: i32, reason: Reason) {
        self.counters.started(reason);
        self.history.started(Life {
            epoch,
            pid: pid.unsigned_abs(),
            reason,
            configuration: self.supervisor.snapshot().desired,
            started: self.now,
            live: None,
            draining: None,
            ended: None,
            failed: false,
        });
    }

    /// A proxy was reaped, or could not be started; the core does not know yet.
    pub(super) fn proxy_ended(&mut self, epoch: Epoch, how: ExitStatus) {
        let asked = self
            .supervisor
            .processes()
            .any(|process| process.epoch == epoch && process.may_end());
        let asked = if asked { Asked::Yes } else { Asked::No };
        self.counters.ended(how, asked);
        self.history.ended(self.now, epoch, how);
    }

    pub(super) fn orphan_reaped(&mut self, pid: Pid, how: ExitStatus) {
        self.counters.orphans_reaped = self.counters.orphans_reaped.saturating_add(1);
        log::debug!("reaped orphan {}: it {how}", pid.number());
    }

    /// The core says something.
    pub(super) fn say(&mut self, note: &Note) {
        let changed = matches!(note, Note::Changed(_) | Note::ChangedBack(_));
        let files = if changed { self.files.changed() } else { "" };
        if note.is_warning() {
            log::warning!("{note}");
        } else {
            log::info!("{note}{files}");
        }
        if changed {
            self.changed = Some(self.now);
        }
        if matches!(note, Note::Live { .. }) {
            self.hot_restart.proxy_is_live();
        }
        self.counters.noted(note);
        self.history.noted(self.now, note);
    }

    /// Said on a change, not on every probe.
    pub(super) fn note_stage(&mut self, stage: Stage) {
        if self.stage == Some(stage) {
            return;
        }
        self.stage = Some(stage);
        if stage.is_ready() {
            log::info!("ready");
        } else {
            log::info!("not ready: {stage}");
        }
        self.history.happened(self.now, Happening::Readiness(stage));
    }

    /// Time since 1970, as far from the start as the clock of the loop is: an event has one time, however often it is
    /// told. Set anew when somebody sets the host's clock.
    pub(super) fn wall(&mut self) -> Duration {
        let elapsed = self.now.saturating_duration_since(self.started);
        let clock = clock::wall();
        let told = self.started_wall.saturating_add(elapsed);
        if told.abs_diff(clock) > CLOCK_SET {
            self.started_wall = clock.saturating_sub(elapsed);
        }
        self.started_wall.saturating_add(elapsed)
    }
}
