//! Clients that mean harm, at the status port of the real binary. Whatever they do, a probe is answered within a second,
//! and afterwards the agent has the descriptors, the threads and the memory that it had before.
//!
//! The proxy is a script, and its admin port is served here: what it answers is known, and as long as a test wants it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "a test may panic, wait and read the clock"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::{Agent, Port, Setup, port, quick, until};
use sys::testing;

/// Connections that the status port takes at once: `PLACES` of `src/init/status/mod.rs`.
const PLACES: usize = 64;
/// A probe's patience, as kubelet's default.
const PATIENCE: Duration = Duration::from_secs(1);
const PROBE: &[u8] = b"GET /healthz/ready HTTP/1.1\r\nHost: 10.0.0.7:15020\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\nConnection: close\r\n\r\n";
/// A flood, and who measures, has the machine for itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// An agent under attack.
struct Target {
    agent: Agent,
    status: u16,
    _port: Port,
    /// The script is read after it has been started.
    _folder: Option<tempfile::TempDir>,
}

impl Target {
    fn start() -> Self {
        Self::with(&pintle(), |setup| setup)
    }

    fn with(pintle: &Path, more: impl FnOnce(Setup) -> Setup) -> Self {
        // What stands in for Envoy does nothing but stay.
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("envoy");
        fs::write(&script, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let setup = Setup::with(pintle, "proxy", &script);
        serve_admin(setup.admin_port());
        let this = Self::finish(more(setup), Some(folder));
        until("readiness", || (this.probe() == Ok(200)).then_some(()));
        this
    }

    fn finish(setup: Setup, folder: Option<tempfile::TempDir>) -> Self {
        let status = port();
        let number = status.number.to_string();
        let setup = setup.args(&["--status-port", &number]);
        Self {
            agent: setup.start(),
            status: status.number,
            _port: status,
            _folder: folder,
        }
    }

    fn connect(&self) -> TcpStream {
        connect((Ipv4Addr::LOCALHOST, self.status).into())
    }

    /// Sends, and reads to the end; what came before a reset counts.
    fn talk(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        send(&mut stream, bytes);
        receive(&mut stream)
    }

    /// The status of the answer; 0: none.
    fn status_of(&self, bytes: &[u8]) -> u16 {
        status_of(&self.talk(bytes))
    }

    /// As kubelet does it.
    fn probe(&self) -> Result<u16, String> {
        probe(self.status)
    }

    fn assert_well(&self) {
        assert_eq!(self.probe(), Ok(200), "{}", self.agent.log());
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.agent.child.id())).join(name)
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    fn threads(&self) -> usize {
        fs::read_dir(self.proc("task")).unwrap().count()
    }

    /// Returns the kB that a file's mappings may still add to `Rss:`. The kernel maps a file 64 kB at a time, at addresses that are a
    /// multiple of that (`fault_around_bytes`): which page is left for later depends on where the program has been loaded.
    /// A mapping of which nothing is resident has been given back, and adds nothing.
    fn unmapped_code(&self, file: &Path) -> u64 {
        let file = file.canonicalize().unwrap();
        let mappings = fs::read_to_string(self.proc("smaps")).unwrap();
        let (mut ours, mut size, mut unmapped) = (false, 0, 0);
        for line in mappings.lines() {
            match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
                ["Size:", kilobytes, _] => size = kilobytes.parse().unwrap(),
                ["Rss:", kilobytes, _] if ours => match kilobytes.parse::<u64>().unwrap() {
                    0 => {}
                    resident => unmapped += size - resident,
                },
                [range, _, _, _, _, ref path @ ..] if range.contains('-') => {
                    ours = path.first().is_some_and(|path| Path::new(path) == file);
                }
                _ => {}
            }
        }
        unmapped
    }

    /// Waits until there are as many descriptors as there were.
    fn wait_descriptors(&self, before: usize) {
        until("the descriptors of before", || {
            (self.descriptors() <= before).then_some(())
        });
        assert_eq!(self.threads(), 1);
    }
}

/// The agent of these tests; another may be named, the release binary say.
fn pintle() -> PathBuf {
    std::env::var_os("PINTLE_BINARY")
        .map_or_else(|| env!("CARGO_BIN_EXE_pintle").into(), PathBuf::from)
}

