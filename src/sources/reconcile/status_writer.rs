//! Writes the messages about objects into their `status`, by server-side apply: each replica writes the same, and a status that is up
//! to date is not written, so neither replicas nor restarts nor own writes cause another.

mod current_status;
#[cfg(test)]
mod tests;
mod written_statuses;

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
use tokio::sync::watch::error::RecvError;
use tokio::time::{Instant, sleep_until};

use self::current_status::StatusPage;
use self::written_statuses::{ServerSideApply, WrittenStatuses};
use crate::kind::{Key, Resource};
use crate::kubernetes::status_queue::{Attempt, GroupResource, Next, StatusQueue, Subject};
use crate::kubernetes::{
    Action, Cause, Cluster, Failure, MaxAge, REQUEST, ServedKinds, WatchTiming,
};

/// The field manager: the server removes fields that it has applied before and applies no more.
const MANAGER: &str = "gudgeon-discovery";
/// Objects of a page.
const PAGE: u32 = 500;
/// The age of an answer about the server's kinds. Chosen: writes of one turn share it, and a new kind is found soon.
const FRESH: Duration = Duration::from_secs(5);
/// Pages of a list at most: a list of a server that lies has no end.
const MAX_PAGES: usize = 1_000;

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
struct KindVersion {
    resource: Resource,
    kind: &'static str,
}

