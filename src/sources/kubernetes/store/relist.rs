//! A relist: the difference between a store and a new list of all objects, applied as one write.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Freshness, Inner, NAMED, ObjectList, size_of};
use crate::kind::{Key, Kind};

/// A relist under way.
pub(super) struct Relist<K> {
    /// Objects of the store that the list has not yet accounted for, with the bytes that they take.
    before: BTreeMap<Key, (Arc<K>, usize)>,
    changed: Vec<Key>,
    /// Objects whose version before stays, in place of the listed one or beside it.
    staying: Vec<(Key, Arc<K>, usize)>,
}

impl<K: Kind> Relist<K> {
    /// Replaces all objects but those that cannot be read or have no room: they keep their last version as far as there is room.
    pub(super) fn apply(inner: &mut Inner<K>, listed: ObjectList<K>, room: usize) {
        let before = std::mem::take(&mut inner.objects).into_objects();
        let mut relist = Self {
            before: before.collect(),
            changed: Vec::new(),
            staying: Vec::new(),
        };
        for object in listed.objects {
            relist.put(inner, object);
        }
        for key in listed.unreadable.keys().chain(&listed.left_out) {
            relist.keep_old_version(key);
        }
        let mut unreadable = listed.unreadable;
        let more_unreadable = unreadable.len().saturating_sub(NAMED);
        for _ in 0..more_unreadable {
            unreadable.pop_last();
        }
        inner.freshness = Freshness {
            listed: true,
            unreadable: Arc::new(unreadable),
            more_unreadable,
            left_out: Arc::new(listed.left_out),
            more_left_out: listed.more_left_out,
            ..Freshness::default()
        };
        relist.fit(inner, room);
        relist.changed.extend(relist.before.into_keys());
        inner.record(relist.changed);
        inner.full_at = inner.objects.bytes();
    }

    fn put(&mut self, inner: &mut Inner<K>, object: K) {
        let key = object.key();
        let (old, size_before) = self.before.remove(&key).unzip();
        // An equal object keeps the pointer that readers may hold already.
        let stored = match old {
            Some(old) if *old == object => old,
            Some(_) | None => {
                self.changed.push(key.clone());
                Arc::new(object)
            }
        };
        let size = size_of(&*stored, size_before.unwrap_or_default());
        if size > stored.size() {
            self.staying.push((key, stored, size));
        } else {
            inner.objects.insert(key, stored, size);
        }
    }

    fn keep_old_version(&mut self, key: &Key) {
        if let Some((key, (old, size))) = self.before.remove_entry(key) {
            self.staying.push((key, old, size));
        }
    }

    /// Makes room for the versions that stay. The new ones fit already, as `Items` made room for them.
    fn fit(&mut self, inner: &mut Inner<K>, room: usize) {
        for (key, old, size) in std::mem::take(&mut self.staying) {
            match inner.evict(&key, size, room) {
                Some(evicted) => {
                    self.changed.extend(evicted);
                    inner.objects.insert(key, old, size);
                }
                None => self.changed.push(key),
            }
        }
    }
}
