//! Traffic that iptables intercepts, by the rules that istio-init writes for the arguments of an injected pod: the client is
//! unaware of Envoy.

use std::net::{IpAddr, Ipv4Addr};

use crate::backend::{self, Backend};
use crate::bare::{created, host, resolved};
use crate::interception::Interception;
use crate::network::{NODE, Network, POD, USER, inside, is_root};
use crate::place::{Place, documents, entry, until};
use crate::proxy::{Proxy, Setup, in_sync};
use crate::redirect::{discover, from_node, get, node};

/// The statistics that the test reads from Envoy.
const STATISTICS: &str = r#"{"sidecar.istio.io/statsInclusionPrefixes": "cluster,listener"}"#;

fn setup(network: &Network, at: std::net::SocketAddr) -> Setup {
    Setup::bare("web-1", POD.parse().unwrap(), at)
        .within(&network.pod)
        .env("ISTIO_METAJSON_ANNOTATIONS", STATISTICS)
}

/// With an address of its own.
fn at(address: &str, name: &str, port: u16, protocol: &str, endpoint: (&str, u16)) -> String {
    let text = entry(&host(name), port, protocol, &[endpoint]);
    text.replace("spec:\n", &format!("spec:\n  addresses: ['{address}']\n"))
}

/// Services of the proxy's own application: two lead to it.
fn own() -> [String; 3] {
    [
        at("10.96.2.10", "own", 8090, "HTTP", (POD, 8091)),
        // The same port once more.
        at("10.96.2.11", "twin", 8090, "HTTP", (POD, 8091)),
        at("10.96.2.12", "own-line", 9090, "TCP", (POD, 9091)),
    ]
}

fn applications(network: &Network) {
    inside(Some(&network.pod), || {
        Backend::at(Ipv4Addr::LOCALHOST, 8091, "app");
        Backend::at(Ipv4Addr::LOCALHOST, 9091, "line");
    });
}

fn comes_in() {
    assert_eq!(get(from_node(8091), "own"), Some((200, "app".to_owned())));
    let reply = backend::say(from_node(9091).unwrap(), "hello");
    assert_eq!(reply.as_deref(), Some("line hello"));
}

#[test]
fn redirected_connections_reach_their_destination() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    let rules = Interception::injected("REDIRECT");
    rules.apply(&network.pod);
    inside(Some(&network.node), || caught(&network, &rules));
}

