//! A bound on the workloads that all ServiceEntries select together: each entry alone is small, and so is each workload, but every
//! entry may select every workload of its namespace.
//!
//! Entries that select little keep all of it; the other entries of the namespace share the remaining room evenly. So do the
//! namespaces. Where an even share is less than an entry can use at all, the first entries by name have one unit each, as far as there is room. The result
//! depends on the numbers and names alone, not on the order in which they came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::size;

use super::ObjectKey;

/// Places of the workloads that the entries of one namespace select, and those of all. Chosen: a place takes somewhat less than a
/// kilobyte, and the mesh that is promised has 10,000.
pub(super) const NAMESPACE_PLACES: usize = size::SERVICE_PLACES;
pub(super) const ALL_PLACES: usize = 2 * size::SERVICE_PLACES;

/// Ports of the services of one namespace's entries, and of all. Chosen: each takes some five kilobytes in worlds and snapshots,
/// and the mesh that is promised has 1,000 services.
pub(super) const NAMESPACE_PORTS: usize = 4 * size::SERVICE_PORTS;
pub(super) const ALL_PORTS: usize = 8 * size::SERVICE_PORTS;

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

/// The places or ports that an entry wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) sum: usize,
    /// The fewest of them that serve anything: those of one workload, or the ports of one host.
    pub(super) unit: usize,
}

/// The places or ports that the entries of a namespace want.
#[derive(Debug, Default)]
struct NamespaceDemand {
    by_entry: BTreeMap<ObjectKey, Demand>,
    sum: usize,
}

impl NamespaceDemand {
    /// Shares the room of the namespace; `None` if all entries fit as they are. `max`: that of one entry.
    fn share(&self, room: usize, max: usize) -> Option<NamespaceShare> {
        let sums = self.by_entry.values().map(|demand| demand.sum);
        let share = rounded(fair_part(sums.collect(), room)?).min(max);
        let entries = self.by_entry.iter();
        let (above, within): (Vec<_>, Vec<_>) =
            entries.partition(|(_, demand)| demand.unit > share);
        let used = within.iter().map(|(_, demand)| demand.sum.min(share));
        let mut left = room.saturating_sub(used.sum());
        let fits = |(_, demand): &(&ObjectKey, &Demand)| {
            let rest = left.checked_sub(demand.unit);
            left = rest.unwrap_or_default();
            rest.is_some()
        };
        let of_one = above.into_iter().filter(|(_, demand)| demand.unit <= max);
        let of_one = of_one.take_while(fits);
        Some(NamespaceShare {
            limit: SelectionLimit {
                of_entry: share,
                of_namespace: Some(room),
            },
            of_one: of_one
                .map(|(key, demand)| (key.clone(), demand.unit))
                .collect(),
        })
    }
}

/// The limits in a namespace whose entries want too much.
#[derive(Debug)]
struct NamespaceShare {
    limit: SelectionLimit,
    /// Entries that have one unit, which is more than the limit.
    of_one: BTreeMap<ObjectKey, usize>,
}

impl NamespaceShare {
    fn limit(&self, key: &ObjectKey) -> SelectionLimit {
        SelectionLimit {
            of_entry: self.of_one.get(key).copied().unwrap_or(self.limit.of_entry),
            ..self.limit
        }
    }
}

/// The places or ports that entries want, and those that they get.
#[derive(Debug)]
pub(super) struct SelectionBudget {
    room: Room,
    wanted: BTreeMap<Arc<str>, NamespaceDemand>,
    /// The shares in namespaces that want too much.
    shares: BTreeMap<Arc<str>, NamespaceShare>,
    is_due: bool,
}

