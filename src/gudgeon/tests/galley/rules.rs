//! A directory of rules: valid objects are served, invalid ones are shown with their place, until they are fixed.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::place::{GalleyPlace, SERVICES, service, until};

#[test]
fn a_directory_is_served_and_what_changes_is_one_difference() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("config/b.yaml", &service("b", [50, 50]))
        .start();
    assert_eq!(galley.names(SERVICES), ["shop/a", "shop/b"]);
    let before = galley.collection(SERVICES);
    assert!(before["bytes"].as_u64().unwrap() > 100);
    assert_eq!(before["version"].as_str().unwrap().len(), 32);
    let published = galley.configz()["snapshots"]["default"]["publishes"].clone();
    assert_eq!(published, 1);

    // Renaming a file changes nothing that is served.
    fs::rename(
        galley.place.path("config/b.yaml"),
        galley.place.path("config/c.yaml"),
    )
    .unwrap();
    galley.place.write("config/d.yaml", &service("d", [100, 0]));
    galley.counts(SERVICES, 3);
    assert_eq!(galley.names(SERVICES), ["shop/a", "shop/b", "shop/d"]);
    galley.place.remove("config/d.yaml");
    galley.counts(SERVICES, 2);
    assert_eq!(galley.collection(SERVICES), before);
    assert_eq!(
        galley.configz()["snapshots"]["default"]["publishes"],
        published.as_u64().unwrap() + 2
    );
    let collection = "galley_runtime_state_type_instances_total{collection=\"istio/networking/v1alpha3/virtualservices\"}";
    assert_eq!(galley.metric(collection), Some(2.0));
}

/// The last good version is served, and the error shown with file, line, field and message, until it is fixed.
#[test]
fn a_broken_rule_is_shown_and_its_last_good_version_served() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("config/b.yaml", &service("b", [60, 60]))
        .start();
    let message = "weights add up to 120, not 100";
    let rejected = galley.configz()["rejected"].clone();
    let file = |name: &str, line: u32| {
        let path = galley.place.path("config").join(name);
        format!("{}:{line}", path.to_str().unwrap())
    };
    assert_eq!(
        rejected,
        json!([{
            "collection": SERVICES, "name": "shop/b", "origin": file("b.yaml", 8), "state": "refused",
            "errors": [{"path": "spec.http[0].route", "message": message}],
        }])
    );
    assert_eq!(galley.names(SERVICES), ["shop/a"]);
    assert_eq!(galley.logged(&format!("{}: ", file("b.yaml", 8))), 1);
    let before = galley.collection(SERVICES);

    galley.place.write("config/a.yaml", &service("a", [75, 20]));
    until("two that are broken", || {
        let rejected = galley.configz()["rejected"].clone();
        (rejected.as_array().unwrap().len() == 2).then_some(())
    });
    let stale = galley.configz()["rejected"][0].clone();
    assert_eq!(
        (&stale["name"], &stale["state"]),
        (&json!("shop/a"), &json!("stale"))
    );
    assert_eq!(stale["origin"], file("a.yaml", 8));
    assert_eq!(galley.collection(SERVICES), before);
    let (_, page) = galley.look("/debug");
    for text in [
        "Not served as it is written: 2",
        "weights add up to 95, not 100",
        "<code>spec.http[0].route</code>",
        &file("a.yaml", 8),
        "stale",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    for (state, count) in [("stale", 1.0), ("refused", 1.0)] {
        let name =
            format!("gudgeon_config_rejected{{collection=\"{SERVICES}\",state=\"{state}\"}}");
        assert_eq!(galley.metric(&name), Some(count));
    }

    galley.place.write("config/a.yaml", &service("a", [80, 20]));
    galley.place.write("config/b.yaml", &service("b", [60, 40]));
    galley.counts(SERVICES, 2);
    until("nothing that is broken", || {
        (galley.configz()["rejected"] == json!([])).then_some(())
    });
    assert_ne!(galley.collection(SERVICES)["version"], before["version"]);
    assert!(galley.look("/debug").1.contains("Nothing is refused"));
    let (_, metrics) = galley.get("/metrics");
    assert!(!metrics.contains("gudgeon_config_rejected{"), "{metrics}");
}

/// As an editor leaves it half-way.
#[test]
fn a_file_that_cannot_be_read_keeps_its_objects() {
    let both = service("a", [75, 25]) + "---\n" + &service("b", [50, 50]);
    let galley = GalleyPlace::new().with("config/a.yaml", &both).start();
    let before = galley.collection(SERVICES);
    assert_eq!(before["count"], 2);
    galley.place.write("config/a.yaml", "kind: [\n");
    let rejected = until("a file that is broken", || {
        galley.configz()["rejected"].get(0).cloned()
    });
    assert_eq!(
        (
            &rejected["collection"],
            &rejected["name"],
            &rejected["state"]
        ),
        (&json!(""), &json!(""), &json!("stale"))
    );
    let origin = rejected["origin"].as_str().unwrap();
    assert!(origin.contains("/config/a.yaml:"), "{origin}");
    assert_eq!(galley.collection(SERVICES), before);
    galley.place.write("config/a.yaml", &both);
    until("nothing that is broken", || {
        (galley.configz()["rejected"] == json!([])).then_some(())
    });
    assert_eq!(galley.collection(SERVICES), before);
}

