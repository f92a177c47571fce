//! Streams that are refused for who their client is, or for what it says of itself: counted by cause, said in the log within
//! bounds, and the last of them kept for the page.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::grpc::Address;

/// Refused streams that the page shows: more than a screen is read by nobody, and anybody may add to them.
pub(super) const REMEMBERED: usize = 20;

/// The reason why a stream is refused: the label `reason` of `gudgeon_streams_refused_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RefusalReason {
    /// The certificate has no SPIFFE ID, more than one, or one that is not complete.
    Certificate,
    /// The certificate is of another trust domain.
    TrustDomain,
    Namespace,
    ServiceAccount,
    /// The node is none that has a place in a mesh.
    Node,
    /// The node is beyond its bounds, or those of its address are beyond theirs.
    NodeSize,
    /// The request names too many resources.
    Names,
    /// Its address has as many streams as it may.
    Streams,
    /// Its address has as many kinds of proxies as it may.
    Kinds,
}

impl RefusalReason {
    pub(crate) const ALL: [Self; 9] = [
        Self::Certificate,
        Self::TrustDomain,
        Self::Namespace,
        Self::ServiceAccount,
        Self::Node,
        Self::NodeSize,
        Self::Names,
        Self::Streams,
        Self::Kinds,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::TrustDomain => "trust_domain",
            Self::Namespace => "namespace",
            Self::ServiceAccount => "service_account",
            Self::Node => "node",
            Self::NodeSize => "node_size",
            Self::Names => "names",
            Self::Streams => "streams",
            Self::Kinds => "kinds",
        }
    }
}

/// One stream that was refused.
#[derive(Clone, Debug)]
pub(crate) struct RefusedStream {
    pub(crate) at: Duration,
    pub(crate) peer: Address,
    pub(crate) reason: RefusalReason,
    /// The message that the client received, cut.
    pub(crate) message: String,
}

/// The last of them.
#[derive(Debug, Default)]
pub(crate) struct RefusedStreams(Mutex<VecDeque<RefusedStream>>);

impl RefusedStreams {
    /// Returns the refused streams, the newest first.
    pub(crate) fn newest(&self) -> Vec<RefusedStream> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().cloned().collect()
    }

    pub(super) fn add(&self, stream: RefusedStream) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED {
            all.pop_front();
        }
        all.push_back(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_name_of_its_own() {
        let names = RefusalReason::ALL.map(RefusalReason::as_str);
        let all: std::collections::BTreeSet<_> = names.into_iter().collect();
        assert_eq!(all.len(), RefusalReason::ALL.len());
    }
}
