//! One moment of the engine, taken in no time: who draws it may take long, and nothing waits for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::config::{Rejected, Report, Warned};
use mcp::catalog::Group;
use mcp::publish::Published;
use mcp::session::{Reason, State};

/// A publish, for the page.
#[derive(Clone, Debug)]
pub(super) struct Publish {
    pub(super) group: Group,
    pub(super) at: Duration,
    /// How many changes went into it, and how long the first has waited.
    pub(super) changes: u64,
    pub(super) waited: Duration,
}

/// Where the session is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) number: u64,
    pub(super) state: State,
    pub(super) since: Duration,
    pub(super) reason: Reason,
    pub(super) buffered: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) session: Standing,
    /// The source has said all that it has.
    pub(super) complete: bool,
    /// Since when the source is not to be reached, and why.
    pub(super) stale: Option<(Duration, String)>,
    pub(super) report: Arc<Report>,
    /// The same of what is made: it is seldom much.
    pub(super) made: Report,
    /// The newest of each group.
    pub(super) published: Vec<Published>,
    pub(super) counts: BTreeMap<Group, u64>,
    /// The last, the oldest first.
    pub(super) publishes: Vec<Publish>,
}

impl Moment {
    /// All that is not served as it is written.
    pub(super) fn rejected(&self) -> impl Iterator<Item = &Rejected> {
        self.report.rejected.iter().chain(&self.made.rejected)
    }

    /// All that is served and could be better, or is not served and need not be.
    pub(super) fn warned(&self) -> impl Iterator<Item = &Warned> {
        self.report.warned.iter().chain(&self.made.warned)
    }

    /// How many publishes of a group there were.
    pub(super) fn count(&self, group: Group) -> u64 {
        self.counts.get(&group).copied().unwrap_or_default()
    }
}
