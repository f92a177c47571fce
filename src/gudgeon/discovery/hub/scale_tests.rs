//! A rule of one namespace in a mesh of 1,000 services and 2,000 proxies: counted is who has a part in its change.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3 as core;
use sources::memory::Memory;
use xds::node::Node;
use xds::stream::{Protocol, Request};
use xds::view::Type;

use super::*;
use crate::discovery::push_record::Pushed;
use crate::discovery::session::{MAX_DEFERRED, Session};
use crate::discovery::testing::{hub, memory_of};
use crate::grpc::Address;

const NAMESPACES: usize = 20;
/// Services of each namespace.
const SERVICES: usize = 50;
const PROXIES: usize = 100;
/// The namespace whose rule changes.
const CHANGED: usize = 7;

/// Each namespace has services for all, and a rule of its own. `timeout`: of the one that changes, in seconds.
fn objects(timeout: usize) -> String {
    let mut text = String::new();
    for namespace in 0..NAMESPACES {
        for service in 0..SERVICES {
            text += &format!(
                "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: s{service}, namespace: n{namespace}}}\n\
                 spec:\n  hosts: [s{service}.n{namespace}.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
                 ports: [{{number: 80, name: http, protocol: HTTP}}]\n  \
                 endpoints: [{{address: 10.{namespace}.{service}.1}}]\n---\n"
            );
        }
        let seconds = if namespace == CHANGED { timeout } else { 1 };
        text += &format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: own, namespace: n{namespace}}}\n\
             spec:\n  exportTo: ['.']\n  hosts: [s0]\n  http: [{{route: [{{destination: {{host: s0}}}}], timeout: {seconds}s}}]\n---\n"
        );
    }
    text
}

/// The source of the objects.
struct TestObjects {
    memory: Memory,
    id: SourceId,
}

impl TestObjects {
    fn new(hub: &Hub) -> Self {
        let (id, memory) = memory_of(hub);
        Self { memory, id }
    }

