//! Secrets that a client may refuse for a reason of its own: each goes out by itself, behind all others, for Envoy takes nothing of a
//! response behind what it refuses.

use std::sync::Arc;

use super::Stream;
use super::message::Response;
use super::slot::Found;
use crate::version::Version;
use crate::view::{Resource, Type};

impl Stream {
    /// Sends secrets together, except those that the client may refuse for a reason of its own: these follow one by one.
    pub(super) fn send_secrets(&mut self, found: Found) -> Response {
        let (alone, mut together): (Vec<_>, Vec<_>) = found
            .resources
            .into_iter()
            .partition(|one| one.is_sent_alone());
        let names = |one: &Arc<Resource>| one.name.clone();
        let newer: Vec<_> = alone
            .iter()
            .map(names)
            .chain(found.removed.clone())
            .collect();
        self.alone.retain(|one| !newer.contains(&one.name));
        self.alone.extend(alone);
        if together.is_empty() && found.removed.is_empty() && !self.alone.is_empty() {
            together.push(self.alone.remove(0));
        }
        let version = self.version_of_secrets();
        self.respond(Type::Secret, version, together, found.removed)
    }

    /// The version of the secrets sent, without those that are still to come.
    fn version_of_secrets(&self) -> Version {
        let left = self.alone.iter().map(|one| one.version);
        left.fold(self.secrets.version(), |version, one| version - one)
    }

    /// The next of those, where the client still wants it.
    pub(super) fn send_alone(&mut self) -> Option<Response> {
        if self.alone.is_empty() || !self.ack_states.secrets.is_settled() {
            return None;
        }
        let secrets = &self.secrets;
        self.alone.retain(|one| {
            let mut all = secrets.resources();
            all.any(|sent| sent.name == one.name && sent.version == one.version)
        });
        if self.alone.is_empty() {
            return None;
        }
        let next = self.alone.remove(0);
        let version = self.version_of_secrets();
        Some(self.respond(Type::Secret, version, vec![next], Vec::new()))
    }
}
