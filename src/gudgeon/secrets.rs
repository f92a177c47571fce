//! What must not be read again in a document or on a page: values that may be keys, tokens or passwords.
//!
//! Most kinds have none. Where one may be, the whole value goes, whatever it is: nobody is to guess which half of it mattered.

use std::sync::Arc;

use api::config::Finding;
use api::config::collections::MESH;
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

/// Whether objects of a collection may hold secrets that [`withhold`] finds.
pub(crate) fn may_hold(collection: &str) -> bool {
    collection == MESH || WITHHELD.contains(&collection)
}

/// Takes secrets out of what a collection's object says, for a sink that nobody knows: the field is absent then, since a sink
/// acts on what it is sent. Whether there was any. Conditions of routes stay: without one, a route takes more than was meant.
pub(crate) fn withhold(collection: &str, value: &mut Value) -> bool {
    let in_headers = collection == ROUTES;
    take_out(value, in_headers, collection == HANDLERS)
}

const ROUTES: &str = "istio/networking/v1alpha3/virtualservices";
const HANDLERS: &str = "istio/policy/v1beta1/handlers";
const WITHHELD: [&str; 6] = [
    ROUTES,
    HANDLERS,
    "istio/networking/v1alpha3/envoyfilters",
    "istio/security/v1beta1/requestauthentications",
    "istio/authentication/v1alpha1/policies",
    "istio/authentication/v1alpha1/meshpolicies",
];

/// Maps of headers that a route writes.
const WRITTEN_HEADERS: [&str; 5] = [
    "set",
    "add",
    "appendHeaders",
    "appendRequestHeaders",
    "appendResponseHeaders",
];
/// Of headers and of filters: names of what somebody may have to see, or to match.
const NOT_WITHHELD: [&str; 2] = ["inlinebytes", "inlinestring"];

fn take_out(value: &mut Value, in_headers: bool, of_handler: bool) -> bool {
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Array(items) => {
            let mut any = false;
            for item in items {
                any |= take_out(item, in_headers, of_handler);
            }
            return any;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    let mut any = false;
    fields.retain(|name, value| {
        if in_headers {
            if WRITTEN_HEADERS.contains(&name.as_str()) {
                any |= take_headers(value);
            } else if name != "match" {
                any |= take_out(value, in_headers, of_handler);
            }
            return true;
        }
        if plain(name) == "jwks" {
            let (kept, changed) = public_keys(value);
            any |= changed;
            return kept;
        }
        let is_named = match plain(name).as_str() {
            "params" => of_handler,
            name if NOT_WITHHELD.contains(&name) => false,
            _ => is_secret(name),
        };
        let is_key = matches!(value, Value::String(text) if text.contains("PRIVATE KEY"));
        let leaves = is_key || is_named && !is_path(value) && !value.is_null();
        any |= leaves || take_out(value, in_headers, of_handler);
        !leaves
    });
    any
}

fn take_headers(value: &mut Value) -> bool {
    let Value::Object(headers) = value else {
        return false;
    };
    let before = headers.len();
    headers.retain(|name, _| !is_secret(name));
    headers.len() != before
}

/// Leaves the public keys of a set. Whether something is left, and whether anything went.
fn public_keys(value: &mut Value) -> (bool, bool) {
    let read = value
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    // Nobody can tell what it is.
    let Some(Value::Object(mut set)) = read else {
        return (false, true);
    };
    let Some(all) = set.get_mut("keys").and_then(Value::as_array_mut) else {
        return (false, true);
    };
    let is_private = |key: &Value| {
        let fields = key.as_object();
        fields.is_none_or(|fields| fields.keys().any(|name| PRIVATE.contains(&name.as_str())))
    };
    if !all.iter().any(is_private) {
        return (true, false);
    }
    // A key that is the same on both sides is nothing without its secret.
    all.retain_mut(|key| {
        let Value::Object(fields) = key else {
            return false;
        };
        fields.retain(|name, _| !PRIVATE.contains(&name.as_str()));
        fields.get("kty").is_none_or(|kind| kind != "oct")
    });
    let is_left = !all.is_empty();
    *value = Value::Object(set).to_string().into();
    (is_left, true)
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
    fn a_sink_that_nobody_knows_is_sent_no_secret_and_every_condition() {
        let rsa = r#"{"keys":[{"kty":"RSA","n":"1","e":"AQAB"}]}"#;
        let mixed = r#"{"keys":[{"kty":"RSA","n":"1","d":"abc"},{"kty":"oct","k":"abc"}]}"#;
        let rows = [
            (
                HANDLERS,
                json!({"compiledAdapter": "redis", "params": {"password": "abc", "n": 1}, "connection": {"address": "a:1"}}),
                json!({"compiledAdapter": "redis", "connection": {"address": "a:1"}}),
            ),
            (
                "istio/security/v1beta1/requestauthentications",
                json!({"jwtRules": [{"issuer": "i", "jwks": mixed}, {"jwks": rsa}, {"jwks": "abc"},
                    {"jwks": r#"{"keys":[{"kty":"oct","k":"abc"}]}"#}]}),
                json!({"jwtRules": [{"issuer": "i", "jwks": r#"{"keys":[{"kty":"RSA","n":"1"}]}"#}, {"jwks": rsa}, {}, {}]}),
            ),
            (
                ROUTES,
                json!({"http": [{"match": [{"headers": {"cookie": {"exact": "user"}}}],
                    "headers": {"request": {"set": {"Authorization": "abc", "x": "y"}, "remove": ["authorization"]}}}]}),
                json!({"http": [{"match": [{"headers": {"cookie": {"exact": "user"}}}],
                    "headers": {"request": {"set": {"x": "y"}, "remove": ["authorization"]}}}]}),
            ),
            (
                "istio/networking/v1alpha3/envoyfilters",
                json!({"configPatches": [{"patch": {"value": {"private_key": {"inline_string": "abc"}, "code": {"inline_string": "lua"}}}}]}),
                json!({"configPatches": [{"patch": {"value": {"code": {"inline_string": "lua"}}}}]}),
            ),
            (
                MESH,
                json!({"defaultConfig": {"tracing": {"lightstep": {"address": "a:1", "accessToken": "abc"}}}}),
                json!({"defaultConfig": {"tracing": {"lightstep": {"address": "a:1"}}}}),
            ),
        ];
        for (collection, mut value, left) in rows {
            assert!(may_hold(collection) && withhold(collection, &mut value));
            assert_eq!(value, left, "{collection}");
            assert!(!withhold(collection, &mut value), "{collection}");
        }
        let mut path = json!({"value": {"privateKey": "/etc/certs/key.pem"}});
        assert!(!withhold(
            "istio/networking/v1alpha3/envoyfilters",
            &mut path
        ));
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
