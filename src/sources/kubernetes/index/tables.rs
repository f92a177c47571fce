//! A cluster's objects by kind, their indexes, and the pods and services that have to be computed anew.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::links::{Links, LookupTarget};
use super::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
use crate::kind::Key;

pub(super) type Table<K> = BTreeMap<Key, Arc<K>>;

/// The objects of a cluster, by kind.
#[derive(Debug, Default)]
pub struct Tables {
    pub(super) services: Table<Service>,
    pub(super) slices: Table<EndpointSlice>,
    pub(super) endpoints: Table<Endpoints>,
    pub(super) pods: Table<Pod>,
    pub(super) nodes: Table<Node>,
    pub(super) namespaces: Table<Namespace>,
    pub(super) slices_by_service: BTreeMap<Key, BTreeSet<Key>>,
    /// Not those of the host's network, and not those that have ended.
    pub(super) pods_by_address: BTreeMap<IpAddr, BTreeSet<Key>>,
    /// Pods and services, by the objects that they were computed from.
    pub(super) pod_links: Links,
    pub(super) service_links: Links,
    pub(super) touched_pods: BTreeSet<Key>,
    pub(super) touched_services: BTreeSet<Key>,
}

impl Tables {
    /// The pod that has an address: the newest, where an old one still names it.
    pub(super) fn pod_at(&self, address: IpAddr) -> Option<&Key> {
        self.pods_by_address
            .get(&address)?
            .iter()
            .max_by_key(|key| {
                let created = self.pods.get(*key).and_then(|pod| pod.created);
                (created, Reverse(*key))
            })
    }

    pub(super) fn slices_of(&self, service: &Key) -> impl Iterator<Item = &EndpointSlice> {
        let keys = self.slices_by_service.get(service).into_iter().flatten();
        keys.filter_map(|key| self.slices.get(key).map(Arc::as_ref))
    }

    /// The number of places that slices, or Endpoints, name for a service.
    pub(super) fn places_of(&self, service: &Key) -> usize {
        let slices = self.slices_of(service).map(|slice| &slice.subset);
        let endpoints = self.endpoints.get(service);
        let subsets = endpoints.into_iter().flat_map(|one| &one.subsets);
        slices.chain(subsets).map(|one| one.addresses.len()).sum()
    }

    /// The services to compute anew, with those that name a pod to compute anew.
    pub(super) fn touched_services_by_pods(&self) -> BTreeSet<&Key> {
        let pods = self.touched_pods.iter().cloned().map(LookupTarget::Pod);
        let mut services: BTreeSet<_> = self.touched_services.iter().collect();
        for pod in pods {
            services.extend(self.service_links.of(&pod));
        }
        services
    }

    /// Marks the lookers of a target for recomputation.
    pub(super) fn touch(&mut self, target: &LookupTarget) {
        self.touched_pods.extend(self.pod_links.of(target).cloned());
        self.touch_services(target);
    }

    /// Marks the services among them.
    pub(super) fn touch_services(&mut self, target: &LookupTarget) {
        self.touched_services
            .extend(self.service_links.of(target).cloned());
    }

    /// Marks all pods and services.
    pub(super) fn touch_all(&mut self) {
        self.touched_pods.extend(self.pods.keys().cloned());
        self.touched_services.extend(self.services.keys().cloned());
    }

    #[cfg(test)]
    pub(super) fn has_no_indexes(&self) -> bool {
        self.slices_by_service.is_empty()
            && self.pods_by_address.is_empty()
            && self.pod_links.is_empty()
            && self.service_links.is_empty()
    }
}
