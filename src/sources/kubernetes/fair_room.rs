//! Objects that share a room by their namespaces: the namespace that holds most gives way.
//!
//! First come, first served would leave the room to the first namespace in order, and a tenant can choose such a name. A policy of
//! another namespace would then be left out, and the workloads that it closes would be open.

use std::collections::{BTreeMap, BTreeSet};

use crate::kind::Key;

/// Bytes that an object counts for at least, for all that is kept beside it. So bytes bound the number of objects, too: 64 MiB are
/// 200,000.
pub(crate) const MIN_BYTES: usize = 336;

/// Objects by their keys, and the bytes of each namespace. Objects without a namespace are one more.
#[derive(Debug)]
pub(crate) struct FairRoom<V> {
    /// With the bytes that each takes.
    objects: BTreeMap<Key, (V, usize)>,
    by_namespace: BTreeMap<Box<str>, usize>,
    /// The same, the smallest first.
    by_bytes: BTreeSet<(usize, Box<str>)>,
    bytes: usize,
}

impl<V> Default for FairRoom<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            by_bytes: BTreeSet::new(),
            bytes: 0,
        }
    }
}

impl<V> FairRoom<V> {
    pub(crate) fn get(&self, key: &Key) -> Option<&V> {
        self.objects.get(key).map(|(object, _)| object)
    }

    /// Returns the bytes that an object counts for; 0 for an object that is not there.
    pub(crate) fn size_of(&self, key: &Key) -> usize {
        self.objects.get(key).map_or(0, |(_, size)| *size)
    }

    /// Bytes that all objects count for.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// All keys, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    /// All objects, each with the bytes that it counts for.
    pub(crate) fn into_objects(self) -> impl Iterator<Item = (Key, (V, usize))> {
        self.objects.into_iter()
    }

