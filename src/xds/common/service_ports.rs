//! Ports of services, as clients use them: each with its cluster, in the order in which one wins over another.

mod selection;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, ClusterId, Port, Protocol, Service, ServiceKey, World};

use self::selection::{Selection, bit};
use super::conflict::{Conflict, Conflicts, DUPLICATE_CLUSTER};
use crate::cluster_names;
use crate::common::families::Families;
use crate::common::steps::step;
use crate::settings::Settings;

/// One port of one service.
#[derive(Clone, Debug)]
pub(crate) struct ServicePort {
    pub(crate) service: Arc<Service>,
    pub(crate) port: Port,
    /// The protocol for clients.
    pub(crate) protocol: Protocol,
    /// The name of its cluster and its assignment.
    pub(crate) name: Arc<str>,
    /// HTTP, or undeclared, where clients speak TLS: it must not have all connections to that port, for its listener would
    /// break those of every client to whatever else is there.
    pub(crate) is_plain_on_https: bool,
}

/// The port on which clients speak TLS to the world outside.
const HTTPS: u16 = 443;

impl ServicePort {
    pub(crate) fn host(&self) -> &str {
        &self.service.key.hostname
    }

    /// The name of the cluster of a subset; without one, of all endpoints.
    pub(crate) fn cluster(&self, subset: &str) -> Arc<str> {
        if subset.is_empty() {
            return self.name.clone();
        }
        subset_name(self.port.number, subset, self.host())
    }

    /// Requests can be told apart there.
    pub(crate) fn carries_http(&self) -> bool {
        self.protocol.is_http() || self.protocol.is_auto()
    }

    /// Returns true if its requests come in by the routes that all services of its port share: an undeclared port with an address has
    /// its own.
    pub(crate) fn shares_routes(&self) -> bool {
        let of_clusters = self.service.addresses.values();
        let mut addresses = of_clusters.flatten();
        let is_alone =
            |address: &Address| matches!(address, Address::Plain(one) if !one.is_unspecified());
        self.protocol.is_http()
            || self.protocol.is_auto() && !self.service.is_headless() && !addresses.any(is_alone)
    }

    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host(), self.port.number)
    }

    /// Returns true if each of its endpoints may have a listener.
    pub(crate) fn has_listeners(&self) -> bool {
        self.service.is_headless() && !self.protocol.is_http()
    }

    /// The addresses that a proxy of this cluster and these families sees.
    pub(crate) fn addresses(&self, cluster: &str, families: Families) -> Vec<Address> {
        let mut known = HashSet::new();
        self.service
            .addresses_in(cluster)
            .iter()
            .filter(|address| match address {
                Address::Plain(address) => families.has(*address) && !address.is_unspecified(),
                Address::Range(range) => families.has(range.first()),
            })
            .filter(|address| known.insert(**address))
            .copied()
            .collect()
    }

    /// Returns true if the service has an address of either family in this cluster.
    pub(crate) fn has_address(&self, cluster: &str) -> bool {
        self.service
            .addresses_in(cluster)
            .iter()
            .any(|address| !matches!(address, Address::Plain(address) if address.is_unspecified()))
    }

    /// Returns true if one of its addresses is not a range.
    pub(crate) fn has_plain_address(&self, cluster: &str) -> bool {
        self.service
            .addresses_in(cluster)
            .iter()
            .any(|address| matches!(address, Address::Plain(address) if !address.is_unspecified()))
    }
}

/// The name of a cluster for clients.
pub(crate) fn cluster_name(port: u16, host: &str) -> Arc<str> {
    subset_name(port, "", host)
}

/// Cluster name of a subset; an empty name is the whole service.
pub(crate) fn subset_name(port: u16, subset: &str, host: &str) -> Arc<str> {
    cluster_names::outbound(port, subset, host).into()
}

/// Ports of all services, and where each is found: one index for all proxies.
#[derive(Debug, Default)]
struct Index {
    /// By precedence of their services; a name may stand there for several namespaces.
    all: Vec<Arc<ServicePort>>,
    by_name: HashMap<Arc<str>, Vec<usize>>,
    /// In lower case, as domains are compared.
    by_host: HashMap<String, Vec<usize>>,
    /// Those of services whose hosts are wildcards, by host in lower case and number of port.
    by_wildcard: HashMap<String, BTreeMap<u16, Vec<usize>>>,
    /// By plain addresses and ports, those in all clusters.
    by_address: BTreeMap<(IpAddr, u16), Vec<AddressedPort>>,
    /// Numbers of ports at which a service that declares no requests has a range of addresses.
    with_ranges: HashSet<u16>,
    /// By number of port.
    by_port: BTreeMap<u16, Vec<usize>>,
    /// The number of parts that each is made of: itself, its addresses, and the accounts that may answer.
    sizes: Vec<usize>,
}

