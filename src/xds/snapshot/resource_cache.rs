//! A cache of shared parts by what proxies differ in, of which proxies say the most themselves: file names, domains, localities.
//!
//! A part is there as long as a proxy that is connected uses it, and beside those a few that were used last, for proxies that
//! come back, as long as they are not large. So nobody fills the memory by saying something else on each of his streams.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Parts that are kept although no connected proxy may use them (discovery.md §12).
pub(super) const SPARE_ENTRIES: usize = 64;

/// Bytes that those may have together. Chosen: 32 kinds of proxies of a mesh with 1,000 services; names of files as long as they
/// may be make each of them four times as large.
const SPARE_BYTES: usize = 32 << 20;

/// A value that knows its size.
pub(super) trait MemorySize {
    /// About how many bytes it keeps from being given back. This takes no time: a cache asks all its spare parts for it, under its
    /// lock, whenever one more comes.
    fn memory_size(&self) -> usize;
}

/// Parts by their keys.
#[derive(Debug)]
pub(super) struct ResourceCache<K, V> {
    state: Mutex<CacheState<K, V>>,
    /// Parts of the snapshot before that are still used.
    before: HashMap<K, Weak<V>>,
}

#[derive(Debug)]
struct CacheState<K, V> {
    all: HashMap<K, Weak<V>>,
    /// Used last, the latest at the end.
    spare: VecDeque<Arc<V>>,
    /// The number of keys at which the next sweep of dead ones begins: twice what the last one left, so that sweeps cost a
    /// constant for each.
    sweep: usize,
}

