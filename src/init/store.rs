//! The directory of bootstrap files: `envoy-rev<epoch>.json`, each there whole or not at all.

#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, chown, fchown};
use std::path::{Path, PathBuf};

use crate::config::User;
use crate::supervisor::Epoch;

/// Secrets may stand in a bootstrap: nobody else reads it.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    user: Option<User>,
}

/// Whose file it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Epoch(Epoch),
    /// A `--validate` run.
    Validator,
}

impl Store {
    /// Makes sure that the directory is there.
    ///
    /// # Errors
    /// It cannot be made, or not be given to the proxy's user.
    pub(crate) fn open(directory: &Path, user: Option<User>) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)?;
        if let Some(user) = user {
            chown(directory, Some(user.uid), Some(user.gid))?;
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            user,
        })
    }

    /// Writes a file under its final name; a reader sees the old one or the new one.
    ///
    /// # Errors
    /// The disk is full, or the directory has gone.
    pub(crate) fn write(&self, of: Of, document: &[u8]) -> io::Result<PathBuf> {
        let path = self.path(of);
        let temporary = path.with_extension("json.tmp");
        let mut file = create(&temporary).or_else(|_| {
            // A leftover of a crash may have another owner or mode.
            drop(fs::remove_file(&temporary));
            create(&temporary)
        })?;
        let written = file.write_all(document).and_then(|()| {
            self.user
                .map_or(Ok(()), |user| fchown(&file, Some(user.uid), Some(user.gid)))?;
            fs::rename(&temporary, &path)
        });
        if written.is_err() {
            drop(fs::remove_file(&temporary));
        }
        written.map(|()| path)
    }

    /// Removes the file of an epoch that has ended. There is none for a custom file.
    pub(crate) fn remove(&self, of: Of) {
        drop(fs::remove_file(self.path(of)));
    }

    fn path(&self, of: Of) -> PathBuf {
        self.directory.join(match of {
            Of::Epoch(epoch) => format!("envoy-rev{}.json", epoch.0),
            Of::Validator => "envoy-validate.json".to_owned(),
        })
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_file_is_private_whole_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let store = Store::open(&directory, None).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
        let path = store.write(Of::Epoch(Epoch(3)), b"{}").unwrap();
        assert_eq!(path, directory.join("envoy-rev3.json"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        // A crash has left a file half written, which others can read.
        fs::write(directory.join("envoy-rev3.json.tmp"), b"[[[").unwrap();
        store.write(Of::Epoch(Epoch(3)), b"[]").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"[]");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        store.remove(Of::Epoch(Epoch(3)));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn what_is_the_proxys_belongs_to_its_user() {
        if crate::sys::effective_uid() != 0 {
            // Nobody else may give files away.
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("d");
        let user = User {
            uid: 1337,
            gid: 1338,
        };
        let store = Store::open(&directory, Some(user)).unwrap();
        let file = store.write(Of::Epoch(Epoch(0)), b"{}").unwrap();
        for path in [&directory, &file] {
            let metadata = fs::metadata(path).unwrap();
            assert_eq!(
                (metadata.uid(), metadata.gid()),
                (1337, 1338),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn a_directory_that_is_gone_is_an_error_and_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("d");
        let store = Store::open(&directory, None).unwrap();
        fs::remove_dir(&directory).unwrap();
        assert!(store.write(Of::Validator, b"{}").is_err());
    }
}
