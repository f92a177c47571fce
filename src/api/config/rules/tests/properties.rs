//! Properties of rules that hold for any input.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::config::document::{Part, documents};
use crate::config::kinds::row;
use crate::config::{KINDS, Kind};
use crate::growth::cpu_time;
use crate::yaml::Node;

/// Names that rules ask for, and some that they do not.
const NAMES: &[&str] = &[
    "http",
    "tls",
    "tcp",
    "hosts",
    "gateways",
    "match",
    "route",
    "destination",
    "host",
    "subset",
    "port",
    "number",
    "weight",
    "headers",
    "request",
    "response",
    "set",
    "add",
    "remove",
    "redirect",
    "rewrite",
    "uri",
    "regex",
    "prefix",
    "exact",
    "fault",
    "abort",
    "delay",
    "percentage",
    "value",
    "retries",
    "retryOn",
    "corsPolicy",
    "maxAge",
    "trafficPolicy",
    "loadBalancer",
    "localityLbSetting",
    "distribute",
    "to",
    "from",
    "consistentHash",
    "maglev",
    "tableSize",
    "servers",
    "protocol",
    "name",
    "bind",
    "ports",
    "endpoints",
    "address",
    "addresses",
    "resolution",
    "labels",
    "egress",
    "ingress",
    "defaultEndpoint",
    "workloadSelector",
    "selector",
    "matchLabels",
    "rules",
    "source",
    "operation",
    "paths",
    "when",
    "key",
    "values",
    "action",
    "provider",
    "serviceAccounts",
    "jwtRules",
    "jwks",
    "jwksUri",
    "targets",
    "peers",
    "origins",
    "jwt",
    "subjects",
    "properties",
    "actions",
    "patterns",
    "attributes",
    "services",
    "quotas",
    "exportTo",
    "configPatches",
    "patch",
    "applyTo",
    "typed_config",
    "@type",
    "sniHosts",
    "subsets",
    "mode",
    "credentialName",
    "a/b",
    "é",
    "",
    "0",
];

const TEXTS: &[&str] = &[
    "",
    "*",
    "*.a",
    "a.b",
    "a/b",
    "10.0.0.1",
    "10.0.0.0/8",
    "unix:///a",
    "unix://",
    "5xx,x",
    "(",
    "a++",
    "1.5s",
    "0s",
    "%X%",
    "%",
    "HTTP",
    "TLS",
    "STATIC",
    "DNS",
    "CUSTOM",
    "DENY",
    "SIMPLE",
    "MUTUAL",
    "{**}/{*}",
    "[",
    "request.headers[",
    "{\"keys\":[]}",
    "host",
    ":authority",
    "é*",
    "~",
    ".",
    "mesh",
    "99999999999999999999",
    "region/*",
    "a//b",
    "\u{0}",
    "http://[::1]:x",
];

fn any_spec() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        proptest::sample::select(TEXTS).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2i64..101).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(8, 64, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::vec((proptest::sample::select(NAMES), inner), 0..6).prop_map(
                |entries| {
                    let entries = entries.into_iter();
                    let entries: Map<String, Value> = entries
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect();
                    Value::Object(entries)
                }
            ),
        ]
    })
}

/// Some of them say something about each other.
const KEYS: &[&str] = &[
    "*",
    "a",
    "a/*",
    "a/b",
    "a/b/c",
    "a//b",
    "b",
    ":authority",
    "host",
    "Host",
    "x-a",
];

/// The value, or its parent.
///
/// CUSTOM alone asks for a field of a message that may be missing itself, and names the path that the field would have.
pub(super) fn leads_to_a_place(part: &Part<'_>, path: &str) -> bool {
    let (all, there) = part.steps(path);
    let missing = if path == "spec.provider.name" { 2 } else { 1 };
    there > 0 && there + missing >= all
}

