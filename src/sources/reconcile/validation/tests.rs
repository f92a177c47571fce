//! Decisions, as tables; then a reconciler with a fake API server.

mod kept;

use std::time::SystemTime;

use super::*;
use crate::reconcile::ca_bundle::CaBundle;
use crate::reconcile::ca_bundle_patch::{Decision, Write};
use crate::reconcile::webhook::WebhookConfiguration;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn service() -> ServiceReference {
    ServiceReference {
        namespace: "istio-system".to_owned(),
        name: "istio-galley".to_owned(),
    }
}

fn built_in() -> Validation {
    Validation::built_in("istio-galley", service())
}

fn of_file(text: &str) -> Validation {
    Validation::of_file(text, "istio-galley", service()).unwrap()
}

fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.into()))
}

fn seen(webhooks: &Value) -> WebhookConfiguration {
    serde_json::from_value(json!({"metadata": {"name": "istio-galley", "resourceVersion": "41"}, "webhooks": webhooks})).unwrap()
}

fn decided(wanted: &Validation, seen: Option<&WebhookConfiguration>, fail: bool) -> Decision {
    let bundle = CaBundle::File(PEM.into());
    decide(wanted, seen, &bundle, fail, SystemTime::now())
}

/// Returns the entries of the patch; none if nothing is written.
fn patch(wanted: &Validation, webhooks: &Value, fail: bool) -> Value {
    match decided(wanted, Some(&seen(webhooks)), fail) {
        Decision::Held { .. } => json!([]),
        Decision::Write(Write::Patch { patch, .. }) => {
            assert_eq!(patch["metadata"], json!({"resourceVersion": "41"}));
            patch["webhooks"].clone()
        }
        other @ (Decision::Missing | Decision::Gone | Decision::NoEntry | Decision::Write(_)) => {
            panic!("{other:?}")
        }
    }
}

/// One of ours, for all kinds.
fn entry(name: &str, policy: &str, bundle: &str) -> Value {
    json!({"name": name, "failurePolicy": policy, "rules": coverage::rules(api::config::KINDS.iter()),
        "clientConfig": {"service": {"name": "istio-galley", "namespace": "istio-system", "port": 443}, "caBundle": base64(bundle)}})
}

/// An entry of another program.
fn other(name: &str, client: &Value) -> Value {
    json!({"name": name, "failurePolicy": "Ignore", "clientConfig": client, "rules": coverage::rules(api::config::KINDS.iter())})
}

#[test]
fn a_missing_one_is_made_and_ignores_until_it_was_seen_to_refuse() {
    for (fail, policy) in [(false, "Ignore"), (true, "Fail")] {
        let Decision::Write(Write::Create(object)) = decided(&built_in(), None, fail) else {
            panic!("nothing is made");
        };
        assert_eq!(object["apiVersion"], "admissionregistration.k8s.io/v1");
        assert_eq!(object["kind"], "ValidatingWebhookConfiguration");
        assert_eq!(object["metadata"], json!({"name": "istio-galley"}));
        let webhooks = object["webhooks"].as_array().unwrap();
        assert_eq!(webhooks.len(), 1);
        let entry = &webhooks[0];
        assert_eq!(entry["name"], "validation.istio.io");
        assert_eq!(entry["failurePolicy"], policy);
        assert_eq!(
            entry["clientConfig"],
            json!({"service": {"name": "istio-galley", "namespace": "istio-system", "path": "/validate", "port": 443},
                "caBundle": base64(PEM)})
        );
        assert_eq!(
            (&entry["sideEffects"], &entry["timeoutSeconds"]),
            (&json!("None"), &json!(10))
        );
    }
}

