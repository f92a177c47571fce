//! Watches many directories for changes in them.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use inotify::{EventMask, Inotify, WatchDescriptor, Watches};
use tokio::io::unix::AsyncFd;

use super::{BATCHES, BlockingTask, HANGS, mask, open, refusal};

/// Room for many events with names.
const BUFFER_BYTES: usize = 4096;

/// Watches some directories, not recursively.
#[derive(Debug)]
pub(super) struct Folders {
    inotify: Result<AsyncFd<Inotify>, String>,
    watches: Watched,
    refused: Option<String>,
    aside: BlockingTask<(Watched, Option<String>)>,
}

type Watched = HashMap<WatchDescriptor, PathBuf>;

impl Folders {
    pub(super) fn new() -> Self {
        Self {
            inotify: start(),
            watches: Watched::new(),
            refused: None,
            aside: BlockingTask::new(),
        }
    }

    /// Returns the reason why changes may be missed; `None` if none are.
    pub(super) fn degraded(&self) -> Option<&str> {
        let broken = self.inotify.as_ref().err();
        broken.or(self.refused.as_ref()).map(String::as_str)
    }

    /// Watches these directories, and no others. Read them afterwards and no change is missed; returns false if they were
    /// watched before. Cancel-safe.
    pub(super) async fn follow(&mut self, folders: Vec<PathBuf>) -> bool {
        // Starting may succeed now: descriptors come and go.
        if self.inotify.is_err() {
            self.inotify = start();
        }
        let Ok(inotify) = &self.inotify else {
            return false;
        };
        let kernel = inotify.get_ref().watches();
        let Some((watches, refused)) = self.aside.run(move || watch(folders, kernel)).await else {
            self.refused = Some(HANGS.to_owned());
            return false;
        };
        let new = watches.keys().any(|id| !self.watches.contains_key(id));
        for (id, _) in self.watches.extract_if(|id, _| !watches.contains_key(id)) {
            // The kernel drops a watch by itself when its directory goes.
            let _gone = inotify.get_ref().watches().remove(id);
        }
        self.watches = watches;
        self.refused = refused;
        new
    }

    /// Waits until a folder may have changed. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            let Ok(inotify) = &mut self.inotify else {
                // `follow` starts inotify anew; until then the caller polls.
                return std::future::pending().await;
            };
            let Ok(mut guard) = inotify.readable_mut().await else {
                self.inotify = Err("inotify has ended".to_owned());
                continue;
            };
            let mut some = false;
            let mut buffer = [0; BUFFER_BYTES];
            for _ in 0..BATCHES {
                let read = guard.try_io(|inotify| {
                    let events = inotify.get_mut().read_events(&mut buffer)?;
                    // IGNORED reports a removed watch, which is no change.
                    Ok(events
                        .into_iter()
                        .any(|event| !event.mask.contains(EventMask::IGNORED)))
                });
                match read {
                    Ok(Ok(changed)) => some |= changed,
                    Ok(Err(cause)) if cause.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(Err(_)) => {
                        // A read that failed may have lost events.
                        some = true;
                        break;
                    }
                    Err(_would_block) => break,
                }
            }
            if some {
                return;
            }
        }
    }
}

fn start() -> Result<AsyncFd<Inotify>, String> {
    open().map_err(|cause| format!("cannot start inotify: {cause}"))
}

fn watch(folders: Vec<PathBuf>, mut kernel: Watches) -> (Watched, Option<String>) {
    let mut refused = None;
    let mut watches = Watched::new();
    for folder in folders {
        match kernel.add(&folder, mask()) {
            Ok(id) => drop(watches.insert(id, folder)),
            // The directory was removed while it was scanned: its parent reports that.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => refused = Some(refusal(&folder, &cause)),
        }
    }
    (watches, refused)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_changed(folders: &mut Folders) -> bool {
        let changed = tokio::time::timeout(Duration::from_millis(200), folders.changed());
        changed.await.is_ok()
    }

    #[tokio::test]
    async fn folders_report_changes_of_their_own_files_alone() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let mut folders = Folders::new();
        assert!(folders.follow(vec![root.path().to_owned()]).await);
        assert!(!folders.follow(vec![root.path().to_owned()]).await);
        assert!(!is_changed(&mut folders).await);
        std::fs::write(root.path().join("a"), "1").unwrap();
        assert!(is_changed(&mut folders).await);
        std::fs::write(below.join("a"), "1").unwrap();
        assert!(!is_changed(&mut folders).await);
        assert!(folders.follow(vec![below.clone()]).await);
        std::fs::write(root.path().join("a"), "2").unwrap();
        assert!(!is_changed(&mut folders).await);
        std::fs::write(below.join("a"), "2").unwrap();
        assert!(is_changed(&mut folders).await);
        assert_eq!(folders.degraded(), None);
    }
}
