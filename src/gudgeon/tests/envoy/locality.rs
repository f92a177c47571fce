//! Locality: shares that the mesh configures, services that prefer near endpoints, and networks behind gateways.

use std::collections::BTreeMap;
use std::io::copy;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::backend::Backend;
use crate::bare::{host, resolved};
use crate::place::{Place, documents, until};
use crate::proxy::{Address, Proxy, Setup, in_sync};
use crate::secured::Root;

fn localized(ip: Ipv4Addr, backend: &Backend, locality: &str) -> String {
    format!(
        "{{address: {ip}, ports: {{main: {}}}, locality: {locality}}}",
        backend.port
    )
}

/// Counts the responses of each backend.
fn answers(proxy: &Proxy, host: &str, times: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        let (status, body) = proxy.get(host, 18080).unwrap();
        assert_eq!(status, 200, "{host}: {body}");
        *counts.entry(body).or_default() += 1;
    }
    counts
}

#[test]
fn shares_are_those_that_the_mesh_names_and_a_service_may_prefer_the_near() {
    let ip = Address::new();
    let [near, far, nowhere] = ["near", "far", "nowhere"].map(|name| Backend::new(ip.ip, name));
    let at = |backend, locality| localized(ip.ip, backend, locality);
    let of = |name: &str, all: &[String]| {
        resolved(
            name,
            18080,
            "HTTP",
            "STATIC",
            &format!("[{}]", all.join(", ")),
        )
    };
    let all = [
        at(&near, "r1/z1/s1"),
        at(&far, "r2/z1"),
        at(&nowhere, "r3/z1"),
    ];
    let near_one = of("near-one", &all).replace(
        "metadata: {",
        "metadata: {annotations: {networking.istio.io/traffic-distribution: PreferClose}, ",
    );
    let without = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: without, namespace: demo}\nspec: \
         {host: without, trafficPolicy: {loadBalancer: {localityLbSetting: {enabled: false}}}}\n";
    let distribute = "localityLbSetting:\n  enabled: true\n  distribute:\n  - from: r1/z1/*\n    to: {r1/z1/*: 80, r2/*: \
        20}\n";
    let discovery = Place::new()
        .with("mesh", &format!("enableTracing: false\n{distribute}"))
        .with(
            "config/all.yaml",
            &documents(&[
                of("b", &all),
                near_one,
                of("without", &all),
                without.to_owned(),
            ]),
        )
        .start();
    let proxy = Setup::new("client-1", discovery.grpc)
        .label("istio-locality", "r1.z1.s1")
        .start();
    let counts = answers(&proxy, "b", 100);
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert_eq!(count("near") + count("far"), 100, "{counts:?}");
    assert!((10..=30).contains(&count("far")), "{counts:?}");
    let counts = answers(&proxy, "without", 60);
    assert_eq!(counts.len(), 3, "{counts:?}: a rule wants no localities");

    // Without locality settings of the mesh all are equal, except for the service with a preference.
    discovery.place.write("mesh", "enableTracing: false\n");
    until("all of them", || {
        (answers(&proxy, "b", 9).len() == 3).then_some(())
    });
    let alone = BTreeMap::from([("near".to_owned(), 20)]);
    until("the near one alone", || {
        (answers(&proxy, "near-one", 20) == alone).then_some(())
    });
    assert_eq!(
        in_sync(&discovery, "client-1")["errors"],
        serde_json::json!({})
    );
}

/// A gateway of the other network: it passes TLS through.
struct Gateway {
    port: u16,
    passed: Arc<AtomicUsize>,
}

impl Gateway {
    fn new(ip: Ipv4Addr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let passed: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&passed);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(to) else {
                    continue;
                };
                counted.fetch_add(1, Ordering::Relaxed);
                let ends = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client),
                ];
                for (mut from, mut to) in ends {
                    thread::spawn(move || {
                        let _ended = copy(&mut from, &mut to);
                        let _closed = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { port, passed }
    }

    fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }
}

