//! Files of certificates that a proxy has: it finds them by an absolute path alone.

use serde_json::Value as Json;

use super::items;
use crate::config::Finding;

/// The word of a DestinationRule's `caCertificates` for the roots of the system.
const SYSTEM: &str = "system";

/// Notes on the files that a TLS setting of clients names.
pub(super) fn client_notes(path: &str, tls: &Json, findings: &mut Vec<Finding>) {
    let mut all = Vec::new();
    notes(path, tls, &mut all);
    let roots = format!("{path}.caCertificates");
    let is_system = tls.get("caCertificates").and_then(Json::as_str) == Some(SYSTEM);
    findings.extend(
        all.into_iter()
            .filter(|note| !is_system || note.path != roots),
    );
}

/// Notes on the files that a TLS setting names, be it of clients or of servers.
pub(super) fn notes(path: &str, tls: &Json, findings: &mut Vec<Finding>) {
    for field in [
        "clientCertificate",
        "serverCertificate",
        "privateKey",
        "caCertificates",
        "caCrl",
    ] {
        let file = tls.get(field).and_then(Json::as_str).unwrap_or_default();
        if !file.is_empty() && !file.starts_with('/') {
            let why = "is no absolute path: proxies refuse a name without a directory, and look for others where they happen to run";
            findings.push(Finding::warning(format!("{path}.{field}"), why));
        }
    }
    for (at, pair) in items(tls, "tlsCertificates") {
        notes(&format!("{path}.tlsCertificates[{at}]"), pair, findings);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{named, notes};

    /// As the real Envoy takes them: it has no watch for a file without a directory.
    #[test]
    fn a_file_without_an_absolute_path_is_told() {
        let said = |kind: &str, spec: Json| {
            let kind = named("networking.istio.io", kind).unwrap();
            let notes = notes(kind, &spec).into_iter();
            let told = notes.filter(|note| note.message.starts_with("is no absolute path"));
            told.map(|note| note.path).collect::<Vec<_>>()
        };
        let of_client = |ca: &str| json!({"mode": "MUTUAL", "clientCertificate": "c.pem", "privateKey": "a/k.pem", "caCertificates": ca, "caCrl": "/a"});
        let rule = |ca: &str| {
            let policy = json!({"tls": of_client(ca)});
            json!({"host": "a", "trafficPolicy": {"portLevelSettings": [policy]}, "subsets": [{"name": "s", "trafficPolicy": policy}]})
        };
        let (port, subset) = (
            "spec.trafficPolicy.portLevelSettings[0].tls",
            "spec.subsets[0].trafficPolicy.tls",
        );
        let fields = ["clientCertificate", "privateKey"];
        let expected: Vec<_> = [port, subset]
            .iter()
            .flat_map(|path| fields.map(|field| format!("{path}.{field}")))
            .collect();
        assert_eq!(said("DestinationRule", rule("/a/b")), expected);
        assert_eq!(said("DestinationRule", rule("system")), expected);
        assert_eq!(said("DestinationRule", rule("ca.pem")).len(), 6);
        let files = json!({"mode": "MUTUAL", "clientCertificate": "system", "privateKey": "/k"});
        let own = json!({"host": "a", "trafficPolicy": {"tls": files}});
        let path = "spec.trafficPolicy.tls.clientCertificate";
        assert_eq!(said("DestinationRule", own), [path]);
        let pair = json!({"serverCertificate": "/a/c", "privateKey": "k"});
        let tls = json!({"mode": "SIMPLE", "tlsCertificates": [pair]});
        let gateway = json!({"servers": [{"port": {"number": 443, "protocol": "HTTPS", "name": "a"}, "hosts": ["*"], "tls": tls}]});
        assert_eq!(
            said("Gateway", gateway),
            ["spec.servers[0].tls.tlsCertificates[0].privateKey"]
        );
        let sidecar = json!({"ingress": [{"port": {"number": 1}, "tls": {"mode": "SIMPLE", "serverCertificate": "/a", "privateKey": "k"}}]});
        assert_eq!(said("Sidecar", sidecar), ["spec.ingress[0].tls.privateKey"]);
    }
}
