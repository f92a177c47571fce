//! The objects of a source, in the catalogue, with the report of objects that are not served as written.
//!
//! The catalogue is pure: apart from the versions that stay, its state depends on the last objects alone.

mod source_entry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::config::ServedInstead;
use api::model::ClusterId;

use super::core_kind::CoreKind;
use super::entry::{Entry, EntryChange, EntryId, UncheckedObject};
use super::report::ConfigReport;
use crate::catalogue::{Candidate, Catalogue, CatalogueChange, Content, Origin, Status};
use crate::tree::printable;
use source_entry::{KeptFindings, ObjectFindings, PlaceFindings};
pub(super) use source_entry::{SourceEntry, SourceProblem};

/// Objects whose findings are kept for the report, of 500 bytes each.
const MOST_EXPLAINED: usize = 10_000;

/// Objects by the files, or the objects of an API server, that they are written in.
#[derive(Debug)]
struct ConfigObjects;

impl Content for ConfigObjects {
    type Place = Arc<str>;
    type Id = EntryId;
    type Version = ConfigVersion;
    type Findings = ObjectFindings;
}

/// The stored form of a valid object.
#[derive(Clone, Debug, PartialEq)]
enum ConfigVersion {
    Entry(Entry),
    /// An object of a kind that nothing uses, as JSON.
    Unchecked(Arc<str>),
}

/// The part of an origin that all objects of a source share.
#[derive(Clone, Debug)]
pub(super) enum Root {
    /// Places are files below it.
    Directory(Box<str>),
    /// Places are `RESOURCE/KEY`.
    Cluster(ClusterId),
}

/// All objects of a source.
#[derive(Debug)]
pub(super) struct ConfigCatalogue {
    root: Root,
    /// Objects at most.
    most: usize,
    catalogue: Catalogue<ConfigObjects>,
    /// Findings about places themselves.
    findings: BTreeMap<Arc<str>, PlaceFindings>,
    entries: usize,
    /// The number of candidates that have errors, and of those that have warnings or notes.
    explained: usize,
    warned: usize,
    problems: BTreeSet<SourceProblem>,
    /// Places with findings.
    noted: BTreeSet<Arc<str>>,
    /// Objects of kinds that nothing uses.
    unchecked: Arc<BTreeMap<EntryId, UncheckedObject>>,
    report: Arc<ConfigReport>,
    is_reported: bool,
}

impl ConfigCatalogue {
    pub(super) fn new(root: Root, most: usize) -> Self {
        Self {
            root,
            most,
            catalogue: Catalogue::default(),
            findings: BTreeMap::new(),
            entries: 0,
            explained: 0,
            warned: 0,
            problems: BTreeSet::new(),
            noted: BTreeSet::new(),
            unchecked: Arc::default(),
            report: Arc::default(),
            is_reported: true,
        }
    }

    /// Replaces all objects of a place with these, in order.
    pub(super) fn put(&mut self, place: &Arc<str>, mut entries: Vec<SourceEntry>) {
        self.take_off(place);
        let room = self.most.saturating_sub(self.entries);
        let left_out = entries.get(room).map(|first| first.line);
        let left_out = left_out.map(|line| (line, entries.len().saturating_sub(room)));
        entries.truncate(room);
        self.entries = self.entries.saturating_add(entries.len());
        let mut room = MOST_EXPLAINED.saturating_sub(self.explained);
        let mut room_for_warnings = MOST_EXPLAINED.saturating_sub(self.warned);
        let file = self.origin(place, "");
        let candidates = entries.into_iter().map(|entry| {
            let kept = KeptFindings {
                errors: room > 0,
                warnings: room_for_warnings > 0,
            };
            room = room.saturating_sub(usize::from(entry.has_errors()));
            let has_warnings = usize::from(entry.has_warnings());
            room_for_warnings = room_for_warnings.saturating_sub(has_warnings);
            let origin = match entry.version.is_empty() {
                true => file.at(entry.line),
                false => self.origin(place, &entry.version),
            };
            entry.candidate(origin, kept)
        });
        let candidates: Vec<_> = candidates.collect();
        self.explained = self.explained.saturating_add(explained(&candidates));
        self.warned = self.warned.saturating_add(warned(&candidates));
        self.catalogue.put(place, candidates);
        if left_out.is_some() {
            let unread = None;
            self.findings
                .insert(Arc::clone(place), PlaceFindings { unread, left_out });
        }
        self.note(place);
    }

