//! The four entries that ship: which pod in which namespace goes to which, as the API server sees it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{apply, manifest, run, try_kubectl, until};

/// Namespace, pod and entry of each question.
type Asked = Arc<Mutex<Vec<(String, String, String)>>>;

/// A webhook that allows everything, and records the requests.
async fn webhook(asked: Asked) -> u16 {
    let chain = CertificateDer::pem_file_iter(run().join("webhook.crt"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_file(run().join("webhook.key")).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (acceptor, asked) = (acceptor.clone(), Arc::clone(&asked));
            tokio::spawn(async move {
                let connection = acceptor.accept(connection).await.ok()?;
                let service = service_fn(move |request| answer(request, Arc::clone(&asked)));
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(connection), service)
                    .await
                    .ok()
            });
        }
    });
    port
}

async fn answer(
    request: Request<Incoming>,
    asked: Asked,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let entry = request.uri().path().trim_start_matches('/').to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let text_at = |path: &str| {
        review
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap()
            .to_owned()
    };
    asked.lock().unwrap().push((
        text_at("/request/namespace"),
        text_at("/request/object/metadata/name"),
        entry,
    ));
    let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], "allowed": true}});
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    Ok(response)
}

/// The entries that ship, with another one behind them.
fn entries(port: u16) -> Value {
    let text = try_kubectl(
        &["create", "--dry-run=client", "-o", "json", "-f", "-"],
        &manifest(),
    )
    .unwrap();
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let mut configuration = objects
        .map(Result::unwrap)
        .find(|object| object["kind"] == "MutatingWebhookConfiguration")
        .unwrap();
    configuration["metadata"] = json!({"name": "selectors"});
    let ca = std::fs::read(run().join("ca.crt")).unwrap();
    for entry in configuration["webhooks"].as_array_mut().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let short = name.strip_suffix(".sidecar-injector.istio.io").unwrap();
        let url = format!("https://127.0.0.1:{port}/{short}");
        entry["clientConfig"] =
            json!({"url": url, "caBundle": k8s_openapi::ByteString(ca.clone())});
    }
    configuration
}

type Labels = &'static [(&'static str, &'static str)];

const PODS: [(&str, Labels); 7] = [
    ("plain", &[]),
    ("yes", &[("sidecar.istio.io/inject", "true")]),
    ("no", &[("sidecar.istio.io/inject", "false")]),
    ("rev", &[("istio.io/rev", "default")]),
    (
        "rev-yes",
        &[
            ("istio.io/rev", "default"),
            ("sidecar.istio.io/inject", "true"),
        ],
    ),
    (
        "rev-no",
        &[
            ("istio.io/rev", "default"),
            ("sidecar.istio.io/inject", "false"),
        ],
    ),
    (
        "canary-yes",
        &[
            ("istio.io/rev", "canary"),
            ("sidecar.istio.io/inject", "true"),
        ],
    ),
];

const NONE: [&str; 7] = [""; 7];
/// A namespace's labels, and the entry that each of the pods goes to.
const NAMESPACES: [(&str, Labels, [&str; 7]); 8] = [
    (
        "sel-plain",
        &[],
        ["", "object", "", "rev.object", "rev.object", "", ""],
    ),
    (
        "sel-enabled",
        &[("istio-injection", "enabled")],
        [
            "namespace",
            "namespace",
            "",
            "namespace",
            "namespace",
            "",
            "namespace",
        ],
    ),
    ("sel-disabled", &[("istio-injection", "disabled")], NONE),
    (
        "sel-rev",
        &[("istio.io/rev", "default")],
        [
            "rev.namespace",
            "rev.namespace",
            "",
            "rev.namespace",
            "rev.namespace",
            "",
            "rev.namespace",
        ],
    ),
    ("sel-canary", &[("istio.io/rev", "canary")], NONE),
    (
        "sel-both",
        &[("istio-injection", "enabled"), ("istio.io/rev", "default")],
        [
            "namespace",
            "namespace",
            "",
            "namespace",
            "namespace",
            "",
            "namespace",
        ],
    ),
    // 1.20 does not give namespaces their name as a label: here it is given.
    (
        "sel-system",
        &[
            ("istio-injection", "enabled"),
            ("kubernetes.io/metadata.name", "kube-system"),
        ],
        NONE,
    ),
    (
        "sel-own",
        &[("kubernetes.io/metadata.name", "istio-system")],
        NONE,
    ),
];

fn labels(labels: &[(&str, &str)]) -> Value {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn create(namespace: &str) -> Result<String, String> {
    let pods: Vec<Value> = PODS
        .iter()
        .map(|(name, of_pod)| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": labels(of_pod)},
                "spec": {"containers": [{"name": "c", "image": "i"}]}})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    try_kubectl(
        &["create", "--dry-run=server", "-f", "-"],
        &list.to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes an API server: build/kube-test"]
async fn each_pod_goes_to_one_entry_at_most() {
    let asked = Asked::default();
    let port = webhook(Arc::clone(&asked)).await;
    for (name, of_namespace, _) in NAMESPACES {
        apply(&json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels(of_namespace)}}));
    }
    apply(&entries(port));
    // The server takes a moment to know it.
    until("it is asked", || {
        create("sel-enabled").unwrap();
        !asked.lock().unwrap().is_empty()
    })
    .await;
    asked.lock().unwrap().clear();
    for (namespace, _, _) in NAMESPACES {
        create(namespace).unwrap();
    }
    let asked = asked.lock().unwrap().clone();
    for (namespace, _, expected) in NAMESPACES {
        for ((pod, _), expected) in PODS.iter().zip(expected) {
            let entries: Vec<&str> = asked
                .iter()
                .filter(|(at, name, _)| at == namespace && name == pod)
                .map(|(_, _, entry)| entry.as_str())
                .collect();
            let expected: &[&str] = if expected.is_empty() {
                &[]
            } else {
                &[expected]
            };
            assert_eq!(entries, expected, "{namespace}/{pod}");
        }
    }
    try_kubectl(&["delete", "mutatingwebhookconfiguration", "selectors"], "").unwrap();
}
