//! Withholds secrets from sinks without an identity.
//!
//! Of a kind without effect the fields go. An object of a kind that proxies are configured by would act as something that
//! nobody wrote without one of its fields, and goes as a whole.

use api::config::Effect;
use api::config::collections::{MESH, kind_of};
use serde_json::{Map, Value};

use super::{PRIVATE, VALUES, is_path, is_secret, is_secret_pair, plain};

/// The part of an object that is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    Nothing,
    /// The value is without them, and acts as before.
    Fields,
    /// All of it: the value is not to be used.
    Object,
}

/// Returns true if objects of a collection may hold secrets that [`withhold`] finds.
pub(crate) fn may_hold(collection: &str) -> bool {
    collection == MESH || WITHHELD.contains(&collection)
}

/// Removes secrets from a collection's object, for a sink without an identity: the field is absent then, since a sink acts
/// on its value. Conditions of routes stay: without one, a route would match more than was meant.
pub(crate) fn withhold(collection: &str, value: &mut Value) -> Withheld {
    let kind = kind_of(collection);
    let mut redaction = Redaction {
        collection,
        is_enforced: kind.is_some_and(|kind| kind.effect != Effect::None),
        is_reduced: false,
        is_cut: false,
    };
    redaction.take_out(value);
    match redaction {
        Redaction {
            is_enforced: true,
            is_cut: true,
            ..
        } => Withheld::Object,
        Redaction {
            is_cut: false,
            is_reduced: false,
            ..
        } => Withheld::Nothing,
        Redaction { .. } => Withheld::Fields,
    }
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
/// Envoy's field for the names of cookies, by what they hold: `bearer_token: BearerToken`.
const NAMES_OF_COOKIES: &str = "cookienames";
/// Schemes of a header's value, which its secret follows.
const SCHEMES: [&str; 2] = ["basic", "bearer"];
/// An empty key set: without the field, a sink would fetch the issuer's keys.
const NO_KEYS: &str = r#"{"keys":[]}"#;

fn has_inline(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| INLINE.contains(&plain(name).as_str()) || has_inline(value)),
        Value::Array(items) => items.iter().any(has_inline),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns true for the value of a secret, and false for the way to one: a file, a variable, a name at an SDS server.
fn is_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(is_value),
        Value::Object(_) => has_inline(value),
    }
}

/// Returns true for `Basic …` and `Bearer …`.
fn is_credential(value: &Value) -> bool {
    let words = value.as_str().and_then(|text| text.trim().split_once(' '));
    words.is_some_and(|(scheme, rest)| {
        let mut schemes = SCHEMES.iter();
        schemes.any(|known| scheme.eq_ignore_ascii_case(known)) && !rest.trim().is_empty()
    })
}

/// One object on its way to a sink without an identity.
struct Redaction<'a> {
    collection: &'a str,
    is_enforced: bool,
    /// Something is gone that nobody acts on.
    is_reduced: bool,
    /// Something is gone.
    is_cut: bool,
}

