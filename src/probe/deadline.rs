//! The one deadline of a probe: it began with the process, and covers reading stdin as well as the last byte of the
//! answer. Every step says what it does, so that a late one can be named.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The clock of all deadlines.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time at which the probe must have ended, and the time that it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// None is beyond the clock.
    end: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn new(start: Instant, timeout: Duration) -> Self {
        Self {
            end: start.checked_add(timeout),
            timeout,
        }
    }

    /// Returns the time left: zero when it has passed.
    pub(crate) fn left(self) -> Duration {
        self.end.map_or(self.timeout, |end| {
            end.checked_duration_since(now()).unwrap_or_default()
        })
    }

    /// The failure of a step, written as `<verb> <object>`, that takes too long.
    pub(crate) fn passed(self, step: &str) -> Failure {
        let millis = self.timeout.as_millis();
        Failure::new(step, &format!("not done within {millis} ms"))
    }

    /// Runs a step, written as `<verb> <object>`, as long as there is time.
    pub(crate) async fn run<T, E>(
        self,
        step: &str,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure>
    where
        E: std::error::Error + 'static,
    {
        match tokio::time::timeout(self.left(), future).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failure::of(step, &error)),
            Err(_) => Err(self.passed(step)),
        }
    }
}