/// Answers like an Envoy that is LIVE; its metrics have no end.
fn serve_admin(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or(0);
            if head[..read].starts_with(b"GET /stats/prometheus?endless") {
                thread::spawn(move || {
                    let head = b"HTTP/1.1 200 OK\r\n\r\n";
                    let lines = b"envoy_some_metric{of=\"a listener\"} 1\n".repeat(1000);
                    let mut sent = stream.write_all(head);
                    while sent.is_ok() {
                        sent = stream.write_all(&lines);
                        // The machine is not to be slowed by who serves a test.
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                continue;
            }
            let body = "listener_manager.workers_started: 1\nserver.hot_restart_generation: 1\n";
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            drop(stream.write_all(answer.as_bytes()));
        }
    });
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(20)).unwrap();
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(Duration::from_secs(20))).unwrap();
    }
    stream
}

/// What is refused half way is no failure of the test.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    drop(stream.write_all(bytes));
}

fn receive(stream: &mut TcpStream) -> String {
    let (mut answer, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) => {
                let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
                assert!(!late, "neither an answer nor an end: {answer:?}");
                break;
            }
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn status_of(answer: &str) -> u16 {
    answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .unwrap_or(0)
}

/// kubelet gives up after a second, and a test with it.
fn probe(port: u16) -> Result<u16, String> {
    let said = |error: std::io::Error| error.to_string();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(said)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(said)?;
    stream.write_all(PROBE).map_err(said)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(said)?;
    Ok(status_of(&answer))
}

/// Probes all the time; none may fail or take more than a second.
struct Probes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u32, Duration, Vec<String>)>,
}

impl Probes {
    fn of(target: &Target) -> Self {
        let (stop, port) = (Arc::new(AtomicBool::new(false)), target.status);
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut passed, mut longest, mut failed) = (0, Duration::ZERO, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let result = probe(port);
                longest = longest.max(began.elapsed());
                match result {
                    Ok(200) if began.elapsed() < PATIENCE => passed += 1,
                    other => failed.push(format!("{other:?} after {:?}", began.elapsed())),
                }
                thread::sleep(Duration::from_millis(20));
            }
            (passed, longest, failed)
        });
        Self { stop, thread }
    }

    fn finish(self, during: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let (passed, longest, failed) = self.thread.join().unwrap();
        eprintln!("{during}: {passed} probes passed, the longest took {longest:?}");
        assert!(
            failed.is_empty() && passed > 0,
            "{during}: {} of {} failed: {failed:?}",
            failed.len(),
            failed.len() + passed as usize
        );
    }
}

/// A close that is a reset, and leaves no waiting behind.
fn reset(stream: TcpStream) {
    testing::reset_at_close(&stream).unwrap();
}

fn request(method: &str, target: &str, headers: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").into_bytes()
}

fn local_order(target: &str, headers: &str) -> Vec<u8> {
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
}

