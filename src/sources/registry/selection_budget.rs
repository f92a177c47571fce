//! A bound on the workloads that all ServiceEntries select together: each entry alone is small, and so is each workload, but every
//! entry may select every workload of its namespace.
//!
//! Entries that select little keep all of it; the others of their namespace share what is left evenly. So do the namespaces. The result
//! depends on the numbers alone, not on the order in which they came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::size;

use super::ObjectKey;

/// Places of the workloads that the entries of one namespace select, and those of all. Chosen: a place takes somewhat less than a
/// kilobyte, and the mesh that is promised has 10,000.
pub(super) const NAMESPACE_PLACES: usize = size::SERVICE_PLACES;
const ALL_PLACES: usize = 2 * size::SERVICE_PLACES;

/// Ports of the services of one namespace's entries, and of all. Chosen: each takes some five kilobytes in worlds and snapshots,
/// and the mesh that is promised has 1,000 services.
pub(super) const NAMESPACE_PORTS: usize = 4 * size::SERVICE_PORTS;
const ALL_PORTS: usize = 8 * size::SERVICE_PORTS;

/// The room for one kind of parts of entries.
#[derive(Clone, Copy, Debug)]
struct Room {
    of_entry: usize,
    of_namespace: usize,
    of_all: usize,
}

/// The most parts of one entry of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SelectionLimit {
    pub(super) of_entry: usize,
    /// The parts of all entries of the namespace, fewer where those of the mesh share the room; `None` if there are enough for all.
    pub(super) of_namespace: Option<usize>,
}

/// The places that the entries of a namespace want.
#[derive(Debug, Default)]
struct Wanted {
    by_entry: BTreeMap<ObjectKey, usize>,
    sum: usize,
}

/// The places or ports that entries want, and those that they get.
#[derive(Debug)]
pub(super) struct SelectionBudget {
    room: Room,
    wanted: BTreeMap<Arc<str>, Wanted>,
    /// The limits of namespaces that want too much.
    limits: BTreeMap<Arc<str>, SelectionLimit>,
    is_due: bool,
}

impl SelectionBudget {
    const fn new(room: Room) -> Self {
        Self {
            room,
            wanted: BTreeMap::new(),
            limits: BTreeMap::new(),
            is_due: false,
        }
    }

    /// The places of workloads that entries select.
    pub(super) const fn of_places() -> Self {
        Self::new(Room {
            of_entry: size::SERVICE_PLACES,
            of_namespace: NAMESPACE_PLACES,
            of_all: ALL_PLACES,
        })
    }

    /// The ports of services that entries make.
    pub(super) const fn of_ports() -> Self {
        Self::new(Room {
            of_entry: size::SERVICE_PORTS,
            of_namespace: NAMESPACE_PORTS,
            of_all: ALL_PORTS,
        })
    }

    const fn unlimited(&self) -> SelectionLimit {
        SelectionLimit {
            of_entry: self.room.of_entry,
            of_namespace: None,
        }
    }

    /// Sets the places that an entry wants; zero for one that is gone, or selects nothing.
    pub(super) fn set(&mut self, key: &ObjectKey, places: usize) {
        let before = self.wanted.get(&key.0);
        let before = before.and_then(|near| near.by_entry.get(key)).copied();
        let before = before.unwrap_or_default();
        if before == places {
            return;
        }
        self.is_due = true;
        let near = self.wanted.entry(key.0.clone()).or_default();
        near.sum = near.sum.saturating_sub(before).saturating_add(places);
        if places > 0 {
            near.by_entry.insert(key.clone(), places);
            return;
        }
        near.by_entry.remove(key);
        if near.by_entry.is_empty() {
            self.wanted.remove(&key.0);
        }
    }

    pub(super) fn limit(&self, namespace: &str) -> SelectionLimit {
        let limit = self.limits.get(namespace).copied();
        limit.unwrap_or_else(|| self.unlimited())
    }

    /// Shares the places anew. Returns the entries that get more or less than before.
    pub(super) fn settle(&mut self) -> BTreeSet<ObjectKey> {
        if !std::mem::take(&mut self.is_due) {
            return BTreeSet::new();
        }
        let Room {
            of_entry: most,
            of_namespace,
            of_all,
        } = self.room;
        let sums = self.wanted.values();
        let sums = sums.map(|near| near.sum.min(of_namespace)).collect();
        let room = fair_part(sums, of_all).map_or(of_namespace, rounded);
        let too_much = self.wanted.iter().filter(|(_, near)| near.sum > room);
        let limits = too_much.filter_map(|(namespace, near)| {
            let of_entry = fair_part(near.by_entry.values().copied().collect(), room)?;
            let limit = SelectionLimit {
                of_entry: rounded(of_entry).min(most),
                of_namespace: Some(room),
            };
            Some((namespace.clone(), limit))
        });
        let limits: BTreeMap<_, _> = limits.collect();
        let before = std::mem::replace(&mut self.limits, limits);
        let mut moved = BTreeSet::new();
        for namespace in before.keys().chain(self.limits.keys()) {
            let old = before.get(namespace).copied();
            let old = old.unwrap_or_else(|| self.unlimited());
            let new = self.limit(namespace);
            let near = self.wanted.get(namespace).filter(|_| old != new);
            let entries = near.into_iter().flat_map(|near| &near.by_entry);
            let least = old.of_entry.min(new.of_entry);
            moved.extend(
                entries
                    .filter(|(_, wanted)| **wanted > least)
                    .map(|(key, _)| key.clone()),
            );
        }
        moved
    }
}

