//! The labels and annotations that Ingresses give to the objects made of them. Every object repeats them, so an Ingress of many
//! hosts may come to a thousand times its own size: there is a bound for one Ingress, and one for those of a namespace.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::kubernetes::{Ingress, ObjectMeta};

use super::room::bytes_of;
use super::{has_paths, host_of};
use crate::Key;

/// Bytes of labels and annotations that one object takes over: the limit of Kubernetes for annotations.
pub(super) const MAX_METADATA: usize = 256 << 10;

/// Bytes that they come to in all objects of an Ingress.
const MAX_OF_INGRESS: usize = 1 << 20;

/// Bytes that they come to in all objects of a namespace's Ingresses.
const MAX_OF_NAMESPACE: usize = 16 << 20;

/// The cause for which the objects of an Ingress have none of its labels and annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omission {
    Long,
    OfManyObjects(usize),
    OfNamespace,
}

impl fmt::Display for Omission {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "labels and annotations are not taken over: ")?;
        match self {
            Self::Long => write!(to, "they are longer than {MAX_METADATA} bytes"),
            Self::OfManyObjects(objects) => write!(
                to,
                "in its {objects} objects they come to more than {MAX_OF_INGRESS} bytes"
            ),
            Self::OfNamespace => write!(
                to,
                "those of its namespace's Ingresses come to more than {MAX_OF_NAMESPACE} bytes"
            ),
        }
    }
}

/// The metadata of an Ingress, and the objects that may repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copies {
    bytes: usize,
    objects: usize,
}

impl Copies {
    fn of(ingress: &Ingress) -> Self {
        let ObjectMeta {
            labels,
            annotations,
            ..
        } = &ingress.metadata;
        let rules = ingress.spec.rules.iter().filter(|rule| has_paths(rule));
        let hosts: BTreeSet<&str> = rules.map(host_of).collect();
        Self {
            bytes: bytes_of(labels).saturating_add(bytes_of(annotations)),
            // The Gateway, too.
            objects: hosts.len().saturating_add(1),
        }
    }

    /// Takes the bytes of all objects out of a namespace's room.
    fn take(self, room: &mut usize) -> Result<(), Omission> {
        if self.bytes > MAX_METADATA {
            return Err(Omission::Long);
        }
        let all = self.bytes.saturating_mul(self.objects);
        if all > MAX_OF_INGRESS {
            return Err(Omission::OfManyObjects(self.objects));
        }
        *room = room.checked_sub(all).ok_or(Omission::OfNamespace)?;
        Ok(())
    }
}

/// The Ingresses whose labels and annotations have room: of a namespace the first ones by name.
#[derive(Debug, Default)]
pub(super) struct CarriedMetadata {
    /// By namespace and name.
    copies: BTreeMap<String, BTreeMap<String, Copies>>,
    omitted: BTreeMap<Key, Omission>,
    /// The namespaces whose Ingresses have changed.
    dirty: BTreeSet<String>,
}

