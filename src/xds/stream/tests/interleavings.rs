//! Any interleaving of requests, changes, answers, refusals and reconnects, with a client that is as Envoy is: in the end it
//! has what there is, nothing warms, and nothing was sent twice without a reason.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::envoy::{FakeEnvoy, empty};
use super::world::{Body, World};
use crate::stream::{Client, Protocol, Request, Response, Stream};
use crate::version::Version;
use crate::view::Type::{Cluster, Endpoint, Listener, Route};
use crate::view::{Type, VIRTUAL_OUTBOUND};

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A change of the world, pushed in full.
    Change(Change),
    /// Several, pushed as one.
    Changes(Change, Change),
    /// An assignment changes, pushed as such.
    Endpoints(u8),
    /// The writer is free and is given a response.
    Send,
    /// The response that the writer holds arrives.
    Arrive,
    /// The client reads.
    Read,
    /// The server reads.
    Hear,
    Wait(u16),
    /// The stream breaks; the client comes back to this server or another.
    Reconnect,
    /// And the world changes meanwhile.
    Away(Change, Change),
    /// Another process: it has nothing.
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A change of a cluster: there or not, by EDS or not, refused or not.
    Cluster {
        name: u8,
        revision: u8,
        eds: bool,
        bad: bool,
    },
    NoCluster {
        name: u8,
    },
    Listener {
        name: u8,
        revision: u8,
        routes: u8,
        bad: bool,
        caught: bool,
    },
    NoListener {
        name: u8,
    },
    /// Routes to clusters, by a mask.
    Route {
        name: u8,
        revision: u8,
        clusters: u8,
    },
    NoRoute {
        name: u8,
    },
}

const CLUSTERS: [&str; 4] = ["a", "b", "c", "d"];
const LISTENERS: [&str; 2] = ["l", "m"];
const ROUTES: [&str; 3] = ["80", "81", "82"];

