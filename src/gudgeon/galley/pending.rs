//! Objects that have changed, until they are applied.

use std::collections::BTreeMap;

use sources::catalogue::EntryId;

/// Objects to set, or to delete, in rounds. A round has the events that came before it, whole and nothing of later ones: whatever
/// changes meanwhile waits for the next round, so that an object that changes all the time keeps no other waiting.
#[derive(Debug)]
pub(super) struct PendingObjects<T> {
    /// The rest of the present round.
    round: BTreeMap<EntryId, Option<T>>,
    /// The newest version of each object of the next round.
    waiting: BTreeMap<EntryId, Option<T>>,
}

impl<T> PendingObjects<T> {
    pub(super) const fn new() -> Self {
        Self {
            round: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Adds an object to the next round; `None` deletes it.
    pub(super) fn set(&mut self, id: EntryId, object: Option<T>) {
        self.waiting.insert(id, object);
    }

    /// Begins the next round, if the last one has ended.
    pub(super) fn begin_round(&mut self) {
        if self.has_ended_round() {
            self.round = std::mem::take(&mut self.waiting);
        }
    }

    /// Takes an object of the present round.
    pub(super) fn pop(&mut self) -> Option<(EntryId, Option<T>)> {
        self.round.pop_first()
    }

    pub(super) fn has_ended_round(&self) -> bool {
        self.round.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.round.is_empty() && self.waiting.is_empty()
    }
}
