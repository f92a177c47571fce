//! The receiving end of a stream, whichever side has dialled. It outlives its streams: applied objects stay when one breaks,
//! and the next begins with them.
//!
//! A response is checked completely before a part of it is applied. For unreadable resources the response is refused, with all their
//! names; a readable resource that breaks a rule is refused alone.

mod collection;
mod collection_checksum;
mod log;
mod reader;
#[cfg(test)]
mod tests;
pub mod union;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Backoff;
use api::google::rpc::Status as RpcStatus;
use api::text::cut;

use self::collection::SinkCollection;
pub use self::collection::{Changes, CollectionStatus, SinkEntry};
use self::log::Log;
pub use self::log::{LOG_CAPACITY, Logged, Outcome};
pub use self::reader::{ReadResult, ResourceReader};
use crate::limits::{BACKOFF, NACK_BYTES, NAME};
use crate::message::{RequestResources, Resources, SinkNode};

/// gRPC's numbers.
pub const INVALID_ARGUMENT: i32 = 3;
pub const UNIMPLEMENTED: i32 = 12;

/// The bytes of names and versions in a first request. A source takes requests of 1 MiB; resources that it does not name
/// come again.
pub const VERSIONS_BYTES: usize = 900 << 10;

/// The identity of the sink, and its kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub id: String,
    pub annotations: BTreeMap<String, String>,
    /// The sink requests differences.
    pub incremental: bool,
}

/// The result of a response.
#[derive(Debug)]
pub struct ResponseResult<T> {
    /// The one answer.
    pub request: RequestResources,
    /// The applied changes. `None`: the response was refused.
    pub changes: Option<Changes<T>>,
}

/// Errors that end a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkError {
    /// A response of this collection without a nonce: a request without a nonce would subscribe anew.
    NoNonce(String),
}

impl fmt::Display for SinkError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNonce(collection) => {
                write!(
                    to,
                    "cannot answer a response without nonce of {collection:?}"
                )
            }
        }
    }
}

impl std::error::Error for SinkError {}

/// The objects of one source.
#[derive(Debug)]
pub struct Sink<T> {
    node: SinkNode,
    incremental: bool,
    versions_bytes: usize,
    collections: BTreeMap<Arc<str>, SinkCollection<T>>,
    backoff: Backoff,
    /// A message was received on the stream, and it was not this side that ended it.
    received: bool,
    log: Log,
}

