//! What must hold of one xDS stream, whatever its client says. Asked by the fuzzer, and by a test with its examples.
//!
//! The bytes are messages, each behind a byte that says what happens before it and two with its length; of the last one the
//! length may be too large.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::model::{
    Endpoint, EndpointAddress, EndpointShards, Labels, Port, Protocol as Speaks, Registry,
    Resolution, Service, ServiceKey, Target, TriggerReason, World,
};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use prost::Message;
use xds::node::Node;
use xds::settings::Settings;
use xds::snapshot::Snapshot;
use xds::stream::{
    Client, NACK_BYTES, NAMES, Protocol, Push, PushScope, Request, Response, Stream,
};
use xds::view::Type;

/// Messages of one stream.
const MESSAGES: usize = 100;
/// A request of one type, a push and the passing of a step owe no more responses than this.
const OWED: usize = 16;

/// Bits of the byte before a message.
const PUSH_ALL: u8 = 1;
const PUSH_ENDPOINTS: u8 = 2;
const WAIT: u8 = 4;
/// The message answers the last response, whatever nonce it has.
const ANSWER: u8 = 8;

thread_local! {
    /// Three moments of a mesh: the second has other endpoints, the third other services.
    static MOMENTS: [Arc<Snapshot>; 3] = [world(&["a", "b"], 1), world(&["a", "b"], 2), world(&["b", "c"], 2)]
        .map(|world| Snapshot::new(world, Arc::new(Settings::default())));
}

fn world(names: &[&str], last: u8) -> World {
    let mesh =
        api::mesh::parse_over(&api::mesh::discovery_defaults(), "").expect("defaults are valid");
    let mut world = World::new(Arc::new(mesh.config));
    for name in names {
        let key = ServiceKey::new(&format!("{name}.demo.svc.cluster.local"), "demo");
        let port = Port {
            name: "http".into(),
            number: 8080,
            protocol: Speaks::Http,
            target: Target::Number(8080),
        };
        let service = Service {
            key: key.clone(),
            registry: Registry::External,
            ports: vec![port],
            addresses: Default::default(),
            cluster: "Kubernetes".into(),
            resolution: Resolution::Static,
            mesh_external: false,
            selector: Labels::new(),
            created: None,
            accounts: BTreeSet::new(),
            prefers_close: false,
            exported_to: Vec::new(),
            balancers: Default::default(),
        };
        let address = EndpointAddress::Ip([10, 0, 0, last].into());
        let shards = EndpointShards::from([(
            "Kubernetes".into(),
            Arc::from([Endpoint::new(address, 8080, "http")]),
        )]);
        Arc::make_mut(&mut world.services).insert(key.clone(), Arc::new(service));
        Arc::make_mut(&mut world.endpoints).insert(key, Arc::new(shards));
    }
    world
}

/// One stream with its clock, and what it is known to have sent.
struct Play {
    protocol: Protocol,
    stream: Stream,
    node: Arc<Node>,
    now: Duration,
    moment: usize,
    nonces: [u64; 4],
    last: u64,
}

pub(crate) fn check(protocol: Protocol, bytes: &[u8]) {
    let mut play: Option<Play> = None;
    for (before, message) in messages(bytes).take(MESSAGES) {
        let Some((node, request)) = read(protocol, message) else {
            continue;
        };
        let play = play.get_or_insert_with(|| Play::new(protocol, node.as_ref()));
        play.before(before);
        let Some(mut request) = request else {
            continue;
        };
        if before & ANSWER != 0 {
            request.nonce = play.nonces[slot(request.kind)].to_string();
        }
        if play.stream.request(play.now, &request).is_err() {
            return;
        }
        play.settle();
    }
}

fn messages(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let [before, high, low, more @ ..] = rest else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (message, after) = more.split_at(length.min(more.len()));
        rest = after;
        Some((*before, message))
    })
}

