//! `request`, `wait`, `probe`, `status`, `drain` and `quit` of the real binary, against small servers of the test's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may panic, wait and read the clock"
)]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Generous: the machine may be busy with something else altogether.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server that answers each connection with the next of its answers, and the last one again and again.
struct Server {
    port: u16,
    /// The requests, as they came.
    seen: Arc<Mutex<Vec<String>>>,
}

type Answer = Box<dyn Fn(&mut TcpStream) + Send>;

impl Server {
    fn on(listener: TcpListener, answers: Vec<Answer>) -> Self {
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&seen);
        // It ends with the test's process.
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let request = read_request(&mut stream);
                requests.lock().unwrap().push(request);
                answers[number.min(answers.len() - 1)](&mut stream);
            }
        });
        Self { port, seen }
    }

    fn new(answers: Vec<Answer>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answers)
    }

    /// Always the same bytes, then the end of the connection.
    fn saying(answer: impl Into<Vec<u8>>) -> Self {
        Self::new(vec![says(answer)])
    }

    fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/ready", self.port)
    }
}

fn says(answer: impl Into<Vec<u8>>) -> Answer {
    let answer = answer.into();
    // A client that has heard enough may be gone.
    Box::new(move |stream| drop(stream.write_all(&answer)))
}

/// Until the other side closes.
fn hangs() -> Answer {
    Box::new(|stream| drop(stream.read(&mut [0; 1])))
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head, and as much body as it says.
fn read_request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut request = Vec::new();
    let mut byte = [0];
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return text.into_owned();
            }
        }
        match stream.read(&mut byte) {
            Ok(0) => return text.into_owned(),
            Ok(_) => request.push(byte[0]),
            Err(error) => panic!("a request that does not end: {error}: {text:?}"),
        }
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.env_clear().args(arguments).stdin(Stdio::null());
    command
}

fn pintle(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn request(server: &Server, words: &[&str]) -> (Option<i32>, String, String) {
    let port = server.port.to_string();
    pintle(&[&["request", "--debug-port", &port], words].concat())
}

/// A port on which nobody listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn wait_for(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < end, "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_answer_is_printed_as_it_is_and_ends_its_line() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n2\r\ncd\r\n0\r\n\r\n";
    let table: [(Vec<u8>, &str); 6] = [
        (answer("200 OK", "with\nan end\n"), "with\nan end\n"),
        (answer("200 OK", "without"), "without\n"),
        (answer("200 OK", ""), ""),
        (answer("301 Moved", "elsewhere"), "elsewhere\n"),
        (chunked.into(), "a\nbcd\n"),
        (
            "HTTP/1.0 200 OK\r\n\r\nuntil the close".into(),
            "until the close\n",
        ),
    ];
    for (answer, expected) in table {
        let server = Server::saying(answer);
        let printed = request(&server, &["GET", "/x"]);
        assert_eq!(printed, (Some(0), expected.to_owned(), String::new()));
    }
}

