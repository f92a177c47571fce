//! Converts a ServiceEntry: a service for each of its hosts, and endpoints that all of them share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::config::discovery_notes::unserved_host;
use api::model::{
    Address, ClusterId, Configured, Endpoint, EndpointAddress, EndpointShards, Labels, Locality,
    Port, Protocol, Registry, Resolution, Service, ServiceKey, Target, TlsMode, Workload,
};
use api::names::spiffe_id;
use api::networking::service_entry::{Location, Resolution as Declared};
use api::networking::{ServiceEntry, ServicePort, WorkloadEntry};
use api::size;

use crate::contribution::SourceId;

pub(super) const KIND: &str = "ServiceEntry";

/// A workload that a ServiceEntry may select by labels.
#[derive(Clone, Copy, Debug)]
pub(super) enum Backend<'a> {
    Entry(&'a SourceId, &'a Configured<WorkloadEntry>),
    Pod(&'a Workload),
}

/// Bytes that a label takes besides its texts, and bytes of labels that count as one more endpoint. Chosen: usual workloads have
/// fewer than that.
const LABEL_BYTES: usize = 96;
const BYTES_OF_PLACE: usize = 2048;

impl Backend<'_> {
    /// Returns the number of endpoints for each port that the backend serves.
    pub(super) fn places(&self) -> usize {
        match self {
            Self::Entry(_, place) => {
                // Each ServiceEntry that selects it makes its labels anew.
                let labels = place.spec.labels.iter();
                let bytes = labels.map(|(name, value)| LABEL_BYTES + name.len() + value.len());
                let places = bytes.sum::<usize>() / BYTES_OF_PLACE;
                place.spec.places().saturating_add(places)
            }
            Self::Pod(pod) => {
                let texts = [
                    Some(pod.locality.as_str()),
                    pod.network.as_deref(),
                    pod.account.as_deref(),
                ];
                let each = size::endpoint(texts.into_iter().flatten());
                each.saturating_mul(pod.addresses.len().max(1))
            }
        }
    }
}

/// The labels that an entry selects its backends by; `None` where it does not.
pub(super) fn selector(entry: &ServiceEntry) -> Option<Labels> {
    let selector = entry.workload_selector.as_ref()?;
    Some(labels(&selector.labels))
}

pub(super) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Labels {
    pairs
        .into_iter()
        .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
        .collect()
}

/// The services that an entry makes, no host twice.
pub(super) fn services(entry: &Configured<ServiceEntry>, cluster: &ClusterId) -> Vec<Service> {
    let spec = &entry.spec;
    let mut known = BTreeSet::new();
    let addresses: Vec<Address> = spec
        .addresses
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let addresses = addresses.into_iter();
    let addresses: Vec<_> = addresses.filter(|address| known.insert(*address)).collect();
    let addresses = if addresses.is_empty() {
        BTreeMap::new()
    } else {
        BTreeMap::from([(cluster.clone(), addresses)])
    };
    let resolution = match spec.resolution() {
        // Applications resolve the names themselves; their connections already lead to the right address.
        Declared::None | Declared::DynamicDns => Resolution::None,
        Declared::Static => Resolution::Static,
        Declared::Dns => Resolution::Dns,
        Declared::DnsRoundRobin => Resolution::DnsRoundRobin,
    };
    let resolves =
        resolution.is_dns() && spec.endpoints.is_empty() && spec.workload_selector.is_none();
    let served = |host: &&String| unserved_host(host, resolves).is_none();
    let hosts = spec.hosts.iter().filter(served);
    let hosts: BTreeSet<String> = hosts.map(|host| hostname(host)).collect();
    hosts
        .iter()
        .map(|host| Service {
            key: ServiceKey::new(host, &entry.namespace),
            registry: Registry::External,
            ports: spec.ports.iter().filter_map(port).collect(),
            addresses: addresses.clone(),
            cluster: cluster.clone(),
            resolution,
            mesh_external: spec.location() == Location::MeshExternal,
            selector: selector(spec).unwrap_or_default(),
            created: entry.created,
            accounts: spec
                .subject_alt_names
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            prefers_close: entry.prefers_close,
            exported_to: spec.export_to.iter().map(|to| to.as_str().into()).collect(),
            balancers: BTreeMap::new(),
        })
        .collect()
}

