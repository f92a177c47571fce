//! EndpointSlice and Endpoints: the addresses and ports behind a Service. Both are decoded to the same type.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::kubernetes::{self, EndpointConditions, EndpointPort, Items, Lenient, TargetRef};
use api::model::Health;
use serde::Deserialize;

use super::{MetadataView as _, UnusableParts, Wrong, non_empty, with_last_good};
use crate::kind::{ENDPOINT_SLICES, Key, Kind, Resource, bytes};

/// Ports, and the addresses that have all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointSubset {
    pub(crate) ports: Vec<(Arc<str>, u16)>,
    pub(crate) places: Vec<Place>,
    unusable: Option<Box<UnusableInSubset>>,
}

/// Parts of a subset that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UnusableInSubset {
    ports: UnusableParts,
    places: UnusableParts,
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
        let unusable = self.unusable.as_ref();
        let unusable = unusable.map_or(0, |all| all.ports.size() + all.places.size());
        places.sum::<usize>().saturating_add(ports + unusable)
    }

    fn new(ports: Vec<(Arc<str>, u16)>, places: Vec<Place>, unusable: UnusableInSubset) -> Self {
        let is_any = !(unusable.ports.is_empty() && unusable.places.is_empty());
        Self {
            ports,
            places,
            unusable: is_any.then(|| Box::new(unusable)),
        }
    }

    /// Puts parts of the version before into the places of those that cannot be used. Returns true if there are any.
    fn complete(&mut self, before: &Self) -> bool {
        let Some(unusable) = &self.unusable else {
            return false;
        };
        let there: BTreeSet<_> = self
            .ports
            .iter()
            .map(|(name, _)| Arc::clone(name))
            .collect();
        let is_there = |(name, _): &(Arc<str>, u16)| there.contains(name);
        let name = |(name, _): &(Arc<str>, u16)| Some(name.to_string());
        let has_ports = unusable
            .ports
            .fill(&mut self.ports, &before.ports, is_there, name);
        let there: BTreeSet<_> = self.places.iter().map(|place| place.address).collect();
        let is_there = |place: &Place| there.contains(&place.address);
        let name = |place: &Place| place.pod.as_ref().map(Key::to_string);
        let places = &unusable.places;
        let has_places = places.fill(&mut self.places, &before.places, is_there, name);
        has_ports || has_places
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
    /// The object as it is written, if parts of the version before stay in it.
    pub(crate) completed_from: Option<Arc<Self>>,
}

impl Kind for EndpointSlice {
    const RESOURCE: Resource = ENDPOINT_SLICES;

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        self.subset.size().saturating_add(size_of::<Self>())
    }

    fn keeps_last(&self) -> bool {
        self.subset.unusable.is_some()
    }
}

impl EndpointSlice {
    /// Returns the object with parts of the version before in the places of those that cannot be used; `None`: there are none.
    pub(crate) fn completed(self: &Arc<Self>, before: &Self) -> Option<Self> {
        let mut subset = self.subset.clone();
        subset.complete(&before.subset).then(|| Self {
            subset,
            problem: with_last_good(self.problem.as_deref()),
            completed_from: Some(Arc::clone(self)),
            ..(**self).clone()
        })
    }
}

/// Endpoints: of the Service of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "kubernetes::Endpoints")]
pub struct Endpoints {
    pub key: Key,
    pub(crate) subsets: Vec<EndpointSubset>,
    /// The field is no list.
    has_no_list: bool,
    pub(crate) problem: Option<Box<str>>,
    /// The object as it is written, if parts of the version before stay in it.
    pub(crate) completed_from: Option<Arc<Self>>,
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

    fn keeps_last(&self) -> bool {
        self.has_no_list || self.subsets.iter().any(|subset| subset.unusable.is_some())
    }
}

