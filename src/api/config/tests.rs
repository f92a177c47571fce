//! Objects as people write them, and the messages about them, sentence by sentence.

use serde_json::json;

use super::*;

/// An object of this kind.
fn object(kind: &str, spec: Json) -> Json {
    let row = KINDS.iter().find(|row| row.kind == kind).unwrap();
    let version = row.versions.first().unwrap();
    json!({
        "apiVersion": format!("{}/{version}", row.group), "kind": kind,
        "metadata": {"name": "a"}, "spec": spec,
    })
}

/// All that is said, one line each.
fn finding_texts(value: &Json) -> Vec<String> {
    let (_, findings) = read(value);
    findings.iter().map(ToString::to_string).collect()
}

fn spec_finding_texts(kind: &str, spec: Json) -> Vec<String> {
    finding_texts(&object(kind, spec))
}

/// The one spelling, where nothing is wrong.
fn spelled(kind: &str, spec: Json) -> Json {
    let (object, findings) = read(&object(kind, spec));
    assert_eq!(findings, []);
    object.unwrap().spec
}

fn route(fields: Json) -> Json {
    json!({"http": [fields]})
}

#[test]
fn a_good_object_is_read_whole() {
    let value = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "a", "labels": {"app": "x"}, "uid": "1", "managedFields": [{"f:x": {}}]},
        "spec": {"hosts": ["a"], "http": [{"timeout": "1h", "route": [{"destination": {"host": "b"}, "weight": 0}]}]},
        "status": {"anything": [1]},
    });
    let (object, findings) = read(&value);
    let object = object.unwrap();
    assert_eq!(findings, []);
    assert_eq!(object.full_name(), "default/a");
    assert_eq!(
        object.labels,
        BTreeMap::from([("app".to_owned(), "x".to_owned())])
    );
    assert_eq!(object.spec["http"][0]["timeout"], "3600s");
    // What is written with its default was written.
    assert_eq!(object.spec["http"][0]["route"][0]["weight"], 0);
    let again = Object::of_resource(object.kind, "default/a", object.body.clone()).unwrap();
    let mut sent = object.spec.clone();
    sent["http"][0]["route"][0]
        .as_object_mut()
        .unwrap()
        .remove("weight");
    assert_eq!(again.spec, sent);
    assert_eq!(
        (again.namespace, again.name),
        ("default".to_owned(), "a".to_owned())
    );
}

#[test]
fn all_versions_are_the_same_object() {
    let of = |version: &str| {
        let mut value = object("VirtualService", json!({"hosts": ["a"]}));
        value["apiVersion"] = format!("networking.istio.io/{version}").into();
        let (object, findings) = read(&value);
        let object = object.unwrap();
        (
            object.full_name(),
            object.kind.collection,
            object.body,
            findings,
        )
    };
    assert_eq!(of("v1"), of("v1alpha3"));
    assert_eq!(of("v1beta1"), of("v1alpha3"));
}

#[test]
fn the_outside_of_an_object_is_checked() {
    for (value, want) in [
        (json!([]), vec!["expected an object"]),
        (
            json!({}),
            vec!["apiVersion: is required", "kind: is required"],
        ),
        (
            json!({"apiVersion": 1, "kind": "Gateway"}),
            vec!["apiVersion: expected a string; quote the value"],
        ),
        (
            json!({"apiVersion": "networking.istio.io/v1", "kind": "Gatway"}),
            vec![
                "kind: unrecognized type networking.istio.io/v1 Gatway, did you mean \"Gateway\"?",
            ],
        ),
        (
            json!({"apiVersion": "telemetry.istio.io/v1", "kind": "Telemetry", "spec": {"x": 1}}),
            vec!["warning: kind: Telemetry is not used by gudgeon and was not checked"],
        ),
    ] {
        assert_eq!(finding_texts(&value), want, "{value}");
    }
    let base = object("Gateway", json!({}));
    for (key, part, want) in [
        ("extra", json!(1), vec!["extra: unknown field"]),
        ("a/b", json!(1), vec!["[\"a/b\"]: unknown field"]),
        (
            "spce",
            json!({}),
            vec!["spce: unknown field, did you mean \"spec\"?"],
        ),
        ("spec", json!(null), vec![]),
        ("spec", json!(5), vec!["spec: want an object, got 5"]),
        ("status", json!(7), vec![]),
        ("metadata", json!(null), vec!["metadata.name: is required"]),
        (
            "metadata",
            json!(1),
            vec!["metadata: want an object, got 1"],
        ),
        ("metadata", json!({}), vec!["metadata.name: is required"]),
        ("metadata", json!({"generateName": "a-"}), vec![]),
        (
            "metadata",
            json!({"name": 1}),
            vec!["metadata.name: expected a string; quote the value"],
        ),
        (
            "metadata",
            json!({"name": "a_b"}),
            vec!["metadata.name: \"a_b\" is not a DNS name"],
        ),
        ("metadata", json!({"name": "a.b-c"}), vec![]),
        (
            "metadata",
            json!({"name": "a", "namespace": "b.c", "labels": {"a/b": true, "c": null, "d": "e"}}),
            vec![
                "metadata.namespace: \"b.c\" is not a DNS label",
                "metadata.labels[\"a/b\"]: expected a string; quote the value",
                "metadata.labels.c: expected a string, got null",
            ],
        ),
    ] {
        let mut value = base.clone();
        value[key] = part;
        assert_eq!(finding_texts(&value), want, "{value}");
    }
}

