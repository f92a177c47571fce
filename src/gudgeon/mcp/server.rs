//! The port for sinks: access, socket, and the snapshots served there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, Response};
use mcp::collections::Collections;
use mcp::source::{Dialer, Source};
use tokio::sync::watch;
use tonic::{Code, Status};
use tracing::{error, info, warn};

use super::access::{CurrentList, DefaultAccess, REFUSED, is_allowed};
use super::peers::{Direction, Peers};
use super::redacted_snapshots::SinkSnapshots;
use super::socket::Socket;
use super::source_stream::{SourceContext, SourceStream};
use super::wire::ResponsePieces;
use super::{METHOD, SOURCE, Snapshots, access};
use crate::cli::VERSION;
use crate::exit::Failure;
use crate::file_states::FileStates;
use crate::grpc::{
    self, Bounds, Calls, Certificates, ConnectionOptions, Inbound, Peer, Port, Reply,
    ResponseSender, refused, streaming,
};
use crate::log_rate_limiter::LogRateLimiter;
use crate::serve::Shutdown;

/// Connections without a stream (galley.md, section 10).
const IDLE: usize = 64;
/// Values of one field of a request: more names than fit into one that is written well.
pub(super) const VALUES: usize = 100_000;
/// The settings by the flags.
#[derive(Clone, Debug)]
pub(crate) struct McpServerSettings {
    /// The name of the address's flag.
    pub(crate) flag: &'static str,
    /// `tcp://HOST:PORT`, `HOST:PORT` or `unix:///PATH`.
    pub(crate) address: String,
    /// Plain: no certificates, no list.
    pub(crate) insecure: bool,
    pub(crate) certificates: Certificates,
    pub(crate) access_list: PathBuf,
    pub(crate) without_list: DefaultAccess,
    /// Bytes of a request.
    pub(crate) received: usize,
    /// Streams of one connection, and of all connections.
    pub(crate) streams: u32,
    /// Pings, and the age of connections.
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) age: Option<Duration>,
    /// Receives the states of the files; `None`: the log alone has them.
    pub(crate) files: Option<Arc<FileStates>>,
}

/// A server that has bound its address, and does not serve yet.
#[derive(Debug)]
pub(crate) struct McpServer {
    settings: McpServerSettings,
    socket: Socket,
    access: Option<watch::Receiver<Arc<CurrentList>>>,
    open: watch::Sender<bool>,
}

impl McpServer {
    /// Binds the address, and reads the access list.
    ///
    /// # Errors
    /// The address or the list cannot be used.
    pub(crate) fn new(settings: McpServerSettings) -> Result<Self, Failure> {
        let socket = Socket::reserve(settings.flag, &settings.address)?;
        let access = if settings.insecure || socket.is_unix() {
            None
        } else {
            Some(access::follow(
                &settings.access_list,
                settings.without_list,
                settings.files.clone(),
            )?)
        };
        Ok(Self {
            settings,
            socket,
            access,
            open: watch::Sender::new(false),
        })
    }

    /// The port, which is open or will be.
    #[cfg(test)]
    pub(super) fn port(&self) -> Option<u16> {
        self.socket.port()
    }

    /// The address, for people.
    pub(crate) fn address(&self) -> String {
        self.socket.address(self.access.is_some())
    }

    /// The access of the port, for status pages.
    pub(crate) fn port_access(&self) -> PortAccess {
        PortAccess {
            at: self.address(),
            path: self.settings.access_list.clone(),
            access: self.access.clone(),
        }
    }

    /// Returns a receiver that is true while clients are accepted.
    pub(crate) fn is_open(&self) -> watch::Receiver<bool> {
        self.open.subscribe()
    }

    /// Serves sources' snapshots until the stage is `Closing` and all have left.
    pub(crate) async fn run(
        self,
        collections: Arc<Collections>,
        peers: Arc<Peers>,
        snapshots: watch::Receiver<Snapshots>,
        shutdown: Shutdown,
    ) {
        // The file of a unix socket is its owner's alone.
        let is_known = self.access.is_some() || self.socket.is_unix();
        let snapshots = SinkSnapshots::new(snapshots, is_known);
        let common = SourceContext {
            peers,
            pieces: ResponsePieces::default(),
            snapshots: snapshots.sent.clone(),
            shutdown: shutdown.clone(),
        };
        let service = SourceService {
            common: Arc::new(common),
            collections,
            guard: self.guard(),
            streams: usize::try_from(self.settings.streams).unwrap_or(usize::MAX),
            bounds: Bounds {
                bytes: self.settings.received,
                beyond: Code::ResourceExhausted,
                values: VALUES,
            },
        };
        let serving = self.serve(Arc::new(service), shutdown);
        snapshots.while_serving(serving).await;
    }

