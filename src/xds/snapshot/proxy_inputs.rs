//! The properties of a proxy that its resources are made of, besides endpoints that only EDS carries.

use std::sync::Arc;

use api::model::Labels;

use super::Snapshot;
use super::policies::filters;
use super::router_ports;
use super::selected_routers::note_selecting_rules;
use crate::common::service_ports::cluster_name;
use crate::node::{Mode, Node};
use crate::resources::clusters::{self, Certificates, ClusterParameters};
use crate::resources::filters::HttpOptions;
use crate::resources::instances::{Instance, instances};
use crate::resources::listeners::inbound::{self, InboundPort};
use crate::resources::listeners::outbound::OutboundParameters;
use crate::resources::proxy::Proxy;
use crate::resources::routes::RouteParameters;
use crate::resources::sidecar_ingress;
use crate::rules::authorization_policy::Filters;
use crate::rules::destination_rule::ServicePolicies;
use crate::rules::gateway::Merged;
use crate::rules::peer_authentication::MtlsModes;
use crate::scope::{ProxyRules, reference};

/// A proxy, and what follows from the rules for it.
pub(super) struct ProxyInputs {
    pub(super) proxy: Proxy,
    /// False for a sidecar whose workload belongs to no service.
    pub(super) serves: bool,
    pub(super) inbound_ports: Vec<InboundPort>,
    /// Filters of the policies for inbound traffic.
    pub(super) filters: Filters,
    pub(super) mtls_modes: MtlsModes,
    /// Servers of a router.
    pub(super) merged: Merged,
    pub(super) client: ClusterParameters,
    pub(super) rules: ProxyRules,
    pub(super) route_parameters: RouteParameters,
    pub(super) outbound: OutboundParameters,
    /// Its labels by which endpoints are preferred.
    pub(super) preferred: Arc<Labels>,
}

impl ProxyInputs {
    pub(super) fn new(snapshot: &Arc<Snapshot>, node: &Arc<Node>) -> Self {
        let proxy = Proxy::new(
            node,
            &snapshot.world,
            &snapshot.settings,
            || snapshot.directory(),
            &snapshot.base.networks,
        );
        let rules = snapshot.base.rules_of(node, &proxy.labels);
        let router = router_ports::has_gateways(node, &rules);
        let instances = if is_beside_application(node) || router {
            instances(snapshot.directory(), &proxy, &snapshot.world)
        } else {
            Vec::new()
        };
        let inbound_ports = if is_beside_application(node) {
            inbound_ports(snapshot, &proxy, &instances, &rules)
        } else {
            Vec::new()
        };
        // Each port has four chains at most, in two listeners; and there are those of other ports.
        let chains = inbound_ports.len() * 8 + 2 + usize::from(router);
        let filters = filters(snapshot, &proxy, &rules, chains);
        let merged = router_ports::merged(snapshot, node, &rules, &instances, &filters);
        let outbound = OutboundParameters {
            cluster: proxy.cluster.clone(),
            families: proxy.families,
            loopback: (node.mode == Mode::None).then(|| proxy.loopback()),
            options: options(node),
            headless: snapshot.settings.headless.listeners,
            unknown: rules.unknown.clone(),
        };
        snapshot.caches.report(rules.patches.lost.clone(), &node.id);
        note_selecting_rules(snapshot, &proxy);
        Self {
            client: client_of(snapshot, &proxy, &merged),
            route_parameters: route_parameters(&proxy, &rules, &merged),
            mtls_modes: MtlsModes::new(
                &snapshot.base.policies,
                (&node.namespace, &*proxy.labels),
                snapshot.base.mesh.usual_mode(proxy.takes_tls()),
            ),
            preferred: Arc::new(snapshot.base.failover.labels_of(&proxy)),
            proxy,
            serves: !is_beside_application(node) || !instances.is_empty(),
            inbound_ports,
            filters,
            merged,
            rules,
            outbound,
        }
    }

    /// Returns true if another snapshot of the same base says the same of the proxy itself: a change of endpoints may say where it
    /// is, and which services it is one of. `before`: the snapshot of these.
    pub(super) fn are_same(&self, before: &Snapshot, after: &Snapshot) -> bool {
        let node = &self.proxy.node;
        let (older, newer) = (&before.world, &after.world);
        let has_same_workload = Arc::ptr_eq(&older.workloads, &newer.workloads)
            || self.proxy.workload.as_ref() == after.workload_of(node);
        let known = (before.directory(), older);
        has_same_workload && after.directory().is_same_for(node, newer, known)
    }
}

