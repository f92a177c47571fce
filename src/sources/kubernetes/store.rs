//! The objects of a source. One writer, many readers, and no callbacks: a reader takes the changes since its last call, so a
//! slow one costs no other reader anything, and ten changes of the same object are one by then.
//!
//! A relist appears at once: its difference is one write, and a reader sees it whole or not at all.

mod changes;
mod freshness;
mod relist;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::fair_room::FairRoom;
use crate::kind::{Key, Kind};
pub use changes::{Change, Changes};
pub(crate) use freshness::NAMED;
pub use freshness::{Freshness, WithoutRoom};
use relist::Relist;

/// Changed keys that are remembered. A reader that is further behind gets all objects.
const JOURNAL: usize = 4096;
/// The fraction of the room that must be free again before objects that were left out are listed again. Chosen: a hundredth, 650 kB
/// of 64 MiB.
const FREED_PART: usize = 100;

/// A complete list, as far as there is room.
pub(crate) struct ObjectList<K> {
    pub(crate) objects: Vec<K>,
    /// Objects that cannot be decoded, and why.
    pub(crate) unreadable: BTreeMap<Key, Box<str>>,
    /// Objects for which there is no room: at most [`NAMED`] keys.
    pub(crate) left_out: BTreeSet<Key>,
    pub(crate) more_left_out: usize,
}

impl<K> ObjectList<K> {
    fn all(objects: Vec<K>) -> Self {
        Self {
            objects,
            unreadable: BTreeMap::new(),
            left_out: BTreeSet::new(),
            more_left_out: 0,
        }
    }
}

#[derive(Debug)]
struct Inner<K> {
    objects: FairRoom<Arc<K>>,
    /// The number of writes with a change.
    generation: u64,
    /// Changed keys with their generation, oldest first.
    journal: VecDeque<(u64, Key)>,
    /// The journal has all changes after this generation.
    complete_since: u64,
    freshness: Freshness,
    /// Bytes that objects took when one was last left out.
    full_at: usize,
}

impl<K: Kind> Inner<K> {
    /// Notes that an object was left out: objects that are removed from now on leave room for it.
    fn note_full(&mut self) {
        self.full_at = self.full_at.max(self.objects.bytes());
    }

    /// Evicts objects for one of this size; returns their keys, or `None` if it is left out itself.
    fn evict(&mut self, key: &Key, size: usize, room: usize) -> Option<Vec<Key>> {
        let evicted = self.objects.evict(key, size, room);
        match &evicted {
            Some(keys) => keys.iter().for_each(|key| self.freshness.leave_out(key)),
            None => self.freshness.leave_out(key),
        }
        evicted
    }
}

/// Bytes that an object counts for. `before`: those of the version before it, which readers may hold on.
fn size_of<K: Kind>(object: &K, before: usize) -> usize {
    match object.keeps_last_good() {
        true => object.size().max(before),
        false => object.size(),
    }
}

impl<K> Inner<K> {
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