#[test]
fn a_name_has_at_most_253_letters() {
    let long = "a".repeat(254);
    let mut value = object("Gateway", json!({}));
    value["metadata"]["name"] = long.clone().into();
    assert_eq!(finding_texts(&value).len(), 1);
    value["metadata"]["name"] = long.get(1..).unwrap().into();
    assert_eq!(finding_texts(&value), Vec::<String>::new());
}

#[test]
fn scopes_decide_about_namespaces() {
    let place = |kind: &str, namespace: Json| {
        let mut value = object(kind, json!({}));
        value["metadata"]["namespace"] = namespace;
        read(&value).0.unwrap().full_name()
    };
    assert_eq!(place("Gateway", json!("b")), "b/a");
    assert_eq!(place("Gateway", json!(null)), "default/a");
    assert_eq!(place("Gateway", json!("")), "default/a");
    for dropped in [json!("b"), json!("a_b"), json!(5)] {
        assert_eq!(place("MeshPolicy", dropped.clone()), "a");
        let mut value = object("MeshPolicy", json!({}));
        value["metadata"]["namespace"] = dropped;
        assert_eq!(read(&value).1, []);
    }
}

#[test]
fn a_field_has_two_spellings_and_is_written_once() {
    assert_eq!(
        spelled(
            "DestinationRule",
            json!({"traffic_policy": {"outlier_detection": {"consecutive_5xx_errors": 5}}})
        ),
        json!({"trafficPolicy": {"outlierDetection": {"consecutive5xxErrors": 5}}})
    );
    assert_eq!(
        spec_finding_texts(
            "DestinationRule",
            json!({"traffic_policy": {}, "trafficPolicy": {}})
        ),
        ["spec.trafficPolicy: written twice"]
    );
    assert_eq!(
        spec_finding_texts(
            "DestinationRule",
            json!({"traffic_policy": {"load_balancer": {"simpl": 1}}})
        ),
        ["spec.trafficPolicy.loadBalancer.simpl: unknown field, did you mean \"simple\"?"]
    );
    // Null is absent.
    assert_eq!(
        spelled(
            "DestinationRule",
            json!({"traffic_policy": null, "trafficPolicy": {}, "host": null})
        ),
        json!({"trafficPolicy": {}})
    );
}

#[test]
fn an_unknown_field_is_told_the_nearest() {
    assert_eq!(
        spec_finding_texts(
            "VirtualService",
            json!({"htp": [], "somethingElse": 1, "a/b/c/d": 2})
        ),
        [
            "spec.htp: unknown field, did you mean \"http\"?",
            "spec.somethingElse: unknown field",
            "spec[\"a/b/c/d\"]: unknown field",
        ]
    );
    assert_eq!(
        spec_finding_texts(
            "VirtualService",
            route(json!({"rout": null, "match": [{"querry_params": {}}]}))
        ),
        [
            "spec.http[0].rout: unknown field, did you mean \"route\"?",
            "spec.http[0].match[0].querry_params: unknown field, did you mean \"queryParams\"?",
        ]
    );
}

