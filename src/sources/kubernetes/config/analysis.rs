//! Writes findings into the `status` of the objects that have them. An up-to-date status is not written again, so replicas
//! and restarts cause no writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::backoff::{Backoff, Bounds};
use api::config::Finding;
use api::log_repeats::LogRepeatLimiter;
use api::times;
use kube::core::Request;
use kube::core::params::{Patch, PatchParams};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::watched_object::WatchedObject;
use crate::catalogue::status_condition::{conditions, has_conditions, has_messages};
use crate::kind::{Key, Resource};
use crate::kubernetes::connect::{Cluster, REQUEST};
use crate::kubernetes::failure::{Action, Failure};

/// Attempts while the server answers 409 and the object's content is unchanged.
const TRIES: usize = 5;

/// A pending write of a status.
#[derive(Debug)]
pub(super) struct StatusUpdate {
    resource: Resource,
    key: Key,
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
    let known = there.as_array().map_or(&[][..], Vec::as_slice);
    if !has_conditions(known, &conditions) {
        status.insert("conditions".to_owned(), some(conditions));
    }
    status
}

impl StatusUpdate {
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

    /// # Errors
    /// The write failed. The update is unchanged, and can be retried.
    async fn write(&mut self, cluster: &Cluster) -> Result<(), Failure> {
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
                Ok(_) => return Ok(()),
                Err(failure) if failure.code() == Some(409) => conflict = Some(failure),
                Err(failure) => return Err(failure),
            }
            let request = self
                .request()
                .get(&self.key.name, &kube::core::params::GetParams::default());
            let action = self.action("get");
            let now: WatchedObject = cluster.exchange(&action, REQUEST).json(request).await?;
            // The object has changed since: its messages are outdated.
            if now.content != self.content {
                return Ok(());
            }
            self.status = status(&now, &self.messages);
            if self.status.is_empty() {
                return Ok(());
            }
            self.version = now.version;
        }
        conflict.map_or(Ok(()), Err)
    }
}

/// Pending status writes: the latest of each object, so their number is bounded by the number of objects.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

/// By the places of their objects.
#[derive(Debug, Default)]
struct Waiting {
    new: BTreeMap<Arc<str>, StatusUpdate>,
    /// Repairs that are to wait.
    later: BTreeMap<Arc<str>, (Instant, StatusUpdate)>,
    /// Writes that failed. New ones go first, so an object that always fails delays no other.
    failed: BTreeMap<Arc<str>, StatusUpdate>,
    /// The one of them that was tried last: the others have their turn before it has one again.
    last: Arc<str>,
}

impl StatusQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        let waiting = self.0.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pending write of an object; `None` removes it.
    pub(super) fn set(&self, place: &Arc<str>, update: Option<StatusUpdate>) {
        let mut waiting = self.waiting();
        waiting.remove(place);
        if let Some(update) = update {
            waiting.new.insert(Arc::clone(place), update);
        }
        drop(waiting);
        self.0.changed.notify_one();
    }

    /// The same for a write that waits until then.
    pub(super) fn set_at(&self, place: &Arc<str>, update: StatusUpdate, at: Instant) {
        let mut waiting = self.waiting();
        waiting.remove(place);
        waiting.later.insert(Arc::clone(place), (at, update));
        drop(waiting);
        self.0.changed.notify_one();
    }

    async fn next(&self) -> (Arc<str>, StatusUpdate) {
        loop {
            let later = {
                let mut waiting = self.waiting();
                waiting.take_due(Instant::now());
                if let Some(next) = waiting.pop() {
                    return next;
                }
                waiting.later.values().map(|(at, _)| *at).min()
            };
            tokio::select! {
                // `notify_one` leaves a permit if it comes between the look and this wait, so no update is
                // missed.
                () = self.0.changed.notified() => {}
                () = sleep_until(later.unwrap_or_else(Instant::now)), if later.is_some() => {}
            }
        }
    }

    /// Puts back a failed write, unless a newer one is pending.
    fn put_back(&self, place: Arc<str>, update: StatusUpdate) {
        let mut waiting = self.waiting();
        if !waiting.new.contains_key(&place) && !waiting.later.contains_key(&place) {
            waiting.failed.insert(place, update);
        }
    }
}

impl Waiting {
    fn remove(&mut self, place: &str) {
        self.new.remove(place);
        self.later.remove(place);
        self.failed.remove(place);
    }

    /// Moves the repairs whose time has come.
    fn take_due(&mut self, now: Instant) {
        let due = self.later.extract_if(.., |_, (at, _)| *at <= now);
        self.new
            .extend(due.map(|(place, (_, update))| (place, update)));
    }

