//! EndpointSlice and Endpoints: the addresses and ports behind a Service. Both are decoded to the same type.

use std::net::IpAddr;
use std::sync::Arc;

use api::model::Health;
use serde::Deserialize;

use super::{RawMetadata, Wrong, non_empty, or_default};
use crate::kind::{ENDPOINT_SLICES, Key, Kind, Resource, bytes};

const SERVICE: &str = "kubernetes.io/service-name";

/// Ports, and the addresses that have all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointSubset {
    pub(crate) ports: Vec<(Arc<str>, u16)>,
    pub(crate) places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
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
        let places = self.places.iter().map(|place| {
            let pod = place.pod.as_ref();
            let pod = pod.map(|pod| [&*pod.namespace, &*pod.name]);
            let texts = pod.into_iter().flatten();
            let texts = texts
                .chain(place.node.as_deref())
                .chain(place.zone.as_deref());
            bytes(texts).saturating_add(size_of::<Place>())
        });
        places.sum::<usize>().saturating_add(ports)
    }
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawSlice")]
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
#[serde(from = "RawEndpoints")]
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

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSlice {
    metadata: RawMetadata,
    address_type: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    endpoints: Vec<RawPlace>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<RawEndpointPort>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPlace {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: RawConditions,
    target_ref: Option<RawReference>,
    node_name: Option<Box<str>>,
    zone: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawReference {
    kind: Option<String>,
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawEndpointPort {
    name: Option<Box<str>>,
    port: Option<i64>,
    protocol: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawEndpoints {
    metadata: RawMetadata,
    #[serde(deserialize_with = "or_default")]
    subsets: Vec<RawSubset>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSubset {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<RawAddress>,
    #[serde(deserialize_with = "or_default")]
    not_ready_addresses: Vec<RawAddress>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<RawEndpointPort>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawAddress {
    ip: String,
    target_ref: Option<RawReference>,
    node_name: Option<Box<str>>,
}

impl RawConditions {
    /// Returns the health; a missing condition counts as true. A terminating pod is not ready, even while it serves.
    fn health(&self) -> Health {
        let ready = self.ready != Some(false);
        let serving = self.serving.unwrap_or(ready);
        match (ready, serving && self.terminating == Some(true)) {
            (true, _) => Health::Ready,
            (false, true) => Health::Terminating,
            (false, false) => Health::NotReady,
        }
    }
}

impl RawReference {
    /// Returns the pod of a reference; `namespace` is that of the object with the reference.
    fn pod(self, namespace: &str) -> Option<Key> {
        if self.kind.is_some_and(|kind| kind != "Pod") {
            return None;
        }
        let name = non_empty(self.name)?;
        Some(Key {
            namespace: non_empty(self.namespace).unwrap_or_else(|| namespace.into()),
            name,
        })
    }
}

/// Ports that a proxy carries. One without a number is all ports, which no service has.
fn ports(raw: Vec<RawEndpointPort>, wrong: &mut Wrong) -> Vec<(Arc<str>, u16)> {
    raw.into_iter()
        .filter(|port| port.protocol.as_deref().is_none_or(|name| name == "TCP"))
        .filter_map(|port| {
            let number = wrong.port("ports.port", port.port?)?;
            Some((port.name.unwrap_or_default().into(), number))
        })
        .collect()
}

impl From<RawSlice> for EndpointSlice {
    fn from(raw: RawSlice) -> Self {
        let key = raw.metadata.key();
        let mut wrong = Wrong::default();
        let mut subset = EndpointSubset {
            ports: ports(raw.ports, &mut wrong),
            places: Vec::new(),
        };
        // A slice of names: no proxy is sent there.
        let endpoints = if raw.address_type.as_deref() == Some("FQDN") {
            Vec::new()
        } else {
            raw.endpoints
        };
        for endpoint in endpoints {
            let health = endpoint.conditions.health();
            let pod = endpoint
                .target_ref
                .and_then(|reference| reference.pod(&key.namespace));
            let (node, zone) = (non_empty(endpoint.node_name), non_empty(endpoint.zone));
            for text in &endpoint.addresses {
                let Some(address) = wrong.address("endpoints.addresses", text) else {
                    continue;
                };
                subset.places.push(Place {
                    address,
                    health,
                    pod: pod.clone(),
                    node: node.clone(),
                    zone: zone.clone(),
                });
            }
        }
        Self {
            service: raw.metadata.label(SERVICE).map(Box::from),
            key,
            subset,
            problem: wrong.0,
        }
    }
}

impl From<RawEndpoints> for Endpoints {
    fn from(raw: RawEndpoints) -> Self {
        let key = raw.metadata.key();
        let mut wrong = Wrong::default();
        let mut subsets = Vec::new();
        for subset in raw.subsets {
            let ports = ports(subset.ports, &mut wrong);
            let ready = subset.addresses.into_iter().map(|raw| (raw, Health::Ready));
            let not = subset.not_ready_addresses.into_iter();
            let not = not.map(|raw| (raw, Health::NotReady));
            let mut places = Vec::new();
            for (raw, health) in ready.chain(not) {
                let Some(address) = wrong.address("subsets.addresses.ip", &raw.ip) else {
                    continue;
                };
                let reference = raw.target_ref;
                places.push(Place {
                    address,
                    health,
                    pod: reference.and_then(|reference| reference.pod(&key.namespace)),
                    node: non_empty(raw.node_name),
                    zone: None,
                });
            }
            subsets.push(EndpointSubset { ports, places });
        }
        Self {
            key,
            subsets,
            problem: wrong.0,
        }
    }
}
