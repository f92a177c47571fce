//! Listeners: admission of connections, deadlines, and shutdown.
//!
//! hyper implements HTTP, rustls TLS. Here are the limits: of connections, of which strangers are evicted first and then the
//! longest idle; five seconds for a handshake and a head; ten for a body, and permits for the memory of bodies; a worker
//! thread for long work; and the shutdown, where listeners stay open for a while and clients are told to go to another replica with
//! their answers, then connections are closed gracefully, and only then dropped.

mod accept;
mod answers;
mod bind;
mod body;
mod connection;
mod connection_limit;
mod connection_task;
mod frames;
mod guard;
mod http2;
mod io;
mod network;
mod query;
mod request_limit;
mod routes;
mod shared;
mod shutdown;
mod worker;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub(crate) use accept::{Accept, accept};
pub(crate) use answers::{as_json, full, not_allowed, ready, text, to_page};
pub(crate) use bind::{BACKLOG, bind, everywhere, listen, reserve};
pub(crate) use body::{UnreadBody, read};
pub(crate) use connection::Connection;
use connection_limit::ConnectionLimit;
pub(crate) use guard::{guard, is_local};
pub(crate) use http2::http2_builder;
pub(crate) use network::network;
pub(crate) use query::{Query, percent_decoded};
pub(crate) use request_limit::{Permit, RequestLimit, RequestProgress};
pub(crate) use routes::Routes;
pub(crate) use shared::{AnswerPriority, RequestedAnswer, SharedAnswers};
pub(crate) use shutdown::{Shutdown, ShutdownStage};
pub(crate) use worker::Worker;

use crate::descriptors;

/// An answer with its body in memory.
pub(crate) type Answer = Response<Full<Bytes>>;

/// The connection is cut without an answer.
#[derive(Debug)]
pub(crate) struct ConnectionAborted(pub(crate) &'static str);

impl std::fmt::Display for ConnectionAborted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConnectionAborted {}

/// The future of an answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, ConnectionAborted>> + Send>>;

/// The service behind a listener.
pub(crate) trait Service: Send + Sync + 'static {
    /// Answers a request.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering;

    /// Returns true if an answer to this request establishes the client. For a webhook only an answered review does: else a
    /// request to its health endpoint would suffice to compete with an API server.
    fn establishes(&self, _request: &Request<Incoming>) -> bool {
        true
    }
}

/// A bound socket, with its TLS and its limit.
pub(crate) struct Listener {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Connections at a time.
    pub(crate) max_connections: usize,
}

/// Serves until the stage is `Closing` and all have left.
pub(crate) async fn run<S: Service>(bound: Listener, service: Arc<S>, shutdown: Shutdown) {
    let Listener {
        listener,
        tls,
        max_connections,
    } = bound;
    let max_connections = descriptors::max_connections(max_connections);
    let port = HttpPort {
        listener,
        tls,
        connection_limit: Arc::new(ConnectionLimit::new(max_connections)),
        open: Arc::new(Semaphore::new(max_connections + 1)),
        service,
        shutdown: shutdown.clone(),
    };
    accept(port, shutdown).await;
}

/// An open port.
struct HttpPort<S> {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connection_limit: Arc<ConnectionLimit>,
    /// Counts open connections: an evicted one keeps its descriptor for a moment, one at a time.
    open: Arc<Semaphore>,
    service: Arc<S>,
    shutdown: Shutdown,
}

impl<S: Service> Accept for HttpPort<S> {
    type Accepted = (
        TcpStream,
        SocketAddr,
        connection_limit::Slot,
        Option<OwnedSemaphorePermit>,
    );

    /// If requests in work take all places, the next connection waits in the kernel's queue.
    async fn accept(&self) -> std::io::Result<Self::Accepted> {
        self.connection_limit.ready().await;
        // The semaphore is never closed.
        let open = Arc::clone(&self.open).acquire_owned().await.ok();
        let (stream, peer) = self.listener.accept().await?;
        // Answers are one write each.
        let _best = stream.set_nodelay(true);
        // A peer that vanished is noticed, and its place freed.
        let _best = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let place = ConnectionLimit::enter(&self.connection_limit, network(peer.ip()));
        Ok((stream, peer, place, open))
    }

    fn spawn(&self, (stream, peer, place, open): Self::Accepted, tasks: &mut JoinSet<()>) {
        let connection = Connection::new(peer, place);
        let service = Arc::clone(&self.service);
        let (tls, shutdown) = (self.tls.clone(), self.shutdown.clone());
        tasks.spawn(async move {
            connection_task::run(stream, tls, connection, service, shutdown).await;
            drop(open);
        });
    }

    fn evict(&self) {
        self.connection_limit.evict();
    }
}

#[cfg(test)]
mod tests;
