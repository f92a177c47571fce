//! Filters of chains: connection managers and proxies of plain connections.

use std::sync::Arc;
use std::time::Duration;

use api::istio::mesh::v1alpha1::mesh_config::proxy_path_normalization::NormalizationType;
use api::model::ObjectRef;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::Cors;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::extensions::filters::http::grpc_stats::v3::FilterConfig as GrpcStats;
use envoy_types::pb::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use envoy_types::pb::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager,
};
use envoy_types::pb::envoy::extensions::filters::network::sni_cluster::v3::SniCluster;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, UpstreamConnectMode, tcp_proxy,
};
use envoy_types::pb::envoy::r#type::v3::Percent;
use prost::{Message, Name};

use super::mesh::Mesh;
use crate::common::wire;
use crate::resources::clusters::BLACK_HOLE;
use crate::rules::{authorization_policy, destination_rule};
use crate::scope::ProxyRules;

/// Bytes of a connection that are kept until its server is connected: a ClientHello.
const EARLY_BYTES: u32 = 16 << 10;

/// The properties of a proxy that its connection managers depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HttpOptions {
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) http10: bool,
}

/// The optional filters that requests pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras<'a> {
    /// In front of all others.
    pub(crate) first: &'a [HttpFilter],
    pub(crate) grpc_web: bool,
    pub(crate) grpc_stats: bool,
    pub(crate) class: ListenerClass,
    /// Proxies in front of an edge whose entries in `x-forwarded-for` are believed.
    pub(crate) trusted_proxies: u32,
}

/// The place where requests come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListenerClass {
    /// From the application beside the proxy.
    #[default]
    SidecarOutbound,
    /// The application is next: it is told of the client's certificate, after those that proxies before have told of.
    SidecarInbound,
    /// Clients are outside of the mesh: their addresses count, and what they say of their certificates does not.
    Router,
}

/// The source of a connection manager's routes.
pub(crate) enum RouteSpecifier {
    Named(String),
    Inside(Box<RouteConfiguration>),
}

pub(crate) fn http(
    mesh: &Mesh,
    options: HttpOptions,
    stat_prefix: String,
    routes: RouteSpecifier,
    extras: Extras<'_>,
) -> listener::Filter {
    let merges_slashes = matches!(
        mesh.paths,
        NormalizationType::MergeSlashes | NormalizationType::DecodeAndMergeSlashes
    );
    let manager = HttpConnectionManager {
        codec_type: http_connection_manager::CodecType::Auto.into(),
        stat_prefix,
        route_specifier: Some(specifier(mesh, routes)),
        http_filters: http_filters(extras),
        forward_client_cert_details: match extras.class {
            ListenerClass::Router => {
                http_connection_manager::ForwardClientCertDetails::SanitizeSet.into()
            }
            // Of a client without a certificate Envoy takes the header away.
            ListenerClass::SidecarInbound => {
                http_connection_manager::ForwardClientCertDetails::AppendForward.into()
            }
            ListenerClass::SidecarOutbound => 0,
        },
        set_current_client_cert_details: (extras.class != ListenerClass::SidecarOutbound)
            .then(client_certificate),
        tracing: mesh.tracing.map(tracing),
        generate_request_id: mesh.tracing.and(wire::boolean(true)),
        common_http_protocol_options: options.idle_timeout.map(|timeout| {
            core::HttpProtocolOptions {
                idle_timeout: Some(wire::duration(timeout)),
                ..core::HttpProtocolOptions::default()
            }
        }),
        http_protocol_options: (options.http10 || mesh.http10).then(|| {
            core::Http1ProtocolOptions {
                accept_http_10: true,
                ..core::Http1ProtocolOptions::default()
            }
        }),
        http2_protocol_options: Some(http2()),
        // Envoy's own five minutes would cut streams that are quiet.
        stream_idle_timeout: Some(wire::duration(Duration::ZERO)),
        access_log: mesh.access_log.http.clone(),
        use_remote_address: wire::boolean(extras.class == ListenerClass::Router),
        xff_num_trusted_hops: extras.trusted_proxies,
        normalize_path: wire::boolean(mesh.paths != NormalizationType::None),
        merge_slashes: merges_slashes,
        path_with_escaped_slashes_action: match mesh.paths {
            NormalizationType::DecodeAndMergeSlashes => {
                http_connection_manager::PathWithEscapedSlashesAction::UnescapeAndForward.into()
            }
            NormalizationType::Default
            | NormalizationType::None
            | NormalizationType::Base
            | NormalizationType::MergeSlashes => 0,
        },
        upgrade_configs: vec![http_connection_manager::UpgradeConfig {
            upgrade_type: "websocket".to_owned(),
            ..http_connection_manager::UpgradeConfig::default()
        }],
        ..HttpConnectionManager::default()
    };
    wire::filter("envoy.filters.network.http_connection_manager", &manager)
}

/// A client's Envoy sends a WebSocket over HTTP/2 as an extended CONNECT (RFC 8441), among the streams of others: without
/// `allow_connect` Envoy ends the whole connection for it, and all requests on it. Another message that is no request ends its
/// own stream alone, for the same reason.
fn http2() -> core::Http2ProtocolOptions {
    core::Http2ProtocolOptions {
        allow_connect: true,
        override_stream_error_on_invalid_http_message: wire::boolean(true),
        ..core::Http2ProtocolOptions::default()
    }
}

/// The parts of a client's certificate that applications receive.
fn client_certificate() -> http_connection_manager::SetCurrentClientCertDetails {
    http_connection_manager::SetCurrentClientCertDetails {
        subject: wire::boolean(true),
        uri: true,
        dns: true,
        ..http_connection_manager::SetCurrentClientCertDetails::default()
    }
}

