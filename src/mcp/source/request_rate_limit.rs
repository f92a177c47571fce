//! Limits the requests of a stream, so that one sink cannot starve the others.

use std::time::Duration;

/// Requests in a second.
pub const REQUESTS: u32 = 1000;

const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct RequestRateLimit {
    since: Duration,
    count: u32,
}

impl RequestRateLimit {
    pub(super) fn count(&mut self, now: Duration) {
        if now >= self.since.saturating_add(WINDOW) {
            self.since = now;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Returns the time at which the next request may be read, if that is not now.
    pub(super) fn resume(&self, now: Duration) -> Option<Duration> {
        let until = self.since.saturating_add(WINDOW);
        (self.count >= REQUESTS && now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_in_a_second_are_read_and_then_the_next_second_waits() {
        let at = Duration::from_millis;
        let mut limit = RequestRateLimit::default();
        let mut read = 0;
        let mut now = at(5_000);
        while now < at(8_000) {
            while limit.resume(now).is_none() {
                limit.count(now);
                read += 1;
            }
            assert_eq!(limit.resume(now).map(|until| until > now), Some(true));
            now += at(10);
        }
        assert_eq!(read, 3 * REQUESTS);
    }

    #[test]
    fn a_slow_stream_is_never_held_up() {
        let mut limit = RequestRateLimit::default();
        for tenth in 0..100_000_u64 {
            let now = Duration::from_micros(tenth * 1_500);
            assert_eq!(limit.resume(now), None);
            limit.count(now);
        }
    }
}
