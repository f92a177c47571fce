//! ACK and NACK: nonces and versions of one type on one stream, the last response and the client's answer to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::text;

use super::message::{NACK_BYTES, NACK_BYTES_READ, Nack, Protocol, RequestOutcome};
use super::unresolved_nacks::{Content, UnresolvedNack, UnresolvedNacks, entry_of};
use crate::version::Version;

/// Versions of responses in flight that are remembered, the newest ones. Chosen: a client answers each response, so more than a
/// few are of one that is stuck.
const MAX_IN_FLIGHT: usize = 8;

/// Names of resources in them that are remembered, those of the newest ones. Chosen: more than a change has, and 64 KB.
const MAX_IN_FLIGHT_NAMES: usize = 2_000;

/// A response without an ACK or a NACK yet.
#[derive(Debug)]
struct InFlightResponse {
    nonce: u64,
    /// Version of what the client has with it.
    version: Version,
    /// Names and versions in it; `None` in state of the world, for a first response, and where they are too many.
    content: Option<Content>,
}

/// The nonces and versions of the last responses and answers.
#[derive(Debug, Default)]
pub(super) struct AckState {
    /// A request of this type was received.
    pub(super) requested: bool,
    /// Nonce of the last response; nonces begin at one, so 0 is none.
    nonce: u64,
    /// The nonce of the last response with an ACK or a NACK.
    last_reply: u64,
    /// Version of what the client was sent last, or had when it came.
    pub(super) sent: Option<Version>,
    pub(super) acked: Option<Version>,
    pub(super) nacks: UnresolvedNacks,
    in_flight: VecDeque<InFlightResponse>,
    /// Nonce of the newest response that is not remembered any more, beyond [`MAX_IN_FLIGHT`]; 0: there is none.
    forgotten: u64,
    /// The content of the response that the last request answered, until [`Self::take_replied_content`].
    replied_content: Option<Content>,
    /// The message of the last NACK, of which less is kept, until [`Self::take_refusal`].
    refusal: Box<str>,
    /// NACKs since the stream began.
    nack_count: u64,
}

impl AckState {
    /// The client has it already: nothing is sent.
    pub(super) fn agree(&mut self, version: Version) {
        self.sent = Some(version);
        self.acked = Some(version);
    }

