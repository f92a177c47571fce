//! Servers of a Gateway: what of their TLS proxies take, and what is said where they do not.

use serde_json::Value as Json;

use super::super::Finding;
use super::{files, items};

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
    let mut found = Vec::new();
    for (at, server) in items(spec, "servers") {
        let path = format!("spec.servers[{at}]");
        let bind = server.get("bind").and_then(Json::as_str);
        if bind.is_some_and(|bind| bind.starts_with("unix://")) {
            let why =
                "is not served: routers listen on addresses alone, so that the server is left out";
            found.push(Finding::warning(format!("{path}.bind"), why));
        }
        let protocol = server.pointer("/port/protocol").and_then(Json::as_str);
        if protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("UDP")) {
            let why = "is not served: routers carry no UDP, so that the server is left out";
            found.push(Finding::warning(format!("{path}.port.protocol"), why));
        }
        if let Some(tls) = server.get("tls") {
            of_tls(&format!("{path}.tls"), tls, &mut found);
            files::notes(&format!("{path}.tls"), tls, &mut found);
        }
    }
    found
}

fn of_tls(path: &str, tls: &Json, found: &mut Vec<Finding>) {
    let mut warn = |field: String, why: &str| {
        found.push(Finding::warning(format!("{path}.{field}"), why));
    };
    let has = |name: &str| tls.get(name).is_some();
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
    let mode = tls.get("mode").and_then(Json::as_str);
    if mode == Some("SIMPLE") {
        for name in [
            "caCertificates",
            "caCrl",
            "subjectAltNames",
            "verifyCertificateSpki",
            "verifyCertificateHash",
        ] {
            if tls.get(name).is_some() {
                warn(
                    name.to_owned(),
                    "has no effect with SIMPLE: no client is asked for a certificate",
                );
            }
        }
        return;
    }
    for name in ["verifyCertificateSpki", "verifyCertificateHash"] {
        for (at, pin) in items(tls, name) {
            let pin = pin.as_str().unwrap_or_default();
            let is_taken = match name {
                "verifyCertificateSpki" => is_key_pin(pin),
                _ => is_certificate_hash(pin),
            };
            if !is_taken {
                let why = "is no SHA-256: the server is left out";
                warn(format!("{name}[{at}]"), why);
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
    }
}
