//! The end, once the core has decided it: what must not outlive the agent, and what it leaves behind.

#![forbid(unsafe_code)]

use super::EventLoop;
use crate::adopted::Adopted;
use crate::store::Of;
use crate::supervisor::{Outcome, Signal};

impl EventLoop {
    /// The outcome, once every process is gone that would outlive the agent.
    pub(super) fn has_left(&mut self) -> Option<Outcome> {
        let outcome = self.outcome?;
        if std::process::id() == 1 {
            return Some(outcome);
        }
        let (now, patience) = (self.now, self.config.policy.kill_timeout);
        if self.adopted.is_none() {
            // Its own processes have had `--kill-timeout`.
            self.children.kill_all();
            self.reap();
        }
        let adopted = self
            .adopted
            .get_or_insert_with(|| Adopted::new(now, patience));
        adopted.have_ended(now, &self.children).then_some(outcome)
    }

    /// Hurries: a client that asks again does not want to wait.
    pub(super) fn hurry(&mut self, signal: Signal) {
        if let (Signal::Terminate | Signal::Interrupt | Signal::Quit, Some(adopted)) =
            (signal, &mut self.adopted)
        {
            adopted.hurry(self.now);
        }
    }

    /// Leaves nothing behind: no process, no file.
    pub(super) fn clean_up(&mut self) {
        self.children.kill_all();
        self.reap();
        self.store.remove(Of::Validator);
        for process in self.supervisor.processes() {
            self.store.remove(Of::Epoch(process.epoch));
        }
        if !self.config.launch.disable_hot_restart {
            self.hot_restart.remove_shared_memory();
        }
    }
}
