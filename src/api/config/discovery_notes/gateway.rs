//! Notes on the TLS settings of a Gateway's servers that proxies do not take.

use serde_json::Value as Json;

use super::super::{Finding, quoted};
use super::{files, is_udp, items};

/// Names that TLS of clients of 1.1 to 1.5 knew and Envoy refuses: there are no such suites.
const NO_SUITES: [&str; 2] = ["AES128-GCM-SHA384", "AES256-GCM-SHA256"];

/// Returns true if proxies take the name of a cipher suite.
#[must_use]
pub fn is_cipher_suite(name: &str) -> bool {
    super::super::rules::is_cipher_suite(name) && !NO_SUITES.contains(&name)
}

/// Returns true if proxies take a text as the hash of a key: SHA-256 in base64.
#[must_use]
pub fn is_key_pin(text: &str) -> bool {
    /// 32 bytes, the last two of 44 letters being two of them and a mark of the end.
    const LETTERS: usize = 43;
    let Some(letters) = text.strip_suffix('=') else {
        return false;
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    // The last letter has two bits that are no part of the bytes.
    let last = letters.as_bytes().last().copied().unwrap_or_default();
    letters.len() == LETTERS
        && letters.bytes().all(is_letter)
        && b"AEIMQUYcgkosw048".contains(&last)
}

/// Returns true if proxies take a text as the hash of a certificate: SHA-256 in hexadecimal digits, as they are or in pairs with
/// colons.
#[must_use]
pub fn is_certificate_hash(text: &str) -> bool {
    const BYTES: usize = 32;
    let is_digits = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut pairs = text.split(':');
    is_digits(text, 2 * BYTES)
        || text.split(':').count() == BYTES && pairs.all(|pair| is_digits(pair, 2))
}

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, server) in items(spec, "servers") {
        let path = format!("spec.servers[{at}]");
        let bind = server.get("bind").and_then(Json::as_str);
        if bind.is_some_and(|bind| bind.starts_with("unix://")) {
            let why =
                "is not served: routers listen on addresses alone, so that the server is left out";
            findings.push(Finding::warning(format!("{path}.bind"), why));
        }
        if server.get("port").is_some_and(is_udp) {
            let why = "is not served: routers carry no UDP, so that the server is left out";
            findings.push(Finding::warning(format!("{path}.port.protocol"), why));
        }
        if server.get("name").is_some_and(|name| name != "") {
            let why =
                "has no effect: statistics are called by the address that the server listens on";
            findings.push(Finding::warning(format!("{path}.name"), why));
        }
        if let Some(tls) = server.get("tls") {
            of_tls(
                &format!("{path}.tls"),
                tls,
                "the server is left out",
                &mut findings,
            );
            files::notes(&format!("{path}.tls"), tls, &mut findings);
        }
    }
    findings
}

/// The root that clients of a server are checked by, which Envoy has one of: the server's own, or else the first that stands beside
/// one of several certificates. Empty: neither is written.
#[must_use]
pub fn client_root<'a>(own: &'a str, mut of_pairs: impl Iterator<Item = &'a str>) -> &'a str {
    match own {
        "" => of_pairs.find(|root| !root.is_empty()).unwrap_or_default(),
        own => own,
    }
}

/// Fields that only matter where TLS ends, besides those of certificates, which a rule warns of.
const OF_ENDS: [&str; 8] = [
    "caCrl",
    "subjectAltNames",
    "verifyCertificateSpki",
    "verifyCertificateHash",
    "minProtocolVersion",
    "maxProtocolVersion",
    "cipherSuites",
    "caCertCredentialName",
];

/// Returns true if a field is written, and with another value than its default.
fn is_written(tls: &Json, name: &str) -> bool {
    tls.get(name).is_some_and(|value| {
        *value != "" && *value != "TLS_AUTO" && *value != Json::Array(Vec::new())
    })
}

