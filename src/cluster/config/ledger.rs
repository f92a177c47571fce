//! What the documents of a source come to: each object once, in its last good version, and a list of all that is not so.
//!
//! A *sheet* is what is written at one place: a file, or one object of an API server. What a sheet says of an object is a
//! *claim*; of several claims to one name the first by place and document is served, and one that is broken stands in
//! nobody's way but that of the version that was served from its place: there that version stays.
//!
//! It is pure, and what it comes to depends on the last sheets alone, but for what stays.

mod claims;
mod sheet;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::entry::{Change, Entry, Id};
use super::judged::at;
use super::plain::Plain;
use super::report::{Report, State};
use crate::tree::shown;
use claims::{At, Claims};
pub(super) use sheet::{Claim, Problem};
use sheet::{Kept, Sheet, Standing};

/// Objects of which it is kept what is wrong with them, of 500 bytes each, and shown again.
const MOST_EXPLAINED: usize = 10_000;

#[derive(Debug)]
struct Served {
    entry: Entry,
    /// Whose claim it is, or was.
    place: Arc<str>,
    uid: Box<str>,
    stale: bool,
}

#[derive(Debug, Default)]
struct Slot {
    claims: Claims,
    served: Option<Served>,
}

/// All of a source.
#[derive(Debug)]
pub(super) struct Ledger {
    /// In front of every place, when it is shown.
    root: String,
    /// Objects at most.
    most: usize,
    sheets: BTreeMap<Arc<str>, Sheet>,
    slots: BTreeMap<Id, Slot>,
    claims: usize,
    /// Those of which something is said.
    explained: usize,
    served: usize,
    problems: BTreeSet<Problem>,
    /// Names whose claims are not what they were.
    touched: BTreeSet<Id>,
    /// Places of which something is to be said.
    noted: BTreeSet<Arc<str>>,
    report: Arc<Report>,
    is_reported: bool,
}

impl Ledger {
    pub(super) fn new(root: String, most: usize) -> Self {
        Self {
            root,
            most,
            sheets: BTreeMap::new(),
            slots: BTreeMap::new(),
            claims: 0,
            explained: 0,
            served: 0,
            problems: BTreeSet::new(),
            touched: BTreeSet::new(),
            noted: BTreeSet::new(),
            report: Arc::default(),
            is_reported: true,
        }
    }

    /// These are all objects at a place, in order.
    pub(super) fn put(&mut self, place: &Arc<str>, mut claims: Vec<Claim>) {
        self.take_off(place);
        let room = self.most.saturating_sub(self.claims);
        let left_out = claims.get(room).map(|first| first.line);
        let left_out = left_out.map(|line| (line, claims.len().saturating_sub(room)));
        claims.truncate(room);
        self.claims = self.claims.saturating_add(claims.len());
        for (index, claim) in claims.iter().enumerate() {
            let id = &claim.judged.id;
            if id.is_whole() {
                let slot = self.slots.entry(id.clone()).or_default();
                slot.claims.insert((Arc::clone(place), index));
                self.touched.insert(id.clone());
            }
        }
        let mut room = MOST_EXPLAINED.saturating_sub(self.explained);
        let kept = claims.into_iter().map(|claim| {
            let explained = room > 0;
            room = room.saturating_sub(usize::from(!claim.judged.findings.is_empty()));
            Kept::new(claim, explained)
        });
        let sheet = Sheet {
            claims: kept.collect(),
            unread: None,
            left_out,
        };
        self.explained = self.explained.saturating_add(sheet.explained());
        self.sheets.insert(Arc::clone(place), sheet);
        self.note(place);
    }

    /// Nothing is written there any more.
    pub(super) fn remove(&mut self, place: &Arc<str>) {
        self.take_off(place);
        self.is_reported &= !self.noted.remove(place);
    }

    fn take_off(&mut self, place: &Arc<str>) {
        let Some(sheet) = self.sheets.remove(place) else {
            return;
        };
        self.claims = self.claims.saturating_sub(sheet.claims.len());
        self.explained = self.explained.saturating_sub(sheet.explained());
        for (index, claim) in sheet.claims.into_iter().enumerate() {
            if let Some(slot) = self.slots.get_mut(&claim.id) {
                slot.claims.remove(&(Arc::clone(place), index));
                self.touched.insert(claim.id);
            }
        }
    }

    /// What is written there cannot be read: all that it said stays.
    pub(super) fn unread(&mut self, place: &Arc<str>, line: usize, cause: String) {
        let sheet = self.sheets.entry(Arc::clone(place)).or_default();
        let unread = Some((line, cause));
        if sheet.unread != unread {
            sheet.unread = unread;
            self.note(place);
        }
    }

