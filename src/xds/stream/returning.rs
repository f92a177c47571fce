//! Clients that come with clusters of another stream: after a restart of the server or of another one that they had, or a cut.
//!
//! Envoy names its versions and asks for everything at once. Its routes may name clusters that are gone, and those that it is to have
//! may name clusters that it has not yet. So the answer takes the steps of a push (see `rollout`): requests for listeners and routes
//! wait until the new clusters are warm, and in delta what is gone stays until they are answered. In state of the world the client
//! says one version for all, so that any of its clusters may be new to it, and those that are gone cannot be kept: nobody knows them.
//!
//! A client without versions has nothing to lose, and one that names its clusters learns of them from its routes: neither waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use super::ack_state::AckState;
use super::message::{Protocol, Response, STEP};
use super::rollout::{Phase, Warming};
use crate::view::{Set, Type};

/// The time that listeners wait for new clusters where requests of a new stream come late: a push may stand behind them.
const LATE: Duration = STEP.saturating_mul(2);

impl Stream {
    /// A client came with clusters that differ from those that it is to have.
    pub(super) fn begin_return(&mut self, now: Duration) {
        self.returning = Some(now.saturating_add(LATE));
        self.phase = Phase::Returning;
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
