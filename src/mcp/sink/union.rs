//! Merges several sources: of two objects with one name the earlier source's counts, or the one that was changed last. The objects of
//! an unreachable source stay; those of a source that is no longer configured are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::collection::Changes;

type ObjectsByName<T> = BTreeMap<Arc<str>, Arc<T>>;

/// Decides which of several objects with one name counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// That of the earliest source.
    Order,
    /// That of the source which has changed it last; that of the earliest source, where none has. Sources are replicas: one that lags
    /// behind, or has lost its own source, must not hide what another has seen since. Objects of a first list are no change; one that a
    /// source has removed and sets anew is.
    LastChange,
}

/// The objects of several sources, in the order of their precedence.
#[derive(Debug)]
pub struct SourceUnion<T> {
    precedence: Precedence,
    sources: Vec<BTreeMap<Arc<str>, ObjectsByName<T>>>,
    /// The source that has changed an object last, by collection and name; only of [`Precedence::LastChange`].
    changed_by: BTreeMap<Arc<str>, BTreeMap<Arc<str>, usize>>,
    /// The sources that have removed an object which others still have, by collection and name; only of [`Precedence::LastChange`].
    removed_by: BTreeMap<Arc<str>, BTreeMap<Arc<str>, BTreeSet<usize>>>,
}

/// A change of the union.
#[derive(Debug)]
pub struct UnionChange<T> {
    pub collection: Arc<str>,
    pub name: Arc<str>,
    /// `None`: gone.
    pub object: Option<Arc<T>>,
}

impl<T> SourceUnion<T> {
    /// Creates the union of no sources.
    pub const fn new(precedence: Precedence) -> Self {
        Self {
            precedence,
            sources: Vec::new(),
            changed_by: BTreeMap::new(),
            removed_by: BTreeMap::new(),
        }
    }

    /// Applies a source's changes; sources count from 0.
    pub fn apply(&mut self, source: usize, changes: &Changes<T>) -> Vec<UnionChange<T>> {
        let collection = &changes.collection;
        let set = changes.set.iter();
        let set = set.map(|(name, object)| (name, Some(object)));
        let removed = changes.removed.iter().map(|name| (name, None));
        let changed = set.chain(removed).filter_map(|(name, object)| {
            let before = self.source_of(collection, name);
            self.put(source, collection, name, object)?;
            let after = self.source_of(collection, name);
            // Another source's object hides this one.
            let is_visible = [before, after].contains(&Some(source));
            is_visible.then(|| UnionChange {
                collection: collection.clone(),
                name: name.clone(),
                object: self.get(collection, name).cloned(),
            })
        });
        changed.collect()
    }

    /// Sets or removes an object of a source; `None`: there is no such source.
    fn put(
        &mut self,
        source: usize,
        collection: &Arc<str>,
        name: &Arc<str>,
        object: Option<&Arc<T>>,
    ) -> Option<()> {
        let collections = self.sources.get_mut(source)?;
        let objects = collections.entry(collection.clone()).or_default();
        let before = match object {
            Some(object) => objects.insert(name.clone(), object.clone()),
            None => objects.remove(name),
        };
        if self.precedence == Precedence::LastChange {
            let is_set = object.is_some();
            self.note_change(source, collection, name, before.is_some(), is_set);
        }
        Some(())
    }

    /// Takes note of a source that has set or removed an object. `was_there`: the source had one of this name.
    fn note_change(
        &mut self,
        source: usize,
        collection: &Arc<str>,
        name: &Arc<str>,
        was_there: bool,
        is_set: bool,
    ) {
        let mut sources = self.sources.iter();
        let is_anywhere = sources.any(|collections| get(collections, collection, name).is_some());
        let changed_by = self.changed_by.entry(collection.clone()).or_default();
        let removed_by = self.removed_by.entry(collection.clone()).or_default();
        let removed = removed_by.entry(name.clone()).or_default();
        if is_set {
            if removed.remove(&source) || was_there {
                changed_by.insert(name.clone(), source);
            }
        } else {
            if changed_by.get(name) == Some(&source) {
                changed_by.remove(name);
            }
            if was_there {
                removed.insert(source);
            }
        }
        // Where nobody has one, no older version hides the next one.
        if removed.is_empty() || !is_anywhere {
            removed_by.remove(name);
        }
    }

