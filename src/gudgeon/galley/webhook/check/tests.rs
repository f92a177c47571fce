//! Reviews and their responses, as a table.

use serde_json::json;

use super::super::decisions::ValidationDecision;
use super::super::service::READ_OPTIONS;
use super::*;

fn virtual_service(spec: &Value) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "web"}, "spec": spec})
}

fn weights(first: u32, second: u32) -> Value {
    virtual_service(&json!({"hosts": ["a"], "http": [{"route": [
        {"destination": {"host": "x"}, "weight": first}, {"destination": {"host": "y"}, "weight": second}]}]}))
}

fn review(version: &str, request: &Value) -> String {
    let mut asked = json!({"uid": "u-1", "namespace": "web", "operation": "CREATE",
        "kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"},
        "resource": {"group": "networking.istio.io", "version": "v1", "resource": "virtualservices"}});
    for (key, value) in request.as_object().unwrap() {
        asked[key] = value.clone();
    }
    json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "request": asked}).to_string()
}

fn checked(text: &str, scope: ValidatedKinds) -> (Value, ValidationOutcome, ValidationDecision) {
    let (mut question, read) = AdmissionRequest::read(text.as_bytes(), READ_OPTIONS);
    let verdict = validate(&mut question, read, scope, config::check);
    let answer = question.answer(&verdict.response, &verdict.warnings);
    let decision = ValidationDecision::new(&question, &verdict, std::time::Duration::ZERO);
    let answer = serde_json::from_slice(&answer).unwrap();
    (answer, verdict, decision)
}

fn answered(request: &Value) -> (Value, Option<Reason>) {
    let (answer, verdict, _) = checked(&review("v1", request), ValidatedKinds::All);
    (answer["response"].clone(), verdict.reason)
}

#[test]
fn weights_are_added_up() {
    for version in ["v1", "v1beta1"] {
        let text = review(version, &json!({"object": weights(75, 20)}));
        let (answer, verdict, _) = checked(&text, ValidatedKinds::All);
        assert_eq!(
            answer,
            json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "response": {
                "uid": "u-1", "allowed": false, "status": {
                    "code": 422, "reason": "Invalid",
                    "message": "configuration is invalid: spec.http[0].route: weights add up to 95, not 100",
                    "details": {"kind": "VirtualService", "group": "networking.istio.io", "name": "web",
                        "causes": [{"reason": "FieldValueInvalid", "field": "spec.http[0].route",
                        "message": "weights add up to 95, not 100"}]}}}})
        );
        assert_eq!(verdict.reason, Some(Reason::Invalid));
        let text = review(version, &json!({"object": weights(75, 25)}));
        let (answer, verdict, _) = checked(&text, ValidatedKinds::All);
        let response = json!({"uid": "u-1", "allowed": true});
        assert_eq!(
            answer,
            json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "response": response})
        );
        assert_eq!(verdict.reason, None);
    }
}

/// Compares a response with the expected findings of an object, notes among them.
fn response_has_findings(object: &Value, namespace: &str, findings: &[&str]) {
    let (response, _) = answered(&json!({"object": object, "namespace": namespace}));
    let findings = findings.iter().map(|finding| secrets::redact_text(finding));
    let (warnings, errors): (Vec<String>, Vec<String>) =
        findings.partition(|finding| finding.starts_with("warning: "));
    assert_eq!(response["allowed"], errors.is_empty(), "{object}");
    let causes = response["status"]["details"]["causes"].as_array();
    let causes = causes.into_iter().flatten().map(|cause| {
        let text = |name: &str| cause[name].as_str().unwrap_or_default();
        format!("{}: {}", text("field"), text("message"))
    });
    assert_eq!(causes.collect::<Vec<_>>(), errors, "{object}");
    let received = response["warnings"].as_array();
    let received: Vec<_> = received
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let expected = warnings.iter().map(|warning| {
        let message = warning.strip_prefix("warning: ").unwrap();
        cut(
            message.strip_prefix("kind: ").unwrap_or(message),
            WARNING_BYTES,
        )
    });
    let mut expected: Vec<_> = expected.collect();
    if expected.iter().map(|warning| warning.len()).sum::<usize>() > WARNINGS_BYTES {
        let (last, first) = received.split_last().unwrap();
        let more = expected.len() - first.len();
        assert_eq!(*last, format!("… and {more} more"), "{object}");
        assert!(
            first.iter().all(|warning| expected.contains(warning)),
            "{object}"
        );
        return;
    }
    let mut received = received;
    expected.sort_unstable();
    received.sort_unstable();
    assert_eq!(received, expected, "{object}");
}

