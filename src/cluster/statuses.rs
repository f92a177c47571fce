//! Writes what is told of objects into their `status`, by server-side apply. Each replica says the same, and a status that is
//! up to date is not written: neither replicas nor restarts nor own writes cause further ones.

mod ledger;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::config::Kind;
use kube::core::Request;
use kube::core::params::{ListParams, Patch, PatchParams};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use self::ledger::{StatusLedger, Work};
use crate::backoff::Backoff;
use crate::connect::{Cluster, REQUEST};
use crate::failure::{Action, Failure};
use crate::kind::{Key, Resource};
use crate::log_limiter::LogLimiter;
use crate::watcher::Pace;

/// The field manager: what it has applied before, and applies no more, the server removes.
const MANAGER: &str = "gudgeon-discovery";
/// Objects of a page.
const PAGE: u32 = 500;
/// Between two writes. Chosen: twenty a second is a tenth of what one client may ask of a server by default.
const BETWEEN: Duration = Duration::from_millis(50);
/// Until writes that the server does not allow are tried again: a role may come later.
const REFUSED: Duration = Duration::from_secs(300);

/// An object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub group: &'static str,
    pub plural: &'static str,
    pub key: Key,
}

/// Messages about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Hash of the spec that the messages are about.
    pub content: u64,
    /// As `status.validationMessages` has them; none where nothing is wrong.
    pub messages: Vec<Value>,
}

/// All that is told, of objects that there are.
pub type AllSaid = Arc<BTreeMap<Subject, Said>>;

