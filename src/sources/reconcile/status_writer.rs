//! Writes the messages about objects into their `status`, by server-side apply and without leader election: each replica says
//! the same, and a status that is up to date is not written, so neither replicas nor restarts nor own writes cause another.

mod current_status;
mod pending_writes;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Backoff;
use api::config::Kind;
use api::log_repeats::LogRepeatLimiter;
use kube::core::Request;
use kube::core::params::{ListParams, Patch, PatchParams};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use self::current_status::StatusPage;
use self::pending_writes::{PendingWrite, PendingWrites, RefusalExtent};
use crate::kind::{Key, Resource};
use crate::kubernetes::{Action, Cause, Cluster, Failure, REQUEST, WatchTiming};

/// The field manager: what it has applied before, and applies no more, the server removes.
const MANAGER: &str = "gudgeon-discovery";
/// Objects of a page.
const PAGE: u32 = 500;
/// Between two writes. Chosen: twenty a second is a tenth of what one client may ask of a server by default.
const BETWEEN: Duration = Duration::from_millis(50);
/// Pages of a list at most: a list of a server that lies has no end.
const MOST_PAGES: usize = 1_000;

/// An object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub group: &'static str,
    pub plural: &'static str,
    pub key: Key,
}

/// A kind's group and plural name.
type GroupResource = (&'static str, &'static str);

impl Subject {
    const fn place(&self) -> GroupResource {
        (self.group, self.plural)
    }
}

/// Messages about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMessages {
    /// Hash of the spec that the messages are about.
    pub content: u64,
    /// The generation that the messages are about, where it is known: they are not written to another one.
    pub generation: Option<i64>,
    /// The messages in the form of `status.validationMessages`; empty if the object is valid.
    pub messages: Vec<Value>,
}

/// The messages of all objects.
pub type DesiredMessages = Arc<BTreeMap<Subject, ObjectMessages>>;

/// A kind, in a version that the server has.
#[derive(Clone, Copy, Debug)]
struct ServedKind {
    resource: Resource,
    kind: &'static str,
}

impl ServedKind {
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
type Kinds = BTreeMap<GroupResource, ServedKind>;

struct StatusWriter {
    cluster: Cluster,
    pace: WatchTiming,
    kinds: Kinds,
    /// Kinds whose objects may have a status that an earlier process has written; `None`: not known yet.
    to_scan: Option<BTreeSet<GroupResource>>,
    scan_not_before: Option<Instant>,
    pending: PendingWrites,
    backoff: Backoff,
    scan_backoff: Backoff,
    repeats: LogRepeatLimiter,
}

/// The end of a write that did not fail.
enum StatusWrite {
    /// The status says what it is to say.
    UpToDate,
    /// The object is gone, or is another than the one that the messages are about: more will be told of it.
    Outdated,
}

/// Writes statuses until the sender is dropped. `kinds`: kinds whose objects have a status.
pub async fn write_statuses(
    cluster: Cluster,
    kinds: Vec<&'static Kind>,
    pace: WatchTiming,
    mut desired: watch::Receiver<DesiredMessages>,
) {
    let mut writer = StatusWriter {
        cluster,
        pace,
        kinds: Kinds::new(),
        to_scan: None,
        scan_not_before: None,
        pending: PendingWrites::default(),
        backoff: Backoff::new(pace.bounds()),
        scan_backoff: Backoff::new(pace.bounds()),
        repeats: LogRepeatLimiter::default(),
    };
    loop {
        let wanted = DesiredMessages::clone(&desired.borrow_and_update());
        let wait = writer.turn(&kinds, &wanted, &desired).await;
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => {}
        }
    }
}

