//! Proxies against streams as the server has them, without a network: both are right, or both are wrong in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::model::{
    Endpoint, EndpointAddress, EndpointShards, Labels, Port, Protocol as Speaks, Registry,
    Resolution, Service, ServiceKey, Target, TriggerReason, World,
};
use xds::node::Node;
use xds::settings::Settings;
use xds::snapshot::Snapshot;
use xds::stream::{Client, Push, PushScope, Stream};
use xds::view::Type;

use crate::facts::{Kind, Library};
use crate::proxy::{Protocol, Proxy, Request, Response};
use crate::yaml;

/// The world of these services, as in the directory, as of the given change.
fn world(services: impl IntoIterator<Item = usize>, change: usize) -> World {
    let mesh = api::mesh::parse_over(&api::mesh::discovery_defaults(), "").unwrap();
    let mut world = World::new(Arc::new(mesh.config));
    for service in services {
        let key = ServiceKey::new(&yaml::host(service), "demo");
        let port = Port {
            name: "http".into(),
            number: yaml::PORT,
            protocol: Speaks::Http,
            target: Target::Number(yaml::PORT),
        };
        let described = Service {
            key: key.clone(),
            registry: Registry::External,
            ports: vec![port],
            addresses: BTreeMap::new(),
            cluster: "Kubernetes".into(),
            resolution: Resolution::Static,
            mesh_external: false,
            selector: Labels::new(),
            created: None,
            accounts: BTreeSet::new(),
            prefers_close: false,
            exported_to: Vec::new(),
            balancers: BTreeMap::new(),
        };
        let address = EndpointAddress::read(&yaml::address(service, 0, change));
        let endpoint = Endpoint::new(address, yaml::PORT, "http");
        let shards = EndpointShards::from([("Kubernetes".into(), Arc::from([endpoint]))]);
        Arc::make_mut(&mut world.services).insert(key.clone(), Arc::new(described));
        Arc::make_mut(&mut world.endpoints).insert(key, Arc::new(shards));
    }
    world
}

/// One proxy and its stream.
struct Pair {
    stream: Stream,
    proxy: Proxy,
    node: Arc<Node>,
    library: Library,
    now: Duration,
}

impl Pair {
    fn new(protocol: Protocol, world: World) -> Self {
        let node = envoy_types::pb::envoy::config::core::v3::Node {
            id: "sidecar~10.200.0.1~load-1.demo~demo.svc.cluster.local".to_owned(),
            ..Default::default()
        };
        let node = Arc::new(Node::read(Some(&node)).unwrap());
        let view = Snapshot::new(world, Arc::new(Settings::default())).view(&node);
        let speaks = match protocol {
            Protocol::State => xds::stream::Protocol::StateOfTheWorld,
            Protocol::Delta => xds::stream::Protocol::Delta,
        };
        let mut pair = Self {
            stream: Stream::new(speaks, Client::Envoy, view),
            proxy: Proxy::new(protocol),
            node,
            library: Library::default(),
            now: Duration::from_secs(100),
        };
        let first = pair.proxy.begin();
        pair.say(first);
        pair
    }

    fn say(&mut self, sent: Request) {
        let kind = Type::from_url(sent.kind.url()).unwrap();
        let request = xds::stream::Request {
            version: sent.version,
            nonce: sent.nonce,
            names: sent.names.into(),
            unsubscribe: sent.unsubscribe,
            ..xds::stream::Request::of(kind)
        };
        self.stream.request(self.now, &request).unwrap();
    }

    fn next(&mut self) -> Option<Response> {
        let sent = self.stream.next(self.now)?;
        self.stream.written();
        let kind = Kind::of(sent.kind.url()).unwrap();
        let read =
            |one: &Arc<xds::view::Resource>| self.library.read(kind, one.body.clone()).unwrap();
        Some(Response {
            kind,
            version: sent.version.to_string(),
            nonce: sent.nonce.to_string(),
            resources: sent.resources.iter().map(read).collect(),
            removed: sent.removed.iter().map(ToString::to_string).collect(),
        })
    }

    /// Exchanges messages until both sides are idle.
    fn settle(&mut self) -> Result<(), String> {
        while let Some(response) = self.next() {
            for request in self.proxy.hear(self.now, self.now, response)? {
                self.say(request);
            }
        }
        Ok(())
    }

    fn push(&mut self, world: World, scope: PushScope) {
        let view = Snapshot::new(world, Arc::new(Settings::default())).view(&self.node);
        self.stream.merge_push(Push {
            view,
            scope,
            reasons: TriggerReason::Service.into(),
        });
    }
}

const BOTH: [Protocol; 2] = [Protocol::State, Protocol::Delta];

