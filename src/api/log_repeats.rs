//! An event that repeats is logged ever more rarely, so that an API server that is away for a day does not fill a disk, whether
//! it fails in one way or in several in turn.

/// Returns true if the `count`th occurrence of an event is to be logged: powers of two are.
#[must_use]
pub const fn should_log_repeat(count: u64) -> bool {
    count.is_power_of_two()
}

/// Limits log lines about messages that repeat, alone or in turn.
#[derive(Debug, Default)]
pub struct LogRepeatLimiter {
    /// The last messages, the latest at the end.
    recent: Vec<RepeatedMessage>,
    /// The number of messages beyond the recent ones.
    fresh: u64,
    total: u64,
}

#[derive(Debug)]
struct RepeatedMessage {
    text: String,
    count: u64,
}

/// Messages that may take turns, each with a count of its own.
const MAX_RECENT: usize = 8;
/// Fresh messages that are always logged: more of them have a part that changes each time, such as a port.
const MAX_FRESH: u64 = 64;

impl LogRepeatLimiter {
    /// Counts a message; returns its count if it is to be logged now.
    pub fn observe(&mut self, message: &str) -> Option<u64> {
        self.total = self.total.saturating_add(1);
        let repeated = self
            .recent
            .iter()
            .position(|repeated| repeated.text == message);
        let count = match repeated.map(|at| self.recent.remove(at)) {
            Some(repeated) => repeated.count.saturating_add(1),
            None => 1,
        };
        if self.recent.len() >= MAX_RECENT {
            self.recent.remove(0);
        }
        self.recent.push(RepeatedMessage {
            text: message.to_owned(),
            count,
        });
        if count > 1 {
            return should_log_repeat(count).then_some(count);
        }
        self.fresh = self.fresh.saturating_add(1);
        (self.fresh <= MAX_FRESH || should_log_repeat(self.total)).then_some(count)
    }

    /// Counts a message; returns true if the one before was another.
    pub fn observe_change(&mut self, message: &str) -> bool {
        let is_other = self.recent.last().is_none_or(|last| last.text != message);
        self.observe(message);
        is_other
    }

    /// Resets the limiter after a success: the same message is logged again. Returns true if there had been any.
    pub fn forget(&mut self) -> bool {
        let any = self.total > 0;
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
        assert!(repeats.observe_change("away") && !repeats.observe_change("away"));
        assert!(repeats.forget());
        assert!(!repeats.forget());
        assert_eq!(repeats.observe("forbidden"), Some(1));
    }

    #[test]
    fn messages_in_turn_are_said_as_rarely_as_one() {
        for kinds in [2, 8, 9, 1000] {
            let mut repeats = LogRepeatLimiter::default();
            let logged = (0..100_000)
                .filter(|at| repeats.observe(&format!("away: {}", at % kinds)).is_some());
            let logged = logged.count();
            assert!(logged < 8 * 17 + 17, "{kinds}: {logged}");
            assert!(repeats.forget());
            assert_eq!(repeats.observe("away: 1"), Some(1));
        }
    }
}
