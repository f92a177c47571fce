//! One name that a client asked for, and what it was sent for it: two words.

use std::sync::Arc;

use bytes::Bytes;

use crate::version::Version;
use crate::view::Resource;

/// Where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked for: the next response has it, whatever was sent before.
    Unsent,
    /// The client was told that there is none.
    Absent,
    Sent,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) resource: Arc<Resource>,
    pub(super) state: State,
    /// The client let it go in a request that came too late to count. If its next one has the name, it wants it again.
    pub(super) left: bool,
    /// Of the last response that had it.
    pub(super) nonce: u32,
}

impl Slot {
    pub(super) fn unsent(name: &str) -> Self {
        let resource = nothing(name.into());
        Self {
            resource,
            state: State::Unsent,
            left: false,
            nonce: 0,
        }
    }

    /// In every word.
    pub(super) fn all_same(some: &[Self], others: &[Self]) -> bool {
        let same = |(one, other): (&Self, &Self)| {
            Arc::ptr_eq(&one.resource, &other.resource)
                && (one.state, one.left, one.nonce) == (other.state, other.left, other.nonce)
        };
        some.len() == others.len() && some.iter().zip(others).all(same)
    }

    /// What it adds to the version.
    pub(super) fn version(&self) -> Version {
        match self.state {
            State::Unsent => Version::EMPTY,
            State::Absent | State::Sent => self.resource.version,
        }
    }
}

/// A name without content.
pub(super) fn nothing(name: Arc<str>) -> Arc<Resource> {
    Arc::new(Resource {
        name,
        version: Version::EMPTY,
        body: Bytes::new(),
    })
}

/// Names begin alike, and the C library compares bytes one by one.
pub(super) fn equal(one: &str, other: &str) -> bool {
    let ((one, rest), (other, end)) = (one.as_bytes().as_chunks(), other.as_bytes().as_chunks());
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    one.len() == other.len()
        && rest == end
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| word(one) == word(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two thousand streams with a thousand names each have two million of them.
    #[test]
    fn a_name_costs_two_words() {
        assert_eq!(size_of::<Slot>(), 16);
    }

    #[test]
    fn names_are_equal_in_every_byte() {
        let name = "outbound|8080||a.demo";
        assert!(equal(name, name) && equal("", ""));
        for at in 0..name.len() {
            let mut other = name.to_owned();
            other.replace_range(at..=at, "_");
            assert!(!equal(name, &other), "{other}");
            assert!(!equal(name, &name[at..]) || at == 0);
            assert!(!equal(&name[..at], name));
        }
    }
}
