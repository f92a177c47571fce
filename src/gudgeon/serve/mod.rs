//! Listeners: who is let in, for how long, and how they end.
//!
//! hyper speaks HTTP, rustls TLS. Here are the bounds: so many connections, of which those that never asked anything go first
//! and then the longest idle; five seconds for a handshake and a head; ten for a body; and the end, where listeners stay for
//! a while, connections are told to go, and only then are cut.

mod answers;
mod bind;
mod body;
mod connection;
mod crowd;
mod desk;
mod frames;
mod io;
mod query;
mod sitting;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

pub(crate) use answers::{as_json, full, not_allowed, ready, text};
pub(crate) use bind::{bind, everywhere, listen, reserve};
pub(crate) use body::{Unread, read};
pub(crate) use connection::Line;
use crowd::Crowd;
pub(crate) use desk::{Desk, Desks, NoDesk};
pub(crate) use query::Query;

use crate::log;

/// How long connections have to finish what they began, once they were told to go.
const FAREWELL: Duration = Duration::from_secs(5);
/// Between two tries to accept when the process has no descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);

/// An answer with its body in memory.
pub(crate) type Answer = Response<Full<Bytes>>;

/// The connection is cut without an answer.
#[derive(Debug)]
pub(crate) struct Cut(pub(crate) &'static str);

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Cut {}

/// What will be answered.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Cut>> + Send>>;

/// What answers the requests of a listener.
pub(crate) trait Service: Send + Sync + 'static {
    /// One request.
    fn answer(self: Arc<Self>, request: Request<Incoming>, line: &Arc<Line>) -> Answering;

    /// A task has panicked: what it did was lost, nothing else is.
    fn panicked(&self);
}

/// How far the program is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Serving,
    /// Listeners close, connections are told to go.
    Leaving,
}

/// A bound socket, and who may come.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Connections at a time.
    pub(crate) places: usize,
}

/// Serves until the stage is `Leaving` and all have left.
pub(crate) async fn run<S: Service>(
    door: Door,
    service: Arc<S>,
    mut stage: watch::Receiver<Stage>,
) {
    let Door {
        listener,
        tls,
        places,
    } = door;
    let crowd = Arc::new(Crowd::new(places));
    let mut tasks = JoinSet::new();
    let mut refused: u64 = 0;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &crowd) => accepted,
            Some(ended) = tasks.join_next() => {
                note(&*service, &ended);
                continue;
            }
            _ = stage.wait_for(|stage| *stage == Stage::Leaving) => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                refused = 0;
                let line = Line::new(peer, place);
                let service = Arc::clone(&service);
                tasks.spawn(connection::run(
                    stream,
                    tls.clone(),
                    line,
                    service,
                    stage.clone(),
                ));
            }
            Err(cause) => {
                refused += 1;
                if log::worth_a_line(refused) {
                    warn!("cannot accept a connection: {cause} ({refused} times)");
                }
                crowd.make_room();
                tokio::time::sleep(NO_DESCRIPTORS).await;
            }
        }
    }
    drop(listener);
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            note(&*service, &ended);
        }
    };
    // What has not ended by then is cut with the set.
    let _cut = tokio::time::timeout(FAREWELL, all).await;
}

fn note<S: Service>(service: &S, ended: &Result<(), JoinError>) {
    if ended.as_ref().is_err_and(JoinError::is_panic) {
        service.panicked();
    }
}

/// The next connection, once it has a place. Where all are taken by requests in work it waits in the kernel's queue.
async fn accept(
    listener: &TcpListener,
    crowd: &Arc<Crowd>,
) -> std::io::Result<(TcpStream, SocketAddr, crowd::Place)> {
    crowd.room().await;
    let (stream, peer) = listener.accept().await?;
    // Answers are one write each.
    let _best = stream.set_nodelay(true);
    // A peer that vanished is noticed, and its place freed.
    let _best = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let place = Crowd::enter(crowd);
    Ok((stream, peer, place))
}
