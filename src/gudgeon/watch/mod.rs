//! Notices that a watched file may have changed, by inotify along its whole link chain. It knows no policy and reads nothing.
//!
//! Kubelet exchanges a whole volume by renaming one link, `..data`; other mounts chain links further. So every directory that
//! a path goes through is watched for the one name in it that matters, and after each such event the paths are walked again.
//! The kernel may refuse; then `degraded` says why, and the caller looks by itself.

mod chain;
mod folders;
mod look;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use tokio::io::unix::AsyncFd;

pub(crate) use folders::Folders;
pub(crate) use look::keep_looking;

/// Room for 15 events with the longest names; the kernel never splits one.
const BUFFER_BYTES: usize = 4096;
/// Batches of events that are read before the paths are walked again, so that a busy directory does not hold that up.
const BATCHES: usize = 64;

/// Watches some paths.
#[derive(Debug)]
pub(crate) struct Watcher {
    paths: Vec<PathBuf>,
    inotify: Option<AsyncFd<Inotify>>,
    watches: HashMap<WatchDescriptor, BTreeSet<OsString>>,
    degraded: Option<String>,
}

impl Watcher {
    /// Watches from now on; read the files after this, not before, and no change is missed.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let mut this = Self {
            paths,
            inotify: None,
            watches: HashMap::new(),
            degraded: None,
        };
        this.follow();
        this
    }

    /// Why changes may be missed; `None`: none is.
    pub(crate) fn degraded(&self) -> Option<&str> {
        self.degraded.as_deref()
    }

    /// Returns when something on a path may have changed. Safe to be dropped half-way.
    pub(crate) async fn changed(&mut self) {
        loop {
            let Some(inotify) = &mut self.inotify else {
                return std::future::pending().await;
            };
            let Ok(mut guard) = inotify.readable_mut().await else {
                self.degraded = Some("inotify has ended".to_owned());
                self.inotify = None;
                continue;
            };
            let mut relevant = false;
            let mut buffer = [0; BUFFER_BYTES];
            for _ in 0..BATCHES {
                let read = guard.try_io(|inotify| {
                    let events = inotify.get_mut().read_events(&mut buffer)?;
                    let mut relevant = false;
                    for event in events {
                        relevant |= event.mask.contains(EventMask::Q_OVERFLOW)
                            || self.watches.get(&event.wd).is_some_and(|names| {
                                event.name.is_none_or(|name| names.contains(name))
                            });
                    }
                    Ok(relevant)
                });
                match read {
                    Ok(Ok(seen)) => relevant |= seen,
                    Ok(Err(cause)) if cause.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(Err(cause)) => {
                        self.degraded = Some(format!("cannot read inotify: {cause}"));
                        relevant = true;
                        break;
                    }
                    Err(_would_block) => break,
                }
            }
            if relevant {
                self.follow();
                return;
            }
        }
    }

    /// Walks all paths anew.
    pub(crate) fn follow(&mut self) {
        let mut wanted: BTreeMap<PathBuf, BTreeSet<OsString>> = BTreeMap::new();
        for path in &self.paths {
            chain::walk(path, &mut wanted);
        }
        if self.inotify.is_none() {
            match open() {
                Ok(inotify) => self.inotify = Some(inotify),
                Err(cause) => self.degraded = Some(format!("cannot start inotify: {cause}")),
            }
        }
        let Some(inotify) = &self.inotify else { return };
        let mut refused = None;
        let mut watches: HashMap<WatchDescriptor, BTreeSet<OsString>> = HashMap::new();
        for (folder, names) in wanted {
            match inotify.get_ref().watches().add(&folder, mask()) {
                Ok(id) => watches.entry(id).or_default().extend(names),
                // It went while it was walked: its parent tells.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => refused = Some(refusal(&folder, &cause)),
            }
        }
        for (id, _) in self.watches.extract_if(|id, _| !watches.contains_key(id)) {
            // The kernel drops a watch by itself when its directory goes.
            let _gone = inotify.get_ref().watches().remove(id);
        }
        self.watches = watches;
        self.degraded = refused;
    }
}

fn open() -> io::Result<AsyncFd<Inotify>> {
    let inotify = Inotify::init()?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe; the descriptor is the instance's own and lives as long"
    )]
    AsyncFd::new(inotify)
}

fn refusal(folder: &Path, cause: &io::Error) -> String {
    format!("cannot watch {}: {cause}", folder.display())
}

fn mask() -> WatchMask {
    WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVED_FROM
        | WatchMask::MOVED_TO
        | WatchMask::MODIFY
        | WatchMask::CLOSE_WRITE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
}

#[cfg(test)]
mod tests;