#[test]
fn only_the_peers_of_an_old_policy_read_null_as_empty() {
    let policy = spelled(
        "Policy",
        json!({"peers": [{"mtls": null}, {"mtls": {}}, {}], "origins": null}),
    );
    assert_eq!(policy, json!({"peers": [{"mtls": {}}, {"mtls": {}}, {}]}));
    assert_eq!(
        spec_finding_texts("Policy", json!({"peers": [{"mtls": null, "jwt": {}}]})),
        ["spec.peers[0]: only one of mtls, jwt may be set"]
    );
    let again = spelled("Policy", json!({"peers": [{"jwt": null}]}));
    assert_eq!(again, json!({"peers": [{}]}));
}

#[test]
fn enums_are_names_or_their_numbers() {
    let simple = |value: Json| {
        object(
            "DestinationRule",
            json!({"trafficPolicy": {"loadBalancer": {"simple": value}}}),
        )
    };
    for value in [json!("ROUND_ROBIN"), json!(4), json!(4.0)] {
        let (object, findings) = read(&simple(value));
        assert_eq!(findings, []);
        let spec = object.unwrap().spec;
        assert_eq!(
            spec["trafficPolicy"]["loadBalancer"]["simple"],
            "ROUND_ROBIN"
        );
    }
    let names =
        "is not one of UNSPECIFIED, LEAST_CONN, RANDOM, PASSTHROUGH, ROUND_ROBIN, LEAST_REQUEST";
    for (value, want) in [
        (json!("ROUND_ROBBIN"), format!("\"ROUND_ROBBIN\" {names}")),
        (json!("round_robin"), format!("\"round_robin\" {names}")),
        (json!("4"), format!("\"4\" {names}")),
        (json!(7), format!("\"7\" {names}")),
        (
            json!(false),
            "expected a string; quote the value".to_owned(),
        ),
        (json!({}), "expected a string".to_owned()),
    ] {
        let path = "spec.trafficPolicy.loadBalancer.simple";
        assert_eq!(finding_texts(&simple(value)), [format!("{path}: {want}")]);
    }
}

#[test]
fn one_field_of_a_oneof_is_set() {
    assert_eq!(
        spec_finding_texts(
            "VirtualService",
            route(
                json!({"match": [{"uri": {"prefix": "/", "regex": 1, "exact": "/a"}}, {"uri": {"exact": null, "prefix": ""}}]})
            )
        ),
        [
            "spec.http[0].match[0].uri: only one of exact, prefix, regex may be set",
            "spec.http[0].match[0].uri.regex: expected a string; quote the value",
        ]
    );
    assert_eq!(
        spec_finding_texts(
            "VirtualService",
            route(json!({"match": [{"uri": {"prefix": "/", "exact": "/a"}}]}))
        ),
        ["spec.http[0].match[0].uri: only one of exact, prefix may be set"]
    );
}

#[test]
fn numbers_are_read_in_all_their_forms() {
    let weight = |value: Json| {
        object(
            "VirtualService",
            route(json!({"route": [{"weight": value}]})),
        )
    };
    for value in [json!(5), json!(5.0), json!("5"), json!("05")] {
        let (object, findings) = read(&weight(value));
        assert_eq!(findings, []);
        assert_eq!(object.unwrap().spec["http"][0]["route"][0]["weight"], 5);
    }
    for (value, want) in [
        (json!(5.5), "5.5 is not an integer"),
        (json!("5x"), "\"5x\" is not an integer"),
        (json!("5.0"), "\"5.0\" is not an integer"),
        (json!(""), "\"\" is not an integer"),
        (json!(" 5"), "\" 5\" is not an integer"),
        (
            json!(2_147_483_648_u32),
            "2147483648 is not in -2147483648..2147483647",
        ),
        (json!(true), "expected an integer"),
        (json!([]), "expected an integer"),
    ] {
        assert_eq!(
            finding_texts(&weight(value)),
            [format!("spec.http[0].route[0].weight: {want}")]
        );
    }
    let size = |value: Json| {
        spelled("DestinationRule", json!({"trafficPolicy": {"loadBalancer": {"consistentHash": {"minimumRingSize": value}}}}))
            ["trafficPolicy"]["loadBalancer"]["consistentHash"]["minimumRingSize"]
            .clone()
    };
    assert_eq!(size(json!(u64::MAX)), u64::MAX.to_string());
    assert_eq!(size(json!("7")), "7");
    let percent = |value: Json| {
        object(
            "VirtualService",
            route(json!({"mirrorPercentage": {"value": value}})),
        )
    };
    for value in [json!(1.5), json!("1.5"), json!("15e-1")] {
        let (object, findings) = read(&percent(value));
        assert_eq!(findings, []);
        assert_eq!(
            object.unwrap().spec["http"][0]["mirrorPercentage"]["value"],
            1.5
        );
    }
    for (value, want) in [
        (json!("NaN"), "\"NaN\" is not a finite number"),
        (json!("Infinity"), "\"Infinity\" is not a finite number"),
        (json!("1e999"), "\"1e999\" is not a finite number"),
        (json!(false), "expected a number"),
    ] {
        assert_eq!(
            finding_texts(&percent(value)),
            [format!("spec.http[0].mirrorPercentage.value: {want}")]
        );
    }
}

