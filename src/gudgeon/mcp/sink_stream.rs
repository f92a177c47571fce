//! The receiving end of one stream: each response is answered before the next is read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use mcp::TRIGGER;
use mcp::message::{RequestResources, Resources};
use mcp::sink::{Changes, ResponseResult, Sink};
use prost::Message as _;
use tokio::sync::watch;
use tonic::Status;
use tracing::{info, warn};

use super::access::{CurrentList, REFUSED, is_allowed, list_changed};
use super::dialled_sources::DialledSlot;
use super::peers::Peers;
use super::source_objects::{OpenStream, Reader, ReceivedObject, SourceObjects};
use crate::clock::Clock;
use crate::grpc::{
    BodyError, Inbound, Peer, Reads, ResponseSender, StreamLoop, StreamProtocol, StreamWaits,
    WholeMessages, closing, framed, internal_error,
};
use crate::secrets;
use crate::serve::Shutdown;

/// Resources of one response at most.
pub(super) const RESOURCES: usize = 200_000;
/// A response that is longer is read beside the loop: its rules take their time.
const LONG_BYTES: usize = 64 << 10;

/// A receiving stream.
pub(super) struct SinkStream<B> {
    pub(super) objects: Arc<SourceObjects>,
    pub(super) peers: Arc<Peers>,
    pub(super) inbound: Inbound<B>,
    pub(super) sender: Arc<ResponseSender>,
    pub(super) peer: Arc<Peer>,
    /// `None`: any source may stay.
    pub(super) access: Option<watch::Receiver<Arc<CurrentList>>>,
    /// `None`: the stream is dropped at the end.
    pub(super) shutdown: Option<Shutdown>,
    /// The stream's slot among the sources that have dialled, which ends after all else.
    pub(super) _slot: Option<DialledSlot>,
}

impl<B> SinkStream<B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    /// Runs the stream to its end; returns true if a response was received, and the peer ended the stream.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn holds its arguments twice for as long as it runs"
    )]
    pub(super) fn run(mut self) -> impl Future<Output = (Status, bool)> + Send {
        async move { self.serve().await }
    }

    async fn serve(&mut self) -> (Status, bool) {
        let stream_loop = StreamLoop::new(&self.peer, &self.sender, || ());
        let _open = OpenStream::new(&self.objects);
        let first = self.objects.sink().await.start(self.peers.clock.now());
        let first = first.iter().map(|request| Bytes::from(framed(request)));
        let mut protocol = SinkProtocol {
            objects: &self.objects,
            peers: &self.peers,
            peer: &self.peer,
            access: self.access.take(),
            shutdown: self.shutdown.take(),
            unsent: Some(first.collect()),
            has_received: false,
        };
        let mut reader = WholeMessages::default();
        let end = stream_loop.run(&mut self.inbound, &mut reader, &mut protocol);
        let end = end.await;
        // A lasting refusal by this side must not reset the backoff, or the source is dialled five times a
        // second.
        if end.is_refused {
            self.objects.sink().await.refuse();
        }
        (end.status, protocol.has_received && !end.is_refused)
    }
}

/// The protocol of a sink.
struct SinkProtocol<'a> {
    objects: &'a Arc<SourceObjects>,
    peers: &'a Peers,
    peer: &'a Peer,
    access: Option<watch::Receiver<Arc<CurrentList>>>,
    shutdown: Option<Shutdown>,
    /// The messages that the source gets next: all first requests, or the answer to its response.
    unsent: Option<Vec<Bytes>>,
    has_received: bool,
}

impl<'a> StreamProtocol for SinkProtocol<'a> {
    type Reader = WholeMessages<Resources>;
    /// The access list has changed.
    type Event = ();

    const PEER_SENDS_STATUS: bool = true;

    fn clock(&self) -> &Clock {
        &self.peers.clock
    }