#[test]
fn every_row_is_judged_as_everywhere() {
    for line in include_str!("../../../../api/tests/rows.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| row[name].as_str().unwrap();
        let document = config::document::documents(text("spec")).next();
        let spec = document.unwrap().unwrap().parts()[0].value();
        let object = json!({
            "apiVersion": text("apiVersion"),
            "kind": text("kind"),
            "metadata": {"name": text("name"), "namespace": "ns"},
            "spec": spec,
        });
        let findings = row["said"].as_array().unwrap().iter();
        let notes = crate::examples::notes(&object);
        let notes: Vec<_> = notes.iter().map(Finding::to_string).collect();
        let findings = findings.map(|finding| finding.as_str().unwrap());
        let findings: Vec<_> = findings.chain(notes.iter().map(String::as_str)).collect();
        response_has_findings(&object, "ns", &findings);
    }
}

#[test]
fn every_example_is_judged_as_everywhere() {
    let mut seen = 0;
    for example in crate::examples::examples() {
        for expected in example.expected().unwrap_or_default() {
            let findings = expected.said.iter().chain(&expected.notes);
            let findings: Vec<_> = findings.map(|(_, finding)| finding.as_str()).collect();
            seen += findings.len();
            response_has_findings(&expected.value, &expected.namespace, &findings);
        }
    }
    assert!(seen > 100, "{seen}");
}

/// The answer stands in the output of kubectl, which a log of CI keeps.
#[test]
fn no_answer_quotes_a_secret() {
    let object = json!({"apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication", "metadata": {"name": "a"},
        "spec": {"jwtRules": [{"issuer": "i", "jwksUri": "https://me:S3CRET word@a:x/k?access_token=S3CRET"}]}});
    let (response, _) = answered(&json!({"object": object}));
    let text = response.to_string();
    assert!(
        text.contains("https://…@a:x/k?access_token=…") && !text.contains("S3CRET"),
        "{text}"
    );
}

#[test]
fn three_faults_are_three_causes_and_one_message() {
    let object = virtual_service(&json!({"hosts": ["a_"], "htp": [], "http": [
        {"timeout": "0s", "route": [{"destination": {"host": "x"}}]}]}));
    let (response, reason) = answered(&json!({"object": object}));
    let causes = response["status"]["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        ["spec.hosts[0]", "spec.htp", "spec.http[0].timeout"]
    );
    assert_eq!(
        response["status"]["message"],
        "configuration is invalid: spec.hosts[0]: \"a_\" is not a host name: \"a_\" is not a DNS label; \
         spec.htp: unknown field, did you mean \"http\"?; spec.http[0].timeout: duration 0s is less than 1ms"
    );
    assert_eq!(reason, Some(Reason::Conversion));
}

#[test]
fn some_operations_are_allowed_without_validation() {
    let bad = weights(75, 20);
    let mut going = bad.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let unsupported = Some(Reason::UnsupportedOperation);
    for (request, reason) in [
        (
            json!({"operation": "DELETE", "object": null, "oldObject": bad}),
            unsupported,
        ),
        (
            json!({"operation": "CONNECT", "object": {"kind": "PodExecOptions"}}),
            unsupported,
        ),
        (
            json!({"operation": "UPDATE", "subResource": "status", "object": bad}),
            None,
        ),
        (json!({"operation": "UPDATE", "object": going}), None),
    ] {
        let (response, found) = answered(&request);
        assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
        assert_eq!(found, reason, "{request}");
    }
}

