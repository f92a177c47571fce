//! DestinationRules by the hosts that they may be about.

use std::collections::{BTreeSet, HashMap};

use api::model::{Configured, World};
use api::networking::DestinationRule;

/// The DestinationRules of a world that have subsets, by the hosts that they may be about: thousands of services may change
/// at once, and each looks its rules up.
#[derive(Default)]
pub(super) struct RuleIndex<'a> {
    /// By full host name.
    full: RulesByHost<'a>,
    /// By name without a dot, which is completed by the namespace.
    short: RulesByHost<'a>,
    /// By what follows the asterisk.
    wildcards: RulesByHost<'a>,
}

type RulesByHost<'a> = HashMap<String, Vec<&'a Configured<DestinationRule>>>;

impl<'a> RuleIndex<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let mut index = Self::default();
        for rule in world.destination_rules.values() {
            if rule.spec.subsets.is_empty() {
                continue;
            }
            let mut host = rule.spec.host.to_ascii_lowercase();
            let rules = if host.starts_with('*') {
                host.remove(0);
                &mut index.wildcards
            } else if host.contains('.') {
                &mut index.full
            } else {
                &mut index.short
            };
            rules.entry(host).or_default().push(&**rule);
        }
        index
    }

    /// Returns the names of the subsets of rules that may be about a host. A name too many costs a comparison of what a stream
    /// has; one too few would leave its endpoints as they were.
    pub(super) fn subsets(&self, host: &str) -> BTreeSet<&'a str> {
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

#[cfg(test)]
pub(super) mod testing {
    use std::sync::Arc;

    use api::istio::networking::v1alpha3::Subset;

    use super::*;

    /// Returns a rule with one subset, `v1`.
    pub(in crate::discovery) fn rule(
        host: &str,
        namespace: &str,
    ) -> Arc<Configured<DestinationRule>> {
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::testing::rule;
    use super::*;

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
