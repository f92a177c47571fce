//! Hosts that rules write, and services that they mean.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::common::service_ports::ServicePorts;

/// A host without a dot is one of the rule's namespace.
pub(super) fn full_host(host: &str, namespace: &str, domain: &str) -> String {
    let host = spelled(host);
    let is_full = host.contains(['.', '*', ':']);
    if is_full || namespace.is_empty() {
        return host;
    }
    format!("{host}.{namespace}.svc.{domain}")
}

/// A host as it is compared with others: in lower case, and an address in its one form of many.
pub(crate) fn spelled(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

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
    fn a_host_is_in_full_and_in_lower_case() {
        for (host, full) in [
            ("a", "a.ns.svc.cluster.local"),
            ("A", "a.ns.svc.cluster.local"),
            ("a.other", "a.other"),
            ("A.Example.", "a.example"),
            ("*.example", "*.example"),
            ("*", "*"),
            ("2001:db8::1", "2001:db8::1"),
            ("2001:0DB8::0:1", "2001:db8::1"),
        ] {
            assert_eq!(full_host(host, "ns", "cluster.local"), full, "{host}");
        }
    }

    #[test]
    fn the_longest_wildcard_that_means_a_host_comes_first() {
        assert_eq!(patterns("a.b.c"), ["a.b.c", "*.b.c", "*.c", "*"]);
        assert_eq!(patterns("*.b.c"), ["*.b.c", "*.c", "*"]);
        assert_eq!(patterns("a"), ["a", "*"]);
    }
}
