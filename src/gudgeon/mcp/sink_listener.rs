//! The other port: where sources dial, and give.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::sync::watch;
use tonic::{Code, Status};
use tracing::info;

use super::peers::Peers;
use super::server::{Guard, McpServer, versioned};
use super::sink_stream::{RESOURCES, SinkStream, SourceObjects};
use super::source_stream::{REFUSED, closing, listed, may};
use super::{METHOD, SINK};
use crate::grpc::{self, Bounds, Calls, Inbound, Peer, Reply, ResponseSender, refused};
use crate::serve::ShutdownStage;

/// Sources that dial at a time.
const STREAMS: usize = 64;

impl McpServer {
    /// Receives from sources that dial, until the stage is `Closing` and all have left. All of them count as one source,
    /// since replicas send the same.
    pub(crate) async fn take(
        self,
        objects: Arc<SourceObjects>,
        peers: Arc<Peers>,
        stage: watch::Receiver<ShutdownStage>,
    ) {
        let service = SinkService {
            guard: self.guard(),
            bounds: Bounds {
                bytes: self.received(),
                beyond: Code::ResourceExhausted,
                values: RESOURCES,
            },
            objects,
            peers,
            stage: stage.clone(),
            places: Arc::new(()),
        };
        self.serve(Arc::new(service), stage).await;
    }
}

struct SinkService {
    guard: Guard,
    bounds: Bounds,
    objects: Arc<SourceObjects>,
    peers: Arc<Peers>,
    stage: watch::Receiver<ShutdownStage>,
    /// Counts streams: each holds a clone.
    places: Arc<()>,
}

/// An open stream.
struct Open {
    peer: Arc<Peer>,
    sender: Arc<ResponseSender>,
    _place: Arc<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.peer.closes();
        if std::thread::panicking() {
            self.sender.end(Status::internal(
                "internal error; the stream ended, see the log",
            ));
        }
    }
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
        if Arc::strong_count(&self.places) > STREAMS {
            let message = format!("there are {STREAMS} streams already");
            return refused(&Status::resource_exhausted(message));
        }
        let sender = Arc::new(ResponseSender::default());
        let answer = versioned(&sender);
        peer.opens();
        let open = Open {
            peer: Arc::clone(peer),
            sender: Arc::clone(&sender),
            _place: Arc::clone(&self.places),
        };
        let inbound = Inbound::new(request.into_body(), self.bounds);
        let (objects, peers) = (Arc::clone(&self.objects), Arc::clone(&self.peers));
        let (mut stage, mut access) = (self.stage.clone(), self.guard.access.clone());
        tokio::spawn(async move {
            let name = open.peer.address.to_string();
            if let Some(more) = objects.log_limiters.dials.suffix_if_allowed() {
                info!("source {name} connected{more}");
            }
            let taking = SinkStream {
                objects: &objects,
                peers: &peers,
                inbound,
                sender: Arc::clone(&open.sender),
                name: &name,
            };
            let unwanted = async {
                loop {
                    listed(&mut access).await;
                    if !may(access.as_ref(), &open.peer) {
                        return;
                    }
                }
            };
            let status = tokio::select! {
                (status, _) = taking.run() => status,
                () = unwanted => Status::unauthenticated(REFUSED),
                () = closing(&mut stage) => Status::unavailable("server shutting down"),
            };
            open.sender.end(status);
        });
        answer
    }

    fn handshake_failed(&self) {
        self.peers.counters.unheard();
    }
}