    fn pop(&mut self) -> Option<(Arc<str>, StatusUpdate)> {
        if let Some(first) = self.new.pop_first() {
            return Some(first);
        }
        // Round robin: the writes behind the last one come first, then the others from the beginning.
        let after = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let mut failed = self.failed.range::<str, _>(after).chain(&self.failed);
        let place = failed.next().map(|(place, _)| Arc::clone(place))?;
        self.last = Arc::clone(&place);
        self.failed.remove_entry(&place)
    }
}

/// Returns true if a retry would fail the same way for as long as the object is unchanged.
fn is_final(failure: &Failure) -> bool {
    match failure.code() {
        // A token that ran out, a slow server, other writers, too many requests.
        Some(401 | 408 | 409 | 429) | None => false,
        Some(code) => code < 500,
    }
}

/// Writes the statuses one after the other, for ever. Failed writes are retried, with backoff if the server refuses all.
pub(super) async fn run(cluster: Cluster, queue: StatusQueue, bounds: Bounds) {
    let mut repeats = LogRepeatLimiter::default();
    let mut backoff = Backoff::new(bounds);
    loop {
        let (place, mut update) = queue.next().await;
        let Err(failure) = update.write(&cluster).await else {
            repeats.forget();
            backoff.reset();
            continue;
        };
        if is_final(&failure) {
            // The server answers, but rejects this write: other writes need no backoff.
            backoff.reset();
            // The object is gone, or has no status of its own.
            if failure.code() == Some(404) {
                tracing::debug!("{failure}");
            } else if let Some(count) = repeats.observe(&failure.to_string()) {
                tracing::warn!("{failure}{}", times(count));
            }
            continue;
        }
        failure.warn(&mut repeats);
        let wait = failure.wait(&mut backoff, fastrand::f64());
        queue.put_back(place, update);
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(message: &str) -> StatusUpdate {
        StatusUpdate {
            resource: Resource {
                group: "g",
                version: "v1",
                name: "n",
            },
            key: Key::default(),
            content: (0, 0),
            version: Box::default(),
            messages: vec![json!(message)],
            status: serde_json::Map::new(),
        }
    }

    fn pop(queue: &StatusQueue) -> Option<String> {
        let (place, update) = queue.waiting().pop()?;
        Some(format!("{place} {}", update.messages[0]))
    }

    #[test]
    fn the_latest_of_each_object_waits() {
        let queue = StatusQueue::default();
        let place = |name: &str| Arc::<str>::from(name);
        queue.set(&place("a"), Some(update("1")));
        queue.set(&place("a"), Some(update("2")));
        queue.set(&place("b"), Some(update("1")));
        queue.set(&place("b"), None);
        assert_eq!(pop(&queue).as_deref(), Some("a \"2\""));
        assert_eq!(pop(&queue), None);
        // A failed write is superseded by a newer one, and dropped when no message remains.
        queue.set(&place("a"), Some(update("4")));
        queue.put_back(place("a"), update("3"));
        assert_eq!(pop(&queue).as_deref(), Some("a \"4\""));
        assert_eq!(pop(&queue), None);
        queue.put_back(place("a"), update("4"));
        queue.set(&place("a"), None);
        assert_eq!(pop(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repair_waits_for_its_time_and_the_last_one_counts() {
        let queue = StatusQueue::default();
        let place = Arc::<str>::from("a");
        let begun = Instant::now();
        let at = begun + std::time::Duration::from_secs(60);
        queue.set_at(&place, update("1"), at);
        queue.set_at(&place, update("2"), at);
        let (_, next) = queue.next().await;
        assert_eq!(
            (&next.messages[0], begun.elapsed().as_secs()),
            (&json!("2"), 60)
        );
        // One that is no longer needed is dropped.
        queue.set_at(&place, update("3"), at + (at - begun));
        queue.set(&place, None);
        let wait = std::time::Duration::from_secs(300);
        assert!(tokio::time::timeout(wait, queue.next()).await.is_err());
    }

    #[test]
    fn a_failing_write_holds_up_no_other() {
        let queue = StatusQueue::default();
        let place = |name: &str| Arc::<str>::from(name);
        for name in ["a", "b", "c"] {
            queue.put_back(place(name), update("old"));
        }
        queue.set(&place("z"), Some(update("new")));
        let mut order = Vec::new();
        for _ in 0..6 {
            let (place, update) = queue.waiting().pop().unwrap();
            order.push(place.to_string());
            if &*place != "z" {
                queue.put_back(place, update);
            }
        }
        assert_eq!(order, ["z", "a", "b", "c", "a", "b"]);
    }
}
