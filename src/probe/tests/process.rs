//! The helper as a process: its streams, its deadline, its exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic and wait"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{HTTP1, HTTP2, finish, listen, probe, run, runtime, serve, start};
use tokio::io::AsyncWriteExt as _;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: foo\r\n\r\n";
/// For what has to come before the default deadline of ten seconds, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// A port that takes connections and says nothing.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn refused() -> SocketAddr {
    silent().1
}

#[test]
fn a_silent_server_is_given_up_in_time() {
    let (_listener, address) = silent();
    for kind in ["https", "grpc"] {
        let arguments = [kind, &address.to_string(), "--timeout-millis", "300"];
        let outcome = run(&arguments, REQUEST);
        let failure = outcome.failure();
        assert!(failure.ends_with(": not done within 300 ms"), "{failure}");
        assert!(failure.contains(&address.to_string()), "{failure}");
        assert!(
            outcome.took >= Duration::from_millis(300) && outcome.took < SOON,
            "{outcome:?}"
        );
    }
}

#[test]
fn a_server_that_never_ends_its_body_is_given_up_in_time() {
    let runtime = runtime();
    let acceptor = support::acceptor(HTTP1);
    let address = listen(&runtime, move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if stream.write_all(b"x").await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
    });
    let arguments = ["https", &address.to_string(), "--timeout-millis", "400"];
    let outcome = run(&arguments, REQUEST);
    assert!(outcome.failure().ends_with(": not done within 400 ms"));
    assert!(outcome.took < SOON);
}

#[test]
fn the_deadline_covers_stdin() {
    let started = Instant::now();
    let child = start(&["https", "127.0.0.1:1", "--timeout-millis", "200"]);
    let outcome = finish(child, started);
    assert_eq!(
        outcome.failure(),
        "cannot read the request: not done within 200 ms"
    );
    assert!(outcome.took < SOON);
}

#[test]
fn a_refused_connection_is_told() {
    let address = refused();
    for kind in ["https", "grpc"] {
        let outcome = run(&[kind, &address.to_string()], REQUEST);
        assert_eq!(
            outcome.failure(),
            format!("cannot connect to {address}: connection refused")
        );
    }
}

#[test]
fn garbage_instead_of_tls_is_told() {
    let runtime = runtime();
    let address = listen(&runtime, |mut stream| async move {
        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
        drop(stream.shutdown().await);
    });
    let failure = run(&["https", &address.to_string()], REQUEST).failure();
    assert!(
        failure.starts_with(&format!("cannot negotiate TLS with {address}: ")),
        "{failure}"
    );
}

#[test]
fn a_server_that_hangs_up_is_told() {
    let runtime = runtime();
    let address = listen(&runtime, |stream| async move { drop(stream) });
    for kind in ["https", "grpc"] {
        let failure = run(&[kind, &address.to_string()], REQUEST).failure();
        assert!(failure.starts_with("cannot "), "{failure}");
        assert!(failure.contains(&address.to_string()), "{failure}");
    }
}

#[test]
fn a_malformed_request_is_told() {
    let long = [
        b"GET / HTTP/1.1\r\nX: ".as_slice(),
        &[b'x'; 17 * 1024],
        b"\r\n\r\n",
    ]
    .concat();
    let malformed: [&[u8]; 6] = [
        b"\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nand a body",
        b"\x16\x03\x01\r\n\r\n",
        &long,
    ];
    for request in malformed {
        let failure = run(&["https", "127.0.0.1:1"], request).failure();
        assert!(
            failure.starts_with("cannot read the request: "),
            "{failure}"
        );
    }
}

#[test]
fn a_request_that_ends_too_early_is_told() {
    let started = Instant::now();
    let mut child = start(&["https", "127.0.0.1:1"]);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\n")
        .unwrap();
    assert_eq!(
        finish(child, started).failure(),
        "cannot read the request: stdin ended after 16 bytes, before an empty line"
    );
}

