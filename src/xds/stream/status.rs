//! The state of a stream as the pages show it: versions sent and accepted, NACKs that stand, names, resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{ObjectRef, ServiceKey};

use super::message::Nack;
use super::sent_resources::SentResources;
use super::unresolved_nacks::UnresolvedNack;
use super::{LastPush, PushScope, Stream, catch_panic};
use crate::resource_names::ResourceNames;
use crate::version::Version;
use crate::view::{Resource, Type};

/// One type on one stream. In sync means that both versions are equal and no NACK stands: a delta client accepts later responses
/// and still lacks what it refused in one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    pub sent: Option<Version>,
    pub acked: Option<Version>,
    /// The newest one that stands; [`Stream::nacks`] has all.
    pub nack: Option<&'a Nack>,
}

/// A NACK that stands, with the rules that had a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NackWithRules<'a> {
    pub nack: &'a Nack,
    /// Sorted, each once.
    pub rules: Vec<ObjectRef>,
    /// The services that the named resources are about.
    pub services: BTreeSet<ServiceKey>,
    /// The NACK names resources, and the rules are theirs alone.
    pub is_named: bool,
}

/// The subscriptions of a client to one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watches {
    pub wildcard: bool,
    pub names: Vec<Arc<str>>,
}

impl Stream {
    /// `None`: the client has not asked for this type.
    pub fn status(&self, kind: Type) -> Option<Status<'_>> {
        let ack_state = self.ack_states.of(kind);
        let alone = || {
            let mut nacked = self.nacked_secrets().map(|(_, nack)| nack);
            nacked.next().filter(|_| kind == Type::Secret)
        };
        ack_state.requested.then(|| Status {
            sent: ack_state.sent,
            acked: ack_state.acked,
            nack: ack_state.nack().or_else(alone),
        })
    }

    pub fn watches(&self, kind: Type) -> Watches {
        let subscription = self.subscriptions.of(kind);
        Watches {
            wildcard: subscription.is_wildcard(),
            names: subscription.names(),
        }
    }

    /// Returns the names, by type, that a push of this scope may concern: of endpoints only the changed ones, so that such a push
    /// costs by what has changed, and not by what the client watches.
    pub fn concerned(&self, scope: &PushScope) -> Vec<(Type, ResourceNames)> {
        match scope {
            PushScope::Nothing => Vec::new(),
            PushScope::Endpoints(changed) => {
                let changed = changed
                    .iter()
                    .filter(|name| self.subscriptions.endpoints.has(name));
                vec![(Type::Endpoint, changed.collect())]
            }
            PushScope::Full => {
                let kinds = Type::ALL.into_iter();
                kinds
                    .filter(|kind| self.status(*kind).is_some())
                    .map(|kind| (kind, self.subscriptions.of(kind).resource_names()))
                    .collect()
            }
        }
    }

    /// The resources that the client was sent and should still have. Resources that it came with may have a version and no body.
    pub fn resources(&self, kind: Type) -> SentResources {
        self.subscriptions.of(kind).resources()
    }

    /// The names of resources that the client refused as it was sent them, each with the newest NACK that names it.
    pub fn refused(&self, kind: Type) -> BTreeMap<Arc<str>, Nack> {
        let mut all = BTreeMap::new();
        let ack_state = self.ack_states.of(kind);
        for one in ack_state.nacks.newest_first() {
            let nack = &one.nack;
            let mut add = |name: &Arc<str>| {
                all.entry(name.clone()).or_insert_with(|| nack.clone());
            };
            for (name, version) in &one.refused {
                let sent = self.subscriptions.of(kind).sent(name);
                if sent.is_some_and(|sent| sent.version == *version) {
                    add(name);
                }
            }
            // In state of the world nobody has looked for the names yet, and a NACK is about all that was sent.
            if one.refused.is_empty() && ack_state.sent == Some(nack.version) {
                let resources = self.resources(kind);
                let named = resources.iter().map(|one| &one.name);
                named
                    .filter(|name| names(&nack.message, name))
                    .for_each(add);
            }
        }
        all
    }

    /// Returns the rules of the resources that the NACK in [`Status`] rejects, sorted and without duplicates; of secrets, all NACKs.
    pub fn nacked_rules(&self, kind: Type) -> Vec<ObjectRef> {
        let nacks = self.reported_nacks(kind).into_iter();
        let rules: BTreeSet<_> = nacks.flat_map(|nack| nack.rules).collect();
        rules.into_iter().collect()
    }

    /// The first of these rules in words: `made by A, B`. Empty if there is none.
    pub fn nacked_rules_text(&self, kind: Type, max: usize) -> String {
        let nacks = self.reported_nacks(kind);
        let is_named = nacks.iter().all(|nack| nack.is_named);
        let rules: BTreeSet<_> = nacks.into_iter().flat_map(|nack| nack.rules).collect();
        if rules.is_empty() {
            return String::new();
        }
        let rules: Vec<_> = rules.iter().take(max).map(ToString::to_string).collect();
        let perhaps = if is_named { "" } else { "perhaps " };
        format!("{perhaps}made by {}", rules.join(", "))
    }

    /// Looks for the resources of the newest NACK alone: of a nameless one all are candidates, and the event loop waits for it.
    fn reported_nacks(&self, kind: Type) -> Vec<NackWithRules<'_>> {
        if kind == Type::Secret {
            return self.nacks(kind);
        }
        let newest = self.ack_states.of(kind).nacks.newest_first().take(1);
        newest.map(|one| self.with_rules(kind, one)).collect()
    }

    /// Unresolved NACKs of a type, the newest first. Of secrets, and in delta, there may be several.
    ///
    /// Envoy's words for a message that breaks a constraint of its fields name none: then any rule may have caused it that
    /// had a part in a resource of the type.
    pub fn nacks(&self, kind: Type) -> Vec<NackWithRules<'_>> {
        let mut all: Vec<_> = match kind {
            Type::Secret => self
                .nacked_secrets()
                .map(|(secret, nack)| NackWithRules {
                    nack,
                    rules: secret.from.to_vec(),
                    services: BTreeSet::new(),
                    is_named: true,
                })
                .collect(),
            Type::Cluster | Type::Endpoint | Type::Listener | Type::Route => Vec::new(),
        };
        for one in self.ack_states.of(kind).nacks.newest_first() {
            let mut others = all.iter();
            // The NACK of a secret that went out alone is in the state of its type, too.
            if !others.any(|other| other.nack.message == one.nack.message) {
                all.push(self.with_rules(kind, one));
            }
        }
        all
    }

    fn with_rules<'a>(&'a self, kind: Type, one: &'a UnresolvedNack) -> NackWithRules<'a> {
        let nack = &one.nack;
        let rules = |all: &mut dyn Iterator<Item = &Arc<Resource>>| -> Vec<ObjectRef> {
            let rules: BTreeSet<_> = all.flat_map(|one| one.from.iter().cloned()).collect();
            rules.into_iter().collect()
        };
        if !one.refused.is_empty() {
            let names = || one.refused.iter().map(|(name, _)| &**name);
            let mut named = names().filter_map(|name| self.subscriptions.of(kind).sent(name));
            return NackWithRules {
                nack,
                rules: rules(&mut named),
                services: self.services_of(kind, names()),
                is_named: true,
            };
        }
        let resources = self.resources(kind);
        let named = |one: &&Arc<Resource>| names(&nack.message, &one.name);
        let named: Vec<_> = resources.iter().filter(named).collect();
        let rules = match &*named {
            [] => rules(&mut resources.iter()),
            named => rules(&mut named.iter().copied()),
        };
        NackWithRules {
            nack,
            rules,
            services: self.services_of(kind, named.iter().map(|one| &*one.name)),
            is_named: !named.is_empty(),
        }
    }

    fn services_of<'a>(
        &self,
        kind: Type,
        names: impl Iterator<Item = &'a str>,
    ) -> BTreeSet<ServiceKey> {
        let view = &self.views.rolling;
        let of_names = names.flat_map(|name| catch_panic(|| view.services_of(kind, name)).ok());
        of_names.flatten().collect()
    }

    /// The share of the EDS clusters, of those that were sent, that are subscribed.
    pub fn endpoint_percent(&self) -> u8 {
        let is_eds = |cluster: &&Arc<Resource>| self.views.has(Type::Endpoint, &cluster.name);
        let (mut all, mut subscribed) = (0_usize, 0_usize);
        for cluster in self.subscriptions.clusters.sent().iter().filter(is_eds) {
            all += 1;
            subscribed += usize::from(self.subscriptions.endpoints.has(&cluster.name));
        }
        let percent = (subscribed * 100).checked_div(all).unwrap_or(100);
        u8::try_from(percent).unwrap_or(100)
    }

    /// Returns true unless the client is a sidecar whose workload belongs to no service.
    pub fn serves(&self) -> bool {
        self.views.latest.serves()
    }

    /// A push has not come to its end on this stream.
    pub fn is_pending(&self) -> bool {
        self.waiting.is_some()
            || !self.dirty.is_none()
            || !self.phase.is_idle()
            || self.rebinding.is_some()
    }

    pub fn last_push(&self) -> Option<&LastPush> {
        self.last.as_ref()
    }
}

/// Returns true if a text has a name in it that is no part of a longer one.
fn names(text: &str, name: &str) -> bool {
    let is_part = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b".|_-".contains(byte))
    };
    let bytes = text.as_bytes();
    text.match_indices(name).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let behind = bytes.get(at + name.len()..);
        // The stop behind a sentence is none of the name.
        let behind = match behind {
            Some([b'.', rest @ ..]) => rest,
            other => other.unwrap_or_default(),
        };
        !is_part(before) && !is_part(behind.first())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_whole() {
        let text = "Error adding/updating cluster(s) outbound|80|v1|a.demo: no such file";
        for (name, found) in [
            ("outbound|80|v1|a.demo", true),
            ("outbound|80|v1|a", false),
            ("80", false),
            ("a.demo", false),
        ] {
            assert_eq!(names(text, name), found, "{name}");
        }
        assert!(names("route 80: no", "80") && names("in 80.", "80") && !names("in 8080", "80"));
    }
}
