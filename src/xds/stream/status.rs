//! The state of a stream as the pages show it: versions sent and accepted, NACKs that stand, names, resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::ObjectRef;

use super::message::{Nack, RequestOutcome};
use super::{LastPush, Stream};
use crate::version::Version;
use crate::view::{Resource, Type};

/// One type on one stream. In sync means that both versions are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    pub sent: Option<Version>,
    pub acked: Option<Version>,
    pub nack: Option<&'a Nack>,
}

/// A NACK that stands, with the rules that had a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NackWithRules<'a> {
    pub nack: &'a Nack,
    /// Sorted, each once.
    pub rules: Vec<ObjectRef>,
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
            nack: ack_state.nack.as_ref().or_else(alone),
        })
    }

    pub fn watches(&self, kind: Type) -> Watches {
        let (wildcard, names) = match kind {
            Type::Cluster => (self.clusters.is_wildcard(), self.clusters.names().to_vec()),
            Type::Listener => (
                self.listeners.is_wildcard(),
                self.listeners.names().to_vec(),
            ),
            Type::Endpoint => (false, self.endpoints.names().cloned().collect()),
            Type::Route => (false, self.routes.names().cloned().collect()),
            Type::Secret => (false, self.secrets.names().cloned().collect()),
        };
        Watches { wildcard, names }
    }

    /// The resources that the client was sent and should still have. Resources that it came with may have a version and no body.
    pub fn resources(&self, kind: Type) -> Vec<Arc<Resource>> {
        match kind {
            Type::Cluster => self.clusters.sent().members().to_vec(),
            Type::Listener => self.listeners.sent().members().to_vec(),
            Type::Endpoint => self.endpoints.resources().cloned().collect(),
            Type::Route => self.routes.resources().cloned().collect(),
            Type::Secret => self.secrets.resources().cloned().collect(),
        }
    }

    /// Returns the rules of the resources that the standing NACKs of a type reject, sorted and without duplicates.
    pub fn nacked_rules(&self, kind: Type) -> Vec<ObjectRef> {
        let nacks = self.nacks(kind).into_iter();
        let rules: BTreeSet<_> = nacks.flat_map(|nack| nack.rules).collect();
        rules.into_iter().collect()
    }

    /// The first of these rules in words: `made by A, B`. Empty if there is none.
    pub fn nacked_rules_text(&self, kind: Type, most: usize) -> String {
        let rules = self.nacked_rules(kind);
        if rules.is_empty() {
            return String::new();
        }
        let is_named = self.nacks(kind).iter().all(|nack| nack.is_named);
        let rules: Vec<_> = rules.iter().take(most).map(ToString::to_string).collect();
        let perhaps = if is_named { "" } else { "perhaps " };
        format!("{perhaps}made by {}", rules.join(", "))
    }

    /// Standing NACKs of a type. Of secrets there may be several.
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
                    is_named: true,
                })
                .collect(),
            Type::Cluster | Type::Endpoint | Type::Listener | Type::Route => Vec::new(),
        };
        let nack = self.ack_states.of(kind).nack.as_ref();
        let is_told = |nack: &&Nack| {
            let mut others = all.iter();
            !others.any(|other| other.nack.message == nack.message)
        };
        if let Some(nack) = nack.filter(is_told) {
            let resources = self.resources(kind);
            let named: Vec<_> = resources
                .iter()
                .filter(|one| names(&nack.message, &one.name))
                .collect();
            let is_named = !named.is_empty();
            let rules = |all: &mut dyn Iterator<Item = &Arc<Resource>>| -> BTreeSet<ObjectRef> {
                all.flat_map(|one| one.from.iter().cloned()).collect()
            };
            let rules = match is_named {
                true => rules(&mut named.into_iter()),
                false => rules(&mut resources.iter()),
            };
            all.push(NackWithRules {
                nack,
                rules: rules.into_iter().collect(),
                is_named,
            });
        }
        all
    }

    /// The share of the EDS clusters, of those that were sent, that are subscribed.
    pub fn endpoint_percent(&self) -> u8 {
        let is_eds = |cluster: &&Arc<Resource>| self.views.has(Type::Endpoint, &cluster.name);
        let (mut all, mut subscribed) = (0_usize, 0_usize);
        for cluster in self.clusters.sent().iter().filter(is_eds) {
            all += 1;
            subscribed += usize::from(self.endpoints.has(&cluster.name));
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

impl Stream {
    fn sent_resource(&self, kind: Type, name: &str) -> Option<&Arc<Resource>> {
        match kind {
            Type::Cluster => self.clusters.sent().get(name),
            Type::Listener => self.listeners.sent().get(name),
            Type::Endpoint => self.endpoints.sent(name),
            Type::Route => self.routes.sent(name),
            Type::Secret => self.secrets.sent(name),
        }
    }

    /// Lets the NACK of a delta client stand for as long as it has been sent none of the resources anew that the NACK names: Envoy
    /// takes the others of a response, and the ACK of a later response is about that one alone. A NACK that names none stands
    /// until the next ACK.
    pub(super) fn review_nack(&mut self, kind: Type, outcome: &RequestOutcome) {
        let ack_state = self.ack_states.of(kind);
        match (outcome, &ack_state.nack) {
            (RequestOutcome::Nacked(_), Some(nack)) => {
                let message = Arc::clone(&nack.message);
                let words = message.split(|letter: char| letter.is_whitespace() || letter == ',');
                let words =
                    words.map(|word| word.trim_matches(['\'', '"', ':', ';', '(', ')', '.']));
                let named = words.filter_map(|word| self.sent_resource(kind, word));
                let mut refused: Vec<_> =
                    named.map(|one| (one.name.clone(), one.version)).collect();
                refused.sort();
                refused.dedup();
                self.ack_states.of_mut(kind).refused = refused;
            }
            (RequestOutcome::Acked, Some(_)) => {
                let stands = |(name, version): &(Arc<str>, Version)| {
                    let sent = self.sent_resource(kind, name);
                    sent.is_some_and(|sent| sent.version == *version)
                };
                if !ack_state.refused.iter().any(stands) {
                    self.ack_states.of_mut(kind).clear_nack();
                }
            }
            _ => {}
        }
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
