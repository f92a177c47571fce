//! Peers that mean harm on the far side: the application that is probed, Envoy's admin port, a probe helper, a source of
//! metrics, the log's reader, and the server that a client command asks. Each is endless, slow, garbage, half-closed or
//! reset in each phase of its answer. Meanwhile liveness is answered at once, and TERM ends the agent.

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

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{ask, request, send, wait_for_close};
use support::{Agent, Setup, quick, until};

/// A liveness probe beside any peer.
const ALIVE: Duration = Duration::from_millis(100);
/// From TERM to the end: the drain is 100 ms, and a call to the admin port may take a second before that.
const TERM: Duration = Duration::from_secs(5);
/// Written at once by an endless peer.
const PIECE: usize = 64 * 1024;
/// Between two bytes of a slow peer.
const SLOW: Duration = Duration::from_millis(5);

const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const LONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n";
const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// What a peer does, once it has been asked.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The first once, the second without end, as fast as it is taken.
    Endless(&'static str, &'static str),
    /// The same byte by byte.
    Slow(&'static str, &'static str),
    /// All bytes there are, again and again.
    Garbage(&'static str),
    /// No more will come, and the connection stays.
    HalfClosed(&'static str),
    Reset(&'static str),
    /// Nothing more, and the connection stays.
    Silent(&'static str),
    /// The whole answer, and nothing but the connection's end is missing.
    Says(&'static str),
}

/// In each phase: before the head, in it, in interim answers, in the body.
const DEEDS: &[Deed] = &[
    Deed::Endless("", INTERIM),
    Deed::Endless("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    Deed::Endless("", "\r\n"),
    Deed::Endless("", "x"),
    Deed::Endless("HTTP/1.1 200 OK\r\n", "x: y\r\n"),
    Deed::Endless("HTTP/1.1 200 OK\r\nx: ", "y"),
    Deed::Endless(OK, "a 1\n"),
    Deed::Endless(OK, "a::127.0.0.1:1\n"),
    Deed::Endless(OK, "<p>no metric</p>\n"),
    Deed::Endless(OK, "x"),
    Deed::Endless(CHUNKED, "1\r\na\r\n"),
    Deed::Endless(CHUNKED, "0000000000000000"),
    Deed::Endless(LONG, "# TYPE a unknown\n"),
    Deed::Slow("", INTERIM),
    Deed::Slow("HTTP/1.1 200 OK\r\nx: ", "y"),
    Deed::Slow(OK, "a 1\n"),
    Deed::Slow(CHUNKED, "1\r\na\r\n"),
    Deed::Garbage(""),
    Deed::Garbage(OK),
    Deed::Garbage(CHUNKED),
    Deed::HalfClosed(""),
    Deed::HalfClosed(INTERIM),
    Deed::HalfClosed("HTTP/1.1 200 OK\r\nx"),
    Deed::HalfClosed(LONG),
    Deed::Reset(""),
    Deed::Reset(INTERIM),
    Deed::Reset("HTTP/1.1 200 OK\r\nx"),
    Deed::Reset(LONG),
    Deed::Silent(""),
    Deed::Silent(INTERIM),
    Deed::Silent(LONG),
    Deed::Says("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"),
];

impl Deed {
    fn has_head(self) -> bool {
        let (Self::Endless(first, _)
        | Self::Slow(first, _)
        | Self::Garbage(first)
        | Self::HalfClosed(first)
        | Self::Reset(first)
        | Self::Silent(first)
        | Self::Says(first)) = self;
        [OK, CHUNKED, LONG].contains(&first)
    }

    /// Until the other side has gone.
    fn to(self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Endless(first, again) => {
                stream.write_all(first.as_bytes())?;
                let again = again.repeat(PIECE / again.len());
                loop {
                    stream.write_all(again.as_bytes())?;
                }
            }
            Self::Slow(first, again) => {
                stream.set_nodelay(true)?;
                stream.write_all(first.as_bytes())?;
                for byte in again.bytes().cycle() {
                    stream.write_all(&[byte])?;
                    thread::sleep(SLOW);
                }
                Ok(())
            }
            Self::Garbage(first) => {
                stream.write_all(first.as_bytes())?;
                let all: Vec<u8> = (0..=255).cycle().take(PIECE).collect();
                loop {
                    stream.write_all(&all)?;
                }
            }
            Self::HalfClosed(first) => {
                stream.write_all(first.as_bytes())?;
                stream.shutdown(Shutdown::Write)?;
                wait_for_close(stream);
                Ok(())
            }
            Self::Reset(first) => {
                stream.write_all(first.as_bytes())?;
                sys::testing::reset_at_close(stream).unwrap();
                Ok(())
            }
            Self::Silent(first) => {
                stream.write_all(first.as_bytes())?;
                wait_for_close(stream);
                Ok(())
            }
            Self::Says(answer) => stream.write_all(answer.as_bytes()),
        }
    }
}

/// A server; what it does is said by the number of the connection and by the head of the request.
struct Foe {
    port: u16,
    /// Connections on which `deed` gave something to do.
    attacks: Arc<AtomicUsize>,
    /// Those of them that are over.
    ended: Arc<AtomicUsize>,
}

impl Foe {
    /// `deed` is given the number of the attack and the request; `None` is an honest Envoy's answer.
    fn at(port: u16, deed: impl Fn(usize, &str) -> Option<Deed> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let [attacks, ended] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (count, over, deed) = (Arc::clone(&attacks), Arc::clone(&ended), Arc::new(deed));
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (count, over, deed) = (count.clone(), over.clone(), deed.clone());
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut head = [0; 4096];
                    let read = stream.read(&mut head).unwrap_or(0);
                    let head = String::from_utf8_lossy(&head[..read]);
                    // Who has heard enough is gone.
                    drop(match deed(count.load(Ordering::Relaxed), &head) {
                        Some(deed) => {
                            count.fetch_add(1, Ordering::Relaxed);
                            let done = deed.to(&mut stream);
                            over.fetch_add(1, Ordering::Relaxed);
                            done
                        }
                        None => stream.write_all(honest(&head).as_bytes()),
                    });
                });
            }
        });
        Self {
            port,
            attacks,
            ended,
        }
    }

    /// To everybody the same.
    fn new(deed: Deed) -> Self {
        Self::at(0, move |_, _| Some(deed))
    }

    fn wait(&self, count: usize) {
        until("an attack", || {
            (self.attacks.load(Ordering::Relaxed) >= count).then_some(())
        });
    }
}

