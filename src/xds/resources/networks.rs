//! Networks that are apart: which endpoint is in which, and the gateways that lead into each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::istio::mesh::v1alpha1::Network;
use api::istio::mesh::v1alpha1::network::istio_network_gateway::Gw;
use api::istio::mesh::v1alpha1::network::network_endpoints::Ne;
use api::mesh::MeshNetworks;
use api::model::{self, ClusterId, Endpoint, World};

use crate::common::conflict::{Conflict, GATEWAY_WITHOUT_ADDRESS};
use crate::common::families::Families;

/// The networks of a mesh, ready for look-ups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks {
    ranges: Vec<(model::Network, String)>,
    clusters: BTreeMap<String, String>,
    /// Only networks that have any; sorted.
    gateways: BTreeMap<String, Vec<(IpAddr, u16)>>,
    /// Gateways that cannot serve clients.
    pub(crate) conflicts: Vec<Conflict>,
}

impl Networks {
    pub(crate) fn new(world: &World) -> Self {
        let networks: &MeshNetworks = &world.networks;
        let mut all = Self::default();
        for (name, network) in &networks.networks {
            all.add_endpoints(name, network);
            let gateways = gateways(world, name, network, &mut all.conflicts);
            if !gateways.is_empty() {
                all.gateways.insert(name.clone(), gateways);
            }
        }
        all
    }

    fn add_endpoints(&mut self, name: &str, network: &Network) {
        for endpoints in &network.endpoints {
            match &endpoints.ne {
                // A range that cannot be read was refused with the file.
                Some(Ne::FromCidr(range)) => {
                    let range = range.parse().ok();
                    self.ranges
                        .extend(range.map(|range| (range, name.to_owned())));
                }
                Some(Ne::FromRegistry(cluster)) => {
                    let entry = self.clusters.entry(cluster.clone());
                    entry.or_insert_with(|| name.to_owned());
                }
                None => {}
            }
        }
    }

    /// The network of an address for which nothing closer says one: by the address, else by its cluster, else no name.
    pub(crate) fn of(&self, cluster: &ClusterId, address: Option<IpAddr>) -> &str {
        let by_address = address.and_then(|address| {
            self.ranges
                .iter()
                .find(|(range, _)| range.contains(address))
                .map(|(_, name)| name)
        });
        by_address
            .or_else(|| self.clusters.get(cluster.as_str()))
            .map_or("", String::as_str)
    }

    pub(crate) fn of_endpoint<'a>(
        &'a self,
        cluster: &ClusterId,
        endpoint: &'a Endpoint,
    ) -> &'a str {
        endpoint
            .network
            .as_deref()
            .unwrap_or_else(|| self.of(cluster, endpoint.address.ip()))
    }

    pub(crate) fn has_gateway(&self, network: &str) -> bool {
        self.gateways.contains_key(network)
    }

    pub(crate) fn has_gateways(&self) -> bool {
        !self.gateways.is_empty()
    }

    /// The gateways of a network that a proxy of these families can call; all if it can call none.
    pub(crate) fn gateways(&self, network: &str, families: Families) -> Vec<(IpAddr, u16)> {
        self.gateways
            .get(network)
            .map_or_else(Vec::new, |all| of_families(all, families))
    }

    /// Returns the factor of all weights, by which each gateway's share is a whole number.
    pub(crate) fn factor(&self, families: Families) -> u128 {
        self.gateways
            .values()
            .filter_map(|all| u128::try_from(of_families(all, families).len()).ok())
            .fold(1, u128::saturating_mul)
    }
}

/// The addresses of a network's gateways, sorted. `conflicts` takes those of gateways without any.
fn gateways(
    world: &World,
    name: &str,
    network: &Network,
    conflicts: &mut Vec<Conflict>,
) -> Vec<(IpAddr, u16)> {
    let registries = network.endpoints.iter();
    let registries = registries.filter_map(|endpoints| match &endpoints.ne {
        Some(Ne::FromRegistry(cluster)) => Some(cluster.as_str()),
        Some(Ne::FromCidr(_)) | None => None,
    });
    let registries: BTreeSet<&str> = registries.collect();
    let mut all = Vec::new();
    for gateway in &network.gateways {
        let port = u16::try_from(gateway.port).unwrap_or(0);
        match &gateway.gw {
            Some(Gw::Address(address)) => match address.parse() {
                Ok(address) => all.push((address, port)),
                Err(_) => conflicts.push(with_name(name, address)),
            },
            Some(Gw::RegistryServiceName(host)) => {
                let balancers = balancers(world, host, &registries);
                if balancers.is_empty() {
                    conflicts.push(without_address(name, host, &registries));
                }
                all.extend(balancers.into_iter().map(|address| (address, port)));
            }
            None => {}
        }
    }
    // All weights depend on how many gateways there are: a repeat must not count twice.
    all.sort_unstable();
    all.dedup();
    all
}

/// Endpoints are given to proxies by addresses; a load balancer that has a name only is in no such list.
fn without_address(network: &str, host: &str, registries: &BTreeSet<&str>) -> Conflict {
    let registries: Vec<&str> = registries.iter().copied().collect();
    let of_clusters = match registries.join(", ") {
        names if names.is_empty() => names,
        names => format!(" of {names}"),
    };
    let cause = format!(
        "it is no service{of_clusters} whose load balancer has an IP address, and names are not resolved"
    );
    left_out(network, host, &cause)
}

fn with_name(network: &str, host: &str) -> Conflict {
    left_out(network, host, "it has a name, and names are not resolved")
}

fn left_out(network: &str, host: &str, cause: &str) -> Conflict {
    let message = format!(
        "the gateway {host} of network {network} is left out: {cause}; write its address into meshNetworks"
    );
    Conflict::new(
        GATEWAY_WITHOUT_ADDRESS,
        format!("{network} {host}"),
        message,
    )
}

fn of_families(all: &[(IpAddr, u16)], families: Families) -> Vec<(IpAddr, u16)> {
    let mut own = all.to_vec();
    own.retain(|(address, _)| families.has(*address));
    if own.is_empty() { all.to_vec() } else { own }
}

/// The addresses of a service's load balancers in the clusters that a network names, as Istio takes them: clusters often have a
/// gateway of one name each, and that of another network leads back out of this one. A network that names no cluster takes all.
fn balancers(world: &World, host: &str, registries: &BTreeSet<&str>) -> Vec<IpAddr> {
    world
        .services
        .values()
        .filter(|service| &*service.key.hostname == host)
        .flat_map(|service| &service.balancers)
        .filter(|(cluster, _)| registries.is_empty() || registries.contains(cluster.as_str()))
        .flat_map(|(_, addresses)| addresses)
        .copied()
        .collect()
}
