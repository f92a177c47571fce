//! The services over real sockets, against a client of tonic's with scripted requests, and against the pure sink.

#[path = "../../tests/support/authority.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "tests of the program have it, too"
)]
mod authority;
#[path = "../../tests/support/mcp.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "tests of the program have it, too"
)]
mod client;
mod endings;
mod generated;
mod links;
mod paced;
mod plain;
mod secured;
mod sink_port;

use std::sync::Arc;
use std::time::Duration;

use mcp::collections::{Collections, Group};
use mcp::message::{RequestResources, Resources};
use mcp::snapshot::{GroupSnapshot, Origin, Resource};
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use self::client::*;
use super::*;
use crate::exposition::ExpositionFormat;
use crate::grpc::Certificates;
use crate::serve::{Shutdown, ShutdownStage};

const GATEWAYS: &str = "istio/networking/v1alpha3/gateways";
const ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";

fn settings() -> McpServerSettings {
    let path = |name: &str| std::path::PathBuf::from(format!("/nonexistent/{name}"));
    McpServerSettings {
        files: None,
        flag: "server-address",
        address: "tcp://127.0.0.1:0".to_owned(),
        insecure: true,
        certificates: Certificates {
            chain: path("chain"),
            key: path("key"),
            roots: path("roots"),
        },
        access_list: path("list"),
        without_list: DefaultAccess::Everyone,
        received: 1 << 20,
        streams: 1024,
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        age: None,
    }
}

/// A running server, with its snapshot.
struct Running {
    port: u16,
    peers: Arc<Peers>,
    shelf: GroupSnapshot,
    snapshots: watch::Sender<Snapshots>,
    open: watch::Receiver<bool>,
    stage: watch::Sender<ShutdownStage>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(settings: McpServerSettings) -> Self {
        let collections = Arc::new(Collections::all());
        let server = McpServer::new(settings).unwrap();
        let (snapshots, published) = watch::channel(Snapshots::default());
        let (stage, watched) = Shutdown::channel();
        let peers = Peers::new("galley");
        let shelf = GroupSnapshot::new(&collections, Group::Default);
        let (port, open) = (server.port().unwrap_or_default(), server.is_open());
        let task = tokio::spawn(server.run(collections, Arc::clone(&peers), published, watched));
        Self {
            port,
            peers,
            shelf,
            snapshots,
            open,
            stage,
            task,
        }
    }

    fn set(&mut self, collection: &str, name: &str, body: &[u8]) {
        let origin = Origin {
            name: name.to_owned(),
            body: body.to_vec().into(),
            ..Origin::default()
        };
        self.shelf.set(collection, Arc::new(Resource::new(origin)));
    }

    fn publish(&mut self) {
        let snapshot = self.shelf.snapshot();
        self.snapshots
            .send_modify(|snapshots| snapshots.set(snapshot));
    }

    async fn channel(&mut self) -> Channel {
        self.open.wait_for(|open| *open).await.unwrap();
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port)).unwrap();
        endpoint.connect().await.unwrap()
    }
}

/// A client that reconnects when it is evicted, as sinks do.
async fn insisting(port: u16) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    let end = std::time::Instant::now() + SOON;
    loop {
        if let Ok(channel) = endpoint.connect().await
            && let Ok(client) = Client::open(&channel).await
        {
            return client;
        }
        assert!(std::time::Instant::now() < end, "it is not let in");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the value of the first metric whose line begins so; 0 if there is none.
fn metric(peers: &Peers, name: &str) -> f64 {
    let mut registry = Registry::default();
    peers.register(&mut registry);
    let text = ExpositionFormat::Text.text(&registry);
    let line = text.lines().find(|line| line.starts_with(name));
    line.map_or(0.0, |line| {
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    })
}

async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + SOON;
    while !check() {
        assert!(std::time::Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
