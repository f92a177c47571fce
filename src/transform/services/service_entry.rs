//! Builds one entry from a service and the objects that it refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::google::protobuf::Timestamp;
use api::names::{export_to, spiffe_id};
use api::networking::{ServiceEntry, ServicePort, WorkloadEntry, service_entry};
use api::well_known::{EXPORT_TO, LAST_APPLIED};
use prost::Message as _;
use prost::encoding::{btree_map, message, string};

use super::{Endpoint, EndpointGroup, Part, Services};
use crate::read::{endpoint_number, number};
use crate::{Key, Mesh};
use api::kubernetes::{self, PartialObjectMetadata, ServiceObject};

const SERVICE_VERSION: &str = "networking.alpha.istio.io/serviceVersion";
pub(super) const ENDPOINTS_VERSION: &str = "networking.alpha.istio.io/endpointsVersion";
pub(super) const NOT_READY: &str = "networking.alpha.istio.io/notReadyEndpoints";

const REGION: [&str; 2] = [
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
];
const ZONE: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

/// The address of a service without one.
const NO_ADDRESS: &str = "0.0.0.0";

/// Well-known ports on which Istio never detects the protocol: a proxy must not wait there for the client's first bytes.
const SERVER_FIRST: [u16; 4] = [25, 53, 3306, 27017];

/// Bytes of an entry with its metadata. Sinks take messages of 4 MiB, and a message has a few bytes around its resource.
pub(super) const MAX_BYTES: usize = (4 << 20) - (64 << 10);

/// Numbers of fields: `endpoints` and `subject_alt_names` of a ServiceEntry, `labels` and `annotations` of a resource's metadata.
const ENDPOINTS: u32 = 6;
const SUBJECT_ALT_NAMES: u32 = 8;
const LABELS: u32 = 4;
const ANNOTATIONS: u32 = 5;

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

/// The entry of a service is larger than sinks take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryTooLarge;

impl fmt::Display for EntryTooLarge {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "the ServiceEntry made of the Service is larger than {MAX_BYTES} bytes, the most that sinks take by default: give it fewer endpoints, \
             or their pods fewer labels"
        )
    }
}

impl std::error::Error for EntryTooLarge {}

/// The bytes that an entry may still grow by, as protobuf. Every address repeats the ports of its group and the labels of its pod,
/// so small objects may come to a large entry: each endpoint is measured when it is made, and none is made beyond the room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Room(pub(super) usize);

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), EntryTooLarge> {
        self.0 = self.0.checked_sub(bytes).ok_or(EntryTooLarge)?;
        Ok(())
    }

    /// Takes a map of a resource's metadata.
    fn take_texts(
        &mut self,
        field: u32,
        texts: &BTreeMap<String, String>,
    ) -> Result<(), EntryTooLarge> {
        let text = string::encoded_len;
        self.take(btree_map::encoded_len(text, text, field, texts))
    }
}

pub(super) struct EntryBuilder<'a> {
    pub(super) of: &'a Services,
    pub(super) parts: Vec<&'a Part>,
    pub(super) service: &'a ServiceObject,
}

