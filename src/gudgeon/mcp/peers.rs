//! All streams of the protocol as others see them: pages read them, metrics count them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use mcp::source::{ListedBytes, Nack, Source};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::clock::Clock;
use crate::grpc::Peer;
use crate::log_rate_limiter::LogRateLimiter;

/// Bytes.
const SIZES: [f64; 6] = [256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0];

/// The direction of a stream's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The sink has dialled this program.
    Accepted,
    /// This program has dialled the sink.
    Dialled,
}

impl Direction {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "server",
            Self::Dialled => "callout",
        }
    }
}

/// A sending stream.
#[derive(Debug)]
pub(super) struct PeerStream {
    address: String,
    identity: Vec<String>,
    direction: Direction,
    since: Duration,
    source: Mutex<Source>,
}

impl PeerStream {
    pub(super) fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the peer's name for the log.
    pub(super) fn name(&self) -> String {
        match self.source().node() {
            Some(node) => format!("{node} ({})", self.address),
            None => self.address.clone(),
        }
    }
}

/// The status of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamStatus {
    pub(crate) address: String,
    /// URIs of its certificate.
    pub(crate) identity: Vec<String>,
    /// The sink's name for itself.
    pub(crate) node: Option<Arc<str>>,
    pub(crate) direction: Direction,
    pub(crate) since: SystemTime,
    pub(crate) collections: Vec<Subscribed>,
}

/// A collection of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Subscribed {
    pub(crate) collection: Arc<str>,
    pub(crate) sent: Option<String>,
    pub(crate) acked: Option<String>,
    pub(crate) pending_nonce: Option<u64>,
    pub(crate) incremental: bool,
    pub(crate) nacks: u64,
    /// The last NACK, with its time.
    pub(crate) last_nack: Option<(SystemTime, Nack)>,
}

/// The peers of all streams.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) clock: Clock,
    pub(super) counters: Counters,
    pub(super) log_limiters: SinkLogRateLimiters,
    /// The memory of what sinks list.
    lists: Arc<ListedBytes>,
    streams: Mutex<BTreeMap<u64, Arc<PeerStream>>>,
}

/// The log limiters of all sinks together.
#[derive(Debug)]
pub(super) struct SinkLogRateLimiters {
    /// Errors that end a stream.
    pub(super) faults: LogRateLimiter,
    /// Responses that are sent at once, however long they are.
    pub(super) oversized: LogRateLimiter,
}

impl Default for SinkLogRateLimiters {
    fn default() -> Self {
        Self {
            faults: LogRateLimiter::new(1),
            oversized: LogRateLimiter::new(20),
        }
    }
}

/// A stream among all others; it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct PeerRegistration {
    peers: Arc<Peers>,
    number: u64,
    pub(super) stream: Arc<PeerStream>,
}

impl Drop for PeerRegistration {
    fn drop(&mut self) {
        let mut streams = self.peers.streams();
        streams.remove(&self.number);
        self.peers.counters.clients(streams.len());
    }
}

impl Peers {
    /// Creates an empty set. The component is the metrics' label for this program.
    pub(crate) fn new(component: &'static str) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::new(),
            counters: Counters::new(component),
            log_limiters: SinkLogRateLimiters::default(),
            lists: Arc::default(),
            streams: Mutex::default(),
        })
    }

    /// Registers the metrics with a role.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.counters.register(registry);
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<PeerStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream, if there are fewer than `max`.
    pub(super) fn join(
        self: &Arc<Self>,
        peer: &Peer,
        direction: Direction,
        source: Source,
        max: usize,
    ) -> Option<PeerRegistration> {
        let mut streams = self.streams();
        if streams.len() >= max {
            return None;
        }
        let leaf = peer.leaf.as_ref();
        let stream = Arc::new(PeerStream {
            address: peer.address.to_string(),
            identity: leaf.map(|leaf| leaf.uris.clone()).unwrap_or_default(),
            direction,
            since: self.clock.now(),
            source: Mutex::new(source.counted_in(Arc::clone(&self.lists))),
        });
        let last = streams.last_key_value();
        let number = last.map_or(0, |(last, _)| last.saturating_add(1));
        streams.insert(number, Arc::clone(&stream));
        self.counters.clients(streams.len());
        Some(PeerRegistration {
            peers: Arc::clone(self),
            number,
            stream,
        })
    }

    /// Returns the state of all streams, in the order in which they began.
    pub(crate) fn stream_statuses(&self) -> Vec<StreamStatus> {
        // Each source has a lock of its own; the table's is released before they are taken.
        let streams: Vec<_> = self.streams().values().cloned().collect();
        let statuses = streams.iter().map(|stream| {
            let source = stream.source();
            let collections = source.status().map(|(collection, status)| Subscribed {
                collection: Arc::clone(collection),
                sent: status.sent.map(|version| version.to_string()),
                acked: status.acked.map(|version| version.to_string()),
                pending_nonce: status.pending_nonce,
                incremental: status.incremental,
                nacks: status.nacks,
                last_nack: status
                    .last_nack
                    .map(|nack| (self.clock.wall(nack.at), nack.clone())),
            });
            StreamStatus {
                address: stream.address.clone(),
                identity: stream.identity.clone(),
                node: source.node().cloned(),
                direction: stream.direction,
                since: self.clock.wall(stream.since),
                collections: collections.collect(),
            }
        });
        statuses.collect()
    }
}

