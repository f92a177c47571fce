//! The built binary, its files, and clients that are as polite or as rude as a test needs.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![forbid(unsafe_code)]

pub mod beside;
pub mod h2;
pub mod plain;
pub mod program;
pub mod server;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use program::{Program, is_a_program, metric_in};
pub use program::{SOON, gudgeon};

pub const TEMPLATE: &str = "policy: enabled\nprobers: legacy\ntemplate: |\n  containers:\n  - name: istio-proxy\n    image: proxy:1\n";

/// A certificate for localhost and its key, PEM.
pub fn pair() -> (String, String) {
    pair_until(None)
}

/// Creates a pair that expires so long after now.
pub fn pair_until(end: Option<time::Duration>) -> (String, String) {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params =
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    if let Some(end) = end {
        params.not_after = time::OffsetDateTime::now_utc() + end;
    }
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Waits until the check is true; panics with `what` if it never is.
pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    program::until(what, || check().then_some(()));
}

/// Returns the program as root of namespaces of its own (`options` of unshare), after some shell. Needs root, or
/// unprivileged user namespaces.
pub fn apart(options: &str, before: &str) -> Command {
    let possible = Command::new("unshare").args([options, "true"]).output();
    let possible = possible.expect("unshare: install util-linux");
    let stderr = String::from_utf8_lossy(&possible.stderr);
    let cause = "cannot be shown here, where nobody may make user namespaces";
    assert!(possible.status.success(), "{cause}: {stderr}");
    let mut command = Command::new("unshare");
    let shell = format!("{before} exec \"$0\" \"$@\"");
    command.args([options, "sh", "-c", &shell, env!("CARGO_BIN_EXE_gudgeon")]);
    command
}

/// Returns the program with `folder` as a mount whose server does not answer, as one that has died: no call for anything in
/// it returns while the program lives. `None` if this machine has no FUSE, which is said: then a part of the test is left out.
pub fn beside_a_hung_mount(folder: &Path) -> Option<Command> {
    const OPTIONS: &str = "fd=9,rootmode=40000,user_id=0,group_id=0";
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(cause) = fuse {
        // Written by itself, as the harness shows no other output of a test that passes.
        let line = format!("left out: a mount that hangs: cannot open /dev/fuse: {cause}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return None;
    }
    fs::create_dir_all(folder).unwrap();
    let folder = folder.display();
    let shell =
        format!("exec 9<>/dev/fuse; mount -i -t fuse -o {OPTIONS} hung {folder} || exit 1;");
    let mut command = apart("-mr", &shell);
    command.env("PATH", std::env::var("PATH").unwrap());
    Some(command)
}

/// Creates a pipe without a writer.
pub fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// Returns the program as an unprivileged user who owns all below `root`. Root may read everything: run by root the program
/// becomes `nobody`, and runs from a link in `root`, because `nobody` has no access to the build directory. Otherwise it is
/// the user who runs the test.
pub fn not_root(root: &Path) -> Command {
    const NOBODY: u32 = 65534;
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return gudgeon();
    }
    let program = root.join(".gudgeon");
    // A process of its own, so that no other process has the new file open for writing when it is executed.
    let linked = Command::new("sh")
        .args(["-c", "ln -f \"$0\" \"$1\" 2>/dev/null || cp \"$0\" \"$1\""])
        .args([Path::new(env!("CARGO_BIN_EXE_gudgeon")), &program])
        .status();
    assert!(linked.unwrap().success());
    let owned = Command::new("find")
        .arg(root)
        .args(["!", "-name", ".gudgeon", "-exec", "chown"])
        .args([&format!("{NOBODY}:{NOBODY}"), "{}", "+"])
        .status();
    assert!(owned.unwrap().success());
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    gudgeon().args(arguments).output().unwrap()
}

/// Files of an injector.
pub struct InjectorPlace {
    pub root: tempfile::TempDir,
}

impl InjectorPlace {
    pub fn new() -> Self {
        let this = Self {
            root: tempfile::tempdir().unwrap(),
        };
        this.write("config", TEMPLATE);
        let (chain, key) = pair();
        this.write("chain.pem", &chain);
        this.write("key.pem", &key);
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file atomically: a reader sees all of it or nothing.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        [
            "injector",
            "--injectConfig",
            &path("config"),
            "--tlsCertFile",
            &path("chain.pem"),
            "--tlsKeyFile",
            &path("key.pem"),
            "--port=0",
            "--monitoringPort=0",
            "--drainDuration=0s",
        ]
        .map(ToOwned::to_owned)
        .to_vec()
    }

    /// Starts and waits until it listens.
    pub fn start(self, more: &[&str]) -> Injector {
        let mut arguments = self.arguments();
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        self.start_with(&arguments)
    }

    pub fn start_with(self, arguments: &[String]) -> Injector {
        self.start_as(gudgeon(), arguments)
    }

    /// Starts with another command line: with an environment, for example, or with a wrapper.
    pub fn start_as(self, mut command: Command, arguments: &[String]) -> Injector {
        let mut this = Injector {
            place: self,
            program: Program::start(command.args(arguments)),
            port: 0,
            monitoring: 0,
        };
        this.port = this.port_after("listening on https://");
        if !arguments.iter().any(|word| word == "--monitoringPort=-1") {
            this.monitoring = this.port_after("monitoring on http://");
        }
        this
    }
}

