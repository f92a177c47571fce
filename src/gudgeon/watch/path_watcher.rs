//! Notices that something in a directory, or below it, may have changed; or that one file has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::debounce::Burst;
use tokio::time::{Instant, sleep, sleep_until};

use super::Watcher;
use super::folders::Folders;

/// The quiet time that ends a batch of changes, and the longest wait for it: a program that writes a file often writes another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DebounceOptions {
    pub(crate) quiet: Duration,
    pub(crate) max: Duration,
}

/// The delay for a reader without a debounce.
pub(crate) const DEBOUNCE: DebounceOptions = DebounceOptions {
    quiet: Duration::from_millis(100),
    max: Duration::from_millis(500),
};

/// Watches the directories of a scan, and the path itself: it may be removed, come back, or lead elsewhere.
#[derive(Debug)]
pub(crate) struct PathWatcher {
    path: Watcher,
    folders: Folders,
}

impl PathWatcher {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: Watcher::new(vec![path.to_owned()]),
            folders: Folders::new(),
        }
    }

    /// Returns the reason why changes may be missed; `None` if none are.
    pub(crate) fn degraded(&self) -> Option<&str> {
        self.folders.degraded().or_else(|| self.path.degraded())
    }

    /// Watches these directories and no others. Read them after this and no change is missed; `false`: they were watched all
    /// along.
    pub(crate) async fn follow(&mut self, folders: Vec<PathBuf>) -> bool {
        self.folders.follow(folders).await
    }

    /// Finds anew where the path leads.
    pub(crate) async fn follow_path(&mut self) {
        self.path.follow().await;
    }

    /// Waits until a file or a directory on the path may have changed. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.folders.changed() => {}
            () = self.path.changed() => {}
        }
    }

    /// Returns when the directories are to be read again: after the changes of a moment, or after the pause, with the path found
    /// anew. If it is dropped, an event may be lost: the caller reads the directories.
    pub(crate) async fn due(&mut self, debounce: DebounceOptions, pause: Duration) {
        tokio::select! {
            () = self.changed() => self.debounce(debounce).await,
            () = sleep(pause) => self.follow_path().await,
        }
    }

    /// Waits until nothing has changed for a while, or for long enough.
    async fn debounce(&mut self, DebounceOptions { quiet, max }: DebounceOptions) {
        let begun = Instant::now();
        let mut burst = Burst::new(Duration::ZERO);
        loop {
            tokio::select! {
                () = sleep_until(begun + burst.deadline(quiet, max)) => return,
                () = self.changed() => burst.add(begun.elapsed()),
            }
        }
    }
}
