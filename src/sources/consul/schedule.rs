//! Schedules Consul's queries: (now, event) → queries to begin and queries to cancel. Without socket and clock.
//!
//! A *waiting* query is a blocking query: it names the index of its last answer, and is answered when there is something
//! newer, or after a minute. Each takes a connection, so names beyond [`WAITING`] are read in turn. An agent may allow fewer
//! connections (200 by default) and closes those beyond without a response; then only as many wait as the agent has accepted
//! before.
//!
//! A failure of one query (a refusal, an unreadable answer) delays that query alone. While Consul itself is away, one query
//! at a time probes whether it is back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

mod query;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use self::query::{End, Query, QueryChanges, QueryPath, QueryTarget};
use self::slot::{Outage, Phase, QuerySlot};

/// Services with a waiting query. Chosen: each takes a connection; agents that allow fewer get fewer.
pub(crate) const WAITING: usize = 1000;
/// The interval of reads of a service without a waiting query. Chosen: the time after which users call a change late.
pub(crate) const TURN: Duration = Duration::from_secs(10);
/// The number of such reads at a time. Chosen: 100 ms each serve 800 services a turn.
pub(crate) const READS: usize = 8;
/// Queries at a time that Consul is to answer at once. Chosen: a third of the 200 connections that an agent allows by default.
const FIRST: usize = 64;
/// The interval in which at most `FIRST` queries begin: an agent at its limit closes connections before the next.
const STEP: Duration = Duration::from_millis(50);
/// The least interval of a target's queries: an index that changes all the time does not cause a query each time. Chosen: four
/// pushes a second at most.
const MIN_PAUSE: Duration = Duration::from_millis(250);
/// The same where an answer has no index to wait from. Chosen: one poll a second costs an agent little.
const BLIND: Duration = Duration::from_secs(1);
/// A connection that is closed within this time, while `MIN_WAITING` others wait, exceeds the agent's limit.
/// Chosen: an agent closes such a connection at once.
const LIMIT_REACHED_WITHIN: Duration = Duration::from_secs(1);
const MIN_WAITING: usize = 16;

#[derive(Debug)]
pub(crate) struct Schedule {
    slots: BTreeMap<QueryTarget, QuerySlot>,
    under_way: BTreeMap<u64, QueryTarget>,
    due: BTreeSet<(Duration, QueryTarget)>,
    reads_due: BTreeSet<(Duration, QueryTarget)>,
    /// Services that have a waiting query, and how many may.
    waiting: usize,
    max: usize,
    /// The number of slots that were never answered, and of those that have failed.
    unanswered: usize,
    failed: usize,
    /// Reads, queries that wait, and others that are under way.
    reads: usize,
    established: usize,
    first: usize,
    outage: Option<Outage>,
    /// The time at which the step began, and the number of queries in it.
    step: Duration,
    begun: usize,
    ticket: u64,
    /// Closed connections with tickets up to this one do not lower the limit again.
    shrunk: u64,
    cancel: Vec<u64>,
}

impl Schedule {
    pub(crate) fn new(now: Duration) -> Self {
        let mut schedule = Self {
            slots: BTreeMap::new(),
            under_way: BTreeMap::new(),
            due: BTreeSet::new(),
            reads_due: BTreeSet::new(),
            waiting: 0,
            max: WAITING,
            unanswered: 0,
            failed: 0,
            reads: 0,
            established: 0,
            first: 0,
            outage: None,
            step: now,
            begun: 0,
            ticket: 0,
            shrunk: 0,
            cancel: Vec::new(),
        };
        schedule.add(now, &QueryTarget::Names);
        schedule
    }

    /// Replaces the set of services. Services that are gone are no longer queried.
    pub(crate) fn names(&mut self, now: Duration, names: &BTreeSet<Arc<str>>) {
        let gone: Vec<QueryTarget> = self
            .slots
            .keys()
            .filter(|target| matches!(target, QueryTarget::Service(name) if !names.contains(name)))
            .cloned()
            .collect();
        for target in gone {
            self.give_up(&target);
            if let Some(slot) = self.slots.remove(&target) {
                self.waiting -= usize::from(slot.waits);
                self.unanswered -= usize::from(!slot.answered);
                self.failed -= usize::from(slot.has_failed());
            }
        }
        for name in names {
            let target = QueryTarget::Service(name.clone());
            if !self.slots.contains_key(&target) {
                self.add(now, &target);
            }
        }
    }

