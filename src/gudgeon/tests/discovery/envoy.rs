//! The real Envoy under the real pintle, with the bootstrap that pintle generates from its flags: requests go through it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Discovery, Place, SOON, entry, exchange, request, until, workspace};

/// pintle, built as this program is.
fn pintle() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let directory = PathBuf::from(env!("CARGO_BIN_EXE_gudgeon"));
            let directory = directory.parent().unwrap().to_owned();
            let profile = match directory.file_name().unwrap().to_str().unwrap() {
                "debug" => "dev",
                profile => profile,
            };
            let built = Command::new(env!("CARGO"))
                .args([
                    "build",
                    "-q",
                    "--locked",
                    "-p",
                    "pintle",
                    "--profile",
                    profile,
                ])
                .current_dir(workspace())
                .status();
            assert!(built.unwrap().success());
            directory.join("pintle")
        })
        .clone()
}

fn envoy() -> PathBuf {
    let path = std::env::var_os("PINTLE_ENVOY").map_or_else(
        || workspace().join("target/envoy/envoy-1.40.0"),
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} is missing: run build/envoy first",
        path.display()
    );
    path
}

/// An address of this machine for one proxy, which no other test has: the abstract socket is the lock.
pub struct Address {
    pub ip: Ipv4Addr,
    _lock: UnixDatagram,
}

impl Address {
    pub fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        loop {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let [_, _, one, two] = std::process::id().to_be_bytes();
            let number = u16::from_be_bytes([one, two]).wrapping_mul(61);
            let [high, low] = number.wrapping_add(step).to_be_bytes();
            let ip = Ipv4Addr::new(127, 77, high, low.max(1));
            let name = UnixAddress::from_abstract_name(format!("gudgeon_test_{ip}")).unwrap();
            if let Ok(lock) = UnixDatagram::bind_addr(&name) {
                return Self { ip, _lock: lock };
            }
        }
    }
}

/// A program that answers every request with its name.
pub struct Backend {
    pub port: u16,
}

impl Backend {
    pub fn new(ip: Ipv4Addr, body: &'static str) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, body));
            }
        });
        Self { port }
    }
}

fn serve(mut stream: TcpStream, body: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        loop {
            line.clear();
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                return;
            }
            if line == "\r\n" {
                break;
            }
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// pintle with its Envoy.
pub struct Proxy {
    child: Child,
    pub address: Address,
    admin: u16,
    status: u16,
    directory: tempfile::TempDir,
}

fn free_port(ip: Ipv4Addr) -> u16 {
    TcpListener::bind((ip, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Proxy {
    /// One of namespace `demo` that intercepts nothing, ready.
    pub fn start(discovery: u16) -> Self {
        Self::start_with(discovery, &[], &[])
    }

    pub fn start_with(discovery: u16, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let address = Address::new();
        let directory = tempfile::tempdir().unwrap();
        // On the machine's own address, where no proxy of a test listens.
        let (admin, status) = (
            free_port(Ipv4Addr::LOCALHOST),
            free_port(Ipv4Addr::LOCALHOST),
        );
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(pintle());
        command
            .args(["proxy", "sidecar", "--config-path"])
            .arg(directory.path().join("run"))
            .arg("--binary-path")
            .arg(envoy())
            .args(["--discovery-address", &format!("127.0.0.1:{discovery}")])
            .args(["--proxy-admin-port", &admin.to_string()])
            .args(["--status-port", &status.to_string()])
            .args(["--base-id", "auto", "--concurrency", "1"])
            .args(["--drain-duration", "2s", "--parent-shutdown-duration", "4s"])
            .args(["--termination-drain-duration", "0s"])
            .args(arguments)
            .env_clear()
            .env("INSTANCE_IP", address.ip.to_string())
            .env("POD_NAME", "client-1")
            .env("POD_NAMESPACE", "demo")
            .env("ISTIO_META_INTERCEPTION_MODE", "NONE")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().unwrap();
        let mut this = Self {
            child,
            address,
            admin,
            status,
            directory,
        };
        until("the proxy's readiness", || {
            let ended = this.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}\n{}", this.log());
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, this.status));
            let (status, _) = exchange(&mut stream.ok()?, "GET", "/healthz/ready", "x")?;
            (status == 200).then_some(())
        });
        this
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// The body of an answer through it, by the name of a service.
    pub fn get(&self, host: &str, port: u16) -> Option<(u16, String)> {
        let address = SocketAddr::from((self.address.ip, port));
        let mut stream = TcpStream::connect_timeout(&address, SOON).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        exchange(&mut stream, "GET", "/", host)
    }

    /// A figure of Envoy's statistics.
    pub fn stat(&self, name: &str) -> u64 {
        let (_, text) = request(self.admin, "GET", "/stats");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .parse()
            .unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let id = self.child.id().to_string();
        let _asked = Command::new("kill").args(["-TERM", &id]).status();
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- proxy\n{}", self.log());
        }
    }
}

/// The one row of the proxy's stream.
fn row(discovery: &Discovery) -> Value {
    let rows = discovery.json("/debug/syncz");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0].clone()
}

