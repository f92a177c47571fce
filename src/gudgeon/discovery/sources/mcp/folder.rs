//! A directory as a source beside those that are dialled: the same objects, checked here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::config::{Change, Directory, Entry, Id, Look, Plain, Report};
use mcp::objects;
use mcp::sink::Changes;
use mcp::version::{Sum, member};
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::mcp::{Apply, ReceivedObject};
use crate::process;
use crate::secrets;
use crate::watch::PlaceWatcher;

/// Who writes a file often writes another: so long nothing may happen, and so long it is waited for in any case.
const QUIET: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_millis(500);
/// A look in any case, and where the kernel does not tell of changes.
const SELDOM: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    synced: AtomicBool,
    report: Mutex<Arc<Report>>,
    tally: Mutex<Tally>,
}

/// How many objects there are of each collection, and its version: what a galley over the same directory would give.
#[derive(Debug, Default)]
struct Tally {
    collections: BTreeMap<&'static str, (usize, Sum)>,
    members: BTreeMap<Id, Sum>,
}

impl Tally {
    /// Counts what is other now.
    fn take(&mut self, changes: &[Change]) {
        for change in changes {
            let (id, new) = match change {
                Change::Set(id, Entry::Object { object, .. }) => {
                    let resource = objects::resource(object, None);
                    (id, Some(member(&resource.name, resource.version)))
                }
                Change::Gone(id) | Change::Set(id, Entry::Plain { .. }) => (id, None),
            };
            let old = match new {
                Some(sum) => self.members.insert(id.clone(), sum),
                None => self.members.remove(id),
            };
            if old.is_none() && new.is_none() {
                continue;
            }
            let (count, version) = self.collections.entry(id.collection).or_default();
            if let Some(old) = old {
                *count = count.saturating_sub(1);
                *version = *version - old;
            }
            if let Some(new) = new {
                *count = count.saturating_add(1);
                *version = *version + new;
            }
        }
    }
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            synced: AtomicBool::new(false),
            report: Mutex::default(),
            tally: Mutex::default(),
        }
    }

    /// What there is of each collection that something was read of: how many objects, and which version.
    pub(super) fn collections(&self) -> BTreeMap<&'static str, (usize, Sum)> {
        self.tally().collections.clone()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was read once.
    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For ever.
    pub(super) async fn run(self: Arc<Self>, collections: Vec<String>, apply: Apply) {
        let mut watcher = PlaceWatcher::new(&self.path);
        watcher.follow_path().await;
        let mut again = process::again();
        let mut directory = Directory::new(&self.path, unused);
        let mut lost = false;
        loop {
            let this = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || {
                let look = directory.look();
                if let Ok(look) = &look {
                    this.tally().take(&look.changes);
                }
                (directory, look)
            });
            let Ok((back, look)) = looked.await else {
                return error!("cannot go on reading {}", self.path.display());
            };
            directory = back;
            let mut pause = SELDOM;
            match look {
                Ok(look) => {
                    if std::mem::take(&mut lost) {
                        info!("{} can be read again", self.path.display());
                    }
                    if look.hangs {
                        pause = OFTEN;
                    }
                    self.take(&look, &collections, &apply);
                    // What changed between the look and the watch.
                    if watcher.follow(look.folders).await {
                        continue;
                    }
                }
                Err(cause) => {
                    if !std::mem::replace(&mut lost, true) {
                        let path = self.path.display();
                        error!("cannot read {path}: {cause}: what it said last is served on");
                    }
                    pause = OFTEN;
                }
            }
            if watcher.degraded().is_some() {
                pause = OFTEN;
            }
            tokio::select! {
                Ok(()) = again.changed() => directory.forget_stamps(),
                () = watcher.changed() => watcher.settle(QUIET, MOST).await,
                () = sleep(pause) => watcher.follow_path().await,
            }
        }
    }

    fn take(&self, look: &Look, collections: &[String], apply: &Apply) {
        let shown = Arc::new(secrets::report(&look.report));
        let before = {
            let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *report, Arc::clone(&shown))
        };
        let (lines, more) = shown.news(&before);
        for line in lines {
            warn!("{line}");
        }
        if more > 0 {
            warn!("{}: and {more} more", self.path.display());
        }
        for collection in collections {
            let mut changes = Changes {
                collection: collection.as_str().into(),
                set: Vec::new(),
                removed: Vec::new(),
                broken: Vec::new(),
            };
            for change in &look.changes {
                match change {
                    Change::Set(id, Entry::Object { object, created })
                        if id.collection == collection =>
                    {
                        let taken = ReceivedObject {
                            object: Arc::clone(object),
                            created: *created,
                        };
                        changes.set.push((Arc::clone(&id.name), Arc::new(taken)));
                    }
                    Change::Gone(id) if id.collection == collection => {
                        changes.removed.push(Arc::clone(&id.name));
                    }
                    Change::Set(..) | Change::Gone(_) => {}
                }
            }
            if !changes.is_empty() {
                apply(&changes);
            }
        }
        // Not before: what is served begins with all of it.
        self.synced.store(true, Ordering::Relaxed);
        // Even nothing: it may be the last source that was missing.
        apply(&Changes {
            collection: "".into(),
            set: Vec::new(),
            removed: Vec::new(),
            broken: Vec::new(),
        });
    }
}

/// Objects of Kubernetes' own kinds are not configuration.
fn unused(_: Plain, _: &str) -> Result<(), String> {
    Ok(())
}
