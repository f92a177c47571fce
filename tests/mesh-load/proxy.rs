//! One proxy, as Envoy behaves: it asks for endpoints of new clusters before it accepts the clusters, and for listeners when
//! those are warm. Every answer is held against what the protocol and the order of types promise.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::time::Duration;

use crate::facts::{Facts, Kind};

/// The time that a server waits for an ACK before it goes on without.
const STEP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    State,
    Delta,
}

/// A response of either protocol.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) resources: Vec<Rc<Facts>>,
    pub(crate) removed: Vec<String>,
}

/// A request of either protocol. Delta: `names` are those subscribed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) names: Vec<String>,
    pub(crate) unsubscribe: Vec<String>,
}

/// One type of one proxy.
#[derive(Debug, Default)]
struct TypeState {
    asked: bool,
    version: String,
    nonce: String,
    responses: usize,
    resources: BTreeMap<String, Rc<Facts>>,
    /// Subscribed, where that is by name.
    names: BTreeSet<String>,
    /// Subscribed once: a response with them may have been on its way.
    left: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    protocol: Protocol,
    types: [TypeState; 4],
    nonces: HashSet<String>,
    /// Clusters that wait for an assignment, since when at least, and the response of clusters that is accepted then.
    warming: BTreeSet<String>,
    since: Duration,
    unaccepted: bool,
}