impl CarriedMetadata {
    pub(super) const fn new() -> Self {
        Self {
            copies: BTreeMap::new(),
            omitted: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Sets or deletes an Ingress.
    pub(super) fn set(&mut self, key: &Key, ingress: Option<&Ingress>) {
        self.dirty.insert(key.namespace.clone());
        let copies = ingress.map(Copies::of);
        match copies {
            Some(copies) => {
                let own = self.copies.entry(key.namespace.clone()).or_default();
                own.insert(key.name.clone(), copies);
            }
            None => {
                self.omitted.remove(key);
                if let Some(own) = self.copies.get_mut(&key.namespace) {
                    own.remove(&key.name);
                    if own.is_empty() {
                        self.copies.remove(&key.namespace);
                    }
                }
            }
        }
    }

    /// Hands out the room of the namespaces that have changed. Returns the Ingresses that lost or got room.
    pub(super) fn assign_room(&mut self) -> Vec<Key> {
        let mut changed = Vec::new();
        for namespace in std::mem::take(&mut self.dirty) {
            let mut room = MAX_OF_NAMESPACE;
            for (name, copies) in self.copies.get(&namespace).into_iter().flatten() {
                let key = Key::new(&*namespace, &**name);
                let omission = copies.take(&mut room).err();
                let before = match omission {
                    Some(omission) => self.omitted.insert(key.clone(), omission),
                    None => self.omitted.remove(&key),
                };
                if before != omission {
                    changed.push(key);
                }
            }
        }
        changed
    }

    /// Returns the cause for which the objects of an Ingress have none of its metadata.
    pub(super) fn omission(&self, key: &Key) -> Option<String> {
        self.omitted.get(key).map(Omission::to_string)
    }

    /// Returns the metadata that an Ingress gives to its generated objects.
    pub(super) fn carried<'a>(&self, key: &Key, ingress: &'a Ingress) -> Cow<'a, ObjectMeta> {
        let metadata = &ingress.metadata;
        if !self.omitted.contains_key(key) {
            return Cow::Borrowed(metadata);
        }
        Cow::Owned(ObjectMeta {
            creation_timestamp: metadata.creation_timestamp.clone(),
            ..ObjectMeta::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ingress(hosts: usize, annotation: usize) -> Ingress {
        let rules: Vec<_> = (0..hosts)
            .map(|at| json!({"host": format!("h{at}"), "http": {"paths": [{"path": "/"}]}}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"annotations": {"a": "x".repeat(annotation)}},
            "spec": {"rules": rules},
        }))
        .unwrap()
    }

    fn omission(carried: &mut CarriedMetadata, name: &str) -> String {
        carried.assign_room();
        let omission = carried.omission(&Key::new("shop", name));
        omission.unwrap_or_default()
    }

    #[test]
    fn metadata_has_a_bound_in_all_objects_together() {
        let mut carried = CarriedMetadata::new();
        let key = Key::new("shop", "web");
        let prefix = "labels and annotations are not taken over: ";
        for (hosts, annotation, cause) in [
            (1, 200 << 10, ""),
            (1, 300 << 10, "they are longer than 262144 bytes"),
            (4, 200 << 10, ""),
            (
                5,
                200 << 10,
                "in its 6 objects they come to more than 1048576 bytes",
            ),
            (1000, 1000, ""),
            (
                1100,
                1000,
                "in its 1101 objects they come to more than 1048576 bytes",
            ),
        ] {
            let ingress = ingress(hosts, annotation);
            carried.set(&key, Some(&ingress));
            let omission = omission(&mut carried, "web");
            assert_eq!(
                omission.strip_prefix(prefix).unwrap_or_default(),
                cause,
                "{hosts}"
            );
            let count = carried.carried(&key, &ingress).annotations.len();
            assert_eq!(count, usize::from(cause.is_empty()));
        }
        carried.set(&key, None);
        assert_eq!(omission(&mut carried, "web"), "");
        assert!(carried.copies.is_empty() && carried.dirty.is_empty());
    }

    #[test]
    fn a_namespace_has_a_bound_too() {
        let mut carried = CarriedMetadata::new();
        // 900 KiB each.
        let large = ingress(8, 100 << 10);
        for at in 10..30 {
            carried.set(&Key::new("shop", at.to_string()), Some(&large));
            carried.set(&Key::new("other", at.to_string()), None);
        }
        carried.set(&Key::new("other", "web"), Some(&large));
        let omitted: Vec<_> = carried.assign_room().iter().map(Key::to_string).collect();
        assert_eq!(omitted, ["shop/28", "shop/29"]);
        assert_eq!(
            omission(&mut carried, "28"),
            "labels and annotations are not taken over: those of its namespace's Ingresses come to more than 16777216 bytes"
        );
        // Room that one leaves is another's.
        carried.set(&Key::new("shop", "11"), None);
        let changed: Vec<_> = carried.assign_room().iter().map(Key::to_string).collect();
        assert_eq!(changed, ["shop/28"]);
        assert_eq!(omission(&mut carried, "28"), "");
    }
}
