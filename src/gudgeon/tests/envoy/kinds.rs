//! Services as users write them, each by a request: names that are resolved, headless ones, workloads that an entry selects,
//! gRPC-Web, and ports without protocol sniffing.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::backend::{self, Backend};
use crate::bare::{host, resolved};
use crate::place::{Place, SOON, documents, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync};

/// Waits until each of them has answered, and no other.
fn all_answer(proxy: &Proxy, host: &str, port: u16, names: &[&str]) {
    let names: BTreeSet<&str> = names.iter().copied().collect();
    let mut answered = BTreeSet::new();
    until(&format!("all of {host}: {names:?}"), || {
        let (status, body) = proxy.get(host, port)?;
        assert_eq!(status, 200, "{host}: {body}");
        assert!(names.contains(&*body), "{host}: {body}");
        answered.insert(body);
        (answered.len() == names.len()).then_some(())
    });
}

/// Without an address: two pods, both on the port of the service.
fn headless(name: &str, port: u16, pods: &[&str]) -> String {
    let pods: Vec<String> = pods
        .iter()
        .map(|pod| format!("- {{addresses: [{pod}]}}\n"))
        .collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: demo}}\nspec: {{clusterIP: None, ports: [{{name: \
         http, port: {port}}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, \
         namespace: demo, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: http, port: \
         {port}}}]\nendpoints:\n{}",
        pods.concat()
    )
}

fn external_name(name: &str, to: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: demo}}\nspec: {{type: ExternalName, externalName: \
         {to}, ports: [{{name: http, port: {port}}}]}}\n"
    )
}

/// A place that a selector may find.
fn workload(name: &str, app: &str, address: &str, port: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec: {{address: \
         {address}, ports: {{main: {port}}}, labels: {{app: {app}}}}}\n"
    )
}

fn selecting(name: &str, port: u16, app: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  hosts: \
         [{}]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{{number: {port}, name: main, protocol: HTTP}}]\n  \
         workloadSelector: {{labels: {{app: {app}}}}}\n",
        host(name)
    )
}

/// Case 33, and the headless half of 19 without interception.
#[test]
fn services_of_every_kind_are_reached_by_their_names() {
    let (ip, other) = (Address::new(), Address::new());
    let [one, two, picked, next] =
        ["one", "two", "picked", "next"].map(|name| Backend::new(ip.ip, name));
    let [first, second, outside] =
        ["first", "second", "outside"].map(|name| Backend::new([127, 0, 0, 1], name));
    let pods = [&ip, &other].map(|address| address.ip.to_string());
    for (address, name) in [(&ip, "pod-0"), (&other, "pod-1")] {
        Backend::at(address.ip, 18112, name);
    }
    let names = format!(
        "[{{address: localhost, ports: {{main: {}}}}}, {{address: localhost, ports: {{main: {}}}}}]",
        first.port, second.port
    );
    let workloads = |app: &str| {
        documents(&[
            workload("w-1", "chosen", &pods[0], picked.port),
            workload("w-2", app, &pods[0], next.port),
        ])
    };
    let discovery = Place::new()
        .with(
            "config/all.yaml",
            &documents(&[
                resolved("several", 18110, "HTTP", "DNS", &names),
                headless("db", 18112, &[&pods[0], &pods[1]]),
                selecting("chosen", 18113, "chosen"),
                entry(&host("web"), 18114, "GRPC-WEB", &[(&pods[0], one.port)]),
                entry(&host("grpc"), 18115, "GRPC", &[(&pods[0], two.port)]),
            ]),
        )
        .with(
            "config/outside.yaml",
            &external_name("outside", "localhost", outside.port),
        )
        .with("config/workloads.yaml", &workloads("other"))
        .start();
    let proxy = Proxy::start(discovery.grpc);
    let row = in_sync(&discovery, "client-1");
    assert_eq!(row["errors"], serde_json::json!({}));

    all_answer(&proxy, "several", 18110, &["first", "second"]);
    // Each of its pods by its own name, too.
    all_answer(&proxy, "db", 18112, &["pod-0", "pod-1"]);
    all_answer(&proxy, "pod-0.db", 18112, &["pod-0", "pod-1"]);

    // Endpoints that the selector finds now, and later, by EDS alone.
    all_answer(&proxy, "chosen", 18113, &["picked"]);
    let clusters = in_sync(&discovery, "client-1")["cluster_sent"].clone();
    discovery
        .place
        .write("config/workloads.yaml", &workloads("chosen"));
    all_answer(&proxy, "chosen", 18113, &["picked", "next"]);
    assert_eq!(in_sync(&discovery, "client-1")["cluster_sent"], clusters);

    // The external name, and another one.
    let answer = || proxy.get("outside", outside.port);
    assert_eq!(answer(), Some((200, "outside".to_owned())));
    let moved = Backend::at(other.ip, outside.port, "moved");
    let new = external_name("outside", &other.ip.to_string(), moved.port);
    discovery.place.write("config/outside.yaml", &new);
    until("the other name", || {
        (answer()? == (200, "moved".to_owned())).then_some(())
    });

    // gRPC-Web is translated to gRPC, with its trailers in the body; on this port only.
    let response = asked_by_web(&proxy, "web", 18114);
    assert!(
        response.contains("content-type: application/grpc-web"),
        "{response}"
    );
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(body.contains("grpc-status:0\r\n"), "{response}");
    let response = asked_by_web(&proxy, "grpc", 18115);
    assert!(!response.contains("grpc-status:0\r\n"), "{response}");
}

