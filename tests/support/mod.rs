//! What every test of the real binary needs: an agent in a directory of its own, with ports and a base id of its own,
//! and ways to wait for things that poll with a deadline.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sys::testing;

pub(crate) mod client;

/// Generous: the machine may be busy with something else altogether.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Polls `condition` until it gives something.
pub(crate) fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What happens in time on a machine that is not busy with something else: in one of the tries of ten seconds, of five at
/// least. What is held up as a rule is so in each.
pub(crate) fn quick<T>(what: &str, limit: Duration, mut action: impl FnMut() -> T) -> T {
    let mut took = Vec::new();
    let first = Instant::now();
    while took.len() < 5 || first.elapsed() < Duration::from_secs(10) {
        let begun = Instant::now();
        let value = action();
        took.push(begun.elapsed());
        if begun.elapsed() < limit {
            return value;
        }
    }
    panic!("{what} took {took:?}, {limit:?} are allowed");
}

/// The real Envoy, which `build/envoy` fetches.
pub(crate) fn envoy() -> PathBuf {
    let path = std::env::var_os("PINTLE_ENVOY").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/envoy/envoy-1.40.0"),
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} is missing: run build/envoy first",
        path.display()
    );
    path.canonicalize().unwrap()
}

/// A port that no other test here uses, below the range of outgoing connections and above what build/ports.py gives. Envoy binds with SO_REUSEPORT, so a
/// collision would not be an error but a mix-up: the abstract socket is the lock.
pub(crate) struct Port {
    pub number: u16,
    _lock: UnixDatagram,
}

pub(crate) fn port() -> Port {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = 26_000 + u16::try_from((std::process::id() * 131 + step) % 6_000).unwrap();
        let name = format!("pintle_test_port_{number}");
        let address = UnixAddr::from_abstract_name(name).unwrap();
        if let Ok(lock) = UnixDatagram::bind_addr(&address)
            // Agents listen on all addresses: whoever has one of them is in the way.
            && TcpListener::bind(("0.0.0.0", number)).is_ok()
        {
            return Port {
                number,
                _lock: lock,
            };
        }
    }
}

/// An agent that runs, in a directory that goes with it.
pub(crate) struct Agent {
    pub child: Child,
    pub directory: tempfile::TempDir,
    pub admin: Port,
    pub listener: Port,
    pub status: Port,
    /// The base ids of proxies that a killed agent had.
    left: RefCell<BTreeSet<String>>,
}

/// An agent that is being described.
pub(crate) struct Setup {
    command: Command,
    directory: tempfile::TempDir,
    admin: Port,
    listener: Port,
    status: Port,
}

impl Setup {
    /// A sidecar with the real Envoy and a custom configuration: one listener that answers `body`, one watched file.
    pub(crate) fn new(body: &str) -> Self {
        Self::bare(&envoy()).with_listener(body)
    }

    /// The same with a command beside it: `pintle run`. What follows `--` is the last argument.
    pub(crate) fn run(body: &str) -> Self {
        Self::of("run", &envoy()).with_listener(body)
    }

    /// As `new`, but the configuration is a template, so that the agent writes the file that the proxy reads.
    pub(crate) fn written(body: &str) -> Self {
        Self::bare(&envoy()).with_file("--template-file", body)
    }

    fn with_listener(self, body: &str) -> Self {
        self.with_file("--custom-config-file", body)
    }

    fn with_file(self, flag: &str, body: &str) -> Self {
        let setup = self;
        let configuration = setup.configuration(body);
        setup.write("envoy.json", &configuration.to_string());
        let file = setup.path("envoy.json");
        setup.arg(flag).arg(file)
    }

    /// An agent for any proxy binary, with quick timings, and nothing said about its configuration.
    pub(crate) fn bare(binary: &Path) -> Self {
        Self::of("proxy", binary)
    }

    /// As `bare`, for `proxy` or `run`.
    pub(crate) fn of(subcommand: &str, binary: &Path) -> Self {
        Self::with(Path::new(env!("CARGO_BIN_EXE_pintle")), subcommand, binary)
    }