#[test]
fn invalid_objects_are_refused_with_their_reasons() {
    let deep = |depth: usize| {
        let text = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let mut nested = weights(75, 25);
    nested["spec"]["http"] = deep(70);
    let mut large = weights(75, 25);
    large["metadata"]["annotations"] = json!({"a": "x".repeat(1600 << 10)});
    let named = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {}});
    for (request, code, cause, reason) in [
        (json!({}), 400, "has no object", Reason::Undecodable),
        (
            json!({"object": null}),
            400,
            "has no object",
            Reason::Undecodable,
        ),
        (
            json!({"object": [1]}),
            422,
            "expected an object",
            Reason::Undecodable,
        ),
        (
            json!({"object": nested}),
            422,
            "configuration is invalid: nested too deeply",
            Reason::Undecodable,
        ),
        (
            json!({"object": large}),
            422,
            "configuration is invalid: object is too large",
            Reason::Undecodable,
        ),
        (
            json!({"object": named("networking.istio.io/v1", "VirtualServise")}),
            400,
            "configuration is invalid: kind: unrecognized type networking.istio.io/v1 VirtualServise, did you mean \"VirtualService\"?",
            Reason::UnknownType,
        ),
        (
            json!({"object": named("apps/v1", "Deployment")}),
            400,
            "kind: unrecognized type apps/v1 Deployment",
            Reason::UnknownType,
        ),
        (
            json!({"object": {"kind": "Gateway"}}),
            400,
            "apiVersion: is required",
            Reason::UnknownType,
        ),
        (
            json!({"namespace": "a_b", "object": weights(75, 25)}),
            422,
            "metadata.namespace: \"a_b\" is not a DNS label",
            Reason::Conversion,
        ),
    ] {
        let (response, found) = answered(&request);
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], code, "{response}");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains(cause), "{message}: {cause}");
        assert_eq!(found, Some(reason), "{message}");
    }
}

/// Deeper than a review is read.
#[test]
fn objects_nested_too_deep_may_be_deleted_only() {
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    for operation in ["CREATE", "UPDATE"] {
        for going in [true, false] {
            let mut object = weights(75, 25);
            object["spec"]["http"] = json!("DEEP");
            if going {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let text = review("v1", &json!({"operation": operation, "object": object}));
            let (answer, verdict, _) =
                checked(&text.replace("\"DEEP\"", &deep), ValidatedKinds::All);
            let response = &answer["response"];
            assert_eq!(
                (&response["uid"], &response["allowed"]),
                (&json!("u-1"), &json!(going))
            );
            if going {
                assert_eq!(verdict.reason, None);
            } else {
                let message = response["status"]["message"].as_str().unwrap();
                assert!(message.contains("nested too deeply"), "{message}");
                assert_eq!(verdict.reason, Some(Reason::Undecodable));
            }
        }
    }
}

/// An update mends it.
#[test]
fn an_update_mends_an_object_nested_too_deep() {
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    let many = format!("[{}1]", "1,".repeat(600_000));
    for much in [deep, many] {
        for (object, allowed) in [(weights(75, 25), true), (weights(75, 20), false)] {
            let request =
                json!({"operation": "UPDATE", "object": object, "oldObject": {"spec": "MUCH"}});
            let text = review("v1", &request).replace("\"MUCH\"", &much);
            let (answer, _, _) = checked(&text, ValidatedKinds::All);
            let response = &answer["response"];
            assert_eq!(response["allowed"], allowed, "{response}");
            if !allowed {
                assert_eq!(response["status"]["code"], 422);
            }
        }
    }
}

#[test]
fn malformed_reviews_are_refused_with_the_cause() {
    let twice = review("v1", &json!({"object": "X"}))
        .replace("\"X\"", "{\"spec\": {\"hosts\": [], \"hosts\": []}}");
    for (text, cause) in [
        ("{", "could not decode body: EOF"),
        (
            "{\"kind\": \"Pod\"}",
            "could not decode body: kind \"Pod\": want AdmissionReview",
        ),
        (
            &review("v2", &json!({})),
            "could not decode body: apiVersion",
        ),
        (
            "{\"apiVersion\": \"admission.k8s.io/v1beta1\", \"kind\": \"AdmissionReview\"}",
            "could not decode body: review: no request in it",
        ),
        (
            &twice,
            "could not decode body: the key \"hosts\" is written twice",
        ),
    ] {
        let (answer, verdict, decision) = checked(text, ValidatedKinds::All);
        assert_eq!(answer["response"]["allowed"], false);
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.starts_with(cause), "{message}");
        assert_eq!(verdict.reason, Some(Reason::Undecodable));
        assert!(!decision.allowed);
        let version = if text.contains("v1beta1") {
            "admission.k8s.io/v1beta1"
        } else {
            "admission.k8s.io/v1"
        };
        assert_eq!(answer["apiVersion"], version);
    }
}

