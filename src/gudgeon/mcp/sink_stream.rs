//! One stream that takes: each response is answered before the next is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::config::Object;
use api::config::collections::type_url_of;
use bytes::Bytes;
use hyper::body::Body;
use mcp::TRIGGER;
use mcp::message::{self, RequestResources, Resources};
use mcp::objects::ObjectReader;
use mcp::sink::{self, Changes, ReadResult, ResourceReader, ResponseResult, Sink};
use prost::Message as _;
use sources::Origin;
use tonic::Status;
use tracing::{info, warn};

use super::peers::Peers;
use crate::grpc::{BodyError, Inbound, ResponseSender, framed};
use crate::log_rate_limiter::LogRateLimiter;
use crate::secrets;

/// Resources of one response at most.
pub(super) const RESOURCES: usize = 200_000;
/// A response that is longer is read beside the loop: its rules take their time.
const LONG_BYTES: usize = 64 << 10;

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
struct Reader;

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

/// The function that applies a source's changes.
pub(crate) type Apply = Arc<dyn Fn(&Changes<ReceivedObject>) + Send + Sync>;

/// The objects of one source, over all its streams.
pub(crate) struct SourceObjects {
    sink: Mutex<Sink<ReceivedObject>>,
    /// Every collection was given once.
    synced: AtomicBool,
    /// Streams that are open.
    streams: AtomicUsize,
    /// The cause for which no stream gives it anything, until one does.
    lost: Mutex<Option<Arc<str>>>,
    apply: Apply,
    pub(super) log_limiters: SourceLogRateLimiters,
}

/// The log limiters of one source.
#[derive(Debug)]
pub(super) struct SourceLogRateLimiters {
    /// Limits for log lines: streams begun, responses applied, streams ended.
    pub(super) dials: LogRateLimiter,
    begins: LogRateLimiter,
    pub(super) ends: LogRateLimiter,
    /// Responses that are refused.
    refused: LogRateLimiter,
    /// Resources that break a rule.
    refused_objects: LogRateLimiter,
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
            sink: Mutex::new(Sink::new(settings, types)),
            synced: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            lost: Mutex::default(),
            apply,
            log_limiters: SourceLogRateLimiters::default(),
        })
    }

    /// Returns true if every collection has been received once.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    /// Returns why no stream gives it anything, until one does.
    pub(crate) fn lost(&self) -> Option<Arc<str>> {
        self.cause().clone()
    }

    fn cause(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the source as lost, and notifies the owner of its changes.
    pub(super) fn lose(&self, cause: &str) {
        let before = self.cause().replace(cause.into());
        if before.as_deref() != Some(cause) {
            (self.apply)(&Changes::default());
        }
    }

    /// Marks the source as there again.
    fn find(&self) {
        let before = self.cause().take();
        if before.is_some() {
            (self.apply)(&Changes::default());
        }
    }

    pub(crate) fn sink(&self) -> MutexGuard<'_, Sink<ReceivedObject>> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open stream among those of its source: with the last one the source is lost, however that stream ends.
struct OpenStream<'a>(&'a SourceObjects);

impl<'a> OpenStream<'a> {
    fn new(objects: &'a SourceObjects) -> Self {
        objects.streams.fetch_add(1, Ordering::Relaxed);
        Self(objects)
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        if self.0.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.lose("no stream is open");
        }
    }
}

/// A stream.
pub(super) struct SinkStream<'a, B> {
    pub(super) objects: &'a Arc<SourceObjects>,
    pub(super) peers: &'a Arc<Peers>,
    pub(super) inbound: Inbound<B>,
    pub(super) sender: Arc<ResponseSender>,
    /// The peer's name in the log.
    pub(super) name: &'a str,
}