#[test]
fn there_is_one_rule_for_each_group() {
    let whole = built_in().object;
    let rules = whole["webhooks"][0]["rules"].as_array().unwrap();
    let groups: Vec<&str> = rules
        .iter()
        .map(|rule| rule["apiGroups"][0].as_str().unwrap())
        .collect();
    assert_eq!(
        groups,
        [
            "networking.istio.io",
            "security.istio.io",
            "authentication.istio.io",
            "rbac.istio.io",
            "config.istio.io"
        ]
    );
    let plurals: usize = rules
        .iter()
        .map(|rule| rule["resources"].as_array().unwrap().len())
        .sum();
    assert_eq!(plurals, api::config::KINDS.len());
    for rule in rules {
        assert_eq!(rule["apiVersions"], json!(["*"]));
        assert_eq!(rule["operations"], json!(["CREATE", "UPDATE"]));
    }
    assert_eq!(
        rules[1]["resources"],
        json!([
            "authorizationpolicies",
            "peerauthentications",
            "requestauthentications"
        ])
    );
}

#[test]
fn only_bundle_and_policy_of_our_entries_are_changed() {
    let all = json!([
        entry("a", "Ignore", "old"),
        entry("b", "Fail", PEM),
        other("c", &json!({"url": "https://x/validate"})),
        other(
            "d",
            &json!({"service": {"name": "istiod", "namespace": "istio-system"}})
        ),
        other(
            "e",
            &json!({"service": {"name": "istio-galley", "namespace": "other"}})
        ),
        other(
            "f",
            &json!({"url": "https://istio-galley.istio-system-2.svc"})
        ),
    ]);
    let bundle = json!({"caBundle": base64(PEM)});
    assert_eq!(
        patch(&built_in(), &all, false),
        json!([{"name": "a", "clientConfig": bundle}])
    );
    assert_eq!(
        patch(&built_in(), &all, true),
        json!([{"name": "a", "clientConfig": bundle, "failurePolicy": "Fail"}])
    );
    assert_eq!(
        foreign_entries(&built_in(), &seen(&all)),
        ["c", "d", "e", "f"]
    );
    for url in [
        "https://istio-galley.istio-system.svc:443/admitpilot",
        "https://istio-galley.istio-system.svc.cluster.local",
        "https://istio-galley.istio-system/x",
    ] {
        let all = json!([other("u", &json!({"url": url}))]);
        assert_eq!(foreign_entries(&built_in(), &seen(&all)), [""; 0], "{url}");
        let patch = patch(&built_in(), &all, true);
        assert_eq!(patch[0]["failurePolicy"], "Fail", "{url}");
    }
}

/// As the charts of 1.1 to 1.4 left it, where another program is no more.
fn left_over() -> Value {
    let rule = |group: &str, versions: &str, plurals: &[&str]| json!({"apiGroups": [group], "apiVersions": [versions], "operations": ["CREATE", "UPDATE"], "resources": plurals, "scope": "*"});
    let service = |path: &str| json!({"service": {"name": "istio-galley", "namespace": "istio-system", "path": path, "port": 443}, "caBundle": base64(PEM)});
    json!([
        {"name": "pilot.validation.istio.io", "failurePolicy": "Fail", "matchPolicy": "Exact", "clientConfig": service("/admitpilot"), "rules": [
            rule("config.istio.io", "v1alpha2", &["httpapispecs", "httpapispecbindings", "quotaspecs", "quotaspecbindings"]),
            rule("rbac.istio.io", "*", &["*"]),
            rule("authentication.istio.io", "*", &["*"]),
            rule("networking.istio.io", "*", &["destinationrules", "envoyfilters", "gateways", "serviceentries", "sidecars", "virtualservices"]),
        ]},
        {"name": "mixer.validation.istio.io", "failurePolicy": "Fail", "matchPolicy": "Exact", "clientConfig": service("/admitmixer"), "rules": [
            rule("config.istio.io", "v1alpha2", &["rules", "attributemanifests", "circonuses", "apikeys"]),
        ]},
    ])
}

