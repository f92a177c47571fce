//! Time as the streams have it: since the start; when that was for people; and the jitter of their timers.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The clock of all streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Converts to the `Instant` of a timer.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        // A time beyond the range of `Instant` is replaced by one in a year.
        self.start.checked_add(at).unwrap_or(self.start + YEAR)
    }

    /// Converts to wall-clock time, for pages and logs.
    pub(crate) fn wall(&self, at: Duration) -> SystemTime {
        self.wall.checked_add(at).unwrap_or(self.wall)
    }
}

/// Returns a random number in `0.0..=1.0`.
pub(crate) fn chance() -> f64 {
    const STEPS: u32 = 10_000;
    // The kernel seeds each `RandomState`, so the jitter needs no generator of its own.
    let random = RandomState::new().hash_one(0) % u64::from(STEPS + 1);
    f64::from(u32::try_from(random).unwrap_or(STEPS / 2)) / f64::from(STEPS)
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
