//! The sink of this program at the source of this program.

use std::collections::BTreeMap;
use std::sync::Mutex;

use api::config::{ObjectStatus, ServedInstead};
use mcp::sink::Changes;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::grpc::DialAddress;

/// The changes in order: names added, and names removed.
type Log = Arc<Mutex<Vec<(Vec<String>, Vec<String>)>>>;

fn entry(host: &str) -> Arc<Resource> {
    let written = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": host, "namespace": "n"},
        "spec": {"hosts": [host], "resolution": "DNS", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]},
    });
    let (object, found) = api::config::read(&written);
    assert!(found.is_empty(), "{found:?}");
    Arc::new(mcp::objects::resource(&object.unwrap(), None))
}

fn link(port: u16) -> (Arc<Link>, Arc<Peers>, Log) {
    let wanted = WantedSource {
        named: String::new(),
        place: DialAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
        },
        tls: None,
        id: "me".to_owned(),
        collections: vec![ENTRIES.to_owned(), GATEWAYS.to_owned()],
        received: 4 << 20,
    };
    let log = Log::default();
    let shared = Arc::clone(&log);
    let peers = Peers::new("pilot");
    let apply = move |changes: &[Changes<ReceivedObject>]| {
        let set = changes.iter().flat_map(|one| &one.set);
        let set = set.map(|(name, _)| name.to_string());
        let removed = changes.iter().flat_map(|one| &one.removed);
        let removed = removed.map(ToString::to_string);
        shared
            .lock()
            .unwrap()
            .push((set.collect(), removed.collect()));
    };
    let link = Link::new(wanted, &peers, Arc::new(apply));
    tokio::spawn(Arc::clone(&link).run());
    (link, peers, log)
}

/// Returns the bytes received of a collection.
fn received_bytes(peers: &Peers, collection: &str) -> f64 {
    let labels = format!("component=\"pilot\",collection=\"{collection}\"");
    metric(
        peers,
        &format!("istio_mcp_message_sizes_bytes_sum{{{labels}}}"),
    )
}

#[tokio::test]
async fn an_unreadable_object_refuses_a_response_and_an_invalid_one_itself() {
    let mut server = Running::start(settings());
    server.shelf.set(ENTRIES, entry("a.example"));
    server.publish();
    let (link, _, log) = link(server.port);
    until("the first state", || link.objects.is_synced()).await;
    assert_eq!(
        server.peers.stream_statuses()[0].node.as_deref(),
        Some("me")
    );
    // Not of the collection's type.
    server.set(ENTRIES, "n/b.example", b"x");
    server.publish();
    let refused = || {
        server.peers.stream_statuses()[0]
            .collections
            .iter()
            .find_map(|one| one.last_nack.clone())
    };
    until("the refusal", || refused().is_some()).await;
    let (_, nack) = refused().unwrap();
    assert_eq!(nack.code, 3);
    assert!(nack.message.contains("n/b.example"), "{}", nack.message);
    assert_eq!(link.objects.sink().await.entries(ENTRIES).count(), 1);
    server.shelf.remove(ENTRIES, "n/b.example");
    // Two hosts with addresses of one port: a rule.
    server.shelf.set(ENTRIES, broken());
    server.shelf.set(ENTRIES, entry("c.example"));
    server.publish();
    until("the good one", || {
        log.lock()
            .unwrap()
            .iter()
            .any(|(set, _)| set.contains(&"n/c.example".to_owned()))
    })
    .await;
    let sink = link.objects.sink().await;
    let standing: BTreeMap<_, _> = sink
        .entries(ENTRIES)
        .map(|(name, object)| (name.to_string(), object.status()))
        .collect();
    let serving = ServedInstead::Nothing;
    assert_eq!(standing["n/broken"], ObjectStatus::Refused { serving });
    assert_eq!(
        (standing["n/a.example"], standing["n/c.example"]),
        (ObjectStatus::Accepted, ObjectStatus::Accepted)
    );
}

