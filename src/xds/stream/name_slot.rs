//! One name of a list, and where it stands.

use std::sync::Arc;

use crate::version::Version;
use crate::view::Resource;

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// Asked for: the next response has it, whatever was sent before.
    Unsent,
    /// The client was mentioned that there is none.
    Absent,
    Sent,
}

/// One name.
#[derive(Clone, Debug)]
pub(super) struct NameSlot {
    pub(super) resource: Arc<Resource>,
    pub(super) state: DeliveryState,
}

impl NameSlot {
    pub(super) fn unsent(name: Arc<str>) -> Self {
        Self {
            resource: nothing(name),
            state: DeliveryState::Unsent,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.resource.name
    }

    pub(super) fn with(&self, state: DeliveryState) -> Self {
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
                || (self.state != DeliveryState::Sent
                    && one.version == two.version
                    && one.name == two.name))
    }

    /// The version that it adds to its list's.
    pub(super) fn version(&self) -> Version {
        match self.state {
            DeliveryState::Unsent => Version::EMPTY,
            DeliveryState::Absent | DeliveryState::Sent => self.resource.version,
        }
    }
}

/// A name without content.
pub(super) fn nothing(name: Arc<str>) -> Arc<Resource> {
    Arc::new(Resource::without_body(name, Version::EMPTY))
}
