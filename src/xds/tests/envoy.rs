//! The real Envoy reads everything that is made, each proxy's resources in one bootstrap: what it refuses, no proxy would
//! take from a stream either.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    reason = "a test may panic, and starts Envoy"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::bootstrap::v3::bootstrap::{DynamicResources, StaticResources};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{self as listener, Listener};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier, http_filter,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use xds::node::Dns;
use xds::snapshot::Snapshot;
use xds::view::{Type, View};

fn envoy() -> PathBuf {
    let path = std::env::var_os("PINTLE_ENVOY").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/envoy/envoy-1.40.0"),
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} is missing: run build/envoy first",
        path.display()
    );
    path
}

/// A certificate that signs itself, under the names that a mesh uses.
fn certificates(directory: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=test",
            "-keyout",
            "key.pem",
            "-out",
            "cert-chain.pem",
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let root = directory.join("root-cert.pem");
    std::fs::copy(directory.join("cert-chain.pem"), root).unwrap();
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

fn all<M: Message + Default>(view: &dyn View, kind: Type) -> Vec<M> {
    let set = view.all(kind);
    let decoded = set.iter().map(|resource| {
        let message = M::decode(&*resource.body).unwrap();
        // What is not known to the messages would be lost on the way.
        assert_eq!(message.encoded_len(), resource.body.len(), "{resource:?}");
        message
    });
    decoded.collect()
}

/// A cluster that has these endpoints in it.
fn holding(assignment: ClusterLoadAssignment) -> Cluster {
    Cluster {
        name: format!("endpoints of {}", assignment.cluster_name),
        connect_timeout: Some(envoy_types::pb::google::protobuf::Duration {
            seconds: 1,
            nanos: 0,
        }),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(assignment),
        ..Cluster::default()
    }
}

/// A listener that has these routes in it.
fn routing(number: usize, routes: RouteConfiguration) -> Listener {
    let router = HttpFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(
            any(&Router::default()),
        )),
        ..HttpFilter::default()
    };
    let name = format!("routes of {}", routes.name);
    let manager = HttpConnectionManager {
        stat_prefix: "test".to_owned(),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        http_filters: vec![router],
        ..HttpConnectionManager::default()
    };
    let filter = listener::Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(any(&manager))),
    };
    Listener {
        name,
        address: Some(core::Address {
            address: Some(core::address::Address::SocketAddress(core::SocketAddress {
                address: "127.9.9.9".to_owned(),
                port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                    u32::try_from(20_000 + number).unwrap(),
                )),
                ..core::SocketAddress::default()
            })),
        }),
        filter_chains: vec![listener::FilterChain {
            filters: vec![filter],
            ..listener::FilterChain::default()
        }],
        ..Listener::default()
    }
}

/// What the stream's own cluster is in a proxy's bootstrap.
fn upstream(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        ..holding(ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..ClusterLoadAssignment::default()
        })
    }
}

fn bootstrap(view: &dyn View) -> Bootstrap {
    let mut clusters: Vec<Cluster> = all(view, Type::Cluster);
    let known: Vec<_> = clusters
        .iter()
        .map(|cluster| cluster.name.clone())
        .collect();
    let assignments: Vec<ClusterLoadAssignment> = all(view, Type::Endpoint);
    for assignment in assignments {
        assert!(
            known.contains(&assignment.cluster_name),
            "{}",
            assignment.cluster_name
        );
        clusters.push(holding(assignment));
    }
    clusters.push(upstream("xds-grpc"));
    let mut listeners: Vec<Listener> = all(view, Type::Listener);
    let routes: Vec<RouteConfiguration> = all(view, Type::Route);
    for (number, routes) in routes.into_iter().enumerate() {
        listeners.push(routing(number, routes));
    }
    let service = core::grpc_service::EnvoyGrpc {
        cluster_name: "xds-grpc".to_owned(),
        ..core::grpc_service::EnvoyGrpc::default()
    };
    Bootstrap {
        node: Some(core::Node {
            id: "test".to_owned(),
            cluster: "test".to_owned(),
            ..core::Node::default()
        }),
        static_resources: Some(StaticResources {
            listeners,
            clusters,
            ..StaticResources::default()
        }),
        dynamic_resources: Some(DynamicResources {
            ads_config: Some(core::ApiConfigSource {
                api_type: core::api_config_source::ApiType::Grpc.into(),
                transport_api_version: core::ApiVersion::V3.into(),
                grpc_services: vec![core::GrpcService {
                    target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(service)),
                    ..core::GrpcService::default()
                }],
                ..core::ApiConfigSource::default()
            }),
            ..DynamicResources::default()
        }),
        ..Bootstrap::default()
    }
}

/// How a cluster of names is refreshed, for Envoys that do not say that they know the type of cluster that says it today.
fn is_known(line: &str) -> bool {
    let names = ["Cluster.dns_refresh_rate'", "Cluster.respect_dns_ttl'"];
    line.contains("Deprecated field") && names.iter().any(|name| line.contains(name))
}

#[test]
fn envoy_takes_what_every_kind_of_proxy_is_given() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let envoy = envoy();
    let mut failed = Vec::new();
    let path = directory.path().to_str().unwrap();
    let rows = support::rows(path).into_iter();
    for row in rows.chain([support::patched(path)]) {
        let snapshot = Snapshot::new(row.world, support::settings());
        for dns in [Dns::ClusterType, Dns::Fields] {
            let mut node = (*row.node).clone();
            node.dns = dns;
            let view = snapshot.view(&Arc::new(node));
            let path = directory.path().join(format!("{}.pb", row.name));
            std::fs::write(&path, bootstrap(&*view).encode_to_vec()).unwrap();
            let run = Command::new(&envoy)
                .args([
                    "--mode",
                    "validate",
                    "--log-level",
                    "warning",
                    "--config-path",
                ])
                .arg(&path)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            println!("{}: {} clusters", row.name, view.all(Type::Cluster).len());
            let is_known = |line: &&str| dns == Dns::Fields && is_known(line);
            let complaints: Vec<_> = said.lines().filter(|line| !is_known(line)).collect();
            if !run.status.success() || !complaints.is_empty() {
                failed.push(format!("{}, {dns:?}: {}", row.name, complaints.join("\n")));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Whether Envoy takes all of a proxy's resources; else why not.
fn takes(envoy: &Path, file: &Path, view: &dyn View) -> Result<(), String> {
    std::fs::write(file, bootstrap(view).encode_to_vec()).unwrap();
    let run = Command::new(envoy)
        .args([
            "--mode",
            "validate",
            "--log-level",
            "warning",
            "--config-path",
        ])
        .arg(file)
        .output()
        .unwrap();
    if run.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&run.stderr).into_owned())
}

/// One rule that Envoy refuses takes the routes of all services from every proxy that sees it: what it would refuse is refused
/// by the rules, or is made of nothing.
#[test]
fn envoy_takes_whatever_the_rules_let_through() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let certificates = directory.path().to_str().unwrap();
    let envoy = envoy();
    let file = directory.path().join("rules.pb");
    let mut wrong = Vec::new();
    for (kind, spec) in support::edges() {
        let Some(row) = support::with_rule(kind, &spec, certificates) else {
            continue;
        };
        let snapshot = Snapshot::new(row.world, support::settings());
        if let Err(why) = takes(&envoy, &file, &*snapshot.view(&row.node)) {
            let spec = &spec[..spec.len().min(300)];
            wrong.push(format!("{kind} {spec}\n  {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