/// An object, as far as its status matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SeenStatus {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    generation: i64,
    managed_fields: Vec<Manager>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Manager {
    manager: String,
    subresource: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    validation_messages: Vec<Value>,
    observed_generation: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusPage {
    metadata: StatusPageEnd,
    items: Vec<SeenStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusPageEnd {
    #[serde(rename = "continue")]
    token: String,
}

impl SeenStatus {
    /// Returns whether this program has written something of the status. Servers before 1.22 do not name the subresource.
    fn is_ours(&self) -> bool {
        let mut managers = self.metadata.managed_fields.iter();
        managers
            .any(|one| one.manager == MANAGER && matches!(one.subresource.as_str(), "" | "status"))
    }

    /// The body that brings the status up to date; `None` where it is.
    fn patch(&self, api_version: &str, kind: &str, messages: &[Value]) -> Option<Value> {
        let Metadata {
            name,
            namespace,
            generation,
            ..
        } = &self.metadata;
        let mut metadata = json!({"name": name});
        if let (false, Some(fields)) = (namespace.is_empty(), metadata.as_object_mut()) {
            fields.insert("namespace".to_owned(), json!(namespace));
        }
        let mut patch = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        let fields = patch.as_object_mut()?;
        if messages.is_empty() {
            return self.is_ours().then_some(patch);
        }
        let generation = json!(generation.to_string());
        let is_current = self.status.validation_messages == messages
            && self.status.observed_generation == generation;
        if is_current {
            return None;
        }
        fields.insert(
            "status".to_owned(),
            json!({"validationMessages": messages, "observedGeneration": generation}),
        );
        Some(patch)
    }
}

/// A kind, in a version that the server has.
#[derive(Clone, Copy, Debug)]
struct Served {
    resource: Resource,
    kind: &'static str,
}

impl Served {
    fn action(&self, verb: &'static str, key: Option<&Key>) -> Action {
        Action {
            verb,
            resource: format!("{}/status", self.resource),
            name: key.map(|key| format!("{}/{}", key.namespace, key.name)),
        }
    }

    fn request(&self, key: &Key) -> Request {
        let namespace = Some(&*key.namespace).filter(|namespace| !namespace.is_empty());
        Request::new(self.resource.path(namespace))
    }
}

/// Kinds in versions of the server's, by group and plural name.
type Kinds = BTreeMap<(&'static str, &'static str), Served>;

struct StatusWriter {
    cluster: Cluster,
    pace: Pace,
    kinds: Kinds,
    ledger: StatusLedger,
    backoff: Backoff,
    repeats: LogLimiter,
}

/// Writes for as long as anything is told. `kinds`: those whose objects have a status.
pub async fn write_statuses(
    cluster: Cluster,
    kinds: Vec<&'static Kind>,
    pace: Pace,
    mut told: watch::Receiver<AllSaid>,
) {
    let mut writer = StatusWriter {
        cluster,
        pace,
        kinds: Kinds::new(),
        ledger: StatusLedger::default(),
        backoff: Backoff::new(pace.bounds()),
        repeats: LogLimiter::default(),
    };
    writer.begin(&kinds).await;
    loop {
        let wanted = AllSaid::clone(&told.borrow_and_update());
        let wait = writer.write_all(&kinds, &wanted, &told).await;
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            () = sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => {}
        }
    }
}

impl StatusWriter {
    /// Looks for what an earlier process has written: what is right no more is to go.
    async fn begin(&mut self, kinds: &[&'static Kind]) {
        loop {
            match self.look(kinds).await {
                Ok(()) => return,
                Err(failure) => self.rest(&failure).await,
            }
        }
    }

    async fn rest(&mut self, failure: &Failure) {
        self.repeats.say(failure);
        let wait = self.backoff.after(failure, fastrand::f64());
        sleep(wait).await;
    }

    async fn look(&mut self, kinds: &[&'static Kind]) -> Result<(), Failure> {
        self.kinds = served(&self.cluster, kinds).await?;
        for served in self.kinds.clone().into_values() {
            let mut token = None;
            loop {
                let params = ListParams {
                    limit: Some(PAGE),
                    continue_token: token,
                    ..ListParams::default()
                };
                let request = Request::new(served.resource.path(None)).list(&params);
                let action = Action {
                    resource: served.resource.to_string(),
                    ..served.action("list", None)
                };
                let asked = self.cluster.exchange(&action, self.pace.request);
                let page: StatusPage = match asked.json(request).await {
                    Ok(page) => page,
                    // Discovery itself says what it may not list; a page that ran out is begun anew.
                    Err(failure) if matches!(failure.code(), Some(403 | 404)) => break,
                    Err(failure) => return Err(failure),
                };
                for seen in page.items.iter().filter(|seen| seen.is_ours()) {
                    let Metadata {
                        namespace, name, ..
                    } = &seen.metadata;
                    self.ledger.found(Subject {
                        group: served.resource.group,
                        plural: served.resource.name,
                        key: Key::new(namespace, name),
                    });
                }
                token = Some(page.metadata.token).filter(|token| !token.is_empty());
                if token.is_none() {
                    break;
                }
            }
        }
        self.backoff.reset();
        Ok(())
    }

    /// Writes what differs. Returns when to try again what the server did not take; `None` where all is written.
    async fn write_all(
        &mut self,
        kinds: &[&'static Kind],
        wanted: &AllSaid,
        told: &watch::Receiver<AllSaid>,
    ) -> Option<Duration> {
        let mut refused = None;
        for work in self.ledger.work(wanted) {
            // What is told meanwhile may be something else.
            if told.has_changed().unwrap_or(true) {
                return Some(Duration::ZERO);
            }
            loop {
                sleep(BETWEEN).await;
                let Err(failure) = self.write(kinds, &work).await else {
                    self.backoff.reset();
                    self.ledger.done(&work);
                    break;
                };
                match failure.code() {
                    // The object is gone; it is told of once more if it comes back.
                    Some(404) => {
                        self.ledger.done(&work);
                        break;
                    }
                    // Another write was first, or the server has too much to do.
                    Some(401 | 408 | 409 | 429) | None => self.rest(&failure).await,
                    Some(code) if code >= 500 => self.rest(&failure).await,
                    Some(_) => {
                        self.say_refused(&failure);
                        refused = Some(REFUSED);
                        break;
                    }
                }
                if told.has_changed().unwrap_or(true) {
                    return Some(Duration::ZERO);
                }
            }
        }
        refused
    }

    /// Once of each kind: the next object of it is refused for the same reason.
    fn say_refused(&mut self, failure: &Failure) {
        let about = Failure {
            action: Action {
                name: None,
                ..failure.action.clone()
            },
            cause: failure.cause.clone(),
        };
        if self.ledger.is_new_refusal(&about.action.to_string()) {
            tracing::warn!("{about}: status is not written");
        }
    }

    async fn write(&mut self, kinds: &[&'static Kind], work: &Work) -> Result<(), Failure> {
        let place = (work.subject.group, work.subject.plural);
        if !self.kinds.contains_key(&place) {
            self.kinds = served(&self.cluster, kinds).await?;
        }
        let Some(served) = self.kinds.get(&place).copied() else {
            return Ok(());
        };
        let key = &work.subject.key;
        // The right to list is there already, and that to get need not be.
        let params = ListParams::default()
            .fields(&format!("metadata.name={}", key.name))
            .limit(1);
        let request = served.request(key).list(&params);
        let action = Action {
            resource: served.resource.to_string(),
            ..served.action("list", Some(key))
        };
        let asked = self.cluster.exchange(&action, REQUEST);
        let page: StatusPage = asked.json(request).await?;
        let Some(seen) = page.items.first() else {
            return Ok(());
        };
        let Resource { group, version, .. } = served.resource;
        let version = format!("{group}/{version}");
        let Some(patch) = seen.patch(&version, served.kind, &work.messages) else {
            return Ok(());
        };
        let params = PatchParams::apply(MANAGER).force();
        let request = served.request(key).patch_subresource(
            "status",
            &key.name,
            &params,
            &Patch::Apply(patch),
        );
        let action = served.action("patch", Some(key));
        let asked = self.cluster.exchange(&action, REQUEST);
        asked.json::<serde::de::IgnoredAny>(request).await?;
        Ok(())
    }
}

/// Finds the versions that the server has.
async fn served(cluster: &Cluster, kinds: &[&'static Kind]) -> Result<Kinds, Failure> {
    let mut asked: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    let mut all = Kinds::new();
    for kind in kinds {
        for version in kind.versions {
            let place = (kind.group, *version);
            let names = match asked.entry(place) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(cluster.serves(kind.group, version).await?),
            };
            if names.contains(kind.plural) {
                let resource = Resource {
                    group: kind.group,
                    version,
                    name: kind.plural,
                };
                let kind_of = Served {
                    resource,
                    kind: kind.kind,
                };
                all.entry((kind.group, kind.plural)).or_insert(kind_of);
            }
        }
    }
    Ok(all)
}
