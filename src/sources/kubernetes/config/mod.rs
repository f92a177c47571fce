//! An API server as a source: its definitions of kinds are watched, and every kind of the mesh for as long as there is one.

mod analysis;
mod definitions;
mod object;
#[cfg(any(test, fuzzing))]
pub(super) mod properties;
mod settings;
mod status_repairs;
#[cfg(test)]
mod tests;
mod validating;
mod watched_object;
mod watching;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use api::config::collections::kind_of;
use api::config::{Finding, ServedInstead};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, yield_now};

use self::definitions::Definitions;
#[cfg(test)]
pub(crate) use self::object::check_as_stored;
use self::object::place;
pub use self::settings::{ServerUpdate, WatchSettings};
use self::status_repairs::Analysis;
use self::validating::PendingValidation;
use self::watched_object::WatchedObject;
use self::watching::{NumberedChanges, Watching};
use super::connect::Cluster;
use super::store::{self, Changes, Freshness, WithoutRoom};
use super::watcher::ServerRecovery;
use crate::catalogue::checked::CheckedObject;
use crate::catalogue::config_catalogue::ConfigCatalogue;
use crate::catalogue::entry_form::ConfigVersion;
use crate::catalogue::source_catalogue::{Root, SourceEntry, SourceProblem};
use crate::catalogue::{CoreKind, Entry, EntryId, MAX_OBJECTS};
use crate::kind::{ENDPOINT_SLICES, INGRESSES, Key, Resource};
use crate::offload::LONG_BYTES;
use crate::panics::RestartingTasks;

/// Objects, and bytes of their texts, that are validated before other tasks get their turn: 1 MB takes some 300 ms.
const SLICE: usize = 100;
const SLICE_BYTES: usize = LONG_BYTES;

/// The cause for an object that is left out.
const NO_ROOM: &str = "have no room for it: its namespace holds more of this kind than others do";

/// A kind that is watched.
#[derive(Debug)]
struct WatchedKind {
    resource: Resource,
    number: u64,
    task: AbortHandle,
    freshness: Freshness,
}

/// Changes of a kind that are not applied yet.
#[derive(Debug)]
struct Pending {
    collection: &'static str,
    resource: Resource,
    freshness: Freshness,
    changes: VecDeque<store::Change<WatchedObject>>,
}

/// The source.
#[derive(Debug)]
pub struct ConfigWatcher {
    cluster: Cluster,
    settings: WatchSettings,
    catalogue: ConfigCatalogue,
    definitions: Definitions,
    /// The first list of CustomResourceDefinitions had no kind of these; `None` before it.
    began_without_kinds: Option<bool>,
    /// By collection; the definitions are one without a name.
    kinds: BTreeMap<&'static str, WatchedKind>,
    number: u64,
    peers: ServerRecovery,
    /// Ended when this is dropped.
    tasks: RestartingTasks,
    to: mpsc::Sender<NumberedChanges>,
    updates: mpsc::Receiver<NumberedChanges>,
    pending: Option<Pending>,
    /// A long object that is validated on another thread; later changes wait.
    validating: Option<PendingValidation>,
    /// Pending status writes, if `analysis` is on.
    analysis: Option<Analysis>,
    synced: bool,
    checked: u64,
    broken: u64,
}

const DEFINITIONS: &str = "";

impl ConfigWatcher {
    /// Reads it from now on.
    #[must_use]
    pub fn start(cluster: Cluster, settings: WatchSettings) -> Self {
        // Room for one: changes that come meanwhile are received as one.
        let (to, updates) = mpsc::channel(1);
        let services = settings.services;
        let again = Some(settings.recheck_interval);
        let tasks = RestartingTasks::new(settings.pace.bounds());
        let root = Root::Cluster(settings.cluster.clone());
        let mut this = Self {
            cluster,
            settings,
            catalogue: ConfigCatalogue::new(root, MAX_OBJECTS),
            definitions: Definitions::default(),
            began_without_kinds: None,
            kinds: BTreeMap::new(),
            number: 0,
            peers: ServerRecovery::default(),
            tasks,
            to,
            updates,
            pending: None,
            validating: None,
            analysis: None,
            synced: false,
            checked: 0,
            broken: 0,
        };
        if this.settings.analysis {
            this.start_analysis();
        }
        this.watch(DEFINITIONS, definitions::RESOURCE, None, None);
        this.watch(CoreKind::Ingress.collection(), INGRESSES, again, None);
        if services {
            this.watch_services(again);
        }
        this
    }

