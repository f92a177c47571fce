//! Hosts that rules write, and services that they mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::networking::VirtualService;

use super::Rule;
use crate::common::service_ports::ServicePorts;

/// Rules of sidecars by host; of two with one host the older.
pub(super) type RulesByHost = BTreeMap<String, Arc<Rule<VirtualService>>>;

/// Hosts of rules with their rules, sorted, by the wildcards of services that mean them.
pub(super) type RulesByWildcard = BTreeMap<String, Vec<(String, Arc<Rule<VirtualService>>)>>;

/// Returns true if all services that a host means are of this namespace.
pub(super) fn is_of(host: &str, namespace: &Arc<str>, service_ports: &ServicePorts) -> bool {
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
pub(super) fn wildcards_above(host: &str, service_ports: &ServicePorts) -> Vec<String> {
    if !service_ports.has_wildcards() {
        return Vec::new();
    }
    let mut all = patterns(host);
    all.retain(|pattern| pattern != host && service_ports.has_host(pattern));
    all
}

/// Finds the rules below wildcards of services: each host asks for its own wildcards, for there may be many of both.
pub(super) fn by_wildcard(rules: &RulesByHost, service_ports: &ServicePorts) -> RulesByWildcard {
    let mut all = RulesByWildcard::new();
    for (host, rule) in rules {
        for wildcard in wildcards_above(host, service_ports) {
            let below = all.entry(wildcard).or_default();
            below.push((host.clone(), rule.clone()));
        }
    }
    all
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
