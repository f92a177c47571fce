//! Hosts that rules write, and services that they mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::networking::VirtualService;

use super::Rule;
use crate::common::service_ports::ServicePorts;

/// Rules of sidecars by host; of two with one host the older.
pub(super) type RulesByHost = BTreeMap<String, Arc<Rule<VirtualService>>>;

/// Wildcards that a host of a rule is looked for at: the longest ones that services have. Chosen: few hosts lie below more, and a
/// tenant can have a hundred of them.
const MAX_WILDCARDS: usize = 4;

/// A host with its rule.
type HostOfRule = (Arc<str>, Arc<Rule<VirtualService>>);

/// Rules whose hosts lie below wildcards of services.
#[derive(Clone, Debug, Default)]
pub(super) struct BelowWildcards {
    /// Hosts with their rules, sorted, by the wildcard.
    rules: BTreeMap<Arc<str>, Vec<HostOfRule>>,
    /// Wildcards by the host, the longest first.
    wildcards: BTreeMap<Arc<str>, Vec<Arc<str>>>,
}

impl BelowWildcards {
    /// Each host asks for its own wildcards, for there may be many of both. `counts`: the rules that are kept.
    pub(super) fn new(
        rules: &RulesByHost,
        service_ports: &ServicePorts,
        counts: impl Fn(&Rule<VirtualService>) -> bool,
    ) -> Self {
        let mut all = Self::default();
        if !service_ports.has_wildcards() {
            return all;
        }
        for (host, rule) in rules.iter().filter(|(_, rule)| counts(rule)) {
            let wildcards = wildcards_above(host, service_ports);
            if wildcards.is_empty() {
                continue;
            }
            let host: Arc<str> = host.as_str().into();
            for wildcard in &wildcards {
                let below = all.rules.entry(wildcard.clone()).or_default();
                below.push((host.clone(), rule.clone()));
            }
            all.wildcards.insert(host, wildcards);
        }
        all
    }

    pub(super) fn rules(
        &self,
        wildcard: &str,
    ) -> impl Iterator<Item = (&str, &Arc<Rule<VirtualService>>)> {
        let below = self.rules.get(wildcard).into_iter().flatten();
        below.map(|(host, rule)| (&**host, rule))
    }

    pub(super) fn wildcards(&self, host: &str) -> &[Arc<str>] {
        self.wildcards.get(host).map_or(&[], Vec::as_slice)
    }
}

/// Returns true if all services that a host means are of this namespace.
pub(super) fn is_of(host: &str, namespace: &Arc<str>, service_ports: &ServicePorts) -> bool {
    // A wildcard may mean services of any namespace.
    if host.contains('*') {
        return false;
    }
    let mut services = service_ports.by_host(host);
    services.all(|service_port| service_port.service.key.namespace == *namespace)
}

/// A host in lower case, and the wildcards that mean it, the longest first.
pub(crate) fn patterns(host: &str) -> Vec<String> {
    let mut all = vec![host.to_owned()];
    let mut rest = host.strip_prefix("*.").unwrap_or(host);
    while let Some((_, shorter)) = rest.split_once('.') {
        all.push(format!("*.{shorter}"));
        rest = shorter;
    }
    all.push("*".to_owned());
    all
}

pub(super) fn most_specific<'a, V>(all: &'a BTreeMap<String, V>, host: &str) -> Option<&'a V> {
    if all.is_empty() {
        return None;
    }
    let patterns = patterns(&host.to_ascii_lowercase());
    patterns.iter().find_map(|pattern| all.get(pattern))
}

/// Wildcards of services that mean a host, which is in lower case, without itself; the longest first.
fn wildcards_above(host: &str, service_ports: &ServicePorts) -> Vec<Arc<str>> {
    let mut rest = host.strip_prefix("*.").unwrap_or(host);
    let mut wildcards = Vec::new();
    while let Some((_, shorter)) = rest.split_once('.') {
        let wildcard = format!("*.{shorter}");
        if service_ports.has_host(&wildcard) {
            wildcards.push(wildcard.into());
        }
        if wildcards.len() == MAX_WILDCARDS {
            break;
        }
        rest = shorter;
    }
    wildcards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wildcard_that_means_a_host_comes_first() {
        assert_eq!(patterns("a.b.c"), ["a.b.c", "*.b.c", "*.c", "*"]);
        assert_eq!(patterns("*.b.c"), ["*.b.c", "*.c", "*"]);
        assert_eq!(patterns("a"), ["a", "*"]);
    }
}
