//! A pod that has addresses of the other family alone.

use std::net::{IpAddr, Ipv6Addr, TcpStream};

use crate::backend::{self, Backend};
use crate::bare::host;
use crate::network::{NODE6, Network, POD6, USER, inside, is_root};
use crate::place::{Place, SOON, documents, entry};
use crate::proxy::{Setup, in_sync};
use crate::redirect::get;

/// With these addresses.
fn at(addresses: &str, name: &str, port: u16, protocol: &str, endpoint: (&str, u16)) -> String {
    let quoted = format!("'{}'", endpoint.0);
    let text = entry(&host(name), port, protocol, &[(&quoted, endpoint.1)]);
    text.replace("spec:\n", &format!("spec:\n  addresses: [{addresses}]\n"))
}

/// Case 32: the proxy sees endpoints of its family, and its application is on that loopback.
#[test]
fn a_proxy_of_the_other_family_alone_sees_nothing_of_the_first() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    network.redirect_both(9090);
    network.forget_the_first();
    inside(Some(&network.node), || alone(&network));
}

fn alone(network: &Network) {
    let [node, pod] = [NODE6, POD6].map(|address| address.parse::<IpAddr>().unwrap());
    let [b, line] = ["b", "line"].map(|name| Backend::new(node, name));
    inside(Some(&network.pod), || {
        Backend::at(Ipv6Addr::LOCALHOST, 8091, "app");
    });
    let all = [
        at(
            "10.96.3.1, 'fd00:96::31'",
            "b",
            8080,
            "HTTP",
            (NODE6, b.port),
        ),
        at(
            "10.96.3.2, 'fd00:96::32'",
            "line",
            9200,
            "TCP",
            (NODE6, line.port),
        ),
        at(
            "10.96.3.3, 'fd00:96::33'",
            "own",
            8090,
            "HTTP",
            (POD6, 8091),
        ),
    ];
    let discovery = Place::new()
        .with("config/all.yaml", &documents(&all))
        .arg(&format!("--grpcAddr=[{NODE6}]:0"))
        .start();
    let proxy = Setup::bare("web-1", pod, (node, discovery.grpc).into())
        .within(&network.pod)
        .args(&["--proxy-user", &USER.to_string()])
        .start();
    let row = in_sync(&discovery, "web-1");
    assert_eq!(row["errors"], serde_json::json!({}));
    let to = |address: &str, port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
    let ok = |body: &str| Some((200, body.to_owned()));
    for name in ["b", "[fd00:96::31]:8080"] {
        assert_eq!(get(to("fd00:96::31", 8080), name), ok("b"), "{name}");
    }
    let reply = backend::say(to("fd00:96::32", 9200).unwrap(), "hello");
    assert_eq!(reply.as_deref(), Some("line hello"));
    // From outside, and from itself by the service's address.
    let from = TcpStream::connect_timeout(&(pod, 8091).into(), SOON);
    assert_eq!(get(from, "own"), ok("app"));
    assert_eq!(get(to("fd00:96::33", 8090), "own"), ok("app"));
    for (known, text) in [
        (true, "fd00:96::32_9200"),
        (true, "InboundPassthroughClusterIpv6"),
        (false, "10.96.3."),
        (false, "InboundPassthroughClusterIpv4"),
    ] {
        assert_eq!(proxy.knows(text), known, "{text}");
    }
}
