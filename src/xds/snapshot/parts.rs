//! Parts of a snapshot: what they are, what they weigh, and what of them stays the same as in the one before.

use std::sync::Arc;

use api::model::ObjectRef;

use super::MadeRoutes;
use super::cache::{Cache, Reusable};
use super::variants::Weigh;
use crate::resources::listeners::outbound::Outbound;
use crate::scope::Scope;
use crate::version::Version;
use crate::view::{Resource, Set, Type};

/// The key of a resource for programs with gRPC in them: its type and name, the port that is meant, and the rules that hold.
type GrpcResourceKey = (Type, Arc<str>, Arc<str>, Scope);

/// Clusters of services, for all proxies that are alike.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    pub(super) all: Cache<Scope, Arc<Set>>,
    /// Each of them once, whatever else those see that have it.
    pub(super) each: Cache<ClusterKey, Option<Arc<Resource>>>,
    pub(super) named: Cache<GrpcResourceKey, Arc<Resource>>,
    /// Secrets in files of a proxy that they ask for.
    pub(super) secrets: Cache<Scope, Arc<Set>>,
}

/// A name, the namespace of the service, the rules that hold, and the patches.
type ClusterKey = (Arc<str>, Arc<str>, Arc<[ObjectRef]>, Arc<[u64]>);

/// A name, what it has, and the rules that it is made from.
type ListenerKey = (Arc<str>, Version, Arc<[ObjectRef]>);

/// Listeners of services, for all proxies whose listeners are alike.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) all: Cache<Scope, Arc<Outbound>>,
    /// Each of them once, whatever else those see that have it.
    pub(super) each: Cache<ListenerKey, Arc<Resource>>,
}

impl Clusters {
    pub(super) fn after(&self) -> Self {
        Self {
            all: self.all.after(),
            each: self.each.after(),
            named: self.named.after(),
            secrets: self.secrets.after(),
        }
    }
}

impl Listeners {
    pub(super) fn after(&self) -> Self {
        Self {
            all: self.all.after(),
            each: self.each.after(),
        }
    }
}

impl Weigh for Clusters {
    fn weight(&self) -> usize {
        self.all.weight() + self.named.weight() + self.secrets.weight()
    }
}

impl Weigh for Listeners {
    fn weight(&self) -> usize {
        self.all.weight()
    }
}

impl Weigh for Outbound {
    fn weight(&self) -> usize {
        let built = self.listeners.values();
        built.map(|built| built.resource.weight()).sum()
    }
}

impl Weigh for MadeRoutes {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl Reusable for Arc<Outbound> {
    fn or_older(self, older: &Self) -> Self {
        let listeners = self
            .listeners
            .iter()
            .map(|(name, built)| {
                let mut built = built.clone();
                if let Some(known) = older.listeners.get(name) {
                    built.resource = built.resource.or_older(&known.resource);
                }
                (name.clone(), built)
            })
            .collect();
        Self::new(Outbound {
            listeners,
            routes: self.routes.clone(),
            conflicts: self.conflicts.clone(),
        })
    }
}

impl Reusable for MadeRoutes {
    fn or_older(self, older: &Self) -> Self {
        (self.0.or_older(&older.0), self.1)
    }
}
