//! One push: what is remembered of it, and the names that an endpoints-only one is about.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::model::World;
use xds::reason::Reasons;

/// One push, for the page.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) at: Duration,
    /// The time from the first change to the begin of making the snapshot.
    pub(crate) waited: Duration,
    pub(crate) made_in: Duration,
    pub(crate) full: bool,
    pub(crate) reasons: Reasons,
    pub(crate) streams: usize,
}

/// Names of the assignments that these services have, by themselves and by the subsets that DestinationRules make of them.
pub(super) fn assignments(world: &World, hosts: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    if hosts.is_empty() {
        return BTreeSet::new();
    }
    let mut all = BTreeSet::new();
    let services = world.services.values();
    for service in services.filter(|service| hosts.contains(&service.key.hostname)) {
        let host = &service.key.hostname;
        let rules = world.destination_rules.values();
        let rules = rules.filter(|rule| may_mean(&rule.spec.host, &rule.namespace, host));
        let subsets = rules.flat_map(|rule| &rule.spec.subsets);
        let subsets: BTreeSet<&str> = subsets.map(|subset| subset.name.as_str()).collect();
        for port in &service.ports {
            let own = std::iter::once("").chain(subsets.iter().copied());
            all.extend(own.map(|subset| -> Arc<str> {
                format!("outbound|{}|{subset}|{host}", port.number).into()
            }));
        }
    }
    all
}

/// Returns true if a rule of a namespace that writes one host may be about another. A name too many costs a comparison of what a
/// stream has; one too few would leave its endpoints as they were.
fn may_mean(written: &str, namespace: &str, host: &str) -> bool {
    let (written, host) = (written.to_ascii_lowercase(), host.to_ascii_lowercase());
    match written.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None if written.contains('.') => written == host,
        None => {
            let rest = host.strip_prefix(written.as_str());
            let rest = rest.and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|rest| rest == namespace || rest.starts_with(&format!("{namespace}.")))
        }
    }
}

/// Pushes that the page remembers.
const REMEMBERED: usize = 120;

/// The last pushes.
#[derive(Debug, Default)]
pub(crate) struct PushHistory(Mutex<VecDeque<Pushed>>);

impl PushHistory {
    fn pushes(&self) -> MutexGuard<'_, VecDeque<Pushed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, pushed: Pushed) {
        let mut pushes = self.pushes();
        if pushes.len() >= REMEMBERED {
            pushes.pop_front();
        }
        pushes.push_back(pushed);
    }

    /// The oldest first.
    pub(crate) fn all(&self) -> Vec<Pushed> {
        self.pushes().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_may_mean_a_host() {
        for (written, host, may) in [
            ("web", "web.shop.svc.cluster.local", true),
            ("Web", "web.shop.svc.cluster.local", true),
            ("web", "web.other.svc.cluster.local", false),
            ("web", "web.shopping.svc.cluster.local", false),
            ("we", "web.shop.svc.cluster.local", false),
            (
                "web.shop.svc.cluster.local",
                "web.shop.svc.cluster.local",
                true,
            ),
            ("web.shop", "web.shop.svc.cluster.local", false),
            ("*.local", "web.shop.svc.cluster.local", true),
            ("*", "a.example", true),
            ("*.example", "a.other", false),
        ] {
            assert_eq!(may_mean(written, "shop", host), may, "{written} {host}");
        }
    }
}
