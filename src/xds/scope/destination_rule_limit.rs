//! The number of DestinationRules for one host that count.

use std::collections::HashMap;
use std::sync::Arc;

use api::model::Labels;
use api::networking::DestinationRule;

use super::{Rule, labels};

/// DestinationRules of one namespace for one host and the same workloads that count for proxies who see them, and those for whatever
/// workloads. Chosen: one for each of many subsets; the work of a service grows with their number, whoever has written them.
const MAX_PER_HOST: usize = 100;
const MAX_OF_WORKLOADS: usize = 1000;

/// Counts the rules that one view has.
#[derive(Debug, Default)]
pub(super) struct HostLimit {
    by_host: HashMap<(Arc<str>, String), usize>,
    by_workloads: HashMap<(Arc<str>, String, Option<Labels>), usize>,
}

impl HostLimit {
    /// Returns the limit that a rule exceeds.
    pub(super) fn exceeded_by(&mut self, rule: &Rule<DestinationRule>) -> Option<usize> {
        let host = rule.hosts.first().cloned().unwrap_or_default();
        let selector = rule.spec().workload_selector.as_ref();
        let selector = selector.map(|one| labels(&one.match_labels));
        let place = (rule.namespace().clone(), host.clone());
        let of_workloads = (rule.namespace().clone(), host, selector);
        let counts = [
            (
                self.by_workloads.entry(of_workloads).or_default(),
                MAX_PER_HOST,
            ),
            (self.by_host.entry(place).or_default(), MAX_OF_WORKLOADS),
        ];
        let exceeded = counts.iter().find(|(count, max)| **count >= *max);
        let exceeded = exceeded.map(|(_, max)| *max);
        if exceeded.is_none() {
            for (count, _) in counts {
                *count += 1;
            }
        }
        exceeded
    }
}
