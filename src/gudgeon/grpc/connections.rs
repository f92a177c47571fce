//! The gRPC ports: HTTP/2 connections that live for days, their pings, their age and their end.

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::address::Address;
use super::addresses::AddressLimit;
use super::calls::Calls;
use super::idle_connection_limit::{ConnectionProgress, IdleConnectionLimit, IdleSlot};
use super::named_listener::NamedListener;
use super::partial_message_limit::PartialMessageLimit;
use super::peer::{Leaf, Peer};
use crate::clock::chance;
use crate::descriptors;
use crate::log_rate_limiter::LogRateLimiter;
use crate::serve::{Accept, Shutdown, accept, http2_builder};

/// Connections of one port at a time. Chosen: ten times the proxies that `build/promises discovery` measures.
const MAX_CONNECTIONS: usize = 20_000;
/// Connections of one address: a quarter, so that one address leaves room for the rest. Thousands of proxies may come
/// through one NAT, and two of each during a hot restart.
const OF_ONE_ADDRESS: usize = MAX_CONNECTIONS / 4;
/// The timeout of a handshake, and that from the handshake to the first request. Chosen: a loaded proxy needs a second.
const HANDSHAKE: Duration = Duration::from_secs(5);
const OPENING: Duration = Duration::from_secs(10);
/// The time that streams have to end after GOAWAY: when a connection is too old, and at shutdown. Chosen: a response under way
/// ends within it.
const GOAWAY_GRACE: Duration = Duration::from_secs(10);
/// The same of an idle connection: one that never had a request, or, where clients may not stay, one without a stream. Chosen: one
/// round trip to any site.
const GOAWAY_IDLE_GRACE: Duration = Duration::from_secs(1);
/// Half of it is what the HTTP/2 library grants small frames that are not consumed yet, at 256 bytes less their length each;
/// beyond it ends the connection. A stream's whole window of requests, which may come before the stream has its turn, takes
/// 150 KiB of that in frames of 80 bytes and 300 KiB in frames of 44, the shortest; other streams must survive it.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of a frame at most: a window. Frames of 8 to 16 KiB double the HTTP/2 library's buffer for ever, longer ones do not.
const MAX_FRAME_BYTES: u32 = 64 << 10;
/// Bytes of a stream that wait in its connection to be written, in a list that never shrinks; the rest waits at no cost.
const WRITTEN_AHEAD: usize = 16 << 10;
/// Lines of a minute of handshakes that fail.
const FAILURES: u32 = 10;

/// Keepalive and limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionOptions {
    /// The interval of pings, and the timeout of an answer.
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// `None` or zero: unlimited, as in gRPC.
    pub(crate) age: Option<Duration>,
    /// Streams of one connection.
    pub(crate) streams: u32,
    /// Idle connections at a time, each for at most the time to its first request; at the limit one of them is evicted for
    /// the next.
    pub(crate) idle: usize,
    /// After its first request a connection no longer counts as idle, with or without a stream.
    pub(crate) stays: bool,
}

/// The acceptor of later handshakes.
pub(crate) type Acceptor = TlsAcceptor;

/// A byte stream of any kind: one type, so that the code of HTTP/2 is compiled once.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub(super) type Stream = Box<dyn Duplex>;

/// A bound socket.
#[derive(Debug)]
pub(crate) enum GrpcListener {
    Tcp(TcpListener),
    Unix(NamedListener),
}

impl GrpcListener {
    async fn accept(&self) -> std::io::Result<(Accepted, Address)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Responses are one write each.
                let _best = stream.set_nodelay(true);
                Ok((Accepted::Tcp(stream), Address::Ip(address)))
            }
            Self::Unix(listener) => {
                let stream = listener.accept().await?;
                Ok((Accepted::Unix(stream), Address::Unix))
            }
        }
    }
}

/// An accepted connection, of which nothing was read.
enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Accepted {
    /// Returns when the client has sent a byte, or is gone. A Unix socket is accessible to its owner alone.
    async fn first_byte(&self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.peek(&mut [0]).await.map(drop),
            Self::Unix(_) => Ok(()),
        }
    }

    fn into_stream(self) -> Stream {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Unix(stream) => Box::new(stream),
        }
    }
}

