//! A mesh that is small enough to write down: what there is of each type, and a view of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::stream::{Client, Protocol, Push, PushScope, Request, RequestOutcome, Response, Stream};
use crate::version::Version;
use crate::view::{Resource, Set, Type, View};
use api::model::{ObjectRef, ServiceKey, TriggerReason};

/// The body of a resource, as a client can read it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Body {
    pub(super) revision: u32,
    /// True for a cluster whose endpoints come by EDS.
    pub(super) eds: bool,
    /// The client refuses it.
    pub(super) bad: bool,
    /// True of a listener that has no port of its own.
    pub(super) caught: bool,
    /// The routes of a listener, or the clusters of routes.
    pub(super) names: BTreeSet<String>,
}

impl Body {
    /// A message that is text, too: of a field `bind_to_port` if there is one, and of another that has the rest.
    fn encode(&self, name: &str) -> String {
        let names: Vec<_> = self.names.iter().map(String::as_str).collect();
        let (eds, bad, caught) = (
            u8::from(self.eds),
            u8::from(self.bad),
            u8::from(self.caught),
        );
        let rest = format!(
            "{name};{};{eds};{bad};{caught};{}",
            self.revision,
            names.join(",")
        );
        // The key of field 26, longer than it need be, and no bytes: so it is UTF-8.
        let bind = if self.caught { "\u{481}\0\0" } else { "" };
        // No length may look like what stands between the parts.
        let space = if rest.len() == usize::from(b';') {
            " "
        } else {
            ""
        };
        let length = char::from(u8::try_from(rest.len() + space.len()).unwrap());
        assert!(length.is_ascii());
        format!("{bind}\n{length}{space}{rest}")
    }

    /// `None`: the empty resource of a name that is not there.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let mut parts = text.split(';').skip(1);
        let names = |text: &str| text.split(',').map(str::to_owned).collect();
        Some(Self {
            revision: parts.next()?.parse().ok()?,
            eds: parts.next()? == "1",
            bad: parts.next()? == "1",
            caught: parts.next()? == "1",
            names: parts
                .next()
                .filter(|text| !text.is_empty())
                .map_or_else(BTreeSet::new, names),
        })
    }
}

/// All resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct World(BTreeMap<Type, BTreeMap<String, Body>>);

impl World {
    pub(super) fn of(&self, kind: Type) -> impl Iterator<Item = (&String, &Body)> {
        self.0.get(&kind).into_iter().flatten()
    }

    pub(super) fn get(&self, kind: Type, name: &str) -> Option<&Body> {
        self.0.get(&kind)?.get(name)
    }

    pub(super) fn put(&mut self, kind: Type, name: &str, body: Body) {
        self.0
            .entry(kind)
            .or_default()
            .insert(name.to_owned(), body);
    }

    pub(super) fn remove(&mut self, kind: Type, name: &str) {
        self.0.entry(kind).or_default().remove(name);
    }

    /// An EDS cluster and its assignment, of a revision each.
    pub(super) fn eds(mut self, name: &str, cluster: u32, assignment: u32) -> Self {
        let body = Body {
            revision: cluster,
            eds: true,
            ..Body::default()
        };
        self.put(Type::Cluster, name, body);
        self.simple(Type::Endpoint, name, assignment)
    }

    /// A resource that has nothing but a revision.
    pub(super) fn simple(mut self, kind: Type, name: &str, revision: u32) -> Self {
        let body = Body {
            revision,
            ..Body::default()
        };
        self.put(kind, name, body);
        self
    }

    /// The resource `by-NAME` is made by an EnvoyFilter.
    pub(super) fn resource(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        let body = self.get(kind, name)?;
        let make = match kind {
            Type::Listener => Resource::listener,
            Type::Cluster | Type::Endpoint | Type::Route | Type::Secret => Resource::new,
        };
        let mut resource = make(name, body.encode(name));
        if let Some(rule) = name.strip_prefix("by-") {
            let rule = ObjectRef {
                kind: "EnvoyFilter",
                namespace: "n".into(),
                name: rule.into(),
            };
            resource.from = [rule].into();
        }
        Some(Arc::new(resource))
    }

    pub(super) fn view(&self) -> Arc<dyn View> {
        Arc::new(Picture(self.clone()))
    }

    pub(super) fn set(&self, kind: Type) -> Set {
        let names = self.of(kind).map(|(name, _)| name);
        names.filter_map(|name| self.resource(kind, name)).collect()
    }

