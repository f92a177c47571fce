//! The sending end of one stream: requests and snapshots move it on, one response at a time.

use std::sync::Arc;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use bytes::Bytes;
use hyper::body::Body;
use mcp::message::RequestResources;
use mcp::source::{PART_BYTES, RequestKind, Response, SourceError};
use prost::Message as _;
use tokio::sync::watch;
use tonic::Status;
use tracing::{info, warn};

use super::Snapshots;
use super::access::{CurrentList, REFUSED, changed, is_allowed, list_changed};
use super::peers::{PeerRegistration, PeerStream, Peers};
use super::wire::{ResponsePieces, encode};
use crate::clock::Clock;
use crate::grpc::{
    BodyError, Inbound, Peer, Reads, ResponseSender, StreamLoop, StreamProtocol, StreamWaits,
    WholeMessages, closing,
};
use crate::serve::Shutdown;

/// Bytes of a sink's message that are logged.
const NACK_BYTES: usize = 1000;

/// The state that all sending streams share.
#[derive(Debug)]
pub(super) struct SourceContext {
    pub(super) peers: Arc<Peers>,
    pub(super) pieces: ResponsePieces,
    pub(super) snapshots: watch::Receiver<Snapshots>,
    pub(super) shutdown: Shutdown,
}

/// A sending stream.
pub(super) struct SourceStream<B> {
    pub(super) common: Arc<SourceContext>,
    pub(super) joined: PeerRegistration,
    pub(super) peer: Arc<Peer>,
    pub(super) inbound: Inbound<B>,
    pub(super) sender: Arc<ResponseSender>,
    /// `None`: clients need no identity.
    pub(super) access: Option<watch::Receiver<Arc<CurrentList>>>,
}

impl<B> SourceStream<B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    /// Runs the stream to its end. Returns true if the peer has answered a response, and ended the stream itself.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn holds its arguments twice for as long as it runs"
    )]
    pub(super) fn run(mut self) -> impl Future<Output = (Status, bool)> + Send {
        async move { self.serve().await }
    }

    async fn serve(&mut self) -> (Status, bool) {
        let stream_loop = StreamLoop::new(&self.peer, &self.sender, || ());
        let mut protocol = SourceProtocol {
            common: &self.common,
            stream: &self.joined.stream,
            peer: &self.peer,
            snapshots: self.common.snapshots.clone(),
            access: self.access.take(),
            has_answered: false,
        };
        // Snapshots that were published before the stream began are an event, too.
        protocol.snapshots.mark_changed();
        let mut reader = WholeMessages::default();
        let end = stream_loop.run(&mut self.inbound, &mut reader, &mut protocol);
        let end = end.await;
        // A lasting refusal by this side must not reset the dialler's backoff.
        (end.status, protocol.has_answered && !end.is_refused)
    }
}

/// The protocol of a source.
struct SourceProtocol<'a> {
    common: &'a SourceContext,
    stream: &'a PeerStream,
    peer: &'a Peer,
    snapshots: watch::Receiver<Snapshots>,
    access: Option<watch::Receiver<Arc<CurrentList>>>,
    /// The sink has answered a response.
    has_answered: bool,
}

enum SourceStreamEvent {
    Snapshots,
    AccessList,
}

impl<'a> StreamProtocol for SourceProtocol<'a> {
    type Reader = WholeMessages<RequestResources>;
    type Event = SourceStreamEvent;

    const PEER_SENDS_STATUS: bool = true;

    fn clock(&self) -> &Clock {
        &self.common.peers.clock
    }

    async fn receive(&mut self, request: RequestResources) -> Result<(), Status> {
        self.has_answered |= self.handle_request(&request)?;
        Ok(())
    }

    async fn event(&mut self, _is_free: bool) -> SourceStreamEvent {
        tokio::select! {
            () = changed(&mut self.snapshots) => SourceStreamEvent::Snapshots,
            () = list_changed(&mut self.access) => SourceStreamEvent::AccessList,
        }
    }

    async fn handle(&mut self, event: SourceStreamEvent) -> Result<(), Status> {
        match event {
            SourceStreamEvent::Snapshots => {
                let snapshots = self.snapshots.borrow_and_update();
                let mut source = self.stream.source();
                for snapshot in snapshots.all() {
                    source.snapshot(Arc::clone(snapshot));
                }
            }
            SourceStreamEvent::AccessList if is_allowed(self.access.as_ref(), self.peer) => {}
            SourceStreamEvent::AccessList => {
                let name = self.stream.name();
                info!("closing {name}: the access list no longer allows it");
                return Err(Status::unauthenticated(REFUSED));
            }
        }
        Ok(())
    }