#[test]
fn kinds_that_no_entry_of_ours_takes_are_one_entry_more() {
    let rest = json!([
        {"apiGroups": ["networking.istio.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["workloadentries"]},
        {"apiGroups": ["security.istio.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": ["authorizationpolicies", "peerauthentications", "requestauthentications"]},
        {"apiGroups": ["config.istio.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": ["adapters", "templates", "handlers", "instances"]},
    ]);
    let mut all = left_over();
    let made = patch(&built_in(), &all, false);
    let [made] = &made.as_array().unwrap()[..] else {
        panic!("{made}");
    };
    assert_eq!(made["name"], "validation.istio.io");
    assert_eq!(made["failurePolicy"], "Ignore");
    assert_eq!(made["rules"], rest);
    assert_eq!(made["clientConfig"]["service"]["path"], "/validate");
    assert_eq!(made["clientConfig"]["caBundle"], base64(PEM));
    // The result needs no further change.
    all.as_array_mut().unwrap().push(made.clone());
    assert_eq!(patch(&built_in(), &all, false), json!([]));
    // The entry grows with the kinds that there are.
    all[2]["rules"].as_array_mut().unwrap().pop();
    let mut expected = rest.as_array().unwrap().clone();
    assert_eq!(
        patch(&built_in(), &all, true),
        json!([{"name": "validation.istio.io", "failurePolicy": "Fail", "rules": expected}])
    );
    // The name may be taken by another program's entry.
    all[2] = other("validation.istio.io", &json!({"url": "https://x"}));
    let made = patch(&built_in(), &all, false);
    assert_eq!(made[0]["name"], "gudgeon.validation.istio.io");
    // A version alone is enough where the API server converts.
    all = left_over();
    all[0]["rules"][3]["apiVersions"] = json!(["v1alpha3"]);
    let made = patch(&built_in(), &all, false);
    assert_eq!(
        made[0]["rules"][0]["resources"].as_array().unwrap().len(),
        6
    );
    all[0]["matchPolicy"] = json!("Equivalent");
    let made = patch(&built_in(), &all, false);
    expected.truncate(1);
    assert_eq!(made[0]["rules"][0], expected[0]);
}

/// A file may lead to a URL, or to another Service than `--service-name`.
#[test]
fn an_entry_that_is_added_beside_a_files_is_ours() {
    let file = |client: &str| {
        let entry = format!(
            "{{name: pilot.validation.istio.io, clientConfig: {client}, rules: [{{operations: [CREATE, UPDATE], \
             apiGroups: [networking.istio.io], apiVersions: ['*'], resources: ['*']}}]}}"
        );
        of_file(&format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: [{entry}]}}"
        ))
    };
    for client in [
        "{url: 'https://localhost:29443/admitpilot'}",
        "{service: {name: istio-pilot, namespace: istio-system, path: /validate}}",
        "{service: {name: istio-pilot, namespace: other, path: /admitpilot, port: 8443}}",
    ] {
        let wanted = file(client);
        let Decision::Write(Write::Create(created)) = decided(&wanted, None, false) else {
            panic!("nothing is made");
        };
        let mut entries = created["webhooks"].clone();
        assert_eq!(entries[1]["name"], "validation.istio.io", "{client}");
        // What the API server adds.
        for entry in entries.as_array_mut().unwrap() {
            if entry["clientConfig"]["service"]["port"].is_null()
                && entry["clientConfig"]["service"].is_object()
            {
                entry["clientConfig"]["service"]["port"] = json!(443);
            }
        }
        assert_eq!(patch(&wanted, &entries, false), json!([]), "{client}");
        assert_eq!(
            foreign_entries(&wanted, &seen(&entries)),
            [""; 0],
            "{client}"
        );
        let fail = |name: &str| json!({"name": name, "failurePolicy": "Fail"});
        assert_eq!(
            patch(&wanted, &entries, true),
            json!([
                fail("pilot.validation.istio.io"),
                fail("validation.istio.io")
            ]),
            "{client}"
        );
        // Another program's at another path of that server is not ours.
        let mut beside = entries[1].clone();
        beside["name"] = json!("kyverno.example.com");
        for way in ["/service/path", "/url"] {
            if let Some(path) = beside["clientConfig"].pointer_mut(way) {
                *path = json!(path.as_str().unwrap().replace("/validate", "/kyverno"));
            }
        }
        let mut all = entries.clone();
        all.as_array_mut().unwrap().push(beside);
        assert_eq!(patch(&wanted, &all, false), json!([]), "{client}");
        assert_eq!(
            foreign_entries(&wanted, &seen(&all)),
            ["kyverno.example.com"]
        );
        // A server of somebody else has the name: it is not ours, and there is no third.
        entries[1]["clientConfig"] = json!({"url": "https://localhost:1/validate"});
        let made = patch(&wanted, &entries, false);
        assert_eq!(made[0]["name"], "gudgeon.validation.istio.io", "{client}");
        entries.as_array_mut().unwrap().push(made[0].clone());
        assert_eq!(patch(&wanted, &entries, false), json!([]), "{client}");
        assert_eq!(
            foreign_entries(&wanted, &seen(&entries)),
            ["validation.istio.io"]
        );
    }
}

/// The second name is this program's alone: it does not lead elsewhere for long.
#[test]
fn an_entry_of_our_own_name_leads_where_the_others_lead() {
    let mut all = json!([other("a", &json!({"url": "https://x"}))]);
    all.as_array_mut().unwrap().push(other(
        "gudgeon.validation.istio.io",
        &json!({"service": {"name": "before", "namespace": "istio-system", "path": "/validate", "port": 443}, "caBundle": base64(PEM)}),
    ));
    let client = json!({"service": {"name": "istio-galley", "namespace": "istio-system", "path": "/validate", "port": 443},
        "caBundle": base64(PEM), "$patch": "replace"});
    assert_eq!(
        patch(&built_in(), &all, false),
        json!([{"name": "gudgeon.validation.istio.io", "clientConfig": client}])
    );
    assert_eq!(foreign_entries(&built_in(), &seen(&all)), ["a"]);
}

#[test]
fn a_fail_that_is_found_stays() {
    let entries = json!([entry("a", "Fail", PEM)]);
    assert_eq!(patch(&built_in(), &entries, false), json!([]));
    assert_eq!(patch(&built_in(), &entries, true), json!([]));
    let ignores = json!([entry("a", "Ignore", PEM)]);
    assert_eq!(patch(&built_in(), &ignores, false), json!([]));
}

#[test]
fn one_without_entries_gets_them() {
    for webhooks in [Value::Null, json!([])] {
        let made = patch(&built_in(), &webhooks, false);
        assert_eq!(made[0]["name"], "validation.istio.io");
        assert_eq!(made[0]["failurePolicy"], "Ignore");
    }
}

#[test]
fn an_unregistered_configuration_is_deleted() {
    let none = built_in().unregistered();
    assert_eq!(decided(&none, None, true), Decision::Gone);
    let there = seen(&json!([entry("a", "Fail", PEM)]));
    let decision = decided(&none, Some(&there), true);
    assert_eq!(decision, Decision::Write(Write::Delete));
}

#[test]
fn an_owner_is_named_with_its_uid() {
    assert_eq!(built_in().owner(), "istio-galley-istio-system");
    let owned = complete(built_in().object, "istio-galley-istio-system", "u-1");
    assert_eq!(
        owned["metadata"]["ownerReferences"],
        json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "istio-galley-istio-system", "uid": "u-1"}])
    );
}

