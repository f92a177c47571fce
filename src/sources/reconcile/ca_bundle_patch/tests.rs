use super::*;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn configuration(webhooks: &Value) -> WebhookConfiguration {
    serde_json::from_value(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "c", "resourceVersion": "41", "labels": {"a": "b"}, "uid": "x"},
        "webhooks": webhooks,
    }))
    .unwrap()
}

/// An entry as the API server shows it, with a bundle in base64.
fn entry(name: &str, bundle: &Value) -> Value {
    json!({"name": name, "failurePolicy": "Fail", "clientConfig":
        {"service": {"name": "s", "namespace": "n", "port": 443}, "caBundle": bundle}})
}

fn decided(webhooks: &Value) -> Decision {
    decide_ca_bundle(
        Some(&configuration(webhooks)),
        "sidecar-injector.istio.io",
        &CaBundle::File(PEM.into()),
        SystemTime::now(),
    )
}

fn base64() -> Value {
    serde_json::to_value(ByteString(PEM.into())).unwrap()
}

#[test]
fn an_entry_is_meant_by_its_name_or_what_stands_behind_a_dot() {
    for (entry, expected) in [
        ("sidecar-injector.istio.io", true),
        ("rev.object.sidecar-injector.istio.io", true),
        ("namespace.sidecar-injector.istio.io", true),
        ("my-sidecar-injector.istio.io", false),
        (".sidecar-injector.istio.io", false),
        ("sidecar-injector.istio.io.example.com", false),
        ("istio.io", false),
        ("", false),
    ] {
        assert_eq!(
            is_entry(entry, "sidecar-injector.istio.io"),
            expected,
            "{entry}"
        );
    }
}

#[test]
fn only_what_differs_is_patched_and_nothing_else() {
    let webhooks = json!([
        entry("a.sidecar-injector.istio.io", &Value::Null),
        entry("validation.example.com", &json!("b2xk")),
        entry("b.sidecar-injector.istio.io", &base64()),
        entry("sidecar-injector.istio.io", &json!("b2xk")),
    ]);
    let Decision::Write(Write::Patch { entries, patch }) = decided(&webhooks) else {
        panic!("nothing to patch");
    };
    assert_eq!(
        entries,
        [
            "a.sidecar-injector.istio.io",
            "b.sidecar-injector.istio.io",
            "sidecar-injector.istio.io"
        ]
    );
    assert_eq!(
        patch,
        json!({
            "metadata": {"resourceVersion": "41"},
            "webhooks": [
                {"name": "a.sidecar-injector.istio.io", "clientConfig": {"caBundle": base64()}},
                {"name": "sidecar-injector.istio.io", "clientConfig": {"caBundle": base64()}},
            ],
        })
    );
}

#[test]
fn an_equal_bundle_gets_no_patch() {
    let decision = decided(&json!([entry("sidecar-injector.istio.io", &base64())]));
    let entries = vec!["sidecar-injector.istio.io".to_owned()];
    assert_eq!(decision, Decision::Held { entries });
}

#[test]
fn without_an_entry_of_ours_nothing_is_sent() {
    let now = SystemTime::now();
    let missing = decide_ca_bundle(
        None,
        "sidecar-injector.istio.io",
        &CaBundle::File(PEM.into()),
        now,
    );
    assert_eq!(missing, Decision::Missing);
    for webhooks in [
        Value::Null,
        json!([]),
        json!([entry("other.example.com", &Value::Null)]),
    ] {
        assert_eq!(decided(&webhooks), Decision::NoEntry);
    }
    // An entry without a clientConfig cannot be, and is no reason to fall over.
    let bare = json!([{"name": "sidecar-injector.istio.io"}]);
    assert!(matches!(
        decided(&bare),
        Decision::Write(Write::Patch { .. })
    ));
}