/// A port of the index that has an address.
#[derive(Debug)]
struct AddressedPort {
    at: usize,
    /// The cluster where it has the address.
    cluster: ClusterId,
}

/// Ports of services that one proxy sees, no name twice: a bit for each of the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServicePorts {
    index: Arc<Index>,
    visible: Arc<[u64]>,
    /// Ports, their addresses, and names of who may answer: resources are made of each.
    pub(crate) size: usize,
}

impl Index {
    fn new(world: &World, settings: &Settings) -> Self {
        let mut services: Vec<_> = world.services.values().collect();
        services.sort_by(|one, other| one.precedence(other));
        let mut index = Self::default();
        for service in services {
            for port in service.ports.iter().filter(|port| port.number > 0) {
                index.add(service, port, settings);
            }
        }
        index
    }

    fn add(&mut self, service: &Arc<Service>, port: &Port, settings: &Settings) {
        if port.protocol == Protocol::Udp {
            return;
        }
        let name = cluster_name(port.number, &service.key.hostname);
        let protocol = if port.protocol.is_auto() && !settings.sniffing.outbound {
            Protocol::Tcp
        } else {
            port.protocol
        };
        let is_plain = port.protocol.is_http() || port.protocol.is_auto();
        let at = self.all.len();
        let known = self.by_name.get_key_value(&name);
        // One string for all who have it.
        let name = known.map_or(name, |(name, _)| name.clone());
        self.by_name.entry(name.clone()).or_default().push(at);
        let host = service.key.hostname.to_ascii_lowercase();
        if host.starts_with('*') {
            let of_host = self.by_wildcard.entry(host.clone()).or_default();
            of_host.entry(port.number).or_default().push(at);
        }
        self.by_host.entry(host).or_default().push(at);
        let mut plain: BTreeSet<IpAddr> = BTreeSet::new();
        for (cluster, addresses) in &service.addresses {
            for address in addresses {
                match address {
                    Address::Plain(address) => {
                        // An address in several clusters makes one part of a resource, so it counts once.
                        plain.insert(*address);
                        let places = self.by_address.entry((*address, port.number));
                        let cluster = cluster.clone();
                        places.or_default().push(AddressedPort { at, cluster });
                    }
                    Address::Range(_) if protocol.is_http() => {}
                    Address::Range(_) => drop(self.with_ranges.insert(port.number)),
                }
            }
        }
        let parts = plain.len().saturating_add(service.accounts.len());
        self.sizes.push(parts.saturating_add(1));
        self.by_port.entry(port.number).or_default().push(at);
        self.all.push(Arc::new(ServicePort {
            service: service.clone(),
            port: port.clone(),
            protocol,
            name,
            is_plain_on_https: is_plain && port.number == HTTPS && settings.block_http_on_443,
        }));
    }
}

impl ServicePorts {
    /// Indexes all ports of a world. The result sees none of them yet: [`ServicePorts::visible_to`] selects.
    pub(crate) fn index(world: &World, settings: &Settings) -> Self {
        Self {
            index: Arc::new(Index::new(world, settings)),
            ..Self::default()
        }
    }

    /// All ports of services that `sees` accepts. The first one of each name counts; `lost` takes the conflicts of the others.
    pub(crate) fn visible_to(&self, sees: impl Fn(&Service) -> bool, lost: &mut Conflicts) -> Self {
        let index = &self.index;
        let mut visible = Selection::of(index);
        let (mut last, mut is_last_visible) = (None, false);
        for (at, service_port) in index.all.iter().enumerate() {
            // The ports of a service stand together.
            let service = Some(&service_port.service.key);
            if last != service {
                (last, is_last_visible) = (service, sees(&service_port.service));
            }
            if !is_last_visible {
                continue;
            }
            let same = index
                .by_name
                .get(&service_port.name)
                .map_or(&[][..], Vec::as_slice);
            // The index is in order of precedence: the first visible port of a name has won it.
            let first = same.iter().find(|one| visible.has(**one));
            if let Some(first) = first.and_then(|first| index.all.get(*first)) {
                lost.add(0, twice(service_port, first));
                continue;
            }
            visible.add(at);
        }
        visible.ports()
    }