#[test]
fn an_error_says_to_quote_a_value_that_is_not_a_string() {
    assert_eq!(
        spec_finding_texts("VirtualService", json!({"hosts": ["a", null]})),
        ["spec.hosts[1]: expected a string, got null"]
    );
    for value in [json!(true), json!(80)] {
        assert_eq!(
            spec_finding_texts("VirtualService", json!({"hosts": ["a", value]})),
            ["spec.hosts[1]: expected a string; quote the value"]
        );
    }
    assert_eq!(
        spec_finding_texts("VirtualService", json!({"hosts": "a"})),
        ["spec.hosts: want a list, got \"a\""]
    );
    assert_eq!(
        spec_finding_texts(
            "Gateway",
            json!({"selector": {"a b": 1, "c": []}, "servers": [null, {"port": "http"}]})
        ),
        [
            "spec.selector[\"a b\"]: expected a string; quote the value",
            "spec.selector.c: expected a string",
            "spec.servers[0]: must not be null",
            "spec.servers[1].port: want an object, got \"http\"",
        ]
    );
    assert_eq!(
        spec_finding_texts(
            "Gateway",
            json!({"servers": [{"tls": {"httpsRedirect": "true"}}]})
        ),
        ["spec.servers[0].tls.httpsRedirect: expected true or false"]
    );
}

#[test]
fn durations_are_protos_and_gos() {
    let timeout = |value: &str| object("VirtualService", route(json!({"timeout": value})));
    let of = |value: &str| {
        let (object, findings) = read(&timeout(value));
        assert_eq!(findings, []);
        let object = object.unwrap();
        (
            object.spec["http"][0]["timeout"]
                .as_str()
                .unwrap()
                .to_owned(),
            object.body,
        )
    };
    for (written, canonical) in [
        ("1h", "3600s"),
        ("3600s", "3600s"),
        ("300ms", "0.300s"),
        ("1h45m", "6300s"),
        ("-1s", "-1s"),
        ("1.000000001s", "1.000000001s"),
        ("0", "0s"),
    ] {
        assert_eq!(of(written).0, canonical);
        assert_eq!(of(written), of(canonical));
    }
    assert_eq!(of("315576000000s").0, "315576000000s");
    assert_eq!(
        finding_texts(&timeout("315576000001s")),
        ["spec.http[0].timeout: \"315576000001s\" is not a duration"]
    );
    assert_eq!(
        spec_finding_texts("VirtualService", route(json!({"timeout": 5}))),
        ["spec.http[0].timeout: expected a duration such as \"1.5s\""]
    );
}

#[test]
fn bytes_are_base64_of_any_alphabet() {
    let body = |value: Json| {
        object(
            "VirtualService",
            route(json!({"directResponse": {"body": {"bytes": value}}})),
        )
    };
    for value in ["+/8=", "-_8=", "+/8", "-_8"] {
        let (object, findings) = read(&body(json!(value)));
        assert_eq!(findings, []);
        assert_eq!(
            object.unwrap().spec["http"][0]["directResponse"]["body"]["bytes"],
            "+/8="
        );
    }
    assert_eq!(
        finding_texts(&body(json!("a b"))),
        ["spec.http[0].directResponse.body.bytes: \"a b\" is not base64"]
    );
}

#[test]
fn wrappers_are_bare_and_keep_their_zero() {
    let read = |value: Json| {
        let spec = json!({"trafficPolicy": {"outlierDetection": value}});
        let (object, findings) = read(&object("DestinationRule", spec));
        assert_eq!(findings, []);
        object.unwrap().body
    };
    let zero = read(json!({"consecutive5xxErrors": 0}));
    assert_ne!(zero, read(json!({})));
    assert_eq!(read(json!({"consecutive5xxErrors": null})), read(json!({})));
    assert_eq!(read(json!({"maxEjectionPercent": 0})), read(json!({})));
}