const FILE: &str = "\
apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingWebhookConfiguration
metadata:
  name: somebody-elses
  namespace: istio-system
  labels: {app: galley}
webhooks:
- name: pilot.validation.istio.io
  clientConfig:
    service: {path: /admitpilot}
    caBundle: \"\"
  rules:
  - {operations: [CREATE, UPDATE], apiGroups: [networking.istio.io], apiVersions: ['*'], resources: ['*']}
  failurePolicy: Fail
  sideEffects: Unknown
  objectSelector: {matchLabels: {a: b}}
- name: mixer.validation.istio.io
  clientConfig: {url: 'https://10.0.0.1/admitmixer'}
  admissionReviewVersions: [v1beta1]
  namespaceSelector: {matchLabels: {c: d}}
";

#[test]
fn a_file_is_completed_and_read_in_both_versions() {
    for version in ["v1beta1", "v1"] {
        let text = FILE.replace("k8s.io/v1beta1", &format!("k8s.io/{version}"));
        let wanted = of_file(&text);
        assert_eq!(
            wanted.object,
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "istio-galley", "labels": {"app": "galley"}},
            "webhooks": [
                {"name": "pilot.validation.istio.io",
                 "clientConfig": {"service": {"name": "istio-galley", "namespace": "istio-system", "path": "/admitpilot", "port": 443}},
                 "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["networking.istio.io"], "apiVersions": ["*"], "resources": ["*"]}],
                 "sideEffects": "None", "admissionReviewVersions": ["v1", "v1beta1"], "namespaceSelector": {},
                 "objectSelector": {"matchLabels": {"a": "b"}}},
                {"name": "mixer.validation.istio.io", "clientConfig": {"url": "https://10.0.0.1/admitmixer"},
                 "sideEffects": "None", "admissionReviewVersions": ["v1beta1"], "namespaceSelector": {"matchLabels": {"c": "d"}}},
            ]})
        );
    }
}

