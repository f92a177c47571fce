//! The end of a stream that gives, whoever has dialled.
//!
//! A request and a snapshot only say where what the sink has and what it is to have may differ. [`Source::due`], asked
//! whenever the writer is free, compares and makes one response. So nothing is queued: of each collection one response is on
//! its way, and what is published meanwhile is looked at when that one is answered. A sink that never reads costs what it was
//! sent last, and delays nobody.

mod held;
mod pace;
mod response;
mod status;
mod subscription;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::held::said;
use self::pace::Pace;
pub use self::pace::REQUESTS;
pub use self::response::{Carried, Response};
pub use self::status::{Nack, Status};
use self::subscription::Subscription;
use crate::TRIGGER;
use crate::catalog::{Catalog, Group};
use crate::cut::{NAME, WORDS, cut};
use crate::message::RequestResources;
use crate::snapshot::Snapshot;

/// The longest incremental response: what sinks are willing to take unless they were told otherwise.
pub const PART_BYTES: usize = 4 << 20;

/// Which side has dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialled {
    Sink,
    /// It says so first.
    Source,
}

/// What a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The first one of its collection, perhaps again.
    Subscribed,
    Acked,
    /// With gRPC's code; the words are in the status of the collection.
    Nacked(i32),
    /// The answer to a response that is not on its way. Nothing came of it.
    Stale,
    /// The answer to the trigger.
    Ignored,
}

/// Why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The name, cut. gRPC's INVALID_ARGUMENT.
    Unsupported(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(name) => write!(to, "unsupported collection {name:?}"),
        }
    }
}

impl std::error::Error for Fault {}

/// One stream.
#[derive(Debug)]
pub struct Source {
    catalog: Arc<Catalog>,
    dialled: Dialled,
    /// The trigger is to be sent.
    trigger: bool,
    part_bytes: usize,
    published: BTreeMap<Group, Arc<Snapshot>>,
    subscriptions: BTreeMap<Arc<str>, Subscription>,
    /// Of the last response.
    nonce: u64,
    pace: Pace,
    node: Option<Arc<str>>,
}

impl Source {
    /// A stream on which nothing was said. What is published already is given to [`Self::snapshot`].
    pub fn new(catalog: Arc<Catalog>, dialled: Dialled) -> Self {
        Self {
            catalog,
            dialled,
            trigger: dialled == Dialled::Source,
            part_bytes: PART_BYTES,
            published: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            nonce: 0,
            pace: Pace::default(),
            node: None,
        }
    }

    /// With shorter parts than [`PART_BYTES`].
    #[must_use]
    pub fn with_parts_of(mut self, bytes: usize) -> Self {
        self.part_bytes = bytes;
        self
    }

    /// Takes a request in.
    ///
    /// # Errors
    ///
    /// What ends the stream.
    pub fn request(&mut self, now: Duration, request: &RequestResources) -> Result<Heard, Fault> {
        self.pace.count(now);
        if self.dialled == Dialled::Source && request.collection == TRIGGER {
            return Ok(Heard::Ignored);
        }
        let Some((collection, _)) = self.catalog.find(&request.collection) else {
            let name = cut(&request.collection, NAME).to_owned();
            return Err(Fault::Unsupported(name));
        };
        if let (None, Some(node)) = (&self.node, &request.sink_node) {
            self.node = Some(cut(&node.id, NAME).into());
        }
        if request.response_nonce.is_empty() {
            let subscription = self.subscriptions.entry(collection.clone());
            let held = said(&request.initial_resource_versions);
            subscription
                .or_insert_with(Subscription::new)
                .begin(request.incremental, held);
            return Ok(Heard::Subscribed);
        }
        let awaiting = self.subscriptions.get_mut(collection);
        let Some(subscription) = awaiting.filter(|one| one.awaits(&request.response_nonce)) else {
            return Ok(Heard::Stale);
        };
        let Some(error) = &request.error_detail else {
            subscription.ack(request.incremental);
            return Ok(Heard::Acked);
        };
        let words = cut(&error.message, WORDS);
        subscription.nack(now, request.incremental, error.code, words);
        Ok(Heard::Nacked(error.code))
    }

    /// Takes a snapshot in: the newest of its group.
    pub fn snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.published.insert(snapshot.group(), snapshot);
    }

    /// What is to be sent now; to be asked again until there is nothing.
    pub fn due(&mut self) -> Option<Response> {
        if std::mem::take(&mut self.trigger) {
            return Some(Response::trigger());
        }
        let nonce = self.nonce.saturating_add(1);
        for (collection, subscription) in &mut self.subscriptions {
            let (_, group) = self.catalog.find(collection)?;
            let snapshot = self.published.get(&group);
            let Some(target) = snapshot.and_then(|snapshot| snapshot.get(collection)) else {
                continue;
            };
            if let Some(response) = subscription.next(target, nonce, self.part_bytes) {
                self.nonce = nonce;
                return Some(response);
            }
        }
        None
    }

    /// When the next request may be read, if that is not now.
    pub fn resume(&self, now: Duration) -> Option<Duration> {
        self.pace.resume(now)
    }

    /// What the sink calls itself.
    pub fn node(&self) -> Option<&Arc<str>> {
        self.node.as_ref()
    }

    /// What the page shows, by collection.
    pub fn status(&self) -> impl Iterator<Item = (&Arc<str>, Status<'_>)> {
        let subscriptions = self.subscriptions.iter();
        subscriptions.map(|(collection, one)| (collection, one.status()))
    }
}