    fn next_response(&mut self, _now: Duration) -> Option<Vec<Bytes>> {
        let response = self.stream.source().due()?;
        let limiters = &self.common.peers.log_limiters;
        if let Some(bytes) = response.oversized
            && let Some(more) = limiters.oversized.suffix_if_allowed()
        {
            let line = oversized_line(&response, bytes);
            warn!("{}: {line}{more}", self.stream.name());
        }
        Some(encode(&response, &self.common.pieces))
    }

    fn waits(&mut self, now: Duration, _is_free: bool) -> Result<StreamWaits, Status> {
        let resume = self.stream.source().resume(now);
        Ok(StreamWaits {
            deadline: resume,
            reads: match resume {
                // Requests over the sink's pace wait in the buffer, so that other streams of the connection
                // go on.
                Some(_) => Reads::Ahead,
                None => Reads::Request,
            },
        })
    }

    fn shutdown(&self) -> impl Future<Output = ()> + Send + use<'a> {
        closing(self.common.shutdown.clone())
    }

    fn disconnected(&self) -> Status {
        Status::cancelled("peer disconnected")
    }

    fn read_failed(&self) {
        self.common.peers.counters.recv_failed();
    }

    fn response_unsent(&self) {
        self.common.peers.counters.send_failed();
    }
}

/// Returns the line about a response that is longer than sinks accept by default.
fn oversized_line(response: &Response, bytes: usize) -> String {
    let collection = &response.collection;
    let max = format!("more than the {PART_BYTES} that sinks accept by default");
    match response.resources.members() {
        // Of an incremental response no other one is as long.
        [one] if response.incremental => {
            format!("{} of {collection} alone is {bytes} bytes, {max}", one.name)
        }
        all => format!(
            "a full response has all {} of {collection}, {bytes} bytes, {max}; incremental ones, which the sink did not request, \
             are split",
            api::counted(all.len(), "resource")
        ),
    }
}

impl SourceProtocol<'_> {
    /// Returns true if it is about a response.
    fn handle_request(&self, request: &RequestResources) -> Result<bool, Status> {
        let stream = self.stream;
        let kind = stream
            .source()
            .request(self.common.peers.clock.now(), request);
        let counters = &self.common.peers.counters;
        let kind = kind.map_err(|fault| {
            counters.recv_failed();
            if let Some(more) = self.common.peers.log_limiters.faults.suffix_if_allowed() {
                info!("{}: {fault}{more}", stream.name());
            }
            let message = fault.to_string();
            match fault {
                SourceError::Unsupported(_) => Status::invalid_argument(message),
                SourceError::ListedTooMany => Status::resource_exhausted(message),
            }
        })?;
        let collection = &request.collection;
        counters.message_received(collection, request.encoded_len());
        match kind {
            RequestKind::Subscribed | RequestKind::Ignored => {}
            RequestKind::Acked => counters.acked(collection),
            RequestKind::Nacked(code) => {
                let times = counters.nacked(collection, code);
                if should_log_repeat(times) {
                    let error = request.error_detail.as_ref();
                    let message = error.map_or("", |error| error.message.as_str());
                    let message = api::text::first_letters(message, NACK_BYTES);
                    let name = stream.name();
                    warn!(
                        "{name} refuses {collection}: {message} (code {code}){repeated}",
                        repeated = api::times(times)
                    );
                }
            }
            RequestKind::Stale => {
                let times = counters.stale(collection);
                if should_log_repeat(times) {
                    let name = stream.name();
                    info!(
                        "{name} sent an expired nonce for {collection}{repeated}",
                        repeated = api::times(times)
                    );
                }
            }
        }
        Ok(kind != RequestKind::Ignored)
    }
}

#[cfg(test)]
mod tests {
    use mcp::snapshot::{Collection, Origin, Resource};
    use mcp::source::Payload;

    use super::*;

    #[test]
    fn the_line_about_a_long_response_names_what_is_long() {
        let named = |name: &str| {
            let name = name.to_owned();
            Arc::new(Resource::new(Origin {
                name,
                ..Origin::default()
            }))
        };
        let line = |resources, incremental| {
            let response = Response {
                collection: "c".into(),
                version: None,
                nonce: 1,
                resources,
                removed: Vec::new(),
                incremental,
                oversized: Some(5_000_000),
            };
            oversized_line(&response, 5_000_000)
        };
        assert_eq!(
            line(Payload::Some(vec![named("n/a")]), true),
            "n/a of c alone is 5000000 bytes, more than the 4194304 that sinks accept by default"
        );
        let all = Collection::of_sorted("c".into(), vec![named("n/a"), named("n/b")]);
        assert_eq!(
            line(Payload::All(Arc::new(all)), false),
            "a full response has all 2 resources of c, 5000000 bytes, more than the 4194304 that sinks accept by default; \
             incremental ones, which the sink did not request, are split"
        );
    }
}
