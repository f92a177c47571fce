//! Orders that concern the command of `run`, its end, and signals that mean nothing.

#![forbid(unsafe_code)]

use super::EventLoop;
use crate::children::Kind;
use crate::log;
use crate::supervisor::{Event, Exit};
use sys::{Pid, signal};

/// Signals that are harmless by nature and not worth a line: PIPE, CONT, URG, WINCH.
const QUIET: [u8; 4] = [13, 18, 23, 28];

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
        match self.children.spawn_plain(Kind::Command, words) {
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
        self.children.signal(Kind::Command, number.into());
    }

    /// The command has been reaped. What it leaves in its process group would outlive the agent.
    pub(super) fn command_gone(&mut self, pid: Pid, how: Exit) {
        sys::kill_group(pid, signal::SIGKILL);
        // Who sees the drain may want to skip it with Ctrl-C.
        sys::take_terminal_back(pid);
        self.queue.push_back(Event::CommandExited(how));
    }

    /// Says once that a signal means nothing.
    pub(super) fn ignore_signal(&mut self, number: u8) {
        let bit = 1_u64 << number.saturating_sub(1).min(63);
        if self.ignored & bit == 0 && !QUIET.contains(&number) {
            log::info!("signal {number} ignored, and not forwarded: it would kill the proxy");
        }
        self.ignored |= bit;
    }
}