/// A bound port.
pub(crate) struct Port {
    pub(crate) listener: GrpcListener,
    /// `None`: plain. Else the certificates that are current.
    pub(crate) tls: Option<watch::Receiver<Option<Acceptor>>>,
}

/// The settings that the connections of a port share.
struct Common {
    calls: Arc<dyn Calls>,
    options: ConnectionOptions,
    idle: Arc<IdleConnectionLimit>,
    unfinished: Arc<PartialMessageLimit>,
    shutdown: Shutdown,
    /// Limits log lines about failed handshakes, since the client may not report them.
    failures: LogRateLimiter,
}

/// Serves until the stage is `Closing` and all have left.
pub(crate) async fn run(
    port: Port,
    options: ConnectionOptions,
    calls: Arc<dyn Calls>,
    shutdown: Shutdown,
) {
    let common = Common {
        calls,
        options,
        idle: IdleConnectionLimit::new(options.idle),
        unfinished: Arc::default(),
        shutdown: shutdown.clone(),
        failures: LogRateLimiter::new(FAILURES),
    };
    let port = GrpcPort {
        port,
        slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        addresses: AddressLimit::new("connection", OF_ONE_ADDRESS),
        common: Arc::new(common),
    };
    accept(port, shutdown).await;
}

/// A bound port with its limits.
struct GrpcPort {
    port: Port,
    slots: Arc<Semaphore>,
    addresses: Arc<AddressLimit>,
    common: Arc<Common>,
}

/// The places of a connection: a slot of its port, and a descriptor; a semaphore that is never closed has no error.
type ConnectionPermits = [Result<OwnedSemaphorePermit, AcquireError>; 2];

impl Accept for GrpcPort {
    type Accepted = (Accepted, Address, ConnectionPermits);

    async fn accept(&self) -> std::io::Result<Self::Accepted> {
        let places = [
            // The port's slot comes first: a full port must not keep a descriptor that another port could use.
            Arc::clone(&self.slots).acquire_owned().await,
            descriptors::streams().acquire_owned().await,
        ];
        // Until a slot is free or its holder is due, the next client waits in the kernel's queue.
        self.common.idle.ready().await;
        let (stream, address) = self.port.listener.accept().await?;
        Ok((stream, address, places))
    }

    fn spawn(&self, (stream, address, places): Self::Accepted, tasks: &mut JoinSet<()>) {
        let Some(permit) = self.addresses.enter(&address) else {
            self.common.calls.connection_refused();
            return;
        };
        let acceptor = match &self.port.tls {
            None => None,
            Some(current) => match current.borrow().clone() {
                // The files were there before the port was opened.
                None => return,
                current => current,
            },
        };
        let idle_timer = IdleTimer::new(&self.common, &address);
        let common = Arc::clone(&self.common);
        // Begun within the task: a future that is moved into it would take its memory twice, for as long as the connection
        // lives.
        tasks.spawn(async move {
            one(stream, address, acceptor, idle_timer, common).await;
            drop((places, permit));
        });
    }

    /// An idle connection gives up its descriptor.
    fn evict(&self) {
        self.common.idle.evict();
    }
}

async fn one(
    accepted: Accepted,
    address: Address,
    tls: Option<TlsAcceptor>,
    idle_timer: IdleTimer,
    common: Arc<Common>,
) {
    let is_secured = tls.is_some();
    let mut shutdown = common.shutdown.clone();
    let opened = tokio::select! {
        opened = opened(accepted, tls, &idle_timer) => opened,
        () = idle_timer.evicted() => Err(None),
        // It has no request that the end could wait for.
        () = shutdown.closing() => return,
    };
    match opened {
        Ok((stream, leaf)) => {
            let peer = Peer::new(address, leaf).on(&common.unfinished);
            serve(stream, peer, idle_timer, &common).await;
        }
        Err(cause) => {
            if let Some(cause) = cause
                && let Some(more) = common.failures.suffix_if_allowed()
            {
                warn!("no TLS with {address}: {cause}{more}");
            }
            if is_secured {
                common.calls.handshake_failed();
            }
        }
    }
}

