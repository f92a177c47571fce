//! The servers of a router, on the ports that services of its namespace lead to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use prost::Message;

use super::Snapshot;
use super::policies::CHAIN_BYTES;
use crate::common::fair_budget::FairBudget;
use crate::node::{Kind, Node};
use crate::resources::clusters::ByServerName;
use crate::resources::instances::Instance;
use crate::resources::listeners::is_proxys;
use crate::resources::mesh::Mesh;
use crate::rules::authorization_policy::Filters;
use crate::rules::gateway::{ChainRoom, Merged, Ports};
use crate::scope::ProxyRules;

/// Ports of a router, as services of its namespace say them.
struct RouterPorts<'a> {
    instances: &'a [Instance],
    node: &'a Node,
    mesh: &'a Mesh,
}

pub(super) fn has_gateways(node: &Node, rules: &ProxyRules) -> bool {
    node.kind == Kind::Router && !node.grpc && !rules.gateways.is_empty()
}

/// Merges the servers of a router's Gateways. A proxy that is no router, or has no Gateways, gets none.
pub(super) fn merged(
    snapshot: &Snapshot,
    node: &Node,
    rules: &ProxyRules,
    instances: &[Instance],
    filters: &Filters,
) -> Merged {
    if !has_gateways(node, rules) {
        return Merged::default();
    }
    let mesh = &snapshot.base.mesh;
    let ports = RouterPorts {
        instances,
        node,
        mesh,
    };
    Merged::new(&rules.gateways, &ports, chain_room(rules, filters))
}

impl Ports for RouterPorts<'_> {
    fn targets(&self, port: u16) -> Vec<u16> {
        let own = self.instances.iter();
        let own = own.filter(|instance| instance.port.number == port);
        let targets: BTreeSet<u16> = own.map(|instance| instance.target).collect();
        // A router without a service for the port listens on the port itself.
        match targets.is_empty() {
            true => vec![port],
            false => targets.into_iter().collect(),
        }
    }

    fn is_reserved(&self, port: u16) -> bool {
        is_proxys(port, self.node, self.mesh)
    }

    fn can_bind(&self, address: IpAddr) -> bool {
        let own = &self.node.addresses;
        // A pod without an address of IPv6 may not even have ::1.
        let has_family = address.is_ipv4() || own.iter().any(IpAddr::is_ipv6);
        own.contains(&address) || address.is_loopback() && has_family
    }
}

/// Room for the filters of policies in a router's chains: servers beyond it are left out, by the shares of their namespaces, and
/// the policies hold for the others.
fn chain_room(rules: &ProxyRules, filters: &Filters) -> ChainRoom {
    let namespaces: BTreeSet<_> = rules.gateways.iter().map(|one| one.namespace()).collect();
    ChainRoom {
        http: filters.http.iter().map(Message::encoded_len).sum(),
        tcp: filters.tcp.iter().map(Message::encoded_len).sum(),
        room: FairBudget::new(CHAIN_BYTES, CHAIN_BYTES, namespaces.len()),
    }
}

/// Returns the routing, by server name, of TLS that the router passes through.
pub(super) fn by_server_names(node: &Node, merged: &Merged) -> ByServerName {
    match merged.has_auto_passthrough() || node.router.leads_by_server_name {
        true => ByServerName::Always,
        false => ByServerName::Never,
    }
}

/// The ports of a router's servers, each with the port that it listens on: routers that differ in these share no routes.
pub(super) fn listening_ports(merged: &Merged) -> Arc<[(u16, u16)]> {
    let all = merged.by_port.iter();
    let all = all.flat_map(|((_, port), servers)| servers.iter().map(|one| (one.number, *port)));
    let all: BTreeSet<_> = all.collect();
    all.into_iter().collect()
}
