//! The other port: where sources dial, and send their objects.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tonic::{Code, Status};
use tracing::info;

use super::dialled_sources::{DialledSources, STREAMS};
use super::peers::Peers;
use super::server::{Guard, McpServer, versioned};
use super::sink_stream::{RESOURCES, SinkStream};
use super::{METHOD, SINK};
use crate::grpc::{self, Bounds, Calls, Inbound, Peer, Reply, ResponseSender, refused};
use crate::serve::Shutdown;

impl McpServer {
    /// Receives from sources that dial, until the stage is `Closing` and all have left. All of them count as one source,
    /// since replicas send the same.
    pub(crate) async fn take(
        self,
        sources: Arc<DialledSources>,
        peers: Arc<Peers>,
        shutdown: Shutdown,
    ) {
        let service = SinkService {
            guard: self.guard(),
            bounds: Bounds {
                bytes: self.received(),
                beyond: Code::ResourceExhausted,
                values: RESOURCES,
            },
            sources,
            peers,
            shutdown: shutdown.clone(),
        };
        self.serve(Arc::new(service), shutdown).await;
    }
}

struct SinkService {
    guard: Guard,
    bounds: Bounds,
    sources: Arc<DialledSources>,
    peers: Arc<Peers>,
    shutdown: Shutdown,
}

impl Calls for SinkService {
    fn answer(&self, peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Reply> {
        match grpc::call(&request) {
            Some((SINK, METHOD)) => {}
            Some(_) => return refused(&Status::unimplemented("no such service or method")),
            None => return grpc::no_call(),
        }
        if let Some(answer) = self.guard.refuses(peer) {
            return answer;
        }
        let Some(slot) = self.sources.open() else {
            let message = format!("there are {STREAMS} streams already");
            return refused(&Status::resource_exhausted(message));
        };
        let sender = Arc::new(ResponseSender::default());
        let answer = versioned(&sender);
        if let Some(more) = self.sources.log_limiters.dials.suffix_if_allowed() {
            info!("source {} connected{more}", peer.address);
        }
        let stream = SinkStream {
            objects: Arc::clone(&slot.objects),
            peers: Arc::clone(&self.peers),
            inbound: Inbound::of(peer, request.into_body(), self.bounds),
            sender,
            peer: Arc::clone(peer),
            access: self.guard.access.clone(),
            shutdown: Some(self.shutdown.clone()),
            _slot: Some(slot),
        };
        tokio::spawn(stream.run());
        answer
    }

    fn handshake_failed(&self) {
        self.peers.counters.recv_failed();
    }
}