#[test]
fn keys_of_maps_may_be_numbers() {
    assert_eq!(
        spelled(
            "PeerAuthentication",
            json!({"portLevelMtls": {"8080": {"mode": "STRICT"}, "09": {}}})
        ),
        json!({"portLevelMtls": {"8080": {"mode": "STRICT"}, "9": {}}})
    );
    assert_eq!(
        spec_finding_texts(
            "PeerAuthentication",
            json!({"portLevelMtls": {"8080": {}, "08080": {}, "x": {}, "-1": {}, "99999999999": {}}})
        ),
        [
            "spec.portLevelMtls.08080: written twice",
            "spec.portLevelMtls.x: the key is not in 0..4294967295",
            "spec.portLevelMtls.-1: the key is not in 0..4294967295",
            "spec.portLevelMtls.99999999999: the key is not in 0..4294967295",
        ]
    );
}

#[test]
fn a_struct_is_any_object() {
    let patch = |value: Json| {
        object(
            "EnvoyFilter",
            json!({"configPatches": [{"patch": {"value": value}}]}),
        )
    };
    let free = json!({"snake_case": null, "a/b": [1, 2.5, {"c": false}], "": "x"});
    let (read_back, findings) = read(&patch(free.clone()));
    assert_eq!(findings, []);
    let read_back = read_back.unwrap();
    assert_eq!(read_back.spec["configPatches"][0]["patch"]["value"], free);
    let again = Object::of_resource(read_back.kind, "default/a", read_back.body).unwrap();
    assert_eq!(again.spec, read_back.spec);
    assert_eq!(
        finding_texts(&patch(json!([1]))),
        ["spec.configPatches[0].patch.value: want an object, got a list"]
    );
}

#[test]
fn empty_messages_are_kept() {
    let spec = json!({"portLevelMtls": {}, "mtls": {}, "selector": {"matchLabels": {}}});
    assert_eq!(spelled("PeerAuthentication", spec.clone()), spec);
    let rules = json!({"rules": [{}, {"from": []}]});
    assert_eq!(spelled("AuthorizationPolicy", rules.clone()), rules);
}

#[test]
fn fields_of_older_releases_are_kept_with_a_warning() {
    let value = object(
        "VirtualService",
        route(json!({"append_headers": {"a": "b"}, "removeResponseHeaders": null})),
    );
    assert_eq!(
        finding_texts(&value),
        ["warning: spec.http[0].appendHeaders: deprecated, only releases up to 1.5 have it"]
    );
    let object = read(&value).0.unwrap();
    let again = Object::of_resource(object.kind, "default/a", object.body).unwrap();
    assert_eq!(again.spec["http"][0]["appendHeaders"], json!({"a": "b"}));
}

#[test]
fn adapters_are_served_as_they_are_written() {
    let value = object(
        "adapter",
        json!({"session_based": false, "name": "x", "config": null}),
    );
    let (object, findings) = read(&value);
    assert_eq!(findings, []);
    let object = object.unwrap();
    assert_eq!(object.spec, json!({"sessionBased": false, "name": "x"}));
    let served = wire::decode_struct(&object.body).unwrap();
    assert_eq!(Json::Object(served), value["spec"]);
    let again = Object::of_resource(object.kind, "default/a", object.body).unwrap();
    assert_eq!(again.spec, object.spec);
    assert_eq!(
        spec_finding_texts("adapter", json!({"sesion_based": true})),
        ["spec.sesion_based: unknown field, did you mean \"sessionBased\"?"]
    );
}

#[test]
fn an_unreadable_field_is_null_and_others_are_kept() {
    let value = object(
        "VirtualService",
        json!({"hosts": ["a", 1], "http": 5, "tcp": [{"route": []}]}),
    );
    let (object, findings) = read(&value);
    let object = object.unwrap();
    assert_eq!(findings.len(), 2);
    assert_eq!(
        object.spec,
        json!({"hosts": ["a", null], "http": null, "tcp": [{"route": []}]})
    );
    assert!(object.body.is_empty());
}

