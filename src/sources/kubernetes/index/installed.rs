//! Finds out whether any of the mesh's kinds is installed on a server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The results of the watchers' first look-ups, each of one kind.
#[derive(Debug, Default)]
pub(super) struct Installed {
    unknown: AtomicUsize,
    any: AtomicBool,
}

impl Installed {
    /// Announces a kind to be looked up; called before any look-up.
    pub(super) fn expect_one_more(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the first look-up of a kind. Returns true for the last look-up if no kind is installed: then it is logged.
    pub(super) fn is_the_last_of_none(&self, is_there: bool) -> bool {
        if is_there {
            self.any.store(true, Ordering::Relaxed);
        }
        // All tasks run on one thread, so the store above is visible.
        let before = self.unknown.fetch_sub(1, Ordering::AcqRel);
        before == 1 && !self.any.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_all_are_missing_it_is_said_and_once() {
        let times_logged = |found: &[bool]| {
            let installed = Installed::default();
            found.iter().for_each(|_| installed.expect_one_more());
            let last = found
                .iter()
                .filter(|is| installed.is_the_last_of_none(**is));
            last.count()
        };
        assert_eq!(times_logged(&[false, false, false]), 1);
        assert_eq!(times_logged(&[false, true, false]), 0);
        assert_eq!(times_logged(&[true]), 0);
    }
}
