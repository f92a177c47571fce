//! Hosts of a ServiceEntry that are not served, or otherwise than they say.

use serde_json::Value as Json;

use super::{is_udp, items};
use crate::config::Finding;
use crate::names::is_host_pattern;

/// Why nothing is made of a host of a ServiceEntry; `None`: it is served. `resolves`: proxies look up the host itself, for there
/// is no endpoint.
#[must_use]
pub fn unserved_host(host: &str, resolves: bool) -> Option<&'static str> {
    if !is_host_pattern(host) {
        return Some("is not served: a wildcard is served as \"*.\" alone");
    }
    (host.starts_with('*') && resolves)
        .then_some("is not served: a wildcard that is to be resolved has endpoints")
}

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let resolution = spec.get("resolution").and_then(Json::as_str);
    let is_dynamic = resolution == Some("DYNAMIC_DNS");
    let is_dns = matches!(resolution, Some("DNS" | "DNS_ROUND_ROBIN"));
    let has_none = items(spec, "endpoints").next().is_none();
    let resolves = is_dns && has_none && spec.get("workloadSelector").is_none();
    let mut findings = Vec::new();
    for (at, host) in items(spec, "hosts") {
        let host = host.as_str().unwrap_or_default();
        if let Some(why) = unserved_host(host, resolves) {
            findings.push(Finding::warning(format!("spec.hosts[{at}]"), why));
        }
    }
    if items(spec, "ports").next().is_none() {
        let why = "is not served: there is no port";
        findings.push(Finding::warning("spec.ports", why));
    }
    for (at, _) in items(spec, "ports").filter(|(_, port)| is_udp(port)) {
        let path = format!("spec.ports[{at}].protocol");
        let why = "is not served: proxies carry no UDP, so that the port is left out";
        findings.push(Finding::warning(path, why));
    }
    if is_dynamic {
        let how =
            "is served as NONE: connections go to the address that the application has looked up";
        findings.push(Finding::warning("spec.resolution", how));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::discovery_notes::noted;
    use serde_json::json;

    #[test]
    fn a_note_names_a_service_entry_that_is_served_otherwise() {
        let port = json!([{"number": 80, "name": "a", "protocol": "HTTP"}]);
        let entry = |hosts: &[&str], resolution: Json| {
            let spec = json!({"hosts": hosts, "ports": port, "resolution": resolution});
            noted("ServiceEntry", &spec)
        };
        assert_eq!(entry(&["a.b", "*.b"], json!("NONE")), [""; 0]);
        let ports = json!([port[0], {"number": 53, "name": "d", "protocol": "UDP"}]);
        assert_eq!(
            noted(
                "ServiceEntry",
                &json!({"hosts": ["a.b"], "ports": ports, "resolution": "NONE"})
            ),
            [
                "spec.ports[1].protocol: is not served: proxies carry no UDP, so that the port is left out"
            ]
        );
        assert_eq!(entry(&["a.b", "*.b"], Json::Null), [""; 0]);
        // By name, and by number.
        for resolution in [json!("STATIC"), json!(1)] {
            assert_eq!(entry(&["a.b", "*.b"], resolution), [""; 0]);
        }
        let itself =
            "spec.hosts[1]: is not served: a wildcard that is to be resolved has endpoints";
        for resolution in [json!("DNS"), json!(2), json!("DNS_ROUND_ROBIN")] {
            assert_eq!(entry(&["a.b", "*.b"], resolution.clone()), [itself]);
            let spec = json!({"hosts": ["*.b"], "ports": port, "resolution": resolution, "endpoints": [{"address": "a.b"}]});
            assert_eq!(noted("ServiceEntry", &spec), [""; 0]);
        }
        let shape = "spec.hosts[0]: is not served: a wildcard is served as \"*.\" alone";
        assert_eq!(entry(&["*-a.b"], json!("NONE")), [shape]);
        let dynamic = "spec.resolution: is served as NONE: connections go to the address that the application has looked up";
        assert_eq!(entry(&["*.b"], json!("DYNAMIC_DNS")), [dynamic]);
        let none = noted("ServiceEntry", &json!({"hosts": ["a.b"]}));
        assert_eq!(none, ["spec.ports: is not served: there is no port"]);
        let listener =
            |endpoint: &str| json!({"port": {"number": 80}, "default_endpoint": endpoint});
        let all = [":80", "0.0.0.0:80", "[::]:80", "127.0.0.1:80", "unix:///a"].map(listener);
        let how = "is served at the loopback address: a listener at the pod's own address alone is not reached";
        let expected = [1, 2].map(|at| format!("spec.ingress[{at}].defaultEndpoint: {how}"));
        assert_eq!(noted("Sidecar", &json!({"ingress": all})), expected);
    }

    /// A name that is not a host is never served.
    #[test]
    fn hosts_that_are_valid_are_served_or_named() {
        for (host, served, resolved) in [
            ("a", true, true),
            ("a.example.", true, true),
            ("*.example", true, false),
            ("*example", false, false),
            ("*-a.example", false, false),
        ] {
            assert_eq!(unserved_host(host, false).is_none(), served, "{host}");
            assert_eq!(unserved_host(host, true).is_none(), resolved, "{host}");
        }
    }
}
