//! The resources of one type that a client has, shared with the streams that have the same.

use std::sync::Arc;

use super::lists::List;
use super::name_slot::DeliveryState;
use crate::view::{Resource, Set};

/// The resources of one type that a client has. A copy of it costs nothing by their number.
#[derive(Clone, Debug)]
pub struct SentResources(SharedList);

#[derive(Clone, Debug)]
enum SharedList {
    Set(Arc<Set>),
    Names(Arc<List>),
}

impl SentResources {
    pub(super) fn of_set(all: &Arc<Set>) -> Self {
        Self(SharedList::Set(Arc::clone(all)))
    }

    pub(super) fn of_names(all: &Arc<List>) -> Self {
        Self(SharedList::Names(Arc::clone(all)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let (set, names) = match &self.0 {
            SharedList::Set(all) => (Some(all), None),
            SharedList::Names(all) => (None, Some(all)),
        };
        let names = names.into_iter().flat_map(|all| all.iter());
        let sent = names.filter(|slot| slot.state == DeliveryState::Sent);
        let set = set.into_iter().flat_map(|all| all.iter());
        set.chain(sent.map(|slot| &slot.resource))
    }

    /// The place of the list: of two that are there at a time, those of one place are one.
    pub fn place(&self) -> usize {
        match &self.0 {
            SharedList::Set(all) => Arc::as_ptr(all).addr(),
            SharedList::Names(all) => Arc::as_ptr(all).addr(),
        }
    }
}
