//! A fake API server with the rare behaviours of a real one: errors, 410, silence, endless responses. It has list, watch,
//! get, create and delete of any kind, and a strategic merge patch of webhooks, on loopback without TLS. Its responses to
//! [`script`] are compared with a recording of a real server.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connect::Cluster;

mod lies;
mod patch;
mod reads;
mod script;
mod tests;
mod wire;
mod writes;

pub(crate) use lies::Lie;
use wire::{FakeRequest, answer, key, misbehave, no_such_path, read, status, value};

/// The kind of objects that are put without one.
const WEBHOOKS: &str = "mutatingwebhookconfigurations";

/// Kinds that every server has, of groups that others come and go with.
const BUILT_IN: [&str; 3] = [WEBHOOKS, "validatingwebhookconfigurations", "clusterroles"];

/// A fault of the next request of a verb.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A Status with this code; with a `Retry-After`, where that is not zero.
    Status(u16, u64),
    /// A Status that forbids it in these words.
    Forbids(&'static str),
    /// The server sends no byte.
    Silence,
    /// A body that never ends, and never has a line either.
    Endless,
    /// The connection closes in the middle of the answer.
    Cut,
    /// A malformed response: this text, as the whole body.
    Says(&'static str),
    /// The request is carried out, and the connection closes before the answer.
    Lost,
    /// Another client is first; the request is carried out after it.
    Meanwhile(fn(&Fake)),
}

#[derive(Debug, Default)]
struct FakeState {
    /// By kind, and by namespace and name.
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    /// Events of watches: the version, the kind, and the event. One without a kind goes to all.
    events: Vec<(u64, Option<String>, Value)>,
    /// Kinds by path, such as `/apis/discovery.k8s.io/v1`.
    served: BTreeMap<String, Vec<&'static str>>,
    /// Connections are closed as soon as they are made.
    away: bool,
    /// Watches from versions before this one get 410, and so do `continue` tokens of such a list.
    forgotten: u64,
    /// Counts the times when all watches were ended.
    ended: u64,
    faults: Vec<(&'static str, Fault)>,
    /// Lies about a kind, by verb.
    lies: Vec<(&'static str, &'static str, Lie)>,
    /// Kinds that the account has no right to.
    forbidden: Vec<&'static str>,
    /// Objects that cannot be written: the server's own webhook for them fails.
    broken: Vec<&'static str>,
    /// The webhook that refuses objects which are created by a dry run.
    denies: Option<writes::Denial>,
    log: Vec<String>,
    /// Queries of lists and watches, decoded no further.
    queries: VecDeque<String>,
    paths: Vec<String>,
    /// Each request's header `Authorization`.
    authorizations: Vec<Option<String>>,
}

impl FakeState {
    /// Returns true if the server has the kind; kinds of optional groups only while the group is installed.
    fn has(&self, asked: &FakeRequest) -> bool {
        let kinds = self.served.get(&asked.version_path());
        let built_in = BUILT_IN.contains(&asked.kind.as_str()) || asked.path.starts_with("/api/");
        built_in || kinds.is_some_and(|kinds| kinds.iter().any(|kind| *kind == asked.kind))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Fake {
    state: Arc<Mutex<FakeState>>,
    changed: watch::Sender<u64>,
    address: SocketAddr,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            state: Arc::default(),
            changed: watch::Sender::new(0),
            address: listener.local_addr().unwrap(),
        };
        fake.state.lock().unwrap().version = 10;
        let serving = fake.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let fake = serving.clone();
                tokio::spawn(async move { fake.serve(connection).await });
            }
        });
        fake
    }

    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::plain(&format!("http://{}", self.address))
    }

    fn change<T>(&self, change: impl FnOnce(&mut FakeState) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Creates or replaces an object, as another client would.
    pub(crate) fn put(&self, object: Value) {
        self.put_in(WEBHOOKS, object);
    }

    pub(crate) fn put_in(&self, kind: &str, mut object: Value) {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let place = (
            kind.to_owned(),
            key(namespace, metadata["name"].as_str().unwrap()),
        );
        self.change(|state| {
            state.version += 1;
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            let old = state.objects.insert(place, object.clone());
            let what = if old.is_some() { "MODIFIED" } else { "ADDED" };
            let event = json!({"type": what, "object": object});
            let event = (state.version, Some(kind.to_owned()), event);
            state.events.push(event);
        });
    }

    pub(crate) fn delete(&self, name: &str) {
        self.delete_in(WEBHOOKS, name);
    }

    pub(crate) fn delete_in(&self, kind: &str, name: &str) {
        self.change(|state| {
            state.version += 1;
            let place = (kind.to_owned(), name.to_owned());
            if let Some(mut object) = state.objects.remove(&place) {
                object["metadata"]["resourceVersion"] = json!(state.version.to_string());
                let event = json!({"type": "DELETED", "object": object});
                let event = (state.version, Some(kind.to_owned()), event);
                state.events.push(event);
            }
        });
    }

    /// A version of a group that the server has, and its kinds; none: it is no longer there.
    pub(crate) fn set_api_group(&self, path: &str, kinds: &[&'static str]) {
        self.change(|state| match kinds {
            [] => drop(state.served.remove(path)),
            kinds => drop(state.served.insert(path.to_owned(), kinds.to_vec())),
        });
    }

    /// Makes the server unreachable and breaks watches, or makes it reachable again.
    pub(crate) fn away(&self, away: bool) {
        self.change(|state| state.away = away);
    }

    /// Advances the version without a change of objects.
    pub(crate) fn bookmark(&self) {
        self.change(|state| {
            state.version += 1;
            let metadata = json!({"resourceVersion": state.version.to_string()});
            let event = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
            state.events.push((state.version, None, event));
        });
    }

    /// Changes an object without telling watches: only a list shows it.
    pub(crate) fn put_without_event(&self, object: Value) {
        self.put_without_event_in(WEBHOOKS, object);
    }

    pub(crate) fn put_without_event_in(&self, kind: &str, object: Value) {
        self.put_in(kind, object);
        self.change(|state| state.events.pop());
    }

    pub(crate) fn get(&self, name: &str) -> Value {
        self.get_in(WEBHOOKS, name)
    }

    pub(crate) fn get_in(&self, kind: &str, name: &str) -> Value {
        self.find_in(kind, name).unwrap()
    }

    /// Sends this to all watches.
    pub(crate) fn send(&self, event: Value) {
        self.change(|state| {
            state.version += 1;
            state.events.push((state.version, None, event));
        });
    }

    /// Ends the open watches; a client between list and watch is not affected.
    pub(crate) fn end_watches(&self) {
        self.change(|state| state.ended += 1);
    }

    /// Restores a backup: the server is at an earlier version, without this object. Watches end.
    pub(crate) fn restore_without(&self, name: &str, version: u64) {
        self.change(|state| {
            state.objects.retain(|(_, known), _| known != name);
            state.version = version;
            state.events.clear();
            state.ended += 1;
        });
    }

    /// Compacts: watches from the present version or before get 410, and so do `continue` tokens.
    pub(crate) fn forget(&self) {
        self.change(|state| {
            state.version += 1;
            state.forgotten = state.version;
        });
    }

    /// The next requests of this verb fail, in this order.
    pub(crate) fn fail(&self, verb: &'static str, faults: &[Fault]) {
        self.change(|state| {
            state
                .faults
                .extend(faults.iter().cloned().map(|fault| (verb, fault)));
        });
    }

    /// The account has no right to these kinds, and to all others.
    pub(crate) fn forbid(&self, kinds: &[&'static str]) {
        self.change(|state| state.forbidden = kinds.to_vec());
    }

    /// Writes of these objects fail, and of no others.
    pub(crate) fn breaks(&self, names: &[&'static str]) {
        self.change(|state| state.broken = names.to_vec());
    }

    fn is_broken(&self, name: &str) -> bool {
        self.state.lock().unwrap().broken.contains(&name)
    }

    /// The requests so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state.lock().unwrap().log.clone()
    }

    /// The header `Authorization` of each request so far.
    pub(crate) fn authorizations(&self) -> Vec<Option<String>> {
        self.state.lock().unwrap().authorizations.clone()
    }

    pub(crate) fn count(&self, verb: &str) -> usize {
        let log = self.log();
        log.iter().filter(|line| line.starts_with(verb)).count()
    }

    /// Counts the requests for a kind.
    pub(crate) fn request_count(&self, kind: &str) -> usize {
        let paths = self.paths();
        let of_kind = |path: &&String| path.rsplit('/').next() == Some(kind);
        paths.iter().filter(of_kind).count()
    }

    /// The requests' paths.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.state.lock().unwrap().paths.clone()
    }

    pub(crate) fn queries(&self) -> Vec<String> {
        self.state.lock().unwrap().queries.iter().cloned().collect()
    }

    async fn serve(&self, mut connection: TcpStream) -> Option<()> {
        let mut buffer = Vec::new();
        loop {
            let asked = read(&mut connection, &mut buffer).await?;
            if self.state.lock().unwrap().away {
                return None;
            }
            let fault = self.change(|state| {
                let detail = match asked.verb {
                    "list" | "watch" => {
                        state.queries.push_back(asked.query.clone());
                        let version = value(&asked.query, "resourceVersion");
                        let page = value(&asked.query, "continue");
                        page.map(|token| reads::offset(&token)).or(version)
                    }
                    _ => Some(asked.name.clone()),
                };
                let line = format!("{} {}", asked.verb, detail.unwrap_or_default());
                state.log.push(line.trim().to_owned());
                state.paths.push(asked.path.clone());
                state.authorizations.push(asked.authorization.clone());
                if state.forbidden.iter().any(|kind| *kind == asked.kind) {
                    return Some(Fault::Status(403, 0));
                }
                let at = state
                    .faults
                    .iter()
                    .position(|(verb, _)| *verb == asked.verb)?;
                Some(state.faults.remove(at).1)
            });
            if let Some(lie) = self.lie_of(&asked) {
                self.lie(&mut connection, &asked, lie).await?;
                continue;
            }
            let watched = asked.verb == "watch" && self.state.lock().unwrap().has(&asked);
            match fault {
                Some(Fault::Meanwhile(change)) => {
                    change(self);
                    let (code, body) = self.answer(&asked);
                    answer(&mut connection, code, "", &body).await?;
                }
                Some(fault) => {
                    if matches!(fault, Fault::Lost) {
                        self.answer(&asked);
                    }
                    misbehave(&mut connection, fault).await?;
                }
                None if watched => return self.watch(&mut connection, &asked).await,
                None => {
                    let (code, body) = self.answer(&asked);
                    answer(&mut connection, code, "", &body).await?;
                }
            }
        }
    }

    fn answer(&self, asked: &FakeRequest) -> (u16, Value) {
        if asked.kind.is_empty() {
            return self.kinds(asked);
        }
        if !self.state.lock().unwrap().has(asked) {
            return no_such_path();
        }
        match asked.verb {
            "list" => self.list(asked),
            "get" => match self.find_in(&asked.kind, &asked.name) {
                Some(object) => (200, object),
                None => (404, status(404)),
            },
            "create" => self.create(asked),
            "delete" => self.remove(asked),
            "patch" => match asked.name.strip_suffix("/status") {
                Some(name) if asked.is_apply => self.apply_status(asked, name),
                Some(name) => self.patch_status(asked, name),
                None => self.patch(asked),
            },
            _ => (405, status(405)),
        }
    }
}
