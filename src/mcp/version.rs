//! Versions are hashes of content: equal content has one version on every replica and after a restart, so that a sink that
//! reconnects with it gets nothing.

use std::fmt;

/// The version of a collection: the sum of its members' versions.
pub use api::version::Version as Sum;
use sha2::{Digest as _, Sha256};

/// The version of one resource: a quarter of a SHA-256, written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    pub fn of(bytes: &[u8]) -> Self {
        let head = Sha256::digest(bytes).into_iter().take(8);
        Self(head.fold(0, |sum, byte| sum << 8 | u64::from(byte)))
    }

    /// Parses the output of [`Display`](fmt::Display); any other text is a version that gudgeon never assigned.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        // `from_str_radix` also takes a sign and capitals, which `Display` never writes.
        let well_formed =
            text.len() == 16 && bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !well_formed {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(Self)
    }
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

/// A summand of a collection's version: the version of a collection with this one member.
pub fn member(name: &str, version: Version) -> Sum {
    // The version first: it has a fixed length, so no name runs into it.
    let mut bytes = version.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    Sum::of(&bytes)
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
    fn a_member_is_its_name_and_its_version() {
        let [one, two] = [b"1", b"2"].map(|bytes| Version::of(bytes));
        let a = member("a", one);
        assert_eq!(a, member("a", one));
        assert_ne!(a, member("b", one));
        assert_ne!(a, member("a", two));
        assert_ne!(a, member("", one));
    }
}