/// A missing `sideEffects` is filled in, and a value that v1 no longer takes is replaced.
#[test]
fn side_effects_that_may_be_said_are_kept() {
    for (written, served) in [
        ("None", "None"),
        ("NoneOnDryRun", "NoneOnDryRun"),
        ("Some", "None"),
        ("Unknown", "None"),
    ] {
        let text = FILE.replace("sideEffects: Unknown", &format!("sideEffects: {written}"));
        assert_eq!(of_file(&text).object["webhooks"][0]["sideEffects"], served);
    }
}

#[test]
fn files_without_one_webhook_configuration_are_refused() {
    for (text, part) in [
        ("", "want one ValidatingWebhookConfiguration, not 0 objects"),
        ("a: [", "line 1: "),
        (&format!("{FILE}---\n{FILE}"), "not 2 objects"),
        (
            &FILE.replace("kind: Validating", "kind: Mutating"),
            "not \"MutatingWebhookConfiguration\"",
        ),
        (
            &FILE.replace("k8s.io/v1beta1", "k8s.io/v2"),
            "of \"admissionregistration.k8s.io/v2\"",
        ),
        (
            "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: []}",
            "webhooks: want a list with at least one entry",
        ),
        (
            &FILE.replace("- name: mixer.validation.istio.io\n ", "-"),
            "webhooks[1].name: is required",
        ),
        (
            &FILE.replace("service: {path: /admitpilot}", "service: x"),
            "webhooks[0].clientConfig.service: want an object",
        ),
        (
            &FILE.replace("rules:\n", "rules: x\n  other:\n"),
            "webhooks[0].rules: want a list of objects",
        ),
    ] {
        let read = Validation::of_file(text, "istio-galley", service());
        let cause = read.expect_err(text);
        assert!(cause.contains(part), "{cause}: {part}");
    }
}

/// As the API server shows it, completed.
fn served_entries() -> Value {
    let mut entries: Vec<Value> = of_file(FILE)
        .entries()
        .into_iter()
        .map(|Webhook(entry)| entry)
        .collect();
    for entry in &mut entries {
        entry["clientConfig"]["caBundle"] = base64(PEM);
        entry["failurePolicy"] = json!("Ignore");
        entry["matchPolicy"] = json!("Equivalent");
        entry["timeoutSeconds"] = json!(10);
        entry["objectSelector"]["matchLabels"]["a"] = json!("b");
    }
    entries[0]["rules"][0]["scope"] = json!("*");
    entries[1].as_object_mut().unwrap().remove("objectSelector");
    entries.push(entry("validation.istio.io", "Ignore", PEM));
    json!(entries)
}

