//! Sums members of a collection as gudgeon's source does, to find out whether they are all members of a version.

use crate::version::{Sum, Version, member};

#[derive(Debug, Default)]
pub(super) struct Tally {
    sum: Sum,
    /// Members with versions in a format that gudgeon's source never writes.
    odd: usize,
}

impl Tally {
    pub(super) fn add(&mut self, name: &str, version: &str) {
        match Version::parse(version) {
            Some(version) => self.sum = self.sum + member(name, version),
            None => self.odd = self.odd.saturating_add(1),
        }
    }

    /// Removes a member that was added.
    pub(super) fn take(&mut self, name: &str, version: &str) {
        match Version::parse(version) {
            Some(version) => self.sum = self.sum - member(name, version),
            None => self.odd = self.odd.saturating_sub(1),
        }
    }

    /// Returns true if these are all members of a version; `None` if the source computes versions in another way.
    pub(super) fn is(&self, version: &str) -> Option<bool> {
        let version = Sum::parse(version)?;
        (self.odd == 0).then_some(self.sum == version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_was_never_there() {
        let [one, two] = [b"1", b"2"].map(|bytes| Version::of(bytes));
        let whole = (member("a", one) + member("b", two)).to_string();
        let mut tally = Tally::default();
        assert_eq!(tally.is(&Sum::EMPTY.to_string()), Some(true));
        tally.add("a", &one.to_string());
        assert_eq!(tally.is(&whole), Some(false));
        tally.add("b", &two.to_string());
        assert_eq!(tally.is(&whole), Some(true));
        tally.add("c", &one.to_string());
        assert_eq!(tally.is(&whole), Some(false));
        tally.take("c", &one.to_string());
        assert_eq!(tally.is(&whole), Some(true));
        assert_eq!(tally.is("7"), None);
        tally.add("d", "7");
        assert_eq!(tally.is(&whole), None);
        tally.take("d", "7");
        assert_eq!(tally.is(&whole), Some(true));
    }
}
