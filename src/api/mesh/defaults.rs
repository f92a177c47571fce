//! Defaults of the mesh configuration.

use crate::google::protobuf::{BoolValue, Duration};

use super::mesh_config::outbound_traffic_policy::Mode;
use super::mesh_config::{IngressControllerMode, OutboundTrafficPolicy};
use super::{AuthenticationPolicy, MeshConfig, ProxyConfig, proxy_config};

/// The defaults of a mesh configuration.
#[must_use]
pub fn mesh_config() -> MeshConfig {
    MeshConfig {
        proxy_listen_port: 15001,
        proxy_inbound_listen_port: 15006,
        connect_timeout: seconds(1),
        root_namespace: "istio-system".to_owned(),
        access_log_file: "/dev/stdout".to_owned(),
        enable_tracing: true,
        enable_prometheus_merge: Some(BoolValue { value: true }),
        default_config: Some(proxy_config()),
        ..MeshConfig::default()
    }
}

/// The defaults of discovery: with fields that the injector does not read, and no access log unless the file asks for one.
#[must_use]
pub fn discovery() -> MeshConfig {
    MeshConfig {
        access_log_file: String::new(),
        protocol_detection_timeout: Some(Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
        dns_refresh_rate: seconds(5),
        outbound_traffic_policy: Some(OutboundTrafficPolicy {
            mode: Mode::AllowAny.into(),
            ..OutboundTrafficPolicy::default()
        }),
        ..mesh_config()
    }
}

/// The defaults that galley takes and serves.
#[must_use]
pub fn galley() -> MeshConfig {
    let everywhere = || vec!["*".to_owned()];
    MeshConfig {
        proxy_inbound_listen_port: 0,
        enable_prometheus_merge: None,
        ingress_service: "istio-ingressgateway".to_owned(),
        ingress_class: "istio".to_owned(),
        ingress_controller_mode: IngressControllerMode::Strict.into(),
        default_service_export_to: everywhere(),
        default_virtual_service_export_to: everywhere(),
        default_destination_rule_export_to: everywhere(),
        trust_domain: "cluster.local".to_owned(),
        enable_auto_mtls: Some(BoolValue { value: false }),
        default_config: Some(ProxyConfig {
            termination_drain_duration: None,
            connect_timeout: None,
            status_port: 0,
            ..proxy_config()
        }),
        ..discovery()
    }
}

/// The defaults of one proxy's configuration.
#[must_use]
pub fn proxy_config() -> ProxyConfig {
    ProxyConfig {
        config_path: "/etc/istio/proxy".to_owned(),
        binary_path: "/usr/local/bin/envoy".to_owned(),
        cluster_name: Some(proxy_config::ClusterName::ServiceCluster(
            "istio-proxy".to_owned(),
        )),
        drain_duration: seconds(45),
        parent_shutdown_duration: seconds(60),
        termination_drain_duration: seconds(5),
        discovery_address: "istio-pilot:15010".to_owned(),
        connect_timeout: seconds(1),
        proxy_admin_port: 15000,
        status_port: 15020,
        control_plane_auth_policy: AuthenticationPolicy::None.into(),
        stat_name_length: 189,
        interception_mode: proxy_config::InboundInterceptionMode::Redirect.into(),
        ..ProxyConfig::default()
    }
}

fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}
