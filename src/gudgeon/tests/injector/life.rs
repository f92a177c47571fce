//! From the start to the end: errors of the start, pages, and the shutdown.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::program::metrics_of;
use crate::support::{
    Client, Injector, InjectorPlace, client_config, gudgeon, h2, request_plain, run, until,
};

/// Runs the program to its end, and returns the exit code and the last line. The cause is printed once.
fn refused(place: &InjectorPlace, more: &[&str]) -> (Option<i32>, String) {
    let done = gudgeon()
        .args(place.arguments())
        .args(more)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap();
    assert!(text.matches("\terror\t").count() <= 1, "{text}");
    (
        done.status.code(),
        text.lines().last().unwrap_or_default().to_owned(),
    )
}

#[test]
fn invalid_flags_and_files_stop_the_start() {
    let place = InjectorPlace::new();
    place.write("broken", "policy: enabled\ntemplate: |\n  [[ if ]]\n");
    place.write("text", "x");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (flag, value, code, message) in [
        (
            "--injectConfig",
            path("none"),
            78,
            "cannot use --injectConfig",
        ),
        (
            "--injectConfig",
            path("broken"),
            78,
            "cannot use --injectConfig",
        ),
        (
            "--injectValues",
            path("none"),
            78,
            "cannot use --injectValues",
        ),
        (
            "--injectValues",
            path("text"),
            78,
            "cannot use --injectValues",
        ),
        ("--meshConfig", path("text"), 78, "cannot use --meshConfig"),
        (
            "--tlsCertFile",
            path("none"),
            78,
            "cannot use --tlsCertFile",
        ),
        ("--tlsCertFile", path("text"), 78, "no certificate in it"),
        ("--tlsKeyFile", path("text"), 78, "no private key in it"),
        ("--port", port.clone(), 71, "cannot listen on --port"),
        (
            "--monitoringPort",
            port,
            71,
            "cannot listen on --monitoringPort",
        ),
        ("--debugAddr", "nonsense".to_owned(), 78, "want HOST:PORT"),
        ("--port", "x".to_owned(), 78, "--help"),
        ("--prot", "1".to_owned(), 64, "--help"),
        (
            "--log_output_level",
            "loud".to_owned(),
            78,
            "want debug, info",
        ),
    ] {
        let (got, line) = refused(&place, &[flag, &value]);
        assert_eq!(got, Some(code), "{flag} {value}: {line}");
        assert!(line.contains(message), "{flag} {value}: {line}");
    }
    let health = path("none/health");
    let (code, line) = refused(
        &place,
        &["--healthCheckFile", &health, "--healthCheckInterval=1s"],
    );
    assert_eq!(code, Some(71), "{line}");
    let (code, line) = refused(&place, &["--selfSigned", "--selfSignedNames", "a b"]);
    assert_eq!(code, Some(78), "{line}");
}

/// The CA may belong to the process that has the port.
#[test]
fn without_the_port_the_ca_in_the_file_stays() {
    let place = InjectorPlace::new();
    place.write("ca", "another's");
    let ca = place.path("ca").to_str().unwrap().to_owned();
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["--selfSigned", "--port", &port, "--caOut", &ca];
    let (code, line) = refused(&place, &arguments);
    assert_eq!(code, Some(71), "{line}");
    assert_eq!(std::fs::read_to_string(ca).unwrap(), "another's");
}

