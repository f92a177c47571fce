//! Writes findings into the `status` of the objects that have them, as merge patches of the version that was checked. An
//! up-to-date status is not written again, so replicas and restarts cause no writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::backoff::Bounds;
use api::config::Finding;
use kube::core::Request;
use kube::core::params::{Patch, PatchParams};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::watched_object::WatchedObject;
use crate::catalogue::status_condition::{conditions, has_conditions, has_messages};
use crate::kind::{Key, Resource};
use crate::kubernetes::connect::{Cluster, REQUEST};
use crate::kubernetes::failure::{Action, Failure};
use crate::kubernetes::status_queue::{Attempt, Next, StatusQueue, Subject};

/// Attempts while the server answers 409 and the object's content is unchanged.
const TRIES: usize = 5;

/// A pending write of a status: a merge patch that the server takes only for the version that it was made of.
#[derive(Debug, PartialEq)]
pub(super) struct MergePatch {
    resource: Resource,
    key: Key,
    uid: Box<str>,
    /// The length and the hash of the content that the messages are about.
    content: (usize, u64),
    version: Box<str>,
    /// None: earlier ones are removed.
    messages: Vec<Json>,
    /// The fields of the status that are not as they are to be.
    status: serde_json::Map<String, Json>,
}

/// Returns the fields that differ; `null` removes one.
fn status(object: &WatchedObject, messages: &[Json]) -> serde_json::Map<String, Json> {
    let read = |there: Option<&Box<RawValue>>| {
        let there = there.map(|there| serde_json::from_str(there.get()));
        // A value nested too deeply to decode differs from every wanted one, so that the patch replaces it.
        there.map_or(Json::Null, |there| there.unwrap_or(Json::Bool(true)))
    };
    let some = |all: Vec<Json>| match all.is_empty() {
        true => Json::Null,
        false => Json::Array(all),
    };
    let mut status = serde_json::Map::new();
    let there = read(object.messages.as_ref());
    let is_same = match messages.is_empty() {
        true => there.is_null(),
        false => has_messages(&there, messages),
    };
    if !is_same {
        status.insert("validationMessages".to_owned(), some(messages.to_vec()));
    }
    let there = read(object.conditions.as_ref());
    let conditions = conditions(&there, messages, object.generation);
    let present = there.as_array().map_or(&[][..], Vec::as_slice);
    if !has_conditions(present, &conditions) {
        status.insert("conditions".to_owned(), some(conditions));
    }
    status
}

impl MergePatch {
    /// Returns `None` if the status is up to date.
    pub(super) fn new(
        resource: Resource,
        key: &Key,
        object: &WatchedObject,
        findings: &[Finding],
    ) -> Option<Self> {
        let errors = findings.iter().filter(|finding| finding.is_error());
        let kind = json!({"code": "IST0106", "name": "SchemaValidationError"});
        let messages = errors.map(|found| {
            json!({"type": kind, "level": "ERROR", "path": found.path, "message": found.message})
        });
        let messages: Vec<_> = messages.collect();
        let status = status(object, &messages);
        (!status.is_empty()).then(|| Self {
            resource,
            key: key.clone(),
            uid: object.uid.clone(),
            content: object.content,
            version: object.version.clone(),
            messages,
            status,
        })
    }

    fn action(&self, verb: &'static str) -> Action {
        Action {
            verb,
            resource: format!("{}/status", self.resource),
            name: Some(self.key.name.to_string()),
        }
    }

    fn request(&self) -> Request {
        let namespace = Some(&*self.key.namespace).filter(|namespace| !namespace.is_empty());
        Request::new(self.resource.path(namespace))
    }

    async fn current(&self, cluster: &Cluster) -> Result<WatchedObject, Failure> {
        let request = self
            .request()
            .get(&self.key.name, &kube::core::params::GetParams::default());
        let action = Action {
            resource: self.resource.to_string(),
            ..self.action("get")
        };
        cluster.exchange(&action, REQUEST).json(request).await
    }

