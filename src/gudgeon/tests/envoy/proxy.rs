//! pintle with its Envoy.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::network;
pub use crate::place::Address;
use crate::place::{Discovery, SOON, exchange, until, workspace};

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
                .args(["build", "-q", "--locked", "-p", "pintle", "--profile"])
                .arg(profile)
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

/// An id for hot restarts that no other test has. `auto` finds those that its own network has free, but networks share `/dev/shm`:
/// of two proxies with one id the later one takes the memory of the other. Envoy takes ids below 429,496,729 (`u32::MAX / 10`).
fn base_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let of_program = std::process::id() % 400_000 * 1000;
    let of_proxy = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(of_proxy < 1000, "more proxies than ids");
    100_000 + of_program + of_proxy
}

/// The proxy's own ports: its address is its own, and no service's listener may take them.
const ADMIN: u16 = 15000;
const STATUS: u16 = 15020;

/// A proxy that is going to be started.
pub struct Setup {
    role: &'static str,
    discovery: SocketAddr,
    name: String,
    address: Option<Address>,
    ip: IpAddr,
    labels: BTreeMap<String, String>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    /// The network namespace it is in.
    within: Option<String>,
    /// The process group of the proxy.
    group: Option<u32>,
}

impl Setup {
    /// A sidecar of namespace `demo` without interception.
    pub fn new(name: &str, discovery: u16) -> Self {
        Self::at(name, Address::new(), discovery)
    }

    pub fn at(name: &str, address: Address, discovery: u16) -> Self {
        let ip = IpAddr::V4(address.ip);
        let mut this = Self::bare(name, ip, SocketAddr::from(([127, 0, 0, 1], discovery)));
        this.address = Some(address);
        this.env("ISTIO_META_INTERCEPTION_MODE", "NONE")
    }

    /// A proxy with a given address, and without interception settings.
    pub fn bare(name: &str, ip: IpAddr, discovery: SocketAddr) -> Self {
        Self {
            role: "sidecar",
            discovery,
            name: name.to_owned(),
            address: None,
            ip,
            labels: BTreeMap::new(),
            environment: Vec::new(),
            arguments: Vec::new(),
            within: None,
            group: None,
        }
    }

    /// Uses another discovery than that of this machine's own address.
    pub fn of(mut self, discovery: SocketAddr) -> Self {
        self.discovery = discovery;
        self
    }

    pub fn role(mut self, role: &'static str) -> Self {
        self.role = role;
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }

    pub fn args(mut self, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        self.arguments.extend(arguments);
        self
    }

    pub fn within(mut self, namespace: &str) -> Self {
        self.within = Some(namespace.to_owned());
        self
    }

    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Over one stream that carries what changed.
    pub fn delta(self) -> Self {
        self.env("ISTIO_DELTA_XDS", "true")
    }

    /// Returns the proxy's own address: in a network namespace connections to its IP are intercepted.
    fn own(&self) -> IpAddr {
        match &self.within {
            Some(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            None => self.ip,
        }
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = match self.group {
            Some(group) => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--clear-groups", "--regid", &group.to_string()])
                    .arg(pintle());
                command
            }
            None => Command::new(pintle()),
        };
        let labels = serde_json::to_string(&self.labels).unwrap();
        command
            .args(["proxy", self.role, "--config-path"])
            .arg(directory.join("run"))
            .arg("--binary-path")
            .arg(envoy())
            .args(["--discovery-address", &self.discovery.to_string()])
            .args(["--proxy-admin-port", &ADMIN.to_string()])
            .args(["--proxy-admin-address", &self.own().to_string()])
            .args(["--status-port", &STATUS.to_string()])
            .args(["--status-address", &self.own().to_string()])
            .args(["--base-id", &base_id().to_string(), "--concurrency", "1"])
            .args(["--drain-duration", "2s", "--parent-shutdown-duration", "4s"])
            .args([
                "--termination-drain-duration",
                "0s",
                "--cert-debounce",
                "200ms",
            ])
            .args(&self.arguments)
            .args(["--", "--file-flush-interval-msec", "50"])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("INSTANCE_IP", self.ip.to_string())
            .env("POD_NAME", &self.name)
            .env("POD_NAMESPACE", "demo")
            .env("ISTIO_METAJSON_LABELS", labels)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Starts the proxy without waiting.
    pub fn begin(self) -> Proxy {
        let directory = tempfile::tempdir().unwrap();
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), everybody).unwrap();
        let within = self.within.clone();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = self.command(directory.path());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = network::inside(within.as_deref(), || command.spawn().unwrap());
        Proxy {
            child,
            own: self.own(),
            name: self.name,
            ip: self.ip,
            directory,
            within,
            _address: self.address,
        }
    }

    pub fn start(self) -> Proxy {
        let mut proxy = self.begin();
        proxy.until_ready();
        proxy
    }
}

