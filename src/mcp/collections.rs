//! The collections, and the groups that are published together. A sink that subscribes to an unknown collection is
//! misconfigured, and gets an error.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use api::config::collections::SYNTHETIC;
use api::config::collections::{always_empty, served};

/// Collections that are published at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Objects that users wrote.
    Default,
    /// Objects that were generated from Services: they change more often, and wait for no other source.
    SyntheticServiceEntry,
}

impl Group {
    pub const ALL: [Self; 2] = [Self::Default, Self::SyntheticServiceEntry];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::SyntheticServiceEntry => "syntheticServiceEntry",
        }
    }
}

/// Every collection that a sink may request.
#[derive(Clone, Debug)]
pub struct Collections {
    collections: BTreeMap<Arc<str>, Group>,
}

impl Collections {
    /// Returns all collections.
    pub fn all() -> Self {
        Self::new(served())
    }

    /// Returns these collections, plus the synthetic one and those that are always empty, because sinks of old
    /// releases subscribe to them and wait for a response.
    pub fn new<'a>(collections: impl IntoIterator<Item = &'a str>) -> Self {
        let collections = collections.into_iter().map(str::to_owned);
        let mut collections: BTreeMap<Arc<str>, Group> = collections
            .chain(always_empty())
            .map(|name| (name.into(), Group::Default))
            .collect();
        collections.insert(SYNTHETIC.into(), Group::SyntheticServiceEntry);
        Self { collections }
    }

    /// The name as it is shared, and its group.
    pub fn find(&self, name: &str) -> Option<(&Arc<str>, Group)> {
        self.collections
            .get_key_value(name)
            .map(|(name, group)| (name, *group))
    }

    pub fn of(&self, group: Group) -> impl Iterator<Item = &Arc<str>> {
        self.collections
            .iter()
            .filter(move |(_, of)| **of == group)
            .map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_of_older_sinks_exist() {
        let collections = Collections::new(["a", "b"]);
        let group = |name: &str| collections.find(name).map(|(_, group)| group);
        for name in [
            "a",
            "b",
            "k8s/core/v1/pods",
            "k8s/extensions/v1beta1/ingresses",
            "istio/config/v1alpha2/legacy/zipkins",
        ] {
            assert_eq!(group(name), Some(Group::Default), "{name}");
        }
        assert_eq!(group(SYNTHETIC), Some(Group::SyntheticServiceEntry));
        for name in ["", "c", "k8s/core/v1/", "zipkins", crate::TRIGGER] {
            assert_eq!(group(name), None, "{name}");
        }
        assert_eq!(collections.of(Group::Default).count(), 2 + 6 + 1 + 31);
        assert_eq!(collections.of(Group::SyntheticServiceEntry).count(), 1);
        let all = Collections::all();
        let empty = always_empty().count();
        assert_eq!(all.of(Group::Default).count(), served().count() - 1 + empty);
        for name in served() {
            assert!(all.find(name).is_some());
        }
    }
}