impl Endpoints {
    /// As [`EndpointSlice::completed`]; a subset is the one at its index.
    pub(crate) fn completed(self: &Arc<Self>, before: &Self) -> Option<Self> {
        let (subsets, is_other) = if self.has_no_list {
            (before.subsets.clone(), !before.subsets.is_empty())
        } else {
            let mut subsets = self.subsets.clone();
            let mut is_other = false;
            for (subset, before) in subsets.iter_mut().zip(&before.subsets) {
                is_other |= subset.complete(before);
            }
            (subsets, is_other)
        };
        is_other.then(|| Self {
            subsets,
            problem: with_last_good(self.problem.as_deref()),
            completed_from: Some(Arc::clone(self)),
            ..(**self).clone()
        })
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
fn ports(
    field: &str,
    written: Items<EndpointPort>,
    wrong: &mut Wrong,
    unusable: &mut UnusableParts,
) -> Vec<(Arc<str>, u16)> {
    let mut ports: Vec<(Arc<str>, u16)> = Vec::new();
    for port in wrong.items(field, written, unusable) {
        let Some(port) = port else {
            unusable.add(ports.len(), None);
            continue;
        };
        if !matches!(&*port.protocol, "" | "TCP") || port.port == Lenient::Read(None) {
            continue;
        }
        match wrong.number("ports.port", &port.port) {
            Some(number) => ports.push((port.name.into(), number)),
            None => unusable.add(ports.len(), Some(&port.name)),
        }
    }
    ports
}

impl From<kubernetes::EndpointSlice> for EndpointSlice {
    fn from(raw: kubernetes::EndpointSlice) -> Self {
        let key = raw.metadata.key();
        let (mut wrong, mut unusable) = (Wrong::default(), UnusableInSubset::default());
        let ports = ports("ports", raw.ports, &mut wrong, &mut unusable.ports);
        let mut places: Vec<Place> = Vec::new();
        // A slice of names: no proxy is sent there.
        let endpoints = match &*raw.address_type {
            "FQDN" => Items::default(),
            _ => raw.endpoints,
        };
        for endpoint in wrong.items("endpoints", endpoints, &mut unusable.places) {
            let Some(endpoint) = endpoint else {
                unusable.places.add(places.len(), None);
                continue;
            };
            let health = health(endpoint.conditions);
            let pod = pod(endpoint.target_ref, &key.namespace);
            let (node, zone) = (non_empty(endpoint.node_name), non_empty(endpoint.zone));
            for text in endpoint.addresses.iter().filter(|text| !text.is_empty()) {
                let Some(address) = wrong.address("endpoints.addresses", text) else {
                    let name = pod.as_ref().map(Key::to_string);
                    unusable.places.add(places.len(), name.as_deref());
                    continue;
                };
                places.push(Place {
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
            subset: EndpointSubset::new(ports, places, unusable),
            problem: wrong.0,
            completed_from: None,
        }
    }
}

impl From<kubernetes::Endpoints> for Endpoints {
    fn from(raw: kubernetes::Endpoints) -> Self {
        let key = raw.metadata.key();
        let (mut wrong, mut all) = (Wrong::default(), UnusableParts::default());
        let subsets = wrong.items("subsets", raw.subsets, &mut all);
        let subsets = subsets.map(|subset| {
            let mut unusable = UnusableInSubset::default();
            let Some(subset) = subset else {
                unusable.ports.add_all();
                unusable.places.add_all();
                return EndpointSubset::new(Vec::new(), Vec::new(), unusable);
            };
            let ports = ports(
                "subsets.ports",
                subset.ports,
                &mut wrong,
                &mut unusable.ports,
            );
            let lists = [
                ("subsets.addresses", subset.addresses, Health::Ready),
                (
                    "subsets.notReadyAddresses",
                    subset.not_ready_addresses,
                    Health::NotReady,
                ),
            ];
            let mut places = Vec::new();
            for (field, addresses, health) in lists {
                for one in wrong.items(field, addresses, &mut unusable.places) {
                    let (text, pod, node) = one.map_or_else(Default::default, |one| {
                        (
                            Some(one.ip),
                            pod(one.target_ref, &key.namespace),
                            one.node_name,
                        )
                    });
                    if text.as_deref() == Some("") {
                        continue;
                    }
                    let address =
                        text.and_then(|text| wrong.address("subsets.addresses.ip", &text));
                    let Some(address) = address else {
                        let name = pod.as_ref().map(Key::to_string);
                        unusable.places.add(places.len(), name.as_deref());
                        continue;
                    };
                    places.push(Place {
                        address,
                        health,
                        pod,
                        node: non_empty(node),
                        zone: None,
                    });
                }
            }
            EndpointSubset::new(ports, places, unusable)
        });
        let subsets = subsets.collect();
        Self {
            key,
            subsets,
            has_no_list: !all.is_empty(),
            problem: wrong.0,
            completed_from: None,
        }
    }
}