impl EntryBuilder<'_> {
    pub(super) fn entry(&self, key: &Key, mesh: &Mesh) -> Result<SyntheticEntry, EntryTooLarge> {
        self.measured(key, mesh).map(|(entry, _room)| entry)
    }

    /// Returns the entry, and the room that it leaves.
    pub(super) fn measured(
        &self,
        key: &Key,
        mesh: &Mesh,
    ) -> Result<(SyntheticEntry, Room), EntryTooLarge> {
        let mut room = Room(MAX_BYTES);
        let metadata = &self.service.metadata;
        let mut annotations = metadata.annotations.clone();
        // kubectl's copy of the whole object is not served.
        annotations.remove(LAST_APPLIED);
        let mut note = |name: &str, value: String| {
            if !value.is_empty() {
                annotations.insert(name.to_owned(), value);
            }
        };
        note(SERVICE_VERSION, metadata.resource_version.clone());
        let versions = self.parts.iter().map(|part| &*part.version);
        let versions: Vec<_> = versions.filter(|version| !version.is_empty()).collect();
        note(ENDPOINTS_VERSION, versions.join(","));
        // A ServiceEntry has no field for addresses that are not ready.
        note(NOT_READY, self.not_ready()?);
        room.take_texts(ANNOTATIONS, &annotations)?;
        room.take_texts(LABELS, &metadata.labels)?;
        let entry = SyntheticEntry {
            key: key.clone(),
            create_time: metadata.created(),
            labels: metadata.labels.clone(),
            annotations,
            spec: self.spec(key, mesh, &mut room)?,
        };
        Ok((entry, room))
    }

    fn spec(&self, key: &Key, mesh: &Mesh, room: &mut Room) -> Result<ServiceEntry, EntryTooLarge> {
        let service = self.service;
        let spec = &service.spec;
        let is_external = spec.kind == "ExternalName";
        let address = match spec.cluster_ip.read().map_or("", String::as_str) {
            "" | "None" => NO_ADDRESS,
            _ if is_external => NO_ADDRESS,
            address => address,
        };
        let exported = service.metadata.annotations.get(EXPORT_TO);
        let (exported, _unknown) = export_to(exported.map_or("", String::as_str));
        let mut entry = ServiceEntry {
            hosts: vec![format!(
                "{}.{}.svc.{}",
                key.name, key.namespace, mesh.domain
            )],
            addresses: vec![address.to_owned()],
            ports: spec.ports.items.iter().map(port).collect(),
            export_to: exported.into_iter().map(str::to_owned).collect(),
            ..ServiceEntry::default()
        };
        if is_external {
            entry.set_location(service_entry::Location::MeshExternal);
            entry.set_resolution(service_entry::Resolution::Dns);
            let ports = spec.ports.items.iter();
            entry.endpoints = vec![WorkloadEntry {
                address: spec.external_name.read().cloned().unwrap_or_default(),
                ports: ports
                    .map(|port| (port.name.clone(), number(&port.port).map_or(0, u32::from)))
                    .collect(),
                labels: service.metadata.labels.clone(),
                ..WorkloadEntry::default()
            }];
            room.take(entry.encoded_len())?;
            return Ok(entry);
        }
        let (endpoints, identities) = self.endpoints(key, mesh, room)?;
        entry.set_location(service_entry::Location::MeshInternal);
        // A static ServiceEntry must have endpoints.
        entry.set_resolution(if endpoints.is_empty() {
            service_entry::Resolution::None
        } else {
            service_entry::Resolution::Static
        });
        // Without the two lists, which are measured already.
        room.take(entry.encoded_len())?;
        entry.endpoints = endpoints;
        entry.subject_alt_names = identities.into_iter().collect();
        Ok(entry)
    }

    /// Returns the ready endpoints in the order of their objects, and their identities.
    fn endpoints(
        &self,
        key: &Key,
        mesh: &Mesh,
        room: &mut Room,
    ) -> Result<(Vec<WorkloadEntry>, BTreeSet<String>), EntryTooLarge> {
        let (mut endpoints, mut identities) = (Vec::new(), BTreeSet::new());
        let declared = self.declared();
        for group in self.groups() {
            let ports: BTreeMap<_, _> = numbers(group, &declared)
                .map(|(name, port)| (name.to_owned(), u32::from(port)))
                .collect();
            for endpoint in ready(group, true) {
                let target = endpoint.pod(&key.namespace);
                let target = target.map(|pod| self.of.pods.get_key_value(&pod));
                for ip in &endpoint.ips {
                    let mut entry = WorkloadEntry {
                        address: ip.clone(),
                        ports: ports.clone(),
                        ..WorkloadEntry::default()
                    };
                    if let Some((pod_key, pod)) = target.unwrap_or_else(|| self.of.pod_at(ip)) {
                        entry.labels = pod.metadata.labels.clone();
                        let node = self.of.nodes.get(&pod.spec.node_name);
                        entry.locality = node.map(locality).unwrap_or_default();
                        // The pod's namespace, which a reference may set apart from the Service's.
                        let identity = identity(pod_key, pod, mesh);
                        if !identities.contains(&identity) {
                            room.take(string::encoded_len(SUBJECT_ALT_NAMES, &identity))?;
                            identities.insert(identity);
                        }
                    }
                    room.take(message::encoded_len(ENDPOINTS, &entry))?;
                    endpoints.push(entry);
                }
            }
        }
        Ok((endpoints, identities))
    }

    fn groups(&self) -> impl Iterator<Item = &EndpointGroup> {
        self.parts.iter().flat_map(|part| &part.groups)
    }

    /// Returns the names of the Service's ports: clients reach an endpoint by these alone.
    fn declared(&self) -> BTreeSet<&str> {
        let ports = self.service.spec.ports.items.iter();
        ports.map(|port| &*port.name).collect()
    }

    fn not_ready(&self) -> Result<String, EntryTooLarge> {
        let mut room = Room(MAX_BYTES);
        let mut addresses = Vec::new();
        let declared = self.declared();
        for group in self.groups() {
            for ip in ready(group, false).flat_map(|endpoint| &endpoint.ips) {
                for (_, port) in numbers(group, &declared) {
                    let address = host_and_port(ip, port);
                    // With its comma.
                    room.take(address.len().saturating_add(1))?;
                    addresses.push(address);
                }
            }
        }
        Ok(addresses.join(","))
    }
}

