//! The objects of a source. One writer, many readers, and no callbacks: a reader takes the changes since its last call, so a
//! slow one costs no other reader anything, and ten changes of the same object are one by then.
//!
//! A relist appears at once: its difference is one write, and a reader sees it whole or not at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::kind::{Key, Kind};

/// Changed keys that are remembered. A reader that is further behind gets all objects.
const JOURNAL: usize = 4096;

/// Objects that are no such thing, of which each is remembered by its name; others are counted.
const NAMED: usize = 1_000;

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) objects: usize,
    /// The bytes that they take.
    pub(crate) bytes: usize,
}

impl Room {
    pub(crate) const ALL: Self = Self {
        objects: usize::MAX,
        bytes: usize::MAX,
    };
}

/// The freshness of the objects. They are served in any case.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Freshness {
    /// All objects have been listed at least once.
    pub listed: bool,
    /// The time since which the source is unreachable, and the reason.
    pub stale: Option<(Instant, String)>,
    /// The server answers 403: the account lacks the permission.
    pub refused: bool,
    /// Objects that cannot be decoded, and why; each keeps its last good version.
    pub unreadable: Arc<BTreeMap<Key, Box<str>>>,
    /// Further unreadable objects, without their names; those since the last list are counted repeatedly.
    pub more_unreadable: usize,
    /// Objects for which there is no room, counted likewise.
    pub left_out: usize,
}

/// A change of one object.
#[derive(Debug, PartialEq)]
pub enum Change<K> {
    /// New, or another than before.
    Set(Key, Arc<K>),
    Gone(Key),
}

impl<K> Change<K> {
    pub const fn key(&self) -> &Key {
        match self {
            Self::Set(key, _) | Self::Gone(key) => key,
        }
    }
}

/// The changes since a reader last asked.
#[derive(Debug, PartialEq)]
pub struct Changes<K> {
    /// One change for each object, sorted by key.
    pub changes: Vec<Change<K>>,
    /// The changes are all objects: the reader drops every other one.
    pub whole: bool,
    pub freshness: Freshness,
}

#[derive(Debug)]
struct Inner<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Bytes that they hold.
    bytes: usize,
    /// The number of writes with a change.
    generation: u64,
    /// Changed keys with their generation, oldest first.
    journal: VecDeque<(u64, Key)>,
    /// The journal is complete for what came after this generation.
    complete_since: u64,
    freshness: Freshness,
}

impl<K: Kind> Inner<K> {
    fn insert(&mut self, key: Key, object: Arc<K>) {
        self.bytes = self.bytes.saturating_add(object.size());
        if let Some(old) = self.objects.insert(key, object) {
            self.bytes = self.bytes.saturating_sub(old.size());
        }
    }

    fn remove(&mut self, key: &Key) -> bool {
        let old = self.objects.remove(key);
        let size = old.as_ref().map_or(0, |old| old.size());
        self.bytes = self.bytes.saturating_sub(size);
        old.is_some()
    }
}

impl<K> Inner<K> {
    /// Marks an object as readable. Returns true if it was not.
    fn can_read(&mut self, key: &Key) -> bool {
        self.freshness.unreadable.contains_key(key)
            && Arc::make_mut(&mut self.freshness.unreadable)
                .remove(key)
                .is_some()
    }

    fn record(&mut self, keys: Vec<Key>) {
        if keys.is_empty() {
            return;
        }
        self.generation = self.generation.saturating_add(1);
        let generation = self.generation;
        self.journal
            .extend(keys.into_iter().map(|key| (generation, key)));
        // A generation is remembered as a whole or not at all.
        while self.journal.len() > JOURNAL {
            let Some(&(oldest, _)) = self.journal.front() else {
                break;
            };
            self.complete_since = oldest;
            while self.journal.front().is_some_and(|(at, _)| *at == oldest) {
                self.journal.pop_front();
            }
        }
    }