    /// As `of`, for a copy of the agent.
    pub(crate) fn with(agent: &Path, subcommand: &str, binary: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(agent);
        // What the machine's environment says must not matter.
        command.env_clear().stdin(Stdio::null());
        // Nor that a shell runs the tests in the background, with INT and QUIT ignored.
        testing::heed_signals(&mut command);
        let setup = Self {
            command,
            directory,
            admin: port(),
            listener: port(),
            status: port(),
        };
        setup.write("cert.pem", "first");
        let (directory, certificate) = (setup.path("run"), setup.path("cert.pem"));
        let admin = setup.admin.number.to_string();
        let status = setup.status.number.to_string();
        // A sidecar, unless another role is among the arguments.
        let mut setup = setup.arg(subcommand);
        for (variable, value) in [
            ("ISTIO_META_TLS_SERVER_CERT_CHAIN", certificate.as_path()),
            ("ISTIO_META_TLS_SERVER_KEY", &certificate),
            ("ISTIO_META_TLS_SERVER_ROOT_CERT", &certificate),
            ("ISTIO_META_TLS_CLIENT_CERT_CHAIN", &certificate),
            ("ISTIO_META_TLS_CLIENT_KEY", &certificate),
            ("ISTIO_META_TLS_CLIENT_ROOT_CERT", &certificate),
        ] {
            setup.command.env(variable, value);
        }
        setup
            .arg("--config-path")
            .arg(directory)
            .arg("--binary-path")
            .arg(binary)
            .args(&[
                "--proxy-admin-port",
                &admin,
                "--status-port",
                &status,
                "--base-id",
                "auto",
                "--concurrency",
                "2",
            ])
            .args(&["--drain-duration", "2s", "--parent-shutdown-duration", "4s"])
            .args(&[
                "--cert-debounce",
                "100ms",
                "--termination-drain-duration",
                "1s",
            ])
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, variable: &str, value: &str) -> Self {
        self.command.env(variable, value);
        self
    }

    /// The agent in a session of its own, on a terminal; returns the terminal's other end.
    pub(crate) fn on_terminal(mut self) -> (Self, fs::File) {
        let (ours, its) = testing::terminal().unwrap();
        self.command.stdin(its);
        testing::lead_session(&mut self.command);
        (self, ours)
    }

    /// The agent is started with this umask.
    pub(crate) fn umask(mut self, mask: u32) -> Self {
        testing::umask(&mut self.command, mask);
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        write_whole(&self.path(name), content);
    }

    /// A bootstrap with one listener that answers `body` to everything.
    pub(crate) fn configuration(&self, body: &str) -> Value {
        configuration(
            self.admin.number,
            self.listener.number,
            direct(body),
            json!([]),
        )
    }

    pub(crate) fn admin_port(&self) -> u16 {
        self.admin.number
    }

    pub(crate) fn listener_port(&self) -> u16 {
        self.listener.number
    }

    pub(crate) fn status_port(&self) -> u16 {
        self.status.number
    }

    pub(crate) fn start(mut self) -> Agent {
        let log = fs::File::create(self.path("log")).unwrap();
        self.command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = self.command.spawn().unwrap();
        Agent {
            child,
            directory: self.directory,
            admin: self.admin,
            listener: self.listener,
            status: self.status,
            left: RefCell::default(),
        }
    }
}

/// A route that answers by itself.
pub(crate) fn direct(body: &str) -> Value {
    json!({"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}})
}

pub(crate) fn configuration(admin: u16, listener: u16, route: Value, clusters: Value) -> Value {
    let address =
        |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    json!({
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": address(admin)},
        "static_resources": {
            "clusters": clusters,
            "listeners": [{
                "name": "main",
                "address": address(listener),
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                        "stat_prefix": "main",
                        "route_config": {"virtual_hosts": [
                            {"name": "all", "domains": ["*"], "routes": [route]}
                        ]},
                        "http_filters": [{
                            "name": "envoy.filters.http.router",
                            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
                        }]
                    }
                }]}]
            }]
        }
    })
}

/// As an atomic replacement, so that no reader sees half of it.
pub(crate) fn write_whole(path: &Path, content: &str) {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content).unwrap();
    fs::rename(&temporary, path).unwrap();
}

