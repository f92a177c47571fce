//! Orders that concern the command of `run`, and its end.

#![forbid(unsafe_code)]

use super::EventLoop;
use crate::children::ChildKind;
use crate::log;
use crate::supervisor::{Event, ExitStatus};
use sys::{Pid, signal};

impl EventLoop {
    /// Whether the proxy is ready for the command: as the status port would say it.
    pub(super) fn check_ready(&mut self) {
        self.command_waits = true;
        self.ask_readiness();
    }

    /// Starts the command; what goes wrong is an exit of it.
    pub(super) fn spawn_command(&mut self) {
        self.used_seldom = true;
        let words = &self.config.command;
        // Its arguments may hold what no log should.
        let program = words.first().map(|word| word.display());
        match self.children.spawn_plain(ChildKind::Command, words) {
            Ok(pid) => {
                if let Some(program) = program {
                    log::info!("command started: pid {}, {program}", pid.number());
                }
            }
            Err((how, error)) => {
                if let Some(program) = program {
                    log::error!("cannot start the command, {program}: {error}");
                }
                self.queue.push_back(Event::CommandExited(how));
            }
        }
    }

    pub(super) fn signal_command(&self, number: u8) {
        log::debug!("signal {number} to the command");
        self.children.signal(ChildKind::Command, number.into());
    }

    /// The command has been reaped. What it leaves in its process group would outlive the agent.
    pub(super) fn command_gone(&mut self, pid: Pid, how: ExitStatus) {
        sys::kill_group(pid, signal::SIGKILL);
        // Who sees the drain may want to skip it with Ctrl-C.
        sys::take_terminal_back(pid);
        self.queue.push_back(Event::CommandExited(how));
    }
}
