//! Rules that change while the server is away, under load: the proxies that come back have clusters that are gone, and lack new ones.

use std::net::{Ipv4Addr, SocketAddr};

use crate::backend::{Backend, Load};
use crate::place::{Address, Place, documents, until};
use crate::proxy::{Proxy, Setup, in_sync};

const PORT: u16 = 18191;

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec: {spec}\n"
    )
}

fn service(name: &str, ip: Ipv4Addr, backend: u16) -> String {
    let spec = format!(
        "{{hosts: [{name}.demo.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, \
         ports: [{{number: {PORT}, name: main, protocol: HTTP}}], \
         endpoints: [{{address: {ip}, ports: {{main: {backend}}}, labels: {{version: v1}}}}]}}"
    );
    object("ServiceEntry", name, &spec)
}

/// A route to the last of these subsets.
fn route(name: &str, turn: usize, subsets: impl Iterator<Item = usize>) -> [String; 2] {
    let subsets: Vec<_> = subsets
        .map(|subset| format!("{{name: s{subset}, labels: {{version: v1}}}}"))
        .collect();
    let subsets = format!("{{host: {name}, subsets: [{}]}}", subsets.join(", "));
    let routes = format!(
        "{{hosts: [{name}], http: [{{name: {name}-turn-{turn}, route: [{{destination: {{host: {name}, subset: s{turn}}}}}]}}]}}"
    );
    [
        object("DestinationRule", name, &subsets),
        object("VirtualService", name, &routes),
    ]
}

/// The only subset of one service has another name at each turn, and the other service gets one more.
fn rules(turn: usize) -> String {
    let renamed = route("renamed", turn, turn..=turn);
    let added = route("added", turn, 0..=turn);
    documents(&[renamed, added].concat())
}

/// In state of the world the server does not know what a proxy has that is gone, so nothing asks for the renamed one there.
#[test]
fn rules_that_change_while_the_server_is_away_lose_no_request() {
    let (ip, own) = (Address::new(), Address::new());
    let backend = Backend::new(ip.ip, "v1");
    let services = ["renamed", "added"].map(|name| service(name, ip.ip, backend.port));
    let at = SocketAddr::from((own.ip, 15010));
    let mut discovery = Place::new()
        .with("config/services.yaml", &documents(&services))
        .with("config/rules.yaml", &rules(0))
        .arg(&format!("--grpcAddr={at}"))
        .start();
    let state = Setup::new("state", at.port()).of(at).start();
    let delta = Setup::new("delta", at.port()).of(at).delta().start();
    let knows = |proxy: &Proxy, turn: usize| {
        until(&format!("turn {turn} at {}", proxy.name), || {
            let known = proxy.ask("/config_dump?resource=dynamic_route_configs");
            ["renamed", "added"]
                .iter()
                .all(|name| known.contains(&format!("\"{name}-turn-{turn}\"")))
                .then_some(())
        });
    };
    for proxy in [&state, &delta] {
        knows(proxy, 0);
    }
    let loads = [(&state, "added"), (&delta, "added"), (&delta, "renamed")]
        .map(|(proxy, host)| Load::new(proxy.ip, host, PORT));
    for turn in 1..=4 {
        discovery.kill();
        discovery.place.write("config/rules.yaml", &rules(turn));
        discovery.again();
        for proxy in [&state, &delta] {
            knows(proxy, turn);
        }
        in_sync(&discovery, "delta");
    }
    let gone = format!("outbound|{PORT}|s3|renamed.demo.svc.cluster.local");
    until("the last subset is gone", || {
        (!delta.knows(&gone)).then_some(())
    });
    for load in loads {
        assert!(load.end() > 50);
    }
}
