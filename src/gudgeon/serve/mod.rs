//! Listeners: admission of connections, deadlines, and shutdown.
//!
//! hyper implements HTTP, rustls TLS. Here are the limits: of connections, of which strangers are evicted first and then the
//! longest idle; five seconds for a handshake and a head; ten for a body, and permits for the memory of bodies; a worker
//! thread for long work; and the shutdown, where listeners stay open for a while, connections are closed gracefully, and
//! only then dropped.

mod answers;
mod bind;
mod body;
mod connection;
mod connection_limit;
mod connection_task;
mod frames;
mod guard;
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
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

pub(crate) use answers::{as_json, full, not_allowed, ready, text, to_page};
pub(crate) use bind::{BACKLOG, bind, everywhere, listen, reserve};
pub(crate) use body::{UnreadBody, read};
pub(crate) use connection::Connection;
use connection_limit::ConnectionLimit;
pub(crate) use guard::{guard, is_local};
pub(crate) use network::network;
pub(crate) use query::{Query, percent_decoded};
pub(crate) use request_limit::{Permit, RequestLimit, RequestProgress};
pub(crate) use routes::Routes;
pub(crate) use shared::{AnswerPriority, SharedAnswers, WantedAnswer};
pub(crate) use shutdown::{Shutdown, ShutdownStage};
pub(crate) use worker::Worker;

use crate::descriptors;

/// The time that connections have for their requests once they are told to close.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// The delay between two tries to accept when the process has no descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);

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
pub(crate) async fn run<S: Service>(bound: Listener, service: Arc<S>, mut shutdown: Shutdown) {
    let Listener {
        listener,
        tls,
        max_connections,
    } = bound;
    let max_connections = descriptors::max_connections(max_connections);
    let connection_limit = Arc::new(ConnectionLimit::new(max_connections));
    // An evicted connection keeps its descriptor for a moment: one at a time.
    let open = Arc::new(Semaphore::new(max_connections + 1));
    let mut tasks = JoinSet::new();
    let mut refused: u64 = 0;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connection_limit, &open) => accepted,
            // A panic loses that task's work only, and is counted where all are.
            Some(_) = tasks.join_next() => continue,
            () = shutdown.closing() => break,
        };
        match accepted {
            Ok((stream, peer, place, open)) => {
                refused = 0;
                let connection = Connection::new(peer, place);
                let service = Arc::clone(&service);
                let (tls, shutdown) = (tls.clone(), shutdown.clone());
                tasks.spawn(async move {
                    connection_task::run(stream, tls, connection, service, shutdown).await;
                    drop(open);
                });
            }
            Err(cause) => {
                refused += 1;
                if should_log_repeat(refused) {
                    warn!(
                        "cannot accept a connection: {cause}{repeated}",
                        repeated = api::times(refused)
                    );
                }
                // A connection of this listener gives up its descriptor; for any other cause none has to go.
                if descriptors::are_exhausted(&cause) {
                    connection_limit.evict();
                }
                tokio::time::sleep(NO_DESCRIPTORS).await;
            }
        }
    }
    drop(listener);
    let all = async { while tasks.join_next().await.is_some() {} };
    // Connections that have not ended by then are dropped with the set.
    let _cut = tokio::time::timeout(SHUTDOWN_GRACE, all).await;
}

/// The next connection, once it has a place. If requests in work take all places, it waits in the kernel's queue.
async fn accept(
    listener: &TcpListener,
    connection_limit: &Arc<ConnectionLimit>,
    open: &Arc<Semaphore>,
) -> std::io::Result<(
    TcpStream,
    SocketAddr,
    connection_limit::Slot,
    Option<OwnedSemaphorePermit>,
)> {
    connection_limit.room().await;
    // The semaphore is never closed.
    let open = Arc::clone(open).acquire_owned().await.ok();
    let (stream, peer) = listener.accept().await?;
    // Answers are one write each.
    let _best = stream.set_nodelay(true);
    // A peer that vanished is noticed, and its place freed.
    let _best = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let place = ConnectionLimit::enter(connection_limit, network(peer.ip()));
    Ok((stream, peer, place, open))
}

#[cfg(test)]
mod tests;
