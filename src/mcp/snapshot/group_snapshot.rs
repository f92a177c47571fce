//! The resources of a group until they are published, which alone are mutable. A snapshot copies only the collections that
//! changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Collection, Resource, Snapshot};
use crate::collections::{Collections, Group};
use crate::version::member;

/// The collections of one group.
#[derive(Debug)]
pub struct GroupSnapshot {
    group: Group,
    collections: BTreeMap<Arc<str>, PendingCollection>,
}

/// A collection as published last, and its changes since, by name.
#[derive(Debug)]
struct PendingCollection {
    published: Arc<Collection>,
    changed: BTreeMap<Arc<str>, Option<Arc<Resource>>>,
}

impl GroupSnapshot {
    /// Empty.
    pub fn new(collections: &Collections, group: Group) -> Self {
        let pending = |name: &Arc<str>| PendingCollection {
            published: Arc::new(Collection::empty(name.clone())),
            changed: BTreeMap::new(),
        };
        Self {
            group,
            collections: collections
                .of(group)
                .map(|name| (name.clone(), pending(name)))
                .collect(),
        }
    }

    /// Sets a resource. Returns true if that changes the published state; a collection of another group does not.
    pub fn set(&mut self, collection: &str, resource: Arc<Resource>) -> bool {
        let Some(pending) = self.collections.get_mut(collection) else {
            return false;
        };
        let is_known = pending
            .get(&resource.name)
            .is_some_and(|earlier| earlier.version == resource.version);
        if !is_known {
            pending
                .changed
                .insert(resource.name.clone(), Some(resource));
        }
        !is_known
    }

    /// Removes a resource, as [`Self::set`] sets one.
    pub fn remove(&mut self, collection: &str, name: &str) -> bool {
        let Some(pending) = self.collections.get_mut(collection) else {
            return false;
        };
        let is_known = pending.get(name).is_some();
        if is_known {
            pending.changed.insert(name.into(), None);
        }
        is_known
    }

    pub fn get(&self, collection: &str, name: &str) -> Option<&Arc<Resource>> {
        self.collections.get(collection)?.get(name)
    }

    /// Builds a snapshot of the present state.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        for pending in self.collections.values_mut() {
            pending.publish();
        }
        let collections = self.collections.iter();
        Arc::new(Snapshot {
            group: self.group,
            collections: collections
                .map(|(name, pending)| (name.clone(), pending.published.clone()))
                .collect(),
        })
    }
}

impl PendingCollection {
    fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        match self.changed.get(name) {
            Some(changed) => changed.as_ref(),
            None => self.published.get(name),
        }
    }

    fn publish(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let old = &self.published;
        let (mut version, mut bytes) = (old.version, old.bytes);
        let mut members = Vec::with_capacity(old.members.len());
        // Both lists are sorted by name, so one pass merges them.
        let mut remaining = old.members.iter().peekable();
        for (name, resource) in std::mem::take(&mut self.changed) {
            while let Some(member) = remaining.next_if(|member| member.name < name) {
                members.push(member.clone());
            }
            if let Some(gone) = remaining.next_if(|member| member.name == name) {
                // The version is a sum: a change costs its own members, not the collection.
                version = version - member(&gone.name, gone.version);
                bytes = bytes.saturating_sub(gone.framed().len());
            }
            if let Some(resource) = resource {
                version = version + member(&resource.name, resource.version);
                bytes = bytes.saturating_add(resource.framed().len());
                members.push(resource);
            }
        }
        members.extend(remaining.cloned());
        // A resource that was added and removed again is no change.
        if version != old.version {
            self.published = Arc::new(Collection {
                name: old.name.clone(),
                members,
                version,
                bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Origin;
    use super::*;

    fn resource(name: &str, body: u8) -> Arc<Resource> {
        Arc::new(Resource::new(Origin {
            name: name.to_owned(),
            body: vec![body].into(),
            ..Origin::default()
        }))
    }

    fn group() -> GroupSnapshot {
        GroupSnapshot::new(&Collections::new(["a", "b"]), Group::Default)
    }

    fn names(snapshot: &Snapshot, collection: &str) -> Vec<String> {
        let members = snapshot.get(collection).unwrap().members();
        members.iter().map(|one| one.name.to_string()).collect()
    }

    #[test]
    fn a_snapshot_stays_and_shares_what_did_not_change() {
        let mut group = group();
        assert!(group.set("a", resource("n/2", 1)));
        assert!(group.set("a", resource("n/1", 1)));
        assert!(group.set("b", resource("n/1", 1)));
        let first = group.snapshot();
        assert!(!group.set("a", resource("n/1", 1)));
        assert!(!group.remove("a", "n/3"));
        assert!(group.remove("a", "n/2"));
        assert!(!group.remove("a", "n/2"));
        assert!(!group.set("unknown", resource("n/1", 1)));
        let second = group.snapshot();
        assert_eq!(names(&first, "a"), ["n/1", "n/2"]);
        assert_eq!(names(&second, "a"), ["n/1"]);
        let shared = |name| Arc::ptr_eq(first.get(name).unwrap(), second.get(name).unwrap());
        assert!(shared("b") && !shared("a"));
        assert!(Arc::ptr_eq(
            &first.get("a").unwrap().members()[0],
            &second.get("a").unwrap().members()[0]
        ));
        // All collections of the group are there, empty or not.
        assert_eq!(names(&second, "k8s/core/v1/pods"), [""; 0]);
        assert!(second.get(crate::collections::SYNTHETIC).is_none());
    }

    #[test]
    fn a_collection_whose_objects_came_and_went_is_the_same() {
        let mut group = group();
        group.set("a", resource("n/1", 1));
        let first = group.snapshot();
        group.set("a", resource("n/1", 2));
        group.set("a", resource("n/2", 1));
        group.remove("a", "n/2");
        group.set("a", resource("n/1", 1));
        let second = group.snapshot();
        assert!(Arc::ptr_eq(
            first.get("a").unwrap(),
            second.get("a").unwrap()
        ));
    }

    proptest! {
        /// A collection depends on its members only, not on its history.
        #[test]
        fn a_collection_is_what_was_put_into_it(
            script in prop::collection::vec((0..6_u8, prop::option::weighted(0.7, 0..3_u8), any::<bool>()), 0..60),
        ) {
            let mut group = group();
            let mut model = BTreeMap::new();
            for (name, body, publish) in script {
                let name = format!("n/{name}");
                match body {
                    Some(body) => {
                        let changed = group.set("a", resource(&name, body));
                        prop_assert_eq!(changed, model.insert(name, body) != Some(body));
                    }
                    None => prop_assert_eq!(group.remove("a", &name), model.remove(&name).is_some()),
                }
                if publish {
                    group.snapshot();
                }
            }
            let snapshot = group.snapshot();
            let got = snapshot.get("a").unwrap();
            let want: Vec<_> = model.iter().map(|(name, body)| resource(name, *body)).collect();
            prop_assert_eq!(got.members(), &want[..]);
            prop_assert_eq!(got.version(), want.iter().map(|one| member(&one.name, one.version)).sum());
            prop_assert_eq!(got.bytes(), want.iter().map(|one| one.framed().len()).sum::<usize>());
        }
    }
}
