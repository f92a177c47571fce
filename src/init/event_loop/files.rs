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
            self.slice();
        }
    }

    /// As `hash`, after the start: what has changed since then nobody has watched.
    pub(super) fn hash_again(&mut self, since: Scan) {
        self.files.look_for_certificates();
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
        let wall = self.wall();
        self.expiry.due = None;
        let Some((at, path)) = self.files.expiry() else {
            return;
        };
        let at = Duration::from_secs(*at);
        let mut wait = at.saturating_sub(SOON).saturating_sub(wall);
        if wait.is_zero() {
            let since = self.expiry.told.map(|told| self.now - told);
            wait = since.map_or(Duration::ZERO, |since| TOLD_EVERY.saturating_sub(since));
        }
        if wait.is_zero() {
            let verb = if at <= wall { "expired" } else { "expires" };
            log::warning!("certificate {} {verb} at {}", path.display(), Utc(at));
            self.expiry.told = Some(self.now);
            wait = TOLD_EVERY;
        }
        self.expiry.due = self.now.checked_add(wait);
    }
}
