//! Versions are content: equal resources have one version on every replica and after a restart, so that a client that comes
//! back with it gets nothing new.
//!
//! The version of a set is the sum of its members' versions. So it does not depend on their order, and a change of one member
//! among many costs one subtraction and one addition. A member's version covers its name, for its bytes have it.

use std::fmt;
use std::ops::{Add, Sub};

use sha2::{Digest, Sha256};

/// Half of a SHA-256, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u128);

impl Version {
    /// The version of the empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the version of one resource, by its encoded bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = Sha256::digest(bytes);
        let half = hash.iter().take(16);
        Self(half.fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
    }

    /// The same with a mark in place of its last eight digits: a server that gets the version back reads the mark from it, also
    /// after the content is gone. The mark of a set is the sum of its members' marks.
    #[must_use]
    pub fn marked(self, mark: u32) -> Self {
        Self(self.0 >> u32::BITS << u32::BITS | u128::from(mark))
    }

    /// Returns the last eight digits.
    pub fn mark(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// One in so many versions is, always the same ones: where lists are cut by it, equal parts of them are cut alike. A mark
    /// has no part in it.
    pub const fn is_one_in(self, many: u128) -> bool {
        (self.0 >> u32::BITS).is_multiple_of(many)
    }

    /// Parses the text that [`Display`](fmt::Display) writes; `None` for any other text, which was never given out as a version.
    pub fn parse(text: &str) -> Option<Self> {
        // `from_str_radix` also takes a sign and capitals, which `Display` never writes.
        let well_formed = text.len() == 32
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !well_formed {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

/// A member comes.
impl Add for Version {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// A member goes.
impl Sub for Version {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

impl std::iter::Sum for Version {
    fn sum<I: Iterator<Item = Self>>(members: I) -> Self {
        members.fold(Self::EMPTY, Add::add)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:032x}", self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_32_digits_and_read_back() {
        for bytes in [&b""[..], b"a", b"ab"] {
            let version = Version::of(bytes);
            let text = version.to_string();
            assert_eq!(text.len(), 32);
            assert_eq!(Version::parse(&text), Some(version));
        }
        // The first half of a known SHA-256.
        assert_eq!(
            Version::of(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223"
        );
    }

    #[test]
    fn other_texts_than_versions_are_refused() {
        let good = Version::of(b"abc").to_string();
        for text in [
            "",
            "1",
            "+a7816bf8f01cfea414140de5dae2223",
            &good.to_uppercase(),
            &format!("{good}0"),
            "ba7816bf8f01cfea414140de5dae222é",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_mark_is_read_back_from_a_version_and_from_a_set() {
        let [a, b, c] = [b"a", b"b", b"c"].map(|bytes| Version::of(bytes));
        let marked = a.marked(7);
        assert_eq!(marked.mark(), 7);
        assert_eq!(Version::parse(&marked.to_string()), Some(marked));
        assert_eq!(marked, a.marked(9).marked(7));
        assert_ne!(marked, b.marked(7));
        let many = [a.marked(u32::MAX), b.marked(0), c.marked(3)];
        assert_eq!(many.into_iter().sum::<Version>().mark(), 2);
        // Lists are cut where they were.
        let cut = |version: Version| {
            (1..9)
                .map(|many| version.is_one_in(many))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(a), cut(marked));
    }

    #[test]
    fn a_set_has_one_version_in_any_order() {
        let [a, b, c] = [b"a", b"b", b"c"].map(|bytes| Version::of(bytes));
        assert_eq!(
            [a, b, c].into_iter().sum::<Version>(),
            [c, a, b].into_iter().sum::<Version>()
        );
        assert_eq!(a + b + c - b, a + c);
        assert_ne!(a + b, a + c);
        assert_eq!(a - a, Version::EMPTY);
    }
}