    pub(super) fn version(&self, kind: Type) -> Version {
        self.set(kind).version()
    }

    pub(super) fn full(&self) -> Push {
        Push {
            view: self.view(),
            scope: PushScope::Full,
            reasons: TriggerReason::Service.into(),
        }
    }

    pub(super) fn endpoints(&self, names: &[&str]) -> Push {
        Push {
            view: self.view(),
            scope: PushScope::Endpoints(Arc::new(
                names.iter().map(|name| (*name).into()).collect(),
            )),
            reasons: TriggerReason::Endpoint.into(),
        }
    }
}

/// The view of a client that sees everything.
#[derive(Debug)]
struct Picture(World);

impl View for Picture {
    fn all(&self, kind: Type) -> Arc<Set> {
        Arc::new(self.0.set(kind))
    }

    fn get(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        self.0.resource(kind, name)
    }

    fn name(&self, kind: Type, name: &str) -> Option<Arc<str>> {
        self.0.get(kind, name).map(|_| name.into())
    }

    fn services_of(&self, _kind: Type, name: &str) -> Vec<ServiceKey> {
        vec![ServiceKey::new(name, "demo")]
    }
}

/// A stream with a clock, played by hand.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: Stream,
    pub(super) now: Duration,
    pub(super) last: BTreeMap<Type, u64>,
}

impl Wire {
    pub(super) fn new(protocol: Protocol, client: Client, world: &World) -> Self {
        Self {
            stream: Stream::new(protocol, client, world.view()),
            now: Duration::from_secs(100),
            last: BTreeMap::new(),
        }
    }

    pub(super) fn sotw(world: &World) -> Self {
        Self::new(Protocol::StateOfTheWorld, Client::Envoy, world)
    }

    pub(super) fn delta(world: &World) -> Self {
        Self::new(Protocol::Delta, Client::Envoy, world)
    }

    pub(super) fn ask(&mut self, request: &Request) -> RequestOutcome {
        self.stream.request(self.now, request).unwrap()
    }

    /// Names with the last nonce: the first request, an ACK, or names alone.
    pub(super) fn names(&mut self, kind: Type, names: &[&str]) -> RequestOutcome {
        let request = Request {
            nonce: self.nonce(kind),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Request::of(kind)
        };
        self.ask(&request)
    }

    pub(super) fn ack(&mut self, kind: Type) -> RequestOutcome {
        let names = match self.stream.protocol {
            Protocol::Delta => Vec::new(),
            Protocol::StateOfTheWorld => self.stream.watches(kind).names,
        };
        let names: Vec<_> = names.iter().map(|name| &**name).collect();
        self.names(kind, &names)
    }

    pub(super) fn nack(&mut self, kind: Type, message: &str) -> RequestOutcome {
        let names = self.stream.watches(kind).names;
        let request = Request {
            nonce: self.nonce(kind),
            names: names.iter().map(|name| (**name).to_owned()).collect(),
            error: Some(message.to_owned()),
            ..Request::of(kind)
        };
        self.ask(&request)
    }

    pub(super) fn nonce(&self, kind: Type) -> String {
        self.last
            .get(&kind)
            .map_or_else(String::new, u64::to_string)
    }

    /// Reads the response that goes out next.
    pub(super) fn next(&mut self) -> Option<Response> {
        let response = self.stream.next(self.now)?;
        assert_eq!(self.stream.next(self.now), None, "one is held");
        self.stream.written();
        self.last.insert(response.kind, response.nonce);
        Some(response)
    }

    /// All that goes out without a word of the client's, as text.
    pub(super) fn all(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next().map(|response| text(&response))).collect()
    }

    /// All that goes out to a client that says nothing, until the last wait has ended.
    pub(super) fn in_time(&mut self) -> Vec<Response> {
        let mut all = Vec::new();
        loop {
            all.extend(std::iter::from_fn(|| self.next()));
            match self.stream.deadline() {
                Some(deadline) => self.now = self.now.max(deadline),
                None => return all,
            }
        }
    }

    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }
}

/// `cds a=1 b=2 -c`: names with revisions; `~` is an empty resource, `-` one removed.
pub(super) fn text(response: &Response) -> String {
    let mut text = response.kind.as_str().to_owned();
    for resource in &response.resources {
        let revision = Body::decode(&resource.body)
            .map_or_else(|| "~".to_owned(), |body| body.revision.to_string());
        text = format!("{text} {}={revision}", resource.name);
    }
    for name in &response.removed {
        text = format!("{text} -{name}");
    }
    text
}
