//! The endpoints, routes or secrets of a client: names that it asked for, and the resource that it was sent for each.
//!
//! A list has two words per name: the resource that was sent, shared with everyone who has it, and a mark. Names are sorted, so
//! that a request with all of them is one walk over two lists. Streams whose lists are equal share one (see
//! [`lists`](super::lists)), so what is a stream's alone stands apart: which names its client let go, and what is not answered
//! yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::BuildPanic;
use super::lists::List;
use super::lookup::{AbsenceSignal, ResourceLookup, ResponseContent, SlotChange, compare_slot};
use super::name_slot::{DeliveryState, NameSlot};
use super::push::DirtyAssignments;
use super::sent_resources::SentResources;
use crate::resource_names::{NameList, ResourceNames, equal};
use crate::version::Version;
use crate::view::Resource;

#[derive(Debug, Default)]
pub(super) struct NamedSubscription {
    slots: Arc<List>,
    version: Version,
    unsent: usize,
    /// Names that the client let go in a request that came too late to count. If its next one has the name, it wants it again.
    left: BTreeSet<Arc<str>>,
    last_nonces: LastNonces,
}

/// The last response that spoke of each name, for those that are not answered yet. Used in state of the world only: a delta
/// client says what it lets go.
#[derive(Debug, Default)]
struct LastNonces {
    /// The last one that spoke of all names, and those after it.
    all: u32,
    some: BTreeMap<Arc<str>, u32>,
}

impl LastNonces {
    fn last(&self, name: &str) -> u32 {
        self.some.get(name).copied().unwrap_or(self.all)
    }
}

