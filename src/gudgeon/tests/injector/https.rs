//! The protocol, row by row, against the built binary over TLS.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

use crate::support::{
    self, Client, Injector, InjectorPlace, JSON, client_config, image_in, pod, review, until,
};

const MAX: usize = 6 << 20;

/// One row: method, path, headers, body; status, words of the body, a header.
type Row<'a> = (
    &'a str,
    &'a str,
    &'a [(&'a str, &'a str)],
    &'a [u8],
    u16,
    &'a str,
    Option<(&'a str, &'a str)>,
);

const TEXT: &[(&str, &str)] = &[("Content-Type", "text/plain")];
const WITH_CHARSET: &[(&str, &str)] = &[("Content-Type", "application/json; charset=utf-8")];
const ZIPPED: &[(&str, &str)] = &[
    ("Content-Type", "application/json"),
    ("Content-Encoding", "gzip"),
];
const POST: Option<(&str, &str)> = Some(("Allow", "POST"));

const ROWS: [Row<'_>; 18] = [
    (
        "POST",
        "/inject",
        JSON,
        b"{}",
        200,
        "\"allowed\":false",
        None,
    ),
    (
        "POST",
        "/inject?timeout=10s",
        JSON,
        b"{}",
        200,
        "AdmissionReview",
        None,
    ),
    (
        "POST",
        "/inject/cluster/c1/net/n1",
        WITH_CHARSET,
        b"{}",
        200,
        "AdmissionReview",
        None,
    ),
    ("GET", "/inject", &[], b"", 405, "", POST),
    ("PUT", "/inject/cluster/c1", JSON, b"", 405, "", POST),
    ("POST", "/inject", JSON, b"", 400, "no body found", None),
    ("POST", "/inject", TEXT, b"", 400, "no body found", None),
    (
        "POST",
        "/inject",
        &[],
        b"{}",
        415,
        "invalid Content-Type, want `application/json`",
        None,
    ),
    (
        "POST",
        "/inject",
        TEXT,
        b"{}",
        415,
        "invalid Content-Type, want `application/json`",
        None,
    ),
    (
        "POST",
        "/inject",
        ZIPPED,
        b"{}",
        415,
        "invalid Content-Type, want `application/json`",
        None,
    ),
    ("GET", "/ready", &[], b"", 200, "ok", None),
    ("GET", "/healthz", &[], b"", 200, "ok", None),
    (
        "POST",
        "/ready",
        &[],
        b"",
        405,
        "",
        Some(("Allow", "GET, HEAD")),
    ),
    ("GET", "/", &[], b"", 404, "", None),
    ("POST", "/injected", JSON, b"{}", 404, "", None),
    ("GET", "/metrics", &[], b"", 404, "", None),
    ("GET", "/debug", &[], b"", 404, "", None),
    (
        "POST",
        "/inject/",
        JSON,
        b"[]",
        200,
        "an AdmissionReview",
        None,
    ),
];

#[test]
fn every_row_over_one_kept_connection() {
    let injector = Injector::new();
    let mut client = injector.client();
    for (method, path, headers, body, status, message, header) in ROWS {
        let answer = client.request(method, path, headers, body).expect(path);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(
            answer.text().contains(message),
            "{method} {path}: {}",
            answer.text()
        );
        if let Some((name, value)) = header {
            assert_eq!(answer.header(name), Some(value), "{method} {path}");
        }
    }
    // Every POST to /inject counts, and is one of the three.
    let count = |name: &str| {
        injector
            .metric(&format!("sidecar_injection_{name}_total"))
            .unwrap()
    };
    assert_eq!(count("requests"), 9.0);
    assert_eq!(count("failure"), 9.0);
    assert_eq!(count("success") + count("skip"), 0.0);
}

async fn http2(injector: &Injector) -> SendRequest<Full<Bytes>> {
    let config = client_config(&injector.trust(), &["h2", "http/1.1"]);
    let socket = tokio::net::TcpStream::connect(injector.address())
        .await
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<(u16, String), hyper::Error> {
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Full::new(Bytes::copy_from_slice(body));
    sender.ready().await?;
    let answer = sender.send_request(request.body(body).unwrap()).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec()).unwrap()))
}

