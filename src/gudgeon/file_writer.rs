//! Files that a role writes while it serves, on another thread: a mount whose server is gone answers no call, and a pipe
//! waits for its reader. Neither may delay serving, or the shutdown.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// The timeout of a write with `fsync`, on a disk that is busy.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of the removal at shutdown.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A file, written again and again. While it does not answer, one thread hangs there, and no other is sent after it.
#[derive(Debug)]
pub(crate) struct FileWriter {
    path: PathBuf,
    under_way: Option<JoinHandle<io::Result<()>>>,
}

impl FileWriter {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self {
            path,
            under_way: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, which also updates its modification time.
    ///
    /// # Errors
    /// The error of the system call; the path is no regular file; or the call hangs.
    pub(crate) async fn touch(&mut self, bytes: &'static [u8]) -> io::Result<()> {
        self.by(WRITE_TIMEOUT, |path| touch(path, bytes)).await
    }

    /// Removes the file.
    ///
    /// # Errors
    /// As [`Self::touch`]; a file that does not exist is no error.
    pub(crate) async fn remove(&mut self) -> io::Result<()> {
        let removed = self.by(REMOVE_TIMEOUT, |path| fs::remove_file(path)).await;
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Runs work on the path with a timeout, after the work that is still running.
    ///
    /// # Errors
    /// The error of the work, or of the timeout.
    pub(crate) async fn by(
        &mut self,
        within: Duration,
        work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        if let Some(before) = &mut self.under_way {
            // The result of the earlier work was given up.
            let _late = timeout(within, before).await.map_err(|_| hangs())?;
        }
        let path = self.path.clone();
        let task = self.under_way.insert(spawn_blocking(move || work(&path)));
        let done = timeout(within, task).await.map_err(|_| hangs())?;
        self.under_way = None;
        done.map_err(io::Error::other)?
    }

    /// Replaces it in one step.
    ///
    /// # Errors
    /// The same as of writing it.
    pub(crate) async fn replace(
        &mut self,
        bytes: Vec<u8>,
        replace: fn(&Path, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.by(WRITE_TIMEOUT, move |path| replace(path, &bytes))
            .await
    }
}

fn hangs() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "writing it hangs")
}

fn touch(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let irregular = || io::Error::other("not a regular file");
    if fs::metadata(path).is_ok_and(|at| !at.is_file() && !at.is_dir()) {
        return Err(irregular());
    }
    let mut options = OpenOptions::new();
    let mut file = open_at_once(options.create(true).truncate(true), path)?;
    // The path may lead to another file than a moment ago.
    if !file.metadata()?.is_file() {
        return Err(irregular());
    }
    file.write_all(bytes)
}

/// Opens a file for writing, without waiting for a reader of a pipe.
///
/// # Errors
/// The error of the system call, or that a pipe has no reader.
pub(crate) fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[expect(clippy::cast_possible_wrap, reason = "the flags are the kernel's int")]
    let opened = options
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path);
    opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::NXIO) => io::Error::other("it has no reader"),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn pipe(path: &Path) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    #[tokio::test]
    async fn a_file_is_written_and_a_pipe_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let mut file = FileWriter::new(root.path().join("file"));
        file.touch(b"ok").await.unwrap();
        file.touch(b"o").await.unwrap();
        assert_eq!(fs::read(file.path()).unwrap(), b"o");
        for _ in 0..2 {
            file.remove().await.unwrap();
            assert!(!file.path().exists());
        }
        pipe(file.path());
        let error = file.touch(b"ok").await.unwrap_err();
        assert_eq!(error.to_string(), "not a regular file");
        let mut options = OpenOptions::new();
        let error = open_at_once(&mut options, file.path()).unwrap_err();
        assert_eq!(error.to_string(), "it has no reader");
        let mut none = FileWriter::new(root.path().join("none/x"));
        assert_eq!(
            none.touch(b"").await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(
            FileWriter::new(root.path().into())
                .touch(b"")
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn one_thread_waits_for_a_hanging_write() {
        let soon = Duration::from_millis(20);
        let mut file = FileWriter::new("/file".into());
        let (answer, answers) = channel::<()>();
        let hung = file.by(soon, move |_| {
            // `recv` fails when the other end is gone.
            let _answered = answers.recv();
            Ok(())
        });
        assert_eq!(hung.await.unwrap_err().to_string(), "writing it hangs");
        let again = file.by(soon, |_| panic!("a second thread"));
        assert_eq!(again.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(answer);
        file.by(WRITE_TIMEOUT, |_| Ok(())).await.unwrap();
        let wrong = file.by(WRITE_TIMEOUT, |_| Err(io::ErrorKind::NotFound.into()));
        assert!(wrong.await.is_err());
    }
}