/// Normalizes a host name.
fn hostname(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn port(port: &ServicePort) -> Option<Port> {
    Some(Port {
        name: port.name.as_str().into(),
        number: u16::try_from(port.number).ok()?,
        protocol: Protocol::of_service_entry(&port.protocol)?,
        target: Target::Number(target(port)?),
    })
}

/// Returns messages about ports that make no listener for clients: without an address they would take the TLS connections of
/// every proxy.
pub(super) fn left_to_tls(entry: &Configured<ServiceEntry>) -> impl Iterator<Item = String> {
    const HTTPS: u32 = 443;
    let mut addresses = entry.spec.addresses.iter();
    let has_address = addresses.any(|text| match text.parse() {
        Ok(Address::Plain(address)) => !address.is_unspecified(),
        Ok(Address::Range(_)) => true,
        Err(_) => false,
    });
    let ports = entry.spec.ports.iter();
    let ports = ports.filter(move |port| {
        let protocol = Protocol::of_service_entry(&port.protocol);
        let is_plain = protocol.is_some_and(|protocol| protocol.is_http() || protocol.is_auto());
        port.number == HTTPS && is_plain && !has_address
    });
    ports.map(|port| {
        format!(
            "port {} makes no outbound listener: without an address it would take the TLS connections of every proxy to port \
             {HTTPS}; declare HTTPS or TLS there, or give the entry an address",
            port.name
        )
    })
}

/// Returns the target port of a backend that declares none.
fn target(port: &ServicePort) -> Option<u16> {
    let number = match port.target_port {
        0 => port.number,
        target => target,
    };
    u16::try_from(number).ok()
}

/// The name in place of an address, where the entry wants addresses: Envoy resolves none in an assignment.
pub(super) fn unresolved(
    entry: &Configured<ServiceEntry>,
    place: &WorkloadEntry,
) -> Option<Arc<str>> {
    match EndpointAddress::read(&place.address) {
        EndpointAddress::Name(name) if name.is_empty() => None,
        EndpointAddress::Name(name) if entry.spec.resolution() == Declared::Static => Some(name),
        EndpointAddress::Ip(_) | EndpointAddress::Name(_) | EndpointAddress::Pipe(_) => None,
    }
}

/// Returns the endpoints of an entry's services, by the cluster that has the backend.
pub(super) fn shards<'a>(
    entry: &Configured<ServiceEntry>,
    cluster: &ClusterId,
    trust_domain: &str,
    selected: impl Iterator<Item = Backend<'a>>,
) -> EndpointShards {
    let ports: Vec<_> = entry
        .spec
        .ports
        .iter()
        .filter(|port| Protocol::of_service_entry(&port.protocol).is_some())
        .collect();
    let mut shards: BTreeMap<ClusterId, Vec<Endpoint>> = BTreeMap::new();
    let identity = |account: &str| identity(trust_domain, &entry.namespace, account);
    for place in &entry.spec.endpoints {
        let shard = shards.entry(cluster.clone()).or_default();
        let account = identity(&place.service_account);
        add(shard, &ports, place, account.as_ref(), None);
    }
    for backend in selected {
        match backend {
            Backend::Entry(source, place) => {
                let shard = shards.entry(source.cluster.clone()).or_default();
                let account = identity(&place.spec.service_account);
                let name = Some(&place.name);
                add(shard, &ports, &place.spec, account.as_ref(), name);
            }
            Backend::Pod(pod) => {
                let shard = shards.entry(pod.key.cluster.clone()).or_default();
                add_pod(shard, &ports, pod);
            }
        }
    }
    shards
        .into_iter()
        .map(|(cluster, mut shard)| {
            shard.sort_unstable();
            shard.dedup();
            (cluster, shard.into())
        })
        .collect()
}

fn identity(trust_domain: &str, namespace: &str, account: &str) -> Option<Arc<str>> {
    (!account.is_empty()).then(|| spiffe_id(trust_domain, namespace, account).into())
}

fn add(
    shard: &mut Vec<Endpoint>,
    ports: &[&ServicePort],
    place: &WorkloadEntry,
    account: Option<&Arc<str>>,
    workload: Option<&Arc<str>>,
) {
    let address = EndpointAddress::read(&place.address);
    let labels = Arc::new(labels(&place.labels));
    for port in ports {
        let declared = place
            .ports
            .get(&port.name)
            .and_then(|number| u16::try_from(*number).ok());
        let Some(number) = declared.or_else(|| target(port)) else {
            continue;
        };
        let is_pipe = matches!(address, EndpointAddress::Pipe(_));
        shard.push(Endpoint {
            tls: TlsMode::of_labels(&labels),
            labels: labels.clone(),
            locality: Locality::from(place.locality.as_str()),
            network: Some(&place.network)
                .filter(|network| !network.is_empty())
                .map(|network| network.as_str().into()),
            account: account.cloned(),
            weight: place.weight.unwrap_or(1),
            workload: workload.cloned(),
            ..Endpoint::new(
                address.clone(),
                if is_pipe { 0 } else { number },
                &port.name,
            )
        });
    }
}

fn add_pod(shard: &mut Vec<Endpoint>, ports: &[&ServicePort], pod: &Workload) {
    let name: Arc<str> = format!("{}/{}", pod.key.namespace, pod.key.name).into();
    for address in &pod.addresses {
        for port in ports {
            let Some(number) = target(port) else {
                continue;
            };
            shard.push(Endpoint {
                labels: pod.labels.clone(),
                locality: pod.locality.clone(),
                network: pod.network.clone(),
                account: pod.account.clone(),
                tls: TlsMode::of_labels(&pod.labels),
                health: pod.health,
                pod: Some(name.clone()),
                workload: pod.owner.clone(),
                ..Endpoint::new(EndpointAddress::Ip(*address), number, &port.name)
            });
        }
    }
}
