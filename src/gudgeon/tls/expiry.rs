//! Expiry of certificates: each loaded one is known by its file, and one that has expired, or will within a day, is logged
//! when it is loaded and when it reaches that time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;
use tracing::warn;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::html::escaped;
use crate::log;

/// The time before its end at which a certificate is reported: an operator renews by hand during the day.
const EXPIRES_SOON: Duration = Duration::from_secs(24 * 3600);
/// The longest interval of checks, since the clock may be set.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Files that are known: those that flags and sources name.
const MAX_FILES: usize = 256;

/// By the files that they are loaded from.
static LOADED: Mutex<Loaded> = Mutex::new(Loaded(BTreeMap::new()));
/// Signals that certificates were loaded.
static LOADED_SIGNAL: Notify = Notify::const_new();

fn all() -> MutexGuard<'static, Loaded> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file's certificates, by the first that ends.
#[derive(Debug)]
struct Loaded(BTreeMap<PathBuf, (SystemTime, ExpiryState)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryState {
    Good,
    Soon,
    Over,
}

impl ExpiryState {
    fn of(end: SystemTime, now: SystemTime) -> Self {
        if end <= now {
            Self::Over
        } else if end <= now + EXPIRES_SOON {
            Self::Soon
        } else {
            Self::Good
        }
    }
}

impl Loaded {
    /// The report of a file that was loaded.
    fn put(&mut self, path: &Path, end: SystemTime, now: SystemTime) -> Option<String> {
        let standing = ExpiryState::of(end, now);
        if self.0.len() >= MAX_FILES && !self.0.contains_key(path) {
            self.0.pop_first();
        }
        let before = self.0.insert(path.to_owned(), (end, standing));
        if before == Some((end, standing)) {
            return None;
        }
        describe(path, end, standing)
    }

    /// Returns lines about the certificates that have expired since the last check.
    fn check(&mut self, now: SystemTime) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, (end, standing)) in &mut self.0 {
            let is = ExpiryState::of(*end, now);
            if std::mem::replace(standing, is) != is {
                lines.extend(describe(path, *end, is));
            }
        }
        lines
    }

    /// Returns the time until the next line.
    fn next(&self, now: SystemTime) -> Duration {
        let ends = self
            .0
            .values()
            // A `SystemTime` reaches far before 1970, so the subtraction cannot panic.
            .flat_map(|(end, _)| [*end - EXPIRES_SOON, *end]);
        let next = ends.filter_map(|at| at.duration_since(now).ok()).min();
        // Just after it.
        next.map_or(MAX_CHECK_INTERVAL, |wait| {
            (wait + Duration::from_millis(1)).min(MAX_CHECK_INTERVAL)
        })
    }
}

fn describe(path: &Path, end: SystemTime, standing: ExpiryState) -> Option<String> {
    let (path, end) = (path.display(), log::stamp(end));
    match standing {
        ExpiryState::Good => None,
        ExpiryState::Soon => Some(format!(
            "the certificate in {path} ends within a day: {end}"
        )),
        ExpiryState::Over => Some(format!("the certificate in {path} has expired: {end}")),
    }
}

/// Records the certificates in use.
pub(crate) fn loaded(path: &Path, certificates: &[CertificateDer<'_>]) {
    let ends = certificates.iter().filter_map(end);
    let Some(first) = ends.min() else { return };
    let line = all().put(path, first, SystemTime::now());
    if let Some(line) = line {
        warn!("{line}");
    }
    LOADED_SIGNAL.notify_one();
}

fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let read = Certificate::from_der(certificate).ok()?;
    let after = read.tbs_certificate().validity().not_after;
    UNIX_EPOCH.checked_add(after.to_unix_duration())
}

/// Logs expiring certificates, for ever.
pub(crate) async fn watch() {
    loop {
        let now = SystemTime::now();
        let (lines, wait) = {
            let mut all = all();
            (all.check(now), all.next(now))
        };
        for line in lines {
            warn!("{line}");
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = LOADED_SIGNAL.notified() => {}
        }
    }
}

/// The part of a page.
pub(crate) fn draw(page: &mut String) {
    let now = SystemTime::now();
    let all = all();
    if all.0.is_empty() {
        return;
    }
    page.push_str("<h2>Files of certificates</h2><table><tr><th>file<th>until</tr>\n");
    for (path, (end, _)) in &all.0 {
        let (class, note) = match ExpiryState::of(*end, now) {
            ExpiryState::Good => ("good", ""),
            ExpiryState::Soon => ("bad", ": within a day"),
            ExpiryState::Over => ("bad", ": it has expired"),
        };
        // Writing to a string cannot fail.
        let _written = writeln!(
            page,
            "<tr><td>{}<td class=\"{class}\">{}{note}</tr>",
            escaped(&path.display().to_string()),
            log::stamp(*end)
        );
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_when_it_is_loaded_and_when_it_comes_to_it() {
        let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        let mut all = Loaded(BTreeMap::new());
        let (path, end) = (Path::new("/a"), now + EXPIRES_SOON * 2);
        assert_eq!(all.next(now), MAX_CHECK_INTERVAL);
        assert_eq!(all.put(path, end, now), None);
        assert_eq!(all.check(now + EXPIRES_SOON / 2), Vec::<String>::new());
        let near = end - EXPIRES_SOON - Duration::from_secs(60);
        assert_eq!(all.next(near), Duration::from_millis(60_001));
        let soon = all.check(end - EXPIRES_SOON);
        let message = "the certificate in /a ends within a day: 2033-05-20T03:33:20.000000Z";
        assert_eq!(soon, [message]);
        assert_eq!(all.check(end - EXPIRES_SOON / 2), Vec::<String>::new());
        assert_eq!(all.put(path, end, end - EXPIRES_SOON / 2), None);
        let over = all.check(end);
        assert!(
            over.len() == 1 && over[0].contains("has expired"),
            "{over:?}"
        );
        assert_eq!(all.check(end + EXPIRES_SOON), Vec::<String>::new());
        // Another one is news.
        assert_eq!(all.put(path, end + EXPIRES_SOON * 9, end), None);
        assert!(all.put(path, end, end + EXPIRES_SOON).is_some());
    }

    #[test]
    fn files_that_are_known_have_a_bound() {
        let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        let mut all = Loaded(BTreeMap::new());
        for at in 0..MAX_FILES * 2 {
            all.put(Path::new(&format!("/{at}")), now, now);
        }
        assert_eq!(all.0.len(), MAX_FILES);
    }
}
