//! One proxy process, as the core sees it.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::action::Reason;
use super::event::{Configuration, Epoch, ProcessId};
use super::hang::Silence;

/// The first poll for LIVE: a small static configuration is LIVE after about 50 ms (peers.md §3.3).
const FIRST_POLL: Duration = Duration::from_millis(50);
/// The contract's interval; polls slow down to it.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Where an epoch is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Spawned, not LIVE yet.
    Starting,
    /// Serves.
    Live,
    /// Its child is LIVE; it ends by itself.
    Draining,
    /// We asked it to end.
    Stopping(Why),
}

/// Why a process was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// To be started afresh.
    Afresh,
    /// It was not LIVE in time; counts as a failure.
    TooLate,
    /// It was LIVE, and does not answer any more; counts as a crash.
    Hangs,
    /// It is a parent whose child has ended cleanly.
    Leftover,
    /// The agent ends.
    End,
}

/// A proxy process that has been started and not been reaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub epoch: Epoch,
    pub(super) serial: u32,
    pub reason: Reason,
    /// What it was started with.
    pub configuration: Configuration,
    pub started: Instant,
    pub state: State,
    /// Since when it is LIVE.
    pub live_since: Option<Instant>,
    /// It was started beside a parent, and so has `--live-timeout` to be LIVE.
    pub had_parent: bool,
    /// The logs were rotated while it could not be told yet.
    pub owes_reopen: bool,
    /// Its admin port may be closed for good, or never was where it should be: then silence there means nothing.
    pub admin_gone: bool,
    pub(super) silence: Silence,
    polls: u32,
}

impl Process {
    pub(super) fn new(
        ProcessId { epoch, serial }: ProcessId,
        reason: Reason,
        configuration: Configuration,
        now: Instant,
    ) -> Self {
        Self {
            epoch,
            serial,
            reason,
            configuration,
            started: now,
            state: State::Starting,
            live_since: None,
            had_parent: false,
            owes_reopen: false,
            admin_gone: false,
            silence: Silence::default(),
            polls: 0,
        }
    }

    #[must_use]
    pub const fn id(&self) -> ProcessId {
        ProcessId {
            epoch: self.epoch,
            serial: self.serial,
        }
    }

    /// Whether clients reach it.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.state == State::Live
    }

    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        matches!(self.state, State::Stopping(_))
    }

    /// Whether its end is nothing that went wrong: it was asked to end, or has handed over.
    #[must_use]
    pub const fn may_end(&self) -> bool {
        match self.state {
            State::Draining => true,
            State::Stopping(why) => !matches!(why, Why::TooLate | Why::Hangs),
            State::Starting | State::Live => false,
        }
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// How long until the next poll: quick at first, because most proxies are LIVE at once.
    pub(super) fn poll_delay(&mut self) -> Duration {
        let delay = FIRST_POLL
            .saturating_mul(1 << self.polls.min(4))
            .min(POLL_INTERVAL);
        self.polls = self.polls.saturating_add(1);
        delay
    }
}
