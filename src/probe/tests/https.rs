//! HTTPS probes against real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic and wait"
)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use support::{HTTP1, HTTP2, TLS_1_2, Tls, get, listen, run, runtime, serve, serve_at};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[test]
fn http1_gets_the_request_as_it_was_written() {
    let runtime = runtime();
    let address = serve(&runtime, HTTP1);
    assert_eq!(
        get(address, "/echo?a=b&c").body(),
        "GET /echo?a=b&c HTTP/1.1\nsni: foo.test\nhost: foo.test:8443\nuser-agent: kube-probe/1.30\n\
         accept: */*\nconnection: close"
    );
}

#[test]
fn http2_gets_the_host_as_authority() {
    let runtime = runtime();
    let address = serve(&runtime, HTTP2);
    assert_eq!(
        get(address, "/echo?a=b&c").body(),
        "GET https://foo.test:8443/echo?a=b&c HTTP/2.0\nsni: foo.test\nuser-agent: kube-probe/1.30\naccept: */*"
    );
}

#[test]
fn a_server_without_alpn_gets_http1() {
    let runtime = runtime();
    let address = serve(
        &runtime,
        Tls {
            protocols: &[],
            ..HTTP1
        },
    );
    assert!(get(address, "/").body().starts_with("GET / HTTP/1.1\n"));
}

#[test]
fn a_server_that_speaks_neither_is_told() {
    let runtime = runtime();
    let tls = Tls {
        protocols: &["spdy/3"],
        ..HTTP1
    };
    let address = serve(&runtime, tls);
    let failure = get(address, "/").failure();
    assert!(
        failure.starts_with(&format!("cannot negotiate TLS with {address}: ")),
        "{failure}"
    );
}

#[test]
fn tls_1_2_alone_is_enough() {
    let runtime = runtime();
    for tls in [HTTP1, HTTP2] {
        let address = serve(
            &runtime,
            Tls {
                versions: TLS_1_2,
                ..tls
            },
        );
        assert!(get(address, "/").body().starts_with("GET "));
    }
}

#[test]
fn an_expired_certificate_is_accepted() {
    let runtime = runtime();
    let address = serve(
        &runtime,
        Tls {
            expired: true,
            ..HTTP1
        },
    );
    assert!(get(address, "/").body().starts_with("GET "));
}

#[test]
fn an_address_is_no_server_name() {
    let runtime = runtime();
    for tls in [HTTP1, HTTP2] {
        let address = serve(&runtime, tls);
        for host in ["Host: 127.0.0.1:8443", "Host: [::1]:8443", "X: none"] {
            let head = format!("GET / HTTP/1.1\r\n{host}\r\n\r\n");
            let body = run(&["https", &address.to_string()], head.as_bytes()).body();
            assert!(body.contains("\nsni: -"), "{host}: {body}");
        }
    }
}

#[test]
fn ipv6_is_probed_too() {
    let runtime = runtime();
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let address = serve_at(&runtime, "[::1]:0", HTTP2);
        assert!(get(address, "/").body().contains("HTTP/2.0"));
    }
}

#[test]
fn a_status_is_passed_on_with_its_type() {
    let runtime = runtime();
    for tls in [HTTP1, HTTP2] {
        let outcome = get(serve(&runtime, tls), "/unhealthy");
        let (status, headers, body) = outcome.response();
        assert_eq!((status, &*body, outcome.code), (503, "{}", Some(0)));
        assert_eq!(
            headers,
            "Content-Type: application/problem+json\r\nContent-Length: 2"
        );
    }
}

#[test]
fn a_redirect_is_passed_on_and_not_followed() {
    let runtime = runtime();
    for tls in [HTTP1, HTTP2] {
        let (status, headers, body) = get(serve(&runtime, tls), "/redirect").response();
        assert_eq!((status, &*body), (302, "moved"));
        assert_eq!(
            headers,
            "Location: https://elsewhere.test/next\r\nContent-Length: 5"
        );
    }
}

#[test]
fn a_long_body_is_cut_at_10_kib() {
    let runtime = runtime();
    for tls in [HTTP1, HTTP2] {
        let address = serve(&runtime, tls);
        for path in ["/big", "/exact"] {
            assert_eq!(get(address, path).body(), "x".repeat(10 * 1024));
        }
    }
}

