//! Sidecars in a pod whose traffic is intercepted, by the rules that istio-init writes, with the real iptables.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::backend::{self, Backend};
use crate::bare::greeted;
use crate::network::{NODE, NODE6, Network, OTHERS, POD, POD6, USER, inside, is_root};
use crate::place::{Discovery, Place, documents, until};
use crate::policies::{Clients, policy};
use crate::proxy::{Proxy, Setup, in_sync, in_sync_with};
use crate::secured::Root;

/// A service with one slice: ports are `(name, number, target)`.
fn service(name: &str, ip: &str, ports: &[(&str, u16, u16)], endpoints: &[(&str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  clusterIP: {ip}\n  \
         selector: {{app: {name}}}\n  ports:\n"
    );
    for (name, number, target) in ports {
        text.push_str(&format!(
            "  - {{name: '{name}', port: {number}, targetPort: {target}}}\n"
        ));
    }
    text.push_str(&format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, namespace: demo, labels: \
         {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports:\n"
    ));
    for (name, _, target) in ports {
        text.push_str(&format!("- {{name: '{name}', port: {target}}}\n"));
    }
    text.push_str("endpoints:\n");
    for (pod, address) in endpoints {
        text.push_str(&format!(
            "- {{addresses: [{address}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {pod}, namespace: demo}}}}\n"
        ));
    }
    for (pod, address) in endpoints {
        text.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}, namespace: demo, labels: {{app: {name}, security.istio.io/tlsMode: istio}}}}\nspec: \
             {{serviceAccountName: {name}}}\nstatus: {{podIP: {address}, podIPs: [{{ip: {address}}}]}}\n"
        ));
    }
    text
}

fn entry(name: &str, more: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{name}.example]\n  location: MESH_EXTERNAL\n{more}"
    )
}

pub fn node() -> IpAddr {
    NODE.parse().unwrap()
}

pub fn discover(place: Place) -> (Discovery, std::net::SocketAddr) {
    let discovery = place.arg(&format!("--grpcAddr={NODE}:0")).start();
    let at = (node(), discovery.grpc).into();
    (discovery, at)
}

/// From the node to the pod.
pub fn from_node(port: u16) -> std::io::Result<std::net::TcpStream> {
    let address = (POD.parse::<Ipv4Addr>().unwrap(), port).into();
    std::net::TcpStream::connect_timeout(&address, crate::place::SOON)
}

pub fn get(stream: std::io::Result<std::net::TcpStream>, host: &str) -> Option<(u16, String)> {
    let mut stream = stream.ok()?;
    stream.set_read_timeout(Some(crate::place::SOON)).unwrap();
    crate::place::exchange(&mut stream, "GET", "/", host)
}

/// Returns true if the connection is closed without a byte.
fn is_cut(stream: std::io::Result<std::net::TcpStream>) -> bool {
    let Ok(mut stream) = stream else { return true };
    stream.set_read_timeout(Some(crate::place::SOON)).unwrap();
    let _written = stream.write_all(b"hello\n");
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => true,
        Err(error) => panic!("neither a word nor an end: {error}"),
    }
}

const MESH: &str =
    "enableTracing: false\nprotocolDetectionTimeout: 20s\naccessLogFile: /dev/stdout\n";

/// Builds the pod's own services, and the application's listeners: only the proxy reaches them, except for the last.
fn own() -> String {
    service(
        "web",
        "10.96.0.10",
        &[("http", 80, 8080), ("tcp-old", 90, 9090), ("any", 70, 7070)],
        &[("web-1", POD)],
    )
}

fn applications(network: &Network) -> (Backend, Backend) {
    inside(Some(&network.pod), || {
        let web = Backend::at(Ipv4Addr::LOCALHOST, 8080, "web");
        Backend::at(Ipv4Addr::LOCALHOST, 9090, "old");
        Backend::at(Ipv4Addr::LOCALHOST, 7070, "any");
        let other = Backend::at(POD.parse::<Ipv4Addr>().unwrap(), 5555, "other");
        (web, other)
    })
}

