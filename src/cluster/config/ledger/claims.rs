//! Who claims a name, in order. Nearly always it is one, and that one takes no memory of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Place, and which document there.
pub(super) type At = (Arc<str>, usize);

#[derive(Debug, Default)]
pub(super) struct Claims {
    first: Option<At>,
    /// All of them come after the first.
    rest: BTreeSet<At>,
}

impl Claims {
    pub(super) fn insert(&mut self, at: At) {
        match &mut self.first {
            None => self.first = Some(at),
            Some(first) if at < *first => drop(self.rest.insert(std::mem::replace(first, at))),
            Some(first) if at == *first => {}
            Some(_) => drop(self.rest.insert(at)),
        }
    }

    pub(super) fn remove(&mut self, at: &At) {
        if self.first.as_ref() == Some(at) {
            self.first = self.rest.pop_first();
        } else {
            self.rest.remove(at);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &At> {
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
        /// It is a set in order.
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..4_usize, 0..2_usize), 0..40)) {
            let (mut claims, mut model) = (Claims::default(), BTreeSet::new());
            for (is_new, place, index) in steps {
                let at: At = (place.to_string().into(), index);
                if is_new {
                    claims.insert(at.clone());
                    model.insert(at);
                } else {
                    claims.remove(&at);
                    model.remove(&at);
                }
                prop_assert!(claims.iter().eq(&model));
                prop_assert_eq!(claims.is_empty(), model.is_empty());
            }
        }
    }
}
