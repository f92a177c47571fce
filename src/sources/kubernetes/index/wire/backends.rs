//! EndpointSlice and Endpoints: the addresses and ports behind a Service. Both are decoded to the same type.

use std::net::IpAddr;
use std::sync::Arc;

use api::kubernetes::{self, EndpointConditions, EndpointPort, Items, Lenient, TargetRef};
use api::model::Health;
use serde::Deserialize;

use super::{FirstError, MetadataView as _, non_empty};
use crate::kind::{ENDPOINT_SLICES, Key, Kind, Resource, bytes};

/// Ports, and the addresses that have all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointSubset {
    pub(crate) ports: Vec<(Arc<str>, u16)>,
    pub(crate) addresses: Vec<BackendAddress>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackendAddress {
    pub(crate) address: IpAddr,
    pub(crate) health: Health,
    /// `targetRef`, if it names a Pod.
    pub(crate) pod: Option<Key>,
    pub(crate) node: Option<Box<str>>,
    pub(crate) zone: Option<Box<str>>,
}

impl EndpointSubset {
    /// Bytes that it holds.
    fn size(&self) -> usize {
        let ports = bytes(self.ports.iter().map(|(name, _)| &**name));
        let sizes = self.addresses.iter().map(|address| {
            let pod = address.pod.as_ref();
            let pod = pod.map(|pod| [&*pod.namespace, &*pod.name]);
            let texts = pod.into_iter().flatten();
            let texts = texts
                .chain(address.node.as_deref())
                .chain(address.zone.as_deref());
            bytes(texts).saturating_add(size_of::<BackendAddress>())
        });
        sizes.sum::<usize>().saturating_add(ports)
    }
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "kubernetes::EndpointSlice")]
pub struct EndpointSlice {
    pub key: Key,
    /// The name of the Service that it is a part of.
    pub(crate) service: Option<Box<str>>,
    pub(crate) subset: EndpointSubset,
    pub(crate) problem: Option<Box<str>>,
}

impl Kind for EndpointSlice {
    const RESOURCE: Resource = ENDPOINT_SLICES;

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        self.subset.size().saturating_add(size_of::<Self>())
    }
}

/// Endpoints: of the Service of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "kubernetes::Endpoints")]
pub struct Endpoints {
    pub key: Key,
    pub(crate) subsets: Vec<EndpointSubset>,
    pub(crate) problem: Option<Box<str>>,
}

impl Kind for Endpoints {
    const RESOURCE: Resource = Resource::core("endpoints");

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        let subsets = self.subsets.iter().map(EndpointSubset::size).sum::<usize>();
        subsets.saturating_add(size_of::<Self>())
    }
}

/// Returns the health of an endpoint. A terminating pod is not ready, even while it serves.
fn health(conditions: EndpointConditions) -> Health {
    let ready = conditions.ready != Some(false);
    let serving = conditions.serving.unwrap_or(ready);
    match (ready, serving && conditions.terminating == Some(true)) {
        (true, _) => Health::Ready,
        (false, true) => Health::Terminating,
        (false, false) => Health::NotReady,
    }
}

/// Returns the pod of a reference; `namespace` is that of the object with the reference.
fn pod(reference: Option<TargetRef>, namespace: &str) -> Option<Key> {
    let reference = reference?;
    if !matches!(&*reference.kind, "" | "Pod") {
        return None;
    }
    let name = non_empty(reference.name)?;
    Some(Key {
        namespace: non_empty(reference.namespace).unwrap_or_else(|| namespace.into()),
        name,
    })
}

/// Ports that a proxy carries. One without a number is all ports, which no service has.
fn ports(field: &str, ports: Items<EndpointPort>, wrong: &mut FirstError) -> Vec<(Arc<str>, u16)> {
    let ports = wrong.items(field, ports).into_iter();
    ports
        .filter(|port| matches!(&*port.protocol, "" | "TCP"))
        .filter_map(|port| {
            let number = match port.port {
                Lenient::Read(number) => wrong.port("ports.port", number?)?,
                Lenient::Unreadable(got) => {
                    wrong.no_port("ports.port", &got);
                    return None;
                }
            };
            Some((port.name.into(), number))
        })
        .collect()
}

impl From<kubernetes::EndpointSlice> for EndpointSlice {
    fn from(raw: kubernetes::EndpointSlice) -> Self {
        let key = raw.metadata.key();
        let mut wrong = FirstError::default();
        let mut subset = EndpointSubset {
            ports: ports("ports", raw.ports, &mut wrong),
            addresses: Vec::new(),
        };
        // A slice of names: no proxy is sent there.
        let endpoints = match &*raw.address_type {
            "FQDN" => Vec::new(),
            _ => wrong.items("endpoints", raw.endpoints),
        };
        for endpoint in endpoints {
            let health = health(endpoint.conditions);
            let pod = pod(endpoint.target_ref, &key.namespace);
            let (node, zone) = (non_empty(endpoint.node_name), non_empty(endpoint.zone));
            for text in &endpoint.addresses {
                let Some(address) = wrong.address("endpoints.addresses", text) else {
                    continue;
                };
                subset.addresses.push(BackendAddress {
                    address,
                    health,
                    pod: pod.clone(),
                    node: node.clone(),
                    zone: zone.clone(),
                });
            }
        }
        let service = raw.metadata.label(kubernetes::EndpointSlice::SERVICE);
        Self {
            service: service.map(Box::from),
            key,
            subset,
            problem: wrong.0,
        }
    }
}

impl From<kubernetes::Endpoints> for Endpoints {
    fn from(raw: kubernetes::Endpoints) -> Self {
        let key = raw.metadata.key();
        let mut wrong = FirstError::default();
        let mut subsets = Vec::new();
        for subset in wrong.items("subsets", raw.subsets) {
            let ports = ports("subsets.ports", subset.ports, &mut wrong);
            let ready = wrong.items("subsets.addresses", subset.addresses);
            let ready = ready.into_iter().map(|one| (one, Health::Ready));
            let not = wrong.items("subsets.notReadyAddresses", subset.not_ready_addresses);
            let not = not.into_iter().map(|one| (one, Health::NotReady));
            let mut addresses = Vec::new();
            for (one, health) in ready.chain(not) {
                let Some(address) = wrong.address("subsets.addresses.ip", &one.ip) else {
                    continue;
                };
                addresses.push(BackendAddress {
                    address,
                    health,
                    pod: pod(one.target_ref, &key.namespace),
                    node: non_empty(one.node_name),
                    zone: None,
                });
            }
            subsets.push(EndpointSubset { ports, addresses });
        }
        Self {
            key,
            subsets,
            problem: wrong.0,
        }
    }
}