/// A discovery of these objects, with the mesh of this file.
fn discover_mesh(place: Place, objects: &[String]) -> (Discovery, std::net::SocketAddr) {
    let place = place.with("mesh", MESH);
    discover(place.with("config/all.yaml", &documents(objects)))
}

/// The pod's proxy, whose own connections by its user are not redirected.
fn redirected_web(network: &Network, discovery: std::net::SocketAddr) -> Setup {
    Setup::bare("web-1", POD.parse().unwrap(), discovery)
        .within(&network.pod)
        .args(&["--proxy-user", &USER.to_string()])
}

/// Cases 19, 21, 22 and 41.
#[test]
fn redirected_traffic_reaches_its_destination() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(9090);
    inside(Some(&network.node), || redirected(&network));
}

fn redirected(network: &Network) {
    let [one, line, auto] = ["one", "line", "auto"].map(|name| Backend::new(node(), name));
    let pods = OTHERS.map(|address| address.parse::<IpAddr>().unwrap());
    for (address, name) in pods.iter().zip(["db-0", "db-1"]) {
        Backend::at(*address, 5000, name);
        Backend::at(*address, 5080, name);
        Backend::at(*address, 443, name);
    }
    Backend::at(node(), 4300, "tls");
    let unknown = Backend::new(node(), "unknown");
    let bypassed = Backend::new(node(), "bypassed");
    Backend::at(node(), 80, "passed");
    let all = [
        own(),
        service(
            "b",
            "10.96.0.20",
            &[("http", 80, one.port)],
            &[("b-1", NODE)],
        ),
        service(
            "line",
            "10.96.0.21",
            &[("tcp", 3000, line.port)],
            &[("line-1", NODE)],
        ),
        service(
            "auto",
            "10.96.0.22",
            &[("", 4000, auto.port)],
            &[("auto-1", NODE)],
        ),
        service(
            "db",
            "None",
            &[("tcp-db", 5000, 5000), ("http-db", 5080, 5080)],
            &[("db-0", OTHERS[0]), ("db-1", OTHERS[1])],
        ),
        entry(
            "range",
            &format!(
                "  addresses: [10.97.0.0/16]\n  resolution: STATIC\n  ports: [{{number: 4100, name: tcp, protocol: TCP}}]\n  \
                 endpoints: [{{address: {NODE}, ports: {{tcp: {}}}}}]\n",
                line.port
            ),
        ),
        entry(
            "shared",
            &format!(
                "  resolution: STATIC\n  ports: [{{number: 4200, name: tcp, protocol: TCP}}]\n  endpoints: [{{address: {NODE}, \
                 ports: {{tcp: {}}}}}]\n",
                line.port
            ),
        ),
        entry(
            "wide",
            &format!(
                "  addresses: [10.97.0.0/16]\n  resolution: STATIC\n  ports: [{{number: 4101, name: any}}]\n  endpoints: \
                 [{{address: {NODE}, ports: {{any: {}}}}}]\n",
                auto.port
            ),
        ),
        entry(
            "own-tls",
            &format!(
                "  addresses: [10.96.1.5]\n  resolution: STATIC\n  ports: [{{number: 443, name: tls, protocol: HTTPS}}]\n  \
                 endpoints: [{{address: {NODE}, ports: {{tls: {}}}}}]\n",
                line.port
            ),
        ),
        entry(
            "bypassed",
            &format!(
                "  addresses: [{NODE}]\n  resolution: STATIC\n  ports: [{{number: {}, name: tcp, protocol: TCP}}]\n  endpoints: \
                 [{{address: {NODE}, ports: {{tcp: {}}}}}]\n",
                bypassed.port, line.port
            ),
        ),
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: bypassed, namespace: demo}\nspec: {host: \
         bypassed.example, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}\n"
            .to_owned(),
        entry(
            "tls",
            &format!(
                "  resolution: STATIC\n  ports: [{{number: 443, name: tls, protocol: TLS}}]\n  endpoints: [{{address: {NODE}, \
                 ports: {{tls: 4300}}}}]\n"
            ),
        ),
    ];
    // None of these takes TLS connections of the others: those below arrive.
    let plain = [
        ("api", ", protocol: HTTP"),
        ("any-api", ""),
        ("a-grpc", ", protocol: GRPC"),
    ];
    let plain = plain.map(|(name, protocol)| {
        entry(
            name,
            &format!(
                "  resolution: STATIC\n  ports: [{{number: 443, name: port{protocol}}}]\n  endpoints: [{{address: {NODE}, \
                 ports: {{port: {}}}}}]\n",
                one.port
            ),
        )
    });
    let all: Vec<_> = plain.into_iter().chain(all).collect();
    let (web, other) = applications(network);
    let (discovery, at) = discover_mesh(Place::new(), &all);
    let proxy = redirected_web(network, at).start();
    let row = in_sync(&discovery, "web-1");
    assert_eq!(row["errors"], serde_json::json!({}));
    let ok = |body: &str| Some((200, body.to_owned()));

    inbound(&web, &other);
    outbound(&proxy);
    conflicts_are_reported(&discovery);
    each_of_a_headless_service(&proxy);

    // An unknown destination is passed through. The proxy's own address does not loop.
    let to = |address: &str, port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
    let passed = || backend::say(to(NODE, unknown.port).unwrap(), "hello");
    assert_eq!(passed().as_deref(), Some("unknown hello"));
    assert_eq!(get(to(NODE, 80), "nobody.example"), ok("passed"));
    // A rule wants a service's connections where they went, and not at its endpoint.
    assert_eq!(
        backend::say(to(NODE, bypassed.port).unwrap(), "hello").as_deref(),
        Some("bypassed hello")
    );
    assert!(is_cut(to(POD, 7777)));
    for port in [15001, 15006] {
        assert!(is_cut(from_node(port)), "{port}");
        assert!(is_cut(to("127.0.0.1", port)), "{port}");
    }
    // Through its own service to itself.
    assert_eq!(get(to("10.96.0.10", 80), "web"), ok("web"));

    // Standard output of another user's proxy.
    for text in [
        "\"GET / HTTP/1.1\" 200 - ",
        " inbound|80|http|web.demo.svc.cluster.local ",
        " outbound|80||b.demo.svc.cluster.local ",
        " PassthroughCluster ",
        " InboundPassthroughClusterIpv4 ",
    ] {
        until(text, || proxy.log().contains(text).then_some(()));
    }

    ingress(&discovery, &proxy);

    let is_refused =
        || Some(get(to(NODE, 80), "nobody.example")?.0 == 502 && is_cut(to(NODE, unknown.port)));
    // A Sidecar says it for its workloads, against the mesh in both ways.
    let sidecar = |mode: &str| {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: demo}}\nspec: \
             {{outboundTrafficPolicy: {{mode: {mode}}}, egress: [{{hosts: ['*/*']}}]}}\n"
        );
        discovery.place.write("config/sidecar.yaml", &text);
    };
    sidecar("REGISTRY_ONLY");
    until("the registry only", || is_refused()?.then_some(()));
    let only = format!("{MESH}outboundTrafficPolicy: {{mode: REGISTRY_ONLY}}\n");
    discovery.place.write("mesh", &only);
    sidecar("ALLOW_ANY");
    until("anything", || {
        (passed().as_deref() == Some("unknown hello")
            && get(to(NODE, 80), "nobody.example") == ok("passed"))
        .then_some(())
    });
    std::fs::remove_file(discovery.place.path("config/sidecar.yaml")).unwrap();
    until("the registry only, by the mesh", || {
        is_refused()?.then_some(())
    });
    assert_eq!(get(to("10.96.0.20", 80), "b"), ok("one"));
    assert_eq!(
        in_sync(&discovery, "web-1")["errors"],
        serde_json::json!({})
    );
}

