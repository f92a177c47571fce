//! Values that are made once and shared by all that need the same. None is evicted.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::sync::Arc;

use super::resource_cache::MemorySize;
use crate::view::{Resource, Set};

/// Values by what they were made of. An equal value of an earlier cache takes the place of a new one, so that the bytes that
/// streams hold stay the same bytes.
#[derive(Debug)]
pub(super) struct ReuseCache<K, V> {
    now: Mutex<Known<K, V>>,
    before: HashMap<K, V>,
}

/// The values of a cache, and what they weigh: whoever weighs the cache does not visit them.
#[derive(Debug)]
struct Known<K, V> {
    values: HashMap<K, V>,
    weight: Weight,
}

/// The bytes of resources, each of which counts once, however many sets have it.
#[derive(Debug, Default)]
pub(super) struct Weight {
    /// Addresses of the resources: a cache evicts none of them, so no address comes to mean another one.
    counted: HashSet<usize>,
    bytes: usize,
}

impl<K, V> Default for ReuseCache<K, V> {
    fn default() -> Self {
        Self::new(HashMap::new())
    }
}

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            weight: Weight::default(),
        }
    }
}

/// A value that can take over an older equal one, or its parts.
pub(super) trait Reusable: Clone {
    /// The older one where nothing differs, else this, with all parts of the older one that do not.
    fn reuse_older(self, older: &Self) -> Self;

    /// Adds the bytes that a cache holds because it holds this value.
    fn weigh(&self, weight: &mut Weight);
}

impl Weight {
    pub(super) fn add(&mut self, resource: &Arc<Resource>) {
        self.bytes += size_of_val(resource);
        if self.counted.insert(Arc::as_ptr(resource).addr()) {
            self.bytes += resource.bytes();
        }
    }
}

impl<K: Hash + Eq, V: Reusable> Known<K, V> {
    fn insert(&mut self, key: K, value: V) -> V {
        // Two threads may make the same: the first counts.
        match self.values.entry(key) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                value.weigh(&mut self.weight);
                place.insert(value).clone()
            }
        }
    }
}

impl<K, V> ReuseCache<K, V> {
    fn new(before: HashMap<K, V>) -> Self {
        Self {
            now: Mutex::default(),
            before,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known<K, V>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, V: Reusable> ReuseCache<K, V> {
    /// Returns an empty cache that remembers the values of this one.
    pub(super) fn after(&self) -> Self {
        Self::new(self.lock().values.clone())
    }

    /// Returns a cache with the values that `retain` accepts; the others are reused where equal ones are made.
    pub(super) fn after_retaining(&self, retain: impl Fn(&K) -> bool) -> Self {
        let (mut retained, mut before) = (Known::default(), HashMap::new());
        for (key, value) in &self.lock().values {
            let (key, value) = (key.clone(), value.clone());
            if retain(&key) {
                retained.insert(key, value);
            } else {
                before.insert(key, value);
            }
        }
        Self {
            now: Mutex::new(retained),
            before,
        }
    }

    /// Made outside of the lock: what fails harms nobody else.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.lock().values.get(&key) {
            return value.clone();
        }
        let mut value = make();
        if let Some(older) = self.before.get(&key) {
            value = value.reuse_older(older);
        }
        self.lock().insert(key, value)
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.lock().values.contains_key(key)
    }

    pub(super) fn keys(&self) -> Vec<K> {
        self.lock().values.keys().cloned().collect()
    }

    pub(super) fn values(&self) -> Vec<V> {
        self.lock().values.values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().values.len()
    }
}

impl<K, V> MemorySize for ReuseCache<K, V> {
    fn memory_size(&self) -> usize {
        self.lock().weight.bytes
    }
}

impl MemorySize for Set {
    fn memory_size(&self) -> usize {
        self.bytes()
    }
}

impl Reusable for Arc<Resource> {
    fn reuse_older(self, older: &Self) -> Self {
        if *self == **older {
            return older.clone();
        }
        self
    }

