//! One proxy process, as the core sees it.
//!
//! # The order of a hand-over
//!
//! Measured with Envoy 1.40.0. The child binds its sockets, attaches to the shared memory and sets INITIALIZING; loads its
//! bootstrap; ShutdownAdmin: the parent closes its admin port and tells a parent of its own to end; takes the listening
//! sockets, one per worker; starts its workers; DrainListeners: the parent drains, the flag is cleared, the time of
//! `--parent-shutdown-time-s` begins; Stats, every 5 s; Terminate: the parent sends itself TERM and exits 0.
//!
//! # What comes of a start
//!
//! | situation | outcome |
//! |---|---|
//! | epoch 0, base id free | LIVE after about 50 ms |
//! | epoch 0, base id in use | exit 1, errno 98; the first one is unharmed |
//! | N + 1 while N initialises | exit 1 after 0.06 s, "still initializing"; N is unharmed, the same number can be tried again |
//! | N + 1 while N - 1 drains | N - 1 ends at once, and its connections are cut |
//! | bad bootstrap | exit 1; the parent keeps data plane and admin port; the stuck flag (`hot_restart`) |
//! | failure after ShutdownAdmin (a certificate that is missing) | the same, but the parent's admin port is closed for good |
//! | epoch > 0, no parent | ten tries of a second, SIGABRT after 10.1 s |
//! | epoch > 0, no shared memory | SIGABRT at once |
//!
//! `--mode validate` finds both failures: it loads certificates, binds nothing and touches neither file nor sockets.
//!
//! # Exit codes
//!
//! 0: TERM, INT, `/quitquitquit`, dismissed by the child. 1: arguments, configuration, hot restart refused. 134 (SIGABRT):
//! panic or failed assertion. 137: killed. 143: TERM before Envoy has its handlers.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::action::Reason;
use super::event::{Epoch, Fingerprint, ProcessId};
use super::hang::Silence;

/// The first poll for LIVE: a small static configuration is LIVE after about 50 ms (measured, Envoy 1.40).
const FIRST_POLL: Duration = Duration::from_millis(50);
/// Polls slow down to this. Chosen: a proxy that waits for its control plane costs two small requests a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A state in the life of an epoch.
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
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, not a state"
)]
pub struct Process {
    pub epoch: Epoch,
    pub(super) serial: u32,
    pub reason: Reason,
    /// The configuration that it was started with.
    pub configuration: Fingerprint,
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
    /// Nothing has answered at its admin port, and that was not told yet.
    pub(super) unheard: bool,
    pub(super) silence: Silence,
    /// Somebody had stopped it when it was looked at last.
    pub(super) stopped: bool,
    /// The files changed while it started: it may have read others than those of `configuration`.
    pub(super) unsure: bool,
    polls: u32,
}

impl Process {
    pub(super) fn new(
        ProcessId { epoch, serial }: ProcessId,
        reason: Reason,
        configuration: Fingerprint,
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
            unheard: true,
            silence: Silence::default(),
            stopped: false,
            unsure: false,
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

    /// Returns the delay until the next poll: short at first, because most proxies are LIVE at once.
    pub(super) fn poll_delay(&mut self) -> Duration {
        let delay = FIRST_POLL
            .saturating_mul(1 << self.polls.min(4))
            .min(POLL_INTERVAL);
        self.polls = self.polls.saturating_add(1);
        delay
    }
}