fn broken() -> Arc<Resource> {
    let written = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "broken", "namespace": "n"},
        "spec": {"hosts": ["not a host"], "resolution": "DNS"},
    });
    Arc::new(mcp::objects::resource(
        &api::config::read(&written).0.unwrap(),
        None,
    ))
}

#[tokio::test]
async fn a_source_that_comes_back_sends_the_difference() {
    let mut server = Running::start(settings());
    let all: Vec<_> = (0..500)
        .map(|at| entry(&format!("h{at}.example")))
        .collect();
    for one in &all {
        server.shelf.set(ENTRIES, Arc::clone(one));
    }
    server.publish();
    let port = server.port;
    let (link, peers, log) = link(port);
    until("the first state", || link.objects.is_synced()).await;
    let first = received_bytes(&peers, ENTRIES);
    assert!(first > 20_000.0, "{first}");
    server.stage.send_replace(ShutdownStage::Closing);
    tokio::time::timeout(SOON, server.task)
        .await
        .unwrap()
        .unwrap();
    until("the loss", || matches!(link.state(), LinkState::Broken(..))).await;
    assert!(link.objects.lost().is_some());
    // Whoever applies changes is notified.
    assert!(
        log.lock()
            .unwrap()
            .iter()
            .any(|(set, gone)| set.is_empty() && gone.is_empty())
    );
    assert_eq!(link.objects.sink().await.entries(ENTRIES).count(), 500);
    log.lock().unwrap().clear();
    // Another process at the same address, with one object added and one removed.
    let mut server = Running::start(McpServerSettings {
        address: format!("127.0.0.1:{port}"),
        ..settings()
    });
    for one in all.iter().skip(1) {
        server.shelf.set(ENTRIES, Arc::clone(one));
    }
    server.shelf.set(ENTRIES, entry("new.example"));
    server.publish();
    let difference = (
        vec!["n/new.example".to_owned()],
        vec!["n/h0.example".to_owned()],
    );
    until("the difference", || {
        log.lock().unwrap().contains(&difference)
    })
    .await;
    assert_eq!(link.objects.sink().await.entries(ENTRIES).count(), 500);
    let bytes = received_bytes(&peers, ENTRIES);
    assert!(bytes - first < 1000.0, "{} more", bytes - first);
    let dialled_again = metric(&peers, "istio_mcp_reconnections{component=\"pilot\"}");
    assert!(dialled_again >= 1.0, "{dialled_again}");
}

/// The sources that dial a sink of ServiceEntries and Gateways.
fn dialled_sources() -> Arc<DialledSources> {
    let collections = [ENTRIES.to_owned(), GATEWAYS.to_owned()];
    let apply = Arc::new(|_: &[Changes<ReceivedObject>]| {});
    DialledSources::new("me", &collections, apply)
}

/// Serves a sink at an address, until its stage says otherwise.
fn serve_sink(
    address: &str,
    sources: &Arc<DialledSources>,
) -> (watch::Sender<ShutdownStage>, JoinHandle<()>, Arc<Peers>) {
    let server = McpServer::new(McpServerSettings {
        address: address.to_owned(),
        ..settings()
    });
    let (stage, watched) = Shutdown::channel();
    let peers = Peers::new("pilot");
    let taken = server
        .unwrap()
        .take(Arc::clone(sources), Arc::clone(&peers), watched);
    (stage, tokio::spawn(taken), peers)
}

/// The number of ServiceEntries that the first source has given.
async fn entries_of(sources: &DialledSources) -> usize {
    sources.all()[0].sink().await.entries(ENTRIES).count()
}

