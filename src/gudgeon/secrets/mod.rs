//! Redacts secrets in documents and pages: values that may be keys, tokens or passwords.
//!
//! Most kinds have none. A field that may hold one is redacted as a whole, whatever its value: no part of it is known to be
//! harmless.

mod findings;

use api::config::collections::MESH;
use api::redact::REDACTED;
use api::url::{BETWEEN, starts_with_scheme, value_without_credentials, without_credentials};
use api::well_known::LAST_APPLIED;
use serde_json::{Map, Value};

pub(crate) use findings::{redact_finding, redact_report, redact_text};

/// Fields that are secrets by their own name, or that may have arbitrary content.
const NAMES: [&str; 16] = [
    "accesstoken",
    "apikey",
    "authorization",
    "clientsecret",
    "cookie",
    "credential",
    "credentials",
    "endpointparams",
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
fn normalized(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

fn is_secret(name: &str) -> bool {
    let name = normalized(name);
    NAMES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Fields whose messages consist of secrets and of names of files: a text in their place may be the secret itself.
const HOLDERS: [&str; 3] = ["authentication", "mutual", "oauth"];

fn is_holder(name: &str) -> bool {
    HOLDERS.contains(&normalized(name).as_str())
}

/// Fields that may hold the path of a secret: a TLS key's, and the OAuth secret of a handler's connection.
const PATHS: [&str; 2] = ["clientsecret", "privatekey"];

/// Returns true for the path of a key, which is not secret. Any other secret may begin with a slash, too: base64 does.
fn is_path(name: &str, value: &Value) -> bool {
    let path = |text: &str| text.starts_with('/') && text.len() < 4096;
    value.as_str().is_some_and(path) && PATHS.contains(&normalized(name).as_str())
}

/// Redacts secrets anywhere in a document. The depth of nesting was limited when the document was parsed.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_pair = is_secret_pair(fields);
            for (name, value) in fields {
                if is_pair && VALUES.contains(&normalized(name).as_str()) {
                    *value = REDACTED.into();
                } else if normalized(name) == "jwks" {
                    redact_keys(value);
                } else if name == LAST_APPLIED {
                    // kubectl keeps the whole object as text in this annotation.
                    redact_document(value);
                } else if is_secret(name) && !is_path(name, value) && !value.is_null()
                    || is_holder(name) && value.is_string()
                {
                    *value = REDACTED.into();
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) if text.contains("PRIVATE KEY") => *text = REDACTED.to_owned(),
        Value::String(text) if text.contains("://") => *text = redact_urls(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Redacts secrets in a document in a text.
fn redact_document(value: &mut Value) {
    let read = value
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    *value = match read {
        Some(mut inner) => {
            redact(&mut inner);
            inner.to_string().into()
        }
        None => REDACTED.into(),
    };
}

/// Redacts the secrets in a value that is a URL, or in the URLs of prose and code.
fn redact_urls(text: &str) -> String {
    if starts_with_scheme(text.trim_start()) {
        return redact_url_parameters(&value_without_credentials(text));
    }
    let text = without_credentials(text);
    let runs = text.split_inclusive(BETWEEN).map(|run| {
        let url = run.trim_end_matches(BETWEEN);
        match url.contains("://") {
            true => redact_url_parameters(url) + run.get(url.len()..).unwrap_or_default(),
            false => run.to_owned(),
        }
    });
    runs.collect()
}

/// Redacts the values of parameters of a URL that are secrets by their name.
fn redact_url_parameters(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={REDACTED}"),
        Some(_) | None => pair.to_owned(),
    });
    format!("{before}?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Redacts keys in a text: their public part stays.
fn redact_keys(value: &mut Value) {
    let read = value
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let Some(Value::Object(mut set)) = read else {
        *value = REDACTED.into();
        return;
    };
    let all = set.get_mut("keys").and_then(Value::as_array_mut);
    for key in all.into_iter().flatten() {
        let Value::Object(fields) = key else {
            *key = REDACTED.into();
            continue;
        };
        fields.retain(|name, _| !PRIVATE.contains(&name.as_str()));
        fields.values_mut().for_each(redact);
    }
    // All other fields are private.
    set.retain(|name, _| name == "keys");
    *value = Value::Object(set).to_string().into();
}

/// Returns true if objects of a collection may hold secrets that [`strip_secrets`] finds.
pub(crate) fn may_hold(collection: &str) -> bool {
    collection == MESH || WITHHELD.contains(&collection)
}

/// Removes secrets from a collection's object, for a sink without an identity: the field is absent then, since a sink acts
/// on its value. Returns true if there was any. Conditions of routes stay: without one, a route would match more than was
/// meant.
pub(crate) fn strip_secrets(collection: &str, value: &mut Value) -> bool {
    let in_headers = collection == ROUTES;
    take_out(value, in_headers, collection == HANDLERS)
}

const ROUTES: &str = "istio/networking/v1alpha3/virtualservices";
const HANDLERS: &str = "istio/policy/v1beta1/handlers";
const FILTERS: &str = "istio/networking/v1alpha3/envoyfilters";
const WITHHELD: [&str; 6] = [
    ROUTES,
    HANDLERS,
    FILTERS,
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
/// Envoy's fields for a file's content in place of the file: code, pages and certificates as well as secrets.
const INLINE: [&str; 2] = ["inlinebytes", "inlinestring"];
/// Names of Envoy's that do not look like a secret, and below which inline content is one: hashes of passwords, keys of
/// sessions.
const OF_INLINE_SECRETS: [&str; 3] = ["pkcs12", "sessionticketkeys", "users"];
/// An empty key set: without the field, a sink would fetch the issuer's keys.
const NO_KEYS: &str = r#"{"keys":[]}"#;

fn has_inline(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| INLINE.contains(&normalized(name).as_str()) || has_inline(value)),
        Value::Array(items) => items.iter().any(has_inline),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Envoy writes a header as a name beside a value.
const VALUES: [&str; 2] = ["rawvalue", "value"];

fn is_secret_pair(fields: &Map<String, Value>) -> bool {
    let key = fields.get("key").and_then(Value::as_str);
    key.is_some_and(is_secret)
}

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
    let is_pair = is_secret_pair(fields);
    fields.retain(|name, value| {
        if is_pair && VALUES.contains(&normalized(name).as_str()) {
            any = true;
            return false;
        }
        if in_headers {
            if WRITTEN_HEADERS.contains(&name.as_str()) {
                any |= take_headers(value);
            } else if name != "match" {
                any |= take_out(value, in_headers, of_handler);
            }
            return true;
        }
        let is_named = match normalized(name).as_str() {
            "jwks" => {
                any |= public_keys(value);
                return true;
            }
            "localjwks" => {
                any |= local_keys(value);
                return true;
            }
            "params" => of_handler,
            name if INLINE.contains(&name) => false,
            name if OF_INLINE_SECRETS.contains(&name) => has_inline(value),
            name => is_secret(name),
        };
        let is_key = matches!(value, Value::String(text) if text.contains("PRIVATE KEY"));
        let leaves = is_key || is_named && !is_path(name, value) && !value.is_null();
        // A field that leaves takes all that is below it along.
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

/// Keeps the public keys of a set; replaces an unreadable set by an empty one. Returns true if anything was removed.
fn public_keys(value: &mut Value) -> bool {
    let read = value
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let Some(Value::Object(mut set)) = read else {
        *value = NO_KEYS.into();
        return true;
    };
    let Some(all) = set.get_mut("keys").and_then(Value::as_array_mut) else {
        *value = NO_KEYS.into();
        return true;
    };
    let is_private = |key: &Value| {
        let fields = key.as_object();
        fields.is_none_or(|fields| fields.keys().any(|name| PRIVATE.contains(&name.as_str())))
    };
    if !all.iter().any(is_private) {
        return false;
    }
    // A symmetric key consists of its secret.
    all.retain_mut(|key| {
        let Value::Object(fields) = key else {
            return false;
        };
        fields.retain(|name, _| !PRIVATE.contains(&name.as_str()));
        fields.get("kty").is_none_or(|kind| kind != "oct")
    });
    *value = Value::Object(set).to_string().into();
    true
}

/// The same of a set that Envoy's own configuration holds, as text or as bytes.
fn local_keys(value: &mut Value) -> bool {
    let Value::Object(fields) = value else {
        return false;
    };
    let mut any = false;
    for (name, value) in fields.iter_mut() {
        any |= normalized(name) == "inlinestring" && public_keys(value);
    }
    let before = fields.len();
    fields.retain(|name, _| normalized(name) != "inlinebytes");
    if fields.len() != before {
        fields.insert("inline_string".to_owned(), NO_KEYS.into());
        any = true;
    }
    any
}

#[cfg(test)]
mod tests;