/// Returns the whole response to a gRPC-Web request for the overall health.
fn asked_by_web(proxy: &Proxy, host: &str, port: u16) -> String {
    let mut stream = proxy.connect(proxy.ip, port).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = format!(
        "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: \
         application/grpc-web+proto\r\nX-Grpc-Web: 1\r\nContent-Length: 5\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[0; 5]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Without protocol sniffing an undeclared port is TCP, on either side.
#[test]
fn without_sniffing_bytes_pass_as_they_are() {
    let (web, ip) = (Address::new(), Address::new());
    let at = ip.ip.to_string();
    let (out, inside) = (Backend::new(ip.ip, "out"), Backend::new(ip.ip, "inside"));
    let first = Backend::greeting(ip.ip, "220 ready\n");
    let ingress = format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  ingress:\n  - \
         {{port: {{number: 9084, name: first}}, defaultEndpoint: '{at}:{first}'}}\n  - {{port: {{number: 9085, name: any}}, \
         defaultEndpoint: '{at}:{}'}}\n",
        inside.port
    );
    let discovery = Place::new()
        // Longer than any wait here.
        .with(
            "mesh",
            "enableTracing: false\nprotocolDetectionTimeout: 60s\n",
        )
        .with(
            "config/all.yaml",
            &documents(&[
                entry(&host("out"), 18120, "''", &[(&at, out.port)]),
                entry(&host("first"), 18121, "''", &[(&at, first)]),
                ingress,
            ]),
        )
        .env("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND", "false")
        .env("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND", "false")
        .start();
    let web = Setup::at("web", web, discovery.grpc).start();
    for port in [18121, 9084] {
        let stream: TcpStream = web.connect(web.ip, port).unwrap();
        assert_eq!(backend::read_line(stream).as_deref(), Some("220 ready"));
    }
    // Not a letter of a request is changed, and any host will do.
    for (port, backend) in [(18120, &out), (9085, &inside)] {
        let request = "GET / HTTP/1.1\r\nHost: Whatever.Example\r\n\r";
        let reply = backend::say(web.connect(web.ip, port).unwrap(), request);
        assert_eq!(reply.as_deref(), Some("HTTP/1.1 200 OK"));
        assert_eq!(backend.seen.last().1, format!("{request}\n"));
    }
}
