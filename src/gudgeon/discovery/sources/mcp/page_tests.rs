//! Pages of sources beside a stream of one: both want the objects of the source, and the sources.

#![allow(
    clippy::disallowed_methods,
    reason = "pages are made on threads of their own, and a loop that stands still is found from another"
)]

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mcp::collections::{Collections, Group};
use mcp::snapshot::{GroupSnapshot, Resource};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{McpSources, start};
use crate::cli::{Action, DiscoveryFlags, parse};
use crate::discovery::testing::hub_of;
use crate::grpc::Certificates;
use crate::mcp::{DefaultAccess, McpServer, McpServerSettings, Peers, Snapshots};
use crate::serve::Shutdown;

const ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";
/// So many that the stream reads a response on another thread, and owns the objects while it waits for that.
const OBJECTS: usize = 400;
/// Responses, each with all objects.
const ROUNDS: usize = 20;
/// Threads that ask for pages without end.
const PAGES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn entry(at: usize, round: usize) -> Arc<Resource> {
    let host = format!("h{at}.example");
    let written = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": host, "namespace": "n", "annotations": {"round": round.to_string(), "more": "x".repeat(100)}},
        "spec": {"hosts": [host], "resolution": "DNS", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]},
    });
    let (object, found) = api::config::read(&written);
    assert!(found.is_empty(), "{found:?}");
    Arc::new(mcp::objects::resource(&object.unwrap(), None))
}

fn server(address: &str) -> McpServer {
    let none = || std::path::PathBuf::from("/nonexistent");
    let settings = McpServerSettings {
        files: None,
        flag: "server-address",
        address: address.to_owned(),
        insecure: true,
        certificates: Certificates {
            chain: none(),
            key: none(),
            roots: none(),
        },
        access_list: none(),
        without_list: DefaultAccess::Everyone,
        received: 4 << 20,
        streams: 10,
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        age: None,
    };
    McpServer::new(settings).unwrap()
}

fn flags(address: &str) -> DiscoveryFlags {
    let arguments = ["gudgeon", "discovery", "--mcpServerAddrs", address];
    let Action::Discovery(flags) = parse(&arguments.map(OsString::from)).unwrap().action else {
        panic!("another command");
    };
    *flags
}

/// Asks for pages until it is told to stop, and counts them.
fn page_through(sources: &McpSources, stop: &AtomicBool, pages: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let mut page = String::new();
        sources.draw(&mut page);
        assert!(page.contains("Sources of configuration: 1"), "{page}");
        assert!(sources.debug_view().is_array() && sources.refused().is_empty());
        pages.fetch_add(1, Ordering::Relaxed);
    }
}

/// Applies all rounds, each while pages are asked for; returns the number of pages.
async fn play(folder: std::path::PathBuf) -> usize {
    let address = format!("unix://{}", folder.join("source").display());
    let collections = Arc::new(Collections::all());
    let (snapshots, published) = watch::channel(Snapshots::default());
    let (_stage, shutdown) = Shutdown::channel();
    let peers = Peers::new("galley");
    let source = server(&address);
    let runs = source.run(
        Arc::clone(&collections),
        Arc::clone(&peers),
        published,
        shutdown,
    );
    tokio::spawn(runs);
    let hub = hub_of(&[]);
    let mut loops = JoinSet::new();
    let sources = start(None, &flags(&address), &hub, &mut loops).unwrap();
    let (stop, pages) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let threads = (0..PAGES).map(|_| {
        let (sources, stop, pages) = (Arc::clone(&sources), Arc::clone(&stop), Arc::clone(&pages));
        std::thread::spawn(move || page_through(&sources, &stop, &pages))
    });
    let threads: Vec<_> = threads.collect();
    let mut shelf = GroupSnapshot::new(&collections, Group::Default);
    for round in 0..ROUNDS {
        for at in 0..OBJECTS {
            shelf.set(ENTRIES, entry(at, round));
        }
        let snapshot = shelf.snapshot();
        let mut all = snapshot.collections();
        let entries = all.find(|one| &**one.name() == ENTRIES).unwrap();
        let version = entries.version().to_string();
        snapshots.send_modify(|snapshots| snapshots.set(Arc::clone(&snapshot)));
        let is_applied = || {
            let statuses = peers.stream_statuses();
            let mut all = statuses.iter().flat_map(|status| &status.collections);
            all.any(|one| &*one.collection == ENTRIES && one.acked.as_deref() == Some(&version))
        };
        let end = Instant::now() + PATIENCE;
        while !is_applied() {
            assert!(Instant::now() < end, "round {round} is not applied");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        // A thread that waits for objects gets them by the loop.
        let joined = tokio::task::spawn_blocking(move || thread.join());
        assert!(joined.await.unwrap().is_ok(), "a page failed");
    }
    pages.load(Ordering::Relaxed)
}

/// A page held the lock of the sources while it waited for the objects of one, and the event loop, which owned those, waited for the
/// lock of the sources.
#[test]
fn pages_asked_without_end_stop_neither_a_stream_nor_the_loop() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().to_owned();
    let (tell, told) = std::sync::mpsc::channel();
    // A loop that stands still has no deadline of its own.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let pages = runtime.block_on(play(folder));
        // Nobody hears it after the deadline.
        let _heard = tell.send(pages);
        runtime.shutdown_background();
    });
    let pages = told.recv_timeout(2 * PATIENCE);
    let pages = pages.expect("the event loop stands still, or the play failed");
    assert!(pages >= PAGES, "{pages}");
}
