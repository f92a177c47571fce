//! Patches that change nothing of any connected proxy that they are for: their match may be mistyped.
//!
//! The patches that a proxy's resources are changed by are known once these are made. As long as some are not, a patch is taken
//! for one that changes them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use api::networking::envoy_filter::PatchContext;

use super::{Conflict, Snapshot, SnapshotCaches};
use crate::common::conflict::Conflicts;
use crate::rules::envoy_filter::{PatchIds, report_without_match};
use crate::scope::ProxyRules;
use crate::scope::envoy_filters::{Patch, PatchKey, Patches};

/// Proxies at which the first sweep of those that are gone begins.
const FIRST_SWEEP: usize = 64;

/// The patches of one proxy, as long as a stream has a view of it.
#[derive(Debug)]
struct PatchMatches {
    patches: Arc<Patches>,
    key: PatchKey,
    effective: Mutex<EffectivePatches>,
}

/// The patches that are effective in the resources of each type; `None`: those are not made yet.
#[derive(Clone, Debug, Default)]
struct EffectivePatches {
    clusters: Option<PatchIds>,
    listeners: Option<PatchIds>,
    routes: Option<PatchIds>,
}

/// Proxies with the same patches.
struct Group<'a> {
    patches: &'a Patches,
    /// Patches that change nothing of those that were looked at.
    others: Vec<&'a Arc<Patch>>,
}

/// Proxies by their ids.
#[derive(Debug, Default)]
pub(super) struct Registry {
    all: HashMap<Arc<str>, Registered>,
    sweep: usize,
}

#[derive(Debug)]
struct Registered {
    matches: Weak<PatchMatches>,
    /// True for the matches of an earlier snapshot that differs for the proxy in more than endpoints.
    is_stale: bool,
}

/// The patch matches of a view.
#[derive(Debug)]
pub(super) struct ViewMatches {
    matches: Arc<PatchMatches>,
    route_names: OnceLock<usize>,
    has_routes: OnceLock<()>,
}

impl EffectivePatches {
    fn may_have(&self, patch: &Patch) -> bool {
        let has = |effective: &Option<PatchIds>| {
            let effective = effective.as_ref();
            effective.is_none_or(|ids| ids.binary_search(&patch.id()).is_ok())
        };
        match patch.is_of_routes() {
            // Of what comes in they are in the listeners.
            true if patch.context == PatchContext::SidecarInbound => has(&self.listeners),
            true => has(&self.listeners) || has(&self.routes),
            false if patch.is_of_listeners() => has(&self.listeners),
            false => has(&self.clusters),
        }
    }
}

impl ViewMatches {
    /// The clusters are made, and these patches are effective in them.
    pub(super) fn set_clusters(&self, effective: impl IntoIterator<Item = PatchIds>) {
        self.matches.effective().clusters = Some(union(effective));
    }

    /// The listeners are made, and these patches are effective in them.
    pub(super) fn set_listeners(&self, effective: impl IntoIterator<Item = PatchIds>) {
        self.matches.effective().listeners = Some(union(effective));
    }

    /// Some routes are made, maybe the last of them. `names`: how many there are to be. `effective`: of all of them.
    pub(super) fn set_routes<I: IntoIterator<Item = PatchIds>>(
        &self,
        count: usize,
        names: impl FnOnce() -> usize,
        effective: impl FnOnce() -> I,
    ) {
        let is_complete = count >= *self.route_names.get_or_init(names);
        if is_complete && self.has_routes.set(()).is_ok() {
            self.matches.effective().routes = Some(union(effective()));
        }
    }
}

impl PatchMatches {
    fn effective(&self) -> MutexGuard<'_, EffectivePatches> {
        self.effective
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn get(&self, proxy: &str) -> Option<(Arc<PatchMatches>, bool)> {
        let known = self.all.get(proxy)?;
        Some((known.matches.upgrade()?, known.is_stale))
    }

    fn insert(&mut self, proxy: Arc<str>, matches: &Arc<PatchMatches>, is_stale: bool) {
        if self.all.len() >= self.sweep.max(FIRST_SWEEP) {
            self.all.retain(|_, known| known.matches.strong_count() > 0);
            self.sweep = 2 * self.all.len();
        }
        let matches = Arc::downgrade(matches);
        self.all.insert(proxy, Registered { matches, is_stale });
    }
}

