//! Clusters of names: the cluster's own fields say how those are looked up, and for Envoy since 1.34 a cluster type does, beside
//! which the fields count nothing.

#![allow(
    deprecated,
    reason = "Envoy before 1.34 knows nothing else, gives the fields up with a release of its own, and patches are written in them"
)]

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, DiscoveryType, DnsLookupFamily, RefreshRate,
};
use envoy_types::pb::envoy::extensions::clusters::common::dns::v3 as common;
use envoy_types::pb::envoy::extensions::clusters::dns::v3::{DnsCluster, dns_cluster};
use prost::Message;

use super::wire;

/// The name of the extension.
const DNS_CLUSTER: &str = "envoy.cluster.dns";

/// Makes it one of names by its own fields. `logical`: of all that a name leads to, one is used at a time.
pub(crate) fn set_type(cluster: &mut Cluster, logical: bool) {
    let kind = match logical {
        true => DiscoveryType::LogicalDns,
        false => DiscoveryType::StrictDns,
    };
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind.into()));
}

/// Moves the cluster type's fields to the cluster. False: it has not that type, and is as it was.
pub(crate) fn to_fields(cluster: &mut Cluster) -> bool {
    let Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
        name,
        typed_config: Some(typed),
    })) = &cluster.cluster_discovery_type
    else {
        return false;
    };
    let read = DnsCluster::decode(&*typed.value);
    let Some(own) = read.ok().filter(|own| {
        // The cluster has no such field.
        name == DNS_CLUSTER && own.dns_min_refresh_rate.is_none()
    }) else {
        return false;
    };
    cluster.dns_lookup_family = match own.dns_lookup_family() {
        common::DnsLookupFamily::Unspecified | common::DnsLookupFamily::Auto => {
            DnsLookupFamily::Auto
        }
        common::DnsLookupFamily::V4Only => DnsLookupFamily::V4Only,
        common::DnsLookupFamily::V6Only => DnsLookupFamily::V6Only,
        common::DnsLookupFamily::V4Preferred => DnsLookupFamily::V4Preferred,
        common::DnsLookupFamily::All => DnsLookupFamily::All,
    }
    .into();
    cluster.dns_refresh_rate = own.dns_refresh_rate;
    cluster.dns_failure_refresh_rate = own.dns_failure_refresh_rate.map(|rate| RefreshRate {
        base_interval: rate.base_interval,
        max_interval: rate.max_interval,
    });
    cluster.respect_dns_ttl = own.respect_dns_ttl;
    cluster.dns_jitter = own.dns_jitter;
    cluster.typed_dns_resolver_config = own.typed_dns_resolver_config;
    set_type(cluster, own.all_addresses_in_single_endpoint);
    true
}

/// Moves the fields of a cluster of names to the cluster type. One with fields that the type has not stays as it is: Envoy still
/// knows them.
pub(crate) fn to_cluster_type(cluster: &mut Cluster) {
    let is_type = |kind: DiscoveryType| {
        cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(kind.into()))
    };
    let logical = is_type(DiscoveryType::LogicalDns);
    let has_others = !cluster.dns_resolvers.is_empty()
        || cluster.use_tcp_for_dns_lookups
        || cluster.dns_resolution_config.is_some();
    if has_others || !(logical || is_type(DiscoveryType::StrictDns)) {
        return;
    }
    let failed = cluster.dns_failure_refresh_rate.take();
    let own = DnsCluster {
        dns_lookup_family: match cluster.dns_lookup_family() {
            DnsLookupFamily::V4Only => common::DnsLookupFamily::V4Only,
            DnsLookupFamily::V6Only => common::DnsLookupFamily::V6Only,
            DnsLookupFamily::All => common::DnsLookupFamily::All,
            DnsLookupFamily::Auto => common::DnsLookupFamily::Auto,
            DnsLookupFamily::V4Preferred => common::DnsLookupFamily::V4Preferred,
        }
        .into(),
        dns_refresh_rate: cluster.dns_refresh_rate.take(),
        dns_failure_refresh_rate: failed.map(|rate| dns_cluster::RefreshRate {
            base_interval: rate.base_interval,
            max_interval: rate.max_interval,
        }),
        respect_dns_ttl: std::mem::take(&mut cluster.respect_dns_ttl),
        dns_jitter: cluster.dns_jitter.take(),
        typed_dns_resolver_config: cluster.typed_dns_resolver_config.take(),
        all_addresses_in_single_endpoint: logical,
        dns_min_refresh_rate: None,
    };
    // Envoy calls each of these fields deprecated with each cluster that sets it, so none stays behind.
    cluster.dns_lookup_family = 0;
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
        name: DNS_CLUSTER.to_owned(),
        typed_config: Some(wire::any(&own)),
    }));
}