    fn weigh(&self, weight: &mut Weight) {
        weight.add(self);
    }
}

impl Reusable for Arc<Set> {
    fn reuse_older(self, older: &Self) -> Self {
        let pairs = || self.iter().zip(older.iter());
        if self.version() == older.version()
            && self.len() == older.len()
            // Other rules may make equal bytes, and a NACK has to name those that did.
            && pairs().all(|(one, known)| one.from == known.from)
        {
            return older.clone();
        }
        let members = self.iter().map(|member| match older.get(&member.name) {
            Some(known) => member.clone().reuse_older(known),
            None => member.clone(),
        });
        Self::new(members.collect())
    }

    fn weigh(&self, weight: &mut Weight) {
        self.iter().for_each(|member| weight.add(member));
    }
}

impl<T: Reusable> Reusable for Option<T> {
    fn reuse_older(self, older: &Self) -> Self {
        match (self, older) {
            (Some(new), Some(older)) => Some(new.reuse_older(older)),
            (new, _) => new,
        }
    }

    fn weigh(&self, weight: &mut Weight) {
        if let Some(value) = self {
            value.weigh(weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, body: &'static str) -> Arc<Resource> {
        Arc::new(Resource::new(name, body))
    }

    #[test]
    fn a_value_is_made_once_and_equal_ones_stay_the_same() {
        let cache: ReuseCache<u8, Arc<Set>> = ReuseCache::default();
        let first = cache.get(1, || {
            Arc::new(Set::new([resource("a", "1"), resource("b", "1")]))
        });
        let again = cache.get(1, || panic!("it is there"));
        assert!(Arc::ptr_eq(&first, &again));

        let later = cache.after();
        let same = later.get(1, || {
            Arc::new(Set::new([resource("b", "1"), resource("a", "1")]))
        });
        assert!(Arc::ptr_eq(&first, &same));

        let last = later.after().get(1, || {
            Arc::new(Set::new([resource("a", "2"), resource("b", "1")]))
        });
        assert!(!Arc::ptr_eq(&first, &last));
        assert!(Arc::ptr_eq(first.get("b").unwrap(), last.get("b").unwrap()));
        assert_eq!(last.get("a"), Some(&resource("a", "2")));
    }

    #[test]
    fn retained_entries_are_not_made_again() {
        let cache: ReuseCache<u8, Arc<Resource>> = ReuseCache::default();
        let cached = cache.get(1, || resource("a", "1"));
        let _dropped = cache.get(2, || resource("b", "1"));
        let later = cache.after_retaining(|key| *key == 1);
        assert!(Arc::ptr_eq(
            &cached,
            &later.get(1, || panic!("it is there"))
        ));
        assert_eq!(later.get(2, || resource("b", "2")), resource("b", "2"));
        assert_eq!(later.len(), 2);
    }

    /// 1,000 scopes with one more cluster each were taken for 1,000 times the clusters, and evicted all parts but themselves.
    #[test]
    fn a_resource_of_many_sets_weighs_once() {
        let shared: Vec<_> = (0..100)
            .map(|at| resource(&format!("shared-{at}"), "body"))
            .collect();
        let cache: ReuseCache<usize, Arc<Set>> = ReuseCache::default();
        let mut expected: usize = shared.iter().map(|one| one.bytes()).sum();
        for scope in 0..1000 {
            let own = resource("own", "body");
            expected += own.bytes() + (shared.len() + 1) * size_of::<Arc<Resource>>();
            let members = shared.iter().cloned().chain([own]);
            cache.get(scope, || Arc::new(members.collect()));
            cache.get(scope, || panic!("it is there"));
        }
        assert_eq!(cache.memory_size(), expected);
        assert_eq!(cache.after_retaining(|_| true).memory_size(), expected);
        assert_eq!(cache.after().memory_size(), 0);
    }
}
