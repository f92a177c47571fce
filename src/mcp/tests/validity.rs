//! Objects on their way from a source to a sink, over the messages of one stream: their decoded form is validated by the
//! common rules. A sink reports errors only, and fields of a wrong type have no bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[allow(dead_code, reason = "what is sent has no lines")]
#[path = "../../../tests/support/examples.rs"]
mod examples;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::config::collections::{served, type_url_of};
use api::config::document::documents;
use api::config::{self, Finding, Object};
use api::config::{ObjectStatus, ServedInstead};
use bytes::Bytes;
use mcp::collections::{Collections, Group};
use mcp::message::Resources;
use mcp::objects::{ObjectReader, resource};
use mcp::sink::{Settings, Sink};
use mcp::snapshot::GroupSnapshot;
use mcp::source::{Dialer, RequestKind, Source};
use prost::Message as _;
use serde_json::{Value, json};

const NOW: Duration = Duration::ZERO;
/// A source that generates none.
const READER: ObjectReader = ObjectReader {
    is_generated_name: |_, _| false,
};

/// One stream, with both its ends.
struct Play {
    shelf: GroupSnapshot,
    source: Source,
    sink: Sink<Object>,
    responses: usize,
}

impl Play {
    fn new(incremental: bool) -> Self {
        let all = Arc::new(Collections::all());
        let settings = Settings {
            id: "sink".to_owned(),
            annotations: BTreeMap::new(),
            incremental,
        };
        let collections = served().filter_map(|name| Some((name, type_url_of(name)?)));
        let collections: Vec<_> = collections.collect();
        let mut play = Self {
            shelf: GroupSnapshot::new(&all, Group::Default),
            source: Source::new(all, Dialer::Sink),
            sink: Sink::new(
                settings,
                collections.iter().map(|(name, of)| (*name, of.as_str())),
            ),
            responses: 0,
        };
        for request in play.sink.start(NOW) {
            assert_eq!(
                play.source.request(NOW, &request),
                Ok(RequestKind::Subscribed)
            );
        }
        play.publish();
        play
    }

    /// Exchanges messages until both sides are idle.
    fn publish(&mut self) {
        self.source.snapshot(self.shelf.snapshot());
        while let Some(response) = self.source.due() {
            let bytes = Bytes::from(response.pieces().concat());
            let response = Resources::decode(bytes).unwrap();
            let handled = self.sink.handle_response(NOW, response, &READER).unwrap();
            assert_eq!(
                self.source.request(NOW, &handled.request),
                Ok(RequestKind::Acked)
            );
            self.responses += 1;
        }
    }

    /// Returns the sink's errors for an object that the source offers for a while; `None` if the object cannot be encoded as
    /// it is.
    fn sink_errors(&mut self, document: &Value) -> Option<Vec<String>> {
        let (object, faults) = config::read(document);
        let object = object.filter(|_| !faults.iter().any(Finding::is_error))?;
        // A message that is present but empty encodes to no bytes.
        let full_name = object.full_name();
        let sent_as = Object::of_resource(object.kind, &full_name, object.body.clone());
        if sent_as.unwrap().spec != object.spec {
            return None;
        }
        let collection = object.kind.collection;
        self.shelf
            .set(collection, Arc::new(resource(&object, None)));
        self.publish();
        let entries: Vec<_> = self.sink.entries(collection).collect();
        let [(name, entry)] = entries[..] else {
            panic!("{document}: {entries:?}");
        };
        assert_eq!(**name, full_name);
        let mut findings = entry.findings.clone();
        let standing = match findings.is_empty() {
            true => ObjectStatus::Accepted,
            false => ObjectStatus::Refused {
                serving: ServedInstead::Nothing,
            },
        };
        assert_eq!(entry.status(), standing, "{document}");
        self.shelf.remove(collection, &full_name);
        self.publish();
        assert_eq!(self.sink.entries(collection).count(), 0);
        // In the order of the rules: there is no text whose order it could be.
        findings.sort_unstable();
        Some(findings)
    }
}

fn errors<'a>(findings: impl Iterator<Item = &'a str>) -> Vec<String> {
    let errors = findings.filter(|finding| !finding.starts_with("warning: "));
    let mut errors: Vec<_> = errors.map(str::to_owned).collect();
    errors.sort_unstable();
    errors
}

#[test]
fn every_row_is_validated_as_everywhere() {
    for incremental in [false, true] {
        let mut play = Play::new(incremental);
        let begun = play.responses;
        let mut sent = 0;
        for line in include_str!("../../api/tests/rows.jsonl").lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| row[name].as_str().unwrap();
            let document = documents(text("spec")).next();
            let spec = document.unwrap().unwrap().parts()[0].value();
            let written = json!({
                "apiVersion": text("apiVersion"),
                "kind": text("kind"),
                "metadata": {"name": text("name"), "namespace": "ns"},
                "spec": spec,
            });
            let Some(findings) = play.sink_errors(&written) else {
                continue;
            };
            sent += 1;
            let said = row["said"].as_array().unwrap().iter();
            let said = errors(said.map(|said| said.as_str().unwrap()));
            assert_eq!(findings, said, "{written}");
        }
        assert!(sent > 300, "{sent}");
        // Each came by a response of its own, and went by one.
        assert_eq!(play.responses - begun, 2 * sent);
    }
}

#[test]
fn every_example_is_validated_as_everywhere() {
    let mut play = Play::new(true);
    let mut sent = 0;
    for example in examples::examples() {
        for expected in example.expected().unwrap_or_default() {
            let Some(findings) = play.sink_errors(&expected.value) else {
                continue;
            };
            sent += 1;
            let said = errors(expected.said.iter().map(|(_, said)| said.as_str()));
            assert_eq!(findings, said, "{}: {}", example.name, expected.value);
        }
    }
    assert!(sent > 20, "{sent}");
}
