//! The service on a plain port: without TLS.

use std::net::SocketAddr;
use std::sync::Condvar;
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
use crate::file_states::FileMetrics;
use crate::serve::{self, Listener, Shutdown, ShutdownStage};

const JSON: &str = "application/json";
/// Chosen: a machine that runs all tests at once takes seconds for a request.
const SOON: Duration = Duration::from_secs(30);

struct Served {
    reviews: Arc<Reviews>,
    registry: Registry,
    address: SocketAddr,
    _stage: watch::Sender<ShutdownStage>,
}

type Sender = http1::SendRequest<Full<Bytes>>;

impl Served {
    async fn new(check: Check) -> Self {
        Self::with(check, None).await
    }

    async fn with(check: Check, permits: Option<Arc<RequestLimit>>) -> Self {
        let mut registry = Registry::default();
        let metrics = WebhookMetrics::new(&mut registry, FileMetrics::default());
        let service = ServiceReference {
            namespace: "istio-system".to_owned(),
            name: "istio-galley".to_owned(),
        };
        let mut reviews = Reviews::new(check, service, metrics);
        reviews.request_limit = permits.unwrap_or(reviews.request_limit);
        let reviews = Arc::new(reviews);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, stage) = Shutdown::channel();
        let bound = Listener {
            listener,
            tls: None,
            max_connections: 40,
        };
        tokio::spawn(serve::run(bound, Arc::clone(&reviews), stage));
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
    let answer = tokio::time::timeout(2 * SOON, sender.send_request(request));
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
    for (method, path, kind, body, status, message) in [
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
            vec![b' '; MAX_BODY_BYTES + 1],
            413,
            "body over 8 MiB",
        ),
    ] {
        let mut sender = served.connect().await;
        let (found, text) = ask(&mut sender, method, path, kind, body).await;
        assert_eq!(found, status, "{method} {path}: {text}");
        assert!(text.contains(message), "{method} {path}: {text}");
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
    let line = "galley_validation_http_error_total{status=\"500\"} 2\n";
    assert!(metrics.contains(line), "{metrics}");
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
}

const HEAD: &[u8] = b"POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n";

/// A body that goes on coming has the only permit.
#[tokio::test]
async fn a_request_without_a_permit_gets_429() {
    use tokio::io::AsyncWriteExt as _;
    let permits = RequestLimit::new(1 << 20, 1);
    let served = Served::with(api::config::check, Some(permits)).await;
    let mut sends = TcpStream::connect(served.address).await.unwrap();
    sends.write_all(HEAD).await.unwrap();
    let coming = async {
        while sends.write_all(&[b' '; 5000]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let others = async {
        loop {
            let mut sender = served.connect().await;
            let answer = ask(&mut sender, "POST", "/validate", JSON, review("a")).await;
            if answer.0 != 200 {
                break answer;
            }
        }
    };
    let response = tokio::select! {
        response = others => response,
        () = coming => unreachable!("it was sent away"),
    };
    assert_eq!(response, (429, "too many reviews at once\n".to_owned()));
    assert!(
        served
            .metrics()
            .contains("http_error_total{status=\"429\"} 1\n")
    );
    // The holder of the permit goes, and the next review is served.
    drop(sends);
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
    panic!("the permit is not free again");
}

/// Half a body has the only permit, and others want it.
#[tokio::test]
async fn a_slow_body_loses_its_permit_to_others() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let permits = RequestLimit::new(1 << 20, 1);
    let served = Served::with(api::config::check, Some(permits)).await;
    let mut slow = TcpStream::connect(served.address).await.unwrap();
    slow.write_all(HEAD).await.unwrap();
    slow.write_all(b"{").await.unwrap();
    let response = async {
        let mut response = String::new();
        slow.read_to_string(&mut response).await.unwrap();
        response
    };
    let others = async {
        let mut refused = 0;
        loop {
            let mut sender = served.connect().await;
            let answer = ask(&mut sender, "POST", "/validate", JSON, review("a")).await;
            refused += u64::from(answer.0 == 429);
            assert!(matches!(answer.0, 200 | 429), "{answer:?}");
            // The other request had time to proceed.
            if answer.0 == 200 && refused > 0 {
                return refused;
            }
        }
    };
    let both = async { tokio::join!(response, others) };
    let both = tokio::time::timeout(Duration::from_secs(30), both).await;
    let (response, refused) = both.unwrap();
    assert!(response.starts_with("HTTP/1.1 429 "), "{response}");
    for part in [
        "connection: close\r\n",
        "\r\n\r\ntoo many requests: the body arrived too slowly\n",
    ] {
        assert!(response.contains(part), "{response}");
    }
    let metrics = served.metrics();
    let counted = format!("http_error_total{{status=\"429\"}} {}\n", refused + 1);
    assert!(metrics.contains(&counted), "{metrics}");
}

/// True once others were answered while the slow review ran.
static OTHERS_ARE_ANSWERED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn slow(object: &Value) -> (Option<Object>, Vec<Finding>) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name == "slow" {
        let (answered, changed) = &OTHERS_ARE_ANSWERED;
        let answered = answered.lock().unwrap();
        let waiting = changed.wait_timeout_while(answered, SOON, |answered| !*answered);
        assert!(!waiting.unwrap().1.timed_out(), "it holds up all others");
    }
    assert_ne!(name, "panic", "as it was asked to");
    api::config::check(object)
}

