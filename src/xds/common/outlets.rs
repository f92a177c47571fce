//! Ports of services, as clients use them: each with its cluster, in the order in which one wins over another.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{Address, Port, Protocol, Service, World};

use super::conflict::{Conflict, DUPLICATE_CLUSTER};
use crate::common::families::Families;
use crate::settings::Settings;

/// One port of one service.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) service: Arc<Service>,
    pub(crate) port: Port,
    /// As clients are to speak it.
    pub(crate) protocol: Protocol,
    /// Of its cluster and its assignment.
    pub(crate) name: Arc<str>,
    /// HTTP, or undeclared, where clients speak TLS: it must not have all connections to that port, for its listener would
    /// break those of every client to whatever else is there.
    pub(crate) is_plain_on_https: bool,
}

/// Where clients speak TLS to the world outside.
const HTTPS: u16 = 443;

impl Outlet {
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

    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host(), self.port.number)
    }

    /// Whether each of its endpoints may have a listener.
    pub(crate) fn has_listeners(&self) -> bool {
        self.service.is_headless() && !self.protocol.is_http()
    }

    /// The addresses that a proxy of this cluster and these families sees.
    pub(crate) fn addresses(&self, cluster: &str, families: Families) -> Vec<Address> {
        let mut seen = HashSet::new();
        self.service
            .addresses_in(cluster)
            .iter()
            .filter(|address| match address {
                Address::Plain(address) => families.has(*address) && !address.is_unspecified(),
                Address::Range(range) => families.has(range.first()),
            })
            .filter(|address| seen.insert(**address))
            .copied()
            .collect()
    }

    /// Whether it has an address at all, of whatever family.
    pub(crate) fn has_address(&self, cluster: &str) -> bool {
        self.service
            .addresses_in(cluster)
            .iter()
            .any(|address| !matches!(address, Address::Plain(address) if address.is_unspecified()))
    }

    /// Whether one of them is not a range.
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

/// The same for a subset of the endpoints; without a name, all of them.
pub(crate) fn subset_name(port: u16, subset: &str, host: &str) -> Arc<str> {
    format!("outbound|{port}|{subset}|{host}").into()
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    /// By precedence of their services; no name twice.
    pub(crate) all: Vec<Arc<Outlet>>,
    by_name: HashMap<Arc<str>, Arc<Outlet>>,
    /// In lower case, as domains are compared.
    by_host: HashMap<String, Vec<Arc<Outlet>>>,
    /// By plain addresses, those in all clusters.
    by_address: HashMap<IpAddr, Vec<Arc<Outlet>>>,
    /// By number of port.
    pub(crate) by_port: BTreeMap<u16, Vec<Arc<Outlet>>>,
    pub(crate) conflicts: Vec<Conflict>,
    /// Ports, their addresses, and names of who may answer: each is a part of something that is made.
    pub(crate) size: usize,
}

impl Outlets {
    pub(crate) fn new(world: &World, settings: &Settings) -> Self {
        let mut services: Vec<_> = world.services.values().collect();
        services.sort_by(|one, other| one.precedence(other));
        let mut outlets = Self::default();
        for service in services {
            for port in service.ports.iter().filter(|port| port.number > 0) {
                outlets.add(service, port, settings);
            }
        }
        outlets
    }

    fn add(&mut self, service: &Arc<Service>, port: &Port, settings: &Settings) {
        let name = cluster_name(port.number, &service.key.hostname);
        if let Some(first) = self.by_name.get(&name) {
            let message = format!(
                "{}/{} is left out: {}/{} is older",
                service.key.namespace,
                service.key.hostname,
                first.service.key.namespace,
                first.service.key.hostname
            );
            self.conflicts
                .push(Conflict::new(DUPLICATE_CLUSTER, &*name, message));
            return;
        }
        if port.protocol == Protocol::Udp {
            return;
        }
        let protocol = if port.protocol.is_auto() && !settings.sniffing.outbound {
            Protocol::Tcp
        } else {
            port.protocol
        };
        let is_plain = port.protocol.is_http() || port.protocol.is_auto();
        let outlet = Arc::new(Outlet {
            service: service.clone(),
            port: port.clone(),
            protocol,
            name: name.clone(),
            is_plain_on_https: is_plain && port.number == HTTPS && settings.block_http_on_443,
        });
        self.by_name.insert(name, outlet.clone());
        let host = service.key.hostname.to_ascii_lowercase();
        self.by_host.entry(host).or_default().push(outlet.clone());
        let addresses = service.addresses.values().flatten();
        let plain: BTreeSet<IpAddr> = addresses
            .filter_map(|address| match address {
                Address::Plain(address) => Some(*address),
                Address::Range(_) => None,
            })
            .collect();
        let parts = plain.len().saturating_add(service.accounts.len());
        self.size = self.size.saturating_add(1).saturating_add(parts);
        for address in plain {
            let outlets = self.by_address.entry(address).or_default();
            outlets.push(outlet.clone());
        }
        self.by_port
            .entry(port.number)
            .or_default()
            .push(outlet.clone());
        self.all.push(outlet);
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Outlet>> {
        self.by_name.get(name)
    }

    /// By the name of a subset's cluster: the port, and the subset, which nobody may have.
    pub(crate) fn by_subset<'a>(&self, name: &'a str) -> Option<(&Arc<Outlet>, &'a str)> {
        let mut parts = name.splitn(4, '|');
        let [Some("outbound"), Some(port), Some(subset), Some(host)] =
            std::array::from_fn(|_| parts.next())
        else {
            return None;
        };
        let whole = cluster_name(port.parse().ok()?, host);
        let outlet = self.by_name.get(&whole).filter(|_| !subset.is_empty());
        Some((outlet?, subset))
    }

    /// The ports of services with this address, as a proxy of this cluster and these families sees them.
    pub(crate) fn by_address(
        &self,
        address: IpAddr,
        cluster: &str,
        families: Families,
    ) -> Vec<&Arc<Outlet>> {
        let is_seen = |outlet: &&Arc<Outlet>| {
            let seen = outlet.addresses(cluster, families);
            seen.contains(&Address::Plain(address))
        };
        let all = self.by_address.get(&address).into_iter().flatten();
        all.filter(is_seen).collect()
    }

    /// The ports of a service, by its full name in lower case.
    pub(crate) fn by_host(&self, host: &str) -> &[Arc<Outlet>] {
        self.by_host.get(host).map_or(&[], Vec::as_slice)
    }
}