/// As an Envoy that is LIVE.
fn honest(head: &str) -> String {
    let body = if head.starts_with("GET /stats?") {
        "listener_manager.workers_started: 1\nserver.hot_restart_generation: 1\n"
    } else {
        "main::127.0.0.1:8080\n"
    };
    support::client::answer("200 OK", "", body)
}

/// An agent whose proxy is a script that does nothing but stay.
fn start(setup: Setup) -> Agent {
    setup
        .args(&["--termination-drain-duration", "100ms"])
        .start()
}

fn setup(pintle: &Path) -> (tempfile::TempDir, Setup) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("envoy");
    write_script(&script, "exec sleep 1000");
    (folder, Setup::with(pintle, "proxy", &script))
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn pintle() -> PathBuf {
    env!("CARGO_BIN_EXE_pintle").into()
}

fn wait_alive(agent: &Agent) {
    until("liveness", || {
        ask(agent.status.number, &request("GET /healthz/live", ""))
            .is_ok()
            .then_some(())
    });
}

/// Clients that mean harm, too, as few as leave places to who asks for the test: silent, half a head, rubbish, answers
/// that are not read, a reset.
fn hostile_clients(agent: &Agent) -> Vec<TcpStream> {
    let whole = |line: &str| request(line, "");
    let said = [
        String::new(),
        "GET /healthz".to_owned(),
        "\0\u{ff}\r\n\r\n".to_owned(),
        whole("GET /metrics"),
        whole("GET /"),
        whole("GET /status").repeat(100),
    ];
    let mut held: Vec<_> = said
        .iter()
        .cycle()
        .take(2 * said.len())
        .map(|said| send(agent.status.number, said).unwrap())
        .collect();
    for stream in held.split_off(said.len()) {
        sys::testing::reset_at_close(&stream).unwrap();
    }
    held
}

/// Liveness at once, a few times, and then TERM.
fn survives(agent: Agent, what: &str) {
    let clients = hostile_clients(&agent);
    stays_alive(&agent, what);
    ends(agent, what);
    drop(clients);
}

fn stays_alive(agent: &Agent, what: &str) {
    for _ in 0..3 {
        quick(&format!("liveness beside {what}"), ALIVE, || {
            let live = send(agent.status.number, &request("GET /healthz/live", ""));
            let mut live = live.unwrap();
            live.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            // What is late is told by the time that it took.
            drop(live.read(&mut [0; 1]));
        });
    }
}

