//! Listeners that get or lose a port of their own under the name that they have: each is removed, and comes again when the
//! client has answered that. Envoy 1.40 dies (SIGSEGV) of a listener that changes from `bind_to_port: false` to true as it
//! runs, and leaves the port open behind one that changes back: connections to it are never answered. After a removal they are
//! refused, unless the client answers before its threads have closed the port.
//!
//! A client may have its listeners from another stream: they change while it has none. In delta the version of each says whether
//! it was bound ([`Resource::binds`]). In state of the world the one version says whether the same ones were: if not, each that is
//! bound waits, but for those that always are. One that has lost its port is not told apart there.

use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use super::complete::Difference;
use super::message::{Response, STEP};
use crate::view::{Resource, Set, Type, VIRTUAL_INBOUND, VIRTUAL_OUTBOUND};

/// Listeners that are removed so that they can come again.
#[derive(Debug)]
pub(super) struct Rebinding {
    /// Sorted.
    names: Vec<Arc<str>>,
    /// The nonce of the response without them.
    nonce: u64,
    until: Duration,
}

impl Stream {
    /// When listeners come again even though the client has not answered.
    pub(super) fn rebinding_deadline(&self) -> Option<Duration> {
        self.rebinding.as_ref().map(|rebinding| rebinding.until)
    }

    /// The client has answered that they are gone, or was given its time.
    pub(super) fn may_bind_again(&self, now: Duration) -> bool {
        self.rebinding.as_ref().is_some_and(|rebinding| {
            self.ack_states.listeners.has_answered(rebinding.nonce) || now >= rebinding.until
        })
    }

    /// The listeners of these that may be sent now, and the names of those that have to wait.
    pub(super) fn bindable(&self, target: Arc<Set>, now: Duration) -> (Arc<Set>, Vec<Arc<str>>) {
        let sent = self.listeners.sent();
        if sent.version() == target.version() {
            return (target, Vec::new());
        }
        // Elsewhere all are bound.
        let is_intercepted = target.get(VIRTUAL_OUTBOUND).is_some();
        let may_turn = |listener: &Resource| {
            let is_fixed = [VIRTUAL_OUTBOUND, VIRTUAL_INBOUND].contains(&&*listener.name);
            is_intercepted && !is_fixed && listener.binds() == Some(true)
        };
        let turns = |listener: &&Arc<Resource>| {
            match sent.get(&listener.name).and_then(|known| known.binds()) {
                Some(before) => listener.binds() != Some(before),
                // It came from a server that did not say.
                None => may_turn(listener),
            }
        };
        let changed = Difference::between(sent, &target).changed;
        let mut waiting: Vec<_> = changed
            .iter()
            .filter(turns)
            .map(|listener| listener.name.clone())
            .collect();
        let brought = self.listeners.brought();
        if brought.is_some_and(|version| version.mark() != target.version().mark()) {
            let bound = target.iter().filter(|listener| may_turn(listener));
            waiting.extend(bound.map(|listener| listener.name.clone()));
        }
        if let Some(rebinding) = &self.rebinding
            && !self.may_bind_again(now)
        {
            waiting.extend(rebinding.names.iter().cloned());
        }
        waiting.sort();
        waiting.dedup();
        waiting.retain(|name| target.get(name).is_some());
        if waiting.is_empty() {
            return (target, waiting);
        }
        let is_free = |listener: &&Arc<Resource>| waiting.binary_search(&listener.name).is_err();
        let free = target.iter().filter(is_free).cloned().collect();
        (Arc::new(free), waiting)
    }

    pub(super) fn send_listeners(&mut self, target: Arc<Set>, now: Duration) -> Response {
        let (target, waiting) = self.bindable(target, now);
        let sent = self.listeners.send(target, false, self.protocol);
        let version = self.listeners.sent().version();
        let response = self.respond(Type::Listener, version, sent.resources, sent.removed);
        // A push that comes meanwhile prolongs nothing.
        let until = self.rebinding_deadline().filter(|until| *until > now);
        self.rebinding = (!waiting.is_empty()).then(|| Rebinding {
            names: waiting,
            nonce: response.nonce,
            until: until.unwrap_or_else(|| now.saturating_add(STEP)),
        });
        response
    }

    /// The listeners that were removed, as they are to be now.
    pub(super) fn bind_again(&mut self, now: Duration) -> Option<Response> {
        if !self.may_bind_again(now) {
            return None;
        }
        let Some(target) = self.target(Type::Listener) else {
            // They are part of the next push.
            self.rebinding = None;
            return None;
        };
        if self.listeners.sent().version() == target.version() {
            self.rebinding = None;
            return None;
        }
        Some(self.send_listeners(target, now))
    }
}
