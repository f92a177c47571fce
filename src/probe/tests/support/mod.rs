//! Runs the helper as `pintle` does, and the servers that it probes.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic, and not every test uses everything"
)]

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The helper: the one that was just built, or what `PINTLE_PROBE` says, which may be a runner and a program.
pub(crate) fn probe() -> Command {
    let given = std::env::var("PINTLE_PROBE");
    let mut words = given
        .as_deref()
        .unwrap_or(env!("CARGO_BIN_EXE_pintle-probe"))
        .split_whitespace();
    let mut command = Command::new(words.next().expect("PINTLE_PROBE names a program"));
    command.args(words);
    command
}

/// The result of a helper.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Status, headers as written and body.
    pub(crate) fn response(&self) -> (u16, String, String) {
        let text = String::from_utf8(self.stdout.clone()).unwrap();
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no response: {self:?}"));
        let (line, headers) = head.split_once("\r\n").unwrap();
        let status = line.strip_prefix("HTTP/1.1 ").unwrap()[..3]
            .parse()
            .unwrap();
        let length = format!("Content-Length: {}", body.len());
        assert!(headers.lines().any(|line| line == length), "{head}");
        (status, headers.to_owned(), body.to_owned())
    }

    /// The one line of a failure.
    pub(crate) fn failure(&self) -> String {
        let (status, _, body) = self.response();
        assert_eq!((status, self.code), (500, Some(1)), "{self:?}");
        assert_eq!(self.stderr, "");
        let line = body.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "{line}");
        line.to_owned()
    }

    pub(crate) fn body(&self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.response().2
    }
}

pub(crate) fn start(arguments: &[&str]) -> Child {
    probe()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn finish(mut child: Child, started: Instant) -> Outcome {
    let (mut stdout, mut stderr) = (Vec::new(), String::new());
    child
        .stdout
        .take()
        .map(|mut pipe| pipe.read_to_end(&mut stdout).unwrap());
    child
        .stderr
        .take()
        .map(|mut pipe| pipe.read_to_string(&mut stderr).unwrap());
    let code = child.wait().unwrap().code();
    Outcome {
        code,
        stdout,
        stderr,
        took: started.elapsed(),
    }
}

/// The helper with these arguments and this stdin, which stays open as a socket's would.
pub(crate) fn run(arguments: &[&str], stdin: &[u8]) -> Outcome {
    let started = Instant::now();
    let mut child = start(arguments);
    let mut pipe = child.stdin.take().unwrap();
    // A helper with wrong arguments reads nothing.
    drop(pipe.write_all(stdin));
    let outcome = finish(child, started);
    drop(pipe);
    outcome
}

/// A GET of this path.
pub(crate) fn get(address: SocketAddr, path: &str) -> Outcome {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: foo.test:8443\r\nUser-Agent: kube-probe/1.30\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    );
    run(&["https", &address.to_string()], head.as_bytes())
}

/// One thread beside the test's own, for servers.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// The settings of a TLS server.
#[derive(Clone, Copy)]
pub(crate) struct Tls {
    pub(crate) protocols: &'static [&'static str],
    pub(crate) expired: bool,
    pub(crate) versions: &'static [&'static rustls::SupportedProtocolVersion],
}

pub(crate) const HTTP1: Tls = Tls {
    protocols: &["http/1.1"],
    expired: false,
    versions: rustls::ALL_VERSIONS,
};

pub(crate) const HTTP2: Tls = Tls {
    protocols: &["h2"],
    ..HTTP1
};

pub(crate) fn acceptor(tls: Tls) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["somebody.else".to_owned()]).unwrap();
    if tls.expired {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    }
    let certificate = params.self_signed(&key).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(tls.versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    config.alpn_protocols = tls
        .protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Accepts on a port of its own, and leaves the rest to `serve`.
pub(crate) fn listen<F>(
    runtime: &Runtime,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    listen_at(runtime, "127.0.0.1:0", serve)
}

pub(crate) fn listen_at<F>(
    runtime: &Runtime,
    address: &str,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

pub(crate) const TLS_1_2: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];

/// A web server with pages for these tests.
pub(crate) fn serve(runtime: &Runtime, tls: Tls) -> SocketAddr {
    serve_at(runtime, "127.0.0.1:0", tls)
}

pub(crate) fn serve_at(runtime: &Runtime, address: &str, tls: Tls) -> SocketAddr {
    let acceptor = acceptor(tls);
    listen_at(runtime, address, move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                converse(stream, tls.protocols.contains(&"h2")).await;
            }
        }
    })
}

async fn converse(stream: TlsStream<TcpStream>, http2: bool) {
    let name = stream.get_ref().1.server_name().unwrap_or("-").to_owned();
    let service = service_fn(move |request| {
        let page = page(&request, &name);
        async move { Ok::<_, Infallible>(page) }
    });
    let stream = TokioIo::new(stream);
    if http2 {
        drop(
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(stream, service)
                .await,
        );
    } else {
        drop(
            http1::Builder::new()
                .serve_connection(stream, service)
                .await,
        );
    }
}

fn page(request: &Request<Incoming>, name: &str) -> Response<Full<Bytes>> {
    let answer = Response::builder().header("set-cookie", "a=b");
    let path = request.uri().path();
    match path {
        // By HTTP/2 the library would send a body after all.
        _ if request.method() == Method::HEAD => answer.body(Bytes::new().into()),
        "/big" => answer.body("x".repeat(1_000_000).into()),
        "/exact" => answer.body("x".repeat(10 * 1024).into()),
        "/redirect" => answer
            .status(302)
            .header("location", "https://elsewhere.test/next")
            .body("moved".into()),
        "/unhealthy" => answer
            .status(503)
            .header("content-type", "application/problem+json")
            .body("{}".into()),
        "/empty" => answer.status(204).body(Bytes::new().into()),
        _ => {
            let mut lines = vec![
                format!(
                    "{} {} {:?}",
                    request.method(),
                    request.uri(),
                    request.version()
                ),
                format!("sni: {name}"),
            ];
            lines.extend(
                request
                    .headers()
                    .iter()
                    .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())),
            );
            answer.body(lines.join("\n").into())
        }
    }
    .unwrap()
}
