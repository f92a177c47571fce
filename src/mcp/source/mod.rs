//! The sending end of a stream, whichever side has dialled.
//!
//! A request and a snapshot only mark collections in which the sink's state and the published one may differ. The writer
//! calls [`Source::due`] whenever it is free, which compares and builds one response. So nothing is queued: of each
//! collection one response is in flight, and newer snapshots are compared when that one is answered. A sink that never reads
//! costs its last response, and delays no other sink.

mod lists;
mod request_rate_limit;
mod response;
mod sink_state;
mod status;
mod subscription;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::text::cut;

pub use self::lists::ListedBytes;
use self::lists::StreamShare;
pub use self::request_rate_limit::REQUESTS;
use self::request_rate_limit::RequestRateLimit;
pub use self::response::{Payload, Response};
use self::sink_state::parse_versions;
pub use self::status::{Nack, Status};
use self::subscription::Subscription;
use crate::TRIGGER;
use crate::collections::{Collections, Group};
use crate::limits::{NACK_BYTES, NAME};
use crate::message::RequestResources;
use crate::snapshot::Snapshot;

/// Bytes of the longest incremental response: the default limit of sinks.
pub const PART_BYTES: usize = 4 << 20;

/// The side that has dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialer {
    Sink,
    /// The source sends a trigger first.
    Source,
}

/// The meaning of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The first one of its collection, perhaps again.
    Subscribed,
    Acked,
    /// A NACK with gRPC's code; its message is in the status of the collection.
    Nacked(i32),
    /// The answer to a response that is not in flight. It changes nothing.
    Stale,
    /// The answer to the trigger.
    Ignored,
}

/// Errors that end a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The name, cut. gRPC's INVALID_ARGUMENT.
    Unsupported(String),
    /// The sink lists more versions than are kept for it, or for all sinks. gRPC's RESOURCE_EXHAUSTED.
    ListedTooMany,
}

impl fmt::Display for SourceError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(name) => write!(to, "unsupported collection {name:?}"),
            Self::ListedTooMany => {
                write!(to, "too many versions listed, in all collections together")
            }
        }
    }
}

impl std::error::Error for SourceError {}

/// The sending end of one stream.
#[derive(Debug)]
pub struct Source {
    collections: Arc<Collections>,
    dialled: Dialer,
    /// The trigger is to be sent.
    trigger: bool,
    part_bytes: usize,
    published: BTreeMap<Group, Arc<Snapshot>>,
    subscriptions: BTreeMap<Arc<str>, Subscription>,
    /// The nonce of the last response.
    nonce: u64,
    request_rate_limit: RequestRateLimit,
    node: Option<Arc<str>>,
    share: StreamShare,
}

impl Source {
    /// A new stream. The caller gives the published snapshots to [`Self::snapshot`].
    pub fn new(collections: Arc<Collections>, dialled: Dialer) -> Self {
        Self {
            collections,
            dialled,
            trigger: dialled == Dialer::Source,
            part_bytes: PART_BYTES,
            published: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            nonce: 0,
            request_rate_limit: RequestRateLimit::default(),
            node: None,
            share: StreamShare::default(),
        }
    }

    /// Counts the sink's listed bytes together with those of other sinks.
    #[must_use]
    pub fn counted_in(mut self, all: Arc<ListedBytes>) -> Self {
        self.share.join(all);
        self
    }

    /// Sets a lower limit than [`PART_BYTES`] for parts.
    #[must_use]
    pub fn with_parts_of(mut self, bytes: usize) -> Self {
        self.part_bytes = bytes;
        self
    }

    /// Handles a request.
    ///
    /// # Errors
    ///
    /// An error that ends the stream.
    pub fn request(
        &mut self,
        now: Duration,
        request: &RequestResources,
    ) -> Result<RequestKind, SourceError> {
        // First of all: stale and ignored requests cost work, too.
        self.request_rate_limit.count(now);
        // The sink refuses the trigger as a collection that it does not know.
        if self.dialled == Dialer::Source && request.collection == TRIGGER {
            return Ok(RequestKind::Ignored);
        }
        let Some((collection, _)) = self.collections.find(&request.collection) else {
            let name = cut(&request.collection, NAME).to_owned();
            return Err(SourceError::Unsupported(name));
        };
        if let (None, Some(node)) = (&self.node, &request.sink_node) {
            self.node = Some(cut(&node.id, NAME).into());
        }
        if request.response_nonce.is_empty() {
            let subscription = self.subscriptions.entry(collection.clone());
            let versions = parse_versions(&request.initial_resource_versions);
            subscription
                .or_insert_with(Subscription::new)
                .begin(request.incremental, versions);
            if !self.count_lists() {
                return Err(SourceError::ListedTooMany);
            }
            return Ok(RequestKind::Subscribed);
        }
        let awaiting = self.subscriptions.get_mut(collection);
        let Some(subscription) = awaiting.filter(|one| one.awaits(&request.response_nonce)) else {
            return Ok(RequestKind::Stale);
        };
        let Some(error) = &request.error_detail else {
            subscription.ack(request.incremental);
            // An ACK adds published names alone, which are not counted, so the lists cannot become too many here.
            self.count_lists();
            return Ok(RequestKind::Acked);
        };
        let message = cut(&error.message, NACK_BYTES);
        subscription.nack(now, request.incremental, error.code, message);
        Ok(RequestKind::Nacked(error.code))
    }

    /// Counts the bytes of the sink's lists; returns false if they are too many.
    fn count_lists(&mut self) -> bool {
        let all = self.subscriptions.values().map(Subscription::listed_bytes);
        self.share.set(all.fold(0, usize::saturating_add))
    }

    /// Sets the newest snapshot of a group.
    pub fn snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.published.insert(snapshot.group(), snapshot);
    }

    /// Returns the next response; the caller repeats until there is none.
    pub fn due(&mut self) -> Option<Response> {
        if std::mem::take(&mut self.trigger) {
            return Some(Response::trigger());
        }
        let nonce = self.nonce.saturating_add(1);
        for (collection, subscription) in &mut self.subscriptions {
            // Only known collections are subscribed to.
            let (_, group) = self.collections.find(collection)?;
            let snapshot = self.published.get(&group);
            let Some(target) = snapshot.and_then(|snapshot| snapshot.get(collection)) else {
                continue;
            };
            if let Some(response) = subscription.next(target, nonce, self.part_bytes) {
                self.nonce = nonce;
                return Some(response);
            }
        }
        // The sink's list may equal the published version.
        self.count_lists();
        None
    }

    /// Returns the time at which the next request may be read, if that is not now.
    pub fn resume(&self, now: Duration) -> Option<Duration> {
        self.request_rate_limit.resume(now)
    }

    /// The sink's name for itself.
    pub fn node(&self) -> Option<&Arc<str>> {
        self.node.as_ref()
    }

    /// The status of each collection, for pages.
    pub fn status(&self) -> impl Iterator<Item = (&Arc<str>, Status<'_>)> {
        let subscriptions = self.subscriptions.iter();
        subscriptions.map(|(collection, one)| (collection, one.status()))
    }
}