/// A running one.
pub struct Injector {
    pub place: InjectorPlace,
    program: Program,
    pub port: u16,
    pub monitoring: u16,
}

is_a_program!(Injector);

impl Injector {
    pub fn new() -> Self {
        InjectorPlace::new().start(&[])
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The certificate that new connections are to trust: the file as it is now.
    pub fn trust(&self) -> String {
        self.place.read("chain.pem")
    }

    /// A kept connection over HTTP/1.1.
    pub fn client(&self) -> Client {
        Client::connect(self.address(), &self.trust())
    }

    /// A plain request to the monitoring port.
    pub fn get(&self, path: &str) -> Answer {
        request_plain(
            SocketAddr::from((Ipv4Addr::LOCALHOST, self.monitoring)),
            "GET",
            path,
        )
    }

    /// The value of a metric's line.
    pub fn metric(&self, name: &str) -> Option<f64> {
        metric_in(&self.get("/metrics").text(), name)
    }
}

pub fn request_plain(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    Answer::read(&mut stream).unwrap()
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Reads one; `None` when the connection closes first.
    pub fn read(from: &mut impl Read) -> Option<Self> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(from.read(&mut byte), Ok(1)) {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut this = Self {
            status,
            headers,
            body: Vec::new(),
        };
        if status != 100 {
            let length = this
                .header("content-length")
                .map_or(0, |text| text.parse().unwrap());
            this.body = vec![0; length];
            from.read_exact(&mut this.body).ok()?;
        }
        Some(this)
    }
}

pub fn client_config(trust: &str, alpn: &[&str]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trust.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// A TLS connection that sends HTTP/1.1, or raw bytes of a test.
pub struct Client {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr, trust: &str) -> Self {
        Self::try_connect(address, client_config(trust, &[])).unwrap()
    }

    pub fn try_connect(address: SocketAddr, config: ClientConfig) -> std::io::Result<Self> {
        Self::over(TcpStream::connect(address)?, config)
    }

    /// Connects from another address of this host: one of 127.0.0.0/8.
    pub fn try_connect_from(
        source: Ipv4Addr,
        address: SocketAddr,
        config: ClientConfig,
    ) -> std::io::Result<Self> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&stream, &SocketAddr::from((source, 0)))?;
        connect(&stream, &address)?;
        Self::over(TcpStream::from(stream), config)
    }

    fn over(socket: TcpStream, config: ClientConfig) -> std::io::Result<Self> {
        socket.set_read_timeout(Some(SOON))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection =
            ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
        let mut socket = socket;
        connection.complete_io(&mut socket)?;
        Ok(Self {
            stream: StreamOwned::new(connection, socket),
        })
    }

    /// The leaf that was shown.
    pub fn leaf(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().unwrap()[0].to_vec()
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    pub fn answer(&mut self) -> Option<Answer> {
        Answer::read(&mut self.stream)
    }

    /// Returns true if no further byte arrives.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0]), Ok(1))
    }

    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        // The answer may come before all is sent.
        let _sent = self.send(&bytes);
        self.answer()
    }

    /// A review's answer.
    pub fn review(&mut self, review: &Value) -> Option<Value> {
        let body = review.to_string();
        let answer = self.request("POST", "/inject", JSON, body.as_bytes())?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Some(answer.json())
    }

    /// The image of the proxy that a pod gets now.
    pub fn image(&mut self) -> String {
        let answer = self.review(&review(&pod("web"))).unwrap();
        image_in(&answer)
    }
}

pub const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

/// The image of istio-proxy in an answer's patch.
pub fn image_in(answer: &Value) -> String {
    use base64::Engine as _;
    let patch = answer["response"]["patch"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    let patch = base64::engine::general_purpose::STANDARD
        .decode(patch)
        .unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let added = patch.as_array().unwrap();
    let proxy = added
        .iter()
        .find(|operation| operation["value"]["name"] == "istio-proxy");
    proxy.unwrap()["value"]["image"]
        .as_str()
        .unwrap()
        .to_owned()
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

pub fn review(pod: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "5b7c", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "ns", "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"}, "object": pod}})
}

/// A ConfigMap volume as kubelet writes it: `NAME -> ..data/NAME`, `..data -> ..STAMP`, exchanged by a rename.
pub fn kubelet(root: &Path, number: u32, files: &[(&str, &str)]) {
    let folder = root.join(format!("..2026_{number}"));
    fs::create_dir(&folder).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    let old = fs::read_link(root.join("..data")).ok();
    let new = root.join("..data_tmp");
    std::os::unix::fs::symlink(folder.file_name().unwrap(), &new).unwrap();
    fs::rename(&new, root.join("..data")).unwrap();
    for (name, _) in files {
        let link = root.join(name);
        if !link.is_symlink() {
            let _absent = fs::remove_file(&link);
            std::os::unix::fs::symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(root.join(old)).unwrap();
    }
}

/// A kubeconfig whose program for credentials does not end.
pub fn patient(folder: &Path) -> String {
    let started = folder.join("started");
    let shell = format!("touch {}; exec sleep 60", started.display());
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster: {{server: 'https://127.0.0.1:1'}}\n\
         contexts:\n- name: a\n  context: {{cluster: a, user: a}}\nusers:\n- name: a\n  user:\n    exec:\n      \
         apiVersion: client.authentication.k8s.io/v1\n      command: /bin/sh\n      args: ['-c', '{shell}']\n      \
         interactiveMode: Never\n"
    )
}
