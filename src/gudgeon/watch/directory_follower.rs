//! Follows a directory of configuration, or one file: decides when it is scanned, scans it on a blocking thread, and tells the
//! log what keeps it from being read. What is done with a scan is its user's.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::{DebounceOptions, PathWatcher, asked};
use crate::process;

/// The interval of scans without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The interval while inotify fails, the directory cannot be read, or a path below it does not answer.
const DEGRADED_INTERVAL: Duration = Duration::from_secs(1);

/// A reader that knows what it has read of a directory, and reads what has changed since.
pub(crate) trait DirectoryReader: Send + 'static {
    /// The result of a scan.
    type Found: Send + 'static;

    /// Reads what has changed; blocks. `is_first`: no scan of this reader has succeeded yet, hence it finds all that there is.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn scan(&mut self, is_first: bool) -> io::Result<Scan<Self::Found>>;

    /// Makes the next scan read every file.
    fn forget_stamps(&mut self);
}

/// A scan of a directory.
#[derive(Debug)]
pub(crate) struct Scan<T> {
    pub(crate) found: T,
    /// The directories to watch for the next change.
    pub(crate) folders: Vec<PathBuf>,
    /// A path below it does not answer.
    pub(crate) hangs: bool,
}

/// Follows a directory.
pub(crate) struct DirectoryFollower<R> {
    path: PathBuf,
    /// Opens a reader that has read nothing.
    open: Box<dyn Fn() -> R + Send>,
    /// `None` while there is none that has read the directory: before the first scan that succeeds, and after one that panicked,
    /// which has lost the reader with all that it knew.
    reader: Option<R>,
    /// `None`: the directory is scanned only when that is requested.
    watcher: Option<(PathWatcher, DebounceOptions)>,
    /// Requests to read all files again.
    again: watch::Receiver<u64>,
    /// Directories of the last scan that the watcher does not know yet.
    folders: Option<Vec<PathBuf>>,
    lost: bool,
    hangs: bool,
    warned: bool,
}

impl<R: DirectoryReader> DirectoryFollower<R> {
    /// Watches the path, if changes are waited for, with this debounce. It scans nothing yet.
    pub(crate) async fn new(
        path: &Path,
        debounce: Option<DebounceOptions>,
        open: impl Fn() -> R + Send + 'static,
    ) -> Self {
        let mut watcher = debounce.map(|debounce| (PathWatcher::new(path), debounce));
        if let Some((watcher, _)) = &mut watcher {
            watcher.follow_path().await;
        }
        Self {
            path: path.to_owned(),
            open: Box::new(open),
            reader: None,
            watcher,
            again: process::reload_requests(),
            folders: None,
            lost: false,
            hangs: false,
            warned: false,
        }
    }

    /// The reader, for what it does without the disk; `None` if the next scan opens another one.
    pub(crate) const fn reader(&mut self) -> Option<&mut R> {
        self.reader.as_mut()
    }

    /// Scans the directory. The log tells once that it cannot be read, and once that it can be read again.
    ///
    /// # Errors
    /// The directory cannot be read, or the scan has panicked: the next one reads everything with a fresh reader.
    pub(crate) async fn scan(&mut self) -> io::Result<R::Found> {
        let result = self.try_scan().await;
        let path = self.path.display();
        match &result {
            Ok(_) if std::mem::take(&mut self.lost) => info!("{path} can be read again"),
            Err(cause) if !std::mem::replace(&mut self.lost, true) => {
                error!("cannot read {path}: {cause}; serving the last good content");
            }
            Ok(_) | Err(_) => {}
        }
        result
    }

    /// Scans as `scan` does, without a line in the log: for a start that ends with the cause.
    ///
    /// # Errors
    /// As `scan`.
    pub(crate) async fn try_scan(&mut self) -> io::Result<R::Found> {
        let reader = self.reader.take();
        let is_first = reader.is_none();
        let mut reader = reader.unwrap_or_else(|| (self.open)());
        let scanned = spawn_blocking(move || {
            let scan = reader.scan(is_first);
            (reader, scan)
        });
        // A panic's message may contain a secret.
        let panicked = |_| io::Error::other("internal error, see the panic in the log");
        let (reader, scan) = scanned.await.map_err(panicked)?;
        // A first scan that failed knows nothing: the next one is the first again.
        self.reader = (scan.is_ok() || !is_first).then_some(reader);
        let Scan {
            found,
            folders,
            hangs,
        } = scan?;
        self.folders = Some(folders);
        self.hangs = hangs;
        Ok(found)
    }

    /// Returns when the directory is to be scanned: at once where the last scan found directories that were not watched, else
    /// after an event, after a pause, or when all files are to be read again. If it is dropped, an event may be lost: the caller
    /// scans the directory.
    pub(crate) async fn due(&mut self) {
        let (again, is_lost, hangs) = (&mut self.again, self.lost, self.hangs);
        let Some((watcher, debounce)) = &mut self.watcher else {
            asked(again).await;
            return self.forget_stamps();
        };
        // They may have changed between the scan and the watch.
        if let Some(folders) = self.folders.take()
            && watcher.follow(folders).await
        {
            return;
        }
        let mut pause = POLL_INTERVAL;
        if is_lost || hangs {
            pause = DEGRADED_INTERVAL;
        }
        if let Some(why) = watcher.degraded() {
            pause = DEGRADED_INTERVAL;
            if !std::mem::replace(&mut self.warned, true) {
                warn!("polling {} every second: {why}", self.path.display());
            }
        }
        tokio::select! {
            () = watcher.due(*debounce, pause) => {}
            () = asked(again) => self.forget_stamps(),
        }
    }

    fn forget_stamps(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.forget_stamps();
        }
    }
}

#[cfg(test)]
mod tests;
