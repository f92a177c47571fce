//! The sending end of one stream: a request, a snapshot or its free writer wakes it, and each time it takes one step.
//! It queues nothing; a client that does not read costs one response.

use std::sync::Arc;

use api::log_repeats::should_log_repeat;
use bytes::Bytes;
use hyper::body::Body;
use mcp::message::RequestResources;
use mcp::source::{RequestKind, SourceError};
use prost::Message as _;
use tokio::sync::watch;
use tonic::Status;
use tracing::{info, warn};

use super::Snapshots;
use super::access::CurrentList;
use super::peers::{PeerRegistration, Peers};
use super::wire::{ResponsePieces, encode};
use crate::grpc::{BodyError, Inbound, Peer, ResponseSender};
use crate::serve::ShutdownStage;

/// Bytes of a sink's message that are logged.
const NACK_BYTES: usize = 1000;

/// The state that all sending streams share.
#[derive(Debug)]
pub(super) struct SourceContext {
    pub(super) peers: Arc<Peers>,
    pub(super) pieces: ResponsePieces,
    pub(super) snapshots: watch::Receiver<Snapshots>,
    pub(super) stage: watch::Receiver<ShutdownStage>,
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

/// Sends the peer a status if the task panics.
struct EndOnPanic {
    sender: Arc<ResponseSender>,
    peer: Arc<Peer>,
}

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        self.peer.closes();
        if std::thread::panicking() {
            self.sender.end(Status::internal(
                "internal error; the stream ended, see the log",
            ));
        }
    }
}

/// The events that a stream waits for besides its requests.
struct StreamWaits {
    snapshots: watch::Receiver<Snapshots>,
    stage: watch::Receiver<ShutdownStage>,
    access: Option<watch::Receiver<Arc<CurrentList>>>,
}

impl<B> SourceStream<B>
where
    B: Body<Data = Bytes, Error: BodyError> + Send + Unpin + 'static,
{
    /// Runs the stream to its end. Returns true if the peer has answered a response, and ended the stream itself.
    pub(super) async fn run(mut self) -> (Status, bool) {
        self.peer.opens();
        let _fallen = EndOnPanic {
            sender: Arc::clone(&self.sender),
            peer: Arc::clone(&self.peer),
        };
        let mut waits = StreamWaits {
            snapshots: self.common.snapshots.clone(),
            stage: self.common.stage.clone(),
            access: self.access.take(),
        };
        waits.snapshots.mark_changed();
        let mut answered = false;
        let status = loop {
            if self.sender.is_gone() {
                let status = self.inbound.final_status().await;
                break status.unwrap_or_else(|| Status::cancelled("peer disconnected"));
            }
            self.send();
            match self.event(&mut waits).await {
                Ok(true) => answered = true,
                Ok(false) => {}
                Err(status) => break status,
            }
        };
        if !self.sender.is_free() {
            self.common.peers.counters.unsent();
        }
        let is_refused = !(self.sender.is_gone() || self.inbound.is_ended());
        self.sender.end(status.clone());
        (status, answered && !is_refused)
    }

    /// Sends one response, if one is due and the last one is written.
    fn send(&self) {
        if !self.sender.is_free() {
            return;
        }
        let response = self.joined.stream.source().due();
        let Some(response) = response else { return };
        let lines = &self.common.peers.log_limiters;
        if let Some(bytes) = response.oversized
            && let Some(more) = lines.oversized.suffix_if_allowed()
        {
            warn!(
                "sending {} the full state, {bytes} bytes of {}: the sink did not ask for incremental updates{more}",
                self.joined.stream.name(),
                response.collection
            );
        }
        self.sender.put(encode(&response, &self.common.pieces));
    }

    /// Handles the next event; returns true if a request or a response was processed.
    async fn event(&mut self, waits: &mut StreamWaits) -> Result<bool, Status> {
        let clock = &self.common.peers.clock;
        let resume = self.joined.stream.source().resume(clock.now());
        let pause = async {
            match resume {
                Some(at) => tokio::time::sleep_until(clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        let inbound = &mut self.inbound;
        let asked = async {
            match resume {
                // Other streams on the connection do not suffer from one that is read slowly.
                Some(_) => Err(inbound.take_in().await),
                None => inbound.next::<RequestResources>().await,
            }
        };
        tokio::select! {
            asked = asked => {
                match asked {
                    Ok(Some(request)) => self.handle_request(&request),
                    Ok(None) => Err(Status::ok("")),
                    Err(status) => {
                        self.common.peers.counters.unheard();
                        Err(status)
                    }
                }
            }
            () = pause => Ok(false),
            () = changed(&mut waits.snapshots) => {
                let snapshots = waits.snapshots.borrow_and_update();
                let mut source = self.joined.stream.source();
                for snapshot in snapshots.all() {
                    source.snapshot(Arc::clone(snapshot));
                }
                Ok(false)
            }
            () = self.sender.moved() => Ok(false),
            () = listed(&mut waits.access) => {
                if may(waits.access.as_ref(), &self.peer) {
                    return Ok(false);
                }
                info!("closing {}: the access list no longer allows it", self.joined.stream.name());
                Err(Status::unauthenticated(REFUSED))
            }
            () = closing(&mut waits.stage) => Err(Status::unavailable("server shutting down")),
        }
    }

    fn handle_request(&self, request: &RequestResources) -> Result<bool, Status> {
        let stream = &self.joined.stream;
        let kind = stream
            .source()
            .request(self.common.peers.clock.now(), request);
        let counters = &self.common.peers.counters;
        let kind = kind.map_err(|fault| {
            counters.unheard();
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

/// The status for a client that may not connect.
pub(super) const REFUSED: &str = "the certificate's identities are not allowed";

/// Returns true if this client is on the list.
pub(super) fn may(access: Option<&watch::Receiver<Arc<CurrentList>>>, peer: &Peer) -> bool {
    let Some(list) = access else { return true };
    let uris = peer.leaf.as_ref().map_or(&[][..], |leaf| &leaf.uris);
    list.borrow().allows(uris)
}

/// Returns when streams are to end, after the connection has sent GOAWAY.
pub(super) async fn closing(stage: &mut watch::Receiver<ShutdownStage>) {
    let is_closing = stage
        .wait_for(|stage| *stage == ShutdownStage::Closing)
        .await
        .is_ok();
    if !is_closing {
        std::future::pending::<()>().await;
    }
    tokio::task::yield_now().await;
}

/// Waits for ever once the sender is gone: there are no changes then.
async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub(super) async fn listed(access: &mut Option<watch::Receiver<Arc<CurrentList>>>) {
    match access {
        Some(access) => changed(access).await,
        None => std::future::pending().await,
    }
}
