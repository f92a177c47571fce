//! The names of a request: what the client subscribes, and what it has of it already.

use std::borrow::Cow;
use std::time::Duration;

use super::lookup::{AbsenceSignal, ResourceLookup, short};
use super::message::{Fault, Protocol, Request};
use super::set_subscription::{Arrival, sorted};
use super::unknown_names::RequestedNames;
use super::{Stream, catch_panic};
use crate::version::Version;
use crate::view::Type;

impl Stream {
    /// Takes the names of a request in.
    pub(super) fn subscribe(
        &mut self,
        now: Duration,
        request: &Request,
        is_first: bool,
    ) -> Result<(), Fault> {
        if request.kind.is_complete() {
            self.subscribe_set(now, request, is_first)
        } else {
            self.subscribe_named(request, is_first)
        }
    }

    fn subscribe_set(
        &mut self,
        now: Duration,
        request: &Request,
        is_first: bool,
    ) -> Result<(), Fault> {
        let kind = request.kind;
        let view = match kind {
            Type::Listener => &*self.views.published,
            Type::Cluster | Type::Endpoint | Type::Route | Type::Secret => &*self.views.rolling,
        };
        let Some(subscription) = self.subscriptions.set_mut(kind) else {
            return Ok(());
        };
        let client = self.client;
        let names = sorted(request.names.iter().filter(|name| *name != "*"));
        let absence = AbsenceSignal::of(kind, self.protocol, client);
        let asked = RequestedNames {
            names: &names,
            all: self.protocol == Protocol::StateOfTheWorld,
            signals_absence: absence != AbsenceSignal::Silence,
            is_subscribed: &|name| subscription.has(name),
            is_there: &|name| !matches!(catch_panic(|| view.name(kind, name)), Ok(None)),
        };
        let accepted = self.unknown.subscribe(kind, &asked)?;
        // A request without names means all that there is, but for a later one in delta: one name stays.
        let means_all = is_first || self.protocol == Protocol::StateOfTheWorld;
        let accepted = if accepted.is_empty() && means_all {
            names.get(..1).unwrap_or_default()
        } else {
            &*accepted
        };
        let request = if accepted.len() == names.len() {
            Cow::Borrowed(request)
        } else {
            Cow::Owned(with_names(request, accepted))
        };
        let gone = sorted(request.unsubscribe.iter().map(String::as_str));
        self.unknown.unsubscribe(kind, &gone);
        let (mut arrival, mut forgotten) = (Arrival::New, Vec::new());
        match (self.protocol, is_first) {
            (Protocol::StateOfTheWorld, true) => {
                arrival = subscription.begin(&request, client, view);
            }
            (Protocol::Delta, true) => {
                (arrival, forgotten) =
                    subscription.begin_delta(&request, client, view, &mut self.unknown);
            }
            (Protocol::StateOfTheWorld, false) => subscription.rename(&request, client),
            (Protocol::Delta, false) => subscription.rename_delta(&request, client),
        }
        if arrival == Arrival::Current {
            let version = subscription.sent().version();
            self.ack_states.of_mut(kind).agree(version);
        }
        if !self.unknown.answer(kind, &forgotten) {
            return Err(Fault::UnknownNames);
        }
        if is_first {
            self.arrived(now, &request, arrival);
        }
        Ok(())
    }

    /// Lets a client that came with what it has of another stream take the steps of one that returns.
    fn arrived(&mut self, now: Duration, request: &Request, arrival: Arrival) {
        let has_versions = !(request.version.is_empty() && request.initial.is_empty());
        if request.kind == Type::Cluster {
            self.clusters_arrived(now, arrival);
        } else if has_versions && self.subscriptions.listeners.is_wildcard() {
            self.listeners_arrived(now);
        }
    }

    fn subscribe_named(&mut self, request: &Request, is_first: bool) -> Result<(), Fault> {
        let kind = request.kind;
        let Some(known) = self.subscriptions.named(kind) else {
            return Ok(());
        };
        // An ACK has all names once more, be it in another order: the list stays the one that others have, too.
        let may_repeat = self.protocol == Protocol::StateOfTheWorld && !is_first;
        if may_repeat && known.is_exactly(&request.names) {
            return Ok(());
        }
        let names = sorted(request.names.iter().filter(|name| *name != "*"));
        if may_repeat && known.are(&names) {
            return Ok(());
        }
        let absence = AbsenceSignal::of(kind, self.protocol, self.client);
        let views = &self.views;
        let asked = RequestedNames {
            names: &names,
            all: self.protocol == Protocol::StateOfTheWorld,
            // A missing secret is not mentioned.
            signals_absence: absence != AbsenceSignal::Silence && kind != Type::Secret,
            is_subscribed: &|name| known.has(name),
            is_there: &|name| !matches!(views.name(kind, name), Ok(None)),
        };
        let names = self.unknown.subscribe(kind, &asked)?;
        self.rename(request, is_first, &names);
        Ok(())
    }

    /// Applies the names of a request by name. A first request may say that the client has all of them.
    fn rename(&mut self, request: &Request, is_first: bool, names: &[&str]) {
        let kind = request.kind;
        let gone = sorted(request.unsubscribe.iter().map(String::as_str));
        self.unknown.unsubscribe(kind, &gone);
        // While clusters warm, Envoy holds its request for them back; they wait for assignments that it may have already.
        let trusted = is_first && (kind != Type::Endpoint || self.has_current_clusters());
        let views = &self.views;
        let shared = |name: &str| views.shared(kind, name);
        let source = ResourceLookup {
            get: &|name| views.get(kind, name),
            absence: AbsenceSignal::of(kind, self.protocol, self.client),
            hold: kind == Type::Endpoint && self.holds_assignments(),
            nonce: 0,
            lists: &self.lists,
        };
        let last = short(self.ack_states.of(kind).nonce());
        let Some(subscription) = self.subscriptions.named_mut(kind) else {
            return;
        };
        let agreed = match self.protocol {
            Protocol::StateOfTheWorld => {
                subscription.replace(names, last, &shared);
                trusted && subscription.agree(Version::parse(&request.version), &source)
            }
            Protocol::Delta => {
                subscription.add(names, &shared);
                let initial = initial_versions(request);
                let may_agree = trusted || source.hold;
                let agreed = may_agree && subscription.agree_each(&initial, trusted, &source);
                subscription.remove(&gone);
                agreed && !names.is_empty()
            }
        };
        if agreed {
            let version = subscription.version();
            self.ack_states.of_mut(kind).agree(version);
        }
    }

    /// The client came with the current clusters, and was sent none since.
    fn has_current_clusters(&self) -> bool {
        let ack_state = &self.ack_states.clusters;
        ack_state.requested && ack_state.is_silent() && !self.subscriptions.clusters.is_owed()
    }
}

/// A request with these names alone, and the wildcard if it has one.
fn with_names(request: &Request, names: &[&str]) -> Request {
    let wildcard = request.names.iter().filter(|name| *name == "*");
    Request {
        names: wildcard.chain(names.iter().copied()).collect(),
        ..request.clone()
    }
}

/// The names and versions that a delta client says it has, sorted.
fn initial_versions(request: &Request) -> Vec<(&str, &str)> {
    let all = request.initial.iter();
    let mut initial: Vec<_> = all
        .map(|(name, version)| (name.as_str(), version.as_str()))
        .collect();
    initial.sort_unstable();
    initial
}
