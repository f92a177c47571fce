//! The state that pages, `/status` and metrics show: borrowed from its owners for one answer.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::children::{ChildKind, Children};
use crate::config::CompanionCommand;
use crate::counters::Counters;
use crate::history::History;
use crate::readiness::Stage;
use crate::supervisor::{CompanionId, Epoch, Snapshot};
use crate::values::Role;
use sys::Pid;

/// The state of the agent at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The clock of this turn, and when the agent was started.
    pub(crate) now: Instant,
    pub(crate) started: Instant,
    /// `now` as time since 1970.
    pub(crate) wall: Duration,
    pub(crate) readiness: Stage,
    pub(crate) snapshot: Snapshot<'a>,
    pub(crate) history: &'a History,
    pub(crate) counters: &'a Counters,
    pub(crate) children: &'a Children,
    /// As configured by flags; their states are in `snapshot`.
    pub(crate) companions: &'a [CompanionCommand],
    pub(crate) role: Role,
    /// `--service-node`, Envoy's node id.
    pub(crate) node: &'a str,
    pub(crate) admin: SocketAddr,
    /// The configuration's last change.
    pub(crate) changed: Option<Instant>,
    /// The earliest end of a watched certificate, in seconds since 1970.
    pub(crate) certificate_expiry: Option<u64>,
}

impl View<'_> {
    /// The pid of a running epoch: `snapshot` has none, the core does not know pids.
    #[must_use]
    pub(crate) fn pid(&self, epoch: Epoch) -> Option<i32> {
        self.children.pid(ChildKind::Proxy(epoch)).map(Pid::number)
    }

    /// The pid of a companion that runs.
    #[must_use]
    pub(crate) fn companion_pid(&self, id: CompanionId) -> Option<i32> {
        self.children.pid(ChildKind::Companion(id)).map(Pid::number)
    }

    /// A companion's program alone: its arguments may hold a secret, and anybody may ask.
    #[must_use]
    pub(crate) fn companion_program(&self, id: CompanionId) -> &str {
        let companion = self.companions.get(usize::from(id.0));
        let program = companion.and_then(|companion| companion.words.first());
        program.and_then(|word| word.to_str()).unwrap_or_default()
    }

    /// An instant as time since 1970.
    #[must_use]
    pub(crate) fn wall_of(&self, instant: Instant) -> Duration {
        self.wall
            .saturating_sub(self.now.saturating_duration_since(instant))
    }

    #[must_use]
    pub(crate) fn age_of(&self, instant: Instant) -> Duration {
        self.now.saturating_duration_since(instant)
    }
}