fn caught(network: &Network, rules: &Interception) {
    let web = Backend::new(node(), "web");
    let [first, older, newer] = ["220 first\n", "220 older\n", "220 newer\n"]
        .map(|greeting| Backend::greeting(node(), greeting));
    Backend::at(node(), 8085, "wild");
    let nowhere = |name: &str, at: &str, port| {
        let text = entry(&host(name), 9300, "TCP", &[(NODE, port)]);
        created(&text, at)
    };
    let wild =
        resolved("wild", 8085, "HTTP", "NONE", "[]").replace(&host("wild"), "'*.wild.example'");
    let all = [
        at("10.96.2.1", "b", 8080, "HTTP", (NODE, web.port)),
        at("10.96.2.2", "first", 9200, "TCP", (NODE, first)),
        nowhere("a-newer", "2021-01-01T00:00:00Z", newer),
        nowhere("older", "2020-01-01T00:00:00Z", older),
        wild,
    ];
    applications(network);
    let (discovery, at) = discover(
        Place::new()
            // Longer than any wait here: a declared protocol must not be sniffed.
            .with(
                "mesh",
                "enableTracing: false\nprotocolDetectionTimeout: 60s\noutboundClusterStatName: \
                 'to_%SERVICE_FQDN%_%SERVICE_PORT%'\ninboundClusterStatName: \
                 'in_%SERVICE_PORT_NAME%_%SERVICE_PORT%'\n",
            )
            .with(
                "config/all.yaml",
                &documents(&[all.as_slice(), &own()].concat()),
            ),
    );
    let proxy = setup(network, at)
        .args(&["--proxy-user", &USER.to_string()])
        .start();
    let row = in_sync(&discovery, "web-1");
    assert_eq!(row["errors"], serde_json::json!({}));
    let to = |address: &str, port| proxy.connect(address.parse::<IpAddr>().unwrap(), port);
    let ok = |body: &str| Some((200, body.to_owned()));
    for name in ["b", "b.demo", "10.96.2.1:8080"] {
        assert_eq!(get(to("10.96.2.1", 8080), name), ok("web"), "{name}");
    }
    // By its name, whatever address the client has resolved.
    assert_eq!(get(to("10.96.9.9", 8080), "b"), ok("web"));
    let first_line = |address, port| backend::read_line(to(address, port).unwrap());
    assert_eq!(first_line("10.96.2.2", 9200).as_deref(), Some("220 first"));
    // The older of two entries without an address works at any destination, and the other one is shown.
    assert_eq!(first_line("10.96.9.9", 9300).as_deref(), Some("220 older"));
    let conflict = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
    assert_eq!(discovery.metric(conflict), 1.0);
    let push_status = discovery.json("/debug/push_status");
    assert!(
        push_status[conflict].to_string().contains("a-newer"),
        "{push_status}"
    );
    // Every name of a wildcard goes to where it is.
    assert_eq!(get(to(NODE, 8085), "any.wild.example"), ok("wild"));
    let wild = "cluster.to_*.wild.example_8085.upstream_cx_total";
    assert_eq!(proxy.stat(wild), 1);
    assert_eq!(passed(&proxy), 0, "nothing of this was for nobody");

    comes_in();
    assert_eq!(proxy.stat("cluster.in_main_9090.upstream_cx_total"), 1);
    // To itself by services' addresses: out by one listener and in by the other.
    assert_eq!(get(to("10.96.2.10", 8090), "own"), ok("app"));
    assert_eq!(get(to("10.96.2.11", 8090), "twin"), ok("app"));
    let reply = backend::say(to("10.96.2.12", 9090).unwrap(), "hello");
    assert_eq!(reply.as_deref(), Some("line hello"));

    // The rules of an older release redirect all of it to 15001.
    rules.apply_as_in_1_1(&network.pod);
    let connections = || proxy.stat("listener.0.0.0.0_15006.downstream_cx_total");
    let before = connections();
    assert!(before > 0);
    comes_in();
    assert_eq!(get(to(POD, 8091), "own"), ok("app"));
    assert_eq!(connections(), before);
}

fn passed(proxy: &Proxy) -> u64 {
    proxy.stat("cluster.PassthroughCluster.upstream_cx_total")
}

#[test]
fn tproxy_keeps_the_addresses_of_connections() {
    if !is_root() {
        return;
    }
    let network = Network::new();
    Interception::injected("TPROXY").apply(&network.pod);
    inside(Some(&network.node), || {
        applications(&network);
        let format = "accessLogFile: /dev/stdout\naccessLogFormat: \"seen %DOWNSTREAM_REMOTE_ADDRESS% \
             %DOWNSTREAM_LOCAL_ADDRESS%\\n\"\n";
        let (discovery, at) = discover(
            Place::new()
                .with("mesh", &format!("enableTracing: false\n{format}"))
                .with("config/all.yaml", &documents(&own())),
        );
        let proxy = setup(&network, at)
            .env("ISTIO_META_INTERCEPTION_MODE", "TPROXY")
            .group(USER)
            .start();
        let row = in_sync(&discovery, "web-1");
        assert_eq!(row["errors"], serde_json::json!({}));
        comes_in();
        for port in [8091, 9091] {
            until("the client's own address", || {
                let (from, to) = (format!("seen {NODE}:"), format!(" {POD}:{port}"));
                let log = proxy.log();
                let mut lines = log.lines();
                lines.find(|line| line.starts_with(&from) && line.ends_with(&to))?;
                Some(())
            });
        }
    });
}
