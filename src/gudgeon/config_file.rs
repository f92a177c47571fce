//! A configuration file that is reloaded: its last content, its validity, and its last error.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use api::log_repeats::LogRepeatLimiter;
use api::mesh::{Invalid, Parsed};
use serde_json::{Value, json};
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::file_states::{FileState, ReloadResult};
use crate::{file, log};

/// Counts events of files.
pub(crate) trait FileCounters: Sync {
    /// The changed file of a flag was read.
    fn reloaded(&self, flag: &'static str, result: ReloadResult);
}

/// A file and the flag that names it.
#[derive(Clone, Debug)]
pub(crate) struct FlaggedFile {
    pub(crate) flag: &'static str,
    pub(crate) path: PathBuf,
}

impl FlaggedFile {
    /// Returns the line that reports an error of the file.
    pub(crate) fn line(&self, cause: &str) -> String {
        format!(
            "cannot use --{} {}: {cause}",
            self.flag,
            self.path.display()
        )
    }
}

/// A configuration file, with the state of its last load.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) named: FlaggedFile,
    /// The hash of the bytes that were validated last, or the error of the read.
    pub(crate) last_read: Option<Result<String, String>>,
    loaded: Option<SystemTime>,
    pub(crate) error: Option<String>,
    repeats: LogRepeatLimiter,
    /// Errors are not logged before the first success: a role that cannot start without the file prints them as its last
    /// line.
    pub(crate) needed: bool,
    /// The last read hung.
    pub(crate) hangs: bool,
    /// The hash of the last text that [`Self::changed_text`] returned.
    text: Option<String>,
    /// No flag names the path.
    is_default: bool,
    /// The cause for which the text of `text` cannot be used: it stays so where the file goes and comes back as it was.
    refused: Option<String>,
    /// Texts that could be used, and those that could not.
    good: u64,
    broken: u64,
}