fn pick(names: &[&'static str], at: u8) -> &'static str {
    names[usize::from(at) % names.len()]
}

fn masked(names: &[&str], mask: u8) -> BTreeSet<String> {
    let bits = names.iter().enumerate();
    let chosen = bits.filter(|(at, _)| mask >> at & 1 == 1);
    chosen.map(|(_, name)| (*name).to_owned()).collect()
}

impl Change {
    fn apply(self, world: &mut World, bad_allowed: bool) {
        match self {
            Self::Cluster {
                name,
                revision,
                eds,
                bad,
            } => {
                let name = pick(&CLUSTERS, name);
                let body = Body {
                    revision: u32::from(revision),
                    eds,
                    bad: bad && bad_allowed,
                    ..Body::default()
                };
                world.put(Cluster, name, body);
                if !eds {
                    world.remove(Endpoint, name);
                } else if world.get(Endpoint, name).is_none() {
                    world.put(Endpoint, name, Body::default());
                }
            }
            Self::NoCluster { name } => {
                world.remove(Cluster, pick(&CLUSTERS, name));
                world.remove(Endpoint, pick(&CLUSTERS, name));
            }
            Self::Listener {
                name,
                revision,
                routes,
                bad,
                caught,
            } => {
                let body = Body {
                    revision: u32::from(revision),
                    names: masked(&ROUTES, routes),
                    bad: bad && bad_allowed,
                    caught,
                    ..Body::default()
                };
                world.put(Listener, pick(&LISTENERS, name), body);
            }
            Self::NoListener { name } => world.remove(Listener, pick(&LISTENERS, name)),
            Self::Route {
                name,
                revision,
                clusters,
            } => {
                let body = Body {
                    revision: u32::from(revision),
                    names: masked(&CLUSTERS, clusters),
                    ..Body::default()
                };
                world.put(Route, pick(&ROUTES, name), body);
            }
            Self::NoRoute { name } => world.remove(Route, pick(&ROUTES, name)),
        }
    }
}

/// Routes lead to clusters that there are, and listeners to routes that there are.
fn mend(world: &mut World) {
    for (kind, below) in [(Route, Cluster), (Listener, Route)] {
        let bodies: Vec<_> = world
            .of(kind)
            .map(|(name, body)| (name.clone(), body.clone()))
            .collect();
        for (name, mut body) in bodies {
            body.names.retain(|name| world.get(below, name).is_some());
            world.put(kind, &name, body);
        }
    }
}

/// Why a resource may go out on this stream: it differs from what was sent, or something asks for it.
#[derive(Debug, Default)]
struct Reasons {
    sent: BTreeMap<(Type, String), Option<Version>>,
    owed: BTreeSet<(Type, String)>,
    /// Types with complete responses that were asked for.
    asked: BTreeSet<Type>,
    whole: BTreeMap<Type, Version>,
    names: BTreeMap<Type, BTreeSet<String>>,
}

impl Reasons {
    fn hear(&mut self, protocol: Protocol, request: &Request) {
        let kind = request.kind;
        let names: BTreeSet<String> = request.names.iter().map(str::to_owned).collect();
        let first = !self.names.contains_key(&kind);
        let known = self.names.entry(kind).or_default();
        for name in &names {
            if first || protocol == Protocol::Delta || !known.contains(name) {
                self.owed.insert((kind, name.clone()));
            }
        }
        if first {
            self.asked.insert(kind);
        }
        match protocol {
            Protocol::StateOfTheWorld => *known = names,
            Protocol::Delta => known.extend(names),
        }
    }

    fn send(&mut self, protocol: Protocol, response: &Response) {
        let kind = response.kind;
        let asked = self.asked.remove(&kind);
        let complete = protocol == Protocol::StateOfTheWorld && kind.is_complete();
        if complete {
            let before = self.whole.insert(kind, response.version);
            assert!(
                asked || before != Some(response.version),
                "the same {response:?}"
            );
        }
        let found = response
            .resources
            .iter()
            .map(|found| (found.name.to_string(), Some(found.version)));
        let gone = response.removed.iter().map(|name| (name.to_string(), None));
        let all: Vec<_> = found.chain(gone).collect();
        assert!(
            asked || complete || !all.is_empty(),
            "nothing in {response:?}"
        );
        for (name, version) in all {
            let key = (kind, name.clone());
            let owed = self.owed.remove(&key);
            let before = self.sent.insert(key, version);
            let differs = before != Some(version);
            assert!(
                owed || asked || differs || complete,
                "{name} twice in {response:?}"
            );
            if kind == Cluster && differs && version.is_some() {
                self.owed.insert((Endpoint, name));
            }
        }
        if complete {
            let there: BTreeSet<_> = response
                .resources
                .iter()
                .map(|found| found.name.to_string())
                .collect();
            self.sent
                .retain(|(of, name), _| *of != kind || there.contains(name));
        }
    }
}

#[derive(Debug)]
struct Run {
    protocol: Protocol,
    world: World,
    stream: Stream,
    envoy: FakeEnvoy,
    now: Duration,
    writing: Option<Response>,
    inbox: VecDeque<Response>,
    reasons: Reasons,
    bad_allowed: bool,
}

impl Run {
    fn new(protocol: Protocol, world: World, bad_allowed: bool) -> Self {
        let world = world.simple(Listener, VIRTUAL_OUTBOUND, 0);
        Self {
            protocol,
            stream: Stream::new(protocol, Client::Envoy, world.view()),
            world,
            envoy: FakeEnvoy::new(protocol),
            now: Duration::from_secs(1),
            writing: None,
            inbox: VecDeque::new(),
            reasons: Reasons::default(),
            bad_allowed,
        }
    }

    fn connect(&mut self) {
        self.stream = Stream::new(self.protocol, Client::Envoy, self.world.view());
        self.writing = None;
        self.inbox.clear();
        self.reasons = Reasons::default();
    }

    fn reconnect(&mut self) {
        self.connect();
        self.envoy.connect();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Change(change) => self.change(&[change]),
            Event::Changes(one, other) => self.change(&[one, other]),
            Event::Endpoints(at) => self.endpoints(pick(&CLUSTERS, at)),
            Event::Send => drop(self.send()),
            Event::Arrive => drop(self.arrive()),
            Event::Read => drop(self.read()),
            Event::Hear => drop(self.hear()),
            Event::Wait(milliseconds) => self.now += Duration::from_millis(milliseconds.into()),
            Event::Reconnect => self.reconnect(),
            Event::Away(one, other) => {
                self.apply(&[one, other]);
                self.reconnect();
            }
            Event::Restart => {
                self.connect();
                self.envoy = FakeEnvoy::new(self.protocol);
            }
        }
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            change.apply(&mut self.world, self.bad_allowed);
        }
        mend(&mut self.world);
    }

    fn change(&mut self, changes: &[Change]) {
        self.apply(changes);
        self.stream.merge_push(self.world.full());
    }

    fn endpoints(&mut self, name: &str) {
        let Some(body) = self.world.get(Endpoint, name) else {
            return;
        };
        let revision = body.revision + 1;
        self.world = std::mem::take(&mut self.world).simple(Endpoint, name, revision);
        self.stream.merge_push(self.world.endpoints(&[name]));
    }

    fn send(&mut self) -> bool {
        let Some(response) = self.stream.next(self.now) else {
            return false;
        };
        assert_eq!(self.writing, None, "one is held");
        self.reasons.send(self.protocol, &response);
        self.writing = Some(response);
        true
    }

    fn arrive(&mut self) -> bool {
        let Some(response) = self.writing.take() else {
            return false;
        };
        self.stream.written();
        self.inbox.push_back(response);
        true
    }

    fn read(&mut self) -> bool {
        let Some(response) = self.inbox.pop_front() else {
            return false;
        };
        self.envoy.read(&response);
        true
    }

    fn hear(&mut self) -> bool {
        let Some(request) = self.envoy.out.pop_front() else {
            return false;
        };
        self.reasons.hear(self.protocol, &request);
        self.stream.request(self.now, &request).unwrap();
        true
    }

    /// Until nobody has anything to say. Time passes only where the stream waits for it.
    fn drain(&mut self) -> usize {
        for steps in 0..2_000 {
            if self.send() | self.arrive() | self.read() | self.hear() {
                continue;
            }
            match self.stream.deadline() {
                Some(deadline) => self.now = self.now.max(deadline),
                None => return steps,
            }
        }
        panic!("it does not end");
    }

    /// The clusters that routes lead to and that do not serve, after a stream of which no server knows what is gone.
    fn broken(&self) -> Vec<String> {
        let broken = match self.protocol {
            Protocol::Delta => self.envoy.broken(),
            Protocol::StateOfTheWorld => self.envoy.broken_by_the_last(),
        };
        broken.into_iter().cloned().collect()
    }

    /// The client has what there is.
    fn check(&self) {
        let (world, envoy) = (&self.world, &self.envoy);
        assert!(
            envoy.is_warming().is_empty(),
            "warming: {:?}",
            envoy.is_warming()
        );
        let text = |kind, name: &str| {
            let found = world.resource(kind, name);
            found.map_or_else(
                || empty(name),
                |found| String::from_utf8(found.body.to_vec()).unwrap(),
            )
        };
        let mut known = BTreeSet::new();
        for (name, content, assignment) in envoy.clusters() {
            known.insert(name.clone());
            if envoy.is_doubtful(Cluster, name) {
                continue;
            }
            let body = world
                .get(Cluster, name)
                .expect("a cluster that is gone is there");
            if body.bad {
                continue;
            }
            assert_eq!(*content, text(Cluster, name));
            assert_eq!(assignment.cloned(), body.eds.then(|| text(Endpoint, name)));
        }
        for (name, _) in world.of(Cluster).filter(|(_, body)| !body.bad) {
            assert!(
                known.contains(name) || envoy.is_doubtful(Cluster, name),
                "no {name}"
            );
        }
        let listeners: BTreeMap<_, _> = envoy.listeners().collect();
        for (name, _) in world.of(Listener).filter(|(_, body)| !body.bad) {
            if !envoy.is_doubtful(Listener, name) {
                assert_eq!(listeners.get(name).copied(), Some(&text(Listener, name)));
            }
        }
        for name in listeners.keys() {
            let there = world.get(Listener, name).is_some();
            assert!(there || envoy.is_doubtful(Listener, name), "{name} is gone");
        }
        for name in envoy.wants(Route) {
            // In delta Envoy ignores the removal of routes.
            if world.get(Route, &name).is_some() || self.protocol == Protocol::StateOfTheWorld {
                assert_eq!(envoy.route(&name), Some(&text(Route, &name)));
            }
        }
        for kind in Type::ALL {
            let Some(status) = self.stream.status(kind) else {
                continue;
            };
            let subscribed = !matches!(kind, Endpoint | Route) || !envoy.wants(kind).is_empty();
            if subscribed && !self.bad_allowed {
                assert_eq!(status.acked, status.sent, "{kind:?} is not in sync");
            }
            let is_refused = world.of(kind).any(|(_, body)| body.bad);
            assert_eq!(status.nack.is_some(), is_refused, "{kind:?}");
        }
        assert!(!self.stream.is_pending());
    }

    /// The client comes back twice with what it has. The first time it may be told what it had refused, or names that it has
    /// given up; the second time there is nothing to say.
    fn check_silence(&mut self) {
        self.connect();
        self.envoy.connect();
        self.drain();
        self.check();
        let refuses = [Cluster, Listener]
            .into_iter()
            .any(|kind| self.world.of(kind).any(|(_, body)| body.bad));
        let absent = |kind| {
            self.envoy
                .wants(kind)
                .iter()
                .any(|name| self.world.get(kind, name).is_none())
        };
        let delta = self.protocol == Protocol::Delta;
        let nothing = delta
            && (absent(Endpoint)
                || absent(Route)
                || self.world.set(Listener).is_empty()
                || self.world.set(Cluster).is_empty());
        if refuses || nothing {
            return;
        }
        self.connect();
        self.envoy.connect();
        while self.hear() {}
        let more = self.stream.next(self.now);
        assert_eq!(more, None, "to a client that has everything");
    }
}