    async fn receive(&mut self, response: Resources) -> Result<(), Status> {
        if !std::mem::replace(&mut self.has_received, true)
            && let Some(more) = self.objects.log_limiters.begins.suffix_if_allowed()
        {
            info!("receiving configuration from {}{more}", self.peer.address);
        }
        // Even a response that is refused shows that the source is there again.
        self.objects.mark_connected();
        let answer = self.handle_response(response).await?;
        self.unsent = Some(vec![framed(&answer).into()]);
        Ok(())
    }

    async fn event(&mut self, _is_free: bool) {
        list_changed(&mut self.access).await;
    }

    async fn handle(&mut self, (): ()) -> Result<(), Status> {
        match is_allowed(self.access.as_ref(), self.peer) {
            true => Ok(()),
            false => Err(Status::unauthenticated(REFUSED)),
        }
    }

    fn next_response(&mut self, _now: Duration) -> Option<Vec<Bytes>> {
        self.unsent.take()
    }

    fn waits(&mut self, _now: Duration, is_free: bool) -> Result<StreamWaits, Status> {
        Ok(StreamWaits {
            deadline: None,
            // Each response is answered before the next one is read.
            reads: match is_free {
                true => Reads::Request,
                false => Reads::Nothing,
            },
        })
    }

    fn shutdown(&self) -> impl Future<Output = ()> + Send + use<'a> {
        let shutdown = self.shutdown.clone();
        async move {
            match shutdown {
                Some(shutdown) => closing(shutdown).await,
                None => std::future::pending().await,
            }
        }
    }

    fn disconnected(&self) -> Status {
        Status::unavailable("peer disconnected")
    }

    fn read_failed(&self) {
        self.peers.counters.recv_failed();
    }
}

impl SinkProtocol<'_> {
    async fn handle_response(&self, response: Resources) -> Result<RequestResources, Status> {
        let now = self.peers.clock.now();
        let collection = response.collection.clone();
        let bytes = response.encoded_len();
        // One turn from reading to applying: the changes of another stream's later response must not be applied before.
        let mut sink = self.objects.sink().await;
        let is_known = sink.subscribes_to(&collection) || collection == TRIGGER;
        // A peer may send any name, which must not become a label.
        let counted = if is_known { &*collection } else { "other" };
        self.peers.counters.message_received(counted, bytes);
        let read = if bytes > LONG_BYTES {
            let reads = move || {
                let read = sink.handle_response(now, response, &Reader);
                (sink, read)
            };
            let (returned, read) = tokio::task::spawn_blocking(reads)
                .await
                .map_err(|_| internal_error())?;
            sink = returned;
            read
        } else {
            sink.handle_response(now, response, &Reader)
        };
        let ResponseResult { request, changes } =
            read.map_err(|fault| Status::invalid_argument(fault.to_string()))?;
        // `apply` asks whether all is there, so the flag is set before it.
        self.objects
            .synced
            .store(sink.is_synced(), Ordering::Relaxed);
        match (&changes, &request.error_detail) {
            (Some(changes), _) => {
                self.peers.counters.acked(&collection);
                self.log_refused(&sink, changes);
                // Even an empty one: it may be the last missing collection.
                (self.objects.apply)(std::slice::from_ref(changes));
            }
            // A source that dials begins with the trigger, and ignores its NACK.
            (None, Some(_)) if collection == TRIGGER => {}
            (None, Some(error)) => {
                self.peers.counters.nacked(counted, error.code);
                if let Some(more) = self.objects.log_limiters.refused.suffix_if_allowed() {
                    let message = &error.message;
                    let name = &self.peer.address;
                    warn!("refused a response of {name}: {message}{more}");
                }
            }
            (None, None) => {}
        }
        Ok(request)
    }

    /// Resources that break a rule, with all rules.
    fn log_refused(&self, sink: &Sink<ReceivedObject>, changes: &Changes<ReceivedObject>) {
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
            let (source, collection) = (&self.peer.address, &changes.collection);
            warn!("{source}: {collection} {name}: {errors}: {outcome}{more}");
        }
    }
}
