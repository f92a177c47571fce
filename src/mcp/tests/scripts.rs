//! Source and sink against each other: random scripts of changes, publishes, messages that arrive, refusals, nonces out of
//! place, repeated first requests and cuts. A model checks the invariants.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp::collections::{Collections, Group};
use mcp::message::{RequestResources, Resource, Resources};
use mcp::sink::{ReadResult, ResourceReader, Settings, Sink};
use mcp::snapshot::{GroupSnapshot, Origin, Snapshot};
use mcp::source::{Dialer, RequestKind, Source};
use mcp::version::{Sum, Version, member};
use proptest::prelude::*;
use prost::Message as _;

const NOW: Duration = Duration::ZERO;
const COLLECTIONS: [&str; 2] = ["a", "b"];
const TYPE: &str = "type.googleapis.com/t";
/// A body of this cannot be read.
const UNREADABLE: u8 = 9;

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8, u8),
    Remove(usize, u8),
    /// Removes this member and all behind it.
    Clear(usize, u8),
    Publish,
    /// The oldest request arrives, the oldest response arrives.
    ToSource,
    ToSink,
    /// A request with a nonce that may be any.
    Stale(usize, u8, bool),
    /// The sink sends first requests, though no stream broke.
    Again,
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let body = prop_oneof![9 => 0..4_u8, 1 => Just(UNREADABLE)];
    prop_oneof![
        6 => (0..2_usize, 0..8_u8, body).prop_map(|(at, name, body)| Step::Put(at, name, body)),
        3 => (0..2_usize, 0..8_u8).prop_map(|(at, name)| Step::Remove(at, name)),
        1 => (0..2_usize, 0..8_u8).prop_map(|(at, name)| Step::Clear(at, name)),
        4 => Just(Step::Publish),
        8 => Just(Step::ToSource),
        8 => Just(Step::ToSink),
        2 => (0..2_usize, 0..20_u8, any::<bool>()).prop_map(|(at, nonce, no)| Step::Stale(at, nonce, no)),
        1 => Just(Step::Again),
        1 => Just(Step::Cut),
    ]
}

struct Bodies;

impl ResourceReader for Bodies {
    type Object = Bytes;

    fn read(&self, _: &str, resource: &Resource) -> ReadResult<Arc<Bytes>> {
        let body = resource.body.as_ref().unwrap().value.clone();
        if body.first() == Some(&UNREADABLE) {
            return ReadResult::Unreadable("9".to_owned());
        }
        ReadResult::Accepted(Arc::new(body))
    }
}

/// The invariants, checked on the messages alone.
#[derive(Default)]
struct Model {
    /// The nonces in flight of each collection. At most one is.
    flying: BTreeMap<String, String>,
    /// The version of each collection that the sink has refused, if that was its last answer.
    refused: BTreeMap<String, String>,
    /// The versions that the sink has accepted, by name.
    accepted: BTreeMap<String, BTreeMap<String, String>>,
    /// Collections with a first request that is not answered completely yet.
    owed: BTreeSet<String>,
    /// Collections with another first request while a response was in flight: whether the sink had applied it is unknown
    /// until the next cut.
    unsure: BTreeSet<String>,
}

impl Model {
    fn sent(&mut self, response: &Resources) {
        let collection = &response.collection;
        let before = self
            .flying
            .insert(collection.clone(), response.nonce.clone());
        assert_eq!(before, None, "two of {collection} are on their way");
        let is_owed = self.owed.contains(collection);
        let refused = self.refused.get(collection);
        assert_ne!(refused, Some(&response.system_version_info), "sent again");
        if response.incremental && !self.unsure.contains(collection) {
            let versions = self.accepted.entry(collection.clone()).or_default();
            let something = response.resources.len() + response.removed_resources.len();
            assert!(is_owed || something > 0, "nothing is sent");
            for resource in &response.resources {
                let metadata = resource.metadata.as_ref().unwrap();
                assert_ne!(
                    versions.get(&metadata.name),
                    Some(&metadata.version),
                    "it has not changed"
                );
            }
            for name in &response.removed_resources {
                assert!(versions.contains_key(name), "{name} was not there");
            }
        }
    }