/// A Sidecar's ingress replaces the services' ports: intercepted, or bound.
fn ingress(discovery: &Discovery, proxy: &Proxy) {
    let sidecar = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: demo}\nspec:\n  \
        ingress:\n  - {port: {number: 8081, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:8080'}\n  - {port: \
        {number: 8082, name: http-2, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, defaultEndpoint: ':8080'}\n";
    discovery.place.write("config/sidecar.yaml", sidecar);
    let ok = Some((200, "web".to_owned()));
    until("what is intercepted", || {
        (get(from_node(8081), "web") == ok).then_some(())
    });
    until("what is bound", || {
        (get(proxy.connect(Ipv4Addr::LOCALHOST, 8082), "web") == ok).then_some(())
    });
    std::fs::remove_file(discovery.place.path("config/sidecar.yaml")).unwrap();
    until("the services' ports", || {
        (get(from_node(8080), "web") == ok && is_cut(from_node(8081))).then_some(())
    });
}

fn conflicts_are_reported(discovery: &Discovery) {
    let entries = discovery.json("/debug/configz?kind=ServiceEntry");
    let names = entries.as_array().unwrap().iter().filter_map(|entry| {
        let messages = entry["status"]["messages"].to_string();
        let name = entry["metadata"]["name"].as_str()?.to_owned();
        messages
            .contains("makes no outbound listener")
            .then_some(name)
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["a-grpc", "any-api", "api"]);
    let metric = "pilot_conflict_outbound_listener_http_over_https";
    until(metric, || {
        (discovery.figure(metric) == Some(3.0)).then_some(())
    });
}

fn inbound(web: &Backend, other: &Backend) {
    let ok = |body: &str| Some((200, body.to_owned()));
    let (hello, say) = ("hello", |port| from_node(port).unwrap());
    assert_eq!(get(from_node(8080), "web"), ok("web"));
    let (from, head) = web.seen.last();
    assert!(
        from.ip().is_loopback() && head.contains("x-envoy-") || head.contains("x-forwarded-proto"),
        "{head}"
    );
    // As the rules of 1.1 send it, to 15001.
    assert_eq!(backend::say(say(9090), hello).as_deref(), Some("old hello"));
    assert_eq!(backend::say(say(7070), hello).as_deref(), Some("any hello"));
    assert_eq!(get(from_node(7070), "any"), ok("any"));
    let address = (POD.parse::<IpAddr>().unwrap(), 7070).into();
    assert_eq!(backend::health_of(address, "any"), Ok(()));
    // Unknown to any service: from an address that shows the connection came through the proxy.
    assert_eq!(
        backend::say(say(5555), hello).as_deref(),
        Some("other hello")
    );
    assert_eq!(other.seen.last().0.ip(), Ipv4Addr::new(127, 0, 0, 6));
}

fn outbound(proxy: &Proxy) {
    let ok = |body: &str| Some((200, body.to_owned()));
    let to = |address: &str, port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
    let say = |address, port| backend::say(to(address, port).unwrap(), "hello");
    assert_eq!(get(to("10.96.0.20", 80), "b"), ok("one"));
    assert_eq!(get(to("10.96.0.20", 80), "10.96.0.20"), ok("one"));
    assert_eq!(say("10.96.0.21", 3000).as_deref(), Some("line hello"));
    assert_eq!(get(to("10.96.0.22", 4000), "whatever"), ok("auto"));
    assert_eq!(say("10.96.0.22", 4000).as_deref(), Some("auto hello"));
    let asked = inside(Some(&network_of(proxy)), || {
        backend::health_of("10.96.0.22:4000".parse().unwrap(), "whatever")
    });
    assert_eq!(asked, Ok(()));
    assert_eq!(say("10.97.3.4", 4100).as_deref(), Some("line hello"));
    assert_eq!(say("10.97.3.4", 4101).as_deref(), Some("auto hello"));
    assert_eq!(get(to("10.97.3.4", 4101), "wide.example"), ok("auto"));
    assert_eq!(say("10.98.0.1", 4200).as_deref(), Some("line hello"));
    // By its name in TLS; another one goes on where it wanted to.
    let tls = |address: &str, name| greeted(to(address, 443).unwrap(), name);
    assert_eq!(tls("10.96.1.5", "any.example").as_deref(), Some("line"));
    assert_eq!(tls("10.98.0.1", "tls.example").as_deref(), Some("tls"));
    assert_eq!(tls(OTHERS[1], "other.example").as_deref(), Some("db-1"));
}

fn network_of(proxy: &Proxy) -> String {
    proxy.within.clone().unwrap()
}

fn each_of_a_headless_service(proxy: &Proxy) {
    for (address, name) in OTHERS.into_iter().zip(["db-0", "db-1"]) {
        let to = |port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
        let reply = backend::say(to(5000).unwrap(), "hello");
        assert_eq!(reply, Some(format!("{name} hello")));
        for host in ["db", &format!("{name}.db.demo.svc.cluster.local:5080")] {
            assert_eq!(get(to(5080), host), Some((200, name.to_owned())), "{host}");
        }
    }
    // By their cluster, and not by passthrough.
    let clusters = proxy.ask("/clusters");
    for (address, port) in OTHERS
        .iter()
        .flat_map(|address| [(address, 5000), (address, 5080)])
    {
        let connections =
            format!("outbound|{port}||db.demo.svc.cluster.local::{address}:{port}::cx_total::");
        assert!(clusters.contains(&connections), "{connections}: {clusters}");
    }
}

/// A service's address in the other family beside its own.
fn both(service: &str, v4: &str, v6: &str) -> String {
    let one = format!("clusterIP: {v4}\n");
    assert!(service.contains(&one), "{service}");
    service.replace(&one, &format!("{one}  clusterIPs: [{v4}, '{v6}']\n"))
}

/// A proxy with both families takes and sends by both.
#[test]
fn the_other_family_is_redirected_too() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect_both(9090);
    inside(Some(&network.node), || by_both(&network));
}

fn by_both(network: &Network) {
    let [one, line, auto] = ["one", "line", "auto"].map(|name| Backend::new(node(), name));
    let [node6, pod6] = [NODE6, POD6].map(|address| address.parse::<IpAddr>().unwrap());
    let unknown = Backend::new(node6, "unknown");
    let of = |name, last: u16, port: (&str, u16, u16)| {
        let (v4, v6) = (format!("10.96.0.{last}"), format!("fd00:96::{last}"));
        let text = service(name, &v4, &[port], &[(&format!("{name}-1"), NODE)]);
        both(&text, &v4, &v6)
    };
    let all = [
        own(),
        of("b", 20, ("http", 80, one.port)),
        of("line", 21, ("tcp", 3000, line.port)),
        of("auto", 22, ("", 4000, auto.port)),
    ];
    applications(network);
    let other = inside(Some(&network.pod), || Backend::at(pod6, 5555, "other"));
    let (discovery, at) = discover_mesh(Place::new(), &all);
    let proxy = redirected_web(network, at).start();
    assert_eq!(
        in_sync(&discovery, "web-1")["errors"],
        serde_json::json!({})
    );
    let ok = |body: &str| Some((200, body.to_owned()));
    let to = |address: &str, port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
    let say = |address, port| backend::say(to(address, port).unwrap(), "hello");
    for host in ["b", "[fd00:96::20]", "fd00:96::20"] {
        assert_eq!(get(to("fd00:96::20", 80), host), ok("one"), "{host}");
    }
    assert_eq!(say("fd00:96::21", 3000).as_deref(), Some("line hello"));
    assert_eq!(say("fd00:96::22", 4000).as_deref(), Some("auto hello"));
    assert_eq!(get(to("fd00:96::22", 4000), "any"), ok("auto"));
    assert_eq!(say(NODE6, unknown.port).as_deref(), Some("unknown hello"));
    let from =
        |port| std::net::TcpStream::connect_timeout(&(pod6, port).into(), crate::place::SOON);
    assert_eq!(get(from(8080), "web"), ok("web"));
    assert_eq!(
        backend::say(from(7070).unwrap(), "hello").as_deref(),
        Some("any hello")
    );
    assert_eq!(
        backend::say(from(5555).unwrap(), "hello").as_deref(),
        Some("other hello")
    );
    assert_eq!(other.seen.last().0.ip().to_string(), "::6");
    for port in [15001, 15006] {
        assert!(is_cut(from(port)), "{port}");
        assert!(is_cut(to("::1", port)), "{port}");
    }
    // The first family as ever.
    assert_eq!(get(to("10.96.0.20", 80), "b"), ok("one"));
    assert_eq!(get(from_node(8080), "web"), ok("web"));
}

/// Case 25, with interception.
#[test]
fn strict_mutual_tls_closes_every_port() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(9090);
    inside(Some(&network.node), || strict(&network));
}

