//! The catalogue of configuration: each object once, in its last good version, with the status of all candidates for its
//! name.
//!
//! A *place* is where objects are written: a file, or one object of an API server. An object at a place is a *candidate*; of
//! several candidates of one name the first by place and position is served. A refused candidate blocks no other place's, but
//! where the version that is served comes from its own place and no good one stands before it: that stays; and it stays where no place has a good one, so that
//! an object which moves and breaks at once is served on.
//!
//! The catalogue is pure: apart from the versions that stay, its state depends on the last candidates alone.
//!
//! [`Catalogue::reconcile`] returns the changes at one source, object by object. The changes of the mesh, as
//! [`Changes`](api::model::Changes), are those of the [`aggregate`](crate::aggregate), which merges the sources: a change at a
//! source changes nothing that is served while another source has the object, or while the source's configuration does not count;
//! and services and endpoints, which are merged of objects of several kinds, are objects of no catalogue.

mod locations;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

use super::Origin;
use api::config::ServedInstead;
use locations::Locations;

/// The types that a catalogue is generic over.
pub(crate) trait Content: fmt::Debug {
    type Location: Clone + Ord + fmt::Debug;
    type Id: Clone + Ord + fmt::Debug;
    /// The stored form of a valid object. Equal versions are the same to every reader of the changes.
    type Version: Clone + PartialEq + fmt::Debug;
    /// Findings about a candidate, for status pages and logs.
    type Findings: fmt::Debug;
}

/// A place, and the position there.
pub(crate) type CatalogueLocation<P> = (P, usize);

/// The result of validating a candidate and of resolving conflicts over its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status<P> {
    Accepted,
    Refused { serving: ServedInstead },
    Shadowed { by: CatalogueLocation<P> },
}

/// An object as it is written at a place.
#[derive(Debug)]
pub(crate) struct Candidate<C: Content> {
    /// `None` if the object's identity is unknown.
    pub(crate) id: Option<C::Id>,
    /// `metadata.uid`: distinguishes an object from an earlier one of the same name.
    pub(crate) uid: Box<str>,
    pub(crate) origin: Origin,
    /// `None`: it is refused.
    pub(crate) version: Option<C::Version>,
    pub(crate) findings: C::Findings,
    pub(crate) status: Status<C::Location>,
}

impl<C: Content> Candidate<C> {
    pub(crate) fn new(
        id: Option<C::Id>,
        origin: Origin,
        version: Option<C::Version>,
        findings: C::Findings,
    ) -> Self {
        let status = match version {
            Some(_) => Status::Accepted,
            None => Status::Refused {
                serving: ServedInstead::Nothing,
            },
        };
        Self {
            id,
            uid: Box::default(),
            origin,
            version,
            findings,
            status,
        }
    }
}

/// The version of an object that is served.
#[derive(Debug)]
struct ServedVersion<C: Content> {
    version: C::Version,
    /// The place of the candidate that this version comes from.
    place: C::Location,
    uid: Box<str>,
    /// The origin of this version: a refused one of the same place has another.
    origin: Origin,
    is_old: bool,
}

/// The candidates of one name, and the served version.
#[derive(Debug)]
struct Slot<C: Content> {
    places: Locations<C::Location>,
    served: Option<ServedVersion<C>>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogueChange<I, V> {
    /// New, or another than before.
    Set(I, V, Origin),
    /// The same version, of another origin: an object that has only another line.
    Moved(I, V, Origin),
    Gone(I),
}

/// Differences since the last call of [`Catalogue::reconcile`].
#[derive(Debug)]
pub(crate) struct Reconciled<C: Content> {
    /// By name.
    pub(crate) changes: Vec<CatalogueChange<C::Id, C::Version>>,
    /// Names whose candidates have changed.
    pub(crate) touched: BTreeSet<C::Id>,
    /// Locations of which a candidate may have another status.
    pub(crate) places: BTreeSet<C::Location>,
}

/// All objects of a source.
#[derive(Debug)]
pub(crate) struct Catalogue<C: Content> {
    places: BTreeMap<C::Location, Vec<Candidate<C>>>,
    slots: BTreeMap<C::Id, Slot<C>>,
    served: usize,
    touched: BTreeSet<C::Id>,
}

impl<C: Content> Default for Catalogue<C> {
    fn default() -> Self {
        Self {
            places: BTreeMap::new(),
            slots: BTreeMap::new(),
            served: 0,
            touched: BTreeSet::new(),
        }
    }
}

impl<C: Content> Catalogue<C> {
    /// Replaces all candidates of a place with these, in order.
    pub(crate) fn put(&mut self, place: &C::Location, candidates: Vec<Candidate<C>>) {
        self.remove(place);
        for (index, candidate) in candidates.iter().enumerate() {
            if let Some(id) = &candidate.id {
                let slot = self.slots.entry(id.clone()).or_insert_with(|| Slot {
                    places: Locations::default(),
                    served: None,
                });
                slot.places.insert((place.clone(), index));
                self.touched.insert(id.clone());
            }
        }
        self.places.insert(place.clone(), candidates);
    }

