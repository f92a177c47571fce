//! Service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::kubernetes::{Items, Lenient, ServiceObject, ServiceStatus};
use api::model::{DISTRIBUTION, Labels, Port, is_near, is_near_by_field};
use api::names::{LONGEST_NAME, export_to};
use api::size;
use api::well_known::EXPORT_TO;
use serde::Deserialize;

use super::service_ports::service_ports;
use super::{MetadataView as _, UnusableParts, Wrong, fill_addresses, labels, with_last_good};
use crate::kind::{Key, Kind, Resource, bytes};

const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";
const KUBERNETES_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "ServiceObject")]
pub struct Service {
    pub key: Key,
    pub(crate) created: Option<i64>,
    /// The external name of an ExternalName service; empty, if it cannot be used.
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
    unusable: Option<Box<UnusableInService>>,
    pub(crate) problem: Option<Box<str>>,
    /// The object as it is written, if parts of the version before stay in it.
    pub(crate) completed_from: Option<Arc<Self>>,
}

/// Parts of a Service that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UnusableInService {
    ports: UnusableParts,
    addresses: UnusableParts,
    balancers: UnusableParts,
    external_name: bool,
}

impl UnusableInService {
    const fn is_empty(&self) -> bool {
        self.ports.is_empty()
            && self.addresses.is_empty()
            && self.balancers.is_empty()
            && !self.external_name
    }
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
        let unusable = self.unusable.as_ref();
        let unusable = unusable.map(|all| [&all.ports, &all.addresses, &all.balancers]);
        let unusable = unusable.into_iter().flatten().map(UnusableParts::size);
        [
            ports.sum(),
            unusable.sum(),
            size_of::<IpAddr>().saturating_mul(addresses),
            bytes(texts),
        ]
        .into_iter()
        .fold(size_of::<Self>(), usize::saturating_add)
    }

    fn keeps_last(&self) -> bool {
        self.unusable.is_some()
    }
}

impl Service {
    /// Returns the object with parts of the version before in the places of those that cannot be used; `None`: there are none.
    pub(crate) fn completed(self: &Arc<Self>, before: &Self) -> Option<Self> {
        let unusable = self.unusable.as_ref()?;
        let problem = with_last_good(self.problem.as_deref());
        let completed_from = Some(Arc::clone(self));
        if unusable.external_name && before.external_name.is_none() {
            // The service was none of an external name: without one, nothing takes its place.
            return Some(Self {
                problem,
                completed_from,
                ..before.clone()
            });
        }
        let mut new = (**self).clone();
        let has_name = unusable.external_name && before.external_name.as_deref() != Some("");
        if has_name {
            new.external_name.clone_from(&before.external_name);
        }
        let numbers: BTreeSet<_> = self.ports.iter().map(|port| port.number).collect();
        let names: BTreeSet<_> = self.ports.iter().map(|port| &port.name).collect();
        let is_there = |port: &Port| numbers.contains(&port.number) || names.contains(&port.name);
        let name = |port: &Port| Some(port.name.to_string());
        let ports = &unusable.ports;
        let has_ports = ports.fill(&mut new.ports, &before.ports, is_there, name);
        let fills = [
            (&unusable.addresses, &mut new.addresses, &before.addresses),
            (&unusable.balancers, &mut new.balancers, &before.balancers),
        ];
        let mut has_addresses = false;
        for (unusable, addresses, before) in fills {
            has_addresses |= fill_addresses(unusable, addresses, before);
        }
        // An address in the place of `None` that is none leaves it without one.
        let stays_headless =
            before.headless && !unusable.addresses.is_empty() && new.addresses.is_empty();
        new.headless |= stays_headless;
        new.ports.truncate(size::SERVICE_PORTS);
        new.addresses.truncate(most_addresses(&new.ports));
        (has_name || has_ports || has_addresses || stays_headless).then_some(Self {
            problem,
            completed_from,
            ..new
        })
    }
}

