//! What a client has of endpoints or routes: names that it asked for, and what it was sent for each.
//!
//! That is two words per name: the resource that was sent, shared with everyone who has it, and a mark. Names are sorted, so
//! that a request with all of them is one walk over two lists. Streams that have the same share the list until one differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Looked;
use super::message::{Client, Protocol};
use super::push::Dirty;
use super::shared::Pool;
use super::slot::{Slot, State, equal, nothing};
use crate::version::Version;
use crate::view::Resource;

/// How a client learns that a name has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// By an empty resource of that name.
    Empty,
    /// By its absence.
    Silence,
    /// By `removed_resources`.
    Removed,
}

impl Absence {
    pub(super) fn of(protocol: Protocol, client: Client) -> Self {
        match (protocol, client) {
            (Protocol::Delta, _) => Self::Removed,
            (Protocol::StateOfTheWorld, Client::Envoy) => Self::Empty,
            (Protocol::StateOfTheWorld, Client::Grpc) => Self::Silence,
        }
    }
}

/// What a response has.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) resources: Vec<Arc<Resource>>,
    pub(super) removed: Vec<Arc<str>>,
    /// Something that is gone was left as it was.
    pub(super) held: bool,
    /// Something could not be made, and was left as it was.
    pub(super) failed: bool,
    /// Of all that the client has after it.
    version: Version,
}

impl Found {
    fn new(version: Version) -> Self {
        Self {
            resources: Vec::new(),
            removed: Vec::new(),
            held: false,
            failed: false,
            version,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }

    /// Whether a request is answered by it: one that wanted only what cannot be made is not.
    pub(super) fn is_answer(&self) -> bool {
        !(self.failed && self.is_empty())
    }
}

#[derive(Debug, Default)]
pub(super) struct Named {
    /// Sorted by name.
    slots: Arc<Vec<Slot>>,
    version: Version,
    unsent: usize,
    /// It was changed since others were looked for who have the same.
    changed: bool,
    /// A slot has the nonce of a response.
    numbered: bool,
}

/// How names become resources.
pub(super) struct Source<'a> {
    pub(super) get: &'a dyn Fn(&str) -> Looked,
    pub(super) absence: Absence,
    /// What is gone stays as it was sent.
    pub(super) hold: bool,
    /// Of the response that is made.
    pub(super) nonce: u32,
}

