//! Probes over TLS and gRPC, which the real helper program makes, one process each.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::probes::{children, echo, helpers, leaves_nothing, said, settled, started, with};
use super::support::client::{Application, Reply, answer, asked, request, send, wait_for_close};
use super::support::{Setup, envoy, kill, port, quick, until};

/// A server of TLS, and what it needs.
struct Tls {
    child: Child,
    _directory: tempfile::TempDir,
    port: super::support::Port,
}

impl Tls {
    fn start() -> Self {
        Self::at("127.0.0.1")
    }

    fn at(host: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (key, certificate) = (path("key.pem"), path("cert.pem"));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args([
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=nobody",
                "-keyout",
                &key,
                "-out",
                &certificate,
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let port = port();
        let address = &format!("{host}:{}", port.number);
        let child = Command::new("openssl")
            .args([
                "s_server",
                "-quiet",
                "-www",
                "-cert",
                &certificate,
                "-key",
                &key,
            ])
            .args(["-accept", address])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the TLS server", || TcpStream::connect(address).ok());
        Self {
            child,
            _directory: directory,
            port,
        }
    }

    fn signal(&self, signal: i32) {
        kill(i32::try_from(self.child.id()).unwrap(), signal);
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// It must stand beside the agent.
fn need_helper() {
    let helper = Path::new(env!("CARGO_BIN_EXE_pintle")).with_file_name("pintle-probe");
    assert!(
        helper.exists(),
        "{} is missing: run cargo build -p pintle-probe first",
        helper.display()
    );
}

#[test]
fn https_and_grpc_are_probed_by_the_helper() {
    need_helper();
    let tls = Tls::start();
    let plain = Application::start(echo);
    let grpc = Application::start(health_is::<1>);
    let failing = Application::start(health_is::<2>);
    let nobody = port();
    let refused = nobody.number;
    let https = |port: u16| json!({"httpGet": {"port": port, "path": "/", "scheme": "HTTPS"}, "timeoutSeconds": 20});
    let health =
        |port: u16| json!({"grpc": {"port": port, "service": "a.b"}, "timeoutSeconds": 20});
    let agent = started(with(&json!({
        "/app-health/tls/livez": https(tls.port.number),
        "/app-health/plain/livez": https(plain.port),
        "/app-health/refused/livez": https(refused),
        "/app-health/grpc/livez": health(grpc.port),
        "/app-health/grpc/readyz": health(refused),
        "/app-health/grpc/startupz": health(failing.port),
    })));
    let before = settled(&agent);
    let (status, page) = said(&agent, "/app-health/tls/livez");
    assert!(status == 200 && page.contains("<HTML>"), "{status} {page}");
    for path in ["plain/livez", "refused/livez", "grpc/readyz"] {
        let (status, why) = said(&agent, &format!("/app-health/{path}"));
        assert_eq!(status, 500, "{path}: {why}");
        assert!(why.starts_with("cannot ") && why.ends_with('\n'), "{why}");
    }
    let (status, text) = said(&agent, "/app-health/grpc/livez");
    assert_eq!((status, text.trim_end()), (200, "SERVING"));
    let (status, text) = said(&agent, "/app-health/grpc/startupz");
    assert_eq!((status, text.trim_end()), (500, "service is NOT_SERVING"));
    leaves_nothing(&agent, before);
    assert!(!agent.log().contains("\twarn\t"), "{}", agent.log());
    agent.stop();
}

/// Just enough of HTTP/2 to say SERVING (1) or NOT_SERVING (2) to whoever asks for the health of anything.
fn health_is<const STATUS: u8>(_preface: &str, stream: &mut TcpStream) -> std::io::Result<()> {
    // What has been read of the client's preface is the line `PRI * HTTP/2.0` and the empty one.
    let mut preface = [0; 6];
    stream.read_exact(&mut preface)?;
    assert_eq!(&preface, b"SM\r\n\r\n");
    let frame = |kind: u8, flags: u8, id: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, id], payload].concat()
    };
    stream.write_all(&frame(4, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = usize::from(head[1]) * 256 + usize::from(head[2]);
        stream.read_exact(&mut vec![0; length])?;
        let (kind, flags) = (head[3], head[4]);
        if kind == 4 && flags & 1 == 0 {
            stream.write_all(&frame(4, 1, 0, &[]))?;
        }
        if kind <= 1 && flags & 1 != 0 {
            break;
        }
    }
    let literal = |name: &str, value: &str| {
        let length = |text: &str| u8::try_from(text.len()).unwrap();
        let head = [&[0, length(name)], name.as_bytes()].concat();
        [head, vec![length(value)], value.as_bytes().to_vec()].concat()
    };
    let headers = [vec![0x88], literal("content-type", "application/grpc")].concat();
    stream.write_all(&frame(1, 4, 1, &headers))?;
    stream.write_all(&frame(0, 0, 1, &[0, 0, 0, 0, 2, 8, STATUS]))?;
    stream.write_all(&frame(1, 5, 1, &literal("grpc-status", "0")))?;
    wait_for_close(stream);
    Ok(())
}

/// Where plain HTTP finds it, TLS and gRPC do, and a redirect from one to the other.
#[test]
fn the_helper_finds_an_application_on_ipv6_and_after_a_redirect() {
    need_helper();
    let (tls, six) = (Tls::start(), Tls::at("[::1]"));
    let grpc = Application::at("[::1]:0", health_is::<1>);
    let location = format!("Location: https://localhost:{}/\r\n", tls.port.number);
    let app = Application::saying(answer("301 Moved", &location, ""));
    let agent = started(with(&json!({
        "/app-health/moved/livez": {"httpGet": {"port": app.port}, "timeoutSeconds": 20},
        "/app-health/six/livez": {"httpGet": {"port": six.port.number, "scheme": "HTTPS"}, "timeoutSeconds": 20},
        "/app-health/six/readyz": {"grpc": {"port": grpc.port}, "timeoutSeconds": 20},
    })));
    let before = settled(&agent);
    for path in ["moved/livez", "six/livez", "six/readyz"] {
        let (status, text) = said(&agent, &format!("/app-health/{path}"));
        assert_eq!(status, 200, "{path}: {text}");
    }
    leaves_nothing(&agent, before);
    agent.stop();
}

/// The server of TLS is stopped while they pile up.
/// Its answer is nobody else's.
fn unlike_others(number: u32) -> String {
    let header = format!("X-Number: {number}\r\n");
    request("GET /app-health/tls/livez", &header)
}

/// From where Envoy passes on what comes from outside.
#[test]
fn strangers_leave_four_helpers_to_kubelet() {
    need_helper();
    let tls = Tls::start();
    let agent = started(with(&json!({"/app-health/tls/livez":
        {"httpGet": {"port": tls.port.number, "scheme": "HTTPS"}, "timeoutSeconds": 50}})));
    let before = settled(&agent);
    tls.signal(libc::SIGSTOP);
    let crowd: Vec<_> = (0..40)
        .map(|number| {
            let mut stream =
                sys::testing::connect_narrowly(Ipv4Addr::new(127, 0, 0, 6), agent.status.number)
                    .unwrap();
            write!(stream, "{}", unlike_others(number)).unwrap();
            stream
        })
        .collect();
    until("four helpers", || (helpers(&agent) == 4).then_some(()));
    let ask = |number| send(agent.status.number, &unlike_others(number)).unwrap();
    let mut kubelets = [ask(100), ask(101), ask(102), ask(103)];
    until("eight helpers", || (helpers(&agent) == 8).then_some(()));
    tls.signal(libc::SIGCONT);
    for stream in kubelets.iter_mut().chain(&mut { crowd }) {
        assert_eq!(Reply::read(stream).unwrap().status, 200);
    }
    leaves_nothing(&agent, before);
    agent.stop();
}

#[test]
fn eight_helpers_run_at_once_and_the_others_wait_for_their_turn() {
    need_helper();
    let tls = Tls::start();
    let agent = started(with(&json!({"/app-health/tls/livez":
        {"httpGet": {"port": tls.port.number, "scheme": "HTTPS"}, "timeoutSeconds": 50}})));
    let before = settled(&agent);
    tls.signal(libc::SIGSTOP);
    let probes: Vec<_> = (0..12)
        .map(|number| send(agent.status.number, &unlike_others(number)).unwrap())
        .collect();
    until("eight helpers", || (helpers(&agent) == 8).then_some(()));
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        assert_eq!(helpers(&agent), 8);
        assert_eq!(agent.status("/healthz/live").status, 200);
    }
    tls.signal(libc::SIGCONT);
    let most = AtomicUsize::new(0);
    thread::scope(|scope| {
        let answers: Vec<_> = probes
            .into_iter()
            .map(|mut probe| scope.spawn(move || Reply::read(&mut probe)))
            .collect();
        while !answers.iter().all(thread::ScopedJoinHandle::is_finished) {
            most.fetch_max(helpers(&agent), Ordering::Relaxed);
        }
        for answer in answers {
            assert_eq!(answer.join().unwrap().map(|reply| reply.status), Ok(200));
        }
    });
    assert!(most.load(Ordering::Relaxed) <= 8, "{most:?}");
    leaves_nothing(&agent, before);
    agent.stop();
}

/// Its stack, until it is a program of its own, is a part of the agent's.
#[test]
fn a_helper_leaves_no_memory_behind() {
    need_helper();
    let tls = Tls::start();
    let agent = started(with(&json!({"/app-health/tls/livez":
        {"httpGet": {"port": tls.port.number, "scheme": "HTTPS"}, "timeoutSeconds": 50}})));
    let before = settled(&agent);
    // A page gives back what is needed seldom, and a probe takes what is needed often.
    assert_eq!(agent.status("/status").status, 200);
    assert_eq!(agent.readiness().0, 200);
    let least = agent.memory("Anonymous:");
    for _ in 0..5 {
        assert_eq!(agent.status("/app-health/tls/livez").status, 200);
        leaves_nothing(&agent, before);
        // A probe of the application takes a page or two of stack more; the helper's would be three.
        let settled = || (agent.memory("Anonymous:") <= least + 8).then_some(());
        until("the memory of before", settled);
    }
    agent.stop();
}

/// A helper that hangs ends with its probe, and one whose client has gone does not stay for ever.
#[test]
fn a_helper_that_is_late_is_killed() {
    need_helper();
    let silent = Application::start(|_, stream| {
        wait_for_close(stream);
        Ok(())
    });
    // It waits for the end of a head that never comes.
    let https = |seconds: u64| json!({"httpGet": {"port": silent.port, "scheme": "HTTPS"}, "timeoutSeconds": seconds});
    let agent = started(with(&json!({
        "/app-health/tls/livez": https(1),
        "/app-health/tls/readyz": https(4),
    })));
    let before = settled(&agent);
    let path = "/app-health/tls/livez";
    let (status, why) = quick(path, Duration::from_millis(1900), || said(&agent, path));
    assert_eq!(status, 500, "{why}");
    leaves_nothing(&agent, before);
    let patient = request("GET /app-health/tls/readyz", "");
    let other = request("GET /app-health/tls/readyz", "X-Other: yes\r\n");
    let gone = send(agent.status.number, &other).unwrap();
    drop(gone);
    // Stopped, it cannot obey its own deadline.
    let mut stopped = send(agent.status.number, &patient).unwrap();
    for (path, ..) in until("a helper", || {
        (helpers(&agent) == 2).then(|| children(agent.child.id()))
    }) {
        let pid: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        if pid != agent.proxy_pid(0) {
            kill(pid, libc::SIGSTOP);
        }
    }
    let reply = Reply::read(&mut stopped).unwrap();
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (500, "no answer in time\n")
    );
    leaves_nothing(&agent, before);
    agent.stop();
}