impl Redaction<'_> {
    fn take_out(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let is_pair = is_secret_pair(fields);
                fields.retain(|name, value| {
                    let goes = match self.collection == ROUTES {
                        true => self.takes_of_route(name, value),
                        false => self.takes(name, value, is_pair),
                    };
                    self.is_cut |= goes;
                    !goes
                });
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.take_out(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Of a route the headers that it writes may hold secrets. Their names are those of applications: a value tells.
    fn takes_of_route(&mut self, name: &str, value: &mut Value) -> bool {
        if WRITTEN_HEADERS.contains(&name) {
            let headers = value.as_object();
            let mut headers = headers.into_iter().flatten();
            self.is_cut |= headers.any(|(name, value)| is_secret(name) && is_credential(value));
        } else if name != "match" {
            self.take_out(value);
        }
        false
    }

    /// Returns true if the field is to go; else what is to go below it is gone.
    fn takes(&mut self, name: &str, value: &mut Value, is_pair: bool) -> bool {
        let is_named = match plain(name).as_str() {
            field if is_pair && VALUES.contains(&field) => return true,
            "jwks" => {
                self.public_keys(value);
                return false;
            }
            "localjwks" => {
                self.local_keys(value);
                return false;
            }
            NAMES_OF_COOKIES if self.is_enforced => return false,
            "params" => self.collection == HANDLERS,
            name if INLINE.contains(&name) => false,
            name if OF_INLINE_SECRETS.contains(&name) => has_inline(value),
            name => is_secret(name) && (!self.is_enforced || is_value(value)),
        };
        let is_key = matches!(value, Value::String(text) if text.contains("PRIVATE KEY"));
        if is_key || is_named && !is_path(name, value) && !value.is_null() {
            return true;
        }
        self.take_out(value);
        false
    }

    /// Keeps the public keys of a set; replaces an unreadable set by an empty one.
    fn public_keys(&mut self, value: &mut Value) {
        let read = value
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        let set = read.and_then(|set: Map<String, Value>| {
            let is_set = set.get("keys").is_some_and(Value::is_array);
            is_set.then_some(set)
        });
        let Some(mut set) = set else {
            *value = NO_KEYS.into();
            self.is_cut = true;
            return;
        };
        let Some(all) = set.get_mut("keys").and_then(Value::as_array_mut) else {
            return;
        };
        let is_private = |key: &Value| {
            let fields = key.as_object();
            fields.is_none_or(|fields| fields.keys().any(|name| PRIVATE.contains(&name.as_str())))
        };
        if !all.iter().any(is_private) {
            return;
        }
        let before = all.len();
        // A symmetric key consists of its secret.
        all.retain_mut(|key| {
            let Value::Object(fields) = key else {
                return false;
            };
            fields.retain(|name, _| !PRIVATE.contains(&name.as_str()));
            fields.get("kty").is_none_or(|kind| kind != "oct")
        });
        // Tokens are verified by the public half of a pair.
        self.is_reduced = true;
        self.is_cut |= all.len() != before;
        *value = Value::Object(set).to_string().into();
    }

    /// The same of a set that Envoy's own configuration holds, as text or as bytes.
    fn local_keys(&mut self, value: &mut Value) {
        let Value::Object(fields) = value else {
            return;
        };
        for (name, value) in fields.iter_mut() {
            if plain(name) == "inlinestring" {
                self.public_keys(value);
            }
        }
        let before = fields.len();
        fields.retain(|name, _| plain(name) != "inlinebytes");
        if fields.len() != before {
            fields.insert("inline_string".to_owned(), NO_KEYS.into());
            self.is_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REQUESTS: &str = "istio/security/v1beta1/requestauthentications";

    fn patch(value: &Value) -> Value {
        json!({"configPatches": [{"applyTo": "HTTP_FILTER", "patch": {"operation": "ADD", "value": value}}]})
    }

    fn writes(headers: &Value) -> Value {
        json!({"hosts": ["a"], "http": [{
            "match": [{"headers": {"cookie": {"exact": "user"}, "authorization": {"exact": "Bearer abc"}}}],
            "headers": {"request": {"set": headers, "remove": ["authorization"]}},
        }]})
    }

    fn issuer(jwks: &str) -> Value {
        json!({"jwtRules": [{"issuer": "i", "jwks": jwks}]})
    }

    #[test]
    fn of_a_kind_without_effect_the_fields_go() {
        let policies = "istio/authentication/v1alpha1/policies";
        let mixed = r#"{"keys":[{"kty":"RSA","n":"1","d":"abc"},{"kty":"oct","k":"abc"}]}"#;
        let origin = |jwks: &str| json!({"origins": [{"jwt": {"issuer": "i", "jwks": jwks}}]});
        let rows = [
            (
                HANDLERS,
                json!({"compiledAdapter": "redis", "params": {"password": "abc", "n": 1}, "connection": {"address": "a:1"}}),
                json!({"compiledAdapter": "redis", "connection": {"address": "a:1"}}),
            ),
            (
                policies,
                origin(mixed),
                origin(r#"{"keys":[{"kty":"RSA","n":"1"}]}"#),
            ),
            (policies, origin("abc"), origin(NO_KEYS)),
            (
                MESH,
                json!({"defaultConfig": {"tracing": {"lightstep": {"address": "a:1", "accessToken": "abc"}}}}),
                json!({"defaultConfig": {"tracing": {"lightstep": {"address": "a:1"}}}}),
            ),
        ];
        for (collection, mut value, left) in rows {
            assert!(may_hold(collection));
            assert_eq!(withhold(collection, &mut value), Withheld::Fields);
            assert_eq!(value, left, "{collection}");
            assert_eq!(withhold(collection, &mut value), Withheld::Nothing);
        }
    }

    #[test]
    fn an_object_that_acts_on_a_secret_goes_as_a_whole() {
        let rows = [
            (
                ROUTES,
                writes(&json!({"Authorization": "Bearer abc", "x": "y"})),
            ),
            (ROUTES, writes(&json!({"proxy-authorization": "basic abc"}))),
            (
                ROUTES,
                json!({"http": [{"appendHeaders": {"x-access-token": "Bearer  abc"}}]}),
            ),
            (REQUESTS, issuer(r#"{"keys":[{"kty":"oct","k":"abc"}]}"#)),
            (REQUESTS, issuer("abc")),
            (
                FILTERS,
                patch(&json!({"private_key": {"inline_string": "abc"}})),
            ),
            (
                FILTERS,
                patch(
                    &json!({"credentials": {"token_secret": {"name": "a", "inline_bytes": "YWJj"}}}),
                ),
            ),
            (
                FILTERS,
                patch(&json!({"credentials": {"client_id": "a", "client_secret": "abc"}})),
            ),
            (FILTERS, patch(&json!({"password": ["abc"], "x": 1}))),
            (FILTERS, patch(&json!({"password": "/abc"}))),
            (FILTERS, patch(&json!({"pin_token": 1234}))),
            (
                FILTERS,
                patch(&json!({"users": {"inline_string": "u:abc"}})),
            ),
            (
                FILTERS,
                patch(&json!({"session_ticket_keys": {"keys": [{"inline_bytes": "abc"}]}})),
            ),
            (FILTERS, patch(&json!({"pkcs12": {"inline_bytes": "abc"}}))),
            (
                FILTERS,
                patch(&json!({"code": "-----BEGIN PRIVATE KEY-----"})),
            ),
            (
                FILTERS,
                patch(&json!({"header": {"key": "Authorization", "value": "Basic abc"}})),
            ),
            (
                FILTERS,
                patch(
                    &json!({"local_jwks": {"inline_string": r#"{"keys":[{"kty":"oct","k":"abc"}]}"#}}),
                ),
            ),
            (
                FILTERS,
                patch(&json!({"local_jwks": {"inline_bytes": "YWJj"}})),
            ),
            // A reference is no secret; what is beside it may be one.
            (
                FILTERS,
                patch(
                    &json!({"token_secret": {"name": "a", "sds_config": {"api_config_source": {"grpc_services": [
                    {"google_grpc": {"call_credentials": [{"access_token": "abc"}]}}]}}}}),
                ),
            ),
        ];
        for (collection, mut value) in rows {
            let shown = value.to_string();
            assert!(may_hold(collection));
            let withheld = withhold(collection, &mut value);
            assert_eq!(withheld, Withheld::Object, "{shown}");
        }
    }

    #[test]
    fn references_and_names_are_sent() {
        let sds = |name: &str| json!({"name": name, "sds_config": {"path_config_source": {"path": "/etc/istio/t.yaml"}}});
        let rows = [
            (
                FILTERS,
                patch(&json!({"config": {
                    "forward_bearer_token": true,
                    "credentials": {"client_id": "a", "token_secret": sds("token"), "hmacSecret": {"name": "a", "sdsConfig": {"ads": {}}},
                        "cookie_names": {"bearer_token": "BearerToken", "oauth_hmac": "OauthHMAC"}},
                }})),
            ),
            (
                FILTERS,
                patch(&json!({"private_key": {"filename": "/k"}, "privateKey": "/etc/key.pem"})),
            ),
            (
                FILTERS,
                patch(&json!({"password": {"environment_variable": "P"}, "token": ""})),
            ),
            (
                FILTERS,
                patch(&json!({"users": {"filename": "/users"}, "code": {"inline_string": "lua"}})),
            ),
            (
                FILTERS,
                patch(&json!({"local_jwks": {"filename": "/keys"}})),
            ),
            (
                ROUTES,
                writes(
                    &json!({"authorization": "none", "x-internal-token": "none", "x": "Bearer abc"}),
                ),
            ),
            (
                ROUTES,
                writes(&json!({"set-cookie": "a=b", "proxy-authorization": "Basic "})),
            ),
            (
                REQUESTS,
                issuer(r#"{"keys":[{"kty":"RSA","n":"1","e":"AQAB"}]}"#),
            ),
        ];
        for (collection, mut value) in rows {
            let before = value.clone();
            let withheld = withhold(collection, &mut value);
            assert_eq!((withheld, &value), (Withheld::Nothing, &before));
        }
    }

    /// The public half of a pair verifies the same tokens.
    #[test]
    fn a_private_half_goes_alone() {
        let pair = r#"{"keys":[{"kty":"RSA","n":"1","d":"abc"},{"kty":"EC","x":"1","d":"abc"}]}"#;
        let half = r#"{"keys":[{"kty":"RSA","n":"1"},{"kty":"EC","x":"1"}]}"#;
        let mut value = issuer(pair);
        assert_eq!(withhold(REQUESTS, &mut value), Withheld::Fields);
        assert_eq!(value, issuer(half));
        let local = |keys: &str| patch(&json!({"local_jwks": {"inline_string": keys}}));
        let mut value = local(pair);
        assert_eq!(withhold(FILTERS, &mut value), Withheld::Fields);
        assert_eq!(value, local(half));
    }
}
