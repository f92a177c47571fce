//! The start in a container: files at their default paths, privileged ports, a signal half-way.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    self, Client, InjectorPlace, TEMPLATE, apart, client_config, gudgeon, pair, until,
};
use serde_json::Value;

#[test]
fn files_where_istio_mounts_them() {
    let place = InjectorPlace::new();
    place.write("mesh", "proxyListenPort: 15999\n");
    place.write("values", "{\"image\": \"proxy:v\"}");
    place.write(
        "config",
        "policy: enabled\nprobers: legacy\ntemplate: |\n  containers:\n  - {name: istio-proxy, image: '[[ .Values.image ]]-[[ .MeshConfig.ProxyListenPort ]]'}\n",
    );
    let folder = place.root.path().to_str().unwrap();
    let shell = format!(
        "set -e; mount -t tmpfs none /etc; mkdir -p /etc/istio/inject /etc/istio/config /etc/istio/certs; \
         cp {folder}/config {folder}/values /etc/istio/inject; cp {folder}/mesh /etc/istio/config; \
         cp {folder}/chain.pem /etc/istio/certs/cert-chain.pem; cp {folder}/key.pem /etc/istio/certs/key.pem;"
    );
    let command = apart("-Urm", &shell);
    let arguments = [
        "injector",
        "--port=0",
        "--monitoringPort=0",
        "--drainDuration=0s",
    ]
    .map(ToOwned::to_owned);
    let injector = place.start_as(command, &arguments);
    assert_eq!(injector.client().image(), "proxy:v-15999");
    let config = injector.get("/debug/config").json();
    let paths: Vec<&str> = config["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "/etc/istio/inject/config",
            "/etc/istio/inject/values",
            "/etc/istio/config/mesh",
            "/etc/istio/certs/cert-chain.pem",
            "/etc/istio/certs/key.pem"
        ]
    );
    // Certificates have no built-in default: without them the program does not start, and names the flag.
    let mut command = apart("-Urm", "mount -t tmpfs none /etc;");
    let done = command.args(arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(78));
    let stdout = String::from_utf8(done.stdout).unwrap();
    assert!(
        stdout.contains("cannot use --tlsCertFile /etc/istio/certs/cert-chain.pem: ")
            && stdout.contains("; --selfSigned makes a certificate in memory"),
        "{stdout}"
    );
}

#[test]
fn a_port_that_only_root_may_take() {
    // In a new network namespace with the kernel's defaults; and then as root of another user namespace, without rights in
    // the network's.
    let mut command = apart("-Urn", "exec unshare -Ur \"$0\" \"$@\";");
    let place = InjectorPlace::new();
    let done = command
        .args(place.arguments())
        .arg("--port=443")
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(71));
    let stdout = String::from_utf8(done.stdout).unwrap();
    assert!(stdout.contains("cannot listen on --port 443: "), "{stdout}");
}

/// Returns true if a process handles SIGTERM, which would end a younger one as every other.
fn has_a_handler_of_term(id: u32) -> bool {
    const TERM: u64 = 1 << 14;
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let mut lines = status.lines();
    let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & TERM != 0
}

#[test]
fn half_a_rotation_at_the_start() {
    let place = InjectorPlace::new();
    place.write("key.pem", &pair().1);
    // Asked to go meanwhile, it goes.
    let mut child = gudgeon()
        .args(place.arguments())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    until("a handler of TERM", || has_a_handler_of_term(child.id()));
    assert_eq!(child.try_wait().unwrap(), None);
    let sent = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(20));
    // Not mended in time, it is broken.
    let start = Instant::now();
    let done = gudgeon().args(place.arguments()).output().unwrap();
    assert_eq!(done.status.code(), Some(78));
    assert!(start.elapsed() >= Duration::from_secs(10));
    let stdout = String::from_utf8(done.stdout).unwrap();
    assert!(
        stdout.contains("cannot use --tlsKeyFile ")
            && stdout.contains("does not match the certificate")
            && !stdout.contains("--selfSigned"),
        "{stdout}"
    );
    // Mended in time, it starts.
    let (chain, key) = pair();
    place.write("chain.pem", &chain);
    let root = place.root.path().to_owned();
    let mend = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        std::fs::write(root.join("key.pem"), key).unwrap();
    });
    let injector = place.start(&[]);
    mend.join().unwrap();
    assert_eq!(injector.client().image(), "proxy:1");
}

