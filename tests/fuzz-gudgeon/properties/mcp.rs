//! What must hold of the two ends of an MCP stream, whatever the other one says. Asked by the fuzzer, and by a test with its
//! examples.
//!
//! The bytes are messages, each behind a byte that says what happens before it and two with its length; of the last one the
//! length may be too large.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mcp::collections::{Collections, Group};
use mcp::message::{RequestResources, Resource, Resources};
use mcp::sink::{LOG_CAPACITY, ReadResult, ResourceReader, Settings, Sink};
use mcp::snapshot::{GroupSnapshot, Origin, Snapshot};
use mcp::source::{Dialer, RequestKind, Response, Source};
use prost::Message;

/// Messages of one stream.
const MESSAGES: usize = 100;
/// Of a peer's words.
const WORDS: usize = 4096;
/// Three resources.
const PART_BYTES: usize = 200;
const COLLECTIONS: [&str; 2] = ["a", "b"];
const TYPE: &str = "type.googleapis.com/t";

/// Bits of the byte before a message.
const PUBLISH: u8 = 1;
/// The message answers what is on its way, whatever nonce it has; or is such a response.
const NONCE: u8 = 2;
/// The stream breaks.
const CUT: u8 = 4;

thread_local! {
    /// Three moments: one has more, one has others.
    static MOMENTS: (Arc<Collections>, [Arc<Snapshot>; 3]) = moments();
}

fn moments() -> (Arc<Collections>, [Arc<Snapshot>; 3]) {
    let collections = Arc::new(Collections::new(COLLECTIONS));
    let mut shelf = GroupSnapshot::new(&collections, Group::Default);
    let moments = [(0, 2), (0, 9), (5, 7)].map(|(from, to)| {
        for name in 0..10_u8 {
            let resource = mcp::snapshot::Resource::new(Origin {
                name: format!("n/{name}"),
                type_url: TYPE.to_owned(),
                body: vec![from; 10].into(),
                ..Origin::default()
            });
            if (from..to).contains(&name) {
                shelf.set("a", Arc::new(resource));
            } else {
                shelf.remove("a", &resource.name);
            }
        }
        shelf.snapshot()
    });
    (collections, moments)
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
    .take(MESSAGES)
}

/// A source, and what it is known to have on its way.
struct Giver {
    source: Source,
    moment: usize,
    last: u64,
    flying: BTreeMap<String, u64>,
}

/// The source's end: the messages are requests.
pub(crate) fn check_requests(bytes: &[u8]) {
    let (collections, moments) = MOMENTS.with(Clone::clone);
    let mut giver = Giver {
        source: Source::new(collections, Dialer::Sink).with_parts_of(PART_BYTES),
        moment: 0,
        last: 0,
        flying: BTreeMap::new(),
    };
    for (at, (before, message)) in messages(bytes).enumerate() {
        if before & PUBLISH != 0 {
            giver.source.snapshot(moments[giver.moment % 3].clone());
            giver.moment += 1;
            giver.settle();
        }
        let Ok(mut request) = RequestResources::decode(message) else {
            continue;
        };
        let flying = giver.flying.get(&request.collection).map(u64::to_string);
        if let Some(nonce) = flying.clone().filter(|_| before & NONCE != 0) {
            request.response_nonce = nonce;
        }
        let now = Duration::from_millis(at as u64);
        let Ok(heard) = giver.source.request(now, &request) else {
            assert!(!COLLECTIONS.contains(&&*request.collection));
            return;
        };
        let answers = flying.as_deref() == Some(&*request.response_nonce);
        match heard {
            RequestKind::Subscribed => {
                assert!(request.response_nonce.is_empty());
                giver.flying.remove(&request.collection);
            }
            RequestKind::Acked | RequestKind::Nacked(_) => {
                assert!(answers);
                assert_eq!(heard == RequestKind::Acked, request.error_detail.is_none());
                giver.flying.remove(&request.collection);
            }
            RequestKind::Stale => assert!(!answers && !request.response_nonce.is_empty()),
            RequestKind::Ignored => panic!("no trigger was sent"),
        }
        giver.settle();
    }
}

impl Giver {
    /// All that is owed now: one of each collection at most.
    fn settle(&mut self) {
        while let Some(response) = self.source.due() {
            self.holds(&response);
        }
        assert!(self.source.node().is_none_or(|node| node.len() <= WORDS));
        for (_, status) in self.source.status() {
            assert!(
                status
                    .last_nack
                    .is_none_or(|nack| nack.message.len() <= WORDS)
            );
        }
    }

