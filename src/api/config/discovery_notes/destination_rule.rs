//! Parts of a valid DestinationRule that proxies take otherwise than they are written, or not at all.

use serde_json::Value as Json;

use super::{
    MAX_SUBSETS, files, is_cookie_attribute, is_header_name, is_percentage, is_sni, is_table,
    items, largest_ring,
};
use crate::config::Finding;
use crate::duration;
use crate::names::is_host_pattern;

/// Labels by which one setting prefers endpoints. Chosen: it names a few.
pub const MAX_FAILOVER_LABELS: usize = 32;

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let mut findings = Vec::new();
    let host = spec.get("host").and_then(Json::as_str);
    if host.is_some_and(|host| host.starts_with('*') && host != "*" && !is_host_pattern(host)) {
        let why = "has no effect: a wildcard of services is \"*\" or begins with \"*.\"";
        findings.push(Finding::warning("spec.host", why));
    }
    // Each port has as many, and a rule does not know those of its services.
    let subsets = items(spec, "subsets").count().min(MAX_SUBSETS);
    let rule = RuleFacts {
        selects: spec.get("workloadSelector").is_some(),
        // Each subset is a cluster, and so is the service as a whole.
        clusters: subsets.saturating_add(1),
    };
    policy(
        "spec.trafficPolicy",
        spec.get("trafficPolicy"),
        rule,
        &mut findings,
    );
    if items(spec, "subsets").count() > MAX_SUBSETS {
        let why = format!("are served in part: the first {MAX_SUBSETS} of a service count");
        findings.push(Finding::warning("spec.subsets", why));
    }
    for (at, subset) in items(spec, "subsets") {
        let path = format!("spec.subsets[{at}].trafficPolicy");
        policy(&path, subset.get("trafficPolicy"), rule, &mut findings);
    }
    findings
}

/// Returns true if responses have a status of this number.
#[must_use]
pub const fn is_status(code: u32) -> bool {
    matches!(code, 100..=599)
}

fn localities(path: &str, value: &Json, findings: &mut Vec<Finding>) {
    let Some(balancer) = value.get("loadBalancer") else {
        return;
    };
    for key in ["localityLbSetting", "zoneAwareLbSetting"] {
        let path = format!("{path}.loadBalancer.{key}");
        let Some(setting) = balancer.get(key) else {
            continue;
        };
        if items(setting, "failoverPriority").count() > MAX_FAILOVER_LABELS {
            let why = format!("is served in part: the first {MAX_FAILOVER_LABELS} labels count");
            findings.push(Finding::warning(format!("{path}.failoverPriority"), why));
        }
        if key == "zoneAwareLbSetting" {
            let why = "is served in part: regions and labels count, and zones are balanced by proxies alone whose bootstrap has a \
                       local_cluster_name";
            findings.push(Finding::warning(path, why));
        }
    }
}

/// Certificates by name.
fn credential(path: &str, value: &Json, selects: bool, findings: &mut Vec<Finding>) {
    let Some(tls) = value
        .get("tls")
        .filter(|tls| tls.get("credentialName").is_some())
    else {
        return;
    };
    let mode = tls.get("mode").and_then(Json::as_str);
    let why = match mode {
        Some("SIMPLE" | "MUTUAL") if selects => return,
        Some("SIMPLE" | "MUTUAL") => {
            "counts at routers alone: sidecars want a workloadSelector for it"
        }
        _ => "has no effect with this mode",
    };
    findings.push(Finding::warning(format!("{path}.tls.credentialName"), why));
}

