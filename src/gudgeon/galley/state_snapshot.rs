//! A copy of the engine's state, taken under the engine's lock: rendering it may take long, and does not hold that lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mcp::collections::Group;
use mcp::publish::Published;
use mcp::session::{Reason, State};
use sources::catalogue::{ConfigReport, Refused, Warned};

/// A publish, for the page.
#[derive(Clone, Debug)]
pub(super) struct Publish {
    pub(super) group: Group,
    pub(super) at: Duration,
    /// The number of changes, and the time that the first of them has waited.
    pub(super) changes: u64,
    pub(super) waited: Duration,
}

/// The state of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionState {
    pub(super) number: u64,
    pub(super) state: State,
    pub(super) since: Duration,
    pub(super) reason: Reason,
    pub(super) buffered: usize,
}

#[derive(Clone, Debug)]
pub(super) struct StateSnapshot {
    pub(super) session: SessionState,
    /// The source has sent all its objects.
    pub(super) complete: bool,
    /// The time since which the source is unreachable, and the reason.
    pub(super) stale: Option<(Duration, String)>,
    pub(super) report: Arc<ConfigReport>,
    /// The report about generated objects, which is usually small.
    pub(super) generated: ConfigReport,
    /// The newest of each group.
    pub(super) published: Vec<Published>,
    pub(super) counts: BTreeMap<Group, u64>,
    /// The last, the oldest first.
    pub(super) publishes: Vec<Publish>,
}

impl StateSnapshot {
    /// Iterates over the objects that are not served as written.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Refused> {
        self.report.refused.iter().chain(&self.generated.refused)
    }

    /// Iterates over the objects with warnings, served or not.
    pub(super) fn warned(&self) -> impl Iterator<Item = &Warned> {
        self.report.warned.iter().chain(&self.generated.warned)
    }

    /// Returns the number of publishes of a group.
    pub(super) fn count(&self, group: Group) -> u64 {
        self.counts.get(&group).copied().unwrap_or_default()
    }
}
