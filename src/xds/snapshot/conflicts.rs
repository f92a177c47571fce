//! Conflicts that a snapshot has found, with the proxies that they were found for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Conflict, Snapshot, SnapshotCaches};
use crate::resources::listeners::virtual_listeners;
use crate::rules::authorization_policy;

/// Listeners that proxies cannot have and that are remembered: whoever looks has enough with so many, and what they are called
/// depends on addresses that proxies say.
const LOST: usize = 1000;

/// Proxies that are remembered of each: the first ones by their ids, for those that look earlier are others at each time.
const PROXIES: usize = 100;

/// Each conflict, for no proxy, with those that found it. Who finds the same at other objects finds another one, which goes with
/// them: an object that was mended is not blamed for as long as others are not.
pub(super) type LostParts = BTreeMap<Conflict, BTreeSet<Arc<str>>>;

impl Snapshot {
    /// The conflicts found so far, each once, sorted.
    #[must_use]
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut all: BTreeSet<Conflict> = self.base.rules.conflicts().into_iter().collect();
        all.extend(self.base.envoy_filters.conflicts().cloned());
        all.extend(self.base.policies.conflicts().cloned());
        all.extend(authorization_policy::without_provider(
            &self.world.mesh,
            &self.base.policies,
        ));
        all.extend(virtual_listeners::no_http_proxy(&self.base.mesh));
        all.extend(self.base.networks.conflicts.iter().cloned());
        all.extend(self.mtls_conflicts().iter().cloned());
        for (conflict, proxies) in &*self.caches.lost() {
            let proxy = proxies.first().map(|proxy| conflict.clone().of(proxy));
            all.extend(proxy);
        }
        let listeners = self.caches.listeners.all_in_use();
        for outbound in listeners.iter().flat_map(|place| place.all.values()) {
            all.extend(outbound.conflicts.iter().cloned());
        }
        let routes = self.caches.routes.all_in_use();
        for made in routes.iter().flat_map(|memo| memo.values()) {
            all.extend(made.conflicts.iter().cloned());
        }
        all.extend(self.caches.unmatched_patches());
        // In order of metric, key and message, so repeats stand together.
        let mut conflicts: Vec<Conflict> = Vec::new();
        for one in all {
            match conflicts.last_mut() {
                // Proxies of several kinds may have found the same.
                Some(last) if last.is_repeat_of(&one) => last.add(one),
                _ => conflicts.push(one),
            }
        }
        conflicts
    }

    /// Takes over the conflicts that were found for proxies that still look at `earlier`, because nothing differs for them.
    /// `rests` returns true for the ids of these proxies.
    pub fn keep_conflicts(&self, earlier: &Self, rests: impl Fn(&str) -> bool) {
        // A snapshot of endpoints alone shares the caches of the one before.
        if Arc::ptr_eq(&self.caches, &earlier.caches) {
            return;
        }
        let earlier = earlier.caches.lost().clone();
        let mut all = self.caches.lost();
        for (conflict, mut proxies) in earlier {
            proxies.retain(|proxy| rests(proxy));
            remember(&mut all, conflict, proxies);
        }
    }

    /// Sets of clusters and listeners, and route configurations, that were made for proxies that see the same.
    #[must_use]
    pub fn parts_made(&self) -> usize {
        let clusters = self.caches.clusters.all();
        let clusters = clusters.iter().map(|one| one.all.len());
        let listeners = self.caches.listeners.all();
        let listeners = listeners.iter().map(|one| one.all.len());
        let routes = self.caches.routes.all();
        let routes = routes.iter().map(|one| one.len());
        clusters.chain(listeners).chain(routes).sum()
    }
}

impl SnapshotCaches {
    pub(super) fn report(&self, lost: impl IntoIterator<Item = Conflict>, proxy: &Arc<str>) {
        for conflict in lost {
            let conflict = conflict.of(&Arc::default());
            remember(&mut self.lost(), conflict, [proxy.clone()].into());
        }
    }

    fn lost(&self) -> MutexGuard<'_, LostParts> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(all: &mut LostParts, conflict: Conflict, proxies: BTreeSet<Arc<str>>) {
    let has_room = all.len() < LOST || all.contains_key(&conflict);
    if proxies.is_empty() || !has_room {
        return;
    }
    let known = all.entry(conflict).or_default();
    known.extend(proxies);
    while known.len() > PROXIES {
        known.pop_last();
    }
}

