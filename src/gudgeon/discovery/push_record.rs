//! One push: what is remembered of it, and the names that an endpoints-only one is about.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::model::{TriggerReason, World};
use tracing::debug;
use xds::cluster_names;
use xds::reason::Reasons;

use super::destination_rule_index::RuleIndex;

/// One push, for the page.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) at: Duration,
    /// The time from the first change to the begin of making the snapshot.
    pub(crate) waited: Duration,
    pub(crate) build_time: Duration,
    pub(crate) full: bool,
    pub(crate) reasons: Reasons,
    pub(crate) streams: usize,
}

impl Pushed {
    pub(super) fn log(&self) {
        let reasons: Vec<_> = self.reasons.iter().map(TriggerReason::as_str).collect();
        debug!(
            "push for {}: {}, full: {}",
            reasons.join(", "),
            api::counted(self.streams, "stream"),
            self.full
        );
    }
}

/// Names of the assignments that these services have, by themselves and by the subsets that DestinationRules make of them.
pub(super) fn assignments(world: &World, hosts: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    if hosts.is_empty() {
        return BTreeSet::new();
    }
    let index = RuleIndex::new(world);
    let mut all = BTreeSet::new();
    let services = world.services.values();
    for service in services.filter(|service| hosts.contains(&service.key.hostname)) {
        let host = &service.key.hostname;
        let subsets = index.subsets(host);
        for port in &service.ports {
            let own = std::iter::once("").chain(subsets.iter().copied());
            all.extend(own.flat_map(|subset| {
                // Gateways that lead TLS on by its server name have the endpoints under that name.
                let names = [cluster_names::outbound, cluster_names::by_server_name];
                names.map(|name| -> Arc<str> { name(port.number, subset, host).into() })
            }));
        }
    }
    all
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

    /// Returns all pushes, the oldest first.
    pub(crate) fn all(&self) -> Vec<Pushed> {
        self.pushes().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use api::model::{Registry, Service, ServiceKey};

    use super::*;
    use crate::discovery::destination_rule_index::testing::rule;
    use crate::discovery::testing;

    #[test]
    fn a_service_has_assignments_for_clients_and_for_gateways() {
        let mut world = World::new(Arc::default());
        let rules = [(
            ("shop".into(), "a".into()),
            rule("web.shop.example", "shop"),
        )];
        world.destination_rules = Arc::new(rules.into());
        let key = ServiceKey::new("web.shop.example", "shop");
        let service = Service {
            registry: Registry::External,
            ..testing::service(key)
        };
        world.services = Arc::new([(service.key.clone(), Arc::new(service))].into());
        let host: Arc<str> = "web.shop.example".into();
        let names = assignments(&world, &[host].into());
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        assert_eq!(
            names,
            [
                "outbound_.80_._.web.shop.example",
                "outbound_.80_.v1_.web.shop.example",
                "outbound|80|v1|web.shop.example",
                "outbound|80||web.shop.example",
            ]
        );
    }
}
