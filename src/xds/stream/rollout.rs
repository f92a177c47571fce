//! Make before break: the steps of one full push on one stream.
//!
//! 1. Clusters: new and changed ones, and those that vanish as they were.
//! 2. Assignments of the new and changed ones that are subscribed, changed or not: Envoy warms a changed cluster until an
//!    assignment comes after it, and does not ask again.
//! 3. When the new ones are warm: listeners, then routes.
//! 4. When those are answered: what vanished goes.
//!
//! Each wait ends after two seconds, for a client may never answer.
//!
//! The answer to a client that comes with clusters of another stream takes the same steps, see `returning`. Its requests may come
//! late, and each begins the wait under way anew: the listeners come within four seconds of its first request for clusters or
//! listeners, and the next push begins within six.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::ack_state::AckState;
use super::message::STEP;

/// The progress of a push.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// A client came with listeners of another stream while its clusters warm, and asks for clusters when they are warm.
    AwaitingClusters {
        until: Duration,
    },
    /// A client came with clusters of another stream, and is not answered yet.
    Returning,
    /// Clusters are to be looked at.
    Clusters,
    /// New clusters were sent.
    Warming(Warming),
    Listeners,
    Routes,
    /// Listeners and routes were sent; clusters that vanish are still there.
    Draining {
        until: Duration,
    },
    /// Clusters that vanish are gone; the client may not have said yet that it does not want their assignments any more.
    Dropped {
        nonce: u64,
        until: Duration,
    },
}

impl Phase {
    /// The clusters that vanish are still what they were.
    pub(super) fn keeps_clusters(&self) -> bool {
        match self {
            Self::AwaitingClusters { .. }
            | Self::Returning
            | Self::Clusters
            | Self::Warming(_)
            | Self::Listeners
            | Self::Routes
            | Self::Draining { .. } => true,
            Self::Idle | Self::Dropped { .. } => false,
        }
    }

    /// Listeners and routes are still those of the push before.
    pub(super) fn keeps_listeners(&self) -> bool {
        match self {
            Self::AwaitingClusters { .. } | Self::Returning | Self::Clusters | Self::Warming(_) => {
                true
            }
            Self::Idle
            | Self::Listeners
            | Self::Routes
            | Self::Draining { .. }
            | Self::Dropped { .. } => false,
        }
    }

    /// Another push may begin.
    pub(super) fn is_free(&self) -> bool {
        matches!(self, Self::Idle | Self::Dropped { .. })
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Warming(warming) => Some(warming.until),
            Self::AwaitingClusters { until }
            | Self::Draining { until }
            | Self::Dropped { until, .. } => Some(*until),
            Self::Idle | Self::Returning | Self::Clusters | Self::Listeners | Self::Routes => None,
        }
    }

    /// Begins the wait under way anew. Listeners come at the last moment at the latest, and are answered within a step more.
    pub(super) fn prolong(&mut self, now: Duration, last: Duration) {
        let (until, last) = match self {
            Self::Warming(warming) => (&mut warming.until, last),
            Self::Draining { until } => (until, last.saturating_add(STEP)),
            Self::Idle
            | Self::AwaitingClusters { .. }
            | Self::Returning
            | Self::Clusters
            | Self::Listeners
            | Self::Routes
            | Self::Dropped { .. } => return,
        };
        *until = now.saturating_add(STEP).min(last).max(*until);
    }
}

/// The wait of the third step for new clusters to be warm.
#[derive(Debug)]
pub(super) struct Warming {
    /// The nonce of the response with the new clusters.
    clusters: u64,
    /// New clusters whose assignments were not sent yet: the client has not asked for them.
    wanted: BTreeSet<Arc<str>>,
    /// The nonce of the last response with assignments of them.
    endpoints: u64,
    until: Duration,
}

impl Warming {
    pub(super) fn new(now: Duration, clusters: u64, wanted: BTreeSet<Arc<str>>) -> Self {
        Self {
            clusters,
            wanted,
            endpoints: 0,
            until: now.saturating_add(STEP),
        }
    }

    /// Assignments went out.
    pub(super) fn sent<'a>(&mut self, nonce: u64, names: impl Iterator<Item = &'a Arc<str>>) {
        // All new clusters have an assignment: later ones must not prolong the wait.
        if self.wanted.is_empty() {
            return;
        }
        for name in names {
            self.wanted.remove(name);
        }
        self.endpoints = nonce;
    }

    /// The client has said what it thinks of the new clusters.
    pub(super) fn is_replied_to(&self, clusters: &AckState) -> bool {
        clusters.has_reply_to(self.clusters)
    }

    /// The client has the assignments of the new clusters.
    pub(super) fn has_assignments(&self, endpoints: &AckState) -> bool {
        self.wanted.is_empty() && endpoints.has_reply_to(self.endpoints)
    }

    /// Returns true if the wait ends, warm or not. A NACK of these clusters ends it: what was refused may never be asked for.
    /// One of others may stand for hours.
    pub(super) fn is_given_up(&self, now: Duration, clusters: &AckState) -> bool {
        now >= self.until || clusters.has_nacked(self.clusters)
    }
}