impl<B> SinkStream<'_, B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    /// Runs the stream to its end; returns true if a response was received, and the peer ended the stream.
    pub(super) async fn run(mut self) -> (Status, bool) {
        let mut has_received = false;
        let objects = Arc::clone(self.objects);
        let _open = OpenStream::new(&objects);
        let status = self.run_stream(&mut has_received).await;
        let is_refused = !(self.sender.is_gone() || self.inbound.is_ended());
        if is_refused {
            objects.sink().refuse();
        }
        (status, has_received && !is_refused)
    }

    async fn run_stream(&mut self, has_received: &mut bool) -> Status {
        let asked = self.objects.sink().start(self.peers.clock.now());
        // All first requests are sent before the first response is awaited.
        self.sender
            .put(asked.iter().map(|one| Bytes::from(framed(one))));
        loop {
            if self.sender.is_gone() {
                let status = self.inbound.final_status().await;
                return status.unwrap_or_else(|| Status::unavailable("peer disconnected"));
            }
            let free = self.sender.is_free();
            tokio::select! {
                response = self.inbound.next::<Resources>(), if free => match response {
                    Ok(Some(response)) => {
                        if !std::mem::replace(has_received, true)
                            && let Some(more) = self.objects.log_limiters.begins.suffix_if_allowed()
                        {
                            info!("receiving configuration from {}{more}", self.name);
                        }
                        self.objects.find();
                        match self.handle_response(response).await {
                            Ok(answer) => self.sender.put([framed(&answer).into()]),
                            Err(status) => return status,
                        }
                    }
                    Ok(None) => return Status::ok(""),
                    Err(status) => {
                        self.peers.counters.unheard();
                        return status;
                    }
                },
                () = self.sender.moved() => {}
            }
        }
    }

    async fn handle_response(&mut self, response: Resources) -> Result<RequestResources, Status> {
        let now = self.peers.clock.now();
        let collection = response.collection.clone();
        let bytes = response.encoded_len();
        // A peer may send any name.
        let known = self.objects.sink().subscribes_to(&collection) || collection == TRIGGER;
        let counted = if known { &*collection } else { "other" };
        self.peers.counters.message_received(counted, bytes);
        let read = if bytes > LONG_BYTES {
            let objects = Arc::clone(self.objects);
            let reads = move || objects.sink().handle_response(now, response, &Reader);
            let read = tokio::task::spawn_blocking(reads).await;
            read.map_err(|_| Status::internal("internal error; the stream ended, see the log"))?
        } else {
            self.objects.sink().handle_response(now, response, &Reader)
        };
        let ResponseResult { request, changes } =
            read.map_err(|fault| Status::invalid_argument(fault.to_string()))?;
        let is_synced = self.objects.sink().is_synced();
        self.objects.synced.store(is_synced, Ordering::Relaxed);
        match (&changes, &request.error_detail) {
            (Some(changes), _) => {
                self.peers.counters.acked(&collection);
                self.log_refused(changes);
                // Even an empty one: it may be the last missing collection.
                (self.objects.apply)(changes);
            }
            // A source that dials begins with the trigger, and ignores its NACK.
            (None, Some(_)) if collection == TRIGGER => {}
            (None, Some(error)) => {
                self.peers.counters.nacked(counted, error.code);
                if let Some(more) = self.objects.log_limiters.refused.suffix_if_allowed() {
                    let message = &error.message;
                    warn!("refused a response of {}: {message}{more}", self.name);
                }
            }
            (None, None) => {}
        }
        Ok(request)
    }

    /// Resources that break a rule, with all rules.
    fn log_refused(&self, changes: &Changes<ReceivedObject>) {
        let sink = self.objects.sink();
        let all = sink.entries(&changes.collection);
        let refused: BTreeSet<_> = changes.refused.iter().collect();
        for (name, entry) in all.filter(|(name, _)| refused.contains(name)) {
            let Some(more) = self
                .objects
                .log_limiters
                .refused_objects
                .suffix_if_allowed()
            else {
                continue;
            };
            let outcome = match entry.object {
                Some(_) => "its last good version stays",
                None => "it is left out",
            };
            let errors: Vec<_> = entry
                .findings
                .iter()
                .map(|one| secrets::redact_text(one))
                .collect();
            let errors = errors.join("; ");
            let collection = &changes.collection;
            warn!(
                "{}: {collection} {name}: {errors}: {outcome}{more}",
                self.name
            );
        }
    }
}
