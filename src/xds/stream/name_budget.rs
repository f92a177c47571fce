//! Names of nothing that the streams of one address may have together: one client may have thousands of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of unknown names that the streams of one address remember together, and of those that they answer at a time. Chosen: six
/// hundred streams with a thousand names of 512 bytes each took the 512 MiB that the manifest allows, and thousands of proxies may
/// come through one translation of addresses.
pub(super) const MAX_ADDRESS_BYTES: usize = 32 << 20;

/// The bytes of unknown names that are left to the streams of one address.
#[derive(Debug, Default)]
pub struct NameBudget {
    pub(super) remembered: BytesLeft,
    /// Responses take these for their names until they are written. A client that reads them has its share again at once.
    pub(super) answered: BytesLeft,
}

#[derive(Debug)]
pub(super) struct BytesLeft(AtomicUsize);

impl Default for BytesLeft {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_ADDRESS_BYTES))
    }
}

impl BytesLeft {
    pub(super) fn take(&self, bytes: usize) -> bool {
        let left = |left: usize| left.checked_sub(bytes);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken.is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Bytes that a name takes of an address's: with its places in lists, and with the resource that it is in a response.
pub(super) const fn cost(name: &str) -> usize {
    name.len().saturating_add(256)
}

pub(super) fn total_cost<'a>(names: impl IntoIterator<Item = &'a Arc<str>>) -> usize {
    names.into_iter().map(|name| cost(name)).sum()
}

#[cfg(test)]
impl NameBudget {
    /// The bytes that are taken of each.
    pub(super) fn used(&self) -> [usize; 2] {
        [&self.remembered, &self.answered]
            .map(|left| MAX_ADDRESS_BYTES - left.0.load(Ordering::Relaxed))
    }
}
