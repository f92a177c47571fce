//! Service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{DISTRIBUTION, Labels, Port, Protocol, Target, is_near, is_near_by_field};
use api::names::{LONGEST_NAME, export_to};
use api::size;
use api::well_known::EXPORT_TO;
use serde::Deserialize;

use super::{RawMetadata, Texts, Wrong, labels, or_default};
use crate::kind::{Key, Kind, Resource, bytes};

const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";
const KUBERNETES_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawService")]
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

impl Kind for Service {
    const RESOURCE: Resource = Resource::core("services");

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        let ports = self
            .ports
            .iter()
            .map(|port| size_of::<Port>() + port.name.len());
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
        .fold(size_of::<Self>(), usize::saturating_add)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawService {
    metadata: RawMetadata,
    #[serde(deserialize_with = "or_default")]
    spec: RawServiceSpec,
    #[serde(deserialize_with = "or_default")]
    status: RawServiceStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawServiceSpec {
    #[serde(rename = "type")]
    what: Option<Box<str>>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    external_ips: Vec<String>,
    external_name: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<RawServicePort>,
    #[serde(deserialize_with = "or_default")]
    selector: Texts,
    traffic_distribution: Option<Box<str>>,
    publish_not_ready_addresses: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawServicePort {
    name: Option<Box<str>>,
    port: i64,
    protocol: Option<Box<str>>,
    app_protocol: Option<Box<str>>,
    target_port: Option<RawTarget>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawTarget {
    Number(i64),
    Name(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawServiceStatus {
    #[serde(deserialize_with = "or_default")]
    load_balancer: RawBalancer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawBalancer {
    #[serde(deserialize_with = "or_default")]
    ingress: Vec<RawIngress>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawIngress {
    ip: Option<String>,
}

impl From<RawService> for Service {
    fn from(raw: RawService) -> Self {
        let RawService {
            metadata,
            spec,
            status,
        } = raw;
        let mut wrong = Wrong::default();
        let what = spec.what.as_deref().unwrap_or("ClusterIP");
        let external_name =
            (what == "ExternalName").then(|| spec.external_name.unwrap_or_default());
        if let Some(name) = &external_name
            && !is_name(name)
        {
            wrong.set(|| format!("spec.externalName: want a name, got {name:?}"));
        }
        let of_cluster = match spec.cluster_ips.is_empty() {
            true => spec.cluster_ip.into_iter().collect(),
            false => spec.cluster_ips,
        };
        let headless = of_cluster.iter().any(|address| address == "None");
        let has_address = !headless && external_name.is_none();
        let texts = [
            ("spec.clusterIPs", &of_cluster),
            ("spec.externalIPs", &spec.external_ips),
        ];
        let texts = texts.into_iter().filter(|_| has_address);
        let texts = texts.flat_map(|(field, texts)| texts.iter().map(move |text| (field, text)));
        let addresses = texts.filter_map(|(field, text)| wrong.address(field, text));
        let addresses = addresses.collect();
        let mut ports = ports(spec.ports, &mut wrong);
        bound("spec.ports", &mut ports, size::SERVICE_PORTS, &mut wrong);
        let mut addresses = once(addresses);
        let streams = ports.iter().filter(|port| !port.protocol.is_http()).count();
        let most = most_addresses(streams, ports.len());
        bound("spec.externalIPs", &mut addresses, most, &mut wrong);
        let mut room = size::places(1, ports.len());
        let mut who = |annotation| {
            let mut all = listed(metadata.annotation(annotation));
            let most = fitting(&all, &mut room);
            bound(annotation, &mut all, most, &mut wrong);
            all
        };
        let identities = who(CANONICAL_ACCOUNTS);
        let accounts = who(KUBERNETES_ACCOUNTS);
        let balancers = status.load_balancer.ingress.into_iter();
        let balancers = balancers
            .filter_map(|ingress| wrong.address("status.loadBalancer.ingress.ip", &ingress.ip?));
        let balancers = once(balancers.collect());
        let distribution = spec.traffic_distribution.as_deref();
        let annotated = metadata.annotation(DISTRIBUTION);
        let prefers_close = prefers_close(distribution, annotated, &mut wrong);
        Self {
            key: metadata.key(),
            created: metadata.created(),
            external_name,
            headless,
            addresses,
            balancers: match what {
                "LoadBalancer" => balancers,
                _ => Vec::new(),
            },
            ports,
            selector: labels(spec.selector),
            identities: identities.into_iter().map(Arc::from).collect(),
            accounts: accounts.into_iter().map(Box::from).collect(),
            prefers_close,
            exported_to: exported(metadata.annotation(EXPORT_TO), &mut wrong),
            publishes_not_ready: spec.publish_not_ready_addresses == Some(true),
            problem: wrong.0,
        }
    }
}

/// Returns true if a field wants near endpoints; a word that Kubernetes does not know is told.
fn prefers_close(field: Option<&str>, annotation: Option<&str>, wrong: &mut Wrong) -> bool {
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

fn exported(annotation: Option<&str>, wrong: &mut Wrong) -> Vec<Arc<str>> {
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
fn bound<T>(field: &str, items: &mut Vec<T>, most: usize, wrong: &mut Wrong) {
    if items.len() > most {
        let count = items.len();
        wrong.set(|| format!("{field}: the first {most} of {count} are used: split the service"));
        items.truncate(most);
    }
}

fn ports(raw: Vec<RawServicePort>, wrong: &mut Wrong) -> Vec<Port> {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut ports = Vec::new();
    for raw in raw {
        let name: Arc<str> = raw.name.unwrap_or_default().into();
        let Some(number) = wrong.port("spec.ports.port", raw.port) else {
            continue;
        };
        let transport = raw.protocol.as_deref().unwrap_or_default();
        let app = raw.app_protocol.as_deref();
        // One number may be there for TCP and for UDP.
        let Some(protocol) = Protocol::of_kubernetes(transport, app, &name, number) else {
            continue;
        };
        let Some(target) = target(raw.target_port, number, wrong) else {
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

fn target(raw: Option<RawTarget>, number: u16, wrong: &mut Wrong) -> Option<Target> {
    let target = match raw {
        None | Some(RawTarget::Number(0)) => return Some(Target::Number(number)),
        Some(RawTarget::Number(target)) => target,
        Some(RawTarget::Name(text)) if text.is_empty() => return Some(Target::Number(number)),
        Some(RawTarget::Name(text)) => match text.parse() {
            Ok(target) => target,
            Err(_) => return Some(Target::Name(text.into())),
        },
    };
    wrong
        .port("spec.ports.targetPort", target)
        .map(Target::Number)
}

/// The items of a list with commas.
fn listed(text: Option<&str>) -> Vec<&str> {
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

/// Returns true for letters that an API server takes in an `externalName`.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text.bytes().all(|letter| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, b'-' | b'.')
        })
}
