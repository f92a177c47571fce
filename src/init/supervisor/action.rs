//! Orders of the core: carried out in sequence; each is total, a failure comes back as an event.

#![forbid(unsafe_code)]

use super::companions::CompanionId;
use super::event::{Call, Cause, Epoch, ExitStatus};
use super::note::Note;

/// Why an epoch was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Start,
    Change,
    Crash,
    Signal,
    Rescan,
}

impl Reason {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Change => "change",
            Self::Crash => "crash",
            Self::Signal => "signal",
            Self::Rescan => "rescan",
        }
    }
}

/// A signal to a proxy process, or to a companion; no other is sent. Envoy 1.40 stops at TERM and INT with no drain (15 ms,
/// exit 0), takes its draining parent along, and in early start is killed by them; it reopens access logs at USR1, ignores HUP
/// and PIPE, and dies of USR2, QUIT, ALRM and the like (tried one by one), so these are not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildSignal {
    Term,
    Kill,
    /// USR1: reopen the access logs.
    Reopen,
}

/// The agent's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// On request, and every process ended in its time.
    Stopped,
    /// The last proxy exited 0 by itself, and the policy is to follow.
    ProxyEnded,
    /// On request, but a process had to be killed.
    Killed,
    /// On request, before any epoch was ever LIVE.
    NeverLive,
    /// The retry budget is spent and nothing serves.
    BudgetSpent(ExitStatus),
    /// No epoch was ever LIVE, and no further try would mend what this one ended by.
    Hopeless(ExitStatus),
    /// On request, or because the proxy exited 0 by itself, before the command of `run` was started.
    NeverStarted,
    /// The command of `run` ended, and with it the agent.
    CommandEnded(ExitStatus),
}

impl Outcome {
    /// The exit code, as `--help` lists them.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Stopped | Self::ProxyEnded => 0,
            Self::Killed => 137,
            Self::NeverLive | Self::NeverStarted => 143,
            Self::BudgetSpent(how) | Self::Hopeless(how) | Self::CommandEnded(how) => how.code(),
        }
    }
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hash everything watched; answered by `Hashed`.
    Hash(Cause),
    /// Render the bootstrap and start the proxy; a failure is answered by `Exited`.
    Spawn { epoch: Epoch, reason: Reason },
    /// Render the bootstrap for this epoch and let the proxy validate it; answered by `Validated`.
    Validate(Epoch),
    /// Kill the `--validate` run; still answered by `Validated`.
    KillValidator,
    /// Signal a proxy process.
    Signal(Epoch, ChildSignal),
    /// Start a companion; a failure is answered by `CompanionExited`.
    SpawnCompanion(CompanionId),
    /// Signal a companion. They know nothing of `Reopen`.
    SignalCompanion(CompanionId, ChildSignal),
    /// Ask whether the proxy is ready, as GET `/healthz/ready` would; answered by `ReadinessKnown`.
    CheckReady,
    /// Start the command of `run`; a failure is answered by `CommandExited`.
    SpawnCommand,
    /// Send this signal to the command.
    SignalCommand(u8),
    /// Kill the command, with all that it has started in its process group.
    KillCommand,
    /// Report once that this signal is ignored.
    IgnoreSignal(u8),
    /// Call the admin port of the process that has this number now; answered by `AdminReplied`.
    CallAdmin(Epoch, Call),
    /// Clear the INITIALIZING flag that a dead child has left in Envoy's shared memory (envoy#33446).
    ClearInitializing,
    /// Answer on the socket of the dead `parent`, so that `child` lives; a failure is answered by `NameTaken`.
    StandIn { parent: Epoch, child: Epoch },
    /// Open the agent's own log files anew.
    ReopenLog,
    /// Tell the operator.
    Note(Note),
    /// The end; nothing is ordered after it.
    Exit(Outcome),
}
