//! Time as the streams have it: since the start; and when that was for people.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// One clock for all streams.
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

    /// Since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// What a timer takes.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        // What is too far away to be written is as good as in a year.
        self.start.checked_add(at).unwrap_or(self.start + YEAR)
    }

    /// For people.
    pub(crate) fn wall(&self, at: Duration) -> SystemTime {
        self.wall.checked_add(at).unwrap_or(self.wall)
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
