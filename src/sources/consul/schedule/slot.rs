//! The schedule's state of one target, and of Consul as a whole.

use std::time::Duration;

use api::backoff::{Backoff, Bounds};

use super::query::{QueryPath, QueryTarget};

/// The backoff after an error.
const BOUNDS: Bounds = Bounds {
    first: Duration::from_secs(1),
    max: Duration::from_secs(30),
};

/// The time after which refused checks are queried again: a token that is exchanged may be refused for a moment,
/// and a service without its checks is served whether it is well or not. A waiting query ends within a minute, so that they are
/// back within two. Chosen: two requests more in that time and for that service.
const RECHECK: Duration = Duration::from_secs(60);
#[derive(Debug)]
pub(super) enum Phase {
    /// The target is in neither queue.
    Out,
    Due(Duration),
    UnderWay {
        ticket: u64,
        since: Duration,
    },
}

#[derive(Debug)]
pub(super) struct QuerySlot {
    pub(super) way: QueryPath,
    /// The time at which its checks were refused, while the catalog is queried instead.
    pub(super) refused: Option<Duration>,
    pub(super) index: u64,
    /// Has a waiting query; else it is read in turn.
    pub(super) waits: bool,
    pub(super) phase: Phase,
    pub(super) backoff: Backoff,
    /// Has not waited yet.
    pub(super) is_new: bool,
    /// Answered or refused since it is known.
    pub(super) answered: bool,
}

/// Consul is away.
#[derive(Debug)]
pub(super) struct Outage {
    pub(super) until: Duration,
    pub(super) probe: Option<u64>,
    pub(super) backoff: Backoff,
}

impl QuerySlot {
    pub(super) const fn new() -> Self {
        Self {
            way: QueryPath::Health,
            refused: None,
            index: 0,
            waits: false,
            phase: Phase::Out,
            backoff: Backoff::new(BOUNDS),
            is_new: true,
            answered: false,
        }
    }

    /// Takes the index of an answer, and returns to the checks once they were refused long enough ago.
    pub(super) fn take_answer(&mut self, now: Duration, index: u64) {
        self.answered = true;
        self.backoff.reset();
        // An index that goes backwards comes from a restored Consul: its documentation wants a query anew
        // from 0.
        let went_back = index < self.index;
        self.index = if went_back { 0 } else { index };
        if self.refused.is_some_and(|refused| now >= refused + RECHECK) {
            self.refused = None;
            self.way = QueryPath::Health;
            // The index of the catalog says nothing of checks.
            self.index = 0;
        }
    }

    /// Returns true if the last query failed.
    pub(super) const fn has_failed(&self) -> bool {
        self.backoff.waited()
    }

    /// A service that is read in turn.
    pub(super) fn is_read(&self, target: &QueryTarget) -> bool {
        *target != QueryTarget::Names && !self.waits
    }
}

impl Outage {
    pub(super) fn new(now: Duration, random: f64) -> Self {
        let mut backoff = Backoff::new(BOUNDS);
        Self {
            until: now + backoff.next(random),
            probe: None,
            backoff,
        }
    }
    /// Extends the outage if the probe failed; other queries prove nothing.
    pub(super) fn goes_on(&mut self, now: Duration, ticket: u64, random: f64) {
        if self.probe == Some(ticket) {
            self.probe = None;
            self.until = now + self.backoff.next(random);
        }
    }
}
