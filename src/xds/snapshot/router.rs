//! Resources of a router beyond clusters: listeners for its Gateways, and routes of the requests that come in there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use prost::Message;

use super::policies::CHAIN_BYTES;
use super::proxy::{ProxyView, or_older, versions};
use super::{Conflict, MadeRoutes, SetKey, Snapshot};
use crate::common::fair_budget::FairBudget;
use crate::common::service_ports::ServicePort;
use crate::finish::{ClusterParts, Draft};
use crate::node::{Kind, Node};
use crate::resource_names::ResourceNames;
use crate::resources::clusters::ByServerName;
use crate::resources::instances::Instance;
use crate::resources::listeners::gateway::RouterParameters;
use crate::resources::listeners::is_proxys;
use crate::resources::mesh::Mesh;
use crate::resources::routes;
use crate::rules::authorization_policy::Filters;
use crate::rules::gateway::{ChainRoom, Merged, Ports};
use crate::scope::ProxyRules;
use crate::view::{Resource, Set, Type};

/// Ports of a router, as services of its namespace say them.
struct RouterPorts<'a> {
    instances: &'a [Instance],
    node: &'a Node,
    mesh: &'a Mesh,
}

pub(super) fn has_gateways(node: &Node, rules: &ProxyRules) -> bool {
    node.kind == Kind::Router && !node.grpc && !rules.gateways.is_empty()
}

/// The servers of a router; of whatever is none there are none.
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
        match targets.is_empty() {
            true => vec![port],
            false => targets.into_iter().collect(),
        }
    }

    fn is_taken(&self, port: u16) -> bool {
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

impl ProxyView {
    pub(super) fn router_listeners(&self) -> Arc<Set> {
        let edge = RouterParameters {
            proxy: &self.proxy,
            mesh: self.mesh(),
            rules: &self.rules,
            merged: &self.merged,
            filters: &self.filters,
            secrets: self.credentials(),
        };
        let (drafts, lost) = edge.listeners();
        let lost = self.merged.conflicts.iter().cloned().chain(lost);
        self.snapshot.caches.report(lost, &self.proxy.node.id);
        let own = self.patched_listeners(drafts);
        let shared_key = (self.place.clone(), self.rules.scope.clone());
        let key: SetKey<_> = (shared_key, versions(&own));
        let all = &self.snapshot.caches.all_listeners;
        all.get(key, |older| or_older(Set::new(own), older))
    }

    /// Returns true if listeners, or routes of these names, were made already.
    pub(super) fn is_router_made(&self, kind: Type, names: &ResourceNames) -> bool {
        let [_, _, listeners, ..] = &self.sets;
        let is_made = |name: &str| {
            let name = self.router_route_name(name);
            name.is_none_or(|name| self.parts.routes.has(&name))
        };
        match kind {
            Type::Route => names.iter().all(is_made),
            Type::Listener => self.merged.by_port.is_empty() || listeners.get().is_some(),
            Type::Cluster | Type::Endpoint | Type::Secret => true,
        }
    }

    /// The last step of a route configuration, with the conflicts that were found on the way.
    pub(super) fn finished_route(
        &self,
        made: Option<(Draft<RouteConfiguration>, Vec<Conflict>)>,
    ) -> MadeRoutes {
        let Some((draft, mut conflicts)) = made else {
            return MadeRoutes::default();
        };
        let patcher = self.patcher();
        let finished = patcher.finish(draft, false).map(Arc::new);
        conflicts.extend(patcher.lost());
        (finished, Arc::new(self.found(conflicts)))
    }

    /// A configuration by a name that one of its listeners refers to.
    pub(super) fn router_route(&self, name: &Arc<str>) -> Option<Arc<Resource>> {
        let name = self.router_route_name(name)?;
        let make = || {
            let parameters = (&self.route_parameters, self.mesh());
            let made = routes::gateway(&name, parameters, &self.rules, &self.merged);
            self.finished_route(made)
        };
        self.parts.routes.get(name.clone(), make).0
    }

    /// The string that all share who have it.
    pub(super) fn router_route_name(&self, name: &str) -> Option<Arc<str>> {
        self.merged.routes_name(name).cloned()
    }

    pub(super) fn router_routes(&self) -> Arc<Set> {
        let names = self.merged.routes();
        Arc::new(names.filter_map(|name| self.router_route(name)).collect())
    }
}

/// Returns the routing, by server name, of TLS that the router passes through.
pub(super) fn by_server_names(node: &Node, merged: &Merged) -> ByServerName {
    match merged.has_auto_passthrough() || node.router.leads_by_server_name {
        true => ByServerName::Always,
        false => ByServerName::Never,
    }
}

/// In front of the name of a cluster that TLS is led to by its server name.
const BY_SERVER_NAME: &str = "outbound_.";

/// The server name that clients of the mesh say to a port of a service, or to a subset of its endpoints.
fn server_name(service_port: &ServicePort, subset: &str) -> Arc<str> {
    let (port, host) = (service_port.port.number, service_port.host());
    format!("{BY_SERVER_NAME}{port}_.{subset}_.{host}").into()
}

/// The port, the subset and the host that such a name means.
pub(super) fn of_server_name(name: &str) -> Option<(u16, &str, &str)> {
    let mut parts = name.strip_prefix(BY_SERVER_NAME)?.splitn(3, "_.");
    let port = parts.next()?.parse().ok()?;
    Some((port, parts.next()?, parts.next()?))
}

/// The same cluster, as TLS is led to it that does not end before it.
pub(super) fn by_server_name(
    mut draft: Draft<ClusterParts>,
    service_port: &ServicePort,
    subset: &str,
) -> Draft<ClusterParts> {
    let name = server_name(service_port, subset);
    let parts = &mut draft.message;
    let cluster = &mut parts.cluster;
    cluster.name = name.to_string();
    cluster.alt_stat_name = String::new();
    cluster.transport_socket = None;
    cluster.transport_socket_matches = Vec::new();
    if let Some(eds) = &mut cluster.eds_cluster_config {
        eds.service_name = name.to_string();
    }
    if let Some(assignment) = &mut parts.endpoints.load_assignment {
        assignment.cluster_name = name.to_string();
    }
    parts.http = None;
    Draft { name, ..draft }
}

/// The ports of a router's servers, each with the port that it listens on: routers that differ in these share no routes.
pub(super) fn places(merged: &Merged) -> Arc<[(u16, u16)]> {
    let all = merged.by_port.iter();
    let all = all.flat_map(|((_, port), servers)| servers.iter().map(|one| (one.number, *port)));
    let all: BTreeSet<_> = all.collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_means_a_cluster() {
        for (name, cluster) in [
            ("outbound_.80_._.a.demo", Some((80, "", "a.demo"))),
            ("outbound_.80_.v1_.a.demo", Some((80, "v1", "a.demo"))),
            ("outbound|80||a.demo", None),
            ("outbound_.x_._.a.demo", None),
            ("outbound_.80_.a.demo", None),
            ("a.demo", None),
        ] {
            assert_eq!(of_server_name(name), cluster, "{name}");
        }
    }
}