impl SelectionBudget {
    const fn new(room: Room) -> Self {
        Self {
            room,
            wanted: BTreeMap::new(),
            shares: BTreeMap::new(),
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

    /// Sets the demand of an entry; a zero demand for an entry that is gone, or selects nothing.
    pub(super) fn set(&mut self, key: &ObjectKey, demand: Demand) {
        let before = self.wanted.get(&key.0);
        let before = before.and_then(|near| near.by_entry.get(key)).copied();
        let before = before.unwrap_or_default();
        if before == demand {
            return;
        }
        self.is_due = true;
        let near = self.wanted.entry(key.0.clone()).or_default();
        near.sum = near.sum.saturating_sub(before.sum);
        near.sum = near.sum.saturating_add(demand.sum);
        if demand.sum > 0 {
            near.by_entry.insert(key.clone(), demand);
            return;
        }
        near.by_entry.remove(key);
        if near.by_entry.is_empty() {
            self.wanted.remove(&key.0);
        }
    }

    pub(super) fn limit(&self, key: &ObjectKey) -> SelectionLimit {
        self.limit_by(self.shares.get(&key.0), key)
    }

    fn limit_by(&self, share: Option<&NamespaceShare>, key: &ObjectKey) -> SelectionLimit {
        share.map_or_else(|| self.unlimited(), |share| share.limit(key))
    }

    /// Shares the places anew. Returns the entries that get more or less than before.
    pub(super) fn redistribute(&mut self) -> BTreeSet<ObjectKey> {
        if !std::mem::take(&mut self.is_due) {
            return BTreeSet::new();
        }
        let Room {
            of_entry: max,
            of_namespace,
            of_all,
        } = self.room;
        let sums = self.wanted.values();
        let sums = sums.map(|near| near.sum.min(of_namespace)).collect();
        let room = fair_part(sums, of_all).map_or(of_namespace, rounded);
        let shares = self.wanted.iter().filter_map(|(namespace, near)| {
            let share = near.share(room, max)?;
            Some((namespace.clone(), share))
        });
        let shares = shares.collect();
        let before = std::mem::replace(&mut self.shares, shares);
        let namespaces: BTreeSet<_> = before.keys().chain(self.shares.keys()).collect();
        let mut moved = BTreeSet::new();
        for namespace in namespaces {
            let near = self.wanted.get(namespace);
            let entries = near.into_iter().flat_map(|near| &near.by_entry);
            let is_moved = |key: &ObjectKey, demand: &Demand| {
                let old = self.limit_by(before.get(namespace), key);
                let new = self.limit(key);
                old != new && demand.sum > old.of_entry.min(new.of_entry)
            };
            let entries = entries.filter(|(key, demand)| is_moved(key, demand));
            moved.extend(entries.map(|(key, _)| key.clone()));
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

    /// A demand of which each part serves something.
    const fn single(sum: usize) -> Demand {
        Demand { sum, unit: 1 }
    }

    /// The sum of the parts that serve something.
    fn served(budget: &SelectionBudget, namespace: &str) -> usize {
        let near = &budget.wanted[namespace].by_entry;
        let used = near.iter().map(|(key, demand)| {
            let max = demand.sum.min(budget.limit(key).of_entry);
            max - max % demand.unit
        });
        used.sum()
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
        budget.set(&key("b", "e"), single(10));
        for at in 100..200 {
            budget.set(&key("a", &at.to_string()), single(1_000));
        }
        assert_eq!(
            (budget.redistribute().len(), budget.limit(&key("a", "x"))),
            (0, budget.unlimited())
        );
        budget.set(&key("a", "small"), single(900));
        budget.set(&key("a", "none"), single(0));
        let moved = budget.redistribute();
        let limit = SelectionLimit {
            of_entry: 960,
            of_namespace: Some(NAMESPACE_PLACES),
        };
        assert_eq!((budget.limit(&key("a", "x")), moved.len()), (limit, 100));
        assert!(!moved.contains(&key("a", "small")));
        assert_eq!(budget.limit(&key("b", "x")), budget.unlimited());
        // Within the same four bits nothing moves.
        budget.set(&key("a", "small"), single(1_000));
        assert_eq!(names(&budget.redistribute()), [""; 0]);
        budget.set(&key("a", "small"), single(0));
        assert_eq!(
            (budget.redistribute().len(), budget.limit(&key("a", "x"))),
            (100, budget.unlimited())
        );
        for at in 100..200 {
            budget.set(&key("a", &at.to_string()), single(0));
        }
        assert_eq!(names(&budget.redistribute()), [""; 0]);
        assert_eq!(budget.wanted.len(), 1);
    }

    #[test]
    fn namespaces_share_the_places_of_all() {
        let mut budget = SelectionBudget::of_places();
        for namespace in ["a", "b", "c", "d", "e"] {
            for name in ["x", "y"] {
                budget.set(&key(namespace, name), single(size::SERVICE_PLACES));
            }
        }
        budget.set(&key("small", "e"), single(1_000));
        assert_eq!(budget.redistribute().len(), 10);
        let room = rounded((ALL_PLACES - 1_000) / 5);
        let limit = SelectionLimit {
            of_entry: rounded(room / 2),
            of_namespace: Some(room),
        };
        assert_eq!(budget.limit(&key("e", "x")), limit);
        assert_eq!(budget.limit(&key("small", "x")), budget.unlimited());
        for namespace in ["c", "d", "e"] {
            budget.set(&key(namespace, "x"), single(0));
            budget.set(&key(namespace, "y"), single(0));
        }
        budget.set(&key("small", "e"), single(0));
        assert_eq!(names(&budget.redistribute()), ["a/x", "a/y", "b/x", "b/y"]);
    }

    #[test]
    fn the_first_entries_by_name_have_a_unit_where_a_share_is_less() {
        for (count, unit, expected) in [
            (8_192, 2, 8_192),
            (8_193, 2, 8_192),
            (16_385, 1, 16_384),
            (1_025, 16, 1_024),
        ] {
            let mut budget = SelectionBudget::of_ports();
            for at in 0..count {
                let name = format!("{at:05}");
                budget.set(&key("a", &name), Demand { sum: unit, unit });
            }
            budget.redistribute();
            assert_eq!(served(&budget, "a"), expected * unit, "{count} of {unit}");
            let last = key("a", &format!("{:05}", count - 1));
            let is_served = budget.limit(&last).of_entry >= unit;
            assert_eq!(is_served, count == expected, "{count} of {unit}");
        }
    }

    #[test]
    fn an_entry_that_comes_takes_the_unit_of_the_last_one() {
        let demand = Demand { sum: 2, unit: 2 };
        let mut budget = SelectionBudget::of_ports();
        for at in 0..9_000 {
            budget.set(&key("a", &format!("e{at:04}")), demand);
        }
        budget.redistribute();
        budget.set(&key("a", "before"), demand);
        assert_eq!(names(&budget.redistribute()), ["a/before", "a/e8191"]);
        budget.set(&key("a", "before"), Demand::default());
        assert_eq!(names(&budget.redistribute()), ["a/e8191"]);
    }

    #[test]
    fn namespaces_that_want_much_leave_another_one_its_part() {
        let mut budget = SelectionBudget::of_ports();
        for at in 0..8_000 {
            let name = format!("{at:04}");
            budget.set(&key("b", &name), Demand { sum: 2, unit: 2 });
        }
        for namespace in ["a", "c"] {
            for name in ["w", "x", "y", "z"] {
                budget.set(&key(namespace, name), single(size::SERVICE_PORTS));
            }
        }
        budget.redistribute();
        let parts = ["a", "b", "c"].map(|namespace| served(&budget, namespace));
        assert_eq!(parts, [10_240; 3]);
    }

    /// Each workload is a place at 4,096 ports.
    #[test]
    fn an_entry_of_many_ports_has_one_workload_at_least() {
        let mut budget = SelectionBudget::of_places();
        let unit = size::SERVICE_PORTS;
        for at in 10..35 {
            let demand = Demand {
                sum: unit * 2,
                unit,
            };
            budget.set(&key("a", &at.to_string()), demand);
        }
        budget.redistribute();
        assert_eq!(served(&budget, "a"), 24 * unit);
    }
}
