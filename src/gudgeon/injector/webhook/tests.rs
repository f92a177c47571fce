//! The webhook with an engine that panics, and responses by path and content type.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use inject::{ConfigurationError, Parameters, Sources};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::super::files::{Files, WantedFiles};
use super::*;
use crate::config_file::FlaggedFile;
use crate::exposition::ExpositionFormat;
use crate::serve::{self, Listener, Shutdown, ShutdownStage};

#[test]
fn pairs_of_a_path() {
    let own = |list: &[(&str, &str)]| {
        list.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect::<Vec<_>>()
    };
    for (path, found) in [
        ("/inject", &[][..]),
        ("/inject/", &[]),
        ("/inject/cluster", &[]),
        (
            "/inject/cluster/c1/net/n1/foo",
            &[("cluster", "c1"), ("net", "n1")],
        ),
        ("/inject/cluster/a%20b%2", &[("cluster", "a b%2")]),
        ("/inject//x/net/a--slash--b", &[("net", "a/b")]),
        ("/inject/cluster/", &[]),
        ("/inject/cluster/c1/", &[("cluster", "c1")]),
        ("/inject/net/%ff", &[("net", "%ff")]),
    ] {
        assert_eq!(pairs(path), own(found), "{path}");
    }
}

/// Panics for pods that are named so.
#[derive(Debug)]
struct Fragile;

impl ActiveConfiguration for Fragile {
    fn load(_: Sources<'_>, _: &Parameters) -> Result<(Self, Vec<String>), ConfigurationError> {
        Ok((Self, Vec::new()))
    }

    fn inject(&self, _: &inject::Request, pod: &Value) -> Outcome {
        assert_ne!(pod["metadata"]["name"], "panic", "as it was asked to");
        Outcome::Skipped {
            reason: "policy",
            warnings: Vec::new(),
        }
    }

    fn describe(&self) -> Value {
        Value::Null
    }
}

/// A webhook with a configuration.
async fn webhook<E: ActiveConfiguration>(config: &str) -> Arc<Webhook<E>> {
    let metrics = Arc::new(InjectorMetrics::new(SystemTime::now()));
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("config");
    std::fs::write(&path, config).unwrap();
    let wanted = WantedFiles {
        config: Some(FlaggedFile {
            flag: "injectConfig",
            path,
        }),
        ..WantedFiles::default()
    };
    let files = Files::<E>::open(wanted, Arc::clone(&metrics))
        .await
        .unwrap();
    let readiness = Arc::new(InjectorReadiness::default());
    let webhook = Webhook::new(files.served(), metrics, readiness, NativeSidecars::Off);
    Arc::new(webhook)
}

/// The same on a plain port: what panics is above TLS.
async fn fragile() -> (
    Arc<Webhook<Fragile>>,
    std::net::SocketAddr,
    watch::Sender<ShutdownStage>,
) {
    let webhook = webhook("x").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, stage) = Shutdown::channel();
    let door = Listener {
        listener,
        tls: None,
        max_connections: 8,
    };
    tokio::spawn(serve::run(door, Arc::clone(&webhook), stage));
    (webhook, address, sender)
}

#[tokio::test]
async fn a_panic_ends_its_request_and_is_counted() {
    let (webhook, address, _stage) = fragile().await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for (name, status) in [("web", 200), ("panic", 500), ("web", 200), ("panic", 500)] {
        let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u", "object": {"metadata": {"name": name}}}});
        let request = Request::post("/inject")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(review.to_string())))
            .unwrap();
        sender.ready().await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(10), sender.send_request(request));
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status(), status, "over the same connection");
        answer.into_body().collect().await.unwrap();
    }
    let text = webhook.metrics.text(ExpositionFormat::Text);
    for line in [
        "sidecar_injection_requests_total 4",
        "sidecar_injection_skip_total 2",
        "sidecar_injection_failure_total 2",
        "gudgeon_injector_decisions_total{decision=\"failed\",reason=\"panic\"} 2",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
}

/// Returns the newest decision of the page, and the patch of the response.
fn decided(webhook: &Webhook<inject::Configuration>, pod: &Value) -> (Value, Vec<u8>) {
    let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "namespace": "ns", "object": pod}});
    let answer = webhook
        .decide("/inject", review.to_string().into(), Instant::now())
        .answer;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let patch = answer["response"]["patch"].as_str().unwrap_or_default();
    let decisions = webhook.decisions.lock().unwrap();
    let decision = decisions.newest().next().unwrap().json();
    (decision, STANDARD.decode(patch).unwrap())
}

/// Two templates, of which the first has an unknown field.
const TEMPLATES: &str = r##"
defaultTemplates: [sidecar, more]
templates:
  sidecar: |
    spec: {future: 1, containers: [{name: istio-proxy, image: p, nosuch: 2}]}
  more: |
    {{ if eq .ObjectMeta.Name "fails" }}{{ fail "as it was asked to" }}{{ end }}
    metadata: {labels: {more: "yes"}}
  empty: "# nothing"