/// Notes on the TLS of a server. `closed` tells the effect of a server that Envoy would refuse.
pub(super) fn of_tls(path: &str, tls: &Json, closed: &str, findings: &mut Vec<Finding>) {
    let mut warn = |field: String, why: &str| {
        findings.push(Finding::warning(format!("{path}.{field}"), why));
    };
    let has = |name: &str| tls.get(name).is_some();
    let mode = tls.get("mode").and_then(Json::as_str);
    let mode = mode.unwrap_or("PASSTHROUGH");
    if matches!(mode, "PASSTHROUGH" | "AUTO_PASSTHROUGH") {
        for name in OF_ENDS.into_iter().filter(|name| is_written(tls, name)) {
            let why = format!("has no effect with {mode}: TLS does not end there");
            warn(name.to_owned(), &why);
        }
        return;
    }
    if has("caCertCredentialName") && !has("credentialName") && !has("credentialNames") {
        let why = "has no effect without a credentialName";
        warn("caCertCredentialName".to_owned(), why);
    }
    for (at, suite) in items(tls, "cipherSuites") {
        let name = suite.as_str().unwrap_or_default();
        if NO_SUITES.contains(&name) {
            warn(
                format!("cipherSuites[{at}]"),
                "is left out: proxies have no such suite",
            );
        }
    }
    match mode {
        "SIMPLE" => of_unasked_clients(path, tls, findings),
        _ => of_clients(path, tls, closed, findings),
    }
}

/// The roots beside several certificates, each with its field.
fn pair_roots(tls: &Json) -> impl Iterator<Item = (String, &str)> {
    let pairs = items(tls, "tlsCertificates").map(|(at, pair)| {
        let root = pair.get("caCertificates").and_then(Json::as_str);
        let field = format!("tlsCertificates[{at}].caCertificates");
        (field, root.unwrap_or_default())
    });
    pairs.filter(|(_, root)| !root.is_empty())
}

/// Fields that limit clients, on a server that asks no client for a certificate.
fn of_unasked_clients(path: &str, tls: &Json, findings: &mut Vec<Finding>) {
    let has = |name: &str| tls.get(name).is_some();
    let of_certificates = [
        "caCertificates",
        "caCrl",
        "subjectAltNames",
        "verifyCertificateSpki",
        "verifyCertificateHash",
    ];
    let mut fields: Vec<String> = of_certificates
        .into_iter()
        .filter(|name| has(name))
        .map(str::to_owned)
        .collect();
    if has("caCertCredentialName") && (has("credentialName") || has("credentialNames")) {
        fields.push("caCertCredentialName".to_owned());
    }
    fields.extend(pair_roots(tls).map(|(field, _)| field));
    let why = "has no effect with SIMPLE: no client is asked for a certificate";
    findings.extend(
        fields
            .iter()
            .map(|field| Finding::warning(format!("{path}.{field}"), why)),
    );
}

