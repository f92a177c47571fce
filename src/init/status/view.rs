//! All that an answer about the agent may tell: made for one answer, borrowed from their owners.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::readiness::Stage;
use crate::config::Role;
use crate::counters::Counters;
use crate::history::History;
use crate::supervisor::Snapshot;

/// See the module.
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
    /// The pid of an epoch that runs; the core knows none.
    #[must_use]
    pub(crate) fn pid(&self, epoch: crate::supervisor::Epoch) -> Option<u32> {
        let lives = self.history.lives().rev();
        let mut running = lives.filter(|life| life.ended.is_none());
        running
            .find(|life| life.epoch == epoch)
            .map(|life| life.pid)
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
