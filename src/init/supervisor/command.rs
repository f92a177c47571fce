//! The command of `pintle run`: one process that is started once, when the proxy is ready, and with whose end the agent
//! ends.
//!
//! | state | leaves it by |
//! |---|---|
//! | Waiting | the proxy is ready (Running); the agent's end (Cancelled) |
//! | Running | its exit; the proxy's failure (Stopping); a stop that it may have asked for itself (Leaving) |
//! | Leaving | its exit; `--kill-timeout` (Stopping) |
//! | Stopping | its exit; `--kill-timeout` (Killed) |
//! | Killed | its exit; some seconds more, for who hangs in the kernel (Ended) |
//!
//! While it lives and the agent runs, a request to stop is the command's affair: it gets the signal, and the agent ends
//! as it does then. A third request kills it.
//!
//! POST `/quitquitquit`, and a proxy that exits with 0, find the command Leaving and not Stopping: in a Job it is the
//! command itself that asks for them, as its last act, and the code that it is about to end with must not be lost.
//!
//! INVARIANT: it is started at most once, and never after the end began.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use super::action::{Action, Outcome};
use super::epoch::Process;
use super::event::{ExitStatus, Signal};
use super::note::Note;
use super::stopping::{ABANDON_AFTER, REQUESTS_TO_KILL, StopStage};
use super::timers::Timer;
use super::{Phase, Supervisor};

/// The interval at which readiness is asked for until it is there (the same as for LIVE).
const READY_INTERVAL: Duration = Duration::from_millis(500);
/// Signals that a write of the agent's own raises: PIPE when the reader of its log has gone, TTOU in the background of a
/// terminal, XFSZ at the limit of a file. They are not for the command.
const OUR_OWN: [u8; 3] = [13, 22, 25];
/// The exit status of a command that the agent has to kill.
const KILLED: ExitStatus = ExitStatus::Signal(9);

/// A state in the life of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// The proxy is not ready.
    Waiting,
    Running,
    /// It has its time to end by itself; then it is asked to.
    Leaving,
    /// We asked it to end.
    Stopping,
    /// It did not end in its time, or a third request came.
    Killed,
    Ended(ExitStatus),
    /// The agent ends, and it was never started.
    Cancelled,
}

impl CommandState {
    /// As `/status` says it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Leaving | Self::Stopping | Self::Killed => "stopping",
            Self::Ended(_) => "ended",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether there is a process that has not been reaped.
    #[must_use]
    pub const fn has_process(self) -> bool {
        matches!(
            self,
            Self::Running | Self::Leaving | Self::Stopping | Self::Killed
        )
    }
}

/// The core's knowledge of the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    state: CommandState,
    /// The operator knows what it waits for.
    told: bool,
}

impl Command {
    pub(super) const fn new() -> Self {
        Self {
            state: CommandState::Waiting,
            told: false,
        }
    }
}

/// Notes about the command of `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandNote {
    /// The proxy is LIVE, but not ready.
    Waits,
    /// A request to stop goes to it.
    Forwarded(u8),
    Ended(ExitStatus),
    /// The proxy ended for good, and it did not.
    Stopping,
    Killing,
}

impl fmt::Display for CommandNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => f.write_str("the command waits until the proxy is ready"),
            Self::Forwarded(number) => write!(f, "signal {number} goes to the command"),
            Self::Ended(how) => write!(f, "the command {how}"),
            Self::Stopping => f.write_str("the proxy is gone, stopping the command"),
            Self::Killing => f.write_str("killing the command"),
        }
    }
}

impl Supervisor {
    /// Returns the state of the command; `None` for `pintle proxy`, which has none.
    #[must_use]
    pub fn command_state(&self) -> Option<CommandState> {
        self.command.map(|command| command.state)
    }

    /// Whether the command has not been reaped.
    pub(super) fn command_lives(&self) -> bool {
        self.command_state().is_some_and(CommandState::has_process)
    }

    fn set_command(&mut self, state: CommandState) {
        if let Some(command) = &mut self.command {
            command.state = state;
        }
    }

    /// An epoch is LIVE, or it was not ready when it was asked last: is it now?
    ///
    /// Nobody is ready who was asked to drain, so there is nothing to wait for then.
    pub(super) fn ask_ready(&mut self, out: &mut Vec<Action>) {
        let waits = self.command_state() == Some(CommandState::Waiting);
        let serves = self.processes().any(Process::serves);
        if waits && serves && !self.drained && self.phase == Phase::Running {
            self.timers.disarm(Timer::Ready);
            out.push(Action::CheckReady);
        }
    }

    /// The answer; it may be late.
    pub(super) fn readiness_known(&mut self, now: Instant, ready: bool, out: &mut Vec<Action>) {
        let serves = self.processes().any(Process::serves);
        let Some(command) = &mut self.command else {
            return;
        };
        if command.state != CommandState::Waiting || self.drained {
            return;
        }
        if ready && serves {
            command.state = CommandState::Running;
            self.timers.disarm(Timer::Ready);
            out.push(Action::SpawnCommand);
        } else {
            self.timers.arm_once(Timer::Ready, now, READY_INTERVAL);
            if !std::mem::replace(&mut command.told, true) {
                out.push(Action::Note(Note::Command(CommandNote::Waits)));
            }
        }
    }