    fn answered(&mut self, response: &Resources, accepted: bool) {
        let collection = &response.collection;
        if !accepted {
            let version = response.system_version_info.clone();
            self.refused.insert(collection.clone(), version);
            return;
        }
        self.refused.remove(collection);
        let versions = self.accepted.entry(collection.clone()).or_default();
        if !response.incremental {
            versions.clear();
        }
        for name in &response.removed_resources {
            versions.remove(name);
        }
        for resource in &response.resources {
            let metadata = resource.metadata.as_ref().unwrap();
            versions.insert(metadata.name.clone(), metadata.version.clone());
        }
        let members = versions
            .iter()
            .map(|(name, version)| member(name, Version::parse(version).unwrap()));
        if members.sum::<Sum>().to_string() == response.system_version_info {
            self.owed.remove(collection);
        }
    }
}

struct Play {
    collections: Arc<Collections>,
    shelf: GroupSnapshot,
    published: Option<Arc<Snapshot>>,
    /// Names in each version of a collection that was ever published.
    names: BTreeMap<String, BTreeSet<Arc<str>>>,
    source: Source,
    sink: Sink<Bytes>,
    to_source: VecDeque<RequestResources>,
    to_sink: VecDeque<Resources>,
    /// The sink's answers, which the source has not received yet.
    answers: BTreeMap<String, (Resources, bool)>,
    /// Responses that changed the sink's state.
    changed: usize,
    model: Model,
}

/// Parts of two or three resources.
fn stream(collections: &Arc<Collections>) -> Source {
    Source::new(collections.clone(), Dialer::Sink).with_parts_of(220)
}

impl Play {
    fn new(incremental: bool, versions: usize) -> Self {
        let collections = Arc::new(Collections::new(COLLECTIONS));
        let settings = Settings {
            id: "sink".to_owned(),
            annotations: BTreeMap::new(),
            incremental,
        };
        let mut play = Self {
            shelf: GroupSnapshot::new(&collections, Group::Default),
            published: None,
            names: BTreeMap::new(),
            source: stream(&collections),
            collections,
            sink: Sink::new(settings, COLLECTIONS.map(|name| (name, TYPE)))
                .with_versions_of(versions),
            to_source: VecDeque::new(),
            to_sink: VecDeque::new(),
            answers: BTreeMap::new(),
            changed: 0,
            model: Model::default(),
        };
        play.to_source.extend(play.sink.start(NOW));
        play
    }

    fn put(&mut self, at: usize, name: u8, body: u8) {
        let origin = Origin {
            name: format!("n/{name}"),
            type_url: TYPE.to_owned(),
            body: vec![body; 20].into(),
            ..Origin::default()
        };
        let resource = mcp::snapshot::Resource::new(origin);
        self.shelf.set(COLLECTIONS[at], Arc::new(resource));
    }

    fn publish(&mut self) {
        let snapshot = self.shelf.snapshot();
        for collection in snapshot.collections() {
            let names = collection.members().iter().map(|one| one.name.clone());
            self.names
                .insert(collection.version().to_string(), names.collect());
        }
        self.published = Some(snapshot.clone());
        self.source.snapshot(snapshot);
        self.write();
    }

    fn write(&mut self) {
        while let Some(response) = self.source.due() {
            let bytes = response.pieces().concat();
            let message = Resources::decode(Bytes::from(bytes)).unwrap();
            self.model.sent(&message);
            self.to_sink.push_back(message);
        }
    }