    /// Ends a query. `random` is in `0.0..1.0`. `None` if the query was cancelled.
    pub(crate) fn ended(
        &mut self,
        now: Duration,
        ticket: u64,
        end: End,
        random: f64,
    ) -> Option<QueryTarget> {
        let target = self.under_way.get(&ticket)?.clone();
        let Phase::UnderWay { since, .. } = self.slots.get(&target)?.phase else {
            return None;
        };
        self.remove(&target);
        let away = match end {
            End::Answered { .. } => false,
            End::Away => true,
            End::Closed => !self.is_limit_reached(now, ticket, since),
            // Consul without a leader answers 500 to every query.
            End::Refused { status } => target == QueryTarget::Names && status >= 500,
            End::Useless => false,
        };
        let again = if away {
            self.lose(now, ticket, random);
            // Consul may come back without having reached the index: a query that waits for it would miss
            // changes.
            self.with(&target, |slot| slot.index = 0);
            now
        } else {
            // Every answer, even a refusal, proves that Consul is back; a closed connection proves nothing.
            if end != End::Closed {
                self.outage = None;
            }
            self.complete(now, &target, since, end, random)
        };
        self.enqueue(&target, again);
        Some(target)
    }

    /// Returns the queries to begin and to cancel now.
    pub(crate) fn next(&mut self, now: Duration) -> QueryChanges {
        if now >= self.step + STEP {
            (self.step, self.begun) = (now, 0);
        }
        let mut changes = QueryChanges::default();
        while let Some(target) = self.ready(now) {
            changes.begin.extend(self.begin(now, &target));
        }
        changes.cancel = std::mem::take(&mut self.cancel);
        changes
    }

