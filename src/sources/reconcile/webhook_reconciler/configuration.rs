//! Reconciles one configuration: its observed state, and the writes to it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::backoff::Backoff;
use api::log_repeats::LogRepeatLimiter;
use api::times;
use kube::core::Request;
use kube::core::params::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::goal::{Goal, RECENT};
use super::{NumberedBundle, WebhookReconciler};
use crate::kind::{Key, Resource};
use crate::kubernetes::{Action, Cluster, Failure, Reader, WatchTiming};
use crate::reconcile::ca_bundle_patch::{Decision, Write};
use crate::reconcile::reconcile_status::{ReconcileState, ReconcileStatus, ReconcileStatuses};
use crate::reconcile::validation;
use crate::reconcile::webhook::WebhookConfiguration;

/// The interval of checks without an event: certificates expire silently.
const RESYNC_PERIOD: Duration = Duration::from_secs(3600);
/// Conflicts are tried again at once, but not for ever without a pause.
const CONFLICTS: u32 = 5;

const OWNERS: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    name: "clusterroles",
};

/// The object; `None` if it does not exist.
type Observed = Option<WebhookConfiguration>;

pub(super) struct ConfigurationReconciler {
    cluster: Cluster,
    pub(super) name: String,
    pub(super) goal: Goal,
    bundle: watch::Receiver<NumberedBundle>,
    /// The webhook was seen to refuse.
    refused: watch::Receiver<bool>,
    statuses: ReconcileStatuses,
    reader: Reader<WebhookConfiguration>,
    pace: WatchTiming,
    backoff: Backoff,
    /// The time of the next check without an event.
    again: Option<Instant>,
    /// The times of recent writes.
    recent: Vec<Instant>,
    pub(super) repeats: LogRepeatLimiter,
    /// Entries of other services, as last reported.
    pub(super) others: Vec<String>,
    /// The object in the store when a write was answered, and the answer, which is newer.
    answered: Option<(Option<Arc<WebhookConfiguration>>, Observed)>,
}

impl ConfigurationReconciler {
    pub(super) fn new(
        reconciler: &WebhookReconciler,
        cluster: Cluster,
        name: String,
        reader: Reader<WebhookConfiguration>,
        refused: watch::Receiver<bool>,
    ) -> Self {
        Self {
            cluster,
            name,
            goal: reconciler.goal.clone(),
            bundle: reconciler.bundle.clone(),
            refused,
            statuses: reconciler.statuses.clone(),
            reader,
            pace: reconciler.pace,
            backoff: Backoff::new(reconciler.pace.bounds()),
            again: None,
            recent: Vec::new(),
            repeats: LogRepeatLimiter::default(),
            others: Vec::new(),
            answered: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let again = self.again.unwrap_or_else(|| Instant::now() + RESYNC_PERIOD);
            tokio::select! {
                changed = self.reader.changed() => if changed.is_none() { return },
                changed = self.bundle.changed() => if changed.is_err() { return },
                Ok(()) = self.refused.changed() => {}
                () = sleep_until(again) => self.again = None,
            }
            // After a failure the backoff applies to events, too: an API server that refuses is not asked faster because
            // others change the object.
            if self.again.is_none_or(|again| again <= Instant::now()) {
                self.again = None;
                self.reconcile().await;
            }
        }
    }

    /// The newest known object: the answer to a write, until the watch delivers a newer one.
    fn latest(&mut self) -> Observed {
        let watched = self.watched();
        if let Some((before, answer)) = &self.answered {
            if *before == watched {
                return answer.clone();
            }
            self.answered = None;
        }
        watched.map(|watched| (*watched).clone())
    }