impl Named {
    /// Of what was sent.
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
        self.slots.iter().map(|slot| &slot.resource.name)
    }

    /// What the client has.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let sent = self.slots.iter();
        sent.filter(|slot| slot.state == State::Sent)
            .map(|slot| &slot.resource)
    }

    /// State of the world: whether a request with these names says nothing new, as an ACK does.
    pub(super) fn is_exactly(&self, names: &[String]) -> bool {
        let same = |(slot, name): (&Slot, &String)| !slot.left && equal(&slot.resource.name, name);
        self.slots.len() == names.len() && self.slots.iter().zip(names).all(same)
    }

    /// State of the world: these names, sorted, each once, and no others. They come with the last nonce.
    pub(super) fn replace(&mut self, names: &[&str], nonce: u32) {
        let mut old = Arc::unwrap_or_clone(std::mem::take(&mut self.slots))
            .into_iter()
            .peekable();
        let mut slots = Vec::with_capacity(names.len());
        for name in names {
            while old.next_if(|slot| *slot.resource.name < **name).is_some() {}
            let known = old.next_if(|slot| *slot.resource.name == **name);
            let mut slot = known.unwrap_or_else(|| Slot::unsent(name));
            // What was in the response that this request answers has reached it.
            if std::mem::take(&mut slot.left) && slot.nonce < nonce {
                slot.state = State::Unsent;
            }
            slots.push(slot);
        }
        self.slots = Arc::new(slots);
        self.count();
    }

    /// State of the world: a request with an older nonce, which does not count, had these names, sorted, and no others. A
    /// name that went and is there again gets what the client had not read yet.
    pub(super) fn leave(&mut self, names: &[&str], nonce: u32) {
        self.changed = true;
        for slot in Arc::make_mut(&mut self.slots) {
            let there = names.binary_search(&&*slot.resource.name).is_ok();
            slot.left = if there {
                slot.left && slot.nonce <= nonce
            } else {
                true
            };
        }
    }

    /// Delta: these names, sorted, each once, too; one that is there already is asked for again.
    pub(super) fn add(&mut self, names: &[&str]) {
        let mut old = Arc::unwrap_or_clone(std::mem::take(&mut self.slots))
            .into_iter()
            .peekable();
        let mut slots = Vec::with_capacity(old.len().max(names.len()));
        for name in names {
            while let Some(slot) = old.next_if(|slot| *slot.resource.name < **name) {
                slots.push(slot);
            }
            let known = old.next_if(|slot| *slot.resource.name == **name);
            let slot = known.map_or_else(
                || Slot::unsent(name),
                |slot| Slot {
                    state: State::Unsent,
                    ..slot
                },
            );
            slots.push(slot);
        }
        slots.extend(old);
        self.slots = Arc::new(slots);
        self.count();
    }

    /// Delta: these names, sorted, no more.
    pub(super) fn remove(&mut self, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        Arc::make_mut(&mut self.slots)
            .retain(|slot| names.binary_search(&&*slot.resource.name).is_err());
        self.count();
    }

    /// Of these names, those that are subscribed are sent once more: their clusters are new to the client.
    pub(super) fn again<'a>(&mut self, names: impl Iterator<Item = &'a Arc<str>>) {
        for name in names {
            if let Some(slot) = self.find_mut(name) {
                slot.state = State::Unsent;
            }
        }
        self.count();
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.slots
            .binary_search_by(|slot| (*slot.resource.name).cmp(name))
            .ok()
    }

    fn find_mut(&mut self, name: &str) -> Option<&mut Slot> {
        let at = self.find(name)?;
        Arc::make_mut(&mut self.slots).get_mut(at)
    }

    /// Takes the list of those who have the same. `settled`: every response was answered, so no nonce is asked for any more.
    pub(super) fn share(&mut self, pool: &Pool, settled: bool) {
        if settled && self.numbered {
            for slot in Arc::make_mut(&mut self.slots) {
                slot.nonce = 0;
            }
            self.numbered = false;
            self.changed = true;
        }
        if self.changed && self.unsent == 0 {
            self.slots = pool.shared(self.version, std::mem::take(&mut self.slots));
            self.changed = false;
        }
    }

    fn count(&mut self) {
        self.changed = true;
        self.version = self.slots.iter().map(Slot::version).sum();
        let unsent = self.slots.iter();
        self.unsent = unsent.filter(|slot| slot.state == State::Unsent).count();
    }

    /// A client that comes back with this version has exactly what it would be sent, so it counts as sent. Or nothing does.
    pub(super) fn agree(&mut self, version: Option<Version>, source: &Source<'_>) -> bool {
        if version.is_none() {
            return false;
        }
        self.version = self.unsent(source).version;
        if version == Some(self.version) {
            return true;
        }
        self.forget();
        false
    }

    /// Delta: a client comes back with these versions, sorted by name. Whether nothing is owed to it.
    pub(super) fn agree_each(&mut self, initial: &[(&str, &str)], source: &Source<'_>) -> bool {
        for slot in Arc::make_mut(&mut self.slots) {
            let known = initial
                .binary_search_by(|(name, _)| (*name).cmp(&slot.resource.name))
                .ok()
                .and_then(|at| initial.get(at))
                .and_then(|(_, version)| Version::parse(version));
            let current = known.and_then(|_| (source.get)(&slot.resource.name).ok()?);
            if let Some(current) = current.filter(|current| known == Some(current.version)) {
                slot.resource = current;
                slot.state = State::Sent;
            }
        }
        self.count();
        self.unsent == 0
    }

    fn forget(&mut self) {
        for slot in Arc::make_mut(&mut self.slots) {
            slot.state = State::Unsent;
        }
        self.count();
    }

    /// What was asked for.
    fn unsent(&mut self, source: &Source<'_>) -> Found {
        let mut found = Found::new(self.version);
        (self.changed, self.numbered) = (true, true);
        let unsent = Arc::make_mut(&mut self.slots).iter_mut();
        for slot in unsent.filter(|slot| slot.state == State::Unsent) {
            look(slot, source, &mut found);
        }
        self.unsent = 0;
        found
    }

    /// What was asked for, and what is dirty and differs from what was sent.
    pub(super) fn changed(&mut self, dirty: &Dirty, source: &Source<'_>) -> Found {
        let mut found = if self.is_owed() {
            self.unsent(source)
        } else {
            Found::new(self.version)
        };
        match dirty {
            Dirty::None => {}
            Dirty::All => {
                (self.changed, self.numbered) = (true, true);
                for slot in Arc::make_mut(&mut self.slots) {
                    look(slot, source, &mut found);
                }
            }
            Dirty::Names(names) => self.changed_of(names, source, &mut found),
        }
        self.version = found.version;
        found
    }

    /// Whichever list is the shorter one is walked.
    fn changed_of(&mut self, names: &BTreeSet<Arc<str>>, source: &Source<'_>, found: &mut Found) {
        (self.changed, self.numbered) = (true, true);
        if names.len() < self.slots.len() {
            for name in names {
                if let Some(slot) = self.find_mut(name) {
                    look(slot, source, found);
                }
            }
            return;
        }
        let slots = Arc::make_mut(&mut self.slots).iter_mut();
        for slot in slots.filter(|slot| names.contains(&slot.resource.name)) {
            look(slot, source, found);
        }
    }
}