    /// Adds an object of this size, or another version of one, even without room.
    pub(crate) fn insert(&mut self, key: Key, object: V, size: usize) -> Option<V> {
        let size = size.max(MIN_BYTES);
        let namespace = key.namespace.clone();
        let before = self.of(&namespace);
        let old = self.objects.insert(key, (object, size));
        let freed = old.as_ref().map_or(0, |(_, size)| *size);
        self.set(&namespace, before.saturating_sub(freed), size);
        self.bytes = self.bytes.saturating_sub(freed).saturating_add(size);
        old.map(|(object, _)| object)
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<V> {
        let (object, size) = self.objects.remove(key)?;
        let before = self.of(&key.namespace);
        self.set(&key.namespace, before.saturating_sub(size), 0);
        self.bytes = self.bytes.saturating_sub(size);
        Some(object)
    }

    /// Evicts the last objects of the namespaces that hold most, so that `room` suffices for an object of this size, or for another
    /// version of one. Returns the evicted keys; `None`, without any change, if the object's own namespace would hold most: then
    /// the object itself has no room.
    pub(crate) fn evict(&mut self, key: &Key, size: usize, room: usize) -> Option<Vec<Key>> {
        let size = size.max(MIN_BYTES);
        let freed = self.objects.get(key).map_or(0, |(_, size)| *size);
        let with = |bytes: usize| bytes.saturating_sub(freed).saturating_add(size);
        let own = with(self.of(&key.namespace));
        let too_many = with(self.bytes).saturating_sub(room);
        let mut surplus = 0_usize;
        let larger = self.by_bytes.iter().rev();
        let larger = larger.take_while(|(bytes, _)| *bytes > own);
        let mut larger = larger.filter(|(_, namespace)| *namespace != key.namespace);
        // Larger namespaces give way down to `own` and no further; if that is not enough, nothing may be
        // removed.
        while surplus < too_many {
            surplus = surplus.saturating_add(larger.next()?.0.saturating_sub(own));
        }
        let mut evicted = Vec::new();
        while with(self.bytes) > room {
            let last = self.last_of_largest(&key.namespace)?;
            self.remove(&last);
            evicted.push(last);
        }
        Some(evicted)
    }

    /// The last object of the namespace that holds most, but for one.
    fn last_of_largest(&self, but: &str) -> Option<Key> {
        let mut all = self.by_bytes.iter().rev();
        let (_, namespace) = all.find(|(_, namespace)| **namespace != *but)?;
        let first = Key::new(namespace, "");
        // No namespace has a NUL in it: the range ends before a namespace that only begins with this one's
        // name.
        let next = Key::new(&format!("{namespace}\0"), "");
        let mut its = self.objects.range(first..next);
        its.next_back().map(|(key, _)| key.clone())
    }

    fn of(&self, namespace: &str) -> usize {
        self.by_namespace
            .get(namespace)
            .copied()
            .unwrap_or_default()
    }

    /// Sets the bytes of a namespace: those of its other objects, and of one.
    fn set(&mut self, namespace: &str, others: usize, one: usize) {
        let bytes = others.saturating_add(one);
        let before = match bytes {
            0 => self.by_namespace.remove(namespace),
            bytes => self.by_namespace.insert(namespace.into(), bytes),
        };
        if let Some(before) = before {
            self.by_bytes.remove(&(before, namespace.into()));
        }
        if bytes > 0 {
            self.by_bytes.insert((bytes, namespace.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: usize = 10 * MIN_BYTES;

    /// Adds an object that counts for so many of the smallest, if there is room; returns the keys that give way.
    fn put(all: &mut FairRoom<()>, namespace: &str, name: &str, size: usize) -> Option<String> {
        let (key, size) = (Key::new(namespace, name), size * MIN_BYTES);
        let evicted = all.evict(&key, size, TEN)?;
        all.insert(key, (), size);
        let evicted = evicted.iter().map(ToString::to_string);
        Some(evicted.collect::<Vec<_>>().join(" "))
    }

    fn keys(all: &FairRoom<()>) -> String {
        let all: Vec<_> = all.keys().map(ToString::to_string).collect();
        all.join(" ")
    }

    #[test]
    fn the_largest_namespace_gives_way_with_its_last_objects() {
        let mut all = FairRoom::default();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(put(&mut all, "first", name, 2).as_deref(), Some(""));
        }
        assert_eq!(put(&mut all, "second", "a", 2).as_deref(), Some(""));
        // Its own namespace would hold most, and others are no larger: it alone has no room.
        assert_eq!(put(&mut all, "first", "e", 1), None);
        assert_eq!(put(&mut all, "third", "a", 9), None);
        assert_eq!(keys(&all), "first/a first/b first/c first/d second/a");
        assert_eq!(
            put(&mut all, "third", "a", 3).as_deref(),
            Some("first/d first/c")
        );
        assert_eq!(put(&mut all, "third", "b", 1).as_deref(), Some(""));
        assert_eq!(keys(&all), "first/a first/b second/a third/a third/b");
        // Two that hold as much: neither gives way to a third that would hold more.
        assert_eq!(put(&mut all, "fourth", "a", 5), None);
        assert_eq!(put(&mut all, "fourth", "a", 1).as_deref(), Some("third/b"));
    }

    #[test]
    fn another_version_has_the_room_of_the_one_before() {
        let mut all = FairRoom::default();
        put(&mut all, "a", "a", 8);
        put(&mut all, "b", "a", 2);
        assert_eq!(put(&mut all, "b", "a", 1).as_deref(), Some(""));
        assert_eq!(put(&mut all, "b", "a", 2).as_deref(), Some(""));
        assert_eq!(put(&mut all, "a", "a", 9), None);
        // The others are not frozen.
        assert_eq!(put(&mut all, "b", "a", 3).as_deref(), Some("a/a"));
        assert_eq!(all.bytes, 3 * MIN_BYTES);
        all.remove(&Key::new("b", "a"));
        all.remove(&Key::new("b", "a"));
        assert!(all.by_namespace.is_empty() && all.by_bytes.is_empty() && all.bytes == 0);
    }

    #[test]
    fn small_objects_have_a_number_and_no_namespace_is_one() {
        let mut all = FairRoom::default();
        for at in 0..10 {
            let key = Key::new("", &at.to_string());
            assert_eq!(all.evict(&key, 1, TEN), Some(Vec::new()));
            all.insert(key, (), 1);
        }
        assert_eq!(all.evict(&Key::new("", "a"), 1, TEN), None);
        let evicted = all.evict(&Key::new("a", "a"), 1, TEN);
        assert_eq!(evicted, Some(vec![Key::new("", "9")]));
        // A name that begins with another's is another's.
        all.insert(Key::new("a", "a"), (), 1);
        all.remove(&Key::new("", "8"));
        all.insert(Key::new("a-b", "a"), (), 3 * TEN);
        let evicted = all.evict(&Key::new("a", "b"), 1, TEN);
        assert_eq!(evicted, Some(vec![Key::new("a-b", "a")]));
    }

    #[test]
    fn room_for_many_is_made_in_linear_time() {
        let work = |objects: usize| {
            move || {
                let mut all = FairRoom::default();
                let room = objects / 2 * MIN_BYTES;
                for at in 0..objects {
                    let key = Key::new(&format!("n{}", at / 50 % 2_000), &at.to_string());
                    if all.evict(&key, 1, room).is_some() {
                        all.insert(key, (), 1);
                    }
                }
                assert_eq!(all.objects.len(), objects / 2);
            }
        };
        crate::growth::assert_linear(32, work(6_250), work(200_000));
    }
}
