//! Orders that concern companions, and the end of one.

#![forbid(unsafe_code)]

use super::EventLoop;
use crate::children::ChildKind;
use crate::log;
use crate::supervisor::{ChildSignal, CompanionId, Event, ExitStatus};
use sys::{Pid, signal};

impl EventLoop {
    /// Starts a companion; what goes wrong is an exit of it.
    pub(super) fn spawn_companion(&mut self, id: CompanionId) {
        self.used_seldom = true;
        let Some(companion) = self.config.companions.get(usize::from(id.0)) else {
            return;
        };
        match self
            .children
            .spawn_plain(ChildKind::Companion(id), &companion.words)
        {
            Ok(pid) => log::info!("{id} started: pid {}, {}", pid.number(), companion.text),
            Err((how, error)) => {
                log::error!("cannot start {id}, {}: {error}", companion.text);
                self.queue
                    .push_back(Event::CompanionExited { companion: id, how });
            }
        }
    }

    pub(super) fn signal_companion(&self, id: CompanionId, what: ChildSignal) {
        let kind = ChildKind::Companion(id);
        match what {
            ChildSignal::Term => self.children.signal(kind, signal::SIGTERM),
            ChildSignal::Kill => self.children.kill(kind),
            // USR1 would kill a program that does not know it.
            ChildSignal::Reopen => {}
        }
    }

    /// A companion has been reaped. What it leaves in its process group would hold its ports against the next one, or
    /// outlive the agent.
    pub(super) fn companion_gone(&mut self, pid: Pid, id: CompanionId, how: ExitStatus) {
        sys::kill_group(pid, signal::SIGKILL);
        self.queue
            .push_back(Event::CompanionExited { companion: id, how });
    }
}