/// A copy of the agent that stands alone.
#[test]
fn without_the_helper_the_start_warns_and_the_probe_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("pintle");
    fs::copy(env!("CARGO_BIN_EXE_pintle"), &alone).unwrap();
    let app = Application::start(echo);
    let start = |https: &str| {
        let probers = json!({
            "/app-health/a/livez": {"port": app.port, "path": "/200"},
            "/app-health/b/livez": {"port": app.port, "path": "/200", "scheme": https},
            "/app-health/c/livez": {"tcpSocket": {"port": app.port}},
        });
        let setup = Setup::with(&alone, "proxy", &envoy());
        setup.write("envoy.json", &setup.configuration("hello").to_string());
        let file = setup.path("envoy.json");
        let setup = setup.arg("--custom-config-file").arg(file);
        started(setup.env("ISTIO_KUBE_APP_PROBERS", &probers.to_string()))
    };
    let agent = start("HTTPS");
    let helper = directory.path().join("pintle-probe");
    let helper = helper.display();
    let warning =
        format!("warn\t{helper} is missing: HTTPS and gRPC probes of the application will fail");
    assert!(agent.log().contains(&warning), "{}", agent.log());
    let before = settled(&agent);
    for _ in 0..20 {
        let (status, why) = said(&agent, "/app-health/b/livez");
        assert_eq!(status, 500);
        assert!(
            why.starts_with(&format!("cannot start {helper}: ")),
            "{why}"
        );
    }
    assert_eq!(said(&agent, "/app-health/a/livez").0, 200);
    leaves_nothing(&agent, before);
    agent.stop();
    let agent = start("HTTP");
    assert!(!agent.log().contains("is missing"), "{}", agent.log());
    assert_eq!(
        asked(agent.status.number, "GET /app-health/b/livez").status,
        200
    );
    agent.stop();
}

