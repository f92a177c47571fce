//! A directory, or one file: read on a thread of its own, and watched here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::counted;
use sources::catalogue::{Entry, EntryChange};
use sources::directory::{Directory, DirectoryScan};
use sources::kubernetes;
use tokio::sync::mpsc;
use tracing::info;

use super::{ObjectUpdate, updates};
use crate::exit::Failure;
use crate::file;
use crate::galley::engine::{GalleyEngine, SourceEvent};
use crate::galley::processing::usable;
use crate::shared::{LastReport, RuleUpdate};
use crate::watch::{DEBOUNCE, DirectoryFollower, DirectoryReader, Scan};

/// A directory, or one file.
pub(crate) struct FileSource {
    path: PathBuf,
    last_report: LastReport,
    lost: bool,
    engine: Arc<GalleyEngine>,
    /// The channel to another role of the process, which acts on the objects.
    rules: Option<mpsc::Sender<RuleUpdate>>,
}

/// The result of a scan, ready to be emitted.
struct FoundObjects {
    look: DirectoryScan,
    changes: Vec<ObjectUpdate>,
    /// The changes are all objects.
    whole: bool,
}

/// A directory whose changes are converted as they are read.
struct ObjectReader {
    directory: Directory,
    /// The other role gets the changes unconverted.
    shares: bool,
}

impl DirectoryReader for ObjectReader {
    type Found = FoundObjects;

    fn scan(&mut self, is_first: bool) -> io::Result<Scan<FoundObjects>> {
        let mut look = self.directory.scan()?;
        let changes = match self.shares {
            true => updates(look.changes.iter().map(without_created).collect()),
            false => updates(std::mem::take(&mut look.changes)),
        };
        Ok(Scan {
            folders: std::mem::take(&mut look.folders),
            hangs: look.hangs,
            found: FoundObjects {
                look,
                changes,
                whole: is_first,
            },
        })
    }

    fn forget_stamps(&mut self) {
        self.directory.forget_stamps();
    }
}

/// Resources of files have no creation time (galley.md §8): it is for the other role alone.
fn without_created(change: &EntryChange) -> EntryChange {
    match change {
        EntryChange::Set(id, Entry::Object { object, .. }, origin) => {
            let (object, created) = (Arc::clone(object), None);
            EntryChange::Set(
                id.clone(),
                Entry::Object { object, created },
                origin.clone(),
            )
        }
        EntryChange::Set(..) | EntryChange::Moved(..) | EntryChange::Gone(_) => change.clone(),
    }
}

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
            last_report: LastReport::default(),
            lost: false,
            engine,
            rules,
        })
    }

    /// Sends all objects and then their changes, for ever. Without `watches` files are read again only when that is requested.
    pub(crate) async fn follow(mut self, watches: bool) {
        self.engine.connected().await;
        let (path, shares) = (self.path.clone(), self.rules.is_some());
        let opened = move || ObjectReader {
            directory: opened(&path, shares),
            shares,
        };
        let debounce = watches.then_some(DEBOUNCE);
        let mut directory = DirectoryFollower::new(&self.path, debounce, opened).await;
        loop {
            match directory.scan().await {
                Ok(objects) => self.emit(objects).await,
                Err(cause) => {
                    self.lost = true;
                    self.engine.set_stale(Some(cause.to_string()));
                }
            }
            directory.due().await;
        }
    }

    async fn emit(&mut self, objects: FoundObjects) {
        let FoundObjects {
            look,
            changes,
            whole,
        } = objects;
        // Its last objects were served meanwhile.
        if std::mem::take(&mut self.lost) {
            self.engine.set_stale(None);
        }
        let is_new = self.last_report.log(&look.report);
        let report = is_new.then(|| Arc::clone(self.last_report.redacted()));
        let is_news = whole || report.is_some() || !changes.is_empty();
        if is_news {
            if whole {
                let (files, path) = (counted(look.files, "file"), self.path.display());
                info!(
                    "read {files} of {path}: {}",
                    counted(changes.len(), "object")
                );
            }
            let event = SourceEvent {
                changes,
                whole,
                complete: true,
                report,
            };
            self.engine.emit(event).await;
        }
        // An object that has only moved is news to the other role: it shows where.
        if let Some(rules) = &self.rules
            && (is_news || !look.changes.is_empty())
        {
            let update = RuleUpdate {
                changes: look.changes,
                is_whole: whole,
                report: Arc::clone(self.last_report.redacted()),
                is_complete: true,
            };
            // Only the end of the process ends the receiver: a panic of it is one.
            let _sent = rules.send(update).await;
        }
    }
}

/// Opens a directory, without reading it. If services are made of its objects, those are kept whole.
fn opened(path: &Path, makes_services: bool) -> Directory {
    let both = |kind, json: &str| {
        usable(kind, json)?;
        kubernetes::usable(kind, json)
    };
    match makes_services {
        true => Directory::new(path, both).with_all_fields(),
        false => Directory::new(path, usable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::galley::processing::TransformInput;

    /// The older of two rules with one host wins, as it does for `discovery --configDir`.
    #[test]
    fn creation_times_of_files_reach_the_other_role_alone() {
        let root = tempfile::tempdir().unwrap();
        let text = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, creationTimestamp: \
                    '1970-01-01T00:00:07Z'}\nspec: {host: a}\n";
        std::fs::write(root.path().join("a.yaml"), text).unwrap();
        let mut reader = ObjectReader {
            directory: opened(root.path(), true),
            shares: true,
        };
        let found = reader.scan(true).unwrap().found;
        let [EntryChange::Set(_, Entry::Object { created, .. }, _)] = &*found.look.changes else {
            panic!("{:?}", found.look.changes);
        };
        assert_eq!(*created, Some(7));
        let [(_, Some(TransformInput::Resource(resource)))] = &*found.changes else {
            panic!("{:?}", found.changes);
        };
        assert_eq!(resource.message().metadata.unwrap().create_time, None);
    }
}