"##;

fn owned(name: &str, metadata: Value) -> Value {
    let mut pod = serde_json::json!({"metadata": {"name": name, "generateName": "web-7d9-", "labels": {"pod-template-hash": "7d9"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9", "controller": true}]},
        "spec": {"containers": [{"name": "web"}]}});
    if let Value::Object(more) = metadata {
        pod["metadata"].as_object_mut().unwrap().extend(more);
    }
    pod
}

#[tokio::test]
async fn every_decision_shows_whose_pod_it_was_and_what_it_got() {
    let webhook = webhook::<inject::Configuration>(TEMPLATES).await;
    let pod = |name, metadata| owned(name, metadata);
    let annotated = |key: &str, value: &str| serde_json::json!({"annotations": {key: value}});
    let (injected, patch) = decided(&webhook, &pod("web", Value::Null));
    let version = injected["version"].as_str().unwrap().to_owned();
    assert_eq!(version.len(), 64);
    let operations: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    assert!(!operations.is_empty());
    let mut again = pod("web", Value::Null);
    json_patch::patch(&mut again, &operations).unwrap();
    let both = serde_json::json!(["sidecar", "more"]);
    let none = serde_json::json!([]);
    let rows = [
        (pod("web", Value::Null), "injected", "policy", &both, true),
        (again, "skipped", "unchanged", &both, true),
        (pod("fails", Value::Null), "failed", "template", &both, true),
        (
            pod("web", annotated("sidecar.istio.io/inject", "false")),
            "skipped",
            "annotation",
            &none,
            false,
        ),
        (
            pod("web", annotated("sidecar.istio.io/interceptionMode", "x")),
            "failed",
            "bad request",
            &none,
            false,
        ),
    ];
    for (pod, verdict, reason, templates, versioned) in rows {
        let (decision, patch) = decided(&webhook, &pod);
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert_eq!(decision["decision"], verdict, "{decision}");
        assert_eq!(decision["reason"], reason, "{decision}");
        assert_eq!(decision["name"], name, "{decision}");
        assert_eq!(decision["owner"], "Deployment web", "{decision}");
        assert_eq!(&decision["templates"], templates, "{decision}");
        let wanted = if versioned { version.as_str() } else { "" };
        assert_eq!(decision["version"], wanted, "{decision}");
        assert_eq!(decision["bytes"], patch.len(), "{decision}");
        let count = if verdict == "injected" {
            operations.len()
        } else {
            0
        };
        assert_eq!(decision["operations"], count, "{decision}");
    }
    let empty = pod("web", annotated("inject.istio.io/templates", "empty"));
    let (decision, _) = decided(&webhook, &empty);
    assert_eq!(decision["reason"], "empty template");
    assert_eq!(decision["templates"], serde_json::json!(["empty"]));
    assert_eq!(decision["version"].as_str().unwrap().len(), 64);
    // The server generates the pod's name, and it has no owner.
    let bare =
        serde_json::json!({"metadata": {"generateName": "web-"}, "spec": {"hostNetwork": true}});
    assert_eq!(decided(&webhook, &bare).0["owner"], "Pod");
    // An object that is no pod has no owner.
    assert_eq!(decided(&webhook, &serde_json::json!([])).0["owner"], "");
}

#[tokio::test]
async fn pruned_fields_are_counted_whatever_was_decided() {
    let webhook = webhook::<inject::Configuration>(TEMPLATES).await;
    let counted = |wanted: u64| {
        let text = webhook.metrics.text(ExpositionFormat::Text);
        let line = format!("gudgeon_injector_pruned_fields_total {wanted}\n");
        assert!(text.contains(&line), "{line}{text}");
    };
    counted(0);
    let mut pod = owned("web", Value::Null);
    let (_, patch) = decided(&webhook, &pod);
    counted(2);
    let operations: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut pod, &operations).unwrap();
    let (unchanged, _) = decided(&webhook, &pod);
    assert_eq!(unchanged["reason"], "unchanged");
    assert_eq!(unchanged["warnings"].as_array().unwrap().len(), 2);
    counted(4);
}

/// The warning about the namespace used to be one more.
#[tokio::test]
async fn a_response_carries_sixteen_warnings_at_most() {
    let webhook = webhook::<inject::Configuration>("policy: enabled").await;
    let (_writer, reader) = sources::kubernetes::store();
    webhook.namespaces.read(reader);
    let containers = (0..20).map(|at| {
        serde_json::json!({"name": format!("c{at}"), "livenessProbe": {"httpGet": {"port": "nosuch"}}})
    });
    let containers: Vec<Value> = containers.collect();
    let (decision, _) = decided(
        &webhook,
        &serde_json::json!({"spec": {"containers": containers}}),
    );
    let warnings = decision["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), inject::MAX_WARNINGS);
    let first = warnings[0].as_str().unwrap();
    assert!(first.starts_with("namespace ns is not known"), "{first}");
}
