//! Listeners that get a port of their own while Envoy runs, and lose it again. Envoy 1.40 dies of one that is changed in place.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::backend::{self, Backend, Load};
use crate::network::{NODE, Network, POD, USER, inside, is_root};
use crate::place::{Place, documents, exchange, until};
use crate::proxy::{Proxy, Setup, in_sync};
use crate::redirect::{from_node, get, node};

const OWN: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The address of a service, and of a listener of a Sidecar.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

fn entry(name: &str, more: &str, port: u16, protocol: &str, backend: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{name}.example]\n{more}  resolution: STATIC\n  ports: [{{number: {port}, name: main, protocol: {protocol}}}]\n  \
         endpoints: [{{address: {NODE}, ports: {{main: {backend}}}}}]\n"
    )
}

/// Four listeners, intercepted or bound, under the names that they have either way: an ingress and an egress whose `captureMode`
/// changes, a service's and an egress at one address, a service's and an ingress in its place. A fifth is bound or not there.
fn objects(is_bound: bool, one: u16, line: u16) -> String {
    let mode = if is_bound { "NONE" } else { "DEFAULT" };
    let mut sidecar = format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  ingress:\n  \
         - {{port: {{number: 8080, name: http, protocol: HTTP}}, defaultEndpoint: '127.0.0.1:8080'}}\n  \
         - {{port: {{number: 8082, name: http-2, protocol: HTTP}}, bind: 127.0.0.1, captureMode: {mode}, defaultEndpoint: ':8080'}}\n"
    );
    if is_bound {
        sidecar += "  - {port: {number: 8085, name: http-3, protocol: HTTP}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: ':8080'}\n  \
            - {port: {number: 8086, name: http-4, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, defaultEndpoint: ':8080'}\n";
    }
    sidecar += &format!(
        "  egress:\n  - {{port: {{number: 9080, name: http, protocol: HTTP}}, bind: 127.0.0.1, captureMode: {mode}, hosts: ['*/*']}}\n"
    );
    if is_bound {
        sidecar += &format!(
            "  - {{port: {{number: 8600, name: tcp, protocol: TCP}}, bind: {OTHER}, captureMode: NONE, hosts: ['*/*']}}\n"
        );
    }
    sidecar += "  - {hosts: ['*/*']}\n";
    let at = format!("  addresses: [{OTHER}]\n");
    let mut all = vec![
        entry("b", "", 9080, "HTTP", one),
        entry("line", &at, 8600, "TCP", line),
        sidecar,
    ];
    if !is_bound {
        all.push(entry("c", "", 8085, "HTTP", one));
    }
    documents(&all)
}

/// An answer, if one comes soon.
fn answer(stream: std::io::Result<TcpStream>, host: &str) -> Option<String> {
    let mut stream = stream.ok()?;
    let soon = Some(Duration::from_millis(500));
    stream.set_read_timeout(soon).ok()?;
    exchange(&mut stream, "GET", "/", host).map(|(_, body)| body)
}

/// A bound listener answers, and the port of one that is not bound refuses.
fn is_reached(proxy: &Proxy, is_bound: bool) -> Option<()> {
    for (port, host, body) in [
        (8082, "web", "web"),
        (8085, "web", "web"),
        (8086, "web", "web"),
        (9080, "b.example", "one"),
    ] {
        let connection = proxy.connect(OWN, port);
        if !is_bound {
            connection.is_err().then_some(())?;
            continue;
        }
        (answer(connection, host).as_deref() == Some(body)).then_some(())?;
    }
    if !is_bound {
        return Some(());
    }
    let line = proxy.connect(OTHER, 8600).ok()?;
    (backend::say(line, "hello").as_deref() == Some("line hello")).then_some(())
}

/// The way in which a proxy learns of the new listeners.
#[derive(Clone, Copy)]
enum Learns {
    /// On the stream that it has.
    AtOnce,
    /// On its next stream: they change while the server is away.
    Later,
}

fn for_each(learns: Learns) {
    if !is_root() {
        return;
    }
    for is_delta in [false, true] {
        let network = Network::new();
        network.redirect(9090);
        inside(Some(&network.node), || rebound(&network, is_delta, learns));
    }
}

#[test]
fn a_listener_that_gets_or_loses_its_port_kills_no_envoy() {
    for_each(Learns::AtOnce);
}

#[test]
fn a_port_that_comes_or_goes_while_the_server_is_away_kills_no_envoy() {
    for_each(Learns::Later);
}

fn rebound(network: &Network, is_delta: bool, learns: Learns) {
    inside(Some(&network.pod), || Backend::at(OWN, 8080, "web"));
    let [one, line] = ["one", "line"].map(|name| Backend::new(node(), name));
    let of = |is_bound| objects(is_bound, one.port, line.port);
    // A port that is the server's again after its end.
    let at: SocketAddr = (node(), 15010).into();
    let mut discovery = Place::new()
        .with("mesh", "enableTracing: false\n")
        .with("config/all.yaml", &of(false))
        .arg(&format!("--grpcAddr={at}"))
        .start();
    let mut setup = Setup::bare("web-1", POD.parse().unwrap(), at)
        .within(&network.pod)
        .args(&["--proxy-user", &USER.to_string()]);
    if is_delta {
        setup = setup.delta();
    }
    let proxy = setup.start();
    until("what is intercepted", || {
        get(from_node(8080), "web").filter(|(status, _)| *status == 200)
    });
    let load = Load::new(POD.parse::<IpAddr>().unwrap(), "web", 8080);
    for is_bound in [false, true, false, true, false] {
        if let Learns::Later = learns {
            discovery.kill();
        }
        discovery.place.write("config/all.yaml", &of(is_bound));
        if let Learns::Later = learns {
            discovery.again();
        }
        until("the ports", || {
            let log = proxy.log();
            assert!(!log.contains("Segmentation fault"), "{log}");
            is_reached(&proxy, is_bound)
        });
        assert_eq!(
            in_sync(&discovery, "web-1")["errors"],
            serde_json::json!({})
        );
    }
    load.end_after(10);
    let log = proxy.log();
    assert!(!log.contains("Segmentation fault"), "{log}");
}
