//! The clusters or listeners of a client: all of them, or some by name.
//!
//! The resources sent are a set, shared with every stream that has the same. So a stream with all clusters keeps one pointer.

use std::sync::Arc;

use super::message::{Client, MAX_NAME_BYTES, Protocol, Request, UNKNOWN_NAMES};
use super::unknown_names::UnknownNames;
use super::{BuildPanic, catch_panic};
use crate::version::Version;
use crate::view::{Resource, Set, Type, View};

#[derive(Debug, Default)]
pub(super) struct SetSubscription {
    wildcard: bool,
    /// Asked for by name, sorted.
    names: Vec<Arc<str>>,
    /// Delta: those of them that the next response speaks of, whatever was sent before. Sorted.
    again: Vec<Arc<str>>,
    /// A response is owed.
    owed: bool,
    sent: Arc<Set>,
    /// State of the world: the version that the client has by another stream, until it is sent another on this one.
    brought: Option<Version>,
}

/// The relation between what a client has when it comes and what it is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The client has no resource, or changes what it has in place.
    New,
    /// The client has all resources already.
    Current,
    /// The client lacks some resources, or has some that are gone: in state of the world it may.
    Behind,
}

/// Between two sets.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) added: Vec<Arc<Resource>>,
    pub(super) changed: Vec<Arc<Resource>>,
    pub(super) gone: Vec<Arc<Resource>>,
}

impl Difference {
    pub(super) fn between(old: &Set, new: &Set) -> Self {
        let mut difference = Self::default();
        let mut old = old.iter().peekable();
        for resource in new {
            while let Some(gone) = old.next_if(|known| known.name < resource.name) {
                difference.gone.push(gone.clone());
            }
            match old.next_if(|known| known.name == resource.name) {
                None => difference.added.push(resource.clone()),
                Some(known) if known.version != resource.version => {
                    difference.changed.push(resource.clone());
                }
                Some(_) => {}
            }
        }
        difference.gone.extend(old.cloned());
        difference
    }

    pub(super) fn is_empty(&self) -> bool {
        self.only_removes() && self.gone.is_empty()
    }

    /// Returns true if no resource came or changed.
    pub(super) fn only_removes(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty()
    }

    pub(super) fn fresh(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.added.iter().chain(&self.changed)
    }
}

impl SetSubscription {
    pub(super) fn is_owed(&self) -> bool {
        self.owed
    }

    pub(super) fn sent(&self) -> &Arc<Set> {
        &self.sent
    }

    pub(super) fn brought(&self) -> Option<Version> {
        self.brought
    }

    pub(super) fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The resources that the client is to have.
    pub(super) fn target(&self, kind: Type, view: &dyn View) -> Result<Arc<Set>, BuildPanic> {
        catch_panic(|| {
            if self.wildcard {
                return view.all(kind);
            }
            let named = self.names.iter().filter_map(|name| view.get(kind, name));
            Arc::new(named.collect())
        })
    }

    /// Gives up a response that cannot be made: its client waits for the next push.
    pub(super) fn give_up(&mut self) {
        self.owed = false;
    }

    fn is_subscribed(&self) -> bool {
        self.wildcard || !self.names.is_empty()
    }

    /// State of the world, first request.
    pub(super) fn begin(&mut self, request: &Request, client: Client, view: &dyn View) -> Arrival {
        let names = sorted(request.names.iter());
        // gRPC has no wildcard: it names each resource that it wants.
        self.wildcard = client == Client::Envoy && (names.is_empty() || names.contains(&"*"));
        self.names = by_name(&names);
        let target = self.target(request.kind, view);
        let version = Some(&request.version).filter(|version| !version.is_empty());
        let version = version.map(|version| parsed(version));
        match target {
            Ok(target) if version == Some(target.version()) => {
                self.sent = target;
                Arrival::Current
            }
            Ok(_) | Err(BuildPanic) => {
                self.brought = version;
                self.owed = self.is_subscribed();
                match version {
                    Some(_) if self.wildcard => Arrival::Behind,
                    Some(_) | None => Arrival::New,
                }
            }
        }
    }