/// Holds one slot against what there is now.
fn look(slot: &mut Slot, source: &Source<'_>, found: &mut Found) {
    let before = slot.version();
    let Ok(current) = (source.get)(&slot.resource.name) else {
        found.failed = true;
        return;
    };
    if let Some(current) = current {
        let same = slot.state == State::Sent && slot.resource.version == current.version;
        if !same {
            found.resources.push(current.clone());
            slot.nonce = source.nonce;
        }
        // The same content too: whoever holds the older copy keeps an older snapshot's bytes.
        slot.resource = current;
        slot.state = State::Sent;
    } else {
        match slot.state {
            State::Absent => return,
            State::Sent if source.hold => {
                found.held = true;
                return;
            }
            State::Sent | State::Unsent => {}
        }
        let name = slot.resource.name.clone();
        match source.absence {
            Absence::Empty => {
                slot.resource = Arc::new(Resource::empty(&name));
                found.resources.push(slot.resource.clone());
            }
            Absence::Silence => slot.resource = nothing(name),
            Absence::Removed => {
                slot.resource = nothing(name.clone());
                found.removed.push(name);
            }
        }
        slot.state = State::Absent;
        slot.nonce = source.nonce;
    }
    found.version = found.version - before + slot.version();
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn bodies(of_b: &'static str) -> [Arc<Resource>; 3] {
        let one = |name, body: &'static str| Arc::new(Resource::new(name, body));
        [one("a", "1"), one("b", of_b), one("c", "3")]
    }

    /// Takes in what there is, in a response with that nonce.
    fn look(named: &mut Named, there: &[Arc<Resource>], dirty: &Dirty, nonce: u32) -> usize {
        let get = |name: &str| Ok(there.iter().find(|one| *one.name == *name).cloned());
        let source = Source {
            get: &get,
            absence: Absence::Empty,
            hold: false,
            nonce,
        };
        named.changed(dirty, &source).resources.len()
    }

    fn asked(there: &[Arc<Resource>], nonce: u32) -> Named {
        let mut named = Named::default();
        named.replace(&NAMES, 0);
        assert_eq!(look(&mut named, there, &Dirty::None, nonce), 3);
        named
    }

    #[test]
    fn who_has_the_same_has_the_same_list() {
        let pool = Pool::default();
        let there = bodies("2");
        let (mut one, mut other) = (asked(&there, 3), asked(&there, 8));
        one.share(&pool, false);
        other.share(&pool, false);
        assert!(!Arc::ptr_eq(&one.slots, &other.slots), "their nonces count");
        one.share(&pool, true);
        other.share(&pool, true);
        assert!(Arc::ptr_eq(&one.slots, &other.slots));
        let mut third = asked(&bodies("2"), 3);
        third.share(&pool, true);
        assert!(
            !Arc::ptr_eq(&one.slots, &third.slots),
            "equal bytes, but not the same"
        );
    }

    #[test]
    fn a_change_is_of_one_stream() {
        let pool = Pool::default();
        let (there, later) = (bodies("2"), bodies("later"));
        let (mut one, mut other) = (asked(&there, 3), asked(&there, 3));
        one.share(&pool, true);
        other.share(&pool, true);
        let before = other.version();
        let dirty = Dirty::Names(BTreeSet::from(["b".into()]).into());
        assert_eq!(look(&mut one, &later, &dirty, 4), 1);
        assert_eq!(one.version(), later.iter().map(|one| one.version).sum());
        assert_eq!(other.version(), before);
        let has: Vec<_> = other.resources().map(|one| one.body.clone()).collect();
        assert_eq!(has, ["1", "2", "3"]);
        assert_eq!(look(&mut other, &later, &dirty, 9), 1, "it is sent to both");
        one.remove(&["a"]);
        assert_eq!((one.len(), other.len()), (2, 3));
    }
}