    fn holds(&mut self, response: &Response) {
        assert_eq!(response.nonce, self.last + 1);
        self.last = response.nonce;
        let collection = response.collection.to_string();
        let before = self.flying.insert(collection, response.nonce);
        assert_eq!(before, None, "two are on their way");
        let bytes = response.pieces().concat();
        assert_eq!(bytes.len(), response.encoded_len());
        let read = Resources::decode(bytes.as_slice()).expect("it is a message");
        let members = read.resources.len();
        let alone = members + read.removed_resources.len() <= 1;
        assert!(!read.incremental || alone || bytes.len() <= PART_BYTES);
        assert!(read.incremental || read.removed_resources.is_empty());
        let names: BTreeSet<_> = response
            .resources
            .members()
            .iter()
            .map(|one| &one.name)
            .collect();
        assert_eq!(names.len(), members, "a name is there twice");
        assert!(response.removed.iter().all(|name| !names.contains(name)));
    }
}

/// What begins with a `!` cannot be read, what begins with a `?` breaks a rule.
struct Bodies;

impl ResourceReader for Bodies {
    type Object = Vec<u8>;

    fn read(&self, _: &str, resource: &Resource) -> ReadResult<Arc<Vec<u8>>> {
        let body = resource
            .body
            .as_ref()
            .expect("it was looked at")
            .value
            .to_vec();
        match body.first() {
            Some(b'!') => ReadResult::Unreadable("!".to_owned()),
            Some(b'?') => ReadResult::Refused(vec!["?".to_owned()]),
            _ => ReadResult::Accepted(Arc::new(body)),
        }
    }
}

/// All that a sink has, as text.
fn held(sink: &Sink<Vec<u8>>) -> String {
    let all = COLLECTIONS.map(|name| format!("{:?}", sink.entries(name).collect::<Vec<_>>()));
    all.concat()
}

/// Only what is good in it.
fn objects(sink: &Sink<Vec<u8>>) -> Vec<(String, Arc<Vec<u8>>)> {
    let held = COLLECTIONS.iter().flat_map(|name| sink.entries(name));
    let good = held.filter_map(|(name, held)| Some((name.to_string(), held.object.clone()?)));
    good.collect()
}

/// The sink's end: the messages are responses.
pub(crate) fn check_responses(bytes: &[u8]) {
    let settings = Settings {
        id: "sink".to_owned(),
        annotations: BTreeMap::new(),
        incremental: true,
    };
    let mut sink = Sink::new(settings, COLLECTIONS.map(|name| (name, TYPE)));
    sink.start(Duration::ZERO);
    for (at, (before, message)) in messages(bytes).enumerate() {
        let now = Duration::from_millis(at as u64);
        if before & CUT != 0 {
            let again = sink.reconnect_at(now, f64::from(before) / 255.0);
            assert!(again > now && again < now + Duration::from_secs(13));
            for request in sink.start(now) {
                assert!(request.response_nonce.is_empty() && request.error_detail.is_none());
                assert!(request.encoded_len() < 1 << 20);
            }
        }
        let Ok(mut response) = Resources::decode(message) else {
            continue;
        };
        if before & NONCE != 0 {
            response.nonce = (at + 1).to_string();
        }
        let (had, sent) = (held(&sink), response.clone());
        let objects_before = objects(&sink);
        let Ok(handled) = sink.handle_response(now, response, &Bodies) else {
            assert!(sent.nonce.is_empty());
            continue;
        };
        let request = handled.request;
        assert_eq!(
            (&request.collection, &request.response_nonce),
            (&sent.collection, &sent.nonce)
        );
        match (&handled.changes, &request.error_detail) {
            (None, Some(error)) => {
                assert_eq!(held(&sink), had, "what was refused is applied");
                assert!(matches!(error.code, 3 | 12) && error.message.len() <= WORDS);
            }
            (Some(changes), None) => {
                assert!(COLLECTIONS.contains(&&*sent.collection));
                let names: BTreeSet<_> = sink
                    .entries(&sent.collection)
                    .map(|(name, _)| name)
                    .collect();
                assert!(changes.set.iter().all(|(name, _)| names.contains(name)));
                assert!(changes.removed.iter().all(|name| !names.contains(name)));
                assert!(!changes.is_empty() || objects(&sink) == objects_before);
            }
            other => panic!("neither accepted nor refused: {other:?}"),
        }
        assert!(sink.log().count() <= LOG_CAPACITY);
    }
}