#[tokio::test]
async fn every_row_over_http2() {
    let injector = Injector::new();
    let mut sender = http2(&injector).await;
    for (method, path, headers, body, status, message, _) in ROWS {
        let (got, text) = ask(&mut sender, method, path, headers, body).await.unwrap();
        assert_eq!(got, status, "{method} {path}: {text}");
        assert!(text.contains(message), "{method} {path}: {text}");
    }
    let body = review(&pod("web")).to_string();
    let (status, text) = ask(&mut sender, "POST", "/inject", JSON, body.as_bytes())
        .await
        .unwrap();
    assert_eq!(status, 200);
    assert_eq!(image_in(&serde_json::from_str(&text).unwrap()), "proxy:1");
    let large = vec![b' '; MAX + 1];
    let (status, _) = ask(&mut sender, "POST", "/inject", JSON, &large)
        .await
        .unwrap();
    assert_eq!(status, 413);
    // And the connection closes.
    let start = std::time::Instant::now();
    while !sender.is_closed() {
        assert!(start.elapsed() < support::SOON, "it goes on");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn many_streams_of_one_connection() {
    let injector = Injector::new();
    let sender = http2(&injector).await;
    let body = review(&pod("web")).to_string();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (mut sender, body) = (sender.clone(), body.clone());
        tasks
            .spawn(async move { ask(&mut sender, "POST", "/inject", JSON, body.as_bytes()).await });
    }
    while let Some(done) = tasks.join_next().await {
        let (status, text) = done.unwrap().unwrap();
        assert_eq!(status, 200);
        assert!(text.contains("\"patch\""), "{text}");
    }
    assert_eq!(
        injector.metric("sidecar_injection_success_total"),
        Some(200.0)
    );
}

#[test]
fn answers_in_the_version_of_the_question() {
    let injector = Injector::new();
    let mut client = injector.client();
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut question = review(&pod("web"));
        question["apiVersion"] = json!(version);
        question["request"]["uid"] = json!("u\u{fc}-\"7\"");
        let answer = client.review(&question).unwrap();
        assert_eq!(answer["apiVersion"], version);
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["response"]["uid"], "u\u{fc}-\"7\"");
        assert_eq!(answer["response"]["allowed"], true);
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        assert_eq!(image_in(&answer), "proxy:1");
    }
    let mut skipped = pod("web");
    skipped["spec"]["hostNetwork"] = json!(true);
    let answer = client.review(&review(&skipped)).unwrap();
    assert_eq!(answer["response"], json!({"uid": "5b7c", "allowed": true}));
    let mut update = review(&pod("web"));
    update["request"]["operation"] = json!("UPDATE");
    let answer = client.review(&update).unwrap();
    assert_eq!(answer["response"], json!({"uid": "5b7c", "allowed": true}));
    let mut odd = pod("web");
    odd["spec"]["containers"] = json!("x");
    let answer = client.review(&review(&odd)).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], 400);
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("spec.containers"), "{message}");
    let mut dry = review(&pod("web"));
    dry["request"]["dryRun"] = json!(true);
    assert_eq!(client.review(&dry), client.review(&review(&pod("web"))));
    let decisions = injector.get("/debug/inject").json();
    let outcomes: Vec<_> = decisions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["decision"])
        .collect();
    assert_eq!(
        outcomes,
        [
            "injected", "injected", "failed", "skipped", "skipped", "injected", "injected"
        ]
    );
    assert_eq!(decisions[1]["dryRun"], true);
    assert_eq!(decisions[2]["reason"], "bad request");
    assert_eq!(decisions[3]["reason"], "operation");
    assert_eq!(decisions[4]["reason"], "host network");
    assert_eq!(
        injector.metric(
            "gudgeon_injector_decisions_total{decision=\"skipped\",reason=\"host network\"}"
        ),
        Some(1.0)
    );
    until("a line for each review", || injector.logged("uid ") == 7);
    let line = injector
        .log()
        .into_iter()
        .find(|line| line.contains("host network"))
        .unwrap();
    assert!(
        line.contains("\tinfo\tskipped: host network, ns/web, uid 5b7c, "),
        "{line}"
    );
}

