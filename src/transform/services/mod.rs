//! Services, endpoints, pods and nodes as ServiceEntries, for sinks without a client for the cluster.
//!
//! The four come in any order, and each may come late. [`Services`] indexes the references between them, so that a change
//! names just the affected entries; [`Services::entry`] then builds one from the present objects.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::google::protobuf::Timestamp;
use api::networking::ServiceEntry;

use self::entry::EntryBuilder;
use crate::index::{insert, remove};
use crate::read::number;
use crate::{Key, Mesh};
use api::kubernetes::{
    EndpointSlice, Endpoints, Items, PartialObjectMetadata, Pod, ServiceObject, SliceEndpoint,
    Subset, SubsetAddress,
};

/// The ServiceEntry of a Service, with the metadata that it takes from it.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticEntry {
    /// The key of the Service.
    pub key: Key,
    pub create_time: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: ServiceEntry,
}

/// The pod of an endpoint, by name or by IP address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Name(Key),
    Ip(String),
}

impl Reference {
    fn of(address: &SubsetAddress, namespace: &str) -> Self {
        let target = address.target_ref.as_ref();
        match target.filter(|target| target.kind == "Pod" && !target.name.is_empty()) {
            Some(target) if !target.namespace.is_empty() => {
                Self::Name(Key::new(&*target.namespace, &*target.name))
            }
            Some(target) => Self::Name(Key::new(namespace, &*target.name)),
            None => Self::Ip(address.ip.clone()),
        }
    }
}

/// Endpoints of one object.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    service: Key,
    version: String,
    subsets: Vec<Subset>,
}

impl Part {
    fn references(&self) -> impl Iterator<Item = Reference> {
        let addresses = self
            .subsets
            .iter()
            .flat_map(|subset| &subset.addresses.items);
        addresses.map(|address| Reference::of(address, &self.service.namespace))
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
    /// Sets a service, or takes it away. The entries to be made anew, as of the other three.
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
            subsets: endpoints.subsets.items,
        });
        self.part(PartKey::Endpoints(key), part)
    }

    pub fn slice(&mut self, key: Key, slice: Option<EndpointSlice>) -> BTreeSet<Key> {
        let part = slice.and_then(|slice| {
            let service = slice.metadata.labels.get(EndpointSlice::SERVICE)?;
            Some(Part {
                service: Key::new(&*key.namespace, &**service),
                version: slice.metadata.resource_version.clone(),
                subsets: subsets(&slice),
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
        // Another part may refer to what the old one did.
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
        // Asked before and after: the pod's IP may change, and both addresses' Services see it.
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
        // Entries have nothing of a node but its locality; its other labels come and go.
        let is_same =
            self.nodes.get(name).map(entry::locality) == node.as_ref().map(entry::locality);
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

    /// The services in which a pod is seen.
    fn services_with_pod(&self, key: &Key) -> BTreeSet<Key> {
        let ip = self.pods.get(key).map(|pod| pod_ip(pod).to_owned());
        let references = [Some(Reference::Name(key.clone())), ip.map(Reference::Ip)];
        let references = references.iter().flatten();
        let services = references.filter_map(|reference| self.services_of_reference.get(reference));
        services.flatten().cloned().collect()
    }

    fn find(&self, reference: &Reference) -> Option<(&Key, &Pod)> {
        match reference {
            Reference::Name(key) => self.pods.get_key_value(key),
            // Pods of a node's own network share one: any of them is as good.
            Reference::Ip(ip) => self.pods.get_key_value(self.by_ip.get(ip)?.first()?),
        }
    }

    /// The number of a service's port by its name, as an Ingress may name it.
    pub fn port(&self, service: &Key, name: &str) -> Option<u16> {
        let ports = &self.services.get(service)?.spec.ports.items;
        let named = ports.iter().find(|port| port.name == name)?;
        number(&named.port)
    }

    /// The entry of a service as it is now. `None`: there is no such service.
    pub fn entry(&self, key: &Key, mesh: &Mesh) -> Option<SyntheticEntry> {
        let service = self.services.get(key)?;
        let parts = self.parts_of.get(key).into_iter().flatten();
        let has_slices = parts.clone().any(|at| matches!(at, PartKey::Slice(_)));
        // The Endpoints repeat the slices, up to a bound of Kubernetes: with both, addresses would be there
        // twice.
        let parts = parts.filter(|at| !has_slices || matches!(at, PartKey::Slice(_)));
        let parts = parts.filter_map(|at| self.parts.get(at)).collect();
        Some(EntryBuilder { of: self, parts }.entry(key, service, mesh))
    }
}

/// The address of a pod; empty while it has none.
fn pod_ip(pod: &Pod) -> &str {
    pod.status.pod_ip.read().map_or("", String::as_str)
}

/// Converts a slice to the older kind: one subset for each endpoint, so that their order stays.
fn subsets(slice: &EndpointSlice) -> Vec<Subset> {
    if slice.address_type == "FQDN" {
        // A static ServiceEntry takes IP addresses alone.
        return Vec::new();
    }
    let subset = |endpoint: &SliceEndpoint| {
        let addresses = endpoint.addresses.iter().map(|ip| SubsetAddress {
            ip: ip.clone(),
            target_ref: endpoint.target_ref.clone(),
            node_name: String::new(),
        });
        let addresses = Items::from(addresses.collect::<Vec<_>>());
        let (addresses, not_ready_addresses) = match endpoint.conditions.ready {
            None | Some(true) => (addresses, Items::default()),
            Some(false) => (Items::default(), addresses),
        };
        Subset {
            addresses,
            not_ready_addresses,
            ports: slice.ports.clone(),
        }
    };
    slice.endpoints.items.iter().map(subset).collect()
}