    /// State of the world, a later request. A wildcard stays when a request has no names, as an ACK has none.
    pub(super) fn rename(&mut self, request: &Request, client: Client) {
        let names = sorted(request.names.iter());
        if names.contains(&"*") && client == Client::Envoy {
            self.owed |= !self.wildcard;
            self.wildcard = true;
            return;
        }
        if names.is_empty() && self.wildcard {
            return;
        }
        let names = by_name(&names);
        let is_new = |name: &Arc<str>| {
            let known = if self.wildcard {
                self.sent.get(name).is_some()
            } else {
                self.names.binary_search(name).is_ok()
            };
            !known
        };
        self.owed |= names.iter().any(is_new);
        self.wildcard = false;
        self.names = names;
        self.narrow();
    }

    /// Asked for by name, or sent.
    pub(super) fn has(&self, name: &str) -> bool {
        let found = self.names.binary_search_by(|known| (**known).cmp(name));
        found.is_ok() || self.sent.get(name).is_some()
    }

    /// Delta, first request. Returns the names without a resource, too, that the client has and that are too many, or too long, to
    /// be remembered: it is to be told that they are gone.
    pub(super) fn begin_delta<'a>(
        &mut self,
        request: &'a Request,
        client: Client,
        view: &dyn View,
        reported: &mut UnknownNames,
    ) -> (Arrival, Vec<&'a str>) {
        let names = sorted(request.names.iter());
        // gRPC has no wildcard: it names each resource that it wants.
        self.wildcard = client == Client::Envoy && (names.is_empty() || names.contains(&"*"));
        self.names = by_name(&names);
        let (mut unknown, mut forgotten) = (0, Vec::new());
        let has = request.initial.iter().filter_map(|(name, version)| {
            let shared = catch_panic(|| view.name(request.kind, name)).ok().flatten();
            let name = match shared {
                Some(shared) => shared,
                None if unknown < UNKNOWN_NAMES
                    && name.len() <= MAX_NAME_BYTES
                    && reported.reserve(name) =>
                {
                    unknown += 1;
                    name.as_str().into()
                }
                None => {
                    forgotten.push(name.as_str());
                    return None;
                }
            };
            Some(reported_resource(name, version))
        });
        self.sent = Arc::new(has.collect());
        self.narrow();
        let Ok(target) = self.target(request.kind, view) else {
            self.owed = self.is_subscribed();
            return (Arrival::New, forgotten);
        };
        let is_missing =
            |name: &&Arc<str>| self.sent.get(name).is_none() && target.get(name).is_none();
        // A subscribed name without a resource belongs in `removed_resources` of the next answer.
        self.again = self.names.iter().filter(is_missing).cloned().collect();
        // Whoever has nothing waits for an answer, be it that there is nothing.
        let waits = self.is_subscribed() && (self.sent.is_empty() || !self.again.is_empty());
        let difference = Difference::between(&self.sent, &target);
        if !waits && difference.is_empty() && forgotten.is_empty() {
            self.sent = target;
            let arrival = match self.is_subscribed() {
                true => Arrival::Current,
                false => Arrival::New,
            };
            return (arrival, forgotten);
        }
        self.owed = self.is_subscribed();
        let has_lost = !(difference.gone.is_empty() && forgotten.is_empty());
        let is_behind = has_lost || !(difference.added.is_empty() || self.sent.is_empty());
        let arrival = match self.wildcard && is_behind {
            true => Arrival::Behind,
            false => Arrival::New,
        };
        (arrival, forgotten)
    }

    /// Adds resources that the client has by another stream, and that there are none of. Each has a version of its own, by which the set
    /// differs from one without it.
    pub(super) fn add_reported(&mut self, names: &[Arc<str>]) {
        if names.is_empty() {
            return;
        }
        let reported = names.iter().map(|name| {
            let version = Version::of(name.as_bytes());
            Arc::new(Resource::without_body(name.clone(), version))
        });
        self.sent = Arc::new(self.sent.iter().cloned().chain(reported).collect());
    }

    /// Delta, a later request.
    pub(super) fn rename_delta(&mut self, request: &Request, client: Client) {
        let names = sorted(request.names.iter());
        if names.contains(&"*") && client == Client::Envoy {
            self.owed |= !self.wildcard;
            self.wildcard = true;
        }
        let names = by_name(&names);
        // A name that is subscribed again is sent again, whatever the client has.
        self.owed |= !names.is_empty();
        merge(&mut self.again, &names);
        merge(&mut self.names, &names);
        let gone = sorted(request.unsubscribe.iter().map(String::as_str));
        if gone.is_empty() {
            return;
        }
        self.wildcard &= !gone.contains(&"*");
        for names in [&mut self.names, &mut self.again] {
            names.retain(|name| gone.binary_search(&&**name).is_err());
        }
        self.narrow();
    }

    /// Without a wildcard the client has what it names and nothing else.
    fn narrow(&mut self) {
        let names = &self.names;
        let is_named = |resource: &&Arc<Resource>| names.binary_search(&resource.name).is_ok();
        if !self.wildcard && !self.sent.iter().all(|resource| is_named(&resource)) {
            self.sent = Arc::new(self.sent.iter().filter(is_named).cloned().collect());
        }
    }

    /// Makes the client's content that of `target`. With `keep`, what is gone stays there as it was.
    pub(super) fn send(&mut self, target: Arc<Set>, keep: bool, protocol: Protocol) -> Sent {
        let difference = Difference::between(&self.sent, &target);
        let after = if keep && !difference.gone.is_empty() {
            let retained = difference.gone.iter();
            Arc::new(target.iter().chain(retained).cloned().collect())
        } else {
            target
        };
        let again = std::mem::take(&mut self.again);
        let (resources, removed) = match protocol {
            // What is kept has to be in the response: the client takes what is missing for gone.
            Protocol::StateOfTheWorld => (after.members().to_vec(), Vec::new()),
            Protocol::Delta => {
                // What the client came with and is gone has no content that could be sent.
                let is_there = |name: &Arc<str>| after.get(name).filter(|one| !one.body.is_empty());
                let known = again.iter().filter_map(is_there);
                let fresh: Set = difference.fresh().chain(known).cloned().collect();
                let missing = again.iter().filter(|name| is_there(name).is_none());
                let mut removed: Vec<_> = missing.cloned().collect();
                if !keep {
                    let gone = difference.gone.iter().map(|gone| gone.name.clone());
                    removed.extend(gone);
                    removed.sort();
                    removed.dedup();
                }
                (fresh.members().to_vec(), removed)
            }
        };
        self.sent = after;
        self.brought = None;
        self.owed = false;
        Sent {
            resources,
            removed,
            difference,
        }
    }
}

/// The content of one response, and the difference that it makes.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) resources: Vec<Arc<Resource>>,
    pub(super) removed: Vec<Arc<str>>,
    pub(super) difference: Difference,
}

impl Sent {
    /// The response says nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }
}

/// Sorted, each once.
pub(super) fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The wildcard is no name.
fn by_name(names: &[&str]) -> Vec<Arc<str>> {
    let names = names.iter().filter(|name| **name != "*");
    names.map(|name| Arc::from(*name)).collect()
}

/// Merges a sorted list into another, each name once.
fn merge(into: &mut Vec<Arc<str>>, names: &[Arc<str>]) {
    into.extend(names.iter().cloned());
    into.sort();
    into.dedup();
}

/// A resource that a client reports to have, by its version.
fn reported_resource(name: Arc<str>, version: &str) -> Arc<Resource> {
    Arc::new(Resource::without_body(name, parsed(version)))
}

/// A version that was never given out differs from every one that was.
fn parsed(version: &str) -> Version {
    Version::parse(version).unwrap_or_else(|| Version::of(version.as_bytes()))
}
