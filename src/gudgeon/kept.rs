//! A configuration file that is reloaded: its last content, and the last error logged about it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::mesh::{Invalid, Parsed};
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::file;

/// A configuration file, with its last content and error.
#[derive(Debug)]
pub(crate) struct Kept {
    flag: &'static str,
    pub(crate) path: PathBuf,
    /// The last content, valid or not; `None` if there is no file.
    bytes: Option<Vec<u8>>,
    pub(crate) complained: Option<String>,
    /// The last read hung.
    hangs: bool,
}

/// The delay before a file that did not answer is read again.
const SOON: Duration = Duration::from_secs(1);

impl Kept {
    /// Reads it: as given, or at its usual place, where it need not be.
    ///
    /// # Errors
    /// It is missing though given, or cannot be read.
    pub(crate) async fn open(
        flag: &'static str,
        given: Option<&Path>,
        usual: &str,
    ) -> Result<(Self, Option<String>), Failure> {
        let path = given.unwrap_or_else(|| Path::new(usual)).to_owned();
        let wrong = |cause: &dyn std::fmt::Display| {
            Failure::config(format!("cannot read --{flag} {}: {cause}", path.display()))
        };
        let bytes = match file::read(&path).await {
            Ok(bytes) => Some(bytes),
            Err(cause) if given.is_none() && cause.kind() == std::io::ErrorKind::NotFound => None,
            Err(cause) => return Err(wrong(&cause)),
        };
        let text = match bytes.clone().map(String::from_utf8) {
            Some(Ok(text)) => Some(text),
            Some(Err(_)) => return Err(wrong(&"not UTF-8")),
            None => None,
        };
        let this = Self {
            flag,
            path,
            bytes,
            complained: None,
            hangs: false,
        };
        Ok((this, text))
    }

    fn wrong(&self, cause: &dyn std::fmt::Display) -> String {
        format!(
            "cannot use --{} {}: {cause}",
            self.flag,
            self.path.display()
        )
    }

    fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            warn!("{}: {warning}", self.path.display());
        }
    }

    /// Returns the first configuration; an error is fatal.
    pub(crate) fn first<T>(&self, parsed: Result<Parsed<T>, Invalid>) -> Result<T, Failure> {
        let parsed = parsed.map_err(|invalid| Failure::config(self.wrong(&invalid)))?;
        self.warn(&parsed.warnings);
        Ok(parsed.config)
    }

    /// Returns the text if it has changed.
    pub(crate) async fn changed(&mut self) -> Option<String> {
        let read = file::read(&self.path).await;
        self.hangs = read.as_ref().is_err_and(file::is_hanging);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(cause) => {
                // An optional file that never existed is not an error.
                if self.bytes.is_some() {
                    self.complain(self.wrong(&cause));
                }
                return None;
            }
        };
        if self.bytes.as_ref() == Some(&bytes) {
            self.complained = None;
            return None;
        }
        self.bytes = Some(bytes.clone());
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(_) => {
                self.complain(self.wrong(&"not UTF-8"));
                None
            }
        }
    }

    /// Returns the delay until the next reload without an event.
    pub(crate) fn pause(&self, seldom: Duration) -> Duration {
        if self.hangs { SOON } else { seldom }
    }

    /// Returns a later configuration; on an error the last one stays.
    pub(crate) fn later<T>(&mut self, parsed: Result<Parsed<T>, Invalid>) -> Option<T> {
        match parsed {
            Ok(parsed) => {
                self.warn(&parsed.warnings);
                info!("--{} {} has changed", self.flag, self.path.display());
                self.complained = None;
                Some(parsed.config)
            }
            Err(invalid) => {
                self.complain(self.wrong(&invalid));
                None
            }
        }
    }

    /// Logs each cause once.
    fn complain(&mut self, cause: String) {
        if self.complained.as_ref() != Some(&cause) {
            error!("{cause}: the last good one is used on");
            self.complained = Some(cause);
        }
    }
}
