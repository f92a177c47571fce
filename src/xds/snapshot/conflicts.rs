//! Conflicts that a snapshot has found, with the proxies that they were found for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Conflict, Made, Snapshot};
use crate::resources::listeners::fixed;

/// Listeners that proxies cannot have and that are remembered: whoever looks has enough with so many, and what they are called
/// depends on addresses that proxies say.
const LOST: usize = 1000;

impl Snapshot {
    /// The conflicts found so far, each once, sorted.
    #[must_use]
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut all: BTreeSet<Conflict> = self.base.rules.conflicts().into_iter().collect();
        all.extend(self.base.envoy_filters.conflicts().cloned());
        all.extend(fixed::no_http_proxy(&self.base.mesh));
        all.extend(self.base.networks.conflicts.iter().cloned());
        all.extend(self.made.lost().values().cloned());
        let listeners = self.made.listeners.all_in_use();
        for outbound in listeners.iter().flat_map(|place| place.all.values()) {
            all.extend(outbound.conflicts.iter().cloned());
        }
        let routes = self.made.routes.all_in_use();
        for (_, conflicts) in routes.iter().flat_map(|caller| caller.values()) {
            all.extend(conflicts.iter().cloned());
        }
        let mut told: Vec<Conflict> = Vec::new();
        for one in all {
            match told.last_mut() {
                // Proxies of several kinds may have found the same.
                Some(last) if last.says_what(&one) => last.add(one),
                _ => told.push(one),
            }
        }
        told
    }

    /// Takes over what was left out for proxies that look at `earlier` still, because nothing is different for them. `rests`: whether
    /// one of this id does.
    pub fn keep_conflicts(&self, earlier: &Self, rests: impl Fn(&str) -> bool) {
        if Arc::ptr_eq(&self.made, &earlier.made) {
            return;
        }
        let kept = earlier.made.lost().clone();
        let kept = kept.into_iter().filter(|(_, one)| rests(&one.proxy));
        let mut all = self.made.lost();
        for (key, conflict) in kept {
            if all.len() < LOST {
                all.entry(key).or_insert(conflict);
            }
        }
    }

    /// Sets of clusters and listeners, and route configurations, that were made for proxies that see the same.
    #[must_use]
    pub fn parts_made(&self) -> usize {
        let clusters = self.made.clusters.all();
        let clusters = clusters.iter().map(|one| one.all.len());
        let listeners = self.made.listeners.all();
        let listeners = listeners.iter().map(|one| one.all.len());
        let routes = self.made.routes.all();
        let routes = routes.iter().map(|one| one.len());
        clusters.chain(listeners).chain(routes).sum()
    }
}

impl Made {
    pub(super) fn tell(&self, lost: impl IntoIterator<Item = Conflict>, proxy: &Arc<str>) {
        for conflict in lost {
            let key = conflict.key.clone();
            let mut all = self.lost();
            if all.len() < LOST {
                all.entry(key).or_insert_with(|| conflict.of(proxy));
            }
        }
    }

    fn lost(&self) -> MutexGuard<'_, BTreeMap<String, Conflict>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