    /// The clients that the port accepts.
    pub(super) fn guard(&self) -> Guard {
        Guard {
            access: self.access.clone(),
            refusals: LogRateLimiter::new(1),
        }
    }

    pub(super) fn received(&self) -> usize {
        self.settings.received
    }

    /// Waits for certificates, and opens the port.
    pub(super) async fn serve(self, calls: Arc<dyn Calls>, mut shutdown: Shutdown) {
        let tls = if self.access.is_some() {
            let mut watched = grpc::follow(
                self.settings.certificates.clone(),
                self.settings.files.clone(),
            );
            // The address is bound, and stays closed until a handshake can succeed.
            tokio::select! {
                found = watched.wait_for(Option::is_some) => if found.is_err() { return },
                () = shutdown.closing() => return,
            }
            Some(watched)
        } else {
            None
        };
        let at = self.address();
        let listener = match self.socket.listen() {
            Ok(opened) => opened,
            Err(cause) => return error!("cannot listen on {at}: {cause}"),
        };
        info!("listening on {at}");
        self.open.send_replace(true);
        let options = ConnectionOptions {
            interval: self.settings.interval,
            timeout: self.settings.timeout,
            age: self.settings.age,
            streams: self.settings.streams,
            idle: IDLE,
            stays: false,
        };
        grpc::run(Port { listener, tls }, options, calls, shutdown).await;
        self.open.send_replace(false);
    }
}

/// The access list of a port, for pages.
#[derive(Clone, Debug)]
pub(crate) struct PortAccess {
    at: String,
    path: PathBuf,
    access: Option<watch::Receiver<Arc<CurrentList>>>,
}

impl PortAccess {
    /// Returns the reason why the port refuses every client; `None` if it accepts some.
    pub(crate) fn why_nobody(&self) -> Option<String> {
        let access = self.access.as_ref()?;
        let why = access.borrow().why_nobody(&self.path)?;
        Some(format!("{}: {why}", self.at))
    }
}

/// The access list, and a limit for log lines about refusals.
pub(super) struct Guard {
    pub(super) access: Option<watch::Receiver<Arc<CurrentList>>>,
    refusals: LogRateLimiter,
}

impl Guard {
    /// Returns the response to a client that is refused; `None` if it may stay.
    pub(super) fn refuses(&self, peer: &Peer) -> Option<Response<Reply>> {
        if is_allowed(self.access.as_ref(), peer) {
            return None;
        }
        if let Some(count) = self.refusals.add() {
            let leaf = peer.leaf.as_ref();
            let uris = leaf.map(|leaf| leaf.uris.join(", ")).unwrap_or_default();
            let at = &peer.address;
            warn!(
                "refused {} that the access list does not allow, {at} ({uris}) last",
                api::counted(count, "stream")
            );
        }
        Some(refused(&Status::unauthenticated(REFUSED)))
    }
}

struct SourceService {
    common: Arc<SourceContext>,
    collections: Arc<Collections>,
    guard: Guard,
    streams: usize,
    bounds: Bounds,
}

impl Calls for SourceService {
    fn answer(&self, peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Reply> {
        match grpc::call(&request) {
            Some((SOURCE, METHOD)) => {}
            Some(_) => return refused(&Status::unimplemented("no such service or method")),
            None => return grpc::no_call(),
        }
        if let Some(answer) = self.guard.refuses(peer) {
            return answer;
        }
        let source = Source::new(Arc::clone(&self.collections), Dialer::Sink);
        let peers = &self.common.peers;
        let Some(joined) = peers.join(peer, Direction::Accepted, source, self.streams) else {
            let message = format!("there are {} streams already", self.streams);
            return refused(&Status::resource_exhausted(message));
        };
        let sender = Arc::new(ResponseSender::default());
        let answer = versioned(&sender);
        let stream = SourceStream {
            common: Arc::clone(&self.common),
            joined,
            peer: Arc::clone(peer),
            inbound: Inbound::of(peer, request.into_body(), self.bounds),
            sender,
            access: self.guard.access.clone(),
        };
        tokio::spawn(stream.run());
        answer
    }

    fn handshake_failed(&self) {
        self.common.peers.counters.recv_failed();
    }
}

/// The head of every stream.
pub(super) fn versioned(sender: &Arc<ResponseSender>) -> Response<Reply> {
    let mut answer = streaming(sender);
    let version = HeaderValue::from_static(VERSION);
    answer.headers_mut().insert("version", version);
    answer
}
