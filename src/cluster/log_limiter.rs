//! Logs a repeated error at powers of two only, so that an API server that is away for a day does not fill a disk.

pub(crate) use api::times;

use crate::failure::Failure;

/// The same words again, and how often.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    last: String,
    count: u64,
}

impl LogLimiter {
    /// Counts a message; returns the count if it is to be logged now.
    pub(crate) fn observe(&mut self, words: &str) -> Option<u64> {
        if self.last == words {
            self.count = self.count.saturating_add(1);
        } else {
            words.clone_into(&mut self.last);
            self.count = 1;
        }
        self.count.is_power_of_two().then_some(self.count)
    }

    /// Logs a warning about a failure that is retried, unless it repeats too often.
    pub(crate) fn say(&mut self, failure: &Failure) {
        let words = failure.to_string();
        if let Some(count) = self.observe(&words) {
            tracing::warn!("{words}{}: trying again", times(count));
        }
    }

    /// Resets the limiter after a success: the same message is logged again. Returns true if there had been any.
    pub(crate) fn forget(&mut self) -> bool {
        let any = self.count > 0;
        *self = Self::default();
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_said_at_powers_of_two() {
        let mut repeats = LogLimiter::default();
        let said: Vec<u64> = (0..20).filter_map(|_| repeats.observe("away")).collect();
        assert_eq!(said, [1, 2, 4, 8, 16]);
        assert_eq!(repeats.observe("forbidden"), Some(1));
        assert!(repeats.forget());
        assert!(!repeats.forget());
        assert_eq!(repeats.observe("forbidden"), Some(1));
    }
}
