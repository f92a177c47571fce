//! The last known statuses of objects, and the statuses that are still to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{GroupResource, ObjectMessages, Subject};

/// Until writes that the server does not allow are tried again: a role may come later.
const REFUSED: Duration = Duration::from_secs(300);

/// One status that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingWrite {
    pub(super) subject: Subject,
    /// The generation that the messages are about, where it is known.
    pub(super) generation: Option<i64>,
    /// The messages to write; an empty list removes the messages written earlier.
    pub(super) messages: Vec<Value>,
    mark: u64,
}

/// Marks of the last status written for each object with messages, and the writes that failed.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    written: BTreeMap<Subject, u64>,
    /// How often in a row the write of an object has failed.
    failed: BTreeMap<Subject, u32>,
    /// Writes that are refused, by their marks: not tried again before this time.
    refused: BTreeMap<Subject, (u64, Instant)>,
    /// Kinds of which no status may be written, likewise: in a namespace, or in none.
    forbidden: BTreeMap<(GroupResource, Option<Box<str>>), Instant>,
    /// The object that was tried last: others have their turn before it has one again.
    last: Option<Subject>,
    logged_refusals: BTreeSet<(String, RefusalExtent)>,
}

/// The writes that a refusal of one of them holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RefusalExtent {
    /// Nothing: a webhook looks at one object as it is.
    Object,
    /// A role may be given in one namespace and missing in another.
    Namespace,
    /// The server does not have the kind.
    Kind,
}

/// Mark of a status that an earlier process has written.
const UNKNOWN: u64 = 0;

fn mark(desired: &ObjectMessages) -> u64 {
    let mut hasher = DefaultHasher::new();
    (desired.content, desired.generation).hash(&mut hasher);
    for message in &desired.messages {
        message.to_string().hash(&mut hasher);
    }
    hasher.finish().max(UNKNOWN + 1)
}

impl PendingWrites {
    /// A status of ours that says something.
    pub(super) fn found(&mut self, subject: Subject) {
        self.written.entry(subject).or_insert(UNKNOWN);
    }

