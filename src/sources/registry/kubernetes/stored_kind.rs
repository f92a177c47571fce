//! The kinds of a cluster's objects, and the results that a change of each one affects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::links::LookupTarget;
use super::objects::Objects;
use super::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
use crate::kind::{Key, Kind};

pub(super) use sealed::Sealed;

pub(super) type Table<K> = BTreeMap<Key, Arc<K>>;

/// The objects of a cluster, by kind.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) services: Table<Service>,
    pub(super) slices: Table<EndpointSlice>,
    pub(super) endpoints: Table<Endpoints>,
    pub(super) pods: Table<Pod>,
    pub(super) nodes: Table<Node>,
    pub(super) namespaces: Table<Namespace>,
}

/// A kind of a cluster's objects.
pub trait StoredKind: Kind + Sealed {}

impl<K: Kind + Sealed> StoredKind for K {}

mod sealed {
    use super::{Key, Objects, Table};

    pub trait Sealed: Sized {
        const NAME: &'static str;

        fn table(objects: &mut Objects) -> &mut Table<Self>;
        /// Updates the indexes after the table has changed.
        fn changed(objects: &mut Objects, key: &Key, old: Option<&Self>, new: Option<&Self>);

        fn problem(&self) -> Option<&str> {
            None
        }
    }
}

impl Sealed for Service {
    const NAME: &'static str = "Service";

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.tables.services
    }

    fn changed(objects: &mut Objects, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        objects.touched_services.insert(key.clone());
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for EndpointSlice {
    const NAME: &'static str = "EndpointSlice";

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.tables.slices
    }

    fn changed(objects: &mut Objects, key: &Key, old: Option<&Self>, new: Option<&Self>) {
        let service = |slice: &Self| {
            let name = slice.service.clone()?;
            let namespace = key.namespace.clone();
            Some(Key { namespace, name })
        };
        if let Some(service) = old.and_then(service) {
            if let Some(slices) = objects.slices.get_mut(&service) {
                slices.remove(key);
                if slices.is_empty() {
                    objects.slices.remove(&service);
                }
            }
            objects.touched_services.insert(service);
        }
        if let Some(service) = new.and_then(service) {
            let slices = objects.slices.entry(service.clone()).or_default();
            slices.insert(key.clone());
            objects.touched_services.insert(service);
        }
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for Endpoints {
    const NAME: &'static str = "Endpoints";

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.tables.endpoints
    }

    fn changed(objects: &mut Objects, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        objects.touched_services.insert(key.clone());
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for Pod {
    const NAME: &'static str = "Pod";

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.tables.pods
    }

    fn changed(objects: &mut Objects, key: &Key, old: Option<&Self>, new: Option<&Self>) {
        objects.touched_pods.insert(key.clone());
        let found = |pod: &Self| !pod.host_network && !pod.over;
        for address in old
            .filter(|pod| found(pod))
            .iter()
            .flat_map(|pod| &pod.addresses)
        {
            if let Some(pods) = objects.at.get_mut(address) {
                pods.remove(key);
                if pods.is_empty() {
                    objects.at.remove(address);
                }
            }
            objects.touch(&LookupTarget::Address(*address));
        }
        for address in new
            .filter(|pod| found(pod))
            .iter()
            .flat_map(|pod| &pod.addresses)
        {
            objects.at.entry(*address).or_default().insert(key.clone());
            objects.touch(&LookupTarget::Address(*address));
        }
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Sealed for Node {
    const NAME: &'static str = "Node";

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.tables.nodes
    }

    fn changed(objects: &mut Objects, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        objects.touch(&LookupTarget::Node(key.name.clone()));
    }
}

impl Sealed for Namespace {
    const NAME: &'static str = "Namespace";

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.tables.namespaces
    }

    fn changed(objects: &mut Objects, key: &Key, _old: Option<&Self>, _new: Option<&Self>) {
        objects.touch(&LookupTarget::Namespace(key.name.clone()));
    }
}
