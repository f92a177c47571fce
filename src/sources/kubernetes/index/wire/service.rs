//! Service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::kubernetes::{
    Items, Lenient, LoadBalancerIngress, PortOrName, ServiceObject, ServicePort,
};
use api::model::{DISTRIBUTION, Labels, Port, Protocol, Target, is_near, is_near_by_field};
use api::names::{MAX_NAME_LENGTH, export_to};
use api::size;
use api::well_known::EXPORT_TO;
use serde::Deserialize;

use super::{FirstError, MetadataView as _, labels};
use crate::kind::{Key, Kind, Resource, bytes};

const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";
const KUBERNETES_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "ServiceObject")]
pub struct Service {
    pub key: Key,
    pub(crate) created: Option<i64>,
    /// The external name of an ExternalName service.
    pub(crate) external_name: Option<Box<str>>,
    pub(crate) headless: bool,
    /// Cluster IPs, then `externalIPs`, without duplicates.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) balancers: Vec<IpAddr>,
    /// Ports with unique numbers and names, without protocols that no proxy supports.
    pub(crate) ports: Vec<Port>,
    pub(crate) selector: Labels,
    /// Identities, and names of accounts of its namespace.
    pub(crate) identities: Vec<Arc<str>>,
    pub(crate) accounts: Vec<Box<str>>,
    pub(crate) prefers_close: bool,
    pub(crate) exported_to: Vec<Arc<str>>,
    pub(crate) publishes_not_ready: bool,
    pub(crate) problem: Option<Box<str>>,
}

/// Bytes that a Service takes in worlds and snapshots, and each of its ports: clusters, routes and listeners of proxies.
const SERVED_BYTES: usize = 1 << 10;
const SERVED_PORT_BYTES: usize = 2 << 10;

impl Kind for Service {
    const RESOURCE: Resource = Resource::core("services");
    /// Served resources take more than the objects. Chosen: the 10,000 Services that Kubernetes is made for fit with five
    /// ports each.
    const ROOM: usize = 128 << 20;

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        let ports = self
            .ports
            .iter()
            .map(|port| SERVED_PORT_BYTES + size_of::<Port>() + port.name.len());
        let addresses = self.addresses.len().saturating_add(self.balancers.len());
        let pairs = self.selector.iter();
        let texts = pairs.flat_map(|(name, value)| [&**name, &**value]);
        let texts = texts
            .chain(self.identities.iter().map(|name| &**name))
            .chain(self.accounts.iter().map(|name| &**name))
            .chain(self.exported_to.iter().map(|name| &**name));
        [
            ports.sum(),
            size_of::<IpAddr>().saturating_mul(addresses),
            bytes(texts),
        ]
        .into_iter()
        .fold(SERVED_BYTES + size_of::<Self>(), usize::saturating_add)
    }
}

