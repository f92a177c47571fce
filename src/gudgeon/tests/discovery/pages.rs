//! Pages and documents of the role.

use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType::UserAgentVersion;
use serde_json::json;

use crate::client::*;
use crate::place::{Place, documents, entry, request};

fn b() -> String {
    entry(
        "b.demo.svc.cluster.local",
        8080,
        "HTTP",
        &[("10.0.0.2", 80), ("10.0.0.3", 81)],
    )
}

#[test]
fn the_admin_port_restricts_methods_and_paths() {
    let mut discovery = Place::new()
        .with("config/b.yaml", &b())
        .arg("--debugAddr=127.0.0.1:0")
        .start();
    let open = discovery.port_after("every client: listening on http://");
    for port in [discovery.http, open] {
        for (method, path, status) in [
            ("GET", "/ready", 200),
            ("POST", "/ready", 405),
            ("GET", "/none", 404),
            ("GET", "/debug/none", 404),
            ("PUT", "/debug/syncz", 405),
            ("PUT", "/debug/memory", 404),
            ("GET", "/", 302),
            ("POST", "/", 405),
            ("GET", "/debug/syncz", 200),
            ("GET", "/debug/cdsz", 200),
            ("GET", "/debug/config_dump", 400),
            ("GET", "/debug/config_dump?proxyID=none.demo", 404),
        ] {
            assert_eq!(request(port, method, path).0, status, "{method} {path}");
        }
    }
}

/// A browser may be led here by a page elsewhere, and Envoy passes on what comes from outside.
#[tokio::test]
async fn debug_pages_are_served_to_loopback_clients_of_the_same_origin() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut discovery = Place::new()
        .with("config/b.yaml", &b())
        .arg("--registries=Mock")
        .arg("--debugAddr=127.0.0.1:0")
        .start();
    let open = discovery.port_after("every client: listening on http://");
    let ask = async |port: u16, from: &str, line: &str, headers: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = socket.connect(address).await.unwrap();
        let body = "kind: none\n";
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\n{headers}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _cut = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let (here, evil) = ("Host: localhost", "Host: evil.example");
    let led = "Host: localhost\r\nOrigin: http://evil.example";
    for (line, may) in [
        ("GET /debug", 200),
        ("GET /debug/syncz", 200),
        ("GET /v1/registration", 200),
        ("POST /debug/adsz?push=1", 200),
        ("PUT /debug/memory", 400),
    ] {
        for (from, headers, status) in [
            ("127.0.0.1", here, may),
            ("127.0.0.6", here, 403),
            ("127.0.0.1", evil, 403),
            ("127.0.0.1", led, 403),
        ] {
            let found = ask(discovery.http, from, line, headers).await;
            assert_eq!(found, status, "{line} from {from}: {headers}");
        }
        // At --debugAddr any client may read, but no page of another origin.
        for (headers, status) in [(here, may), (evil, may), (led, 403)] {
            let found = ask(open, "127.0.0.6", line, headers).await;
            assert_eq!(found, status, "{line} on --debugAddr: {headers}");
        }
    }
    for line in ["GET /ready", "GET /version", "GET /metrics"] {
        let found = ask(discovery.http, "127.0.0.6", line, evil).await;
        assert_eq!(found, 200, "{line}");
    }
    let pushed = || discovery.metric("pilot_push_triggers{type=\"debug\"}") > 0.0;
    soon("the push", pushed).await;
}

/// Returns a non-loopback address of this machine, if there is one.
fn outside() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // No packet is sent: the kernel only picks the route.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().unwrap().ip();
    (!address.is_loopback()).then_some(address)
}

#[test]
fn debug_pages_are_refused_to_other_hosts() {
    let Some(address) = outside() else {
        return;
    };
    let mut discovery = Place::new()
        .arg("--httpAddr=:0")
        .arg("--debugAddr=:0")
        .start();
    let open = discovery.port_after("every client: listening on http://");
    for (port, path, status) in [
        (discovery.http, "/ready", 200),
        (discovery.http, "/debug/syncz", 403),
        (discovery.http, "/debug", 403),
        (open, "/debug/syncz", 200),
    ] {
        let mut stream = std::net::TcpStream::connect((address, port)).unwrap();
        let (found, _) = crate::place::exchange(&mut stream, "GET", path, "x").unwrap();
        assert_eq!(found, status, "{path}");
    }
}

