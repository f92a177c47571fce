//! TLS towards a server, as DestinationRule has it.

use super::cursor::Cursor;

pub(super) fn check(at: &Cursor<'_>) {
    let mode = at.get("mode").text();
    let by_name = at.has("credentialName");
    if mode == "MUTUAL" && at.lacks(&["credentialName"]) {
        at.get("clientCertificate").required_text();
        at.get("privateKey").required_text();
    }
    let absent = |names: &[&'static str], beside: &str| {
        for name in at.set_fields(names) {
            at.get(name).fail(format!("not beside {beside}"));
        }
    };
    if by_name && matches!(mode, "SIMPLE" | "MUTUAL") {
        absent(
            &["clientCertificate", "privateKey", "caCertificates", "caCrl"],
            "credentialName",
        );
    }
    if at.get("insecureSkipVerify").flag() {
        absent(&["caCertificates", "subjectAltNames"], "insecureSkipVerify");
        if mode == "SIMPLE" {
            absent(&["credentialName"], "insecureSkipVerify");
        }
    }
}