/// Waits for the first bytes, and does the handshake. A function of its own: a value that one function holds at two moments
/// has two places in its task, for as long as the connection lives. The error has a cause if the client has begun TLS.
async fn opened(
    accepted: Accepted,
    tls: Option<TlsAcceptor>,
    idle_timer: &IdleTimer,
) -> Result<(Stream, Option<Leaf>), Option<String>> {
    // Plain HTTP/2 has no handshake, so its first byte has as long as its first request.
    let limit = if tls.is_some() { HANDSHAKE } else { OPENING };
    let begun = Instant::now();
    let first = timeout_at(begun + limit, accepted.first_byte()).await;
    if !matches!(first, Ok(Ok(()))) {
        return Err(None);
    }
    idle_timer.reaches(ConnectionProgress::Speaking);
    let Some(acceptor) = tls else {
        return Ok((accepted.into_stream(), None));
    };
    let stream = timeout_at(begun + limit, acceptor.accept(accepted.into_stream()));
    let stream = match stream.await {
        Ok(Ok(stream)) => stream,
        // A port scan: the client sent nothing.
        Ok(Err(cause)) if cause.kind() == ErrorKind::UnexpectedEof => return Err(None),
        Ok(Err(cause)) => return Err(Some(cause.to_string())),
        Err(_) => return Err(Some("the handshake took too long".to_owned())),
    };
    let (_, session) = stream.get_ref();
    let leaf = session.peer_certificates().and_then(<[_]>::first);
    if leaf.is_some() {
        // The certificate is verified: strangers are evicted before this connection.
        idle_timer.reaches(ConnectionProgress::Known);
    }
    let leaf = leaf.map(|leaf| Leaf::of(leaf)).unwrap_or_default();
    Ok((Box::new(stream), Some(leaf)))
}

/// The time that a connection may stay idle.
struct IdleTimer {
    limit: Arc<IdleConnectionLimit>,
    /// The slot, while the connection is idle.
    slot: Option<IdleSlot>,
    stays: bool,
    since: Instant,
}

impl IdleTimer {
    fn new(common: &Common, address: &Address) -> Self {
        let limit = Arc::clone(&common.idle);
        Self {
            slot: Some(IdleConnectionLimit::enter(
                &limit,
                address,
                ConnectionProgress::Silent,
            )),
            limit,
            stays: common.options.stays,
            since: Instant::now(),
        }
    }

    fn reaches(&self, progress: ConnectionProgress) {
        if let Some(slot) = &self.slot {
            slot.reaches(progress);
        }
    }

    /// Returns when it has to go for others.
    async fn evicted(&self) {
        match &self.slot {
            Some(slot) => slot.evicted().await,
            None => std::future::pending().await,
        }
    }

