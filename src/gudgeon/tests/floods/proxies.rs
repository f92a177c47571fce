//! Hostile proxies and clients of discovery's pages: each sends other values than the last, subscribes to missing names, or
//! to everything at once. Beside them a proxy has its updates, and health answers.

#![allow(
    clippy::await_holding_lock,
    reason = "each test has a runtime of its own, and one runs at a time"
)]

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Code;

use crate::alone;
use crate::client::{request as request_of, *};
use crate::place::{Discovery, Place, documents, request};
use crate::support::beside::Beside;
use crate::support::program::until;

/// The deadline of a health check, under any load: 100 ms for the program that ships. The one under test is not optimised,
/// and its clients need the cores, too.
const HEALTH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });
/// And a proxy its update.
const PROMPT: Duration = Duration::from_secs(2);

pub(crate) fn mesh(services: usize) -> Place {
    let many: Vec<String> = (0..services)
        .map(|number| {
            let endpoints: Vec<String> = (1..=10).map(|at| format!("10.1.{at}.1")).collect();
            let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
            service(&format!("s{number}"), &endpoints)
        })
        .collect();
    Place::new()
        .with("mesh", "enableAutoMtls: true\n")
        .with("config/b.yaml", &service("b", &["10.0.0.1"]))
        .with("config/many.yaml", &documents(&many))
}

/// A proxy that subscribes as usual, and a client that polls the health.
pub(crate) struct WellBehaved {
    stream: Sotw,
    updates: u8,
    health: Beside,
    /// The time within which it has an update.
    pub(crate) prompt: Duration,
}

impl WellBehaved {
    pub(crate) async fn of(discovery: &Discovery) -> Self {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.settle(&[B], &["8080"]).await;
        let port = discovery.http;
        let health = Beside::start("health", move || {
            assert_eq!(request(port, "GET", "/ready").0, 200);
        });
        Self {
            stream,
            updates: 1,
            health,
            prompt: PROMPT,
        }
    }

    pub(crate) async fn has_an_update(&mut self, discovery: &Discovery) {
        self.updates += 1;
        let address = format!("10.0.0.{}", self.updates);
        let begun = Instant::now();
        let text = service("b", &[&address]);
        discovery.place.write("config/b.yaml", &text);
        let response = self.stream.hear(EDS).await;
        let took = begun.elapsed();
        assert_eq!(endpoints(&response, B), [format!("{address}:80")]);
        assert!(took < self.prompt, "an update: {took:?}");
        self.stream.ack(&response, &[B]);
    }

    /// Asserts that SIGTERM ends the process.
    pub(crate) fn ends(self, mut discovery: Discovery) {
        self.health.was_answered_within(HEALTH);
        assert_eq!(discovery.metric("gudgeon_panics_total"), 0.0);
        discovery.signal("TERM");
        assert_eq!(discovery.wait().code(), Some(0));
    }
}

fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    }
}

/// A node all of whose fields differ from all others'.
fn other_node(number: usize, length: usize) -> Node {
    let id = format!("sidecar~10.9.0.1~x.demo~d{number}.svc.cluster.local");
    let file = |key: &str| {
        let name = format!("/{}/{number}", "x".repeat(length));
        (format!("TLS_CLIENT_{key}"), text(&name))
    };
    let fields = ["CERT_CHAIN", "KEY", "ROOT_CERT"].map(file);
    Node {
        id,
        metadata: Some(Struct {
            fields: fields.into(),
        }),
        locality: Some(Locality {
            region: format!("r{number}"),
            ..Locality::default()
        }),
        ..Node::default()
    }
}

/// Without a bound each left its resources behind: 596 of them 513 MiB.
#[tokio::test]
async fn a_proxy_with_changing_nodes_leaves_little_memory_behind() {
    let _alone = alone();
    let discovery = mesh(100).start();
    let mut good = WellBehaved::of(&discovery).await;
    let mut memory = Vec::new();
    for number in 0..210 {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.ask_as(other_node(number, 1000), CDS, &[]);
        stream.hear(CDS).await;
        stream.say(request_of(LDS, &[]));
        stream.hear(LDS).await;
        stream.say(request_of(RDS, &["8080"]));
        stream.hear(RDS).await;
        if number % 70 == 69 {
            good.has_an_update(&discovery).await;
            memory.push(discovery.anonymous());
        }
    }
    soon("they are gone", || discovery.streams() == 1).await;
    let (first, last) = (memory[0], memory[2]);
    assert!(last * 10 < first * 12, "KiB: {memory:?}");

    // A name that is longer than any valid one is refused before anything is allocated for it.
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask_as(other_node(1, 500_000), CDS, &[]);
    let status = stream.end().await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let refused = "gudgeon_streams_refused_total{reason=\"node_size\"}";
    assert_eq!(discovery.metric(refused), 1.0);
    good.has_an_update(&discovery).await;
    good.ends(discovery);
}

