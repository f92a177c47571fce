//! A client whose sidecar does not intercept: it calls a port of its own address, for each kind of port that a service has.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::backend::{self, Backend};
use crate::place::{Place, documents, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync};

pub fn host(name: &str) -> String {
    format!("{name}.demo.svc.cluster.local")
}

/// With a time of creation.
pub fn created(entry: &str, at: &str) -> String {
    let (before, after) = entry.split_once("namespace: demo").unwrap();
    format!("{before}namespace: demo, creationTimestamp: '{at}'{after}")
}

/// Without endpoints of its own, by a way to find them.
pub fn resolved(
    name: &str,
    port: u16,
    protocol: &str,
    resolution: &str,
    endpoints: &str,
) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{}]\n  location: MESH_INTERNAL\n  resolution: {resolution}\n  ports: [{{number: {port}, name: main, \
         protocol: {protocol}}}]\n  endpoints: {endpoints}\n",
        host(name)
    )
}

/// The first words of a client of TLS that wants this name.
pub fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Sends a ClientHello and returns the response.
pub fn greeted(mut stream: TcpStream, name: &str) -> Option<String> {
    use std::io::Write as _;
    stream.write_all(&hello(name)).ok()?;
    backend::read_line(stream)
}

fn upgraded(proxy: &Proxy, port: u16) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut stream = proxy.connect(proxy.ip, port).unwrap();
    stream.set_read_timeout(Some(crate::place::SOON)).unwrap();
    stream
        .write_all(
            b"GET / HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let status = lines.next().unwrap().unwrap();
    assert!(status.starts_with("HTTP/1.1 101 "), "{status}");
    while !lines.next().unwrap().unwrap().is_empty() {}
    stream.write_all(b"frame\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "one frame");
}

/// Cases 18, 20 and 24.
#[test]
fn each_kind_of_port_is_reached_by_its_number() {
    let ip = Address::new();
    let at = ip.ip.to_string();
    let [one, line, auto, grpc, old, new] =
        ["one", "line", "auto", "grpc", "old", "new"].map(|name| Backend::new(ip.ip, name));
    let [first, second] = ["first", "second"].map(|name| Backend::new(ip.ip, name));
    let named = Backend::new([127, 0, 0, 1], "named");
    let greeting = Backend::greeting(ip.ip, "220 ready\n");
    let nobody = Address::new().ip;
    let place = Place::new();
    let socket = place.path("socket");
    Backend::unix(&socket, "socket");
    let of = |name: &str, port, protocol: &str, backend: u16| {
        entry(&host(name), port, protocol, &[(&at, backend)])
    };
    let older = created(&of("older", 9000, "TCP", old.port), "2026-01-01T00:00:00Z");
    let newer = created(&of("newer", 9000, "TCP", new.port), "2026-02-01T00:00:00Z");
    let all = [
        of("b", 18080, "HTTP", one.port),
        of("line", 18100, "TCP", line.port),
        of("greeting", 18101, "TCP", greeting),
        of("auto", 18102, "''", auto.port),
        of("grpc", 18103, "GRPC", grpc.port),
        of("tls-one", 18104, "TLS", first.port),
        of("tls-two", 18104, "HTTPS", second.port),
        resolved(
            "socket",
            18105,
            "HTTP",
            "STATIC",
            &format!("[{{address: 'unix://{}'}}]", socket.display()),
        ),
        resolved(
            "named",
            18106,
            "HTTP",
            "DNS",
            &format!("[{{address: localhost, ports: {{main: {}}}}}]", named.port),
        ),
        resolved(
            "robin",
            18106,
            "HTTP",
            "DNS_ROUND_ROBIN",
            &format!("[{{address: localhost, ports: {{main: {}}}}}]", named.port),
        ),
        // One of the two endpoints does not listen.
        entry(
            &host("retried"),
            18107,
            "HTTP",
            &[(&at, one.port), (&nobody.to_string(), 1)],
        ),
        // One part, and three.
        resolved(
            "shares",
            18108,
            "HTTP",
            "STATIC",
            &format!(
                "[{{address: {at}, ports: {{main: {}}}}}, {{address: {at}, ports: {{main: {}}}, weight: 3}}, {{address: {at}, \
                 ports: {{main: {}}}, weight: 0}}]",
                one.port, line.port, auto.port
            ),
        ),
        // The short forms of the same domains.
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: clash, namespace: demo, \
             creationTimestamp: '2026-01-01T00:00:00Z'}\nspec:\n  hosts: [b.demo]\n  location: MESH_INTERNAL\n  resolution: \
             STATIC\n  ports: [{number: 18080, name: main, protocol: HTTP}]\n  endpoints: [{address: 192.0.2.1}]\n"
            .to_owned(),
        newer,
        older,
        // The proxy's own.
        of("taken", 15090, "HTTP", one.port),
    ];
    let mesh = "enableTracing: false\nprotocolDetectionTimeout: 20s\nproxyHttpPort: 18199\n";
    let discovery = place
        .with("mesh", mesh)
        .with("config/all.yaml", &documents(&all))
        .start();
    let proxy = Setup::new("client-1", discovery.grpc).start();
    let row = in_sync(&discovery, "client-1");
    assert_eq!(row["errors"], serde_json::json!({}));
    let ok = |body: &str| Some((200, body.to_owned()));
    let connect = |port| proxy.connect(proxy.ip, port).unwrap();

    assert_eq!(proxy.get("b", 18080), ok("one"));
    // Case 40.
    assert_eq!(proxy.get("b.demo", 18080), ok("one"));
    assert_eq!(discovery.metric("pilot_vservice_dup_domain"), 2.0);
    upgraded(&proxy, 18080);
    assert_eq!(
        backend::say(connect(18100), "hello").as_deref(),
        Some("line hello")
    );
    // A port of a protocol in which the server speaks first does not wait for protocol sniffing.
    let begun = Instant::now();
    assert_eq!(
        backend::read_line(connect(18101)).as_deref(),
        Some("220 ready")
    );
    assert!(begun.elapsed() < Duration::from_secs(10));

    assert_eq!(proxy.get("auto", 18102), ok("auto"));
    assert_eq!(
        backend::say(connect(18102), "hello").as_deref(),
        Some("auto hello")
    );
    let at = |port| (proxy.ip, port).into();
    assert_eq!(backend::health_of(at(18102), &host("auto")), Ok(()));
    assert_eq!(auto.seen.last().1, "h2");
    // A TLS port is a plain TCP connection, too.
    assert_eq!(
        greeted(connect(18102), "any.example").as_deref(),
        Some("auto")
    );

    assert_eq!(backend::health_of(at(18103), "grpc"), Ok(()));
    for (name, answer) in [
        ("tls-one", Some("first")),
        ("tls-two", Some("second")),
        ("tls-three", None),
    ] {
        let reply = greeted(connect(18104), &host(name));
        assert_eq!(reply.as_deref(), answer, "{name}");
    }
    assert_eq!(proxy.get("socket", 18105), ok("socket"));
    for name in ["named", "robin"] {
        assert_eq!(proxy.get(name, 18106), ok("named"), "{name}");
    }

    let answers: Vec<_> = (0..80).filter_map(|_| proxy.get("shares", 18108)).collect();
    let of = |body: &str| answers.iter().filter(|answer| answer.1 == body).count();
    let (few, many) = (of("one"), of("line"));
    assert!(
        few + many == 80 && (12..=28).contains(&few),
        "{few} and {many}"
    );
    // Retries pass over the endpoint that does not listen.
    for _ in 0..10 {
        assert_eq!(proxy.get("retried", 18107), ok("one"));
    }

    // The older of two indistinguishable entries works, and the other one is shown.
    assert_eq!(
        backend::say(connect(9000), "hello").as_deref(),
        Some("old hello")
    );
    let metric = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
    assert_eq!(discovery.metric(metric), 1.0);
    let conflicts = discovery.json("/debug/push_status");
    let message = conflicts[metric][format!("{}_9000", proxy.ip)]["message"].clone();
    assert!(
        message.as_str().unwrap().contains("newer.demo"),
        "{conflicts}"
    );
    assert!(
        discovery
            .get("/debug")
            .1
            .contains("newer.demo.svc.cluster.local:9000")
    );
    assert_eq!(discovery.metric("pilot_invalid_out_listeners"), 1.0);

    // The port for applications that use a proxy: all ports, by their numbers.
    for (name, answer) in [
        ("b:18080", ok("one")),
        ("auto.demo:18102", ok("auto")),
        ("named:18106", ok("named")),
    ] {
        assert_eq!(proxy.get(name, 18199), answer, "{name}");
    }
    for name in ["b", "b:18081"] {
        let status = proxy.get(name, 18199).map(|(status, _)| status);
        assert_eq!(status, Some(502), "{name}");
    }
}

