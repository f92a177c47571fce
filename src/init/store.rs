//! The directory of bootstrap files: `envoy-rev<epoch>.json`, each there whole or not at all, and one agent's only.

#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown, fchown};
use std::path::{Path, PathBuf};

use crate::supervisor::Epoch;
use crate::values::User;

/// Secrets may stand in a bootstrap: nobody else reads it.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// `S_IWGRP` and `S_IWOTH`.
const OTHERS_WRITE: u32 = 0o022;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Empty: the proxy reads a file of the user's, so nothing is written, and no file in there is the agent's.
    directory: PathBuf,
    user: Option<User>,
    /// The directory, locked as long as we live.
    lock: Option<File>,
    /// A bootstrap was written into it: a file of the user's was JSON then.
    pub(crate) has_written: bool,
}

/// Whose file it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Epoch(Epoch),
    /// A `--validate` run.
    Validator,
}

impl Store {
    /// Makes sure that the directory is there, and no other agent's.
    ///
    /// # Errors
    /// It cannot be made, or not be given to the proxy's user; `ResourceBusy`: it is another agent's.
    pub(crate) fn open(directory: &Path, user: Option<User>) -> io::Result<Self> {
        let mut this = Self {
            directory: directory.to_path_buf(),
            user,
            lock: None,
            has_written: false,
        };
        this.make_directory()?;
        Ok(this)
    }

    fn make_directory(&mut self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE);
        sys::without_umask(|| builder.create(&self.directory)).map_err(|error| {
            // It is there, and something else.
            if error.kind() == io::ErrorKind::AlreadyExists {
                io::ErrorKind::NotADirectory.into()
            } else {
                error
            }
        })?;
        self.lock = lock(&self.directory)?;
        self.user.map_or(Ok(()), |user| {
            chown(&self.directory, Some(user.uid), Some(user.gid))
        })
    }

    /// Whether there is a directory to write to.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        !self.directory.as_os_str().is_empty()
    }

    /// Whether somebody else may put a bootstrap of their own into the directory: all users, those of its group, or one who
    /// is neither the agent's nor the proxy's (which has it from `open`) nor root.
    #[must_use]
    pub(crate) fn others_may_write(&self) -> bool {
        fs::metadata(&self.directory).is_ok_and(|found| {
            let owners = [
                0,
                sys::effective_uid(),
                self.user.map_or(0, |user| user.uid),
            ];
            found.mode() & OTHERS_WRITE != 0 || !owners.contains(&found.uid())
        })
    }

    /// Writes a file under its final name; a reader sees the old one or the new one. A directory that has gone is made
    /// again.
    ///
    /// # Errors
    /// The disk is full, or the directory is out of reach; `ResourceBusy`: another agent has made it again.
    pub(crate) fn write(&mut self, of: Of, document: &[u8]) -> io::Result<PathBuf> {
        if !self.has_directory() {
            self.make_directory()?;
        }
        let path = self.path(of);
        let mut temporary = path.clone().into_os_string();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let mut file = create(&temporary).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                self.make_directory()?;
            } else {
                // A leftover of a crash may have another owner or mode.
                drop(fs::remove_file(&temporary));
            }
            create(&temporary)
        })?;
        let written = file.write_all(document).and_then(|()| {
            self.user
                .map_or(Ok(()), |user| fchown(&file, Some(user.uid), Some(user.gid)))?;
            fs::rename(&temporary, &path)
        });
        self.has_written |= written.is_ok();
        if written.is_err() {
            drop(fs::remove_file(&temporary));
        }
        written.map(|()| path)
    }

    /// Whether the directory is still the one that was locked, as far as one could be.
    fn has_directory(&self) -> bool {
        let is = |found: fs::Metadata| (found.dev(), found.ino());
        let locked = self.lock.as_ref().and_then(|lock| lock.metadata().ok());
        locked.is_none_or(|locked| {
            fs::metadata(&self.directory).is_ok_and(|found| is(found) == is(locked))
        })
    }

    /// Removes the file of an epoch that has ended. There is none for a custom file.
    pub(crate) fn remove(&self, of: Of) {
        if self.is_open() {
            drop(fs::remove_file(self.path(of)));
        }
    }

    fn path(&self, of: Of) -> PathBuf {
        self.directory.join(match of {
            Of::Epoch(epoch) => format!("envoy-rev{}.json", epoch.0),
            Of::Validator => "envoy-validate.json".to_owned(),
        })
    }
}