/// Rubbish of every kind, each with the status that it deserves; 0: the connection is just closed.
fn rubbish() -> Vec<(&'static str, Vec<u8>, u16)> {
    let get = |headers: &str| request("GET", "/healthz/live", headers);
    let many = |count: usize| get(&"X: y\r\n".repeat(count));
    let long = |count: usize| get(&format!("X: {}\r\n", "y".repeat(count)));
    let joined = |parts: &[&[u8]]| parts.concat();
    vec![
        ("a plain request", get(""), 200),
        ("a head of 8 KiB", long(8192 - get("X: \r\n").len()), 200),
        ("a byte more", long(8193 - get("X: \r\n").len()), 431),
        ("a head of 9 KiB", long(9 * 1024), 431),
        ("a head of 60 KiB", long(60 * 1024), 431),
        ("64 headers", many(63), 200),
        ("65 headers", many(64), 431),
        ("1000 headers", many(1000), 431),
        ("pipelined rubbish", joined(&[&get(""), &[0xFF; 5000]]), 200),
        ("pipelined requests", get("").repeat(100), 200),
        (
            "an absolute form",
            request("GET", "http://evil.example/healthz/live", ""),
            200,
        ),
        (
            "an absolute form to nowhere",
            request("GET", "http://evil.example/x", ""),
            404,
        ),
        (
            "another scheme",
            request("GET", "file:///etc/passwd", ""),
            404,
        ),
        (
            "an authority form",
            request("CONNECT", "evil.example:443", ""),
            400,
        ),
        ("an asterisk", request("OPTIONS", "*", ""), 400),
        (
            "a path that climbs",
            request("GET", "/../../etc/passwd", ""),
            404,
        ),
        (
            "an unknown container",
            request("GET", "/app-health/nobody/readyz", ""),
            404,
        ),
        (
            "an unknown hook",
            request("GET", "/app-lifecycle/nobody/prestopz", ""),
            404,
        ),
        (
            "a port of nobody's",
            request("GET", "/", "istio-app-probe-port: 22\r\n"),
            403,
        ),
        ("an order by GET", request("GET", "/quitquitquit", ""), 405),
        (
            "a page's order",
            request("POST", "/quitquitquit", "Origin: http://evil.example\r\n"),
            403,
        ),
        (
            "a page's drain",
            request("POST", "/drain", "Origin: null\r\n"),
            403,
        ),
        ("another method", request("DELETE", "/status", ""), 405),
        (
            "a body that never comes",
            request("GET", "/healthz/live", "Content-Length: 99999\r\n"),
            200,
        ),
        (
            "two lengths",
            get("Content-Length: 1\r\nContent-Length: 2\r\n"),
            400,
        ),
        ("a negative length", get("Content-Length: -1\r\n"), 400),
        (
            "a length beyond all",
            get("Content-Length: 99999999999999999999\r\n"),
            400,
        ),
        (
            "two framings",
            get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            400,
        ),
        (
            "a chunked lie",
            joined(&[
                &get("Transfer-Encoding: chunked\r\n"),
                b"FFFFFFFFFFFFFFFFF\r\n",
            ]),
            200,
        ),
        ("NUL bytes", vec![0; 100], 400),
        ("a NUL in the path", request("GET", "/\0", ""), 400),
        ("a NUL in a header", get("X: a\0b\r\n"), 400),
        ("a folded header", get("X: a\r\n b\r\n"), 400),
        ("a blank before the colon", get("X : a\r\n"), 400),
        ("HTTP/0.9", b"GET /healthz/live\r\n".to_vec(), 400),
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
            400,
        ),
        (
            "a TLS hello",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rest".to_vec(),
            400,
        ),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), 400),
        (
            "bytes of all kinds",
            (0..=255).cycle().take(20_000).collect(),
            400,
        ),
    ]
}

#[test]
fn rubbish_gets_the_answer_that_it_deserves() {
    let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let target = Target::start();
    let before = target.descriptors();
    for (what, bytes, expected) in rubbish() {
        assert_eq!(target.status_of(&bytes), expected, "{what}");
    }
    // The same in two pieces, and in small ones.
    for (what, bytes, expected) in rubbish() {
        for size in [7, bytes.len() / 2 + 1] {
            let mut stream = target.connect();
            stream.set_nodelay(true).unwrap();
            for piece in bytes.chunks(size).take(2000) {
                send(&mut stream, piece);
            }
            assert_eq!(status_of(&receive(&mut stream)), expected, "{what}");
        }
    }
    target.assert_well();
    target.wait_descriptors(before);
    target.agent.stop();
}

#[test]
fn a_client_that_goes_on_sending_hears_that_its_head_is_too_large() {
    let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let target = Target::start();
    let before = target.descriptors();
    let mut stream = target.connect();
    let mut sender = stream.try_clone().unwrap();
    let thread = thread::spawn(move || {
        let mut sent = sender.write_all(b"GET / HTTP/1.1\r\n");
        let mut bytes = 0;
        while sent.is_ok() {
            // Below what is thrown away in the second after the answer.
            sent = sender.write_all(&b"X: y\r\n".repeat(20));
            bytes += 120;
            thread::sleep(Duration::from_millis(5));
        }
        bytes
    });
    assert_eq!(status_of(&receive(&mut stream)), 431);
    // The agent has closed: the sender hears of it, too.
    let bytes = thread.join().unwrap();
    assert!(bytes < 1_000_000, "{bytes} were taken");
    target.wait_descriptors(before);
    target.assert_well();
}

