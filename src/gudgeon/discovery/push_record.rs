//! One push: what is remembered of it, and the names that an endpoints-only one is about.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::model::{Configured, TriggerReason, World};
use api::networking::DestinationRule;
use tracing::debug;
use xds::cluster_names;
use xds::reason::Reasons;

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

/// The DestinationRules of a world that have subsets, by the hosts that they may be about: thousands of services may change
/// at once, and each looks its rules up.
#[derive(Default)]
struct RuleIndex<'a> {
    /// By full host name.
    full: RulesByHost<'a>,
    /// By name without a dot, which is completed by the namespace.
    short: RulesByHost<'a>,
    /// By what follows the asterisk.
    wildcards: RulesByHost<'a>,
}

type RulesByHost<'a> = HashMap<String, Vec<&'a Configured<DestinationRule>>>;

impl<'a> RuleIndex<'a> {
    fn new(world: &'a World) -> Self {
        let mut index = Self::default();
        for rule in world.destination_rules.values() {
            if rule.spec.subsets.is_empty() {
                continue;
            }
            let mut written = rule.spec.host.to_ascii_lowercase();
            let rules = if written.starts_with('*') {
                written.remove(0);
                &mut index.wildcards
            } else if written.contains('.') {
                &mut index.full
            } else {
                &mut index.short
            };
            rules.entry(written).or_default().push(&**rule);
        }
        index
    }

    /// Returns the names of the subsets of rules that may be about a host. A name too many costs a comparison of what a stream
    /// has; one too few would leave its endpoints as they were.
    fn subsets(&self, host: &str) -> BTreeSet<&'a str> {
        let host = host.to_ascii_lowercase();
        let full = self.full.get(&host);
        let short = host.split_once('.').and_then(|(name, rest)| {
            let rules = self.short.get(name)?.iter();
            Some(rules.filter(move |rule| {
                let behind = rest.strip_prefix(&*rule.namespace);
                behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('.'))
            }))
        });
        // The empty end is that of a bare asterisk.
        let ends = host.char_indices().map(|(at, _)| at).chain([host.len()]);
        let ends = ends.filter(|_| !self.wildcards.is_empty());
        let ends = ends.filter_map(|at| host.get(at..));
        let wildcards = ends.filter_map(|end| self.wildcards.get(end));
        let rules = full.into_iter().flatten();
        let rules = rules.chain(short.into_iter().flatten());
        let rules = rules.chain(wildcards.flatten());
        let subsets = rules.flat_map(|rule| &rule.spec.subsets);
        subsets.map(|subset| subset.name.as_str()).collect()
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
    use api::istio::networking::v1alpha3::Subset;
    use api::model::{Registry, Service, ServiceKey};

    use super::*;
    use crate::discovery::testing;

    fn rule(host: &str, namespace: &str) -> Arc<Configured<DestinationRule>> {
        let subset = Subset {
            name: "v1".to_owned(),
            ..Subset::default()
        };
        Arc::new(Configured {
            name: "a".into(),
            namespace: namespace.into(),
            created: None,
            prefers_close: false,
            dry_run: false,
            spec: DestinationRule {
                host: host.to_owned(),
                subsets: vec![subset],
                ..DestinationRule::default()
            },
        })
    }

    #[test]
    fn a_rule_may_mean_a_host() {
        for (written, host, may) in [
            ("web", "web.shop.svc.cluster.local", true),
            ("web", "web.shop", true),
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
            ("*.example", "a.\u{e9}.example", true),
        ] {
            let mut world = World::new(Arc::default());
            let rules = [(("shop".into(), "a".into()), rule(written, "shop"))];
            world.destination_rules = Arc::new(rules.into());
            let index = RuleIndex::new(&world);
            assert_eq!(!index.subsets(host).is_empty(), may, "{written} {host}");
        }
    }

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

    /// A cluster that goes changes all its services at once.
    #[test]
    fn many_rules_and_services_cost_no_product() {
        let world = |services: usize| {
            let mut world = World::new(Arc::default());
            let rules = (0..2 * services).map(|at| {
                let name: Arc<str> = format!("r{at}").into();
                (
                    ("shop".into(), name),
                    rule(&format!("s{at}.shop.example"), "shop"),
                )
            });
            world.destination_rules = Arc::new(rules.collect());
            world
        };
        let look = |world: &World, services: usize| {
            let index = RuleIndex::new(world);
            for at in 0..services {
                assert_eq!(index.subsets(&format!("s{at}.shop.example")).len(), 1);
            }
        };
        let (small, large) = (world(312), world(10_000));
        crate::growth::assert_linear(32, || look(&small, 312), || look(&large, 10_000));
    }
}