    fn since(&self, seen: Option<u64>) -> Changes<K> {
        let freshness = self.freshness.clone();
        let change = |key: &Key| match self.objects.get(key) {
            Some(object) => Change::Set(key.clone(), Arc::clone(object)),
            None => Change::Gone(key.clone()),
        };
        match seen {
            Some(seen) if seen >= self.complete_since => {
                let newer = self.journal.iter().rev();
                let keys: BTreeSet<&Key> = newer
                    .take_while(|(generation, _)| *generation > seen)
                    .map(|(_, key)| key)
                    .collect();
                Changes {
                    changes: keys.into_iter().map(change).collect(),
                    whole: false,
                    freshness,
                }
            }
            Some(_) | None => Changes {
                changes: self.objects.keys().map(change).collect(),
                whole: true,
                freshness,
            },
        }
    }
}

/// An empty store: the source's writer and a reader. Clone the latter for more.
#[must_use]
pub fn store<K: Kind>() -> (Writer<K>, Reader<K>) {
    let (sender, receiver) = watch::channel(Inner {
        objects: BTreeMap::new(),
        bytes: 0,
        generation: 0,
        journal: VecDeque::new(),
        complete_since: 0,
        freshness: Freshness::default(),
    });
    let reader = Reader {
        receiver,
        seen: None,
    };
    (Writer { sender }, reader)
}

/// The one writer of a store.
#[derive(Debug)]
pub struct Writer<K> {
    sender: watch::Sender<Inner<K>>,
}

impl<K: Kind> Writer<K> {
    /// Replaces all objects, and marks the store as fresh.
    pub fn replace(&mut self, objects: Vec<K>) {
        self.replace_but(objects, BTreeMap::new(), 0);
    }

    /// Replaces all objects but unreadable ones, which keep their last version; `left_out` counts objects beyond the limits.
    pub(crate) fn replace_but(
        &mut self,
        objects: Vec<K>,
        mut unreadable: BTreeMap<Key, Box<str>>,
        left_out: usize,
    ) {
        self.sender.send_modify(|inner| {
            let mut before = std::mem::take(&mut inner.objects);
            inner.bytes = 0;
            let mut changed = Vec::new();
            for object in objects {
                let key = object.key();
                // An equal object stays the one that readers may hold already.
                let kept = match before.remove(&key) {
                    Some(old) if *old == object => old,
                    Some(_) | None => {
                        changed.push(key.clone());
                        Arc::new(object)
                    }
                };
                inner.insert(key, kept);
            }
            for key in unreadable.keys() {
                if let Some((key, old)) = before.remove_entry(key) {
                    inner.insert(key, old);
                }
            }
            let more_unreadable = unreadable.len().saturating_sub(NAMED);
            for _ in 0..more_unreadable {
                unreadable.pop_last();
            }
            changed.extend(before.into_keys());
            inner.record(changed);
            inner.freshness = Freshness {
                listed: true,
                unreadable: Arc::new(std::mem::take(&mut unreadable)),
                more_unreadable,
                left_out,
                ..Freshness::default()
            };
        });
    }

    /// New, or another than before.
    pub fn set(&mut self, object: K) {
        let key = object.key();
        self.sender.send_if_modified(|inner| {
            let repaired = inner.can_read(&key);
            if inner.objects.get(&key).is_some_and(|old| **old == object) {
                return repaired;
            }
            inner.insert(key.clone(), Arc::new(object));
            inner.record(vec![key]);
            true
        });
    }

    pub fn remove(&mut self, key: &Key) {
        self.sender.send_if_modified(|inner| {
            let repaired = inner.can_read(key);
            let removed = inner.remove(key);
            if removed {
                inner.record(vec![key.clone()]);
            }
            removed || repaired
        });
    }