#[test]
fn the_namespace_is_the_requests_where_the_object_has_none() {
    for (of_object, of_request, expected) in [
        (None, "web", "web"),
        (Some("own"), "web", "own"),
        (Some(""), "web", "web"),
        (None, "", ""),
    ] {
        let mut object = weights(75, 25);
        if let Some(namespace) = of_object {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let text = review("v1", &json!({"namespace": of_request, "object": object}));
        let (answer, _, decision) = checked(&text, ValidatedKinds::All);
        assert_eq!(answer["response"]["allowed"], true);
        assert_eq!(decision.namespace, expected);
    }
    // A rule that asks for it.
    let object = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "a"},
        "spec": {"host": "a", "exportTo": [".", "web"]}});
    let (response, _) = answered(&json!({"object": object}));
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("duplicate"), "{message}");
    let (response, _) = answered(&json!({"object": object, "namespace": "other"}));
    assert_eq!(response["allowed"], true, "{response}");
}

#[test]
fn each_path_has_its_kinds() {
    assert_eq!(ValidatedKinds::of("/validate"), Some(ValidatedKinds::All));
    assert_eq!(ValidatedKinds::of("/admit"), None);
    let (pilot, mixer) = (
        ValidatedKinds::of("/admitpilot").unwrap(),
        ValidatedKinds::of("/admitmixer").unwrap(),
    );
    let mut of_mixer = 0;
    for kind in config::KINDS {
        assert_ne!(pilot.takes(kind), mixer.takes(kind));
        assert!(ValidatedKinds::All.takes(kind));
        of_mixer += usize::from(mixer.takes(kind));
    }
    assert_eq!(of_mixer, 6);
    for kind in config::EARLIER {
        assert!(mixer.takes(kind) && !pilot.takes(kind), "{}", kind.kind);
    }
    for kind in config::LATER {
        assert!(pilot.takes(kind) && !mixer.takes(kind), "{}", kind.kind);
    }
    let metric = json!({"apiVersion": "config.istio.io/v1alpha2", "kind": "metric", "metadata": {"name": "a"}, "spec": {}});
    let rule = json!({"apiVersion": "config.istio.io/v1alpha2", "kind": "rule", "metadata": {"name": "a"}, "spec": {}});
    for (scope, object, allowed) in [
        (mixer, weights(75, 25), false),
        (pilot, weights(75, 25), true),
        (pilot, rule.clone(), false),
        (mixer, rule, true),
        (pilot, metric.clone(), false),
        (mixer, metric, true),
    ] {
        let (answer, verdict, _) = checked(&review("v1", &json!({"object": object})), scope);
        let response = &answer["response"];
        assert_eq!(response["allowed"], allowed, "{response}");
        if !allowed {
            assert_eq!(response["status"]["code"], 400);
            let message = response["status"]["message"].as_str().unwrap();
            let begin = "configuration is invalid: kind: unrecognized type ";
            assert!(message.starts_with(begin), "{message}");
            assert_eq!(verdict.reason, Some(Reason::UnknownType));
        }
    }
}