    fn start_analysis(&mut self) {
        let analysis = Analysis::new(self.settings.pace.bounds());
        let (cluster, writes) = (self.cluster.clone(), analysis.writes());
        self.tasks
            .spawn("the writer of statuses".to_owned(), move || {
                analysis::run(cluster.clone(), writes.clone())
            });
        self.analysis = Some(analysis);
    }

    /// Watches the kinds that entries of Services are made of.
    fn watch_services(&mut self, again: Option<Duration>) {
        for (kind, name) in [
            (CoreKind::Service, "services"),
            (CoreKind::Pod, "pods"),
            (CoreKind::Node, "nodes"),
        ] {
            self.watch(kind.collection(), Resource::core(name), None, None);
        }
        let slices = CoreKind::EndpointSlice.collection();
        self.watch(slices, ENDPOINT_SLICES, again, None);
        let (endpoints, resource) = (
            CoreKind::Endpoints.collection(),
            Resource::core("endpoints"),
        );
        self.watch(endpoints, resource, None, Some(ENDPOINT_SLICES));
    }

    fn watch(
        &mut self,
        collection: &'static str,
        resource: Resource,
        again: Option<Duration>,
        unless: Option<Resource>,
    ) {
        self.number = self.number.saturating_add(1);
        let watching = Watching {
            cluster: self.cluster.clone(),
            resource,
            pace: self.settings.pace,
            peers: self.peers.clone(),
            again,
            unless,
            replaceable: resource == ENDPOINT_SLICES,
            with_status: self.settings.analysis && kind_of(collection).is_some(),
        };
        let (number, to) = (self.number, self.to.clone());
        let name = format!("the watch of {resource}");
        let task = self
            .tasks
            .spawn(name, move || watching.clone().run(number, to.clone()));
        let kind = WatchedKind {
            resource,
            number: self.number,
            task,
            freshness: Freshness::default(),
        };
        if let Some(before) = self.kinds.insert(collection, kind) {
            before.task.abort();
        }
    }

    /// Waits for a change of objects or of freshness. Cancel-safe.
    pub async fn changed(&mut self) -> ServerUpdate {
        loop {
            // Later changes wait for a long object, so that all are applied in the order of the watch.
            if let Some(validating) = &mut self.validating {
                let checked = validating.end().await;
                self.validated(checked);
            }
            if self.take_in() {
                return self.apply_queued();
            }
            // Other tasks get their turn between two slices.
            if self.pending.is_some() {
                yield_now().await;
                continue;
            }
            if let Some((number, changes)) = self.updates.recv().await {
                self.queue_changes(number, changes);
            }
        }
    }

    /// Iterates over the served entries, by name.
    pub fn all(&self) -> impl Iterator<Item = (&EntryId, &Entry)> {
        self.catalogue.all()
    }

    fn apply_queued(&mut self) -> ServerUpdate {
        let changes = self.catalogue.reconcile();
        let missing = self.kinds.values().filter(|kind| !kind.freshness.listed);
        let missing: Vec<_> = missing.map(|kind| kind.resource.to_string()).collect();
        // Once synced always synced: a kind that is installed later must not withhold all others.
        self.synced |= missing.is_empty();
        let stale = self
            .kinds
            .values()
            .filter_map(|kind| kind.freshness.stale.as_ref());
        let kinds = self.kinds.values();
        let kinds = kinds.map(|kind| (kind.resource.name, &kind.freshness));
        ServerUpdate {
            changes,
            report: self.catalogue.report(),
            synced: self.synced,
            missing,
            stale: stale.min_by_key(|(since, _)| *since).cloned(),
            left_out: WithoutRoom::of(kinds),
            checked: self.checked,
            broken: self.broken,
        }
    }

