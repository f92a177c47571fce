//! Services, endpoints, pods and nodes as ServiceEntries, for sinks without a client for the cluster.
//!
//! The four come in any order, and each may come late. [`Services`] indexes the references between them, so that a change
//! names the affected entries alone; [`Services::entry`] then builds an entry from the present objects.

mod service_entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::service_entry::EntryBuilder;
pub use self::service_entry::{EntryTooLarge, SyntheticEntry};
use crate::index::{insert, remove};
use crate::read::number;
use crate::{Key, Mesh};
use api::kubernetes::{
    EndpointPort, EndpointSlice, Endpoints, PartialObjectMetadata, Pod, ServiceObject, Subset,
    SubsetAddress, TargetRef,
};

/// The pod of an endpoint, by name or by IP address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Name(Key),
    Ip(String),
}

/// An endpoint: one address of Endpoints, or all addresses of one endpoint of a slice.
#[derive(Clone, Debug, PartialEq)]
struct Endpoint {
    ips: Vec<String>,
    target: Option<TargetRef>,
    is_ready: bool,
}

impl Endpoint {
    fn of(address: SubsetAddress, is_ready: bool) -> Self {
        Self {
            ips: vec![address.ip],
            target: address.target_ref,
            is_ready,
        }
    }

    /// Returns the pod that the endpoint names, if it names one.
    fn pod(&self, namespace: &str) -> Option<Key> {
        let target = self.target.as_ref()?;
        let is_pod = target.kind == "Pod" && !target.name.is_empty();
        let namespace = match &*target.namespace {
            "" => namespace,
            own => own,
        };
        is_pod.then(|| Key::new(namespace, &*target.name))
    }

    fn references(&self, namespace: &str) -> Vec<Reference> {
        match self.pod(namespace) {
            Some(pod) => vec![Reference::Name(pod)],
            None => self.ips.iter().cloned().map(Reference::Ip).collect(),
        }
    }
}

/// Endpoints that share their ports: a subset of Endpoints, or a slice. The ports are there once, however many share them.
#[derive(Clone, Debug, PartialEq)]
struct EndpointGroup {
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

impl From<Subset> for EndpointGroup {
    fn from(subset: Subset) -> Self {
        let ready = subset.addresses.items.into_iter();
        let not_ready = subset.not_ready_addresses.items.into_iter();
        let ready = ready.map(|address| Endpoint::of(address, true));
        Self {
            ports: subset.ports.items,
            endpoints: ready
                .chain(not_ready.map(|address| Endpoint::of(address, false)))
                .collect(),
        }
    }
}

impl From<EndpointSlice> for EndpointGroup {
    fn from(slice: EndpointSlice) -> Self {
        let endpoints = slice.endpoints.items.into_iter();
        Self {
            ports: slice.ports.items,
            endpoints: endpoints
                .map(|endpoint| Endpoint {
                    ips: endpoint.addresses,
                    target: endpoint.target_ref,
                    is_ready: endpoint.conditions.ready.unwrap_or(true),
                })
                .collect(),
        }
    }
}

/// Endpoints of one object.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    service: Key,
    version: String,
    groups: Vec<EndpointGroup>,
}

impl Part {
    /// Returns the references of ready endpoints: an entry repeats nothing of the pods of other endpoints.
    fn references(&self) -> impl Iterator<Item = Reference> {
        let endpoints = self.groups.iter().flat_map(|group| &group.endpoints);
        let ready = endpoints.filter(|endpoint| endpoint.is_ready);
        ready.flat_map(|endpoint| endpoint.references(&self.service.namespace))
    }
}

/// The object of a part. EndpointSlices of a Service take precedence over its Endpoints, which are a copy of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PartKey {
    Endpoints(Key),
    Slice(Key),
}

/// The objects that entries are built from.
#[derive(Debug, Default)]
pub struct Services {
    services: BTreeMap<Key, ServiceObject>,
    parts: BTreeMap<PartKey, Part>,
    pods: BTreeMap<Key, Pod>,
    nodes: BTreeMap<String, PartialObjectMetadata>,
    /// By service.
    parts_of: BTreeMap<Key, BTreeSet<PartKey>>,
    /// The services whose endpoints refer to a pod.
    services_of_reference: BTreeMap<Reference, BTreeSet<Key>>,
    by_ip: BTreeMap<String, BTreeSet<Key>>,
    by_node: BTreeMap<String, BTreeSet<Key>>,
}

impl Services {
    /// Sets or deletes a service. Returns the services whose entries change, as the methods of the other kinds do.
    pub fn service(&mut self, key: Key, service: Option<ServiceObject>) -> BTreeSet<Key> {
        let is_same = self.services.get(&key) == service.as_ref();
        match service {
            Some(service) => self.services.insert(key.clone(), service),
            None => self.services.remove(&key),
        };
        (!is_same).then_some(key).into_iter().collect()
    }

    pub fn endpoints(&mut self, key: Key, endpoints: Option<Endpoints>) -> BTreeSet<Key> {
        let part = endpoints.map(|endpoints| Part {
            service: key.clone(),
            version: endpoints.metadata.resource_version,
            groups: endpoints
                .subsets
                .items
                .into_iter()
                .map(Into::into)
                .collect(),
        });
        self.part(PartKey::Endpoints(key), part)
    }