#[test]
fn later_kinds_pass_with_a_warning_in_both_versions() {
    let telemetry = json!({"apiVersion": "telemetry.istio.io/v1", "kind": "Telemetry", "metadata": {"name": "a"}, "spec": {"any": 1}});
    for version in ["v1", "v1beta1"] {
        let text = review(version, &json!({"object": telemetry}));
        let (answer, _, _) = checked(&text, ValidatedKinds::All);
        assert_eq!(
            answer["response"],
            json!({"uid": "u-1", "allowed": true,
                "warnings": ["Telemetry is not used by gudgeon and was not checked"]}),
            "{version}"
        );
    }
}

#[test]
fn warnings_are_short_and_as_many_as_fit() {
    let finding = |at: usize| Finding::warning(format!("spec.x[{at}]"), "ü".repeat(300));
    let all: Vec<Finding> = (0..40).map(finding).collect();
    let warnings = response_warnings(&all);
    assert_eq!(warnings.len(), 17);
    assert!(warnings.iter().all(|warning| warning.len() <= 250));
    assert!(warnings.iter().map(String::len).sum::<usize>() <= 4096);
    assert_eq!(
        warnings[0],
        format!("spec.x[0]: {}", "ü".repeat((250 - 11) / 2))
    );
    assert_eq!(warnings[16], "… and 24 more");
    assert_eq!(response_warnings(&all[..16]).len(), 16);
    assert!(!response_warnings(&all[..16])[15].starts_with('…'));
    // Many, where they are short.
    let mut object = weights(75, 25);
    object["spec"]["gateways"] = json!(vec!["a.b"; 60]);
    object["spec"]["http"][0]["headers"] = json!({"request": {"remove": ["x".repeat(20_000)]}});
    let (response, _) = answered(&json!({"object": object}));
    let warnings = response["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 61);
    assert_eq!(warnings[59], "spec.gateways[59]: write NAMESPACE/NAME");
    // The warning about the whole object comes last.
    let last = warnings[60].as_str().unwrap();
    assert!(last.starts_with("spec.http[0].headers"), "{last}");
}

#[test]
fn a_message_has_an_end() {
    let finding = |at: usize| Finding::error(format!("spec.x[{at}]"), "ü".repeat(100));
    let all: Vec<Finding> = (0..100).map(finding).collect();
    let whole = message(&all);
    assert!(whole.len() <= MESSAGE_BYTES, "{}", whole.len());
    assert!(whole.len() > MESSAGE_BYTES - 300);
    assert!(whole.ends_with(" more"), "{whole}");
    let one = message(&[Finding::error("p".repeat(9000), "m")]);
    assert!(one.len() <= MESSAGE_BYTES);
    let of_long = cause(&Finding::error("p".repeat(9000), "m".repeat(9000)));
    assert_eq!((of_long.field.len(), of_long.message.len()), (1024, 1024));
    // A hundred are causes, and how many more there are is no field's.
    let hosts: Vec<String> = (0..150).map(|at| format!("a_{at}")).collect();
    let mut object = weights(75, 25);
    object["spec"]["hosts"] = json!(hosts);
    let (response, _) = answered(&json!({"object": object}));
    let causes = response["status"]["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 101);
    assert_eq!(
        causes[100],
        json!({"reason": "FieldValueInvalid", "message": "… and 50 more"})
    );
    // The message gives the number of errors that it omits.
    let message = response["status"]["message"].as_str().unwrap();
    let (begin, last) = message.rsplit_once("; ").unwrap();
    let listed = begin.split("; ").count();
    assert!(listed < 100, "{message}");
    assert_eq!(last, format!("… and {} more", 150 - listed));
}

#[test]
fn recorded_verdicts_have_no_secret_and_no_object() {
    let object = json!({"apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication", "metadata": {"name": "a"},
        "spec": {"jwtRules": [{"issuer": "i", "jwks": "the-private-part"}], "hosts": "x"}});
    let text = review(
        "v1",
        &json!({"object": object, "operation": "UPDATE", "dryRun": true}),
    );
    let (_, _, decision) = checked(&text, ValidatedKinds::All);
    let record = decision.json();
    assert!(!record.to_string().contains("the-private-part"), "{record}");
    assert_eq!(record["kind"], "security.istio.io/v1 RequestAuthentication");
    assert_eq!(
        (&record["namespace"], &record["name"]),
        (&json!("web"), &json!("a"))
    );
    assert_eq!(
        (&record["operation"], &record["dryRun"]),
        (&json!("UPDATE"), &json!(true))
    );
    assert_eq!(record["allowed"], false);
    let message = record["message"].as_str().unwrap();
    assert!(message.contains("spec.hosts: unknown field"), "{message}");
    // Texts from outside are cut.
    let mut object = weights(75, 25);
    object["metadata"]["name"] = json!("n".repeat(5000));
    let (_, _, decision) = checked(
        &review("v1", &json!({"object": object})),
        ValidatedKinds::All,
    );
    assert_eq!(decision.name.len(), 256);
}

#[test]
fn cost_grows_with_size_and_no_faster() {
    let work = |routes: usize| {
        let route = json!({"match": [{"uri": {"prefix": "/a"}}], "route": [{"destination": {"host": "x"}}]});
        let object = virtual_service(&json!({"hosts": ["a"], "http": vec![route; routes]}));
        let text = review("v1", &json!({"object": object}));
        move || {
            let (answer, _, _) = checked(&text, ValidatedKinds::All);
            assert_eq!(answer["response"]["allowed"], true, "{answer}");
        }
    };
    crate::growth::assert_linear(32, work(100), work(3_200));
}

#[test]
fn a_refusal_shows_what_is_no_secret() {
    let object = |kind: &str, version: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec});
    let gateway = json!({"servers": [{"hosts": ["a"], "port": {"number": 443, "name": "tls", "protocol": "HTTPS"},
        "tls": {"mode": "SIMPLE", "serverCertificate": "/a", "privatekey": "/b"}}]});
    let condition =
        |key: &str, value: &str| json!({"rules": [{"when": [{"key": key, "values": [value]}]}]});
    let keys = |uri: &str| json!({"jwtRules": [{"issuer": "i", "jwksUri": uri}]});
    let security = "security.istio.io/v1";
    for (object, expected) in [
        (
            object("Gateway", "networking.istio.io/v1", gateway),
            "unknown field, did you mean \"privateKey\"?",
        ),
        (
            object(
                "AuthorizationPolicy",
                security,
                condition("source.ip", "10.0.0.0/99"),
            ),
            "\"10.0.0.0/99\" is not an IP address or CIDR",
        ),
        (
            object(
                "AuthorizationPolicy",
                security,
                condition("destination.port", "65536"),
            ),
            "port \"65536\" is not in 0..65535",
        ),
        (
            object("RequestAuthentication", security, keys("me:S3CRET@a/x")),
            "\"…@a/x\" is not an http or https URL",
        ),
        (
            object(
                "RequestAuthentication",
                security,
                keys("http:/me:S3CRET@a/x"),
            ),
            "\"…@a/x\" is not an http or https URL",
        ),
    ] {
        let (response, _) = answered(&json!({"object": object}));
        let causes = response["status"]["details"]["causes"].as_array().unwrap();
        let messages: Vec<_> = causes.iter().map(|cause| &cause["message"]).collect();
        assert!(messages.contains(&&json!(expected)), "{messages:?}");
    }
}
