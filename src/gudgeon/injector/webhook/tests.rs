//! The webhook with an engine that panics, and what its paths and types say.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use inject::{Broken, Parameters, Sources};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::super::files::{Files, Wanted};
use super::*;
use crate::serve::{self, Door, Stage};
use crate::tracked::Named;

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

impl Engine for Fragile {
    fn load(_: Sources<'_>, _: &Parameters) -> Result<(Self, Vec<String>), Broken> {
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

/// A webhook on a plain port: what panics is above TLS.
async fn fragile() -> (
    Arc<Webhook<Fragile>>,
    std::net::SocketAddr,
    watch::Sender<Stage>,
) {
    let metrics = Arc::new(Metrics::new(SystemTime::now()));
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("config");
    std::fs::write(&path, "x").unwrap();
    let wanted = Wanted {
        config: Some(Named {
            flag: "injectConfig",
            path,
        }),
        ..Wanted::default()
    };
    let files = Files::<Fragile>::open(wanted, Arc::clone(&metrics))
        .await
        .unwrap();
    let health = Arc::new(Health::default());
    let webhook = Webhook::new(files.served(), metrics, health, NativeSidecars::Off);
    let webhook = Arc::new(webhook);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, stage) = watch::channel(Stage::Serving);
    let door = Door {
        listener,
        tls: None,
        places: 8,
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
    let text = webhook.metrics.text();
    for line in [
        "gudgeon_panics_total 2",
        "sidecar_injection_requests_total 4",
        "sidecar_injection_skip_total 2",
        "sidecar_injection_failure_total 2",
        "gudgeon_injector_decisions_total{decision=\"failed\",reason=\"panic\"} 2",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
}