/// The delay before a file that did not answer is read again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl ConfigFile {
    pub(crate) fn new(named: FlaggedFile) -> Self {
        Self {
            named,
            last_read: None,
            loaded: None,
            error: None,
            repeats: LogRepeatLimiter::default(),
            needed: false,
            hangs: false,
            text: None,
            is_default: false,
            refused: None,
            good: 0,
            broken: 0,
        }
    }

    /// Returns the state of a file that is parsed as one text; `None` if it never existed.
    pub(crate) fn state(&self) -> Option<FileState> {
        self.text.as_ref()?;
        Some(FileState {
            path: self.named.path.clone(),
            error: self.error.clone(),
            good: self.good,
            broken: self.broken,
            not_after: None,
        })
    }

    /// Returns the line that reports an error. A default path is named as that.
    fn line(&self, verb: &str, cause: &str) -> String {
        let FlaggedFile { flag, path } = &self.named;
        let path = path.display();
        match self.is_default {
            true => format!("cannot {verb} {path}, the default path of --{flag}: {cause}"),
            false => format!("cannot {verb} --{flag} {path}: {cause}"),
        }
    }

    /// The bytes, where they are others than last time.
    pub(crate) async fn changed(&mut self) -> Option<Result<Vec<u8>, String>> {
        let read = file::read(&self.named.path).await;
        self.hangs = read.as_ref().is_err_and(file::is_hanging);
        let read = read.map_err(|cause| cause.to_string());
        let digest = read.as_ref().map(|bytes| file::sha256(bytes));
        let digest = digest.map_err(Clone::clone);
        if self.last_read.as_ref() == Some(&digest) {
            return None;
        }
        self.last_read = Some(digest);
        Some(read)
    }

    fn at(flag: &'static str, given: Option<&Path>, usual: &str) -> Self {
        let path = given.unwrap_or_else(|| Path::new(usual)).to_owned();
        Self {
            is_default: given.is_none(),
            ..Self::new(FlaggedFile { flag, path })
        }
    }

    /// Opens a file as [`Self::open`] does; one at its usual place that cannot be read is a warning.
    ///
    /// # Errors
    /// One that was given is missing, or cannot be read.
    pub(crate) async fn open_if_readable(
        flag: &'static str,
        given: Option<&Path>,
        usual: &str,
    ) -> Result<(Self, Option<String>), Failure> {
        match Self::open(flag, given, usual).await {
            Err(failure) if given.is_none() => {
                warn!("{}; using the defaults", failure.message);
                Ok((Self::at(flag, given, usual), None))
            }
            opened => opened,
        }
    }

    /// Reads a file that is parsed as one text: as given, or at its usual place, where it need not be.
    ///
    /// # Errors
    /// It is missing though given, or cannot be read.
    pub(crate) async fn open(
        flag: &'static str,
        given: Option<&Path>,
        usual: &str,
    ) -> Result<(Self, Option<String>), Failure> {
        let mut this = Self::at(flag, given, usual);
        let wrong = |this: &Self, cause: &str| Failure::config(this.line("read", cause));
        if given.is_none()
            && let Err(cause) = file::is_there_first(&this.named.path)
        {
            // A mesh that silently loses its mutual TLS is worse than one that does not start.
            if cause.kind() == io::ErrorKind::NotFound {
                return Ok((this, None));
            }
            return Err(wrong(&this, &cause.to_string()));
        }
        // The first read is always a change.
        let read = this.changed().await.unwrap_or_else(|| Ok(Vec::new()));
        let bytes = read.map_err(|cause| wrong(&this, &cause))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong(&this, "not UTF-8"))?;
        this.text = this.sha256().map(str::to_owned);
        this.good = 1;
        Ok((this, Some(text)))
    }

    fn sha256(&self) -> Option<&str> {
        self.last_read.as_ref()?.as_deref().ok()
    }

    /// Returns the text if it differs from the last one. An optional file that never existed is not an error.
    pub(crate) async fn changed_text(&mut self) -> Option<String> {
        let text = match self.changed().await? {
            // The file was away in between, and is the same again.
            Ok(_) if self.text.as_deref() == self.sha256() => {
                self.error.clone_from(&self.refused);
                return None;
            }
            Ok(bytes) => {
                self.text = self.sha256().map(str::to_owned);
                let text = String::from_utf8(bytes);
                text.map_err(|_| self.refuse("not UTF-8"))
            }
            Err(_) if self.text.is_none() => return None,
            Err(cause) => {
                self.log_once(&cause);
                return None;
            }
        };
        text.ok()
    }

    fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            warn!("{}: {warning}", self.named.path.display());
        }
    }

    /// Returns the first configuration; an error is fatal.
    pub(crate) fn first<T>(&self, parsed: Result<Parsed<T>, Invalid>) -> Result<T, Failure> {
        let parsed =
            parsed.map_err(|invalid| Failure::config(self.line("use", &invalid.to_string())))?;
        self.warn(&parsed.warnings);
        Ok(parsed.config)
    }

    /// Returns a later configuration; on an error the last one stays.
    pub(crate) fn later<T>(&mut self, parsed: Result<Parsed<T>, Invalid>) -> Option<T> {
        match parsed {
            Ok(parsed) => {
                self.warn(&parsed.warnings);
                let FlaggedFile { flag, path } = &self.named;
                info!("--{flag} {} has changed", path.display());
                self.error = None;
                self.refused = None;
                self.good += 1;
                Some(parsed.config)
            }
            Err(invalid) => {
                self.refuse(&invalid.to_string());
                None
            }
        }
    }

    /// Notes that the last text cannot be used.
    fn refuse(&mut self, cause: &str) {
        self.broken += 1;
        self.refused = Some(cause.to_owned());
        self.log_once(cause);
    }

    /// Logs each cause once.
    fn log_once(&mut self, cause: &str) {
        if self.error.as_deref() != Some(cause) {
            error!(
                "{}; the last good content stays in use",
                self.line("use", cause)
            );
            self.error = Some(cause.to_owned());
        }
    }

    pub(crate) fn good(&mut self, counts: &dyn FileCounters, now: SystemTime) {
        let repaired = self.error.take().is_some();
        let first = self.loaded.is_none();
        self.repeats.forget();
        self.loaded = Some(now);
        counts.reloaded(self.named.flag, ReloadResult::Used);
        let path = self.named.path.display();
        if repaired {
            info!("using --{} {path} again: it is repaired", self.named.flag);
        } else if !first {
            info!("using --{} {path} as it is now", self.named.flag);
        }
    }

    pub(crate) fn broken(&mut self, counts: &dyn FileCounters, cause: &str) {
        self.error = Some(cause.to_owned());
        counts.reloaded(self.named.flag, ReloadResult::Broken);
        if let Some(count) = self.repeats.observe(cause)
            && (self.loaded.is_some() || !self.needed)
        {
            let line = self.named.line(cause);
            error!("{line}{}", api::times(count));
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "flag": self.named.flag,
            "path": self.named.path,
            "sha256": self.sha256(),
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
) -> Result<Option<FlaggedFile>, String> {
    let named = |path: &Path| FlaggedFile {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_optional_file_that_cannot_be_reached_is_not_taken_for_missing() {
        let root = tempfile::tempdir().unwrap();
        let usual = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let (_, text) = ConfigFile::open("meshConfig", None, &usual("mesh"))
            .await
            .unwrap();
        assert_eq!(text, None);
        std::os::unix::fs::symlink(usual("loop"), usual("loop")).unwrap();
        let opened = ConfigFile::open("meshConfig", None, &usual("loop")).await;
        let failure = opened.unwrap_err().message;
        let blamed = format!(
            "cannot read {}, the default path of --meshConfig: ",
            usual("loop")
        );
        assert!(failure.starts_with(&blamed), "{failure}");
        // Where the defaults do no harm they are used; a path that somebody gave is needed.
        let path = usual("loop");
        let (file, text) = ConfigFile::open_if_readable("networksConfig", None, &path)
            .await
            .unwrap();
        assert_eq!((file.named.path.to_str(), text), (Some(&*path), None));
        let given = Some(Path::new(&path));
        let opened = ConfigFile::open_if_readable("networksConfig", given, "/none").await;
        let failure = opened.unwrap_err().message;
        assert!(
            failure.starts_with("cannot read --networksConfig /"),
            "{failure}"
        );
    }
}