#[test]
fn not_found_is_an_answer_and_other_refusals_are_not() {
    let server = Server::saying(answer("404 Not Found", "no such thing"));
    let printed = request(&server, &["GET", "nothing"]);
    assert_eq!(
        printed,
        (Some(0), "no such thing\n".to_owned(), String::new())
    );
    for (status, body, expected) in [
        ("400 Bad Request", "usage: x\n", "status 400: usage: x\n"),
        ("503 Service Unavailable", "", "status 503\n"),
        (
            "500 Oops",
            "\x1b[2Jcleared\r\n",
            "status 500: ?[2Jcleared?\n",
        ),
    ] {
        let server = Server::saying(answer(status, body));
        let (code, stdout, stderr) = request(&server, &["GET", "/x"]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        let port = server.port;
        assert_eq!(
            stderr,
            format!("pintle: cannot GET http://localhost:{port}/x: {expected}")
        );
    }
}

#[test]
fn a_long_refusal_is_cut() {
    let server = Server::saying(answer("500 Oops", &"x".repeat(1_000_000)));
    let (code, stdout, stderr) = request(&server, &["GET", "/x"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.len() < 5000, "{} bytes", stderr.len());
}

#[test]
fn method_path_and_body_arrive() {
    let server = Server::saying(answer("200 OK", "OK\n"));
    request(&server, &["get", "stats?filter=^a b$"]);
    request(&server, &["POST", "/logging"]);
    request(&server, &["POST", "/x", "--", "-a body\n"]);
    let requests = server.requests();
    assert!(
        requests[0].starts_with("GET /stats?filter=^a%20b$ HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[1].starts_with("POST /logging HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[1].contains("\r\nContent-Length: 0\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[2].contains("\r\nContent-Length: 8\r\n"),
        "{requests:?}"
    );
    assert!(requests[2].ends_with("\r\n\r\n-a body\n"), "{requests:?}");
    let host = format!("\r\nHost: localhost:{}\r\n", server.port);
    assert!(
        requests.iter().all(|request| request.contains(&host)),
        "{requests:?}"
    );
}

#[test]
fn head_has_no_body_to_wait_for() {
    let server = Server::new(vec![Box::new(|stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
            .unwrap();
        drop(stream.read(&mut [0; 1]));
    })]);
    let began = Instant::now();
    assert_eq!(request(&server, &["HEAD", "/"]).0, Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(50),
        "it waited for a body"
    );
}

#[test]
fn an_answer_that_ends_too_early_is_a_failure() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    let (code, stdout, stderr) = request(&server, &["GET", "/"]);
    assert_eq!((code, stdout.as_str()), (Some(1), "half\n"));
    assert!(
        stderr.ends_with(": the connection ended before the answer did\n"),
        "{stderr}"
    );
    for (rubbish, cause) in [
        ("", "the connection ended"),
        ("SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "not HTTP",
        ),
    ] {
        let server = Server::saying(rubbish);
        let (code, stdout, stderr) = request(&server, &["GET", "/"]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{rubbish}");
        assert!(stderr.contains(cause), "{rubbish}: {stderr}");
    }
}

#[test]
fn nobody_listening_is_said() {
    let port = free_port().to_string();
    for arguments in [
        &["request", "--debug-port", &port, "GET", "/"][..],
        &["probe", "--url", &format!("http://127.0.0.1:{port}/")],
        &["status", "--status-port", &port],
        &["status", "--status-port", &port, "--json"],
        &["status", "--status-port", &port, "--watch"],
        &["status", "--url", &format!("http://127.0.0.1:{port}")],
        &["drain", "--status-port", &port],
        &["quit", "--status-port", &port],
    ] {
        let (code, stdout, stderr) = pintle(arguments);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(
            stderr.starts_with("pintle: cannot "),
            "{arguments:?}: {stderr}"
        );
        let asks_agent = ["status", "drain", "quit"].contains(&arguments[0]);
        let remedy = if asks_agent {
            "; is it --status-port?"
        } else {
            ""
        };
        let end = format!(": Connection refused (os error 111){remedy}\n");
        assert!(stderr.ends_with(&end), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_server_on_the_other_loopback_is_found() {
    // Not one that the kernel chooses: it may give a server of another test the same port of 127.0.0.1.
    let mut ports = 10_000..20_000;
    let listener = ports.find_map(
        |port| match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            other => Some(other),
        },
    );
    let listener = match listener.unwrap() {
        Ok(listener) => listener,
        // A machine without IPv6 has nothing to show here.
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => return,
        Err(error) => panic!("{error}"),
    };
    let server = Server::on(listener, vec![says(answer("200 OK", "six\n"))]);
    assert_eq!(request(&server, &["GET", "/"]).1, "six\n");
    let port = server.port;
    for url in [
        format!("http://[::1]:{port}/"),
        format!("http://localhost:{port}/"),
    ] {
        assert_eq!(pintle(&["probe", "--url", &url]).0, Some(0), "{url}");
    }
    let url = format!("http://127.0.0.1:{port}/");
    assert_eq!(
        pintle(&["probe", "--url", &url]).0,
        Some(1),
        "an address is only itself"
    );
}

/// What a process holds at most, in kB; while it runs.
fn peak_memory(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// An output that takes nothing, or is not there, is a failure that does not blame whoever was asked.
#[test]
fn an_output_that_takes_nothing_is_a_failure() {
    let server = Server::saying(answer("200 OK", r#"{"state": "live"}"#));
    let port = server.port.to_string();
    for arguments in [
        &["version"][..],
        &["help"],
        &["proxy", "--help"],
        &["init", "-h"],
        &["request", "--debug-port", &port, "GET", "/x"],
        &["status", "--status-port", &port],
        &["status", "--status-port", &port, "--json", "--watch"],
    ] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        let expected = "pintle: cannot write to stdout: No space left on device (os error 28)\n";
        assert_eq!(stderr, expected, "{arguments:?}");

        let mut closed = command(arguments);
        sys::testing::close_stdout(&mut closed);
        let output = closed.stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        let expected = "pintle: cannot write to stdout: it is closed\n";
        assert_eq!(stderr, expected, "{arguments:?}");
    }
    // Who prints nothing needs no output.
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let probe = command(&["probe", "--url", &server.url()])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(probe.status.code(), Some(0));
}

#[test]
fn drain_and_quit_are_posts_without_a_body() {
    let server = Server::new(vec![
        says(answer("200 OK", "OK\n")),
        says(answer("200 OK", "OK\n")),
        says(answer("403 Forbidden", "Only requests from localhost\n")),
    ]);
    let port = server.port.to_string();
    for (order, path) in [("drain", "/drain"), ("quit", "/quitquitquit")] {
        let printed = pintle(&[order, "--status-port", &port]);
        assert_eq!(printed, (Some(0), String::new(), String::new()));
        let request = server.requests().pop().unwrap();
        let host = format!("POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\n");
        assert!(request.starts_with(&host), "{request}");
        assert!(request.contains("\r\nContent-Length: 0\r\n"), "{request}");
    }
    let refused = pintle(&["quit", "--status-port", &port]);
    let said = format!(
        "pintle: cannot POST http://localhost:{port}/quitquitquit: status 403: Only requests from localhost\n"
    );
    assert_eq!(refused, (Some(1), String::new(), said));
}

#[test]
fn a_huge_answer_passes_through_and_is_not_held() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 124;
    let server = Server::new(vec![Box::new(|stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .unwrap();
        let body = vec![b'x'; PIECE];
        for _ in 0..PIECES {
            stream
                .write_all(format!("{PIECE:x}\r\n").as_bytes())
                .unwrap();
            stream.write_all(&body).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    })]);
    let port = server.port.to_string();
    let mut child = command(&["request", "--debug-port", &port, "GET", "/config_dump"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut piece = vec![0; PIECE];
    let (mut length, mut held) = (0, 0);
    loop {
        // Before the last bytes are read it cannot have ended.
        held = peak_memory(&child).unwrap_or(0).max(held);
        match stdout.read(&mut piece).unwrap() {
            0 => break,
            read => length += read,
        }
    }
    assert_eq!(length, PIECE * PIECES + 1, "and a newline");
    assert_eq!(wait_for(&mut child), Some(0));
    assert!(held > 0 && held < 16 * 1024, "{held} kB");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let server = Server::saying(answer("200 OK", &"line\n".repeat(1_000_000)));
    let port = server.port.to_string();
    let mut child = command(&["request", "--debug-port", &port, "GET", "/stats"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 5]).unwrap();
    drop(stdout);
    assert_eq!(wait_for(&mut child), Some(0));
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(stderr, "");
}

#[test]
fn wait_ends_at_the_first_200() {
    let server = Server::new(vec![
        says(answer("503 Service Unavailable", "epoch 0 is not LIVE\n")),
        says(""),
        hangs(),
        says(answer("204 No Content", "")),
        says(answer("200 OK", "")),
    ]);
    let printed = pintle(&["wait", "--url", &server.url(), "--periodMillis=10"]);
    assert_eq!(printed, (Some(0), String::new(), String::new()));
    let requests = server.requests();
    assert_eq!(requests.len(), 5);
    assert!(
        requests[0].starts_with("GET /ready HTTP/1.1\r\nHost: 127.0.0.1:"),
        "{requests:?}"
    );
}

#[test]
fn wait_ends_in_its_time_with_the_last_error() {
    let reason = "missing: LDS\nand more\n";
    let server = Server::saying(answer("503 Service Unavailable", reason));
    let url = server.url();
    let began = Instant::now();
    let (code, stdout, stderr) = pintle(&[
        "wait",
        "--url",
        &url,
        "--timeout-seconds",
        "1",
        "--period-millis",
        "20",
    ]);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(
        stderr,
        format!(
            "pintle: cannot get 200 from {url}: waited 1s, last error: status 503: missing: LDS\n"
        )
    );
    assert!(server.requests().len() > 2, "it tried again and again");
}

#[test]
fn wait_tries_once_when_it_has_no_time() {
    let server = Server::saying(answer("200 OK", ""));
    let (code, ..) = pintle(&["wait", "--url", &server.url(), "--timeout-seconds", "0"]);
    assert_eq!(code, Some(0));
    let silent = Server::new(vec![hangs()]);
    let arguments = [
        "wait",
        "--timeout-seconds=0",
        "--request-timeout-millis=50",
        "--url",
    ];
    let (code, _, stderr) = pintle(&[&arguments[..], &[&silent.url()]].concat());
    assert_eq!(code, Some(1));
    assert!(stderr.ends_with(": no answer within 0.05s\n"), "{stderr}");
}

#[test]
fn wait_ends_with_a_signal() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/");
    let mut child = command(&["wait", "--url", &url]).spawn().unwrap();
    sys::testing::kill(i32::try_from(child.id()).unwrap(), libc::SIGTERM);
    assert_eq!(wait_for(&mut child), None, "it ended by the signal");
}

#[test]
fn probe_asks_once() {
    let server = Server::new(vec![
        says(answer("503 Service Unavailable", "draining\r\n")),
        says(answer("200 OK", "")),
    ]);
    let url = server.url();
    let (code, stdout, stderr) = pintle(&["probe", "--url", &url]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(
        stderr,
        format!("pintle: cannot get 200 from {url}: status 503: draining\n")
    );
    assert_eq!(server.requests().len(), 1);
    assert_eq!(pintle(&["probe", "--url", &url]).0, Some(0));
}

const STATUS: &str = r#"{"schema":1,"version":"0.1.0","state":"live","ready":true,"reason":"",
 "configuration":"01a2f95d5c8001a2","retry_budget":10,
 "epochs":[{"epoch":3,"pid":42,"state":"live","age_seconds":61,"why":"change"}],
 "companions":[],"events":[{"time":"2026-11-21T03:39:11Z","what":"epoch 3 is LIVE"}]}"#;

#[test]
fn status_is_a_table_or_the_json_as_it_is() {
    let server = Server::saying(answer("200 OK", STATUS));
    let port = server.port.to_string();
    let (code, stdout, stderr) = pintle(&["status", "--status-port", &port]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(
        stdout.contains("\nEPOCH  PID  STATE  AGE   WHY\n3      42   live   1m1s  change\n"),
        "{stdout}"
    );
    assert!(
        stdout.is_ascii() && !stdout.contains('\x1b'),
        "no colours in a pipe: {stdout:?}"
    );
    let (code, stdout, _) = pintle(&["status", "--json", "--statusPort", &port]);
    assert_eq!((code, stdout), (Some(0), format!("{STATUS}\n")));
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.starts_with("GET /status HTTP"))
    );
}

#[test]
fn something_else_on_the_status_port_is_said() {
    for (answer, cause) in [
        (answer("200 OK", "<html>"), "not a status of pintle's"),
        (
            answer("404 Not Found", "nothing here"),
            "status 404: nothing here",
        ),
        (answer("200 OK", &" ".repeat(300 * 1024)), "longer than"),
    ] {
        let server = Server::saying(answer);
        let (code, stdout, stderr) = pintle(&["status", "--status-port", &server.port.to_string()]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        assert!(stderr.contains(cause), "{stderr}");
    }
}

#[test]
fn watch_shows_what_comes_and_outlives_a_silence() {
    let server = Server::new(vec![
        says(answer("200 OK", STATUS)),
        says(""),
        says(answer("200 OK", &STATUS.replace("live", "draining"))),
    ]);
    let port = server.port.to_string();
    let mut child = command(&["status", "--watch", "--status-port", &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains("draining") {
        let read = stdout.read(&mut piece).unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&piece[..read]);
    }
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("LIVE\n\npintle: cannot GET "), "{shown}");
    assert!(shown.contains("did\n\nversion "), "{shown}");
    drop(stdout);
    assert_eq!(wait_for(&mut child), Some(0), "nobody reads any more");
}