#[test]
fn entries_are_held_to_what_a_file_says_of_them() {
    let wanted = of_file(FILE);
    assert_eq!(patch(&wanted, &served_entries(), false), json!([]));
    let case = |change: fn(&mut Value), expected: Value| {
        let mut entries = served_entries();
        change(&mut entries);
        assert_eq!(patch(&wanted, &entries, false), expected);
    };
    let pilot = |field: &str, value: Value| {
        let mut entry = json!({"name": "pilot.validation.istio.io"});
        entry[field] = value;
        json!([entry])
    };
    case(
        |entries| entries[0]["rules"][0]["operations"] = json!(["CREATE"]),
        pilot(
            "rules",
            of_file(FILE).object["webhooks"][0]["rules"].clone(),
        ),
    );
    case(
        |entries| entries[0]["namespaceSelector"] = json!({"matchLabels": {"only": "here"}}),
        pilot("namespaceSelector", json!({"$patch": "replace"})),
    );
    case(
        |entries| entries[0]["objectSelector"]["matchLabels"]["c"] = json!("d"),
        pilot(
            "objectSelector",
            json!({"matchLabels": {"a": "b"}, "$patch": "replace"}),
        ),
    );
    let client = json!({"service": {"name": "istio-galley", "namespace": "istio-system", "path": "/admitpilot", "port": 443},
        "caBundle": base64(PEM), "$patch": "replace"});
    case(
        |entries| entries[0]["clientConfig"]["service"]["path"] = json!("/other"),
        pilot("clientConfig", client.clone()),
    );
    case(
        |entries| entries[0]["clientConfig"] = json!({"url": "https://evil"}),
        pilot("clientConfig", client),
    );
    // Fields that the file does not set are left alone.
    case(
        |entries| entries[0]["timeoutSeconds"] = json!(30),
        json!([]),
    );
    // One entry is missing, and one is another program's.
    let mut entries = served_entries();
    entries[1]["name"] = json!("other.example.com");
    entries[1]["clientConfig"]["url"] = json!("https://10.0.0.2/admitmixer");
    let made = patch(&wanted, &entries, true);
    let mine = made.as_array().unwrap().iter();
    assert!(
        mine.clone()
            .all(|entry| entry["name"] != "other.example.com")
    );
    let made = patch(&wanted, &entries, false);
    assert_eq!(made.as_array().unwrap().len(), 1);
    assert_eq!(made[0]["name"], "mixer.validation.istio.io");
    assert_eq!(made[0]["failurePolicy"], "Ignore");
}

#[test]
fn an_added_entry_validates_the_kinds_that_a_file_omits() {
    let wanted = of_file(FILE);
    let mut entries = served_entries();
    entries.as_array_mut().unwrap().pop();
    let made = patch(&wanted, &entries, false);
    assert_eq!(made[0]["name"], "validation.istio.io");
    let text = FILE.replace("mixer.validation.istio.io", "validation.istio.io");
    let Decision::Write(Write::Create(made)) = decided(&of_file(&text), None, false) else {
        panic!("nothing is made");
    };
    let names = made["webhooks"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|entry| entry["name"].clone()).collect();
    assert_eq!(
        names,
        [
            "pilot.validation.istio.io",
            "validation.istio.io",
            "gudgeon.validation.istio.io"
        ]
    );
    // The added entry uses the `clientConfig` of the others, which may have no Service.
    let text = FILE.replace(
        "service: {path: /admitpilot}",
        "url: 'https://10.0.0.1:99/admitpilot'",
    );
    let Decision::Write(Write::Create(made)) = decided(&of_file(&text), None, false) else {
        panic!("nothing is made");
    };
    let client = json!({"url": "https://10.0.0.1:99/validate", "caBundle": base64(PEM)});
    assert_eq!(made["webhooks"][2]["clientConfig"], client);
}
