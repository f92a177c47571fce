//! Hostile tenants: objects of a namespace against the proxies of another, with the victim's own service beside them.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use crate::backend::Backend;
use crate::network::{NODE, Network, POD, USER, inside, is_root, run};
use crate::place::{Discovery, Place, SOON, documents, exchange, until};
use crate::proxy::{Proxy, Setup, in_sync, in_sync_with};
use crate::redirect::{discover, from_node, get, node};

const METRIC: &str = "pilot_invalid_out_listeners";
/// The victim's application listens there for its own machine alone.
const PRIVATE: u16 = 8099;
/// Inbound connections to these go to 15001, as by the iptables rules of releases before 1.3.
const OLD: [u16; 3] = [9090, 9091, 9092];

fn victim() -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: demo}}\nspec: {{clusterIP: 10.96.0.10, selector: {{app: \
         web}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-1, \
         namespace: demo, labels: {{app: web}}}}\nspec: {{}}\nstatus: {{podIP: {POD}, podIPs: [{{ip: {POD}}}]}}\n"
    )
}

/// An entry: ports are `(name, number, protocol)`, each with its target.
fn entry(namespace: &str, name: &str, more: &str, to: &str, ports: &[(u16, &str, u16)]) -> String {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         hosts: [{name}.{namespace}.example]\n  resolution: STATIC\n  location: MESH_INTERNAL\n{more}  ports:\n"
    );
    let mut targets = Vec::new();
    for (number, protocol, target) in ports {
        text.push_str(&format!(
            "  - {{number: {number}, name: p{number}, protocol: {protocol}}}\n"
        ));
        targets.push(format!("p{number}: {target}"));
    }
    let targets = targets.join(", ");
    text.push_str(&format!(
        "  endpoints:\n  - {{address: {to}, ports: {{{targets}}}}}\n"
    ));
    text
}

/// A service without a selector, and a slice that names no pod.
fn slice(namespace: &str, name: &str, ports: &[u16]) -> String {
    let list = |key: &str| {
        let ports = ports.iter();
        let ports = ports.map(|port| format!("{{name: http-{port}, {key}: {port}}}"));
        ports.collect::<Vec<_>>().join(", ")
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{clusterIP: None, ports: \
         [{}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{}]\nendpoints: [{{addresses: [{POD}], \
         conditions: {{ready: true}}}}]\n",
        list("port"),
        list("port"),
    )
}

fn ask(stream: std::io::Result<TcpStream>, method: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = stream.ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    exchange(&mut stream, method, path, "x")
}

/// Asserts that clients in the network reach neither `private` nor Envoy's admin pages, and still reach the open ports.
fn is_closed() {
    for port in [15000, PRIVATE].into_iter().chain(OLD) {
        for (method, path) in [
            ("GET", "/config_dump"),
            ("POST", "/quitquitquit"),
            ("GET", "/"),
        ] {
            let answer = ask(from_node(port), method, path);
            let is_open = answer.as_ref().is_some_and(|(status, _)| *status == 200);
            assert!(!is_open, "{port} {method} {path}: {answer:?}");
        }
    }
    assert_eq!(get(from_node(8080), "web"), Some((200, "web".to_owned())));
}

fn row(discovery: &Discovery) -> String {
    discovery.json("/debug/push_status")[METRIC].to_string()
}

/// Waits until the victim has the files' state.
fn settled(discovery: &Discovery, proxy: &Proxy, file: &str, text: &str) {
    let before = in_sync(discovery, "web-1")["cluster_sent"].clone();
    discovery.place.write(&format!("config/{file}.yaml"), text);
    let row = in_sync_with(discovery, "web-1", |row| row["cluster_sent"] != before);
    assert_eq!(row["errors"], serde_json::json!({}));
    assert!(proxy.ask("/server_info").contains("LIVE"));
}

#[test]
fn a_tenant_cannot_open_a_proxys_own_ports() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(OLD[0]);
    inside(Some(&network.pod), || {
        for port in OLD.into_iter().skip(1) {
            let rule = format!(
                "-w -t nat -I PREROUTING -p tcp --dport {port} -j REDIRECT --to-ports 15001"
            );
            run("iptables", &rule);
        }
        Backend::at(Ipv4Addr::LOCALHOST, 8080, "web");
        Backend::at(Ipv4Addr::LOCALHOST, PRIVATE, "private");
    });
    inside(Some(&network.node), || opened(&network));
}

