//! The mesh configuration as the generators use it: read once for each snapshot.

use std::time::Duration;

use api::istio::mesh::v1alpha1::mesh_config::proxy_path_normalization::NormalizationType;
use api::istio::mesh::v1alpha1::mesh_config::tls_config::TlsProtocol as Written;
use api::istio::mesh::v1alpha1::mesh_config::{
    AuthPolicy, H2UpgradePolicy, ProxyPathNormalization, TlsConfig,
};
use api::mesh::MeshConfig;
use envoy_types::pb::envoy::config::core::v3::TcpKeepalive;
use envoy_types::pb::envoy::config::route::v3::RetryPolicy;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;

use super::access_log::AccessLog;
use super::log_service::LogService;
use crate::common::keepalive::{duration, keepalive};
use crate::common::retries;
use crate::rules::peer_authentication::MtlsMode;
use crate::rules::virtual_service;
use crate::settings::{DnsRefresh, Settings};

/// The mesh's setting for mutual TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutualTls {
    Off,
    /// Every client and server that can speak it.
    Auto,
    /// Mutual TLS alone, of every client and server.
    Strict,
}

/// The mesh configuration that all resources of a snapshot share.
#[derive(Clone, Debug)]
pub(crate) struct Mesh {
    pub(crate) connect_timeout: Duration,
    pub(crate) detection_timeout: Duration,
    /// The time for which inbound listeners wait for the first bytes.
    pub(crate) inbound_detection_timeout: Duration,
    pub(crate) dns_refresh_rate: Duration,
    pub(crate) dns_refresh: DnsRefresh,
    pub(crate) keepalive: Option<TcpKeepalive>,
    pub(crate) listen_port: u16,
    /// Ports of the admin page and the status page of a proxy that says nothing else.
    pub(crate) proxy_ports: [u16; 2],
    /// 0: none.
    pub(crate) http_port: u16,
    pub(crate) tls: MutualTls,
    /// A policy makes a workload take mutual TLS, whatever the mesh does.
    pub(crate) tls_by_policies: bool,
    pub(crate) access_log: AccessLog,
    pub(crate) log_service: Option<LogService>,
    /// Percent, where there is tracing.
    pub(crate) tracing: Option<f64>,
    pub(crate) outbound_stat: String,
    pub(crate) inbound_stat: String,
    pub(crate) initial_fetch_timeout: Duration,
    pub(crate) http10: bool,
    /// Proxies in front of routers whose word on the client's address counts, as far as a router says nothing else.
    pub(crate) trusted_proxies: u32,
    /// The normalization of request paths, before routes and policies see them.
    pub(crate) paths: NormalizationType,
    /// The oldest TLS that servers take in mutual TLS of the mesh; `TlsAuto`: Envoy's own.
    pub(crate) oldest_tls: TlsProtocol,
    /// The retry policy of routes for which no rule has another; `None`: they are not tried again.
    pub(crate) retries: Option<RetryPolicy>,
    /// Clients speak HTTP/2 to ports of HTTP/1.
    pub(crate) upgrades_http: bool,
}

impl Mesh {
    pub(crate) fn new(mesh: &MeshConfig, settings: &Settings) -> Self {
        let auto = mesh.enable_auto_mtls.as_ref().is_some_and(|on| on.value);
        let detection_timeout = or(
            mesh.protocol_detection_timeout.as_ref(),
            Duration::from_millis(100),
        );
        Self {
            connect_timeout: or(mesh.connect_timeout.as_ref(), Duration::from_secs(1)),
            detection_timeout,
            inbound_detection_timeout: settings
                .inbound_detection_timeout
                .unwrap_or(detection_timeout),
            dns_refresh_rate: or(mesh.dns_refresh_rate.as_ref(), Duration::from_secs(5)),
            dns_refresh: settings.dns_refresh,
            keepalive: mesh.tcp_keepalive.as_ref().map(keepalive),
            listen_port: port(mesh.proxy_listen_port),
            proxy_ports: mesh.default_config.as_ref().map_or([0; 2], |proxy| {
                [proxy.proxy_admin_port, proxy.status_port].map(port)
            }),
            http_port: port(mesh.proxy_http_port),
            tls: match (mesh.auth_policy(), auto) {
                (AuthPolicy::MutualTls, _) => MutualTls::Strict,
                (AuthPolicy::None, true) => MutualTls::Auto,
                (AuthPolicy::None, false) => MutualTls::Off,
            },
            tls_by_policies: false,
            access_log: AccessLog::new(mesh),
            log_service: LogService::new(mesh),
            tracing: mesh.enable_tracing.then_some(settings.trace_sampling),
            outbound_stat: mesh.outbound_cluster_stat_name.clone(),
            inbound_stat: mesh.inbound_cluster_stat_name.clone(),
            initial_fetch_timeout: settings.initial_fetch_timeout,
            http10: settings.http10,
            trusted_proxies: mesh
                .default_config
                .as_ref()
                .and_then(|proxy| proxy.gateway_topology.as_ref())
                .map_or(0, |topology| topology.num_trusted_proxies),
            paths: mesh.path_normalization.as_ref().map_or_else(
                NormalizationType::default,
                ProxyPathNormalization::normalization,
            ),
            oldest_tls: match mesh
                .mesh_m_tls
                .as_ref()
                .map(TlsConfig::min_protocol_version)
            {
                Some(Written::Tlsv12) => TlsProtocol::TlSv12,
                Some(Written::Tlsv13) => TlsProtocol::TlSv13,
                Some(Written::TlsAuto) | None => TlsProtocol::TlsAuto,
            },
            retries: match &mesh.default_http_retry_policy {
                Some(policy) => virtual_service::retry_policy(policy),
                None => Some(retries::retries()),
            },
            upgrades_http: mesh.h2_upgrade_policy() == H2UpgradePolicy::Upgrade,
        }
    }
}

impl Mesh {
    /// Returns true if clients speak mutual TLS to any of the mesh's workloads.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls != MutualTls::Off || self.tls_by_policies
    }

    /// The mode of a workload without a policy. `takes_tls`: it could take mutual TLS.
    pub(crate) const fn usual_mode(&self, takes_tls: bool) -> MtlsMode {
        match self.tls {
            MutualTls::Auto if takes_tls => MtlsMode::Permissive,
            MutualTls::Auto | MutualTls::Off => MtlsMode::Disable,
            MutualTls::Strict => MtlsMode::Strict,
        }
    }
}

fn or(chosen: Option<&api::mesh::Duration>, usual: Duration) -> Duration {
    chosen.and_then(duration).unwrap_or(usual)
}

/// Checked when it was read.
fn port(number: i32) -> u16 {
    u16::try_from(number).unwrap_or(0)
}