/// The nearest healthy endpoints answer, and the others when those are gone.
#[test]
fn localities_are_preferred_and_passed_over() {
    let ip = Address::new();
    let (near, far) = (Backend::new(ip.ip, "near"), Backend::new(ip.ip, "far"));
    let at = |backend: &Backend, locality: &str| {
        format!(
            "{{address: {}, ports: {{main: {}}}, locality: {locality}}}",
            ip.ip, backend.port
        )
    };
    let (here, there) = (at(&near, "r1/z1"), at(&far, "r2/z1"));
    let of = |endpoints: &str| resolved("b", 18080, "HTTP", "STATIC", endpoints);
    let mesh = "enableTracing: false\nlocalityLbSetting: {enabled: true}\n";
    let discovery = Place::new()
        .with("mesh", mesh)
        .with("config/b.yaml", &of(&format!("[{there}, {here}]")))
        .start();
    let proxy = Setup::new("client-1", discovery.grpc)
        .label("istio-locality", "r1.z1")
        .start();
    for _ in 0..20 {
        assert_eq!(proxy.get("b", 18080), Some((200, "near".to_owned())));
    }
    discovery
        .place
        .write("config/b.yaml", &of(&format!("[{there}]")));
    until("the far one", || {
        let (status, body) = proxy.get("b", 18080)?;
        assert_eq!(status, 200);
        (body == "far").then_some(())
    });
}