impl Proxy {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            types: Default::default(),
            nonces: HashSet::new(),
            warming: BTreeSet::new(),
            since: Duration::ZERO,
            unaccepted: false,
        }
    }

    pub(crate) const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the first request.
    pub(crate) fn begin(&mut self) -> Request {
        self.request(Kind::Cluster, Vec::new(), Vec::new())
    }

    /// Returns true if every subscribed resource has been received and accepted.
    pub(crate) fn is_complete(&self) -> bool {
        let all_there = |state: &TypeState| {
            state.responses > 0
                && state
                    .names
                    .iter()
                    .all(|name| state.resources.contains_key(name))
        };
        // Without a name there is no response to wait for.
        let named = |state: &TypeState| state.asked && (state.names.is_empty() || all_there(state));
        let [clusters, endpoints, listeners, routes] = &self.types;
        let wholes = clusters.responses > 0 && listeners.responses > 0;
        let nameless = |state: &TypeState| !state.asked && state.names.is_empty();
        wholes
            && !self.unaccepted
            && [endpoints, routes]
                .into_iter()
                .all(|state| nameless(state) || named(state))
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Rc<Facts>> {
        self.of(kind).resources.get(name)
    }

    pub(crate) fn len(&self, kind: Kind) -> usize {
        self.of(kind).resources.len()
    }

    /// Responses of each type.
    pub(crate) fn responses(&self) -> [usize; 4] {
        Kind::ALL.map(|kind| self.of(kind).responses)
    }

    pub(crate) fn versions(&self) -> [&str; 4] {
        Kind::ALL.map(|kind| self.of(kind).version.as_str())
    }

    fn of(&self, kind: Kind) -> &TypeState {
        let [clusters, endpoints, listeners, routes] = &self.types;
        match kind {
            Kind::Cluster => clusters,
            Kind::Endpoint => endpoints,
            Kind::Listener => listeners,
            Kind::Route => routes,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut TypeState {
        let [clusters, endpoints, listeners, routes] = &mut self.types;
        match kind {
            Kind::Cluster => clusters,
            Kind::Endpoint => endpoints,
            Kind::Listener => listeners,
            Kind::Route => routes,
        }
    }

    fn request(&mut self, kind: Kind, names: Vec<String>, unsubscribe: Vec<String>) -> Request {
        let state = self.of_mut(kind);
        state.asked = true;
        Request {
            kind,
            version: state.version.clone(),
            nonce: state.nonce.clone(),
            names,
            unsubscribe,
        }
    }

    /// Builds an ACK: with all names, in the variant that repeats them.
    fn accept(&mut self, kind: Kind) -> Request {
        let names = match self.protocol {
            Protocol::State => self.of(kind).names.iter().cloned().collect(),
            Protocol::Delta => Vec::new(),
        };
        self.request(kind, names, Vec::new())
    }

    /// A request with these names, if they are others than before.
    fn subscribe(&mut self, kind: Kind, names: BTreeSet<String>) -> Option<Request> {
        let state = self.of_mut(kind);
        if state.names == names {
            return None;
        }
        let added = names.difference(&state.names).cloned().collect();
        let gone: Vec<String> = state.names.difference(&names).cloned().collect();
        for name in &gone {
            state.resources.remove(name);
        }
        state.left.extend(gone.iter().cloned());
        state.names = names;
        Some(match self.protocol {
            Protocol::State => self.accept(kind),
            Protocol::Delta => self.request(kind, added, gone),
        })
    }

    /// Processes a response; returns the answers. It was not sent before `from`, however late it is read.
    pub(crate) fn hear(
        &mut self,
        from: Duration,
        now: Duration,
        response: Response,
    ) -> Result<Vec<Request>, String> {
        let kind = response.kind;
        self.look_at(&response)
            .and_then(|()| match kind {
                Kind::Cluster => self.clusters(from, response),
                Kind::Endpoint => self.endpoints(response),
                Kind::Listener => self.listeners(now, response),
                Kind::Route => self.routes(now, response),
            })
            .map_err(|why| format!("{kind:?}: {why}"))
    }

    /// Checks the invariants of every response.
    fn look_at(&mut self, response: &Response) -> Result<(), String> {
        let protocol = self.protocol;
        if response.nonce.is_empty() || !self.nonces.insert(response.nonce.clone()) {
            return Err(format!("nonce {:?} again", response.nonce));
        }
        if response.version.is_empty() || response.version.len() > 32 {
            return Err(format!("version {:?}", response.version));
        }
        let names: BTreeSet<&str> = response.resources.iter().map(|one| &*one.name).collect();
        if names.len() != response.resources.len() {
            return Err("a name is there twice".to_owned());
        }
        let state = self.of_mut(response.kind);
        if !state.asked {
            return Err("nobody asked".to_owned());
        }
        let by_name = matches!(response.kind, Kind::Endpoint | Kind::Route);
        let strange = |name: &&&str| !state.names.contains(**name) && !state.left.contains(**name);
        if by_name && let Some(name) = names.iter().find(strange) {
            return Err(format!("{name} was not subscribed"));
        }
        let is_same = |one: &Rc<Facts>| {
            state
                .resources
                .get(&one.name)
                .is_some_and(|had| Rc::ptr_eq(had, one))
        };
        let is_whole = matches!(response.kind, Kind::Cluster | Kind::Listener);
        // Assignments come again when their cluster has changed.
        if response.kind != Kind::Endpoint
            && state.responses > 0
            && response.removed.is_empty()
            && response.resources.iter().all(is_same)
            && (protocol == Protocol::Delta || !is_whole || names.len() == state.resources.len())
        {
            return Err("nothing in it is new".to_owned());
        }
        state.responses += 1;
        state.version.clone_from(&response.version);
        state.nonce.clone_from(&response.nonce);
        Ok(())
    }

    /// Keeps what came; names that went.
    fn keep(&mut self, response: Response) -> BTreeSet<String> {
        let is_whole = matches!(response.kind, Kind::Cluster | Kind::Listener);
        let protocol = self.protocol;
        let state = self.of_mut(response.kind);
        let mut gone: BTreeSet<String> = response.removed.into_iter().collect();
        if protocol == Protocol::State && is_whole {
            let names: BTreeSet<&str> = response.resources.iter().map(|one| &*one.name).collect();
            gone = state
                .resources
                .keys()
                .filter(|name| !names.contains(name.as_str()))
                .cloned()
                .collect();
        }
        for name in &gone {
            state.resources.remove(name);
        }
        for one in response.resources {
            if is_whole || state.names.contains(&one.name) {
                state.resources.insert(one.name.clone(), one);
            }
        }
        gone
    }

    fn clusters(&mut self, from: Duration, response: Response) -> Result<Vec<Request>, String> {
        let changed: BTreeSet<String> = response
            .resources
            .iter()
            .filter(|one| one.eds)
            .filter(|one| {
                !self
                    .get(Kind::Cluster, &one.name)
                    .is_some_and(|had| Rc::ptr_eq(had, one))
            })
            .map(|one| one.name.clone())
            .collect();
        let gone = self.keep(response);
        for name in &gone {
            self.warming.remove(name);
        }
        if let Some(user) = self.user_of(&gone) {
            return Err(format!(
                "{user} still sends to a cluster that is gone: {gone:?}"
            ));
        }
        if self.warming.is_empty() {
            self.since = from;
        }
        self.warming.extend(changed);
        self.unaccepted = true;
        let eds = |(name, one): (&String, &Rc<Facts>)| one.eds.then(|| name.clone());
        let names = self
            .of(Kind::Cluster)
            .resources
            .iter()
            .filter_map(eds)
            .collect();
        let mut requests: Vec<Request> =
            self.subscribe(Kind::Endpoint, names).into_iter().collect();
        requests.extend(self.warm());
        Ok(requests)
    }

    /// Accepts the clusters when none waits any more. The first time listeners come next.
    fn warm(&mut self) -> Vec<Request> {
        if !self.unaccepted || !self.warming.is_empty() {
            return Vec::new();
        }
        self.unaccepted = false;
        let mut requests = vec![self.accept(Kind::Cluster)];
        if !self.of(Kind::Listener).asked {
            requests.push(self.request(Kind::Listener, Vec::new(), Vec::new()));
        }
        requests
    }

    fn endpoints(&mut self, response: Response) -> Result<Vec<Request>, String> {
        for one in &response.resources {
            self.warming.remove(&one.name);
        }
        let gone = self.keep(response);
        let clusters = &self.of(Kind::Cluster).resources;
        if let Some(name) = gone.iter().find(|name| clusters.contains_key(*name)) {
            return Err(format!("cluster {name} has lost its assignment"));
        }
        let mut requests = vec![self.accept(Kind::Endpoint)];
        requests.extend(self.warm());
        Ok(requests)
    }

    fn listeners(&mut self, now: Duration, response: Response) -> Result<Vec<Request>, String> {
        self.leads_somewhere(now, &response)?;
        self.keep(response);
        let listeners = self.of(Kind::Listener).resources.values();
        let names = listeners
            .flat_map(|one| one.routes.iter().cloned())
            .collect();
        let mut requests = vec![self.accept(Kind::Listener)];
        requests.extend(self.subscribe(Kind::Route, names));
        Ok(requests)
    }

    fn routes(&mut self, now: Duration, response: Response) -> Result<Vec<Request>, String> {
        self.leads_somewhere(now, &response)?;
        self.keep(response);
        Ok(vec![self.accept(Kind::Route)])
    }

    /// Checks that the clusters of listeners and routes exist, and are warm unless the server has waited for long enough.
    fn leads_somewhere(&self, now: Duration, response: &Response) -> Result<(), String> {
        let known = &self.of(response.kind).resources;
        for one in &response.resources {
            if known.get(&one.name).is_some_and(|had| Rc::ptr_eq(had, one)) {
                continue;
            }
            for cluster in &one.clusters {
                if self.get(Kind::Cluster, cluster).is_none() {
                    return Err(format!(
                        "{} sends to {cluster}, which is not there",
                        one.name
                    ));
                }
                if self.warming.contains(cluster) && now < self.since + STEP {
                    return Err(format!(
                        "{} sends to {cluster}, which is not warm",
                        one.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// A listener or routes that send to one of these.
    fn user_of(&self, clusters: &BTreeSet<String>) -> Option<&str> {
        if clusters.is_empty() {
            return None;
        }
        [Kind::Listener, Kind::Route]
            .into_iter()
            .flat_map(|kind| self.of(kind).resources.values())
            .find(|one| !one.clusters.is_disjoint(clusters))
            .map(|one| one.name.as_str())
    }
}
