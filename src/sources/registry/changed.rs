//! Maps differences of endpoints and workloads to kinds of change.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{ChangedKind, Endpoint, EndpointShards, Service, Workload};

/// Returns the kind of a change of an unchanged service's endpoints. `mutual`: clients check the servers' identities.
pub(super) fn of_endpoints(
    service: &Service,
    old: Option<&EndpointShards>,
    new: Option<&EndpointShards>,
    mutual: bool,
) -> ChangedKind {
    let resolved = service.resolution.is_dns();
    // Listeners of its endpoints' addresses.
    let listened =
        service.is_headless() && service.ports.iter().any(|port| !port.protocol.is_http());
    // A DNS cluster holds its endpoints itself, and the cluster names the accounts to expect: EDS changes
    // neither.
    let is_in_clusters = resolved
        || listened && addresses(old) != addresses(new)
        || mutual && accounts(old) != accounts(new);
    match is_in_clusters {
        true => ChangedKind::ClusterEndpoints,
        false => ChangedKind::Endpoints,
    }
}

/// Returns true if the workload's own proxies see a difference. Where one is missing, it came or went.
pub(super) fn affects_proxies(old: Option<&Workload>, new: Option<&Workload>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            old.labels != new.labels
                || old.locality != new.locality
                || old.network != new.network
                || old.ports != new.ports
        }
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

fn all(shards: Option<&EndpointShards>) -> impl Iterator<Item = &Endpoint> {
    shards
        .into_iter()
        .flat_map(|shards| shards.values())
        .flat_map(|shard| shard.iter())
}

fn addresses(shards: Option<&EndpointShards>) -> BTreeSet<IpAddr> {
    all(shards)
        .filter_map(|endpoint| endpoint.address.ip())
        .collect()
}

fn accounts(shards: Option<&EndpointShards>) -> BTreeSet<&Arc<str>> {
    all(shards)
        .filter_map(|endpoint| endpoint.account.as_ref())
        .collect()
}