#[test]
fn answers_without_a_body_are_passed_on() {
    let runtime = runtime();
    for tls in [HTTP1, HTTP2] {
        let address = serve(&runtime, tls);
        assert_eq!(get(address, "/empty").response().0, 204);
        let head = b"HEAD /big HTTP/1.1\r\nHost: foo\r\n\r\n";
        assert_eq!(run(&["https", &address.to_string()], head).body(), "");
    }
}

#[test]
fn an_interim_answer_is_no_answer() {
    let runtime = runtime();
    let address = abrupt(
        &runtime,
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    );
    assert_eq!(
        get(address, "/").failure(),
        format!("cannot get an answer of {address}: it is 101")
    );
    let address = abrupt(
        &runtime,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine",
    );
    assert_eq!(get(address, "/").body(), "fine");
}

/// A TLS server that writes this and closes the connection without a word.
fn abrupt(runtime: &tokio::runtime::Runtime, text: &'static [u8]) -> std::net::SocketAddr {
    let acceptor = support::acceptor(HTTP1);
    listen(runtime, move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(text).await.unwrap();
            stream.flush().await.unwrap();
            let (mut plain, _) = stream.into_inner();
            plain.shutdown().await.unwrap();
        }
    })
}

#[test]
fn a_server_may_close_without_a_goodbye() {
    let runtime = runtime();
    let address = abrupt(&runtime, b"HTTP/1.1 200 OK\r\n\r\nfine");
    assert_eq!(get(address, "/").body(), "fine");
}

#[test]
fn a_truncated_body_is_a_failure() {
    let runtime = runtime();
    let address = abrupt(
        &runtime,
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfine",
    );
    let failure = get(address, "/").failure();
    assert!(
        failure.starts_with(&format!("cannot get an answer of {address}: ")),
        "{failure}"
    );
}

#[test]
fn an_answer_that_is_no_http_is_a_failure() {
    let runtime = runtime();
    let address = abrupt(&runtime, b"220 mail.test ESMTP\r\n");
    let failure = get(address, "/").failure();
    assert!(
        failure.starts_with(&format!("cannot get an answer of {address}: ")),
        "{failure}"
    );
}

#[test]
fn an_endless_head_is_a_failure() {
    let runtime = runtime();
    let mut text = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    text.resize(64 * 1024, b'x');
    let address = abrupt(&runtime, text.leak());
    let failure = get(address, "/").failure();
    assert!(
        failure.starts_with(&format!("cannot get an answer of {address}: ")),
        "{failure}"
    );
}

/// Ends with the test.
struct Openssl(Child);

impl Drop for Openssl {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn openssl(folder: &std::path::Path, key: &[&str], version: &str) -> Option<(Openssl, String)> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-subj", "/CN=probe"])
        .args(["-keyout", "key", "-out", "certificate", "-newkey"])
        .args(key)
        .current_dir(folder)
        .output();
    // Not everybody has it.
    assert!(made.ok()?.status.success());
    let mut child = Command::new("openssl")
        .args(["s_server", "-www", "-key", "key", "-cert", "certificate"])
        .args(["-accept", "127.0.0.1:0", version])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let server = Openssl(child);
    let address = stdout
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
        .expect("openssl says where it listens");
    Some((server, address))
}

#[test]
fn openssl_is_probed_with_keys_of_several_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let rare: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:secp521r1"];
    let usual: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    for (key, version) in [
        (usual, "-tls1_2"),
        (&["rsa:2048"], "-tls1_2"),
        // Of no use to our provider; by TLS 1.2 it would have to be.
        (rare, "-tls1_3"),
        (&["ed448"], "-tls1_3"),
    ] {
        let Some((_server, address)) = openssl(folder.path(), key, version) else {
            return;
        };
        let outcome = get(address.parse().unwrap(), "/");
        let (status, headers, body) = outcome.response();
        assert_eq!(
            (status, outcome.code),
            (200, Some(0)),
            "{key:?} {version} {outcome:?}"
        );
        assert!(
            headers.starts_with("Content-Type: text/html\r\n"),
            "{headers}"
        );
        assert!(body.contains("s_server"), "{body}");
    }
}
