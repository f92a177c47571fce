//! All clusters of a scope, which proxies that see the same share, and what was found when they were made.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::proxy::{ProxyView, finished};
use crate::common::conflict::Conflicts;
use crate::finish::ClusterParts;
use crate::resources::clusters;
use crate::rules::envoy_filter::{Direction, Patcher};
use crate::view::{Resource, Set};

impl ProxyView {
    pub(super) fn outbound_clusters(&self) -> Arc<Set> {
        let scope = &self.inputs.rules.clusters;
        let made = &self.parts.clusters;
        made.all.get(scope.clone(), || {
            let patcher = self.patcher();
            let clusters = self.make_clusters(&patcher);
            let files = Arc::new(clusters.files.resources().collect());
            made.secrets.get(scope.clone(), || files);
            made.effective.get(scope.clone(), || patcher.effective());
            let mut conflicts = clusters.lost.finish();
            conflicts.extend(patcher.lost());
            let conflicts = self.snapshot.base.conflict_pool.share(conflicts);
            made.conflicts.get(scope.clone(), || conflicts);
            Arc::new(Set::new(clusters.members))
        })
    }

    /// Says that this proxy has the conflicts of the clusters that it shares.
    pub(super) fn report_clusters(&self) {
        let conflicts = &self.parts.clusters.conflicts;
        let conflicts = conflicts.get(self.inputs.rules.clusters.clone(), Arc::default);
        let caches = &self.snapshot.caches;
        caches.report_shared(conflicts, &self.inputs.proxy.node.id);
    }

    /// Adds the conflicts of services of other namespaces with endpoints that its clusters do not lead to.
    pub(super) fn add_refused_endpoints(&self, lost: &mut Conflicts) {
        let service_ports = self.inputs.rules.service_ports().all();
        let keys = service_ports.map(|service_port| &service_port.service.key);
        let keys: BTreeSet<_> = keys
            .filter(|key| key.namespace != self.inputs.proxy.node.namespace)
            .collect();
        for key in keys {
            let conflict = self.snapshot.base.refused_endpoints.for_others(key);
            conflict.into_iter().for_each(|one| lost.add(0, one));
        }
    }

    /// Adds the clusters that are of no service, and those that patches add.
    pub(super) fn add_fixed_clusters(
        &self,
        patcher: &Patcher<'_>,
        members: &mut Vec<Arc<Resource>>,
    ) {
        let mut fixed = vec![clusters::black_hole(self.mesh())];
        let mut inbound = Vec::new();
        if self.is_sidecar() {
            fixed.push(clusters::passthrough(self.mesh()));
        }
        if !self.inputs.client.grpc {
            let logs = self.mesh().log_service.as_ref();
            fixed.extend(logs.map(|it| it.cluster(self.mesh(), &self.inputs.client)));
        }
        if self.inputs.client.intercepts {
            let families = self.inputs.proxy.families;
            for v6 in [false, true] {
                if (v6 && families.v6) || (!v6 && families.v4) {
                    inbound.push(clusters::inbound_passthrough(self.mesh(), v6));
                }
            }
        }
        members.extend(finished(patcher, fixed, Direction::Outbound));
        members.extend(finished(patcher, inbound, Direction::Inbound));
        let added = if self.inputs.rules.patches.is_empty() {
            Vec::new()
        } else {
            let names: BTreeSet<&str> = members.iter().map(|one| &*one.name).collect();
            let is_taken = |name: &str| names.contains(name) || clusters::is_of_bootstrap(name);
            patcher.added::<ClusterParts>(Direction::Outbound, is_taken)
        };
        members.extend(added.into_iter().map(Arc::new));
    }
}
