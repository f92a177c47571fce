//! Sources in this process, beside those that are dialled: a directory, and another role that reads rules for this one. Their
//! objects are checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcp::objects;
use mcp::sink::Changes;
use mcp::version::{Sum, member};
use sources::catalogue::{ConfigReport, Entry, EntryChange, EntryId, Message};
use sources::directory::{Directory, DirectoryScan};
use sources::kubernetes;
use tokio::select;
use tokio::sync::{Notify, mpsc};
use tracing::warn;

use crate::mcp::{Apply, ReceivedObject};
use crate::shared::{LastReport, RuleUpdate};
use crate::watch::{DEBOUNCE, DirectoryFollower, DirectoryReader, Scan};

/// The state of a source in this process.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) name: String,
    synced: AtomicBool,
    lost: Mutex<Option<Arc<str>>>,
    report: Mutex<Arc<ConfigReport>>,
    tally: Mutex<Tally>,
    /// All is to be told again.
    replays: Notify,
}

/// The number of objects of each collection, and its version: as a galley over the same directory would give them.
#[derive(Debug, Default)]
struct Tally {
    collections: BTreeMap<&'static str, (usize, Sum)>,
    members: BTreeMap<EntryId, Sum>,
    /// Objects of Kubernetes' own kinds, which are of no collection.
    core: BTreeSet<EntryId>,
}

impl Tally {
    /// Counts what is other now.
    fn take(&mut self, changes: &[EntryChange]) {
        for change in changes {
            match change {
                EntryChange::Set(id, Entry::Core { .. }, _) => drop(self.core.insert(id.clone())),
                EntryChange::Gone(id) => drop(self.core.remove(id)),
                EntryChange::Set(..) | EntryChange::Moved(..) => {}
            }
            let (id, new) = match change {
                EntryChange::Moved(..) => continue,
                EntryChange::Set(id, Entry::Object { object, .. }, _) => {
                    let resource = objects::resource(object, None);
                    (id, Some(member(&resource.name, resource.version)))
                }
                EntryChange::Gone(id) | EntryChange::Set(id, Entry::Core { .. }, _) => (id, None),
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
                // The version is a sum of hashes: a change costs one subtraction and one addition.
                *version = *version - old;
            }
            if let Some(new) = new {
                *count = count.saturating_add(1);
                *version = *version + new;
            }
        }
    }
}

/// A directory that the mesh configuration names.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// An API server has the objects of Kubernetes' own kinds: those of files are not used.
    pub(super) has_cluster: bool,
    /// The collections of the rules that are wanted of it.
    pub(super) collections: Vec<String>,
}

/// A directory whose objects are counted as they are read.
struct TalliedDirectory {
    directory: Directory,
    local: Arc<Local>,
}

/// The result of a scan, with what is told of objects that are not read.
struct FolderScan {
    scan: DirectoryScan,
    messages: BTreeSet<Message>,
}

impl TalliedDirectory {
    fn new(root: &Path, has_cluster: bool, local: &Arc<Local>) -> Self {
        let directory = Directory::new(root, kubernetes::usable);
        Self {
            directory: directory.with_services(has_cluster),
            local: Arc::clone(local),
        }
    }
}

impl DirectoryReader for TalliedDirectory {
    type Found = FolderScan;

    fn scan(&mut self, is_first: bool) -> io::Result<Scan<FolderScan>> {
        let mut scan = self.directory.scan()?;
        let mut tally = self.local.tally();
        if is_first {
            // A reader before this one may have found objects that are gone.
            let known = tally.members.keys().chain(&tally.core);
            let gone = gone(known, &scan.changes);
            scan.changes.extend(gone);
        }
        tally.take(&scan.changes);
        Ok(Scan {
            folders: std::mem::take(&mut scan.folders),
            hangs: scan.hangs,
            found: FolderScan {
                scan,
                messages: self.directory.messages().into_iter().collect(),
            },
        })
    }

    fn forget_stamps(&mut self) {
        self.directory.forget_stamps();
    }
}