fn strict(network: &Network) {
    applications(network);
    let place = Place::new();
    let volume = place.path("certs").join("web");
    certify(place.root.path(), &volume);
    let (discovery, at) = discover_mesh(place, &[own()]);
    let proxy = redirected_web(network, at).secured(&volume).start();
    assert_eq!(get(from_node(8080), "web"), Some((200, "web".to_owned())));
    let mesh = format!("{MESH}authPolicy: MUTUAL_TLS\n");
    discovery.place.write("mesh", &mesh);
    for port in [8080, 9090, 7070, 5555] {
        until(&format!("the end of plain connections to {port}"), || {
            is_cut(from_node(port)).then_some(())
        });
    }
    let row = in_sync_with(&discovery, "web-1", |_| true);
    assert_eq!(row["errors"], serde_json::json!({}), "{}", proxy.log());
    // To itself by its service, with TLS at both ends.
    let own = proxy.connect("10.96.0.10".parse::<IpAddr>().unwrap(), 80);
    assert_eq!(get(own, "web").map(|(status, _)| status), Some(200));
}

/// HTTP/2 between two proxies carries requests of all clients, and a WebSocket among them ends none of the others.
#[test]
fn http2_passes_mutual_tls_beside_a_websocket() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(9090);
    inside(Some(&network.node), || upgraded(&network));
}

