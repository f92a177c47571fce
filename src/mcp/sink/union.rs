//! Merges several sources: of two objects with one name the earlier source's counts. The objects of an unreachable source stay; those
//! of a source that is no longer configured are removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collection::Changes;

type ObjectsByName<T> = BTreeMap<Arc<str>, Arc<T>>;

/// The objects of several sources, in the order of their precedence.
#[derive(Debug)]
pub struct SourceUnion<T> {
    sources: Vec<BTreeMap<Arc<str>, ObjectsByName<T>>>,
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
    /// Creates the union of so many sources, all of them empty.
    pub fn new(sources: usize) -> Self {
        Self {
            sources: (0..sources).map(|_| BTreeMap::new()).collect(),
        }
    }

    /// Applies a source's changes; sources count from 0.
    pub fn apply(&mut self, source: usize, changes: &Changes<T>) -> Vec<UnionChange<T>> {
        let collection = &changes.collection;
        let Some(given) = self.sources.get_mut(source) else {
            return Vec::new();
        };
        let objects = given.entry(collection.clone()).or_default();
        let mut touched = Vec::new();
        for (name, object) in &changes.set {
            objects.insert(name.clone(), object.clone());
            touched.push(name);
        }
        for name in &changes.removed {
            objects.remove(name);
            touched.push(name);
        }
        // An earlier source's object hides this one.
        let earlier = |name: &str| {
            let mut sources = self.sources.iter().take(source);
            sources.any(|given| get(given, collection, name).is_some())
        };
        let visible = touched.into_iter().filter(|name| !earlier(name));
        let changed = visible.map(|name| UnionChange {
            collection: collection.clone(),
            name: name.clone(),
            object: self.get(collection, name).cloned(),
        });
        changed.collect()
    }

    /// Returns the effective object of a name.
    pub fn get(&self, collection: &str, name: &str) -> Option<&Arc<T>> {
        let mut sources = self.sources.iter();
        sources.find_map(|collections| get(collections, collection, name))
    }

    /// Returns the index of the source with the effective object.
    pub fn source_of(&self, collection: &str, name: &str) -> Option<usize> {
        let mut sources = self.sources.iter();
        sources.position(|given| get(given, collection, name).is_some())
    }

    /// Returns the effective objects of a collection, by name.
    pub fn all(&self, collection: &str) -> BTreeMap<&Arc<str>, &Arc<T>> {
        // The last one collected wins, and the first source has precedence.
        let sources = self.sources.iter().rev();
        let objects = sources.filter_map(|given| given.get(collection));
        objects.flatten().collect()
    }

    /// Replaces the sources: each is an earlier one, by its old index, or a new one, which is empty. So a source to be
    /// removed can stay behind the others until they are synced, and be removed then.
    pub fn replace(&mut self, with: &[Option<usize>]) -> Vec<UnionChange<T>> {
        let mut old: Vec<_> = std::mem::take(&mut self.sources)
            .into_iter()
            .map(Some)
            .collect();
        let mut before: BTreeMap<(Arc<str>, Arc<str>), Arc<T>> = BTreeMap::new();
        for given in old.iter().rev().flatten() {
            for (collection, objects) in given {
                let named = objects.iter();
                before
                    .extend(named.map(|(name, object)| {
                        ((collection.clone(), name.clone()), object.clone())
                    }));
            }
        }
        let sources = with.iter().map(|place| {
            let place = place.and_then(|place| old.get_mut(place));
            place.and_then(Option::take).unwrap_or_default()
        });
        self.sources = sources.collect();
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
    given: &'a BTreeMap<Arc<str>, ObjectsByName<T>>,
    collection: &str,
    name: &str,
) -> Option<&'a Arc<T>> {
    given.get(collection)?.get(name)
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

    #[test]
    fn the_earlier_source_wins() {
        let mut union = SourceUnion::new(2);
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
        let mut union = SourceUnion::new(2);
        union.apply(0, &changes(&[("x", 0), ("y", 0)], &[]));
        union.apply(1, &changes(&[("y", 1), ("z", 1)], &[]));
        // A new source comes first, and the old first one stays behind until the new one is synced.
        assert_eq!(text(&union.replace(&[None, Some(1), Some(0)])), "y=1");
        assert_eq!(text(&union.apply(0, &changes(&[("x", 2)], &[]))), "x=2");
        assert_eq!(text(&union.replace(&[Some(0), Some(1)])), "");
        assert_eq!(text(&union.replace(&[Some(0)])), "-y -z");
        assert_eq!(text(&union.replace(&[])), "-x");
    }

    proptest! {
        #[test]
        fn changes_add_up_to_what_counts(
            script in prop::collection::vec((0..3_usize, 0..4_u8, prop::option::of(any::<u8>())), 0..60),
            with in prop::collection::vec(prop::option::of(0..3_usize), 0..4),
        ) {
            let mut union = SourceUnion::new(3);
            let mut model = vec![BTreeMap::new(); 3];
            let mut seen = BTreeMap::new();
            let take = |seen: &mut BTreeMap<Arc<str>, Arc<u8>>, changes: Vec<UnionChange<u8>>| {
                for change in changes {
                    match change.object {
                        Some(object) => seen.insert(change.name, object),
                        None => seen.remove(&change.name),
                    };
                }
            };
            for (source, name, object) in script {
                let name = name.to_string();
                let change = match object {
                    Some(object) => changes(&[(&name, object)], &[]),
                    None => changes(&[], &[&name]),
                };
                match object {
                    Some(object) => model[source].insert(name, object),
                    None => model[source].remove(&name),
                };
                take(&mut seen, union.apply(source, &change));
            }
            let mut with = with;
            let mut known = std::collections::BTreeSet::new();
            with.retain(|place| place.is_none_or(|place| known.insert(place)));
            for step in 0..2 {
                let mut want = BTreeMap::new();
                for given in model.iter().rev() {
                    want.extend(given.iter().map(|(name, object)| (name.clone(), *object)));
                }
                let got: BTreeMap<_, _> = seen.iter().map(|(name, object)| (name.to_string(), **object)).collect();
                let all = union.all("a").into_iter();
                let all: BTreeMap<_, _> = all.map(|(name, object)| (name.to_string(), **object)).collect();
                prop_assert_eq!((&got, &all), (&want, &want));
                if step == 0 {
                    model = with.iter().map(|place| place.map_or_else(BTreeMap::new, |place| model[place].clone())).collect();
                    take(&mut seen, union.replace(&with));
                }
            }
        }
    }
}
