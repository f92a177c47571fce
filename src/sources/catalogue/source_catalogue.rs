//! The objects of a source, in the catalogue, with the report of objects that are not served as written.
//!
//! The catalogue is pure: apart from the versions that stay, its state depends on the last objects alone. It does not know in which
//! form its user stores the versions.

mod source_entry;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use api::config::ServedInstead;
use api::model::ClusterId;

use super::entry::EntryId;
use super::last_good::{Candidate, Catalogue, CatalogueChange, Content, Status};
use super::one_line::printable;
use super::origin::Origin;
use super::report::ConfigReport;
pub(crate) use source_entry::SourceProblem;
use source_entry::{KeptFindings, ObjectFindings, PlaceFindings, UnreadPlace};
pub(crate) use source_entry::{SourceEntry, duplicate_of};

/// Objects whose findings are kept for the report, of 500 bytes each.
pub(crate) const MAX_EXPLAINED: usize = 10_000;

/// The form in which valid objects are stored.
pub(crate) trait StoredForm: Clone + PartialEq + fmt::Debug {}

impl<V: Clone + PartialEq + fmt::Debug> StoredForm for V {}

/// Objects by the files, or the objects of an API server, that they are written in.
#[derive(Debug)]
pub(crate) struct InPlaces<V>(PhantomData<V>);

impl<V: StoredForm> Content for InPlaces<V> {
    type Location = Arc<str>;
    type Id = EntryId;
    type Version = V;
    type Findings = ObjectFindings;
}

/// The part of an origin that all objects of a source share.
#[derive(Clone, Debug)]
pub(crate) enum Root {
    /// Locations are files below it.
    Directory(Box<str>),
    /// Locations are `RESOURCE/KEY`.
    Cluster(ClusterId),
}

/// All objects of a source.
#[derive(Debug)]
pub(crate) struct SourceCatalogue<V: StoredForm> {
    root: Root,
    /// Objects at most.
    max: usize,
    catalogue: Catalogue<InPlaces<V>>,
    /// Findings about places themselves.
    findings: BTreeMap<Arc<str>, PlaceFindings>,
    entries: usize,
    /// The number of candidates that have errors, and of those that have warnings or notes.
    explained: usize,
    warned: usize,
    problems: BTreeSet<SourceProblem>,
    /// Locations with findings.
    noted: BTreeSet<Arc<str>>,
    is_reported: bool,
}

/// Changes since the last call of [`SourceCatalogue::reconcile`].
#[derive(Debug)]
pub(crate) struct SourceChanges<V> {
    /// By name.
    pub(crate) changes: Vec<CatalogueChange<EntryId, V>>,
    /// Names whose candidates have changed.
    pub(crate) touched: BTreeSet<EntryId>,
}

impl<V: StoredForm> SourceCatalogue<V> {
    pub(crate) fn new(root: Root, max: usize) -> Self {
        Self {
            root,
            max,
            catalogue: Catalogue::default(),
            findings: BTreeMap::new(),
            entries: 0,
            explained: 0,
            warned: 0,
            problems: BTreeSet::new(),
            noted: BTreeSet::new(),
            is_reported: true,
        }
    }

