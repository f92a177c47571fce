//! The next response: answers to requests first, then endpoints, then the steps of a full push.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::lookup::{AbsenceSignal, ResourceLookup, ResponseContent, short};
use super::message::{Protocol, STEP};
use super::push::DirtyAssignments;
use super::rollout::{Phase, Warming};
use super::set_subscription::{Difference, Sent};
use super::unresolved_nacks::content_of;
use super::{BuildPanic, LastPush, Response, Stream, catch_panic};
use crate::reason::Reasons;
use crate::version::Version;
use crate::view::{Resource, Set, Type};

impl Stream {
    /// Returns the next response. The writer holds it until [`Self::written`] is called; until then there is no other.
    pub fn next(&mut self, now: Duration) -> Option<Response> {
        if self.writer.is_busy() {
            return None;
        }
        let response = self.next_response(now)?;
        self.writer.begin(now);
        Some(response)
    }

    fn next_response(&mut self, now: Duration) -> Option<Response> {
        if let Some(answer) = self.answer(now) {
            return Some(answer);
        }
        if let Some(response) = self.bind_again(now) {
            return Some(response);
        }
        loop {
            if self.phase.is_free() && self.waiting.is_some() {
                self.begin(now);
            } else if self.phase.is_idle() && std::mem::take(&mut self.retained) {
                // Assignments of what is gone, where the client still wants them.
                self.dirty = DirtyAssignments::All;
            }
            // Assignments wait for nothing but the clusters of the same push.
            if !matches!(self.phase, Phase::Clusters)
                && let Some(response) = self.pushed_endpoints(now)
            {
                return Some(response);
            }
            let (response, next) = self.step(now)?;
            self.phase = next;
            self.returning = self.returning.filter(|_| self.phase.keeps_clusters());
            // A step without a response goes on to the next phase; phases lead forward, so the loop ends.
            if response.is_some() {
                return response;
            }
        }
    }

    /// Returns the answer to requests. Clusters stand before the assignments that they wait for.
    fn answer(&mut self, now: Duration) -> Option<Response> {
        if self.subscriptions.clusters.is_owed() || self.unknown.owes(Type::Cluster) {
            if let Some(target) = self.target(Type::Cluster) {
                let response = if matches!(self.phase, Phase::Returning) {
                    self.send_returning(target, now)
                } else {
                    // Listeners may still name clusters that vanish in a push under way: the answer keeps them.
                    Some(self.send_clusters(target, self.phase.keeps_clusters()).0)
                };
                if response.is_some() {
                    return response;
                }
            } else {
                self.give_up_clusters();
            }
        }
        if self.subscriptions.endpoints.is_owed() || self.unknown.owes(Type::Endpoint) {
            // What a push has changed goes with it.
            let dirty = self.take_dirty(now);
            let found = self.compare_endpoints(&dirty);
            if found.is_answer() {
                return Some(self.send_endpoints(found));
            }
        }
        if self.holds_listeners() {
            return self.answer_secrets();
        }
        if self.subscriptions.listeners.is_owed() || self.unknown.owes(Type::Listener) {
            if let Some(target) = self.target(Type::Listener) {
                return Some(self.send_listeners(&target, now));
            }
            self.subscriptions.listeners.give_up();
            self.unknown.give_up(Type::Listener);
        }
        if self.subscriptions.routes.is_owed() || self.unknown.owes(Type::Route) {
            let found = self.compare_named(Type::Route, &DirtyAssignments::None);
            if found.is_answer() {
                return Some(self.send_named(Type::Route, found));
            }
        }
        self.answer_secrets()
    }

    fn answer_secrets(&mut self) -> Option<Response> {
        if self.subscriptions.secrets.is_owed() {
            let found = self.compare_named(Type::Secret, &DirtyAssignments::None);
            // A missing secret is not mentioned, but where the client counts on it.
            if !found.is_empty() {
                return Some(self.send_secrets(found));
            }
        }
        self.send_next_secret()
    }

    /// The clusters or the listeners that the client is to have; nothing where they cannot be made.
    pub(super) fn target(&mut self, kind: Type) -> Option<Arc<Set>> {
        let target = match kind {
            Type::Listener => self
                .subscriptions
                .listeners
                .target(kind, &*self.views.published),
            Type::Cluster | Type::Endpoint | Type::Route | Type::Secret => self
                .subscriptions
                .clusters
                .target(kind, &*self.views.rolling),
        };
        if target.is_err() {
            self.failed.insert(kind);
        }
        target.ok()
    }

