//! Redacts values in documents and pages that may be keys, tokens or passwords.
//!
//! Most kinds have none. A field that may hold one is redacted as a whole, whatever its value: no part of it is known to be
//! harmless.

mod withheld;

use std::sync::Arc;

use api::config::Finding;
use api::url::without_credentials;
use serde_json::{Map, Value};
use sources::config::ConfigReport;

use crate::redact::{HIDDEN, quotations};
pub(crate) use withheld::{Withheld, may_hold, withhold};

/// Fields that are secrets by their own name, or that may have arbitrary content.
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
/// Endings of the names of secrets.
const ENDINGS: [&str; 6] = [
    "accesskey",
    "apikey",
    "password",
    "privatekey",
    "secret",
    "token",
];
/// The private members of a JSON Web Key.
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Normalizes a name for comparison: lower case, letters and digits only.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

fn is_secret(name: &str) -> bool {
    let name = plain(name);
    NAMES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Fields that may hold the path of a secret: a TLS key's, and the OAuth secret of a handler's connection.
const PATHS: [&str; 2] = ["clientsecret", "privatekey"];

/// Returns true for the path of a key, which is not secret. Any other secret may begin with a slash, too: base64 does.
fn is_path(name: &str, value: &Value) -> bool {
    let path = |text: &str| text.starts_with('/') && text.len() < 4096;
    value.as_str().is_some_and(path) && PATHS.contains(&plain(name).as_str())
}

/// Redacts secrets anywhere in a document. The depth of nesting was limited when the document was parsed.
pub(crate) fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_pair = is_secret_pair(fields);
            for (name, value) in fields {
                if is_pair && VALUES.contains(&plain(name).as_str()) {
                    *value = HIDDEN.into();
                } else if plain(name) == "jwks" {
                    keys(value);
                } else if name == LAST_APPLIED {
                    document(value);
                } else if is_secret(name) && !is_path(name, value) && !value.is_null() {
                    *value = HIDDEN.into();
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::String(text) if text.contains("PRIVATE KEY") => *text = HIDDEN.to_owned(),
        Value::String(text) if text.contains("://") => {
            *text = parameters(&without_credentials(text));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Envoy writes a header as a name beside a value.
const VALUES: [&str; 2] = ["rawvalue", "value"];

fn is_secret_pair(fields: &Map<String, Value>) -> bool {
    let key = fields.get("key").and_then(Value::as_str);
    key.is_some_and(is_secret)
}

/// The annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Redacts secrets in a document in a text.
fn document(value: &mut Value) {
    let read = value
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    *value = match read {
        Some(mut inner) => {
            hide(&mut inner);
            inner.to_string().into()
        }
        None => HIDDEN.into(),
    };
}

/// Redacts the values of parameters of a URL that are secrets by their name.
fn parameters(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
        Some(_) | None => pair.to_owned(),
    });
    format!("{before}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Redacts keys in a text: their public part stays.
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
    // All other fields are private.
    set.retain(|name, _| name == "keys");
    *value = Value::Object(set).to_string().into();
}

/// Redacts a finding: quotations are removed if its path may lead to a secret.
pub(crate) fn finding(found: &Finding) -> Finding {
    let names = found.path.split(['.', '[', ']', '"']);
    let is_hidden = |name: &str| plain(name) == "jwks" || is_secret(name);
    let mut shown = found.clone();
    if names.clone().any(is_hidden) {
        shown.message = quotations(&found.message);
    }
    shown
}

/// Redacts the report of a source.
pub(crate) fn report(report: &ConfigReport) -> ConfigReport {
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
mod tests;
