//! PeerAuthentications before their last change. Proxies hear of a change one after the other: a client that speaks mutual TLS
//! before its server takes it loses requests, and so does one that still speaks plain where the server takes that no more. For
//! a while both count.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::model::Objects;
use api::security::PeerAuthentication;

/// Proxies have taken what they were sent by then: each step of a push is waited for two seconds at most (discovery.md §7).
const GRACE: Duration = Duration::from_secs(5);

type Policies = Arc<Objects<PeerAuthentication>>;

/// Sets of policies that are remembered. Chosen: an author who changes them more often has proxies that have received none of the
/// earlier sets.
const MAX_EARLIER: usize = 8;

/// The current ones, and those that some proxies may still go by.
#[derive(Debug, Default)]
pub(super) struct PeerAuthenticationHistory {
    /// `None`: nothing was served yet.
    current: Option<Policies>,
    /// Each until then, the oldest first. Each has a time of its own: changes elsewhere do not keep what was said of a workload.
    earlier: VecDeque<(Policies, Duration)>,
}

impl PeerAuthenticationHistory {
    /// Policies that some proxies may still go by, where these are the current ones.
    pub(super) fn earlier(&mut self, current: &Policies, now: Duration) -> Vec<Policies> {
        let before = self.current.replace(Arc::clone(current));
        if let Some(before) = before.filter(|before| !is_same(before, current)) {
            // Policies that come back go to the end, so that deadlines ascend and `deadline` reads the first.
            self.earlier.retain(|(one, _)| !is_same(one, &before));
            self.earlier.push_back((before, now + GRACE));
            let more = self.earlier.len().saturating_sub(MAX_EARLIER);
            self.earlier.drain(..more);
        }
        let all = self.earlier.iter().map(|(one, _)| one);
        all.filter(|one| !is_same(one, current)).cloned().collect()
    }

    /// Returns the time at which the oldest policies expire.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.earlier.front().map(|(_, until)| *until)
    }

    /// Drops policies whose time is over. Returns true if there were any: all proxies are to hear of it.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let before = self.earlier.len();
        self.earlier.retain(|(_, until)| *until > now);
        self.earlier.len() < before
    }
}

fn is_same(one: &Policies, other: &Policies) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

#[cfg(test)]
mod tests {
    use api::model::Configured;

    use super::*;

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn policies(names: &[&str]) -> Policies {
        let all = names.iter().map(|name| {
            let one = Configured {
                name: (*name).into(),
                namespace: "n".into(),
                created: None,
                prefers_close: false,
                dry_run: false,
                spec: PeerAuthentication::default(),
            };
            (("n".into(), (*name).into()), Arc::new(one))
        });
        Arc::new(all.collect())
    }

    #[test]
    fn earlier_policies_count_for_a_while() {
        let mut peers = PeerAuthenticationHistory::default();
        let (none, one, two) = (policies(&[]), policies(&["a"]), policies(&["a", "b"]));
        let nothing: [Policies; 0] = [];
        // The first ones are those of all.
        assert_eq!(peers.earlier(&one, second(0)), nothing);
        assert_eq!(peers.deadline(), None);
        assert_eq!(peers.earlier(&none, second(10)), std::slice::from_ref(&one));
        // Another push meanwhile, and another change.
        assert_eq!(peers.earlier(&none, second(12)), std::slice::from_ref(&one));
        assert_eq!(peers.earlier(&two, second(14)), [one, none.clone()]);
        assert_eq!(peers.deadline(), Some(second(15)));
        assert!(!peers.expire(second(14)) && peers.expire(second(15)));
        assert_eq!(peers.earlier(&two, second(15)), std::slice::from_ref(&none));
        // Back again: those in between have gone out, too.
        assert_eq!(peers.earlier(&none, second(16)), [two]);
        assert!(peers.expire(second(21)) && !peers.expire(second(22)));
        assert_eq!(peers.earlier(&none, second(22)), nothing);
        assert_eq!(peers.deadline(), None);
    }

    #[test]
    fn changes_without_end_are_not_all_remembered() {
        let mut peers = PeerAuthenticationHistory::default();
        for turn in 0..100 {
            let name = format!("p{turn}");
            let earlier = peers.earlier(&policies(&[&name]), second(0));
            assert!(earlier.len() <= MAX_EARLIER);
        }
    }
}
