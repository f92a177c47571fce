//! Looking at the names of a list for one response: what it says of them, and where they stand afterwards.

use std::sync::Arc;

use super::Lookup;
use super::lists::Lists;
use super::message::{Client, Protocol};
use super::name_slot::{DeliveryState, NameSlot, nothing};
use crate::version::Version;
use crate::view::{Resource, Type};

/// The way in which a client learns that a name has no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbsenceSignal {
    /// An empty resource of that name answers.
    Empty,
    /// The absence of the resource answers.
    Silence,
    /// The name in `removed_resources` answers.
    Removed,
}

impl AbsenceSignal {
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
pub(super) struct ResponseContent {
    pub(super) resources: Vec<Arc<Resource>>,
    pub(super) removed: Vec<Arc<str>>,
    /// Something that is gone was left as it was.
    pub(super) retained: bool,
    /// Something could not be built, and was left as it was.
    pub(super) failed: bool,
    /// The version of everything that the client has after it.
    pub(super) version: Version,
}

impl ResponseContent {
    pub(super) fn new(version: Version) -> Self {
        Self {
            resources: Vec::new(),
            removed: Vec::new(),
            retained: false,
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
pub(super) struct SlotChange {
    pub(super) at: usize,
    pub(super) slot: NameSlot,
    /// The response speaks of it.
    pub(super) mentioned: bool,
}

/// The lookup of resources by name, for one response.
pub(super) struct ResourceLookup<'a> {
    pub(super) get: &'a dyn Fn(&str) -> Lookup,
    pub(super) absence: AbsenceSignal,
    /// True if resources that are gone stay as they were sent.
    pub(super) hold: bool,
    /// The nonce of the response that is made; 0: there is none.
    pub(super) nonce: u32,
    pub(super) lists: &'a Lists,
}

/// Compares one slot with the current resource; `None`: nothing has changed.
pub(super) fn compare_slot(
    at: usize,
    slot: &NameSlot,
    source: &ResourceLookup<'_>,
    found: &mut ResponseContent,
) -> Option<SlotChange> {
    let Ok(current) = (source.get)(slot.name()) else {
        found.failed = true;
        return None;
    };
    let before = slot.version();
    let mut mentioned = true;
    let slot = if let Some(current) = current {
        mentioned = slot.state != DeliveryState::Sent || slot.resource.version != current.version;
        if mentioned {
            found.resources.push(current.clone());
        } else if Arc::ptr_eq(&slot.resource, &current) {
            return None;
        }
        // The same content too: whoever holds the older copy keeps an older snapshot's bytes.
        NameSlot {
            resource: current,
            state: DeliveryState::Sent,
        }
    } else {
        match slot.state {
            DeliveryState::Absent => return None,
            DeliveryState::Sent if source.hold => {
                found.retained = true;
                return None;
            }
            DeliveryState::Sent | DeliveryState::Unsent => {}
        }
        let name = slot.name().clone();
        let resource = match source.absence {
            AbsenceSignal::Empty => {
                let empty = Arc::new(Resource::empty(&name));
                found.resources.push(empty.clone());
                empty
            }
            AbsenceSignal::Silence => nothing(name),
            AbsenceSignal::Removed => {
                found.removed.push(name.clone());
                nothing(name)
            }
        };
        NameSlot {
            resource,
            state: DeliveryState::Absent,
        }
    };
    // A list's version is the sum of its members', so one change costs one subtraction and one addition.
    found.version = found.version - before + slot.version();
    Some(SlotChange {
        at,
        slot,
        mentioned,
    })
}

/// A nonce as a name keeps it. No stream sends four billion responses.
pub(super) fn short(nonce: u64) -> u32 {
    u32::try_from(nonce).unwrap_or(u32::MAX)
}
