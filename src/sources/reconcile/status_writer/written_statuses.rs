//! The last known statuses of objects: a status with the desired messages needs no write.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::ObjectMessages;
use crate::kubernetes::status_queue::Subject;

/// A pending write of a status by server-side apply.
#[derive(Debug, PartialEq)]
pub(super) struct ServerSideApply {
    /// The generation that the messages are about, where it is known.
    pub(super) generation: Option<i64>,
    /// The messages to write; an empty list removes the messages written earlier.
    pub(super) messages: Vec<Value>,
    mark: u64,
}

/// Marks of the last status written for each object with messages.
#[derive(Debug, Default)]
pub(super) struct WrittenStatuses(BTreeMap<Subject, u64>);

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

impl WrittenStatuses {
    /// A status of ours that says something.
    pub(super) fn found(&mut self, subject: Subject) {
        self.0.entry(subject).or_insert(UNKNOWN);
    }

    /// Forgets objects that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Subject) -> bool) {
        self.0.retain(|subject, _| is_there(subject));
    }

    /// Returns the write that an object needs; `None` if it was written so.
    pub(super) fn missing(
        &self,
        subject: &Subject,
        desired: &ObjectMessages,
    ) -> Option<ServerSideApply> {
        let hash = self.0.get(subject).copied();
        let mark = mark(desired);
        let differs = match desired.messages.is_empty() {
            true => hash.is_some(),
            false => hash != Some(mark),
        };
        differs.then(|| ServerSideApply {
            generation: desired.generation,
            messages: desired.messages.clone(),
            mark,
        })
    }

    pub(super) fn done(&mut self, subject: Subject, write: &ServerSideApply) {
        match write.messages.is_empty() {
            true => drop(self.0.remove(&subject)),
            false => drop(self.0.insert(subject, write.mark)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Key;

    fn subject(name: &str) -> Subject {
        Subject {
            group: "g",
            plural: "p",
            key: Key::new("n", name),
        }
    }

    fn desired(content: u64, messages: &[&str]) -> ObjectMessages {
        ObjectMessages {
            content,
            generation: None,
            messages: messages.iter().map(|text| json!(text)).collect(),
        }
    }

    #[test]
    fn a_written_status_is_not_written_again() {
        let mut statuses = WrittenStatuses::default();
        let (a, first) = (subject("a"), desired(1, &["x"]));
        assert_eq!(statuses.missing(&subject("b"), &desired(1, &[])), None);
        let write = statuses.missing(&a, &first).unwrap();
        // Not before it is done.
        assert_eq!(statuses.missing(&a, &first).as_ref(), Some(&write));
        statuses.done(a.clone(), &write);
        assert_eq!(statuses.missing(&a, &first), None);
        // Other words, and the same words about something else.
        assert!(statuses.missing(&a, &desired(1, &["y"])).is_some());
        assert!(statuses.missing(&a, &desired(2, &["x"])).is_some());
        // Nothing is wrong any more: once.
        let none = desired(2, &[]);
        let write = statuses.missing(&a, &none).unwrap();
        assert_eq!(write.messages, [json!(null); 0]);
        statuses.done(a.clone(), &write);
        assert_eq!(statuses.missing(&a, &none), None);
    }

    #[test]
    fn statuses_of_an_earlier_process_are_removed_or_compared() {
        let mut statuses = WrittenStatuses::default();
        let (a, b) = (subject("a"), subject("b"));
        statuses.found(a.clone());
        statuses.found(b.clone());
        let none = desired(1, &[]);
        assert!(statuses.missing(&a, &desired(1, &["x"])).is_some());
        assert!(statuses.missing(&b, &none).is_some());
        // An object that went and came back is a new one.
        statuses.retain(|subject| *subject == a);
        assert_eq!(statuses.missing(&b, &none), None);
    }
}
