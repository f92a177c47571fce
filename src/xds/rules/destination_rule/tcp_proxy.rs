//! Connections that carry no requests: properties that rules give them where they come in.

use api::istio::networking::v1alpha3::ConnectionPoolSettings;
use api::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::HashKey;
use api::istio::networking::v1alpha3::traffic_policy::TunnelSettings;
use api::model::ObjectRef;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use envoy_types::pb::envoy::r#type::v3::{HashPolicy, hash_policy};

use super::{EffectivePolicy, ServicePolicies, time};
use crate::common::service_ports::ServicePort;
use crate::scope::ProxyRules;

/// Changes what carries connections to these clusters as the rules of the first of them want it; of several clusters nobody knows
/// which one a connection will get. Adds the rules that had a part in it.
pub(crate) fn carry<'a>(
    proxy: &mut TcpProxy,
    rules: &ProxyRules,
    to: impl IntoIterator<Item = &'a str>,
    from: &mut Vec<ObjectRef>,
) {
    let mut to = to.into_iter();
    let Some((service_port, subset)) = to.next().and_then(|name| meant(rules, name)) else {
        return;
    };
    let policies = ServicePolicies::of_service(rules, &service_port.service);
    let subset = Some(subset).filter(|_| to.next().is_none());
    let subset = subset.and_then(|name| policies.subset(name));
    if shape(proxy, &policies.of(subset, service_port.port.number)) {
        from.extend(policies.from(subset));
    }
}

/// The port of a service that a cluster leads to, and the name of its subset.
fn meant<'a>(rules: &'a ProxyRules, cluster: &'a str) -> Option<(&'a ServicePort, &'a str)> {
    let service_ports = rules.service_ports();
    let whole = service_ports
        .by_name(cluster)
        .map(|service_port| (&**service_port, ""));
    let of_subset = || {
        let (service_port, subset) = service_ports.by_subset(cluster)?;
        Some((&**service_port, subset))
    };
    whole.or_else(of_subset)
}

/// False where the policy says nothing of it.
fn shape(proxy: &mut TcpProxy, policy: &EffectivePolicy<'_>) -> bool {
    limit_connections(proxy, policy.pool);
    let key = policy.consistent_hash();
    let key = key.and_then(|hash| hash.hash_key.as_ref());
    if let Some(HashKey::UseSourceIp(true)) = key {
        let source = hash_policy::PolicySpecifier::SourceIp(hash_policy::SourceIp {});
        proxy.hash_policy = vec![HashPolicy {
            policy_specifier: Some(source),
        }];
    }
    proxy.tunneling_config = policy.tunnel.map(tunnel);
    proxy.idle_timeout.is_some()
        || proxy.max_downstream_connection_duration.is_some()
        || !proxy.hash_policy.is_empty()
        || policy.tunnel.is_some()
}

/// Limits the idle time and the lifetime of connections.
pub(crate) fn limit_connections(proxy: &mut TcpProxy, pool: Option<&ConnectionPoolSettings>) {
    let limits = pool.and_then(|pool| pool.tcp.as_ref());
    proxy.idle_timeout = limits.and_then(|tcp| tcp.idle_timeout.as_ref()).map(time);
    let longest = limits.and_then(|tcp| tcp.max_connection_duration.as_ref());
    proxy.max_downstream_connection_duration = longest.map(time);
}

/// A request to another proxy goes before what a client sends.
fn tunnel(tunnel: &TunnelSettings) -> tcp_proxy::TunnelingConfig {
    const POST: &str = "POST";
    let host = &tunnel.target_host;
    let port = tunnel.target_port;
    tcp_proxy::TunnelingConfig {
        hostname: match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        },
        use_post: tunnel.protocol == POST,
        ..tcp_proxy::TunnelingConfig::default()
    }
}
