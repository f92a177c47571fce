//! One file: what was read of it last, whether it was right, and what is said about it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};
use tracing::{error, info};

use super::metrics::Metrics;
use crate::{file, log};

/// A file and the flag that names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) flag: &'static str,
    pub(crate) path: PathBuf,
}

impl Named {
    /// The one line that says what is wrong with it.
    pub(super) fn line(&self, cause: &str) -> String {
        format!(
            "cannot use --{} {}: {cause}",
            self.flag,
            self.path.display()
        )
    }
}

/// One file and what was made of it.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) named: Named,
    /// Hash of the bytes that were judged last, or why there were none.
    pub(super) seen: Option<Result<String, String>>,
    loaded: Option<SystemTime>,
    pub(super) error: Option<String>,
    /// How often `error` was met in a row.
    times: u64,
}

impl Tracked {
    pub(super) fn new(named: Named) -> Self {
        Self {
            named,
            seen: None,
            loaded: None,
            error: None,
            times: 0,
        }
    }

    /// The bytes, where they are others than last time.
    pub(super) fn changed(&mut self) -> Option<Result<Vec<u8>, String>> {
        let read = file::read(&self.named.path).map_err(|cause| cause.to_string());
        let seen = read.as_ref().map(|bytes| file::sha256(bytes));
        let seen = seen.map_err(Clone::clone);
        if self.seen.as_ref() == Some(&seen) {
            return None;
        }
        self.seen = Some(seen);
        Some(read)
    }

    pub(super) fn good(&mut self, metrics: &Metrics, now: SystemTime) {
        let repaired = self.error.take().is_some();
        let first = self.loaded.is_none();
        self.times = 0;
        self.loaded = Some(now);
        metrics.file(self.named.flag, true);
        metrics.reloaded(self.named.flag, "ok");
        let path = self.named.path.display();
        if repaired {
            info!("using --{} {path} again: it is repaired", self.named.flag);
        } else if !first {
            info!("using --{} {path} as it is now", self.named.flag);
        }
    }

    pub(super) fn broken(&mut self, metrics: &Metrics, cause: &str) {
        if self.error.as_deref() == Some(cause) {
            self.times += 1;
        } else {
            self.times = 1;
            self.error = Some(cause.to_owned());
        }
        metrics.file(self.named.flag, false);
        metrics.reloaded(self.named.flag, "broken");
        if log::worth_a_line(self.times) {
            let line = self.named.line(cause);
            if self.times == 1 {
                error!("{line}");
            } else {
                error!("{line} ({} times)", self.times);
            }
        }
    }

    pub(super) fn json(&self) -> Value {
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
            match std::fs::metadata(path) {
                Ok(_) => Ok(Some(named)),
                Err(cause) => Err(named.line(&cause.to_string())),
            }
        }
        None => Ok(Path::new(default)
            .exists()
            .then(|| named(Path::new(default)))),
    }
}
