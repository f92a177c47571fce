//! Nonces and versions of one type on one stream: what was sent last, what the client said to it.

use std::sync::Arc;
use std::time::Duration;

use api::text;

use super::message::{NACK_BYTES, Nack, Protocol, RequestOutcome};
use crate::version::Version;

/// Two nonces and two versions.
#[derive(Debug, Default)]
pub(super) struct AckState {
    /// A request of this type was received.
    pub(super) requested: bool,
    /// Nonce of the last response; nonces begin at one, so 0 is none.
    nonce: u64,
    /// The last one that the client has acknowledged, or refused by a NACK.
    answered: u64,
    /// Version of what the client was sent last, or had when it came.
    pub(super) sent: Option<Version>,
    pub(super) acked: Option<Version>,
    pub(super) nack: Option<Nack>,
    nacks: u64,
}

impl AckState {
    /// The client has it already: nothing is sent.
    pub(super) fn agree(&mut self, version: Version) {
        self.sent = Some(version);
        self.acked = Some(version);
    }

    pub(super) fn send(&mut self, nonce: u64, version: Version) {
        self.nonce = nonce;
        self.sent = Some(version);
    }

    /// Returns true if no response has gone out.
    pub(super) fn is_silent(&self) -> bool {
        self.nonce == 0
    }

    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    pub(super) fn has_answered(&self, nonce: u64) -> bool {
        self.answered >= nonce
    }

    /// Everything that was sent has been accepted or refused.
    pub(super) fn is_settled(&self) -> bool {
        self.answered >= self.nonce
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
        if nonce > self.nonce || nonce == 0 {
            return RequestOutcome::Expired;
        }
        if nonce < self.nonce {
            // A newer response was on its way. In delta that one does not repeat what was refused, so the NACK stands.
            return match error {
                Some(message) if protocol == Protocol::Delta && nonce > self.answered => {
                    self.answered = nonce;
                    self.nack(now, message)
                }
                _ => RequestOutcome::Expired,
            };
        }
        if self.is_settled() {
            return RequestOutcome::Asked;
        }
        self.answered = nonce;
        if let Some(message) = error {
            return self.nack(now, message);
        }
        self.acked = self.sent;
        self.nack = None;
        RequestOutcome::Acked
    }

    fn nack(&mut self, now: Duration, message: &str) -> RequestOutcome {
        self.nacks = self.nacks.saturating_add(1);
        self.nack = Some(Nack {
            version: self.sent.unwrap_or_default(),
            message: Arc::from(text::cut(message, NACK_BYTES)),
            at: now,
        });
        RequestOutcome::Nacked(self.nacks)
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
            ack_state.send(*nonce, Version::of(&nonce.to_be_bytes()));
        }
        ack_state
    }

    #[test]
    fn the_last_nonce_answers_once() {
        let mut ack_state = sent(&[3]);
        assert!(!ack_state.is_settled());
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "3", None),
            RequestOutcome::Acked
        );
        assert_eq!(ack_state.acked, ack_state.sent);
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "3", None),
            RequestOutcome::Asked
        );
        assert!(ack_state.is_settled());
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
        assert_eq!(&*ack_state.nack.as_ref().unwrap().message, "no");
        ack_state.send(4, Version::EMPTY);
        assert_eq!(
            ack_state.classify_request(NOW, SOTW, "4", None),
            RequestOutcome::Acked
        );
        assert_eq!(ack_state.nack, None);
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
            assert_eq!((ack_state.acked, ack_state.nack), (None, None));
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
        assert_eq!(
            ack_state.classify_request(NOW, Protocol::Delta, "3", None),
            RequestOutcome::Acked
        );
        assert_eq!(ack_state.nack, None);
    }

    #[test]
    fn words_are_cut_between_characters() {
        let words = format!("{}é", "x".repeat(NACK_BYTES - 1));
        let mut ack_state = sent(&[3]);
        ack_state.classify_request(NOW, SOTW, "3", Some(&words));
        assert_eq!(ack_state.nack.unwrap().message.len(), NACK_BYTES - 1);
    }
}