impl Local {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            synced: AtomicBool::new(false),
            lost: Mutex::default(),
            report: Mutex::default(),
            tally: Mutex::default(),
            replays: Notify::new(),
        }
    }

    /// Replays all objects of a source that was set aside. The source is not synced until then.
    pub(super) fn replay(&self) {
        self.synced.store(false, Ordering::Relaxed);
        self.replays.notify_one();
    }

    /// The number of objects and the version of each collection that was read.
    pub(super) fn collections(&self) -> BTreeMap<&'static str, (usize, Sum)> {
        self.tally().collections.clone()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true once the source was read.
    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> Arc<ConfigReport> {
        Arc::clone(&self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_report(&self, report: &Arc<ConfigReport>) {
        let mut last = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Arc::clone(report);
    }

    /// Reads a directory, for ever.
    pub(super) async fn read(
        self: Arc<Self>,
        folder: Folder,
        mut objects: impl FnMut(&[EntryChange]),
        apply: Apply,
    ) {
        let Folder {
            path,
            has_cluster,
            collections,
        } = folder;
        let (local, root) = (Arc::clone(&self), path.clone());
        let opened = move || TalliedDirectory::new(&root, has_cluster, &local);
        let mut directory = DirectoryFollower::new(&path, Some(DEBOUNCE), opened).await;
        let (mut last, mut logged) = (LastReport::default(), BTreeSet::new());
        loop {
            match directory.scan().await {
                Ok(FolderScan { scan, messages }) => {
                    if last.log(&scan.report) {
                        self.set_report(last.redacted());
                    }
                    for message in messages.difference(&logged) {
                        warn!("{message}");
                    }
                    logged = messages;
                    self.mark_connected();
                    objects(&scan.changes);
                    self.take(&scan.changes, &collections, &apply);
                }
                Err(cause) => {
                    if self.mark_lost(&cause.to_string()) {
                        apply(&[]);
                    }
                }
            }
            directory.due().await;
        }
    }

    /// Hears another role's updates, until that role ends.
    pub(super) async fn receive_updates(
        self: Arc<Self>,
        mut updates: mpsc::Receiver<RuleUpdate>,
        mut objects: impl FnMut(&[EntryChange]),
        collections: Vec<String>,
        apply: Apply,
    ) {
        let mut by_entry: BTreeMap<EntryId, EntryChange> = BTreeMap::new();
        let mut was_complete = false;
        loop {
            let update = select! {
                // What is told next is a change of all.
                biased;
                () = self.replays.notified() => RuleUpdate {
                    changes: by_entry.values().cloned().collect(),
                    is_whole: false,
                    report: self.report(),
                    is_complete: was_complete,
                },
                update = updates.recv() => match update {
                    Some(update) => update,
                    None => return,
                },
            };
            let RuleUpdate {
                mut changes,
                is_whole,
                report,
                is_complete,
            } = update;
            if is_whole {
                changes.extend(gone(by_entry.keys(), &changes));
            }
            for change in &changes {
                match change {
                    EntryChange::Set(id, ..) => by_entry.insert(id.clone(), change.clone()),
                    EntryChange::Moved(id, entry, origin) => {
                        let now = EntryChange::Set(id.clone(), entry.clone(), origin.clone());
                        by_entry.insert(id.clone(), now)
                    }
                    EntryChange::Gone(id) => by_entry.remove(id),
                };
            }
            was_complete |= is_complete;
            self.set_report(&report);
            self.tally().take(&changes);
            objects(&changes);
            if is_complete {
                self.take(&changes, &collections, &apply);
            } else {
                apply(&by_collection(&changes, &collections));
            }
        }
    }

    /// The last changes of all that there is: it is complete from now on.
    fn take(&self, changes: &[EntryChange], collections: &[String], apply: &Apply) {
        // `apply` asks whether all is there. Nobody else asks meanwhile: all of this happens on the event loop.
        self.synced.store(true, Ordering::Relaxed);
        // Even nothing: it may be the last source that was missing, or objects of Kubernetes' own kinds have changed.
        apply(&by_collection(changes, collections));
    }

    /// The cause for which it cannot be read, since it was read last.
    pub(super) fn lost(&self) -> Option<Arc<str>> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.clone()
    }

    /// Returns true if it was not lost for this cause before.
    fn mark_lost(&self, cause: &str) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.replace(cause.into()).as_deref() != Some(cause)
    }

    fn mark_connected(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        *lost = None;
    }
}

