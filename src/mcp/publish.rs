//! The publisher: the pending snapshots of all groups, each with its debounce.
//!
//! A new session fills empty group snapshots. The published ones stay until it has delivered its full list, so that no sink
//! sees an empty collection in between; equal content has an equal version, so nothing is sent for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::collections::{Collections, Group};
use crate::debounce::{Debounce, DebounceOptions, DueChanges};
use crate::snapshot::{GroupSnapshot, Resource, Snapshot};

/// The state of one group.
#[derive(Debug)]
struct GroupPublisher {
    pending: GroupSnapshot,
    debounce: Debounce,
    published: Option<Published>,
}

/// A snapshot that went out.
#[derive(Clone, Debug)]
pub struct Published {
    pub snapshot: Arc<Snapshot>,
    pub at: Duration,
    pub due: DueChanges,
}

/// Collects changes by group, and publishes snapshots when they are due.
#[derive(Debug)]
pub struct Publisher {
    collections: Arc<Collections>,
    groups: BTreeMap<Group, GroupPublisher>,
}

impl Publisher {
    /// Creates a publisher that publishes nothing before [`Self::open`].
    pub fn new(collections: Arc<Collections>) -> Self {
        let group_publisher = |group| GroupPublisher {
            pending: GroupSnapshot::new(&collections, group),
            debounce: Debounce::new(DebounceOptions::of(group)),
            published: None,
        };
        let groups = Group::ALL.map(|group| (group, group_publisher(group)));
        Self {
            groups: groups.into(),
            collections,
        }
    }

    /// Begins a new session, which sets all resources again.
    pub fn begin(&mut self) {
        for (group, group_publisher) in &mut self.groups {
            group_publisher.pending = GroupSnapshot::new(&self.collections, *group);
            group_publisher.debounce.close();
        }
    }

    /// Marks the initial state as complete.
    pub fn open(&mut self, now: Duration) {
        for group_publisher in self.groups.values_mut() {
            group_publisher.debounce.open(now);
        }
    }

    /// Sets a resource. Returns true if that changes anything.
    pub fn set(&mut self, now: Duration, collection: &str, resource: Arc<Resource>) -> bool {
        self.change(now, collection, |pending| pending.set(collection, resource))
    }

    /// Removes a resource, as [`Self::set`] sets one.
    pub fn remove(&mut self, now: Duration, collection: &str, name: &str) -> bool {
        self.change(now, collection, |pending| pending.remove(collection, name))
    }

    fn change(
        &mut self,
        now: Duration,
        collection: &str,
        change: impl FnOnce(&mut GroupSnapshot) -> bool,
    ) -> bool {
        let group = self.collections.find(collection).map(|(_, group)| group);
        let Some(group_publisher) = group.and_then(|group| self.groups.get_mut(&group)) else {
            return false;
        };
        let changed = change(&mut group_publisher.pending);
        // A change without effect must not extend the debounce.
        if changed {
            group_publisher.debounce.change(now);
        }
        changed
    }

    /// The snapshots that go out now.
    pub fn due(&mut self, now: Duration) -> Vec<Published> {
        let mut out = Vec::new();
        for group_publisher in self.groups.values_mut() {
            if let Some(due) = group_publisher.debounce.due(now) {
                let published = Published {
                    snapshot: group_publisher.pending.snapshot(),
                    at: now,
                    due,
                };
                group_publisher.published = Some(published.clone());
                out.push(published);
            }
        }
        out
    }

    /// Returns the time to call [`Self::due`]; `None`: not before the next change.
    pub fn deadline(&self) -> Option<Duration> {
        let groups = self.groups.values();
        groups
            .filter_map(|group_publisher| group_publisher.debounce.deadline())
            .min()
    }

    /// The published snapshots, for a stream that begins.
    pub fn published(&self) -> impl Iterator<Item = &Published> {
        self.groups
            .values()
            .filter_map(|group_publisher| group_publisher.published.as_ref())
    }

