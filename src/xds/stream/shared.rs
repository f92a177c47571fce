//! Lists of names that several streams have alike, kept once.
//!
//! Proxies of one mesh ask for the same names and are sent the same resources. Such a list is two words a name: 32 MB for
//! two thousand proxies with a thousand names each, of which a stream needs its own only while it changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::slot::Slot;
use crate::version::Version;

/// Lists of one version that are told apart: some streams have not answered yet, others have. What is beyond is not shared.
const KINDS: usize = 8;
/// Versions, before those that nobody has any more are looked for.
const MANY: usize = 64;

/// The lists that streams have now.
#[derive(Debug, Default)]
pub struct Pool {
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    by_version: HashMap<Version, Vec<Weak<Vec<Slot>>>>,
    /// So many versions were in use when that was last looked for.
    used: usize,
}

impl Pool {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list that others have, where it is the same in every word; else this one, for others.
    pub(super) fn shared(&self, version: Version, own: Arc<Vec<Slot>>) -> Arc<Vec<Slot>> {
        let mut lists = self.lists();
        lists.forget_unused();
        let known = lists.by_version.entry(version).or_default();
        known.retain(|list| list.strong_count() > 0);
        let same = known
            .iter()
            .filter_map(Weak::upgrade)
            .find(|list| Arc::ptr_eq(list, &own) || Slot::all_same(list, &own));
        if let Some(same) = same {
            return same;
        }
        if known.len() < KINDS {
            known.push(Arc::downgrade(&own));
        }
        own
    }
}

impl Lists {
    /// Each time that there are twice as many as were in use.
    fn forget_unused(&mut self) {
        if self.by_version.len() < MANY.max(2 * self.used) {
            return;
        }
        let in_use = |list: &Weak<_>| list.strong_count() > 0;
        self.by_version.retain(|_, known| known.iter().any(in_use));
        self.used = self.by_version.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_nobody_has_are_forgotten() {
        let pool = Pool::default();
        let kept = pool.shared(Version::of(b"kept"), Arc::default());
        for at in 0..1000_u32 {
            drop(pool.shared(Version::of(&at.to_be_bytes()), Arc::default()));
        }
        assert!(pool.lists().by_version.len() <= MANY);
        let again = pool.shared(Version::of(b"kept"), Arc::default());
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