    /// All that is wrong beside objects and files.
    pub(super) fn problems(&mut self, problems: BTreeSet<Problem>) {
        self.is_reported &= self.problems == problems;
        self.problems = problems;
    }

    /// Whether something is written at a place.
    pub(super) fn is_there(&self, place: &str) -> bool {
        self.sheets.contains_key(place)
    }

    /// All places whose names begin so.
    pub(super) fn below(&self, prefix: &str) -> Vec<Arc<str>> {
        let from = self
            .sheets
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let below = from.take_while(|(place, _)| place.starts_with(prefix));
        below.map(|(place, _)| Arc::clone(place)).collect()
    }

    /// Whether something there was too much, and no longer is: it should be put again.
    pub(super) fn has_room(&self, place: &str) -> bool {
        let sheet = self.sheets.get(place);
        self.claims < self.most && sheet.is_some_and(|sheet| sheet.left_out.is_some())
    }

    fn note(&mut self, place: &Arc<str>) {
        let is_noted = self.sheets.get(place).is_some_and(Sheet::is_noted);
        self.is_reported &= !(is_noted || self.noted.contains(place));
        if is_noted {
            self.noted.insert(Arc::clone(place));
        } else {
            self.noted.remove(place);
        }
    }

    /// What is different since this was last asked, by name.
    pub(super) fn settle(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut places = BTreeSet::new();
        for id in std::mem::take(&mut self.touched) {
            let name = (id.collection == Plain::Ingress.collection()).then(|| id.name.clone());
            changes.extend(self.decide(id, &mut places));
            if let Some(name) = name {
                // It may be at another place, or line.
                let known = self.report.ingresses.get(&name);
                self.is_reported &= known == self.ingress(&name).as_ref();
            }
        }
        for place in places {
            self.note(&place);
        }
        self.is_reported &= self.report.served == self.served;
        changes
    }

    fn claim(&self, (place, index): &At) -> Option<&Kept> {
        self.sheets.get(place)?.claims.get(*index)
    }

    /// Who of those who claim a name has it.
    fn decide(&mut self, id: Id, places: &mut BTreeSet<Arc<str>>) -> Option<Change> {
        let mut slot = self.slots.remove(&id)?;
        let before = slot.served.take();
        let next = self.next(&slot.claims, before.as_ref());
        self.stand(&slot.claims, next.as_ref());
        places.extend(slot.claims.iter().map(|(place, _)| Arc::clone(place)));
        self.served = self
            .served
            .saturating_sub(usize::from(before.is_some()))
            .saturating_add(usize::from(next.is_some()));
        let change = match (&before, &next) {
            (Some(before), Some(next)) if before.entry.is(&next.entry) => None,
            (_, Some(next)) => Some(Change::Set(id.clone(), next.entry.clone())),
            (Some(_), None) => Some(Change::Gone(id.clone())),
            (None, None) => None,
        };
        slot.served = next;
        if !slot.claims.is_empty() {
            self.slots.insert(id, slot);
        }
        change
    }

    fn next(&self, claims: &Claims, before: Option<&Served>) -> Option<Served> {
        let all = || {
            claims
                .iter()
                .filter_map(|key| Some((key, self.claim(key)?)))
        };
        let mut good = all().filter_map(|(key, claim)| Some((key, claim, claim.entry.as_ref()?)));
        let good = good.next();
        let (first, broken) = all()
            .next()
            .filter(|(_, claim)| claim.entry.is_none())
            .unzip();
        if let (Some(before), Some(((first, _), broken))) = (before, first.zip(broken)) {
            // What is deleted is gone; what is broken, where it was served from, is not.
            let mut its = all().filter(|((place, _), _)| *place == before.place);
            let first_of_its = its.next();
            let is_its = first_of_its.is_some()
                && its
                    .chain(first_of_its)
                    .all(|(_, claim)| claim.entry.is_none());
            if (good.is_none() || is_its) && broken.uid == before.uid {
                let place = if is_its { &before.place } else { first };
                return Some(Served {
                    entry: before.entry.clone(),
                    place: Arc::clone(place),
                    uid: before.uid.clone(),
                    stale: true,
                });
            }
        }
        let ((place, _), claim, entry) = good?;
        // What is equal stays the one that others hold already.
        let same = before.filter(|before| before.entry == *entry);
        Some(Served {
            entry: same.map_or(entry, |before| &before.entry).clone(),
            place: Arc::clone(place),
            uid: claim.uid.clone(),
            stale: false,
        })
    }

