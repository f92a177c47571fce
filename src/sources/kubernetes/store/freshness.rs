//! The freshness of a store: when its objects were valid, and which are not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::kind::Key;

/// Objects that are no such thing, or have no room, of which each is remembered by its name; others are counted.
pub(crate) const NAMED: usize = 1_000;

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
    /// Objects for which there is no room. A known one keeps its last version, unless it gave way to those of a namespace that
    /// holds less, or a list left out more than 1,000 and it is none of those.
    pub left_out: Arc<BTreeSet<Key>>,
    /// Further ones, counted likewise.
    pub more_left_out: usize,
}

/// The numbers of objects that are left out because there is no room, by the plural names of their kinds. `12 of pods, 3 of
/// services`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutRoom(BTreeMap<&'static str, usize>);

impl WithoutRoom {
    pub(crate) fn of<'a>(kinds: impl Iterator<Item = (&'static str, &'a Freshness)>) -> Self {
        kinds
            .map(|(kind, freshness)| (kind, freshness.without_room()))
            .collect()
    }

    /// Returns true if every object has room.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(&'static str, usize)> for WithoutRoom {
    fn from_iter<T: IntoIterator<Item = (&'static str, usize)>>(kinds: T) -> Self {
        let mut all = BTreeMap::new();
        for (kind, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
            let sum: &mut usize = all.entry(kind).or_default();
            *sum = sum.saturating_add(count);
        }
        Self(all)
    }
}

impl fmt::Display for WithoutRoom {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, count)) in self.0.iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            write!(to, "{separator}{count} of {kind}")?;
        }
        Ok(())
    }
}

impl Freshness {
    /// Remembers an object for which there is no room.
    pub(super) fn leave_out(&mut self, key: &Key) {
        if self.left_out.contains(key) {
            return;
        }
        if self.left_out.len() < NAMED {
            // Readers hold the earlier set: at most `NAMED` keys are copied.
            Arc::make_mut(&mut self.left_out).insert(key.clone());
        } else {
            self.more_left_out = self.more_left_out.saturating_add(1);
        }
    }

    /// The number of objects for which there is no room.
    pub(super) fn without_room(&self) -> usize {
        self.left_out.len().saturating_add(self.more_left_out)
    }

    /// Forgets that an object could not be read or had no room: its present version is there, or it is gone. Returns true if that
    /// is news.
    pub(super) fn clear(&mut self, key: &Key) -> bool {
        let could_not_be_read = self.unreadable.contains_key(key);
        if could_not_be_read {
            Arc::make_mut(&mut self.unreadable).remove(key);
        }
        let had_no_room = self.left_out.contains(key);
        if had_no_room {
            Arc::make_mut(&mut self.left_out).remove(key);
        }
        could_not_be_read || had_no_room
    }
}