/// Locks the directory itself: nothing is left of that when the agent is killed, so no later one is held up.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    // A FIFO that has taken its place would wait for a writer.
    let flags = sys::OPEN_READ | sys::OPEN_DIRECTORY;
    // Who may write there may not be allowed to read; and not every file system has locks.
    let file = match sys::open(directory, flags, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(error),
        Err(_) => return Ok(None),
        Ok(file) => file,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn create(path: &Path) -> io::Result<File> {
    sys::without_umask(|| sys::open(path, sys::OPEN_WRITE | sys::OPEN_NEW, FILE_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_private_whole_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let mut store = Store::open(&directory, None).unwrap();
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
    fn files_of_the_proxy_belong_to_its_user() {
        if sys::effective_uid() != 0 {
            // Nobody else may give files away.
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("d");
        let user = User {
            uid: 1337,
            gid: 1338,
        };
        let mut store = Store::open(&directory, Some(user)).unwrap();
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
    fn a_directory_that_is_gone_is_made_again() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/d");
        let mut store = Store::open(&directory, None).unwrap();
        fs::remove_dir_all(parent.path().join("a")).unwrap();
        let path = store.write(Of::Validator, b"{}").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"{}");
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_path_that_is_no_directory_is_an_error_and_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("d");
        let mut store = Store::open(&directory, None).unwrap();
        fs::remove_dir(&directory).unwrap();
        fs::write(&directory, "a file").unwrap();
        assert!(store.write(Of::Validator, b"{}").is_err());
        let error = Store::open(&directory, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs::read(&directory).unwrap(), b"a file");
    }

    #[test]
    fn a_fifo_in_its_place_is_an_error_and_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let results = [Store::open(&path, None).map(drop), lock(&path).map(drop)];
        let kinds = results.map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [io::ErrorKind::NotADirectory; 2]);
    }

    #[test]
    fn a_directory_that_others_may_write_is_known() {
        let parent = tempfile::tempdir().unwrap();
        let store = Store::open(&parent.path().join("d"), None).unwrap();
        assert!(!store.others_may_write());
        for (mode, expected) in [
            (0o777, true),
            (0o1777, true),
            (0o775, true),
            (0o2770, true),
            (0o755, false),
        ] {
            let mode_bits = fs::Permissions::from_mode(mode);
            fs::set_permissions(&store.directory, mode_bits).unwrap();
            assert_eq!(store.others_may_write(), expected, "{mode:o}");
        }
        if sys::effective_uid() == 0 {
            // Nobody else may give files away.
            chown(&store.directory, Some(1337), None).unwrap();
            assert!(store.others_may_write());
        }
    }

    #[test]
    fn a_directory_is_one_agents_only() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("d");
        let open = || Store::open(&directory, None);
        let busy = |error: io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        let mut first = open().unwrap();
        assert!(busy(open().unwrap_err()));
        first.write(Of::Validator, b"{}").unwrap();
        // The directory is made again, first by its owner, then by another user.
        fs::remove_dir_all(&directory).unwrap();
        first.write(Of::Validator, b"{}").unwrap();
        assert!(busy(open().unwrap_err()));
        fs::remove_dir_all(&directory).unwrap();
        let second = open().unwrap();
        assert!(busy(first.write(Of::Validator, b"{}").unwrap_err()));
        drop((first, second));
        open().unwrap();
    }
}