    /// Records an object that can no longer be read; its last version stays. Returns the number of such objects.
    pub(crate) fn cannot_read(&mut self, key: &Key, why: &str) -> usize {
        let mut count = 0;
        self.sender.send_if_modified(|inner| {
            let Freshness {
                unreadable,
                more_unreadable,
                ..
            } = &mut inner.freshness;
            let known = unreadable.get(key);
            let is_same = known.is_some_and(|before| **before == *why);
            if known.is_none() && unreadable.len() >= NAMED {
                *more_unreadable = more_unreadable.saturating_add(1);
            } else if !is_same {
                // Readers hold the earlier map: at most `NAMED` entries are copied.
                Arc::make_mut(unreadable).insert(key.clone(), why.into());
            }
            count = unreadable.len().saturating_add(*more_unreadable);
            !is_same
        });
        count
    }

    /// Counts an object beyond the limits, whose last version stays. Returns the count.
    pub(crate) fn leave_out(&mut self) -> usize {
        let mut count = 0;
        self.sender.send_modify(|inner| {
            let left_out = &mut inner.freshness.left_out;
            *left_out = left_out.saturating_add(1);
            count = *left_out;
        });
        count
    }

    /// Returns true if objects have been left out because of the limits.
    pub(crate) fn leaves_out(&self) -> bool {
        self.sender.borrow().freshness.left_out > 0
    }

    /// Returns true if an object of this key and size fits into the limits.
    pub(crate) fn has_room(&self, key: &Key, size: usize, room: Room) -> bool {
        let inner = self.sender.borrow();
        let old = inner.objects.get(key);
        let others = inner.bytes.saturating_sub(old.map_or(0, |old| old.size()));
        let is_one_more = old.is_none() && inner.objects.len() >= room.objects;
        !is_one_more && others.saturating_add(size) <= room.bytes
    }

    /// Marks the store as stale: its objects are served on, and were last known to be valid at `now`, or before.
    pub fn stale(&mut self, now: Instant, why: String) {
        self.unheard(now, why, false);
    }

    /// Marks the store as forbidden (403): its objects are served on, too.
    pub fn refused(&mut self, now: Instant, why: String) {
        self.unheard(now, why, true);
    }

    fn unheard(&mut self, now: Instant, why: String, refused: bool) {
        self.sender.send_if_modified(|inner| {
            let since = inner
                .freshness
                .stale
                .as_ref()
                .map_or(now, |(since, _)| *since);
            let stale = Some((since, why));
            let freshness = Freshness {
                stale,
                refused,
                ..inner.freshness.clone()
            };
            let changed = inner.freshness != freshness;
            inner.freshness = freshness;
            changed
        });
    }

    /// Marks the store as fresh again.
    pub fn fresh(&mut self) {
        self.sender.send_if_modified(|inner| {
            inner.freshness.refused = false;
            inner.freshness.stale.take().is_some()
        });
    }
}

/// One of the readers of a store.
#[derive(Debug)]
pub struct Reader<K> {
    receiver: watch::Receiver<Inner<K>>,
    /// The generation that this reader has seen; none before the first call.
    seen: Option<u64>,
}

/// The clone is a reader of its own, which has seen nothing yet.
impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        let mut receiver = self.receiver.clone();
        receiver.mark_changed();
        Self {
            receiver,
            seen: None,
        }
    }
}

impl<K: Kind> Reader<K> {
    /// Waits for a change of objects or of freshness. `None` when the writer is gone and all changes were taken.
    ///
    /// Cancel-safe.
    pub async fn changed(&mut self) -> Option<Changes<K>> {
        if self.seen.is_some() {
            self.receiver.changed().await.ok()?;
        }
        Some(self.take_changes())
    }

    fn take_changes(&mut self) -> Changes<K> {
        let inner = self.receiver.borrow_and_update();
        let changes = inner.since(self.seen);
        self.seen = Some(inner.generation);
        changes
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.receiver.borrow().objects.get(key).map(Arc::clone)
    }

    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.receiver.borrow().freshness.clone()
    }
}

#[cfg(test)]
mod tests;
