//! Which collections there are, and which of them are published together. Any other that a sink asks for is a mistake of its
//! configuration, and it is told so.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Collections that are published at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// What somebody has written.
    Default,
    /// What was made of services: it changes more often, and waits for nobody.
    SyntheticServiceEntry,
}

impl Group {
    pub const ALL: [Self; 2] = [Self::Default, Self::SyntheticServiceEntry];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::SyntheticServiceEntry => "syntheticServiceEntry",
        }
    }
}

/// The one collection of [`Group::SyntheticServiceEntry`].
pub const SYNTHETIC: &str = "istio/networking/v1alpha3/synthetic/serviceentries";

/// Whose kinds nobody uses any more, but sinks of old releases ask for them and wait for an answer: they are empty.
const EMPTY: [(&str, &[&str]); 3] = [
    (
        "k8s/core/v1/",
        &["endpoints", "namespaces", "nodes", "pods", "services"],
    ),
    ("k8s/extensions/v1beta1/", &["ingresses"]),
    (
        "istio/config/v1alpha2/legacy/",
        &[
            "apikeys",
            "authorizations",
            "bypasses",
            "checknothings",
            "circonuses",
            "cloudwatches",
            "deniers",
            "dogstatsds",
            "edges",
            "fluentds",
            "kubernetesenvs",
            "kuberneteses",
            "listcheckers",
            "listentries",
            "logentries",
            "memquotas",
            "metrics",
            "noops",
            "opas",
            "prometheuses",
            "quotas",
            "rbacs",
            "redisquotas",
            "reportnothings",
            "signalfxs",
            "solarwindses",
            "stackdrivers",
            "statsds",
            "stdios",
            "tracespans",
            "zipkins",
        ],
    ),
];

/// Every collection that may be asked for.
#[derive(Clone, Debug)]
pub struct Catalog {
    collections: BTreeMap<Arc<str>, Group>,
}

impl Catalog {
    /// Of the collections that objects go into; the synthetic one and those that stay empty come by themselves.
    pub fn new<'a>(collections: impl IntoIterator<Item = &'a str>) -> Self {
        let empty = EMPTY
            .iter()
            .flat_map(|(folder, names)| names.iter().map(move |name| format!("{folder}{name}")));
        let collections = collections.into_iter().map(str::to_owned).chain(empty);
        let mut collections: BTreeMap<Arc<str>, Group> = collections
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
    fn what_old_sinks_ask_for_is_there() {
        let catalog = Catalog::new(["a", "b"]);
        let group = |name: &str| catalog.find(name).map(|(_, group)| group);
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
        assert_eq!(catalog.of(Group::Default).count(), 2 + 5 + 1 + 31);
        assert_eq!(catalog.of(Group::SyntheticServiceEntry).count(), 1);
    }
}
