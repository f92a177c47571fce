//! The mesh's kinds that an API server has, by its CustomResourceDefinitions.

use std::collections::BTreeMap;

use api::config::{KINDS, Kind};
use serde::Deserialize;

use crate::kind::{Key, Resource};

pub(super) const RESOURCE: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    name: "customresourcedefinitions",
};

/// API versions, newest first. A server converts between those that it has.
const VERSIONS: [&str; 5] = ["v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Definition {
    spec: DefinitionSpec,
    status: DefinitionStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
    versions: Vec<DefinitionVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionNames {
    plural: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionVersion {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionStatus {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    what: String,
    status: String,
}

/// Installed kinds, each with the version that is read.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    known: BTreeMap<Key, (&'static Kind, &'static str)>,
}

impl Definitions {
    /// Adds or updates a definition.
    pub(super) fn set(&mut self, key: Key, text: &str) {
        let definition = serde_json::from_str::<Definition>(text).ok();
        match definition.and_then(|definition| definition.is()) {
            Some(is) => drop(self.known.insert(key, is)),
            // A definition may stop serving the version or lose its `Established` condition: the kind is gone
            // then.
            None => self.remove(&key),
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.known.remove(key);
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.known.keys().cloned().collect()
    }

    /// Returns group, version and plural of each installed kind, by its collection.
    pub(super) fn resources(&self) -> BTreeMap<&'static str, Resource> {
        let known = self.known.values();
        known
            .map(|(row, version)| {
                let resource = Resource {
                    group: row.group,
                    version,
                    name: row.plural,
                };
                (row.collection, resource)
            })
            .collect()
    }
}

impl Definition {
    /// The kind that it is of, and its newest version, where it is established.
    fn is(&self) -> Option<(&'static Kind, &'static str)> {
        let is_it =
            |row: &&Kind| row.group == self.spec.group && row.plural == self.spec.names.plural;
        let row = KINDS.iter().find(is_it)?;
        let mut conditions = self.status.conditions.iter();
        let is_established =
            conditions.any(|one| one.what == "Established" && one.status == "True");
        let is_served = |version: &&&str| {
            row.versions.contains(version)
                && self
                    .spec
                    .versions
                    .iter()
                    .any(|one| one.served && one.name == **version)
        };
        let version = VERSIONS.iter().find(is_served).filter(|_| is_established)?;
        Some((row, version))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn definition(plural: &str, versions: &[(&str, bool)], established: &str) -> Value {
        let versions: Vec<_> = versions
            .iter()
            .map(|(name, served)| json!({"name": name, "served": served, "schema": {}}))
            .collect();
        json!({
            "spec": {"group": "networking.istio.io", "names": {"plural": plural, "kind": "X"}, "versions": versions},
            "status": {"conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": established}]},
        })
    }

    fn version(definition: &Value) -> Option<&'static str> {
        let mut all = Definitions::default();
        all.set(Key::new("", "x"), &definition.to_string());
        all.resources()
            .values()
            .next()
            .map(|resource| resource.version)
    }

    #[test]
    fn the_newest_that_is_served_is_read() {
        for (versions, read) in [
            (
                &[("v1alpha3", true), ("v1beta1", true), ("v1", true)][..],
                Some("v1"),
            ),
            (
                &[("v1", false), ("v1beta1", true), ("v1alpha3", true)],
                Some("v1beta1"),
            ),
            (&[("v1alpha3", true), ("v2", true)], Some("v1alpha3")),
            (&[("v2", true)], None),
        ] {
            assert_eq!(version(&definition("gateways", versions, "True")), read);
        }
        let served = &[("v1", true)];
        assert_eq!(version(&definition("gateways", served, "False")), None);
        assert_eq!(version(&definition("gatewayz", served, "True")), None);
        // An old kind by a new name of its version.
        assert_eq!(version(&definition("envoyfilters", served, "True")), None);
        assert_eq!(version(&json!({"spec": 5})), None);
    }

    #[test]
    fn every_kind_can_be_read() {
        for row in KINDS {
            assert!(
                row.versions
                    .iter()
                    .all(|version| VERSIONS.contains(version))
            );
        }
        let mut all = Definitions::default();
        let gateways = definition("gateways", &[("v1", true)], "True").to_string();
        all.set(Key::new("", "a"), &gateways);
        assert_eq!(all.resources().len(), 1);
        all.set(Key::new("", "a"), "{}");
        assert!(all.keys().is_empty());
    }
}
