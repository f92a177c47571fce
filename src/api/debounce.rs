//! Debounce: changes are handled as one after a quiet time, or when the first of them has waited long enough.

use std::time::Duration;

/// The times of changes that are handled as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub first: Duration,
    pub last: Duration,
}

impl Burst {
    /// Begins with one change.
    #[must_use]
    pub const fn new(now: Duration) -> Self {
        Self {
            first: now,
            last: now,
        }
    }

    /// Adds a change.
    pub const fn add(&mut self, now: Duration) {
        self.last = now;
    }

    /// Returns the time at which the changes are handled: `quiet` after the last, and `max` after the first at the latest.
    #[must_use]
    pub fn deadline(&self, quiet: Duration, max: Duration) -> Duration {
        let latest = self.first.saturating_add(max);
        self.last.saturating_add(quiet).min(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_with_quiet_or_after_the_longest_wait() {
        let second = Duration::from_secs;
        let mut burst = Burst::new(second(10));
        let deadline = |burst: &Burst| burst.deadline(second(2), second(5));
        assert_eq!(deadline(&burst), second(12));
        burst.add(second(12));
        assert_eq!(deadline(&burst), second(14));
        burst.add(second(14));
        assert_eq!(deadline(&burst), second(15));
        assert_eq!(burst.deadline(Duration::MAX, Duration::MAX), Duration::MAX);
    }
}