    /// Returns the writes that are due, those that never failed first. Forgets objects that are gone.
    pub(super) fn work(
        &mut self,
        wanted: &BTreeMap<Subject, ObjectMessages>,
        now: Instant,
    ) -> Vec<PendingWrite> {
        self.written
            .retain(|subject, _| wanted.contains_key(subject));
        self.failed
            .retain(|subject, _| wanted.contains_key(subject));
        self.refused
            .retain(|subject, (_, until)| wanted.contains_key(subject) && *until > now);
        self.forbidden.retain(|_, until| *until > now);
        let all = wanted.iter().filter_map(|(subject, desired)| {
            let known = self.written.get(subject).copied();
            let mark = mark(desired);
            let differs = match desired.messages.is_empty() {
                true => known.is_some(),
                false => known != Some(mark),
            };
            let refused = self.refused.get(subject);
            let namespace = Some(subject.key.namespace.clone());
            let waits = self.forbidden.contains_key(&(subject.place(), None))
                || self.forbidden.contains_key(&(subject.place(), namespace))
                || refused.is_some_and(|(refused, _)| *refused == mark);
            (differs && !waits).then(|| PendingWrite {
                subject: subject.clone(),
                generation: desired.generation,
                messages: desired.messages.clone(),
                mark,
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|work| {
            let failed = self.failed.get(&work.subject).copied();
            let had_its_turn = Some(&work.subject) <= self.last.as_ref();
            (failed.unwrap_or_default(), had_its_turn)
        });
        all
    }

    /// Returns when something that was refused may be tried again.
    pub(super) fn next_try(&self, now: Instant) -> Option<Duration> {
        let refused = self.refused.values().map(|(_, until)| until);
        let next = refused.chain(self.forbidden.values()).min()?;
        Some(next.saturating_duration_since(now))
    }

    pub(super) fn done(&mut self, work: &PendingWrite) {
        self.tried(work);
        match work.messages.is_empty() {
            true => drop(self.written.remove(&work.subject)),
            false => drop(self.written.insert(work.subject.clone(), work.mark)),
        }
    }

    /// The object is not the one that the messages are about. It is looked at again when something is told.
    pub(super) fn outdated(&mut self, work: &PendingWrite) {
        self.tried(work);
    }

    pub(super) fn failed(&mut self, work: &PendingWrite) {
        let failed = self.failed.remove(&work.subject).unwrap_or_default();
        self.tried(work);
        self.failed
            .insert(work.subject.clone(), failed.saturating_add(1));
    }

    /// The server does not allow it.
    pub(super) fn refused(&mut self, work: &PendingWrite, extent: RefusalExtent, now: Instant) {
        self.tried(work);
        let until = now + REFUSED;
        let namespace = match extent {
            RefusalExtent::Object => {
                let refused = (work.mark, until);
                self.refused.insert(work.subject.clone(), refused);
                return;
            }
            RefusalExtent::Namespace => Some(work.subject.key.namespace.clone()),
            RefusalExtent::Kind => None,
        };
        self.forbidden
            .insert((work.subject.place(), namespace), until);
    }

    fn tried(&mut self, work: &PendingWrite) {
        self.failed.remove(&work.subject);
        self.last = Some(work.subject.clone());
    }

    pub(super) fn is_new_refusal(&mut self, message: &str, extent: RefusalExtent) -> bool {
        self.logged_refusals.insert((message.to_owned(), extent))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Key;

    fn work(
        pending: &mut PendingWrites,
        wanted: &BTreeMap<Subject, ObjectMessages>,
    ) -> Vec<PendingWrite> {
        pending.work(wanted, Instant::now())
    }

    /// `NAMESPACE/NAME`, or the name of one in `n`.
    fn subject(name: &str) -> Subject {
        let (namespace, name) = name.split_once('/').unwrap_or(("n", name));
        Subject {
            group: "g",
            plural: "p",
            key: Key::new(namespace, name),
        }
    }

    fn desired(all: &[(&str, u64, &[&str])]) -> BTreeMap<Subject, ObjectMessages> {
        let one = |(name, content, messages): &(&str, u64, &[&str])| {
            let wanted = ObjectMessages {
                content: *content,
                generation: None,
                messages: messages.iter().map(|text| json!(text)).collect(),
            };
            (subject(name), wanted)
        };
        all.iter().map(one).collect()
    }

    fn names(work: &[PendingWrite]) -> Vec<&str> {
        work.iter().map(|work| &*work.subject.key.name).collect()
    }

    #[test]
    fn a_written_status_is_not_written_again() {
        let mut pending = PendingWrites::default();
        let first = desired(&[("a", 1, &["x"]), ("b", 1, &[])]);
        let all = work(&mut pending, &first);
        assert_eq!(names(&all), ["a"]);
        // Not before it is done.
        assert_eq!(work(&mut pending, &first), all);
        pending.done(&all[0]);
        assert_eq!(work(&mut pending, &first), []);
        // Other words, and the same words about something else.
        assert_eq!(
            names(&work(&mut pending, &desired(&[("a", 1, &["y"])]))),
            ["a"]
        );
        assert_eq!(
            names(&work(&mut pending, &desired(&[("a", 2, &["x"])]))),
            ["a"]
        );
        // Nothing is wrong any more: once.
        let none = desired(&[("a", 2, &[])]);
        let all = work(&mut pending, &none);
        assert!(names(&all) == ["a"] && all[0].messages.is_empty());
        pending.done(&all[0]);
        assert_eq!(work(&mut pending, &none), []);
    }

    #[test]
    fn statuses_of_an_earlier_process_are_removed_or_compared() {
        let mut pending = PendingWrites::default();
        for name in ["a", "b", "gone"] {
            pending.found(subject(name));
        }
        let wanted = desired(&[("a", 1, &["x"]), ("b", 1, &[])]);
        assert_eq!(names(&work(&mut pending, &wanted)), ["a", "b"]);
        // An object that went and came back is a new one.
        work(&mut pending, &desired(&[]));
        assert_eq!(names(&work(&mut pending, &wanted)), ["a"]);
    }

    #[test]
    fn failed_writes_go_last_and_refused_ones_wait() {
        let mut pending = PendingWrites::default();
        let wanted = desired(&[("a", 1, &["x"]), ("b", 1, &["x"]), ("c", 1, &["x"])]);
        let now = Instant::now();
        let all = pending.work(&wanted, now);
        pending.failed(&all[0]);
        assert_eq!(names(&pending.work(&wanted, now)), ["b", "c", "a"]);
        pending.failed(&all[0]);
        pending.failed(&all[1]);
        assert_eq!(names(&pending.work(&wanted, now)), ["c", "b", "a"]);
        pending.done(&all[0]);
        pending.done(&all[1]);
        assert_eq!(pending.next_try(now), None);
        pending.refused(&all[2], RefusalExtent::Object, now);
        assert_eq!(names(&pending.work(&wanted, now)), [""; 0]);
        assert_eq!(pending.next_try(now), Some(REFUSED));
        // Of another version of the object it need not be so.
        let newer = desired(&[("a", 1, &["x"]), ("b", 1, &["x"]), ("c", 2, &["x"])]);
        assert_eq!(names(&pending.work(&newer, now)), ["c"]);
        assert_eq!(names(&pending.work(&wanted, now + REFUSED)), ["c"]);
        // The right is missing: that is so of all of the kind in the namespace. Without the kind it is so of all.
        let more = desired(&[("c", 2, &["x"]), ("d", 1, &["x"]), ("other/e", 1, &["x"])]);
        for (extent, others) in [
            (RefusalExtent::Namespace, &["e"][..]),
            (RefusalExtent::Kind, &[]),
        ] {
            let mut pending = PendingWrites::default();
            pending.refused(&all[2], extent, now);
            assert_eq!(names(&pending.work(&more, now)), others);
            let later = now + REFUSED;
            assert_eq!(names(&pending.work(&more, later)), ["d", "e", "c"]);
            assert_eq!(pending.next_try(later), None);
        }
    }

    #[test]
    fn an_object_that_always_changes_holds_up_no_other() {
        let mut pending = PendingWrites::default();
        let mut order = Vec::new();
        for round in 0..4 {
            let wanted = desired(&[("a", round, &["x"]), ("b", round, &["x"]), ("c", 0, &["x"])]);
            let all = work(&mut pending, &wanted);
            order.push(all[0].subject.key.name.to_string());
            pending.done(&all[0]);
        }
        assert_eq!(order, ["a", "b", "c", "a"]);
    }
}