    /// Removes a place and returns its candidates.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, place: &Q) -> Vec<Candidate<C>>
    where
        C::Location: Borrow<Q>,
    {
        let Some((place, candidates)) = self.places.remove_entry(place) else {
            return Vec::new();
        };
        for (index, candidate) in candidates.iter().enumerate() {
            let slot = candidate.id.as_ref().and_then(|id| self.slots.get_mut(id));
            if let Some((slot, id)) = slot.zip(candidate.id.clone()) {
                slot.places.remove(&(place.clone(), index));
                self.touched.insert(id);
            }
        }
        candidates
    }

    /// Returns the candidates of a place; `None` if the place is unknown.
    pub(crate) fn at<Q: Ord + ?Sized>(&self, place: &Q) -> Option<&[Candidate<C>]>
    where
        C::Location: Borrow<Q>,
    {
        self.places.get(place).map(Vec::as_slice)
    }

    /// Iterates over the places with their candidates.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&C::Location, &[Candidate<C>])> {
        let places = self.places.iter();
        places.map(|(place, candidates)| (place, candidates.as_slice()))
    }

    /// The places from this one on, in order.
    pub(crate) fn places_from<Q: Ord + ?Sized>(
        &self,
        first: &Q,
    ) -> impl Iterator<Item = &C::Location>
    where
        C::Location: Borrow<Q>,
    {
        let from = (Bound::Included(first), Bound::Unbounded);
        self.places.range::<Q, _>(from).map(|(place, _)| place)
    }