    /// The first request or stream has come, or the last stream has gone.
    fn turns(&mut self, peer: &Peer) {
        let is_idle = match self.stays {
            true => !peer.has_requested(),
            false => peer.streams() == 0,
        };
        if !is_idle {
            self.slot = None;
        } else if self.slot.is_none() {
            // The last stream has ended: the connection competes for a slot again, with its time to a request
            // anew.
            self.since = Instant::now();
            let slot =
                IdleConnectionLimit::enter(&self.limit, &peer.address, ConnectionProgress::Known);
            self.slot = Some(slot);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.slot.as_ref().map(|_| self.since + OPENING)
    }
}

async fn serve(stream: Stream, peer: Peer, mut idle_timer: IdleTimer, common: &Common) {
    let options = common.options;
    let mut shutdown = common.shutdown.clone();
    let peer = Arc::new(peer);
    let service = service_fn(|request| {
        peer.request_received();
        let answer = common.calls.answer(&peer, request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let http2 = options.http2();
    let mut connection = pin!(http2.serve_connection(TokioIo::new(stream), service));
    let old = options.end_of_life().map(|age| Instant::now() + age);
    let mut goaway_sent_at: Option<Instant> = None;
    loop {
        let idle = idle_timer.deadline();
        let next = match goaway_sent_at {
            // An idle client closes once it has GOAWAY.
            Some(sent_at) if idle.is_some() => Some(sent_at + GOAWAY_IDLE_GRACE),
            Some(sent_at) => Some(sent_at + GOAWAY_GRACE),
            None => idle.into_iter().chain(old).min(),
        };
        tokio::select! {
            // The result is the client's concern.
            _ended = connection.as_mut() => return,
            () = peer.is_cut() => return,
            () = idle_timer.evicted(), if goaway_sent_at.is_none() => return,
            () = peer.turned() => {
                idle_timer.turns(&peer);
                continue;
            }
            () = sleep_until(next) => {
                if goaway_sent_at.is_some() {
                    return;
                }
                let now = Instant::now();
                if idle_timer.deadline().is_some_and(|idle| now >= idle) {
                    // No stream is open, so closing without GOAWAY loses none.
                    return;
                }
                if old.is_none_or(|old| now < old) {
                    continue;
                }
            }
            () = shutdown.closing(), if goaway_sent_at.is_none() => {}
        }
        goaway_sent_at = Some(Instant::now());
        // Sends GOAWAY.
        connection.as_mut().graceful_shutdown();
    }
}

/// Sleeps until then; for ever without a time.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl ConnectionOptions {
    /// Returns the settings of HTTP/2: windows, limits and keepalive.
    fn http2(&self) -> http2::Builder<TokioExecutor> {
        let mut builder = http2_builder(CONNECTION_WINDOW, self.streams);
        builder
            .max_frame_size(MAX_FRAME_BYTES)
            .max_send_buf_size(WRITTEN_AHEAD)
            .keep_alive_interval(self.interval)
            .keep_alive_timeout(self.timeout);
        builder
    }

    /// Returns the age limit, with jitter.
    fn end_of_life(&self) -> Option<Duration> {
        self.age.filter(|age| !age.is_zero()).map(jittered)
    }
}

/// Adds jitter of ten percent, so that clients which connected together do not reconnect together.
fn jittered(age: Duration) -> Duration {
    age.mul_f64(0.9 + chance() / 5.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use hyper::body::Incoming;
    use hyper::{Request, Response};

    use super::*;
    use crate::grpc::calls::Reply;
    use crate::serve::ShutdownStage;

    /// Services that are never called.
    struct Nothing;

    impl Calls for Nothing {
        fn answer(&self, _: &Arc<Peer>, _: Request<Incoming>) -> Response<Reply> {
            unreachable!("nothing is asked")
        }

        fn handshake_failed(&self) {
            unreachable!("there is no TLS")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_request_do_not_hold_up_the_end() {
        for bytes in [&b""[..], b"PRI", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (end, stage) = Shutdown::channel();
            let port = Port {
                listener: GrpcListener::Tcp(listener),
                tls: None,
            };
            let options = ConnectionOptions {
                interval: Duration::from_secs(30),
                timeout: Duration::from_secs(10),
                age: None,
                streams: 1,
                idle: 10,
                stays: true,
            };
            let served = tokio::spawn(run(port, options, Arc::new(Nothing), stage));
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(bytes).unwrap();
            // It is accepted, and what it says is read.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let begun = Instant::now();
            end.send(ShutdownStage::Closing).unwrap();
            served.await.unwrap();
            assert!(
                begun.elapsed() <= GOAWAY_IDLE_GRACE,
                "{bytes:?}: {:?}",
                begun.elapsed()
            );
        }
    }

    #[test]
    fn a_connection_of_no_age_lives_for_ever() {
        let options = |age| ConnectionOptions {
            interval: Duration::ZERO,
            timeout: Duration::ZERO,
            age,
            streams: 1,
            idle: 1,
            stays: true,
        };
        for age in [None, Some(Duration::ZERO)] {
            assert_eq!(options(age).end_of_life(), None);
        }
        assert!(options(Some(Duration::from_secs(1))).end_of_life() > Some(Duration::ZERO));
    }

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
