//! What is known of each source, as JSON.

use std::time::Duration;

use mcp::sink::{Outcome, Standing};
use serde_json::{Map, Value, json};

use super::folder::Folder;
use super::{Origin, Sinks, Source};
use crate::log::stamp;
use crate::mcp::State;

impl Sinks {
    /// In their order.
    pub(crate) fn shown(&self) -> Value {
        let state = self.state();
        let sources = state.sources.iter().map(|source| self.one(source));
        Value::Array(sources.collect())
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
                rejected.push(json!({
                    "collection": &**name, "name": &**object, "state": state, "errors": held.broken,
                }));
            }
        }
        let requests = sink.log().map(|one| {
            let (outcome, message) = match &one.outcome {
                Outcome::Subscribed => ("subscribed".to_owned(), None),
                Outcome::Acked => ("ack".to_owned(), None),
                Outcome::Nacked(code, words) => (format!("nack {code}"), Some(&**words)),
            };
            json!({
                "time": time(one.at), "collection": &*one.collection, "nonce": &*one.nonce,
                "outcome": outcome, "message": message,
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
