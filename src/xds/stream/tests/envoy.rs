//! A client that behaves as Envoy does where it matters, not as the protocol would like it to.
//!
//! * A new EDS cluster and a *changed* one (any field) warm until an assignment arrives after that response. Envoy does not
//!   ask again for a name that it subscribes already. Meanwhile the old cluster serves.
//! * While any cluster warms, requests for clusters are held back: the ACK (or refusal) of the response that brought it, and on
//!   a new stream the first request.
//! * After a response with new clusters it first asks for their endpoints, with the nonce of the last EDS response.
//! * On a new stream the first request of a type has the version that was accepted last (delta: the versions of each resource)
//!   and no nonce.
//! * A response with a bad resource is refused, and the others in it are applied. In delta none of their versions is noted, nor
//!   what was removed: on a new stream no server can know of them. These are [`Envoy::is_doubtful`].
//! * A process that starts asks for clusters alone; listeners when the first clusters are warm, endpoints and routes when
//!   something names them.
//! * In state of the world a request says all names, and one that waits is one request however much has changed. In delta each
//!   response has its own ACK, in order.
//! * It dies of a listener that gets a port of its own while it runs, unless it was gone meanwhile. One that loses its port is as
//!   bad, but in the first response of a stream of state of the world: no server knows of that. Nor does it know of what came
//!   in a response that was refused.
//! * Assignments of names that it does not watch are dropped. A removed one counts as one without endpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::world::Body;
use crate::stream::{Protocol, Request, Response};
use crate::view::Type;
use crate::view::Type::{Cluster, Endpoint, Listener, Route, Secret};

type Content = BTreeMap<String, String>;