fn ready(group: &EndpointGroup, is_ready: bool) -> impl Iterator<Item = &Endpoint> {
    let endpoints = group.endpoints.iter();
    endpoints.filter(move |endpoint| endpoint.is_ready == is_ready)
}

/// Returns names and numbers of a group's ports that the Service declares.
fn numbers<'a>(
    group: &'a EndpointGroup,
    declared: &BTreeSet<&str>,
) -> impl Iterator<Item = (&'a str, u16)> {
    let ports = group.ports.iter();
    let declared = ports.filter(|port| declared.contains(&*port.name));
    declared.filter_map(|port| endpoint_number(port).map(|number| (&*port.name, number)))
}

fn host_and_port(ip: &str, port: u16) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

fn identity(key: &Key, pod: &kubernetes::Pod, mesh: &Mesh) -> String {
    let account = match &*pod.spec.service_account_name {
        "" => "default",
        account => account,
    };
    spiffe_id(&mesh.trust_domain, &key.namespace, account)
}

/// `REGION/ZONE`.
pub(super) fn locality(node: &PartialObjectMetadata) -> String {
    let labels = &node.metadata.labels;
    let [region, zone] = [REGION, ZONE].map(|names| {
        let mut values = names.iter().filter_map(|name| labels.get(*name));
        values.next().map_or("", String::as_str)
    });
    match (region, zone) {
        ("", "") => String::new(),
        (region, "") => region.to_owned(),
        (region, zone) => format!("{region}/{zone}"),
    }
}

fn port(port: &kubernetes::ServicePort) -> ServicePort {
    ServicePort {
        number: number(&port.port).map_or(0, u32::from),
        name: port.name.clone(),
        protocol: protocol(port).to_owned(),
        ..ServicePort::default()
    }
}

fn protocol(port: &kubernetes::ServicePort) -> &'static str {
    if port.protocol == "UDP" {
        return "UDP";
    }
    let name = port.name.to_ascii_lowercase();
    let prefix = name.split('-').next().unwrap_or_default();
    match prefix {
        // Before the others: it has a hyphen of its own, and its prefix is `grpc`.
        _ if name.starts_with("grpc-web") => "GRPC-Web",
        "http" => "HTTP",
        "http2" => "HTTP2",
        "https" => "HTTPS",
        "grpc" => "GRPC",
        "tcp" => "TCP",
        "tls" => "TLS",
        "mongo" => "Mongo",
        "redis" => "Redis",
        "mysql" => "MySQL",
        _ if number(&port.port).is_some_and(|port| SERVER_FIRST.contains(&port)) => "TCP",
        _ => "",
    }
}