    /// Returns true if every group has been published once.
    pub fn is_ready(&self) -> bool {
        self.groups
            .values()
            .all(|group_publisher| group_publisher.published.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::SYNTHETIC;
    use crate::message::RequestResources;
    use crate::snapshot::Origin;
    use crate::source::{Dialer, Source};

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn resource(name: &str, body: u8) -> Arc<Resource> {
        Arc::new(Resource::new(Origin {
            name: name.to_owned(),
            body: vec![body].into(),
            ..Origin::default()
        }))
    }

    /// A publisher with one stream that asks for all and accepts all.
    struct Play {
        publisher: Publisher,
        source: Source,
        now: Duration,
    }

    impl Play {
        fn new() -> Self {
            let collections = Arc::new(Collections::new(["a"]));
            let mut source = Source::new(collections.clone(), Dialer::Sink);
            for collection in ["a", SYNTHETIC] {
                let request = RequestResources {
                    collection: collection.to_owned(),
                    ..RequestResources::default()
                };
                source.request(at(0), &request).unwrap();
            }
            Self {
                publisher: Publisher::new(collections),
                source,
                now: at(0),
            }
        }

        fn open(&mut self, now: u64) {
            self.now = at(now);
            self.publisher.open(at(now));
        }

        fn set(&mut self, now: u64, name: &str, body: u8) {
            self.now = at(now);
            self.publisher.set(at(now), "a", resource(name, body));
        }

        /// Runs until that time; returns the time of each response, and the names of its resources.
        fn run(&mut self, until: u64) -> Vec<String> {
            let mut log = Vec::new();
            while let Some(now) = self.publisher.deadline().filter(|now| *now <= at(until)) {
                // One that has passed while the group was closed.
                let now = now.max(self.now);
                for published in self.publisher.due(now) {
                    self.source.snapshot(published.snapshot);
                }
                while let Some(response) = self.source.due() {
                    let members = response.resources.members().iter();
                    let names: Vec<_> = members.map(|one| one.name.to_string()).collect();
                    let kind = response.collection.rsplit('/').next().unwrap();
                    log.push(format!("{} {kind}: {}", now.as_millis(), names.join(" ")));
                    let ack = RequestResources {
                        collection: response.collection.to_string(),
                        response_nonce: response.nonce.to_string(),
                        ..RequestResources::default()
                    };
                    self.source.request(now, &ack).unwrap();
                }
            }
            log
        }
    }

    #[test]
    fn each_group_goes_out_in_its_own_time() {
        let mut play = Play::new();
        play.set(0, "1", 0);
        assert_eq!(play.run(5000), [""; 0]);
        assert!(!play.publisher.is_ready());
        play.open(5000);
        // The change has waited for longer than a second.
        assert_eq!(play.run(5000), ["5000 a: 1", "5000 serviceentries: "]);
        assert!(play.publisher.is_ready());
        play.set(6000, "2", 0);
        play.set(6400, "3", 0);
        let service = resource("n/s", 0);
        assert!(play.publisher.set(at(6400), SYNTHETIC, service));
        assert_eq!(
            play.run(9000),
            ["6400 serviceentries: n/s", "6900 a: 1 2 3"]
        );
        let published = play.publisher.published().next().unwrap();
        assert_eq!((published.at, published.due.count), (at(6900), 2));
    }

    #[test]
    fn a_change_without_effect_is_not_published() {
        let mut play = Play::new();
        play.set(0, "1", 0);
        play.open(0);
        play.run(1000);
        play.set(1000, "1", 0);
        assert!(!play.publisher.remove(at(1000), "a", "2"));
        assert!(!play.publisher.set(at(1000), "unknown", resource("1", 0)));
        assert_eq!(play.publisher.deadline(), None);
    }

    #[test]
    fn a_new_session_empties_nothing_and_repeats_nothing() {
        let mut play = Play::new();
        for name in ["1", "2", "3"] {
            play.set(0, name, 0);
        }
        play.open(0);
        play.run(1000);
        // The new session sets all resources again.
        play.publisher.begin();
        for name in ["1", "2", "3"] {
            play.set(2000, name, 0);
        }
        assert_eq!(play.run(9000), [""; 0]);
        play.open(9000);
        assert_eq!(play.run(10_000), [""; 0]);
        // And once more, when one has gone and one has changed meanwhile.
        play.publisher.begin();
        play.set(11_000, "2", 1);
        assert_eq!(play.run(12_000), [""; 0]);
        assert!(play.publisher.is_ready());
        play.set(12_000, "3", 0);
        play.open(12_100);
        assert_eq!(play.run(13_000), ["12100 a: 2 3"]);
    }
}