    /// A full push starts.
    fn begin(&mut self, now: Duration) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        self.views.rolling = waiting.view;
        self.unknown.retry();
        // An endpoints-only push that waited is part of it.
        let reasons = std::mem::take(&mut self.reasons).and(waiting.reasons);
        self.dirty = DirtyAssignments::All;
        self.phase = Phase::Clusters;
        self.note(now, reasons);
    }

    fn note(&mut self, now: Duration, reasons: Reasons) {
        self.last = Some(LastPush {
            at: now,
            reasons,
            types: Vec::new(),
        });
    }

    fn note_type(&mut self, kind: Type) {
        if let Some(last) = &mut self.last
            && !last.types.contains(&kind)
        {
            last.types.push(kind);
        }
    }

    fn pushed_endpoints(&mut self, now: Duration) -> Option<Response> {
        if self.dirty.is_none() {
            return None;
        }
        let dirty = self.take_dirty(now);
        let found = self.compare_endpoints(&dirty);
        if found.is_empty() {
            return None;
        }
        self.note_type(Type::Endpoint);
        Some(self.send_endpoints(found))
    }

    fn take_dirty(&mut self, now: Duration) -> DirtyAssignments {
        let reasons = std::mem::take(&mut self.reasons);
        if reasons != Reasons::NONE {
            self.note(now, reasons);
        }
        std::mem::take(&mut self.dirty)
    }

    /// One step of the push under way: a response, if there is something to say, and the phase after it. `None` when it waits.
    fn step(&mut self, now: Duration) -> Option<(Option<Response>, Phase)> {
        match &self.phase {
            Phase::Idle => None,
            Phase::AwaitingClusters { until } => {
                (now >= *until).then_some((None, Phase::Listeners))
            }
            // Its clusters were answered or given up before.
            Phase::Returning => Some((None, Phase::Idle)),
            Phase::Clusters => Some(self.step_clusters(now)),
            Phase::Warming(warming) => {
                let over = self.is_over(warming, now);
                // What only the view before had was left as it was.
                self.retained |= over;
                over.then_some((None, Phase::Listeners))
            }
            Phase::Listeners => Some(self.publish(now)),
            Phase::Routes => Some(self.step_routes(now)),
            Phase::Draining { until } => {
                let is_over = self.is_drained() || now >= *until;
                is_over.then(|| self.drop_clusters(now))
            }
            Phase::Dropped { nonce, until } => {
                let over = self.ack_states.clusters.has_reply_to(*nonce) || now >= *until;
                over.then_some((None, Phase::Idle))
            }
        }
    }

    /// Returns true if the wait for new clusters is over.
    fn is_over(&self, warming: &Warming, now: Duration) -> bool {
        let ack_states = &self.ack_states;
        // Nothing is there that must wait, and another push does.
        let bare = !ack_states.listeners.requested && !ack_states.routes.requested;
        // No listener waits for warm clusters, and the next push waits for accepted ones alone.
        let accepted_is_enough = bare && self.waiting.is_some();
        let is_accepted = warming.is_replied_to(&ack_states.clusters);
        warming.is_given_up(now, &ack_states.clusters)
            // Envoy accepts clusters only when they are warm, so its word for the assignments comes first.
            || (is_accepted && (accepted_is_enough || self.has_assignments(warming)))
    }

    /// Moves listeners and routes on to the view of the push under way.
    fn publish(&mut self, now: Duration) -> (Option<Response>, Phase) {
        let before = std::mem::replace(&mut self.views.published, self.views.rolling.clone());
        self.unknown.retry();
        match self.step_listeners(now) {
            Ok(response) => (response, Phase::Routes),
            // What the older listeners need stays with them.
            Err(BuildPanic) => {
                self.views.published = before;
                (None, Phase::Idle)
            }
        }
    }

    /// Sends routes, and secrets behind them.
    fn step_routes(&mut self, now: Duration) -> (Option<Response>, Phase) {
        if let Some(response) = self.step_named(Type::Route) {
            return (Some(response), Phase::Routes);
        }
        let response = self.step_named(Type::Secret);
        let until = now.saturating_add(STEP);
        let next = if self.has_vanished() {
            Phase::Draining { until }
        } else if self.retained {
            let nonce = self.ack_states.clusters.nonce();
            Phase::Dropped { nonce, until }
        } else {
            Phase::Idle
        };
        (response, next)
    }

    /// Sends the clusters without those that vanish: no listener names them any more.
    fn drop_clusters(&mut self, now: Duration) -> (Option<Response>, Phase) {
        let Some(target) = self.target(Type::Cluster) else {
            return (None, Phase::Idle);
        };
        let (response, _) = self.send_clusters(target, false);
        self.note_type(Type::Cluster);
        let nonce = response.nonce;
        let until = now.saturating_add(STEP);
        (Some(response), Phase::Dropped { nonce, until })
    }

    fn step_clusters(&mut self, now: Duration) -> (Option<Response>, Phase) {
        if !self.ack_states.clusters.requested {
            self.retained = true;
            return (None, Phase::Listeners);
        }
        let Some(target) = self.target(Type::Cluster) else {
            return (None, Phase::Idle);
        };
        let difference = Difference::between(self.subscriptions.clusters.sent(), &target);
        self.retained |= self.may_lose_assignments(&difference);
        // Nothing has to be made first; what vanishes goes last, when no listener names it.
        if difference.only_removes() {
            return (None, Phase::Listeners);
        }
        let (response, added) = self.send_clusters(target, true);
        self.note_type(Type::Cluster);
        // A changed cluster serves in its old form while it warms, so no listener waits for it.
        if added.is_empty() {
            return (Some(response), Phase::Listeners);
        }
        let wanted: BTreeSet<_> = added
            .iter()
            .map(|cluster| &cluster.name)
            // Only an EDS cluster has an assignment to wait for.
            .filter(|name| self.views.has(Type::Endpoint, name))
            .cloned()
            .collect();
        let warming = Warming::new(now, response.nonce, wanted);
        (Some(response), Phase::Warming(warming))
    }

    /// Returns true if a push with these clusters may take assignments away: they are compared before the view of the last push
    /// is replaced, which still has them.
    fn may_lose_assignments(&self, clusters: &Difference) -> bool {
        let rolling = &self.views.rolling;
        let has_none = |cluster: &Arc<Resource>| {
            if !self.subscriptions.endpoints.has(&cluster.name) {
                return false;
            }
            let assignment = catch_panic(|| rolling.get(Type::Endpoint, &cluster.name));
            matches!(assignment, Ok(None))
        };
        // A client with some of the clusters may want assignments of the others.
        !self.subscriptions.clusters.is_wildcard()
            || !clusters.gone.is_empty()
            || clusters.changed.iter().any(has_none)
    }

    fn step_listeners(&mut self, now: Duration) -> Result<Option<Response>, BuildPanic> {
        if !self.ack_states.listeners.requested {
            return Ok(None);
        }
        let target = self.target(Type::Listener).ok_or(BuildPanic)?;
        let (bindable, _) = self.bindable(Arc::clone(&target), now);
        let listeners = &self.subscriptions.listeners;
        if !listeners.is_owed() && listeners.sent().version() == bindable.version() {
            return Ok(None);
        }
        self.note_type(Type::Listener);
        Ok(Some(self.send_listeners(&target, now)))
    }

    fn step_named(&mut self, kind: Type) -> Option<Response> {
        let found = self.compare_named(kind, &DirtyAssignments::All);
        if found.is_empty() {
            return None;
        }
        self.note_type(kind);
        Some(match kind {
            Type::Secret => self.send_secrets(found),
            Type::Cluster | Type::Endpoint | Type::Listener | Type::Route => {
                self.send_named(kind, found)
            }
        })
    }

    /// The client has clusters that it is not to have.
    fn has_vanished(&self) -> bool {
        let target = self
            .subscriptions
            .clusters
            .target(Type::Cluster, &*self.views.rolling);
        let differs =
            |target: Arc<Set>| self.subscriptions.clusters.sent().version() != target.version();
        self.ack_states.clusters.requested && target.is_ok_and(differs)
    }

    /// The clusters that the client is to have, and with `keep` those that vanish. Says which are new to it.
    fn send_clusters(&mut self, target: Arc<Set>, keep: bool) -> (Response, Vec<Arc<Resource>>) {
        let sent = self
            .subscriptions
            .clusters
            .send(target, keep, self.protocol);
        self.respond_clusters(sent)
    }

    pub(super) fn respond_clusters(&mut self, sent: Sent) -> (Response, Vec<Arc<Resource>>) {
        // New or changed, they wait for an assignment that comes after this response.
        let fresh = sent.difference.fresh().map(|cluster| &cluster.name);
        self.subscriptions.endpoints.resend(fresh);
        let version = self.subscriptions.clusters.sent().version();
        let response = self.respond(Type::Cluster, version, sent.resources, sent.removed);
        (response, sent.difference.added)
    }

    fn compare_endpoints(&mut self, dirty: &DirtyAssignments) -> ResponseContent {
        let views = &self.views;
        let get = |name: &str| views.get(Type::Endpoint, name);
        let source = ResourceLookup {
            get: &get,
            absence: AbsenceSignal::of(Type::Endpoint, self.protocol, self.client),
            // A push keeps vanishing clusters until its end, and their assignments stay with them.
            hold: self.ack_states.clusters.requested && !self.phase.is_idle(),
            nonce: short(self.nonce.saturating_add(1)),
            lists: &self.lists,
        };
        let found = self.subscriptions.endpoints.changed(dirty, &source);
        self.retained |= found.retained;
        if found.failed {
            self.failed.insert(Type::Endpoint);
        }
        found
    }

    /// Routes or secrets.
    fn compare_named(&mut self, kind: Type, dirty: &DirtyAssignments) -> ResponseContent {
        let views = &self.views;
        let get = |name: &str| views.get(kind, name);
        let source = ResourceLookup {
            get: &get,
            absence: AbsenceSignal::of(kind, self.protocol, self.client),
            hold: false,
            nonce: short(self.nonce.saturating_add(1)),
            lists: &self.lists,
        };
        let subscription = match kind {
            Type::Secret => &mut self.subscriptions.secrets,
            Type::Cluster | Type::Endpoint | Type::Listener | Type::Route => {
                &mut self.subscriptions.routes
            }
        };
        let found = subscription.changed(dirty, &source);
        if found.failed {
            self.failed.insert(kind);
        }
        found
    }

    fn send_endpoints(&mut self, found: ResponseContent) -> Response {
        let response = self.send_named(Type::Endpoint, found);
        if let Phase::Warming(warming) = &mut self.phase {
            let resources = response.resources.iter().map(|resource| &resource.name);
            warming.sent(response.nonce, resources.chain(&response.removed));
        }
        response
    }

    fn send_named(&mut self, kind: Type, found: ResponseContent) -> Response {
        let version = match kind {
            Type::Route => self.subscriptions.routes.version(),
            Type::Secret => self.subscriptions.secrets.version(),
            Type::Cluster | Type::Endpoint | Type::Listener => {
                self.subscriptions.endpoints.version()
            }
        };
        self.respond(kind, version, found.resources, found.removed)
    }

    pub(super) fn respond(
        &mut self,
        kind: Type,
        version: Version,
        mut resources: Vec<Arc<Resource>>,
        mut removed: Vec<Arc<str>>,
    ) -> Response {
        let mut beyond = self.unknown.take_owed(kind);
        if !beyond.is_empty() {
            // A name may have come to be since it was asked for, or be asked for twice.
            let there: BTreeSet<&str> = resources.iter().map(|one| &*one.name).collect();
            beyond.retain(|name| !there.contains(&**name));
        }
        match AbsenceSignal::of(kind, self.protocol, self.client) {
            AbsenceSignal::Empty => {
                let empty = beyond.iter().map(|name| Arc::new(Resource::empty(name)));
                resources.extend(empty);
            }
            AbsenceSignal::Removed if !beyond.is_empty() => {
                removed.extend(beyond);
                removed.sort();
                removed.dedup();
            }
            AbsenceSignal::Removed | AbsenceSignal::Silence => {}
        }
        self.nonce = self.nonce.saturating_add(1);
        let is_delta = self.protocol == Protocol::Delta;
        let ack_state = self.ack_states.of_mut(kind);
        // The first response has all that there is, for thousands of clients at once after a start: what it had is what was sent.
        let content =
            (is_delta && !ack_state.is_silent()).then(|| content_of(&resources, &removed));
        ack_state.send(self.nonce, version, content);
        Response {
            kind,
            version,
            nonce: self.nonce,
            resources,
            removed,
        }
    }
}