#[test]
fn findings_stand_in_the_order_of_the_document() {
    let spec =
        json!({"tls": 1, "hosts": [1, 2], "http": [{"weight": 1, "timeout": "x"}], "gateways": 1});
    let paths: Vec<_> = read(&object("VirtualService", spec))
        .1
        .into_iter()
        .map(|finding| finding.path)
        .collect();
    assert_eq!(
        paths,
        [
            "spec.tls",
            "spec.hosts[0]",
            "spec.hosts[1]",
            "spec.http[0].weight",
            "spec.http[0].timeout",
            "spec.gateways"
        ]
    );
}

#[test]
fn fields_and_rules_are_said_together() {
    let value = object(
        "VirtualService",
        json!({"http": [{"weight": 1, "timeout": "0s", "route": [{"destination": {"host": "b"}, "weight": 101}]}], "hosts": ["a", "b c"], "x": 1}),
    );
    let (checked, findings) = check(&value);
    let paths: Vec<_> = findings
        .iter()
        .map(|finding| finding.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.http[0].weight",
            "spec.http[0].timeout",
            "spec.http[0].route[0].weight",
            "spec.hosts[1]",
            "spec.x"
        ]
    );
    assert!(checked.unwrap().body.is_empty());
    let good = object(
        "VirtualService",
        json!({"hosts": ["a"], "http": [{"route": [{"destination": {"host": "b"}}]}]}),
    );
    let (checked, findings) = check(&good);
    assert_eq!(findings, []);
    assert!(!checked.unwrap().body.is_empty());
}

#[test]
fn a_hundred_findings_are_enough() {
    let hosts: Vec<_> = (0..250).collect();
    let value = object(
        "VirtualService",
        json!({"hosts": hosts, "http": [{"redirect": {"uri": "/"}}]}),
    );
    assert_eq!(read(&value).1.len(), 250);
    let (_, findings) = check(&value);
    assert_eq!(findings.len(), 101);
    let last = findings.last().unwrap();
    assert_eq!(
        (last.path.as_str(), last.message.as_str()),
        ("", "… and 150 more")
    );
    assert_eq!(last.severity, Severity::Error);
}

/// Warnings never take the place of the errors that an object is refused for.
#[test]
fn warnings_leave_room_for_errors() {
    // Rules: gateways that warn, and weights that are wrong.
    let gateways: Vec<_> = (0..1500).map(|at| format!("g{at}.a")).collect();
    let to = |weight: u32| json!({"destination": {"host": "x"}, "weight": weight});
    let many_rules = object(
        "VirtualService",
        json!({"gateways": gateways, "hosts": ["a"], "http": [{"route": [to(75), to(20)]}]}),
    );
    // Fields: deprecated ones that warn, and one that is unknown.
    let fields = |many: usize| {
        let http: Vec<_> = (0..many)
            .map(|_| json!({"websocketUpgrade": true, "redirect": {"uri": "/"}}))
            .collect();
        object(
            "VirtualService",
            json!({"hosts": ["a"], "http": http, "htp": 1}),
        )
    };
    for (value, path) in [
        (many_rules, "spec.http[0].route"),
        (fields(10_500), "spec.htp"),
    ] {
        let (object, findings) = check(&value);
        assert!(
            findings
                .iter()
                .any(|finding| finding.is_error() && finding.path == path),
            "{path}"
        );
        assert_eq!(findings.len(), 101);
        assert!(object.unwrap().body.is_empty(), "{path}");
    }
    // A bound there is all the same, for each.
    let (_, findings) = read(&fields(25_000));
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    assert_eq!((errors, findings.len() - errors), (1, 10_001));
}

/// Rules say some things only when they have seen all of a list.
#[test]
fn all_findings_are_counted_and_the_first_are_told() {
    let route = |at: usize| json!({"name": "", "timeout": "0s", "redirect": {"uri": "/", "port": at}, "match": [{"uri": {"exact": "/"}}]});
    let http: Vec<_> = (70_000..71_500).map(route).collect();
    // Two errors each, a warning at the timeout, and all but the first are never reached.
    let many = object("VirtualService", json!({"hosts": ["a"], "http": http}));
    let (_, findings) = check(&many);
    let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(
        texts[0].starts_with("spec.http[0].timeout:"),
        "{}",
        texts[0]
    );
    let last = ["… and 2900 more", "warning: 2999 warnings are not shown"];
    assert_eq!(texts[100..], last);
    // Fields, and rules on top of them, beyond what is kept.
    let hosts: Vec<_> = (0..12_000).map(|at| format!("a_{at}")).collect();
    let unknown: serde_json::Map<_, _> = (0..11_000)
        .map(|at| (format!("x{at}"), json!(1)))
        .chain([
            ("hosts".to_owned(), json!(hosts)),
            (
                "tcp".to_owned(),
                json!([{"route": [{"destination": {"host": "x"}}]}]),
            ),
        ])
        .collect();
    let (_, findings) = check(&object("VirtualService", Json::Object(unknown)));
    assert_eq!(findings.last().unwrap().to_string(), "… and 22900 more");
}

