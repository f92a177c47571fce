//! Tokens that no proxy accepts, and headers that no proxy reads.

use std::time::Duration;

use serde_json::Value as Json;

use super::{is_header_name, is_one_line, items, targets};
use crate::config::Finding;
use crate::duration;
use crate::security::{JwksSource, KeySet, MAX_KEYS};

/// The longest wait of discovery for keys, even if an object wants a longer one. Chosen: a minute.
pub const MAX_FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns true if proxies may write a token's payload into a header of this name: pseudo-headers are parts of the request line.
#[must_use]
pub fn is_output_header(name: &str) -> bool {
    is_header_name(name) && !name.starts_with(':')
}

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let rules = items(spec, "jwtRules");
    let rules = rules.flat_map(|(at, rule)| of_rule(&format!("spec.jwtRules[{at}]"), rule));
    rules.chain(targets::notes(spec)).collect()
}

fn of_rule(path: &str, rule: &Json) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |path: String, message: String| findings.push(Finding::warning(path, message));
    let text = |name: &str| rule.get(name).and_then(Json::as_str).unwrap_or_default();
    let (inline, fetched) = (text("jwks"), text("jwksUri"));
    let issuer = JwksSource::of_issuer(text("issuer"));
    match (inline, fetched) {
        ("", "") if issuer.is_none() => note(
            path.to_owned(),
            "believes no token: neither jwks nor jwksUri says a key, and the issuer is no URL"
                .to_owned(),
        ),
        ("", _) | (_, "") => {}
        _ => note(
            format!("{path}.jwksUri"),
            "has no effect beside jwks".to_owned(),
        ),
    }
    let left_out = KeySet::inline(inline).map_or(0, |keys| keys.left_out());
    if left_out > 0 {
        let keys = crate::counted(left_out, "key");
        let why = format!(
            "is served without {keys}: proxies cannot use them, or they are more than {MAX_KEYS}"
        );
        note(format!("{path}.jwks"), why);
    }
    for (at, header) in items(rule, "fromHeaders") {
        let part = |name: &str| header.get(name).and_then(Json::as_str).unwrap_or_default();
        if !is_header_name(part("name")) || !is_one_line(part("prefix")) {
            let why = "is not looked at: a header has a name, and is one line".to_owned();
            note(format!("{path}.fromHeaders[{at}]"), why);
        }
    }
    let output = text("outputPayloadToHeader");
    if !output.is_empty() && !is_output_header(output) {
        let why = "is not served: it is no name of a header".to_owned();
        note(format!("{path}.outputPayloadToHeader"), why);
    }
    let limit = i128::try_from(MAX_FETCH_TIMEOUT.as_nanos()).unwrap_or(i128::MAX);
    let waits = duration::parse(text("timeout"));
    if waits.is_some_and(|waits| duration::nanos(&waits) > limit) {
        let why = format!("is served as {}s", MAX_FETCH_TIMEOUT.as_secs());
        note(format!("{path}.timeout"), why);
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_that_are_not_believed_as_they_are_written_are_said() {
        let said = |rule: Json| -> Vec<String> {
            let notes = notes(&json!({"jwtRules": [rule]})).into_iter();
            let notes = notes.map(|note| {
                assert!(!note.is_error());
                format!("{}: {}", note.path, note.message)
            });
            notes.collect()
        };
        let key = r#"{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}"#;
        let keys = format!(r#"{{"keys": [{key}]}}"#);
        let more = format!(r#"{{"keys": [{key}, {{"kty": "RSA"}}, {{}}]}}"#);
        let place = "spec.jwtRules[0]";
        let none = [""; 0];
        assert_eq!(said(json!({"issuer": "i", "jwks": keys})), none);
        assert_eq!(said(json!({"issuer": "https://i"})), none);
        let written = json!({"issuer": "i", "jwksUri": "https://a", "timeout": "60s", "outputPayloadToHeader": "x"});
        assert_eq!(said(written), none);
        for (rule, words) in [
            (
                json!({"issuer": "i"}),
                format!(
                    "{place}: believes no token: neither jwks nor jwksUri says a key, and the issuer is no URL"
                ),
            ),
            (
                json!({"jwks": keys, "jwksUri": "https://a"}),
                format!("{place}.jwksUri: has no effect beside jwks"),
            ),
            (
                json!({"jwks": more}),
                format!(
                    "{place}.jwks: is served without 2 keys: proxies cannot use them, or they are more than 100"
                ),
            ),
            (
                json!({"jwks": keys, "fromHeaders": [{"name": "x"}, {"name": "a\nb"}]}),
                format!(
                    "{place}.fromHeaders[1]: is not looked at: a header has a name, and is one line"
                ),
            ),
            (
                json!({"jwks": keys, "fromHeaders": [{"name": "x", "prefix": "a\rb"}]}),
                format!(
                    "{place}.fromHeaders[0]: is not looked at: a header has a name, and is one line"
                ),
            ),
            (
                json!({"jwks": keys, "outputPayloadToHeader": ":path"}),
                format!("{place}.outputPayloadToHeader: is not served: it is no name of a header"),
            ),
            (
                json!({"jwksUri": "https://a", "timeout": "61s"}),
                format!("{place}.timeout: is served as 60s"),
            ),
        ] {
            assert_eq!(said(rule.clone()), [words], "{rule}");
        }
    }
}
