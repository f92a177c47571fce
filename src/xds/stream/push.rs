//! Pushes: the parts of a view that a stream has to look at again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::reason::Reasons;
use crate::view::{Type, View};

/// A new view and what may differ in it.
#[derive(Clone, Debug)]
pub struct Push {
    pub view: Arc<dyn View>,
    pub scope: PushScope,
    pub reasons: Reasons,
}

/// The resources that may differ in a view.
#[derive(Clone, Debug)]
pub enum PushScope {
    /// Nothing: the stream only takes the new view, and releases the old one.
    Nothing,
    /// Assignments of these names, and nothing else.
    Endpoints(Arc<BTreeSet<Arc<str>>>),
    /// Anything.
    Full,
}

impl PushScope {
    /// Returns the scope of assignments of these names.
    pub fn of_endpoints(names: &Arc<BTreeSet<Arc<str>>>) -> Self {
        match names.is_empty() {
            true => Self::Nothing,
            false => Self::Endpoints(Arc::clone(names)),
        }
    }

    /// Adds the scope of another push.
    pub fn merge(&mut self, newer: Self) {
        match (self, newer) {
            (Self::Full, _) | (_, Self::Nothing) => {}
            (Self::Endpoints(all), Self::Endpoints(names)) => {
                if !Arc::ptr_eq(all, &names) {
                    Arc::make_mut(all).extend(names.iter().cloned());
                }
            }
            (scope, newer) => *scope = newer,
        }
    }
}

/// Assignments that may differ from what was sent.
#[derive(Clone, Debug, Default)]
pub(super) enum DirtyAssignments {
    #[default]
    None,
    /// Assignments of these names; all streams share the set of one push.
    Names(Arc<BTreeSet<Arc<str>>>),
    All,
}

impl DirtyAssignments {
    pub(super) fn add(&mut self, names: &Arc<BTreeSet<Arc<str>>>) {
        match self {
            Self::All => {}
            Self::None => *self = Self::Names(names.clone()),
            Self::Names(known) if Arc::ptr_eq(known, names) => {}
            Self::Names(known) => Arc::make_mut(known).extend(names.iter().cloned()),
        }
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// A full push that waits for the one under way.
#[derive(Clone, Debug)]
pub(super) struct QueuedPush {
    pub(super) view: Arc<dyn View>,
    pub(super) reasons: Reasons,
}

/// The last push that was begun, for the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastPush {
    pub at: Duration,
    pub reasons: Reasons,
    /// Types of which the push sent a response.
    pub types: Vec<Type>,
}
