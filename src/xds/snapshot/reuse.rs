//! Values that are made once and shared by all that need the same. None is evicted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::sync::Arc;

use super::resource_cache::MemorySize;
use crate::view::{Resource, Set};

/// Values by what they were made of. An equal value of an earlier cache takes the place of a new one, so that the bytes that
/// streams hold stay the same bytes.
#[derive(Debug)]
pub(super) struct ReuseCache<K, V> {
    now: Mutex<HashMap<K, V>>,
    before: HashMap<K, V>,
}

impl<K, V> Default for ReuseCache<K, V> {
    fn default() -> Self {
        Self {
            now: Mutex::default(),
            before: HashMap::new(),
        }
    }
}

/// A value that can take over an older equal one, or its parts.
pub(super) trait Reusable: Clone {
    /// The older one where nothing differs, else this, with all parts of the older one that do not.
    fn reuse_older(self, older: &Self) -> Self;
}

impl<K: Hash + Eq + Clone, V: Reusable> ReuseCache<K, V> {
    /// Returns an empty cache that remembers the values of this one.
    pub(super) fn after(&self) -> Self {
        Self {
            now: Mutex::default(),
            before: self.lock().clone(),
        }
    }

    /// Returns a cache with the values that `keep` accepts; the others are reused where equal ones are made.
    pub(super) fn keeping(&self, keep: impl Fn(&K) -> bool) -> Self {
        let now = self.lock();
        let retained = now
            .iter()
            .filter(|(key, _)| keep(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let before = now
            .iter()
            .filter(|(key, _)| !keep(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Self {
            now: Mutex::new(retained),
            before,
        }
    }

    /// Made outside of the lock: what fails harms nobody else.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.lock().get(&key) {
            return value.clone();
        }
        let mut value = make();
        if let Some(older) = self.before.get(&key) {
            value = value.reuse_older(older);
        }
        // Two threads may make the same: the first counts.
        self.lock().entry(key).or_insert(value).clone()
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.lock().contains_key(key)
    }

    pub(super) fn keys(&self) -> Vec<K> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn values(&self) -> Vec<V> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V: MemorySize> MemorySize for ReuseCache<K, V> {
    fn memory_size(&self) -> usize {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.values().map(MemorySize::memory_size).sum()
    }
}

impl MemorySize for Resource {
    fn memory_size(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.body.len()
    }
}

impl MemorySize for Set {
    fn memory_size(&self) -> usize {
        self.iter().map(MemorySize::memory_size).sum()
    }
}

impl Reusable for Arc<Resource> {
    fn reuse_older(self, older: &Self) -> Self {
        if *self == **older {
            return older.clone();
        }
        self
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
}

impl<T: Reusable> Reusable for Option<T> {
    fn reuse_older(self, older: &Self) -> Self {
        match (self, older) {
            (Some(new), Some(older)) => Some(new.reuse_older(older)),
            (new, _) => new,
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
    fn kept_entries_are_not_made_again() {
        let cache: ReuseCache<u8, Arc<Resource>> = ReuseCache::default();
        let cached = cache.get(1, || resource("a", "1"));
        let _dropped = cache.get(2, || resource("b", "1"));
        let later = cache.keeping(|key| *key == 1);
        assert!(Arc::ptr_eq(
            &cached,
            &later.get(1, || panic!("it is there"))
        ));
        assert_eq!(later.get(2, || resource("b", "2")), resource("b", "2"));
        assert_eq!(later.len(), 2);
    }
}