#[test]
fn lines_as_json_and_in_a_file() {
    let place = InjectorPlace::new();
    let log = place.path("log").to_str().unwrap().to_owned();
    let injector = place.start(&["--log_as_json", "--log_target=stdout", "--log_target", &log]);
    assert_eq!(injector.client().image(), "proxy:1");
    until("both have it", || {
        injector.logged("uid 5b7c") == 1 && injector.place.read("log").contains("uid 5b7c")
    });
    for line in injector
        .place
        .read("log")
        .lines()
        .chain(injector.log().iter().map(String::as_str))
    {
        let line: Value = serde_json::from_str(line).unwrap();
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 3, "{line}");
        assert!(
            line["time"].is_string() && line["level"] == "info" && line["msg"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn begun_requests_are_answered_before_the_end() {
    // Time for all that is asked meanwhile, on a machine that is busy.
    let mut injector = InjectorPlace::new().start(&["--drainDuration=3s"]);
    let mut client = injector.client();
    let body = support::review(&support::pod("web")).to_string();
    let (first, rest) = body.split_at(20);
    let head = format!(
        "POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{first}",
        body.len()
    );
    client.send(head.as_bytes()).unwrap();
    let mut other = injector.client();
    injector.signal("TERM");
    until("it drains", || injector.logged("draining: not ready") == 1);
    // The webhook's own port reports it, too; liveness stays true.
    let ready = other.request("GET", "/ready", &[], b"").unwrap();
    assert_eq!((ready.status, ready.text()), (503, "draining\n".to_owned()));
    // A kept connection is closed by its answer, so that its client goes to another replica. New ones are still taken.
    assert_eq!(ready.header("connection"), Some("close"));
    assert!(other.is_closed());
    let live = injector.client().request("GET", "/healthz", &[], b"");
    assert_eq!(live.unwrap().status, 200);
    until("nobody new comes", || {
        let config = client_config(&injector.trust(), &[]);
        Client::try_connect(injector.address(), config).is_err()
    });
    assert_eq!(injector.child.try_wait().unwrap(), None, "one is in work");
    client.send(rest.as_bytes()).unwrap();
    let answer = client.answer().unwrap();
    assert_eq!(support::image_in(&answer.json()), "proxy:1");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(client.is_closed());
    assert_eq!(injector.wait().code(), Some(0));
}

/// A client that trusts the file of `--caOut` accepts the served certificate, through the CA's own renewal: at two thirds of
/// twelve lives.
#[test]
fn the_ca_is_renewed_and_its_file_with_it() {
    let place = InjectorPlace::new();
    place.write("config", TEMPLATE);
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (config, out) = (path("config"), path("ca.pem"));
    let arguments = [
        "injector",
        "--selfSigned",
        "--selfSignedTTL=3s",
        "--port=0",
        "--monitoringPort=0",
        "--drainDuration=0s",
        "--injectConfig",
        &config,
        "--caOut",
        &out,
    ]
    .map(ToOwned::to_owned);
    let injector = place.start_as(gudgeon(), &arguments);
    let first = injector.place.read("ca.pem");
    assert_eq!(first.matches("BEGIN CERTIFICATE").count(), 1);
    let start = Instant::now();
    let (mut handshakes, mut signer_changed) = (0, false);
    while !signer_changed {
        assert!(
            start.elapsed() < Duration::from_secs(45),
            "no new CA has signed"
        );
        // Read as long ago as the lead allows.
        let bundle = injector.place.read("ca.pem");
        std::thread::sleep(Duration::from_millis(100));
        let mut client = Client::try_connect(injector.address(), client_config(&bundle, &[]))
            .expect("who reads it trusts it");
        assert_eq!(client.image(), "proxy:1");
        handshakes += 1;
        signer_changed =
            Client::try_connect(injector.address(), client_config(&first, &[])).is_err();
    }
    assert!(
        start.elapsed() > Duration::from_secs(20) && handshakes > 50,
        "{handshakes} {:?}",
        start.elapsed()
    );
    let now = injector.place.read("ca.pem");
    assert!(
        now.contains(&first) && now.matches("BEGIN CERTIFICATE").count() == 2,
        "the old one stays"
    );
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(injector.place.path("ca.pem"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
}