fn specifier(mesh: &Mesh, routes: RouteSpecifier) -> http_connection_manager::RouteSpecifier {
    match routes {
        RouteSpecifier::Named(name) => http_connection_manager::RouteSpecifier::Rds(Rds {
            config_source: Some(wire::ads(mesh.initial_fetch_timeout)),
            route_config_name: name,
        }),
        RouteSpecifier::Inside(routes) => {
            http_connection_manager::RouteSpecifier::RouteConfig(*routes)
        }
    }
}

fn http_filters(extras: Extras<'_>) -> Vec<HttpFilter> {
    let mut filters = extras.first.to_vec();
    if extras.grpc_web {
        filters.push(http_filter("envoy.filters.http.grpc_web", &GrpcWeb {}));
    }
    if extras.grpc_stats {
        let stats = GrpcStats::default();
        filters.push(http_filter("envoy.filters.http.grpc_stats", &stats));
    }
    // Routes switch cors and fault on for themselves, so every chain has the two filters.
    filters.push(http_filter("envoy.filters.http.cors", &Cors {}));
    filters.push(http_filter(
        "envoy.filters.http.fault",
        &HttpFault::default(),
    ));
    // Envoy refuses a chain whose last filter does not end it.
    filters.push(router());
    filters
}

fn http_filter<M: Message + Name>(name: &str, message: &M) -> HttpFilter {
    wire::http_filter(name, wire::any(message))
}

fn router() -> HttpFilter {
    http_filter("envoy.filters.http.router", &Router::default())
}

/// Builds the connection manager of proxyless gRPC.
pub(crate) fn grpc(mesh: &Mesh, routes: String) -> HttpConnectionManager {
    HttpConnectionManager {
        route_specifier: Some(specifier(mesh, RouteSpecifier::Named(routes))),
        http_filters: vec![router()],
        ..HttpConnectionManager::default()
    }
}

/// Tracing by the bootstrap's provider. `random`: percent of requests.
fn tracing(random: f64) -> http_connection_manager::Tracing {
    let percent = |value| Some(Percent { value });
    http_connection_manager::Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(random),
        overall_sampling: percent(100.0),
        ..http_connection_manager::Tracing::default()
    }
}

pub(crate) fn tcp(mesh: &Mesh, cluster: &str) -> listener::Filter {
    tcp_filter(&tcp_proxy_to(mesh, cluster, &[(cluster.into(), 0)]))
}

/// Returns the proxy of connections to several clusters by their weights, or to one. `name`: of its statistics.
pub(crate) fn tcp_proxy_to(mesh: &Mesh, name: &str, to: &[(Arc<str>, u32)]) -> TcpProxy {
    let cluster = match to {
        [(only, _)] => tcp_proxy::ClusterSpecifier::Cluster(only.to_string()),
        all => {
            let clusters =
                all.iter().map(
                    |(name, weight)| tcp_proxy::weighted_cluster::ClusterWeight {
                        name: name.to_string(),
                        weight: *weight,
                        ..Default::default()
                    },
                );
            tcp_proxy::ClusterSpecifier::WeightedClusters(tcp_proxy::WeightedCluster {
                clusters: clusters.collect(),
            })
        }
    };
    TcpProxy {
        stat_prefix: name.to_owned(),
        cluster_specifier: Some(cluster),
        access_log: mesh.access_log.tcp.clone(),
        ..TcpProxy::default()
    }
}

pub(crate) fn tcp_filter(proxy: &TcpProxy) -> listener::Filter {
    wire::filter("envoy.filters.network.tcp_proxy", proxy)
}

/// Builds a TCP proxy as the rules for its clusters want it. Adds the rules that had a part in it.
pub(crate) fn tcp_to(
    (mesh, rules): (&Mesh, &ProxyRules),
    name: &str,
    to: &[(Arc<str>, u32)],
    from: &mut Vec<ObjectRef>,
) -> listener::Filter {
    let mut proxy = tcp_proxy_to(mesh, name, to);
    let names = to.iter().map(|(name, _)| &**name);
    destination_rule::carry(&mut proxy, rules, names, from);
    tcp_filter(&proxy)
}

/// Builds the filters that lead TLS on to the cluster that its server name is. Clusters for that alone can be named: the proxy would
/// speak mutual TLS to the others, as itself, for whoever knows their names.
pub(crate) fn by_server_name(mesh: &Mesh) -> [listener::Filter; 3] {
    // `sni_cluster` replaces the cluster behind it; without a server name it is the black hole.
    let mut proxy = tcp_proxy_to(mesh, BLACK_HOLE, &[(BLACK_HOLE.into(), 0)]);
    // RBAC decides when the first bytes come: no server is called before.
    proxy.set_upstream_connect_mode(UpstreamConnectMode::OnDownstreamData);
    proxy.max_early_data_bytes = wire::number(EARLY_BYTES);
    [
        authorization_policy::by_server_name(),
        wire::filter("envoy.filters.network.sni_cluster", &SniCluster {}),
        tcp_filter(&proxy),
    ]
}

pub(crate) fn tls_inspector() -> listener::ListenerFilter {
    wire::listener_filter(
        "envoy.filters.listener.tls_inspector",
        &TlsInspector::default(),
    )
}

pub(crate) fn http_inspector() -> listener::ListenerFilter {
    wire::listener_filter("envoy.filters.listener.http_inspector", &HttpInspector {})
}

pub(crate) fn original_dst() -> listener::ListenerFilter {
    wire::listener_filter("envoy.filters.listener.original_dst", &OriginalDst {})
}