    /// Returns the effective object of a name.
    pub fn get(&self, collection: &str, name: &str) -> Option<&Arc<T>> {
        let source = self.source_of(collection, name)?;
        get(self.sources.get(source)?, collection, name)
    }

    /// Returns the index of the source with the effective object.
    pub fn source_of(&self, collection: &str, name: &str) -> Option<usize> {
        let changed_by = self
            .changed_by
            .get(collection)
            .and_then(|names| names.get(name));
        let earliest = || {
            let mut sources = self.sources.iter();
            sources.position(|collections| get(collections, collection, name).is_some())
        };
        changed_by.copied().or_else(earliest)
    }

    /// Returns the effective objects of a collection, by name.
    pub fn all(&self, collection: &str) -> BTreeMap<&Arc<str>, &Arc<T>> {
        // The last one collected wins, and the first source has precedence.
        let sources = self.sources.iter().rev();
        let objects = sources.filter_map(|collections| collections.get(collection));
        let changed = self.changed_by.get(collection).into_iter().flatten();
        let changed = changed.filter_map(|(name, _)| Some((name, self.get(collection, name)?)));
        objects.flatten().chain(changed).collect()
    }

    /// Replaces the sources: each is an earlier one, by its old index, or a new one, which is empty. So a source to be
    /// removed can stay behind the others until they are synced, and be removed then.
    pub fn replace(&mut self, with: &[Option<usize>]) -> Vec<UnionChange<T>> {
        let collections = self.sources.iter().flat_map(BTreeMap::keys);
        let collections: BTreeSet<_> = collections.cloned().collect();
        let mut before: BTreeMap<(Arc<str>, Arc<str>), Arc<T>> = BTreeMap::new();
        for collection in collections {
            let objects = self.all(&collection).into_iter();
            before.extend(
                objects.map(|(name, object)| ((collection.clone(), name.clone()), object.clone())),
            );
        }
        let old = std::mem::take(&mut self.sources);
        let mut old: Vec<_> = old.into_iter().map(Some).collect();
        let sources = with.iter().map(|place| {
            let place = place.and_then(|place| old.get_mut(place));
            place.and_then(Option::take).unwrap_or_default()
        });
        self.sources = sources.collect();
        let place_of = |old: usize| with.iter().position(|place| *place == Some(old));
        for names in self.changed_by.values_mut() {
            names.retain(|_, source| match place_of(*source) {
                Some(place) => {
                    *source = place;
                    true
                }
                None => false,
            });
        }
        let sources = &self.sources;
        for (collection, names) in &mut self.removed_by {
            names.retain(|name, removed| {
                let places = removed.iter().filter_map(|source| place_of(*source));
                *removed = places.collect();
                let mut sources = sources.iter();
                let is_anywhere =
                    sources.any(|collections| get(collections, collection, name).is_some());
                !removed.is_empty() && is_anywhere
            });
        }
        // New sources are empty, so only names from before can change.
        let changed = before
            .into_iter()
            .filter_map(|((collection, name), object)| {
                let now = self.get(&collection, &name).cloned();
                // The union shares the sources' objects, so the same object is the same memory.
                let is_same = now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &object));
                (!is_same).then_some(UnionChange {
                    collection,
                    name,
                    object: now,
                })
            });
        changed.collect()
    }
}