/// The directory is removed and comes back: meanwhile nothing changes, and the outage is logged.
#[test]
fn a_directory_that_is_gone_changes_nothing() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .start();
    let before = galley.collection(SERVICES);
    assert_eq!(galley.configz()["source"]["stale_since"], json!(null));
    let (config, aside) = (galley.place.path("config"), galley.place.path("aside"));
    fs::rename(&config, &aside).unwrap();
    let since = until("a stale source", || {
        let since = galley.configz()["source"]["stale_since"].clone();
        since.as_str().map(ToOwned::to_owned)
    });
    assert_eq!(galley.collection(SERVICES), before);
    let ready = format!("stale: files since {since}\n");
    assert_eq!(galley.get("/ready"), (200, ready));
    fs::write(aside.join("b.yaml"), service("b", [50, 50])).unwrap();
    fs::rename(&aside, &config).unwrap();
    galley.counts(SERVICES, 2);
    assert_eq!(galley.configz()["source"]["stale_since"], json!(null));
    assert_eq!(galley.get("/ready"), (200, "ok\n".to_owned()));
}

#[test]
fn without_a_watch_it_reads_when_it_is_asked_to() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .arg("--watchConfigFiles=false")
        .mesh("enableTracing: true\n")
        .start();
    galley.place.write("config/b.yaml", &service("b", [50, 50]));
    galley.place.write("mesh", "enableTracing: false\n");
    // Long after a watch would have fired: the absence of an event cannot be awaited.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(galley.collection(SERVICES)["count"], 1);
    assert_eq!(galley.configz()["session"]["id"], 1);
    galley.signal("USR1");
    galley.counts(SERVICES, 2);
    until("a new session", || {
        (galley.configz()["session"]["id"] == 2).then_some(())
    });
}

/// A fault of an Ingress is found as that of any rule: by its file and line, in the log and in the document, and where the
/// Ingress has moved, there.
#[test]
fn findings_of_an_ingress_name_the_unserved_field() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: door, namespace: shop}\n\
                   spec:\n  ingressClassName: istio\n  defaultBackend: {service: {name: web, port: {number: 80}}}\n  tls:\n";
    // So many certificates do not fit into the Gateway.
    let ingress = ingress.to_owned() + &"  - {}\n".repeat(10_000);
    let galley = GalleyPlace::new()
        .with("config/door.yaml", &format!("---\n# words\n{ingress}"))
        .start();
    let place = |line: usize| format!("{}/door.yaml:{line}", galley.place.path("config").display());
    let warned = || {
        let document = galley.configz();
        let rejected = document["rejected"].as_array().unwrap();
        assert!(rejected.is_empty(), "{rejected:?}");
        let one = &document["warnings"][0];
        format!(
            "{} {}",
            one["origin"].as_str().unwrap(),
            one["name"].as_str().unwrap()
        )
    };
    let all = |line: usize| format!("{} shop/door", place(line));
    assert_eq!(warned(), all(3));
    for word in [
        "Ingress shop/door: warning: spec.defaultBackend: a default backend is not served",
        "Ingress shop/door: warning: spec.tls[",
    ] {
        assert_eq!(galley.logged(&format!("{}: {word}", place(3))), 1, "{word}");
    }
    galley.place.write(
        "config/door.yaml",
        &format!("---\n# more\n# words\n{ingress}"),
    );
    until("its new place", || (warned() == all(4)).then_some(()));
}

#[test]
fn services_and_ingresses_of_files_are_made_into_rules() {
    let cluster = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec:\n  clusterIP: 10.0.0.1\n  \
                   ports: [{name: http, port: 80}]\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                   metadata: {name: door, namespace: shop}\nspec:\n  ingressClassName: istio\n  rules:\n  \
                   - host: a.example\n    http:\n      paths:\n      - path: /\n        pathType: Prefix\n        \
                   backend: {service: {name: web, port: {name: http}}}\n";
    let galley = GalleyPlace::new()
        .with("config/cluster.yaml", cluster)
        .arg("--enableServiceDiscovery")
        .mesh("")
        .start();
    let synthetic = "istio/networking/v1alpha3/synthetic/serviceentries";
    assert_eq!(galley.names(synthetic), ["shop/web"]);
    assert_eq!(
        galley.names(SERVICES),
        ["istio-system/a-example-door-istio-autogenerated-k8s-ingress"]
    );
    let gateways = "istio/networking/v1alpha3/gateways";
    assert_eq!(
        galley.names(gateways),
        ["istio-system/door-istio-autogenerated-k8s-ingress"]
    );
    let document = galley.document(&format!("/debug/configz?collection={SERVICES}"));
    assert_eq!(document["resources"][0]["effect"], "enforced");
    let route = &document["resources"][0]["body"]["http"][0]["route"][0];
    assert_eq!(route["destination"]["port"]["number"], 80);
    // The ingress class depends on the mesh configuration.
    galley
        .place
        .write("mesh", "ingressControllerMode: \"OFF\"\n");
    galley.counts(gateways, 0);
    galley.counts(SERVICES, 0);
    galley.counts(synthetic, 1);
}
