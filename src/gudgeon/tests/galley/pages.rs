//! The visibility of pages per listener, and the absence of secrets in them.

use serde_json::{Value, json};

use crate::place::{GalleyPlace, service};

#[test]
fn each_listener_answers_for_itself() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .start();
    assert_eq!(galley.get("/ready"), (200, "ok\n".to_owned()));
    assert_eq!(galley.get("/healthz").0, 200);
    assert!(galley.get("/version").1.contains("\"version\""));
    for path in ["/debug", "/debug/configz", "/configz"] {
        assert_eq!(galley.get(path).0, 404, "{path}");
    }
    for path in ["/ready", "/metrics"] {
        assert_eq!(galley.look(path).0, 404, "{path}");
    }
    assert_eq!(galley.look("/configz").0, 302);
    assert_eq!(galley.look("/").0, 302);
    let (code, text) = galley.get("/");
    assert!(code == 200 && text.contains("/debug"), "{text}");
    // A page that a browser was shown elsewhere is not of this host.
    for path in ["/debug", "/debug/configz", "/configz"] {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", galley.page)).unwrap();
        let led = crate::support::program::exchange(&mut stream, "GET", path, "evil.example");
        assert_eq!(led.unwrap().0, 403, "{path}");
        let mut stream = crate::support::program::passed_through(galley.page);
        let passed = crate::support::program::exchange(&mut stream, "GET", path, "localhost");
        assert_eq!(passed.unwrap().0, 403, "{path}");
    }
    assert_eq!(galley.look("/debug/configz?collection=none").0, 404);
    assert_eq!(galley.post("/ready").0, 405);
    assert_eq!(galley.post("/debug").1, 405);
    let (_, page) = galley.look("/debug");
    for text in [
        "gudgeon galley",
        "ready",
        "<svg",
        "virtualservices",
        "synced",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    let configz = galley.configz();
    assert_eq!(
        configz["source"],
        json!({"kind": "files", "synced": true, "stale_since": null, "error": null})
    );
    for group in ["default", "syntheticServiceEntry"] {
        let snapshot = &configz["snapshots"][group];
        assert!(
            snapshot["published"].as_str().unwrap().ends_with('Z'),
            "{snapshot}"
        );
        assert_eq!(snapshot["version"].as_str().unwrap().len(), 32);
    }
    assert_eq!(configz["snapshots"]["default"]["count"], 2);
    assert_eq!(configz["snapshots"]["syntheticServiceEntry"]["count"], 0);
    assert_eq!(
        (&configz["peers"], &configz["rejected"]),
        (&json!([]), &json!([]))
    );
    crate::support::program::metrics_of(galley.monitoring);
    let (_, metrics) = galley.get("/metrics");
    for line in [
        "galley_runtime_processor_events_processed_total 1",
        "galley_runtime_processor_snapshots_published_total 2",
        "galley_runtime_processor_snapshot_events_total_count 2",
        "gudgeon_galley_session{state=\"processing\"} 1",
    ] {
        assert!(metrics.contains(&format!("{line}\n")), "{line}\n{metrics}");
    }
}

/// Text of rules is escaped on the page.
#[test]
fn the_page_escapes_text_from_outside() {
    let rule = service("a", [75, 25]).replace("  http:", "  \"<script>x</script>\": 1\n  http:");
    let galley = GalleyPlace::new()
        .with("config/<b>.yaml", &rule)
        .with("config/c.yaml", "\"<i>\": [\n")
        .start();
    let (_, page) = galley.look("/debug");
    assert!(page.contains("Not served as it is written: 2"), "{page}");
    assert!(
        page.contains("&lt;script&gt;") && page.contains("&lt;b&gt;.yaml"),
        "{page}"
    );
    assert!(
        !page.contains("<script>") && !page.contains("<b>"),
        "{page}"
    );
    let rejected = galley.configz()["rejected"].clone();
    let message = rejected[0]["errors"][0]["message"].as_str().unwrap();
    assert_eq!(message, "unknown field");
}

#[test]
fn no_secret_is_in_a_log_a_document_or_a_page() {
    let secrets = "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: a, namespace: shop}\nspec:\n  \
         jwtRules:\n  - issuer: i\n    jwks: '{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQAB\",\"y\":\"AQAB\",\"d\":\"hush-1\"}]}'\n---\n\
         apiVersion: config.istio.io/v1alpha2\nkind: handler\nmetadata: {name: b, namespace: shop}\nspec:\n  \
         compiledAdapter: bypass\n  params: {password: hush-2, url: 'https://hush-3@host'}\n---\n\
         apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: c, namespace: shop}\nspec:\n  \
         jwtRules:\n  - issuer: i\n    jwks: hush-4\n---\n\
         apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: d, namespace: shop}\nspec:\n  hosts: [d]\n  \
         http:\n  - headers: {request: {set: {authorization: Bearer hush-5}}}\n    route: [{destination: {host: d}}]\n";
    let mesh = "defaultConfig:\n  tracing:\n    lightstep: {address: 'a:1', accessToken: hush-6}\n";
    let galley = GalleyPlace::new()
        .with("config/a.yaml", secrets)
        .mesh(mesh)
        .arg("--log_output_level=debug")
        .start();
    let rejected = galley.configz()["rejected"].clone();
    let rejected = rejected.as_array().unwrap();
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    let mut all = galley.log().join("\n") + &galley.look("/debug").1 + &galley.get("/metrics").1;
    all.push_str(&galley.configz().to_string());
    for (collection, count) in [
        ("istio/security/v1beta1/requestauthentications", 1),
        ("istio/policy/v1beta1/handlers", 1),
        ("istio/networking/v1alpha3/virtualservices", 1),
        ("istio/mesh/v1alpha1/MeshConfig", 1),
    ] {
        let document = galley.document(&format!("/debug/configz?collection={collection}"));
        let resources = document["resources"].as_array().unwrap();
        assert_eq!(resources.len(), count, "{document}");
        let effect = &document["resources"][0]["effect"];
        let wanted = match collection {
            "istio/policy/v1beta1/handlers" => json!("none"),
            "istio/mesh/v1alpha1/MeshConfig" => Value::Null,
            _ => json!("enforced"),
        };
        assert_eq!(*effect, wanted, "{collection}");
        all.push_str(&document.to_string());
    }
    assert!(all.contains("AQAB") && all.contains("compiledAdapter"));
    assert!(!all.contains("hush-"), "{all}");
}
