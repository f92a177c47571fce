//! The state of one xDS stream, and the responses that it owes to its client.
//!
//! A stream knows what its client has (what it was sent, by type) and what it is to have (a [`View`]). A request and a push
//! only say where the two may differ; [`Stream::next`], asked whenever the writer is free, compares and makes one response.
//! So nothing is queued: whatever happens while a client does not read costs one view, and a newer push merges into it.
//!
//! Three moments matter. *Endpoints* are always those of the latest push. *Clusters* are those of the push that is under way,
//! *listeners and routes* too, but not before its new clusters are warm: until then requests for them are answered with what
//! the push before had. The steps are those of `rollout`, and a client that comes with clusters of another stream takes them, too.
//!
//! A view that fails to make a resource, by a bug of this program, ends the push that wanted it, and the client keeps what it
//! has.

mod ack_state;
mod answer;
mod lists;
mod lookup;
mod message;
mod name_budget;
mod name_slot;
mod named_subscription;
mod push;
mod rebinding;
mod returning;
mod rollout;
mod sent_resources;
mod separate_secrets;
mod set_subscription;
mod status;
mod subscribe;
mod subscriptions;
#[cfg(test)]
mod tests;
mod unknown_names;
mod unresolved_nacks;
mod views;
mod writer;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use self::ack_state::AckState;
pub use self::lists::Lists;
pub use self::message::{
    CLOSED, Client, Fault, MAX_NAME_BYTES, NACK_BYTES, NAMES, Nack, OWED_BYTES, Protocol, Request,
    RequestOutcome, Response, SLOW, STEP, UNKNOWN_NAMES,
};
pub use self::name_budget::NameBudget;
use self::push::{DirtyAssignments, QueuedPush};
pub use self::push::{LastPush, Push, PushScope};
use self::rebinding::Rebinding;
use self::rollout::Phase;
pub use self::sent_resources::SentResources;
use self::separate_secrets::SeparateSecrets;
use self::set_subscription::sorted;
pub use self::status::{NackWithRules, Status, Watches};
use self::subscriptions::Subscriptions;
use self::unknown_names::UnknownNames;
use self::views::Views;
pub use self::writer::Stall;
use self::writer::Writer;
use crate::reason::Reasons;
use crate::resource_names::NameList;
use crate::view::{Resource, Type, View};

/// The acknowledgement state of each type.
#[derive(Debug, Default)]
struct AckStates {
    clusters: AckState,
    endpoints: AckState,
    listeners: AckState,
    routes: AckState,
    secrets: AckState,
}

impl AckStates {
    fn of(&self, kind: Type) -> &AckState {
        match kind {
            Type::Cluster => &self.clusters,
            Type::Endpoint => &self.endpoints,
            Type::Listener => &self.listeners,
            Type::Route => &self.routes,
            Type::Secret => &self.secrets,
        }
    }

    fn of_mut(&mut self, kind: Type) -> &mut AckState {
        match kind {
            Type::Cluster => &mut self.clusters,
            Type::Endpoint => &mut self.endpoints,
            Type::Listener => &mut self.listeners,
            Type::Route => &mut self.routes,
            Type::Secret => &mut self.secrets,
        }
    }
}

/// One stream of one client.
#[derive(Debug)]
pub struct Stream {
    protocol: Protocol,
    client: Client,
    views: Views,
    subscriptions: Subscriptions,
    /// Secrets that go out one by one.
    separate_secrets: SeparateSecrets,
    ack_states: AckStates,
    /// Assignments that a push has changed.
    dirty: DirtyAssignments,
    /// Assignments of clusters that are gone may have been left as they were.
    retained: bool,
    phase: Phase,
    /// The steps under way are those of a client that came with clusters of another stream: its requests that come late prolong
    /// the wait for listeners up to this time.
    returning: Option<Duration>,
    /// Listeners that are gone and come again.
    rebinding: Option<Rebinding>,
    waiting: Option<QueuedPush>,
    last: Option<LastPush>,
    /// Reasons of the endpoints-only push that was not looked at yet.
    reasons: Reasons,
    nonce: u64,
    writer: Writer,
    /// Types with a resource that could not be built since [`Stream::take_failed`] was last called.
    failed: BTreeSet<Type>,
    lists: Arc<Lists>,
    unknown: UnknownNames,
}

/// A view did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BuildPanic;

/// The resource of a name, `None` without one; [`BuildPanic`] if it could not be built.
type Lookup = Result<Option<Arc<Resource>>, BuildPanic>;

/// Calls a view, and catches a panic: the caches that a view fills are whole at every moment.
fn catch_panic<T>(make: impl FnOnce() -> T) -> Result<T, BuildPanic> {
    catch_unwind(AssertUnwindSafe(make)).map_err(|_| BuildPanic)
}

impl Stream {
    /// A stream whose first request has come with its node; that request is the first to be given to [`Self::request`].
    pub fn new(protocol: Protocol, client: Client, view: Arc<dyn View>) -> Self {
        Self {
            protocol,
            client,
            views: Views {
                latest: view.clone(),
                rolling: view.clone(),
                published: view,
            },
            subscriptions: Subscriptions::default(),
            separate_secrets: SeparateSecrets::default(),
            ack_states: AckStates::default(),
            dirty: DirtyAssignments::None,
            retained: false,
            phase: Phase::Idle,
            returning: None,
            rebinding: None,
            waiting: None,
            last: None,
            reasons: Reasons::NONE,
            nonce: 0,
            writer: Writer::default(),
            failed: BTreeSet::new(),
            lists: Arc::default(),
            unknown: UnknownNames::default(),
        }
    }

