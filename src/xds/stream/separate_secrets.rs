//! SDS secrets that a client may NACK for a reason of its own: each goes out by itself, behind all others, for Envoy takes nothing of a
//! response behind what it refuses. What it says of one stands until it takes that one, whatever it says of others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::text;

use super::Stream;
use super::lookup::ResponseContent;
use super::message::{MAX_NAME_BYTES, NACK_BYTES, Nack, Request, Response};
use crate::version::Version;
use crate::view::{MAX_FILE_NAME_BYTES, Resource, Type};

const _: () = assert!(MAX_FILE_NAME_BYTES <= MAX_NAME_BYTES);

/// The separate secrets of one stream.
#[derive(Debug, Default)]
pub(super) struct SeparateSecrets {
    /// Secrets that count as sent, and go out one by one when the last response is answered.
    waiting: Vec<Arc<Resource>>,
    /// The last one of each name, and the nonce of its response, until that is answered: a delta client may ask for more before it
    /// answers.
    sent: BTreeMap<Arc<str>, (u64, Arc<Resource>)>,
    /// By name.
    nacked: BTreeMap<Arc<str>, (Arc<Resource>, Nack)>,
}

impl SeparateSecrets {
    /// Records the client's answer about one secret, even if a newer response is on its way.
    pub(super) fn record_answer(&mut self, now: Duration, request: &Request) {
        let Ok(nonce) = request.nonce.parse::<u64>() else {
            return;
        };
        let mut replied = self.sent.extract_if(.., |_, (sent, _)| *sent == nonce);
        let replied = replied.next();
        let Some((_, (_, secret))) = replied else {
            return;
        };
        match &request.error {
            Some(message) => {
                let nack = Nack {
                    version: secret.version,
                    message: text::cut(message, NACK_BYTES).into(),
                    at: now,
                };
                self.nacked.insert(secret.name.clone(), (secret, nack));
            }
            None => drop(self.nacked.remove(&secret.name)),
        }
    }

    fn send(&mut self, nonce: u64, secret: Arc<Resource>) {
        self.sent.insert(secret.name.clone(), (nonce, secret));
    }
}

impl Stream {
    /// Sends secrets together, except those that the client may refuse for a reason of its own: these follow one by one.
    pub(super) fn send_secrets(&mut self, found: ResponseContent) -> Response {
        let (alone, mut together): (Vec<_>, Vec<_>) = found
            .resources
            .into_iter()
            .partition(|one| one.is_sent_alone());
        let names = |one: &Arc<Resource>| one.name.clone();
        let newer: BTreeSet<_> = alone
            .iter()
            .map(names)
            .chain(found.removed.clone())
            .collect();
        let waiting = &mut self.separate_secrets.waiting;
        // A secret that changes or goes while it waits is sent once, as it is now.
        waiting.retain(|one| !newer.contains(&one.name));
        waiting.extend(alone);
        let mut first = None;
        // Nothing else has to go first, so the first of them is this response.
        if together.is_empty() && found.removed.is_empty() && !waiting.is_empty() {
            let one = waiting.remove(0);
            together.push(one.clone());
            first = Some(one);
        }
        let version = self.version_of_secrets();
        let response = self.respond(Type::Secret, version, together, found.removed);
        if let Some(first) = first {
            self.separate_secrets.send(response.nonce, first);
        }
        response
    }

    /// The version of the secrets sent, without those that are still to come.
    fn version_of_secrets(&self) -> Version {
        let left = self.separate_secrets.waiting.iter().map(|one| one.version);
        left.fold(self.subscriptions.secrets.version(), |version, one| {
            version - one
        })
    }

    /// The next of those, where the client still wants it.
    pub(super) fn send_next_secret(&mut self) -> Option<Response> {
        if self.separate_secrets.waiting.is_empty() || !self.ack_states.secrets.has_all_replies() {
            return None;
        }
        let secrets = &self.subscriptions.secrets;
        self.separate_secrets.waiting.retain(|one| {
            let sent = secrets.sent(&one.name);
            sent.is_some_and(|sent| sent.version == one.version)
        });
        if self.separate_secrets.waiting.is_empty() {
            return None;
        }
        let next = self.separate_secrets.waiting.remove(0);
        let version = self.version_of_secrets();
        let response = self.respond(Type::Secret, version, vec![next.clone()], Vec::new());
        self.separate_secrets.send(response.nonce, next);
        Some(response)
    }

    /// NACKs of secrets that the client was sent by themselves and is to have still, each with that secret.
    pub(super) fn nacked_secrets(&self) -> impl Iterator<Item = &(Arc<Resource>, Nack)> {
        let nacked = self.separate_secrets.nacked.values();
        nacked.filter(|(one, _)| {
            let sent = self.subscriptions.secrets.sent(&one.name);
            sent.is_some_and(|sent| sent.version == one.version)
        })
    }

    /// Forgets what was said, and is still to be said, of secrets that nobody asks for any more. No response follows by whose ACK
    /// the NACK of the last one would go.
    pub(super) fn forget_nacked(&mut self) {
        let secrets = &self.subscriptions.secrets;
        let forgotten = self
            .separate_secrets
            .nacked
            .extract_if(.., |name, _| !secrets.has(name));
        let forgotten: Vec<Nack> = forgotten.map(|(_, (_, nack))| nack).collect();
        self.separate_secrets
            .sent
            .retain(|name, _| secrets.has(name));
        self.ack_states.secrets.nacks.forget(|nack| {
            let same = |one: &Nack| (&one.message, one.at) == (&nack.message, nack.at);
            forgotten.iter().any(same)
        });
    }
}
