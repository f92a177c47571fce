//! Objects of Kubernetes' own kinds in the files of several sources: of one name that of the first source counts, as with rules.

use std::collections::{BTreeMap, BTreeSet};

use sources::catalogue::{Entry, EntryChange, EntryId, Origin};

/// The objects by the number of their source.
#[derive(Debug, Default)]
pub(super) struct CoreObjects {
    sources: BTreeMap<u64, BTreeMap<EntryId, (Entry, Origin)>>,
    /// The sources in their order.
    order: Vec<u64>,
}

impl CoreObjects {
    /// Takes what has changed in a source; returns what counts anew.
    pub(super) fn apply(&mut self, source: u64, changes: &[EntryChange]) -> Vec<EntryChange> {
        let mut counting = Vec::new();
        for change in changes {
            let (EntryChange::Set(id, ..) | EntryChange::Moved(id, ..) | EntryChange::Gone(id)) =
                change;
            if id.core_kind().is_none() {
                continue;
            }
            let before = self.first(&self.order, id).cloned();
            let own = self.sources.entry(source).or_default();
            match change {
                EntryChange::Set(_, entry, origin) | EntryChange::Moved(_, entry, origin) => {
                    own.insert(id.clone(), (entry.clone(), origin.clone()));
                }
                EntryChange::Gone(_) => drop(own.remove(id)),
            }
            let after = self.first(&self.order, id);
            counting.extend(difference(id, before.as_ref(), after));
        }
        counting
    }

    /// Puts the sources into this order; others are gone. Returns what counts anew.
    pub(super) fn set_order(&mut self, order: Vec<u64>) -> Vec<EntryChange> {
        if order == self.order {
            return Vec::new();
        }
        let ids: BTreeSet<&EntryId> = self.sources.values().flat_map(BTreeMap::keys).collect();
        let counting = ids.into_iter().filter_map(|id| {
            let (before, after) = (self.first(&self.order, id), self.first(&order, id));
            difference(id, before, after)
        });
        let counting = counting.collect();
        // The comparison above needs the objects of sources that are gone.
        self.sources.retain(|source, _| order.contains(source));
        self.order = order;
        counting
    }

    /// The origin of an object that counts.
    pub(super) fn origin(&self, id: &EntryId) -> Option<&Origin> {
        let (_, origin) = self.first(&self.order, id)?;
        Some(origin)
    }

    /// The object of the first of these sources that has one of this name.
    fn first(&self, order: &[u64], id: &EntryId) -> Option<&(Entry, Origin)> {
        let mut all = order.iter();
        all.find_map(|source| self.sources.get(source)?.get(id))
    }
}

fn difference(
    id: &EntryId,
    before: Option<&(Entry, Origin)>,
    after: Option<&(Entry, Origin)>,
) -> Option<EntryChange> {
    match (before, after) {
        (Some((old, _)), Some((new, _))) if old == new => None,
        (_, Some((new, origin))) => Some(EntryChange::Set(id.clone(), new.clone(), origin.clone())),
        (Some(_), None) => Some(EntryChange::Gone(id.clone())),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sources::catalogue::CoreKind;

    use super::*;

    fn set(name: &str, json: &str) -> EntryChange {
        let entry = Entry::Core {
            kind: CoreKind::Service,
            json: json.into(),
        };
        EntryChange::Set(id(name), entry, Origin::default())
    }

    fn id(name: &str) -> EntryId {
        EntryId {
            collection: CoreKind::Service.collection(),
            name: Arc::from(name),
        }
    }

    fn emitted(changes: &[EntryChange]) -> String {
        let words = changes.iter().map(|change| match change {
            EntryChange::Set(id, Entry::Core { json, .. }, _) => format!("{}={json}", id.name),
            EntryChange::Gone(id) => format!("{}-", id.name),
            EntryChange::Set(..) | EntryChange::Moved(..) => panic!("{change:?}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_object_of_the_first_source_counts() {
        let mut all = CoreObjects::default();
        assert_eq!(emitted(&all.set_order(vec![1, 2])), "");
        assert_eq!(
            emitted(&all.apply(2, &[set("a", "2"), set("b", "2")])),
            "a=2 b=2"
        );
        assert_eq!(emitted(&all.apply(1, &[set("a", "1")])), "a=1");
        // The second one changes, and nobody sees it.
        assert_eq!(emitted(&all.apply(2, &[set("a", "3")])), "");
        assert_eq!(emitted(&all.apply(1, &[EntryChange::Gone(id("a"))])), "a=3");
        assert_eq!(emitted(&all.apply(1, &[set("a", "1")])), "a=1");
        assert_eq!(emitted(&all.set_order(vec![2, 1])), "a=3");
        // A source that is gone takes its objects along.
        assert_eq!(emitted(&all.set_order(vec![1])), "a=1 b-");
        assert_eq!(emitted(&all.set_order(vec![1, 2])), "");
        assert_eq!(emitted(&all.set_order(Vec::new())), "a-");
    }
}