/// Fields of TLS for which its mode has no use.
fn idle_tls(path: &str, tls: &Json, findings: &mut Vec<Finding>) {
    let mode = tls.get("mode").and_then(Json::as_str);
    let mode = mode.unwrap_or("DISABLE");
    let idle: &[&str] = match mode {
        "DISABLE" => &[
            "clientCertificate",
            "privateKey",
            "caCertificates",
            "caCrl",
            "subjectAltNames",
            "sni",
            "insecureSkipVerify",
        ],
        "SIMPLE" => &["clientCertificate", "privateKey"],
        "ISTIO_MUTUAL" => &[
            "clientCertificate",
            "privateKey",
            "caCertificates",
            "caCrl",
            "insecureSkipVerify",
        ],
        _ => &[],
    };
    let is_written = |name: &str| {
        tls.get(name).is_some_and(|value| {
            *value != "" && *value != false && *value != Json::Array(Vec::new())
        })
    };
    for name in idle.iter().filter(|name| is_written(name)) {
        let why = format!("has no effect with {mode}");
        findings.push(Finding::warning(format!("{path}.{name}"), why));
    }
    if matches!(mode, "SIMPLE" | "MUTUAL")
        && is_written("insecureSkipVerify")
        && is_written("caCrl")
    {
        let why = "has no effect beside insecureSkipVerify";
        findings.push(Finding::warning(format!("{path}.caCrl"), why));
    }
}

/// `warmupDurationSecs` is the older name of `warmup.duration`, and only that one has a rule for short times.
fn warmup_seconds(path: &str, balancer: &Json, findings: &mut Vec<Finding>) {
    let Some(duration) = balancer.get("warmupDurationSecs") else {
        return;
    };
    let nanos = duration.as_str().and_then(duration::parse);
    let nanos = nanos.map(|length| duration::nanos(&length));
    let why = if balancer.get("warmup").is_some() {
        "has no effect: warmup counts"
    // A negative one has a warning of the rules.
    } else if nanos.is_some_and(|nanos| (0..1_000_000).contains(&nanos)) {
        "has no effect: below 1ms endpoints do not warm up"
    } else {
        return;
    };
    let path = format!("{path}.warmupDurationSecs");
    findings.push(Finding::warning(path, why));
}

/// A name that connections say, and that no server has to prove: by itself Envoy compares none.
fn unproved_name(path: &str, tls: &Json, findings: &mut Vec<Finding>) {
    let says = tls.get("sni").and_then(Json::as_str);
    let says = says.is_some_and(|name| !name.is_empty() && is_sni(name));
    let mode = tls.get("mode").and_then(Json::as_str);
    let is_client = matches!(mode, Some("SIMPLE" | "MUTUAL"));
    let skips = tls.get("insecureSkipVerify") == Some(&Json::Bool(true));
    if says && is_client && !skips && items(tls, "subjectAltNames").next().is_none() {
        let why = "is said and not compared: each certificate of the roots is taken unless subjectAltNames lists the server's names";
        findings.push(Finding::warning(format!("{path}.sni"), why));
    }
}

/// `clusters`: those that the host has for each port.
fn load_balancer(path: &str, balancer: &Json, clusters: usize, findings: &mut Vec<Finding>) {
    let hash = balancer.get("consistentHash");
    if let Some(hash) = hash {
        let path = format!("{path}.consistentHash");
        hash_key(&path, hash, findings);
        hash_size(&path, hash, clusters, findings);
    }
    let simple = balancer.get("simple").and_then(Json::as_str);
    if hash.is_some() || matches!(simple, Some("RANDOM" | "PASSTHROUGH")) {
        let keys = ["warmup", "warmupDurationSecs"].into_iter();
        for key in keys.filter(|key| balancer.get(key).is_some()) {
            let why = "has no effect: endpoints warm up with ROUND_ROBIN and LEAST_REQUEST alone";
            findings.push(Finding::warning(format!("{path}.{key}"), why));
        }
    }
    warmup_seconds(path, balancer, findings);
}

/// The facts about a rule that the notes on its policies need.
#[derive(Clone, Copy)]
struct RuleFacts {
    /// The rule has a workload selector.
    selects: bool,
    /// The clusters of its host for each port.
    clusters: usize,
}