fn ends(mut agent: Agent, what: &str) {
    let began = Instant::now();
    agent.signal(libc::SIGTERM);
    let code = agent.wait().code();
    // 143: never LIVE.
    assert!(
        matches!(code, Some(0 | 143)),
        "{what}: {code:?} {}",
        agent.log()
    );
    let took = began.elapsed();
    assert!(took < TERM, "{what}: TERM was obeyed after {took:?}");
}

/// Asks again and again, whatever comes, until the agent has gone.
fn keep_asking(agent: &Agent, line: &str) {
    let (port, request) = (agent.status.number, request(line, ""));
    thread::spawn(move || {
        while let Ok(mut stream) = send(port, &request) {
            drop(io::copy(&mut stream, &mut io::sink()));
            // A refusal must not make the test a flood of its own.
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// `ISTIO_KUBE_APP_PROBERS` with a probe for each of these ports.
fn probers(ports: impl Iterator<Item = u16>, action: &str) -> String {
    let each: Vec<_> = ports
        .enumerate()
        .map(|(number, port)| {
            format!(
                "\"/app-health/c{number}/readyz\": {{{}, \"timeoutSeconds\": 20}}",
                action.replace("PORT", &port.to_string())
            )
        })
        .collect();
    format!("{{{}}}", each.join(", "))
}

const HTTP_GET: &str = "\"httpGet\": {\"path\": \"/x\", \"port\": PORT}";

/// All at once: 32 of the 40 probes that may be under way.
#[test]
fn an_application_that_is_probed() {
    let foes: Vec<_> = DEEDS.iter().map(|deed| Foe::new(*deed)).collect();
    let (_folder, setup) = setup(&pintle());
    let _admin = Foe::at(setup.admin_port(), |_, _| None);
    let probers = probers(foes.iter().map(|foe| foe.port), HTTP_GET);
    let agent = start(setup.env("ISTIO_KUBE_APP_PROBERS", &probers));
    wait_alive(&agent);
    for (number, foe) in foes.iter().enumerate() {
        keep_asking(&agent, &format!("GET /app-health/c{number}/readyz"));
        foe.wait(1);
    }
    survives(agent, "applications of all kinds");
}

/// Each alone, so that a turn which does not end has a name.
#[test]
fn an_admin_port() {
    for deed in DEEDS {
        let (_folder, setup) = setup(&pintle());
        let foe = Foe::at(setup.admin_port(), |_, _| Some(*deed));
        let agent = start(setup);
        wait_alive(&agent);
        keep_asking(&agent, "GET /healthz/ready");
        foe.wait(1);
        survives(agent, &format!("an admin port: {deed:?}"));
    }
}

/// LIVE, and hostile where its listeners or its metrics are asked for.
#[test]
fn an_admin_port_that_was_honest() {
    for path in ["GET /listeners ", "GET /stats/prometheus "] {
        for deed in DEEDS.iter().filter(|deed| deed.has_head()) {
            let (_folder, setup) = setup(&pintle());
            let foe = Foe::at(setup.admin_port(), move |_, head| {
                head.starts_with(path).then_some(*deed)
            });
            let agent = start(setup.args(&["--application-ports", "8080"]));
            wait_alive(&agent);
            keep_asking(&agent, "GET /healthz/ready");
            keep_asking(&agent, "GET /metrics");
            foe.wait(1);
            survives(agent, &format!("{path}: {deed:?}"));
        }
    }
}

/// Hostile once it is asked to drain, or whether connections are left.
#[test]
fn an_admin_port_at_the_end() {
    let deeds = [
        Deed::Endless("", INTERIM),
        Deed::Endless(CHUNKED, "1\r\na\r\n"),
        Deed::Slow("HTTP/1.1 200 OK\r\nx: ", "y"),
        Deed::Garbage(OK),
        Deed::HalfClosed("HTTP/1.1 200 OK\r\nx"),
        Deed::Reset(LONG),
        Deed::Silent(LONG),
    ];
    for path in ["POST /drain_listeners?", "GET /stats?filter=^listener"] {
        for deed in deeds {
            let (_folder, setup) = setup(&pintle());
            let foe = Foe::at(setup.admin_port(), move |_, head| {
                head.starts_with(path).then_some(deed)
            });
            let drain = [
                "--exit-on-zero-active-connections",
                "--minimum-drain-duration",
                "0s",
                "--termination-drain-duration",
                "20s",
            ];
            let agent = setup.args(&drain).start();
            agent.wait_readiness(200, "ready");
            agent.signal(libc::SIGTERM);
            foe.wait(1);
            let what = format!("{path}: {deed:?}");
            stays_alive(&agent, &what);
            // The second skips the drain.
            ends(agent, &what);
        }
    }
}

/// Scrapes of an application, one of each kind, as many as there may be.
#[test]
fn an_application_that_is_scraped() {
    for deeds in DEEDS.chunks(16) {
        let foe = Foe::at(0, |number, _| Some(deeds[number % deeds.len()]));
        let (_folder, setup) = setup(&pintle());
        let _admin = Foe::at(setup.admin_port(), |_, _| None);
        let annotations = format!("{{\"scrape\": \"true\", \"port\": \"{}\"}}", foe.port);
        let agent = start(setup.env("ISTIO_PROMETHEUS_ANNOTATIONS", &annotations));
        agent.wait_readiness(200, "ready");
        for number in 1..=deeds.len() {
            keep_asking(&agent, "GET /metrics");
            foe.wait(number);
        }
        survives(agent, "sources of metrics");
    }
}

/// A source from which nothing passes gives no occasion to write to the client, and so to learn that it has gone.
#[test]
fn a_scrape_ends_with_its_client() {
    let deeds = [
        Deed::Endless(OK, "<p>no metric</p>\n"),
        Deed::Endless(LONG, "# TYPE a unknown\n"),
        Deed::Slow(OK, "<p>no metric</p>\n"),
        Deed::Silent(""),
    ];
    for deed in deeds {
        let foe = Foe::new(deed);
        let (_folder, setup) = setup(&pintle());
        let _admin = Foe::at(setup.admin_port(), |_, _| None);
        let annotations = format!("{{\"scrape\": \"true\", \"port\": \"{}\"}}", foe.port);
        let agent = start(setup.env("ISTIO_PROMETHEUS_ANNOTATIONS", &annotations));
        agent.wait_readiness(200, "ready");
        let scrape = |timeout: &str| {
            let header = format!("X-Prometheus-Scrape-Timeout-Seconds: {timeout}\r\n");
            send(agent.status.number, &request("GET /metrics", &header)).unwrap()
        };
        let mut clients = [(); 2].map(|()| scrape("60"));
        foe.wait(2);
        let [read, unread] = &mut clients;
        // Nothing is left to be taken, so that its close is no reset; and the other's is one.
        let wait = Some(Duration::from_millis(100));
        read.set_read_timeout(wait).unwrap();
        while read.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        unread.peek(&mut [0; 1]).unwrap();
        let began = Instant::now();
        drop(clients);
        until("the end of both", || {
            (foe.ended.load(Ordering::Relaxed) == 2).then_some(())
        });
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{deed:?}: {took:?}");
        // One that stays gets the end of its answer: 2 s are for both sources and their way.
        let mut stays = scrape("2");
        let reply = support::client::Reply::read(&mut stays).unwrap();
        assert!(reply.text().contains("pintle_build_info"), "{deed:?}");
        agent.stop();
    }
}

/// It said all that it has to say, and listens.
#[test]
fn a_scrape_goes_on_for_a_client_that_has_closed_its_side() {
    let foe = Foe::new(Deed::Slow(OK, "a 1\n"));
    let (_folder, setup) = setup(&pintle());
    let _admin = Foe::at(setup.admin_port(), |_, _| None);
    let annotations = format!("{{\"scrape\": \"true\", \"port\": \"{}\"}}", foe.port);
    let agent = start(setup.env("ISTIO_PROMETHEUS_ANNOTATIONS", &annotations));
    agent.wait_readiness(200, "ready");
    let mut client = send(agent.status.number, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    while String::from_utf8_lossy(&seen).matches("\na 1").count() < 20 {
        let mut piece = [0; 4096];
        let read = client.read(&mut piece).unwrap();
        assert!(read > 0, "cut off after {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..read]);
    }
    drop(client);
    until("its end", || {
        (foe.ended.load(Ordering::Relaxed) == 1).then_some(())
    });
    agent.stop();
}

/// Eight at a time; stdin and stdout are one socket.
#[test]
fn a_probe_helper() {
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("pintle");
    fs::copy(pintle(), &agent).unwrap();
    // The service's name says what it does.
    write_script(
        &folder.path().join("pintle-probe"),
        "for word; do case $word in --service=*) exec sh -c \"${word#--service=}\";; esac; done",
    );
    let (_folder, setup) = setup(&agent);
    let _admin = Foe::at(setup.admin_port(), |_, _| None);
    let deeds = [
        "exec yes \"$(printf 'HTTP/1.1 100 Continue\\r\\n\\r')\"",
        "exec cat /dev/zero",
        "printf 'HTTP/1.1 200 OK\\r\\n'; exec yes 'x: y'",
        "printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; exec yes",
        "while printf 'HTTP/1.1 100 Continue\\r'; do sleep 0.05; done",
        "exec >&- <&-; sleep 1000",
        "printf 'HTTP/1.1 2'; kill -9 $$",
        "sleep 1000",
    ];
    let each: Vec<_> = deeds
        .iter()
        .enumerate()
        .map(|(number, deed)| {
            let grpc = serde_json::json!({
                "grpc": {"port": 1, "service": deed}, "timeoutSeconds": 20
            });
            format!("\"/app-health/c{number}/readyz\": {grpc}")
        })
        .collect();
    let agent = start(setup.env(
        "ISTIO_KUBE_APP_PROBERS",
        &format!("{{{}}}", each.join(", ")),
    ));
    wait_alive(&agent);
    for number in 0..deeds.len() {
        keep_asking(&agent, &format!("GET /app-health/c{number}/readyz"));
    }
    survives(agent, "helpers");
}

/// What the agent has killed at its end is not started again by who goes on asking: it would be waited for.
#[test]
fn no_helper_is_started_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("pintle");
    fs::copy(pintle(), &agent).unwrap();
    write_script(
        &folder.path().join("pintle-probe"),
        "printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'",
    );
    let (directory, setup) = setup(&agent);
    let _admin = Foe::at(setup.admin_port(), |_, _| None);
    // An orphan that does not heed TERM keeps the agent there for a while.
    write_script(
        &directory.path().join("envoy"),
        "setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & exec sleep 1000",
    );
    let grpc = "{\"/app-health/c/readyz\": {\"grpc\": {\"port\": 1}, \"timeoutSeconds\": 20}}";
    let agent = start(setup.env("ISTIO_KUBE_APP_PROBERS", grpc));
    agent.wait_readiness(200, "ready");
    assert_eq!(agent.status("/app-health/c/readyz").status, 200);
    agent.signal(libc::SIGTERM);
    agent.wait_log("stopping adopted process");
    let reply = agent.status("/app-health/c/readyz");
    assert_eq!(
        (reply.status, reply.text()),
        (500, "the agent is stopping\n".to_owned())
    );
    ends(agent, "an orphan that does not heed TERM");
}

/// Nobody reads the pipe that is stdout, and it is full from the beginning.
#[test]
fn a_reader_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (wrapper, pipe) = (folder.path().join("wrapper"), folder.path().join("pipe"));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let mut reader = options.open(&pipe).unwrap();
    while reader.write(&[b'\n'; 512]).is_ok() {}
    let line = format!("exec '{}' \"$@\" >'{}'", pintle().display(), pipe.display());
    write_script(&wrapper, &line);
    let (_folder, setup) = setup(&wrapper);
    let _admin = Foe::at(setup.admin_port(), |_, _| None);
    let agent = start(setup.args(&["--log-output-level", "debug"]));
    agent.wait_readiness(200, "ready");
    for _ in 0..100 {
        agent.signal(libc::SIGUSR1);
    }
    survives(agent, "a reader who does not read");
}

/// `wait`, `probe`, `status` and `request` keep to their time, whatever the server does.
#[test]
fn a_server_of_the_client_commands() {
    let foes: Vec<_> = DEEDS.iter().map(|deed| (deed, Foe::new(*deed))).collect();
    let mut asked = Vec::new();
    for (deed, foe) in &foes {
        let url = format!("http://127.0.0.1:{}/x", foe.port);
        let number = foe.port.to_string();
        let wait = [
            "wait",
            "--timeout-seconds",
            "1",
            "--request-timeout-millis",
            "300",
            "--url",
            &url,
        ];
        asked.push(run(deed, &wait));
        asked.push(run(deed, &["probe", "--url", &url]));
        asked.push(run(deed, &["status", "--status-port", &number]));
        // The others' answers go on for the 60 s that they have.
        if !deed.has_head() && matches!(deed, Deed::Endless(..) | Deed::Garbage(_)) {
            asked.push(run(
                deed,
                &["request", "--debug-port", &number, "GET", "/x"],
            ));
        }
    }
    // The allowance is 5 s, and the machine is shared by all of them.
    let end = Instant::now() + Duration::from_secs(30);
    for (what, mut child) in asked {
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                drop(child.kill());
                drop(child.wait());
                panic!("{what} goes on and on");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn run(deed: &Deed, arguments: &[&str]) -> (String, std::process::Child) {
    let child = Command::new(pintle())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (format!("{} against {deed:?}", arguments[0]), child)
}
