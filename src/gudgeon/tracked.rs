//! One file: its last content, its validity, and its last error.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tracing::{error, info};

use crate::{file, log};

/// Counts events of files.
pub(crate) trait Counts: Sync {
    /// Sets whether the present content of a flag's file is in use.
    fn file(&self, flag: &'static str, valid: bool);

    /// The file of a flag was read: `ok` or `broken`.
    fn reloaded(&self, flag: &'static str, result: &'static str);
}

/// A file and the flag that names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) flag: &'static str,
    pub(crate) path: PathBuf,
}

impl Named {
    /// Returns the line that reports an error of the file.
    pub(crate) fn line(&self, cause: &str) -> String {
        format!(
            "cannot use --{} {}: {cause}",
            self.flag,
            self.path.display()
        )
    }
}

/// One file, with the state of its last load.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) named: Named,
    /// The hash of the bytes that were validated last, or the error of the read.
    pub(crate) seen: Option<Result<String, String>>,
    loaded: Option<SystemTime>,
    pub(crate) error: Option<String>,
    /// The number of times in a row that `error` has occurred.
    times: u64,
    /// Errors are not logged before the first success: a role that cannot start without the file prints them as its last
    /// line.
    pub(crate) needed: bool,
    /// The last read hung.
    pub(crate) hangs: bool,
}

/// The delay before a file that did not answer is read again.
pub(crate) const SOON: Duration = Duration::from_secs(1);

impl Tracked {
    pub(crate) fn new(named: Named) -> Self {
        Self {
            named,
            seen: None,
            loaded: None,
            error: None,
            times: 0,
            needed: false,
            hangs: false,
        }
    }

    /// The bytes, where they are others than last time.
    pub(crate) async fn changed(&mut self) -> Option<Result<Vec<u8>, String>> {
        let read = file::read(&self.named.path).await;
        self.hangs = read.as_ref().is_err_and(file::is_hanging);
        let read = read.map_err(|cause| cause.to_string());
        let seen = read.as_ref().map(|bytes| file::sha256(bytes));
        let seen = seen.map_err(Clone::clone);
        if self.seen.as_ref() == Some(&seen) {
            return None;
        }
        self.seen = Some(seen);
        Some(read)
    }

    pub(crate) fn good(&mut self, counts: &dyn Counts, now: SystemTime) {
        let repaired = self.error.take().is_some();
        let first = self.loaded.is_none();
        self.times = 0;
        self.loaded = Some(now);
        counts.file(self.named.flag, true);
        counts.reloaded(self.named.flag, "ok");
        let path = self.named.path.display();
        if repaired {
            info!("using --{} {path} again: it is repaired", self.named.flag);
        } else if !first {
            info!("using --{} {path} as it is now", self.named.flag);
        }
    }

    pub(crate) fn broken(&mut self, counts: &dyn Counts, cause: &str) {
        if self.error.as_deref() == Some(cause) {
            self.times += 1;
        } else {
            self.times = 1;
            self.error = Some(cause.to_owned());
        }
        counts.file(self.named.flag, false);
        counts.reloaded(self.named.flag, "broken");
        if log::worth_a_line(self.times) && (self.loaded.is_some() || !self.needed) {
            let line = self.named.line(cause);
            error!("{line}{}", api::times(self.times));
        }
    }

    pub(crate) fn json(&self) -> Value {
        let sha256 = self.seen.as_ref().and_then(|seen| seen.as_ref().ok());
        json!({
            "flag": self.named.flag,
            "path": self.named.path,
            "sha256": sha256,
            "loaded": self.loaded.map(log::stamp),
            "valid": self.error.is_none(),
            "error": self.error,
        })
    }
}

/// The file of a flag: as given, or at its default path where it exists.
///
/// # Errors
/// One that was given and does not exist, in one line.
pub(crate) fn chosen(
    flag: &'static str,
    given: Option<&Path>,
    default: &str,
) -> Result<Option<Named>, String> {
    let named = |path: &Path| Named {
        flag,
        path: path.to_owned(),
    };
    match given {
        Some(path) => {
            let named = named(path);
            match file::is_there_first(path) {
                Ok(()) => Ok(Some(named)),
                Err(cause) => Err(named.line(&cause.to_string())),
            }
        }
        None => {
            let default = Path::new(default);
            Ok(file::is_there_first(default)
                .is_ok()
                .then(|| named(default)))
        }
    }
}
