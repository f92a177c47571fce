//! Limits of connections and requests, and the HTTP that they speak.

use api::config::discovery_notes::is_percentage;
use api::istio::networking::v1alpha3::ConnectionPoolSettings;
use api::istio::networking::v1alpha3::connection_pool_settings::http_settings::H2UpgradePolicy;
use api::istio::networking::v1alpha3::connection_pool_settings::{HttpSettings, TcpSettings};
use api::istio::networking::v1alpha3::traffic_policy::RetryBudget;
use api::model::Protocol;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::{Thresholds, thresholds};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, UpstreamConnectionOptions};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::{Side, positive, time};
use crate::common::upstream_http::{UpstreamHttp, speaking};
use crate::common::{keepalive, wire};
use crate::finish::ClusterParts;

pub(super) fn limit(
    parts: &mut ClusterParts,
    pool: &ConnectionPoolSettings,
    protocol: Protocol,
    side: Side,
) {
    if let Some(settings) = &pool.tcp {
        tcp(&mut parts.cluster, settings);
    }
    if let Some(settings) = &pool.http {
        requests(&mut parts.cluster, settings);
    }
    if protocol.is_http() || protocol.is_auto() {
        http(&mut parts.http, pool, protocol, side);
    }
}

fn tcp(cluster: &mut Cluster, settings: &TcpSettings) {
    if let Some(timeout) = &settings.connect_timeout {
        cluster.connect_timeout = Some(time(timeout));
    }
    if let Some(thresholds) = thresholds(cluster)
        && let Some(max) = positive(settings.max_connections)
    {
        thresholds.max_connections = wire::number(max);
    }
    if let Some(keepalive) = &settings.tcp_keepalive {
        let written = keepalive::keepalive(keepalive);
        let options = cluster.upstream_connection_options.take();
        let usual = options.and_then(|options| options.tcp_keepalive);
        let usual = usual.unwrap_or_default();
        // What the rule leaves open the mesh's keepalive says.
        let both = core::TcpKeepalive {
            keepalive_probes: written.keepalive_probes.or(usual.keepalive_probes),
            keepalive_time: written.keepalive_time.or(usual.keepalive_time),
            keepalive_interval: written.keepalive_interval.or(usual.keepalive_interval),
        };
        cluster.upstream_connection_options = Some(UpstreamConnectionOptions {
            tcp_keepalive: Some(both),
            ..UpstreamConnectionOptions::default()
        });
    }
}

fn requests(cluster: &mut Cluster, settings: &HttpSettings) {
    let Some(thresholds) = thresholds(cluster) else {
        return;
    };
    if let Some(max) = positive(settings.http1_max_pending_requests) {
        thresholds.max_pending_requests = wire::number(max);
    }
    if let Some(max) = positive(settings.http2_max_requests) {
        thresholds.max_requests = wire::number(max);
    }
    if let Some(max) = positive(settings.max_retries) {
        thresholds.max_retries = wire::number(max);
    }
}

/// Share of the requests under way that may be retries where a budget names none, in percent, and retries that may be under way in
/// any case: Envoy's own (circuit_breaker.proto, `RetryBudget`).
const USUAL_BUDGET: (f64, u32) = (20.0, 3);

/// Retries are limited by the requests under way, in place of a number.
pub(super) fn budget(cluster: &mut Cluster, retry_budget: &RetryBudget) {
    let Some(thresholds) = thresholds(cluster) else {
        return;
    };
    let (percent, min) = USUAL_BUDGET;
    let own = retry_budget.percent.as_ref().map(|one| one.value);
    let percent = own.filter(|own| is_percentage(*own)).unwrap_or(percent);
    let min = Some(retry_budget.min_retry_concurrency)
        .filter(|number| *number > 0)
        .unwrap_or(min);
    thresholds.retry_budget = Some(thresholds::RetryBudget {
        budget_percent: Some(Percent { value: percent }),
        budget_interval: retry_budget.budget_interval.as_ref().map(time),
        min_retry_concurrency: wire::number(min),
    });
}

fn thresholds(cluster: &mut Cluster) -> Option<&mut Thresholds> {
    cluster.circuit_breakers.as_mut()?.thresholds.first_mut()
}

fn http(
    options: &mut Option<HttpProtocolOptions>,
    pool: &ConnectionPoolSettings,
    protocol: Protocol,
    side: Side,
) {
    let age = pool.tcp.as_ref();
    let age = age.and_then(|tcp| tcp.max_connection_duration.as_ref());
    let settings = pool.http.as_ref();
    let requests = settings.and_then(|http| positive(http.max_requests_per_connection));
    let idle = settings.and_then(|http| http.idle_timeout.as_ref());
    let of_tcp = pool.tcp.as_ref();
    let idle = idle.or_else(|| of_tcp.and_then(|tcp| tcp.idle_timeout.as_ref()));
    if let Some(http) = settings {
        let is_http1 = protocol.is_http() && !protocol.is_http2();
        let upgrade = http.h2_upgrade_policy();
        if http.use_client_protocol {
            *options = Some(speaking(UpstreamHttp::Clients));
        } else if is_http1 && side == Side::Client {
            match upgrade {
                H2UpgradePolicy::Upgrade => *options = Some(speaking(UpstreamHttp::Http2)),
                // The mesh may want it of all.
                H2UpgradePolicy::DoNotUpgrade => *options = None,
                H2UpgradePolicy::Default => {}
            }
        }
    }
    if age.is_some() || requests.is_some() || idle.is_some() {
        // Envoy requires a protocol among these options; HTTP/1 is what it speaks without them.
        let options = options.get_or_insert_with(|| speaking(UpstreamHttp::Http1));
        options.common_http_protocol_options = Some(core::HttpProtocolOptions {
            idle_timeout: idle.map(time),
            max_connection_duration: age.map(time),
            max_requests_per_connection: requests.and_then(wire::number),
            ..core::HttpProtocolOptions::default()
        });
    }
    if let (Some(http), Some(options)) = (settings, options)
        && let Some(http2) = http2(options)
    {
        if let Some(max) = positive(http.max_concurrent_streams) {
            http2.max_concurrent_streams = wire::number(max);
        }
        let keepalive = http.http2_keep_alive.as_ref();
        http2.connection_keepalive = keepalive.map(|keepalive| core::KeepaliveSettings {
            interval: keepalive.interval.as_ref().map(time),
            timeout: keepalive.timeout.as_ref().map(time),
            ..core::KeepaliveSettings::default()
        });
    }
}

/// The options of HTTP/2, if connections may speak it.
fn http2(options: &mut HttpProtocolOptions) -> Option<&mut core::Http2ProtocolOptions> {
    match options.upstream_protocol_options.as_mut()? {
        UpstreamProtocolOptions::ExplicitHttpConfig(explicit) => {
            match explicit.protocol_config.as_mut()? {
                ProtocolConfig::Http2ProtocolOptions(http2) => Some(http2),
                ProtocolConfig::HttpProtocolOptions(_)
                | ProtocolConfig::Http3ProtocolOptions(_) => None,
            }
        }
        UpstreamProtocolOptions::UseDownstreamProtocolConfig(both) => {
            both.http2_protocol_options.as_mut()
        }
        UpstreamProtocolOptions::AutoConfig(_) => None,
    }
}
