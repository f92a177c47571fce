//! The debounce of pushes: changes go out after a quiet moment, or when the first has waited long enough. Then all that came is one
//! push.
//!
//! Snapshots never overlap: what arrives while one is made goes into the next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::debounce::Burst;
use api::model::{PushRequest, TriggerReason, WorkloadKey};

use crate::reason::Reasons;

/// Changes that go out as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// All streams look at all resources; otherwise those that subscribe to endpoints of `hosts` do.
    pub full: bool,
    pub hosts: BTreeSet<Arc<str>>,
    /// Proxies that look at all resources in any case.
    pub proxies: BTreeSet<WorkloadKey>,
    pub reasons: Reasons,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        !self.full && self.hosts.is_empty() && self.proxies.is_empty()
    }

    fn add(&mut self, request: PushRequest) {
        let reason = match request {
            PushRequest::Endpoints(hosts) => {
                self.hosts.extend(hosts);
                TriggerReason::Endpoint
            }
            PushRequest::Full(reason) => {
                self.full = true;
                reason
            }
            PushRequest::Proxy(proxy) => {
                self.proxies.insert(proxy);
                TriggerReason::Proxy
            }
        };
        self.reasons = self.reasons.and(reason.into());
    }
}

/// The time for which changes are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebounceOptions {
    /// The time without a change that ends a batch.
    pub quiet: Duration,
    /// The time since the first change after which a batch goes out in any case.
    pub max: Duration,
    /// True if endpoints wait, too; otherwise they go out at once.
    pub endpoints: bool,
}

/// Endpoints wait no longer, whatever else changes: one that left must not be served for as long as services come and go.
const MAX_ENDPOINTS_DELAY: Duration = Duration::from_secs(1);

impl Default for DebounceOptions {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(100),
            max: Duration::from_secs(10),
            endpoints: true,
        }
    }
}

/// Changes that wait.
#[derive(Debug)]
struct PendingChanges {
    batch: Batch,
    burst: Burst,
}

/// Endpoints that wait, and since when.
#[derive(Debug)]
struct Endpoints {
    hosts: BTreeSet<Arc<str>>,
    burst: Burst,
}

/// Collects changes; the program asks it when to push.
#[derive(Debug)]
pub struct Debounce {
    options: DebounceOptions,
    /// All changes, but for the hosts of those of endpoints.
    waiting: Option<PendingChanges>,
    endpoints: Option<Endpoints>,
    /// A snapshot is being made.
    busy: bool,
    /// A snapshot could not be built: the next one may differ in more from what is served than in what is told until then.
    behind: bool,
}

/// A batch that is due, and the time since which it waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueBatch {
    pub batch: Batch,
    pub since: Duration,
    /// Other changes wait on: only these endpoints are pushed, with all else as it was.
    pub partial: bool,
}

impl Debounce {
    pub fn new(quiet: DebounceOptions) -> Self {
        Self {
            options: quiet,
            waiting: None,
            endpoints: None,
            busy: false,
            behind: false,
        }
    }

    pub fn request(&mut self, now: Duration, request: PushRequest) {
        if let PushRequest::Endpoints(hosts) = request {
            let endpoints = self.endpoints.get_or_insert_with(|| Endpoints {
                hosts: BTreeSet::new(),
                burst: Burst::new(now),
            });
            endpoints.hosts.extend(hosts);
            endpoints.burst.add(now);
            // The quiet moment that ends a batch is one without any change.
            if let Some(waiting) = self.waiting.as_mut().filter(|_| self.options.endpoints) {
                waiting.burst.add(now);
            }
            return;
        }
        // Endpoints that wait go out with this push, so the batch is as old as they are.
        let earlier = self.endpoints.as_ref().filter(|_| self.options.endpoints);
        let first = earlier.map_or(now, |endpoints| endpoints.burst.first);
        let waiting = self.waiting.get_or_insert_with(|| PendingChanges {
            batch: Batch::default(),
            burst: Burst::new(first),
        });
        waiting.batch.add(request);
        waiting.burst.add(now);
    }

    /// Returns the batch that is due now. No other is until [`Self::done`] is called.
    pub fn due(&mut self, now: Duration) -> Option<DueBatch> {
        if self.deadline()? > now {
            return None;
        }
        self.busy = true;
        // Proxies alone do not wait: a snapshot of endpoints alone may have left hosts to the next whole one, and only a full
        // batch makes all of them.
        let is_full = |waiting: &PendingChanges| waiting.batch.full;
        let is_whole = self.others_due().is_none_or(|at| at <= now)
            || self
                .waiting
                .as_ref()
                .is_some_and(|waiting| !is_full(waiting));
        let waiting = self.waiting.take_if(|_| is_whole);
        let endpoints = self.endpoints.take();
        let firsts = [
            waiting.as_ref().map(|waiting| waiting.burst.first),
            endpoints.as_ref().map(|endpoints| endpoints.burst.first),
        ];
        let mut batch = waiting.map(|waiting| waiting.batch).unwrap_or_default();
        if let Some(endpoints) = endpoints {
            batch.add(PushRequest::Endpoints(endpoints.hosts));
        }
        let partial = self.waiting.is_some();
        // The batch of the failed snapshot is gone; only a full push makes up for what it had.
        batch.full |= self.behind && !partial;
        Some(DueBatch {
            batch,
            since: firsts.into_iter().flatten().min()?,
            partial,
        })
    }

    /// Ends the batch that [`Self::due`] returned. `is_made`: its snapshot is made and every stream has been notified;
    /// otherwise the last snapshot is served on.
    pub fn done(&mut self, due: &DueBatch, is_made: bool) {
        self.busy = false;
        // A partial push makes up for nothing: the hosts of the failed one may not be among its own.
        self.behind = !is_made || self.behind && due.partial;
    }

    /// Returns the time at which [`Self::due`] is to be called; `None`: not before another change or [`Self::done`].
    pub fn deadline(&self) -> Option<Duration> {
        if self.busy {
            return None;
        }
        [self.others_due(), self.endpoints_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the time at which all changes go out, because more than endpoints changed.
    fn others_due(&self) -> Option<Duration> {
        let waiting = self.waiting.as_ref()?;
        Some(waiting.burst.deadline(self.options.quiet, self.options.max))
    }

    fn endpoints_due(&self) -> Option<Duration> {
        let mut burst = self.endpoints.as_ref()?.burst;
        if !self.options.endpoints {
            // `PILOT_ENABLE_EDS_DEBOUNCE=false`: endpoints go out at once.
            return Some(burst.first);
        }
        if let Some(waiting) = &self.waiting {
            // Other changes put endpoints off as their own do, but for [`MAX_ENDPOINTS_DELAY`] at most.
            burst.add(waiting.burst.last.max(burst.last));
        }
        let max = self.options.max.min(MAX_ENDPOINTS_DELAY);
        Some(burst.deadline(self.options.quiet, max))
    }
}

#[cfg(test)]
mod tests;