    /// Replaces all objects of a place with these, in order.
    pub(crate) fn put(&mut self, place: &Arc<str>, mut entries: Vec<SourceEntry<V>>) {
        self.take_off(place);
        let room = self.max.saturating_sub(self.entries);
        let left_out = entries.get(room).map(|first| first.line);
        let left_out = left_out.map(|line| (line, entries.len().saturating_sub(room)));
        entries.truncate(room);
        self.entries = self.entries.saturating_add(entries.len());
        let mut room = MAX_EXPLAINED.saturating_sub(self.explained);
        let mut room_for_warnings = MAX_EXPLAINED.saturating_sub(self.warned);
        let file = self.origin(place, "");
        let candidates = entries.into_iter().map(|entry| {
            let kept_findings = KeptFindings {
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
            entry.candidate(origin, kept_findings)
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
    pub(crate) fn remove(&mut self, place: &Arc<str>) {
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
    pub(crate) fn unread(&mut self, place: &Arc<str>, line: usize, cause: String) {
        let is_refused = false;
        self.mark_unread(
            place,
            UnreadPlace {
                line,
                cause,
                is_refused,
            },
        );
    }

    /// Marks a place as one that is never read; the objects of an earlier content stay.
    pub(crate) fn refuse(&mut self, place: &Arc<str>, cause: String) {
        let is_refused = true;
        self.mark_unread(
            place,
            UnreadPlace {
                line: 0,
                cause,
                is_refused,
            },
        );
    }

    fn mark_unread(&mut self, place: &Arc<str>, unread: UnreadPlace) {
        let findings = self.findings.entry(Arc::clone(place)).or_default();
        let unread = Some(unread);
        if findings.unread != unread {
            findings.unread = unread;
            self.note(place);
        }
    }

    /// Replaces the problems that concern neither an object nor a file.
    pub(crate) fn problems(&mut self, problems: BTreeSet<SourceProblem>) {
        self.is_reported &= self.problems == problems;
        self.problems = problems;
    }

    /// Returns true if a place is known.
    pub(crate) fn is_there(&self, place: &str) -> bool {
        self.catalogue.at(place).is_some() || self.findings.contains_key(place)
    }

    /// Returns the places with this prefix.
    pub(crate) fn below(&self, prefix: &str) -> Vec<Arc<str>> {
        let from = self.catalogue.places_from(prefix);
        let below = from.take_while(|place| place.starts_with(prefix));
        below.map(Arc::clone).collect()
    }

    /// Returns true if objects of this place were left out and now fit: the place should be put again.
    pub(crate) fn has_room(&self, place: &str) -> bool {
        let findings = self.findings.get(place);
        self.entries < self.max && findings.is_some_and(|findings| findings.left_out.is_some())
    }

    fn note(&mut self, place: &Arc<str>) {
        let candidates = self.catalogue.at(place).unwrap_or_default();
        let is_noted =
            self.findings.contains_key(place) || candidates.iter().any(source_entry::is_noted);
        // A place that no longer has findings changes the report as well.
        self.is_reported &= !(is_noted || self.noted.contains(place));
        if is_noted {
            self.noted.insert(Arc::clone(place));
        } else {
            self.noted.remove(place);
        }
    }

    /// Decides which version is served for each name whose candidates have changed.
    pub(crate) fn reconcile(&mut self) -> SourceChanges<V> {
        let reconciled = self.catalogue.reconcile();
        for place in reconciled.places {
            self.note(&place);
        }
        SourceChanges {
            changes: reconciled.changes,
            touched: reconciled.touched,
        }
    }

    /// The number of objects whose versions are served.
    pub(crate) const fn served(&self) -> usize {
        self.catalogue.served()
    }

    /// Iterates over the versions that are served, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&EntryId, &V)> {
        self.catalogue.all()
    }

    /// The version of an object that is served.
    pub(crate) fn get(&self, id: &EntryId) -> Option<&V> {
        self.catalogue.get(id)
    }

    /// The names from this one on, in order.
    pub(crate) fn ids_from<'a>(&'a self, first: &EntryId) -> impl Iterator<Item = &'a EntryId> {
        self.catalogue.ids_from(first)
    }

    /// Iterates over the candidates of all places, in order.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &Candidate<InPlaces<V>>> {
        self.catalogue.places().flat_map(|(_, all)| all)
    }

    /// The last good version that is served from the place of a refused candidate.
    pub(crate) fn served_for(&self, one: &Candidate<InPlaces<V>>) -> Option<&V> {
        let id = one.id.as_ref()?;
        let (_, holder) = self.catalogue.holder(id)?;
        // Several refused candidates may claim the name: only the holder stands for the old version.
        std::ptr::eq(holder, one).then(|| self.catalogue.get(id))?
    }

    /// The candidate that is served in the place of another.
    pub(crate) fn first_of(&self, one: &Candidate<InPlaces<V>>) -> Option<&Candidate<InPlaces<V>>> {
        match &one.status {
            Status::Shadowed { by } => self.catalogue.candidate(by),
            Status::Accepted | Status::Refused { .. } => None,
        }
    }

    /// Marks the report as changed, for changes that only the user of the catalogue knows.
    pub(crate) const fn touch_report(&mut self) {
        self.is_reported = false;
    }

    /// Returns the objects that are not served as written; `None`: they are those of the last call.
    pub(crate) fn new_report(&mut self) -> Option<ConfigReport> {
        let is_reported = std::mem::replace(&mut self.is_reported, true);
        (!is_reported).then(|| self.reported())
    }

    fn reported(&self) -> ConfigReport {
        let mut report = ConfigReport::default();
        for problem in &self.problems {
            let origin = self.origin(&problem.place, "");
            report.unnamed(origin, problem.serving, &problem.cause);
        }
        let mut more = 0_usize;
        for place in &self.noted {
            let findings = self.findings.get(place);
            let candidates = self.catalogue.at(place).unwrap_or_default();
            if let Some(unread) = findings.and_then(|findings| findings.unread.as_ref()) {
                let serving = match unread.is_refused && candidates.is_empty() {
                    true => ServedInstead::Nothing,
                    false => ServedInstead::Old,
                };
                let origin = self.origin(place, "").at(unread.line);
                report.unnamed(origin, serving, &unread.cause);
            }
            for candidate in candidates {
                if candidate.findings.is_unexplained() {
                    more = more.saturating_add(1);
                    continue;
                }
                let first = self.first_of(candidate);
                report.add(candidate, first.map(|first| &first.origin));
            }
            if let Some((line, count)) = findings.and_then(|findings| findings.left_out) {
                let cause = format!("more than {} objects: {count} are left out", self.max);
                let origin = self.origin(place, "").at(line);
                report.unnamed(origin, ServedInstead::Nothing, &cause);
            }
        }
        if more > 0 {
            let cause =
                format!("and {more} more objects are refused: validate the files to see why");
            report.unnamed(self.origin("", ""), ServedInstead::Nothing, &cause);
            // The summary comes first, because pages cut a long list.
            report.refused.rotate_right(1);
        }
        report
    }

    /// Returns the present origin of the candidate whose name's version is served.
    pub(crate) fn at(&self, id: &EntryId) -> Option<&Origin> {
        let (_, candidate) = self.catalogue.holder(id)?;
        Some(&candidate.origin)
    }

    /// Returns the origin of a place. `version`: of an object of an API server; empty if it is unknown.
    pub(crate) fn origin(&self, place: &str, version: &str) -> Origin {
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
fn explained<V: StoredForm>(candidates: &[Candidate<InPlaces<V>>]) -> usize {
    let explained = candidates.iter().filter(|one| one.findings.has_errors());
    explained.count()
}

/// Counts the candidates that have warnings or notes.
fn warned<V: StoredForm>(candidates: &[Candidate<InPlaces<V>>]) -> usize {
    let warned = candidates.iter().filter(|one| one.findings.has_warnings());
    warned.count()
}