    /// Removes a place.
    pub(super) fn remove(&mut self, place: &Arc<str>) {
        self.take_off(place);
        self.is_reported &= !self.noted.remove(place);
    }

    fn take_off(&mut self, place: &Arc<str>) {
        self.findings.remove(place);
        let candidates = self.catalogue.remove(place);
        self.entries = self.entries.saturating_sub(candidates.len());
        self.explained = self.explained.saturating_sub(explained(&candidates));
        self.warned = self.warned.saturating_sub(warned(&candidates));
    }

    /// Marks a place as unreadable: its objects keep their last versions.
    pub(super) fn unread(&mut self, place: &Arc<str>, line: usize, cause: String) {
        let findings = self.findings.entry(Arc::clone(place)).or_default();
        let unread = Some((line, cause));
        if findings.unread != unread {
            findings.unread = unread;
            self.note(place);
        }
    }

    /// Replaces the problems that concern neither an object nor a file.
    pub(super) fn problems(&mut self, problems: BTreeSet<SourceProblem>) {
        self.is_reported &= self.problems == problems;
        self.problems = problems;
    }

    /// Returns true if a place is known.
    pub(super) fn is_there(&self, place: &str) -> bool {
        self.catalogue.at(place).is_some() || self.findings.contains_key(place)
    }

    /// Returns the places with this prefix.
    pub(super) fn below(&self, prefix: &str) -> Vec<Arc<str>> {
        let from = self.catalogue.places_from(prefix);
        let below = from.take_while(|place| place.starts_with(prefix));
        below.map(Arc::clone).collect()
    }

    /// Returns true if objects of this place were left out and now fit: the place should be put again.
    pub(super) fn has_room(&self, place: &str) -> bool {
        let findings = self.findings.get(place);
        self.entries < self.most && findings.is_some_and(|findings| findings.left_out.is_some())
    }

    fn note(&mut self, place: &Arc<str>) {
        let candidates = self.catalogue.at(place).unwrap_or_default();
        let is_noted =
            self.findings.contains_key(place) || candidates.iter().any(source_entry::is_noted);
        self.is_reported &= !(is_noted || self.noted.contains(place));
        if is_noted {
            self.noted.insert(Arc::clone(place));
        } else {
            self.noted.remove(place);
        }
    }

    /// Returns the changes since the last call, by name.
    pub(super) fn reconcile(&mut self) -> Vec<EntryChange> {
        let reconciled = self.catalogue.reconcile();
        for place in reconciled.places {
            self.note(&place);
        }
        let collection = CoreKind::Ingress.collection();
        let mut ingresses = reconciled.touched.into_iter();
        // An Ingress may have moved to another place, or line.
        self.is_reported &= ingresses.all(|id| {
            id.collection != collection || self.report.ingresses.get(&id.name) == self.at(&id)
        });
        let changes = reconciled.changes.into_iter();
        let changes = changes.filter_map(|change| self.entry_change(change));
        let changes = changes.collect();
        self.is_reported &= self.report.served == self.served();
        changes
    }

    /// Returns a change of an entry; takes in one of an object that nothing uses.
    fn entry_change(
        &mut self,
        change: CatalogueChange<EntryId, ConfigVersion>,
    ) -> Option<EntryChange> {
        let (id, unchecked) = match change {
            CatalogueChange::Set(id, ConfigVersion::Entry(entry), origin) => {
                return Some(EntryChange::Set(id, entry, origin));
            }
            CatalogueChange::Moved(id, ConfigVersion::Entry(entry), origin) => {
                return Some(EntryChange::Moved(id, entry, origin));
            }
            CatalogueChange::Gone(id) if !self.unchecked.contains_key(&id) => {
                return Some(EntryChange::Gone(id));
            }
            CatalogueChange::Set(id, ConfigVersion::Unchecked(json), origin)
            | CatalogueChange::Moved(id, ConfigVersion::Unchecked(json), origin) => {
                (id, Some(UncheckedObject { json, origin }))
            }
            CatalogueChange::Gone(id) => (id, None),
        };
        let all = Arc::make_mut(&mut self.unchecked);
        match unchecked {
            Some(object) => drop(all.insert(id, object)),
            None => drop(all.remove(&id)),
        }
        self.is_reported = false;
        None
    }

