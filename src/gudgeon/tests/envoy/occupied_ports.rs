//! Services and ingresses on ports of Envoy's own listeners: intercepted traffic is served all the same.

use std::net::{IpAddr, Ipv4Addr};

use crate::backend::{self, Backend};
use crate::network::{NODE, Network, POD, USER, inside, is_root};
use crate::place::{Place, documents, until};
use crate::proxy::{Setup, in_sync};
use crate::redirect::{discover, from_node, get, node};

/// An HTTP service with an address, and one endpoint on the node.
fn entry(name: &str, address: &str, port: u16, target: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{name}.example]\n  addresses: [{address}]\n  ports: [{{number: {port}, name: http, protocol: HTTP}}]\n  \
         resolution: STATIC\n  endpoints: [{{address: {NODE}, ports: {{http: {target}}}}}]\n"
    )
}

/// An ingress with these ports, all of which lead to `web`.
fn ingress(ports: &[u16]) -> String {
    let items: Vec<_> = ports
        .iter()
        .map(|port| {
            format!(
                "  - {{port: {{number: {port}, protocol: HTTP, name: http}}, bind: 0.0.0.0, defaultEndpoint: '127.0.0.1:8080'}}\n"
            )
        })
        .collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  ingress:\n{}",
        items.concat()
    )
}

/// Envoy compares the addresses of listeners also where they are not bound: in the place of one of its own each of these would
/// take all interception away.
#[test]
fn ports_of_envoys_own_listeners_are_not_taken_from_it() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect(9090);
    inside(Some(&network.node), || taken(&network));
}

fn taken(network: &Network) {
    let one = Backend::new(node(), "one");
    let unknown = Backend::new(node(), "unknown");
    inside(Some(&network.pod), || {
        Backend::at(Ipv4Addr::LOCALHOST, 8080, "web");
    });
    let of = |name, last, port| entry(name, &format!("10.96.0.{last}"), port, one.port);
    let all = [
        of("b", 20, 80),
        of("outbound", 21, 15001),
        of("inbound", 22, 15006),
        of("figures", 23, 15090),
        of("elsewhere", 24, 15021),
        ingress(&[80, 15006]),
    ];
    let (discovery, at) = discover(
        Place::new()
            .with("mesh", "enableTracing: false\n")
            .with("config/all.yaml", &documents(&all)),
    );
    let proxy = Setup::bare("web-1", POD.parse().unwrap(), at)
        .within(&network.pod)
        .args(&["--proxy-user", &USER.to_string()])
        .start();
    let no_errors = serde_json::json!({});
    assert_eq!(in_sync(&discovery, "web-1")["errors"], no_errors);
    let ok = |body: &str| Some((200, body.to_owned()));
    let to = |address: &str, port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
    let works = || {
        // Also beside an ingress on that port.
        assert_eq!(get(to("10.96.0.20", 80), "b.example"), ok("one"));
        assert_eq!(get(to("10.96.0.24", 15021), "elsewhere.example"), ok("one"));
        let passed = backend::say(to(NODE, unknown.port).unwrap(), "hello");
        assert_eq!(passed.as_deref(), Some("unknown hello"));
        assert_eq!(get(from_node(80), "web"), ok("web"));
    };
    works();
    let metric = "pilot_invalid_out_listeners";
    assert_eq!(discovery.metric(metric), 3.0);
    let rejected = discovery.json("/debug/push_status")[metric].clone();
    for (port, name) in [(15001, "outbound"), (15006, "inbound"), (15090, "figures")] {
        let key = format!("outbound|{port}||{name}.example");
        let message = format!("{key} is left out: the proxy listens there");
        assert_eq!(rejected[&key]["message"], message, "{rejected}");
    }

    // Later services do not take the listener, either.
    let later = of("later", 25, 15006);
    discovery.place.write("config/later.yaml", &later);
    until("a further one", || {
        (discovery.figure(metric)? == 4.0).then_some(())
    });
    assert_eq!(in_sync(&discovery, "web-1")["errors"], no_errors);
    works();
}
