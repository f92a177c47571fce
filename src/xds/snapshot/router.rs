//! Resources of a router beyond clusters: listeners for its Gateways, and routes of the requests that come in there.

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

use super::proxy::ProxyView;
use super::sets::{or_older, versions};
use super::{BuiltRoutes, Conflict, SetKey};
use crate::finish::Draft;
use crate::resource_names::ResourceNames;
use crate::resources::listeners::gateway::RouterParameters;
use crate::resources::routes;
use crate::rules::envoy_filter::Direction;
use crate::view::{Resource, Set, Type};

impl ProxyView {
    pub(super) fn router_listeners(&self) -> Arc<Set> {
        let edge = RouterParameters {
            proxy: &self.inputs.proxy,
            mesh: self.mesh(),
            rules: &self.inputs.rules,
            merged: &self.inputs.merged,
            filters: &self.inputs.filters,
            secrets: self.credentials(),
        };
        let (drafts, lost) = edge.listeners();
        let lost = self.inputs.merged.conflicts.iter().cloned().chain(lost);
        self.snapshot
            .caches
            .report(lost, &self.inputs.proxy.node.id);
        let own = self.patched_listeners(drafts);
        let shared_key = (
            self.inputs.outbound.clone(),
            self.inputs.rules.scope.clone(),
        );
        let key: SetKey<_> = (shared_key, versions(&own));
        let all = &self.snapshot.caches.all_listeners;
        all.get(key, |older| or_older(Set::new(own), older))
    }

    /// Returns true if listeners, or routes of these names, were made already.
    pub(super) fn has_router_resources(&self, kind: Type, names: &ResourceNames) -> bool {
        let [_, _, listeners, ..] = &self.sets;
        let is_made = |name: &str| {
            let name = self.router_route_name(name);
            name.is_none_or(|name| self.parts.routes.has(&name))
        };
        match kind {
            Type::Route => names.iter().all(is_made),
            Type::Listener => self.inputs.merged.by_port.is_empty() || listeners.get().is_some(),
            Type::Cluster | Type::Endpoint | Type::Secret => true,
        }
    }

    /// The last step of a route configuration, with the conflicts that were found on the way.
    pub(super) fn finished_route(
        &self,
        made: Option<(Draft<RouteConfiguration>, Vec<Conflict>)>,
    ) -> BuiltRoutes {
        let Some((draft, mut conflicts)) = made else {
            return BuiltRoutes::default();
        };
        let patcher = self.patcher();
        let finished = patcher.finish(draft, Direction::Outbound).map(Arc::new);
        let effective = patcher.effective();
        conflicts.extend(patcher.lost());
        BuiltRoutes {
            resource: finished,
            conflicts: self.found(conflicts),
            effective,
        }
    }

    /// A configuration by a name that one of its listeners refers to.
    pub(super) fn router_route(&self, name: &Arc<str>) -> Option<Arc<Resource>> {
        let name = self.router_route_name(name)?;
        let make = || {
            let parameters = (&self.inputs.route_parameters, self.mesh());
            let made = routes::gateway(&name, parameters, &self.inputs.rules, &self.inputs.merged);
            self.finished_route(made)
        };
        let made = self.parts.routes.get(name.clone(), make);
        self.record_routes();
        made.resource
    }

    /// The string that all share who have it.
    pub(super) fn router_route_name(&self, name: &str) -> Option<Arc<str>> {
        self.inputs.merged.routes_name(name).cloned()
    }

    pub(super) fn router_routes(&self) -> Arc<Set> {
        let names = self.inputs.merged.routes();
        Arc::new(names.filter_map(|name| self.router_route(name)).collect())
    }
}