/// Envoy's record of one type.
#[derive(Clone, Debug, Default)]
struct Subscription {
    /// It was subscribed at all: asked for again on each stream.
    begun: bool,
    /// The first request of this stream was sent.
    asked: bool,
    /// Last accepted, of state of the world.
    version: String,
    /// Last accepted, of delta.
    versions: Content,
    nonce: String,
    /// Names that the server was told on this stream.
    named: BTreeSet<String>,
    /// Something is to be said of state of the world; of delta, ACKs and names that are added again.
    due: bool,
    error: Option<String>,
    acks: VecDeque<(String, Option<String>)>,
    again: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Active {
    content: String,
    body: Body,
    /// Its assignment. `None`: it is no EDS cluster.
    assignment: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct FakeEnvoy {
    protocol: Protocol,
    subscriptions: BTreeMap<Type, Subscription>,
    active: BTreeMap<String, Active>,
    warming: BTreeMap<String, (String, Body)>,
    listeners: BTreeMap<String, (String, Body)>,
    routes: BTreeMap<String, (String, Option<Body>)>,
    /// Delta: names in refused responses of this stream, and of streams before.
    refused: BTreeSet<(Type, String)>,
    doubtful: BTreeSet<(Type, String)>,
    /// The last response with listeners was refused.
    has_refused_listeners: bool,
    /// Clusters that routes of the last response lead to and that did not serve.
    broken_by_the_last: BTreeSet<String>,
    /// To the server.
    pub(super) out: VecDeque<Request>,
}

/// As text, so that it can be compared; what was refused is what it was.
fn content(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

impl FakeEnvoy {
    /// A process that starts.
    pub(super) fn new(protocol: Protocol) -> Self {
        let kinds = Type::ALL;
        let mut envoy = Self {
            protocol,
            subscriptions: kinds.map(|kind| (kind, Subscription::default())).into(),
            active: BTreeMap::new(),
            warming: BTreeMap::new(),
            listeners: BTreeMap::new(),
            routes: BTreeMap::new(),
            refused: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            has_refused_listeners: false,
            broken_by_the_last: BTreeSet::new(),
            out: VecDeque::new(),
        };
        envoy.of(Cluster).begun = true;
        envoy.connect();
        envoy
    }

    fn of(&mut self, kind: Type) -> &mut Subscription {
        self.subscriptions.get_mut(&kind).unwrap()
    }

    /// A new stream: what was on its way is lost.
    pub(super) fn connect(&mut self) {
        self.out.clear();
        self.doubtful.append(&mut self.refused);
        for subscription in self.subscriptions.values_mut() {
            subscription.asked = false;
            subscription.nonce.clear();
            subscription.named.clear();
            subscription.due = false;
            subscription.error = None;
            subscription.acks.clear();
            subscription.again.clear();
        }
        for kind in Type::ALL {
            self.speak(kind);
        }
    }

    fn names(&self, kind: Type) -> BTreeSet<String> {
        match kind {
            Cluster | Listener | Secret => BTreeSet::new(),
            Endpoint => {
                let active = self.active.iter().filter(|(_, active)| active.body.eds);
                let warming = self.warming.iter().filter(|(_, (_, body))| body.eds);
                let active = active.map(|(name, _)| name.clone());
                active
                    .chain(warming.map(|(name, _)| name.clone()))
                    .collect()
            }
            Route => {
                let listeners = self.listeners.values();
                listeners.flat_map(|(_, body)| body.names.clone()).collect()
            }
        }
    }

    /// Says what there is to say of a type, unless it is held back.
    fn speak(&mut self, kind: Type) {
        if kind == Cluster && !self.warming.is_empty() {
            return;
        }
        let names = self.names(kind);
        let protocol = self.protocol;
        let subscription = self.of(kind);
        subscription.begun |= !names.is_empty();
        if !subscription.begun {
            return;
        }
        match protocol {
            Protocol::StateOfTheWorld => {
                if let Some(request) = subscription.say(kind, names) {
                    self.out.push_back(request);
                }
            }
            Protocol::Delta => {
                let requests = subscription.say_delta(kind, &names);
                self.out.extend(requests);
            }
        }
    }

    pub(super) fn read(&mut self, response: &Response) {
        let warmed = !self.warming.is_empty();
        self.broken_by_the_last.clear();
        let errors = match response.kind {
            Cluster => self.read_clusters(response),
            Endpoint => {
                self.read_endpoints(response);
                Vec::new()
            }
            Listener => self.read_listeners(response),
            Route => {
                self.read_routes(response);
                Vec::new()
            }
            Secret => panic!("it asked for none"),
        };
        let error = (!errors.is_empty()).then(|| errors.join(", "));
        self.answer(response, error);
        // The names that this brings go first, then the answer.
        match response.kind {
            Cluster => self.speak(Endpoint),
            Listener => self.speak(Route),
            Endpoint | Route | Secret => {}
        }
        if response.kind == Endpoint && warmed {
            self.speak(Cluster);
        }
        self.speak(response.kind);
        if self.warming.is_empty() && !self.of(Listener).begun {
            self.of(Listener).begun = true;
            self.speak(Listener);
        }
    }

    fn answer(&mut self, response: &Response, error: Option<String>) {
        let delta = self.protocol == Protocol::Delta;
        let found = response.resources.iter().map(|found| &found.name);
        for name in found.chain(&response.removed) {
            let key = (response.kind, name.to_string());
            self.doubtful.remove(&key);
            self.refused.remove(&key);
            if delta && error.is_some() {
                self.refused.insert(key);
            }
        }
        if response.kind == Listener {
            self.has_refused_listeners = error.is_some();
        }
        let subscription = self.of(response.kind);
        subscription.nonce = response.nonce.to_string();
        subscription.due = true;
        if delta {
            let ack = (response.nonce.to_string(), error.clone());
            subscription.acks.push_back(ack);
        }
        if error.is_none() {
            subscription.version = response.version.to_string();
            for resource in &response.resources {
                let version = resource.version.to_string();
                subscription
                    .versions
                    .insert(resource.name.to_string(), version);
            }
            for name in &response.removed {
                subscription.versions.remove(&**name);
            }
        }
        subscription.error = error;
    }

    fn read_clusters(&mut self, response: &Response) -> Vec<String> {
        let mut errors = Vec::new();
        for resource in &response.resources {
            let name = resource.name.to_string();
            let body = Body::decode(&resource.body).expect("a cluster has a body");
            let content = content(&resource.body);
            let known = self.warming.get(&name).map(|(content, _)| content);
            let known = known.or_else(|| self.active.get(&name).map(|active| &active.content));
            if known == Some(&content) {
                continue;
            }
            if body.bad {
                errors.push(format!("{name} is bad"));
            } else if body.eds {
                self.warming.insert(name, (content, body));
            } else {
                self.warming.remove(&name);
                let assignment = None;
                self.active.insert(
                    name,
                    Active {
                        content,
                        body,
                        assignment,
                    },
                );
            }
        }
        let gone: Vec<String> = match self.protocol {
            Protocol::StateOfTheWorld => {
                let there: BTreeSet<_> = response
                    .resources
                    .iter()
                    .map(|found| &*found.name)
                    .collect();
                let known = self.active.keys().chain(self.warming.keys());
                known
                    .filter(|name| !there.contains(&***name))
                    .cloned()
                    .collect()
            }
            Protocol::Delta => response.removed.iter().map(ToString::to_string).collect(),
        };
        for name in gone {
            self.active.remove(&name);
            self.warming.remove(&name);
        }
        errors
    }

    fn read_endpoints(&mut self, response: &Response) {
        let resources = response.resources.iter();
        let found = resources.map(|found| (found.name.to_string(), content(&found.body)));
        let removed = response
            .removed
            .iter()
            .map(|name| (name.to_string(), String::new()));
        for (name, assignment) in found.chain(removed) {
            if let Some(active) = self.active.get_mut(&name)
                && active.body.eds
            {
                active.assignment = Some(assignment.clone());
            }
            if let Some((content, body)) = self.warming.remove(&name) {
                let assignment = Some(assignment);
                self.active.insert(
                    name,
                    Active {
                        content,
                        body,
                        assignment,
                    },
                );
            }
        }
    }

    fn read_listeners(&mut self, response: &Response) -> Vec<String> {
        let mut errors = Vec::new();
        let mut there = BTreeSet::new();
        let is_first = self.of(Listener).nonce.is_empty();
        for resource in &response.resources {
            let name = resource.name.to_string();
            let body = Body::decode(&resource.body).expect("a listener has a body");
            there.insert(name.clone());
            if body.bad {
                errors.push(format!("{name} is bad"));
            } else {
                let before = self.listeners.get(&name);
                let turns = before.is_some_and(|(_, before)| before.caught != body.caught);
                let is_known = match self.protocol {
                    Protocol::StateOfTheWorld => !body.caught && !self.has_refused_listeners,
                    Protocol::Delta => !self.is_doubtful(Listener, &name),
                };
                assert!(!turns || (is_first && !is_known), "it dies of {name}");
                self.listeners.insert(name, (content(&resource.body), body));
            }
        }
        match self.protocol {
            Protocol::StateOfTheWorld => self.listeners.retain(|name, _| there.contains(name)),
            Protocol::Delta => {
                for name in &response.removed {
                    self.listeners.remove(&**name);
                }
            }
        }
        let names = self.names(Route);
        self.routes.retain(|name, _| names.contains(name));
        errors
    }

    fn read_routes(&mut self, response: &Response) {
        let names = self.names(Route);
        for resource in &response.resources {
            let name = resource.name.to_string();
            if names.contains(&name) {
                let body = Body::decode(&resource.body);
                let clusters = body.iter().flat_map(|body| &body.names);
                let broken = clusters.filter(|name| !self.active.contains_key(*name));
                self.broken_by_the_last.extend(broken.cloned());
                self.routes.insert(name, (content(&resource.body), body));
            }
        }
        // Envoy ignores the removal of routes.
    }

    /// Returns true if its record of a name differs from the version that it acknowledged.
    pub(super) fn is_doubtful(&self, kind: Type, name: &str) -> bool {
        self.doubtful.contains(&(kind, name.to_owned()))
    }

    pub(super) fn is_warming(&self) -> Vec<&String> {
        self.warming.keys().collect()
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = (&String, &String, Option<&String>)> {
        let active = self.active.iter();
        active.map(|(name, active)| (name, &active.content, active.assignment.as_ref()))
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = (&String, &String)> {
        self.listeners
            .iter()
            .map(|(name, (content, _))| (name, content))
    }

    pub(super) fn wants(&self, kind: Type) -> BTreeSet<String> {
        self.names(kind)
    }

    pub(super) fn route(&self, name: &str) -> Option<&String> {
        self.routes.get(name).map(|(content, _)| content)
    }

    /// Clusters that routes of the last response led to and that did not serve.
    pub(super) fn broken_by_the_last(&self) -> BTreeSet<&String> {
        self.broken_by_the_last.iter().collect()
    }

    /// Clusters that routes lead to and that do not serve.
    pub(super) fn broken(&self) -> BTreeSet<&String> {
        let bodies = self.routes.values().filter_map(|(_, body)| body.as_ref());
        let clusters = bodies.flat_map(|body| &body.names);
        clusters
            .filter(|name| !self.active.contains_key(*name))
            .collect()
    }
}

impl Subscription {
    /// One request, with all names.
    fn say(&mut self, kind: Type, names: BTreeSet<String>) -> Option<Request> {
        if self.asked && !self.due && names == self.named {
            return None;
        }
        self.asked = true;
        self.due = false;
        self.named.clone_from(&names);
        Some(Request {
            version: self.version.clone(),
            nonce: self.nonce.clone(),
            names: names.into_iter().collect(),
            error: self.error.take(),
            ..Request::of(kind)
        })
    }

    /// Names that came and went, on the first ACK that waits or alone; then the other ACKs.
    fn say_delta(&mut self, kind: Type, names: &BTreeSet<String>) -> Vec<Request> {
        let wildcard = matches!(kind, Cluster | Listener);
        let added: Vec<_> = names.difference(&self.named).cloned().collect();
        let gone: Vec<_> = self.named.difference(names).cloned().collect();
        for name in &gone {
            self.versions.remove(name);
        }
        let mut requests = Vec::new();
        if !self.asked {
            if !wildcard {
                self.versions.retain(|name, _| names.contains(name));
            }
            requests.push(Request {
                names: if wildcard { ["*"].into() } else { added.into() },
                initial: self.versions.clone().into_iter().collect(),
                ..Request::of(kind)
            });
        } else if !added.is_empty() || !gone.is_empty() {
            requests.push(Request {
                names: added.into(),
                unsubscribe: gone,
                ..Request::of(kind)
            });
        }
        self.asked = true;
        self.named.clone_from(names);
        for (at, (nonce, error)) in self.acks.drain(..).enumerate() {
            match requests.first_mut() {
                Some(first) if at == 0 => {
                    first.nonce = nonce;
                    first.error = error;
                }
                _ => requests.push(Request {
                    nonce,
                    error,
                    ..Request::of(kind)
                }),
            }
        }
        requests
    }
}

/// Returns the body for a name that is not there.
pub(super) fn empty(name: &str) -> String {
    let name: Arc<str> = name.into();
    content(&crate::view::Resource::empty(&name).body)
}
