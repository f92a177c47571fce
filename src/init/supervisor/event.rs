//! Facts that reach the core: past tense, with ids and values, never descriptors.

#![forbid(unsafe_code)]

use std::fmt;

use super::companions::CompanionId;
use super::timers::Timer;

/// The number of a proxy process, Envoy's `--restart-epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// One process among all that are ever started: the number of an epoch comes again, and what is known of the process that
/// had it before is not true of the one that has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    pub epoch: Epoch,
    /// Counts starts, from 1.
    pub serial: u32,
}

/// The SHA-256 of all that is watched, which tells one configuration from another; two are compared, never looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    /// The first 12 hex digits: enough to tell configurations apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(6)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Without its SIG, as `kill -l` has it; `None` for those of real time.
fn signal_name(number: u8) -> Option<&'static str> {
    // The same on every Linux that Envoy is built for.
    const NAMES: &str = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";
    NAMES.split(' ').nth(usize::from(number).checked_sub(1)?)
}

/// The origin of a wish that the agent end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Signal(Signal),
    /// POST `/quitquitquit`.
    StatusPort,
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => {
                f.write_str("SIG")?;
                f.write_str(signal_name(signal.number()).unwrap_or_default())
            }
            Self::StatusPort => f.write_str("/quitquitquit"),
        }
    }
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Code(u8),
    Signal(u8),
    /// SIGKILL, and the cgroup counted an out-of-memory kill.
    OutOfMemory,
    /// It never ran; the code that a shell would give: 127 not found, 126 not executable, 78 no bootstrap, 71 otherwise.
    NotStarted(u8),
}

impl ExitStatus {
    /// The exit code that stands for it, 128 + n for a signal.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Code(code) | Self::NotStarted(code) => code,
            Self::Signal(number) => number.saturating_add(128),
            Self::OutOfMemory => 137,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(number) => match signal_name(*number) {
                Some(name) => write!(f, "was killed by signal {number} (SIG{name})"),
                None => write!(f, "was killed by signal {number}"),
            },
            Self::OutOfMemory => f.write_str("was killed by signal 9 (SIGKILL, out of memory)"),
            Self::NotStarted(code) => write!(f, "could not be started (code {code})"),
        }
    }
}

/// A question to Envoy's admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Is the asked epoch's own admin port there, and is it LIVE?
    Live,
    /// Drain the listeners.
    Drain,
    /// The number of open downstream connections.
    Connections,
    /// Asked of Envoy's shared memory instead, before a process is given up or stopped without a drain: has it finished its
    /// initialisation? The configuration may have no admin port, or another one.
    Memory,
    /// Asked of /proc instead: has somebody stopped the process, by SIGSTOP or with a debugger?
    Stopped,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// LIVE at the epoch that was asked for.
    Live,
    /// Another state, or another epoch's port.
    NotLive,
    /// The drain has begun.
    Draining,
    Connections(u64),
    /// To `Call::Live`: the port does not answer. It may take connections.
    Silent,
    /// To `Call::Stopped`: it is. `Failed`: it is not, or there is no /proc.
    Stopped,
    /// Refused, not understood, or silent.
    Failed,
}

/// A signal, by what it means to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Interrupt,
    Quit,
    Hangup,
    Usr1,
    /// Ignored; the command of `run` gets it.
    Other(u8),
}

impl Signal {
    /// Its number, the same on every Linux that Envoy is built for.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Usr1 => 10,
            Self::Terminate => 15,
            Self::Other(number) => number,
        }
    }
}

/// Why the files were hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The watcher noticed something.
    Noticed,
    /// The net under it.
    Rescan,
}

/// A fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process of this epoch ended, or could not be started.
    Exited { epoch: Epoch, how: ExitStatus },
    /// A companion ended, or could not be started.
    CompanionExited {
        companion: CompanionId,
        how: ExitStatus,
    },
    /// The command of `run` ended, or could not be started.
    CommandExited(ExitStatus),
    /// The answer to `CheckReady`.
    ReadinessKnown(bool),
    /// The `--validate` run ended.
    Validated { how: ExitStatus },
    /// Something that is watched may have changed.
    FilesChanged,
    /// Watching by inotify works, or does not: then only rescans notice.
    WatchDegraded(bool),
    /// The files were hashed. `complete`: all required certificates are there.
    Hashed {
        configuration: Fingerprint,
        complete: bool,
        cause: Cause,
    },
    /// The admin port answered, or did not.
    AdminReplied {
        process: ProcessId,
        call: Call,
        reply: Reply,
    },
    /// The stand-in cannot have the name of this dead parent.
    NameTaken { parent: Epoch },
    /// A signal came.
    Signalled(Signal),
    /// POST `/drain`: drain without stopping.
    DrainRequested,
    /// POST `/quitquitquit`: stop at once, no drain.
    QuitRequested,
    /// A timer that was armed is due.
    Due(Timer),
}