/// The next in line is told at once, not when something else happens.
#[test]
fn helpers_that_cannot_be_started_any_more_do_not_hold_up_the_others() {
    need_helper();
    let directory = tempfile::tempdir().unwrap();
    for name in ["pintle", "pintle-probe"] {
        let from = Path::new(env!("CARGO_BIN_EXE_pintle")).with_file_name(name);
        fs::copy(from, directory.path().join(name)).unwrap();
    }
    let tls = Tls::start();
    let setup = Setup::with(&directory.path().join("pintle"), "proxy", &envoy());
    setup.write("envoy.json", &setup.configuration("hello").to_string());
    let file = setup.path("envoy.json");
    let probers = json!({"/app-health/tls/livez":
        {"httpGet": {"port": tls.port.number, "scheme": "HTTPS"}, "timeoutSeconds": 50}});
    let setup = setup.arg("--custom-config-file").arg(file);
    let agent = started(setup.env("ISTIO_KUBE_APP_PROBERS", &probers.to_string()));
    let before = settled(&agent);
    tls.signal(libc::SIGSTOP);
    let probes: Vec<_> = (0..16)
        .map(|number| send(agent.status.number, &unlike_others(number)).unwrap())
        .collect();
    until("eight helpers", || (helpers(&agent) == 8).then_some(()));
    fs::remove_file(directory.path().join("pintle-probe")).unwrap();
    let begun = Instant::now();
    tls.signal(libc::SIGCONT);
    let answers = probes
        .into_iter()
        .map(|mut probe| Reply::read(&mut probe).unwrap().status);
    let (good, bad): (Vec<_>, Vec<_>) = answers.partition(|status| *status == 200);
    assert_eq!((good.len(), bad), (8, vec![500; 8]));
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    leaves_nothing(&agent, before);
    agent.stop();
}