    fn since(&self, observed: Option<u64>) -> Changes<K> {
        let freshness = self.freshness.clone();
        let change = |key: &Key| match self.objects.get(key) {
            Some(object) => Change::Set(key.clone(), Arc::clone(object)),
            None => Change::Gone(key.clone()),
        };
        match observed {
            Some(observed) if observed >= self.complete_since => {
                // The journal is in the order of generations: the first known generation ends the walk.
                let newer = self.journal.iter().rev();
                let keys: BTreeSet<&Key> = newer
                    .take_while(|(generation, _)| *generation > observed)
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

/// Objects that a line of the log names.
const MAX_NAMED: usize = 10;

/// An empty store: the source's writer and a reader. Clone the latter for more.
#[must_use]
pub fn store<K: Kind>() -> (Writer<K>, Reader<K>) {
    let (sender, receiver) = watch::channel(Inner {
        objects: FairRoom::default(),
        generation: 0,
        journal: VecDeque::new(),
        complete_since: 0,
        freshness: Freshness::default(),
        full_at: 0,
    });
    let reader = Reader {
        receiver,
        generation: None,
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
        self.replace_within(ObjectList::all(objects), usize::MAX);
    }

    /// Replaces all objects but unreadable ones, which keep their last version as far as there is room. Returns the number of
    /// objects without room.
    pub(crate) fn replace_within(&mut self, listed: ObjectList<K>, room: usize) -> usize {
        self.sender
            .send_modify(|inner| Relist::apply(inner, listed, room));
        self.sender.borrow().freshness.without_room()
    }

    /// New, or another than before.
    pub fn set(&mut self, object: K) {
        self.set_within(object, usize::MAX);
    }

    /// New, or another than before, as far as there is room. Returns the number of objects without room, if there is one more.
    pub(crate) fn set_within(&mut self, object: K, room: usize) -> Option<usize> {
        let key = object.key();
        let mut left_out = None;
        self.sender.send_if_modified(|inner| {
            let is_same = inner.objects.get(&key).is_some_and(|old| **old == object);
            if is_same {
                return inner.freshness.clear(&key);
            }
            let size = size_of(&object, inner.objects.size_of(&key));
            let evicted = inner.evict(&key, size, room);
            if evicted.as_ref().is_none_or(|keys| !keys.is_empty()) {
                left_out = Some(inner.freshness.without_room());
            }
            let Some(mut changed) = evicted else {
                inner.note_full();
                return true;
            };
            inner.freshness.clear(&key);
            inner.objects.insert(key.clone(), Arc::new(object), size);
            if left_out.is_some() {
                inner.note_full();
            }
            changed.push(key);
            inner.record(changed);
            true
        });
        left_out
    }

    pub fn remove(&mut self, key: &Key) {
        self.sender.send_if_modified(|inner| {
            let was_noted = inner.freshness.clear(key);
            let is_removed = inner.objects.remove(key).is_some();
            if is_removed {
                inner.record(vec![key.clone()]);
            }
            is_removed || was_noted
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
            let message = unreadable.get(key);
            let is_same = message.is_some_and(|before| **before == *why);
            if message.is_none() && unreadable.len() >= NAMED {
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

    /// Returns true if objects have been left out because of the limits.
    pub(crate) fn leaves_out(&self) -> bool {
        self.sender.borrow().freshness.without_room() > 0
    }

    /// Returns true if objects have been left out, and others have left a part of the room since: of a kind that changes often
    /// some bytes are always free.
    pub(crate) fn has_room_again(&self) -> bool {
        let inner = self.sender.borrow();
        let freed = inner.full_at.saturating_sub(inner.objects.bytes());
        inner.freshness.without_room() > 0 && freed > inner.full_at / FREED_PART
    }

    /// The first keys of objects without room.
    pub(crate) fn first_left_out(&self) -> Vec<Key> {
        let inner = self.sender.borrow();
        let first = inner.freshness.left_out.iter().take(MAX_NAMED);
        first.cloned().collect()
    }

    /// Marks the store as stale: its objects are served on, and were last known to be valid at `now`, or before.
    pub fn stale(&mut self, now: Instant, why: String) {
        self.mark_stale(now, why, false);
    }

    /// Marks the store as forbidden (403): its objects are served on, too.
    pub fn refused(&mut self, now: Instant, why: String) {
        self.mark_stale(now, why, true);
    }

    fn mark_stale(&mut self, now: Instant, why: String, refused: bool) {
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
    generation: Option<u64>,
}

/// The clone is a reader of its own, which has seen nothing yet.
impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        let mut receiver = self.receiver.clone();
        receiver.mark_changed();
        Self {
            receiver,
            generation: None,
        }
    }
}

impl<K: Kind> Reader<K> {
    /// Waits for a change of objects or of freshness. `None` when the writer is gone and all changes were taken.
    ///
    /// Cancel-safe.
    pub async fn changed(&mut self) -> Option<Changes<K>> {
        if self.generation.is_some() {
            self.receiver.changed().await.ok()?;
        }
        Some(self.take_changes())
    }

    fn take_changes(&mut self) -> Changes<K> {
        let inner = self.receiver.borrow_and_update();
        let changes = inner.since(self.generation);
        self.generation = Some(inner.generation);
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