    fn hear(&mut self, request: &RequestResources) {
        let collection = &request.collection;
        match self.source.request(NOW, request).unwrap() {
            RequestKind::Subscribed => {
                let model = &mut self.model;
                if model.flying.remove(collection).is_some() {
                    model.unsure.insert(collection.clone());
                }
                model.refused.remove(collection);
                model.owed.insert(collection.clone());
                let listed = request.initial_resource_versions.clone();
                model.accepted.insert(collection.clone(), listed);
            }
            kind @ (RequestKind::Acked | RequestKind::Nacked(_)) => {
                let nonce = self.model.flying.remove(collection).unwrap();
                assert_eq!(nonce, request.response_nonce);
                let (response, accepted) = self.answers.remove(&nonce).unwrap();
                assert_eq!(accepted, kind == RequestKind::Acked);
                self.model.answered(&response, accepted);
            }
            RequestKind::Stale => {
                let flying = self.model.flying.get(collection);
                assert_ne!(flying, Some(&request.response_nonce));
            }
            RequestKind::Ignored => unreachable!("there is no trigger"),
        }
        self.write();
    }

    fn deliver_to_sink(&mut self) -> bool {
        let Some(response) = self.to_sink.pop_front() else {
            return false;
        };
        let handled = self
            .sink
            .handle_response(NOW, response.clone(), &Bodies)
            .unwrap();
        if let Some(changes) = &handled.changes {
            self.changed += usize::from(!changes.is_empty());
            for name in &changes.removed {
                let names = &self.names[&response.system_version_info];
                assert!(!names.contains(name), "{name} was not gone");
            }
        }
        let answer = (response.clone(), handled.changes.is_some());
        self.answers.insert(response.nonce, answer);
        self.to_source.push_back(handled.request);
        true
    }

    fn deliver_to_source(&mut self) -> bool {
        let Some(request) = self.to_source.pop_front() else {
            return false;
        };
        self.hear(&request);
        true
    }

    fn cut(&mut self) {
        self.to_source.clear();
        self.to_sink.clear();
        self.answers.clear();
        self.model = Model::default();
        self.source = stream(&self.collections);
        if let Some(published) = &self.published {
            self.source.snapshot(published.clone());
        }
        self.to_source.extend(self.sink.start(NOW));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(at, name, body) => self.put(*at, *name, *body),
            Step::Remove(at, name) => {
                self.shelf.remove(COLLECTIONS[*at], &format!("n/{name}"));
            }
            Step::Clear(at, from) => {
                for name in *from..8 {
                    self.shelf.remove(COLLECTIONS[*at], &format!("n/{name}"));
                }
            }
            Step::Publish => self.publish(),
            Step::ToSource => {
                self.deliver_to_source();
            }
            Step::ToSink => {
                self.deliver_to_sink();
            }
            Step::Stale(at, nonce, no) => {
                let collection = COLLECTIONS[*at].to_owned();
                let nonce = nonce.to_string();
                // Not the answer that the sink may give yet.
                if self.model.flying.get(&collection) != Some(&nonce) {
                    let error_detail = no.then(Default::default);
                    self.hear(&RequestResources {
                        collection,
                        response_nonce: nonce,
                        error_detail,
                        ..RequestResources::default()
                    });
                }
            }
            Step::Again => self.to_source.extend(self.sink.start(NOW)),
            Step::Cut => self.cut(),
        }
    }

    /// Delivers messages until both sides are idle.
    fn drain(&mut self) {
        while self.deliver_to_sink() || self.deliver_to_source() {}
    }

    /// Returns true if a sink refuses nothing of the snapshot.
    fn is_readable(&self, collection: &str) -> bool {
        let published = self.published.as_ref().and_then(|all| all.get(collection));
        published.is_some_and(|published| {
            let mut members = published.members().iter();
            members.all(|one| one.message().body.unwrap().value.first() != Some(&UNREADABLE))
        })
    }

    /// Names and bodies in the snapshot, and at the sink.
    fn both(&self, collection: &str) -> [Vec<(String, Bytes)>; 2] {
        let entries = self.sink.entries(collection);
        let entries = entries.map(|(name, entry)| {
            (
                name.to_string(),
                entry.object.clone().unwrap().as_ref().clone(),
            )
        });
        let published = self.published.as_ref().unwrap().get(collection).unwrap();
        let published = published.members().iter().map(|member| {
            let version = member.version;
            let body = (0..=UNREADABLE).map(|body| Bytes::from(vec![body; 20]));
            let mut bodies = body.filter(|body| {
                let origin = Origin {
                    name: member.name.to_string(),
                    type_url: TYPE.to_owned(),
                    body: body.clone(),
                    ..Origin::default()
                };
                mcp::snapshot::Resource::new(origin).version == version
            });
            (member.name.to_string(), bodies.next().unwrap())
        });
        [published.collect(), entries.collect()]
    }
}