fn change() -> impl Strategy<Value = Change> {
    let bad = || prop::bool::weighted(0.1);
    let any = any::<u8>;
    prop_oneof![
        4 => (any(), 0..3_u8, prop::bool::weighted(0.8), bad())
            .prop_map(|(name, revision, eds, bad)| Change::Cluster { name, revision, eds, bad }),
        2 => any().prop_map(|name| Change::NoCluster { name }),
        2 => (any(), 0..3_u8, any(), bad(), prop::bool::weighted(0.3))
            .prop_map(|(name, revision, routes, bad, caught)| Change::Listener { name, revision, routes, bad, caught }),
        1 => any().prop_map(|name| Change::NoListener { name }),
        2 => (any(), 0..3_u8, any())
            .prop_map(|(name, revision, clusters)| Change::Route { name, revision, clusters }),
        1 => any().prop_map(|name| Change::NoRoute { name }),
    ]
}

fn step() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Send),
        6 => Just(Event::Arrive),
        6 => Just(Event::Read),
        6 => Just(Event::Hear),
        3 => change().prop_map(Event::Change),
        2 => (change(), change()).prop_map(|(one, other)| Event::Changes(one, other)),
        2 => any::<u8>().prop_map(Event::Endpoints),
    ]
}

fn step_or_away() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => step(),
        1 => (change(), change()).prop_map(|(one, other)| Event::Away(one, other)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => step(),
        1 => (0..3_000_u16).prop_map(Event::Wait),
        1 => Just(Event::Reconnect),
        1 => (change(), change()).prop_map(|(one, other)| Event::Away(one, other)),
    ]
}

