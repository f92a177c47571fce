//! One name of a list: where it stands, and what comes of looking at it.

use std::sync::Arc;

use super::Lookup;
use super::lists::Lists;
use super::message::{Client, Protocol};
use crate::version::Version;
use crate::view::{Resource, Type};

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked for: the next response has it, whatever was sent before.
    Unsent,
    /// The client was mentioned that there is none.
    Absent,
    Sent,
}

/// One name.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) resource: Arc<Resource>,
    pub(super) state: State,
}

impl Slot {
    pub(super) fn unsent(name: Arc<str>) -> Self {
        Self {
            resource: nothing(name),
            state: State::Unsent,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.resource.name
    }

    pub(super) fn with(&self, state: State) -> Self {
        Self {
            resource: self.resource.clone(),
            state,
        }
    }

    /// Returns true if one slot can stand for the other. A resource that was sent must be the same copy, not only the same
    /// content: a stream with an older copy keeps an older snapshot's bytes.
    pub(super) fn is(&self, other: &Self) -> bool {
        let (one, two) = (&self.resource, &other.resource);
        self.state == other.state
            && (Arc::ptr_eq(one, two)
                || (self.state != State::Sent
                    && one.version == two.version
                    && one.name == two.name))
    }

    /// The version that it adds to its list's.
    pub(super) fn version(&self) -> Version {
        match self.state {
            State::Unsent => Version::EMPTY,
            State::Absent | State::Sent => self.resource.version,
        }
    }
}

/// A name without content.
fn nothing(name: Arc<str>) -> Arc<Resource> {
    Arc::new(Resource::without_body(name, Version::EMPTY))
}

/// The way in which a client learns that a name has no resource.
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
    pub(super) fn of(kind: Type, protocol: Protocol, client: Client) -> Self {
        match (protocol, client) {
            (Protocol::Delta, _) => Self::Removed,
            (Protocol::StateOfTheWorld, Client::Envoy) if kind.has_empty() => Self::Empty,
            (Protocol::StateOfTheWorld, Client::Envoy | Client::Grpc) => Self::Silence,
        }
    }
}

/// The content of a response.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) resources: Vec<Arc<Resource>>,
    pub(super) removed: Vec<Arc<str>>,
    /// Something that is gone was left as it was.
    pub(super) held: bool,
    /// Something could not be made, and was left as it was.
    pub(super) failed: bool,
    /// The version of everything that the client has after it.
    pub(super) version: Version,
}

impl Found {
    pub(super) fn new(version: Version) -> Self {
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

    /// Returns true if it answers a request. One that wanted only what cannot be made has no answer.
    pub(super) fn is_answer(&self) -> bool {
        !(self.failed && self.is_empty())
    }
}

/// A slot of a list that a look at its name has changed.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) at: usize,
    pub(super) slot: Slot,
    /// The response speaks of it.
    pub(super) mentioned: bool,
}

/// The lookup of resources by name, for one response.
pub(super) struct Source<'a> {
    pub(super) get: &'a dyn Fn(&str) -> Lookup,
    pub(super) absence: Absence,
    /// True if resources that are gone stay as they were sent.
    pub(super) hold: bool,
    /// The nonce of the response that is made; 0: there is none.
    pub(super) nonce: u32,
    pub(super) lists: &'a Lists,
}

/// Holds one slot against what there is now. `None`: it stays as it is.
pub(super) fn look(
    at: usize,
    slot: &Slot,
    source: &Source<'_>,
    found: &mut Found,
) -> Option<Change> {
    let Ok(current) = (source.get)(slot.name()) else {
        found.failed = true;
        return None;
    };
    let before = slot.version();
    let mut mentioned = true;
    let slot = if let Some(current) = current {
        mentioned = slot.state != State::Sent || slot.resource.version != current.version;
        if mentioned {
            found.resources.push(current.clone());
        } else if Arc::ptr_eq(&slot.resource, &current) {
            return None;
        }
        // The same content too: whoever holds the older copy keeps an older snapshot's bytes.
        Slot {
            resource: current,
            state: State::Sent,
        }
    } else {
        match slot.state {
            State::Absent => return None,
            State::Sent if source.hold => {
                found.held = true;
                return None;
            }
            State::Sent | State::Unsent => {}
        }
        let name = slot.name().clone();
        let resource = match source.absence {
            Absence::Empty => {
                let empty = Arc::new(Resource::empty(&name));
                found.resources.push(empty.clone());
                empty
            }
            Absence::Silence => nothing(name),
            Absence::Removed => {
                found.removed.push(name.clone());
                nothing(name)
            }
        };
        Slot {
            resource,
            state: State::Absent,
        }
    };
    found.version = found.version - before + slot.version();
    Some(Change {
        at,
        slot,
        mentioned,
    })
}

/// A nonce as a name keeps it. No stream sends four billion responses.
pub(super) fn short(nonce: u64) -> u32 {
    u32::try_from(nonce).unwrap_or(u32::MAX)
}