impl NamedSubscription {
    /// The version of the resources sent.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn is_owed(&self) -> bool {
        self.unsent > 0
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slots.iter().map(NameSlot::name)
    }

    /// The resources that the client has.
    pub(super) fn resources(&self) -> SentResources {
        SentResources::of_names(&self.slots)
    }

    /// The resource of this name that the client has.
    pub(super) fn sent(&self, name: &str) -> Option<&Arc<Resource>> {
        let at = self
            .slots
            .binary_search_by(|slot| (**slot.name()).cmp(name));
        let slot = self.slots.get(at.ok()?)?;
        (slot.state == DeliveryState::Sent).then_some(&slot.resource)
    }

    /// The client has a resource of this name, or asks for it anew.
    pub(super) fn expects(&self, name: &str) -> bool {
        let slot = self.find(name).and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.state != DeliveryState::Absent)
    }

    /// State of the world: whether a request with these names says nothing new, as an ACK does.
    pub(super) fn is_exactly(&self, names: &ResourceNames) -> bool {
        let same = |(slot, name): (&NameSlot, &str)| equal(slot.name().as_bytes(), name.as_bytes());
        // A name that a stale request let go is asked for anew by standing in this one.
        self.left.is_empty()
            && self.slots.len() == names.len()
            && (names.is_list(&self.slots) || self.slots.iter().zip(names.iter()).all(same))
    }

    /// Returns true if the names, sorted and unique, equal the subscription (SotW).
    pub(super) fn are(&self, names: &[&str]) -> bool {
        let all = self.slots.iter().map(|slot| &**slot.name());
        self.left.is_empty() && self.slots.len() == names.len() && all.eq(names.iter().copied())
    }

    /// Its names, if this is one of them.
    pub(super) fn list_with(&self, name: &str) -> Option<Arc<dyn NameList>> {
        let has_name = self.has(name);
        has_name.then(|| Arc::clone(&self.slots) as Arc<dyn NameList>)
    }

    /// State of the world: these names, sorted, each once, and no others. They come with the last nonce.
    pub(super) fn replace(
        &mut self,
        names: &[&str],
        nonce: u32,
        shared: &dyn Fn(&str) -> Arc<str>,
    ) {
        let mut old = self.slots.iter().peekable();
        let mut slots = List::with_capacity(names.len());
        for name in names {
            while old.next_if(|slot| **slot.name() < **name).is_some() {}
            let Some(known) = old.next_if(|slot| **slot.name() == **name) else {
                slots.push(NameSlot::unsent(shared(name)));
                continue;
            };
            // What was in the response that this request answers has reached it.
            let wanted_again = self.left.contains(*name) && self.last_nonces.last(name) < nonce;
            slots.push(if wanted_again {
                known.with(DeliveryState::Unsent)
            } else {
                known.clone()
            });
        }
        self.left.clear();
        self.be(slots);
    }

    /// State of the world: a request with an older nonce, which does not count, had these names, sorted, and no others. A
    /// name that went and is there again gets what the client had not read yet.
    pub(super) fn forget_names_of_stale_request(&mut self, names: &[&str], nonce: u32) {
        for slot in self.slots.iter() {
            let name = slot.name();
            if names.binary_search(&&**name).is_err() {
                self.left.insert(name.clone());
            } else if self.last_nonces.last(name) > nonce {
                self.left.remove(name);
            }
        }
    }

    /// The client has answered every response.
    pub(super) fn all_acked(&mut self) {
        self.last_nonces = LastNonces::default();
    }

    /// Delta: these names, sorted, each once, too; one that is there already is asked for again.
    pub(super) fn add(&mut self, names: &[&str], shared: &dyn Fn(&str) -> Arc<str>) {
        if names.is_empty() {
            return;
        }
        let mut old = self.slots.iter().peekable();
        let mut slots = List::with_capacity(self.slots.len() + names.len());
        for name in names {
            while let Some(slot) = old.next_if(|slot| **slot.name() < **name) {
                slots.push(slot.clone());
            }
            let known = old.next_if(|slot| **slot.name() == **name);
            slots.push(known.map_or_else(
                || NameSlot::unsent(shared(name)),
                |slot| slot.with(DeliveryState::Unsent),
            ));
        }
        slots.extend(old.cloned());
        // Names that are asked for again were reserved twice, and the list lives as long as the stream.
        slots.shrink_to_fit();
        self.be(slots);
    }

    /// Delta: these names, sorted, no more.
    pub(super) fn remove(&mut self, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        let stays = |slot: &&NameSlot| names.binary_search(&&**slot.name()).is_err();
        let slots = self.slots.iter().filter(stays).cloned().collect();
        self.be(slots);
    }

    /// Marks these names, if they are subscribed, to be sent once more: their clusters are new to the client, or changed.
    pub(super) fn resend<'a>(&mut self, names: impl Iterator<Item = &'a Arc<str>>) {
        let found: Vec<_> = names.filter_map(|name| self.find(name)).collect();
        if found.is_empty() {
            return;
        }
        // Other streams may share the list; their clusters have not changed, so they keep the old copy.
        let slots = Arc::make_mut(&mut self.slots);
        for at in found {
            if let Some(slot) = slots.get_mut(at) {
                slot.state = DeliveryState::Unsent;
            }
        }
        self.count();
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.slots
            .binary_search_by(|slot| (**slot.name()).cmp(name))
            .ok()
    }

    fn be(&mut self, slots: List) {
        self.slots = Arc::new(slots);
        self.count();
        // A client that answers nothing and names something else each time.
        if self.last_nonces.some.len() > self.slots.len() {
            let mut some = std::mem::take(&mut self.last_nonces.some);
            some.retain(|name, _| self.has(name));
            self.last_nonces.some = some;
        }
    }

    fn count(&mut self) {
        self.version = self.slots.iter().map(NameSlot::version).sum();
        let unsent = self.slots.iter();
        self.unsent = unsent
            .filter(|slot| slot.state == DeliveryState::Unsent)
            .count();
    }

    /// A client that comes back with this version has exactly what it would be sent, so it counts as sent. Or nothing does.
    pub(super) fn agree(&mut self, version: Option<Version>, source: &ResourceLookup<'_>) -> bool {
        // A client without a version has nothing; comparing would look each name up twice.
        if version.is_none() {
            return false;
        }
        let (found, changes) = self.compare(&DirtyAssignments::None, source);
        if version != Some(found.version) {
            return false;
        }
        self.unsent = 0;
        self.take(changes, found.version, source);
        true
    }

    /// Delta: a client comes back with these versions, sorted by name. What is current counts as sent if that is trusted, and what
    /// is gone if it is held. Returns true if nothing is owed to it.
    pub(super) fn agree_each(
        &mut self,
        initial: &[(&str, &str)],
        trusted: bool,
        source: &ResourceLookup<'_>,
    ) -> bool {
        let mut changes = Vec::new();
        let mut version = self.version;
        for (at, slot) in self.slots.iter().enumerate() {
            let known = initial
                .binary_search_by(|(name, _)| (*name).cmp(slot.name()))
                .ok()
                .and_then(|at| initial.get(at))
                .map(|(_, version)| Version::parse(version));
            let Some(known) = known else {
                continue;
            };
            let resource = match (source.get)(slot.name()) {
                Ok(Some(current)) if trusted && known == Some(current.version) => current,
                Ok(None) if source.hold => {
                    let version = known.unwrap_or_default();
                    Arc::new(Resource::without_body(slot.name().clone(), version))
                }
                Ok(_) | Err(BuildPanic) => continue,
            };
            version = version - slot.version() + resource.version;
            let state = DeliveryState::Sent;
            changes.push(SlotChange {
                at,
                slot: NameSlot { resource, state },
                mentioned: false,
            });
        }
        self.take(changes, version, source);
        self.count();
        self.unsent == 0
    }

    /// Finds the resources that were asked for, and those that are dirty and differ from what was sent.
    pub(super) fn changed(
        &mut self,
        dirty: &DirtyAssignments,
        source: &ResourceLookup<'_>,
    ) -> ResponseContent {
        let (found, changes) = self.compare(dirty, source);
        // Nothing stays owed: what cannot be made is unsent on, and the next push tries it again.
        self.unsent = 0;
        self.take(changes, found.version, source);
        found
    }

    /// Compares the subscribed and the dirty names with the current resources.
    fn compare(
        &self,
        dirty: &DirtyAssignments,
        source: &ResourceLookup<'_>,
    ) -> (ResponseContent, Vec<SlotChange>) {
        let mut found = ResponseContent::new(self.version);
        let mut changes = Vec::new();
        let mut look =
            |at: usize, slot: &NameSlot| changes.extend(compare_slot(at, slot, source, &mut found));
        // Whichever list is the shorter one is walked.
        match dirty {
            DirtyAssignments::Names(names) if !self.is_owed() && names.len() < self.slots.len() => {
                for at in names.iter().filter_map(|name| self.find(name)) {
                    if let Some(slot) = self.slots.get(at) {
                        look(at, slot);
                    }
                }
            }
            DirtyAssignments::None if !self.is_owed() => {}
            DirtyAssignments::None | DirtyAssignments::Names(_) | DirtyAssignments::All => {
                for (at, slot) in self.slots.iter().enumerate() {
                    let wanted = self.is_owed() && slot.state == DeliveryState::Unsent;
                    let is_dirty = || match dirty {
                        DirtyAssignments::None => false,
                        DirtyAssignments::All => true,
                        DirtyAssignments::Names(names) => names.contains(slot.name()),
                    };
                    if wanted || is_dirty() {
                        look(at, slot);
                    }
                }
            }
        }
        (found, changes)
    }

    /// Moves on to the list with these changes, whose version is this.
    fn take(&mut self, changes: Vec<SlotChange>, version: Version, source: &ResourceLookup<'_>) {
        self.version = version;
        if changes.is_empty() {
            return;
        }
        if source.absence != AbsenceSignal::Removed {
            self.record_nonces(&changes, source.nonce);
        }
        let is_it = |list: &List| {
            let mut changes = changes.iter().peekable();
            let pairs = list.iter().zip(self.slots.iter()).enumerate();
            pairs.into_iter().all(|(at, (theirs, ours))| {
                let ours = changes
                    .next_if(|change| change.at == at)
                    .map_or(ours, |change| &change.slot);
                theirs.is(ours)
            })
        };
        let length = self.slots.len();
        if let Some(list) = source.lists.find(version, length, is_it) {
            self.slots = list;
            return;
        }
        let slots = Arc::make_mut(&mut self.slots);
        for change in changes {
            if let Some(slot) = slots.get_mut(change.at) {
                *slot = change.slot;
            }
        }
        source.lists.add(version, &self.slots);
    }

    fn record_nonces(&mut self, changes: &[SlotChange], nonce: u32) {
        let mentioned = changes.iter().filter(|change| change.mentioned);
        if mentioned.clone().count() == self.slots.len() {
            self.last_nonces.all = nonce;
            self.last_nonces.some.clear();
            return;
        }
        let names = mentioned.map(|change| (change.slot.name().clone(), nonce));
        self.last_nonces.some.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Lists;

    /// The resources of a snapshot: one copy for everyone.
    #[derive(Default)]
    struct Mesh {
        resources: BTreeMap<String, Arc<Resource>>,
        lists: Lists,
    }

    impl Mesh {
        fn new(names: usize) -> Self {
            let mut this = Self::default();
            for at in 0..names {
                this.put(&format!("{at:04}"), 0);
            }
            this
        }

        fn put(&mut self, name: &str, revision: u32) {
            let resource = Resource::new(name, format!("{name}{revision}"));
            self.resources.insert(name.to_owned(), Arc::new(resource));
        }

        fn names(&self) -> Vec<&str> {
            self.resources.keys().map(String::as_str).collect()
        }

        /// Returns the names that a stream is sent when it looks at these.
        fn record_nonces(
            &self,
            named: &mut NamedSubscription,
            dirty: &DirtyAssignments,
            nonce: u32,
        ) -> Vec<String> {
            let get = |name: &str| Ok(self.resources.get(name).cloned());
            let source = ResourceLookup {
                get: &get,
                absence: AbsenceSignal::Empty,
                hold: false,
                nonce,
                lists: &self.lists,
            };
            let found = named.changed(dirty, &source);
            let all: Version = named
                .resources()
                .iter()
                .map(|resource| resource.version)
                .sum();
            assert!(found.removed.is_empty() && named.version() == all);
            found
                .resources
                .iter()
                .map(|one| one.name.to_string())
                .collect()
        }

        /// A stream that has all that there is.
        fn stream(&self) -> NamedSubscription {
            let mut named = NamedSubscription::default();
            named.replace(&self.names(), 0, &own);
            assert_eq!(
                self.record_nonces(&mut named, &DirtyAssignments::None, 1),
                self.names()
            );
            named
        }
    }

    fn own(name: &str) -> Arc<str> {
        name.into()
    }

    fn dirty(name: &str) -> DirtyAssignments {
        DirtyAssignments::Names(Arc::new([Arc::from(name)].into()))
    }

    fn shared(one: &NamedSubscription, other: &NamedSubscription) -> bool {
        Arc::ptr_eq(&one.slots, &other.slots)
    }

    /// Two thousand streams with a thousand names each have two million of them.
    #[test]
    fn a_name_costs_two_words() {
        assert_eq!(size_of::<NameSlot>(), 16);
    }

    #[test]
    fn streams_that_have_the_same_have_one_list() {
        let mut mesh = Mesh::new(100);
        let mut streams: Vec<_> = (0..10).map(|_| mesh.stream()).collect();
        assert!(streams.iter().all(|one| shared(one, &streams[0])));
        let place = |one: &NamedSubscription| one.resources().place();
        assert_eq!(place(&streams[0]), place(&streams[9]));
        mesh.put("0042", 1);
        for (at, stream) in streams.iter_mut().enumerate() {
            let nonce = u32::try_from(at).unwrap();
            assert_eq!(mesh.record_nonces(stream, &dirty("0042"), nonce), ["0042"]);
        }
        assert!(streams.iter().all(|one| shared(one, &streams[0])));
        // One of them goes its own way, and comes back.
        let mut names = mesh.names();
        let gone = names.remove(7);
        let (last, others) = streams.split_last_mut().unwrap();
        last.replace(&names, 0, &own);
        assert!(!shared(last, &others[0]) && last.len() == 99);
        assert_ne!(place(last), place(&others[0]));
        last.replace(&mesh.names(), 0, &own);
        assert_eq!(
            mesh.record_nonces(last, &DirtyAssignments::None, 20),
            [gone]
        );
        assert!(shared(last, &others[0]));
        assert!(others.iter().all(|one| one.len() == 100));
    }

    #[test]
    fn a_stream_behind_others_keeps_what_it_was_sent() {
        let mut mesh = Mesh::new(100);
        let (mut one, mut other) = (mesh.stream(), mesh.stream());
        let before = other.version();
        mesh.put("0001", 1);
        mesh.record_nonces(&mut one, &DirtyAssignments::All, 2);
        assert_eq!(other.version(), before);
        assert!(!shared(&one, &other));
        assert_eq!(
            mesh.record_nonces(&mut other, &DirtyAssignments::All, 2),
            ["0001"]
        );
        assert!(shared(&one, &other));
    }

    /// A newer snapshot may have other copies of the same: the older one's are not kept for their sake.
    #[test]
    fn the_same_content_in_newer_copies_is_another_list() {
        let mut mesh = Mesh::new(100);
        let (mut one, mut other) = (mesh.stream(), mesh.stream());
        let old = Arc::downgrade(&mesh.resources["0001"]);
        mesh.put("0001", 0);
        assert!(
            mesh.record_nonces(&mut one, &DirtyAssignments::All, 2)
                .is_empty()
        );
        assert!(old.upgrade().is_some() && !shared(&one, &other));
        assert!(
            mesh.record_nonces(&mut other, &DirtyAssignments::All, 2)
                .is_empty()
        );
        assert!(old.upgrade().is_none() && shared(&one, &other));
    }

    #[test]
    fn unused_lists_are_forgotten() {
        let mut mesh = Mesh::new(100);
        let mut stream = mesh.stream();
        for revision in 1..10_000 {
            mesh.put("0001", revision);
            mesh.record_nonces(&mut stream, &dirty("0001"), revision);
            assert!(mesh.lists.len() <= 64, "{}", mesh.lists.len());
        }
    }

    #[test]
    fn a_client_that_answers_nothing_costs_what_its_names_cost() {
        let mut mesh = Mesh::new(100);
        let mut stream = mesh.stream();
        for round in 0..1000 {
            mesh.put(&format!("x{round}"), 0);
            mesh.resources.remove(&format!("x{}", round - 1));
            stream.replace(&mesh.names(), 0, &own);
            mesh.record_nonces(&mut stream, &DirtyAssignments::None, 2);
            assert!(stream.last_nonces.some.len() <= stream.len() + 1);
        }
    }
}
