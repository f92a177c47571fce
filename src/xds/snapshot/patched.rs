//! EnvoyFilters, applied to one proxy's resources.

use std::sync::Arc;

use api::model::Labels;
use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3::Listener;

use super::SnapshotBase;
use super::proxy::{ProxyView, finished};
use crate::finish::Draft;
use crate::node::Node;
use crate::rules::envoy_filter::{Direction, PatchIds, Patcher, keeps_eds};
use crate::scope::ProxyRules;
use crate::scope::envoy_filters::ProxyFacts;
use crate::view::Resource;

impl SnapshotBase {
    /// The rules of a proxy, with the patches that hold for it. A program with gRPC in it has none: it is no Envoy.
    pub(super) fn patched(&self, rules: ProxyRules, node: &Node, labels: &Labels) -> ProxyRules {
        if node.grpc {
            return rules;
        }
        let facts = ProxyFacts {
            version: &node.version,
            has: &|key, value| node.metadata.has(key, value),
        };
        let is_sidecar = node.is_sidecar();
        rules.patched(
            self.envoy_filters
                .of(&node.namespace, labels, is_sidecar, &facts),
        )
    }
}

impl ProxyView {
    /// Returns the patcher for resources of one type. Each type has about as many as there are ports of services.
    pub(super) fn patcher(&self) -> Patcher<'_> {
        let patches = &self.inputs.rules.patches;
        let resources = if patches.is_empty() {
            1
        } else {
            self.inputs.rules.service_ports().all().count()
        };
        Patcher::new(patches, self.inputs.proxy.node.kind, resources)
    }

    /// Returns true if a cluster that is made with EDS keeps it after patches. Streams never wait for the endpoints of others.
    pub(super) fn is_by_eds(&self, name: &str) -> bool {
        if self.inputs.rules.patches_of_clusters().is_empty() {
            return true;
        }
        let clusters = self.outbound_clusters();
        // All names of each proxy are asked for: reading a cluster for each would take seconds in a large mesh.
        let made = &self.parts.clusters;
        let others = made
            .without_eds
            .get(self.inputs.rules.clusters.clone(), || {
                let others = clusters.iter().filter(|one| !keeps_eds(one));
                Arc::new(others.map(|one| one.name.clone()).collect())
            });
        clusters.get(name).is_some() && !others.contains(name)
    }

    /// The listeners of its own, and those that are added. The outbound ones of services are patched where they are shared.
    pub(super) fn patched_listeners(&self, drafts: Vec<Draft<Listener>>) -> Vec<Arc<Resource>> {
        let patches = &self.inputs.rules.patches;
        let is_sidecar = self.inputs.proxy.node.is_sidecar();
        let patcher = Patcher::new(patches, self.inputs.proxy.node.kind, drafts.len());
        let (inbound, outbound): (Vec<_>, Vec<_>) = drafts
            .into_iter()
            .partition(|draft| draft.message.traffic_direction() == TrafficDirection::Inbound);
        let mut own: Vec<_> = finished(&patcher, inbound, Direction::Inbound).collect();
        own.extend(finished(&patcher, outbound, Direction::Outbound));
        if !patches.is_empty() {
            // A router listens for nothing else.
            let shared = is_sidecar.then(|| self.outbound_listeners());
            let is_shared = |name: &str| {
                let shared = shared.as_ref();
                shared.is_some_and(|shared| shared.listeners.contains_key(name))
            };
            let inbound = is_sidecar.then_some(Direction::Inbound);
            for direction in [Direction::Outbound].into_iter().chain(inbound) {
                let is_taken =
                    |name: &str| is_shared(name) || own.iter().any(|one| &*one.name == name);
                let added = patcher.added::<Listener>(direction, is_taken);
                own.extend(added.into_iter().map(Arc::new));
            }
        }
        self.record_listeners(&patcher);
        self.snapshot
            .caches
            .report(patcher.lost(), &self.inputs.proxy.node.id);
        own
    }

    /// The patches that changed its clusters. `patcher`: of those that it shares with no other proxy.
    pub(super) fn record_clusters(&self, patcher: &Patcher<'_>) {
        if let Some(matches) = &self.matches {
            let shared = &self.parts.clusters.effective;
            let shared = shared.get(self.inputs.rules.clusters.clone(), PatchIds::default);
            matches.set_clusters([patcher.effective(), shared]);
        }
    }

    fn record_listeners(&self, patcher: &Patcher<'_>) {
        if let Some(matches) = &self.matches {
            let is_sidecar = self.inputs.proxy.node.is_sidecar();
            let shared = is_sidecar.then(|| self.outbound_listeners().effective.clone());
            matches.set_listeners([Some(patcher.effective()), shared].into_iter().flatten());
            self.record_routes();
        }
    }

    pub(super) fn record_routes(&self) {
        if let Some(matches) = &self.matches {
            let routes = &self.parts.routes;
            let effective = || routes.values().into_iter().map(|made| made.effective);
            matches.set_routes(routes.len(), || self.route_names(), effective);
        }
    }

    /// The number of route configurations that its listeners refer to.
    fn route_names(&self) -> usize {
        if !self.is_sidecar() {
            return self.inputs.merged.routes().count();
        }
        let of_mesh = usize::from(self.http_proxy().is_some());
        self.outbound_listeners().routes.len() + of_mesh
    }
}
