//! The webhook of the built program: reviews over TLS, codes, certificates that come late and that change.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::place::{Galley, GalleyPlace, until};
use crate::support::{Client, JSON, client_config, kubelet, pair};

/// With a certificate, and a free port for the webhook.
pub fn place() -> GalleyPlace {
    let (chain, key) = pair();
    let place = GalleyPlace::new()
        .with("chain.pem", &chain)
        .with("key.pem", &key)
        .arg("--validation-port=0");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (chain, key) = (path("chain.pem"), path("key.pem"));
    place
        .arg("--tlsCertFile")
        .arg(&chain)
        .arg("--tlsKeyFile")
        .arg(&key)
}

pub fn address(galley: &Galley) -> SocketAddr {
    let port = until("its port", || {
        let log = galley.log();
        let parts = log
            .iter()
            .find_map(|line| line.split_once("validation on https://"));
        parts?.1.rsplit(':').next()?.parse().ok()
    });
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

pub fn trust(galley: &Galley) -> String {
    std::fs::read_to_string(galley.place.path("chain.pem")).unwrap()
}

fn client(galley: &Galley) -> Client {
    Client::connect(address(galley), &trust(galley))
}

pub fn service(weight: u32) -> Value {
    json!({"apiVersion": "networking.istio.io/v1alpha3", "kind": "VirtualService", "metadata": {"name": "web"}, "spec": {
        "hosts": ["web"], "http": [{"route": [
            {"destination": {"host": "a"}, "weight": 75}, {"destination": {"host": "b"}, "weight": weight}]}]}})
}

pub fn review(version: &str, object: &Value) -> Vec<u8> {
    json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "request": {
        "uid": "u-7", "operation": "CREATE", "namespace": "shop", "dryRun": false,
        "kind": {"group": "networking.istio.io", "version": "v1alpha3", "kind": "VirtualService"},
        "resource": {"group": "networking.istio.io", "version": "v1alpha3", "resource": "virtualservices"},
        "object": object, "oldObject": null, "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}}})
    .to_string()
    .into_bytes()
}

#[test]
fn reviews_of_both_versions() {
    let galley = place().start();
    let mut client = client(&galley);
    for version in ["v1", "v1beta1"] {
        let mut ask = |path: &str, weight: u32| {
            let body = review(version, &service(weight));
            let answer = client.request("POST", path, JSON, &body).unwrap();
            assert_eq!(answer.status, 200);
            let answer = answer.json();
            assert_eq!(answer["apiVersion"], format!("admission.k8s.io/{version}"));
            assert_eq!(answer["response"]["uid"], "u-7");
            answer["response"].clone()
        };
        let allowed = json!({"uid": "u-7", "allowed": true});
        assert_eq!(ask("/validate?timeout=10s", 25), allowed);
        assert_eq!(ask("/admitpilot?timeout=10s", 25)["allowed"], true);
        let denied = ask("/admitpilot", 20);
        assert_eq!(denied["status"]["code"], 422);
        assert_eq!(
            denied["status"]["details"]["causes"],
            json!([{"reason": "FieldValueInvalid", "field": "spec.http[0].route", "message": "weights add up to 95, not 100"}])
        );
        let elsewhere = ask("/admitmixer", 25);
        assert_eq!(elsewhere["status"]["code"], 400, "{elsewhere}");
    }
    let of = "group=\"networking.istio.io\",version=\"v1alpha3\",resource=\"virtualservices\"";
    let counted = |name: &str, more: &str| galley.metric(&format!("{name}{{{of}{more}}}"));
    assert_eq!(counted("galley_validation_passed", ""), Some(4.0));
    assert_eq!(
        counted("galley_validation_failed", ",reason=\"invalid_resource\""),
        Some(2.0)
    );
    assert_eq!(
        counted("galley_validation_failed", ",reason=\"unknown_type\""),
        Some(2.0)
    );
    assert_eq!(
        galley.metric("gudgeon_galley_validation_seconds_count"),
        Some(8.0)
    );
    let decisions = galley.configz()["webhook"]["decisions"].clone();
    assert_eq!(decisions.as_array().unwrap().len(), 8);
    assert_eq!(decisions[1]["namespace"], "shop");
    assert_eq!(
        decisions[1]["message"],
        "configuration is invalid: spec.http[0].route: weights add up to 95, not 100"
    );
    assert_eq!(galley.configz()["webhook"]["configuration"], Value::Null);
    let (status, page) = galley.look("/debug");
    assert_eq!(status, 200);
    assert!(page.contains("weights add up to 95, not 100"), "{page}");
}

#[test]
fn codes_over_tls() {
    let galley = place().start();
    for (method, path, kind, body, status) in [
        ("GET", "/ready", "", &b""[..], 200),
        ("GET", "/httpsReady", "", b"", 200),
        ("GET", "/validate", "", b"", 405),
        ("GET", "/other", "", b"", 404),
        ("POST", "/validate", "application/json", b"", 400),
        ("POST", "/validate", "text/plain", b"{}", 415),
        (
            "POST",
            "/validate",
            "application/json; charset=utf-8",
            b"{}",
            200,
        ),
    ] {
        let mut client = client(&galley);
        let headers: &[(&str, &str)] = match kind {
            "" => &[],
            kind => &[("Content-Type", kind)],
        };
        let answer = client.request(method, path, headers, body).unwrap();
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let mut client = client(&galley);
    let headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", "8388609"),
    ];
    let answer = client.request("POST", "/validate", &headers, b"").unwrap();
    assert_eq!(answer.status, 413);
    assert_eq!(
        galley.metric("galley_validation_http_error{status=\"413\"}"),
        Some(1.0)
    );
}

#[test]
fn a_certificate_that_comes_late_is_looked_for() {
    let place = GalleyPlace::new()
        .arg("--validation-port=0")
        .arg("--enable-validation");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (chain, key) = (path("chain.pem"), path("key.pem"));
    let place = place
        .arg("--validation.tls.clientCertificate")
        .arg(&chain)
        .arg("--validation.tls.privateKey")
        .arg(&key);
    let galley = place.begin();
    let message = format!(
        "the webhook has no certificate: cannot use --validation.tls.clientCertificate {chain}: "
    );
    until("the reason", || {
        let (status, why) = galley.get("/ready");
        assert_eq!(status, 503, "{why}");
        why.contains(&message).then_some(())
    });
    let (chain, key) = pair();
    let config = || client_config(&chain, &[]);
    assert!(Client::try_connect(address(&galley), config()).is_err());
    galley.place.write("chain.pem", &chain);
    galley.place.write("key.pem", &key);
    until("readiness", || {
        (galley.get("/ready").0 == 200).then_some(())
    });
    let mut client = Client::try_connect(address(&galley), config()).unwrap();
    assert_eq!(
        client.request("GET", "/ready", &[], b"").unwrap().status,
        200
    );
}

#[test]
fn a_pair_is_exchanged_as_kubelet_does_it() {
    let place = place();
    let (chain, key) = pair();
    kubelet(
        place.root.path(),
        0,
        &[("chain.pem", &chain), ("key.pem", &key)],
    );
    let galley = place.start();
    let mut established = client(&galley);
    let first = established.leaf();
    let mut ask = || {
        let body = review("v1", &service(25));
        established
            .request("POST", "/validate", JSON, &body)
            .unwrap()
            .status
    };
    assert_eq!(ask(), 200);
    let (chain, key) = pair();
    kubelet(
        galley.place.root.path(),
        1,
        &[("chain.pem", &chain), ("key.pem", &key)],
    );
    until("the new one", || {
        let config = client_config(&chain, &[]);
        Client::try_connect(address(&galley), config)
            .ok()
            .filter(|client| client.leaf() != first)
    });
    assert_eq!(ask(), 200, "a connection that stands has its own");
    assert_eq!(
        galley.metric("galley_validation_cert_key_updates"),
        Some(2.0)
    );
    // A chain whose key has not come is not taken.
    let (other, _) = pair();
    kubelet(
        galley.place.root.path(),
        2,
        &[("chain.pem", &other), ("key.pem", &key)],
    );
    // As long as it takes to be seen, and longer.
    std::thread::sleep(std::time::Duration::from_millis(600));
    let client = Client::try_connect(address(&galley), client_config(&chain, &[]));
    assert!(client.is_ok(), "the old one is served");
    assert_eq!(galley.get("/ready").0, 200);
    assert_eq!(ask(), 200);
}

#[test]
fn a_certificate_of_its_own() {
    let galley = GalleyPlace::new()
        .arg("--validation-port=0")
        .arg("--selfSigned")
        .start();
    let (stranger, _) = pair();
    let refused = Client::try_connect(address(&galley), client_config(&stranger, &[]));
    let cause = refused.err().unwrap().to_string();
    assert!(cause.contains("UnknownIssuer"), "{cause}");
    assert_eq!(
        galley.metric("galley_validation_cert_key_updates"),
        Some(1.0)
    );
}

#[test]
fn a_file_that_is_no_webhook_configuration_ends_with_78() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file.yaml");
    let kubeconfig = root.path().join("kubeconfig");
    std::fs::write(&kubeconfig, "{}").unwrap();
    for (text, message) in [
        (
            Some("kind: Deployment\napiVersion: apps/v1\n"),
            "\"Deployment\"",
        ),
        (Some("a: [\n"), "line "),
        (None, "No such file"),
    ] {
        let _absent = std::fs::remove_file(&file);
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let path = file.to_str().unwrap();
        let ended = crate::place::run(&[
            "galley",
            "--enable-server=false",
            "--selfSigned",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--validation-webhook-config-file",
            path,
            "--validation-port=0",
            "--monitoringPort=0",
            "--ctrlz_port=0",
            "--livenessProbePath=",
            "--readinessProbePath=",
        ]);
        let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert_eq!(ended.status.code(), Some(78), "{output}");
        let line = format!("cannot use --validation-webhook-config-file {path}: ");
        assert!(
            output.contains(&line) && output.contains(message),
            "{output}"
        );
    }
}
