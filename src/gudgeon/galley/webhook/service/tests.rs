//! The service on a plain port: what is above TLS.

use std::net::SocketAddr;
use std::time::Duration;

use api::config::{Finding, Object};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::serve::{self, Door, Stage};

const JSON: &str = "application/json";

struct Served {
    reviews: Arc<Reviews>,
    registry: Registry,
    address: SocketAddr,
    _stage: watch::Sender<Stage>,
}

type Sender = http1::SendRequest<Full<Bytes>>;

impl Served {
    async fn new(check: Check) -> Self {
        Self::with(check, None).await
    }

    async fn with(check: Check, desks: Option<Arc<Desks>>) -> Self {
        let mut registry = Registry::default();
        let all = Arc::new(All::new(&mut registry));
        let metrics = Metrics::new(&mut registry);
        let mut reviews = Reviews::new(check, metrics, all);
        reviews.desks = desks.unwrap_or(reviews.desks);
        let reviews = Arc::new(reviews);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, stage) = watch::channel(Stage::Serving);
        let door = Door {
            listener,
            tls: None,
            places: 40,
        };
        tokio::spawn(serve::run(door, Arc::clone(&reviews), stage));
        Self {
            reviews,
            registry,
            address,
            _stage: sender,
        }
    }

    async fn connect(&self) -> Sender {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

async fn ask(
    sender: &mut Sender,
    method: &str,
    path: &str,
    kind: &str,
    body: Vec<u8>,
) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path);
    if !kind.is_empty() {
        request = request.header("content-type", kind);
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    sender.ready().await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(10), sender.send_request(request));
    let answer = answer.await.unwrap().unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn review(name: &str) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "web",
        "resource": {"group": "networking.istio.io", "version": "v1", "resource": "sidecars"},
        "object": {"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": name},
            "spec": {"egress": [{"hosts": ["./*"]}]}}}})
    .to_string()
    .into_bytes()
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "it is a table")]
async fn paths_methods_types_and_sizes() {
    let served = Served::new(api::config::check).await;
    let utf8 = "application/json; charset=utf-8";
    for (method, path, kind, body, status, words) in [
        (
            "POST",
            "/validate",
            JSON,
            review("a"),
            200,
            "\"allowed\":true",
        ),
        (
            "POST",
            "/validate?timeout=10s",
            utf8,
            review("a"),
            200,
            "\"allowed\":true",
        ),
        (
            "POST",
            "/admitpilot?timeout=10s",
            JSON,
            review("a"),
            200,
            "\"allowed\":true",
        ),
        (
            "POST",
            "/admitmixer",
            JSON,
            review("a"),
            200,
            "unrecognized type networking.istio.io/v1 Sidecar",
        ),
        ("POST", "/validate", JSON, Vec::new(), 400, "no body found"),
        (
            "POST",
            "/validate",
            "text/plain",
            review("a"),
            415,
            "want `application/json`",
        ),
        (
            "POST",
            "/validate",
            "",
            review("a"),
            415,
            "want `application/json`",
        ),
        (
            "POST",
            "/validate",
            JSON,
            b"{".to_vec(),
            200,
            "could not decode body: ",
        ),
        (
            "GET",
            "/validate",
            "",
            Vec::new(),
            405,
            "method not allowed",
        ),
        (
            "PUT",
            "/admitpilot",
            JSON,
            review("a"),
            405,
            "method not allowed",
        ),
        ("GET", "/ready", "", Vec::new(), 200, "ok"),
        ("GET", "/httpsReady", "", Vec::new(), 200, "ok"),
        ("HEAD", "/ready", "", Vec::new(), 405, ""),
        ("HEAD", "/httpsReady", "", Vec::new(), 405, ""),
        (
            "POST",
            "/ready",
            JSON,
            review("a"),
            405,
            "method not allowed",
        ),
        ("GET", "/", "", Vec::new(), 404, "not found"),
        ("POST", "/validate/", JSON, review("a"), 404, "not found"),
        ("POST", "/inject", JSON, review("a"), 404, "not found"),
        (
            "POST",
            "/validate",
            JSON,
            vec![b' '; BODY_BYTES + 1],
            413,
            "body over 8 MiB",
        ),
    ] {
        let mut sender = served.connect().await;
        let (found, text) = ask(&mut sender, method, path, kind, body).await;
        assert_eq!(found, status, "{method} {path}: {text}");
        assert!(text.contains(words), "{method} {path}: {text}");
    }
    let metrics = served.metrics();
    for (status, count) in [(400, 1), (405, 5), (413, 1), (415, 2)] {
        let line = format!("galley_validation_http_error_total{{status=\"{status}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("resource=\"sidecars\"} 3\n"), "{metrics}");
}

