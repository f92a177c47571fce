//! Clients that come with clusters of another stream: after a restart of the server or of another one that they had, or a cut.
//!
//! Envoy names its versions and asks for everything at once. Its routes may name clusters that are gone, and those that it is to have
//! may name clusters that it has not yet. So the answer takes the steps of a push (see `rollout`): requests for listeners and routes
//! wait until the new clusters are warm, and in delta what is gone stays until they are answered. In state of the world the client
//! says one version for all, so that any of its clusters may be new to it, and those that are gone cannot be kept: nobody knows them.
//!
//! While clusters warm, Envoy holds its request for them back, and asks for assignments, listeners and routes alone: those of a
//! server that knows newer clusters would lead to what it has not. The assignments that it is sent at once end its wait, and its
//! listeners and routes wait for the request for clusters that follows. It asks for types in the order in which it first wanted
//! them: for assignments last if its first clusters needed none. So nothing tells it from a client that has its clusters from
//! elsewhere, which waits for two seconds each time that it comes back.
//!
//! A client without versions has nothing to lose, and one that names its clusters or listeners learns of them from its routes: they
//! wait for nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use super::ack_state::AckState;
use super::message::{Client, Protocol, Response, STEP};
use super::rollout::{Phase, Warming};
use super::set_subscription::Arrival;
use crate::view::{Set, Type};

/// The time that listeners wait for new clusters where requests of a new stream come late: a push may stand behind them.
const LATE: Duration = STEP.saturating_mul(2);

impl Stream {
    /// A client came with clusters that differ from those that it is to have.
    fn begin_return(&mut self, now: Duration) {
        // The wait for its request for clusters is part of all.
        let last = now.saturating_add(LATE);
        self.returning.get_or_insert(last);
        self.phase = Phase::Returning;
    }

    /// A client came with listeners of another stream.
    pub(super) fn listeners_arrived(&mut self, now: Duration) {
        if !self.ack_states.clusters.requested && self.client == Client::Envoy {
            self.returning = Some(now.saturating_add(LATE));
            let until = now.saturating_add(STEP);
            self.phase = Phase::AwaitingClusters { until };
        }
    }

    /// A client has asked for clusters for the first time.
    pub(super) fn clusters_arrived(&mut self, now: Duration, arrival: Arrival) {
        match arrival {
            Arrival::Behind => self.begin_return(now),
            Arrival::New | Arrival::Current => {
                if matches!(self.phase, Phase::AwaitingClusters { .. }) {
                    self.returning = None;
                    self.phase = Phase::Listeners;
                }
            }
        }
    }

    /// Returns true if assignments of clusters that are gone stay as the client came with them. One whose clusters warm waits for
    /// all that it asks for.
    pub(super) fn holds_assignments(&self) -> bool {
        self.returning.is_some() && self.ack_states.clusters.requested
    }

    /// Returns true if requests for listeners and routes wait for new clusters: no older view has an answer to them.
    pub(super) fn holds_listeners(&self) -> bool {
        self.returning.is_some() && self.phase.keeps_listeners()
    }

    /// Answers such a client, and begins with the steps. `None`: there is nothing to say before the last of them.
    pub(super) fn send_returning(&mut self, target: Arc<Set>, now: Duration) -> Option<Response> {
        // Those beyond the bound that a stream remembers go with the others that are gone.
        let beyond = self.unknown.take_owed(Type::Cluster);
        self.subscriptions.clusters.add_reported(&beyond);
        let sent = self
            .subscriptions
            .clusters
            .send(target, true, self.protocol);
        // Their assignments were left as they were.
        self.retained = true;
        self.phase = Phase::Listeners;
        if self.protocol == Protocol::Delta && sent.is_empty() {
            let version = self.subscriptions.clusters.sent().version();
            self.ack_states.clusters.agree(version);
            return None;
        }
        let (response, added) = self.respond_clusters(sent);
        if !added.is_empty() {
            // They may be all that there are, so that [`Self::has_assignments`] looks for them when it is asked.
            let wanted = BTreeSet::new();
            self.phase = Phase::Warming(Warming::new(now, response.nonce, wanted));
        }
        Some(response)
    }

    /// Gives up an answer with clusters that cannot be made: nothing else waits for it.
    pub(super) fn give_up_clusters(&mut self) {
        self.subscriptions.clusters.give_up();
        self.unknown.give_up(Type::Cluster);
        if matches!(self.phase, Phase::Returning) {
            self.phase = Phase::Idle;
            self.returning = None;
        }
    }

    /// The client has the assignments of new clusters.
    pub(super) fn has_assignments(&self, warming: &Warming) -> bool {
        let endpoints = &self.ack_states.endpoints;
        if self.returning.is_some() {
            return endpoints.has_all_replies() && self.has_asked_for_assignments();
        }
        warming.has_assignments(endpoints)
    }

    /// The client has asked for the assignments of all EDS clusters that it has.
    fn has_asked_for_assignments(&self) -> bool {
        let mut asked = self.subscriptions.endpoints.names().peekable();
        let clusters = self.subscriptions.clusters.sent();
        clusters.iter().all(|cluster| {
            let name = &cluster.name;
            while asked.next_if(|asked| *asked < name).is_some() {}
            asked.next_if(|asked| *asked == name).is_some() || !self.views.has(Type::Endpoint, name)
        })
    }

    /// The client has answered the listeners and routes of a push. One that came back has asked for clusters first, and its
    /// requests for the others may be on their way.
    pub(super) fn is_drained(&self) -> bool {
        let is_answered = |ack_state: &AckState| {
            ack_state.has_all_replies() && (ack_state.requested || self.returning.is_none())
        };
        is_answered(&self.ack_states.listeners) && is_answered(&self.ack_states.routes)
    }
}
