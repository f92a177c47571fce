//! The mesh configuration: missing, invalid, changed. No sink sees an empty collection meanwhile.

use serde_json::json;

use crate::place::{GalleyPlace, SERVICES, run, service, until};

const MESH: &str = "istio/mesh/v1alpha1/MeshConfig";

#[test]
fn a_mesh_configuration_that_changes_is_a_new_session() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .mesh("trustDomain: one\n")
        .start();
    let trust = || {
        let document = galley.document(&format!("/debug/configz?collection={MESH}"));
        let resource = &document["resources"][0];
        assert_eq!(resource["metadata"]["name"], "istio-system/meshconfig");
        resource["body"]["trustDomain"].clone()
    };
    assert_eq!(trust(), "one");
    let session = galley.configz()["session"].clone();
    assert_eq!(
        (&session["id"], &session["state"], &session["buffered"]),
        (&json!(1), &json!("processing"), &json!(0))
    );
    let before = galley.collection(SERVICES);
    galley.place.write("mesh", "trustDomain: two\n");
    // At any time the old objects are served.
    let files = |metric: &str| galley.metric(&format!("gudgeon_config_{metric}"));
    let is_valid = || files("valid{file=\"meshConfigFile\"}");
    let reloads = |result: &str| {
        files(&format!(
            "reloads_total{{file=\"meshConfigFile\",result=\"{result}\"}}"
        ))
    };
    until("another mesh configuration", || {
        assert_eq!(galley.collection(SERVICES), before);
        assert_eq!(galley.get("/ready").0, 200);
        (trust() == "two").then_some(())
    });
    assert_eq!(galley.configz()["session"]["id"], 2);

    // An invalid mesh configuration changes nothing, and is logged once.
    galley.place.write("mesh", "trustDomain: [\n");
    until("a complaint", || {
        (galley.logged("the last good content") > 0).then_some(())
    });
    galley
        .place
        .write("mesh", "trustDomain: two\nconnectTimeout: x\n");
    until("another", || {
        (galley.logged("connectTimeout") > 0).then_some(())
    });
    until("their metrics", || {
        (reloads("broken") == Some(2.0)).then_some(())
    });
    assert_eq!((is_valid(), reloads("ok")), (Some(0.0), Some(2.0)));
    let page = galley.look("/debug").1;
    assert!(page.contains("the last good content is in use"), "{page}");
    galley.place.remove("mesh");
    until("a third", || {
        (galley.logged("the last good content") > 2).then_some(())
    });
    assert_eq!(
        (trust(), galley.configz()["session"]["id"].clone()),
        (json!("two"), json!(2))
    );
    galley.place.write("mesh", "trustDomain: three\n");
    until("a mended one", || (trust() == "three").then_some(()));
    until("its metric", || (is_valid() == Some(1.0)).then_some(()));
    assert_eq!(galley.collection(SERVICES), before);
    assert_eq!(
        galley.metric("gudgeon_galley_session{state=\"processing\"}"),
        Some(1.0)
    );
    assert_eq!(
        galley.metric("gudgeon_galley_session{state=\"buffering\"}"),
        Some(0.0)
    );
}

#[test]
fn at_the_start_it_may_be_absent_but_not_where_a_flag_names_it() {
    let place = GalleyPlace::new();
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let config = path("config");
    let mesh = path("mesh");
    let start = || {
        run(&[
            "galley",
            "--configPath",
            &config,
            "--meshConfigFile",
            &mesh,
            "--monitoringPort=0",
            "--insecure",
            "--server-address=tcp://127.0.0.1:0",
            "--ctrlz_port=0",
            "--livenessProbePath=",
            "--readinessProbePath=",
        ])
    };
    let ended = start();
    assert_eq!(ended.status.code(), Some(78));
    let stdout = String::from_utf8(ended.stdout).unwrap();
    assert!(
        stdout.contains(&format!("cannot read --meshConfigFile {mesh}")),
        "{stdout}"
    );
    place.write("mesh", "connectTimeout: soon\n");
    let ended = start();
    assert_eq!(ended.status.code(), Some(78));
    let stdout = String::from_utf8(ended.stdout).unwrap();
    assert!(
        stdout.contains(&format!("cannot use --meshConfigFile {mesh}")),
        "{stdout}"
    );
    assert!(stdout.contains("connectTimeout"), "{stdout}");
    // This machine has no file at the default path.
    let galley = GalleyPlace::new().start();
    assert_eq!(
        galley.logged("no mesh configuration at /etc/mesh-config/mesh"),
        1
    );
    let document = galley.document(&format!("/debug/configz?collection={MESH}"));
    let body = &document["resources"][0]["body"];
    for (field, value) in [
        ("proxyListenPort", json!(15001)),
        ("connectTimeout", json!("1s")),
        ("ingressService", json!("istio-ingressgateway")),
        ("ingressClass", json!("istio")),
        ("ingressControllerMode", json!("STRICT")),
        ("enableTracing", json!(true)),
        ("rootNamespace", json!("istio-system")),
        ("defaultServiceExportTo", json!(["*"])),
        ("dnsRefreshRate", json!("5s")),
        ("protocolDetectionTimeout", json!("0.100s")),
        ("trustDomain", json!("cluster.local")),
    ] {
        assert_eq!(body[field], value, "{field}");
    }
    assert_eq!(body["accessLogFile"], json!(null));
    assert_eq!(
        body["defaultConfig"]["discoveryAddress"],
        "istio-pilot:15010"
    );
}