    /// Takes the changes of a watch; those of a watch that has ended are dropped.
    fn queue_changes(&mut self, number: u64, changes: Changes<WatchedObject>) {
        let mut kinds = self.kinds.iter();
        let Some((&collection, kind)) = kinds.find(|(_, kind)| kind.number == number) else {
            return;
        };
        let resource = kind.resource;
        let was_listed = kind.freshness.listed;
        let Changes {
            changes,
            whole,
            freshness,
        } = changes;
        // A kind that is not listed has no content yet: the objects of its other version stay. The first list of a watch is a
        // difference from an empty store: it is all there is.
        let is_all = freshness.listed && (whole || !was_listed);
        let there = is_all.then(|| {
            let keys = changes.iter().map(store::Change::key);
            // Unreadable objects keep their last version, which a store that has begun anew does not have.
            keys.chain(freshness.unreadable.keys()).cloned().collect()
        });
        let mut changes = VecDeque::from(changes);
        if collection == DEFINITIONS {
            self.define(std::mem::take(&mut changes), there.as_ref());
            if freshness.listed {
                self.warn_without_kinds();
            }
        } else if let Some(there) = there {
            let there = there.iter().map(|key| place(&resource, key)).collect();
            self.remove(&resource, &there);
        }
        self.pending = Some(Pending {
            collection,
            resource,
            freshness,
            changes,
        });
    }

    /// Removes all objects of a kind but these.
    fn remove(&mut self, resource: &Resource, but: &BTreeSet<Arc<str>>) {
        for gone in self.catalogue.objects.below(&format!("{resource}/")) {
            if !but.contains(&gone) {
                self.forget(&gone);
            }
        }
    }

    /// Removes an object and its pending messages.
    fn forget(&mut self, place: &Arc<str>) {
        self.catalogue.objects.remove(place);
        if let Some(analysis) = &mut self.analysis {
            analysis.forget(place);
        }
    }

    /// Says once that no kinds are installed, if the first list has none.
    fn warn_without_kinds(&mut self) {
        if self.began_without_kinds.is_none() {
            let is_so = self.definitions.resources().is_empty();
            self.began_without_kinds = Some(is_so);
            if is_so {
                tracing::warn!("{}", super::NO_KINDS);
            }
        }
    }

    /// Kinds come and go, and no other is touched by it. `there`: the definitions that stay; `None`: all but those that go.
    fn define(
        &mut self,
        changes: VecDeque<store::Change<WatchedObject>>,
        there: Option<&BTreeSet<Key>>,
    ) {
        if let Some(there) = there {
            for key in self.definitions.keys() {
                if !there.contains(&key) {
                    self.definitions.remove(&key);
                }
            }
        }
        for change in changes {
            match change {
                store::Change::Set(key, object) => {
                    if let Some(text) = object.take() {
                        self.definitions.set(key, &text);
                    }
                }
                store::Change::Gone(key) => self.definitions.remove(&key),
            }
        }
        let wanted = self.definitions.resources();
        let is_gone = |collection: &&&str| {
            kind_of(collection).is_some() && !wanted.contains_key(**collection)
        };
        let gone: Vec<_> = self.kinds.keys().filter(is_gone).copied().collect();
        for collection in gone {
            if let Some(kind) = self.kinds.remove(collection) {
                tracing::info!(
                    "{} is no longer a kind of {}",
                    kind.resource,
                    self.cluster.address()
                );
                kind.task.abort();
                self.remove(&kind.resource, &BTreeSet::new());
            }
        }
        // Places have no version in them: the objects of a kind that changes its version stay until the new
        // list.
        for (collection, resource) in wanted {
            if self
                .kinds
                .get(collection)
                .is_none_or(|kind| kind.resource != resource)
            {
                self.watch(collection, resource, None, None);
            }
        }
    }

