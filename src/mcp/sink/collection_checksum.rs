//! Sums members of a collection as gudgeon's source does, to find out whether they are all members of a version.

use crate::version::{Sum, Version, member};

#[derive(Debug, Default)]
pub(super) struct CollectionChecksum {
    sum: Sum,
    /// Members with versions in a format that gudgeon's source never writes.
    odd: usize,
}

impl CollectionChecksum {
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
    fn removing_a_member_undoes_its_addition() {
        let [one, two] = [b"1", b"2"].map(|bytes| Version::of(bytes));
        let whole = (member("a", one) + member("b", two)).to_string();
        let mut checksum = CollectionChecksum::default();
        assert_eq!(checksum.is(&Sum::EMPTY.to_string()), Some(true));
        checksum.add("a", &one.to_string());
        assert_eq!(checksum.is(&whole), Some(false));
        checksum.add("b", &two.to_string());
        assert_eq!(checksum.is(&whole), Some(true));
        checksum.add("c", &one.to_string());
        assert_eq!(checksum.is(&whole), Some(false));
        checksum.take("c", &one.to_string());
        assert_eq!(checksum.is(&whole), Some(true));
        assert_eq!(checksum.is("7"), None);
        checksum.add("d", "7");
        assert_eq!(checksum.is(&whole), None);
        checksum.take("d", "7");
        assert_eq!(checksum.is(&whole), Some(true));
    }
}