    /// Puts the objects, and waits for the push.
    async fn put(&mut self, hub: &Hub, timeout: usize) -> Pushed {
        let before = hub.pushes.all().len();
        let put = self.memory.put(objects(timeout).as_bytes()).unwrap();
        hub.put(&self.id, put.contribution);
        let deadline = Instant::now() + Duration::from_secs(60);
        while hub.pushes.all().len() == before {
            assert!(Instant::now() < deadline, "no push");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        hub.pushes.all().pop().unwrap()
    }
}

fn node(namespace: usize, number: usize) -> Arc<Node> {
    let id = format!("sidecar~127.0.0.1~p{number}.n{namespace}~n{namespace}.svc.cluster.local");
    let read = Node::read(Some(&core::Node {
        id,
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

fn request(kind: Type, names: &[&str], nonce: u64) -> Request {
    Request {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        nonce: if nonce == 0 {
            String::new()
        } else {
            nonce.to_string()
        },
        ..Request::of(kind)
    }
}

/// All that goes out now, each of it acknowledged: bytes by type.
fn read(hub: &Hub, session: &Session) -> Vec<(Type, usize)> {
    let mut all = Vec::new();
    while let Some(response) = session.next(hub.clock.now()) {
        session.written();
        let bytes = response.resources.iter().map(|one| one.body.len());
        all.push((response.kind, bytes.sum()));
        let names: &[&str] = if response.kind == Type::Route {
            &["80"]
        } else {
            &[]
        };
        let ack = request(response.kind, names, response.nonce);
        session.receive(hub.clock.now(), &ack).unwrap();
    }
    all
}

fn is_woken(session: &Session) -> bool {
    let woken = pin!(session.woken.notified());
    woken
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

/// Numbers of the streams that something woke, which look at what was posted, by namespace; and all bytes that they got.
fn awake(hub: &Hub, all: &[(usize, StreamRegistration)]) -> (Vec<usize>, usize) {
    let (mut streams, mut bytes) = (vec![0; NAMESPACES], 0);
    for (namespace, joined) in all {
        if is_woken(&joined.session) {
            streams[*namespace] += 1;
            joined.session.take_pending().unwrap();
            let got = read(hub, &joined.session);
            bytes += got.iter().map(|(_, bytes)| bytes).sum::<usize>();
        }
    }
    (streams, bytes)
}

/// Streams that have all they ask for.
fn joined(hub: &Arc<Hub>) -> Vec<(usize, StreamRegistration)> {
    let snapshot = hub.snapshot().unwrap();
    let all =
        (0..NAMESPACES).flat_map(|namespace| (0..PROXIES).map(move |number| (namespace, number)));
    all.map(|(namespace, number)| {
        let node = node(namespace, number);
        let peer = Address::Unix;
        let view = snapshot.view(&node);
        let joined = hub.join(&node, &peer, Protocol::StateOfTheWorld, view);
        let now = hub.clock.now();
        for (kind, names) in [
            (Type::Cluster, &[][..]),
            (Type::Listener, &[]),
            (Type::Route, &["80"]),
        ] {
            let first = request(kind, names, 0);
            joined.session.receive(now, &first).unwrap();
        }
        assert_eq!(read(hub, &joined.session).len(), 3);
        (namespace, joined)
    })
    .collect()
}

#[tokio::test]
async fn a_rule_of_one_namespace_costs_its_own_proxies_alone() {
    let hub = hub();
    let _pushes = tokio::spawn(Arc::clone(&hub).run());
    let mut source = TestObjects::new(&hub);
    source.put(&hub, 1).await;
    let all = joined(&hub);
    assert!(all.iter().all(|(_, joined)| !is_woken(&joined.session)));
    let mut own = vec![0; NAMESPACES];
    own[CHANGED] = PROXIES;

    let mut older = Vec::new();
    for turn in 1..=MAX_DEFERRED {
        older.push(Arc::downgrade(&hub.snapshot().unwrap()));
        let pushed = source.put(&hub, turn + 1).await;
        assert_eq!((pushed.full, pushed.streams), (true, PROXIES));
        // One set of clusters and one of listeners, and the routes of all ports and of the proxy's own.
        let made = hub.snapshot().unwrap().built_parts();
        assert!((1..=4).contains(&made), "{made}");
        let (streams, bytes) = awake(&hub, &all);
        assert_eq!(streams, own, "turn {turn}");
        assert!(bytes > 0);
        assert_eq!(hub.snapshot().unwrap().built_parts(), made);
    }

    // The memory of older snapshots is for others to have: in time their streams look at a newer one, and find nothing.
    source.put(&hub, 1).await;
    let (streams, _) = awake(&hub, &all);
    assert_eq!(streams, vec![PROXIES; NAMESPACES]);
    assert!(older.iter().all(|one| one.strong_count() == 0));
    for (_, joined) in &all {
        assert_eq!(read(&hub, &joined.session), []);
        assert!(!joined.session.is_pending());
    }
    let (streams, bytes) = awake(&hub, &all);
    assert_eq!((streams, bytes), (vec![0; NAMESPACES], 0));
}

/// A stream that rests misses no later change that concerns it, and is answered when it asks.
#[tokio::test]
async fn a_stream_that_rests_is_woken_by_what_concerns_it() {
    let hub = hub();
    let _pushes = tokio::spawn(Arc::clone(&hub).run());
    let mut source = TestObjects::new(&hub);
    source.put(&hub, 1).await;
    let all = joined(&hub);
    let (_, other) = all
        .iter()
        .find(|(namespace, _)| *namespace != CHANGED)
        .unwrap();
    source.put(&hub, 2).await;
    assert!(!is_woken(&other.session));
    assert!(other.session.has_pending(), "it is there when it wakes");
    hub.push_all();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_woken(&other.session) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = hub.snapshot().unwrap();
    other.session.take_pending().unwrap();
    assert_eq!(read(&hub, &other.session), [], "nothing differs");
    assert!(!other.session.has_pending());
    drop(before);
}