fn upgraded(network: &Network) {
    const ADDRESS: &str = "10.96.0.10";
    const REQUESTS: usize = 8;
    let (web, _) = applications(network);
    let place = Place::new();
    let volume = place.path("certs").join("web");
    certify(place.root.path(), &volume);
    let ports = [("http", 80, 8080), ("grpc", 70, 7070)];
    let own = service("web", ADDRESS, &ports, &[("web-1", POD)]);
    let (discovery, at) = discover_mesh(place, &[own]);
    let mesh = format!("{MESH}authPolicy: MUTUAL_TLS\nh2UpgradePolicy: UPGRADE\n");
    discovery.place.write("mesh", &mesh);
    let proxy = redirected_web(network, at).secured(&volume).start();
    for port in [8080, 7070] {
        until(&format!("the end of plain connections to {port}"), || {
            is_cut(from_node(port)).then_some(())
        });
    }
    let to = || proxy.connect(ADDRESS.parse::<IpAddr>().unwrap(), 80);
    // gRPC with its trailers, and no other protocol than HTTP/2.
    let asked = inside(Some(&network.pod), || {
        backend::health_of((ADDRESS.parse::<IpAddr>().unwrap(), 70).into(), "web:70")
    });
    assert_eq!(asked, Ok(()), "{}", proxy.log());
    let spawn_held_request = |stream: std::io::Result<std::net::TcpStream>| {
        let mut stream = stream.unwrap();
        stream.set_read_timeout(Some(crate::place::SOON)).unwrap();
        std::thread::spawn(move || crate::place::exchange(&mut stream, "GET", "/held", "web"))
    };
    let requests: Vec<_> = (0..REQUESTS).map(|_| spawn_held_request(to())).collect();
    let heads = until("all requests", || {
        Some(web.seen.held_requests()).filter(|heads| heads.len() == REQUESTS)
    });
    // They share connections.
    let clusters = proxy.ask("/clusters");
    let of = |what: &str| {
        let lines = clusters
            .lines()
            .filter(|line| line.starts_with("outbound|80||web."));
        let counts = lines.filter_map(|line| line.split_once(what)?.1.parse::<usize>().ok());
        counts.sum::<usize>()
    };
    assert_eq!(of("::rq_active::"), REQUESTS, "{clusters}");
    assert!((1..REQUESTS).contains(&of("::cx_active::")), "{clusters}");
    // The application speaks HTTP/1.1, and is told who asks.
    for head in heads {
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("x-forwarded-client-cert: ") && head.contains("uri=spiffe://"),
            "{head}"
        );
    }
    for _ in 0..REQUESTS {
        let mut stream = to().unwrap();
        stream.set_read_timeout(Some(crate::place::SOON)).unwrap();
        let asked =
            "GET / HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(asked.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        stream.write_all(b"hello\n").unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "web hello\n");
    }
    web.seen.release();
    for request in requests {
        let answer = request.join().unwrap();
        assert_eq!(answer, Some((200, "web".to_owned())), "{}", proxy.log());
    }
}

