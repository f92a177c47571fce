//! Parts of a snapshot: what they are, what they weigh, and what of them stays the same as in the one before.

use std::collections::HashSet;
use std::sync::Arc;

use api::model::ObjectRef;

use super::conflicts::ConflictsOfPart;
use super::resource_cache::MemorySize;
use super::reuse::{Reusable, ReuseCache, Weight};
use super::{BuiltRoutes, Conflict};
use crate::common::conflict_pool::SharedConflicts;
use crate::resources::listeners::outbound::Outbound;
use crate::rules::envoy_filter::{PatchIds, PatchLimits};
use crate::scope::Scope;
use crate::scope::envoy_filters::PatchKey;
use crate::version::Version;
use crate::view::{Resource, Set, Type};

/// The key of a resource for programs with gRPC in them: its type and name, the port that is meant, and the rules that hold.
type GrpcResourceKey = (Type, Arc<str>, Arc<str>, Scope);

/// Clusters of services, for all proxies that are alike.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    pub(super) all: ReuseCache<Scope, Arc<Set>>,
    /// Each of them once, whatever else those see that have it.
    pub(super) each: ReuseCache<ClusterKey, BuiltCluster>,
    pub(super) named: ReuseCache<GrpcResourceKey, GrpcResource>,
    /// Secrets in files of a proxy that they ask for.
    pub(super) secrets: ReuseCache<Scope, Arc<Set>>,
    /// Names of those that patches made ask for no endpoints.
    pub(super) without_eds: ReuseCache<Scope, Arc<HashSet<Arc<str>>>>,
    /// Patches that are effective in them.
    pub(super) effective: ReuseCache<Scope, PatchIds>,
    /// Conflicts that were found when they were made.
    pub(super) conflicts: ReuseCache<Scope, SharedConflicts>,
}

/// A resource for programs with gRPC in them.
#[derive(Clone, Debug)]
pub(super) struct GrpcResource {
    pub(super) resource: Arc<Resource>,
    /// Says what of its rules is left out.
    pub(super) conflicts: SharedConflicts,
}

/// A cluster, unless a patch removes it or it cannot be secured.
#[derive(Clone, Debug, Default)]
pub(super) struct BuiltCluster {
    pub(super) resource: Option<Arc<Resource>>,
    /// Patches that are effective in it.
    pub(super) effective: PatchIds,
    /// Says that it is left out.
    pub(super) conflict: Option<Arc<Conflict>>,
}

/// A name, the namespace of the service, the rules that hold with the facts of all, and the patches with their limits.
type ClusterKey = (
    Arc<str>,
    Arc<str>,
    (Arc<[ObjectRef]>, (usize, bool)),
    (PatchKey, Option<PatchLimits>),
);

/// A name, what it has, and the rules that it is made from.
type ListenerKey = (Arc<str>, Version, Arc<[ObjectRef]>);

/// Listeners of services, for all proxies whose listeners are alike.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) all: ReuseCache<Scope, Arc<Outbound>>,
    /// Each of them once, whatever else those see that have it.
    pub(super) each: ReuseCache<ListenerKey, Arc<Resource>>,
    /// Conflicts that were found when they were made.
    pub(super) conflicts: ReuseCache<Scope, ConflictsOfPart>,
}

impl Clusters {
    pub(super) fn after(&self) -> Self {
        Self {
            all: self.all.after(),
            each: self.each.after(),
            named: self.named.after(),
            secrets: self.secrets.after(),
            without_eds: ReuseCache::default(),
            effective: ReuseCache::default(),
            conflicts: ReuseCache::default(),
        }
    }
}

impl Listeners {
    pub(super) fn after(&self) -> Self {
        Self {
            all: self.all.after(),
            each: self.each.after(),
            conflicts: ReuseCache::default(),
        }
    }
}

impl MemorySize for Clusters {
    fn memory_size(&self) -> usize {
        // `each` holds the resources that are in the sets of `all`.
        self.all.memory_size() + self.named.memory_size() + self.secrets.memory_size()
    }
}

impl MemorySize for Listeners {
    fn memory_size(&self) -> usize {
        // `each` holds the resources that are in the sets of `all`.
        self.all.memory_size()
    }
}

impl Reusable for Arc<Outbound> {
    fn reuse_older(self, older: &Self) -> Self {
        let listeners = self
            .listeners
            .iter()
            .map(|(name, built)| {
                let mut built = built.clone();
                if let Some(known) = older.listeners.get(name) {
                    built.resource = built.resource.reuse_older(&known.resource);
                }
                (name.clone(), built)
            })
            .collect();
        Self::new(Outbound {
            listeners,
            routes: self.routes.clone(),
            effective: self.effective.clone(),
        })
    }

    fn weigh(&self, weight: &mut Weight) {
        let built = self.listeners.values();
        built.for_each(|built| weight.add(&built.resource));
    }
}

impl Reusable for BuiltRoutes {
    fn reuse_older(self, older: &Self) -> Self {
        Self {
            resource: self.resource.reuse_older(&older.resource),
            ..self
        }
    }

    fn weigh(&self, weight: &mut Weight) {
        self.resource.weigh(weight);
    }
}

impl Reusable for GrpcResource {
    fn reuse_older(self, older: &Self) -> Self {
        Self {
            resource: self.resource.reuse_older(&older.resource),
            ..self
        }
    }

    fn weigh(&self, weight: &mut Weight) {
        self.resource.weigh(weight);
    }
}

impl Reusable for BuiltCluster {
    fn reuse_older(self, older: &Self) -> Self {
        Self {
            resource: self.resource.reuse_older(&older.resource),
            ..self
        }
    }

    fn weigh(&self, weight: &mut Weight) {
        self.resource.weigh(weight);
    }
}

impl Reusable for SharedConflicts {
    fn reuse_older(self, _older: &Self) -> Self {
        self
    }

    fn weigh(&self, _weight: &mut Weight) {}
}

impl Reusable for ConflictsOfPart {
    fn reuse_older(self, _older: &Self) -> Self {
        self
    }

    fn weigh(&self, _weight: &mut Weight) {}
}

impl Reusable for Arc<HashSet<Arc<str>>> {
    fn reuse_older(self, _older: &Self) -> Self {
        self
    }

    fn weigh(&self, _weight: &mut Weight) {}
}

impl Reusable for PatchIds {
    fn reuse_older(self, _older: &Self) -> Self {
        self
    }

    fn weigh(&self, _weight: &mut Weight) {}
}
