//! The names of one list that were received, in any order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{NameList, ResourceNames};
use crate::resource_names::equal;

/// Names of a list, each once.
#[derive(Debug, Default)]
pub(super) struct ReceivedNames {
    list: Option<Arc<dyn NameList>>,
    count: usize,
    /// The place behind the last name: most names come in the order of the list, or in stretches of it.
    next: usize,
    /// A bit for each name of the list; none while those that came are the first ones.
    bits: Vec<u64>,
}

impl ReceivedNames {
    /// Creates a record of the names of this list, of which none has come yet.
    pub(super) fn of(list: Arc<dyn NameList>) -> Self {
        Self {
            list: Some(list),
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that it takes for the order.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }

    /// Takes a name of the list; returns false if it is none, or has come already.
    pub(super) fn insert(&mut self, name: &[u8]) -> bool {
        let Some(list) = self.list.as_deref() else {
            return false;
        };
        let expected = list.name(self.next);
        let at = match expected.is_some_and(|next| equal(next.as_bytes(), name)) {
            true => self.next,
            false => match find(list, name) {
                Some(at) => at,
                None => return false,
            },
        };
        let count = self.count;
        // While names come in order their count says which ones came; the first other one needs the bits.
        if self.bits.is_empty() && at != count {
            self.bits = vec![0; list.count().div_ceil(64)];
            for at in 0..count {
                self.mark(at);
            }
        }
        if !self.bits.is_empty() && !self.mark(at) {
            return false;
        }
        self.count += 1;
        self.next = at + 1;
        true
    }

    /// Marks the name at this place; returns whether it was not marked.
    fn mark(&mut self, at: usize) -> bool {
        let bit = 1 << (at % 64);
        self.bits.get_mut(at / 64).is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }

    fn has(&self, at: usize) -> bool {
        let word = self.bits.get(at / 64).copied().unwrap_or_default();
        match self.bits.is_empty() {
            true => at < self.count,
            false => word & 1 << (at % 64) != 0,
        }
    }

    /// The names, if they are the first ones of the list.
    pub(super) fn all(&self) -> Option<ResourceNames> {
        let Some(list) = &self.list else {
            return Some(ResourceNames::default());
        };
        let are_first = self.bits.is_empty() || self.count == list.count();
        are_first.then(|| ResourceNames::first_of(Arc::clone(list), self.count))
    }

    /// Returns them one after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let list = self.list.as_deref();
        let all = list.into_iter().flat_map(|list| {
            let places = 0..list.count();
            places.map(move |at| (at, list.name(at)))
        });
        all.filter(|(at, _)| self.has(*at))
            .filter_map(|(_, name)| name)
    }
}

/// The place of a name in a list.
fn find(list: &dyn NameList, name: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, list.count());
    while low < high {
        let middle = low.midpoint(high);
        match list.name(middle)?.as_bytes().cmp(name) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Some(middle),
            Ordering::Greater => high = middle,
        }
    }
    None
}