/// Files that the proxy's user may read.
fn certify(root: &Path, volume: &Path) -> Root {
    use std::os::unix::fs::PermissionsExt as _;
    let signer = Root::new();
    signer.certify(volume, "web");
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
    signer
}

/// A port that no service names takes what a policy says of all.
#[test]
fn ports_of_no_service_take_what_policies_say() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(9090);
    inside(Some(&network.node), || {
        applications(&network);
        let place = Place::new();
        let volume = place.path("certs").join("web");
        let root = certify(place.root.path(), &volume);
        let mut clients = Clients::new(root);
        let (discovery, at) = discover_mesh(place, &[own()]);
        let proxy = redirected_web(&network, at).secured(&volume).start();
        let plain = || backend::say(from_node(5555).ok()?, "hello");
        let mut mutual = || {
            let stream = from_node(5555).ok()?;
            stream.set_read_timeout(Some(crate::place::SOON)).unwrap();
            let mut stream = clients.secured(stream, "cluster.local/ns/demo/sa/any", "web");
            stream.write_all(b"hello\n").ok()?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
        };
        let answer = || Some("other hello".to_owned());
        until("plain connections", || (plain() == answer()).then_some(()));
        assert_eq!(mutual(), None, "nothing is said of it");
        let says = |mode: &str| {
            let spec = format!("{{mtls: {{mode: {mode}}}}}");
            let written = policy("PeerAuthentication", "demo", "default", &spec);
            discovery.place.write("config/peers.yaml", &written);
        };
        says("PERMISSIVE");
        until("mutual TLS", || (mutual() == answer()).then_some(()));
        assert_eq!(plain(), answer());
        says("STRICT");
        until("the end of plain connections", || {
            is_cut(from_node(5555)).then_some(())
        });
        assert_eq!(mutual(), answer());
        let row = in_sync_with(&discovery, "web-1", |_| true);
        assert_eq!(row["errors"], serde_json::json!({}), "{}", proxy.log());
    });
}

/// Case 23.
#[test]
fn tproxy_connections_are_accepted_and_forwarded() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.tproxy();
    inside(Some(&network.node), || {
        let one = Backend::new(node(), "one");
        let b = service(
            "b",
            "10.96.0.20",
            &[("http", 80, one.port)],
            &[("b-1", NODE)],
        );
        let (web, other) = applications(&network);
        let (discovery, at) = discover_mesh(Place::new(), &[own(), b]);
        let proxy = Setup::bare("web-1", POD.parse().unwrap(), at)
            .within(&network.pod)
            .env("ISTIO_META_INTERCEPTION_MODE", "TPROXY")
            .group(USER)
            .start();
        assert_eq!(
            in_sync(&discovery, "web-1")["errors"],
            serde_json::json!({})
        );
        assert_eq!(
            proxy
                .ask("/config_dump")
                .matches("\"transparent\": true")
                .count(),
            2
        );
        inbound(&web, &other);
        assert_eq!(
            backend::say(from_node(9090).unwrap(), "hello").as_deref(),
            Some("old hello")
        );
        let b = proxy.connect("10.96.0.20".parse::<IpAddr>().unwrap(), 80);
        assert_eq!(get(b, "b"), Some((200, "one".to_owned())));
    });
}