    pub fn slice(&mut self, key: Key, slice: Option<EndpointSlice>) -> BTreeSet<Key> {
        let part = slice.and_then(|slice| {
            let service = slice.metadata.labels.get(EndpointSlice::SERVICE)?;
            Some(Part {
                service: Key::new(&*key.namespace, &**service),
                version: slice.metadata.resource_version.clone(),
                groups: match &*slice.address_type {
                    // A static ServiceEntry takes IP addresses alone.
                    "FQDN" => Vec::new(),
                    _ => vec![slice.into()],
                },
            })
        });
        self.part(PartKey::Slice(key), part)
    }

    fn part(&mut self, at: PartKey, part: Option<Part>) -> BTreeSet<Key> {
        if self.parts.get(&at) == part.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some(old) = self.parts.remove(&at) {
            remove(&mut self.parts_of, &old.service, &at);
            for reference in old.references() {
                remove(&mut self.services_of_reference, &reference, &old.service);
            }
            changed.insert(old.service);
        }
        if let Some(part) = part {
            insert(&mut self.parts_of, &part.service, at.clone());
            changed.insert(part.service.clone());
            self.parts.insert(at, part);
        }
        // Another part may have the references of the old one.
        for service in &changed {
            let parts = self.parts_of.get(service).into_iter().flatten();
            let parts = parts.filter_map(|at| self.parts.get(at));
            for reference in parts.flat_map(Part::references) {
                let services = self.services_of_reference.entry(reference).or_default();
                services.insert(service.clone());
            }
        }
        changed
    }

    pub fn pod(&mut self, key: &Key, pod: Option<Pod>) -> BTreeSet<Key> {
        if self.pods.get(key) == pod.as_ref() {
            return BTreeSet::new();
        }
        // The pod's IP may change: the entries of both addresses do.
        let mut changed = self.services_with_pod(key);
        if let Some(old) = self.pods.remove(key) {
            remove(&mut self.by_ip, pod_ip(&old), key);
            remove(&mut self.by_node, &old.spec.node_name, key);
        }
        if let Some(pod) = pod {
            let by_ip = self.by_ip.entry(pod_ip(&pod).to_owned()).or_default();
            by_ip.insert(key.clone());
            let by_node = self.by_node.entry(pod.spec.node_name.clone()).or_default();
            by_node.insert(key.clone());
            self.pods.insert(key.clone(), pod);
            changed.extend(self.services_with_pod(key));
        }
        changed
    }

    pub fn node(&mut self, name: &str, node: Option<PartialObjectMetadata>) -> BTreeSet<Key> {
        // Entries repeat the locality of a node alone; its other labels come and go.
        let locality = service_entry::locality;
        let is_same = self.nodes.get(name).map(locality) == node.as_ref().map(locality);
        match node {
            Some(node) => self.nodes.insert(name.to_owned(), node),
            None => self.nodes.remove(name),
        };
        if is_same {
            return BTreeSet::new();
        }
        let pods = self.by_node.get(name).into_iter().flatten();
        pods.flat_map(|pod| self.services_with_pod(pod)).collect()
    }

    /// Returns the services whose endpoints refer to a pod.
    fn services_with_pod(&self, key: &Key) -> BTreeSet<Key> {
        let ip = self.pods.get(key).map(|pod| pod_ip(pod).to_owned());
        let references = [Some(Reference::Name(key.clone())), ip.map(Reference::Ip)];
        let references = references.iter().flatten();
        let services = references.filter_map(|reference| self.services_of_reference.get(reference));
        services.flatten().cloned().collect()
    }

    /// Returns the pod of an address. Pods in the network of their node share its address, and any of them will do.
    fn pod_at(&self, ip: &str) -> Option<(&Key, &Pod)> {
        self.pods.get_key_value(self.by_ip.get(ip)?.first()?)
    }

    /// Returns the number of a service's port by its name, as an Ingress may name it.
    pub fn port(&self, service: &Key, name: &str) -> Option<u16> {
        let ports = &self.services.get(service)?.spec.ports.items;
        let service_port = ports.iter().find(|port| port.name == name)?;
        number(&service_port.port)
    }

    /// Builds the entry of a service from the present objects. `None`: there is no such service.
    ///
    /// # Errors
    ///
    /// The entry would be larger than sinks take.
    pub fn entry(&self, key: &Key, mesh: &Mesh) -> Option<Result<SyntheticEntry, EntryTooLarge>> {
        Some(self.builder(key)?.entry(key, mesh))
    }

    fn builder(&self, key: &Key) -> Option<EntryBuilder<'_>> {
        let service = self.services.get(key)?;
        let parts = self.parts_of.get(key).into_iter().flatten();
        let has_slices = parts.clone().any(|at| matches!(at, PartKey::Slice(_)));
        // The Endpoints repeat the slices, up to a bound of Kubernetes: with both, an entry would have addresses twice.
        let parts = parts.filter(|at| !has_slices || matches!(at, PartKey::Slice(_)));
        let parts = parts.filter_map(|at| self.parts.get(at)).collect();
        Some(EntryBuilder {
            of: self,
            parts,
            service,
        })
    }
}

/// The address of a pod; empty while it has none.
fn pod_ip(pod: &Pod) -> &str {
    pod.status.pod_ip.read().map_or("", String::as_str)
}
