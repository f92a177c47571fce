//! An event that repeats is logged ever more rarely, so that an API server that is away for a day does not fill a disk.

/// Returns true if the `count`th occurrence of an event is to be logged: powers of two are.
#[must_use]
pub const fn should_log_repeat(count: u64) -> bool {
    count.is_power_of_two()
}

/// Limits log lines about a repeated message: counts equal messages in a row.
#[derive(Debug, Default)]
pub struct LogRepeatLimiter {
    last: String,
    count: u64,
}

impl LogRepeatLimiter {
    /// Counts a message; returns the count if it is to be logged now.
    pub fn observe(&mut self, message: &str) -> Option<u64> {
        if self.last == message {
            self.count = self.count.saturating_add(1);
        } else {
            message.clone_into(&mut self.last);
            self.count = 1;
        }
        should_log_repeat(self.count).then_some(self.count)
    }

    /// Resets the limiter after a success: the same message is logged again. Returns true if there had been any.
    pub fn forget(&mut self) -> bool {
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
        let mut repeats = LogRepeatLimiter::default();
        let counts: Vec<u64> = (0..20).filter_map(|_| repeats.observe("away")).collect();
        assert_eq!(counts, [1, 2, 4, 8, 16]);
        assert_eq!(repeats.observe("forbidden"), Some(1));
        assert!(repeats.forget());
        assert!(!repeats.forget());
        assert_eq!(repeats.observe("forbidden"), Some(1));
    }
}