#[test]
fn a_head_that_takes_more_than_five_seconds_is_not_waited_for() {
    let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let target = Target::start();
    let before = target.descriptors();
    let probes = Probes::of(&target);
    let slow = |head: &'static [u8]| {
        let mut stream = target.connect();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        thread::spawn(move || {
            let began = Instant::now();
            for byte in head.iter().cycle() {
                send(&mut stream, &[*byte]);
                match stream.read(&mut [0; 512]) {
                    Ok(0) => break,
                    Ok(_) => panic!("an answer"),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Closed with bytes of the client unread.
                    Err(_) => break,
                }
            }
            began.elapsed()
        })
    };
    // Forty bytes in 5 s: no end of a head is among them, nor are there 8 KiB.
    let threads = [
        slow(b"GET /healthz/ready HTTP/1.1\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"),
        slow(b"\r\n"),
        slow(b"G"),
    ];
    for thread in threads {
        let lasted = thread.join().unwrap();
        let expected = Duration::from_millis(4_500)..Duration::from_millis(7_500);
        assert!(expected.contains(&lasted), "{lasted:?}");
    }
    probes.finish("slow heads");
    target.wait_descriptors(before);
}

#[test]
fn half_open_connections_keep_nobody_out() {
    let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let target = Target::start();
    let before = target.descriptors();
    let mut held = Vec::new();
    for (what, said, more) in [
        ("silent", &b""[..], 264),
        ("a byte", b"G", 264),
        ("half a head", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", 264),
        ("a head of which 7 KiB are there", &[b'a'; 7 * 1024], 264),
    ] {
        for count in 0..more {
            let mut stream = target.connect();
            send(&mut stream, said);
            held.push(stream);
            if count >= PLACES && count % 25 == 0 {
                let began = Instant::now();
                assert_eq!(target.probe(), Ok(200), "{what}: beside {count}");
                assert!(began.elapsed() < PATIENCE, "{what}: {:?}", began.elapsed());
            }
        }
        assert!(target.descriptors() <= before + PLACES + 2, "{what}");
    }
    // Every one of them is closed by the agent, sooner or later.
    let probes = Probes::of(&target);
    for mut stream in held {
        assert_eq!(receive(&mut stream), "");
    }
    probes.finish("half-open connections");
    target.wait_descriptors(before);
}

/// Whole requests that do not read their answer.
fn stalled(target: &Target, count: usize) -> Vec<TcpStream> {
    let endless = request("GET", "/metrics?endless", "");
    (0..count)
        .map(|_| {
            let mut stream = target.connect();
            send(&mut stream, &endless);
            stream
        })
        .collect()
}

#[test]
fn scrapes_that_nobody_reads_keep_nobody_out_and_end() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let target = Target::start();
    let (before, resident) = (target.descriptors(), target.agent.memory("Rss:"));
    let probes = Probes::of(&target);
    let held = quick(
        "the end of scrapes that nobody reads",
        Duration::from_secs(20),
        || {
            let mut held = stalled(&target, PLACES + 200);
            thread::sleep(Duration::from_secs(2));
            let refused = target.status_of(&request("GET", "/metrics", ""));
            assert_eq!(refused, 503, "there are too many");
            let grown = target.agent.memory("Rss:").saturating_sub(resident);
            eprintln!("scrapes that nobody reads: {grown} kB more");
            assert!(grown < 1024, "{grown} kB");
            // A client that says something now and then is a client that does not read all the same.
            until("the end of all of them", || {
                for stream in &mut held {
                    send(stream, b"x");
                }
                thread::sleep(Duration::from_millis(200));
                (target.descriptors() <= before + 1).then_some(())
            });
            held
        },
    );
    probes.finish("264 scrapes that nobody reads");
    assert_eq!(target.status_of(&request("GET", "/metrics", "")), 200);
    drop(held);
    target.wait_descriptors(before);
    target.assert_well();
}