fn policy(path: &str, settings: Option<&Json>, rule: RuleFacts, findings: &mut Vec<Finding>) {
    let Some(settings) = settings else {
        return;
    };
    if let Some(balancer) = settings.get("loadBalancer") {
        load_balancer(
            &format!("{path}.loadBalancer"),
            balancer,
            rule.clusters,
            findings,
        );
    }
    localities(path, settings, findings);
    credential(path, settings, rule.selects, findings);
    let codes = settings.get("outlierDetection");
    let codes = codes.into_iter();
    let codes = codes.flat_map(|one| items(one, "outlierDetectionHttpErrorCodes"));
    for (at, code) in codes {
        let code = code.as_u64().and_then(|code| u32::try_from(code).ok());
        if !code.is_some_and(is_status) {
            let path = format!("{path}.outlierDetection.outlierDetectionHttpErrorCodes[{at}]");
            findings.push(Finding::warning(path, "has no effect: no response has it"));
        }
    }
    let percent = settings.pointer("/retryBudget/percent");
    if !percent.and_then(Json::as_f64).is_none_or(is_percentage) {
        let path = format!("{path}.retryBudget.percent");
        let why = "is not served: it is not between 0 and 100, so that proxies take 20";
        findings.push(Finding::warning(path, why));
    }
    let sni = settings.pointer("/tls/sni").and_then(Json::as_str);
    if !sni.is_none_or(is_sni) {
        let why = "is not served: it is no name, or longer than 255 bytes";
        findings.push(Finding::warning(format!("{path}.tls.sni"), why));
    }
    if let Some(tls) = settings.get("tls") {
        idle_tls(&format!("{path}.tls"), tls, findings);
        files::client_notes(&format!("{path}.tls"), tls, findings);
        unproved_name(&format!("{path}.tls"), tls, findings);
    }
    for (at, port) in items(settings, "portLevelSettings") {
        policy(
            &format!("{path}.portLevelSettings[{at}]"),
            Some(port),
            rule,
            findings,
        );
    }
}

fn hash_key(path: &str, hash: &Json, findings: &mut Vec<Finding>) {
    for key in ["httpHeaderName", "httpQueryParameterName"] {
        let name = hash.get(key).and_then(Json::as_str);
        if !name.is_none_or(is_header_name) {
            let path = format!("{path}.{key}");
            let why = "is not served: it is no name, so that requests are spread at random";
            findings.push(Finding::warning(path, why));
        }
    }
    let attributes = hash.pointer("/httpCookie/attributes");
    let attributes = attributes.and_then(Json::as_array).into_iter().flatten();
    for (at, attribute) in attributes.enumerate() {
        let text = |key: &str| {
            let text = attribute.get(key).and_then(Json::as_str);
            text.unwrap_or_default()
        };
        if !is_cookie_attribute(text("name"), text("value")) {
            let path = format!("{path}.httpCookie.attributes[{at}]");
            let why = "is not served: it is more than a line, or longer than 16384 bytes";
            findings.push(Finding::warning(path, why));
        }
    }
}