/// 24 clients with 99,000 names each took more than the 512 MiB that the manifest allows.
#[tokio::test]
async fn names_of_nothing_are_not_remembered() {
    let _alone = alone();
    let discovery = mesh(100).start();
    let mut good = WellBehaved::of(&discovery).await;
    good.has_an_update(&discovery).await;
    let before = discovery.anonymous();
    let names: Vec<String> = (0..99_000).map(|at| format!("outbound|{at}||no")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut open = Vec::new();
    for number in 0..8 {
        let url = [EDS, RDS, CDS, LDS][number % 4];
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.ask(url, &names);
        let resources = stream.hear(url).await.resources.len();
        // An answer for some of them, and the stream goes on.
        let bound = if number % 4 < 2 { 1000..20_000 } else { 0..1 };
        assert!(bound.contains(&resources), "{url}: {resources}");
        open.push(stream);
    }
    let versions: Vec<_> = names.iter().map(|name| (*name, "v")).collect();
    let mut subscribed = Vec::new();
    for (url, names, versions) in [
        (EDS, &*names, &[][..]),
        (CDS, &[], &*versions),
        (LDS, &[], &versions),
    ] {
        let mut stream = Delta::open(discovery.grpc).await;
        let version = |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
        stream.say(DeltaDiscoveryRequest {
            node: Some(node()),
            type_url: url.to_owned(),
            resource_names_subscribe: names.iter().map(|&name| name.to_owned()).collect(),
            initial_resource_versions: versions.iter().map(version).collect(),
            ..DeltaDiscoveryRequest::default()
        });
        let resources = stream.hear(url).await.removed_resources.len();
        assert!((1001..20_000).contains(&resources), "{url}: {resources}");
        if versions.is_empty() {
            subscribed.push(stream);
            continue;
        }
        // Those names are gone, and the client need not list them on its next stream.
        let status = stream.end().await;
        assert_eq!(status.code(), Code::InvalidArgument, "{url}: {status:?}");
    }
    good.has_an_update(&discovery).await;
    assert_eq!(discovery.streams(), 10);
    let refused = "gudgeon_streams_refused_total{reason=\"names\"}";
    assert_eq!(discovery.metric(refused), 2.0);
    until("memory is back", || {
        let now = discovery.anonymous();
        // One request is 4 MiB, and is read as strings.
        (now * 10 <= before * 12 + 10 * (32 << 10)).then_some(())
    });
    drop((open, subscribed));
    good.ends(discovery);
}

/// Each stream remembers a thousand of them, and 600 streams took the 512 MiB that the manifest allows.
#[tokio::test]
async fn names_of_nothing_of_one_address_are_bounded_together() {
    let _alone = alone();
    let discovery = mesh(100).start();
    let mut good = WellBehaved::of(&discovery).await;
    good.has_an_update(&discovery).await;
    let before = discovery.anonymous();
    let mut open = Vec::new();
    for stream_number in 0..150 {
        let name = |at| format!("{stream_number}|{at}|{}", "x".repeat(490));
        let names: Vec<String> = (0..1000).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.ask(EDS, &names);
        // Remembered or not, it is answered.
        assert!(stream.hear(EDS).await.resources.len() > 900);
        open.push(stream);
    }
    good.has_an_update(&discovery).await;
    until("memory is back", || {
        (discovery.anonymous() < before + (64 << 10)).then_some(())
    });
    drop(open);
    good.ends(discovery);
}

/// 54 kB of HTTP held the loop for 98 s: each of these answers was made anew, and health stood behind them.
#[tokio::test]
async fn pages_are_made_once_and_beside_health() {
    let _alone = alone();
    let discovery = mesh(1000).start();
    let mut good = WellBehaved::of(&discovery).await;
    let mut flood = Vec::new();
    for number in 0..64 {
        let path = [
            "/v1/registration",
            "/debug/endpointz",
            "/metrics",
            "/debug/syncz",
        ][number % 4];
        let one = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut client = TcpStream::connect(("127.0.0.1", discovery.http)).unwrap();
        client.write_all(one.repeat(20).as_bytes()).unwrap();
        flood.push(client);
    }
    for _ in 0..3 {
        good.has_an_update(&discovery).await;
    }
    // Each of them has an answer, if it was not one of too many, or gave its place to others.
    let mut answered = 0;
    for client in &mut flood {
        client.set_read_timeout(Some(PROMPT)).unwrap();
        let mut head = [0; 12];
        if client.read_exact(&mut head).is_ok() {
            assert!(head == *b"HTTP/1.1 200" || head == *b"HTTP/1.1 429");
            answered += 1;
        }
    }
    assert!(answered > 16, "{answered}");
    drop(flood);
    good.has_an_update(&discovery).await;
    good.ends(discovery);
}

/// With all of them connected at once: 500 of one address used to hold 500 sets of clusters.
#[tokio::test]
async fn kinds_of_proxies_of_one_address_are_bounded_while_they_are_there() {
    const KINDS: usize = 64;
    let _alone = alone();
    let discovery = mesh(100).start();
    let mut good = WellBehaved::of(&discovery).await;
    let mut open = Vec::new();
    for number in 0..2 * KINDS {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.ask_as(other_node(number, 1000), CDS, &[]);
        // One of them is the good one's.
        if number < KINDS - 1 {
            stream.hear(CDS).await;
        } else {
            let status = stream.end().await;
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        }
        open.push(stream);
    }
    let refused = "gudgeon_streams_refused_total{reason=\"kinds\"}";
    assert_eq!(discovery.metric(refused), 65.0);
    // Thousands of proxies may come through one translation of addresses.
    for _ in 0..KINDS {
        let mut stream = Sotw::open(discovery.grpc).await;
        stream.ask(CDS, &[]);
        stream.hear(CDS).await;
        open.push(stream);
    }
    good.has_an_update(&discovery).await;
    drop(open);
    soon("they are gone", || discovery.streams() == 1).await;
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask_as(other_node(1000, 1000), CDS, &[]);
    stream.hear(CDS).await;
    good.ends(discovery);
}

/// The begin of a message of four megabytes, but for its last part.
struct Unfinished {
    frames: usize,
}

impl Body for Unfinished {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const FRAMES: usize = 250;
        static ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        self.frames += 1;
        let next = match self.frames {
            1 => Bytes::from_static(&[0, 0, 0x40, 0, 0]),
            2..FRAMES => Bytes::from_static(&ZEROS),
            _ => return Poll::Pending,
        };
        Poll::Ready(Some(Ok(Frame::data(next))))
    }
}

