//! The objects of one source, over all its streams.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::config::Object;
use api::config::collections::type_url_of;
use mcp::message;
use mcp::objects::ObjectReader;
use mcp::sink::{self, Changes, ReadResult, ResourceReader, Sink};
use sources::catalogue::Origin;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, OwnedMutexGuard};

use crate::log_rate_limiter::LogRateLimiter;

/// An object as a source has it.
#[derive(Debug)]
pub(crate) struct ReceivedObject {
    /// The object. Its `spec` is `null`, as the body has the same content.
    pub(crate) object: Arc<Object>,
    /// Seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `None`: all that is known is its source.
    pub(crate) origin: Option<Origin>,
}

/// A source may transform Ingresses, as galley does.
pub(super) const READER: ObjectReader = ObjectReader {
    is_generated_name: transform::ingress::is_generated_name,
};

/// Reads objects, and when they were made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader;

impl ResourceReader for Reader {
    type Object = ReceivedObject;

    fn read(
        &self,
        collection: &str,
        resource: &message::Resource,
    ) -> ReadResult<Arc<ReceivedObject>> {
        let metadata = resource.metadata.as_ref();
        let created = metadata.and_then(|metadata| metadata.create_time.as_ref());
        let created = created.map(|time| time.seconds);
        match READER.read(collection, resource) {
            ReadResult::Accepted(object) => {
                let mut object = Arc::unwrap_or_clone(object);
                object.spec = serde_json::Value::Null;
                let object = Arc::new(object);
                ReadResult::Accepted(Arc::new(ReceivedObject {
                    object,
                    created,
                    origin: None,
                }))
            }
            ReadResult::Refused(findings) => ReadResult::Refused(findings),
            ReadResult::Unreadable(cause) => ReadResult::Unreadable(cause),
        }
    }
}

/// The function that applies a source's changes, of all collections at once. None: its state is another one.
pub(crate) type Apply = Arc<dyn Fn(&[Changes<ReceivedObject>]) + Send + Sync>;

/// The objects of one source, over all its streams.
pub(crate) struct SourceObjects {
    /// A long response is read under this lock, beside the event loop, which must not block meanwhile: it waits for its turn.
    sink: Arc<AsyncMutex<Sink<ReceivedObject>>>,
    /// Every collection was given once.
    pub(super) synced: AtomicBool,
    /// Streams that are open.
    streams: AtomicUsize,
    /// The reason why no stream delivers objects, until one does.
    lost: Mutex<Option<Arc<str>>>,
    pub(super) apply: Apply,
    pub(super) log_limiters: Arc<SourceLogRateLimiters>,
}

/// The log limiters of one source, or of all that dial.
#[derive(Debug)]
pub(super) struct SourceLogRateLimiters {
    /// Limits for log lines: streams begun, responses applied, streams ended.
    pub(super) dials: LogRateLimiter,
    pub(super) begins: LogRateLimiter,
    pub(super) ends: LogRateLimiter,
    /// Responses that are refused.
    pub(super) refused: LogRateLimiter,
    /// Resources that break a rule.
    pub(super) refused_objects: LogRateLimiter,
}

impl Default for SourceLogRateLimiters {
    fn default() -> Self {
        Self {
            dials: LogRateLimiter::new(10),
            begins: LogRateLimiter::new(10),
            ends: LogRateLimiter::new(10),
            refused: LogRateLimiter::new(10),
            refused_objects: LogRateLimiter::new(100),
        }
    }
}

impl fmt::Debug for SourceObjects {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SourceObjects")
            .field("sink", &self.sink)
            .finish_non_exhaustive()
    }
}

impl SourceObjects {
    /// Creates an empty set. `id` is the ID that this program sends as a node.
    pub(crate) fn new(id: &str, collections: &[String], apply: Apply) -> Arc<Self> {
        Self::sharing(id, collections, apply, Arc::default())
    }

    /// Creates an empty set whose log lines count among those of others.
    pub(super) fn sharing(
        id: &str,
        collections: &[String],
        apply: Apply,
        log_limiters: Arc<SourceLogRateLimiters>,
    ) -> Arc<Self> {
        let settings = sink::Settings {
            id: id.to_owned(),
            annotations: BTreeMap::new(),
            incremental: true,
        };
        let types = collections.iter().map(|collection| {
            let type_url = type_url_of(collection);
            (collection.as_str(), type_url.unwrap_or_default())
        });
        let types: Vec<_> = types.collect();
        let types = types.iter().map(|(name, url)| (*name, url.as_str()));
        Arc::new(Self {
            sink: Arc::new(AsyncMutex::new(Sink::new(settings, types))),
            synced: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            lost: Mutex::default(),
            apply,
            log_limiters,
        })
    }

    /// Returns true if every collection has been received once.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    /// Returns the reason why no stream delivers objects, until one does.
    pub(crate) fn lost(&self) -> Option<Arc<str>> {
        self.cause().clone()
    }

    fn cause(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the source as lost, and notifies the owner of its changes.
    pub(super) fn mark_lost(&self, cause: &str) {
        let before = self.cause().replace(cause.into());
        // A retry that fails for the same reason changes nothing for the owner.
        if before.as_deref() != Some(cause) {
            (self.apply)(&[]);
        }
    }

    /// Marks the source as there again.
    pub(super) fn mark_connected(&self) {
        let before = self.cause().take();
        if before.is_some() {
            (self.apply)(&[]);
        }
    }

    /// Waits for a turn at the objects, on the event loop.
    pub(super) async fn sink(&self) -> OwnedMutexGuard<Sink<ReceivedObject>> {
        Arc::clone(&self.sink).lock_owned().await
    }

    /// Blocks for a turn at the objects, on a thread beside the event loop: pages, and long responses. It panics on the event loop.
    pub(crate) fn blocking_sink(&self) -> AsyncMutexGuard<'_, Sink<ReceivedObject>> {
        self.sink.blocking_lock()
    }
}

/// An open stream among those of its source: with the last one the source is lost, however that stream ends.
pub(super) struct OpenStream<'a>(&'a SourceObjects);

impl<'a> OpenStream<'a> {
    pub(super) fn new(objects: &'a SourceObjects) -> Self {
        objects.streams.fetch_add(1, Ordering::Relaxed);
        Self(objects)
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        if self.0.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.mark_lost("no stream is open");
        }
    }
}
