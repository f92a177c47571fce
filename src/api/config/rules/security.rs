//! PeerAuthentication and RequestAuthentication: the identity of clients.

use serde_json::Value;

use super::context::Context;
use super::cursor::Cursor;
use super::{parts, predicates as is};
use crate::finding::quoted;
use crate::security::{KeySet, NoKeySet};

/// Checks the scope of a policy of today's kinds; true if it selects by labels.
pub(super) fn scope(spec: &Cursor<'_>) -> bool {
    let selected = parts::selector(&spec.get("selector"), "matchLabels");
    parts::targets(spec);
    selected
}

pub(in crate::config) fn peer(context: &Context<'_>) {
    let spec = &context.spec;
    let selected = scope(spec);
    let ports = spec.get("portLevelMtls");
    if !ports.is_set() {
        return;
    }
    if ports.not_empty() && !selected {
        ports.fail("needs a selector");
    }
    for (number, mode) in ports.entries() {
        mode.check(is::port(number.parse().unwrap_or(-1)));
    }
}

pub(in crate::config) fn request(context: &Context<'_>) {
    let spec = &context.spec;
    scope(spec);
    spec.get("jwtRules").items().for_each(|rule| jwt(&rule));
}

fn jwt(rule: &Cursor<'_>) {
    if rule.lacks(&["issuer", "jwksUri"]) {
        rule.fail("needs issuer or jwksUri");
    }
    for name in [
        "audiences",
        "fromParams",
        "fromCookies",
        "spaceDelimitedClaims",
    ] {
        parts::none_empty(&rule.get(name));
    }
    rule.get("jwksUri").check_text(is::jwks_uri);
    keys(&rule.get("jwks"));
    for header in rule.get("fromHeaders").items() {
        header.get("name").not_empty();
    }
    for one in rule.get("outputClaimToHeaders").items() {
        let header = one.get("header");
        let is_letter =
            |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_');
        if header.is_empty() || !header.text().bytes().all(is_letter) {
            header.fail(format!("{} is not a header name", quoted(header.text())));
        }
        one.get("claim").not_empty();
    }
    parts::duration(&rule.get("timeout"));
}

/// A set of keys in text. Messages do not repeat its content.
fn keys(at: &Cursor<'_>) {
    /// Parameters of private keys of RSA and of curves, and of shared secrets.
    const PRIVATE: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "k"];
    if at.is_empty() {
        return;
    }
    let Ok(set) = serde_json::from_str::<Value>(at.text()) else {
        return at.fail(NoKeySet::Malformed.to_string());
    };
    if let Err(why) = KeySet::inline_of(&set) {
        at.fail(why.to_string());
    }
    let keys = set.get("keys").and_then(Value::as_array);
    let is_private = |key: &Value| PRIVATE.iter().any(|name| key.get(*name).is_some());
    if keys.into_iter().flatten().any(is_private) {
        at.warn("holds private key material");
    }
}