    /// # Errors
    /// The write failed. The update is unchanged, and can be retried.
    async fn write(&mut self, cluster: &Cluster) -> Result<MergeOutcome, Failure> {
        let mut conflict = None;
        for _ in 0..TRIES {
            let patch = json!({
                // With the version a concurrent write answers 409 and is not overwritten unseen.
                "metadata": {"resourceVersion": self.version},
                "status": self.status,
            });
            let request = self.request().patch_subresource(
                "status",
                &self.key.name,
                &PatchParams::default(),
                &Patch::Merge(patch),
            );
            let action = self.action("patch");
            let answer = cluster
                .exchange(&action, REQUEST)
                .json::<Json>(request)
                .await;
            match answer {
                Ok(_) => return Ok(MergeOutcome::Settled),
                Err(failure) if failure.code() == Some(409) => conflict = Some(failure),
                // The server has the same words for an object that is gone, and there may be a new one of its name.
                Err(failure) if failure.is_not_found() => {
                    return match self.current(cluster).await {
                        Ok(now) if now.uid == self.uid => Ok(MergeOutcome::WithoutStatus),
                        Ok(_) => Ok(MergeOutcome::Settled),
                        Err(_) => Err(failure),
                    };
                }
                Err(failure) => return Err(failure),
            }
            let now = self.current(cluster).await?;
            // The object has changed since: its messages are outdated.
            if now.content != self.content {
                return Ok(MergeOutcome::Settled);
            }
            self.status = status(&now, &self.messages);
            if self.status.is_empty() {
                return Ok(MergeOutcome::Settled);
            }
            // A new object of the same content may be there.
            self.uid = now.uid;
            self.version = now.version;
        }
        conflict.map_or(Ok(MergeOutcome::Settled), Err)
    }
}

/// The end of a write that did not fail.
enum MergeOutcome {
    /// The status is written, or needs no write any more.
    Settled,
    /// The object is there, and its kind has no status subresource.
    WithoutStatus,
}

/// The pending writes, shared with the task that carries them out.
#[derive(Clone, Debug)]
pub(super) struct StatusWrites(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<StatusQueue<MergePatch>>,
    changed: Notify,
}

impl StatusWrites {
    pub(super) fn new(bounds: Bounds) -> Self {
        let queue = Mutex::new(StatusQueue::new(bounds));
        let changed = Notify::new();
        Self(Arc::new(Shared { queue, changed }))
    }

    fn queue(&self) -> MutexGuard<'_, StatusQueue<MergePatch>> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pending write of an object; `None` removes it.
    pub(super) fn set(&self, subject: Subject, patch: Option<MergePatch>) {
        match patch {
            Some(patch) => self.queue().set(subject, patch),
            None => self.queue().remove(&subject),
        }
        self.0.changed.notify_one();
    }

    /// The same for a write that waits until then.
    pub(super) fn set_at(&self, subject: Subject, patch: MergePatch, at: Instant) {
        self.queue().set_at(subject, patch, at);
        self.0.changed.notify_one();
    }

    async fn next(&self) -> Attempt<MergePatch> {
        loop {
            let next = self.queue().next(Instant::now());
            let at = match next {
                Next::Write(attempt) => return attempt,
                Next::Wait(at) => at,
            };
            tokio::select! {
                // `notify_one` leaves a permit if it comes between the look and this wait, so no update is
                // missed.
                () = self.0.changed.notified() => {}
                () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => {}
            }
        }
    }
}

/// Writes the statuses one after the other, for ever.
pub(super) async fn run(cluster: Cluster, writes: StatusWrites) {
    loop {
        let mut attempt = writes.next().await;
        match attempt.write.write(&cluster).await {
            Ok(MergeOutcome::Settled) => writes.queue().done(),
            Ok(MergeOutcome::WithoutStatus) => {
                writes.queue().lacks_status(attempt, Instant::now());
            }
            Err(failure) => {
                let mut queue = writes.queue();
                queue.failed(attempt, &failure, Instant::now(), fastrand::f64());
            }
        }
    }
}
