//! The state of each source, as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use mcp::sink::{Outcome, Sink};
use serde_json::{Map, Value, json};
use sources::catalogue::Origin;

use super::local::Local;
use super::refused::{RefusedRow, objects_of};
use super::{FollowedSource, McpSources, SourceOrigin};
use crate::discovery::readiness::refuses_all;
use crate::discovery::source_facts::Object;
use crate::html::{self, ROWS, escaped};
use crate::log::stamp;
use crate::mcp::{LinkState, ReceivedObject, SourceObjects};

impl FollowedSource {
    /// The origin of objects that have none of their own.
    pub(super) fn as_origin(&self) -> Origin {
        Origin::Source(self.name().into())
    }
}

impl McpSources {
    /// Objects that break a rule, by kind and name: the gauge of objects that are not valid counts them, too.
    pub(crate) fn refused(&self) -> BTreeSet<Object> {
        let mut refused = BTreeSet::new();
        for source in &self.sources() {
            source.each_refused(|kind, name| {
                refused.insert((kind.into(), name.to_owned()));
            });
        }
        refused
    }

    /// Returns the sources, without the lock: a page waits for their objects, and the event loop must not wait for the page.
    fn sources(&self) -> Vec<FollowedSource> {
        self.state().sources.clone()
    }

    /// Renders the sources as JSON, in their order.
    pub(crate) fn debug_view(&self) -> Value {
        let sources = self.sources();
        Value::Array(
            sources
                .iter()
                .flat_map(|source| self.each(source))
                .collect(),
        )
    }

    /// Renders the sources on the page.
    pub(crate) fn draw(&self, page: &mut String) {
        let sources = self.sources();
        let rows = sources.iter().take(ROWS).map(|source| self.row(source));
        draw_sources(page, sources.len(), rows);
        let mut count = 0_usize;
        for source in &sources {
            source.each_refused(|_, _| count = count.saturating_add(1));
        }
        let refused = sources.iter().flat_map(|source| source.refused(ROWS));
        if count > 0 {
            draw_refused(page, count, refused.take(ROWS));
        }
    }

    fn row(&self, source: &FollowedSource) -> SourceRow {
        let (state, (objects, refused)) = match &source.origin {
            SourceOrigin::Link(link) => {
                let state = match link.state() {
                    LinkState::Dialling => "dialling".to_owned(),
                    LinkState::Connected(_) => "connected".to_owned(),
                    LinkState::Broken(_, cause) => format!("broken: {cause}"),
                };
                (state, counts(&source.streams()))
            }
            SourceOrigin::Port(..) => {
                let state = match refuses_all(&self.hub) {
                    Some(why) => format!("listening, {why}"),
                    None => "listening".to_owned(),
                };
                (state, counts(&source.streams()))
            }
            SourceOrigin::Local(local) => {
                let report = local.report();
                ("read".to_owned(), (report.served, report.refused.len()))
            }
        };
        SourceRow {
            name: source.name(),
            state,
            is_synced: source.is_synced(),
            objects,
            refused,
        }
    }

    /// Renders each stream of a source.
    fn each(&self, source: &FollowedSource) -> Vec<Value> {
        let state = match &source.origin {
            SourceOrigin::Link(link) => Some(link.state()),
            SourceOrigin::Port(..) => None,
            SourceOrigin::Local(local) => return vec![of_local(source, local)],
        };
        let streams = source.streams();
        let each = streams
            .iter()
            .map(|objects| self.one(source, objects, state.clone()));
        each.collect()
    }

    fn one(
        &self,
        source: &FollowedSource,
        objects: &SourceObjects,
        state: Option<LinkState>,
    ) -> Value {
        let clock = &self.hub.metrics.mcp().clock;
        let time = |at: Duration| Value::from(stamp(clock.wall(at)));
        let (state, since, error) = match state {
            None => ("listening", Value::Null, json!(refuses_all(&self.hub))),
            Some(LinkState::Dialling) => ("dialling", Value::Null, Value::Null),
            Some(LinkState::Connected(at)) => ("connected", time(at), Value::Null),
            Some(LinkState::Broken(at, cause)) => ("broken", time(at), cause.into()),
        };
        let rejected = rejected(source);
        let sink = objects.blocking_sink();
        json!({
            "address": source.name(),
            "state": state,
            "since": since,
            "error": error,
            "synced": source.is_synced(),
            "leaving": source.leaves,
            "collections": collections(&sink, &time),
            "rejected": rejected,
            "requests": requests(&sink, &time),
        })
    }
}

