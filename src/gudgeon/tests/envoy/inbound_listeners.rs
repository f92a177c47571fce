//! Sidecars without interception: their inbound listeners, and a router.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::backend::{self, Backend};
use crate::place::{Discovery, Place, SOON, documents, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync, in_sync_with, rows};

/// Builds a Sidecar from its ingress listeners: number, protocol, and default endpoint.
fn sidecar(name: &str, doors: &[(u16, &str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         workloadSelector: {{labels: {{app: {name}}}}}\n  ingress:\n"
    );
    for (number, protocol, to) in doors {
        text.push_str(&format!(
            "  - {{port: {{number: {number}, name: p{number}, protocol: {protocol}}}, defaultEndpoint: '{to}'}}\n"
        ));
    }
    text
}

/// Case 24, its inbound half, and the access log.
#[test]
fn a_sidecar_takes_what_its_ingress_says_and_logs_it() {
    let (web, ip) = (Address::new(), Address::new());
    let (one, line) = (Backend::new(ip.ip, "one"), Backend::new(ip.ip, "line"));
    let auto = Backend::new(ip.ip, "auto");
    let own = Backend::new([127, 0, 0, 1], "own");
    let place = Place::new();
    let socket = place.path("socket");
    Backend::unix(&socket, "socket");
    let ingress = sidecar(
        "web",
        &[
            (9080, "HTTP", &format!("{}:{}", ip.ip, one.port)),
            (9081, "TCP", &format!("{}:{}", ip.ip, line.port)),
            (9082, "HTTP", &format!("unix://{}", socket.display())),
            (9083, "HTTP", &format!(":{}", own.port)),
            (9084, "''", &format!("{}:{}", ip.ip, auto.port)),
            (9085, "GRPC", &format!("{}:{}", ip.ip, auto.port)),
        ],
    );
    let service = entry(
        "web.demo.svc.cluster.local",
        80,
        "HTTP",
        &[(&web.ip.to_string(), 9080)],
    );
    // Tracing is on, as it is by itself: Envoy takes it, whether there is a collector or not.
    let mesh = "protocolDetectionTimeout: 5s\naccessLogFile: /dev/stdout\ntcpKeepalive: {time: 60s, interval: 10s, probes: 3}\n\
        outboundClusterStatName: '%SERVICE%_%SERVICE_PORT%'\n";
    let discovery = place
        .with("mesh", mesh)
        .with("config/all.yaml", &documents(&[service, ingress]))
        .start();
    let web = Setup::at("web", web, discovery.grpc).label("app", "web");
    let web = web
        .env("ISTIO_META_HTTP10", "1")
        .env("ISTIO_META_IDLE_TIMEOUT", "1s")
        .start();
    for (port, body) in [
        (9080, "one"),
        (9082, "socket"),
        (9083, "own"),
        (9084, "auto"),
    ] {
        assert_eq!(web.get("any", port), Some((200, body.to_owned())), "{port}");
    }
    for port in [9081, 9084] {
        let reply = backend::say(web.connect(web.ip, port).unwrap(), "hello");
        let name = if port == 9081 { "line" } else { "auto" };
        assert_eq!(reply, Some(format!("{name} hello")), "{port}");
    }
    for port in [9084, 9085] {
        let asked = backend::health_of((web.ip, port).into(), "any");
        assert_eq!(asked, Ok(()), "{port}");
    }
    let old = backend::say(
        web.connect(web.ip, 9080).unwrap(),
        "GET / HTTP/1.0\r\nHost: any\r\n\r",
    );
    assert_eq!(old.as_deref(), Some("HTTP/1.0 200 OK"));

    // A kept connection without a request ends.
    let mut idle = web.connect(web.ip, 9080).unwrap();
    idle.set_read_timeout(Some(SOON)).unwrap();
    let begun = Instant::now();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: any\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    idle.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("one"), "{response}");
    assert!(
        begun.elapsed() > Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );

    // The log lines of a request and of a connection, for any user of the proxy.
    let at = web.ip;
    for (begin, end) in [
        (
            "\"GET / HTTP/1.1\" 200 - \"-\" \"-\" 0 3 ".to_owned(),
            format!(
                "\"any\" \"{}:{}\" inbound|9080|p9080|web.demo.svc.cluster.local ",
                ip.ip, one.port
            ),
        ),
        (
            "\"- - -\" 0 - \"-\" \"-\" 6 11 ".to_owned(),
            format!(
                "\"-\" \"{}:{}\" inbound|9081|p9081|web.demo ",
                ip.ip, line.port
            ),
        ),
    ] {
        until(&begin, || {
            let log = web.log();
            let mut lines = log.lines();
            let line = lines.find(|line| line.contains(&begin) && line.contains(&end))?;
            assert!(line.starts_with('['), "{line}");
            assert!(line.contains(&format!(" {at}:90")), "{line}");
            Some(())
        });
    }

    refusal(&discovery, &web);
    // As the lines of a table of one's own.
    let json = format!("{mesh}accessLogEncoding: JSON\n");
    discovery.place.write("mesh", &json);
    until("a line of JSON", || {
        web.get("any", 9080)?;
        let log = web.log();
        let line = log.lines().find(|line| line.contains("\"route_name\""))?;
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["response_code"], &line["authority"]),
            (&200.into(), &"any".into())
        );
        assert_eq!(line["route_name"], "default");
        Some(())
    });
}

/// Envoy NACKs a configuration that it cannot apply, and keeps the one before.
fn refusal(discovery: &Discovery, web: &Proxy) {
    let mesh = std::fs::read_to_string(discovery.place.path("mesh")).unwrap();
    let wrong = mesh.replace("/dev/stdout", "/nowhere/access.log");
    discovery.place.write("mesh", &wrong);
    let row = until("the refusal", || {
        let row = rows(discovery, "web").pop()?;
        row["errors"]["listener"].is_object().then_some(row)
    });
    let message = row["errors"]["listener"]["message"].as_str().unwrap();
    assert!(message.contains("/nowhere/access.log"), "{message}");
    assert_ne!(row["listener_sent"], row["listener_acked"]);
    let (_, metrics) = discovery.get("/metrics");
    assert!(
        metrics.contains("pilot_xds_lds_reject{node=\"sidecar~"),
        "{metrics}"
    );
    assert!(discovery.logged("refuses lds: ") > 0);
    assert_eq!(web.get("any", 9080), Some((200, "one".to_owned())));
    discovery.place.write("mesh", &mesh);
    in_sync_with(discovery, "web", |row| {
        row["errors"] == serde_json::json!({})
    });
}

/// Case 17.
#[test]
fn a_router_lives_without_listeners_and_so_does_an_ingress() {
    let b = entry("b.demo.svc.cluster.local", 80, "HTTP", &[("10.0.0.1", 80)]);
    let discovery = Place::new().with("config/b.yaml", &b).start();
    for role in ["router", "ingress"] {
        let router = Setup::new(role, discovery.grpc).role(role).start();
        lives(&discovery, &router);
    }
}

fn lives(discovery: &Discovery, router: &Proxy) {
    let row = in_sync(discovery, &router.name);
    assert_eq!(row["proxy_type"], *router.name);
    assert_eq!(row["errors"], serde_json::json!({}));
    assert!(router.ask("/server_info").contains("\"LIVE\""));
    assert_eq!(router.stat("listener_manager.lds.update_success"), 1);
    assert!(router.knows("outbound|80||b.demo.svc.cluster.local"));
    for absent in ["\"PassthroughCluster\"", "0.0.0.0_80", "virtualOutbound"] {
        assert!(!router.knows(absent), "{absent}");
    }
}