    /// The number of objects that are served.
    fn served(&self) -> usize {
        let unchecked = self.unchecked.len();
        self.catalogue.served().saturating_sub(unchecked)
    }

    /// Iterates over the served entries, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&EntryId, &Entry)> {
        let all = self.catalogue.all();
        all.filter_map(|(id, version)| match version {
            ConfigVersion::Entry(entry) => Some((id, entry)),
            ConfigVersion::Unchecked(_) => None,
        })
    }

    /// Returns the current report; the same pointer as before if it is unchanged.
    pub(super) fn report(&mut self) -> Arc<ConfigReport> {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.report = Arc::new(self.reported());
        }
        Arc::clone(&self.report)
    }

    fn reported(&self) -> ConfigReport {
        let mut report = ConfigReport {
            served: self.served(),
            ingresses: Arc::new(self.ingresses()),
            unchecked: Arc::clone(&self.unchecked),
            ..ConfigReport::default()
        };
        for problem in &self.problems {
            let origin = self.origin(&problem.place, "");
            report.unnamed(origin, problem.serving, &problem.cause);
        }
        let mut more = 0_usize;
        for place in &self.noted {
            let findings = self.findings.get(place);
            if let Some((line, cause)) = findings.and_then(|findings| findings.unread.as_ref()) {
                report.unnamed(self.origin(place, "").at(*line), ServedInstead::Old, cause);
            }
            for candidate in self.catalogue.at(place).unwrap_or_default() {
                if candidate.findings.is_unexplained() {
                    more = more.saturating_add(1);
                    continue;
                }
                let first = match &candidate.status {
                    Status::Shadowed { by } => self.catalogue.candidate(by),
                    Status::Accepted | Status::Refused { .. } => None,
                };
                report.add(candidate, first.map(|first| &first.origin));
            }
            if let Some((line, count)) = findings.and_then(|findings| findings.left_out) {
                let cause = format!("more than {} objects: {count} are left out", self.most);
                let origin = self.origin(place, "").at(line);
                report.unnamed(origin, ServedInstead::Nothing, &cause);
            }
        }
        if more > 0 {
            let cause =
                format!("and {more} more objects are refused: validate the files to see why");
            report.unnamed(self.origin("", ""), ServedInstead::Nothing, &cause);
            // The summary comes first, because pages cut a long list.
            report.rejected.rotate_right(1);
        }
        report
    }

    /// Returns the origin of each Ingress that is served.
    fn ingresses(&self) -> BTreeMap<Arc<str>, Origin> {
        let collection = CoreKind::Ingress.collection();
        let first = EntryId {
            collection,
            ..EntryId::default()
        };
        let ids = self.catalogue.ids_from(&first);
        let ids = ids.take_while(|id| id.collection == collection);
        let places = ids.filter_map(|id| Some((Arc::clone(&id.name), self.at(id)?.clone())));
        places.collect()
    }

    /// Returns the present origin of the candidate whose name's version is served.
    fn at(&self, id: &EntryId) -> Option<&Origin> {
        let (_, candidate) = self.catalogue.holder(id)?;
        Some(&candidate.origin)
    }

    /// Returns the origin of a place. `version`: of an object of an API server; empty if it is unknown.
    fn origin(&self, place: &str, version: &str) -> Origin {
        match &self.root {
            Root::Directory(root) => {
                let path = match place.is_empty() {
                    true => root.to_string(),
                    false => format!("{}/{place}", root.trim_end_matches('/')),
                };
                Origin::file(printable(&path))
            }
            Root::Cluster(cluster) => {
                let key = place.split_once('/').map_or(place, |(_, key)| key);
                Origin::of_cluster(cluster, &key, version)
            }
        }
    }
}

/// Counts the candidates that have errors.
fn explained(candidates: &[Candidate<ConfigObjects>]) -> usize {
    let explained = candidates.iter().filter(|one| one.findings.has_errors());
    explained.count()
}

/// Counts the candidates that have warnings or notes.
fn warned(candidates: &[Candidate<ConfigObjects>]) -> usize {
    let warned = candidates.iter().filter(|one| one.findings.has_warnings());
    warned.count()
}

#[cfg(test)]
mod tests;