fn opened(network: &Network) {
    let (discovery, at) = discover(
        Place::new()
            .with("mesh", "enableTracing: false\n")
            .with("config/victim.yaml", &victim()),
    );
    let proxy = Setup::bare("web-1", POD.parse::<IpAddr>().unwrap(), at)
        .within(&network.pod)
        .args(&["--proxy-user", &USER.to_string()])
        .start();
    until("its own service", || {
        (get(from_node(8080), "web")?.0 == 200).then_some(())
    });
    is_closed();

    // From another namespace an object that names the pod does not make it part of a service.
    let own = [
        (15000, "HTTP", 15000),
        (PRIVATE, "HTTP", PRIVATE),
        (9090, "TCP", 15000),
    ];
    let attack = [
        entry("attacker", "direct", "", POD, &own),
        entry("attacker", "mapped", "", "'::ffff:10.9.8.7'", &own),
        slice("attacker", "slices", &[15000, PRIVATE]),
        // Through listeners of the other direction: at the pod's address, and on all addresses.
        entry(
            "attacker",
            "address",
            &format!("  addresses: [{POD}]\n"),
            "127.0.0.1",
            &[(9091, "TCP", PRIVATE), (15000, "TCP", 15000)],
        ),
        entry("attacker", "all", "", "127.0.0.1", &[(9092, "TCP", 15000)]),
    ];
    settled(&discovery, &proxy, "attack", &documents(&attack));
    is_closed();
    assert!(!proxy.knows("inbound|15000|"), "no cluster either");
    assert!(row(&discovery).contains(&format!("listener {POD}_9091 of services is left out")));
    assert!(row(&discovery).contains("each proxy itself listens there"));

    // In its own namespace a tenant's mistake opens the applications' ports, and never the proxy's.
    let mistake = [
        entry(
            "demo",
            "mistake",
            "",
            POD,
            &[(15000, "HTTP", 15000), (7000, "HTTP", 8080)],
        ),
        slice("demo", "slices", &[15020]),
    ];
    settled(&discovery, &proxy, "mistake", &documents(&mistake));
    is_closed();
    for (port, name) in [
        (15000, "inbound|15000|p15000|mistake.demo.example"),
        (
            15020,
            "inbound|15020|http-15020|slices.demo.svc.cluster.local",
        ),
    ] {
        let message =
            format!("{name} is left out: the proxy itself listens on port {port} of 127.0.0.1");
        assert!(row(&discovery).contains(&message), "{}", row(&discovery));
    }
    assert!(discovery.metric(METRIC) >= 4.0);
    let sidecar = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: demo}\nspec:\n  \
        ingress:\n  - {port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:8080'}\n  - {port: \
        {number: 15000, name: admin, protocol: HTTP}, defaultEndpoint: '127.0.0.1:15000'}\n";
    settled(&discovery, &proxy, "sidecar", sidecar);
    is_closed();
    assert!(row(&discovery).contains("inbound|15000|admin|"));
}

/// By the rules of releases before 1.3 a stranger's connection to a pod is looked for among listeners of services: the proxy would
/// call them for it, by its own certificate.
#[test]
fn a_stranger_calls_no_service_through_a_pod() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(80);
    inside(Some(&network.pod), || {
        Backend::at(Ipv4Addr::LOCALHOST, 8080, "web");
    });
    inside(Some(&network.node), || {
        let vault = Backend::new(node(), "vault");
        let address = "  addresses: [10.96.0.20]\n";
        let vault = entry("demo", "vault", address, NODE, &[(80, "HTTP", vault.port)]);
        let (discovery, at) = discover(
            Place::new()
                .with("mesh", "enableTracing: false\n")
                .with("config/all.yaml", &documents(&[victim(), vault])),
        );
        let proxy = Setup::bare("web-1", POD.parse::<IpAddr>().unwrap(), at)
            .within(&network.pod)
            .args(&["--proxy-user", &USER.to_string()])
            .start();
        assert_eq!(
            in_sync(&discovery, "web-1")["errors"],
            serde_json::json!({})
        );
        let of_application = || proxy.connect("10.96.0.20".parse::<IpAddr>().unwrap(), 80);
        let host = "vault.demo.example";
        let answer = Some((200, "vault".to_owned()));
        until("the service", || {
            (get(of_application(), host) == answer).then_some(())
        });
        assert_eq!(get(from_node(8080), "web"), Some((200, "web".to_owned())));
        assert_eq!(get(from_node(80), host), None);
        let listeners = proxy.ask("/config_dump?resource=dynamic_listeners");
        assert!(listeners.contains(&format!("\"{POD}_80\"")), "{listeners}");
    });
}

/// A proxy with another admin port declares it.
#[test]
fn a_port_that_the_proxy_names_is_its_own() {
    let discovery = Place::new().start();
    let setup = Setup::new("web-1", discovery.grpc);
    let proxy = setup.args(&["--proxy-admin-port", "16000"]).begin();
    let synced = in_sync(&discovery, "web-1");
    assert_eq!(synced["errors"], serde_json::json!({}));
    let sidecar = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: demo}\nspec:\n  \
        ingress:\n  - {port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:16000'}\n";
    discovery.place.write("config/sidecar.yaml", sidecar);
    until("it is told", || {
        row(&discovery)
            .contains("the proxy itself listens on port 16000 of 127.0.0.1")
            .then_some(())
    });
    drop(proxy);
}
