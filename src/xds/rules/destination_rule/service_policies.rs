//! The DestinationRules of one service, and what of it each decides about.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::config::discovery_notes::MAX_SUBSETS;
use api::istio::networking::v1alpha3::Subset;
use api::model::{ObjectRef, Service};
use api::networking::DestinationRule;

use super::EffectivePolicy;
use crate::scope::{ProxyRules, Rule};

/// The rules for one service, in order: the policy of the first rule that has one counts, and the subsets of all rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServicePolicies {
    pub(super) rules: Vec<Arc<Rule<DestinationRule>>>,
    /// The number of the service's ports.
    ports: usize,
}

impl ServicePolicies {
    /// The rules that hold for a proxy's connections to a service.
    pub(crate) fn of_service(rules: &ProxyRules, service: &Service) -> Self {
        Self::new(rules.destination_rules(service), service)
    }

    /// The rules that hold for connections that come in at a service.
    pub(crate) fn of_server(rules: &ProxyRules, service: &Service) -> Self {
        Self::new(rules.rules_of_server(service), service)
    }

    fn new(mut rules: Vec<Arc<Rule<DestinationRule>>>, service: &Service) -> Self {
        let (mut is_first, mut has_policy) = (true, false);
        rules.retain(|rule| {
            let spec = rule.spec();
            let decides = spec.traffic_policy.is_some() && !has_policy;
            has_policy |= spec.traffic_policy.is_some();
            // The first one has the cluster's metadata, whatever it says.
            let has_a_part = decides || !spec.subsets.is_empty() || is_first;
            is_first = false;
            has_a_part
        });
        Self {
            rules,
            ports: service.ports.len(),
        }
    }

    /// The rule that stands in the metadata of the service's clusters.
    pub(crate) fn first(&self) -> Option<&ObjectRef> {
        self.rules.first().map(|rule| &rule.from)
    }

    /// The rules that decide about the clusters of a subset, or of all endpoints: three at most, since each of thousands of clusters
    /// keeps them.
    pub(crate) fn from(&self, subset: Option<&Subset>) -> Vec<ObjectRef> {
        let mut is_first = true;
        let mut has_policy = false;
        let deciding = self.rules.iter().filter(|rule| {
            let spec = rule.spec();
            let decides = spec.traffic_policy.is_some() && !has_policy;
            has_policy |= decides;
            let of_rule =
                |subset: &Subset| spec.subsets.iter().any(|one| std::ptr::eq(one, subset));
            std::mem::take(&mut is_first) || decides || subset.is_some_and(of_rule)
        });
        deciding.map(|rule| rule.from.clone()).collect()
    }

    /// All that clusters depend on besides the objects that [`Self::from`] names: a part of their cache key.
    pub(crate) fn shared_facts(&self) -> (usize, bool) {
        (self.clusters(), self.are_for_sidecars())
    }

    /// The rule whose traffic policy holds.
    pub(crate) fn with_traffic_policy(&self) -> Option<&ObjectRef> {
        let mut rules = self.rules.iter();
        let first = rules.find(|rule| rule.spec().traffic_policy.is_some());
        first.map(|rule| &rule.from)
    }

    /// Returns the subsets, each name once; of two with one name the first.
    pub(crate) fn subsets(&self) -> Vec<&Subset> {
        let mut names = BTreeSet::new();
        let all = self.written();
        all.filter(|subset| names.insert(&subset.name)).collect()
    }

    pub(crate) fn subset(&self, name: &str) -> Option<&Subset> {
        self.written().find(|subset| subset.name == name)
    }

    /// Returns the subsets of all rules, as many as count.
    fn written(&self) -> impl Iterator<Item = &Subset> {
        let all = self.rules.iter().flat_map(|rule| &rule.spec().subsets);
        all.take(MAX_SUBSETS)
    }

    /// Returns the number of a service's clusters: one for each port and each subset.
    pub(super) fn clusters(&self) -> usize {
        let all = self.rules.iter().map(|rule| rule.spec().subsets.len());
        let subsets = all.sum::<usize>().min(MAX_SUBSETS);
        self.ports.saturating_mul(subsets.saturating_add(1))
    }

    /// Returns the policy for a port: a subset's own settings over those of the rule. Settings of one port replace all others
    /// of their rule.
    pub(crate) fn of<'a>(&'a self, subset: Option<&'a Subset>, port: u16) -> EffectivePolicy<'a> {
        let mut rules = self.rules.iter();
        let top = rules.find_map(|rule| rule.spec().traffic_policy.as_ref());
        let own = subset.and_then(|subset| subset.traffic_policy.as_ref());
        let mut policy = EffectivePolicy::default();
        for traffic_policy in top.into_iter().chain(own) {
            policy.add(traffic_policy, port);
        }
        policy
    }
}
