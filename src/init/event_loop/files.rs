//! Hashes the watched files in slices, a slice in a turn; and warns of certificates that end soon.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::EventLoop;
use crate::fingerprint::Scan;
use crate::log::{self, Utc};
use crate::supervisor::{Cause, Event};

/// The time before its end at which a certificate is reported, and the interval. Chosen: a day to act, and a line an hour.
const SOON: Duration = Duration::from_secs(24 * 60 * 60);
const TOLD_EVERY: Duration = Duration::from_secs(60 * 60);

/// The work that waits for the hash of the files.
#[derive(Debug, Default)]
pub(super) struct Hashing {
    /// The walk is for this; none while there is none.
    cause: Option<Cause>,
    /// Another one is wanted after it.
    next: Option<Cause>,
    /// The walk is to show whether anything has changed since this one, which was taken before anything was watched.
    since: Option<Scan>,
}

/// The next look at certificates, and the last warning.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    pub(super) due: Option<Instant>,
    told: Option<Instant>,
}

impl Expiry {
    /// Returns the time until a certificate that ends at `at` is to be told, both `at` and `wall` since 1970.
    fn wait(&self, now: Instant, wall: Duration, at: Duration) -> Duration {
        let wait = at.saturating_sub(SOON).saturating_sub(wall);
        match self.told {
            Some(told) if wait.is_zero() => TOLD_EVERY.saturating_sub(now - told),
            _ => wait,
        }
    }
}

impl EventLoop {
    /// Hashes everything; one walk at a time.
    pub(super) fn hash(&mut self, cause: Cause) {
        self.watcher.catch_up();
        if self.degraded || cause == Cause::Rescan {
            // Watches may be had again; and a mount that came over a directory is seen by nobody else.
            self.watcher.refresh();
            self.report_watcher();
        }
        if self.files.is_walking() {
            self.hashing.next = Some(cause);
        } else {
            self.hashing.cause = Some(cause);
            self.look_for_certificates();
            self.slice();
        }
    }

    fn look_for_certificates(&mut self) {
        let now = self.wall().as_secs();
        self.files.look_for_certificates(now);
    }

    /// As `hash`, after the start: what has changed since then nobody has watched.
    pub(super) fn hash_again(&mut self, since: Scan) {
        self.look_for_certificates();
        self.hashing.since = Some(since);
        self.slice();
    }

    /// The next slice, and what is due with the certificates and the watcher.
    pub(super) fn hash_on(&mut self) {
        if self.files.is_walking() {
            self.slice();
        }
        if self.expiry.due.is_some_and(|due| due <= self.now) {
            self.look_at_expiry();
        }
        if self.watch_again.is_some_and(|due| due <= self.now) {
            self.watch_again = None;
            self.watcher.resume();
        }
    }

    fn slice(&mut self) {
        self.used_seldom = true;
        let Some(scan) = self.files.advance() else {
            return;
        };
        self.look_at_expiry();
        if let Some(since) = self.hashing.since.take()
            && since != scan
        {
            self.queue.push_back(Event::FilesChanged);
        }
        if let Some(cause) = self.hashing.cause.take() {
            self.queue.push_back(Event::Hashed {
                configuration: scan.fingerprint,
                complete: scan.complete,
                cause,
            });
        }
        if let Some(cause) = self.hashing.next.take() {
            self.hashing.cause = Some(cause);
            self.slice();
        }
    }

    /// Tells a certificate that has ended or does so soon; else, nobody is woken before it does.
    fn look_at_expiry(&mut self) {
        let (now, wall) = (self.now, self.wall());
        let (mut nearest, mut told) = (Duration::MAX, self.expiry.told);
        for (at, path) in self.files.expiry() {
            let at = Duration::from_secs(*at);
            let mut wait = self.expiry.wait(now, wall, at);
            if wait.is_zero() {
                let verb = if at <= wall { "expired" } else { "expires" };
                log::warning!("certificate {} {verb} at {}", path.display(), Utc(at));
                told = Some(now);
                wait = TOLD_EVERY;
            }
            nearest = nearest.min(wait);
        }
        self.expiry.told = told;
        // Without a certificate: never.
        self.expiry.due = now.checked_add(nearest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::stories::clock;

    #[test]
    fn a_certificate_is_told_from_a_day_before_its_end_and_hourly() {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        let (mut expiry, now, at) = (Expiry::default(), clock(), hours(100));
        for (wall, left) in [(28, 48), (75, 1), (76, 0), (99, 0), (100, 0), (124, 0)] {
            assert_eq!(expiry.wait(now, hours(wall), at), hours(left), "{wall}");
        }
        expiry.told = Some(now);
        for (since, left) in [(0, 3_600), (60, 3_540), (3_600, 0), (7_200, 0)] {
            let now = now + Duration::from_secs(since);
            let left = Duration::from_secs(left);
            assert_eq!(expiry.wait(now, at, at), left, "{since}");
        }
        // Another one has been told: this one's day has not come.
        assert_eq!(expiry.wait(now, hours(52), at), hours(24));
    }
}
