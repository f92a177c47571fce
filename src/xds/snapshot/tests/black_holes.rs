//! Interception as Istio 1.1 had it looks for inbound connections among outbound listeners: none takes those to the proxy itself.

use std::net::IpAddr;

use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};

use super::*;

/// The cluster of a listener that has one chain, for all connections, with no filter but a TCP proxy.
fn only_cluster(listener: &Listener) -> Option<String> {
    let [chain] = listener.filter_chains.as_slice() else {
        return None;
    };
    let [filter] = chain.filters.as_slice() else {
        return None;
    };
    let Some(ConfigType::TypedConfig(config)) = &filter.config_type else {
        return None;
    };
    if chain.filter_chain_match.is_some() || !config.type_url.ends_with("TcpProxy") {
        return None;
    }
    let proxy = TcpProxy::decode(&*config.value).unwrap();
    match proxy.cluster_specifier? {
        ClusterSpecifier::Cluster(cluster) => Some(cluster),
        ClusterSpecifier::WeightedClusters(_) => None,
    }
}

/// Names of the listeners that end all their connections.
fn black_holes(view: &dyn View) -> String {
    let all = view.all(Type::Listener);
    let names = all.iter().filter(|resource| {
        let listener = Listener::decode(&*resource.body).unwrap();
        let ends = only_cluster(&listener).is_some_and(|cluster| cluster == "BlackHoleCluster");
        if ends {
            assert_eq!(listener.traffic_direction(), TrafficDirection::Inbound);
            assert!(!listener.bind_to_port.unwrap().value);
        }
        ends
    });
    let names: Vec<_> = names.map(|resource| &*resource.name).collect();
    names.join(" ")
}

/// Services of each kind that has all addresses of its port, and one that does not.
fn services() -> World {
    let mut world = world("");
    for (name, port, word, addresses) in [
        ("http", 80, "HTTP", &["10.9.0.1"][..]),
        ("bare", 81, "TCP", &[]),
        ("auto", 82, "", &[]),
        ("tls", 83, "TLS", &[]),
        ("range", 84, "TCP", &["10.8.0.0/16"]),
        ("plain", 85, "TCP", &["10.9.0.2"]),
    ] {
        let mut service = service(name, &[(port, word)], Resolution::Static);
        at(&mut service, addresses);
        add(&mut world, service, Vec::new());
    }
    world
}

#[test]
fn no_listener_of_services_takes_connections_to_the_proxys_own_addresses() {
    let open = "10.0.0.1_80 10.0.0.1_81 10.0.0.1_82 10.0.0.1_83 10.0.0.1_84";
    let bound = |number: u16, bind: &str| {
        inbound_port(number, &format!(", bind: {bind}, captureMode: NONE"))
    };
    let egress = |bind: &str, mode: &str| {
        format!(
            "egress:\n- {{port: {{number: 80, protocol: HTTP, name: a}}, bind: {bind}{mode}, hosts: ['*/*']}}\n"
        )
    };
    for (name, text, expected) in [
        ("none", String::new(), open),
        (
            "an ingress has its port",
            format!("ingress:\n{}", inbound_port(81, "")),
            "10.0.0.1_80 10.0.0.1_82 10.0.0.1_83 10.0.0.1_84",
        ),
        (
            "a bound one, too",
            format!("ingress:\n{}", bound(81, "10.0.0.1")),
            "10.0.0.1_80 10.0.0.1_82 10.0.0.1_83 10.0.0.1_84",
        ),
        (
            "one that is bound at all addresses has all of them",
            format!("ingress:\n{}", bound(82, "0.0.0.0")),
            "10.0.0.1_80 10.0.0.1_81 10.0.0.1_83 10.0.0.1_84",
        ),
        (
            "the Sidecar intercepts one port at all addresses",
            egress("0.0.0.0", ""),
            "10.0.0.1_80",
        ),
        (
            "the Sidecar intercepts one port at another address",
            egress("10.9.0.9", ""),
            "",
        ),
        (
            "the Sidecar binds one port",
            egress("0.0.0.0", ", captureMode: NONE"),
            "",
        ),
    ] {
        let mut world = services();
        if !text.is_empty() {
            sidecar(&mut world, &text);
        }
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        for mode in ["REDIRECT", "TPROXY"] {
            let view = snapshot.view(&node(FIRST, mode));
            assert_eq!(black_holes(&*view), expected, "{name}, {mode}");
        }
        let view = snapshot.view(&node(CLIENT, "NONE"));
        assert_eq!(black_holes(&*view), "", "{name}");
        let view = snapshot.view(&node("router~10.0.0.2~r.demo~x", "REDIRECT"));
        assert_eq!(black_holes(&*view), "", "{name}");
    }
}

/// Envoy 1.40 dies where a listener of one name is bound that was not: the ingress has another name while services have its port.
#[test]
fn a_bound_ingress_is_told_from_the_listener_that_was_in_its_place() {
    let mut world = services();
    let ingress = |number: u16| inbound_port(number, ", bind: 10.0.0.1, captureMode: NONE");
    let text = format!("ingress:\n{}{}", ingress(81), ingress(85));
    sidecar(&mut world, &text);
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    let names = names(&*view, Type::Listener);
    let own = names.split(' ').filter(|name| name.starts_with("10.0.0.1"));
    let own: Vec<_> = own.collect();
    assert_eq!(
        own,
        [
            "10.0.0.1_80",
            "10.0.0.1_81_inbound",
            "10.0.0.1_82",
            "10.0.0.1_83",
            "10.0.0.1_84",
            "10.0.0.1_85"
        ]
    );
}

#[test]
fn each_address_of_a_proxy_is_its_own() {
    let mut world = world("");
    let http = service("http", &[(80, "HTTP")], Resolution::Static);
    add(&mut world, http, vec![endpoint("10.0.0.1", 80, "p80")]);
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let with = |more: &[&str]| {
        let mut node = (*node(FIRST, "REDIRECT")).clone();
        let more = more.iter().map(|text| text.parse::<IpAddr>().unwrap());
        node.addresses.extend(more);
        black_holes(&*snapshot.view(&Arc::new(node)))
    };
    // The application of the service is at its first address.
    assert_eq!(with(&[]), "");
    assert_eq!(with(&["2001:db8::1"]), "2001:db8::1_80");
    assert_eq!(with(&["0.0.0.0", "::", "10.0.0.2"]), "10.0.0.2_80");
    // No proxy has a mesh of listeners by what it says of itself.
    let many: Vec<String> = (2..=250).map(|last| format!("10.0.0.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(with(&many).split(' ').count(), 7);
}
