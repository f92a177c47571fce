//! TLS towards clients, as servers of Gateway and listeners of Sidecar have it.

use std::collections::HashSet;

use super::cursor::Cursor;
use crate::finding::quoted;

const CERTIFICATES: [&str; 6] = [
    "serverCertificate",
    "privateKey",
    "caCertificates",
    "credentialName",
    "credentialNames",
    "tlsCertificates",
];

/// Checks the `tls` of a port of plain HTTP. With nothing but httpsRedirect it has the mode PASSTHROUGH.
pub(super) fn check_plaintext(at: &Cursor<'_>) {
    let [files @ .., _, _, _] = CERTIFICATES;
    let is_through = matches!(mode(at), "PASSTHROUGH" | "AUTO_PASSTHROUGH");
    if !is_through || !at.set_fields(&files).is_empty() {
        at.fail("not allowed on a plain HTTP port");
        return;
    }
    // Istio takes the names, of Secrets and others, and has no use for them.
    for name in at.set_fields(&CERTIFICATES) {
        at.get(name).warn("has no effect on a plain HTTP port");
    }
}

/// The mode; absent is the first.
pub(super) fn mode<'a>(at: &Cursor<'a>) -> &'a str {
    match at.get("mode").text() {
        "" => "PASSTHROUGH",
        mode => mode,
    }
}

/// Checks the requirements of modes and versions; warnings about ports are the caller's.
pub(super) fn check(at: &Cursor<'_>) {
    let mode = mode(at);
    match mode {
        _ if at.get("mode").is_broken() => {}
        "ISTIO_MUTUAL" => {
            for name in at.set_fields(&CERTIFICATES) {
                at.get(name).fail("not allowed with ISTIO_MUTUAL");
            }
        }
        "SIMPLE" => certificates(at, ClientCertificate::NotAsked),
        "MUTUAL" | "OPTIONAL_MUTUAL" => certificates(at, ClientCertificate::Asked),
        _ => {
            for name in at.set_fields(&CERTIFICATES) {
                at.get(name).warn(format!("has no effect with {mode}"));
            }
        }
    }
    if mode == "SIMPLE" && !is_by_name(at) && at.has("caCrl") {
        at.get("caCrl")
            .fail("not with SIMPLE unless there is a credentialName");
    }
    ciphers(at);
}

/// Returns true if it has certificates by the name of a Secret.
fn is_by_name(at: &Cursor<'_>) -> bool {
    !at.lacks(&["credentialName", "credentialNames"])
}

/// The certificate of a client, which a server may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientCertificate {
    Asked,
    NotAsked,
}

fn certificates(at: &Cursor<'_>, of_client: ClientCertificate) {
    let by_name = is_by_name(at);
    let files = at.has("serverCertificate") && at.has("privateKey");
    let pairs = !at.lacks(&["tlsCertificates"]);
    if !by_name && !pairs {
        at.get("serverCertificate").required_text();
        at.get("privateKey").required_text();
    }
    if of_client == ClientCertificate::Asked && !by_name {
        if pairs {
            for pair in at.get("tlsCertificates").items() {
                if at.lacks(&["caCertificates"]) {
                    pair.get("caCertificates").required_text();
                }
            }
        } else {
            at.get("caCertificates").required_text();
        }
    }
    for pair in at.get("tlsCertificates").items() {
        pair.get("serverCertificate").required_text();
        pair.get("privateKey").required_text();
    }
    let mut ways = at.set_fields(&["credentialName", "credentialNames", "tlsCertificates"]);
    if files && ways == ["credentialName"] {
        at.get("credentialName")
            .warn("is taken, not serverCertificate and privateKey");
        return;
    }
    if files {
        ways.push("serverCertificate and privateKey");
    }
    if ways.len() > 1 {
        at.fail(
            "only one of credentialName, credentialNames, serverCertificate and privateKey, tlsCertificates",
        );
    }
}

const CIPHERS: [&str; 17] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES128-GCM-SHA384",
    "AES256-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// Versions of TLS, oldest first.
const VERSIONS: [&str; 4] = ["TLSV1_0", "TLSV1_1", "TLSV1_2", "TLSV1_3"];

/// Returns true if it is the name of a cipher suite.
pub(in crate::config) fn is_cipher_suite(name: &str) -> bool {
    CIPHERS.contains(&name)
}

fn ciphers(at: &Cursor<'_>) {
    let suites = at.get("cipherSuites");
    let mut known = HashSet::new();
    for suite in suites.items() {
        let name = suite.text();
        if !CIPHERS.contains(&name) {
            suite.warn(format!("{} is not a known cipher suite", quoted(name)));
        } else if !known.insert(name) {
            suite.warn("is named twice");
        }
    }
    let rank = |name: &'static str| {
        let version = at.get(name);
        VERSIONS.iter().position(|one| *one == version.text())
    };
    if let (Some(min), Some(max)) = (rank("minProtocolVersion"), rank("maxProtocolVersion"))
        && min > max
    {
        at.get("minProtocolVersion")
            .warn("is above maxProtocolVersion: no handshake succeeds");
    }
    for name in ["minProtocolVersion", "maxProtocolVersion"] {
        let version = at.get(name);
        if matches!(version.text(), "TLSV1_0" | "TLSV1_1") && suites.is_empty() {
            version.warn("TLS below 1.2 needs cipherSuites");
        }
    }
}
