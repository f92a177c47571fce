//! Notes about a Sidecar that discovery cannot serve as it is written.

use serde_json::Value as Json;

use super::{files, gateway, is_udp, items};
use crate::config::Finding;
use crate::names::MAX_SOCKET_LENGTH;

/// The most listeners that discovery makes of a Sidecar's egress. Chosen: more than users can tell apart.
pub const MAX_EGRESS_LISTENERS: usize = 256;

/// In front of the path of a socket.
const UNIX: &str = "unix://";

/// Envoy calls the sockets of its hot restart so, in the same network.
const HOT_RESTART: &str = "@envoy_domain_socket";

/// Directories in which proxies, their images and their kernels have files. Envoy removes any file at the path that it is to
/// listen at: a certificate, its own configuration, the socket that it gets secrets by.
const OF_PROXIES: [&str; 15] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/run/sds",
    "/run/secrets",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/istio",
    "/var/run/sds",
    "/var/run/secrets",
];

/// The path, or `@NAME`, at which proxies listen for a Sidecar's `bind`.
///
/// # Errors
///
/// Proxies do not listen there, and why: Envoy would refuse the listener, or take something from the proxy.
pub fn egress_socket(bind: &str) -> Result<&str, String> {
    let path = bind
        .strip_prefix(UNIX)
        .ok_or("it is no socket unix://PATH")?;
    if path.len() > MAX_SOCKET_LENGTH {
        return Err(format!("it is longer than {MAX_SOCKET_LENGTH} bytes"));
    }
    if path.contains('\0') {
        return Err("it has a NUL in it".to_owned());
    }
    if let Some(name) = path.strip_prefix('@') {
        return match name.is_empty() || path.starts_with(HOT_RESTART) {
            true => Err(format!("{HOT_RESTART}… are names of Envoy's hot restart")),
            false => Ok(path),
        };
    }
    let parts = path.strip_prefix('/').ok_or("it is no absolute path")?;
    // Two spellings of one path would be two listeners, the later of which takes the socket from the earlier.
    if parts.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("a path has no empty part, no . and no ..".to_owned());
    }
    let is_in = |directory: &&&str| {
        let rest = path.strip_prefix(**directory);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match OF_PROXIES.iter().find(is_in) {
        Some(directory) => Err(format!("proxies have files of their own in {directory}")),
        None => Ok(path),
    }
}