#[cfg(test)]
mod tests {
    use api::model::{ObjectRef, ServiceKey};

    use super::super::tests::world;
    use super::*;
    use crate::common::conflict::INVALID_LISTENER;
    use crate::settings::Settings;

    fn snapshot() -> Arc<Snapshot> {
        Snapshot::new(world(""), Arc::new(Settings::default()))
    }

    fn lost(namespace: &str, message: &str) -> Conflict {
        let sidecar = ObjectRef {
            kind: "Sidecar",
            namespace: namespace.into(),
            name: "s".into(),
        };
        let conflict = Conflict::new(INVALID_LISTENER, "127.0.0.1_8080", message.to_owned());
        let service = ServiceKey::new(&format!("a.{namespace}"), namespace);
        conflict.because_of(&sidecar).of_service(&service)
    }

    fn report(snapshot: &Snapshot, namespace: &str, proxy: &str) {
        let conflict = lost(namespace, "is left out");
        snapshot.caches.report([conflict], &proxy.into());
    }

    fn namespaces(conflict: &Conflict) -> Vec<&str> {
        let objects = conflict.objects.iter();
        objects.map(|object| &*object.namespace).collect()
    }

    #[test]
    fn conflicts_do_not_depend_on_the_order_of_proxies() {
        let conflicts_of = |order: [&str; 3]| {
            let snapshot = snapshot();
            for namespace in order {
                report(&snapshot, namespace, &format!("proxy.{namespace}"));
            }
            let other = lost("z", "has no place");
            snapshot.caches.report([other], &"proxy.z".into());
            snapshot.conflicts()
        };
        let all = conflicts_of(["a", "b", "c"]);
        let [other, conflict] = &*all else {
            panic!("not two: {all:?}");
        };
        assert_eq!(namespaces(other), ["z"]);
        assert_eq!(namespaces(conflict), ["a", "b", "c"]);
        assert_eq!(conflict.services.len(), 3);
        assert_eq!(&*conflict.proxy, "proxy.a");
        for order in [["b", "a", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
            assert_eq!(conflicts_of(order), all, "{order:?}");
        }
    }

    #[test]
    fn a_conflict_lasts_as_long_as_a_proxy_has_it() {
        let earlier = snapshot();
        for (namespace, proxies) in [("a", &["a1", "a2"][..]), ("b", &["b1"])] {
            proxies
                .iter()
                .for_each(|id| report(&earlier, namespace, id));
        }
        for (there, expected) in [("a1", &["a"][..]), ("a2", &["a"]), ("b1", &["b"])] {
            let next = snapshot();
            next.keep_conflicts(&earlier, |proxy| proxy == there);
            // What the other namespace has mended is not told there any more.
            let all = next.conflicts();
            assert!(all.len() == 1 && namespaces(&all[0]) == expected, "{all:?}");
            assert_eq!(&*all[0].proxy, there);
            let last = snapshot();
            last.keep_conflicts(&next, |proxy| proxy != there);
            assert_eq!(last.conflicts(), [], "{there} is gone");
        }
        // What was found in the meantime stays beside it.
        let next = snapshot();
        report(&next, "c", "c1");
        report(&next, "a", "a3");
        next.keep_conflicts(&earlier, |proxy| proxy != "a1");
        let conflicts = next.conflicts();
        assert_eq!(namespaces(&conflicts[0]), ["a", "b", "c"]);
        assert_eq!(&*conflicts[0].proxy, "a2");
    }

    #[test]
    fn the_same_proxies_are_remembered_in_any_order() {
        let many: Vec<_> = (0..2 * PROXIES).map(|at| format!("{at:04}")).collect();
        let known = |all: &mut dyn Iterator<Item = &String>| {
            let snapshot = snapshot();
            all.for_each(|name| report(&snapshot, "a", name));
            let known: Vec<_> = snapshot.caches.lost().values().cloned().collect();
            known
        };
        let first = known(&mut many.iter());
        assert!(first.len() == 1 && first[0].len() == PROXIES);
        assert_eq!(known(&mut many.iter().rev()), first);
    }
}
