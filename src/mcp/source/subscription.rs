//! One collection on one stream: the sink's state, the response in flight, the last NACK.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::lists::bytes_of;
use super::response::{Payload, Response, around, removal_len};
use super::sink_state::{Difference, SinkState, Versions};
use super::status::{Nack, Status};
use crate::snapshot::Collection;
use crate::version::Sum;

#[derive(Debug)]
pub(super) struct Subscription {
    incremental: bool,
    /// The last request is not answered completely yet, so a final response is due, which may be empty.
    is_answer_due: bool,
    sink_state: SinkState,
    /// The approximate bytes of the list of the sink, until the sink is known to have the published version.
    listed_bytes: usize,
    in_flight: Option<InFlight>,
    /// Names that superseded responses may have changed at the sink, against its own list, until it answers a later one.
    doubtful: BTreeSet<Arc<str>>,
    /// The version that the sink has accepted or refused last.
    answered_version: Option<Sum>,
    acked: Option<Sum>,
    sent: Option<Sum>,
    nacks: u64,
    last_nack: Option<Nack>,
    warned: bool,
}

/// A response that the sink has not answered.
#[derive(Debug)]
struct InFlight {
    nonce: u64,
    target: Arc<Collection>,
    incremental: bool,
    /// `None`: with this response the sink has the whole target.
    part: Option<Difference>,
}

impl Subscription {
    pub(super) fn new() -> Self {
        Self {
            incremental: false,
            is_answer_due: false,
            sink_state: SinkState::Own(Versions::new()),
            listed_bytes: 0,
            in_flight: None,
            doubtful: BTreeSet::new(),
            answered_version: None,
            acked: None,
            sent: None,
            nacks: 0,
            last_nack: None,
            warned: false,
        }
    }

    /// Begins anew, with the sink's list of its versions. A response in flight may have arrived before that list was made,
    /// or arrive later.
    pub(super) fn begin(&mut self, incremental: bool, listed: Versions) {
        if let Some(in_flight) = self.in_flight.take() {
            self.doubt(&in_flight, &listed);
        }
        let mut versions = listed;
        // A name in doubt has no version, so any that the sink may have is replaced or removed.
        versions.extend(self.doubtful.iter().map(|name| (name.clone(), None)));
        self.incremental = incremental;
        self.is_answer_due = true;
        self.listed_bytes = bytes_of(&versions, &self.doubtful);
        self.sink_state = SinkState::Own(versions);
        // A new subscription gets an answer, even with a version that the sink has answered before.
        self.answered_version = None;
    }

    /// Returns the approximate bytes of the names and versions that the sink has listed.
    pub(super) const fn listed_bytes(&self) -> usize {
        self.listed_bytes
    }

    /// Notes that the sink has the published version.
    fn has(&mut self, target: Arc<Collection>) {
        self.sink_state = SinkState::Shared(target);
        self.listed_bytes = 0;
    }

    fn doubt(&mut self, in_flight: &InFlight, listed: &Versions) {
        let target = &in_flight.target;
        let touched = match (&in_flight.part, in_flight.incremental) {
            (Some(part), _) => part,
            (None, true) => &self.sink_state.difference(target),
            (None, false) => &SinkState::Own(listed.clone()).difference(target),
        };
        let removed = touched.removed.iter();
        let removed = removed.filter(|name| listed.contains_key(*name));
        let fresh = touched.fresh.iter();
        let fresh = fresh.filter(|one| listed.get(&one.name) != Some(&Some(one.version)));
        self.doubtful
            .extend(removed.chain(fresh.map(|one| &one.name)).cloned());
    }

    /// Returns true if the nonce is that of the response in flight.
    pub(super) fn awaits(&self, nonce: &str) -> bool {
        let in_flight = self.in_flight.as_ref();
        in_flight.is_some_and(|in_flight| in_flight.nonce.to_string() == nonce)
    }

