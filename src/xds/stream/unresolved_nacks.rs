//! Unresolved NACKs of one type on one stream, and the resources that each is about.
//!
//! In state of the world it is the last one, until the next ACK: a response has all that there is. In delta Envoy takes the other
//! clusters and listeners of a response that it refuses, and its ACK of a later one is about that response alone; what it refused
//! is not sent again. So there may be several. Each is over when the client has accepted a response with all that it names, or is
//! to have none of it any more.

use std::ops::Range;
use std::sync::Arc;

use super::Stream;
use super::message::{NACK_BYTES_READ, Nack, RequestOutcome};
use crate::version::Version;
use crate::view::{Resource, Type};

/// Most unresolved NACKs, the newest ones. Chosen: more are of a client that refuses whatever it is sent. The resources of those
/// before are still known.
const MAX_UNRESOLVED: usize = 8;

/// Names and versions, sorted by name. A name that was removed has the version of nothing.
pub(super) type Content = Box<[(Arc<str>, Version)]>;

pub(super) fn content_of(resources: &[Arc<Resource>], removed: &[Arc<str>]) -> Content {
    let there = resources.iter().map(|one| (one.name.clone(), one.version));
    let gone = removed.iter().map(|name| (name.clone(), Version::EMPTY));
    let mut content: Content = there.chain(gone).collect();
    content.sort_unstable();
    content
}

pub(super) fn entry_of<'a>(
    content: &'a [(Arc<str>, Version)],
    name: &str,
) -> Option<&'a (Arc<str>, Version)> {
    let at = content.binary_search_by(|(known, _)| (**known).cmp(name));
    content.get(at.ok()?)
}

fn version_in(content: &[(Arc<str>, Version)], name: &str) -> Option<Version> {
    entry_of(content, name).map(|(_, version)| *version)
}

/// A NACK whose cause the client still has, as far as is known.
#[derive(Debug)]
pub(super) struct UnresolvedNack {
    pub(super) nack: Nack,
    /// Nonces of the responses that it answers.
    responses: Range<u64>,
    /// The nonce of the last response that was sent before it came.
    last_sent: u64,
    /// Resources that it names, of a delta client: sorted, each once, and none that a newer NACK names.
    pub(super) refused: Vec<(Arc<str>, Version)>,
}

impl UnresolvedNack {
    pub(super) fn new(nack: Nack, responses: Range<u64>, last_sent: u64) -> Self {
        Self {
            nack,
            responses,
            last_sent,
            refused: Vec::new(),
        }
    }
}

/// Oldest first.
#[derive(Debug, Default)]
pub(super) struct UnresolvedNacks(Vec<UnresolvedNack>);