fn rare() -> impl Strategy<Value = Event> {
    prop_oneof![20 => event(), 1 => Just(Event::Restart)]
}

fn worlds() -> impl Strategy<Value = World> {
    prop::collection::vec(change(), 0..12).prop_map(|changes| {
        let mut world = World::default();
        for change in changes {
            change.apply(&mut world, false);
        }
        mend(&mut world);
        world
    })
}

fn protocols() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::StateOfTheWorld), Just(Protocol::Delta)]
}

proptest! {
    #[test]
    fn envoy_ends_with_what_there_is(
        protocol in protocols(),
        world in worlds(),
        bad_allowed in any::<bool>(),
        events in prop::collection::vec(rare(), 0..80),
    ) {
        let mut run = Run::new(protocol, world, bad_allowed);
        for event in events {
            run.happen(event);
        }
        run.drain();
        run.check();
        run.check_silence();
    }

    /// The world changes while no server is there, and the client keeps what it has.
    #[test]
    fn no_listener_turns_between_two_streams(
        protocol in protocols(),
        world in worlds(),
        changes in prop::collection::vec([change(), change(), change()], 1..8),
    ) {
        let mut run = Run::new(protocol, world, false);
        for changes in changes {
            run.drain();
            for change in changes {
                change.apply(&mut run.world, false);
            }
            mend(&mut run.world);
            run.reconnect();
        }
        run.drain();
        run.check();
    }

    /// With a client that answers in time, no route ever leads to a cluster that is not there.
    #[test]
    fn no_route_leads_nowhere(
        protocol in protocols(),
        world in worlds(),
        events in prop::collection::vec(step(), 0..80),
    ) {
        let mut run = Run::new(protocol, world, false);
        for event in events {
            run.happen(event);
            let broken = run.envoy.broken();
            prop_assert!(broken.is_empty(), "no cluster {:?}", broken);
        }
        while run.send() | run.arrive() | run.read() | run.hear() {
            let broken = run.envoy.broken();
            prop_assert!(broken.is_empty(), "no cluster {:?}", broken);
        }
        run.drain();
        run.check();
    }

    /// Nor on the next stream of a client that comes with clusters of a world before, be some of them warming. In state of the world
    /// no server knows what is gone, and the new routes alone lead somewhere.
    #[test]
    fn no_route_leads_nowhere_after_the_server_was_away(
        protocol in protocols(),
        world in worlds(),
        events in prop::collection::vec(step_or_away(), 0..80),
    ) {
        let mut run = Run::new(protocol, world, false);
        for event in events {
            run.happen(event);
            let broken = run.broken();
            prop_assert!(broken.is_empty(), "no cluster {:?}", broken);
        }
        while run.send() | run.arrive() | run.read() | run.hear() {
            let broken = run.broken();
            prop_assert!(broken.is_empty(), "no cluster {:?}", broken);
        }
        run.drain();
        run.check();
    }

    /// Nor where the server ends within a push: while clusters warm, the client asks for none.
    #[test]
    fn no_route_leads_nowhere_after_the_server_ended_within_a_push(
        protocol in protocols(),
        world in worlds(),
        turns in prop::collection::vec(
            (prop::collection::vec(change(), 1..4), 0..12_u8, prop::collection::vec(change(), 1..8)),
            2..8,
        ),
    ) {
        // A client without any cluster comes without versions of them, as one that starts.
        let mut run = Run::new(protocol, world.simple(Cluster, "kept", 0), false);
        for (pushed, steps, missed) in turns {
            run.drain();
            run.change(&pushed);
            for _ in 0..steps {
                let _has_more = run.send() || run.arrive() || run.read() || run.hear();
            }
            run.apply(&missed);
            run.reconnect();
            while run.send() | run.arrive() | run.read() | run.hear() {
                let broken = run.broken();
                prop_assert!(broken.is_empty(), "no cluster {:?}", broken);
            }
        }
    }
}