impl<K, V> Default for ResourceCache<K, V> {
    fn default() -> Self {
        Self {
            state: Mutex::new(CacheState {
                all: HashMap::new(),
                spare: VecDeque::new(),
                sweep: 0,
            }),
            before: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone, V: MemorySize> ResourceCache<K, V> {
    /// Returns an empty cache that remembers the parts of this one that are still in use.
    pub(super) fn after(&self) -> Self {
        let known = self.lock();
        let used = known.all.iter();
        Self {
            before: used
                .filter(|(_, part)| part.strong_count() > 0)
                .map(|(key, part)| (key.clone(), part.clone()))
                .collect(),
            ..Self::default()
        }
    }

    /// Returns an empty cache as [`Self::after`] does, which also remembers parts of older snapshots that streams still use.
    /// Such a part may be of any earlier snapshot, so the caller compares it before it takes it over.
    pub(super) fn after_any(&self) -> Self {
        let mut next = self.after();
        for (key, part) in &self.before {
            if part.strong_count() > 0 {
                let part = || part.clone();
                next.before.entry(key.clone()).or_insert_with(part);
            }
        }
        next
    }

    /// Returns the part of this key, and makes it if there is none. It is made outside of the lock, from the part of the
    /// snapshot before if a stream still uses that.
    pub(super) fn get(&self, key: K, make: impl FnOnce(Option<Arc<V>>) -> Arc<V>) -> Arc<V> {
        let mut known = self.lock();
        if let Some(part) = known.all.get(&key).and_then(Weak::upgrade) {
            let dropped = known.touch_and_evict(&part);
            drop(known);
            drop(dropped);
            return part;
        }
        drop(known);
        let made = make(self.before.get(&key).and_then(Weak::upgrade));
        let mut known = self.lock();
        // Somebody may have been faster.
        let part = known.all.get(&key).and_then(Weak::upgrade).unwrap_or(made);
        known.sweep();
        known.all.insert(key, Arc::downgrade(&part));
        let dropped = known.touch_and_evict(&part);
        drop(known);
        drop(dropped);
        part
    }

    /// The parts that still exist.
    pub(super) fn all(&self) -> Vec<Arc<V>> {
        self.lock().all.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the parts that still exist, and the older parts that streams use because no later change has concerned them.
    pub(super) fn all_in_use(&self) -> Vec<Arc<V>> {
        let known = self.lock();
        let older = self.before.iter();
        let older = older.filter(|(key, _)| !known.all.contains_key(*key));
        let all = known.all.values().chain(older.map(|(_, part)| part));
        all.filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V: MemorySize> CacheState<K, V> {
    /// Marks a part as used last. Returns those that are evicted for it, to be dropped without the lock.
    fn touch_and_evict(&mut self, part: &Arc<V>) -> Vec<Arc<V>> {
        let at = self.spare.iter().rposition(|one| Arc::ptr_eq(one, part));
        if let Some(at) = at {
            // Mostly it is the last one already.
            if at + 1 == self.spare.len() {
                return Vec::new();
            }
            self.spare.remove(at);
        }
        self.spare.push_back(Arc::clone(part));
        if at.is_some() {
            return Vec::new();
        }
        // Parts are filled after they have come, so all are asked whenever there is one more.
        let mut bytes = 0;
        let latest = self.spare.iter().rev();
        let fit = latest.take(SPARE_ENTRIES).take_while(|part| {
            bytes += part.memory_size();
            bytes <= SPARE_BYTES
        });
        // The part that was used just now stays, however large it is.
        let goes = self.spare.len() - fit.count().max(1);
        self.spare.drain(..goes).collect()
    }

    fn sweep(&mut self) {
        if self.all.len() < self.sweep.max(2 * SPARE_ENTRIES) {
            return;
        }
        self.all.retain(|_, part| part.strong_count() > 0);
        self.all.shrink_to(2 * self.all.len());
        self.sweep = self.all.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MemorySize for String {
        fn memory_size(&self) -> usize {
            self.len()
        }
    }

    fn made(variants: &ResourceCache<usize, String>, key: usize) -> Arc<String> {
        variants.get(key, |_| Arc::new(key.to_string()))
    }

    #[test]
    fn a_part_is_kept_while_it_is_used_and_a_few_beside() {
        let variants = ResourceCache::default();
        let used: Vec<_> = (0..200).map(|key| made(&variants, key)).collect();
        for key in 1000..100_000 {
            made(&variants, key);
            let known = variants.lock();
            assert!(known.spare.len() <= SPARE_ENTRIES);
            assert!(
                known.all.len() <= 2 * (used.len() + SPARE_ENTRIES) + 1,
                "{}",
                known.all.len()
            );
        }
        for (key, part) in used.iter().enumerate() {
            let again = variants.get(key, |_| panic!("it is used"));
            assert!(Arc::ptr_eq(part, &again));
        }
        drop(used);
        variants.get(199, |_| panic!("it was used last"));
        assert_eq!(*made(&variants, 99_999), "99999");
        assert!(
            variants.all().len() <= SPARE_ENTRIES,
            "{}",
            variants.all().len()
        );
    }

    /// 64 sets of 1,000 clusters, each with names of files as long as they may be, were 200 MB that nobody used.
    #[test]
    fn unused_entries_are_bounded_in_bytes() {
        let variants: ResourceCache<usize, String> = ResourceCache::default();
        let large = |key: usize| {
            let make = |_| Arc::new("x".repeat(SPARE_BYTES / 4));
            drop(variants.get(key, make));
        };
        (0..SPARE_ENTRIES).for_each(large);
        let of = |all: Vec<Arc<String>>| all.iter().map(|one| one.memory_size()).sum::<usize>();
        assert_eq!(of(variants.all()), SPARE_BYTES);
        variants.get(SPARE_ENTRIES - 1, |_| panic!("it was used last"));
        variants.get(SPARE_ENTRIES - 4, |_| panic!("it fits"));
        // One that is too large by itself goes with the next.
        drop(variants.get(1000, |_| Arc::new("x".repeat(2 * SPARE_BYTES))));
        assert_eq!(variants.all().len(), 1);
        large(1001);
        assert_eq!(of(variants.all()), SPARE_BYTES / 4);
    }

    #[test]
    fn an_unused_entry_survives_some_snapshots() {
        let variants = ResourceCache::default();
        let (one, two) = (made(&variants, 1), made(&variants, 2));
        let next = variants.after_any();
        let newer = next.get(2, |_| Arc::new("newer".to_owned()));
        drop((made(&variants, 3), variants));
        let last = next.after_any().after_any();
        assert!(Arc::ptr_eq(&one, &last.get(1, Option::unwrap)));
        assert!(Arc::ptr_eq(&newer, &last.get(2, Option::unwrap)));
        assert!(!Arc::ptr_eq(&two, &newer));
        last.get(3, |older| {
            assert_eq!(older, None, "nobody uses it");
            Arc::default()
        });
        // What takes over unlooked at what its change does not touch has those of the last one alone.
        next.after().after().get(1, |older| {
            assert_eq!(older, None);
            Arc::default()
        });
    }

    #[test]
    fn the_next_one_knows_what_is_used() {
        let variants = ResourceCache::default();
        let one = made(&variants, 1);
        drop(made(&variants, 2));
        let next = variants.after();
        drop(variants);
        let same = next.get(1, Option::unwrap);
        assert!(Arc::ptr_eq(&one, &same));
        let other = next.get(2, |older| {
            assert_eq!(older, None, "nobody uses it, and the older ones are gone");
            Arc::new("other".to_owned())
        });
        assert_eq!(*other, "other");
    }
}
