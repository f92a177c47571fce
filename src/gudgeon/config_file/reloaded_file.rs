//! A file whose content its owner validates: texts of the injector's configuration, and files of TLS.

use std::time::SystemTime;

use api::log_repeats::LogRepeatLimiter;
use serde_json::{Value, json};
use tracing::{error, info};

use super::{ChangeReader, FileCounters, FlaggedFile};
use crate::file_states::ReloadResult;
use crate::log;

/// The role of a file at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// The file may come later, and what is wrong with it is logged.
    Optional,
    /// The role cannot start without the file, and prints its error as the last line: it is not logged before the first success.
    Needed,
}

/// A file with the state of its last load.
#[derive(Debug)]
pub(crate) struct ReloadedFile {
    reader: ChangeReader,
    at_start: AtStart,
    loaded: Option<SystemTime>,
    error: Option<String>,
    repeats: LogRepeatLimiter,
}

impl ReloadedFile {
    pub(crate) fn new(file: FlaggedFile, at_start: AtStart) -> Self {
        Self {
            reader: ChangeReader::new(file),
            at_start,
            loaded: None,
            error: None,
            repeats: LogRepeatLimiter::default(),
        }
    }

    pub(crate) const fn named(&self) -> &FlaggedFile {
        &self.reader.file
    }

    /// Returns true if the last read hung.
    pub(crate) const fn hangs(&self) -> bool {
        self.reader.hangs
    }

    /// Returns true if the file was read before.
    pub(crate) const fn was_read(&self) -> bool {
        self.reader.last_read.is_some()
    }

    /// Returns the line that reports the error of the last load.
    pub(crate) fn error_line(&self) -> Option<String> {
        Some(self.reader.file.line(self.error.as_ref()?))
    }

    /// Returns the bytes if they differ from the last ones.
    pub(crate) async fn changed(&mut self) -> Option<Result<Vec<u8>, String>> {
        self.reader.changed().await
    }

    /// Forgets the bytes that were read last: their reader has not finished with them.
    pub(crate) fn forget(&mut self) {
        self.reader.forget();
    }

    /// Notes that the content is in use.
    pub(crate) fn good(&mut self, counts: &dyn FileCounters, now: SystemTime) {
        let repaired = self.error.take().is_some();
        let first = self.loaded.is_none();
        self.repeats.forget();
        self.loaded = Some(now);
        counts.reloaded(self.reader.file.flag, ReloadResult::Used);
        let path = self.reader.file.path.display();
        if repaired {
            info!(
                "using --{} {path} again: it is repaired",
                self.reader.file.flag
            );
        } else if !first {
            info!("using --{} {path} as it is now", self.reader.file.flag);
        }
    }

    /// Notes that the content cannot be used; the last good one stays in use.
    pub(crate) fn broken(&mut self, counts: &dyn FileCounters, cause: &str) {
        self.error = Some(cause.to_owned());
        counts.reloaded(self.reader.file.flag, ReloadResult::Broken);
        if let Some(count) = self.repeats.observe(cause)
            && (self.loaded.is_some() || self.at_start == AtStart::Optional)
        {
            let line = self.reader.file.line(cause);
            error!("{line}{}", api::times(count));
        }
    }

    /// Returns the state of the file, for the page.
    pub(crate) fn json(&self) -> Value {
        json!({
            "flag": self.reader.file.flag,
            "path": self.reader.file.path,
            "sha256": self.reader.sha256(),
            "loaded": self.loaded.map(log::stamp),
            "valid": self.error.is_none(),
            "error": self.error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_was_forgotten_is_a_change_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("key");
        std::fs::write(&path, "a").unwrap();
        let flag = "tlsKeyFile";
        let mut file = ReloadedFile::new(FlaggedFile { flag, path }, AtStart::Optional);
        let read = Some(Ok(b"a".to_vec()));
        assert_eq!(file.changed().await, read);
        assert_eq!(file.changed().await, None);
        file.forget();
        assert_eq!(file.changed().await, read);
    }
}