impl StatusWriter {
    /// Returns when to try again what the server did not take; `None` where all is written.
    async fn turn(
        &mut self,
        kinds: &[&'static Kind],
        wanted: &DesiredMessages,
        desired: &watch::Receiver<DesiredMessages>,
    ) -> Option<Duration> {
        let looked = self.scan(kinds).await;
        // Nothing is known of the server.
        let Some(to_look) = self.to_scan.clone() else {
            return looked;
        };
        let written = self.write_all(kinds, wanted, &to_look, desired).await;
        looked.into_iter().chain(written).min()
    }

    /// Looks for what an earlier process has written: what is right no more is to go. A kind that cannot be listed is tried
    /// again, and holds no other up. Returns when.
    async fn scan(&mut self, kinds: &[&'static Kind]) -> Option<Duration> {
        let now = Instant::now();
        if let Some(at) = self.scan_not_before.filter(|at| *at > now) {
            return Some(at.saturating_duration_since(now));
        }
        let failure = self.scan_all(kinds).await?;
        failure.warn_of_kind(&mut self.repeats);
        let wait = failure.wait(&mut self.scan_backoff, fastrand::f64());
        self.scan_not_before = Some(Instant::now() + wait);
        Some(wait)
    }

    /// The first failure, if there is one.
    async fn scan_all(&mut self, kinds: &[&'static Kind]) -> Option<Failure> {
        let to_look = match self.to_scan.clone() {
            Some(to_look) => to_look,
            None => match served(&self.cluster, kinds).await {
                Ok(found) => {
                    self.kinds = found;
                    self.kinds.keys().copied().collect()
                }
                Err(failure) => return Some(failure),
            },
        };
        self.to_scan = Some(to_look.clone());
        let mut first = None;
        for place in to_look {
            let Some(served) = self.kinds.get(&place).copied() else {
                continue;
            };
            let looked = self.scan_kind(served).await;
            let failure = match looked {
                // Discovery itself says what it may not list.
                Err(failure) if !matches!(failure.code(), Some(403 | 404)) => failure,
                _ => {
                    self.to_scan.as_mut().map(|all| all.remove(&place));
                    continue;
                }
            };
            let is_away = failure.is_away();
            first.get_or_insert(failure);
            if is_away {
                break;
            }
        }
        if first.is_none() {
            self.scan_backoff.reset();
        }
        first
    }

    async fn scan_kind(&mut self, served: ServedKind) -> Result<(), Failure> {
        let action = Action {
            resource: served.resource.to_string(),
            ..served.action("list", None)
        };
        let mut token: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = ListParams {
                limit: Some(PAGE),
                continue_token: token.clone(),
                ..ListParams::default()
            };
            let request = Request::new(served.resource.path(None)).list(&params);
            let asked = self.cluster.exchange(&action, self.pace.request);
            let page: StatusPage = asked.json(request).await?;
            for key in page.ours() {
                self.pending.found(Subject {
                    group: served.resource.group,
                    plural: served.resource.name,
                    key,
                });
            }
            let next = page.next();
            if next.is_none() {
                return Ok(());
            }
            if next == token {
                break;
            }
            token = next;
        }
        let cause = Cause::Malformed(format!("a list has no end within {MOST_PAGES} pages"));
        Err(self.cluster.failure(&action, cause))
    }

    /// Writes what differs, each once in a turn. A failure that others may share ends the turn, and what failed goes last in
    /// the next one. Returns when that is; `None` where all is written.
    async fn write_all(
        &mut self,
        kinds: &[&'static Kind],
        wanted: &DesiredMessages,
        not_yet: &BTreeSet<GroupResource>,
        desired: &watch::Receiver<DesiredMessages>,
    ) -> Option<Duration> {
        for work in self.pending.work(wanted, Instant::now()) {
            if not_yet.contains(&work.subject.place()) {
                continue;
            }
            // What is desired by now may be something else.
            if desired.has_changed().unwrap_or(true) {
                return Some(Duration::ZERO);
            }
            sleep(BETWEEN).await;
            let failure = match self.write(kinds, &work).await {
                Ok(outcome) => {
                    self.backoff.reset();
                    match outcome {
                        StatusWrite::UpToDate => self.pending.done(&work),
                        StatusWrite::Outdated => self.pending.outdated(&work),
                    }
                    continue;
                }
                Err(failure) => failure,
            };
            match failure.code() {
                // The object is gone, or its kind has no status; or the server has the kind no more, or not in this version.
                Some(404) => {
                    let mut extent = RefusalExtent::Object;
                    if failure.action.verb == "list" {
                        self.kinds.remove(&work.subject.place());
                        extent = RefusalExtent::Kind;
                    }
                    self.pending.refused(&work, extent, Instant::now());
                }
                // Another write was first, the server has too much to do, or a webhook of its own fails.
                Some(401 | 408 | 409 | 429 | 500..) | None => {
                    self.pending.failed(&work);
                    failure.warn_of_kind(&mut self.repeats);
                    let wait = failure.wait(&mut self.backoff, fastrand::f64());
                    // Even where something else is told: the server has asked for it.
                    sleep(failure.after().unwrap_or_default()).await;
                    return Some(wait.saturating_sub(failure.after().unwrap_or_default()));
                }
                Some(_) => {
                    let extent = match failure.is_without_right() {
                        true => RefusalExtent::Namespace,
                        false => RefusalExtent::Object,
                    };
                    self.log_refusal(&failure, extent);
                    self.pending.refused(&work, extent, Instant::now());
                }
            }
        }
        self.pending.next_try(Instant::now())
    }

    /// Once of each kind: others of it are refused for the same reason.
    fn log_refusal(&mut self, failure: &Failure, extent: RefusalExtent) {
        let about = Failure {
            cluster: failure.cluster.clone(),
            action: Action {
                name: None,
                ..failure.action.clone()
            },
            cause: failure.cause.clone(),
        };
        let action = about.action.to_string();
        if self.pending.is_new_refusal(&action, extent) {
            tracing::warn!("{about}: status is not written");
        }
    }

    async fn write(
        &mut self,
        kinds: &[&'static Kind],
        work: &PendingWrite,
    ) -> Result<StatusWrite, Failure> {
        let place = work.subject.place();
        if !self.kinds.contains_key(&place) {
            self.kinds = served(&self.cluster, kinds).await?;
        }
        let Some(served) = self.kinds.get(&place).copied() else {
            return Ok(StatusWrite::Outdated);
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
        let Some(current) = page.first() else {
            return Ok(StatusWrite::Outdated);
        };
        if work.generation.is_some_and(|of| of != current.generation()) {
            return Ok(StatusWrite::Outdated);
        }
        let Resource { group, version, .. } = served.resource;
        let version = format!("{group}/{version}");
        let Some(patch) = current.status_patch(&version, served.kind, &work.messages) else {
            return Ok(StatusWrite::UpToDate);
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
        Ok(StatusWrite::UpToDate)
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
                let kind_of = ServedKind {
                    resource,
                    kind: kind.kind,
                };
                all.entry((kind.group, kind.plural)).or_insert(kind_of);
            }
        }
    }
    Ok(all)
}