    fn watched(&self) -> Option<Arc<WebhookConfiguration>> {
        self.reader.get(&Key::new("", &self.name))
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut ReconcileStatus)) {
        self.statuses.of(&self.name, change);
    }

    /// Reads the object, and repairs it if necessary.
    async fn reconcile(&mut self) {
        let (number, bundle) = self.bundle.borrow().clone();
        let fail = *self.refused.borrow();
        let freshness = self.reader.freshness();
        if !freshness.listed {
            self.note(|status| {
                if freshness.refused && status.error.is_none() {
                    status.refused(Some(403));
                }
                status.error = freshness.stale.map(|(_, why)| why);
            });
            return;
        }
        let stale = freshness.stale.map(|(_, why)| why);
        let mut conflicts = 0;
        let mut sent = None;
        let mut next = Some(self.latest());
        while let Some(observed) = next.take() {
            let now = SystemTime::now();
            let decision = self
                .goal
                .decide(observed.as_ref(), bundle.as_deref(), fail, now);
            self.policy(observed.as_ref());
            match decision {
                None => {}
                Some(Decision::Missing) => self.missing(),
                Some(Decision::Gone) => self.gone(),
                Some(Decision::NoEntry) => self.no_entry(),
                Some(Decision::Held { entries }) => {
                    self.reconciled(number, entries, stale.as_ref());
                }
                // The server took this very write and it is wanted again: it drops a part, and one more would
                // never end.
                Some(Decision::Write(write)) if sent.as_ref() == Some(&unconditional(&write)) => {
                    self.dropped_fields();
                }
                Some(Decision::Write(write)) => {
                    if let Write::Patch { entries, .. } = &write {
                        self.note(|status| status.entries.clone_from(entries));
                    }
                    if self.too_often() {
                        return;
                    }
                    next = match self.write(&write).await {
                        Ok(answer) => {
                            sent = Some(unconditional(&write));
                            Some(answer)
                        }
                        Err(failure) => self.not_sent(failure, &mut conflicts).await,
                    };
                }
            }
        }
    }

    /// Returns true if recent writes delay the next one, and sets its time.
    fn too_often(&mut self) -> bool {
        let now = Instant::now();
        self.recent
            .retain(|sent| now.duration_since(*sent) <= RECENT);
        let next = self.goal.next_write(&self.recent, &self.pace);
        let Some(again) = next.filter(|again| *again > now) else {
            return false;
        };
        self.again = Some(again);
        if self.goal.waits() {
            let message = format!(
                "cannot keep the CA bundle in {}: another writer changes it",
                self.name
            );
            if let Some(count) = self.repeats.observe(&message) {
                tracing::warn!("{message}{}", times(count));
            }
            self.note(|status| {
                status.state = ReconcileState::Failing;
                status.error = Some(message);
            });
        }
        true
    }

    async fn write(&mut self, write: &Write) -> Result<Observed, Failure> {
        let retry = self.backoff.waited();
        self.note(|status| {
            status.attempts = status.attempts.saturating_add(1);
            status.retries = status.retries.saturating_add(u64::from(retry));
        });
        let resource = self.goal.resource();
        let root = Request::new(resource.path(None));
        // Taken before the request: an event that arrives meanwhile may be newer than the answer.
        let watched = self.watched();
        let (verb, request) = match write {
            Write::Patch { patch, .. } => {
                let params = PatchParams::default();
                let request = root.patch(&self.name, &params, &Patch::Strategic(patch));
                ("patch", request)
            }
            Write::Create(object) => {
                let object = self.owned(object.clone()).await?;
                let body = object.to_string().into_bytes();
                ("create", root.create(&PostParams::default(), body))
            }
            Write::Delete => ("delete", root.delete(&self.name, &DeleteParams::default())),
        };
        let action = self.action(verb, resource, &self.name);
        let exchange = self.cluster.exchange(&action, self.pace.request);
        let answer = match write {
            Write::Delete => {
                let IgnoredAny = exchange.json(request).await?;
                None
            }
            Write::Patch { .. } | Write::Create(_) => Some(exchange.json(request).await?),
        };
        self.backoff.reset();
        self.recent.push(Instant::now());
        self.note(|status| status.written = status.written.saturating_add(1));
        match write {
            Write::Patch { .. } if self.goal.waits() => {
                tracing::info!("wrote the CA bundle into {}", self.name);
            }
            Write::Patch { .. } => tracing::info!("repaired {} {}", resource.name, self.name),
            Write::Create(_) => tracing::info!("created {} {}", resource.name, self.name),
            Write::Delete => tracing::info!("deleted {} {}", resource.name, self.name),
        }
        self.answered = Some((watched, answer.clone()));
        Ok(answer)
    }

    /// Adds the owner to the object, if the owner exists and may be read.
    async fn owned(&self, object: Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        struct Owner {
            metadata: OfOwner,
        }
        #[derive(Deserialize)]
        struct OfOwner {
            uid: String,
        }
        let Goal::Validation(validation) = &self.goal else {
            return Ok(object);
        };
        let owner = validation.owner();
        let action = self.action("get", OWNERS, &owner);
        let request = Request::new(OWNERS.path(None)).get(&owner, &GetParams::default());
        let exchange = self.cluster.exchange(&action, self.pace.request);
        match exchange.json::<Owner>(request).await {
            Ok(owner_object) => Ok(validation::complete(
                object,
                &owner,
                &owner_object.metadata.uid,
            )),
            Err(failure) if failure.code() == Some(404) => Ok(object),
            Err(failure) if failure.code() == Some(403) => {
                tracing::warn!("{failure}: {} will have no owner", self.name);
                Ok(object)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The object to decide about next, after a write that failed.
    async fn not_sent(&mut self, failure: Failure, conflicts: &mut u32) -> Option<Observed> {
        let mut failure = failure;
        // The configuration was changed, created or deleted meanwhile.
        if matches!(failure.code(), Some(404 | 409)) && *conflicts < CONFLICTS {
            *conflicts += 1;
            // The step makes the next write count as a retry, and costs no wait.
            let _counted = self.backoff.next(0.0);
            match self.now().await {
                Ok(observed) => {
                    self.answered = Some((self.watched(), observed.clone()));
                    return Some(observed);
                }
                Err(other) => failure = other,
            }
        }
        let wait = failure.wait(&mut self.backoff, fastrand::f64());
        self.again = Some(Instant::now() + wait);
        let code = failure.code();
        self.note(|status| status.refused(code));
        self.failing(failure.to_string(), ": trying again");
        None
    }

    /// The object as the server has it.
    async fn now(&self) -> Result<Observed, Failure> {
        let resource = self.goal.resource();
        let action = self.action("get", resource, &self.name);
        let request = Request::new(resource.path(None)).get(&self.name, &GetParams::default());
        let exchange = self.cluster.exchange(&action, self.pace.request);
        match exchange.json::<WebhookConfiguration>(request).await {
            Ok(newer) => Ok(Some(newer)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn action(&self, verb: &'static str, resource: Resource, name: &str) -> Action {
        Action {
            verb,
            resource: resource.to_string(),
            name: Some(name.to_owned()),
        }
    }
}

/// Returns the write without the version that it is conditional on.
fn unconditional(write: &Write) -> Write {
    let mut write = write.clone();
    if let Write::Patch { patch, .. } = &mut write
        && let Some(patch) = patch.as_object_mut()
    {
        patch.remove("metadata");
    }
    write
}