/// As the program reads them.
fn read(protocol: Protocol, bytes: &[u8]) -> Option<(Option<core::Node>, Option<Request>)> {
    match protocol {
        Protocol::StateOfTheWorld => {
            let asked = DiscoveryRequest::decode(bytes).ok()?;
            let request = Type::from_url(&asked.type_url).map(|kind| Request {
                version: asked.version_info,
                nonce: asked.response_nonce,
                names: asked.resource_names.into(),
                error: asked.error_detail.map(|error| error.message),
                ..Request::of(kind)
            });
            Some((asked.node, request))
        }
        Protocol::Delta => {
            let asked = DeltaDiscoveryRequest::decode(bytes).ok()?;
            let request = Type::from_url(&asked.type_url).map(|kind| Request {
                nonce: asked.response_nonce,
                names: asked.resource_names_subscribe.into(),
                unsubscribe: asked.resource_names_unsubscribe,
                initial: asked.initial_resource_versions.into_iter().collect(),
                error: asked.error_detail.map(|error| error.message),
                ..Request::of(kind)
            });
            Some((asked.node, request))
        }
    }
}

fn slot(kind: Type) -> usize {
    Type::ALL
        .iter()
        .position(|other| *other == kind)
        .expect("it is one of all")
}

impl Play {
    fn new(protocol: Protocol, said: Option<&core::Node>) -> Self {
        let usual = core::Node {
            id: "sidecar~10.0.0.9~web-1.demo~demo.svc.cluster.local".to_owned(),
            ..core::Node::default()
        };
        let node = Node::read(said).or_else(|_| Node::read(Some(&usual)));
        let node = Arc::new(node.expect("the usual one is good"));
        let client = if node.grpc {
            Client::Grpc
        } else {
            Client::Envoy
        };
        let view = MOMENTS.with(|moments| moments[0].view(&node));
        Self {
            protocol,
            stream: Stream::new(protocol, client, view),
            node,
            now: Duration::from_secs(100),
            moment: 0,
            nonces: [0; 4],
            last: 0,
        }
    }

    fn before(&mut self, what: u8) {
        if what & WAIT != 0 {
            self.now += Duration::from_millis(2100);
            self.settle();
        }
        if what & (PUSH_ALL | PUSH_ENDPOINTS) == 0 {
            return;
        }
        let full = what & PUSH_ALL != 0;
        // Only between the first two do endpoints alone differ.
        self.moment = if full {
            (self.moment + 1) % 3
        } else {
            self.moment ^ usize::from(self.moment < 2)
        };
        let view = MOMENTS.with(|moments| moments[self.moment].view(&self.node));
        let names =
            ["a", "b"].map(|name| format!("outbound|8080||{name}.demo.svc.cluster.local").into());
        self.stream.merge_push(Push {
            view,
            scope: if full {
                PushScope::Full
            } else {
                PushScope::Endpoints(Arc::new(names.into()))
            },
            reasons: TriggerReason::Service.into(),
        });
        self.settle();
    }

    /// All that is owed now: little, and well-formed.
    fn settle(&mut self) {
        let mut count = 0;
        while let Some(response) = self.stream.next(self.now) {
            self.holds(&response);
            assert!(self.stream.next(self.now).is_none(), "the writer is busy");
            self.stream.written();
            count += 1;
            assert!(count <= OWED, "there is no end to what is owed");
        }
        for kind in Type::ALL {
            assert!(self.stream.watches(kind).names.len() <= NAMES);
            if let Some(nack) = self.stream.status(kind).and_then(|status| status.nack) {
                assert!(nack.message.len() <= NACK_BYTES);
            }
        }
        assert!(self.stream.endpoint_percent() <= 100);
        // A step that waits has an end.
        assert!(
            self.stream
                .deadline()
                .is_none_or(|deadline| deadline > self.now)
        );
    }

    fn holds(&mut self, response: &Response) {
        assert!(response.nonce > self.last, "a nonce is there twice");
        self.last = response.nonce;
        self.nonces[slot(response.kind)] = response.nonce;
        let names: BTreeSet<_> = response.resources.iter().map(|one| &one.name).collect();
        assert_eq!(
            names.len(),
            response.resources.len(),
            "a name is there twice"
        );
        assert!(response.removed.iter().all(|name| !names.contains(name)));
        assert!(self.protocol == Protocol::Delta || response.removed.is_empty());
        assert!(self.stream.status(response.kind).is_some(), "nobody asked");
        let watches = self.stream.watches(response.kind);
        if !watches.wildcard {
            let watched: BTreeSet<_> = watches.names.iter().collect();
            let strange = names.iter().find(|name| !watched.contains(**name));
            assert_eq!(strange, None, "of {:?}", response.kind);
        }
        let status = self.stream.status(response.kind).expect("it was asked for");
        assert_eq!(status.sent, Some(response.version));
    }
}