/// Notes on the limits of inbound connections.
fn of_pool(path: &str, pool: Option<&Json>, findings: &mut Vec<Finding>) {
    let upgrade = pool.and_then(|pool| pool.pointer("/http/h2UpgradePolicy"));
    if upgrade.is_some_and(|upgrade| *upgrade != "DEFAULT") {
        let why = "has no effect: the protocol of the port decides";
        findings.push(Finding::warning(
            format!("{path}.http.h2UpgradePolicy"),
            why,
        ));
    }
}

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, listener) in items(spec, "egress") {
        // A socket has port 0; a listener without a port has addresses.
        let number = listener.get("port").map(|port| port.get("number"));
        if number.is_none_or(|number| number.and_then(Json::as_u64).is_some_and(|one| one > 0)) {
            continue;
        }
        let bind = listener.get("bind").and_then(Json::as_str);
        if let Err(why) = egress_socket(bind.unwrap_or_default()) {
            let why = format!("is not served: {why}");
            findings.push(Finding::warning(format!("spec.egress[{at}].bind"), why));
        }
    }
    if items(spec, "egress").count() > MAX_EGRESS_LISTENERS {
        let why = format!("is served in part: the first {MAX_EGRESS_LISTENERS} listeners count");
        findings.push(Finding::warning("spec.egress", why));
    }
    of_pool(
        "spec.inboundConnectionPool",
        spec.get("inboundConnectionPool"),
        &mut findings,
    );
    for (at, listener) in items(spec, "ingress") {
        if listener.get("port").is_some_and(is_udp) {
            let path = format!("spec.ingress[{at}].port.protocol");
            let why = "is not served: proxies carry no UDP, so that the port is left out";
            findings.push(Finding::warning(path, why));
        }
        let pool = format!("spec.ingress[{at}].connectionPool");
        of_pool(&pool, listener.get("connectionPool"), &mut findings);
        if let Some(tls) = listener.get("tls") {
            let path = format!("spec.ingress[{at}].tls");
            gateway::of_tls(&path, tls, "no client is let in there", &mut findings);
            files::notes(&path, tls, &mut findings);
        }
        let endpoint = listener.get("defaultEndpoint").and_then(Json::as_str);
        let endpoint = endpoint.unwrap_or_default();
        if endpoint.starts_with("0.0.0.0:") || endpoint.starts_with("[::]:") {
            let path = format!("spec.ingress[{at}].defaultEndpoint");
            let how = "is served at the loopback address: a listener at the pod's own address alone is not reached";
            findings.push(Finding::warning(path, how));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn proxies_listen_where_they_have_no_files() {
        for path in [
            "/run/app",
            "/var/run/app/s",
            "/tmp/s",
            "@app",
            "@/etc/app",
            "/etcetera",
            "/run/secrets-of-mine/s",
            "/a.b/..c/.d",
        ] {
            assert_eq!(egress_socket(&format!("unix://{path}")), Ok(path));
        }
        let long = format!("/{}", "a".repeat(MAX_SOCKET_LENGTH));
        for (path, why) in [
            ("/etc/certs/key.pem", "in /etc"),
            ("/etc", "in /etc"),
            ("/var/run/sds/uds_path", "in /var/run/sds"),
            ("/run/secrets/tokens/istio-token", "in /run/secrets"),
            ("/usr/local/bin/envoy", "in /usr"),
            ("/dev/stdout", "in /dev"),
            ("/tmp//s", "no empty part"),
            ("/tmp/../etc/certs/key.pem", "no .."),
            ("/tmp/./s", "no . and"),
            ("/tmp/", "no empty part"),
            ("/", "no empty part"),
            ("tmp/s", "no absolute path"),
            ("", "no absolute path"),
            ("/a\0b", "a NUL"),
            ("@a\0b", "a NUL"),
            ("@", "hot restart"),
            ("@envoy_domain_socket_child_1", "hot restart"),
            (&*long, "longer than 107 bytes"),
        ] {
            let found = egress_socket(&format!("unix://{path}")).unwrap_err();
            assert!(found.contains(why), "{path}: {found}");
        }
        assert!(egress_socket("127.0.0.1").is_err());
    }

    #[test]
    fn a_note_names_fields_of_what_comes_in_without_effect() {
        let kind = crate::config::named("networking.istio.io", "Sidecar").unwrap();
        let said = |spec: Json| -> Vec<String> {
            let notes = crate::config::notes(kind, &spec).into_iter();
            let notes = notes.map(|note| format!("{}: {}", note.path, note.message));
            notes.collect()
        };
        let pool = |upgrade: &str| json!({"http": {"h2UpgradePolicy": upgrade, "maxRetries": 1}});
        let usual = pool("DEFAULT");
        let silent =
            json!({"ingress": [{"connectionPool": usual}], "inboundConnectionPool": usual});
        assert_eq!(said(silent), [""; 0]);
        let why = "has no effect: the protocol of the port decides";
        let upgrade = pool("UPGRADE");
        assert_eq!(
            said(
                json!({"ingress": [{"connectionPool": upgrade}], "inboundConnectionPool": upgrade})
            ),
            [
                format!("spec.inboundConnectionPool.http.h2UpgradePolicy: {why}"),
                format!("spec.ingress[0].connectionPool.http.h2UpgradePolicy: {why}"),
            ]
        );
        assert_eq!(
            said(
                json!({"ingress": [{"port": {"number": 53, "protocol": "udp"}}, {"port": {"number": 80, "protocol": "HTTP"}}]})
            ),
            [
                "spec.ingress[0].port.protocol: is not served: proxies carry no UDP, so that the port is left out"
            ]
        );
        let tls = json!({"mode": "SIMPLE", "serverCertificate": "/c", "privateKey": "/k", "verifyCertificateSpki": ["x"]});
        assert_eq!(
            said(json!({"ingress": [{"tls": tls}]})),
            [
                "spec.ingress[0].tls.verifyCertificateSpki: has no effect with SIMPLE: no client is asked for a certificate"
            ]
        );
        let tls = json!({"mode": "MUTUAL", "caCertificates": "/r", "verifyCertificateSpki": ["x"]});
        assert_eq!(
            said(json!({"ingress": [{"tls": tls}]})),
            [
                "spec.ingress[0].tls.verifyCertificateSpki[0]: is no SHA-256: no client is let in there"
            ]
        );
    }
}
