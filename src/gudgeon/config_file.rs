//! The files of flags that are reloaded. A [`TextFile`] is parsed as one text. A [`ReloadedFile`] is validated by its owner, which may
//! read it together with others.

mod reloaded_file;
mod text_file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file;
use crate::file_states::ReloadResult;

pub(crate) use reloaded_file::{AtStart, ReloadedFile};
pub(crate) use text_file::TextFile;

/// Counts events of files.
pub(crate) trait FileCounters: Sync {
    /// Takes note of the result of reading a flag's changed file.
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

/// The delay before a file that did not answer is read again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Reads a file, and knows whether it has changed since.
#[derive(Debug)]
struct ChangeReader {
    file: FlaggedFile,
    /// The hash of the bytes that were read last, or the error of the read.
    last_read: Option<Result<String, String>>,
    /// The last read hung.
    hangs: bool,
}

impl ChangeReader {
    const fn new(file: FlaggedFile) -> Self {
        Self {
            file,
            last_read: None,
            hangs: false,
        }
    }

    /// Returns the bytes if they differ from the last ones.
    async fn changed(&mut self) -> Option<Result<Vec<u8>, String>> {
        let read = file::read(&self.file.path).await;
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

    /// Makes the next read a change.
    fn forget(&mut self) {
        self.last_read = None;
    }

    fn sha256(&self) -> Option<&str> {
        self.last_read.as_ref()?.as_deref().ok()
    }
}

/// The file of a flag: as given, or at its default path where it exists.
///
/// # Errors
/// One that was given and does not exist, in one line.
pub(crate) fn chosen(
    flag: &'static str,
    path_of_flag: Option<&Path>,
    default: &str,
) -> Result<Option<FlaggedFile>, String> {
    let flagged_file = |path: &Path| FlaggedFile {
        flag,
        path: path.to_owned(),
    };
    match path_of_flag {
        Some(path) => {
            let flagged_file = flagged_file(path);
            match file::is_there_first(path) {
                Ok(()) => Ok(Some(flagged_file)),
                Err(cause) => Err(flagged_file.line(&cause.to_string())),
            }
        }
        None => {
            let default = Path::new(default);
            Ok(file::is_there_first(default)
                .is_ok()
                .then(|| flagged_file(default)))
        }
    }
}