#[test]
fn a_head_is_at_most_16_kib() {
    let injector = Injector::new();
    let filler = "x".repeat(15 << 10);
    let answer = injector
        .client()
        .request("GET", "/ready", &[("X-Filler", &filler)], b"")
        .unwrap();
    assert_eq!(answer.status, 200);
    let filler = "x".repeat(16 << 10);
    for path in ["/ready".to_owned(), format!("/{filler}")] {
        let mut client = injector.client();
        let headers: &[(&str, &str)] = if path == "/ready" {
            &[("X-Filler", &filler)]
        } else {
            &[]
        };
        let answer = client.request("GET", &path, headers, b"").unwrap();
        assert_eq!(answer.status, 431);
        assert!(client.is_closed());
    }
}

#[test]
fn a_body_is_at_most_6_mib() {
    let injector = Injector::new();
    let text = review(&pod("web")).to_string();
    let mut largest = vec![b' '; MAX - text.len()];
    largest.extend_from_slice(text.as_bytes());
    let mut client = injector.client();
    let answer = client.request("POST", "/inject", JSON, &largest).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(image_in(&answer.json()), "proxy:1");
    largest.push(b' ');
    // Declared; the connection closes, and the answer still arrives.
    let answer = client.request("POST", "/inject", JSON, &largest).unwrap();
    assert_eq!(
        (answer.status, answer.header("connection")),
        (413, Some("close"))
    );
    assert!(client.is_closed());
    // Counted.
    let mut client = injector.client();
    client
        .send(b"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..7 {
        // The rest may be refused already.
        if client.send(&chunk).is_err() {
            break;
        }
    }
    assert_eq!(client.answer().unwrap().status, 413);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let injector = Injector::new();
    let mut client = injector.client();
    let body = review(&pod("web")).to_string();
    let head = format!(
        "POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes()).unwrap();
    assert_eq!(client.answer().unwrap().status, 100);
    client.send(body.as_bytes()).unwrap();
    let answer: Value = client.answer().unwrap().json();
    assert_eq!(image_in(&answer), "proxy:1");
}

#[test]
fn both_versions_of_tls_and_no_client_certificate() {
    let injector = Injector::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject as _;
        let trust = injector.trust();
        roots
            .add(rustls::pki_types::CertificateDer::from_pem_slice(trust.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut client = Client::try_connect(injector.address(), config).unwrap();
        assert_eq!(client.stream.conn.protocol_version(), Some(version.version));
        assert_eq!(client.image(), "proxy:1");
        // No ALPN, no HTTP/2.
        assert_eq!(client.stream.conn.alpn_protocol(), None);
    }
}

#[test]
fn every_form_of_a_key() {
    let openssl = |place: &InjectorPlace, arguments: &[&str]| {
        let done = std::process::Command::new("openssl")
            .args(arguments)
            .current_dir(place.root.path())
            .stderr(std::process::Stdio::null())
            .status()
            .expect("openssl makes the forms that no library of ours writes");
        assert!(done.success(), "{arguments:?}");
    };
    let sign = [
        "req",
        "-x509",
        "-key",
        "key.pem",
        "-out",
        "chain.pem",
        "-days",
        "2",
        "-subj",
        "/CN=x",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ];
    for (header, make) in [
        (
            "-----BEGIN EC PRIVATE KEY-----",
            &[
                "ecparam",
                "-name",
                "prime256v1",
                "-genkey",
                "-noout",
                "-out",
                "key.pem",
            ][..],
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----",
            &["genrsa", "-traditional", "-out", "key.pem", "2048"],
        ),
        (
            "-----BEGIN PRIVATE KEY-----",
            &[
                "genpkey",
                "-algorithm",
                "RSA",
                "-pkeyopt",
                "rsa_keygen_bits:2048",
                "-out",
                "key.pem",
            ],
        ),
    ] {
        let place = InjectorPlace::new();
        openssl(&place, make);
        assert!(place.read("key.pem").contains(header));
        openssl(&place, &sign);
        let injector = place.start(&[]);
        assert_eq!(injector.client().image(), "proxy:1", "{header}");
    }
}
