//! Listeners that get or lose a port of their own under the name that they have: each is removed, and comes again when the
//! client has answered that. Envoy 1.40 dies (SIGSEGV) of a listener that changes from `bind_to_port: false` to true as it
//! runs, and leaves the port open behind one that changes back: connections to it are never answered. It does so, too, behind one
//! that comes again before its threads have closed the port, and answers before they have: it is given [`CLOSING`].
//!
//! A client may have its listeners from another stream: they change while it has none. In delta the version of each says whether
//! it was bound ([`Resource::binds`]). In state of the world the one version has the sum of their marks, and [`turned_since`] says
//! which may have turned.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use super::message::{Response, STEP};
use super::set_subscription::Difference;
use crate::version::Version;
use crate::view::{Resource, Set, Type, VIRTUAL_INBOUND, VIRTUAL_OUTBOUND, mark_of_bound};

/// The time that a client's threads are given to close a port, from its answer on. Chosen: they take a millisecond, and a hundred
/// where eight others want each processor.
pub(super) const CLOSING: Duration = Duration::from_millis(200);

/// Returns true if it has a port of its own at all times.
fn is_fixed(listener: &Resource) -> bool {
    [VIRTUAL_OUTBOUND, VIRTUAL_INBOUND].contains(&&*listener.name)
}

/// Returns true if it is at an address that every machine has, or at none. Behind another one is a service: its connections need
/// not suffer for what cannot be bound.
fn is_local(listener: &Resource) -> bool {
    let address = listener.name.rsplit_once('_').map(|(address, _)| address);
    let address = address.and_then(|address| address.parse().ok());
    address.is_none_or(|address: IpAddr| address.is_loopback() || address.is_unspecified())
}

/// The listeners of these that may have turned since a client was sent others, of which the version is known. One is found if
/// its mark alone is the difference. Else each that is bound may have got its port, and each local one may have lost it, unless
/// none was there to be lost.
fn turned_since(before: Version, target: &Set) -> Vec<Arc<str>> {
    let (before, now) = (before.mark(), target.version().mark());
    if before == now {
        return Vec::new();
    }
    let (fixed, others): (Vec<_>, Vec<_>) = target.iter().partition(|one| is_fixed(one));
    // The sum of marks rises by a listener's mark when it gets its port, and falls by it when it loses it.
    let is_only = |listener: &&&Arc<Resource>| match listener.version.mark() {
        0 => before.wrapping_sub(now) == mark_of_bound(&listener.name),
        mark => now.wrapping_sub(before) == mark,
    };
    if let Some(only) = others.iter().find(is_only) {
        return vec![only.name.clone()];
    }
    let always = fixed.iter().map(|listener| listener.version.mark());
    let none_was_bound = before == always.fold(0, u32::wrapping_add);
    let may_have_turned = |listener: &&Arc<Resource>| {
        listener.binds() == Some(true) || (!none_was_bound && is_local(listener))
    };
    let turned = others.into_iter().filter(may_have_turned);
    turned.map(|listener| listener.name.clone()).collect()
}

/// Listeners that are removed so that they can come again.
#[derive(Debug)]
pub(super) struct Rebinding {
    /// Sorted.
    names: Vec<Arc<str>>,
    /// One of them has lost its port.
    loses: bool,
    /// The nonce of the response without them.
    nonce: u64,
    /// The time at which the ports are closed; `None`: the client has not answered, or has none to close.
    closed: Option<Duration>,
    until: Duration,
}

impl Stream {
    /// Returns the time at which listeners come again even though the client has not answered.
    pub(super) fn rebinding_deadline(&self) -> Option<Duration> {
        let rebinding = self.rebinding.as_ref()?;
        Some(rebinding.closed.unwrap_or(rebinding.until))
    }

    /// A request for listeners came.
    pub(super) fn note_closing(&mut self, now: Duration) {
        if let Some(rebinding) = &mut self.rebinding
            && rebinding.loses
            && self.ack_states.listeners.has_reply_to(rebinding.nonce)
        {
            let closed = now.saturating_add(CLOSING);
            rebinding.closed.get_or_insert(closed);
        }
    }

    /// The client has answered that they are gone, or was given its time.
    pub(super) fn may_bind_again(&self, now: Duration) -> bool {
        self.rebinding.as_ref().is_some_and(|rebinding| {
            let has_reply = self.ack_states.listeners.has_reply_to(rebinding.nonce);
            match rebinding.closed {
                Some(closed) => now >= closed,
                None => has_reply && !rebinding.loses || now >= rebinding.until,
            }
        })
    }

    /// The listeners of these that may be sent now, and the names of those that have to wait.
    pub(super) fn bindable(&self, target: Arc<Set>, now: Duration) -> (Arc<Set>, Vec<Arc<str>>) {
        let sent = self.subscriptions.listeners.sent();
        if sent.version() == target.version() {
            return (target, Vec::new());
        }
        // Elsewhere all are bound.
        let is_intercepted = target.get(VIRTUAL_OUTBOUND).is_some();
        let turns = |listener: &&Arc<Resource>| {
            match sent.get(&listener.name).and_then(|known| known.binds()) {
                Some(before) => listener.binds() != Some(before),
                // It came from a server that did not say.
                None => is_intercepted && !is_fixed(listener) && listener.binds() == Some(true),
            }
        };
        let changed = Difference::between(sent, &target).changed;
        let mut waiting: Vec<_> = changed
            .iter()
            .filter(turns)
            .map(|listener| listener.name.clone())
            .collect();
        if let Some(before) = self
            .subscriptions
            .listeners
            .brought()
            .filter(|_| is_intercepted)
        {
            waiting.extend(turned_since(before, &target));
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

    pub(super) fn send_listeners(&mut self, target: &Arc<Set>, now: Duration) -> Response {
        let (bindable, waiting) = self.bindable(Arc::clone(target), now);
        let mut turned = waiting.iter().filter_map(|name| target.get(name));
        let loses = turned.any(|listener| listener.binds() == Some(false));
        let sent = self
            .subscriptions
            .listeners
            .send(bindable, false, self.protocol);
        let version = self.subscriptions.listeners.sent().version();
        let response = self.respond(Type::Listener, version, sent.resources, sent.removed);
        // A push that comes meanwhile prolongs nothing.
        let until = self.rebinding.as_ref().map(|rebinding| rebinding.until);
        let until = until.filter(|until| *until > now);
        self.rebinding = (!waiting.is_empty()).then(|| Rebinding {
            names: waiting,
            loses,
            nonce: response.nonce,
            closed: None,
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
        if self.subscriptions.listeners.sent().version() == target.version() {
            self.rebinding = None;
            return None;
        }
        Some(self.send_listeners(&target, now))
    }
}