fn in_sync(discovery: &Discovery) -> Value {
    until("sync", || {
        let row = row(discovery);
        let same = ["cluster", "endpoint", "listener", "route"]
            .iter()
            .all(|kind| {
                let sent = &row[format!("{kind}_sent")];
                sent.is_string() && *sent == row[format!("{kind}_acked")]
            });
        same.then_some(row)
    })
}

const HOST: &str = "b.demo.svc.cluster.local";

#[test]
fn a_request_by_a_services_name_and_a_second_endpoint_by_eds_alone() {
    let ip = Address::new();
    let (one, two) = (Backend::new(ip.ip, "one"), Backend::new(ip.ip, "two"));
    let at = ip.ip.to_string();
    let discovery = Place::new()
        .with(
            "config/b.yaml",
            &entry(HOST, 18080, "HTTP", &[(&at, one.port)]),
        )
        .start();
    let proxy = Proxy::start(discovery.grpc);
    for host in ["b", "b.demo", "b.demo.svc", HOST, "b:18080"] {
        assert_eq!(
            proxy.get(host, 18080),
            Some((200, "one".to_owned())),
            "{host}"
        );
    }
    // Nothing is intercepted, so what nobody serves is refused.
    assert_eq!(
        proxy.get("nobody", 18080).map(|(status, _)| status),
        Some(502)
    );

    let before = in_sync(&discovery);
    assert_eq!(before["proxy_type"], "sidecar");
    assert_eq!(before["endpoint_percent"], 100);
    let both = [(&*at, one.port), (&*at, two.port)];
    discovery
        .place
        .write("config/b.yaml", &entry(HOST, 18080, "HTTP", &both));
    let mut answered = BTreeSet::new();
    until("both endpoints", || {
        let (status, body) = proxy.get("b", 18080)?;
        assert_eq!(status, 200);
        answered.insert(body);
        (answered.len() == 2).then_some(())
    });
    let after = in_sync(&discovery);
    for kind in ["cluster", "listener", "route"] {
        let sent = format!("{kind}_sent");
        assert_eq!(before[&sent], after[&sent], "{kind}");
    }
    assert_ne!(before["endpoint_sent"], after["endpoint_sent"]);
    // What was sent, too, not only its versions.
    assert_eq!(proxy.stat("cluster_manager.cds.update_success"), 1);
    assert_eq!(proxy.stat("listener_manager.lds.update_success"), 1);
}

#[test]
fn a_server_that_comes_back_sends_nothing_again() {
    let ip = Address::new();
    let backend = Backend::new(ip.ip, "one");
    let at = ip.ip.to_string();
    let port = free_port(Ipv4Addr::LOCALHOST);
    let start = || {
        Place::new()
            .with(
                "config/b.yaml",
                &entry(HOST, 18081, "HTTP", &[(&at, backend.port)]),
            )
            .arg(&format!("--grpcAddr=127.0.0.1:{port}"))
            .start()
    };
    let discovery = start();
    let proxy = Proxy::start(discovery.grpc);
    let before = in_sync(&discovery);
    drop(discovery);
    assert_eq!(proxy.get("b", 18081), Some((200, "one".to_owned())));
    let discovery = start();
    let after = until("the proxy's return", || {
        let rows = discovery.json("/debug/syncz");
        let row = rows.as_array().unwrap().first()?.clone();
        row["route_acked"].is_string().then_some(row)
    });
    for kind in ["cluster", "endpoint", "listener", "route"] {
        let (sent, acked) = (format!("{kind}_sent"), format!("{kind}_acked"));
        assert_eq!(before[&sent], after[&sent], "{kind}");
        assert_eq!(after[&sent], after[&acked], "{kind}");
    }
    for kind in ["cds", "lds"] {
        let sent = discovery.metric(&format!("pilot_xds_pushes{{type=\"{kind}\"}}"));
        assert_eq!(sent, 0.0, "{kind}");
    }
    assert_eq!(proxy.get("b", 18081), Some((200, "one".to_owned())));
}