    /// A request to stop while the agent runs and the command lives: it gets the signal.
    pub(super) fn forward_to_command(
        &mut self,
        now: Instant,
        signal: Signal,
        out: &mut Vec<Action>,
    ) {
        if self.stop.requests < REQUESTS_TO_KILL {
            out.push(Action::Note(Note::Command(CommandNote::Forwarded(
                signal.number(),
            ))));
            out.push(Action::SignalCommand(signal.number()));
        } else {
            self.kill_command(now, out);
        }
    }

    /// A signal that the agent does not use.
    pub(super) fn other_signal(&self, number: u8, out: &mut Vec<Action>) {
        out.push(if self.command_lives() && !OUR_OWN.contains(&number) {
            Action::SignalCommand(number)
        } else {
            Action::IgnoreSignal(number)
        });
    }

    /// The command ended, or could not be started, while the agent runs: the agent ends, with its code.
    pub(super) fn command_exited(&mut self, now: Instant, how: ExitStatus, out: &mut Vec<Action>) {
        if self.command_lives() {
            self.command_over(how, out);
            self.stop_with(now, Some(Outcome::CommandEnded(how)), true, out);
        }
    }

    /// `Timer::Command` while the agent runs: it was killed, and hangs in the kernel.
    pub(super) fn command_hangs(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.command_state() == Some(CommandState::Killed) {
            out.push(Action::Note(Note::Abandoned));
            self.command_exited(now, KILLED, out);
        }
    }

    fn command_over(&mut self, how: ExitStatus, out: &mut Vec<Action>) {
        self.timers.disarm(Timer::Command);
        self.set_command(CommandState::Ended(how));
        out.push(Action::Note(Note::Command(CommandNote::Ended(how))));
    }

    /// The agent ends: what was not started never will be.
    pub(super) fn retire_command(&mut self) {
        if self.command_state() == Some(CommandState::Waiting) {
            self.set_command(CommandState::Cancelled);
        }
    }

    /// Whether a signal ended the agent before the command was started: that is no success of a Job.
    pub(super) fn command_missed(&self) -> bool {
        !self.stop.quit && self.command_state() == Some(CommandState::Cancelled)
    }

    /// The command has its time to end by itself. One that was killed has some seconds to be gone.
    pub(super) fn leave_command(&mut self, now: Instant) {
        match self.command_state() {
            Some(CommandState::Running) => {
                self.set_command(CommandState::Leaving);
                self.timers
                    .arm(Timer::Command, now, self.policy.kill_timeout);
            }
            Some(CommandState::Killed) => self.timers.arm(Timer::Command, now, ABANDON_AFTER),
            Some(
                CommandState::Waiting
                | CommandState::Leaving
                | CommandState::Stopping
                | CommandState::Ended(_)
                | CommandState::Cancelled,
            )
            | None => {}
        }
    }

    /// SIGTERM to the command, unless it was sent before; whether it was.
    pub(super) fn term_command(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        let state = self.command_state();
        if !matches!(state, Some(CommandState::Running | CommandState::Leaving)) {
            return false;
        }
        self.set_command(CommandState::Stopping);
        self.timers
            .arm(Timer::Command, now, self.policy.kill_timeout);
        out.push(Action::SignalCommand(Signal::Terminate.number()));
        true
    }

    /// SIGKILL to the command, if it lives.
    pub(super) fn kill_command(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.command_lives() && self.command_state() != Some(CommandState::Killed) {
            self.set_command(CommandState::Killed);
            self.timers.arm(Timer::Command, now, ABANDON_AFTER);
            out.push(Action::Note(Note::Command(CommandNote::Killing)));
            out.push(Action::KillCommand);
        }
    }

    /// `Timer::Command` while the agent ends.
    pub(super) fn command_late(&mut self, now: Instant, out: &mut Vec<Action>) {
        match self.command_state() {
            Some(CommandState::Running | CommandState::Leaving) => {
                self.term_command(now, out);
            }
            Some(CommandState::Stopping) => {
                self.kill_command(now, out);
                self.stop.killed = true;
            }
            Some(CommandState::Killed) => {
                out.push(Action::Note(Note::Abandoned));
                self.command_ended(now, KILLED, out);
            }
            Some(CommandState::Waiting | CommandState::Ended(_) | CommandState::Cancelled)
            | None => {}
        }
    }

    /// The command ended while the agent ends. What it ended with by itself is what the agent ends with, unless the
    /// proxy's failure decided that before; beside a proxy that exited with 0, also what it was made to end with.
    pub(super) fn command_ended(&mut self, now: Instant, how: ExitStatus, out: &mut Vec<Action>) {
        let Some(state) = self.command_state().filter(|state| state.has_process()) else {
            return;
        };
        self.command_over(how, out);
        let by_itself = matches!(state, CommandState::Running | CommandState::Leaving);
        let decides = match self.stop.verdict {
            // Nobody has asked the command for anything but the proxy's end: interrupted, it has failed.
            Some(Outcome::ProxyEnded) => true,
            None => by_itself,
            Some(_) => false,
        };
        if decides {
            self.stop.verdict = Some(Outcome::CommandEnded(how));
        }
        if self.stop.stage == StopStage::Recalling {
            self.dismiss(now, out);
        } else {
            self.proceed(now, out);
        }
    }
}