impl Agent {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        write_whole(&self.path(name), content);
    }

    pub(crate) fn configuration(&self, body: &str) -> Value {
        configuration(
            self.admin.number,
            self.listener.number,
            direct(body),
            json!([]),
        )
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("log")).unwrap()).into_owned()
    }

    /// Waits until the log holds `text`.
    pub(crate) fn wait_log(&self, text: &str) {
        self.wait_log_times(text, 1);
    }

    pub(crate) fn wait_log_times(&self, text: &str, times: usize) {
        let end = Instant::now() + DEADLINE;
        while self.log().matches(text).count() < times {
            assert!(
                Instant::now() < end,
                "waited in vain for {text:?} in:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The pid of the proxy that was last started for `epoch`.
    pub(crate) fn proxy_pid(&self, epoch: u32) -> i32 {
        let marker = format!("epoch {epoch} started: pid ");
        let log = self.log();
        let (_, rest) = log
            .rsplit_once(&marker)
            .unwrap_or_else(|| panic!("no {marker} in {log}"));
        rest.split(',').next().unwrap().parse().unwrap()
    }

    /// A field of `smaps_rollup`, in kB; exact, where /proc/PID/status may be 64 pages behind.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = fs::read_to_string(path).unwrap();
        let mut fields = text
            .split_ascii_whitespace()
            .skip_while(|word| *word != field);
        fields.nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: i32) {
        if signal == libc::SIGKILL {
            self.note_memory();
        }
        kill(i32::try_from(self.child.id()).unwrap(), signal);
    }

    /// Notes the shared memory of the proxies that run: an agent that is killed leaves it behind.
    fn note_memory(&self) {
        let agent = self.child.id();
        let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"));
        let children = children.unwrap_or_default();
        let ids = children.split_ascii_whitespace().filter_map(base_id_of);
        self.left.borrow_mut().extend(ids);
    }

    /// Waits for the agent's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < end,
                "the agent does not end:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn stop(mut self) {
        self.signal(libc::SIGTERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }

    pub(crate) fn get(&self) -> Result<String, String> {
        get(self.listener.number, "/")
    }

    /// A stat of Envoy, or nothing while its admin port is silent.
    pub(crate) fn admin(&self, path: &str) -> Option<String> {
        get(self.admin.number, path).ok()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the agent's log:\n{}", self.log());
        }
        if self.child.try_wait().is_ok_and(|end| end.is_none()) {
            self.note_memory();
        }
        // Its proxies die with it.
        drop(self.child.kill());
        drop(self.child.wait());
        for id in self.left.take() {
            // The lock that `--base-id auto` takes: no other agent has the id meanwhile.
            let name = UnixAddr::from_abstract_name(format!("pintle_base_id_{id}"));
            if let Ok(_lock) = name.and_then(|name| UnixDatagram::bind_addr(&name)) {
                drop(fs::remove_file(shared_memory(&id)));
            }
        }
    }
}

/// The base id that a proxy was started with.
pub(crate) fn base_id_of(pid: &str) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let (_, id) = line.split_once("--base-id\0")?;
    Some(id.split('\0').next()?.to_owned())
}

/// Where proxies of a base id share memory.
pub(crate) fn shared_memory(base_id: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/envoy_shared_memory_{base_id}0"))
}

pub(crate) fn kill(pid: i32, signal: i32) {
    testing::kill(pid, signal);
}

pub(crate) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    })
}

/// One request on a connection of its own; the body of a 200.
pub(crate) fn get(port: u16, path: &str) -> Result<String, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let fail = |stage: &'static str| move |error: std::io::Error| format!("{stage}: {error}");
    let mut stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(fail("connect"))?;
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .map_err(fail("write"))?;
    // Envoy waits a second for its peer to close, so the end is read off the answer.
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    while !is_whole(&answer) {
        match stream.read(&mut piece).map_err(fail("read"))? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("answer: {answer:?}")),
    }
}

/// Whether a response has all of its body.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length.map_or_else(
        || head.contains("transfer-encoding: chunked") && body.ends_with("0\r\n\r\n"),
        |length| body.len() >= length.parse().unwrap(),
    )
}

/// A client that sends requests, one after the other, until it is stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u32, Vec<String>)>,
}

impl Load {
    pub(crate) fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut answered, mut failed) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                match get(port, "/") {
                    Ok(_) => answered += 1,
                    Err(error) => failed.push(error),
                }
            }
            (answered, failed)
        });
        Self { stop, thread }
    }

    /// How many were answered; none may have failed.
    pub(crate) fn finish(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        let (answered, failed) = self.thread.join().unwrap();
        assert!(
            failed.is_empty(),
            "{} of {answered} requests failed: {:?}",
            failed.len(),
            failed.first()
        );
        answered
    }
}