    /// Iterates over the served versions, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&C::Id, &C::Version)> {
        let all = self.slots.iter();
        all.filter_map(|(id, slot)| Some((id, &slot.served.as_ref()?.version)))
    }

    /// The names from this one on, in order.
    pub(crate) fn ids_from<'a>(&'a self, first: &C::Id) -> impl Iterator<Item = &'a C::Id> {
        let slots = self.slots.range((Bound::Included(first), Bound::Unbounded));
        slots.map(|(id, _)| id)
    }

    /// The number of objects that are served.
    pub(crate) const fn served(&self) -> usize {
        self.served
    }

    /// The version of an object that is served.
    pub(crate) fn get(&self, id: &C::Id) -> Option<&C::Version> {
        Some(&self.slots.get(id)?.served.as_ref()?.version)
    }

    /// The place of the version that is served, and the first candidate of its name there.
    pub(crate) fn holder(&self, id: &C::Id) -> Option<(&C::Location, &Candidate<C>)> {
        let slot = self.slots.get(id)?;
        let place = &slot.served.as_ref()?.place;
        let at = slot.places.iter().find(|(at, _)| at == place)?;
        Some((place, self.candidate(at)?))
    }

    /// A candidate.
    pub(crate) fn candidate(
        &self,
        (place, index): &CatalogueLocation<C::Location>,
    ) -> Option<&Candidate<C>> {
        self.places.get(place)?.get(*index)
    }

    /// Decides which version is served for each name whose candidates have changed.
    pub(crate) fn reconcile(&mut self) -> Reconciled<C> {
        let mut reconciled = Reconciled {
            changes: Vec::new(),
            touched: std::mem::take(&mut self.touched),
            places: BTreeSet::new(),
        };
        for id in &reconciled.touched {
            reconciled
                .changes
                .extend(self.decide(id, &mut reconciled.places));
        }
        reconciled
    }

    /// Decides which candidate of a name is served, and returns the change if there is one.
    fn decide(
        &mut self,
        id: &C::Id,
        places: &mut BTreeSet<C::Location>,
    ) -> Option<CatalogueChange<C::Id, C::Version>> {
        // The slot leaves the map while `next` and `mark` borrow the catalogue, and returns below with its
        // candidates.
        let mut slot = self.slots.remove(id)?;
        let before = slot.served.take();
        let (next, is_change) = self.next(&slot.places, before.as_ref()).unzip();
        self.mark(&slot.places, next.as_ref());
        places.extend(slot.places.iter().map(|(place, _)| place.clone()));
        self.served = self
            .served
            .saturating_sub(usize::from(before.is_some()))
            .saturating_add(usize::from(next.is_some()));
        let change = match (&next, before) {
            (Some(next), before) => {
                let (version, origin) = (next.version.clone(), next.origin.clone());
                if is_change.unwrap_or_default() {
                    Some(CatalogueChange::Set(id.clone(), version, origin))
                } else {
                    let is_moved = before.is_some_and(|before| before.origin != origin);
                    is_moved.then(|| CatalogueChange::Moved(id.clone(), version, origin))
                }
            }
            (None, before) => before.map(|_| CatalogueChange::Gone(id.clone())),
        };
        slot.served = next;
        if !slot.places.is_empty() {
            self.slots.insert(id.clone(), slot);
        }
        change
    }

    fn of_places<'a>(
        &'a self,
        places: &'a Locations<C::Location>,
    ) -> impl Iterator<Item = (&'a CatalogueLocation<C::Location>, &'a Candidate<C>)> {
        let places = places.iter();
        places.filter_map(|key| Some((key, self.candidate(key)?)))
    }

    /// Returns the place at which the version before stays: a refused object keeps the version that was served from its place, or
    /// of its name where no other is good.
    fn kept_at<'a>(
        &'a self,
        places: &'a Locations<C::Location>,
        before: &'a ServedVersion<C>,
        is_any_good: bool,
    ) -> Option<&'a C::Location> {
        let ((first, _), refused) = self.of_places(places).next()?;
        // Another uid is another object: the version of the deleted one must not be served under its name.
        if refused.version.is_some() || refused.uid != before.uid {
            return None;
        }
        let its = self.of_places(places);
        let mut its = its
            .filter(|((place, _), _)| *place == before.place)
            .peekable();
        let is_its = its.peek().is_some() && its.all(|(_, one)| one.version.is_none());
        match (is_its, is_any_good) {
            (true, _) => Some(&before.place),
            (false, false) => Some(first),
            (false, true) => None,
        }
    }

    /// Returns the version to serve under a name, and true if it differs from the version before.
    fn next(
        &self,
        places: &Locations<C::Location>,
        before: Option<&ServedVersion<C>>,
    ) -> Option<(ServedVersion<C>, bool)> {
        let good = self
            .of_places(places)
            .find_map(|(key, one)| Some((key, one, one.version.as_ref()?)));
        if let Some(before) = before
            && let Some(place) = self.kept_at(places, before, good.is_some())
        {
            let stays = ServedVersion {
                version: before.version.clone(),
                place: place.clone(),
                uid: before.uid.clone(),
                origin: before.origin.clone(),
                is_old: true,
            };
            return Some((stays, false));
        }
        let ((place, _), candidate, version) = good?;
        // An equal version keeps its pointer, which readers already hold.
        let same = before.filter(|before| before.version == *version);
        let next = ServedVersion {
            version: same.map_or(version, |before| &before.version).clone(),
            place: place.clone(),
            uid: candidate.uid.clone(),
            origin: candidate.origin.clone(),
            is_old: false,
        };
        Some((next, same.is_none()))
    }

    /// Updates the status of all candidates of a name.
    fn mark(&mut self, places: &Locations<C::Location>, served: Option<&ServedVersion<C>>) {
        let has_it = |key: &&CatalogueLocation<C::Location>| {
            let candidate = self.candidate(key);
            candidate.zip(served).is_some_and(|(candidate, served)| {
                // A place may hold several candidates of the name: an old version is held by a refused one, a
                // new one by a good one.
                served.place == key.0 && candidate.version.is_none() == served.is_old
            })
        };
        let holder = places.iter().find(has_it);
        let serving = match served {
            Some(served) if served.is_old => ServedInstead::Old,
            Some(_) | None => ServedInstead::Nothing,
        };
        for key in places.iter() {
            let candidates = self.places.get_mut(&key.0);
            let Some(candidate) = candidates.and_then(|all| all.get_mut(key.1)) else {
                continue;
            };
            candidate.status = match (&candidate.version, holder) {
                (None, _) => Status::Refused { serving },
                (Some(_), Some(holder)) if holder != key => Status::Shadowed { by: holder.clone() },
                (Some(_), _) => {
                    // The candidate shares the pointer that is served, so that an equal version is in memory
                    // once.
                    candidate.version = served.map(|served| served.version.clone());
                    Status::Accepted
                }
            };
        }
    }
}
