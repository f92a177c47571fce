//! A file that is parsed as one text: the mesh configuration, say.

use std::io;
use std::path::Path;

use api::mesh::{Invalid, Parsed};
use tracing::{error, info, warn};

use super::{ChangeReader, FlaggedFile};
use crate::exit::Failure;
use crate::file;
use crate::file_states::FileState;

/// A file with one text, of which the last good one is in use.
#[derive(Debug)]
pub(crate) struct TextFile {
    reader: ChangeReader,
    /// No flag names the path.
    is_default: bool,
    /// The hash of the last text that [`Self::changed_text`] returned.
    text: Option<String>,
    /// The cause for which the present content is not in use.
    error: Option<String>,
    /// The cause for which the text of `text` cannot be used: it stays so where the file goes and comes back as it was.
    refused: Option<String>,
    /// Texts that could be used, and those that could not.
    good: u64,
    broken: u64,
}

impl TextFile {
    pub(crate) const fn named(&self) -> &FlaggedFile {
        &self.reader.file
    }

    /// Returns true if the last read hung.
    pub(crate) const fn hangs(&self) -> bool {
        self.reader.hangs
    }

    /// Returns the state; `None` if the file never existed.
    pub(crate) fn state(&self) -> Option<FileState> {
        self.text.as_ref()?;
        Some(FileState {
            path: self.reader.file.path.clone(),
            error: self.error.clone(),
            good: self.good,
            broken: self.broken,
            ..FileState::default()
        })
    }

    /// Returns the line that reports an error. A default path is named as that.
    fn line(&self, verb: &str, cause: &str) -> String {
        let FlaggedFile { flag, path } = &self.reader.file;
        let path = path.display();
        match self.is_default {
            true => format!("cannot {verb} {path}, the default path of --{flag}: {cause}"),
            false => format!("cannot {verb} --{flag} {path}: {cause}"),
        }
    }

    fn at(flag: &'static str, path_of_flag: Option<&Path>, usual: &str) -> Self {
        let path = path_of_flag.unwrap_or_else(|| Path::new(usual)).to_owned();
        Self {
            reader: ChangeReader::new(FlaggedFile { flag, path }),
            is_default: path_of_flag.is_none(),
            text: None,
            error: None,
            refused: None,
            good: 0,
            broken: 0,
        }
    }

    /// Opens a file as [`Self::open`] does; one at its usual place that cannot be read is a warning.
    ///
    /// # Errors
    /// One that was given is missing, or cannot be read.
    pub(crate) async fn open_if_readable(
        flag: &'static str,
        path_of_flag: Option<&Path>,
        usual: &str,
    ) -> Result<(Self, Option<String>), Failure> {
        match Self::open(flag, path_of_flag, usual).await {
            Err(failure) if path_of_flag.is_none() => {
                warn!("{}; using the defaults", failure.message);
                Ok((Self::at(flag, path_of_flag, usual), None))
            }
            opened => opened,
        }
    }

    /// Reads a file: as given, or at its usual place, where it need not be.
    ///
    /// # Errors
    /// It is missing though given, or cannot be read.
    pub(crate) async fn open(
        flag: &'static str,
        path_of_flag: Option<&Path>,
        usual: &str,
    ) -> Result<(Self, Option<String>), Failure> {
        let mut this = Self::at(flag, path_of_flag, usual);
        let wrong = |this: &Self, cause: &str| Failure::config(this.line("read", cause));
        if path_of_flag.is_none()
            && let Err(cause) = file::is_there_first(&this.reader.file.path)
        {
            // A mesh that silently loses its mutual TLS is worse than one that does not start.
            if cause.kind() == io::ErrorKind::NotFound {
                return Ok((this, None));
            }
            return Err(wrong(&this, &cause.to_string()));
        }
        // The first read is always a change.
        let read = this
            .reader
            .changed()
            .await
            .unwrap_or_else(|| Ok(Vec::new()));
        let bytes = read.map_err(|cause| wrong(&this, &cause))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong(&this, "not UTF-8"))?;
        this.text = this.reader.sha256().map(str::to_owned);
        this.good = 1;
        Ok((this, Some(text)))
    }

    /// Returns the text if it differs from the last one. An optional file that never existed is not an error.
    pub(crate) async fn changed_text(&mut self) -> Option<String> {
        let text = match self.reader.changed().await? {
            // The file was away in between, and is the same again.
            Ok(_) if self.text.as_deref() == self.reader.sha256() => {
                self.error.clone_from(&self.refused);
                return None;
            }
            Ok(bytes) => {
                self.text = self.reader.sha256().map(str::to_owned);
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
            warn!("{}: {warning}", self.reader.file.path.display());
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
                let FlaggedFile { flag, path } = &self.reader.file;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_optional_file_that_cannot_be_reached_is_not_taken_for_missing() {
        let root = tempfile::tempdir().unwrap();
        let usual = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let (_, text) = TextFile::open("meshConfig", None, &usual("mesh"))
            .await
            .unwrap();
        assert_eq!(text, None);
        std::os::unix::fs::symlink(usual("loop"), usual("loop")).unwrap();
        let opened = TextFile::open("meshConfig", None, &usual("loop")).await;
        let failure = opened.unwrap_err().message;
        let blamed = format!(
            "cannot read {}, the default path of --meshConfig: ",
            usual("loop")
        );
        assert!(failure.starts_with(&blamed), "{failure}");
        // Where the defaults do no harm they are used; a path that somebody gave is needed.
        let path = usual("loop");
        let (file, text) = TextFile::open_if_readable("networksConfig", None, &path)
            .await
            .unwrap();
        assert_eq!((file.named().path.to_str(), text), (Some(&*path), None));
        let given = Some(Path::new(&path));
        let opened = TextFile::open_if_readable("networksConfig", given, "/none").await;
        let failure = opened.unwrap_err().message;
        assert!(
            failure.starts_with("cannot read --networksConfig /"),
            "{failure}"
        );
    }
}
