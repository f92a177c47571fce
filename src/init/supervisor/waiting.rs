//! MUTUAL_TLS: epoch 0 waits for its certificates, and signals work meanwhile.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::action::{Action, Outcome, Reason};
use super::event::{Asker, Cause, Event, Signal};
use super::note::Note;
use super::timers::Timer;
use super::{Phase, Supervisor};

/// While it waits, changes are looked at this soon. Chosen: a start should not wait for the debounce.
const CERTIFICATES_DEBOUNCE: Duration = Duration::from_millis(100);
impl Supervisor {
    /// Waiting for the certificates; no process has been started.
    pub(super) fn waiting(&mut self, now: Instant, event: &Event, out: &mut Vec<Action>) {
        match *event {
            Event::FilesChanged => {
                self.timers
                    .arm_at_most(Timer::Debounce, now, CERTIFICATES_DEBOUNCE);
            }
            Event::Hashed {
                configuration,
                complete,
                ..
            } => {
                self.desired = configuration;
                if complete {
                    self.begin(now, out);
                }
            }
            Event::WatchDegraded(degraded) => self.watch_degraded(now, degraded),
            Event::Signalled(signal @ (Signal::Terminate | Signal::Interrupt | Signal::Quit)) => {
                self.stop.asker = Some(Asker::Signal(signal));
                self.exit(Outcome::NeverLive, out);
            }
            Event::Signalled(Signal::Hangup) => {
                out.push(Action::Note(Note::Ignored("no proxy runs yet")));
            }
            Event::Signalled(Signal::Usr1) => out.push(Action::ReopenLog),
            Event::Signalled(Signal::Other(number)) => self.other_signal(number, out),
            Event::DrainRequested => self.drain_only(out),
            Event::QuitRequested => {
                out.push(Action::Note(Note::QuitRequested));
                self.stop.asker = Some(Asker::StatusPort);
                self.exit(Outcome::Stopped, out);
            }
            Event::Due(Timer::Debounce) => out.push(Action::Hash(Cause::Noticed)),
            Event::Due(Timer::Rescan) => self.rescan(now, out),
            Event::Due(Timer::Certificates) => {
                out.push(Action::Note(Note::CertificatesMissing));
                self.begin(now, out);
            }
            Event::Exited { .. }
            | Event::CompanionExited { .. }
            | Event::CommandExited(_)
            | Event::ReadinessKnown(_)
            | Event::Validated { .. }
            | Event::AdminReplied { .. }
            | Event::NameTaken { .. }
            | Event::Due(
                Timer::LivePoll
                | Timer::LiveDeadline
                | Timer::Gate
                | Timer::Hang
                | Timer::Retry
                | Timer::Refill
                | Timer::Validation
                | Timer::PreDrain
                | Timer::Drain
                | Timer::Connections
                | Timer::Kill
                | Timer::Abandon
                | Timer::Parent
                | Timer::Look
                | Timer::Companions
                | Timer::Ready
                | Timer::Command,
            ) => {}
        }
    }

    /// Starts epoch 0.
    pub(super) fn begin(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.phase = Phase::Running;
        self.timers.disarm(Timer::Certificates);
        self.spawn(now, Reason::Start, out);
    }
}