/// Returns the largest number such that the parts, each cut to it, fit into the room; `None` if they fit as they are.
fn fair_part(mut parts: Vec<usize>, room: usize) -> Option<usize> {
    let sum = parts
        .iter()
        .fold(0, |sum: usize, part| sum.saturating_add(*part));
    if sum <= room {
        return None;
    }
    parts.sort_unstable();
    let mut left = room;
    for (others, part) in (1..=parts.len()).rev().zip(parts) {
        let share = left / others;
        if part > share {
            return Some(share);
        }
        left -= part;
    }
    None
}

/// Rounds down to four bits: a share that moves with each workload would convert all entries of the namespace each time.
const fn rounded(share: usize) -> usize {
    let bits = (usize::BITS - share.leading_zeros()).saturating_sub(4);
    share >> bits << bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        (namespace.into(), name.into())
    }

    fn names(keys: &BTreeSet<ObjectKey>) -> Vec<String> {
        let names = keys
            .iter()
            .map(|(namespace, name)| format!("{namespace}/{name}"));
        names.collect()
    }

    #[test]
    fn parts_that_are_small_stay_whole() {
        for (parts, room, part) in [
            (vec![1, 2, 3], 6, None),
            (vec![1, 2, 3], 5, Some(2)),
            (vec![100, 1, 100], 51, Some(25)),
            (vec![7, 7, 7], 2, Some(0)),
            (vec![usize::MAX, usize::MAX], 10, Some(5)),
            (Vec::new(), 0, None),
        ] {
            assert_eq!(fair_part(parts.clone(), room), part, "{parts:?}");
        }
        for (share, expected) in [(0, 0), (15, 15), (17, 16), (1_999, 1_920)] {
            assert_eq!(rounded(share), expected);
        }
    }

    #[test]
    fn the_largest_entries_of_a_namespace_share_its_places() {
        let mut budget = SelectionBudget::of_places();
        budget.set(&key("b", "e"), 10);
        for at in 100..200 {
            budget.set(&key("a", &at.to_string()), 1_000);
        }
        assert_eq!(
            (budget.settle().len(), budget.limit("a")),
            (0, budget.unlimited())
        );
        budget.set(&key("a", "small"), 900);
        budget.set(&key("a", "none"), 0);
        let moved = budget.settle();
        let limit = SelectionLimit {
            of_entry: 960,
            of_namespace: Some(NAMESPACE_PLACES),
        };
        assert_eq!((budget.limit("a"), moved.len()), (limit, 100));
        assert!(!moved.contains(&key("a", "small")));
        assert_eq!(budget.limit("b"), budget.unlimited());
        // Within the same four bits nothing moves.
        budget.set(&key("a", "small"), 1_000);
        assert_eq!(names(&budget.settle()), [""; 0]);
        budget.set(&key("a", "small"), 0);
        assert_eq!(
            (budget.settle().len(), budget.limit("a")),
            (100, budget.unlimited())
        );
        for at in 100..200 {
            budget.set(&key("a", &at.to_string()), 0);
        }
        assert_eq!(names(&budget.settle()), [""; 0]);
        assert_eq!(budget.wanted.len(), 1);
    }

    #[test]
    fn namespaces_share_the_places_of_all() {
        let mut budget = SelectionBudget::of_places();
        for namespace in ["a", "b", "c", "d", "e"] {
            for name in ["x", "y"] {
                budget.set(&key(namespace, name), size::SERVICE_PLACES);
            }
        }
        budget.set(&key("small", "e"), 1_000);
        assert_eq!(budget.settle().len(), 10);
        let room = rounded((ALL_PLACES - 1_000) / 5);
        let limit = SelectionLimit {
            of_entry: rounded(room / 2),
            of_namespace: Some(room),
        };
        assert_eq!(budget.limit("e"), limit);
        assert_eq!(budget.limit("small"), budget.unlimited());
        for namespace in ["c", "d", "e"] {
            budget.set(&key(namespace, "x"), 0);
            budget.set(&key(namespace, "y"), 0);
        }
        budget.set(&key("small", "e"), 0);
        assert_eq!(names(&budget.settle()), ["a/x", "a/y", "b/x", "b/y"]);
    }
}
