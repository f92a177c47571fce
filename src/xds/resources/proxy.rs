//! One proxy as the generators see it: its node, completed by the world.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use api::model::{ClusterId, Labels, Locality, TlsMode, Workload, World};

use super::directory::Directory;
use super::networks::Networks;
use crate::common::families::Families;
use crate::node::{Mode, Node};
use crate::settings::Settings;

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
        let key = node.workload_key(&settings.cluster);
        let workload = world.workloads.get(&key).cloned();
        let cluster = key.cluster;
        let known = workload.as_ref();
        let labels = node.labels_of(known).clone();
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

    /// The address on which it listens for its own machine: a proxy on one of many loopback addresses has that one.
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
        // The pod's labels and those of the node's metadata both count (discovery.md §10.8).
        TlsMode::of_labels(&self.labels) == TlsMode::Istio
            || TlsMode::of_labels(&self.node.labels) == TlsMode::Istio
    }
}