    /// Tells all who claim a name what has become of it.
    fn stand(&mut self, claims: &Claims, served: Option<&Served>) {
        let has_it = |key: &&At| {
            let claim = self.claim(key);
            claim.zip(served).is_some_and(|(claim, served)| {
                served.place == key.0 && claim.entry.is_none() == served.stale
            })
        };
        let holder = claims.iter().find(has_it);
        let line = holder
            .and_then(|key| self.claim(key))
            .map(|claim| claim.line);
        let origin = holder
            .zip(line)
            .map(|((place, _), line)| self.origin(place, line));
        let broken = match served {
            Some(served) if served.stale => State::Stale,
            Some(_) | None => State::Refused,
        };
        for key in claims.iter() {
            let sheet = self.sheets.get_mut(&key.0);
            let Some(claim) = sheet.and_then(|sheet| sheet.claims.get_mut(key.1)) else {
                continue;
            };
            claim.standing = if claim.entry.is_none() {
                Standing::Rejected(broken)
            } else if holder == Some(key) {
                claim.entry = served.map(|served| served.entry.clone());
                Standing::Served
            } else {
                Standing::Duplicate(origin.clone().unwrap_or_default())
            };
        }
    }

    /// All that is served, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Id, &Entry)> {
        let all = self.slots.iter();
        all.filter_map(|(id, slot)| Some((id, &slot.served.as_ref()?.entry)))
    }

    /// What is to be said of it; the same pointer as before where nothing is new.
    pub(super) fn report(&mut self) -> Arc<Report> {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.report = Arc::new(self.reported());
        }
        Arc::clone(&self.report)
    }

    fn reported(&self) -> Report {
        let mut report = Report {
            served: self.served,
            ingresses: Arc::new(self.ingresses()),
            ..Report::default()
        };
        for problem in &self.problems {
            let origin = self.origin(&problem.place, 0);
            report.unnamed(origin, problem.state, &problem.cause);
        }
        let mut more = 0_usize;
        for place in &self.noted {
            let Some(sheet) = self.sheets.get(place) else {
                continue;
            };
            if let Some((line, cause)) = &sheet.unread {
                report.unnamed(self.origin(place, *line), State::Stale, cause);
            }
            for claim in &sheet.claims {
                if claim.is_unexplained() {
                    more = more.saturating_add(1);
                    continue;
                }
                claim.report(&mut report, |line| self.origin(place, line));
            }
            if let Some((line, count)) = sheet.left_out {
                let cause = format!("more than {} objects: {count} are left out", self.most);
                report.unnamed(self.origin(place, line), State::Refused, &cause);
            }
        }
        if more > 0 {
            let cause =
                format!("and {more} more objects are refused: validate the files to see why");
            report.unnamed(self.origin("", 0), State::Refused, &cause);
            // First, because of so many only the first are shown.
            report.rejected.rotate_right(1);
        }
        report
    }

    /// Where each Ingress is that is served.
    fn ingresses(&self) -> BTreeMap<Arc<str>, Box<str>> {
        let collection = Plain::Ingress.collection();
        let first = Id {
            collection,
            ..Id::default()
        };
        let slots = self.slots.range(first..);
        let slots = slots.take_while(|(id, _)| id.collection == collection);
        let places = slots.filter_map(|(id, slot)| Some((Arc::clone(&id.name), self.at(slot)?)));
        places.collect()
    }

    fn ingress(&self, name: &Arc<str>) -> Option<Box<str>> {
        let id = Id {
            collection: Plain::Ingress.collection(),
            name: Arc::clone(name),
        };
        self.at(self.slots.get(&id)?)
    }

    /// Where what is served is written.
    fn at(&self, slot: &Slot) -> Option<Box<str>> {
        let place = &slot.served.as_ref()?.place;
        let mut claims = slot.claims.iter().filter(|(at, _)| at == place);
        let line = self.claim(claims.next()?)?.line;
        Some(self.origin(place, line))
    }

    fn origin(&self, place: &str, line: usize) -> Box<str> {
        let root = &self.root;
        let place = match (root.is_empty(), place.is_empty()) {
            (true, _) => place.to_owned(),
            (false, true) => root.clone(),
            (false, false) => format!("{}/{place}", root.trim_end_matches('/')),
        };
        at(&shown(&place), line).into()
    }
}

#[cfg(test)]
mod tests;