impl From<ServiceObject> for Service {
    fn from(raw: ServiceObject) -> Self {
        let ServiceObject {
            metadata,
            spec,
            status,
        } = raw;
        let mut wrong = Wrong::default();
        let mut unusable = UnusableInService::default();
        let external_name =
            (spec.kind == "ExternalName").then(|| external_name(spec.external_name, &mut wrong));
        unusable.external_name = external_name.as_deref() == Some("");
        let lost = &mut unusable.addresses;
        let of_cluster = cluster_ips(spec.cluster_ips, spec.cluster_ip, &mut wrong, lost);
        let headless = of_cluster.iter().flatten().any(|address| address == "None");
        let mut addresses = Vec::new();
        if headless || external_name.is_some() {
            *lost = UnusableParts::default();
        } else {
            wrong.addresses("spec.clusterIPs", of_cluster, &mut addresses, lost);
            const EXTERNAL: &str = "spec.externalIPs";
            let external: Vec<_> = wrong.items(EXTERNAL, spec.external_ips, lost).collect();
            wrong.addresses(EXTERNAL, external, &mut addresses, lost);
        }
        let mut ports = service_ports(spec.ports, &mut wrong, &mut unusable.ports);
        bound("spec.ports", &mut ports, size::SERVICE_PORTS, &mut wrong);
        let mut addresses = once(addresses);
        let most = most_addresses(&ports);
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
        let balancers = match &*spec.kind {
            "LoadBalancer" => balancers(status, &mut wrong, &mut unusable.balancers),
            _ => Vec::new(),
        };
        let distribution = Some(spec.traffic_distribution.as_str());
        let annotated = metadata.annotation(DISTRIBUTION);
        let prefers_close = prefers_close(distribution, annotated, &mut wrong);
        Self {
            key: metadata.key(),
            created: metadata.created_at(),
            external_name,
            headless,
            addresses,
            balancers,
            ports,
            selector: labels(spec.selector),
            identities: identities.into_iter().map(Arc::from).collect(),
            accounts: accounts.into_iter().map(Box::from).collect(),
            prefers_close,
            exported_to: exported(metadata.annotation(EXPORT_TO), &mut wrong),
            publishes_not_ready: spec.publish_not_ready_addresses,
            unusable: (!unusable.is_empty()).then(|| Box::new(unusable)),
            problem: wrong.0,
            completed_from: None,
        }
    }
}

/// Returns the texts of a cluster's addresses; `None`: it cannot be read.
fn cluster_ips(
    all: Items<String>,
    first: Lenient<String>,
    wrong: &mut Wrong,
    unusable: &mut UnusableParts,
) -> Vec<Option<String>> {
    let all: Vec<_> = wrong.items("spec.clusterIPs", all, unusable).collect();
    match all.is_empty() {
        true => vec![wrong.address_text("spec.clusterIP", first)],
        false => all,
    }
}

fn balancers(
    status: ServiceStatus,
    wrong: &mut Wrong,
    unusable: &mut UnusableParts,
) -> Vec<IpAddr> {
    const FIELD: &str = "status.loadBalancer.ingress";
    let texts = wrong.items(FIELD, status.load_balancer.ingress, unusable);
    let texts: Vec<_> = texts.map(|one| one.map(|one| one.ip)).collect();
    let mut balancers = Vec::new();
    let field = format!("{FIELD}.ip");
    wrong.addresses(&field, texts, &mut balancers, unusable);
    once(balancers)
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
fn most_addresses(ports: &[Port]) -> usize {
    let streams = ports.iter().filter(|port| !port.protocol.is_http()).count();
    let listeners = (size::SERVICE_PORTS / streams.max(1)).max(2);
    listeners.min(size::places(1, ports.len()))
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

/// Returns the name of an ExternalName service; empty for one that is none, which is reported.
fn external_name(written: Lenient<String>, wrong: &mut Wrong) -> Box<str> {
    let got = match written {
        Lenient::Read(name) if is_name(&name) => return name.into(),
        Lenient::Read(name) => format!("{name:?}"),
        Lenient::Unreadable(got) => got.into(),
    };
    wrong.set(|| format!("spec.externalName: want a name, got {got}"));
    Box::default()
}

/// Returns true for letters that an API server takes in an `externalName`.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text.bytes().all(|letter| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, b'-' | b'.')
        })
}
