//! Lists of names that streams share.
//!
//! A client of a mesh names a thousand assignments and is sent them, and so do its neighbours: their lists are equal. Each of
//! its own, the lists would be a fourth of what a proxy costs. Like interned strings, equal ones are one: a stream that moves
//! on looks for the list that it moves to, and makes it only when nobody has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::name_slot::NameSlot;
use crate::resource_names::NameList;
use crate::version::Version;

/// A shorter list is not worth the search.
const SHORT: usize = 16;
/// Lists of one version and length that are compared: versions are content, so these differ in nothing but the copies that
/// they hold, of one snapshot or another.
const ALIKE: usize = 4;
/// Lists at which those that nobody has any more are looked for.
const SWEEP: usize = 64;

/// The resource names of a stream with the version that was sent of each, sorted by name.
pub(super) type List = Vec<NameSlot>;

impl NameList for List {
    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, at: usize) -> Option<&str> {
        self.get(at).map(|slot| &**slot.name())
    }
}

/// The lists that streams have. They take the memory of those that are in use.
#[derive(Debug, Default)]
pub struct Lists(Mutex<ListIndex>);

#[derive(Debug, Default)]
struct ListIndex {
    lists: BTreeMap<(Version, usize), Vec<Weak<List>>>,
    /// The number of keys at which the next sweep begins: twice what the last one has left, so that sweeps cost a constant for
    /// each list.
    sweep: usize,
}

impl Lists {
    /// The list of that version and length for which `is_it` holds.
    pub(super) fn find(
        &self,
        version: Version,
        length: usize,
        is_it: impl Fn(&List) -> bool,
    ) -> Option<Arc<List>> {
        if length < SHORT {
            return None;
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = known.lists.get(&(version, length))?;
        // Lists with the copies of the newest snapshot stand last.
        let mut alike = alike.iter().rev().filter_map(Weak::upgrade);
        alike.find(|list| is_it(list))
    }

    /// Makes the list available to other streams for as long as a stream holds it.
    pub(super) fn add(&self, version: Version, list: &Arc<List>) {
        if list.len() < SHORT {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = known.lists.entry((version, list.len())).or_default();
        alike.retain(|list| list.strong_count() > 0);
        if alike.len() >= ALIKE {
            alike.remove(0);
        }
        alike.push(Arc::downgrade(list));
        if known.lists.len() >= known.sweep.max(SWEEP) {
            known.lists.retain(|_, alike| {
                alike.retain(|list| list.strong_count() > 0);
                !alike.is_empty()
            });
            known.sweep = known.lists.len() * 2;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().lists.values().map(Vec::len).sum()
    }
}