#[tokio::test]
async fn services_endpoints_and_streams() {
    let other = entry("a.other.svc.cluster.local", 9000, "TCP", &[("10.0.0.9", 9)]);
    let discovery = Place::new()
        .with("config/b.yaml", &documents(&[b(), other]))
        .start();
    let registry = discovery.json("/debug/registryz");
    let names: Vec<_> = registry
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["hostname"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["a.other.svc.cluster.local", "b.demo.svc.cluster.local"]
    );
    assert_eq!(
        registry[1]["ports"],
        json!([{"name": "main", "port": 8080, "protocol": "HTTP"}])
    );
    assert_eq!(
        (&registry[1]["registry"], &registry[1]["resolution"]),
        (&json!("External"), &json!("STATIC"))
    );
    let endpoints = discovery.json("/debug/endpointz");
    assert_eq!(endpoints[1]["svc"], "b.demo.svc.cluster.local:main");
    assert_eq!(
        (
            &endpoints[1]["ep"][1]["address"],
            &endpoints[1]["ep"][1]["port"]
        ),
        (&json!("10.0.0.3"), &json!(81))
    );
    let (_, brief) = discovery.get("/debug/endpointz?brief=1");
    assert!(
        brief.starts_with("a.other.svc.cluster.local:main 10.0.0.9:9"),
        "{brief}"
    );
    let registration = discovery.json("/v1/registration");
    assert_eq!(
        registration[1]["service-key"],
        "b.demo.svc.cluster.local|main"
    );
    assert_eq!(
        registration[1]["hosts"][0],
        json!({"ip_address": "10.0.0.2", "port": 80})
    );
    let shards = discovery.json("/debug/endpointShardz");
    let shards = &shards["b.demo.svc.cluster.local"]["demo"]["Shards"];
    assert_eq!(shards["Kubernetes"].as_array().unwrap().len(), 2);
    assert_eq!(discovery.json("/debug/clusterz")[0]["state"], "synced");
    let config = discovery.json("/debug/configz?kind=ServiceEntry");
    assert_eq!(
        (
            &config[1]["metadata"]["name"],
            &config[1]["status"]["accepted"]
        ),
        (&json!("a"), &json!(true)),
        "{config}"
    );
    assert_eq!(discovery.json("/debug/configz?kind=Gateway"), json!([]));
    assert_eq!(discovery.json("/debug/push_status"), json!({}));

    let mut stream = Sotw::open(discovery.grpc).await;
    let [cds, ..] = stream.settle(&[B], &["8080"]).await;
    let ads = discovery.json("/debug/adsz");
    assert_eq!(
        ads[0]["watches"],
        json!({"CDS": ["*"], "EDS": [B], "LDS": ["*"], "RDS": ["8080"]})
    );
    assert_eq!(ads[0]["pending"], false);
    let sent = discovery.json("/debug/edsz");
    assert_eq!(sent[0]["resources"].as_object().unwrap().len(), 1);
    let clusters = discovery.json("/debug/cdsz");
    assert_eq!(
        clusters[0]["resources"].as_object().unwrap().len(),
        cds.resources.len()
    );
    let row = &discovery.json("/debug/syncz")[0];
    assert_eq!(
        (&row["cluster_sent"], &row["protocol"]),
        (&json!(cds.version_info), &json!("sotw"))
    );
    assert_eq!(row["endpoint_percent"], 50);
    let (status, message) = discovery.get("/debug/adsz?push=1");
    assert_eq!(status, 405);
    assert!(message.contains("use POST"), "{message}");
    assert_eq!(request(discovery.http, "POST", "/debug/adsz").0, 405);
    assert_eq!(discovery.metric("pilot_push_triggers{type=\"debug\"}"), 0.0);
    assert_eq!(
        request(discovery.http, "POST", "/debug/adsz?push=1"),
        (200, "Pushed to 1 servers\n".to_owned())
    );
    stream.is_quiet().await;
    assert_eq!(discovery.metric("pilot_push_triggers{type=\"debug\"}"), 1.0);
    let version = env!("CARGO_PKG_VERSION");
    for (metric, value) in [
        (format!("pilot_xds{{version=\"{version}\"}}"), 1.0),
        (format!("pilot_info{{version=\"{version}\"}}"), 1.0),
        ("pilot_services".to_owned(), 2.0),
        ("pilot_xds_pushes{type=\"cds\"}".to_owned(), 1.0),
        // No service has this client's address.
        ("pilot_no_ip".to_owned(), 1.0),
        ("endpoint_no_pod".to_owned(), 0.0),
        ("pilot_k8s_endpoints_with_no_pods".to_owned(), 0.0),
        ("gudgeon_resources_shared".to_owned(), 0.0),
    ] {
        assert_eq!(discovery.metric(&metric), value, "{metric}");
    }
    let dump = discovery.get("/debug/config_dump?proxyID=client-1.demo").1;
    assert!(!dump.contains("\"error\""), "{dump}");
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    let listener = &dump["configs"][2]["dynamic_listeners"][0]["active_state"]["listener"];
    assert_eq!(listener["name"], "127.0.0.1_8080", "{listener}");
    let assignment = &dump["configs"][4]["dynamic_endpoint_configs"][0]["endpoint_config"];
    assert_eq!(assignment["cluster_name"], B, "{assignment}");
    let (status, page) = discovery.get("/debug");
    assert_eq!(status, 200);
    for text in [
        "<svg",
        "sidecar~127.0.0.1~client-1.demo~",
        "b.demo.svc.cluster.local",
        "debug",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[tokio::test]
async fn a_conflict_names_a_proxy_that_it_was_found_for() {
    let [one, other] = ["one", "other"].map(|name| {
        let host = format!("{name}.demo.svc.cluster.local");
        entry(&host, 9000, "TCP", &[("10.0.0.2", 80)])
    });
    let discovery = Place::new()
        .with("config/b.yaml", &documents(&[one, other]))
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let mut node = node();
    node.user_agent_version_type = Some(UserAgentVersion("1.40.0".to_owned()));
    stream.ask_as(node.clone(), LDS, &[]);
    stream.hear(LDS).await;
    let push_status = discovery.json("/debug/push_status");
    let metric = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
    let found = &push_status[metric]["127.0.0.1_9000"];
    assert_eq!(found["proxy"], json!(node.id), "{push_status}");
    assert_eq!(discovery.metric(metric), 1.0);
    let row = &discovery.json("/debug/syncz")[0];
    assert_eq!(
        (&row["proxy_version"], &row["istio_version"]),
        (&json!("1.40.0"), &json!(""))
    );
}

#[test]
fn objects_put_into_memory_are_served_and_invalid_ones_refused() {
    let discovery = Place::new().arg("--registries=mock").start();
    let put = |body: &str| discovery.put_memory(body);
    let (status, body) = put(&b());
    assert_eq!(
        (status, body.contains("\"objects\": 1")),
        (200, true),
        "{body}"
    );
    assert_eq!(discovery.get("/debug/memory"), (200, b()));
    crate::place::until("its service", || {
        (discovery.json("/debug/registryz").as_array().unwrap().len() == 1).then_some(())
    });
    let (status, wrong) = put("kind: [");
    assert_eq!(status, 400, "{wrong}");
    assert_eq!(put(&"x".repeat(5 << 20)).0, 413);
    assert_eq!(discovery.get("/debug/memory"), (200, b()));
}

/// Unusable objects are counted by name, for as long as they are unusable, and rules for routes are counted.
#[tokio::test]
async fn unusable_objects_are_counted() {
    let of = |kind: &str, name: &str, spec: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n---\n"
        )
    };
    let bad = of(
        "ServiceEntry",
        "bad",
        "{hosts: ['a b'], ports: [{number: 80, name: http, protocol: HTTP}]}",
    ) + "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nstatus: {podIPs: 7}\n";
    let routes = of(
        "VirtualService",
        "v",
        "{hosts: [a], http: [{route: [{destination: {host: a}}]}]}",
    );
    let discovery = Place::new()
        .with("config/b.yaml", &b())
        .with("config/bad.yaml", &bad)
        .with("config/routes.yaml", &routes)
        .start();
    let metrics = discovery.get("/metrics").1;
    for (kind, name) in [("ServiceEntry", "shop/bad"), ("Pod", "shop/p")] {
        let line = format!("pilot_total_rejected_configs{{type=\"{kind}\",name=\"{name}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(metrics.contains("pilot_virt_services 1\n"), "{metrics}");
    std::fs::remove_file(discovery.place.path("config/bad.yaml")).unwrap();
    std::fs::remove_file(discovery.place.path("config/routes.yaml")).unwrap();
    soon("none", || {
        let metrics = discovery.get("/metrics").1;
        !metrics.contains("pilot_total_rejected_configs{")
            && metrics.contains("pilot_virt_services 0\n")
    })
    .await;
}