/// The proxies of all other services have rings and tables of this one, too.
fn hash_size(path: &str, hash: &Json, clusters: usize, findings: &mut Vec<Finding>) {
    let number = |place: &str| {
        let written = hash.pointer(place)?;
        // Proto JSON writes integers of 64 bits as text.
        let text = || written.as_str()?.parse().ok();
        written.as_u64().or_else(text)
    };
    let max = largest_ring(clusters);
    for (place, field) in [
        ("/minimumRingSize", "minimumRingSize"),
        ("/ringHash/minimumRingSize", "ringHash.minimumRingSize"),
    ] {
        if number(place).is_some_and(|size| size > max) {
            let why = format!(
                "is served as {max} at most, and as less where its service has several ports: all clusters of one service share 1048576"
            );
            findings.push(Finding::warning(format!("{path}.{field}"), why));
        }
    }
    if !number("/maglev/tableSize").is_none_or(|size| is_table(size, clusters)) {
        let why = "is served as 65537: all clusters of one service share 1048576";
        findings.push(Finding::warning(format!("{path}.maglev.tableSize"), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_said_whom_a_certificate_by_name_is_for() {
        let said = |mode: &str, selects: bool| -> Vec<String> {
            let mut rule = json!({"host": "a", "trafficPolicy": {"tls": {"mode": mode, "credentialName": "c"}}});
            if selects {
                rule["workloadSelector"] = json!({"matchLabels": {"app": "x"}});
            }
            let found = notes(&rule).into_iter();
            found.map(|note| note.message).collect()
        };
        assert_eq!(said("MUTUAL", true), [""; 0]);
        let routers = "counts at routers alone: sidecars want a workloadSelector for it";
        assert_eq!(said("SIMPLE", false), [routers]);
        assert_eq!(said("ISTIO_MUTUAL", true), ["has no effect with this mode"]);
    }

    #[test]
    fn a_note_names_fields_of_tls_that_its_mode_has_no_use_for() {
        let idle = |tls: Json| -> String {
            let found = notes(&json!({"host": "a", "trafficPolicy": {"tls": tls}})).into_iter();
            let idle = found.map(|note| {
                let field = note.path.strip_prefix("spec.trafficPolicy.tls.").unwrap();
                format!("{field} {}", note.message)
            });
            idle.collect::<Vec<_>>().join("; ")
        };
        let pair = json!({"clientCertificate": "/c", "privateKey": "/k", "caCertificates": "/r", "sni": "s"});
        let with = |mode: &str| {
            let mut tls = pair.clone();
            tls["mode"] = json!(mode);
            idle(tls)
        };
        let compared = "sni is said and not compared: each certificate of the roots is taken unless subjectAltNames lists the server's names";
        assert_eq!(with("MUTUAL"), compared);
        let names = |names: &[&str], why: &str| {
            let all = names.iter().map(|name| format!("{name} {why}"));
            all.collect::<Vec<_>>().join("; ")
        };
        let of_client = ["clientCertificate", "privateKey"];
        assert_eq!(
            with("SIMPLE"),
            format!(
                "{}; {compared}",
                names(&of_client, "has no effect with SIMPLE")
            )
        );
        for more in [
            json!({"subjectAltNames": ["s"]}),
            json!({"insecureSkipVerify": true}),
            json!({"sni": ""}),
        ] {
            let mut tls = json!({"mode": "SIMPLE", "sni": "s"});
            tls.as_object_mut()
                .unwrap()
                .append(&mut more.as_object().unwrap().clone());
            assert_eq!(idle(tls), "", "{more}");
        }
        let files = ["clientCertificate", "privateKey", "caCertificates"];
        assert_eq!(
            with("ISTIO_MUTUAL"),
            names(&files, "has no effect with ISTIO_MUTUAL")
        );
        let all = ["clientCertificate", "privateKey", "caCertificates", "sni"];
        assert_eq!(with("DISABLE"), names(&all, "has no effect with DISABLE"));
        assert_eq!(idle(pair.clone()), with("DISABLE"));
        let plain = json!({"mode": "DISABLE", "sni": "", "insecureSkipVerify": false, "subjectAltNames": []});
        assert_eq!(idle(plain), "");
        let unchecked = json!({"mode": "SIMPLE", "insecureSkipVerify": true, "caCrl": "/l"});
        assert_eq!(
            idle(unchecked),
            "caCrl has no effect beside insecureSkipVerify"
        );
    }

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
        let findings = notes(&json!({"host": "*demo.svc.cluster.local"}));
        let [note] = findings.as_slice() else {
            panic!("{findings:?}");
        };
        assert!(!note.is_error() && note.path == "spec.host", "{note:?}");
        assert!(
            note.message.starts_with("has no effect: a wildcard"),
            "{note:?}"
        );
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of policies")]
    fn parts_without_effect_are_named() {
        let said = |policy: Json| -> Vec<String> {
            let findings = notes(&json!({"host": "a", "trafficPolicy": policy}));
            let words = findings.iter().map(|note| {
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
                json!({"loadBalancer": {"warmup": {"duration": "9s"}, "warmupDurationSecs": "8s"}}),
                vec![format!("{balancer}.warmupDurationSecs: has no effect: warmup counts")],
            ),
            (
                json!({"loadBalancer": {"warmupDurationSecs": "0s"}}),
                vec![format!("{balancer}.warmupDurationSecs: has no effect: below 1ms endpoints do not warm up")],
            ),
            (
                json!({"loadBalancer": {"warmupDurationSecs": "0.0005s"}}),
                vec![format!("{balancer}.warmupDurationSecs: has no effect: below 1ms endpoints do not warm up")],
            ),
            (json!({"loadBalancer": {"warmupDurationSecs": "0.001s"}}), vec![]),
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
                json!({"outlierDetection": {"outlierDetectionHttpErrorCodes": [429, 600]}}),
                vec![
                    "spec.trafficPolicy.outlierDetection.outlierDetectionHttpErrorCodes[1]: has no effect: no response has it"
                        .to_owned(),
                ],
            ),
            (
                json!({"loadBalancer": {"localityLbSetting": {"failoverPriority": vec!["a"; 33]}}}),
                vec![format!(
                    "{balancer}.localityLbSetting.failoverPriority: is served in part: the first 32 labels count"
                )],
            ),
            (
                json!({"loadBalancer": {"zoneAwareLbSetting": {"failoverPriority": ["a"]}}}),
                vec![format!(
                    "{balancer}.zoneAwareLbSetting: is served in part: regions and labels count, and zones are balanced by \
                     proxies alone whose bootstrap has a local_cluster_name"
                )],
            ),
            (json!({"tunnel": {"targetHost": "a", "targetPort": 1}}), vec![]),
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
                    "{balancer}.consistentHash.httpCookie.attributes[1]: is not served: it is more than a line, or longer than 16384 bytes"
                )],
            ),
            (
                json!({"portLevelSettings": [{"tls": {"mode": "SIMPLE", "sni": "a\rb"}}]}),
                vec!["spec.trafficPolicy.portLevelSettings[0].tls.sni: is not served: it is no name, or longer than 255 bytes".to_owned()],
            ),
        ] {
            assert_eq!(said(policy), wanted);
        }
    }

    #[test]
    fn a_note_names_a_cookie_that_is_too_long() {
        let said = |policy: Json| notes(&json!({"host": "a", "trafficPolicy": policy})).len();
        for (length, is_long) in [(16_384, false), (16_385, true)] {
            let text = "x".repeat(length);
            for attribute in [json!({"name": text}), json!({"name": "a", "value": text})] {
                let cookie = json!({"name": "a", "attributes": [attribute]});
                let policy = json!({"loadBalancer": {"consistentHash": {"httpCookie": cookie}}});
                assert_eq!(said(policy), usize::from(is_long), "{length}");
            }
        }
        for (length, is_long) in [(255, false), (256, true)] {
            let names = json!(["x"]);
            let tls =
                json!({"mode": "SIMPLE", "sni": "x".repeat(length), "subjectAltNames": names});
            let policy = json!({"tls": tls});
            assert_eq!(said(policy), usize::from(is_long), "{length}");
        }
    }

    #[test]
    fn a_note_names_a_hash_policy_too_large_for_all_clusters() {
        let said = |hash: Json, subsets: usize| {
            let subsets = vec![json!({}); subsets];
            let policy = json!({"loadBalancer": {"consistentHash": hash}});
            let all = notes(&json!({"host": "a", "trafficPolicy": policy, "subsets": subsets}));
            let all = all
                .iter()
                .map(|note| format!("{}: {}", note.path, note.message));
            all.collect::<Vec<_>>().join("; ")
        };
        let ring = |size: Json| json!({"ringHash": {"minimumRingSize": size}});
        let old = |size: u64| json!({"minimumRingSize": size});
        let table = |size: u64| json!({"maglev": {"tableSize": size}});
        for (hash, subsets, named) in [
            (ring(json!(65_536)), 15, ""),
            (
                ring(json!("65537")),
                0,
                "ringHash.minimumRingSize: is served as 65536 at most",
            ),
            (
                old(65_536),
                31,
                "minimumRingSize: is served as 32768 at most",
            ),
            (old(1024), 1000, ""),
            (table(65_537), 1000, ""),
            (table(131_071), 7, ""),
            (table(131_071), 8, "maglev.tableSize: is served as 65537"),
        ] {
            let note = said(hash.clone(), subsets);
            assert_eq!(note.is_empty(), named.is_empty(), "{hash} {subsets} {note}");
            assert!(note.contains(named), "{hash} {subsets} {note}");
        }
    }
}
