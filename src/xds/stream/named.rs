//! What a client has of endpoints or routes: names that it asked for, and what it was sent for each.
//!
//! A stream keeps two words per name: the resource that was sent, shared with everyone who has it, and a mark. Names are
//! sorted, so that a request with all of them is one walk over two lists.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::Looked;
use super::message::{Client, Protocol};
use super::push::Dirty;
use crate::version::Version;
use crate::view::Resource;

/// Where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked for: the next response has it, whatever was sent before.
    Unsent,
    /// The client was told that there is none.
    Absent,
    Sent,
}

#[derive(Debug)]
struct Slot {
    resource: Arc<Resource>,
    state: State,
    /// The client let it go in a request that came too late to count. If its next one has the name, it wants it again.
    left: bool,
    /// Of the last response that had it.
    nonce: u32,
}

impl Slot {
    fn unsent(name: &str) -> Self {
        let resource = nothing(name.into());
        Self {
            resource,
            state: State::Unsent,
            left: false,
            nonce: 0,
        }
    }

    /// What it adds to the version.
    fn version(&self) -> Version {
        match self.state {
            State::Unsent => Version::EMPTY,
            State::Absent | State::Sent => self.resource.version,
        }
    }
}

/// A name without content.
fn nothing(name: Arc<str>) -> Arc<Resource> {
    Arc::new(Resource {
        name,
        version: Version::EMPTY,
        body: Bytes::new(),
    })
}

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
    slots: Vec<Slot>,
    version: Version,
    unsent: usize,
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
        let mut old = std::mem::take(&mut self.slots).into_iter().peekable();
        self.slots.reserve_exact(names.len());
        for name in names {
            while old.next_if(|slot| *slot.resource.name < **name).is_some() {}
            let known = old.next_if(|slot| *slot.resource.name == **name);
            let mut slot = known.unwrap_or_else(|| Slot::unsent(name));
            // What was in the response that this request answers has reached it.
            if std::mem::take(&mut slot.left) && slot.nonce < nonce {
                slot.state = State::Unsent;
            }
            self.slots.push(slot);
        }
        self.count();
    }

    /// State of the world: a request with an older nonce, which does not count, had these names, sorted, and no others. A
    /// name that went and is there again gets what the client had not read yet.
    pub(super) fn leave(&mut self, names: &[&str], nonce: u32) {
        for slot in &mut self.slots {
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
        let mut old = std::mem::take(&mut self.slots).into_iter().peekable();
        for name in names {
            while let Some(slot) = old.next_if(|slot| *slot.resource.name < **name) {
                self.slots.push(slot);
            }
            let known = old.next_if(|slot| *slot.resource.name == **name);
            let slot = known.map_or_else(
                || Slot::unsent(name),
                |slot| Slot {
                    state: State::Unsent,
                    ..slot
                },
            );
            self.slots.push(slot);
        }
        self.slots.extend(old);
        self.count();
    }

    /// Delta: these names, sorted, no more.
    pub(super) fn remove(&mut self, names: &[&str]) {
        self.slots
            .retain(|slot| names.binary_search(&&*slot.resource.name).is_err());
        self.count();
    }

    /// Of these names, those that are subscribed are sent once more: their clusters are new to the client.
    pub(super) fn again<'a>(&mut self, names: impl Iterator<Item = &'a Arc<str>>) {
        for name in names {
            if let Some(slot) = self.find(name).and_then(|at| self.slots.get_mut(at)) {
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

    fn count(&mut self) {
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
        for slot in &mut self.slots {
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
        for slot in &mut self.slots {
            slot.state = State::Unsent;
        }
        self.count();
    }

    /// What was asked for.
    fn unsent(&mut self, source: &Source<'_>) -> Found {
        let mut found = Found::new(self.version);
        let unsent = self.slots.iter_mut();
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
                for slot in &mut self.slots {
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
        if names.len() < self.slots.len() {
            for name in names {
                if let Some(slot) = self.find(name).and_then(|at| self.slots.get_mut(at)) {
                    look(slot, source, found);
                }
            }
            return;
        }
        let slots = self.slots.iter_mut();
        for slot in slots.filter(|slot| names.contains(&slot.resource.name)) {
            look(slot, source, found);
        }
    }
}

/// Names begin alike, and the C library compares bytes one by one.
fn equal(one: &str, other: &str) -> bool {
    let ((one, rest), (other, end)) = (one.as_bytes().as_chunks(), other.as_bytes().as_chunks());
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    one.len() == other.len()
        && rest == end
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| word(one) == word(other))
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

    /// Two thousand streams with a thousand names each have two million of them.
    #[test]
    fn a_name_costs_two_words() {
        assert_eq!(size_of::<Slot>(), 16);
    }

    #[test]
    fn names_are_equal_in_every_byte() {
        let name = "outbound|8080||a.demo";
        assert!(equal(name, name) && equal("", ""));
        for at in 0..name.len() {
            let mut other = name.to_owned();
            other.replace_range(at..=at, "_");
            assert!(!equal(name, &other), "{other}");
            assert!(!equal(name, &name[at..]) || at == 0);
            assert!(!equal(&name[..at], name));
        }
    }
}
