//! One proxy as the generators see it: what it said of itself, completed by what the world knows of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use api::model::{ClusterId, Labels, Locality, TlsMode, Workload, WorkloadKey, World};

use super::instances::Directory;
use super::networks::Networks;
use crate::node::{Mode, Node};
use crate::settings::Settings;

/// The families of a proxy's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
    /// Of its primary address.
    pub(crate) primary_v6: bool,
}

impl Families {
    pub(crate) fn of(addresses: &[IpAddr]) -> Self {
        Self {
            v4: addresses.iter().any(IpAddr::is_ipv4),
            v6: addresses.iter().any(IpAddr::is_ipv6),
            primary_v6: addresses.first().is_some_and(IpAddr::is_ipv6),
        }
    }

    pub(crate) const fn has(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        }
    }

    /// All addresses of the machine: the primary family's, and the other's where there is one.
    pub(crate) fn wildcards(self) -> (IpAddr, Option<IpAddr>) {
        let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        match (self.primary_v6, self.v4 && self.v6) {
            (false, both) => (v4, both.then_some(v6)),
            (true, both) => (v6, both.then_some(v4)),
        }
    }

    pub(crate) const fn loopback(self) -> IpAddr {
        if self.v4 {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        }
    }
}

/// A proxy, resolved.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) node: Arc<Node>,
    pub(crate) cluster: ClusterId,
    pub(crate) workload: Option<Arc<Workload>>,
    pub(crate) labels: Arc<Labels>,
    pub(crate) locality: Locality,
    pub(crate) network: Arc<str>,
    pub(crate) families: Families,
    /// Its primary address.
    pub(crate) address: IpAddr,
}

impl Proxy {
    /// `directory` is asked for only where it is needed: it is made of all endpoints.
    pub(crate) fn new<'a>(
        node: &Arc<Node>,
        world: &World,
        settings: &Settings,
        directory: impl Fn() -> &'a Directory,
        networks: &Networks,
    ) -> Self {
        let cluster = node
            .cluster
            .clone()
            .unwrap_or_else(|| settings.cluster.clone());
        let key = WorkloadKey {
            cluster,
            namespace: node.namespace.clone(),
            name: node.name.clone(),
        };
        let workload = world.workloads.get(&key).cloned();
        let cluster = key.cluster;
        let known = workload.as_ref();
        let labels = known.map_or_else(|| node.labels.clone(), |known| known.labels.clone());
        let locality = known
            .map(|known| known.locality.clone())
            .filter(|locality| !locality.is_unknown())
            .or_else(|| directory().locality(node, world))
            .unwrap_or_else(|| node.locality.clone());
        let address = node
            .addresses
            .first()
            .copied()
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        // Nobody asks for it where no gateway leads to any.
        let entry = || directory().network(node, world);
        let entry = || networks.has_gateways().then(entry).flatten();
        let network = node
            .network
            .clone()
            .or_else(entry)
            .or_else(|| known.and_then(|known| known.network.clone()))
            .unwrap_or_else(|| networks.of(&cluster, Some(address)).into());
        Self {
            families: Families::of(&node.addresses),
            node: node.clone(),
            cluster,
            labels,
            locality,
            network,
            address,
            workload,
        }
    }

    pub(crate) fn intercepts(&self) -> bool {
        self.node.mode != Mode::None
    }

    /// Where it listens for its own machine: a proxy on one of many loopback addresses has that one.
    pub(crate) fn loopback(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) if address.is_loopback() => IpAddr::V4(address),
            IpAddr::V4(_) | IpAddr::V6(_) => self.families.loopback(),
        }
    }

    /// Its workload says that it takes mutual TLS, and it has what that takes.
    pub(crate) fn takes_tls(&self) -> bool {
        if self.node.without_certificates {
            return false;
        }
        TlsMode::of_labels(&self.labels) == TlsMode::Istio
            || TlsMode::of_labels(&self.node.labels) == TlsMode::Istio
    }
}