/// A running one.
pub struct Proxy {
    child: Child,
    pub name: String,
    pub ip: IpAddr,
    own: IpAddr,
    directory: tempfile::TempDir,
    pub within: Option<String>,
    _address: Option<Address>,
}

impl Proxy {
    /// Starts a sidecar of namespace `demo` without interception, and waits until it is ready.
    pub fn start(discovery: u16) -> Self {
        Setup::new("client-1", discovery).start()
    }

    pub fn until_ready(&mut self) {
        until("the proxy's readiness", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}\n{}", self.log());
            let (status, _) = self.look(STATUS, "/healthz/ready")?;
            (status == 200).then_some(())
        });
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(sent.unwrap().success());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// A connection from the proxy's machine.
    pub fn connect(&self, address: impl Into<IpAddr>, port: u16) -> std::io::Result<TcpStream> {
        let address = SocketAddr::new(address.into(), port);
        network::inside(self.within.as_deref(), || {
            TcpStream::connect_timeout(&address, SOON)
        })
    }

    fn look(&self, port: u16, path: &str) -> Option<(u16, String)> {
        let mut stream = self.connect(self.own, port).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        exchange(&mut stream, "GET", path, "localhost")
    }

    /// The body of an answer through it, by the name of a service.
    pub fn get(&self, host: &str, port: u16) -> Option<(u16, String)> {
        self.get_at(self.ip, host, port)
    }

    /// From another address than its own.
    pub fn get_at(
        &self,
        address: impl Into<IpAddr>,
        host: &str,
        port: u16,
    ) -> Option<(u16, String)> {
        let mut stream = self.connect(address, port).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        exchange(&mut stream, "GET", "/", host)
    }

    /// Returns the response of Envoy's admin port.
    pub fn ask(&self, path: &str) -> String {
        until(path, || {
            let (status, text) = self.look(ADMIN, path)?;
            (status == 200).then_some(text)
        })
    }

    /// Returns a counter or gauge of Envoy's; 0 if it does not exist.
    pub fn stat(&self, name: &str) -> u64 {
        let text = self.ask("/stats");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// Returns true if Envoy's worker serves all listeners that the main thread has taken up: the main thread counts each when
    /// the worker has told it so.
    pub fn serves_its_listeners(&self) -> bool {
        let text = self.ask("/stats?filter=listener_manager.listener_");
        let count = |what: &str| -> u64 {
            let name = format!("listener_manager.listener_{what}: ");
            let mut values = text.lines().filter_map(|line| line.strip_prefix(&name));
            values
                .next()
                .map_or(0, |value| value.trim().parse().unwrap())
        };
        count("added") + count("modified") == count("create_success")
    }

    /// Returns true if Envoy's config dump contains the words.
    pub fn knows(&self, text: &str) -> bool {
        self.ask("/config_dump?include_eds").contains(text)
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
            eprintln!("--- proxy {}\n{}", self.name, self.log());
        }
    }
}

/// The rows of a proxy's streams.
pub fn rows(discovery: &Discovery, name: &str) -> Vec<Value> {
    let rows = discovery.json("/debug/syncz");
    let of = format!("~{name}.demo~");
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["proxy"].as_str().unwrap().contains(&of))
        .cloned()
        .collect()
}

/// Returns true if a push has not come to its end on a stream of a proxy: between two of its types all that was sent is ACKed.
fn is_pushed_to(discovery: &Discovery, name: &str) -> bool {
    let streams = discovery.json("/debug/adsz");
    let of = format!("~{name}.demo~");
    let mut streams = streams.as_array().unwrap().iter();
    streams.any(|one| one["proxy"].as_str().unwrap().contains(&of) && one["pending"] == true)
}

/// Waits until the one stream of a proxy has ACKed the last responses of all that is pushed to it.
pub fn in_sync(discovery: &Discovery, name: &str) -> Value {
    in_sync_with(discovery, name, |_| true)
}

/// And until it is so, too.
pub fn in_sync_with(discovery: &Discovery, name: &str, also: impl Fn(&Value) -> bool) -> Value {
    let row = || {
        let rows = rows(discovery, name);
        let [row] = rows.as_slice() else { return None };
        let mut kinds = ["cluster", "endpoint", "listener", "route"].iter();
        let same = kinds.all(|kind| {
            let sent = &row[format!("{kind}_sent")];
            sent.is_null() || *sent == row[format!("{kind}_acked")]
        });
        (same && row["listener_sent"].is_string() && also(row)).then(|| row.clone())
    };
    until("sync", || {
        row()?;
        // The row is that of after the push.
        (!is_pushed_to(discovery, name)).then(&row)?
    })
}

/// Returns the numbers of accepted CDS and LDS updates.
pub fn updates(proxy: &Proxy) -> [u64; 2] {
    ["cluster_manager.cds", "listener_manager.lds"]
        .map(|kind| proxy.stat(&format!("{kind}.update_success")))
}
