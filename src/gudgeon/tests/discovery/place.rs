//! A discovery that runs, with a directory of YAML that a test writes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use crate::support::program::{Program, is_a_program, metric_in};
pub use crate::support::program::{SOON, exchange, gudgeon, until};
pub use crate::support::run;

/// A ServiceEntry of one port with static endpoints.
pub fn entry(host: &str, port: u16, protocol: &str, endpoints: &[(&str, u16)]) -> String {
    let (name, namespace) = host.split_once('.').unwrap();
    let namespace = namespace.split('.').next().unwrap();
    let mut text = format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         hosts: [{host}]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports:\n  - {{number: {port}, name: main, \
         protocol: {protocol}}}\n  endpoints:\n"
    );
    for (address, port) in endpoints {
        text.push_str(&format!(
            "  - {{address: {address}, ports: {{main: {port}}}}}\n"
        ));
    }
    text
}

/// Several documents as one file.
pub fn documents(all: &[String]) -> String {
    all.join("---\n")
}

/// An address of this machine that no other test has: the abstract socket is the lock.
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

/// Writes a file in one step, as editors and kubelet do it.
pub fn put(folder: &Path, name: &str, text: &str) {
    let new = folder.join(".new");
    fs::write(&new, text).unwrap();
    fs::rename(new, folder.join(name)).unwrap();
}

/// Flags for a process that a test starts itself: the default ports may be in use.
pub const OWN_PORTS: [&str; 4] = [
    "--httpAddr=127.0.0.1:0",
    "--monitoringAddr=",
    "--grpcAddr=",
    "--secureGrpcAddr=",
];

/// Files of a discovery.
pub struct Place {
    pub root: tempfile::TempDir,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    program: Box<dyn Fn() -> Command>,
}

impl Place {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("config")).unwrap();
        fs::create_dir(root.path().join("certs")).unwrap();
        fs::write(root.path().join("mesh"), "enableTracing: false\n").unwrap();
        let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let arguments = [
            "discovery",
            "--configDir",
            &path("config"),
            "--meshConfig",
            &path("mesh"),
            "--httpAddr=127.0.0.1:0",
            "--grpcAddr=127.0.0.1:0",
            "--secureGrpcAddr=",
            "--monitoringAddr=",
            "--drainDuration=0s",
        ];
        let certs = path("certs");
        Self {
            arguments: arguments.map(ToOwned::to_owned).to_vec(),
            environment: vec![("PILOT_CERT_DIR".to_owned(), certs)],
            program: Box::new(gudgeon),
            root,
        }
    }

    /// All roles in one process; its webhooks have certificates of their own.
    pub fn together() -> Self {
        let mut this = Self::new();
        "all".clone_into(&mut this.arguments[0]);
        let ca = this.path("ca.pem").to_str().unwrap().to_owned();
        this.arg("--selfSigned")
            .arg("--port=0")
            .arg("--caOut")
            .arg(&ca)
    }

    /// All roles in one process, of what an API server has; the kubeconfig is a file of the test's, or elsewhere.
    pub fn together_of_a_cluster(kubeconfig: &str) -> Self {
        let mut this = Self::together();
        let kubeconfig = this.path(kubeconfig).to_str().unwrap().to_owned();
        let files = ["--kubeconfig".to_owned(), kubeconfig];
        this.arguments.splice(1..3, files);
        this
    }

    /// Uses an API server in place of files.
    pub fn of_a_cluster(kubeconfig: &str) -> Self {
        let mut this = Self::new();
        let files = ["--kubeconfig".to_owned(), kubeconfig.to_owned()];
        this.arguments.splice(1..3, files);
        this
    }

    pub fn with(self, name: &str, text: &str) -> Self {
        self.write(name, text);
        self
    }

    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Started by another command line than the program's own.
    pub fn by(mut self, program: impl Fn() -> Command + 'static) -> Self {
        self.program = Box::new(program);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        put(self.root.path(), name, text);
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Discovery {
        let discovery = self.begin();
        until("readiness", || {
            (discovery.get("/ready").0 == 200).then_some(())
        });
        discovery
    }

    /// Starts it and waits until it listens.
    pub fn begin(self) -> Discovery {
        let mut this = Discovery {
            program: self.spawn(),
            place: self,
            http: 0,
            grpc: 0,
        };
        this.listens();
        this
    }

    fn spawn(&self) -> Program {
        Program::start(
            (self.program)()
                .args(&self.arguments)
                .env_clear()
                .envs(self.environment.iter().cloned()),
        )
    }
}

/// A running one.
pub struct Discovery {
    pub place: Place,
    program: Program,
    pub http: u16,
    pub grpc: u16,
}

is_a_program!(Discovery);

impl Discovery {
    fn listens(&mut self) {
        self.http = self.port_after("listening on http://");
        self.grpc = self.port_after("listening on grpc://");
    }

    /// Once more, after its end, with the same arguments and files.
    pub fn again(&mut self) {
        self.program = self.place.spawn();
        self.listens();
        until("readiness", || (self.get("/ready").0 == 200).then_some(()));
    }

    /// Returns the address of the gRPC listener.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.grpc).into()
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        request(self.http, "GET", path)
    }

    /// Replaces the objects of the registry Mock. Returns the status and the body of the answer.
    pub fn put_memory(&self, body: &str) -> (u16, String) {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        let length = body.len();
        write!(stream, "PUT /debug/memory HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n").unwrap();
        // The response may precede the end of the request.
        let _sent = stream.write_all(body.as_bytes());
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    pub fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The value of a metric's line; `None`: there is no such line.
    pub fn figure(&self, name: &str) -> Option<f64> {
        metric_in(&self.get("/metrics").1, name)
    }

    /// The same; 0 without such a line.
    pub fn metric(&self, name: &str) -> f64 {
        self.figure(name).unwrap_or_default()
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.json("/debug/syncz").as_array().unwrap().len()
    }

    /// Returns the number of resources that the first source of configuration has sent.
    pub fn taken(&self) -> u64 {
        let sources = self.json("/debug/sinkz");
        let requests = sources[0]["requests"].as_array().unwrap().iter();
        requests.filter_map(|one| one["resources"].as_u64()).sum()
    }
}

/// One request over a connection of its own.
pub fn request(port: u16, method: &str, path: &str) -> (u16, String) {
    crate::support::program::request(port, method, path).unwrap()
}

/// Returns the root of the workspace, below which its other programs are built.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
