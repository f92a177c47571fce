//! Notes of the core to the operator, as data; one place for the words.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use super::action::Outcome;
use super::command::CommandNote;
use super::companions::CompanionId;
use super::event::{Asker, Epoch, ExitStatus, Fingerprint};

/// A line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    WaitingForCertificates,
    /// They did not come in time; epoch 0 starts without them.
    CertificatesMissing,
    /// A new configuration is the desired one.
    Changed(Fingerprint),
    /// The desired configuration is again the one that runs; a start that waited is called off.
    ChangedBack(Fingerprint),
    /// A restart was asked for by SIGHUP.
    RestartRequested,
    /// A restart waits until this epoch is LIVE.
    WaitsForLive(Epoch),
    /// A restart waits until this parent has drained.
    WaitsForParent(Epoch),
    /// The sole epoch is stopped, to be started afresh.
    StoppedAfresh(Epoch),
    Live {
        epoch: Epoch,
        after: Duration,
    },
    /// Its shared memory says that it is LIVE; its admin port is not where it should be.
    LiveByMemory(Epoch),
    /// The first epoch runs, and nothing has answered where its admin port should be.
    NoAnswer(&'static str),
    /// The parent has handed over and drains.
    Draining(Epoch),
    Ended {
        epoch: Epoch,
        how: ExitStatus,
    },
    /// Nobody had asked for it.
    Crashed {
        epoch: Epoch,
        how: ExitStatus,
    },
    /// A child died before it was LIVE; its parent goes on.
    ChildFailed {
        epoch: Epoch,
        how: ExitStatus,
        parent: Epoch,
    },
    /// It took longer than `--live-timeout`.
    TooLate(Epoch),
    /// It was silent for `--proxy-hang-timeout`.
    Hangs {
        epoch: Epoch,
        silent: Duration,
    },
    /// The budget is spent on a child; the parent keeps its configuration. `again`: one more try failed, too.
    GaveUp {
        parent: Epoch,
        delay: Duration,
        again: bool,
    },
    RetryIn {
        delay: Duration,
        left: u32,
    },
    Refilled,
    /// `--validate` said no.
    Refused {
        how: ExitStatus,
        keeps: Option<Epoch>,
    },
    /// `--validate` could not be asked: its run was killed, too slow, or not started.
    NotValidated(ExitStatus),
    /// A parent died before its time.
    ParentDied {
        parent: Epoch,
        child: Epoch,
        how: ExitStatus,
    },
    /// A draining parent outlived its time, or was `stopped`, and its child may wait for it.
    ParentHangs {
        parent: Epoch,
        child: Epoch,
        stopped: bool,
    },
    /// `--on-clean-exit=idle`.
    Idle,
    Restarting {
        delay: Duration,
    },
    /// A signal that means nothing in this phase.
    Ignored(&'static str),
    StopRequested {
        graceful: bool,
        by: Asker,
    },
    /// POST `/drain`.
    DrainRequested,
    /// POST `/quitquitquit`.
    QuitRequested,
    DrainBegan(Duration),
    /// The admin port did not take the drain; the time is waited for all the same, now or when the agent stops.
    DrainRefused {
        stopping: bool,
    },
    NoConnections,
    Terminating,
    /// The proxies that are left are killed: a third request `asked` for it, or they did not end in their time.
    Killing {
        asked: bool,
    },
    /// A companion ended by itself and comes again.
    CompanionFailed {
        id: CompanionId,
        how: ExitStatus,
        delay: Duration,
    },
    /// A companion ended while the agent ends.
    CompanionEnded {
        id: CompanionId,
        how: ExitStatus,
    },
    StoppingCompanions,
    KillingCompanion(CompanionId),
    /// A note about the command of `run`.
    Command(CommandNote),
    /// A killed process is still there; the agent ends without it.
    Abandoned,
    Finished {
        outcome: Outcome,
        by: Option<Asker>,
    },
}

impl Note {
    /// Whether it deserves a warning.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        matches!(
            self,
            Self::CertificatesMissing
                | Self::Crashed { .. }
                | Self::ChildFailed { .. }
                | Self::TooLate(_)
                | Self::Hangs { .. }
                | Self::LiveByMemory(_)
                | Self::NoAnswer(_)
                | Self::GaveUp { .. }
                | Self::Refused { .. }
                | Self::NotValidated(_)
                | Self::ParentDied { .. }
                | Self::ParentHangs { .. }
                | Self::Idle
                | Self::DrainRefused { .. }
                | Self::Killing { .. }
                | Self::CompanionFailed { .. }
                | Self::KillingCompanion(_)
                | Self::Command(CommandNote::Stopping | CommandNote::Killing)
                | Self::Abandoned
        )
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitingForCertificates => f.write_str("waiting for certificates"),
            Self::CertificatesMissing => {
                f.write_str("certificates did not appear in time, starting without them")
            }
            Self::Changed(configuration) => write!(f, "configuration changed to {configuration}"),
            Self::ChangedBack(configuration) => {
                write!(
                    f,
                    "configuration is {configuration} again, which runs already"
                )
            }
            Self::RestartRequested => f.write_str("restart requested by SIGHUP"),
            Self::WaitsForLive(epoch) => write!(f, "restart waits until {epoch} is LIVE"),
            Self::WaitsForParent(epoch) => write!(f, "restart waits until {epoch} has drained"),
            Self::StoppedAfresh(epoch) => write!(f, "stopping {epoch} to start afresh"),
            Self::Live { epoch, after } => {
                write!(f, "{epoch} is LIVE after {}", Seconds(*after))
            }
            Self::LiveByMemory(epoch) => write!(
                f,
                "{epoch} has initialised, but its admin port does not say so: is --proxy-admin-port the one of its configuration?"
            ),
            Self::NoAnswer(admin) => {
                write!(f, "no answer at {admin}: is it --proxy-admin-port?")
            }
            Self::Draining(epoch) => write!(f, "{epoch} has handed over and drains"),
            Self::Ended { epoch, how } | Self::Crashed { epoch, how } => write!(f, "{epoch} {how}"),
            Self::ChildFailed { epoch, how, parent } => {
                write!(f, "{epoch} {how} before it was LIVE, keeping {parent}")
            }
            Self::TooLate(_)
            | Self::Hangs { .. }
            | Self::GaveUp { .. }
            | Self::Refused { .. }
            | Self::ParentHangs { .. }
            | Self::NotValidated(_) => self.failing(f),
            Self::RetryIn { delay, left } => {
                write!(f, "next try in {}, {left} more after it", Seconds(*delay))
            }
            Self::Refilled => f.write_str("proxy ran long enough, retry budget is full again"),
            Self::ParentDied { parent, child, how } => {
                write!(f, "{parent} {how} before {child} had dismissed it")
            }
            Self::Idle => f.write_str("no proxy runs; idle until a change or SIGHUP"),
            Self::Restarting { delay } => write!(f, "restarting in {}", Seconds(*delay)),
            Self::Ignored(why) => write!(f, "signal ignored: {why}"),
            Self::StopRequested { .. }
            | Self::DrainRequested
            | Self::QuitRequested
            | Self::DrainBegan(_)
            | Self::DrainRefused { .. }
            | Self::NoConnections
            | Self::Terminating
            | Self::Killing { .. }
            | Self::StoppingCompanions
            | Self::Abandoned => self.ending(f),
            Self::CompanionFailed { id, how, delay } => {
                write!(f, "{id} {how}, next try in {}", Seconds(*delay))
            }
            Self::CompanionEnded { id, how } => write!(f, "{id} {how}"),
            Self::KillingCompanion(id) => write!(f, "{id} did not stop in time, killing it"),
            Self::Command(note) => note.fmt(f),
            Self::Finished { outcome, by } => finished(*outcome, *by, f),
        }
    }
}