/// The changes of the collections that are wanted.
fn by_collection(all: &[EntryChange], collections: &[String]) -> Vec<Changes<ReceivedObject>> {
    let mut changed: BTreeMap<&str, Changes<ReceivedObject>> = BTreeMap::new();
    let wanted: BTreeSet<_> = collections.iter().map(String::as_str).collect();
    for change in all {
        let (id, received) = match change {
            EntryChange::Set(id, Entry::Object { object, created }, origin)
            | EntryChange::Moved(id, Entry::Object { object, created }, origin) => {
                let received = ReceivedObject {
                    object: Arc::clone(object),
                    created: *created,
                    origin: Some(origin.clone()),
                };
                (id, Some(Arc::new(received)))
            }
            EntryChange::Gone(id) => (id, None),
            EntryChange::Set(_, Entry::Core { .. }, _)
            | EntryChange::Moved(_, Entry::Core { .. }, _) => continue,
        };
        if !wanted.contains(id.collection) {
            continue;
        }
        let changes = changed.entry(id.collection).or_insert_with(|| Changes {
            collection: id.collection.into(),
            ..Changes::default()
        });
        let name = Arc::clone(&id.name);
        match received {
            Some(received) => changes.set.push((name, received)),
            None => changes.removed.push(name),
        }
    }
    changed.into_values().collect()
}

/// Objects that were there and are not among all that there are.
fn gone<'a>(ids: impl Iterator<Item = &'a EntryId>, all: &[EntryChange]) -> Vec<EntryChange> {
    let there = all.iter().filter_map(|change| match change {
        EntryChange::Set(id, ..) | EntryChange::Moved(id, ..) => Some(id),
        EntryChange::Gone(_) => None,
    });
    let there: BTreeSet<_> = there.collect();
    let gone = ids.filter(|id| !there.contains(id));
    gone.cloned().map(EntryChange::Gone).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::address;
    use super::*;

    #[test]
    fn a_fresh_reader_tells_what_is_gone_since_another_one_read_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let local = Arc::new(Local::new(String::new()));
        for name in ["a", "b"] {
            let text = format!(
                "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: {name}}}\nspec: {{egress: [{{hosts: [./*]}}]}}\n"
            );
            std::fs::write(root.path().join(format!("{name}.yaml")), text).unwrap();
        }
        let read = || {
            let mut reader = TalliedDirectory::new(root.path(), false, &local);
            let changes = reader.scan(true).unwrap().found.scan.changes;
            let count = local.collections().values().map(|(count, _)| count).sum();
            let named = changes.iter().map(|change| match change {
                EntryChange::Set(id, ..) | EntryChange::Moved(id, ..) => format!("+{}", id.name),
                EntryChange::Gone(id) => format!("-{}", id.name),
            });
            (named.collect::<Vec<_>>().join(" "), count)
        };
        // Objects of Kubernetes' own kinds are of no collection, and go as others do.
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: c}}";
        std::fs::write(root.path().join("c.yaml"), pod).unwrap();
        assert_eq!(
            read(),
            ("+default/a +default/b +default/c".to_owned(), 2_usize)
        );
        std::fs::remove_file(root.path().join("b.yaml")).unwrap();
        std::fs::remove_file(root.path().join("c.yaml")).unwrap();
        assert_eq!(read(), ("+default/a -default/b -default/c".to_owned(), 1));
    }

    /// Each collection used to be applied alone, and counted all rules of all sources.
    #[test]
    fn a_scan_is_applied_at_once() {
        let root = tempfile::tempdir().unwrap();
        let kinds = [
            ("Sidecar", "{egress: [{hosts: [./*]}]}"),
            (
                "ServiceEntry",
                "{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
            ),
            ("DestinationRule", "{host: a.example}"),
        ];
        for (kind, spec) in kinds {
            let text = format!(
                "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n"
            );
            std::fs::write(root.path().join(format!("{kind}.yaml")), text).unwrap();
        }
        let local = Arc::new(Local::new(String::new()));
        let changes = || {
            let mut reader = TalliedDirectory::new(root.path(), false, &local);
            reader.scan(true).unwrap().found.scan.changes
        };
        let applied = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&applied);
        let apply: Apply = Arc::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let times = |changes: &[EntryChange]| {
            let before = applied.load(Ordering::Relaxed);
            local.take(changes, &address::collections(), &apply);
            applied.load(Ordering::Relaxed) - before
        };
        let all = changes();
        assert_eq!(all.len(), kinds.len());
        assert_eq!(times(&all), 1);
        assert!(local.is_synced());
        assert_eq!(
            times(&[]),
            1,
            "objects of Kubernetes' own kinds may be others"
        );
    }
}