type LabelledMetric<const LABELS: usize, M> = Family<[(&'static str, String); LABELS], M>;

/// The metrics, under the names that Galley has, as they are in Prometheus' older format.
#[derive(Debug)]
pub(super) struct Counters {
    component: &'static str,
    clients: LabelledMetric<1, Gauge>,
    sizes: LabelledMetric<2, Histogram>,
    acks: LabelledMetric<2, Counter>,
    nacks: LabelledMetric<3, Counter>,
    stale: LabelledMetric<2, Counter>,
    send_failures: LabelledMetric<1, Counter>,
    recv_failures: LabelledMetric<1, Counter>,
    reconnections: LabelledMetric<1, Counter>,
}

impl Counters {
    fn new(component: &'static str) -> Self {
        let this = Self {
            component,
            clients: LabelledMetric::default(),
            sizes: LabelledMetric::new_with_constructor(|| Histogram::new(SIZES)),
            acks: LabelledMetric::default(),
            nacks: LabelledMetric::default(),
            stale: LabelledMetric::default(),
            send_failures: LabelledMetric::default(),
            recv_failures: LabelledMetric::default(),
            reconnections: LabelledMetric::default(),
        };
        this.clients(0);
        this
    }

    fn register(&self, registry: &mut Registry) {
        let (clients, sizes) = (self.clients.clone(), self.sizes.clone());
        registry.register("istio_mcp_clients_total", "Open streams", clients);
        registry.register(
            "istio_mcp_message_sizes_bytes",
            "Bytes of messages received",
            sizes,
        );
        let (acks, nacks) = (self.acks.clone(), self.nacks.clone());
        registry.register(
            "istio_mcp_request_acks_total",
            "Responses acknowledged (ACK)",
            acks,
        );
        registry.register(
            "istio_mcp_request_nacks_total",
            "Responses rejected (NACK)",
            nacks,
        );
        registry.register(
            "gudgeon_mcp_stale_requests",
            "Requests with an expired nonce",
            self.stale.clone(),
        );
        let failures = [
            (
                "istio_mcp_send_failures_total",
                "Responses not written completely",
                &self.send_failures,
            ),
            (
                "istio_mcp_recv_failures_total",
                "Streams ended by a read error",
                &self.recv_failures,
            ),
            (
                "istio_mcp_reconnections",
                "Streams dialled again",
                &self.reconnections,
            ),
        ];
        for (name, help, family) in failures {
            registry.register(name, help, family.clone());
        }
    }

    fn us(&self) -> (&'static str, String) {
        ("component", self.component.to_owned())
    }

    fn of(&self, collection: &str) -> [(&'static str, String); 2] {
        [self.us(), ("collection", collection.to_owned())]
    }

    fn clients(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.clients.get_or_create(&[self.us()]).set(count);
    }

    pub(super) fn message_received(&self, collection: &str, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let of = self.of(collection);
        self.sizes.get_or_create(&of).observe(f64::from(bytes));
    }

    pub(super) fn acked(&self, collection: &str) {
        self.acks.get_or_create(&self.of(collection)).inc();
    }

    /// Counts a NACK and returns the count. An unknown gRPC code is counted as `other`: a peer may send any number.
    pub(super) fn nacked(&self, collection: &str, code: i32) -> u64 {
        let [us, of] = self.of(collection);
        let code = match code {
            0..=16 => code.to_string(),
            _ => "other".to_owned(),
        };
        let labels = [us, of, ("code", code)];
        self.nacks.get_or_create(&labels).inc().saturating_add(1)
    }

    /// Counts a stale answer and returns the count.
    pub(super) fn stale(&self, collection: &str) -> u64 {
        let stale = self.stale.get_or_create(&self.of(collection));
        stale.inc().saturating_add(1)
    }

    pub(super) fn send_failed(&self) {
        self.send_failures.get_or_create(&[self.us()]).inc();
    }

    pub(super) fn recv_failed(&self) {
        self.recv_failures.get_or_create(&[self.us()]).inc();
    }

    pub(super) fn reconnected(&self) {
        self.reconnections.get_or_create(&[self.us()]).inc();
    }
}
