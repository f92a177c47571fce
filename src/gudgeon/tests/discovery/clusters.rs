//! Clusters as sources of the program: one that is away and comes back, one that is removed, and networks by where an endpoint
//! was read.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::google::protobuf::Value;
use envoy_types::pb::google::protobuf::value::Kind;
use serde_json::json;

use crate::apiserver::ApiServer;
use crate::client::*;
use crate::place::{Discovery, until};

const A: &str = "outbound|80||a.demo.svc.cluster.local";
const B: &str = "outbound|80||b.demo.svc.cluster.local";
const C: &str = "outbound|80||c.demo.svc.cluster.local";

/// Each push makes one.
const SNAPSHOTS: &str = "gudgeon_snapshot_seconds_count";

/// A proxy of a cluster, with or without a network.
fn node_in(cluster: &str, network: Option<&str>) -> Node {
    let mut node = node();
    let fields = &mut node.metadata.as_mut().unwrap().fields;
    let metadata = [("CLUSTER_ID", Some(cluster)), ("NETWORK", network)];
    for (name, value) in metadata {
        let value = value.map(|text| Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        });
        fields.extend(value.map(|value| (name.to_owned(), value)));
    }
    node
}

/// The first request of a stream.
async fn ask(port: u16, node: Node, url: &str, names: &[&str]) -> (Sotw, DiscoveryResponse) {
    let mut stream = Sotw::open(port).await;
    stream.ask_as(node, url, names);
    let response = stream.hear(url).await;
    stream.ack(&response, names);
    (stream, response)
}

