//! The last decisions of a webhook, for its page, and the bounds of what they keep of a review.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes that a decision keeps of a name in a review.
pub(crate) const TEXT_BYTES: usize = 256;
/// Bytes that a decision keeps of its message.
pub(crate) const MESSAGE_BYTES: usize = 1024;

/// The last `CAPACITY` of many.
#[derive(Clone, Debug)]
pub(crate) struct Recent<T, const CAPACITY: usize>(VecDeque<T>);

impl<T, const CAPACITY: usize> Default for Recent<T, CAPACITY> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T, const CAPACITY: usize> Recent<T, CAPACITY> {
    pub(crate) fn add(&mut self, one: T) {
        if self.0.len() == CAPACITY {
            self.0.pop_back();
        }
        self.0.push_front(one);
    }

    /// Iterates over them, the newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

/// A duration in microseconds, as pages and documents show it.
pub(crate) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let mut all = Recent::<_, 3>::default();
        (0..5).for_each(|one| all.add(one));
        assert_eq!(all.newest().copied().collect::<Vec<_>>(), [4, 3, 2]);
        assert_eq!(micros(Duration::MAX), u64::MAX);
    }
}