fn get<'a, T>(
    collections: &'a BTreeMap<Arc<str>, ObjectsByName<T>>,
    collection: &str,
    name: &str,
) -> Option<&'a Arc<T>> {
    collections.get(collection)?.get(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(set: &[(&str, u8)], removed: &[&str]) -> Changes<u8> {
        let mut changes = Changes::of("a".into());
        let set = set.iter();
        changes.set = set
            .map(|(name, object)| (Arc::from(*name), Arc::new(*object)))
            .collect();
        changes.removed = removed.iter().map(|name| Arc::from(*name)).collect();
        changes
    }

    /// `NAME=OBJECT`, or `-NAME`.
    fn text(changes: &[UnionChange<u8>]) -> String {
        let texts = changes.iter().map(|change| match &change.object {
            Some(object) => format!("{}={object}", change.name),
            None => format!("-{}", change.name),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    /// The union of so many sources, all of them empty.
    fn union_of(sources: usize, precedence: Precedence) -> SourceUnion<u8> {
        let mut union = SourceUnion::new(precedence);
        assert_eq!(text(&union.replace(&vec![None; sources])), "");
        union
    }

    #[test]
    fn the_last_change_of_replicas_wins() {
        let mut union = union_of(2, Precedence::LastChange);
        let mut apply = |source, set: &[_], removed: &[_]| {
            let changed = union.apply(source, &changes(set, removed));
            let all = union.all("a").into_iter();
            let all: Vec<_> = all
                .map(|(name, object)| format!("{name}{object}"))
                .collect();
            (text(&changed), all.join(" "))
        };
        let seen = |changed: &str, all: &str| (changed.to_owned(), all.to_owned());
        assert_eq!(
            apply(0, &[("x", 1), ("y", 1)], &[]),
            seen("x=1 y=1", "x1 y1")
        );
        // A first list of one that comes later, which may be the one that lags behind.
        assert_eq!(apply(1, &[("x", 2), ("y", 1)], &[]), seen("", "x1 y1"));
        assert_eq!(apply(1, &[("y", 2)], &[]), seen("y=2", "x1 y2"));
        assert_eq!(apply(0, &[("x", 3)], &[]), seen("x=3", "x3 y2"));
        // What the one that has changed it last has no longer is as the other has it.
        assert_eq!(apply(1, &[], &["y"]), seen("y=1", "x3 y1"));
        assert_eq!(apply(0, &[], &["y"]), seen("-y", "x3"));
        assert_eq!(apply(1, &[("x", 4)], &[]), seen("x=4", "x4"));
        // One that is made anew hides the older one of a replica that has not seen it go.
        assert_eq!(apply(1, &[], &["x"]), seen("x=3", "x3"));
        assert_eq!(apply(1, &[("x", 4)], &[]), seen("x=4", "x4"));
        assert_eq!(text(&union.replace(&[Some(1), None])), "");
        assert_eq!(text(&union.apply(1, &changes(&[("x", 5)], &[]))), "");
        assert_eq!(text(&union.replace(&[None, Some(1)])), "x=5");
    }

    #[test]
    fn the_earlier_source_wins() {
        let mut union = union_of(2, Precedence::Order);
        assert_eq!(
            text(&union.apply(1, &changes(&[("x", 1), ("y", 1)], &[]))),
            "x=1 y=1"
        );
        assert_eq!(text(&union.apply(0, &changes(&[("x", 0)], &[]))), "x=0");
        assert_eq!(text(&union.apply(1, &changes(&[("x", 2)], &[]))), "");
        assert_eq!(text(&union.apply(1, &changes(&[], &["y"]))), "-y");
        assert_eq!(text(&union.apply(0, &changes(&[], &["x"]))), "x=2");
        assert_eq!(text(&union.apply(9, &changes(&[("x", 9)], &[]))), "");
        assert_eq!(union.get("b", "x"), None);
    }

    #[test]
    fn a_source_that_is_no_longer_wanted_takes_its_objects_with_it() {
        let mut union = union_of(2, Precedence::Order);
        union.apply(0, &changes(&[("x", 0), ("y", 0)], &[]));
        union.apply(1, &changes(&[("y", 1), ("z", 1)], &[]));
        // A new source comes first, and the old first one stays behind until the new one is synced.
        assert_eq!(text(&union.replace(&[None, Some(1), Some(0)])), "y=1");
        assert_eq!(text(&union.apply(0, &changes(&[("x", 2)], &[]))), "x=2");
        assert_eq!(text(&union.replace(&[Some(0), Some(1)])), "");
        assert_eq!(text(&union.replace(&[Some(0)])), "-y -z");
        assert_eq!(text(&union.replace(&[])), "-x");
    }

    #[test]
    fn a_removal_is_forgotten_with_the_last_source_that_has_the_object() {
        let mut union = union_of(3, Precedence::LastChange);
        for source in 0..3 {
            union.apply(source, &changes(&[("x", 0), ("y", 0)], &[]));
        }
        union.apply(1, &changes(&[], &["x", "y"]));
        union.apply(2, &changes(&[], &["x"]));
        assert_eq!(text(&union.replace(&[None, Some(1), Some(2)])), "-x y=0");
        union.apply(0, &changes(&[("x", 1), ("y", 1)], &[]));
        // The first list of `x` is no change, and `y` is one that was there all the time.
        assert_eq!(
            text(&union.apply(1, &changes(&[("x", 2), ("y", 2)], &[]))),
            "y=2"
        );
        assert_eq!(union.get("a", "x").map(|object| **object), Some(1));
    }

    proptest! {
        #[test]
        fn changes_add_up_to_what_counts(
            scripts in prop::array::uniform2(prop::collection::vec((0..3_usize, 0..4_u8, prop::option::of(any::<u8>())), 0..60)),
            with in prop::collection::vec(prop::option::of(0..3_usize), 0..4),
            is_of_replicas in any::<bool>(),
        ) {
            let precedence = if is_of_replicas { Precedence::LastChange } else { Precedence::Order };
            let mut union = union_of(3, precedence);
            let mut model = vec![BTreeMap::new(); 3];
            let mut changed_by: BTreeMap<String, usize> = BTreeMap::new();
            let mut removed_by: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
            let mut seen = BTreeMap::new();
            let take = |seen: &mut BTreeMap<Arc<str>, Arc<u8>>, changes: Vec<UnionChange<u8>>| {
                for change in changes {
                    match change.object {
                        Some(object) => seen.insert(change.name, object),
                        None => seen.remove(&change.name),
                    };
                }
            };
            let mut with = with;
            let mut known = BTreeSet::new();
            with.retain(|place| place.is_none_or(|place| known.insert(place)));
            for (step, script) in scripts.into_iter().enumerate() {
                for (source, name, object) in script {
                    if source >= model.len() {
                        continue;
                    }
                    let name = name.to_string();
                    let removed = removed_by.entry(name.clone()).or_default();
                    let change = match object {
                        Some(object) => changes(&[(&name, object)], &[]),
                        None => changes(&[], &[&name]),
                    };
                    match object {
                        Some(object) => {
                            let old = model[source].insert(name.clone(), object);
                            if (removed.remove(&source) || old.is_some()) && is_of_replicas {
                                changed_by.insert(name, source);
                            }
                        }
                        None => {
                            if model[source].remove(&name).is_some() {
                                removed.insert(source);
                            }
                            if model.iter().all(|given| !given.contains_key(&name)) {
                                removed.clear();
                            }
                            if changed_by.get(&name) == Some(&source) {
                                changed_by.remove(&name);
                            }
                        }
                    }
                    take(&mut seen, union.apply(source, &change));
                }
                let mut want = BTreeMap::new();
                for given in model.iter().rev() {
                    want.extend(given.iter().map(|(name, object)| (name.clone(), *object)));
                }
                want.extend(changed_by.iter().map(|(name, source)| (name.clone(), model[*source][name])));
                let got: BTreeMap<_, _> = seen.iter().map(|(name, object)| (name.to_string(), **object)).collect();
                let all = union.all("a").into_iter();
                let all: BTreeMap<_, _> = all.map(|(name, object)| (name.to_string(), **object)).collect();
                prop_assert_eq!((&got, &all), (&want, &want));
                if step == 0 {
                    let place_of = |old: &usize| with.iter().position(|place| place.as_ref() == Some(old));
                    let moved = changed_by.iter().filter_map(|(name, old)| Some((name.clone(), place_of(old)?)));
                    changed_by = moved.collect();
                    model = with.iter().map(|place| place.map_or_else(BTreeMap::new, |place| model[place].clone())).collect();
                    for (name, removed) in &mut removed_by {
                        let is_anywhere = model.iter().any(|given| given.contains_key(name));
                        let places = removed.iter().filter_map(place_of);
                        *removed = places.filter(|_| is_anywhere).collect();
                    }
                    take(&mut seen, union.replace(&with));
                }
            }
        }
    }
}