/// An endpoint in a network, with the account of `web`.
fn placed(address: &str, port: u16, network: &str) -> String {
    format!(
        "{{address: {address}, ports: {{main: {port}}}, network: {network}, serviceAccount: web, labels: \
         {{security.istio.io/tlsMode: istio}}}}"
    )
}

/// Case 38, by requests: another network is reached by its gateways alone, one without a gateway directly.
#[test]
fn another_network_is_reached_by_its_gateways() {
    let (web, ip) = (Address::new(), Address::new());
    let own = web.ip;
    let application = Backend::new(ip.ip, "web");
    let place = Place::new();
    let root = Root::new();
    let volumes = ["web", "client-1"].map(|name| place.path("certs").join(name));
    for (volume, account) in volumes.iter().zip(["web", "client"]) {
        root.certify(volume, account);
    }
    let gateways = [(); 2].map(|()| Gateway::new(ip.ip, (own, 9080).into()));
    let networks = format!(
        "networks:\n  near: {{}}\n  far:\n    gateways: [{{address: {ip}, port: {}}}, {{address: {ip}, port: {}}}]\n  \
         open: {{}}\n",
        gateways[0].port,
        gateways[1].port,
        ip = ip.ip,
    );
    // No server has the addresses inside the far network.
    let far = ["192.0.2.1", "192.0.2.2"].map(|address| placed(address, 9080, "far"));
    let open = placed(&own.to_string(), 9080, "open");
    let sidecar = format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  \
         workloadSelector: {{labels: {{app: web}}}}\n  ingress:\n  - {{port: {{number: 9080, name: http, protocol: HTTP}}, \
         defaultEndpoint: '{}:{}'}}\n",
        ip.ip, application.port
    );
    let service = |name: &str, endpoints: &[String]| {
        resolved(
            name,
            18080,
            "HTTP",
            "STATIC",
            &format!("[{}]", endpoints.join(", ")),
        )
    };
    // Nobody says where the workload is, but for its network.
    let beyond = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: beyond, namespace: demo}\nspec: \
         {network: far, serviceAccount: web, labels: {app: beyond, security.istio.io/tlsMode: istio}}\n---\napiVersion: \
         networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: beyond, namespace: demo}\nspec: {hosts: \
         [beyond.demo.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 18081, name: http, \
         protocol: HTTP}], workloadSelector: {labels: {app: beyond}}}\n";
    place.write("networks", &networks);
    let path = place.path("networks");
    let discovery = place
        .arg(&format!("--networksConfig={}", path.display()))
        .with("mesh", "enableTracing: false\nenableAutoMtls: true\n")
        .with(
            "config/all.yaml",
            &documents(&[
                service("web", &far),
                service("open", &[open]),
                sidecar,
                beyond.to_owned(),
            ]),
        )
        .start();
    let mut web = Setup::at("web", web, discovery.grpc)
        .label("app", "web")
        .env("ISTIO_META_NETWORK", "far")
        .secured(&volumes[0])
        .begin();
    let mut client = Setup::new("client-1", discovery.grpc)
        .env("ISTIO_META_NETWORK", "near")
        .secured(&volumes[1])
        .begin();
    web.until_ready();
    client.until_ready();
    let ok = Some((200, "web".to_owned()));
    assert_eq!(client.get("open", 18080), ok);
    assert_eq!(gateways.each_ref().map(Gateway::passed), [0, 0]);
    assert_eq!(client.get(&host("beyond"), 18081), ok);
    assert_ne!(gateways.each_ref().map(Gateway::passed), [0, 0]);
    // By TLS from end to end: the gateways have no certificate.
    until("both gateways", || {
        assert_eq!(client.get(&host("web"), 18080), ok);
        let passed = gateways.each_ref().map(Gateway::passed);
        (!passed.contains(&0)).then_some(())
    });
    // Unreachable addresses are gone here; in the far network they are as before.
    assert!(!client.knows("192.0.2.1"));
    assert!(web.knows("192.0.2.1"));
}
