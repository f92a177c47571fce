//! AuthorizationPolicy: values that no request and no peer ever has, so that a rule that keeps out keeps out nothing.

use serde_json::Value as Json;

use super::{items, targets};
use crate::config::Finding;
use crate::config::rules::authorization::HTTP_OPERATION;

const SCHEME: &str = "spiffe://";

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let mut findings = targets::notes(spec);
    let is_audit = spec.get("action").and_then(Json::as_str) == Some("AUDIT");
    for (at, rule) in items(spec, "rules") {
        if is_audit && has_request_field(rule) {
            let why = "logs no connection of TCP ports: it has fields that only requests have";
            findings.push(Finding::warning(format!("spec.rules[{at}]"), why));
        }
        let path = |rest: String| format!("spec.rules[{at}].{rest}");
        for (to, one) in items(rule, "to") {
            for (fields, why) in [
                (["methods", "notMethods"], method as MismatchReason),
                (["paths", "notPaths"], request_path),
            ] {
                let operation = one.get("operation");
                note(operation, fields, why, &mut findings, |field| {
                    path(format!("to[{to}].operation.{field}"))
                });
            }
        }
        for (from, one) in items(rule, "from") {
            let (source, fields) = (one.get("source"), ["principals", "notPrincipals"]);
            note(source, fields, principal, &mut findings, |field| {
                path(format!("from[{from}].source.{field}"))
            });
        }
        for (when, one) in items(rule, "when") {
            if one.get("key").and_then(Json::as_str) == Some("source.principal") {
                let fields = ["values", "notValues"];
                note(Some(one), fields, principal, &mut findings, |field| {
                    path(format!("when[{when}].{field}"))
                });
            }
        }
    }
    findings
}

/// Returns true if a rule has a field that connections without requests do not have.
fn has_request_field(rule: &Json) -> bool {
    let has = |of: Option<&Json>, names: &[&str]| {
        let mut lists = names.iter().filter_map(|name| of?.get(name)?.as_array());
        lists.any(|list| !list.is_empty())
    };
    let source = ["requestPrincipals", "notRequestPrincipals"];
    let is_of_request = |when: &Json| {
        let key = when.get("key").and_then(Json::as_str);
        key.is_some_and(|key| key.starts_with("request."))
    };
    items(rule, "from").any(|(_, one)| has(one.get("source"), &source))
        || items(rule, "to").any(|(_, one)| has(one.get("operation"), &HTTP_OPERATION))
        || items(rule, "when").any(|(_, one)| is_of_request(one))
}

/// Why a value matches something else than it says.
type MismatchReason = fn(&str) -> Option<&'static str>;

fn note(
    of: Option<&Json>,
    fields: [&str; 2],
    why: MismatchReason,
    findings: &mut Vec<Finding>,
    path: impl Fn(&str) -> String,
) {
    for field in fields {
        let values = of.into_iter().flat_map(|of| items(of, field));
        for (at, value) in values {
            if let Some(why) = value.as_str().and_then(why) {
                findings.push(Finding::warning(format!("{}[{at}]", path(field)), why));
            }
        }
    }
}

fn method(value: &str) -> Option<&'static str> {
    let is_small = value.bytes().any(|letter| letter.is_ascii_lowercase());
    is_small.then_some("matches no method in capitals, such as GET")
}

/// Checks a path as proxies compare it: without query and fragment, and without `.` and `..` steps.
fn request_path(value: &str) -> Option<&'static str> {
    if value.contains('?') {
        return Some("never matches: the query is no part of the path");
    }
    if value.contains('#') {
        return Some("never matches: a fragment is no part of the path");
    }
    if !value.is_ascii() {
        return Some(
            "never matches: in the path of a request letters beyond ASCII are escaped, such as %C3%BC or %c3%bc",
        );
    }
    if value
        .split('/')
        .any(|segment| matches!(segment, "." | ".."))
    {
        return Some(
            "never matches: the path of a request has no . and .. unless pathNormalization is NONE",
        );
    }
    let is_open = ["/", "*", "{**}"]
        .iter()
        .any(|begin| value.starts_with(begin));
    (!is_open).then_some("never matches: the path of a request begins with /")
}