    /// Makes the stream share its lists of names with others.
    #[must_use]
    pub fn sharing(mut self, lists: &Arc<Lists>) -> Self {
        self.lists = Arc::clone(lists);
        self
    }

    /// Makes the stream share the bytes of names of nothing with the others of its address. It has had no request yet.
    pub fn share_names(&mut self, budget: Arc<NameBudget>) {
        self.unknown.share(budget);
    }

    /// Applies a request. A response may be due even after an error, see [`Self::next`]: it lists the names that the next stream need
    /// not repeat.
    ///
    /// # Errors
    ///
    /// The request exceeds a limit or breaks the protocol; the stream must end.
    pub fn request(&mut self, now: Duration, request: &Request) -> Result<RequestOutcome, Fault> {
        bounded(request.names.len())?;
        bounded(request.unsubscribe.len())?;
        bounded(request.initial.len())?;
        let kind = request.kind;
        if kind == Type::Secret {
            // Before the nonce is classified: an answer to an older response still counts for its secret.
            self.separate_secrets.record_answer(now, request);
        }
        let ack_state = self.ack_states.of_mut(kind);
        let outcome = if ack_state.requested {
            ack_state.classify_request(now, self.protocol, &request.nonce, request.error.as_deref())
        } else {
            ack_state.requested = true;
            RequestOutcome::Subscribed
        };
        if self.protocol == Protocol::Delta {
            self.review_nacks(kind, &outcome);
        }
        if kind == Type::Listener {
            self.note_closing(now);
        }
        // The client answers the newer response, too, with the names that it has then; in delta it says them once.
        if outcome == RequestOutcome::Expired && self.protocol == Protocol::StateOfTheWorld {
            let names = sorted(request.names.iter());
            let nonce = request.nonce.parse().unwrap_or_default();
            if let Some(subscription) = self.subscriptions.named_mut(kind) {
                subscription.forget_names_of_stale_request(&names, nonce);
            }
            return Ok(outcome);
        }
        self.subscribe(now, request, outcome == RequestOutcome::Subscribed)?;
        if outcome == RequestOutcome::Subscribed
            && let Some(last) = self.returning
        {
            // The requests of a new stream come one by one, and a server that starts is slow.
            self.phase.prolong(now, last);
        }
        self.forget_nacks(kind);
        if self.ack_states.of(kind).has_all_replies()
            && let Some(subscription) = self.subscriptions.named_mut(kind)
        {
            subscription.all_acked();
        }
        // Delta adds names with each request, so the bound on one request is not enough.
        bounded(self.subscriptions.of(kind).len())?;
        Ok(outcome)
    }

    /// Returns true if the request names what the stream has already, and nothing else, as an acknowledgement does. A first
    /// request does not, and in delta none does.
    pub fn repeats(&self, request: &Request) -> bool {
        self.protocol == Protocol::StateOfTheWorld
            && self.ack_states.of(request.kind).requested
            && self
                .subscriptions
                .named(request.kind)
                .is_some_and(|known| known.is_exactly(&request.names))
    }

    /// Returns the names of a type that this one is of, for [`RequestReader`](crate::resource_names::RequestReader).
    pub fn list_with(&self, name: &str) -> Option<Arc<dyn NameList>> {
        self.subscriptions.list_with(name)
    }

    /// The view of the latest push, which the client has or is on its way to.
    pub fn view(&self) -> &Arc<dyn View> {
        &self.views.latest
    }

    /// Takes a push in; it merges into one that waits.
    pub fn merge_push(&mut self, push: Push) {
        self.views.latest = push.view.clone();
        let names = match push.scope {
            PushScope::Full => {
                let before = self.waiting.as_ref().map(|waiting| waiting.reasons);
                self.waiting = Some(QueuedPush {
                    view: push.view,
                    reasons: before.unwrap_or_default().and(push.reasons),
                });
                return;
            }
            PushScope::Endpoints(names) => names,
            PushScope::Nothing => Arc::default(),
        };
        match &mut self.waiting {
            // The full push that waits takes the newer view along.
            Some(waiting) => waiting.view = push.view,
            None => {
                // Nothing else differs, so an older view need not be kept for it.
                if !self.phase.keeps_listeners() {
                    self.views.published = push.view.clone();
                }
                self.views.rolling = push.view;
            }
        }
        self.reasons = self.reasons.and(push.reasons);
        self.dirty.add(&names);
    }

    /// Types of which something could not be built since this was last asked.
    pub fn take_failed(&mut self) -> BTreeSet<Type> {
        std::mem::take(&mut self.failed)
    }

    /// The response that the writer holds was taken.
    pub fn written(&mut self) {
        self.writer.end();
        self.unknown.written();
    }

    /// Reports a response that has waited too long for its client to read.
    pub fn stall(&mut self, now: Duration) -> Option<Stall> {
        self.writer.stall(now)
    }

    /// Returns the time at which [`Self::next`] and [`Self::stall`] are to be called if nothing arrives before.
    pub fn deadline(&self) -> Option<Duration> {
        if self.writer.is_busy() {
            return self.writer.deadline();
        }
        let all = [self.phase.deadline(), self.rebinding_deadline()];
        all.into_iter().flatten().min()
    }
}

fn bounded(names: usize) -> Result<(), Fault> {
    if names > NAMES {
        return Err(Fault::TooManyNames(names));
    }
    Ok(())
}