/// The same with its keys backwards.
pub(super) fn turned(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries.iter().rev();
            Value::Object(
                entries
                    .map(|(name, value)| (name.clone(), turned(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(turned).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn sorted(kind: &Kind, spec: &Value) -> Vec<(String, String)> {
    let findings = kind.check_rules("ns", "x", spec).into_iter();
    let mut sorted: Vec<_> = findings
        .map(|finding| (finding.path, finding.message))
        .collect();
    sorted.sort();
    sorted
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_never_panic_and_lead_to_a_place(spec in any_spec()) {
        let node = Node::of_json(&json!({"metadata": {"name": "x"}, "spec": spec}));
        let part = Part::new(&node);
        for kind in KINDS {
            let findings = kind.check_rules("ns", "x", &spec);
            for finding in &findings {
                prop_assert!(leads_to_a_place(&part, &finding.path), "{} {finding:?}", kind.kind);
            }
            let mut ordered = findings.clone();
            part.sort(&mut ordered);
            prop_assert_eq!(ordered.len(), findings.len());
        }
    }

    #[test]
    fn the_order_of_keys_changes_nothing(spec in any_spec()) {
        for kind in KINDS {
            prop_assert_eq!(sorted(kind, &spec), sorted(kind, &turned(&spec)));
        }
    }

    /// Maps in which the finding of one key depends on the other keys.
    #[test]
    fn the_order_of_a_maps_keys_changes_nothing(
        keys in proptest::sample::subsequence(KEYS, 0..KEYS.len()).prop_shuffle(),
        weight in 1..101,
    ) {
        let map: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), json!(weight))).collect();
        let locality = json!({"distribute": [{"from": "a", "to": map}]});
        let texts: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), json!("x"))).collect();
        let headers = json!({"request": {"set": texts, "add": texts}});
        let both = json!({"stringValue": "", "int64Value": "1"});
        let values: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), both.clone())).collect();
        for (kind, spec) in [
            ("DestinationRule", json!({"host": "a", "trafficPolicy": {"loadBalancer": {"localityLbSetting": locality}}})),
            ("VirtualService", json!({"hosts": ["a"], "http": [{"rewrite": {"uri": "/"}, "headers": headers}]})),
            ("HTTPAPISpec", json!({"attributes": {"attributes": values}})),
        ] {
            prop_assert_eq!(sorted(row(kind), &spec), sorted(row(kind), &turned(&spec)));
        }
    }

    #[test]
    fn any_text_is_documents_or_an_error(text in "[-a{}\\[\\]:,&*!'\"\\\\ud\t\n0-9<|>%.#~]{0,60}") {
        let count = documents(&text).take(100).count();
        prop_assert!(count < 100);
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test may look at the clock")]
fn large_objects_cost_no_square() {
    const MANY: usize = 10_000;
    let names: Vec<String> = (0..MANY).map(|at| format!("h{at}.a.b")).collect();
    let route = json!([{"destination": {"host": "x"}}]);
    let http: Vec<Value> = names
        .iter()
        .map(|name| json!({"match": [{"uri": {"exact": name}}], "route": route}))
        .collect();
    let to: Map<String, Value> = names
        .iter()
        .map(|name| (format!("{name}/z/*"), json!(1)))
        .collect();
    let ports: Vec<Value> = (1..MANY)
        .map(|at| json!({"number": at, "name": format!("p{at}"), "protocol": "HTTP"}))
        .collect();
    let egress: Vec<String> = names.iter().map(|name| format!("ns/{name}")).collect();
    let policy =
        json!({"loadBalancer": {"localityLbSetting": {"distribute": [{"from": "*", "to": to}]}}});
    for (kind, spec) in [
        (
            "VirtualService",
            json!({"hosts": names, "http": http, "tls": [{"match": [{"sniHosts": names}], "route": route}]}),
        ),
        (
            "DestinationRule",
            json!({"host": "a", "trafficPolicy": policy}),
        ),
        (
            "ServiceEntry",
            json!({"hosts": names, "ports": ports, "resolution": "DNS"}),
        ),
        ("Sidecar", json!({"egress": [{"hosts": egress}]})),
        (
            "VirtualService",
            json!({"hosts": ["a"], "http": [{"redirect": {"uri": "/"}, "headers": {"request": {"set": {"a": "%A(".repeat(500_000)}}}}]}),
        ),
        (
            "VirtualService",
            json!({"hosts": [".".repeat(1_000_000), "a".repeat(1_000_000)], "exportTo": ["*".repeat(1_000_000)]}),
        ),
        (
            "DestinationRule",
            json!({"host": "a", "subsets": [{"name": "a/".repeat(500_000)}], "trafficPolicy": {"loadBalancer": {"localityLbSetting": {"distribute": [{"from": "a/".repeat(500_000) + "b", "to": {"a": 100}}]}}}}),
        ),
    ] {
        let start = cpu_time();
        row(kind).check_rules("ns", "x", &spec);
        let took = cpu_time().saturating_sub(start);
        // A square of these numbers takes minutes.
        assert!(took < Duration::from_secs(20), "{kind}: {took:?}");
    }
}

/// A brace that begins no count, and the beginning of a class without an end, are looked at once and not to the end of the text.
#[test]
fn patterns_of_any_length_take_their_length_not_its_square() {
    let rewrite = |by_regex: Value| {
        row("VirtualService").check_rules(
            "ns",
            "x",
            &json!({"hosts": ["a"], "http": [{"rewrite": {"uriRegexRewrite": by_regex}, "route": [{"destination": {"host": "a"}}]}]}),
        );
    };
    for part in ["a{", "[[:a]"] {
        let work = |count: usize| {
            let by_regex = json!({"match": part.repeat(count), "rewrite": "x"});
            move || rewrite(by_regex.clone())
        };
        crate::growth::assert_linear(32, work(5_000), work(160_000));
    }
}
