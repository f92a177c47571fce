//! Parts of a valid DestinationRule that proxies take otherwise than they are written, or not at all.

use serde_json::Value as Json;

use super::{MOST_SUBSETS, is_header_name, is_one_line, is_percentage, items};
use crate::config::Finding;
use crate::names::is_host_pattern;

pub(super) fn notes(spec: &Json) -> Vec<Finding> {
    let mut found = Vec::new();
    let host = spec.get("host").and_then(Json::as_str);
    if host.is_some_and(|host| host.starts_with('*') && host != "*" && !is_host_pattern(host)) {
        let why = "has no effect: a wildcard of services is \"*\" or begins with \"*.\"";
        found.push(Finding::warning("spec.host", why));
    }
    policy("spec.trafficPolicy", spec.get("trafficPolicy"), &mut found);
    if items(spec, "subsets").count() > MOST_SUBSETS {
        let why = format!("are served in part: the first {MOST_SUBSETS} of a service count");
        found.push(Finding::warning("spec.subsets", why));
    }
    for (at, subset) in items(spec, "subsets") {
        let path = format!("spec.subsets[{at}].trafficPolicy");
        policy(&path, subset.get("trafficPolicy"), &mut found);
    }
    found
}

fn policy(path: &str, written: Option<&Json>, found: &mut Vec<Finding>) {
    let Some(written) = written else {
        return;
    };
    let hash = written.pointer("/loadBalancer/consistentHash");
    for key in ["httpHeaderName", "httpQueryParameterName"] {
        let name = hash.and_then(|hash| hash.get(key)).and_then(Json::as_str);
        if !name.is_none_or(is_header_name) {
            let path = format!("{path}.loadBalancer.consistentHash.{key}");
            let why = "is not served: it is no name, so that requests are spread at random";
            found.push(Finding::warning(path, why));
        }
    }
    let attributes = hash.and_then(|hash| hash.pointer("/httpCookie/attributes"));
    let attributes = attributes.and_then(Json::as_array).into_iter().flatten();
    for (at, attribute) in attributes.enumerate() {
        let text = |key: &str| attribute.get(key).and_then(Json::as_str);
        if !["name", "value"]
            .into_iter()
            .filter_map(text)
            .all(is_one_line)
        {
            let path = format!("{path}.loadBalancer.consistentHash.httpCookie.attributes[{at}]");
            found.push(Finding::warning(
                path,
                "is not served: it is more than a line",
            ));
        }
    }
    let balancer = written.get("loadBalancer");
    let hashes = balancer.is_some_and(|one| one.get("consistentHash").is_some());
    let simple = balancer.and_then(|one| one.get("simple")?.as_str());
    for key in ["warmup", "warmupDurationSecs"] {
        let is_written = balancer.is_some_and(|one| one.get(key).is_some());
        if is_written && (hashes || matches!(simple, Some("RANDOM" | "PASSTHROUGH"))) {
            let path = format!("{path}.loadBalancer.{key}");
            let why = "has no effect: endpoints warm up with ROUND_ROBIN and LEAST_REQUEST alone";
            found.push(Finding::warning(path, why));
        }
    }
    let percent = written.pointer("/retryBudget/percent");
    if !percent.and_then(Json::as_f64).is_none_or(is_percentage) {
        let path = format!("{path}.retryBudget.percent");
        let why = "is not served: it is not between 0 and 100, so that proxies take 20";
        found.push(Finding::warning(path, why));
    }
    let sni = written.pointer("/tls/sni").and_then(Json::as_str);
    if !sni.is_none_or(is_one_line) {
        let why = "is not served: it is no name";
        found.push(Finding::warning(format!("{path}.tls.sni"), why));
    }
    for (at, port) in items(written, "portLevelSettings") {
        policy(
            &format!("{path}.portLevelSettings[{at}]"),
            Some(port),
            found,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wildcard_that_is_no_service_has_no_effect() {
        for host in [
            "*",
            "*.local",
            "*.demo.svc.cluster.local",
            "b",
            "b.demo",
            "10.0.0.1",
        ] {
            assert_eq!(notes(&json!({"host": host})), [], "{host}");
        }
        let found = notes(&json!({"host": "*demo.svc.cluster.local"}));
        let [note] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(!note.is_error() && note.path == "spec.host", "{note:?}");
        assert!(
            note.message.starts_with("has no effect: a wildcard"),
            "{note:?}"
        );
    }

    #[test]
    fn parts_without_effect_are_named() {
        let said = |policy: Json| -> Vec<String> {
            let found = notes(&json!({"host": "a", "trafficPolicy": policy}));
            let words = found.iter().map(|note| {
                assert!(!note.is_error());
                format!("{}: {}", note.path, note.message)
            });
            words.collect()
        };
        let warms = "has no effect: endpoints warm up with ROUND_ROBIN and LEAST_REQUEST alone";
        let balancer = "spec.trafficPolicy.loadBalancer";
        for (policy, wanted) in [
            (json!({"loadBalancer": {"warmupDurationSecs": "9s"}}), vec![]),
            (json!({"loadBalancer": {"simple": "ROUND_ROBIN", "warmup": {"duration": "9s"}}}), vec![]),
            (
                json!({"loadBalancer": {"simple": "RANDOM", "warmup": {"duration": "9s"}}}),
                vec![format!("{balancer}.warmup: {warms}")],
            ),
            (
                json!({"loadBalancer": {"consistentHash": {"useSourceIp": true}, "warmupDurationSecs": "9s"}}),
                vec![format!("{balancer}.warmupDurationSecs: {warms}")],
            ),
            (json!({"retryBudget": {"percent": 100}}), vec![]),
            (
                json!({"retryBudget": {"percent": 100.5}}),
                vec![
                    "spec.trafficPolicy.retryBudget.percent: is not served: it is not between 0 and 100, so that proxies take 20"
                        .to_owned(),
                ],
            ),
            (
                json!({"loadBalancer": {"consistentHash": {"httpCookie": {"name": "a", "attributes": [
                    {"name": "Secure"}, {"name": "Path", "value": "a\nb"},
                ]}}}}),
                vec![format!(
                    "{balancer}.consistentHash.httpCookie.attributes[1]: is not served: it is more than a line"
                )],
            ),
            (
                json!({"portLevelSettings": [{"tls": {"sni": "a\rb"}}]}),
                vec!["spec.trafficPolicy.portLevelSettings[0].tls.sni: is not served: it is no name".to_owned()],
            ),
        ] {
            assert_eq!(said(policy), wanted);
        }
    }
}