/// Returns the metrics of pushes, by their line.
fn pushes(discovery: &Discovery) -> BTreeMap<String, String> {
    let (_, text) = discovery.get("/metrics");
    let counted = [
        "pilot_xds_pushes{",
        "pilot_push_triggers{",
        "pilot_inbound_updates{",
        SNAPSHOTS,
    ];
    text.lines()
        .filter(|line| counted.iter().any(|name| line.starts_with(name)))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn an_object_of_a_wrong_type_is_left_out_alone_and_reported_everywhere() {
    let server = ApiServer::new();
    server.service("a", "10.96.0.1");
    server.endpoints("a", &["10.0.0.1"]);
    let wrong = json!({"metadata": {"name": "w", "namespace": "demo"}, "spec": "a secret"});
    server.put("services", wrong.clone());
    let discovery = server.place().start();
    let is_reported = |message: &str| {
        let source = discovery.json("/debug/clusterz")[0].clone();
        assert_eq!(source["state"], "synced", "{source}");
        source["error"]
            .as_str()
            .unwrap_or_default()
            .contains(message)
    };
    let is_served = |address: &str| {
        discovery
            .get("/debug/endpointz?brief=1")
            .1
            .contains(address)
    };
    let message =
        "1 object skipped, or kept at its last good version: services demo/w: a value is not";
    until("clusterz", || is_reported(message).then_some(()));
    until("its endpoint", || is_served("10.0.0.1").then_some(()));
    assert_eq!(
        discovery.logged("cannot read services demo/w: a value is not"),
        1
    );
    assert_eq!(discovery.logged("secret"), 0);
    assert!(
        discovery.metric("pilot_total_rejected_configs{type=\"services\",name=\"demo/w\"}") > 0.0
    );
    assert!(discovery.get("/debug").1.contains("services demo/w"));
    // Others go on, and it may be mended.
    server.endpoints("a", &["10.0.0.2"]);
    until("a change", || is_served("10.0.0.2").then_some(()));
    server.service("w", "10.96.0.9");
    until("nothing is wrong", || (!is_reported("w")).then_some(()));
}

/// Objects of the Gateway API in a cluster used to do nothing without a word.
#[test]
fn a_cluster_with_kinds_of_the_gateway_api_is_told_that_they_have_no_effect() {
    let server = ApiServer::new();
    let line = "serves gateway.networking.k8s.io: gudgeon does not read Gateway API objects; they have no effect";
    server.define_gateway_api();
    let mut discovery = server.place().start();
    until("the line", || (discovery.logged(line) > 0).then_some(()));
    discovery.signal("TERM");
    let told = |log: &[String]| log.iter().filter(|one| one.contains(line)).count();
    assert_eq!(told(&discovery.whole_log()), 1);
}

/// Case 35.
#[tokio::test]
async fn a_server_that_is_away_changes_nothing_and_its_return_is_one_push() {
    let server = ApiServer::new();
    for (name, address, endpoint) in [
        ("a", "10.96.0.1", "10.0.0.1"),
        ("b", "10.96.0.2", "10.0.0.2"),
    ] {
        server.service(name, address);
        server.endpoints(name, &[endpoint]);
    }
    let discovery = server.place().start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [_, eds, ..] = stream.settle(&[A, B], &["80"]).await;
    assert_eq!(endpoints(&eds, A), ["10.0.0.1:8080"]);
    assert_eq!(endpoints(&eds, B), ["10.0.0.2:8080"]);
    stream.is_quiet().await;
    let before = pushes(&discovery);
    assert!(!before.is_empty());

    server.away(true);
    soon("it is stale", || {
        let (status, text) = discovery.get("/ready");
        assert_eq!(status, 200, "{text}");
        text.starts_with("stale: ")
    })
    .await;
    let source = discovery.json("/debug/clusterz")[0].clone();
    assert_eq!(source["state"], "stale", "{source}");
    // Changes of several kinds are missed, and the server has compacted them by the time of the next list.
    server.endpoints("a", &["10.0.0.3"]);
    server.endpoints("b", &["10.0.0.2", "10.0.0.4"]);
    server.service("c", "10.96.0.3");
    server.endpoints("c", &["10.0.0.5"]);
    server.forget();
    server.is_slow_with("endpointslices");
    stream.is_quiet().await;
    assert_eq!(pushes(&discovery), before);

    server.away(false);
    let cds = stream.hear(CDS).await;
    assert!(names_of(&cds).iter().any(|name| name == C));
    stream.ack(&cds, &[]);
    let mut eds = stream.hear(EDS).await;
    assert_eq!(names_of(&eds), [A, B]);
    assert_eq!(endpoints(&eds, A), ["10.0.0.3:8080"]);
    assert_eq!(endpoints(&eds, B), ["10.0.0.2:8080", "10.0.0.4:8080"]);
    stream.ack(&eds, &[A, B, C]);
    eds = stream.hear(EDS).await;
    assert_eq!(endpoints(&eds, C), ["10.0.0.5:8080"]);
    stream.ack(&eds, &[A, B, C]);
    // The listener of the port is unchanged.
    let rds = stream.hear(RDS).await;
    stream.ack(&rds, &["80"]);
    stream.is_quiet().await;
    soon("it is there again", || {
        discovery.json("/debug/clusterz")[0]["state"] == "synced"
    })
    .await;
    assert_eq!(discovery.get("/ready"), (200, "ok\n".to_owned()));
    stream.is_quiet().await;
    let after = pushes(&discovery);
    let counted = |all: &BTreeMap<_, String>, name: &str| -> f64 {
        all.get(name)
            .map_or(0.0, |value: &String| value.parse().unwrap())
    };
    let sent = |kind: &str| format!("pilot_xds_pushes{{type=\"{kind}\"}}");
    for (name, more) in [
        (SNAPSHOTS.to_owned(), 1.0),
        (sent("cds"), 1.0),
        // One response to the change, and one to the new subscription.
        (sent("eds"), 2.0),
        (sent("lds"), 0.0),
        (sent("rds"), 1.0),
    ] {
        let counted = counted(&after, &name) - counted(&before, &name);
        assert_eq!(counted, more, "{name}: {before:?} {after:?}");
    }
}

/// The addresses that a proxy's routes of port 80 know a service by.
fn addresses(rds: &DiscoveryResponse, host: &str) -> Vec<String> {
    let routes: RouteConfiguration = decoded(rds, "80");
    let hosts = routes.virtual_hosts.into_iter();
    let mut found = hosts.filter(|one| one.name == format!("{host}:80"));
    let domains = found.next().unwrap().domains.into_iter();
    domains
        .filter(|domain| domain.parse::<std::net::IpAddr>().is_ok())
        .collect()
}

/// Case 37.
#[tokio::test]
async fn a_cluster_that_is_removed_takes_its_endpoints_with_it_at_once() {
    let (local, east) = (ApiServer::new(), ApiServer::new());
    for (server, address, endpoint) in [
        (&local, "10.96.0.1", "10.1.0.1"),
        (&east, "10.97.0.1", "10.2.0.1"),
    ] {
        server.service("a", address);
        server.endpoints("a", &[endpoint]);
    }
    local.knows(&[("east", &east)]);
    let discovery = local.place().start();
    let mut streams = Vec::new();
    for (cluster, address) in [("Kubernetes", "10.96.0.1"), ("east", "10.97.0.1")] {
        let node = node_in(cluster, None);
        let (_, rds) = ask(discovery.grpc, node.clone(), RDS, &["80"]).await;
        assert_eq!(addresses(&rds, "a.demo.svc.cluster.local"), [address]);
        let (stream, eds) = ask(discovery.grpc, node, EDS, &[A]).await;
        assert_eq!(endpoints(&eds, A), ["10.1.0.1:8080", "10.2.0.1:8080"]);
        streams.push(stream);
    }
    // Changes of the remote cluster arrive.
    east.endpoints("a", &["10.2.0.1", "10.2.0.2"]);
    for stream in &mut streams {
        let eds = stream.hear(EDS).await;
        stream.ack(&eds, &[A]);
        let three = ["10.1.0.1:8080", "10.2.0.1:8080", "10.2.0.2:8080"];
        assert_eq!(endpoints(&eds, A), three);
    }

    local.delete("secrets", "istio-system", "clusters");
    for stream in &mut streams {
        let eds = stream.hear(EDS).await;
        stream.ack(&eds, &[A]);
        assert_eq!(endpoints(&eds, A), ["10.1.0.1:8080"]);
    }
    let sources = discovery.json("/debug/clusterz");
    assert!(!sources.to_string().contains("east"), "{sources}");
    // The removed cluster is no longer watched.
    east.endpoints("a", &["10.2.0.9"]);
    for stream in &mut streams {
        stream.is_quiet().await;
    }
    // The change was missed while the cluster was removed; it shows once the cluster is named again.
    local.knows(&[("east", &east)]);
    let eds = streams[0].hear(EDS).await;
    assert_eq!(endpoints(&eds, A), ["10.1.0.1:8080", "10.2.0.9:8080"]);
}

/// `ADDRESS:PORT WEIGHT` of the assignment of `A` in a response.
fn weighed(response: &DiscoveryResponse) -> Vec<String> {
    let assignment: ClusterLoadAssignment = decoded(response, A);
    let weights = assignment
        .endpoints
        .iter()
        .flat_map(|group| &group.lb_endpoints)
        .map(|endpoint| endpoint.load_balancing_weight.as_ref().unwrap().value);
    let addresses = endpoints(response, A).into_iter();
    addresses
        .zip(weights)
        .map(|(address, weight)| format!("{address} {weight}"))
        .collect()
}

/// The network of what a registry has is the one that the configuration of networks gives that registry.
#[tokio::test]
async fn endpoints_of_a_cluster_in_another_network_are_reached_by_its_gateways() {
    let (local, east) = (ApiServer::new(), ApiServer::new());
    for (server, address, all) in [
        (&local, "10.96.0.1", &["10.1.0.1"][..]),
        (&east, "10.97.0.1", &["10.2.0.1", "10.2.0.2", "10.2.0.3"]),
    ] {
        server.service("a", address);
        server.endpoints("a", all);
    }
    // One of the gateways is a service there. The local cluster has a gateway of that name, too, which leads into its own network.
    for (server, address, balancer) in [
        (&local, "10.96.0.2", "192.0.2.9"),
        (&east, "10.97.0.2", "192.0.2.2"),
    ] {
        server.put("services", json!({
            "metadata": {"name": "gateway", "namespace": "istio-system"},
            "spec": {"type": "LoadBalancer", "clusterIP": address, "ports": [{"name": "tls", "port": 15443}]},
            "status": {"loadBalancer": {"ingress": [{"ip": balancer}]}},
        }));
    }
    local.knows(&[("east", &east)]);
    let networks = |far: &str| {
        format!(
            "networks:\n  near:\n    endpoints: [{{fromRegistry: Kubernetes}}]\n  far:\n    endpoints: [{{{far}}}]\n    \
             gateways:\n    - {{address: 192.0.2.1, port: 443}}\n    \
             - {{registryServiceName: gateway.istio-system.svc.cluster.local, port: 15443}}\n"
        )
    };
    let place = local
        .place()
        .with("mesh", "enableTracing: false\nenableAutoMtls: true\n")
        .with("networks", &networks("fromRegistry: east"));
    let path = place.path("networks");
    let discovery = place
        .arg(&format!("--networksConfig={}", path.display()))
        .start();

    // With two gateways a direct endpoint weighs twice as much, and each gateway half of the endpoints behind it.
    let by_gateways = ["10.1.0.1:8080 2", "192.0.2.1:443 3", "192.0.2.2:15443 3"];
    let direct = [
        "10.1.0.1:8080 2",
        "10.2.0.1:8080 2",
        "10.2.0.2:8080 2",
        "10.2.0.3:8080 2",
    ];
    let mut streams = Vec::new();
    for (cluster, network, seen) in [
        ("Kubernetes", None, &by_gateways[..]),
        ("Kubernetes", Some("near"), &by_gateways),
        ("Kubernetes", Some("far"), &direct),
        ("east", None, &direct),
        ("east", Some("near"), &by_gateways),
    ] {
        let node = node_in(cluster, network);
        let (stream, eds) = ask(discovery.grpc, node, EDS, &[A]).await;
        assert_eq!(weighed(&eds), seen, "{cluster} {network:?}");
        streams.push(stream);
    }
    let services = discovery.json("/debug/endpointz");
    let all = services.as_array().unwrap().iter();
    let mut of_a = all.filter(|one| one["svc"] == "a.demo.svc.cluster.local:http");
    let of_a = of_a.next().unwrap()["ep"].as_array().unwrap();
    let networks_of: Vec<_> = of_a.iter().map(|one| one["network"].clone()).collect();
    assert_eq!(networks_of, ["near", "far", "far", "far"]);

    // The file is watched: of the cluster only addresses in the range are behind the gateways now. A network that names no
    // cluster takes the service of each.
    discovery
        .place
        .write("networks", &networks("fromCidr: 10.2.0.3/32"));
    let eds = streams[0].hear(EDS).await;
    assert_eq!(
        weighed(&eds),
        [
            "10.1.0.1:8080 3",
            "10.2.0.1:8080 3",
            "10.2.0.2:8080 3",
            "192.0.2.1:443 1",
            "192.0.2.2:15443 1",
            "192.0.2.9:15443 1"
        ]
    );
}
