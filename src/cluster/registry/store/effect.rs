//! The effect of a difference on proxies: endpoints of services, one proxy, or a full push.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Change, Endpoint, Reason, Service, Shards, Workload, WorkloadKey};

/// The effect of one step. It is empty if nothing served changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    pub changes: Vec<Change>,
    /// A proxy at one of these addresses may belong to another service now. Only the owner of the streams knows which
    /// proxies those are: each of them is a [`Change::Proxy`].
    pub moved: BTreeSet<IpAddr>,
}

impl Effect {
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.changes.is_empty() && self.moved.is_empty()
    }
}

/// Differences as they are found.
#[derive(Debug, Default)]
pub(super) struct Effects {
    full: BTreeSet<Reason>,
    hosts: BTreeSet<Arc<str>>,
    proxies: BTreeSet<WorkloadKey>,
    moved: BTreeSet<IpAddr>,
}

impl Effects {
    pub(super) fn full(&mut self, reason: Reason) {
        self.full.insert(reason);
    }

    /// Adds the endpoints of an unchanged service. `mutual`: clients check the servers' identities.
    pub(super) fn endpoints(
        &mut self,
        service: &Service,
        old: Option<&Shards>,
        new: Option<&Shards>,
        mutual: bool,
    ) {
        let resolved = service.resolution.is_dns();
        // Listeners of its endpoints' addresses.
        let listened =
            service.is_headless() && service.ports.iter().any(|port| !port.protocol.is_http());
        let full = resolved
            || listened && addresses(old) != addresses(new)
            || mutual && accounts(old) != accounts(new);
        if full {
            self.full(Reason::Endpoint);
            return;
        }
        self.hosts.insert(service.key.hostname.clone());
        let (old, new) = (places(old), places(new));
        self.moved.extend(
            old.symmetric_difference(&new)
                .filter_map(|place| place.address.ip()),
        );
    }

    /// A workload, where one of them is missing: it came or went.
    pub(super) fn workload(
        &mut self,
        key: &WorkloadKey,
        old: Option<&Workload>,
        new: Option<&Workload>,
    ) {
        let same = match (old, new) {
            (Some(old), Some(new)) => {
                old.labels == new.labels
                    && old.locality == new.locality
                    && old.network == new.network
                    && old.ports == new.ports
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            self.proxies.insert(key.clone());
        }
    }

    pub(super) fn finish(self) -> Effect {
        let endpoints = (!self.hosts.is_empty()).then_some(Change::Endpoints(self.hosts));
        if !self.full.is_empty() {
            // Endpoints are named beside it: they wait less than the rest.
            let full = self.full.into_iter().map(Change::Full);
            return Effect {
                changes: full.chain(endpoints).collect(),
                moved: BTreeSet::new(),
            };
        }
        let proxies = self.proxies.into_iter().map(Change::Proxy);
        Effect {
            changes: endpoints.into_iter().chain(proxies).collect(),
            moved: self.moved,
        }
    }
}

fn all(shards: Option<&Shards>) -> impl Iterator<Item = &Endpoint> {
    shards
        .into_iter()
        .flat_map(|shards| shards.values())
        .flat_map(|shard| shard.iter())
}

fn addresses(shards: Option<&Shards>) -> BTreeSet<IpAddr> {
    all(shards)
        .filter_map(|endpoint| endpoint.address.ip())
        .collect()
}

fn accounts(shards: Option<&Shards>) -> BTreeSet<&Arc<str>> {
    all(shards)
        .filter_map(|endpoint| endpoint.account.as_ref())
        .collect()
}

/// Returns the endpoints as a proxy beside one sees them: without health and weight.
fn places(shards: Option<&Shards>) -> BTreeSet<Endpoint> {
    all(shards)
        .map(|endpoint| Endpoint {
            labels: endpoint.labels.clone(),
            locality: endpoint.locality.clone(),
            pod: endpoint.pod.clone(),
            unknown_pod: endpoint.unknown_pod.clone(),
            ..Endpoint::new(endpoint.address.clone(), endpoint.port, &endpoint.port_name)
        })
        .collect()
}
