//! Hosts that rules write, and services that they mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::service_ports::ServicePorts;

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