/// 300 at once, and then more and more, who ask for a page that is larger than what the kernel takes, and do not read. Half
/// of them come from where Envoy's inbound pass-through does.
#[test]
fn pages_that_nobody_reads_fail_no_probe() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let long = format!("/bin/sleep{} 1000", "/".repeat(4000));
    let target = Target::with(&pintle(), |mut setup| {
        for _ in 0..8 {
            setup = setup.args(&["--companion", &long]);
        }
        setup
    });
    let (before, resident) = (target.descriptors(), target.agent.memory("Rss:"));
    assert!(target.talk(&request("GET", "/status", "")).len() > 32_000);
    for topic in ["/status", "/", "/metrics"] {
        let asked = request("GET", topic, "");
        let (stop, port) = (AtomicBool::new(false), target.status);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut held = VecDeque::new();
                for number in 0_u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let source = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 6)];
                    if let Ok(mut stream) =
                        testing::connect_narrowly(source[number as usize % 2], port)
                    {
                        send(&mut stream, &asked);
                        held.push_back(stream);
                    }
                    if number > 300 {
                        drop(held.pop_front());
                        thread::sleep(Duration::from_millis(2));
                    }
                }
                held.into_iter().for_each(reset);
            });
            thread::sleep(Duration::from_millis(100));
            let probes = Probes::of(&target);
            thread::sleep(Duration::from_millis(2500));
            let grown = target.agent.memory("Rss:").saturating_sub(resident);
            stop.store(true, Ordering::Relaxed);
            probes.finish(topic);
            eprintln!("{topic}: {grown} kB more");
            assert!(grown < 1536, "{topic}: {grown} kB");
        });
        target.assert_well();
    }
    target.wait_descriptors(before);
    target.agent.stop();
}

/// `ISTIO_KUBE_APP_PROBERS` with one probe.
fn prober(port: u16, seconds: u8) -> String {
    format!(
        "{{\"/app-health/app/readyz\": {{\"httpGet\": {{\"path\": \"/x\", \"port\": {port}}}, \"timeoutSeconds\": {seconds}}}}}"
    )
}

/// While it drains, the agent asks nobody: all places become free at the end of one turn, and nothing else wakes it for
/// those that had none.
#[test]
fn a_crowd_that_is_answered_at_once_holds_up_nobody() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let probers = prober(silent.local_addr().unwrap().port(), 50);
    let target = Target::with(&pintle(), |setup| {
        setup.env("ISTIO_KUBE_APP_PROBERS", &probers)
    });
    // Beside one that stays, whose place cannot be had.
    let mut stays = target.connect();
    send(&mut stays, &request("GET", "/app-health/app/readyz", ""));
    let asked = silent.accept().unwrap();
    assert_eq!(target.status_of(&local_order("/drain", "")), 200);
    until("the drain", || (target.probe() == Ok(503)).then_some(()));
    quick("a crowd of probes", PATIENCE, || {
        target.agent.signal(libc::SIGSTOP);
        let crowd: Vec<_> = (0..PLACES + 30)
            .map(|_| {
                let mut stream = target.connect();
                send(&mut stream, PROBE);
                stream
            })
            .collect();
        target.agent.signal(libc::SIGCONT);
        for mut stream in crowd {
            assert_eq!(status_of(&receive(&mut stream)), 503);
        }
    });
    drop((stays, asked));
    target.agent.stop();
}

#[test]
fn probes_of_a_silent_application_keep_nobody_out() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    // The kernel takes its connections, and nobody answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let probers = prober(port, 4);
    let target = Target::with(&pintle(), |setup| {
        setup.env("ISTIO_KUBE_APP_PROBERS", &probers)
    });
    let before = target.descriptors();
    let probes = Probes::of(&target);
    let asked = request("GET", "/app-health/app/readyz", "");
    let held: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = target.connect();
            send(&mut stream, &asked);
            stream
        })
        .collect();
    let mut answers: Vec<_> = held
        .into_iter()
        .map(|mut stream| status_of(&receive(&mut stream)))
        .collect();
    probes.finish("200 probes of a silent application");
    answers.sort_unstable();
    let late = answers.iter().filter(|status| **status == 500).count();
    let refused = answers.iter().filter(|status| **status == 503).count();
    assert_eq!(
        (late, refused),
        (PLACES - 3, 200 - (PLACES - 3)),
        "{answers:?}"
    );
    target.wait_descriptors(before);
    // One asked for all; when its time was over another did, if that had some left.
    silent.set_nonblocking(true).unwrap();
    let asked = silent.incoming().take_while(Result::is_ok).count();
    assert!((1..=20).contains(&asked), "{asked}");
}

