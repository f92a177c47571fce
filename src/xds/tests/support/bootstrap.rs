//! All that a proxy is given, in one bootstrap: the real Envoy reads it at once.

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
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, Secret, UpstreamTlsContext, secret,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use xds::view::{Type, View};

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

/// Returns the stream's own cluster, as it is in a proxy's bootstrap.
fn upstream(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        ..holding(ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..ClusterLoadAssignment::default()
        })
    }
}

/// The secret of this name, as the stream sends it.
fn secret(view: &dyn View, name: &str) -> secret::Type {
    let resource = view.get(Type::Secret, name).unwrap();
    Secret::decode(&*resource.body).unwrap().r#type.unwrap()
}

/// With the secrets in the place of their names.
fn with_secrets(view: &dyn View, context: &mut CommonTlsContext) {
    for one in std::mem::take(&mut context.tls_certificate_sds_secret_configs) {
        let secret::Type::TlsCertificate(pair) = secret(view, &one.name) else {
            panic!("{} is no certificate", one.name);
        };
        context.tls_certificates.push(pair);
    }
    let Some(ValidationContextType::CombinedValidationContext(both)) =
        &context.validation_context_type
    else {
        return;
    };
    let name = &both
        .validation_context_sds_secret_config
        .as_ref()
        .unwrap()
        .name;
    let secret::Type::ValidationContext(root) = secret(view, name) else {
        panic!("{name} is no root");
    };
    let mut merged = both.default_validation_context.clone().unwrap();
    merged.merge(&*root.encode_to_vec()).unwrap();
    context.validation_context_type = Some(ValidationContextType::ValidationContext(merged));
}

/// Envoy 1.40 ends with a segmentation fault where a cluster *of a bootstrap* asks for a secret by ADS; one of CDS may.
fn secure(view: &dyn View, socket: &mut core::TransportSocket) {
    let Some(core::transport_socket::ConfigType::TypedConfig(config)) = &mut socket.config_type
    else {
        return;
    };
    if config.type_url == UpstreamTlsContext::type_url() {
        let mut tls = UpstreamTlsContext::decode(&*config.value).unwrap();
        with_secrets(view, tls.common_tls_context.as_mut().unwrap());
        *config = any(&tls);
    } else if config.type_url == ProxyProtocolUpstreamTransport::type_url() {
        let mut announced = ProxyProtocolUpstreamTransport::decode(&*config.value).unwrap();
        secure(view, announced.transport_socket.as_mut().unwrap());
        *config = any(&announced);
    }
}

pub fn bootstrap(view: &dyn View) -> Bootstrap {
    let mut clusters: Vec<Cluster> = all(view, Type::Cluster);
    for socket in clusters
        .iter_mut()
        .filter_map(|one| one.transport_socket.as_mut())
    {
        secure(view, socket);
    }
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
