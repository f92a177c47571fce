//! Whether a server has any of the kinds that somebody has to install there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What those who look for one kind each have found so far.
#[derive(Debug, Default)]
pub(super) struct Installed {
    unknown: AtomicUsize,
    any: AtomicBool,
}

impl Installed {
    /// Before anybody looks: one more kind will be looked for.
    pub(super) fn expect_one_more(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// A kind has been looked for the first time. True for the last of them where none was there: then it is worth saying.
    pub(super) fn is_the_last_of_none(&self, is_there: bool) -> bool {
        if is_there {
            self.any.store(true, Ordering::Relaxed);
        }
        // Tasks of one runtime with one thread: what is stored first is seen first.
        let before = self.unknown.fetch_sub(1, Ordering::AcqRel);
        before == 1 && !self.any.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_all_are_missing_it_is_said_and_once() {
        let said = |found: &[bool]| {
            let installed = Installed::default();
            found.iter().for_each(|_| installed.expect_one_more());
            let said = found
                .iter()
                .filter(|is| installed.is_the_last_of_none(**is));
            said.count()
        };
        assert_eq!(said(&[false, false, false]), 1);
        assert_eq!(said(&[false, true, false]), 0);
        assert_eq!(said(&[true]), 0);
    }
}