/// A source on the page.
struct SourceRow {
    name: String,
    state: String,
    is_synced: bool,
    objects: usize,
    /// Objects that break a rule.
    refused: usize,
}

fn draw_sources(page: &mut String, count: usize, rows: impl Iterator<Item = SourceRow>) {
    // Writing to a string cannot fail.
    let _written = writeln!(
        page,
        "<h2>Sources of configuration: {count}, <a href=\"/debug/sinkz\">all of this</a> as JSON</h2><table><tr><th>source\
         <th>state<th>full state received<th>objects<th>not used as they are</tr>",
    );
    for row in rows {
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(&row.name),
            escaped(&row.state),
            if row.is_synced { "yes" } else { "no" },
            row.objects,
            row.refused,
        );
    }
    html::more(page, count);
    page.push_str("</table>\n");
}

fn draw_refused(page: &mut String, count: usize, rows: impl Iterator<Item = RefusedRow>) {
    let _written = writeln!(
        page,
        "<h2>Not served as it is written: {count}</h2><table><tr><th>where<th>what<th>state<th>why</tr>"
    );
    for row in rows {
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<br>{}<td class=\"bad\">{}<td>{}</tr>",
            escaped(&row.origin.to_string()),
            escaped(&row.collection),
            escaped(&row.name),
            row.serving.as_str(),
            escaped(&row.errors.join("; "))
        );
    }
    html::more(page, count);
    page.push_str("</table>\n");
}

fn rejected(source: &FollowedSource) -> Value {
    let refused = source.refused(usize::MAX);
    refused.iter().map(RefusedRow::json).collect()
}

/// The state of each collection of a stream.
fn collections(sink: &Sink<ReceivedObject>, time: &dyn Fn(Duration) -> Value) -> Value {
    let collections = sink.status().map(|(name, one)| {
        let nack = one
            .last_nack
            .map(|(at, code, message)| json!({"time": time(at), "code": code, "message": message}));
        let collection = json!({
            "version": one.version,
            "count": one.count,
            "last_ack": one.last_ack.map(time),
            "last_nack": nack,
        });
        (name.to_string(), collection)
    });
    Value::Object(collections.collect())
}

/// The last requests of a stream.
fn requests(sink: &Sink<ReceivedObject>, time: &dyn Fn(Duration) -> Value) -> Value {
    let requests = sink.log().map(|one| {
        let (outcome, message, came) = match &one.outcome {
            Outcome::Subscribed => ("subscribed".to_owned(), None, None),
            Outcome::Acked { resources, removed } => {
                ("ack".to_owned(), None, Some((resources, removed)))
            }
            Outcome::Nacked(code, message) => (format!("nack {code}"), Some(&**message), None),
        };
        json!({
            "time": time(one.at), "collection": &*one.collection, "nonce": &*one.nonce,
            "outcome": outcome, "message": message,
            "resources": came.map(|(resources, _)| resources),
            "removed": came.map(|(_, removed)| removed),
        })
    });
    requests.collect()
}

fn of_local(source: &FollowedSource, local: &Local) -> Value {
    let collections = local.collections().into_iter();
    let collections: Map<_, _> = collections
        .map(|(name, (count, version))| {
            // Nobody acknowledges what is read here.
            let collection = json!({
                "version": version.to_string(), "count": count, "last_ack": null, "last_nack": null,
            });
            (name.to_owned(), collection)
        })
        .collect();
    json!({
        "address": source.name(),
        "state": if local.is_synced() { "read" } else { "reading" },
        "synced": local.is_synced(),
        "leaving": source.leaves,
        "served": local.report().served,
        "collections": collections,
        "rejected": rejected(source),
    })
}

/// Objects, and those of them that break a rule.
fn counts(streams: &[Arc<SourceObjects>]) -> (usize, usize) {
    let all = objects_of(streams);
    let each = all.values().flat_map(BTreeMap::values);
    each.fold((0, 0), |(objects, refused), is_accepted| {
        (objects + 1, refused + usize::from(!is_accepted))
    })
}