/// Nobody reads the head; each is answered after a while, all at the same time.
fn slow_application(after: Duration) -> (u16, Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            kept.lock().unwrap().push(Instant::now());
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                drop(stream.read(&mut [0; 4096]));
                thread::sleep(after);
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"));
            });
        }
    });
    (port, asked)
}

const APPLICATION_PROBE: &[u8] = b"GET /app-health/app/readyz HTTP/1.1\r\nHost: 10.0.0.7:15020\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\nConnection: close\r\n\r\n";

#[test]
fn sixty_askers_of_a_slow_application_do_not_refuse_kubelet() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let (port, asked) = slow_application(Duration::from_secs(2));
    let target = Target::with(&pintle(), |setup| {
        setup.env("ISTIO_KUBE_APP_PROBERS", &prober(port, 20))
    });
    let before = target.descriptors();
    let ask = |bytes: &[u8]| {
        let mut stream = target.connect();
        send(&mut stream, bytes);
        stream
    };
    let path = "/app-health/app/readyz";
    let askers: Vec<_> = (0..60).map(|_| ask(&request("GET", path, ""))).collect();
    let kubelet = [ask(APPLICATION_PROBE)];
    for mut stream in askers.into_iter().chain(kubelet) {
        let answer = receive(&mut stream);
        assert!(
            status_of(&answer) == 200 && answer.ends_with("fine"),
            "{answer}"
        );
    }
    // The others' headers are not kubelet's.
    assert_eq!(asked.lock().unwrap().len(), 2);
    target.assert_well();
    target.wait_descriptors(before);
    target.agent.stop();
}

/// In a network with other pods in it. Each of theirs asks for something else, so that nothing can be shared.
#[test]
fn strangers_do_not_keep_the_node_out() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    in_a_network_of_its_own(|| {
        let (port, asked) = slow_application(Duration::from_secs(2));
        let target = Target::with(&pintle(), |setup| {
            setup
                .args(&["--status-address", "0.0.0.0"])
                .env("ISTIO_KUBE_APP_PROBERS", &prober(port, 20))
                .env("HOST_IP", "10.9.1.1")
        });
        let before = target.descriptors();
        let ask = |from: &str, bytes: &[u8]| {
            let mut stream =
                testing::connect_narrowly(from.parse().unwrap(), target.status).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            send(&mut stream, bytes);
            stream
        };
        // What the kernel thinks of as the node's own is not what `HOST_IP` says.
        let mut node = ask("10.9.1.2", PROBE);
        assert_eq!(status_of(&receive(&mut node)), 200);
        let path = "/app-health/app/readyz";
        let crowd: Vec<_> = (0..300)
            .map(|number| {
                let own = request("GET", path, &format!("X-Mine: {number}\r\n"));
                ask(&format!("10.9.2.{}", number % 250 + 1), &own)
            })
            .collect();
        for address in ["127.0.0.1", "10.9.1.1", "10.9.1.2"] {
            for path in ["/healthz/live", "/healthz/ready"] {
                let answer = quick(address, PATIENCE, || {
                    receive(&mut ask(address, &request("GET", path, "")))
                });
                assert_eq!(status_of(&answer), 200, "{path} from {address}");
            }
        }
        let held: Vec<_> = ["127.0.0.1", "10.9.1.1", "10.9.1.2"]
            .map(|address| ask(address, APPLICATION_PROBE))
            .into();
        for mut stream in held {
            assert_eq!(status_of(&receive(&mut stream)), 200);
        }
        let answers = crowd
            .into_iter()
            .map(|mut stream| status_of(&receive(&mut stream)));
        let passed = answers.filter(|status| *status == 200).count();
        assert!((40..=PLACES - 8).contains(&passed), "{passed}");
        assert_eq!(
            asked.lock().unwrap().len(),
            passed + 1,
            "the last three are one"
        );
        target.wait_descriptors(before);
        target.agent.stop();
    });
}

