//! Notices that a watched file may have changed, by inotify along its whole link chain. It has no policy and reads no file.
//!
//! Kubelet exchanges a whole volume by renaming one link, `..data`; other mounts chain links further. So every directory
//! that a path goes through is watched for the one name in it that matters, and after each such event the paths are walked
//! again. The kernel may refuse; then `degraded` has the reason, and the caller polls. Paths are walked on another thread,
//! with a deadline: a mount whose server is gone does not answer.

mod directory_follower;
mod folders;
mod follower;
mod link_chain;
mod path_watcher;
mod reload_loop;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::process;

pub(crate) use directory_follower::{DirectoryFollower, DirectoryReader, Scan};
pub(crate) use follower::Follower;
use path_watcher::PathWatcher;
pub(crate) use path_watcher::{DEBOUNCE, DebounceOptions};
pub(crate) use reload_loop::{ChangeSource, ReloadFiles, ReloadIntervals, run_reload_loop};

/// Room for 15 events with the longest names; the kernel never splits one.
const BUFFER_BYTES: usize = 4096;
/// Batches of events that are read before the paths are walked again, so that a busy directory does not hold that up.
const BATCHES: usize = 64;
/// The deadline for walking and watching all paths.
const DEADLINE: Duration = Duration::from_secs(1);
/// The warning about paths that were not walked in time.
const HANGS: &str = "the file system does not answer";

/// Names of the directories that are watched.
type WatchedNames = HashMap<WatchDescriptor, BTreeSet<OsString>>;

/// Watches some paths.
#[derive(Debug)]
pub(crate) struct Watcher {
    paths: Vec<PathBuf>,
    inotify: Option<AsyncFd<Inotify>>,
    watches: WatchedNames,
    degraded: Option<String>,
    /// The paths must be walked before waiting for events.
    stale: bool,
    /// A request to read all files again.
    again: watch::Receiver<u64>,
    aside: BlockingTask<(WatchedNames, Option<String>)>,
}

/// Work on the file system that is not waited for beyond the deadline. One piece of it is under way at a time.
#[derive(Debug)]
struct BlockingTask<T>(Option<JoinHandle<T>>);

impl<T: Send + 'static> BlockingTask<T> {
    const fn new() -> Self {
        Self(None)
    }

    /// Runs work on another thread; `None` if it hangs, or earlier work does. Cancel-safe.
    async fn run(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if let Some(before) = &mut self.0 {
            let _late = timeout(DEADLINE, before).await.ok()?;
        }
        let job = self.0.insert(spawn_blocking(work));
        let done = timeout(DEADLINE, job).await.ok()?;
        self.0 = None;
        done.ok()
    }
}

impl Watcher {
    /// Watches from the first `follow` or `changed` on; read the files after that, not before, and no change is missed.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            inotify: None,
            watches: HashMap::new(),
            degraded: None,
            stale: true,
            again: process::reload_requests(),
            aside: BlockingTask::new(),
        }
    }

    /// Returns the reason why changes may be missed; `None` if none are.
    pub(crate) fn degraded(&self) -> Option<&str> {
        self.degraded.as_deref()
    }

    /// Waits until a file or a directory on a path may have changed. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            if self.stale {
                // Events before the walk may have gone unseen, so the caller looks at the files.
                return self.follow().await;
            }
            let Some(inotify) = &mut self.inotify else {
                asked(&mut self.again).await;
                self.stale = true;
                continue;
            };
            let ready = tokio::select! {
                ready = inotify.readable_mut() => ready,
                () = asked(&mut self.again) => {
                    self.stale = true;
                    continue;
                }
            };
            let Ok(mut guard) = ready else {
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
                                // An event without a name is about the directory itself.
                                event.name.is_none_or(|name| names.contains(name))
                            });
                    }
                    Ok(relevant)
                });
                match read {
                    Ok(Ok(changed)) => relevant |= changed,
                    Ok(Err(cause)) if cause.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(Err(cause)) => {
                        self.degraded = Some(format!("cannot read inotify: {cause}"));
                        relevant = true;
                        break;
                    }
                    Err(_would_block) => break,
                }
            }
            self.stale = relevant;
        }
    }

    /// Walks all paths anew. May be dropped half-way.
    pub(crate) async fn follow(&mut self) {
        self.stale = true;
        if self.inotify.is_none() {
            match open() {
                Ok(inotify) => self.inotify = Some(inotify),
                Err(cause) => self.degraded = Some(format!("cannot start inotify: {cause}")),
            }
        }
        let Some(inotify) = &self.inotify else {
            // Without inotify there are no events to wait for: the caller polls.
            self.stale = false;
            return;
        };
        let (paths, kernel) = (self.paths.clone(), inotify.get_ref().watches());
        let walked = self.aside.run(move || watch_all(&paths, kernel)).await;
        // A future that is dropped above leaves `stale`, so the paths are walked again.
        self.stale = false;
        let Some((watches, refused)) = walked else {
            self.degraded = Some(HANGS.to_owned());
            return;
        };
        for (id, _) in self.watches.extract_if(|id, _| !watches.contains_key(id)) {
            // The kernel drops a watch by itself when its directory goes.
            let _gone = inotify.get_ref().watches().remove(id);
        }
        self.watches = watches;
        self.degraded = refused;
    }
}

async fn asked(again: &mut watch::Receiver<u64>) {
    if again.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Watches all directories on the paths; returns the reason if one was refused.
fn watch_all(paths: &[PathBuf], mut kernel: Watches) -> (WatchedNames, Option<String>) {
    let mut wanted: BTreeMap<PathBuf, BTreeSet<OsString>> = BTreeMap::new();
    for path in paths {
        link_chain::walk(path, &mut wanted);
    }
    let mut refused = None;
    let mut watches = WatchedNames::new();
    for (folder, names) in wanted {
        match kernel.add(&folder, mask()) {
            Ok(id) => watches.entry(id).or_default().extend(names),
            // The directory was removed while it was scanned: its parent reports that.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => refused = Some(refusal(&folder, &cause)),
        }
    }
    (watches, refused)
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
