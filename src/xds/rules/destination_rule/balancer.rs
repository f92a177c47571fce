//! Load balancing over the endpoints of a cluster.

use api::config::discovery_notes::{is_cookie_attribute, is_header_name, is_table, largest_ring};
use api::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::{
    HashAlgorithm, HashKey, http_cookie::Attribute,
};
use api::istio::networking::v1alpha3::load_balancer_settings::{ConsistentHashLb, SimpleLb};
use api::istio::networking::v1alpha3::{LoadBalancerSettings, ZoneAwareLoadBalancerSetting};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    CommonLbConfig, LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig,
    RoundRobinLbConfig, SlowStartConfig, common_lb_config,
};
use envoy_types::pb::envoy::config::core::v3::RuntimeDouble;
use envoy_types::pb::envoy::config::route::v3::route_action::{HashPolicy, hash_policy};
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::UInt64Value;

use super::{EffectivePolicy, time};

/// Size of a ring for which no rule says another (the same as Envoy's own).
const MIN_RING_SIZE: u64 = 1024;
/// The runtime key that Envoy wants beside a value; no operator can set it by such a name, as Istio's.
const NO_RUNTIME_KEY: &str = "(";

/// A program with gRPC in it takes turns or a ring, and refuses all else. `clusters`: as many as its service has.
pub(super) fn balance(
    cluster: &mut Cluster,
    policy: &EffectivePolicy<'_>,
    clusters: usize,
    grpc: bool,
) {
    // It leads where the client wanted to go: there is nothing to choose.
    if cluster.lb_policy == i32::from(LbPolicy::ClusterProvided) {
        return;
    }
    if let Some(zones) = policy.zones().filter(|_| !grpc) {
        let usual = cluster.common_lb_config.take().unwrap_or_default();
        cluster.common_lb_config = Some(CommonLbConfig {
            locality_config_specifier: Some(by_zones(zones)),
            ..usual
        });
    }
    let simple = match policy.simple() {
        SimpleLb::Unspecified => None,
        SimpleLb::RoundRobin => Some(LbPolicy::RoundRobin),
        SimpleLb::LeastConn | SimpleLb::LeastRequest => Some(LbPolicy::LeastRequest),
        SimpleLb::Random => Some(LbPolicy::Random),
        // Where it can be had, the cluster is made so.
        SimpleLb::Passthrough => None,
    };
    if let Some(simple) = simple.filter(|simple| !grpc || *simple == LbPolicy::RoundRobin) {
        cluster.lb_policy = simple.into();
    }
    if !grpc && let Some(slow_start) = policy.balancer.and_then(slow_start) {
        cluster.lb_config = warming(cluster.lb_policy(), slow_start);
    }
    if let Some(hash) = policy.consistent_hash() {
        let (kind, config) = consistent_hash(hash, clusters, grpc);
        cluster.lb_policy = kind.into();
        cluster.lb_config = Some(config);
    }
}

/// The table or the ring of a consistent hash.
fn consistent_hash(hash: &ConsistentHashLb, clusters: usize, grpc: bool) -> (LbPolicy, LbConfig) {
    let ring_size = match &hash.hash_algorithm {
        Some(HashAlgorithm::Maglev(maglev)) if !grpc => {
            let size = Some(maglev.table_size);
            // A table beyond the share of the service's clusters is as large as Envoy's own.
            let size = size.filter(|size| *size > 0 && is_table(*size, clusters));
            let config = MaglevLbConfig {
                table_size: size.map(|value| UInt64Value { value }),
            };
            return (LbPolicy::Maglev, LbConfig::MaglevLbConfig(config));
        }
        Some(HashAlgorithm::RingHash(ring)) => ring.minimum_ring_size,
        Some(HashAlgorithm::Maglev(_)) | None => hash.minimum_ring_size,
    };
    let size = if ring_size > 0 {
        ring_size
    } else {
        MIN_RING_SIZE
    };
    let largest = largest_ring(clusters);
    let config = RingHashLbConfig {
        minimum_ring_size: Some(UInt64Value {
            value: size.min(largest),
        }),
        // An endpoint that weighs little has its place in it, too, however large it becomes by that.
        maximum_ring_size: Some(UInt64Value { value: largest }),
        ..RingHashLbConfig::default()
    };
    (LbPolicy::RingHash, LbConfig::RingHashLbConfig(config))
}

