//! Backpressure: a stream holds one response that its client has not read, and delays no other stream.

use std::time::Duration;

use super::message::{CLOSED, SLOW};

/// The consequence of a response that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// Said once per response.
    Slow,
    /// The stream is to be closed.
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Writer {
    since: Option<Duration>,
    reported: bool,
}

impl Writer {
    pub(super) fn is_busy(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn begin(&mut self, now: Duration) {
        self.since = Some(now);
        self.reported = false;
    }

    pub(super) fn end(&mut self) {
        self.since = None;
    }

    pub(super) fn stall(&mut self, now: Duration) -> Option<Stall> {
        let waited = now.saturating_sub(self.since?);
        if waited >= CLOSED {
            return Some(Stall::Closed);
        }
        if waited < SLOW || self.reported {
            return None;
        }
        self.reported = true;
        Some(Stall::Slow)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let limit = if self.reported { CLOSED } else { SLOW };
        self.since.map(|since| since.saturating_add(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_is_counted_once_and_then_closed() {
        let at = Duration::from_secs;
        let mut writer = Writer::default();
        assert_eq!((writer.stall(at(99)), writer.deadline()), (None, None));
        writer.begin(at(10));
        for (now, stall, deadline) in [
            (14, None, 15),
            (15, Some(Stall::Slow), 70),
            (16, None, 70),
            (69, None, 70),
            (70, Some(Stall::Closed), 70),
        ] {
            assert_eq!(writer.stall(at(now)), stall, "{now}");
            assert_eq!(writer.deadline(), Some(at(deadline)), "{now}");
        }
        writer.end();
        assert_eq!((writer.stall(at(99)), writer.is_busy()), (None, false));
    }
}