fn principal(value: &str) -> Option<&'static str> {
    let scheme = value.get(..SCHEME.len())?;
    match scheme {
        SCHEME => Some("is taken without spiffe://: a principal has no scheme"),
        _ if scheme.eq_ignore_ascii_case(SCHEME) => Some(
            "never matches: a principal has no scheme, it is TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(
        clippy::needless_pass_by_value,
        reason = "values are made where they are wanted"
    )]
    fn said(rule: Json) -> Vec<String> {
        let found = notes(&json!({"rules": [{}, rule]})).into_iter();
        found
            .map(|note| format!("{}: {}", note.path, note.message))
            .collect()
    }

    /// Proxies log with the rules of requests at ports of HTTP alone.
    #[test]
    fn an_audit_of_requests_says_that_connections_are_not_logged() {
        for (rule, is_noted) in [
            (json!({"to": [{"operation": {"paths": ["/a"]}}]}), true),
            (
                json!({"from": [{"source": {"requestPrincipals": ["*"]}}]}),
                true,
            ),
            (
                json!({"when": [{"key": "request.headers[a]", "values": ["b"]}]}),
                true,
            ),
            (
                json!({"to": [{"operation": {"ports": ["80"], "paths": []}}]}),
                false,
            ),
            (json!({}), false),
        ] {
            let note = "spec.rules[0]: logs no connection of TCP ports: it has fields that only requests have";
            for action in ["AUDIT", "ALLOW"] {
                let found = notes(&json!({"action": action, "rules": [rule]})).into_iter();
                let found: Vec<_> = found
                    .map(|one| format!("{}: {}", one.path, one.message))
                    .collect();
                let want = (is_noted && action == "AUDIT").then_some(note);
                assert_eq!(found, want.into_iter().collect::<Vec<_>>(), "{rule}");
            }
        }
    }

    #[test]
    fn values_that_never_match_are_named() {
        let to = |operation: Json| said(json!({"to": [{}, {"operation": operation}]}));
        let good = ["/", "/a*", "*", "*.html", "/a/{*}/b", "{**}", "/%C3%BC"];
        assert_eq!(
            to(json!({"methods": ["GET", "P*", "*"], "paths": good})),
            [""; 0]
        );
        let place = "spec.rules[1].to[1].operation";
        let small = "matches no method in capitals, such as GET";
        assert_eq!(
            to(json!({"methods": ["GET", "get"], "notMethods": ["Po*"]})),
            [
                format!("{place}.methods[1]: {small}"),
                format!("{place}.notMethods[0]: {small}")
            ]
        );
        for (written, why) in [
            ("admin", "the path of a request begins with /"),
            ("{*}/a", "the path of a request begins with /"),
            ("/a?x=1", "the query is no part of the path"),
            ("*?x", "the query is no part of the path"),
            ("/a#b", "a fragment is no part of the path"),
            (
                "/ü*",
                "in the path of a request letters beyond ASCII are escaped, such as %C3%BC or %c3%bc",
            ),
            (
                "/a/../b",
                "the path of a request has no . and .. unless pathNormalization is NONE",
            ),
        ] {
            let expected = format!("{place}.paths[0]: never matches: {why}");
            assert_eq!(to(json!({"paths": [written]})), [expected]);
        }
        let lacks = "a principal has no scheme";
        let (taken, never) = (
            format!("is taken without spiffe://: {lacks}"),
            format!("never matches: {lacks}, it is TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT"),
        );
        let values = json!([
            "cluster.local/ns/a/sa/b",
            "*",
            "*/sa/b",
            "é",
            "spiffe://a/ns/b/sa/c",
            "SPIFFE://a/ns/b/sa/c"
        ]);
        let from = said(json!({"from": [{"source": {"principals": values}}]}));
        let place = "spec.rules[1].from[0].source.principals";
        assert_eq!(
            from,
            [
                format!("{place}[4]: {taken}"),
                format!("{place}[5]: {never}")
            ]
        );
        let when = |key: &str| said(json!({"when": [{"key": key, "notValues": values}]}));
        let place = "spec.rules[1].when[0].notValues";
        assert_eq!(
            when("source.principal"),
            [
                format!("{place}[4]: {taken}"),
                format!("{place}[5]: {never}")
            ]
        );
        assert_eq!(when("request.auth.principal"), [""; 0]);
    }
}