impl Note {
    /// The words for what a proxy or a change came to nothing by.
    fn failing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::TooLate(epoch) = self {
            write!(f, "{epoch} is not LIVE in time, killing it")
        } else if let Self::Hangs { epoch, silent } = self {
            let silent = Seconds(*silent);
            write!(
                f,
                "{epoch} hangs, killing it: its admin port is silent for {silent}"
            )
        } else if let Self::GaveUp {
            parent,
            delay,
            again,
        } = self
        {
            f.write_str(if *again {
                "the new configuration fails still"
            } else {
                "retry budget spent, giving the new configuration up"
            })?;
            let delay = Seconds(*delay);
            write!(
                f,
                ", keeping {parent}: tried again in {delay}, and at the next change"
            )
        } else if let Self::Refused { how, keeps } = self {
            write!(f, "the proxy does not accept the new bootstrap (it {how})")?;
            keeps.map_or(Ok(()), |epoch| write!(f, ", keeping {epoch}"))
        } else if let Self::ParentHangs {
            parent,
            child,
            stopped,
        } = self
        {
            let why = if *stopped {
                "was stopped"
            } else {
                "did not end in its time"
            };
            write!(f, "{parent} {why}, killing it for {child}")
        } else if let Self::NotValidated(how) = self {
            write!(f, "cannot validate the new bootstrap: the proxy {how}")
        } else {
            Ok(())
        }
    }

    /// The words of a drain and of the end.
    fn ending(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::DrainBegan(longest) = self {
            return write!(f, "draining for at most {}", Seconds(*longest));
        }
        if let Self::StopRequested { graceful, by } = self {
            let how = if *graceful { "draining" } else { "no drain" };
            return write!(f, "stop requested by {by}, {how}");
        }
        f.write_str(if matches!(self, Self::DrainRequested) {
            "drain requested on the status port, not stopping"
        } else if matches!(self, Self::QuitRequested) {
            "stop requested on the status port"
        } else if matches!(self, Self::DrainRefused { stopping: true }) {
            "cannot ask the proxy to drain, waiting the drain time instead"
        } else if matches!(self, Self::DrainRefused { stopping: false }) {
            "cannot ask the proxy to drain, a stop will wait the drain time"
        } else if matches!(self, Self::NoConnections) {
            "no connection is left, drain ends"
        } else if matches!(self, Self::Terminating) {
            "stopping the proxy"
        } else if matches!(self, Self::Killing { asked: true }) {
            "asked a third time, killing the proxy"
        } else if matches!(self, Self::Killing { asked: false }) {
            "the proxy did not stop in time, killing it"
        } else if matches!(self, Self::StoppingCompanions) {
            "stopping the companions"
        } else {
            "a killed process is still there, ending without it"
        })
    }
}