    /// The ports of those services among these for which `accepts` returns true.
    pub(crate) fn filtered(&self, accepts: impl Fn(&Service) -> bool) -> Self {
        let mut selected = Selection::of(&self.index);
        let (mut last, mut is_last_accepted) = (None, false);
        for (at, service_port) in self.places() {
            let service = Some(&service_port.service.key);
            if last != service {
                (last, is_last_accepted) = (service, accepts(&service_port.service));
            }
            if is_last_accepted {
                selected.add(at);
            }
        }
        selected.ports()
    }

    /// Returns these ports, and those of others of one world whose names none of these has.
    pub(crate) fn with(&self, others: &Self) -> Self {
        let mut all = Selection {
            index: &self.index,
            visible: self.visible.to_vec(),
            size: self.size,
        };
        for (at, service_port) in others.places() {
            if !bit(&self.visible, at) && self.by_name(&service_port.name).is_none() {
                all.add(at);
            }
        }
        all.ports()
    }

    /// Returns true if a port of this service is one of these.
    pub(crate) fn has(&self, service: &ServiceKey) -> bool {
        let host = service.hostname.to_ascii_lowercase();
        self.by_host(&host)
            .any(|service_port| service_port.service.key == *service)
    }

    /// Returns true if a host or a wildcard means one of these, or a service of this namespace.
    pub(crate) fn are_meant(&self, host: &str, namespace: &str) -> bool {
        let is_meant = |at: usize, service_port: &ServicePort| {
            bit(&self.visible, at) || *service_port.service.key.namespace == *namespace
        };
        let Some(suffix) = host.strip_prefix('*') else {
            let places = self.index.by_host.get(host).into_iter().flatten();
            let mut all = places.filter_map(|at| Some((*at, self.index.all.get(*at)?)));
            return all.any(|(at, service_port)| is_meant(at, service_port));
        };
        let ends = |service_port: &ServicePort| {
            let host = service_port.host().as_bytes();
            let from = host.len().checked_sub(suffix.len());
            let end = from.and_then(|from| host.get(from..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
        };
        let mut all = self.index.all.iter().enumerate();
        all.any(|(at, service_port)| is_meant(at, service_port) && ends(service_port))
    }

    /// Returns true if both see the same ports of the same world.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.index, &other.index) && self.visible == other.visible
    }

    fn places(&self) -> impl Iterator<Item = (usize, &Arc<ServicePort>)> {
        let all = self.index.all.iter().enumerate();
        all.filter(|(at, _)| bit(&self.visible, *at))
    }

    fn at<'a>(
        &'a self,
        places: Option<&'a Vec<usize>>,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> {
        let places = places.map_or(&[][..], Vec::as_slice).iter();
        let visible = places.filter(|at| bit(&self.visible, **at));
        visible.filter_map(|at| self.index.all.get(*at))
    }

