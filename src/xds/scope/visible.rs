//! Services and rules by what they are for, as one class of namespaces sees them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::model::Labels;
use api::networking::{DestinationRule, VirtualService};

use super::all::{Exported, Rules};
use super::{Rule, is_of_mesh, labels};
use crate::common::conflict::{Conflict, DUPLICATE_DOMAIN};
use crate::common::outlets::Outlets;

/// Rules of one namespace by their host, each list in order.
type ByHost = BTreeMap<String, Vec<Arc<Rule<DestinationRule>>>>;

/// What one class of namespaces sees.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Ports of services.
    pub(crate) outlets: Outlets,
    /// They are others than most see.
    pub(super) has_own_services: bool,
    /// For sidecars, by host; of two with one host the older.
    pub(super) virtual_services: BTreeMap<String, Arc<Rule<VirtualService>>>,
    /// By their own namespace.
    pub(super) destination_rules: HashMap<Arc<str>, ByHost>,
    /// Labels that rules ask proxies for, sorted.
    pub(super) selectors: Vec<Labels>,
    /// Places of those that DestinationRules ask for: clusters depend on no others.
    pub(super) of_clusters: BTreeSet<usize>,
    pub(super) conflicts: Vec<Conflict>,
}

impl Visible {
    /// `common`: what others see.
    pub(super) fn new(rules: &Rules, namespace: Option<&Arc<str>>, common: Option<&Self>) -> Self {
        let outlets = rules
            .services
            .seeing(|service| rules.is_seen(service, namespace));
        let mut visible = Self {
            has_own_services: common.is_some_and(|common| !common.outlets.is_same(&outlets)),
            outlets,
            ..Self::default()
        };
        let mut selectors = visible.add_virtual_services(rules, namespace);
        let of_clusters = visible.add_destination_rules(rules, namespace);
        selectors.extend(of_clusters.iter().cloned());
        selectors.retain(|selector: &Labels| !selector.is_empty());
        visible.selectors = selectors.into_iter().collect();
        let all = visible.selectors.iter().enumerate();
        let of_clusters = all.filter(|(_, selector)| of_clusters.contains(*selector));
        visible.of_clusters = of_clusters.map(|(at, _)| at).collect();
        visible
    }

    /// Returns the labels that they ask for.
    fn add_virtual_services(
        &mut self,
        rules: &Rules,
        namespace: Option<&Arc<str>>,
    ) -> BTreeSet<Labels> {
        let mut selectors = BTreeSet::new();
        let seen = rules.virtual_services.iter();
        for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
            let spec = rule.spec();
            if !is_of_mesh(&spec.gateways) || spec.http.is_empty() {
                continue;
            }
            for host in &rule.hosts {
                if let Some(older) = self.virtual_services.get(host) {
                    // Some write a host twice, in full and in short.
                    if older.from == rule.from {
                        continue;
                    }
                    let message = format!("{} is left out: {} is older", rule.from, older.from);
                    let conflict = Conflict::new(DUPLICATE_DOMAIN, host, message);
                    self.conflicts.push(conflict.because_of(&rule.from));
                } else {
                    self.virtual_services.insert(host.clone(), rule.clone());
                }
            }
            let matches = spec.http.iter().flat_map(|http| &http.r#match);
            selectors.extend(matches.map(|one| labels(&one.source_labels)));
        }
        selectors
    }

    /// Returns the labels that they ask for.
    fn add_destination_rules(
        &mut self,
        rules: &Rules,
        namespace: Option<&Arc<str>>,
    ) -> BTreeSet<Labels> {
        let mut selectors = BTreeSet::new();
        let seen = rules.destination_rules.iter();
        for Exported { rule, .. } in seen.filter(|one| one.to.has(namespace)) {
            let of = self.destination_rules.entry(rule.namespace().clone());
            let of = of.or_default();
            for host in &rule.hosts {
                of.entry(host.clone()).or_default().push(rule.clone());
            }
            // For workloads of its own namespace alone.
            let selector = rule.spec().workload_selector.as_ref();
            let selector = selector.filter(|_| namespace == Some(rule.namespace()));
            selectors.extend(selector.map(|one| labels(&one.match_labels)));
        }
        selectors
    }
}