fn finished(outcome: Outcome, by: Option<Asker>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let missed = outcome == Outcome::NeverStarted;
    if matches!(
        outcome,
        Outcome::Stopped | Outcome::Killed | Outcome::NeverLive
    ) || missed && by.is_some()
    {
        f.write_str("stopped on request")?;
        if let Some(by) = by {
            write!(f, " ({by})")?;
        }
    } else if missed || outcome == Outcome::ProxyEnded {
        f.write_str("the proxy exited with code 0 by itself")?;
    }
    match outcome {
        Outcome::Stopped | Outcome::ProxyEnded => {}
        Outcome::Killed => f.write_str(", a process had to be killed")?,
        Outcome::NeverLive => f.write_str(" before the proxy was ever LIVE")?,
        Outcome::BudgetSpent(how) => {
            write!(
                f,
                "retry budget spent and nothing serves: the last proxy {how}"
            )?;
        }
        Outcome::Hopeless(how) => {
            let cause = match how.code() {
                127 => "not found, see --binary-path",
                126 => "not executable",
                _ => "its configuration is refused or a port taken, its log says why",
            };
            write!(f, "no retry would help, the proxy {how}: {cause}")?;
        }
        Outcome::NeverStarted => f.write_str(" before the command was started")?,
        Outcome::CommandEnded(how) => write!(f, "the command {how}")?,
    }
    write!(f, ", exit code {}", outcome.code())
}

/// A duration as an operator reads it, to the millisecond: `0.2s`, `61.5s`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.subsec_millis() * 1_000_000;
        f.write_str(&decimal_seconds(Duration::new(self.0.as_secs(), nanos)))
    }
}

/// A duration to the nanosecond, as proto JSON wants it: `1.5s`.
#[must_use]
pub fn decimal_seconds(duration: Duration) -> String {
    let mut text = duration.as_secs().to_string();
    let nanos = duration.subsec_nanos();
    if nanos > 0 {
        // A billion more, so that the leading zeros are there; then the 1 is cut off.
        let padded = (u64::from(nanos) + 1_000_000_000).to_string();
        text.push('.');
        text.push_str(padded.get(1..).unwrap_or("").trim_end_matches('0'));
    }
    text.push('s');
    text
}
