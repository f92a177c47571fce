//! The gRPC ports: HTTP/2 connections that live for days, their pings, their age and their end.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::grpc;
use super::hub::Hub;
use super::peer::{Identity, Peer};
use crate::log;
use crate::serve::Stage;
use crate::tls;

/// Connections of one port at a time.
const PLACES: usize = 20_000;
/// For a handshake, and from it to the first request.
const HANDSHAKE: Duration = Duration::from_secs(5);
const OPENING: Duration = Duration::from_secs(10);
/// What a connection that got old, and one that is told to go at the end, have for their streams.
const FAREWELL: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(5);
/// Longest request head.
const HEAD_BYTES: u32 = 16 << 10;
/// What is taken in before it was asked for: one stream, one connection.
const STREAM_WINDOW: u32 = (64 << 10) - 1;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// What of one stream waits in its connection to be written; the rest waits where it costs nothing.
const WRITTEN_AHEAD: usize = 64 << 10;
/// Between two tries to accept when the process has no descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// Between two pings, and for the answer to one.
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// `None`: for ever.
    pub(crate) age: Option<Duration>,
    /// Of one connection.
    pub(crate) streams: u32,
}

/// What does the next handshakes.
pub(crate) type Acceptor = TlsAcceptor;

/// A bound port.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    /// `None`: plain. Else the certificates that are current.
    pub(crate) tls: Option<watch::Receiver<Option<Acceptor>>>,
}

/// Serves until the stage is `Leaving` and all have left.
pub(super) async fn run(port: Port, hub: Arc<Hub>, mut stage: watch::Receiver<Stage>) {
    let Port { listener, tls } = port;
    let places = Arc::new(Semaphore::new(PLACES));
    let mut tasks = JoinSet::new();
    let mut refused: u64 = 0;
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = next => accepted,
            Some(_ended) = tasks.join_next() => continue,
            _ = stage.wait_for(|stage| *stage == Stage::Leaving) => break,
        };
        match accepted {
            Ok((stream, address)) => {
                refused = 0;
                let acceptor = match &tls {
                    Some(current) => match current.borrow().clone() {
                        Some(acceptor) => Some(acceptor),
                        // They were there before the port was opened.
                        None => continue,
                    },
                    None => None,
                };
                let connection = one(stream, address, acceptor, Arc::clone(&hub), stage.clone());
                tasks.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(cause) => {
                refused += 1;
                if log::worth_a_line(refused) {
                    warn!("cannot accept a connection: {cause} ({refused} times)");
                }
                tokio::time::sleep(NO_DESCRIPTORS).await;
            }
        }
    }
    drop(listener);
    let all = async { while tasks.join_next().await.is_some() {} };
    // What has not ended by then is cut with the set.
    let _cut = timeout(END, all).await;
}

async fn one(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    hub: Arc<Hub>,
    stage: watch::Receiver<Stage>,
) {
    // Responses are one write each.
    let _best = stream.set_nodelay(true);
    let Some(acceptor) = tls else {
        return serve(stream, Peer::new(address, None), hub, stage).await;
    };
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let leaf = session.peer_certificates().and_then(<[_]>::first);
            let names = leaf.map(|leaf| tls::names_of(leaf)).unwrap_or_default();
            let peer = Peer::new(address, Some(Identity::of(&names)));
            serve(stream, peer, hub, stage).await;
        }
        Ok(Err(_)) | Err(_) => hub.metrics.handshake_failed(),
    }
}

async fn serve<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: I,
    peer: Peer,
    hub: Arc<Hub>,
    mut stage: watch::Receiver<Stage>,
) {
    let keeping = hub.options.keeping;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(keeping.streams)
        .max_send_buf_size(WRITTEN_AHEAD)
        .keep_alive_interval(keeping.interval)
        .keep_alive_timeout(keeping.timeout);
    let peer = Arc::new(peer);
    let asked = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let service = service_fn(|request| {
        asked.store(true, std::sync::atomic::Ordering::Relaxed);
        let answer = grpc::answer(&hub, &peer, request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let begun = Instant::now();
    let opening = begun + OPENING;
    let old = keeping.age.map(|age| begun + jittered(age));
    let mut told: Option<Instant> = None;
    let mut opened = false;
    loop {
        let next = match (told, old, opened) {
            (Some(told), ..) => Some(told + FAREWELL),
            (None, old, false) => Some(old.map_or(opening, |old| old.min(opening))),
            (None, old, true) => old,
        };
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // How it ended is the client's business.
            _ended = connection.as_mut() => return,
            () = peer.is_cut() => return,
            () = due => {
                if told.is_some() {
                    return;
                }
                let now = Instant::now();
                if !asked.load(std::sync::atomic::Ordering::Relaxed) && now >= opening {
                    return;
                }
                opened = now >= opening;
                if old.is_none_or(|old| now < old) {
                    continue;
                }
            }
            _ = stage.wait_for(|stage| *stage == Stage::Leaving), if told.is_none() => {}
        }
        told = Some(Instant::now());
        connection.as_mut().graceful_shutdown();
    }
}

/// Ten percent more or less, so that those who came together do not all go together.
fn jittered(age: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 2001;
    let share = 0.9 + f64::from(u32::try_from(random).unwrap_or(1000)) / 10_000.0;
    age.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_most() {
        let age = Duration::from_secs(1000);
        let mut all: Vec<_> = (0..100).map(|_| jittered(age)).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 50);
        for one in all {
            assert!(
                one >= Duration::from_secs(900) && one <= Duration::from_secs(1101),
                "{one:?}"
            );
        }
    }
}