impl<T> Sink<T> {
    /// Creates a sink of collections, each with the type of its bodies.
    pub fn new<'a>(
        settings: Settings,
        collections: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let collections = collections.into_iter();
        Self {
            node: SinkNode {
                id: settings.id,
                annotations: settings.annotations,
            },
            incremental: settings.incremental,
            versions_bytes: VERSIONS_BYTES,
            collections: collections
                .map(|(name, type_url)| (name.into(), SinkCollection::new(type_url)))
                .collect(),
            backoff: Backoff::new(BACKOFF),
            received: false,
            log: Log::default(),
        }
    }

    /// Sets a lower limit than [`VERSIONS_BYTES`] for first requests.
    #[must_use]
    pub fn with_versions_of(mut self, bytes: usize) -> Self {
        self.versions_bytes = bytes;
        self
    }

    /// Begins a stream: returns the first requests.
    pub fn start(&mut self, now: Duration) -> Vec<RequestResources> {
        // Until this stream brings a response, the backoff grows.
        self.received = false;
        let max = self.incremental.then_some(self.versions_bytes);
        let mut requests = Vec::with_capacity(self.collections.len());
        for (name, collection) in &mut self.collections {
            let versions = collection.begin(max);
            self.log.add(now, name, "", Outcome::Subscribed);
            requests.push(RequestResources {
                sink_node: Some(self.node.clone()),
                collection: name.to_string(),
                incremental: versions.is_some(),
                initial_resource_versions: versions.unwrap_or_default(),
                ..RequestResources::default()
            });
        }
        requests
    }

    /// Handles a response.
    ///
    /// # Errors
    ///
    /// An error that ends the stream.
    pub fn handle_response(
        &mut self,
        now: Duration,
        response: Resources,
        reader: &impl ResourceReader<Object = T>,
    ) -> Result<ResponseResult<T>, SinkError> {
        let (name, nonce) = (response.collection.clone(), response.nonce.clone());
        // Before the nonce: a source that dials sends its trigger without one, and expects UNIMPLEMENTED.
        let Some((shared, collection)) = self.collections.get_key_value(&*name) else {
            let message = format!("unsupported collection {:?}", cut(&name, NAME));
            return Ok(self.nack(now, name, nonce, UNIMPLEMENTED, &message));
        };
        if nonce.is_empty() {
            self.refuse();
            return Err(SinkError::NoNonce(cut(&name, NAME).to_owned()));
        }
        let shared = shared.clone();
        // A refused response counts, too: the source is there, and its next version may be good.
        self.received = true;
        let acked = Outcome::Acked {
            resources: response.resources.len(),
            removed: response.removed_resources.len(),
        };
        // All is read before anything is applied: a NACK tells the source that nothing was.
        let read = match collection.read(&name, response, reader) {
            Ok(read) => read,
            Err(cause) => return Ok(self.nack(now, name, nonce, INVALID_ARGUMENT, &cause)),
        };
        self.log.add(now, &name, cut(&nonce, NAME), acked);
        let mut changes = Changes::of(shared);
        if let Some(collection) = self.collections.get_mut(&*name) {
            collection.apply(now, read, &mut changes);
        }
        Ok(ResponseResult {
            request: self.ack(name, nonce),
            changes: Some(changes),
        })
    }

    /// This side ends the stream because of a message that the source may send again on the next one, so the backoff is not reset.
    pub fn refuse(&mut self) {
        self.received = false;
    }

    /// Returns the time of the next try after a stream has ended, or could not be opened. `random` is in `0.0..=1.0`.
    pub fn reconnect_at(&mut self, now: Duration, random: f64) -> Duration {
        if std::mem::take(&mut self.received) {
            self.backoff.reset();
        }
        now.saturating_add(self.backoff.next(random))
    }

    fn ack(&self, collection: String, nonce: String) -> RequestResources {
        RequestResources {
            sink_node: Some(self.node.clone()),
            collection,
            response_nonce: nonce,
            incremental: self.incremental,
            ..RequestResources::default()
        }
    }

    fn nack(
        &mut self,
        now: Duration,
        name: String,
        nonce: String,
        code: i32,
        message: &str,
    ) -> ResponseResult<T> {
        let message = cut(message, NACK_BYTES).to_owned();
        let shared: Arc<str> = message.as_str().into();
        let outcome = Outcome::Nacked(code, shared.clone());
        self.log
            .add(now, cut(&name, NAME), cut(&nonce, NAME), outcome);
        if let Some(collection) = self.collections.get_mut(&*name) {
            collection.nacked(now, code, shared);
        }
        let mut request = self.ack(name, nonce);
        request.error_detail = Some(RpcStatus {
            code,
            message,
            details: Vec::new(),
        });
        ResponseResult {
            request,
            changes: None,
        }
    }

    /// Returns true if the sink subscribes to this collection.
    pub fn subscribes_to(&self, collection: &str) -> bool {
        self.collections.contains_key(collection)
    }

    /// Returns true if every collection has been received once, on any stream.
    pub fn is_synced(&self) -> bool {
        self.collections.values().all(SinkCollection::is_received)
    }

    /// The members of a collection by name.
    pub fn entries(&self, collection: &str) -> impl Iterator<Item = (&Arc<str>, &SinkEntry<T>)> {
        self.collections
            .get(collection)
            .into_iter()
            .flat_map(SinkCollection::entries)
    }

    /// The status of each collection, for pages.
    pub fn status(&self) -> impl Iterator<Item = (&Arc<str>, CollectionStatus<'_>)> {
        let collections = self.collections.iter();
        collections.map(|(name, collection)| (name, collection.status()))
    }

    /// The last requests, the oldest first.
    pub fn log(&self) -> impl Iterator<Item = &Logged> {
        self.log.entries()
    }
}