impl From<ServiceObject> for Service {
    fn from(raw: ServiceObject) -> Self {
        let ServiceObject {
            metadata,
            spec,
            status,
        } = raw;
        let mut wrong = FirstError::default();
        let external_name =
            (spec.kind == "ExternalName").then(|| external_name(spec.external_name, &mut wrong));
        let of_cluster = cluster_ips(spec.cluster_ips, spec.cluster_ip, &mut wrong);
        let external_ips = wrong.items("spec.externalIPs", spec.external_ips);
        let headless = of_cluster.iter().any(|address| address == "None");
        let mut addresses = match headless || external_name.is_some() {
            true => Vec::new(),
            false => addresses(&of_cluster, &external_ips, &mut wrong),
        };
        let mut ports = ports(spec.ports, &mut wrong);
        bound("spec.ports", &mut ports, size::SERVICE_PORTS, &mut wrong);
        let streams = ports.iter().filter(|port| !port.protocol.is_http()).count();
        let max = most_addresses(streams, ports.len());
        bound("spec.externalIPs", &mut addresses, max, &mut wrong);
        let mut room = size::places(1, ports.len());
        let mut accounts_of = |annotation| {
            let mut all = split_list(metadata.annotation(annotation));
            let max = fitting(&all, &mut room);
            bound(annotation, &mut all, max, &mut wrong);
            all
        };
        let identities = accounts_of(CANONICAL_ACCOUNTS);
        let accounts = accounts_of(KUBERNETES_ACCOUNTS);
        let balancers = load_balancers(status.load_balancer.ingress, &mut wrong);
        let distribution = Some(spec.traffic_distribution.as_str());
        let annotated = metadata.annotation(DISTRIBUTION);
        let prefers_close = prefers_close(distribution, annotated, &mut wrong);
        Self {
            key: metadata.key(),
            created: metadata.created_at(),
            external_name,
            headless,
            addresses,
            balancers: match &*spec.kind {
                "LoadBalancer" => balancers,
                _ => Vec::new(),
            },
            ports,
            selector: labels(spec.selector),
            identities: identities.into_iter().map(Arc::from).collect(),
            accounts: accounts.into_iter().map(Box::from).collect(),
            prefers_close,
            exported_to: exported(metadata.annotation(EXPORT_TO), &mut wrong),
            publishes_not_ready: spec.publish_not_ready_addresses,
            problem: wrong.0,
        }
    }
}

/// Returns the texts of the cluster IPs: those of the list, or of the older field where there is no list.
fn cluster_ips(all: Items<String>, single: Lenient<String>, wrong: &mut FirstError) -> Vec<String> {
    let all = wrong.items("spec.clusterIPs", all);
    match all.is_empty() {
        true => {
            let single = wrong.address_text("spec.clusterIP", single);
            single.into_iter().collect()
        }
        false => all,
    }
}

/// Parses the addresses of a Service, each once.
fn addresses(cluster: &[String], external: &[String], wrong: &mut FirstError) -> Vec<IpAddr> {
    let fields = [("spec.clusterIPs", cluster), ("spec.externalIPs", external)];
    let texts = fields
        .into_iter()
        .flat_map(|(field, texts)| texts.iter().map(move |text| (field, text)));
    let addresses = texts.filter_map(|(field, text)| wrong.address(field, text));
    once(addresses.collect())
}

/// Parses the addresses of load balancers, each once.
fn load_balancers(ingresses: Items<LoadBalancerIngress>, wrong: &mut FirstError) -> Vec<IpAddr> {
    let all = wrong.items("status.loadBalancer.ingress", ingresses);
    let addresses = all
        .iter()
        .filter_map(|one| wrong.address("status.loadBalancer.ingress.ip", &one.ip));
    once(addresses.collect())
}

/// Returns true if a field wants near endpoints; reports a word that Kubernetes does not know.
fn prefers_close(field: Option<&str>, annotation: Option<&str>, wrong: &mut FirstError) -> bool {
    let wanted = [
        ("spec.trafficDistribution", field, is_near_by_field(field)),
        (DISTRIBUTION, annotation, is_near(annotation)),
    ];
    for (field, value, is_near) in wanted {
        if let Some(value) = value.filter(|value| !value.is_empty() && !is_near) {
            // An annotation may be long, and this is kept.
            let (head, more) = api::text::excerpt(value, 64);
            wrong.set(|| {
                format!(
                    "{field}: want PreferClose, PreferSameZone or PreferSameNode, got {head:?}{more}"
                )
            });
        }
    }
    wanted.iter().any(|(_, _, is_near)| *is_near)
}

fn exported(annotation: Option<&str>, wrong: &mut FirstError) -> Vec<Arc<str>> {
    let (all, unknown) = export_to(annotation.unwrap_or_default());
    if let Some(entry) = unknown {
        let (head, more) = api::text::excerpt(entry, 64);
        wrong.set(|| {
            format!("{EXPORT_TO}: want \".\", \"*\", \"~\" or namespaces, got {head:?}{more}")
        });
    }
    all.into_iter().map(Arc::from).collect()
}