#[test]
fn the_monitoring_port() {
    let injector = Injector::new();
    assert_eq!(injector.get("/ready").text(), "ok\n");
    assert_eq!(injector.get("/healthz").status, 200);
    assert_eq!(injector.get("/").status, 302, "to the page");
    assert_eq!(
        injector.get("/version").json()["version"],
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(injector.get("/inject").status, 404);
    let post = request_plain(
        SocketAddr::from((Ipv4Addr::LOCALHOST, injector.monitoring)),
        "POST",
        "/metrics",
    );
    assert_eq!(
        (post.status, post.header("allow")),
        (405, Some("GET, HEAD"))
    );
    metrics_of(injector.monitoring);
    assert!(injector.metric("process_resident_memory_bytes").unwrap() > 1e6);
    let end = injector.metric("gudgeon_tls_not_after_seconds").unwrap();
    assert!(end > 1e9, "{end}");
    let config = injector.get("/debug/config").json();
    assert_eq!(config["policy"], "enabled");
    assert_eq!(config["delimiters"], serde_json::json!(["[[", "]]"]));
    assert_eq!(
        config["templates"][0]["version"].as_str().unwrap().len(),
        64
    );
    assert_eq!(config["revision"], "default");
    assert_eq!(
        config["tls"]["names"],
        serde_json::json!(["localhost", "127.0.0.1"])
    );
    assert_eq!(config["tls"]["selfSigned"], false);
    assert_eq!(config["files"].as_array().unwrap().len(), 3);
    injector.client().image();
    let page = injector.get("/debug");
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    for text in ["<svg", "ns/web", "injected", "--injectConfig"] {
        assert!(page.text().contains(text), "{text}");
    }
    assert!(!page.text().contains("<script"));
}

/// An address of this host that is not loopback.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // No packet is sent: the kernel only picks a route.
    let routed = socket.connect("192.0.2.1:9");
    routed.expect("a route, for an address that is not loopback: there is none here");
    let address = socket.local_addr().unwrap().ip();
    assert!(
        !address.is_loopback() && !address.is_unspecified(),
        "{address}: this host has no address but loopback"
    );
    address
}