/// Fields that say which clients are let in.
fn of_clients(path: &str, tls: &Json, closed: &str, findings: &mut Vec<Finding>) {
    let own = tls.get("caCertificates").and_then(Json::as_str);
    let roots = pair_roots(tls).map(|(_, root)| root);
    let root = client_root(own.unwrap_or_default(), roots);
    for (field, _) in pair_roots(tls).filter(|(_, other)| *other != root) {
        let why = format!("has no effect: {} is the root of all clients", quoted(root));
        findings.push(Finding::warning(format!("{path}.{field}"), why));
    }
    for name in ["verifyCertificateSpki", "verifyCertificateHash"] {
        for (at, pin) in items(tls, name) {
            let pin = pin.as_str().unwrap_or_default();
            let is_taken = match name {
                "verifyCertificateSpki" => is_key_pin(pin),
                _ => is_certificate_hash(pin),
            };
            if !is_taken {
                let why = format!("is no SHA-256: {closed}");
                findings.push(Finding::warning(format!("{path}.{name}[{at}]"), why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{named, notes};
    use serde_json::json;

    /// As the real Envoy takes them.
    #[test]
    fn cipher_suites_are_those_that_envoy_accepts() {
        for (name, taken) in [
            ("ECDHE-RSA-AES128-GCM-SHA256", true),
            ("DES-CBC3-SHA", true),
            ("AES128-GCM-SHA384", false),
            ("AES256-GCM-SHA256", false),
            ("TLS_AES_128_GCM_SHA256", false),
            ("", false),
        ] {
            assert_eq!(is_cipher_suite(name), taken, "{name}");
        }
        let pin = "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=";
        for (text, taken) in [
            (pin, true),
            (&"a".repeat(44), false),
            ("eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eA==", false),
            (&format!("{pin}="), false),
            (&"!".repeat(44), false),
            (&format!("{}b=", &pin[..42]), false),
            ("", false),
        ] {
            assert_eq!(is_key_pin(text), taken, "{text}");
        }
        for (text, taken) in [
            ("ab".repeat(32), true),
            ("AB".repeat(32), true),
            (["ab"; 32].join(":"), true),
            ("ab".repeat(31), false),
            ("zz".repeat(32), false),
            (format!("zz{}", ":ab".repeat(31)), false),
            (["ab"; 31].join(":"), false),
            (String::new(), false),
        ] {
            assert_eq!(is_certificate_hash(&text), taken, "{text}");
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of servers")]
    fn a_note_names_fields_of_a_gateway_without_effect() {
        let kind = named("networking.istio.io", "Gateway").unwrap();
        let said = |server: Json| -> Vec<String> {
            let notes = notes(kind, &json!({"servers": [server]})).into_iter();
            notes
                .map(|note| {
                    assert!(!note.is_error());
                    let path = note
                        .path
                        .strip_prefix("spec.servers[0].")
                        .unwrap()
                        .to_owned();
                    format!("{path}: {}", note.message)
                })
                .collect()
        };
        let port = json!({"number": 80, "name": "a", "protocol": "HTTP"});
        assert_eq!(said(json!({"port": port, "hosts": ["*"]})), [""; 0]);
        assert_eq!(
            said(
                json!({"port": {"protocol": "UDP"}, "bind": "unix:///a", "default_endpoint": "127.0.0.1:1"})
            ),
            [
                "bind: is not served: routers listen on addresses alone, so that the server is left out",
                "port.protocol: is not served: routers carry no UDP, so that the server is left out",
                "defaultEndpoint: has no effect in this release",
            ]
        );
        let tls = |mut tls: Json| {
            tls["serverCertificate"] = json!("/a");
            said(json!({"port": port, "tls": tls}))
        };
        assert_eq!(
            tls(
                json!({"mode": "SIMPLE", "caCertificates": "/b", "cipherSuites": ["AES128-SHA", "AES128-GCM-SHA384"]})
            ),
            [
                "tls.cipherSuites[1]: is left out: proxies have no such suite",
                "tls.caCertificates: has no effect with SIMPLE: no client is asked for a certificate",
            ]
        );
        assert_eq!(
            tls(json!({"mode": "MUTUAL", "caCertificates": "/b", "caCertCredentialName": "c"})),
            ["tls.caCertCredentialName: has no effect without a credentialName"]
        );
        let hash = "ab".repeat(32);
        assert_eq!(
            tls(
                json!({"mode": "MUTUAL", "caCertificates": "/b", "verify_certificate_hash": [hash, "x"], "verifyCertificateSpki": ["y"]})
            ),
            [
                "tls.verifyCertificateSpki[0]: is no SHA-256: the server is left out",
                "tls.verifyCertificateHash[1]: is no SHA-256: the server is left out",
            ]
        );
        let many = |mode: &str, root: &str| {
            let pair = |at: usize| json!({"serverCertificate": "/c", "privateKey": "/k", "caCertificates": format!("/{at}")});
            let mut tls = json!({"mode": mode, "tlsCertificates": [pair(1), pair(2)]});
            tls["caCertificates"] = json!(root);
            let found = said(json!({"port": port, "tls": tls})).into_iter();
            let found = found.filter(|note| note.contains("tlsCertificates"));
            found.collect::<Vec<_>>().join("; ")
        };
        let other = |at: usize, root: &str| {
            format!(
                "tls.tlsCertificates[{at}].caCertificates: has no effect: \"{root}\" is the root of all clients"
            )
        };
        assert_eq!(many("MUTUAL", ""), other(1, "/1"));
        assert_eq!(many("OPTIONAL_MUTUAL", "/2"), other(0, "/2"));
        assert_eq!(
            many("SIMPLE", "")
                .matches("has no effect with SIMPLE")
                .count(),
            2
        );
        let through = json!({
            "caCrl": "/l", "subjectAltNames": ["a"], "minProtocolVersion": "TLSV1_3", "maxProtocolVersion": "TLS_AUTO",
            "cipherSuites": [],
        });
        for (mode, name) in [
            (None, "PASSTHROUGH"),
            (Some("AUTO_PASSTHROUGH"), "AUTO_PASSTHROUGH"),
        ] {
            let mut tls = through.clone();
            if let Some(mode) = mode {
                tls["mode"] = json!(mode);
            }
            let why = format!("has no effect with {name}: TLS does not end there");
            let fields = ["caCrl", "subjectAltNames", "minProtocolVersion"];
            let expected = fields.map(|field| format!("tls.{field}: {why}"));
            assert_eq!(said(json!({"port": port, "tls": tls})), expected);
        }
        assert_eq!(
            said(json!({"port": port, "name": "a"})),
            [
                "name: has no effect: statistics are called by the address that the server listens on"
            ]
        );
    }
}