/// A proxy whose bootstrap names the cluster that it is itself in balances zones by this; others take it and do not.
fn by_zones(setting: &ZoneAwareLoadBalancerSetting) -> common_lb_config::LocalityConfigSpecifier {
    let is_off = setting.enabled.as_ref().is_some_and(|on| !on.value);
    let zones = common_lb_config::ZoneAwareLbConfig {
        routing_enabled: is_off.then_some(Percent { value: 0.0 }),
        min_cluster_size: setting
            .min_cluster_size
            .map(|size| UInt64Value { value: size.value }),
        ..common_lb_config::ZoneAwareLbConfig::default()
    };
    common_lb_config::LocalityConfigSpecifier::ZoneAwareLbConfig(zones)
}

/// Returns the property by which requests to a destination are spread: a route carries it, for the balancer of its cluster.
pub(crate) fn hash_policy(policy: &EffectivePolicy<'_>) -> Option<HashPolicy> {
    use hash_policy::PolicySpecifier;
    let specifier = match policy.consistent_hash()?.hash_key.as_ref()? {
        HashKey::HttpHeaderName(name) | HashKey::HttpQueryParameterName(name)
            if !is_header_name(name) =>
        {
            return None;
        }
        HashKey::HttpHeaderName(name) => PolicySpecifier::Header(hash_policy::Header {
            header_name: name.clone(),
            ..hash_policy::Header::default()
        }),
        HashKey::HttpCookie(cookie) => PolicySpecifier::Cookie(hash_policy::Cookie {
            name: cookie.name.clone(),
            path: cookie.path.clone(),
            ttl: cookie.ttl.as_ref().map(time),
            attributes: cookie.attributes.iter().filter_map(attribute).collect(),
        }),
        HashKey::UseSourceIp(wanted) => {
            wanted.then_some(())?;
            PolicySpecifier::ConnectionProperties(hash_policy::ConnectionProperties {
                source_ip: true,
            })
        }
        HashKey::HttpQueryParameterName(name) => {
            PolicySpecifier::QueryParameter(hash_policy::QueryParameter { name: name.clone() })
        }
    };
    Some(HashPolicy {
        policy_specifier: Some(specifier),
        ..HashPolicy::default()
    })
}

/// Envoy refuses all routes of the port for one that would end the header's line, or that is too long.
fn attribute(attribute: &Attribute) -> Option<hash_policy::CookieAttribute> {
    let is_taken = is_cookie_attribute(&attribute.name, &attribute.value);
    is_taken.then(|| hash_policy::CookieAttribute {
        name: attribute.name.clone(),
        value: attribute.value.clone(),
    })
}

/// New endpoints get a growing share of the requests for that long. `warmupDurationSecs` is the older name.
fn slow_start(balancer: &LoadBalancerSettings) -> Option<SlowStartConfig> {
    let Some(warmup) = &balancer.warmup else {
        return Some(SlowStartConfig {
            slow_start_window: Some(time(balancer.warmup_duration_secs.as_ref()?)),
            ..SlowStartConfig::default()
        });
    };
    Some(SlowStartConfig {
        slow_start_window: Some(time(warmup.duration.as_ref()?)),
        aggression: warmup.aggression.as_ref().map(|number| RuntimeDouble {
            default_value: number.value,
            runtime_key: NO_RUNTIME_KEY.to_owned(),
        }),
        min_weight_percent: warmup.minimum_percent.as_ref().map(|percent| Percent {
            value: percent.value,
        }),
    })
}

/// Envoy warms endpoints under these balancers alone.
fn warming(balancer: LbPolicy, slow_start: SlowStartConfig) -> Option<LbConfig> {
    match balancer {
        LbPolicy::RoundRobin => Some(LbConfig::RoundRobinLbConfig(RoundRobinLbConfig {
            slow_start_config: Some(slow_start),
        })),
        LbPolicy::LeastRequest => Some(LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
            slow_start_config: Some(slow_start),
            ..LeastRequestLbConfig::default()
        })),
        LbPolicy::RingHash
        | LbPolicy::Random
        | LbPolicy::Maglev
        | LbPolicy::ClusterProvided
        | LbPolicy::LoadBalancingPolicyConfig => None,
    }
}