proptest! {
    #[test]
    fn in_the_end_the_sink_has_the_snapshot(
        incremental in any::<bool>(),
        // Room for the versions of no member, of two or three, of all.
        versions in prop_oneof![Just(0_usize), Just(90), Just(1 << 20)],
        script in prop::collection::vec(step(), 0..120),
    ) {
        let mut play = Play::new(incremental, versions);
        for step in &script {
            play.step(step);
        }
        play.drain();
        for collection in COLLECTIONS {
            if play.is_readable(collection) {
                let [published, received] = play.both(collection);
                prop_assert_eq!(published, received);
            }
        }
        // Unreadable members are removed, so that the sink accepts all.
        for (at, name) in (0..2).flat_map(|at| (0..8).map(move |name| (at, name))) {
            let shelved = play.shelf.get(COLLECTIONS[at], &format!("n/{name}")).is_some();
            if shelved {
                play.put(at, name, 0);
            }
        }
        play.put(0, 0, 1);
        play.put(1, 0, 1);
        play.publish();
        play.drain();
        for collection in COLLECTIONS {
            let [published, received] = play.both(collection);
            prop_assert_eq!(published, received);
        }
        // All is sent: a sink that reconnects gets none of the members that it has listed.
        play.cut();
        let mut by_collection = BTreeMap::new();
        while let Some(request) = play.to_source.pop_front() {
            prop_assert_eq!(request.incremental, incremental);
            play.hear(&request);
            by_collection.insert(request.collection, request.initial_resource_versions);
        }
        for response in &play.to_sink {
            let named = &by_collection[&response.collection];
            let mut names = response.resources.iter().map(|one| &one.metadata.as_ref().unwrap().name);
            prop_assert!(!incremental || names.all(|name| !named.contains_key(name)));
            prop_assert!(response.removed_resources.is_empty());
        }
        // The rest changes nothing, either.
        let changed = play.changed;
        play.drain();
        prop_assert_eq!(play.changed, changed);
    }

    /// For any requests of a peer, in any order: no panic, and at most one response of each collection in flight.
    #[test]
    fn any_requests_are_answered_in_bounds(
        requests in prop::collection::vec(("[ab$]|", "[0-9]{0,2}", any::<[bool; 2]>()), 0..200),
    ) {
        let mut play = Play::new(true, 1 << 20);
        play.put(0, 1, 1);
        play.publish();
        let mut flying = 0_usize;
        for (collection, response_nonce, [incremental, no]) in requests {
            let request = RequestResources {
                collection,
                response_nonce,
                incremental,
                error_detail: no.then(Default::default),
                ..RequestResources::default()
            };
            match play.source.request(NOW, &request) {
                Ok(RequestKind::Acked | RequestKind::Nacked(_) | RequestKind::Subscribed) => flying = flying.saturating_sub(1),
                Ok(RequestKind::Stale | RequestKind::Ignored) => {}
                Err(_) => prop_assert!(!COLLECTIONS.contains(&request.collection.as_str())),
            }
            while play.source.due().is_some() {
                flying += 1;
            }
            prop_assert!(flying <= COLLECTIONS.len());
        }
    }
}