    /// Validates a slice of the pending changes. Returns true if none is left.
    fn take_in(&mut self) -> bool {
        let Some(mut pending) = self.pending.take() else {
            return false;
        };
        let mut bytes = 0_usize;
        for _ in 0..SLICE {
            match pending.changes.pop_front() {
                Some(store::Change::Set(key, object)) => {
                    bytes = bytes.saturating_add(object.size());
                    self.set(&pending, key, object);
                    if bytes > SLICE_BYTES || self.validating.is_some() {
                        break;
                    }
                }
                Some(store::Change::Gone(key)) => {
                    self.forget(&place(&pending.resource, &key));
                }
                None => {
                    // The freshness counts once its changes are applied: `listed` must not come before the
                    // objects.
                    if let Some(kind) = self.kinds.get_mut(pending.collection) {
                        kind.freshness = pending.freshness;
                    }
                    self.catalogue.objects.problems(self.unstored());
                    return true;
                }
            }
        }
        self.pending = Some(pending);
        false
    }

    /// Objects that are no such thing, or have no room.
    fn unstored(&self) -> BTreeSet<SourceProblem> {
        let of = |kind: &WatchedKind| {
            let resource = kind.resource;
            let problem = |key: &Key, cause: String| {
                let place = place(&resource, key);
                SourceProblem {
                    serving: match self.catalogue.objects.is_there(&place) {
                        true => ServedInstead::Old,
                        false => ServedInstead::Nothing,
                    },
                    place: place.to_string(),
                    cause: format!("{resource} {cause}"),
                }
            };
            let unreadable = kind.freshness.unreadable.iter();
            let unreadable =
                unreadable.map(|(key, why)| problem(key, format!("cannot be read: {why}")));
            let left_out = kind.freshness.left_out.iter();
            let left_out = left_out.map(|key| problem(key, NO_ROOM.to_owned()));
            unreadable.chain(left_out).collect::<Vec<_>>()
        };
        self.kinds.values().flat_map(of).collect()
    }

    fn set(&mut self, of: &Pending, key: Key, object: Arc<WatchedObject>) {
        // The text is present once only: it was taken when the object was applied.
        let Some(text) = object.take() else {
            return;
        };
        let (collection, resource, usable) = (of.collection, of.resource, self.settings.usable);
        if let Some(analysis) = &mut self.analysis
            && analysis.repairs(resource, &key, &place(&resource, &key), &object)
        {
            return;
        }
        if text.len() <= LONG_BYTES {
            let checked = object::checked(collection, &resource, &key, &text, usable);
            return self.put(collection, resource, &key, &object, checked);
        }
        let checks = {
            let key = key.clone();
            move || object::checked(collection, &resource, &key, &text, usable)
        };
        self.validating = Some(PendingValidation::begin(
            collection, resource, key, object, checks,
        ));
    }

    /// Puts a long object, as it was validated.
    fn validated(&mut self, checked: CheckedObject<ConfigVersion>) {
        let Some(one) = self.validating.take() else {
            return;
        };
        // Its kind may have gone meanwhile.
        let kind = self.kinds.get(one.collection);
        if kind.is_some_and(|kind| kind.resource == one.resource) {
            self.put(one.collection, one.resource, &one.key, &one.object, checked);
        }
    }

    fn put(
        &mut self,
        collection: &'static str,
        resource: Resource,
        key: &Key,
        object: &WatchedObject,
        checked: CheckedObject<ConfigVersion>,
    ) {
        let place = place(&resource, key);
        if let Some(analysis) = &mut self.analysis
            // Only the mesh's kinds hold these messages: the status of an Ingress or a Pod is another
            // controller's.
            && kind_of(collection).is_some()
        {
            analysis.put(resource, key, &place, object, &checked.findings);
        }
        self.checked = self.checked.saturating_add(1);
        let is_broken = checked.findings.iter().any(Finding::is_error);
        self.broken = self.broken.saturating_add(u64::from(is_broken));
        let entry = SourceEntry {
            checked,
            uid: object.uid.clone(),
            generation: object.generation,
            version: object.version.clone(),
            ..SourceEntry::default()
        };
        self.catalogue.objects.put(&place, vec![entry]);
    }
}