/// A review that is large enough for the worker thread.
fn large(name: &str) -> Vec<u8> {
    let mut body = review(name);
    body.extend(vec![b' '; 64 << 10]);
    body
}

#[tokio::test]
async fn a_large_review_is_judged_beside_the_loop_and_so_is_its_panic() {
    let served = Served::new(slow).await;
    let (mut author, mut other) = (served.connect().await, served.connect().await);
    let long = async {
        let answer = ask(&mut author, "POST", "/validate", JSON, large("slow")).await;
        assert_eq!(answer.0, 200);
    };
    let others = async {
        for _ in 0..20 {
            let answer = ask(&mut other, "POST", "/validate", JSON, review("a")).await;
            assert_eq!(answer.0, 200);
        }
        let (answered, changed) = &OTHERS_ARE_ANSWERED;
        *answered.lock().unwrap() = true;
        changed.notify_all();
    };
    tokio::join!(long, others);
    for (name, status) in [("panic", 500), ("a", 200)] {
        let (found, _) = ask(&mut author, "POST", "/validate", JSON, large(name)).await;
        assert_eq!(found, status, "over the same connection");
    }
}

/// By it galley tells its own refusal of a probe from another webhook's.
#[tokio::test]
async fn a_refusal_repeats_the_token_of_a_probe_and_no_other_text() {
    let served = Served::new(api::config::check).await;
    let mut sender = served.connect().await;
    let digits = "0123456789abcdef0123456789abcdef";
    let suffix = format!("; probe {digits} reached istio-system/istio-galley");
    let long: Vec<_> = (0..100)
        .map(|at| format!("a_{at}_{}", "x".repeat(60)))
        .collect();
    for (token, hosts, is_repeated) in [
        (digits, json!([]), true),
        (digits, json!(long), true),
        ("0123 <script>", json!([]), false),
    ] {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "namespace": "web",
            "object": {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
                "metadata": {"name": "a", "annotations": {"gudgeon.io/probe": token}}, "spec": {"hosts": hosts}}}});
        let body = body.to_string().into_bytes();
        let (_, answer) = ask(&mut sender, "POST", "/validate", JSON, body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert_eq!(message.ends_with(&suffix), is_repeated, "{message}");
        assert!(message.len() <= 4096, "{}", message.len());
        assert!(!message.contains("script"), "{message}");
    }
}
