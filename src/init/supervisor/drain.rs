//! The drain at the end: asked for at the admin port, and over when its time is up or no connection is left.
//!
//! Envoy itself does not drain at TERM: it is gone after about 15 ms. So, in this order: readiness says no, the pre-drain
//! delay lets that spread, `/drain_listeners?graceful&skip_exit`, the time or the last connection, TERM to the newest (which
//! takes its draining parent along), KILL. Where the admin port refuses, the agent waits the same time.
//! HTTP connections with keep-alive take up to 5 s longer, the connection manager's default `drain_timeout`.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Supervisor;
use super::action::Action;
use super::event::{Call, Epoch, Reply};
use super::note::Note;
use super::stopping::StopStage;
use super::timers::Timer;

/// With `--exit-on-zero-active-connections`, how often the connections are counted (as in pilot-agent).
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

impl Supervisor {
    /// The listeners stop accepting; connections have their time.
    pub(super) fn drain(&mut self, now: Instant, out: &mut Vec<Action>) {
        let longest = self.policy.termination_drain;
        if longest.is_zero() {
            self.dismiss(now, out);
            return;
        }
        self.stop.stage = StopStage::Draining;
        self.timers.arm(Timer::Drain, now, longest);
        if let Some(shortest) = self.policy.exit_on_zero {
            self.timers
                .arm(Timer::Connections, now, shortest.min(longest));
        }
        out.push(Action::Note(Note::DrainBegan(longest)));
        if self.awaits_drain() {
            return;
        }
        if let Some(epoch) = self.admin_owner() {
            out.push(Action::CallAdmin(epoch, Call::Drain));
        }
    }

    /// POST `/drain` was served, and the proxy has not answered yet.
    const fn awaits_drain(&self) -> bool {
        self.drained && self.drain_taken.is_none()
    }

    /// The epoch whose admin port is most likely there: during a hand-over the parent, until the child is LIVE.
    pub(super) fn admin_owner(&self) -> Option<Epoch> {
        let serving = self.processes().find(|process| process.serves());
        serving
            .or_else(|| self.processes().next())
            .map(|process| process.epoch)
    }

    pub(super) fn count_connections(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(epoch) = self.admin_owner() {
            self.timers.arm(Timer::Connections, now, COUNT_INTERVAL);
            out.push(Action::CallAdmin(epoch, Call::Connections));
        }
    }

    /// `Call::Memory` was answered: a proxy that has initialised serves, and drains.
    fn asked_memory(&mut self, now: Instant, epoch: Epoch, reply: Reply, out: &mut Vec<Action>) {
        if self.stop.stage == StopStage::Asking {
            self.stop.stage = StopStage::PreDrain;
            if reply == Reply::Live {
                // Its admin port may be about to say so. Where that is elsewhere, the drain tells.
                self.became_live(now, epoch, out);
            }
            self.begin_end(now, true, out);
        }
    }

    pub(super) fn replied_in_stop(
        &mut self,
        now: Instant,
        epoch: Epoch,
        answer: (Call, Reply),
        out: &mut Vec<Action>,
    ) {
        let draining = self.stop.stage == StopStage::Draining;
        match answer {
            // The child has taken over after all: the drain is its affair now.
            (Call::Live, Reply::Live) => {
                if self.became_live(now, epoch, out) && draining {
                    out.push(Action::CallAdmin(epoch, Call::Drain));
                }
            }
            (Call::Drain, reply)
                if self.stop.stage <= StopStage::Draining && self.admin_owner() == Some(epoch) =>
            {
                let posted = self.awaits_drain();
                self.drain_taken = Some(reply != Reply::Failed);
                if reply == Reply::Failed {
                    out.push(Action::Note(Note::DrainRefused { stopping: true }));
                } else if posted {
                    self.dismiss(now, out);
                }
            }
            // A parent that drains beside it has connections of its own, which its child cannot count.
            (Call::Connections, Reply::Connections(0)) if draining && self.older.is_none() => {
                out.push(Action::Note(Note::NoConnections));
                self.dismiss(now, out);
            }
            (Call::Memory, reply) => self.asked_memory(now, epoch, reply, out),
            (Call::Stopped, reply) => self.parent_seen(epoch, reply, out),
            (Call::Live | Call::Drain | Call::Connections, _) => {}
        }
    }
}