impl UnresolvedNacks {
    pub(super) fn newest(&self) -> Option<&Nack> {
        self.0.last().map(|one| &one.nack)
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &UnresolvedNack> {
        self.0.iter().rev()
    }

    /// Returns true if one of them answers the response with this nonce.
    pub(super) fn answer(&self, nonce: u64) -> bool {
        self.0.iter().any(|one| one.responses.contains(&nonce))
    }

    pub(super) fn push(&mut self, one: UnresolvedNack) {
        if self.0.len() >= MAX_UNRESOLVED {
            let nameless = self.0.iter().position(|one| one.refused.is_empty());
            // Its resources are refused still: the oldest NACK that is left takes their names.
            let mut former = self.0.remove(nameless.unwrap_or(0));
            if let Some(oldest) = self.0.first_mut() {
                oldest.refused.append(&mut former.refused);
                oldest.refused.sort_unstable();
            }
        }
        self.0.push(one);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets those of which this is true.
    pub(super) fn forget(&mut self, is_over: impl Fn(&Nack) -> bool) {
        self.0.retain(|one| !is_over(&one.nack));
    }

    /// Keeps the named resources of which this is true. A NACK with none left is over.
    fn retain_names(&mut self, mut stands: impl FnMut(&(Arc<str>, Version)) -> bool) {
        self.0.retain_mut(|one| {
            let is_nameless = one.refused.is_empty();
            one.refused.retain(&mut stands);
            is_nameless || !one.refused.is_empty()
        });
    }

    /// The newest one names these, and accepts what else it had of `accepted`.
    fn name_refused(
        &mut self,
        refused: Vec<(Arc<str>, Version)>,
        accepted: &[(Arc<str>, Version)],
    ) {
        let all = [&*refused, accepted];
        self.retain_names(|(name, _)| all.iter().all(|all| version_in(all, name).is_none()));
        if let Some(newest) = self.0.last_mut() {
            newest.refused = refused;
        }
    }

    /// The client has accepted the response with this nonce.
    fn accept(&mut self, nonce: u64, stands: impl FnMut(&(Arc<str>, Version)) -> bool) {
        self.0
            .retain(|one| !one.refused.is_empty() || nonce <= one.last_sent);
        self.retain_names(stands);
    }
}

impl Stream {
    /// Notes what a delta client has said of resources that it refuses. A NACK that names none may be about any of its response,
    /// and stands until the client accepts a response that was sent after it.
    pub(super) fn review_nacks(&mut self, kind: Type, outcome: &RequestOutcome) {
        let ack_state = self.ack_states.of_mut(kind);
        let content = ack_state.take_replied_content();
        let refusal = ack_state.take_refusal();
        let last_reply = ack_state.last_reply();
        let mut nacks = std::mem::take(&mut ack_state.nacks);
        match (outcome, nacks.newest()) {
            (RequestOutcome::Nacked(_), Some(_)) => {
                let refused = self.refused_by(kind, &refusal, content.as_deref());
                // Of other types Envoy takes nothing behind what it refuses, and of a message that is cut not all names are known.
                // `cut` ends at the border of a character, up to three bytes early.
                let is_whole = refusal.len() + 4 < NACK_BYTES_READ;
                let is_partial = kind.is_complete() && !refused.is_empty() && is_whole;
                let accepted = content.filter(|_| is_partial).unwrap_or_default();
                nacks.name_refused(refused, &accepted);
            }
            (RequestOutcome::Acked, Some(_)) => nacks.accept(last_reply, |(name, version)| {
                if let Some(content) = &content {
                    return version_in(content, name).is_none();
                }
                // Its content was not kept: a refusal stands until the client is sent another version.
                let sent = self.subscriptions.of(kind).sent(name);
                sent.is_some_and(|sent| sent.version == *version)
            }),
            _ => {}
        }
        self.ack_states.of_mut(kind).nacks = nacks;
    }

    /// Resources that a message names, with the versions of the response that it is about; without it, with those sent last, or
    /// with those of a later response that is not answered yet: it may have removed them.
    fn refused_by(
        &self,
        kind: Type,
        message: &str,
        content: Option<&[(Arc<str>, Version)]>,
    ) -> Vec<(Arc<str>, Version)> {
        // The name of a listener at any IPv6 address begins with a colon.
        let tokens = message
            .split(|letter: char| letter.is_whitespace() || letter == ',')
            .map(|word| word.trim_start_matches(['\'', '"', '(']))
            .map(|word| word.trim_end_matches(['\'', '"', ':', ';', ')', '.']));
        let found = tokens.filter_map(|word| match content {
            Some(content) => entry_of(content, word).cloned(),
            None => {
                let sent = self.subscriptions.of(kind).sent(word);
                let sent = sent.map(|sent| (sent.name.clone(), sent.version));
                sent.or_else(|| self.ack_states.of(kind).find_in_flight(word))
            }
        });
        let mut refused: Vec<_> = found.collect();
        refused.sort_unstable();
        refused.dedup();
        refused
    }

    /// Forgets NACKs of what the client is not to have any more: no response may follow by whose ACK they would go.
    pub(super) fn forget_nacks(&mut self, kind: Type) {
        if kind == Type::Secret {
            self.forget_nacked();
        }
        let mut nacks = std::mem::take(&mut self.ack_states.of_mut(kind).nacks);
        nacks.retain_names(|(name, _)| self.subscriptions.of(kind).expects(name));
        self.ack_states.of_mut(kind).nacks = nacks;
    }
}
