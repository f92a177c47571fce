//! Visibility of services, listeners of Sidecars, and destinations of connections and delegated requests: each by the
//! responses that come back through the real proxy.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};

use crate::backend::Backend;
use crate::bare::greeted;
use crate::place::{Address, Place, SOON, documents, until};
use crate::proxy::Proxy;

const PORT: u16 = 18121;
const TCP: u16 = 18122;
/// The port of a service that a rule leads to.
const LED: u16 = 18123;
const TLS: u16 = 18124;

fn object(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n{spec}"
    )
}

fn service(namespace: &str, name: &str, export: &str, ip: Ipv4Addr, port: u16) -> String {
    let spec = format!(
        "hosts: [{name}.{namespace}.svc.cluster.local]\nlocation: MESH_INTERNAL\nresolution: STATIC\nexportTo: ['{export}']\n\
         ports: [{{number: {PORT}, name: http, protocol: HTTP}}, {{number: {TCP}, name: tcp, protocol: TCP}}]\n\
         endpoints: [{{address: {ip}, ports: {{http: {port}, tcp: {port}}}}}]"
    );
    object("ServiceEntry", namespace, name, &spec)
}

/// Returns true if the response has as many bytes as its head announces.
fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

/// The status and the body that a host answers with there.
fn ask(proxy: &Proxy, ip: IpAddr, port: u16, host: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = proxy.connect(ip, port).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    // A TCP listener does not act on `Connection: close`.
    let mut text = String::new();
    let mut part = [0; 4096];
    while !is_whole(&text) {
        let count = stream.read(&mut part).ok()?;
        text.push_str(std::str::from_utf8(&part[..count]).ok()?);
        if count == 0 {
            break;
        }
    }
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[test]
fn a_proxy_reaches_what_it_sees_where_it_listens() {
    let ip = Address::new();
    let [a, b, c] = ["a", "b", "c"].map(|body| Backend::new(ip.ip, body));
    let services = documents(&[
        service("demo", "a", ".", ip.ip, a.port),
        service("demo", "b", ".", ip.ip, b.port),
        service("other", "seen", "*", ip.ip, c.port),
        service("other", "c", ".", ip.ip, c.port),
    ]);
    let discovery = Place::new().with("config/services.yaml", &services).start();
    let proxy = Proxy::start(discovery.grpc);
    let own = proxy.ip;
    let status = |host: &str| ask(&proxy, own, PORT, host, "/").map(|(status, _)| status);
    until("the services", || {
        (status("a.demo") == Some(200)).then_some(())
    });
    // A service that is not exported to the namespace is unknown; the other is known, and is not led to another namespace's
    // loopback.
    assert_eq!(status("seen.other"), Some(503));
    assert_eq!(status("c.other"), Some(502));

    // One listener for one service, and nothing else: a service that is not imported is unknown.
    let sidecar = format!(
        "egress: [{{port: {{number: {PORT}, protocol: HTTP, name: h}}, bind: {}, hosts: [./b.demo.svc.cluster.local]}}]",
        ip.ip
    );
    let sidecar = object("Sidecar", "demo", "default", &sidecar);
    discovery.place.write("config/sidecar.yaml", &sidecar);
    let bound = IpAddr::V4(ip.ip);
    until("the Sidecar's listener", || {
        let answer = ask(&proxy, bound, PORT, "b.demo", "/")?;
        (answer == (200, "b".to_owned())).then_some(())
    });
    // The listener has the port's routes as they were until they arrive, after it.
    for host in ["a.demo", "seen.other"] {
        until(&format!("no route to {host}"), || {
            let (status, _) = ask(&proxy, bound, PORT, host, "/")?;
            (status == 502).then_some(())
        });
    }
    until("no other listener", || {
        proxy.connect(own, PORT).is_err().then_some(())
    });
}

/// The rules are for one host each, and the ports are those of the wildcard alone.
#[test]
fn a_rule_for_a_host_below_a_wildcard_counts_on_the_wildcards_ports() {
    let ip = Address::new();
    let [a, b] = ["a", "b"].map(|body| Backend::new(ip.ip, body));
    let wildcard = format!(
        "hosts: ['*.w.example']\nlocation: MESH_INTERNAL\nresolution: STATIC\n\
         ports: [{{number: {PORT}, name: http, protocol: HTTP}}, {{number: {TLS}, name: tls, protocol: TLS}}]\n\
         endpoints: [{{address: {}, ports: {{http: {port}, tls: {port}}}}}]",
        ip.ip,
        port = a.port
    );
    let b = format!(
        "hosts: [b.demo.svc.cluster.local]\nlocation: MESH_INTERNAL\nresolution: STATIC\n\
         ports: [{{number: {LED}, name: http, protocol: HTTP}}]\n\
         endpoints: [{{address: {}, ports: {{http: {}}}}}]",
        ip.ip, b.port
    );
    let closed = "hosts: [bad.w.example]\nhttp: [{directResponse: {status: 403}}]";
    let to_b = "route: [{destination: {host: b}}]";
    let led = format!(
        "hosts: [led.w.example]\nhttp: [{{{to_b}}}]\ntls: [{{match: [{{sniHosts: [led.w.example]}}], {to_b}}}]"
    );
    let objects = documents(&[
        object("ServiceEntry", "demo", "w", &wildcard),
        object("ServiceEntry", "demo", "b", &b),
        object("VirtualService", "demo", "closed", closed),
        object("VirtualService", "demo", "led", &led),
    ]);
    let discovery = Place::new().with("config/all.yaml", &objects).start();
    let proxy = Proxy::start(discovery.grpc);
    let get = |host: &str| ask(&proxy, proxy.ip, PORT, host, "/");
    until("the wildcard", || {
        (get("any.w.example") == Some((200, "a".to_owned()))).then_some(())
    });
    assert_eq!(get("bad.w.example").unwrap().0, 403);
    assert_eq!(get("led.w.example"), Some((200, "b".to_owned())));
    let named = |name: &str| greeted(proxy.connect(proxy.ip, TLS).unwrap(), name);
    assert_eq!(named("led.w.example").as_deref(), Some("b"));
    assert_eq!(named("any.w.example").as_deref(), Some("a"));
    assert_eq!(named("any.v.example"), None);
}

#[test]
fn connections_and_delegated_requests_go_where_rules_say() {
    let ip = Address::new();
    let [a, b] = ["a", "b"].map(|body| Backend::new(ip.ip, body));
    let services = documents(&[
        service("demo", "a", "*", ip.ip, a.port),
        service("demo", "b", "*", ip.ip, b.port),
    ]);
    let discovery = Place::new().with("config/services.yaml", &services).start();
    let proxy = Proxy::start(discovery.grpc);
    let get = |port: u16, path: &str| ask(&proxy, proxy.ip, port, "a.demo", path);
    let is = |body: &str| Some((200, body.to_owned()));
    // The first of two services on one port wins.
    until("the services", || (get(TCP, "/") == is("a")).then_some(()));
    let rules = |weights: [u32; 2], export: &str| {
        let [one, two] = weights;
        let root = format!(
            "hosts: [a]\ntcp: [{{route: [{{destination: {{host: a}}, weight: {one}}}, {{destination: {{host: b}}, weight: {two}}}]}}]\n\
             http:\n- {{name: root, match: [{{uri: {{prefix: /b}}}}], delegate: {{name: leaf, namespace: other}}}}\n\
             - {{directResponse: {{status: 404}}}}"
        );
        let leaf = format!(
            "exportTo: ['{export}']\nhttp:\n- {{match: [{{uri: {{exact: /b/one}}}}], route: [{{destination: {{host: b.demo.svc.cluster.local}}}}]}}\n\
             - {{match: [{{uri: {{exact: /c}}}}], directResponse: {{status: 418}}}}"
        );
        let all = [
            object("VirtualService", "demo", "a", &root),
            object("VirtualService", "other", "leaf", &leaf),
        ];
        discovery.place.write("config/rules.yaml", &documents(&all));
    };
    rules([0, 100], "*");
    until("the other service", || {
        (get(TCP, "/") == is("b")).then_some(())
    });
    until("the delegate's route", || {
        (get(PORT, "/b/one") == is("b")).then_some(())
    });
    for path in ["/b/two", "/c", "/"] {
        assert_eq!(get(PORT, path).unwrap().0, 404, "{path}");
    }
    let rows = discovery
        .json("/debug/configz?kind=VirtualService")
        .to_string();
    assert!(rows.contains("no request meets both"), "{rows}");
    rules([50, 50], ".");
    until("both by turns", || {
        let all: Vec<_> = (0..40).filter_map(|_| get(TCP, "/")).collect();
        let of = |body: &str| all.iter().filter(|one| one.1 == body).count();
        (of("a") > 5 && of("b") > 5).then_some(())
    });
    until("no delegate", || {
        (get(PORT, "/b/one")?.0 == 404).then_some(())
    });
}