/// Our source at our sink: the other way round.
#[tokio::test]
async fn a_sink_is_dialled_again_after_it_was_gone() {
    let root = tempfile::tempdir().unwrap();
    let address = format!("unix://{}", root.path().join("sink").display());
    let mut source = Running::start(settings());
    source.shelf.set(ENTRIES, entry("a.example"));
    source.publish();
    let (first, second) = (dialled_sources(), dialled_sources());
    let (stage, task, first_peers) = serve_sink(&address, &first);
    let out = SourceDialer::new(
        &address,
        "NONE",
        CredentialFiles::default(),
        &["a=b".to_owned()],
        1 << 20,
    )
    .unwrap();
    let (out_stage, watched) = Shutdown::channel();
    let collections = Arc::new(Collections::all());
    let snapshots = source.snapshots.subscribe();
    let peers = Arc::clone(&source.peers);
    let calls = tokio::spawn(out.run(collections, peers, snapshots, watched));
    until("the first sink", || first.is_synced()).await;
    // The trigger that comes first is no collection, and is accepted.
    assert!(received_bytes(&first_peers, mcp::TRIGGER) > 0.0);
    let seen = source.peers.stream_statuses();
    assert_eq!((seen.len(), seen[0].direction.as_str()), (1, "callout"));
    assert_eq!(
        (&*seen[0].address, seen[0].node.as_deref()),
        (&*address, Some("me"))
    );
    assert_eq!(entries_of(&first).await, 1);
    stage.send_replace(ShutdownStage::Closing);
    tokio::time::timeout(SOON, task).await.unwrap().unwrap();
    let (_stage, _task, _) = serve_sink(&address, &second);
    until("the second sink", || second.is_synced()).await;
    source.shelf.set(ENTRIES, entry("b.example"));
    source.publish();
    let end = std::time::Instant::now() + SOON;
    while entries_of(&second).await != 2 {
        assert!(std::time::Instant::now() < end, "the change comes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let dialled_again = metric(
        &source.peers,
        "istio_mcp_reconnections{component=\"galley\"}",
    );
    assert!(dialled_again >= 1.0, "{dialled_again}");
    out_stage.send_replace(ShutdownStage::Closing);
    tokio::time::timeout(SOON, calls).await.unwrap().unwrap();
    until("its end", || source.peers.stream_statuses().is_empty()).await;
}

/// Its objects are those that later responses build on.
#[tokio::test]
async fn a_response_that_is_being_read_is_applied_before_its_stream_ends() {
    const OBJECTS: usize = 3000;
    let root = tempfile::tempdir().unwrap();
    let address = format!("unix://{}", root.path().join("sink").display());
    let applied = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&applied);
    let apply = move |changes: &[Changes<ReceivedObject>]| {
        *counted.lock().unwrap() += changes.iter().map(|one| one.set.len()).sum::<usize>();
    };
    let sources = DialledSources::new("me", &[ENTRIES.to_owned()], Arc::new(apply));
    let server = McpServer::new(McpServerSettings {
        address: address.clone(),
        received: 16 << 20,
        ..settings()
    });
    let (stage, watched) = Shutdown::channel();
    let peers = Peers::new("pilot");
    let serves = server.unwrap();
    let serves = serves.take(Arc::clone(&sources), Arc::clone(&peers), watched);
    let serves = tokio::spawn(serves);
    let mut source = Running::start(settings());
    for at in 0..OBJECTS {
        source.shelf.set(ENTRIES, entry(&format!("h{at}.example")));
    }
    source.publish();
    let files = CredentialFiles::default();
    let dialer = SourceDialer::new(&address, "NONE", files, &[], 1 << 20).unwrap();
    let (_dialer_stage, watched) = Shutdown::channel();
    let dials = tokio::spawn(dialer.run(
        Arc::new(Collections::all()),
        Arc::clone(&source.peers),
        source.snapshots.subscribe(),
        watched,
    ));
    let end = std::time::Instant::now() + SOON;
    while received_bytes(&peers, ENTRIES) < f64::from(64 << 10) {
        assert!(std::time::Instant::now() < end, "no response came");
        tokio::task::yield_now().await;
    }
    stage.send_replace(ShutdownStage::Closing);
    tokio::time::timeout(SOON, serves).await.unwrap().unwrap();
    let end = std::time::Instant::now() + SOON;
    loop {
        let read = entries_of(&sources).await;
        if read > 0 && read == *applied.lock().unwrap() {
            break;
        }
        assert!(
            std::time::Instant::now() < end,
            "all that was read is applied"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    dials.abort();
}
