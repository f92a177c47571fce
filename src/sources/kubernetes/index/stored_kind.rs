//! The kinds of a cluster's objects, and the results that a change of each one affects.

use super::links::LookupTarget;
use super::tables::{Table, Tables};
use super::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
use crate::kind::{Key, Kind};

pub(super) use sealed::Sealed;

/// A kind of a cluster's tables.
pub trait StoredKind: Kind + Sealed {}

impl<K: Kind + Sealed> StoredKind for K {}

mod sealed {
    use super::{Key, Table, Tables};

    pub trait Sealed: Sized {
        const NAME: &'static str;

        fn table(tables: &mut Tables) -> &mut Table<Self>;
        /// Updates the indexes after the table has changed.
        fn changed(tables: &mut Tables, key: &Key, old: Option<&Self>, new: Option<&Self>);

        fn problem(&self) -> Option<&str> {
            None
        }
    }
}

impl Sealed for Service {
    const NAME: &'static str = "Service";

    fn table(tables: &mut Tables) -> &mut Table<Self> {
        &mut tables.services
    }

    fn changed(tables: &mut Tables, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        tables.touched_services.insert(key.clone());
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for EndpointSlice {
    const NAME: &'static str = "EndpointSlice";

    fn table(tables: &mut Tables) -> &mut Table<Self> {
        &mut tables.slices
    }

    fn changed(tables: &mut Tables, key: &Key, old: Option<&Self>, new: Option<&Self>) {
        let service = |slice: &Self| {
            let name = slice.service.clone()?;
            let namespace = key.namespace.clone();
            Some(Key { namespace, name })
        };
        if let Some(service) = old.and_then(service) {
            if let Some(slices) = tables.slices_by_service.get_mut(&service) {
                slices.remove(key);
                if slices.is_empty() {
                    tables.slices_by_service.remove(&service);
                }
            }
            tables.touched_services.insert(service);
        }
        if let Some(service) = new.and_then(service) {
            let slices = tables.slices_by_service.entry(service.clone()).or_default();
            slices.insert(key.clone());
            tables.touched_services.insert(service);
        }
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for Endpoints {
    const NAME: &'static str = "Endpoints";

    fn table(tables: &mut Tables) -> &mut Table<Self> {
        &mut tables.endpoints
    }

    fn changed(tables: &mut Tables, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        tables.touched_services.insert(key.clone());
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for Pod {
    const NAME: &'static str = "Pod";

    fn table(tables: &mut Tables) -> &mut Table<Self> {
        &mut tables.pods
    }

    fn changed(tables: &mut Tables, key: &Key, old: Option<&Self>, new: Option<&Self>) {
        tables.touched_pods.insert(key.clone());
        let is_found = |pod: &Self| !pod.host_network && !pod.over;
        for address in old
            .filter(|pod| is_found(pod))
            .iter()
            .flat_map(|pod| &pod.addresses)
        {
            if let Some(pods) = tables.pods_by_address.get_mut(address) {
                pods.remove(key);
                if pods.is_empty() {
                    tables.pods_by_address.remove(address);
                }
            }
            tables.touch(&LookupTarget::Address(*address));
        }
        for address in new
            .filter(|pod| is_found(pod))
            .iter()
            .flat_map(|pod| &pod.addresses)
        {
            tables
                .pods_by_address
                .entry(*address)
                .or_default()
                .insert(key.clone());
            tables.touch(&LookupTarget::Address(*address));
        }
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for Node {
    const NAME: &'static str = "Node";

    fn table(tables: &mut Tables) -> &mut Table<Self> {
        &mut tables.nodes
    }

    fn changed(tables: &mut Tables, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        tables.touch(&LookupTarget::Node(key.name.clone()));
    }
}

impl Sealed for Namespace {
    const NAME: &'static str = "Namespace";

    fn table(tables: &mut Tables) -> &mut Table<Self> {
        &mut tables.namespaces
    }

    fn changed(tables: &mut Tables, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        tables.touch(&LookupTarget::Namespace(key.name.clone()));
    }
}