    pub(super) fn ack(&mut self, incremental: bool) {
        self.incremental = incremental;
        let Some(in_flight) = self.in_flight.take() else {
            return;
        };
        // The sink answers in order: having answered this response, it has handled all that were sent before.
        self.doubtful.clear();
        match in_flight.part {
            Some(part) => {
                self.sink_state.take(&part);
                // A part is not the target: the next one follows at once.
                self.answered_version = None;
            }
            None => {
                let version = Some(in_flight.target.version());
                self.is_answer_due = false;
                self.answered_version = version;
                self.acked = version;
                self.has(in_flight.target);
            }
        }
    }

    pub(super) fn nack(&mut self, now: Duration, incremental: bool, code: i32, message: &str) {
        self.incremental = incremental;
        let Some(in_flight) = self.in_flight.take() else {
            return;
        };
        self.doubtful.clear();
        let version = in_flight.target.version();
        // The sink's state stays as it was, since it applies nothing of a refused response.
        self.answered_version = Some(version);
        self.nacks = self.nacks.saturating_add(1);
        self.last_nack = Some(Nack {
            at: now,
            nonce: in_flight.nonce,
            version,
            code,
            message: message.into(),
        });
    }

    /// Returns the next response that is due, with its nonce.
    pub(super) fn next(
        &mut self,
        target: &Arc<Collection>,
        nonce: u64,
        part_bytes: usize,
    ) -> Option<Response> {
        let is_answered = self.answered_version == Some(target.version());
        if self.in_flight.is_some() || is_answered {
            return None;
        }
        let (resources, removed, part) = if self.incremental {
            let all = self.sink_state.difference(target);
            if all.is_empty() && !self.is_answer_due {
                self.agree(target);
                return None;
            }
            // The room for resources and removals alone; all other parts of the message are counted at their
            // longest.
            let (now, later) = cut(all, part_bytes.saturating_sub(around(target.name())));
            let resources = Payload::Some(now.fresh.clone());
            let removed = now.removed.clone();
            (resources, removed, later.then_some(now))
        } else {
            (Payload::All(target.clone()), Vec::new(), None)
        };
        let mut response = Response {
            collection: target.name().clone(),
            version: Some(target.version()),
            nonce,
            resources,
            removed,
            incremental: self.incremental,
            oversized: None,
        };
        // The length walks all members, so it is taken until the one warning is out.
        if !self.warned {
            let length = response.encoded_len();
            response.oversized = (length > part_bytes).then_some(length);
            self.warned = response.oversized.is_some();
        }
        self.sent = Some(target.version());
        self.in_flight = Some(InFlight {
            nonce,
            target: target.clone(),
            incremental: self.incremental,
            part,
        });
        Some(response)
    }

    /// Marks a target that the sink has already as answered. A version that it has refused last stays refused.
    fn agree(&mut self, target: &Arc<Collection>) {
        if self.answered_version.is_none() {
            self.answered_version = Some(target.version());
            self.acked = self.answered_version;
            self.has(target.clone());
        }
    }

    pub(super) fn status(&self) -> Status<'_> {
        Status {
            sent: self.sent,
            acked: self.acked,
            pending_nonce: self.in_flight.as_ref().map(|in_flight| in_flight.nonce),
            incremental: self.incremental,
            nacks: self.nacks,
            last_nack: self.last_nack.as_ref(),
        }
    }
}

/// The part that goes into one response, at least one change, removals first; and whether there is more.
fn cut(mut all: Difference, bytes: usize) -> (Difference, bool) {
    let mut used = 0_usize;
    let mut fits = |length: usize| {
        // The first change is sent in any size: without it the difference would never end.
        let is_first = used == 0;
        used = used.saturating_add(length);
        is_first || used <= bytes
    };
    let removed = all
        .removed
        .iter()
        .take_while(|name| fits(removal_len(name)));
    let removed = removed.count();
    let fresh = all.fresh.iter().take_while(|one| fits(one.framed().len()));
    let fresh = fresh.count();
    let is_cut = removed < all.removed.len() || fresh < all.fresh.len();
    all.removed.truncate(removed);
    all.fresh.truncate(fresh);
    (all, is_cut)
}