fn fragile(object: &Value) -> (Option<Object>, Vec<Finding>) {
    assert_ne!(object["metadata"]["name"], "panic", "as it was asked to");
    api::config::check(object)
}

#[tokio::test]
async fn a_panic_ends_its_review_and_is_counted() {
    let served = Served::new(fragile).await;
    let mut sender = served.connect().await;
    for (name, status) in [("a", 200), ("panic", 500), ("a", 200), ("panic", 500)] {
        let (found, _) = ask(&mut sender, "POST", "/validate", JSON, review(name)).await;
        assert_eq!(found, status, "over the same connection");
    }
    let metrics = served.metrics();
    for line in [
        "gudgeon_panics_total 2\n",
        "galley_validation_http_error_total{status=\"500\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert_eq!(served.reviews.decisions().len(), 2);
}

#[tokio::test]
#[allow(clippy::cast_possible_truncation, reason = "they are below 256")]
async fn random_bytes_are_answered() {
    let served = Served::new(api::config::check).await;
    let mut sender = served.connect().await;
    // Seemingly random, and the same each time.
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let whole = review("a");
    for round in 0..300 {
        let mut body: Vec<u8> = match round % 3 {
            0 => (0..=random(2000)).map(|_| random(256) as u8).collect(),
            // A review with a few bytes that are others.
            _ => whole.clone(),
        };
        if round % 3 == 1 {
            for _ in 0..=random(10) {
                let at = random(body.len());
                body[at] = random(256) as u8;
            }
        } else if round % 3 == 2 {
            body.truncate(1 + random(body.len() - 1));
        }
        let (status, text) = ask(&mut sender, "POST", "/validate", JSON, body).await;
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["response"]["allowed"].is_boolean(), "{text}");
    }
    assert_eq!(served.reviews.decisions().len(), 100, "the last are kept");
    assert!(served.metrics().contains("gudgeon_panics_total 0\n"));
}

/// A body that does not come has the only desk, and nobody may wait.
#[tokio::test]
async fn who_comes_when_all_desks_and_the_queue_are_taken_is_told() {
    let served = Served::with(api::config::check, Some(Desks::with_queue(1, 0, 0))).await;
    let mut sits = TcpStream::connect(served.address).await.unwrap();
    let head = b"POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut sits, head)
        .await
        .unwrap();
    let mut told = None;
    for _ in 0..1000 {
        let mut sender = served.connect().await;
        let answer = ask(&mut sender, "POST", "/validate", JSON, review("a")).await;
        if answer.0 != 200 {
            told = Some(answer);
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(told, Some((429, "too many reviews at once\n".to_owned())));
    assert!(
        served
            .metrics()
            .contains("http_error_total{status=\"429\"} 1\n")
    );
    // Whoever had it goes, and it goes on.
    drop(sits);
    for _ in 0..1000 {
        let mut sender = served.connect().await;
        if ask(&mut sender, "POST", "/validate", JSON, review("a"))
            .await
            .0
            == 200
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the desk is not free again");
}

/// Half a body has the only desk, and others wait for it.
#[tokio::test]
async fn who_does_not_send_its_body_while_others_wait_is_told() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let desks = Desks::with_queue(1, 0, 40);
    let served = Served::with(api::config::check, Some(desks)).await;
    let mut sits = TcpStream::connect(served.address).await.unwrap();
    let head = b"POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    sits.write_all(head).await.unwrap();
    // Until it sits there nobody has to wait.
    let told = async {
        let mut told = String::new();
        sits.read_to_string(&mut told).await.unwrap();
        told
    };
    let others = async {
        loop {
            let mut sender = served.connect().await;
            let answer = ask(&mut sender, "POST", "/validate", JSON, review("a")).await;
            assert_eq!(answer.0, 200);
        }
    };
    let told = tokio::select! {
        told = tokio::time::timeout(Duration::from_secs(30), told) => told.unwrap(),
        () = others => unreachable!("it has no end"),
    };
    assert!(told.starts_with("HTTP/1.1 429 "), "{told}");
    for words in [
        "connection: close\r\n",
        "\r\n\r\nthe body came too slowly, and others waited\n",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let metrics = served.metrics();
    let counted = "http_error_total{status=\"429\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
}