#[test]
fn the_page_is_for_this_host_unless_it_is_opened() {
    let address = own_address();
    let injector = InjectorPlace::new().start(&["--debugAddr", "0.0.0.0:0"]);
    let open = injector
        .log()
        .iter()
        .find_map(|line| {
            line.split_once("every client: listening on http://0.0.0.0:")?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .unwrap();
    for path in ["/debug", "/debug/inject", "/debug/config"] {
        let from_outside = |port| request_plain(SocketAddr::new(address, port), "GET", path).status;
        assert_eq!(injector.get(path).status, 200);
        // A page that a browser was shown elsewhere is not of this host.
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", injector.monitoring)).unwrap();
        let led = crate::support::program::exchange(&mut stream, "GET", path, "evil.example");
        assert_eq!(led.unwrap().0, 403);
        let mut stream = crate::support::program::passed_through(injector.monitoring);
        let passed = crate::support::program::exchange(&mut stream, "GET", path, "localhost");
        assert_eq!(passed.unwrap().0, 403);
        assert_eq!(from_outside(injector.monitoring), 403);
        assert_eq!(from_outside(open), 200);
    }
    assert_eq!(
        request_plain(
            SocketAddr::new(address, injector.monitoring),
            "GET",
            "/metrics"
        )
        .status,
        200
    );
}

#[test]
fn flags_of_the_built_in_template_mean_nothing_beside_a_configuration() {
    let more = [
        "--proxyImage=x",
        "--cni",
        "--coreDump",
        "--caOut=/none/ca.pem",
    ];
    let injector = InjectorPlace::new().start(&more);
    for flag in ["proxyImage", "cni", "coreDump", "caOut"] {
        assert_eq!(injector.logged(&format!("ignoring --{flag}: ")), 1);
    }
    assert_eq!(injector.client().image(), "proxy:1");
    // Templates of one's own may ask for the images.
    let place = InjectorPlace::new();
    place.write(
        "config",
        "templates:\n  sidecar: |\n    spec: {containers: [{name: istio-proxy, image: '{{ .ProxyImage }}+{{ .ProxyInitImage }}'}]}\n",
    );
    let injector = place.start(&["--proxyImage=x:1", "--initImage=y:2"]);
    assert_eq!(injector.client().image(), "x:1+y:2");
}

#[test]
fn flags_of_the_built_in_template_count_beside_a_policy() {
    let place = InjectorPlace::new();
    place.write("config", "policy: enabled\n");
    let more = ["--proxyImage=x:1", "--discoveryAddress=d:15010", "--cni"];
    let injector = place.start(&more);
    assert_eq!(injector.logged("ignoring --"), 0);
    assert_eq!(injector.client().image(), "x:1");
}

#[test]
fn the_drain() {
    const DRAIN: Duration = Duration::from_secs(8);
    let mut injector = InjectorPlace::new().start(&["--drainDuration=8s"]);
    let mut client = injector.client();
    assert_eq!(client.image(), "proxy:1");
    let start = Instant::now();
    injector.signal("TERM");
    until("not ready", || injector.get("/ready").status == 503);
    assert_eq!(injector.get("/ready").text(), "draining\n");
    // Listeners stay.
    assert_eq!(injector.client().image(), "proxy:1");
    assert_eq!(client.image(), "proxy:1");
    // It is closed by its answer, so that no request is lost when listeners close.
    assert!(client.is_closed());
    assert!(start.elapsed() < DRAIN);
    assert_eq!(injector.wait().code(), Some(0));
    assert!(start.elapsed() >= DRAIN, "{:?}", start.elapsed());
    assert!(client.is_closed());
}

#[test]
fn http2_is_told_to_go() {
    let mut injector = InjectorPlace::new().start(&["--drainDuration=1s"]);
    let mut client = Client::try_connect(
        injector.address(),
        client_config(&injector.trust(), &["h2"]),
    )
    .unwrap();
    client
        .send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    // The server's SETTINGS show that it has read the preface.
    assert!(h2::sees(&mut client, &[4]));
    injector.signal("TERM");
    // Frames: length (3), type, flags, stream (4), payload. GOAWAY is type 7.
    let mut types = Vec::new();
    let mut head = [0; 9];
    while client.stream.read_exact(&mut head).is_ok() {
        types.push(head[3]);
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        client.stream.read_exact(&mut payload).unwrap();
        if head[3] == 6 && head[4] == 0 {
            // The server's ping asks for the client's acknowledgement of all responses.
            let mut pong = vec![0, 0, 8, 6, 1, 0, 0, 0, 0];
            pong.extend_from_slice(&payload);
            client.send(&pong).unwrap();
        }
    }
    assert!(types.contains(&7), "{types:?}");
    assert_eq!(injector.wait().code(), Some(0));
}

#[test]
fn http2_that_has_asked_is_told_to_go_while_listeners_are_open() {
    const HEADERS: u8 = 1;
    const GOAWAY: u8 = 7;
    let mut injector = InjectorPlace::new().start(&["--drainDuration=1h"]);
    let config = client_config(&injector.trust(), &["h2"]);
    let connect = || {
        let mut client = Client::try_connect(injector.address(), config.clone()).unwrap();
        client.send(&h2::hello(65_535)).unwrap();
        client
    };
    let mut clients = [connect(), connect()];
    let [asked, other] = &mut clients;
    asked.send(&h2::request(1, "/inject", b"{}")).unwrap();
    assert!(h2::sees(asked, &[HEADERS]));
    injector.signal("TERM");
    until("it drains", || injector.logged("draining: not ready") == 1);
    assert!(h2::sees(asked, &[GOAWAY]));
    // One that has not asked yet is told with its first request, which is answered.
    other.send(&h2::request(1, "/inject", b"{}")).unwrap();
    assert!(h2::sees(other, &[HEADERS, GOAWAY]));
    injector.signal("TERM");
    assert_eq!(injector.wait().code(), Some(0));
}

#[test]
fn asked_twice_it_goes_at_once() {
    let mut injector = InjectorPlace::new().start(&["--drainDuration=1h"]);
    let start = Instant::now();
    injector.signal("TERM");
    until("it drains", || injector.logged("draining: not ready") == 1);
    injector.signal("TERM");
    assert_eq!(injector.wait().code(), Some(0));
    // Far from the hour.
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn the_health_file_and_its_probe() {
    let place = InjectorPlace::new();
    let path = place.path("health").to_str().unwrap().to_owned();
    let mut injector = place.start(&["--healthCheckFile", &path, "--healthCheckInterval=200ms"]);
    let probe = |interval: &str| run(&["probe", "--probe-path", &path, "--interval", interval]);
    // The file exists before the program listens.
    assert_eq!(std::fs::read(&path).unwrap(), b"ok");
    let done = probe("2s");
    assert_eq!(
        (done.status.code(), done.stdout),
        (Some(0), b"OK\n".to_vec())
    );
    std::fs::remove_file(&path).unwrap();
    until("it is written again", || probe("2s").status.success());
    injector.signal("STOP");
    std::thread::sleep(Duration::from_millis(1200));
    let done = probe("1s");
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(String::from_utf8(done.stderr).unwrap().lines().count(), 1);
    injector.signal("CONT");
    injector.signal("TERM");
    injector.wait();
    assert!(!std::path::Path::new(&path).exists());
    assert_eq!(run(&["probe", "--interval=1s"]).status.code(), Some(64));
    assert_eq!(run(&["probe", "--probe-path=/x"]).status.code(), Some(64));
}

#[test]
fn a_links_name_chooses_the_role() {
    let root = tempfile::tempdir().unwrap();
    let link = |name: &str| {
        let path = root.path().join(name);
        symlink(env!("CARGO_BIN_EXE_gudgeon"), &path).unwrap();
        path
    };
    let injector = link("sidecar-injector");
    let done = Command::new(&injector)
        .args(["--injectConfig", "/none"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(78));
    let done = Command::new(&injector)
        .args(["probe", "--probe-path", "/none", "--interval", "1s"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(1));
    let done = Command::new(&injector)
        .args(["version", "-s"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        format!("{}\n", env!("CARGO_PKG_VERSION"))
    );
    let done = Command::new(link("istioctl"))
        .args(["kube-inject", "--help"])
        .output()
        .unwrap();
    assert!(done.status.success());
}

#[test]
fn its_own_certificates() {
    let place = InjectorPlace::new();
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let ca = path("ca.pem");
    let arguments: Vec<String> = [
        "injector",
        "--injectConfig",
        &path("config"),
        "--tlsCertFile=/none",
        "--tlsKeyFile=/none",
        "--selfSigned",
        "--port=0",
        "--monitoringPort=0",
        "--drainDuration=0s",
        "--selfSignedTTL=6s",
        "--caOut",
        &ca,
        "--namespace=mesh",
        "--selfSignedNames=hook.example",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    let injector = place.start_with(&arguments);
    let connect = || {
        Client::try_connect(
            injector.address(),
            client_config(&injector.place.read("ca.pem"), &[]),
        )
        .unwrap()
    };
    let mut established = connect();
    let first = established.leaf();
    assert_eq!(established.image(), "proxy:1");
    let names = injector.get("/debug/config").json()["tls"]["names"].clone();
    assert_eq!(
        names,
        serde_json::json!([
            "istio-sidecar-injector",
            "istio-sidecar-injector.mesh",
            "istio-sidecar-injector.mesh.svc",
            "istio-sidecar-injector.mesh.svc.cluster.local",
            "localhost",
            "127.0.0.1",
            "::1",
            "hook.example"
        ])
    );
    // Renewed at two thirds of its six seconds, by the same CA; the kept connection goes on.
    let start = Instant::now();
    until("a new leaf", || connect().leaf() != first);
    assert!(
        start.elapsed() < Duration::from_secs(6),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(established.image(), "proxy:1");
    assert_eq!(connect().image(), "proxy:1");
    let text = injector.log().join("\n");
    assert!(
        !text.contains("PRIVATE") && !text.contains("BEGIN"),
        "{text}"
    );
    assert_eq!(injector.get("/ready").status, 200);
}
