//! A directory, or one file: read on a thread of its own, and watched here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::counted;
use sources::config::{Directory, DirectoryScan};
use sources::registry::kubernetes;
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

use super::{LastReport, ObjectUpdate, updates};
use crate::exit::Failure;
use crate::file;
use crate::galley::engine::{GalleyEngine, SourceEvent};
use crate::galley::processing::usable;
use crate::shared::RuleUpdate;
use crate::watch::{DEBOUNCE, PlaceWatcher};

/// The interval of scans without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The interval if inotify fails, or nothing can be watched.
const DEGRADED_INTERVAL: Duration = Duration::from_secs(1);

/// A directory, or one file.
pub(crate) struct FileSource {
    path: PathBuf,
    directory: Directory,
    last_report: LastReport,
    /// The next scan sends all objects.
    whole: bool,
    lost: bool,
    /// A path below it does not answer.
    hangs: bool,
    engine: Arc<GalleyEngine>,
    /// The channel to another role of the process, which acts on the objects.
    rules: Option<mpsc::Sender<RuleUpdate>>,
}

/// The result of a scan, ready to be emitted.
type ScanResult = (
    Directory,
    std::io::Result<(DirectoryScan, Vec<ObjectUpdate>)>,
);

impl FileSource {
    /// # Errors
    /// The path does not exist.
    pub(crate) async fn new(
        path: &Path,
        engine: Arc<GalleyEngine>,
        rules: Option<mpsc::Sender<RuleUpdate>>,
    ) -> Result<Self, Failure> {
        file::is_there(path).await.map_err(|cause| {
            let path = path.display();
            // The role that acts on them has the flag then.
            let flag = if rules.is_some() {
                "configDir"
            } else {
                "configPath"
            };
            Failure::config(format!("cannot read --{flag} {path}: {cause}"))
        })?;
        Ok(Self {
            path: path.to_owned(),
            directory: opened(path, rules.is_some()),
            last_report: LastReport::default(),
            whole: true,
            lost: false,
            hangs: false,
            engine,
            rules,
        })
    }

    /// Sends all objects and then their changes, for ever. `again`: a signal to read all files again.
    pub(crate) async fn follow(mut self, watches: bool, mut again: watch::Receiver<u64>) {
        self.engine.connected();
        if !watches {
            loop {
                self = self.scan().await.0;
                if again.changed().await.is_err() {
                    return;
                }
                self.directory.forget_stamps();
            }
        }
        let mut watcher = PlaceWatcher::new(&self.path);
        watcher.follow_path().await;
        let mut warned = false;
        loop {
            let (this, found) = self.scan().await;
            self = this;
            // New directories may have changed between the scan and the watch.
            if let Some(found) = found
                && watcher.follow(found).await
            {
                continue;
            }
            let mut pause = if self.lost || self.hangs {
                DEGRADED_INTERVAL
            } else {
                POLL_INTERVAL
            };
            if let Some(why) = watcher.degraded() {
                pause = DEGRADED_INTERVAL;
                if !warned {
                    warn!("polling {} every second: {why}", self.path.display());
                    warned = true;
                }
            }
            tokio::select! {
                () = watcher.due(DEBOUNCE, pause) => {}
                asked = again.changed() => {
                    if asked.is_err() {
                        return;
                    }
                    self.directory.forget_stamps();
                }
            }
        }
    }

    /// Scans on a blocking thread, and sends the changes. Returns the directories to watch; `None` if the path cannot be
    /// read.
    async fn scan(mut self) -> (Self, Option<Vec<PathBuf>>) {
        let mut directory = self.directory;
        let (path, shares) = (self.path.clone(), self.rules.is_some());
        let read = tokio::task::spawn_blocking(move || -> ScanResult {
            let look = directory.scan().map(|mut look| {
                // The other role gets the changes unconverted.
                let changes = match shares {
                    true => updates(look.changes.clone()),
                    false => updates(std::mem::take(&mut look.changes)),
                };
                (look, changes)
            });
            (directory, look)
        });
        let result = match read.await {
            Ok((directory, result)) => {
                self.directory = directory;
                result
            }
            // A panic has lost the directory and its state.
            Err(cause) => {
                self.directory = opened(&path, shares);
                self.whole = true;
                Err(std::io::Error::other(cause))
            }
        };
        let found = match result {
            Ok((look, told)) => Some(self.emit(look, told).await),
            Err(cause) => {
                self.lose(&cause);
                None
            }
        };
        (self, found)
    }

    async fn emit(&mut self, look: DirectoryScan, changes: Vec<ObjectUpdate>) -> Vec<PathBuf> {
        if std::mem::take(&mut self.lost) {
            info!("{} can be read again", self.path.display());
            self.engine.set_stale(None);
        }
        self.hangs = look.hangs;
        let report = self.last_report.new_report(look.report);
        let whole = std::mem::take(&mut self.whole);
        let is_news = whole || report.is_some() || !changes.is_empty();
        if is_news {
            if whole {
                let (files, path) = (counted(look.files, "file"), self.path.display());
                info!(
                    "read {files} of {path}: {}",
                    counted(changes.len(), "object")
                );
            }
            self.engine.emit(SourceEvent {
                changes,
                whole,
                complete: true,
                report,
            });
        }
        // An object that has only moved is news to the other role: it shows where.
        if let Some(rules) = &self.rules
            && (is_news || !look.changes.is_empty())
        {
            let update = RuleUpdate {
                changes: look.changes,
                is_whole: whole,
                report: Arc::clone(&self.last_report.redacted),
                is_complete: true,
            };
            // The receiver may have ended.
            let _sent = rules.send(update).await;
        }
        look.folders
    }

    /// Marks the source as lost; its last objects are still served.
    fn lose(&mut self, cause: &std::io::Error) {
        if !self.lost {
            let path = self.path.display();
            error!("cannot read {path}: {cause}; serving the last good content");
        }
        self.lost = true;
        self.engine.set_stale(Some(cause.to_string()));
    }
}

/// Opens a directory, without reading it. If services are made of its objects, those are kept whole.
fn opened(path: &Path, makes_services: bool) -> Directory {
    let both = |kind, json: &str| {
        usable(kind, json)?;
        kubernetes::usable(kind, json)
    };
    match makes_services {
        true => Directory::new(path, both).with_whole_objects(),
        false => Directory::new(path, usable),
    }
}