    pub(super) fn send(&mut self, nonce: u64, version: Version, content: Option<Content>) {
        self.nonce = nonce;
        self.sent = Some(version);
        if self.in_flight.len() >= MAX_IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.forgotten = oldest.nonce;
        }
        self.in_flight.push_back(InFlightResponse {
            nonce,
            version,
            content,
        });
        let mut room = MAX_IN_FLIGHT_NAMES;
        for one in self.in_flight.iter_mut().rev() {
            let names = one.content.as_ref().map_or(0, |content| content.len());
            if names > room {
                one.content = None;
            }
            room = room.saturating_sub(names);
        }
    }

    /// Returns true if no response has gone out.
    pub(super) fn is_silent(&self) -> bool {
        self.nonce == 0
    }

    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The nonce of the last response with an ACK or a NACK; 0: none has one.
    pub(super) fn last_reply(&self) -> u64 {
        self.last_reply
    }

    pub(super) fn has_reply_to(&self, nonce: u64) -> bool {
        self.last_reply >= nonce
    }

    /// A NACK of this response stands.
    pub(super) fn has_nacked(&self, nonce: u64) -> bool {
        self.nacks.answer(nonce)
    }

    /// The newest NACK that stands.
    pub(super) fn nack(&self) -> Option<&Nack> {
        self.nacks.newest()
    }

    /// Takes the message of a NACK. It names each resource that the client refuses, hundreds where a patch is of all clusters.
    pub(super) fn take_refusal(&mut self) -> Box<str> {
        std::mem::take(&mut self.refusal)
    }

    pub(super) fn take_replied_content(&mut self) -> Option<Content> {
        self.replied_content.take()
    }

    /// Everything that was sent has been accepted or refused.
    pub(super) fn has_all_replies(&self) -> bool {
        self.last_reply >= self.nonce
    }

    /// Classifies a request that is not the first one, by its nonce.
    ///
    /// A nonce that was answered before is an ACK no more: Envoy asks for new names with the last nonce that it has seen,
    /// even after it has refused that response.
    pub(super) fn classify_request(
        &mut self,
        now: Duration,
        protocol: Protocol,
        nonce: &str,
        error: Option<&str>,
    ) -> RequestOutcome {
        if nonce.is_empty() {
            // Delta asks out of turn without a nonce. State of the world does so before it has seen one; later its answer
            // to what it has not seen yet brings the same names.
            let alone = protocol == Protocol::Delta || self.is_silent();
            return if alone {
                RequestOutcome::Asked
            } else {
                RequestOutcome::Expired
            };
        }
        let Ok(nonce) = nonce.parse::<u64>() else {
            return RequestOutcome::Expired;
        };
        // The nonce belongs to another stream, or is 0, which no response has.
        if nonce > self.nonce || nonce == 0 {
            return RequestOutcome::Expired;
        }
        let is_latest = nonce == self.nonce;
        // In state of the world only the last nonce counts: the client answers that response, too.
        if !is_latest && (protocol == Protocol::StateOfTheWorld || nonce <= self.last_reply) {
            return RequestOutcome::Expired;
        }
        if self.has_all_replies() {
            return RequestOutcome::Asked;
        }
        // Nonces of all types are one sequence: it may be that of a response of another type.
        let mut in_flight = self.in_flight.iter();
        if nonce > self.forgotten && !in_flight.any(|one| one.nonce == nonce) {
            return RequestOutcome::Expired;
        }
        // In delta each response is answered: a newer one, that was on its way, does not repeat what an older one brought.
        let first = match protocol {
            Protocol::StateOfTheWorld => self.last_reply.saturating_add(1),
            Protocol::Delta => nonce,
        };
        self.last_reply = nonce;
        let version = self.take_in_flight(nonce);
        if protocol == Protocol::StateOfTheWorld {
            // In state of the world one NACK stands at most, until the next answer.
            self.nacks.clear();
        }
        let Some(message) = error else {
            // An ACK of an older response says nothing of the newer ones that are on their way.
            if is_latest {
                self.acked = self.sent;
            }
            return RequestOutcome::Acked;
        };
        let nack = Nack {
            version,
            message: Arc::from(text::cut(message, NACK_BYTES)),
            at: now,
        };
        if protocol == Protocol::Delta {
            self.refusal = text::cut(message, NACK_BYTES_READ).into();
        }
        let responses = first..nonce.saturating_add(1);
        self.nacks
            .push(UnresolvedNack::new(nack, responses, self.nonce));
        self.nack_count = self.nack_count.saturating_add(1);
        RequestOutcome::Nacked(self.nack_count)
    }

    /// The name and version of a resource in a response that is not answered yet, the newest that names it.
    pub(super) fn find_in_flight(&self, name: &str) -> Option<(Arc<str>, Version)> {
        let contents = self.in_flight.iter().rev();
        let mut contents = contents.filter_map(|one| one.content.as_deref());
        contents.find_map(|content| entry_of(content, name).cloned())
    }

    /// Takes a response out of those that are not answered, and those before it, and returns its version.
    fn take_in_flight(&mut self, nonce: u64) -> Version {
        self.replied_content = None;
        let mut version = None;
        while let Some(one) = self.in_flight.pop_front_if(|one| one.nonce <= nonce) {
            if one.nonce == nonce {
                version = Some(one.version);
                self.replied_content = one.content;
            }
        }
        // The response may be forgotten, beyond [`MAX_IN_FLIGHT`].
        version.or(self.sent).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const SOTW: Protocol = Protocol::StateOfTheWorld;

    fn sent(nonces: &[u64]) -> AckState {
        let mut ack_state = AckState::default();
        for nonce in nonces {
            ack_state.send(*nonce, Version::of(&nonce.to_be_bytes()), None);
        }
        ack_state
    }

    #[test]
    fn the_last_nonce_answers_once() {
        let mut ack_state = sent(&[3]);
        assert!(!ack_state.has_all_replies());
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "3", None),
            RequestOutcome::Acked
        );
        assert_eq!(ack_state.acked, ack_state.sent);
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "3", None),
            RequestOutcome::Asked
        );
        assert!(ack_state.has_all_replies());
    }

    #[test]
    fn names_after_a_refusal_are_no_ack() {
        let mut ack_state = sent(&[3]);
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "3", Some("no")),
            RequestOutcome::Nacked(1)
        );
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "3", None),
            RequestOutcome::Asked
        );
        assert_eq!(ack_state.acked, None);
        assert_eq!(&*ack_state.nack().unwrap().message, "no");
        ack_state.send(4, Version::EMPTY, None);
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "4", None),
            RequestOutcome::Acked
        );
        assert_eq!(ack_state.nack(), None);
    }

    #[test]
    fn other_nonces_are_expired() {
        for nonce in ["2", "4", "0", "x", "", "-1", "99999999999999999999"] {
            let mut ack_state = sent(&[2, 3]);
            assert_eq!(
                ack_state.classify_request(NOW, SOTW, nonce, None),
                RequestOutcome::Expired,
                "{nonce}"
            );
            assert_eq!(
                ack_state.classify_request(NOW, SOTW, nonce, Some("no")),
                RequestOutcome::Expired
            );
            assert_eq!((ack_state.acked, ack_state.nack()), (None, None));
        }
        assert_eq!(
            sent(&[]).classify_request(NOW, SOTW, "", None),
            RequestOutcome::Asked
        );
    }

    #[test]
    fn delta_asks_without_a_nonce_and_refuses_late() {
        let mut ack_state = sent(&[2, 3]);
        assert_eq!(
            ack_state.classify_request(NOW, Protocol::Delta, "", None),
            RequestOutcome::Asked
        );
        assert_eq!(
            ack_state.classify_request(NOW, Protocol::Delta, "2", Some("no")),
            RequestOutcome::Nacked(1)
        );
        let refused = ack_state.nack().unwrap().version;
        assert_eq!(refused, Version::of(&2_u64.to_be_bytes()));
        assert_eq!(ack_state.acked, None);
        assert_eq!(
            ack_state.classify_request(NOW, Protocol::Delta, "3", None),
            RequestOutcome::Acked
        );
        assert_eq!(ack_state.acked, ack_state.sent);
        // Whether that was about what is refused, the stream knows.
        assert!(ack_state.nack().is_some());
    }

    #[test]
    fn a_nonce_of_another_type_is_no_delta_answer() {
        for nonce in ["1", "3", "5", "6", "0", "x"] {
            let mut ack_state = sent(&[2, 4]);
            for error in [None, Some("no")] {
                assert_eq!(
                    ack_state.classify_request(NOW, Protocol::Delta, nonce, error),
                    RequestOutcome::Expired,
                    "{nonce}"
                );
            }
            assert_eq!((ack_state.acked, ack_state.nack()), (None, None));
            assert_eq!(ack_state.last_reply(), 0);
        }
    }

    #[test]
    fn each_delta_response_is_acknowledged_once() {
        let mut ack_state = sent(&[2, 3]);
        for (nonce, expected) in [
            ("2", RequestOutcome::Acked),
            ("2", RequestOutcome::Expired),
            ("3", RequestOutcome::Acked),
            ("3", RequestOutcome::Asked),
        ] {
            let found = ack_state.classify_request(NOW, Protocol::Delta, nonce, None);
            assert_eq!(found, expected, "{nonce}");
            assert_eq!(ack_state.acked.is_some(), nonce == "3", "{nonce}");
        }
    }

    #[test]
    fn responses_in_flight_are_bounded() {
        let nonces: Vec<u64> = (1..1000).collect();
        let mut ack_state = sent(&nonces);
        assert_eq!(ack_state.in_flight.len(), MAX_IN_FLIGHT);
        ack_state.classify_request(NOW, Protocol::Delta, "5", Some("no"));
        // Its own is forgotten.
        assert_eq!(ack_state.nack().map(|nack| nack.version), ack_state.sent);
    }

    #[test]
    fn names_of_responses_in_flight_are_bounded() {
        let content: Content = (0..MAX_IN_FLIGHT_NAMES / 2)
            .map(|at| (Arc::from(at.to_string()), Version::EMPTY))
            .collect();
        let mut ack_state = AckState::default();
        for nonce in 1..=4 {
            ack_state.send(nonce, Version::EMPTY, Some(content.clone()));
        }
        for (nonce, is_known) in [("2", false), ("3", true), ("4", true)] {
            ack_state.classify_request(NOW, Protocol::Delta, nonce, None);
            let found = ack_state.take_replied_content();
            assert_eq!(found.is_some(), is_known, "{nonce}");
        }
    }

    #[test]
    fn words_are_cut_between_characters() {
        let message = format!("{}é", "x".repeat(NACK_BYTES - 1));
        let mut ack_state = sent(&[3]);
        ack_state.classify_request(NOW, SOTW, "3", Some(&message));
        assert_eq!(ack_state.nack().unwrap().message.len(), NACK_BYTES - 1);
    }
}
