//! What must not be read again in a document or on a page: values that may be keys, tokens or passwords.
//!
//! Most kinds have none. Where one may be, the whole value goes, whatever it is: nobody is to guess which half of it mattered.

use std::sync::Arc;

use api::config::Finding;
use cluster::config::Report;
use serde_json::Value;

use crate::hidden::{HIDDEN, quotations};

/// Fields that are secrets by their own name, or that anything may be written into.
const NAMES: [&str; 15] = [
    "accesstoken",
    "apikey",
    "authorization",
    "clientsecret",
    "cookie",
    "credential",
    "credentials",
    "inlinebytes",
    "inlinestring",
    "params",
    "passphrase",
    "password",
    "proxyauthorization",
    "setcookie",
    "token",
];
/// And what they end in.
const ENDINGS: [&str; 6] = [
    "accesskey",
    "apikey",
    "password",
    "privatekey",
    "secret",
    "token",
];
/// Of a JSON Web Key: all that is not for everybody.
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Without case and signs, as names are compared.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

fn is_secret(name: &str) -> bool {
    let name = plain(name);
    NAMES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Where a key is, not what it is.
fn is_path(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with('/') && text.len() < 4096)
}

/// Hides them, wherever in a document they are. Nesting is what it was when the document was read: bounded.
pub(crate) fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if plain(name) == "jwks" {
                    keys(value);
                } else if is_secret(name) && !is_path(value) && !value.is_null() {
                    *value = HIDDEN.into();
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::String(text) if text.contains("PRIVATE KEY") => *text = HIDDEN.to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Keys in a text: what is public of them stays.
fn keys(value: &mut Value) {
    let read = value
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let Some(Value::Object(mut set)) = read else {
        *value = HIDDEN.into();
        return;
    };
    let all = set.get_mut("keys").and_then(Value::as_array_mut);
    for key in all.into_iter().flatten() {
        let Value::Object(fields) = key else {
            *key = HIDDEN.into();
            continue;
        };
        fields.retain(|name, _| !PRIVATE.contains(&name.as_str()));
        fields.values_mut().for_each(hide);
    }
    // Nothing else in it is for a reader.
    set.retain(|name, _| name == "keys");
    *value = Value::Object(set).to_string().into();
}

/// What is wrong with an object, without what it quotes of a place where a secret may be.
pub(crate) fn finding(found: &Finding) -> Finding {
    let names = found.path.split(['.', '[', ']', '"']);
    let is_hidden = |name: &str| plain(name) == "jwks" || is_secret(name);
    let mut shown = found.clone();
    if names.clone().any(is_hidden) {
        shown.message = quotations(&found.message);
    }
    shown
}

/// All that is wrong in a source, for everybody who looks.
pub(crate) fn report(report: &Report) -> Report {
    let hide = |all: &Arc<[Finding]>| all.iter().map(finding).collect();
    let mut shown = report.clone();
    for one in &mut shown.rejected {
        one.errors = hide(&one.errors);
    }
    for one in &mut shown.warned {
        one.warnings = hide(&one.warnings);
    }
    shown
}

/// The same of one that is `PATH: MESSAGE` already.
pub(crate) fn words(text: &str) -> String {
    let (path, message) = text.split_once(": ").unwrap_or(("", text));
    finding(&Finding::error(path, message)).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let mut value = json!({
            "tls": {"privateKey": "/etc/certs/key.pem", "credentialName": "web"},
            "http": [{"headers": {"request": {"set": {"Authorization": "Bearer abc", "x-api-key": "abc", "x": "y"}}}}],
            "params": {"url": "https://u:abc@h", "n": 1},
            "client_secret": {"a": "abc"},
            "pem": "-----BEGIN PRIVATE KEY-----abc",
            "privateKey": "abc",
            "password": null,
            "tokens": ["kept"],
            "jwtRules": [
                {"issuer": "i", "jwks": "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"1\",\"e\":\"AQAB\",\"d\":\"abc\",\"p\":\"abc\"},\"abc\"],\"abc\":1}"},
                {"jwks": "abc"},
                {"jwks": "[\"abc\"]"},
                {"jwksUri": "https://keys"},
            ],
        });
        hide(&mut value);
        let text = value.to_string();
        assert!(!text.contains("abc"), "{text}");
        for kept in [
            "/etc/certs/key.pem",
            "\"credentialName\":\"web\"",
            "\"x\":\"y\"",
            "kept",
            "AQAB",
            "https://keys",
            "\"password\":null",
            "\"issuer\":\"i\"",
        ] {
            assert!(text.contains(kept), "{kept} {text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_it() {
        for (path, message, shown) in [
            (
                "spec.jwtRules[0].jwks",
                "\"abc\" is no JSON",
                "\"…\" is no JSON",
            ),
            (
                "spec.http[0].headers.set[\"authorization\"]",
                "got \"abc\"",
                "got \"…\"",
            ),
            ("spec.params.password", "\"abc", "\"…"),
            ("spec.hosts[0]", "\"a_b\" is not", "\"a_b\" is not"),
        ] {
            let found = finding(&Finding::error(path, message));
            assert_eq!((found.path.as_str(), found.message.as_str()), (path, shown));
        }
    }

    #[test]
    fn what_is_wrong_with_a_secret_does_not_quote_it() {
        for (text, said) in [
            (
                "spec.jwtRules[0].jwks: \"abc\" is no key",
                "spec.jwtRules[0].jwks: \"…\" is no key",
            ),
            (
                "spec.hosts[0]: \"abc\" is no host",
                "spec.hosts[0]: \"abc\" is no host",
            ),
            ("no path", "no path"),
        ] {
            assert_eq!(words(text), said);
        }
    }
}