/// Connections one after the other, of every kind, and few of them read an answer.
fn flood(port: u16, connections: usize) {
    let live = request("GET", "/healthz/live", "");
    let scrape = request("GET", "/metrics", "");
    let page = request("GET", "/", "");
    for number in 0..connections {
        let mut stream = connect((Ipv4Addr::LOCALHOST, port).into());
        match number % 10 {
            0 => reset(stream),
            1 => drop(stream),
            2 => {
                send(&mut stream, &live);
                reset(stream);
            }
            3 => {
                send(&mut stream, PROBE);
                reset(stream);
            }
            4 => {
                send(&mut stream, &scrape);
                reset(stream);
            }
            5 => {
                send(&mut stream, &page);
                drop(stream);
            }
            6 => {
                send(&mut stream, b"GET /hea");
                reset(stream);
            }
            7 => {
                send(&mut stream, &[0xFE; 9000]);
                drop(stream);
            }
            8 => {
                send(&mut stream, &live.repeat(3));
                assert_eq!(status_of(&receive(&mut stream)), 200);
            }
            _ => {
                send(&mut stream, &live);
                assert_eq!(status_of(&receive(&mut stream)), 200);
                reset(stream);
            }
        }
    }
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let target = Target::start();
    let before = target.descriptors();
    let probes = Probes::of(&target);
    let port = target.status;
    let threads: Vec<_> = (0..4)
        .map(|_| thread::spawn(move || flood(port, 2_500)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    probes.finish("10,000 connections");
    target.wait_descriptors(before);
    target.assert_well();
    target.agent.stop();
}

/// Runs `what` in a network namespace of its own, with a loopback and an address that is not one.
fn in_a_network_of_its_own(what: impl FnOnce() + Send) {
    if sys::effective_uid() != 0 {
        eprintln!("not root: there is no network namespace to be had");
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            testing::leave_network().unwrap();
            for line in ["link set lo up", "addr add 10.9.0.0/16 dev lo"] {
                let done = Command::new("ip").args(line.split(' ')).status().unwrap();
                assert!(done.success(), "ip {line}");
            }
            what();
        });
    });
}

#[test]
fn orders_are_taken_from_loopback_only() {
    let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    in_a_network_of_its_own(|| {
        let mut target = Target::with(&pintle(), |setup| setup.args(&["--status-address", "::"]));
        let status = target.status;
        let ask = |address: &str, bytes: &[u8]| {
            let mut stream = connect(SocketAddr::new(address.parse().unwrap(), status));
            send(&mut stream, bytes);
            status_of(&receive(&mut stream))
        };
        let order = |target: &str, headers: &str| local_order(target, headers);
        let (quit, drain) = ("/quitquitquit", "/drain");
        let lies = [
            "",
            "X-Forwarded-For: 127.0.0.1\r\n",
            "Forwarded: for=127.0.0.1\r\n",
            "Host: localhost\r\n",
        ];
        for lie in lies {
            for path in [quit, drain, "http://localhost/drain"] {
                assert_eq!(ask("10.9.9.9", &order(path, lie)), 403, "{path} {lie}");
            }
        }
        assert_eq!(ask("10.9.9.9", &request("GET", quit, "")), 403);
        assert_eq!(ask("10.9.9.9", PROBE), 200);
        // A host may have no IPv6.
        let six = if TcpListener::bind("[::1]:0").is_ok() {
            "::1"
        } else {
            "127.0.0.1"
        };
        for local in ["127.0.0.1", "127.9.9.9", six] {
            let page = order(drain, "Origin: http://evil.example\r\n");
            assert_eq!(ask(local, &page), 403, "{local}");
        }
        let own = |headers: &str| format!("POST {drain} HTTP/1.1\r\n{headers}\r\n").into_bytes();
        for lie in [
            "Host: evil.example\r\n",
            "Host: evil.example\r\nOrigin: http://localhost\r\n",
            "Host: localhost\r\nHost: evil.example\r\n",
            "Host: 10.9.9.9\r\n",
        ] {
            assert_eq!(ask("127.0.0.1", &own(lie)), 403, "{lie}");
        }
        // From where Envoy's inbound pass-through comes.
        for path in [quit, drain] {
            let mut stream =
                testing::connect_narrowly(Ipv4Addr::new(127, 0, 0, 6), status).unwrap();
            send(&mut stream, &order(path, ""));
            assert_eq!(status_of(&receive(&mut stream)), 403, "{path}");
        }
        assert_eq!(ask("127.0.0.1", PROBE), 200, "nothing has been drained");
        // The first is a mapped address to who listens on `::`.
        for local in ["127.0.0.1", six] {
            let chunked = [
                order(drain, "Transfer-Encoding: chunked\r\n"),
                b"5\r\nhello\r\n0\r\n\r\n".to_vec(),
            ];
            assert_eq!(ask(local, &chunked.concat()), 200, "{local}");
        }
        until("draining", || {
            (ask("127.0.0.1", PROBE) == 503).then_some(())
        });
        let longer = [order(quit, "Content-Length: 70000\r\n"), vec![b'x'; 20]];
        assert_eq!(ask(six, &longer.concat()), 200);
        target.agent.wait();
    });
}