#[test]
fn a_request_may_come_in_pieces() {
    let runtime = runtime();
    let address = serve(&runtime, HTTP2);
    let length = REQUEST.len();
    for cuts in [
        vec![1],
        vec![length - 1],
        vec![length - 3, length - 2],
        (1..length).collect(),
    ] {
        let started = Instant::now();
        let mut child = start(&["https", &address.to_string()]);
        let mut pipe = child.stdin.take().unwrap();
        let mut from = 0;
        for to in cuts.into_iter().chain([length]) {
            pipe.write_all(&REQUEST[from..to]).unwrap();
            // Not for the result: so that the pieces are seen as pieces.
            sleep(Duration::from_millis(2));
            from = to;
        }
        let outcome = finish(child, started);
        assert!(outcome.body().starts_with("GET https://foo/ HTTP/2.0"));
    }
}

#[test]
fn a_file_is_a_good_stdin_and_stdout() {
    let runtime = runtime();
    let address = serve(&runtime, HTTP1);
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::write(&from, REQUEST).unwrap();
    let status = probe()
        .args(["https", &address.to_string()])
        .stdin(std::fs::File::open(&from).unwrap())
        .stdout(std::fs::File::create(&to).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(
        std::fs::read_to_string(&to)
            .unwrap()
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
}

/// The helper with one socket for both directions, blocking or not.
fn on_a_socket(address: SocketAddr, blocking: bool) -> (std::process::Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(!blocking).unwrap();
    let theirs = OwnedFd::from(theirs);
    let child = probe()
        .args(["https", &address.to_string()])
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, ours)
}

#[test]
fn one_socket_may_be_both_streams() {
    let runtime = runtime();
    let address = serve(&runtime, HTTP1);
    for blocking in [true, false] {
        for half_closed in [true, false] {
            let (child, mut socket) = on_a_socket(address, blocking);
            socket
                .write_all(b"GET /big HTTP/1.1\r\nHost: foo\r\n\r\n")
                .unwrap();
            if half_closed {
                socket.shutdown(Shutdown::Write).unwrap();
            }
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.ends_with(&"x".repeat(10 * 1024)));
            assert_eq!(finish(child, Instant::now()).code, Some(0));
        }
    }
}

#[test]
fn it_ends_in_silence_when_nobody_waits_any_more() {
    let (_listener, address) = silent();
    let started = Instant::now();
    let (child, mut socket) = on_a_socket(address, true);
    socket.write_all(REQUEST).unwrap();
    drop(socket);
    let outcome = finish(child, started);
    assert_eq!((outcome.code, &*outcome.stderr), (Some(1), ""));
    assert!(outcome.took < SOON, "{outcome:?}");

    // The same with pipes.
    for kind in ["https", "grpc"] {
        let started = Instant::now();
        let mut child = start(&[kind, &address.to_string()]);
        child.stdin.take().unwrap().write_all(REQUEST).unwrap();
        drop(child.stdout.take());
        let outcome = finish(child, started);
        assert_eq!((outcome.code, &*outcome.stderr), (Some(1), ""));
        assert!(outcome.took < SOON, "{outcome:?}");
    }
}

#[test]
fn a_failure_that_nobody_reads_is_silent() {
    for arguments in [&["--help"][..], &["grpc", "127.0.0.1:1"]] {
        let mut child = start(arguments);
        drop(child.stdout.take());
        let outcome = finish(child, Instant::now());
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn wrong_arguments_are_told_on_stderr() {
    for arguments in [
        &[][..],
        &["https"],
        &["https", "localhost:1"],
        &["http", "127.0.0.1:1"],
    ] {
        let outcome = run(arguments, b"");
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(outcome.stdout.is_empty());
        assert!(!outcome.stderr.is_empty());
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let version = run(&["--version"], b"");
    assert_eq!(version.code, Some(0));
    let expected = concat!("pintle-probe ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8(version.stdout).unwrap(), expected);
    for arguments in [&["--help"][..], &["https", "--help"], &["grpc", "--help"]] {
        let help = run(arguments, b"");
        assert_eq!((help.code, &*help.stderr), (Some(0), ""));
        assert!(
            String::from_utf8(help.stdout)
                .unwrap()
                .contains("Usage: pintle-probe")
        );
    }
}