#[test]
fn a_proxy_gets_everything_and_then_one_endpoint() {
    for protocol in BOTH {
        let mut pair = Pair::new(protocol, world(0..5, 0));
        assert!(!pair.proxy.is_complete());
        pair.settle().unwrap();
        assert!(pair.proxy.is_complete());
        assert_eq!(pair.proxy.len(Kind::Endpoint), 5);
        let before = pair.proxy.responses();
        let names: BTreeSet<Arc<str>> = [yaml::cluster(3).into()].into();
        pair.push(world(0..5, 7), PushScope::Endpoints(Arc::new(names)));
        pair.settle().unwrap();
        let mut wanted = before;
        wanted[1] += 1;
        assert_eq!(pair.proxy.responses(), wanted);
        let endpoints = &pair
            .proxy
            .get(Kind::Endpoint, &yaml::cluster(3))
            .unwrap()
            .endpoints;
        assert!(endpoints.contains(&format!("{}:8080", yaml::address(3, 0, 7))));
    }
}

#[test]
fn a_service_goes_while_another_comes() {
    for protocol in BOTH {
        let mut pair = Pair::new(protocol, world(0..5, 0));
        pair.settle().unwrap();
        pair.push(world(1..6, 0), PushScope::Full);
        pair.settle().unwrap();
        assert!(pair.proxy.is_complete());
        assert!(pair.proxy.get(Kind::Cluster, &yaml::cluster(0)).is_none());
        assert!(pair.proxy.get(Kind::Cluster, &yaml::cluster(5)).is_some());
        assert_eq!(pair.proxy.len(Kind::Endpoint), 5);
    }
}

/// Violations are detected: each case is a valid exchange with one error.
#[test]
fn a_server_that_is_wrong_is_found_out() {
    type Spoil = fn(&mut Response);
    let spoils: [(&str, Kind, Spoil); 6] = [
        ("again", Kind::Endpoint, |response| {
            response.nonce = "1".to_owned();
        }),
        ("version", Kind::Cluster, |response| {
            response.version.clear();
        }),
        ("twice", Kind::Endpoint, |response| {
            let first = response.resources[0].clone();
            response.resources.push(first);
        }),
        ("not subscribed", Kind::Endpoint, |response| {
            response.resources[0] = std::rc::Rc::new(crate::facts::Facts {
                name: "another".to_owned(),
                ..Default::default()
            });
        }),
        ("still sends to", Kind::Cluster, |response| {
            let is_other = |one: &std::rc::Rc<crate::facts::Facts>| one.name != yaml::cluster(0);
            response.resources.retain(is_other);
            response.removed.push(yaml::cluster(0));
        }),
        ("lost its assignment", Kind::Endpoint, |response| {
            response.resources.clear();
            response.removed = vec![yaml::cluster(0)];
        }),
    ];
    for protocol in BOTH {
        for (message, kind, spoil) in spoils {
            let mut pair = Pair::new(protocol, world(0..3, 0));
            let is_later = message == "still sends to"
                || message == "lost its assignment"
                || message == "again";
            if is_later {
                pair.settle().unwrap();
                pair.push(world(0..4, 1), PushScope::Full);
            }
            let why = loop {
                let mut response = pair.next().expect("it comes");
                if response.kind == kind {
                    spoil(&mut response);
                }
                match pair.proxy.hear(pair.now, pair.now, response) {
                    Ok(requests) => requests.into_iter().for_each(|request| pair.say(request)),
                    Err(why) => break why,
                }
            };
            assert!(why.contains(message), "{protocol:?} {why}: want {message}");
        }
    }
}

#[test]
fn routes_to_a_cluster_that_is_not_there_are_found_out() {
    for protocol in BOTH {
        let mut pair = Pair::new(protocol, world(0..3, 0));
        pair.settle().unwrap();
        // Routes of a later moment, before its clusters.
        let mut ahead = Pair::new(protocol, world(0..4, 0));
        let mut routes = None;
        while let Some(response) = ahead.next() {
            if response.kind == Kind::Route {
                routes = Some(response);
                break;
            }
            for request in ahead.proxy.hear(ahead.now, ahead.now, response).unwrap() {
                ahead.say(request);
            }
        }
        let mut routes = routes.expect("routes come");
        routes.nonce = "999".to_owned();
        let why = pair.proxy.hear(pair.now, pair.now, routes).unwrap_err();
        assert!(why.contains("which is not there"), "{why}");
    }
}

#[test]
fn no_two_addresses_are_alike() {
    let mut seen = BTreeSet::new();
    for service in 0..1000 {
        for endpoint in 0..10 {
            assert!(seen.insert(yaml::address(service, endpoint, 0)));
        }
        for change in 1..10 {
            assert!(seen.insert(yaml::address(service, 9, change)));
        }
    }
}

#[test]
fn the_processor_time_of_a_process_counts_threads_that_end() {
    let pid = std::process::id();
    let before = crate::server::ran(pid).unwrap();
    let (mut spent, mut reads) = (Duration::ZERO, 0);
    while spent < Duration::from_millis(20) {
        let thread = std::thread::spawn(|| {
            let own = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
            while Duration::from(own.now().unwrap()) < Duration::from_micros(200) {
                std::hint::spin_loop();
            }
            Duration::from(own.now().unwrap())
        });
        while !thread.is_finished() {
            crate::server::ran(pid).unwrap();
            reads += 1;
        }
        spent += thread.join().unwrap();
    }
    let ran = crate::server::ran(pid).unwrap().checked_sub(before);
    assert!(
        ran.is_some_and(|ran| ran >= spent),
        "{ran:?} of {spent:?}, {reads} reads"
    );
}