/// A hundred streams on each of five connections, and 4 MiB on each stream: 2 GB, for as long as they liked.
#[tokio::test]
async fn messages_that_never_end_take_little() {
    const CONNECTIONS: usize = 5;
    const STREAMS: usize = 100;
    let _alone = alone();
    let discovery = mesh(100).start();
    let mut good = WellBehaved::of(&discovery).await;
    good.has_an_update(&discovery).await;
    let before = discovery.anonymous();
    let ended = Arc::new(AtomicUsize::new(0));
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let socket = tokio::net::TcpStream::connect(("127.0.0.1", discovery.grpc)).await;
        let io = TokioIo::new(socket.unwrap());
        let shaken = http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = shaken.unwrap();
        streams.spawn(async move { drop(connection.await) });
        for number in 0..STREAMS {
            let path = match number % 4 {
                0 => "grpc.health.v1.Health/Check",
                1 => "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                2 => {
                    "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
                }
                _ => {
                    "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
                }
            };
            let request = hyper::Request::post(format!("http://localhost/{path}"));
            let request = request.header("content-type", "application/grpc");
            let request = request.body(Unfinished { frames: 0 }).unwrap();
            let (mut sender, ended) = (sender.clone(), Arc::clone(&ended));
            streams.spawn(async move {
                sender.ready().await.unwrap();
                if let Ok(answer) = sender.send_request(request).await {
                    let _end = answer.into_body().collect().await;
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    // One of each connection may have what a message may have.
    soon("most are refused", || {
        ended.load(Ordering::Relaxed) >= CONNECTIONS * (STREAMS - 1)
    })
    .await;
    for _ in 0..3 {
        good.has_an_update(&discovery).await;
        let now = discovery.anonymous();
        assert!(now < before + (64 << 10), "KiB: {before}, {now}");
    }
    soon("the rest of them is late", || {
        ended.load(Ordering::Relaxed) == CONNECTIONS * STREAMS
    })
    .await;
    streams.abort_all();
    good.ends(discovery);
}