/// A round of everything that passes quickly.
fn round(target: &Target) {
    for (_, bytes, _) in rubbish() {
        target.talk(&bytes);
    }
    for topic in ["/", "/status", "/metrics"] {
        for _ in 0..20 {
            target.talk(&request("GET", topic, ""));
        }
    }
    for stream in stalled(target, PLACES + 20) {
        reset(stream);
    }
    for said in [&b""[..], b"G", &[b'a'; 7 * 1024]] {
        let held: Vec<_> = (0..PLACES + 20)
            .map(|_| {
                let mut stream = target.connect();
                send(&mut stream, said);
                stream
            })
            .collect();
        target.assert_well();
        held.into_iter().for_each(reset);
    }
    flood(target.status, 2_000);
    target.assert_well();
}

/// The release binary, where `build/dist` has left one.
fn released() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dist");
    let path = path.join(std::env::consts::ARCH).join("pintle");
    path.exists().then_some(path)
}

/// Many who probe at the same time, and nothing else.
fn crowd(target: &Target) {
    let (begin, rest) = PROBE.split_at(20);
    let mut held: Vec<_> = (0..PLACES - 4).map(|_| target.connect()).collect();
    for stream in &mut held {
        send(stream, begin);
    }
    for stream in &mut held {
        send(stream, rest);
    }
    for mut stream in held {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    }
}

#[test]
fn an_attack_leaves_no_memory_behind() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    // The small one's code is resident from the beginning, but for pages that the kernel has not mapped yet; of a large one
    // more is with each case.
    let (binary, fields) = match released() {
        Some(binary) => (binary, &["Anonymous:", "Rss:"][..]),
        None => (pintle(), &["Anonymous:"][..]),
    };
    let target = Target::with(&binary, |setup| setup);
    let descriptors = target.descriptors();
    let measured = || {
        target.assert_well();
        target.wait_descriptors(descriptors);
        let one = |field: &&str| target.agent.memory(field);
        fields.iter().map(one).collect::<Vec<_>>()
    };
    // A page gives back what is needed seldom; afterwards nobody asks for one.
    assert_eq!(target.status_of(&request("GET", "/", "")), 200);
    let mut before = measured();
    let unmapped = target.unmapped_code(&binary);
    eprintln!(
        "{}: {fields:?} {before:?} kB, and {unmapped} kB of code",
        binary.display()
    );
    if let [_, resident] = &mut before[..] {
        *resident += unmapped;
    }
    for _ in 0..10 {
        round(&target);
        crowd(&target);
        until("the memory of before", || {
            let after = measured();
            let less = before
                .iter()
                .zip(&after)
                .all(|(before, after)| after <= before);
            less.then_some(())
        });
    }
    target.agent.stop();
}

#[test]
fn kubelet_is_answered_by_the_real_envoy_under_attack() {
    let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let target = Target::finish(Setup::new("hello"), None);
    until("readiness", || (target.probe() == Ok(200)).then_some(()));
    let before = target.descriptors();
    let probes = Probes::of(&target);
    for _ in 0..3 {
        round(&target);
    }
    probes.finish("the real Envoy");
    assert_eq!(target.agent.get().as_deref(), Ok("hello"));
    assert!(
        target
            .talk(&request("GET", "/metrics", ""))
            .contains("envoy_server_live")
    );
    target.wait_descriptors(before);
    target.agent.stop();
}