impl KindVersion {
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
type Kinds = BTreeMap<GroupResource, KindVersion>;

struct StatusWriter {
    cluster: Cluster,
    pace: WatchTiming,
    served: ServedKinds,
    kinds: Kinds,
    /// Kinds whose objects may have a status that an earlier process has written; `None`: not known yet.
    to_scan: Option<BTreeSet<GroupResource>>,
    /// The time of the next scan, after a failed one.
    next_scan: Option<Instant>,
    written: WrittenStatuses,
    queue: StatusQueue<ServerSideApply>,
    scan_backoff: Backoff,
    repeats: LogRepeatLimiter,
}

/// The end of a write that did not fail.
enum WriteOutcome {
    /// The status has the desired messages.
    UpToDate,
    /// The object is gone, or newer than the messages: an update for it will follow.
    Outdated,
    /// The object is there, and its kind has no status subresource.
    WithoutStatus,
}

/// Writes statuses until the sender is dropped. `kinds`: kinds whose objects have a status.
pub async fn write_statuses(
    cluster: Cluster,
    kinds: Vec<&'static Kind>,
    pace: WatchTiming,
    mut desired: watch::Receiver<DesiredMessages>,
) {
    let mut writer = StatusWriter {
        served: ServedKinds::new(cluster.clone()),
        cluster,
        pace,
        kinds: Kinds::new(),
        to_scan: None,
        next_scan: None,
        written: WrittenStatuses::default(),
        queue: StatusQueue::new(pace.bounds()),
        scan_backoff: Backoff::new(pace.bounds()),
        repeats: LogRepeatLimiter::default(),
    };
    let mut is_open = true;
    while is_open {
        let wanted = DesiredMessages::clone(&desired.borrow_and_update());
        writer.scan(&kinds).await;
        writer.enqueue(&wanted);
        is_open = writer.write_all(&kinds, &mut desired).await.is_ok();
    }
}

impl StatusWriter {
    /// Looks for the messages of an earlier process, to remove the outdated ones. A kind that cannot be listed is tried again, and
    /// delays no other.
    async fn scan(&mut self, kinds: &[&'static Kind]) {
        if self.next_scan.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.next_scan = None;
        if let Some(failure) = self.scan_all(kinds).await {
            failure.warn_of_kind(&mut self.repeats);
            let wait = failure.wait(&mut self.scan_backoff, fastrand::f64());
            self.next_scan = Some(Instant::now() + wait);
        }
    }

    /// The first failure, if there is one.
    async fn scan_all(&mut self, kinds: &[&'static Kind]) -> Option<Failure> {
        let to_look = match self.to_scan.clone() {
            Some(to_look) => to_look,
            None => match find_kinds(&self.served, kinds).await {
                Ok(versions) => {
                    self.kinds = versions;
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
                // Discovery itself reports kinds that it may not list.
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

    async fn scan_kind(&mut self, served: KindVersion) -> Result<(), Failure> {
        let action = Action {
            resource: served.resource.to_string(),
            ..served.action("list", None)
        };
        let mut token: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = ListParams {
                limit: Some(PAGE),
                continue_token: token.clone(),
                ..ListParams::default()
            };
            let request = Request::new(served.resource.path(None)).list(&params);
            let asked = self.cluster.exchange(&action, self.pace.request);
            let page: StatusPage = asked.json(request).await?;
            for key in page.ours() {
                self.written.found(Subject {
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
        let cause = Cause::Malformed(format!("a list has no end within {MAX_PAGES} pages"));
        Err(self.cluster.failure(&action, cause))
    }

    /// Queues the statuses that differ, of kinds that were scanned.
    fn enqueue(&mut self, wanted: &DesiredMessages) {
        // Nothing is known of the server.
        let Some(to_scan) = &self.to_scan else {
            return;
        };
        self.written.retain(|subject| wanted.contains_key(subject));
        self.queue.retain(|subject| wanted.contains_key(subject));
        for (subject, messages) in wanted.iter() {
            if to_scan.contains(&subject.group_resource()) {
                continue;
            }
            match self.written.missing(subject, messages) {
                Some(write) => self.queue.set(subject.clone(), write),
                None => self.queue.remove(subject),
            }
        }
    }

    /// Writes the queued statuses, until other messages are desired or the next scan is due.
    ///
    /// # Errors
    /// The sender of the desired messages is gone.
    async fn write_all(
        &mut self,
        kinds: &[&'static Kind],
        desired: &mut watch::Receiver<DesiredMessages>,
    ) -> Result<(), RecvError> {
        loop {
            let now = Instant::now();
            if desired.has_changed()? || self.next_scan.is_some_and(|at| at <= now) {
                return Ok(());
            }
            let next = match self.queue.next(now) {
                Next::Write(attempt) => {
                    self.write(kinds, attempt).await;
                    continue;
                }
                Next::Wait(at) => at,
            };
            let due = next.into_iter().chain(self.next_scan).min();
            tokio::select! {
                changed = desired.changed() => return changed,
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            }
        }
    }

    async fn write(&mut self, kinds: &[&'static Kind], attempt: Attempt<ServerSideApply>) {
        match self.apply(kinds, &attempt.subject, &attempt.write).await {
            Ok(WriteOutcome::UpToDate) => {
                self.queue.done();
                self.written.done(attempt.subject, &attempt.write);
            }
            Ok(WriteOutcome::Outdated) => self.queue.done(),
            Ok(WriteOutcome::WithoutStatus) => self.queue.lacks_status(attempt, Instant::now()),
            Err(failure) => {
                // The server has the kind no more, or not in this version.
                if failure.is_not_found() && failure.action.verb == "list" {
                    self.kinds.remove(&attempt.subject.group_resource());
                }
                let now = Instant::now();
                self.queue.failed(attempt, &failure, now, fastrand::f64());
            }
        }
    }

    async fn apply(
        &mut self,
        kinds: &[&'static Kind],
        subject: &Subject,
        write: &ServerSideApply,
    ) -> Result<WriteOutcome, Failure> {
        let place = subject.group_resource();
        if !self.kinds.contains_key(&place) {
            self.kinds = find_kinds(&self.served, kinds).await?;
        }
        let Some(served) = self.kinds.get(&place).copied() else {
            return Ok(WriteOutcome::Outdated);
        };
        let key = &subject.key;
        let page = self.current(served, key).await?;
        let Some(current) = page.first() else {
            return Ok(WriteOutcome::Outdated);
        };
        if write
            .generation
            .is_some_and(|of| of != current.generation())
        {
            return Ok(WriteOutcome::Outdated);
        }
        let Resource { group, version, .. } = served.resource;
        let version = format!("{group}/{version}");
        let Some(patch) = current.status_patch(&version, served.kind, &write.messages) else {
            return Ok(WriteOutcome::UpToDate);
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
        match asked.json::<serde::de::IgnoredAny>(request).await {
            Ok(_) => Ok(WriteOutcome::UpToDate),
            // The server has the same words for an object that is gone, and there may be a new one of its name.
            Err(failure) if failure.is_not_found() => match self.current(served, key).await {
                Ok(page) if page.first().is_some_and(|now| now.uid() == current.uid()) => {
                    Ok(WriteOutcome::WithoutStatus)
                }
                Ok(_) | Err(_) => Err(failure),
            },
            Err(failure) => Err(failure),
        }
    }

    /// The object, if it is there.
    async fn current(&self, served: KindVersion, key: &Key) -> Result<StatusPage, Failure> {
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
        asked.json(request).await
    }
}

/// Finds the versions that the server has.
async fn find_kinds(served: &ServedKinds, kinds: &[&'static Kind]) -> Result<Kinds, Failure> {
    let mut all = Kinds::new();
    for kind in kinds {
        let (group, name) = (kind.group, kind.plural);
        let newest = served
            .newest(group, kind.versions, name, MaxAge::Fixed(FRESH))
            .await?;
        if let Some(version) = newest {
            let resource = Resource {
                group,
                version,
                name,
            };
            let kind = kind.kind;
            all.insert((group, name), KindVersion { resource, kind });
        }
    }
    Ok(all)
}
