//! Limits log lines that a peer can cause at will: so many in a minute, and the next line has the number of those
//! suppressed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct LogRateLimiter {
    lines: u32,
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    /// The minute, and its lines.
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogRateLimiter {
    /// Creates a limiter of so many lines in a minute.
    pub(crate) const fn new(lines: u32) -> Self {
        let state = LimiterState {
            since: None,
            lines: 0,
            suppressed: 0,
        };
        Self {
            lines,
            state: Mutex::new(state),
        }
    }

    /// Counts an event. Returns the number of events since the last line if this one is to be logged.
    pub(crate) fn add(&self) -> Option<u64> {
        self.add_at(Instant::now())
    }

    fn add_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_on = |since: Instant| now.saturating_duration_since(since) < MINUTE;
        if !state.since.is_some_and(is_on) {
            state.since = Some(now);
            state.lines = 0;
        }
        state.suppressed = state.suppressed.saturating_add(1);
        if state.lines >= self.lines {
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.suppressed))
    }

    /// Counts an event; returns the suffix of its line if it is to be logged.
    pub(crate) fn suffix_if_allowed(&self) -> Option<String> {
        self.add().map(|count| match count {
            1 => String::new(),
            count => format!(" ({count} such since the last line)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_so_many_lines_and_nothing_is_left_out_of_the_count() {
        let begun = Instant::now();
        for lines in [1, 3] {
            let seldom = LogRateLimiter::new(lines);
            let (mut logged, mut counted) = (0, 0);
            for second in 0..300 {
                let found = seldom.add_at(begun + Duration::from_secs(second));
                logged += u32::from(found.is_some());
                counted += found.unwrap_or_default();
            }
            assert_eq!(logged, 5 * lines);
            // Events after the last line are counted in the next one.
            let next = seldom.add_at(begun + Duration::from_secs(300));
            assert_eq!(next.map(|next| next + counted), Some(301));
        }
    }
}
