//! The fake's responses to lists and watches.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::Fake;
use super::wire::{FakeRequest, chunk, no_such_path, status, value, wanted};

/// Returns the offset in a `continue` token; the rest is the version of the list.
pub(super) fn offset(token: &str) -> String {
    token.split('.').next().unwrap_or_default().to_owned()
}

/// Returns true if an object is the one of a name, in the namespace that is asked for.
fn is_it(asked: &FakeRequest, name: &str, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let namespace = asked.path.split("/namespaces/").nth(1);
    let namespace = namespace.and_then(|rest| rest.split('/').next());
    metadata["name"] == *name && namespace.is_none_or(|one| metadata["namespace"] == *one)
}

impl Fake {
    /// Kinds of a version of a group, or the groups with their versions.
    pub(super) fn kinds(&self, asked: &FakeRequest) -> (u16, Value) {
        let state = self.state.lock().unwrap();
        if asked.path == "/apis" {
            let versions = state
                .served
                .keys()
                .filter_map(|path| path.strip_prefix("/apis/"));
            let groups: Vec<_> = versions
                .map(|version| json!({"versions": [{"groupVersion": version}]}))
                .collect();
            return (200, json!({"kind": "APIGroupList", "groups": groups}));
        }
        let Some(kinds) = state.served.get(&asked.path) else {
            return no_such_path();
        };
        let named: Vec<_> = kinds.iter().map(|kind| json!({"name": kind})).collect();
        (200, json!({"kind": "APIResourceList", "resources": named}))
    }

    /// Answers a list, or a page of it.
    pub(super) fn list(&self, asked: &FakeRequest) -> (u16, Value) {
        let state = self.state.lock().unwrap();
        let wanted = wanted(&asked.query);
        let all: Vec<&Value> = state
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == asked.kind)
            .map(|(_, object)| object)
            .filter(|object| {
                wanted
                    .as_ref()
                    .is_none_or(|name| is_it(asked, name, object))
            })
            .collect();
        let token = value(&asked.query, "continue").filter(|token| !token.is_empty());
        let (from, version) = match token.as_deref().and_then(|token| token.split_once('.')) {
            Some((from, version)) => (from.parse().unwrap(), version.parse().unwrap()),
            None => (0, state.version),
        };
        if version < state.forgotten {
            return (410, status(410));
        }
        let limit = value(&asked.query, "limit").and_then(|text| text.parse().ok());
        let to = limit.map_or(all.len(), |limit: usize| (from + limit).min(all.len()));
        let more = if to < all.len() {
            format!("{to}.{version}")
        } else {
            String::new()
        };
        let metadata = json!({"resourceVersion": version.to_string(), "continue": more});
        let items = &all[from.min(to)..to];
        (200, json!({"metadata": metadata, "items": items}))
    }

    pub(super) async fn watch(
        &self,
        connection: &mut TcpStream,
        asked: &FakeRequest,
    ) -> Option<()> {
        let mut sent: u64 = value(&asked.query, "resourceVersion")?.parse().ok()?;
        let seconds: u64 = value(&asked.query, "timeoutSeconds")?.parse().ok()?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
        let wanted = wanted(&asked.query);
        let mut changed = self.changed.subscribe();
        let (ended, forgotten) = self.change(|state| (state.ended, state.forgotten));
        connection
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await
            .ok()?;
        if sent < forgotten {
            let event = json!({"type": "ERROR", "object": status(410)});
            chunk(connection, &event).await?;
            return connection.write_all(b"0\r\n\r\n").await.ok();
        }
        loop {
            let (events, over, away) = {
                let state = self.state.lock().unwrap();
                let newer = state.events.iter().filter(|(version, kind, _)| {
                    *version > sent && kind.as_ref().is_none_or(|kind| *kind == asked.kind)
                });
                let newer: Vec<_> = newer.cloned().collect();
                (newer, state.ended > ended, state.away)
            };
            if away {
                return None;
            }
            for (version, _, event) in events {
                sent = version;
                let object = &event["object"];
                let all = object["metadata"]["name"].is_null();
                let is_wanted = |name: &String| is_it(asked, name, object);
                if all || wanted.as_ref().is_none_or(is_wanted) {
                    chunk(connection, &event).await?;
                }
            }
            if over {
                return connection.write_all(b"0\r\n\r\n").await.ok();
            }
            tokio::select! {
                changed = changed.changed() => changed.ok()?,
                () = tokio::time::sleep_until(deadline) => return connection.write_all(b"0\r\n\r\n").await.ok(),
            }
        }
    }
}
