//! The places of the candidates of a name, in order. Nearly always it is one, and that one takes no memory of its own.

use std::collections::BTreeSet;

use super::CatalogueLocation;

#[derive(Debug)]
pub(super) struct Locations<P> {
    first: Option<CatalogueLocation<P>>,
    /// The others, all after the first.
    rest: BTreeSet<CatalogueLocation<P>>,
}

impl<P> Default for Locations<P> {
    fn default() -> Self {
        Self {
            first: None,
            rest: BTreeSet::new(),
        }
    }
}

impl<P: Ord> Locations<P> {
    pub(super) fn insert(&mut self, at: CatalogueLocation<P>) {
        match &mut self.first {
            None => self.first = Some(at),
            Some(first) if at < *first => drop(self.rest.insert(std::mem::replace(first, at))),
            Some(first) if at == *first => {}
            Some(_) => drop(self.rest.insert(at)),
        }
    }

    pub(super) fn remove(&mut self, at: &CatalogueLocation<P>) {
        if self.first.as_ref() == Some(at) {
            self.first = self.rest.pop_first();
        } else {
            self.rest.remove(at);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CatalogueLocation<P>> {
        self.first.iter().chain(&self.rest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// `Locations` behaves like an ordered set.
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..4_usize, 0..2_usize), 0..40)) {
            let (mut places, mut model) = (Locations::default(), BTreeSet::new());
            for (is_new, place, index) in steps {
                let at: CatalogueLocation<String> = (place.to_string(), index);
                if is_new {
                    places.insert(at.clone());
                    model.insert(at);
                } else {
                    places.remove(&at);
                    model.remove(&at);
                }
                prop_assert!(places.iter().eq(&model));
                prop_assert_eq!(places.is_empty(), model.is_empty());
            }
        }
    }
}