    /// Iterates over the ports by precedence of their services.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.places().map(|(_, service_port)| service_port)
    }

    pub(crate) fn of_port(&self, port: u16) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.at(self.index.by_port.get(&port))
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<ServicePort>> {
        self.at(self.index.by_name.get(name)).next()
    }

    /// Returns the port of a service of this namespace, without regard to visibility.
    pub(crate) fn own(&self, name: &str, namespace: &str) -> Option<&Arc<ServicePort>> {
        let places = self.index.by_name.get(name)?.iter();
        let mut all = places.filter_map(|at| self.index.all.get(*at));
        all.find(|service_port| *service_port.service.key.namespace == *namespace)
    }

    /// Returns the port and the subset that the name of a subset's cluster means. No rule need have that subset.
    pub(crate) fn by_subset<'a>(&self, name: &'a str) -> Option<(&Arc<ServicePort>, &'a str)> {
        let mut parts = name.splitn(4, '|');
        let [Some("outbound"), Some(port), Some(subset), Some(host)] =
            std::array::from_fn(|_| parts.next())
        else {
            return None;
        };
        let whole = cluster_name(port.parse().ok()?, host);
        let service_port = self.by_name(&whole).filter(|_| !subset.is_empty());
        Some((service_port?, subset))
    }

    /// The ports of services with this address, as a proxy of this cluster and these families sees them.
    pub(crate) fn by_address(
        &self,
        address: IpAddr,
        cluster: &str,
        families: Families,
    ) -> Vec<&Arc<ServicePort>> {
        let of_address = (address, u16::MIN)..=(address, u16::MAX);
        let places = self.index.by_address.range(of_address);
        let places = places.flat_map(|(_, places)| places);
        let mut all: Vec<_> = self.of_places(address, places, cluster, families).collect();
        // The range is in order of port numbers; callers rely on the precedence of services.
        all.sort_by_key(|(at, _)| *at);
        all.into_iter()
            .map(|(_, service_port)| service_port)
            .collect()
    }

    /// Iterates over the ports of services with this address and port number, by precedence of their services.
    pub(crate) fn at_address(
        &self,
        address: IpAddr,
        port: u16,
        cluster: &str,
        families: Families,
    ) -> impl Iterator<Item = &Arc<ServicePort>> {
        let places = self.index.by_address.get(&(address, port));
        self.of_places(address, places.into_iter().flatten(), cluster, families)
            .map(|(_, service_port)| service_port)
    }

    fn of_places<'a>(
        &'a self,
        address: IpAddr,
        places: impl Iterator<Item = &'a AddressedPort>,
        cluster: &str,
        families: Families,
    ) -> impl Iterator<Item = (usize, &'a Arc<ServicePort>)> {
        let is_reached = families.has(address) && !address.is_unspecified();
        let places =
            places.filter(move |place| is_reached && step(|| bit(&self.visible, place.at)));
        places.filter_map(move |place| {
            let service_port = self.index.all.get(place.at)?;
            // A proxy sees the addresses of its own cluster, else those of the first one (discovery.md §5.5).
            let address_cluster = service_port.service.address_cluster_for(cluster);
            (address_cluster == Some(&place.cluster)).then_some((place.at, service_port))
        })
    }

    /// Returns true if listeners of services without requests may take connections to this address, for any proxy.
    pub(crate) fn may_take(&self, address: IpAddr, port: u16) -> bool {
        let places = self.index.by_address.get(&(address, port));
        let mut all = places.into_iter().flatten();
        self.index.with_ranges.contains(&port)
            || all.any(|place| {
                let service_port = self.index.all.get(place.at);
                service_port.is_some_and(|one| !one.protocol.is_http())
            })
    }

    /// The ports of a service, by its full name in lower case.
    pub(crate) fn by_host(&self, host: &str) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.at(self.index.by_host.get(host))
    }

    /// Returns the ports of services of this world with a host, which is in lower case, for all namespaces.
    pub(crate) fn of_world(&self, host: &str) -> impl Iterator<Item = &ServicePort> {
        let of_host = self.index.by_host.get(host).into_iter().flatten();
        of_host.filter_map(|at| Some(&**self.index.all.get(*at)?))
    }

    /// Hosts of the services of this world, in lower case.
    pub(crate) fn hosts_of_world(&self) -> impl Iterator<Item = &str> {
        self.index.by_host.keys().map(String::as_str)
    }

    /// Returns true if a service of this world has a wildcard for its host, for any namespace.
    pub(crate) fn has_wildcards(&self) -> bool {
        !self.index.by_wildcard.is_empty()
    }

    /// Returns the number of ports that services of this world have at this wildcard, for all namespaces.
    pub(crate) fn count_at_wildcard(&self, wildcard: &str) -> usize {
        self.index
            .by_wildcard
            .get(wildcard)
            .map_or(0, BTreeMap::len)
    }

    /// The ports of this number of services with this wildcard, which is in lower case.
    pub(crate) fn at_wildcard(
        &self,
        wildcard: &str,
        port: u16,
    ) -> impl Iterator<Item = &Arc<ServicePort>> {
        let of_host = self.index.by_wildcard.get(wildcard);
        self.at(of_host.and_then(|of_host| of_host.get(&port)))
    }

    /// Returns true if one of these belongs to a service of this name.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.by_host(host).next().is_some()
    }
}

fn twice(service_port: &ServicePort, first: &ServicePort) -> Conflict {
    let message = format!(
        "{}/{} is left out for proxies that see {}/{}, too, which {}",
        service_port.service.key.namespace,
        service_port.service.key.hostname,
        first.service.key.namespace,
        first.service.key.hostname,
        first.service.why_first(&service_port.service)
    );
    let conflict = Conflict::new(DUPLICATE_CLUSTER, &*service_port.name, message);
    conflict
        .of_service(&service_port.service.key)
        .of_service(&service_port.service.key)
}