impl Snapshot {
    /// Takes over what the patches of connected proxies change. `is_as_before` returns true for the ids of those for which
    /// nothing but endpoints differs from the earlier snapshot.
    pub fn take_over_patch_matches(&self, earlier: &Self, is_as_before: impl Fn(&str) -> bool) {
        if Arc::ptr_eq(&self.caches, &earlier.caches) {
            return;
        }
        let known: Vec<_> = {
            let earlier = earlier.caches.registry();
            let all = earlier.all.keys();
            all.filter_map(|proxy| Some((proxy.clone(), earlier.get(proxy)?)))
                .collect()
        };
        let mut registry = self.caches.registry();
        for (proxy, (matches, was_stale)) in known {
            let is_stale = was_stale || !is_as_before(&proxy);
            match registry.get(&proxy) {
                None => registry.insert(proxy, &matches, is_stale),
                // Its stream was faster.
                Some((newer, _)) if !is_stale && newer.key == matches.key => {
                    let older = matches.effective().clone();
                    let mut effective = newer.effective();
                    effective.clusters = effective.clusters.take().or(older.clusters);
                    effective.listeners = effective.listeners.take().or(older.listeners);
                    effective.routes = effective.routes.take().or(older.routes);
                }
                Some(_) => {}
            }
        }
    }
}

impl SnapshotCaches {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.matches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the patch matches for a new view of a proxy; `None`: no patch holds for it.
    pub(super) fn matches_of(&self, proxy: &Arc<str>, rules: &ProxyRules) -> Option<ViewMatches> {
        if rules.patches.is_empty() {
            return None;
        }
        let mut registry = self.registry();
        let known = registry.get(proxy);
        let known = known.filter(|(known, is_stale)| !is_stale && known.key == rules.scope.patches);
        let matches = match known {
            Some((known, _)) => known,
            None => {
                let matches = Arc::new(PatchMatches {
                    patches: rules.patches.clone(),
                    key: rules.scope.patches.clone(),
                    effective: Mutex::default(),
                });
                registry.insert(proxy.clone(), &matches, false);
                matches
            }
        };
        Some(ViewMatches {
            matches,
            route_names: OnceLock::new(),
            has_routes: OnceLock::new(),
        })
    }

    /// A conflict of each patch that holds for connected proxies and changes nothing of any.
    pub(super) fn unmatched_patches(&self) -> Vec<Conflict> {
        let all: Vec<_> = {
            let registry = self.registry();
            let all = registry.all.keys();
            all.filter_map(|proxy| registry.get(proxy)).collect()
        };
        // Proxies with the same patches are looked at together, each of them only for those that no other one has shown to match.
        let mut groups: HashMap<*const Patches, Group<'_>> = HashMap::new();
        for (matches, is_stale) in &all {
            let group = groups.entry(Arc::as_ptr(&matches.patches));
            let group = group.or_insert_with(|| Group {
                patches: &matches.patches,
                others: matches.patches.iter().collect(),
            });
            // Nothing is known of a stale proxy: all of its patches may match.
            if *is_stale {
                group.others.clear();
            } else if !group.others.is_empty() {
                let effective = matches.effective();
                group.others.retain(|patch| !effective.may_have(patch));
            }
        }
        let mut effective = HashSet::new();
        let mut others: HashMap<u64, &Arc<Patch>> = HashMap::new();
        for group in groups.into_values() {
            let ids: HashSet<u64> = group.others.iter().map(|patch| patch.id()).collect();
            let all = group.patches.iter().map(|patch| patch.id());
            effective.extend(all.filter(|id| !ids.contains(id)));
            others.extend(group.others.into_iter().map(|patch| (patch.id(), patch)));
        }
        others.retain(|id, _| !effective.contains(id));
        let mut others: Vec<_> = others.into_values().collect();
        others.sort_by(|one, other| (&one.from, one.at).cmp(&(&other.from, other.at)));
        let mut conflicts = Conflicts::default();
        for patch in others {
            report_without_match(patch, &mut conflicts);
        }
        conflicts.finish()
    }
}

fn union(all: impl IntoIterator<Item = PatchIds>) -> PatchIds {
    let ids = all.into_iter().flat_map(|ids| ids.to_vec());
    let ids: BTreeSet<u64> = ids.collect();
    ids.into_iter().collect()
}