    /// Returns the time at which [`Self::next`] should be called without an event.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if let Some(outage) = &self.outage {
            // While the probe is under way its end is the next event.
            return outage.probe.is_none().then_some(outage.until);
        }
        let due = self.due.first().filter(|_| self.first < FIRST);
        let read = self.reads_due.first().filter(|_| self.reads < READS);
        let at = due.into_iter().chain(read).map(|(at, _)| *at).min()?;
        if self.begun >= FIRST {
            return Some(at.max(self.step + STEP));
        }
        Some(at)
    }

    /// Returns true if every target has been answered once.
    pub(crate) fn is_complete(&self) -> bool {
        self.unanswered == 0
    }

    /// Returns true if a query fails at present.
    pub(crate) fn is_failing(&self) -> bool {
        self.outage.is_some() || self.failed > 0
    }

    /// Services that are read in turn.
    pub(crate) fn in_turn(&self) -> usize {
        // The slot of the names is no service's.
        self.slots.len().saturating_sub(1 + self.waiting)
    }

    fn add(&mut self, now: Duration, target: &QueryTarget) {
        self.slots.insert(target.clone(), QuerySlot::new());
        self.unanswered += 1;
        self.enqueue(target, now);
    }

    fn with(&mut self, target: &QueryTarget, change: impl FnOnce(&mut QuerySlot)) {
        if let Some(slot) = self.slots.get_mut(target) {
            change(slot);
        }
    }

    /// Removes a target from its queue, or from the queries under way; then returns its ticket.
    fn remove(&mut self, target: &QueryTarget) -> Option<u64> {
        let slot = self.slots.get_mut(target)?;
        match std::mem::replace(&mut slot.phase, Phase::Out) {
            Phase::Out => None,
            Phase::Due(at) => {
                let entry = (at, target.clone());
                let _in_one = self.due.remove(&entry) || self.reads_due.remove(&entry);
                None
            }
            Phase::UnderWay { ticket, .. } => {
                match (slot.is_read(target), slot.index) {
                    (true, _) => self.reads -= 1,
                    (false, 0) => self.first -= 1,
                    (false, _) => self.established -= 1,
                }
                self.under_way.remove(&ticket);
                Some(ticket)
            }
        }
    }

    fn give_up(&mut self, target: &QueryTarget) {
        let ticket = self.remove(target);
        self.cancel.extend(ticket);
        if let Some(outage) = &mut self.outage
            && ticket.is_some()
            && outage.probe == ticket
        {
            outage.probe = None;
        }
    }

    /// Moves a target to its queue.
    fn enqueue(&mut self, target: &QueryTarget, at: Duration) {
        self.give_up(target);
        let Some(slot) = self.slots.get_mut(target) else {
            return;
        };
        slot.phase = Phase::Due(at);
        if *target != QueryTarget::Names {
            // The slot gives its place back first, so that a lowered limit takes effect here.
            self.waiting -= usize::from(slot.waits);
            slot.waits = self.waiting < self.max;
            self.waiting += usize::from(slot.waits);
        }
        let queue = if slot.is_read(target) {
            // A read must be answered at once and not at the next change.
            slot.index = 0;
            &mut self.reads_due
        } else {
            &mut self.due
        };
        queue.insert((at, target.clone()));
    }

    fn ready(&mut self, now: Duration) -> Option<QueryTarget> {
        let first = |queue: &BTreeSet<(Duration, QueryTarget)>| {
            let (at, target) = queue.first()?;
            (*at <= now).then(|| target.clone())
        };
        if let Some(outage) = &self.outage {
            if now < outage.until || outage.probe.is_some() {
                return None;
            }
            let names = self
                .due
                .iter()
                .find(|(_, target)| *target == QueryTarget::Names);
            return names
                .map(|(_, names)| names.clone())
                .or_else(|| first(&self.due))
                .or_else(|| first(&self.reads_due));
        }
        if self.begun >= FIRST {
            return None;
        }
        // Waiting queries are free, but each begins with an immediate read.
        if self.first < FIRST
            && let Some(target) = first(&self.due)
        {
            return Some(target);
        }
        first(&self.reads_due).filter(|_| self.reads < READS)
    }

    fn begin(&mut self, now: Duration, target: &QueryTarget) -> Option<Query> {
        self.remove(target);
        self.ticket += 1;
        self.begun += 1;
        let ticket = self.ticket;
        let slot = self.slots.get_mut(target)?;
        slot.phase = Phase::UnderWay { ticket, since: now };
        match (slot.is_read(target), slot.index) {
            (true, _) => self.reads += 1,
            (false, 0) => self.first += 1,
            (false, _) => self.established += 1,
        }
        if let Some(outage) = &mut self.outage {
            outage.probe = Some(ticket);
        }
        let query = Query {
            ticket,
            target: target.clone(),
            way: slot.way,
            index: slot.index,
            // Until the agent has shown that it accepts so many, a query must not block for long.
            brief: slot.is_new && self.established > FIRST,
        };
        // A query with index 0 only fetches the index: the one after it is the first that waits.
        slot.is_new = slot.index == 0;
        self.under_way.insert(ticket, target.clone());
        Some(query)
    }

    /// Applies the end of a query that concerns its target alone; returns the time of the target's next query.
    fn complete(
        &mut self,
        now: Duration,
        target: &QueryTarget,
        since: Duration,
        end: End,
        random: f64,
    ) -> Duration {
        let Some(slot) = self.slots.get_mut(target) else {
            return now;
        };
        let soon = now.max(since.saturating_add(MIN_PAUSE));
        let is_read = slot.is_read(target);
        match end {
            End::Answered { index } => {
                self.unanswered -= usize::from(!slot.answered);
                self.failed -= usize::from(slot.has_failed());
                let index = index.unwrap_or(0);
                slot.take_answer(now, index);
                match (is_read, index) {
                    (true, _) => now + TURN,
                    (false, 0) => now.max(since + BLIND),
                    (false, _) => soon,
                }
            }
            End::Refused { status: 403 | 404 }
                if slot.way == QueryPath::Health && *target != QueryTarget::Names =>
            {
                slot.way = QueryPath::Catalog;
                slot.refused = Some(now);
                slot.index = 0;
                soon
            }
            End::Refused { .. } | End::Useless => {
                slot.way = QueryPath::Health;
                slot.refused = None;
                slot.index = 0;
                // A service that is never readable does not delay the start; the names are required.
                let answered = slot.answered || *target != QueryTarget::Names;
                self.unanswered -= usize::from(answered && !slot.answered);
                self.failed += usize::from(!slot.has_failed());
                slot.answered = answered;
                now + slot.backoff.next(random)
            }
            // Too many connections: the schedule finds the limit.
            End::Closed | End::Away => {
                slot.index = 0;
                soon
            }
        }
    }

    /// Handles an outage of Consul. The first query that fails schedules the probe, and then each probe that fails.
    fn lose(&mut self, now: Duration, ticket: u64, random: f64) {
        if let Some(outage) = &mut self.outage {
            outage.goes_on(now, ticket, random);
        } else {
            self.outage = Some(Outage::new(now, random));
            // Consul may come back with other limits.
            self.max = WAITING;
        }
    }

    /// Returns true if a connection was closed because there were too many, and lowers the number of waiting queries.
    fn is_limit_reached(&mut self, now: Duration, ticket: u64, since: Duration) -> bool {
        if self.outage.is_some()
            || now > since + LIMIT_REACHED_WITHIN
            || self.established < MIN_WAITING
        {
            return false;
        }
        // Open queries go on: an agent counts a cancelled query until its `wait` is over.
        if ticket <= self.shrunk || self.waiting > self.max {
            return true;
        }
        self.shrunk = self.ticket;
        // A tenth for others, and a place for each read.
        let max = (self.established * 9 / 10).saturating_sub(READS).max(1);
        self.max = self.max.min(max);
        // Each queued target is placed again: those beyond the new limit are read in turn.
        for (at, target) in std::mem::take(&mut self.due) {
            self.due.insert((at, target.clone()));
            self.enqueue(&target, at);
        }
        true
    }
}