#[test]
fn warnings_are_left_out_first() {
    let made = |errors: usize, warnings: usize| {
        let mut all: Vec<_> = (0..warnings).map(|_| Finding::warning("w", "")).collect();
        all.extend((0..errors).map(|_| Finding::error("e", "")));
        limit(&mut all);
        let count = |severity| {
            all.iter()
                .filter(|finding| finding.severity == severity)
                .count()
        };
        let last = all.last().unwrap();
        (
            count(Severity::Error),
            count(Severity::Warning),
            last.message.clone(),
            last.is_error(),
        )
    };
    assert_eq!(made(40, 60), (40, 60, String::new(), true));
    assert_eq!(made(40, 61), (40, 61, "… and 1 more".to_owned(), false));
    assert_eq!(
        made(100, 500),
        (100, 1, "500 warnings are not shown".to_owned(), false)
    );
    assert_eq!(
        made(120, 1),
        (101, 1, "1 warning is not shown".to_owned(), false)
    );
    assert_eq!(made(101, 0), (101, 0, "… and 1 more".to_owned(), true));
    assert_eq!(made(0, 150), (0, 101, "… and 50 more".to_owned(), false));
}

/// Twice as much takes about twice as long, whatever it is made of. Work is counted in findings and values, not in time,
/// which other programs take, too: a square of the larger size would not end within the test's patience.
#[test]
fn large_objects_take_their_size_not_its_square() {
    let many = 60_000;
    let unknown: serde_json::Map<_, _> = (0..many).map(|at| (format!("x{at}"), json!(1))).collect();
    let hosts: Vec<_> = (0..many).map(|at| format!("h{at}.a")).collect();
    let labels: serde_json::Map<_, _> =
        (0..many).map(|at| (format!("k{at}"), json!("v"))).collect();
    let odd: Vec<_> = (0..many)
        .map(|_| json!({"exact": "", "prefix": ""}))
        .collect();
    for (kind, spec, want) in [
        // The last stands for those that were not kept.
        ("VirtualService", Json::Object(unknown), 10_001),
        ("VirtualService", json!({"hosts": hosts}), 0),
        ("Gateway", json!({"selector": labels}), 0),
        (
            "VirtualService",
            route(json!({"corsPolicy": {"allowOrigins": odd.get(..30_000)}})),
            10_001,
        ),
    ] {
        assert_eq!(read(&object(kind, spec)).1.len(), want, "{kind}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    // The object, spec, configPatches, its item, patch and value are six.
    let deep = |levels| {
        object(
            "EnvoyFilter",
            json!({"configPatches": [{"patch": {"value": nested(levels)}}]}),
        )
    };
    assert_eq!(finding_texts(&deep(MAX_DEPTH - 6)), Vec::<String>::new());
    assert_eq!(finding_texts(&deep(MAX_DEPTH - 5)), ["nested too deeply"]);
    let large = |bytes| object("VirtualService", json!({"hosts": ["a".repeat(bytes)]}));
    assert_eq!(
        finding_texts(&large(MAX_BYTES - 1000)),
        Vec::<String>::new()
    );
    assert_eq!(finding_texts(&large(MAX_BYTES)), ["object is too large"]);
}

#[test]
fn a_mesh_configuration_outlives_releases() {
    let mesh = &crate::schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG;
    let value = json!({"mesh_mTLS": {}, "extensionProviders": [{"name": "x", "zipkin": {"any": 1}}], "defaultConfig": {"proxyHeaders": {"any": 1}}, "compliancePolicy": "x"});
    let (read, findings) = read_message(mesh, &value, Severity::Warning);
    let findings: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings, ["warning: compliancePolicy: unknown field"]);
    assert_eq!(
        read,
        json!({"meshMTLS": {}, "extensionProviders": [{"name": "x", "zipkin": {"any": 1}}], "defaultConfig": {"proxyHeaders": {"any": 1}}})
    );
}