/// Addresses that a Service may have: each with each port that is not HTTP is a listener. A cluster gives two at most.
fn most_addresses(streams: usize, ports: usize) -> usize {
    let listeners = (size::SERVICE_PORTS / streams.max(1)).max(2);
    listeners.min(size::places(1, ports))
}

/// Counts the leading texts that fit into the room, which each port's cluster takes from.
fn fitting(texts: &[&str], room: &mut usize) -> usize {
    let fits = |text: &&&str| {
        let left = room.checked_sub(size::weight([**text]));
        let left = left.filter(|_| text.len() <= size::TEXT);
        *room = left.unwrap_or_default();
        left.is_some()
    };
    texts.iter().take_while(fits).count()
}

/// Truncates the items to the limit, and reports it.
fn bound<T>(field: &str, items: &mut Vec<T>, max: usize, wrong: &mut FirstError) {
    if items.len() > max {
        let count = items.len();
        wrong.set(|| format!("{field}: the first {max} of {count} are used: split the service"));
        items.truncate(max);
    }
}

fn ports(items: Items<ServicePort>, wrong: &mut FirstError) -> Vec<Port> {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut ports = Vec::new();
    for port in wrong.items("spec.ports", items) {
        let name: Arc<str> = port.name.into();
        let Some(number) = wrong.number("spec.ports.port", &port.port) else {
            continue;
        };
        let app = Some(&*port.app_protocol).filter(|app| !app.is_empty());
        // One number may be there for TCP and for UDP.
        let Some(protocol) = Protocol::of_kubernetes(&port.protocol, app, &name, number) else {
            continue;
        };
        let Some(target) = target(port.target_port, number, wrong) else {
            continue;
        };
        if names.contains(&name) || numbers.contains(&number) {
            wrong.set(|| format!("spec.ports: port {number} {name:?} is there twice"));
            continue;
        }
        names.insert(Arc::clone(&name));
        numbers.insert(number);
        ports.push(Port {
            name,
            number,
            protocol,
            target,
        });
    }
    ports
}

fn target(
    port: Lenient<Option<PortOrName<i64>>>,
    number: u16,
    wrong: &mut FirstError,
) -> Option<Target> {
    const FIELD: &str = "spec.ports.targetPort";
    let target = match port {
        Lenient::Read(None | Some(PortOrName::Port(0))) => return Some(Target::Number(number)),
        Lenient::Read(Some(PortOrName::Port(target))) => target,
        Lenient::Read(Some(PortOrName::Name(text))) if text.is_empty() => {
            return Some(Target::Number(number));
        }
        Lenient::Read(Some(PortOrName::Name(text))) => match text.parse() {
            Ok(target) => target,
            Err(_) => return Some(Target::Name(text.into())),
        },
        Lenient::Unreadable(got) => {
            wrong.no_port(FIELD, &got);
            return None;
        }
    };
    wrong.port(FIELD, target).map(Target::Number)
}

/// The items of a list with commas.
fn split_list(text: Option<&str>) -> Vec<&str> {
    let items = text.unwrap_or_default().split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).collect()
}

/// Removes duplicates; the first of each stays.
fn once(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut seen = BTreeSet::new();
    addresses
        .into_iter()
        .filter(|address| seen.insert(*address))
        .collect()
}

/// Returns the name of an ExternalName service; reports an invalid one.
fn external_name(written: Lenient<String>, wrong: &mut FirstError) -> Box<str> {
    const FIELD: &str = "spec.externalName";
    match written {
        Lenient::Read(name) => {
            if !is_name(&name) {
                wrong.set(|| format!("{FIELD}: want a name, got {name:?}"));
            }
            name.into()
        }
        Lenient::Unreadable(got) => {
            wrong.set(|| format!("{FIELD}: want a name, got {got}"));
            Box::default()
        }
    }
}

/// Returns true for letters that an API server takes in an `externalName`.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_LENGTH
        && text.bytes().all(|letter| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, b'-' | b'.')
        })
}
