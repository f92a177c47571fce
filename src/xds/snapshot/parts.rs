//! What the parts of a snapshot weigh, and what of them stays the same as in the one before.

use std::sync::Arc;

use super::cache::Shared;
use super::variants::Weigh;
use super::{Clusters, Routes};
use crate::resources::listeners::outbound::Outbound;

impl Weigh for Clusters {
    fn weight(&self) -> usize {
        self.all.weight() + self.named.weight()
    }
}

impl Weigh for Outbound {
    fn weight(&self) -> usize {
        let built = self.listeners.values();
        built.map(|built| built.resource.weight()).sum()
    }
}

impl Weigh for Routes {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl Shared for Arc<Outbound> {
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

impl Shared for Routes {
    fn or_older(self, older: &Self) -> Self {
        (self.0.or_older(&older.0), self.1)
    }
}