fn is_beside_application(node: &Node) -> bool {
    node.is_sidecar() && !node.grpc
}

fn route_parameters(proxy: &Proxy, rules: &ProxyRules, merged: &Merged) -> RouteParameters {
    let sidecar = proxy.node.is_sidecar() && !proxy.node.grpc;
    let intercepts = sidecar && proxy.intercepts();
    RouteParameters {
        domain: proxy.node.domain.clone(),
        cluster: proxy.cluster.clone(),
        families: proxy.families,
        unknown: clusters::of_unknown(&rules.unknown, intercepts),
        listens: router_ports::listening_ports(merged),
        absent: Arc::new(merged.absent.clone()),
    }
}

pub(super) fn options(node: &Node) -> HttpOptions {
    HttpOptions {
        idle_timeout: node.idle_timeout,
        http10: node.http10,
    }
}

/// The properties of a client that its clusters depend on.
fn client_of(snapshot: &Snapshot, proxy: &Proxy, merged: &Merged) -> ClusterParameters {
    let node = &proxy.node;
    ClusterParameters {
        kind: node.kind,
        intercepts: node.is_sidecar() && !node.grpc && proxy.intercepts(),
        families: proxy.families,
        files: node.client.clone(),
        certificates: if snapshot.is_plain(node) {
            Certificates::Missing
        } else {
            Certificates::Present
        },
        headless_eds: snapshot.settings.headless.eds,
        grpc: node.grpc,
        dns: node.dns,
        by_server_name: router_ports::by_server_names(node, merged),
        secrets: snapshot.base.client_secrets(node),
        beside: snapshot.base.beside.get(&node.namespace).cloned(),
    }
}

/// Limits of an inbound port that has none of its own: those of the Sidecar for all of them, or those that rules set for its
/// service.
fn add_pool(inbound_port: &mut InboundPort, proxy: &Proxy, rules: &ProxyRules) {
    if inbound_port.pool.is_some() {
        return;
    }
    if let Some(sidecar) = &rules.sidecar
        && let Some(pool) = &sidecar.spec.inbound_connection_pool
    {
        inbound_port.pool = Some(Arc::new(*pool));
        let from = reference(sidecar);
        if !inbound_port.from.contains(&from) {
            inbound_port.from.push(from);
        }
        return;
    }
    // Its own services are there, whoever sees them.
    let name = cluster_name(inbound_port.pool_port, &inbound_port.host);
    let service_port = rules.service_ports().own(&name, &proxy.node.namespace);
    let Some(service_port) = service_port else {
        return;
    };
    let policies = ServicePolicies::of_server(rules, &service_port.service);
    if let Some(pool) = policies.of(None, inbound_port.pool_port).pool() {
        inbound_port.pool = Some(Arc::new(*pool));
        inbound_port.from.extend(policies.from(None));
    }
}

fn inbound_ports(
    snapshot: &Snapshot,
    proxy: &Proxy,
    instances: &[Instance],
    rules: &ProxyRules,
) -> Vec<InboundPort> {
    let (mesh, sniffs) = (&snapshot.base.mesh, snapshot.settings.sniffing.inbound);
    let mut lost = Vec::new();
    let written = rules.sidecar.as_ref().and_then(|sidecar| {
        sidecar_ingress::inbound_ports(sidecar, proxy, instances, mesh, sniffs, &mut lost)
    });
    // Where a Sidecar says the ports, no service says a protocol.
    let served = written.as_ref().map_or(instances, |_| &[]);
    let inbound_ports = match written {
        Some(inbound_ports) => inbound_ports,
        None if proxy.intercepts() => inbound::of_instances(instances, proxy, mesh, sniffs),
        None => Vec::new(),
    };
    let mut inbound_ports = inbound::to_applications(inbound_ports, proxy, mesh, &mut lost);
    lost.extend(inbound::other_protocols(served, &inbound_ports, sniffs));
    for inbound_port in &mut inbound_ports {
        add_pool(inbound_port, proxy, rules);
    }
    snapshot.caches.report(lost, &proxy.node.id);
    inbound_ports
}
