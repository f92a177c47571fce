//! What is known of each source, as JSON.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use mcp::sink::{Outcome, Standing};
use serde_json::{Map, Value, json};

use super::super::shown::Shown;
use super::folder::Folder;
use super::{Origin, Sinks, Source};
use crate::html::{self, ROWS, escaped};
use crate::log::stamp;
use crate::mcp::{Held, State};
use crate::secrets;

impl Sinks {
    /// What is written, used or not.
    pub(in super::super) fn written(&self, all: &mut Shown) {
        let state = self.state();
        all.add(&self.rules, state.rules.written().map(Arc::new));
        all.add(&self.services, state.services.written().map(Arc::new));
    }

    /// In their order.
    pub(crate) fn shown(&self) -> Value {
        let state = self.state();
        let sources = state.sources.iter().map(|source| self.one(source));
        Value::Array(sources.collect())
    }

    /// On the page.
    pub(crate) fn draw(&self, page: &mut String) {
        let state = self.state();
        // Writing to a string cannot fail.
        let _written = writeln!(
            page,
            "<h2>Sources of configuration: {}, <a href=\"/debug/sinkz\">all of this</a> as JSON</h2><table><tr><th>source\
             <th>state<th>all was said once<th>objects<th>not used as they are</tr>",
            state.sources.len()
        );
        for source in state.sources.iter().take(ROWS) {
            let (words, objects, rejected) = match &source.origin {
                Origin::Link(link) => {
                    let words = match link.state() {
                        State::Dialling => "dialling".to_owned(),
                        State::Connected(_) => "connected".to_owned(),
                        State::Broken(_, cause) => format!("broken: {cause}"),
                    };
                    let (objects, rejected) = counts(&link.held);
                    (words, objects, rejected)
                }
                Origin::Port(_, held) => {
                    let (objects, rejected) = counts(held);
                    ("listening".to_owned(), objects, rejected)
                }
                Origin::Folder(folder) => {
                    let report = folder.report();
                    ("read".to_owned(), report.served, report.rejected.len())
                }
            };
            let synced = if source.is_synced() { "yes" } else { "no" };
            let _written = writeln!(
                page,
                "<tr><td>{}<td>{}<td>{synced}<td>{objects}<td>{rejected}</tr>",
                escaped(&source.name()),
                escaped(&words),
            );
        }
        html::more(page, state.sources.len());
        page.push_str("</table>\n");
    }

    fn one(&self, source: &Source) -> Value {
        let clock = &self.hub.metrics.mcp().clock;
        let time = |at: Duration| Value::from(stamp(clock.wall(at)));
        let (held, state) = match &source.origin {
            Origin::Link(link) => (&link.held, Some(link.state())),
            Origin::Port(_, held) => (held, None),
            Origin::Folder(folder) => return of_folder(source, folder),
        };
        let (state, since, error) = match state {
            None => ("listening", Value::Null, Value::Null),
            Some(State::Dialling) => ("dialling", Value::Null, Value::Null),
            Some(State::Connected(at)) => ("connected", time(at), Value::Null),
            Some(State::Broken(at, cause)) => ("broken", time(at), cause.into()),
        };
        let sink = held.sink();
        let mut collections = Map::new();
        let mut rejected = Vec::new();
        for (name, one) in sink.status() {
            let nack = one
                .last_nack
                .map(|(at, code, words)| json!({"time": time(at), "code": code, "message": words}));
            let shown = json!({
                "version": one.version,
                "count": one.count,
                "last_ack": one.last_ack.map(time),
                "last_nack": nack,
            });
            collections.insert(name.to_string(), shown);
            for (object, held) in sink.held(name) {
                let state = match held.standing() {
                    Standing::Good => continue,
                    Standing::Stale => "stale",
                    Standing::Refused => "refused",
                };
                let broken: Vec<_> = held.broken.iter().map(|one| secrets::words(one)).collect();
                rejected.push(json!({
                    "collection": &**name, "name": &**object, "state": state, "errors": broken,
                }));
            }
        }
        let requests = sink.log().map(|one| {
            let (outcome, message, came) = match &one.outcome {
                Outcome::Subscribed => ("subscribed".to_owned(), None, None),
                Outcome::Acked { resources, removed } => {
                    ("ack".to_owned(), None, Some((resources, removed)))
                }
                Outcome::Nacked(code, words) => (format!("nack {code}"), Some(&**words), None),
            };
            json!({
                "time": time(one.at), "collection": &*one.collection, "nonce": &*one.nonce,
                "outcome": outcome, "message": message,
                "resources": came.map(|(resources, _)| resources),
                "removed": came.map(|(_, removed)| removed),
            })
        });
        let requests: Vec<_> = requests.collect();
        json!({
            "address": source.name(),
            "state": state,
            "since": since,
            "error": error,
            "synced": held.is_synced(),
            "leaving": source.leaves,
            "collections": collections,
            "rejected": rejected,
            "requests": requests,
        })
    }
}

fn of_folder(source: &Source, folder: &Folder) -> Value {
    let report = folder.report();
    let rejected = report.rejected.iter().map(|one| {
        let errors: Vec<_> = one.errors.iter().map(ToString::to_string).collect();
        json!({
            "collection": one.id.collection, "name": &*one.id.name, "origin": &*one.origin,
            "state": one.state.as_str(), "errors": errors,
        })
    });
    let rejected: Vec<_> = rejected.collect();
    json!({
        "address": source.name(),
        "state": if folder.is_synced() { "read" } else { "reading" },
        "synced": folder.is_synced(),
        "leaving": source.leaves,
        "served": report.served,
        "rejected": rejected,
    })
}

/// Objects, and those of them that break a rule.
fn counts(held: &Held) -> (usize, usize) {
    let sink = held.sink();
    let all = sink.status().flat_map(|(name, _)| sink.held(name));
    all.fold((0, 0), |(objects, rejected), (_, one)| {
        let broken = usize::from(one.standing() != Standing::Good);
        (objects + 1, rejected + broken)
    })
}
