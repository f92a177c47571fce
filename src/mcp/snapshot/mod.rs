//! The state that all sinks are to have at one moment. A snapshot never changes: fast and slow streams share it, and
//! a newer one shares the memory of all equal resources.

mod group_snapshot;
mod resource;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::group_snapshot::GroupSnapshot;
pub(crate) use self::resource::content;
pub use self::resource::{Origin, Resource};
use crate::collections::Group;
use crate::version::{Sum, member};

/// Resources of one kind, each name once, sorted by name.
#[derive(Clone, Debug)]
pub struct Collection {
    name: Arc<str>,
    members: Vec<Arc<Resource>>,
    version: Sum,
    bytes: usize,
}

impl Collection {
    /// Builds a collection of resources that are sorted by name, each name once.
    pub fn of_sorted(name: Arc<str>, members: Vec<Arc<Resource>>) -> Self {
        let versions = members.iter().map(|one| member(&one.name, one.version));
        Self {
            name,
            version: versions.sum(),
            bytes: members.iter().map(|one| one.framed().len()).sum(),
            members,
        }
    }

    pub fn empty(name: Arc<str>) -> Self {
        Self {
            name,
            members: Vec::new(),
            version: Sum::EMPTY,
            bytes: 0,
        }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub fn version(&self) -> Sum {
        self.version
    }

    pub fn members(&self) -> &[Arc<Resource>] {
        &self.members
    }

    /// Returns the length of all members in wire format.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let at = self
            .members
            .binary_search_by(|member| (*member.name).cmp(name));
        at.ok().and_then(|at| self.members.get(at))
    }
}

/// The collections of one group.
#[derive(Clone, Debug)]
pub struct Snapshot {
    group: Group,
    collections: BTreeMap<Arc<str>, Arc<Collection>>,
}

impl Snapshot {
    pub fn group(&self) -> Group {
        self.group
    }

    pub fn get(&self, collection: &str) -> Option<&Arc<Collection>> {
        self.collections.get(collection)
    }

    /// Returns a snapshot in which some collections are replaced.
    #[must_use]
    pub fn map(&self, mut other: impl FnMut(&Arc<Collection>) -> Arc<Collection>) -> Self {
        let collections = self.collections.iter();
        Self {
            group: self.group,
            collections: collections
                .map(|(name, collection)| (name.clone(), other(collection)))
                .collect(),
        }
    }

    pub fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.collections.values()
    }

    /// Returns the sum of all collections' versions.
    pub fn version(&self) -> Sum {
        self.collections().map(|one| one.version).sum()
    }
}
