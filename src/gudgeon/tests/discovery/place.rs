//! A discovery that runs, with a directory of YAML that a test writes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous: the machine may be busy with something else altogether.
pub const SOON: Duration = Duration::from_secs(30);

/// Waits until there is something.
pub fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn gudgeon() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gudgeon"))
}

pub fn run(arguments: &[&str]) -> Output {
    gudgeon().args(arguments).output().unwrap()
}

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

    /// What an API server has, in the place of files.
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

    /// In one step, as editors and kubelet do it.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        let new = self.path(".new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
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
        let (child, lines) = self.spawn();
        let mut this = Discovery {
            place: self,
            child,
            lines,
            http: 0,
            grpc: 0,
        };
        this.listens();
        this
    }

    fn spawn(&self) -> (Child, Arc<Mutex<Vec<String>>>) {
        let mut child = (self.program)()
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let shared = Arc::clone(&lines);
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                shared.lock().unwrap().push(line);
            }
        });
        (child, lines)
    }
}

/// A running one.
pub struct Discovery {
    pub place: Place,
    pub child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    pub http: u16,
    pub grpc: u16,
}

impl Drop for Discovery {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- discovery\n{}", self.log().join("\n"));
        }
    }
}

impl Discovery {
    fn listens(&mut self) {
        self.http = self.port("listening on http://");
        self.grpc = self.port("listening on grpc://");
    }

    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Once more, after its end, with the same arguments and files.
    pub fn again(&mut self) {
        (self.child, self.lines) = self.place.spawn();
        self.listens();
        until("readiness", || (self.get("/ready").0 == 200).then_some(()));
    }

    pub fn port(&mut self, words: &str) -> u16 {
        until(words, || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?} {:?}", self.log());
            let log = self.log();
            let (_, address) = log.iter().find_map(|line| line.split_once(words))?;
            address.split(' ').next()?.rsplit(':').next()?.parse().ok()
        })
    }

    pub fn log(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn logged(&self, words: &str) -> usize {
        let log = self.log();
        log.iter().filter(|line| line.contains(words)).count()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(sent.unwrap().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        until("its end", || self.child.try_wait().unwrap())
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        request(self.http, "GET", path)
    }

    pub fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The value of a metric's line.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Kibibytes in memory, but for the pages of the program's file: those can be dropped and read again, and are once its
    /// start is over.
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("RssAnon:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// One request over a connection of its own.
pub fn request(port: u16, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    exchange(&mut stream, method, path, "x").unwrap()
}

/// The status and body of an answer; `None` when there is none.
pub fn exchange(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    host: &str,
) -> Option<(u16, String)> {
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Where the workspace's other programs are built to.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
