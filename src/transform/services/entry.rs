//! Builds one entry from a service and the objects that it refers to.

use std::collections::{BTreeMap, BTreeSet};

use api::names::{export_to, spiffe_id};
use api::networking::{ServiceEntry, ServicePort, WorkloadEntry, service_entry};
use api::well_known::EXPORT_TO;

use super::{Part, Reference, Services, SyntheticEntry};
use crate::read::{endpoint_number, number};
use crate::{Key, Mesh};
use api::kubernetes::{self, EndpointPort, PartialObjectMetadata, ServiceObject, SubsetAddress};

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

pub(super) struct EntryBuilder<'a> {
    pub(super) of: &'a Services,
    pub(super) parts: Vec<&'a Part>,
}

impl EntryBuilder<'_> {
    pub(super) fn entry(&self, key: &Key, service: &ServiceObject, mesh: &Mesh) -> SyntheticEntry {
        let metadata = &service.metadata;
        let mut annotations = metadata.annotations.clone();
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
        note(NOT_READY, self.not_ready());
        SyntheticEntry {
            key: key.clone(),
            create_time: metadata.created(),
            labels: metadata.labels.clone(),
            annotations,
            spec: self.spec(key, service, mesh),
        }
    }

    fn spec(&self, key: &Key, service: &ServiceObject, mesh: &Mesh) -> ServiceEntry {
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
            return entry;
        }
        let (endpoints, identities) = self.endpoints(key, mesh);
        entry.set_location(service_entry::Location::MeshInternal);
        // A static ServiceEntry must have endpoints.
        entry.set_resolution(if endpoints.is_empty() {
            service_entry::Resolution::None
        } else {
            service_entry::Resolution::Static
        });
        entry.endpoints = endpoints;
        entry.subject_alt_names = identities.into_iter().collect();
        entry
    }

    /// Returns the ready endpoints in the order of their objects, and their identities.
    fn endpoints(&self, key: &Key, mesh: &Mesh) -> (Vec<WorkloadEntry>, BTreeSet<String>) {
        let (mut endpoints, mut identities) = (Vec::new(), BTreeSet::new());
        for subset in self.parts.iter().flat_map(|part| &part.subsets) {
            let ports: BTreeMap<_, _> = numbers(&subset.ports.items)
                .map(|(name, port)| (name.to_owned(), u32::from(port)))
                .collect();
            for address in &subset.addresses.items {
                let pod = self.of.find(&Reference::of(address, &key.namespace));
                let mut endpoint = WorkloadEntry {
                    address: address.ip.clone(),
                    ports: ports.clone(),
                    ..WorkloadEntry::default()
                };
                if let Some((pod_key, pod)) = pod {
                    endpoint.labels = pod.metadata.labels.clone();
                    let node = self.of.nodes.get(&pod.spec.node_name);
                    endpoint.locality = node.map(locality).unwrap_or_default();
                    // The pod's namespace, which a reference may set apart from the Service's.
                    identities.insert(identity(pod_key, pod, mesh));
                }
                endpoints.push(endpoint);
            }
        }
        (endpoints, identities)
    }

    fn not_ready(&self) -> String {
        let mut found = Vec::new();
        for subset in self.parts.iter().flat_map(|part| &part.subsets) {
            for address in &subset.not_ready_addresses.items {
                let ports = numbers(&subset.ports.items);
                found.extend(ports.map(|(_, port)| host_and_port(address, port)));
            }
        }
        found.join(",")
    }
}

fn numbers(ports: &[EndpointPort]) -> impl Iterator<Item = (&str, u16)> {
    ports
        .iter()
        .filter_map(|port| endpoint_number(port).map(|number| (&*port.name, number)))
}

fn host_and_port(address: &SubsetAddress, port: u16) -> String {
    let ip = &address.ip;
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
