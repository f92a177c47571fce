//! Versions are content: what is equal has one version on every replica and after a restart, so that a sink that comes back
//! with it is told nothing.

use std::fmt;
use std::ops::{Add, Sub};

use sha2::{Digest as _, Sha256};

/// Of one resource: a quarter of a SHA-256, written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    pub fn of(bytes: &[u8]) -> Self {
        Self(head(bytes).fold(0, |sum, byte| sum << 8 | u64::from(byte)))
    }

    /// What [`Display`](fmt::Display) has written; anything else is a version that was never given out.
    pub fn parse(text: &str) -> Option<Self> {
        let number = hexadecimal(text, 16)?;
        u64::try_from(number).ok().map(Self)
    }
}

fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let mut bytes = text.bytes();
    let well_formed =
        text.len() == digits && bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !well_formed {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

fn head(bytes: &[u8]) -> impl Iterator<Item = u8> {
    Sha256::digest(bytes).into_iter().take(8)
}

impl fmt::Display for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:016x}", self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// Of a collection: the sum of what its members' names and versions hash to. So it does not depend on their order, and a
/// change of one member among many costs one subtraction and one addition. 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sum(u128);

impl Sum {
    /// That of the empty collection.
    pub const EMPTY: Self = Self(0);

    pub fn of(name: &str, version: Version) -> Self {
        let mut hash = Sha256::new();
        // The version first: it has a fixed length, so no name runs into it.
        hash.update(version.0.to_be_bytes());
        hash.update(name.as_bytes());
        let half = hash.finalize().into_iter().take(16);
        Self(half.fold(0, |sum, byte| sum << 8 | u128::from(byte)))
    }

    /// As [`Version::parse`].
    pub fn parse(text: &str) -> Option<Self> {
        hexadecimal(text, 32).map(Self)
    }
}

/// A member comes.
impl Add for Sum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// A member goes.
impl Sub for Sum {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

impl std::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Self>>(members: I) -> Self {
        members.fold(Self::EMPTY, Add::add)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:032x}", self.0)
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_16_digits_and_read_back() {
        let version = Version::of(b"abc");
        // The first quarter of a known SHA-256.
        assert_eq!(version.to_string(), "ba7816bf8f01cfea");
        assert_eq!(Version::parse("ba7816bf8f01cfea"), Some(version));
        for text in [
            "",
            "1",
            "+a7816bf8f01cfea",
            "BA7816BF8F01CFEA",
            "ba7816bf8f01cfea0",
            "ba7816bf8f01cfé",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_collection_has_one_version_in_any_order() {
        let one = Version::of(b"1");
        let [a, b, c] = ["a", "b", "c"].map(|name| Sum::of(name, one));
        assert_eq!(
            [a, b, c].into_iter().sum::<Sum>(),
            [c, a, b].into_iter().sum()
        );
        assert_eq!(a + b + c - b, a + c);
        assert_ne!(a + b, a + c);
        assert_eq!(a - a, Sum::EMPTY);
        assert_ne!(a, Sum::of("a", Version::of(b"2")));
        assert_eq!(a.to_string().len(), 32);
        assert_eq!(Sum::parse(&a.to_string()), Some(a));
        assert_eq!(Sum::parse("ba7816bf8f01cfea"), None);
    }
}
