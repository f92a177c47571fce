//! The last known statuses of objects, and the statuses that are still to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::{Said, Subject};

/// One status that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) subject: Subject,
    /// None: what was written before goes.
    pub(super) messages: Vec<Value>,
    mark: u64,
}

/// Marks of what was written last, of objects with messages alone.
#[derive(Debug, Default)]
pub(super) struct StatusLedger {
    known: BTreeMap<Subject, u64>,
    refused: BTreeSet<String>,
}

/// Mark of a status that an earlier process has written.
const UNKNOWN: u64 = 0;

fn mark(said: &Said) -> u64 {
    let mut hasher = DefaultHasher::new();
    said.content.hash(&mut hasher);
    for message in &said.messages {
        message.to_string().hash(&mut hasher);
    }
    hasher.finish().max(UNKNOWN + 1)
}

impl StatusLedger {
    /// A status of ours that says something.
    pub(super) fn found(&mut self, subject: Subject) {
        self.known.insert(subject, UNKNOWN);
    }

    /// All that differs from what was written; what is gone is forgotten.
    pub(super) fn work(&mut self, wanted: &BTreeMap<Subject, Said>) -> Vec<Work> {
        self.known.retain(|subject, _| wanted.contains_key(subject));
        let all = wanted.iter().filter_map(|(subject, said)| {
            let known = self.known.get(subject).copied();
            let mark = mark(said);
            let differs = match said.messages.is_empty() {
                true => known.is_some(),
                false => known != Some(mark),
            };
            differs.then(|| Work {
                subject: subject.clone(),
                messages: said.messages.clone(),
                mark,
            })
        });
        all.collect()
    }

    pub(super) fn done(&mut self, work: &Work) {
        match work.messages.is_empty() {
            true => drop(self.known.remove(&work.subject)),
            false => drop(self.known.insert(work.subject.clone(), work.mark)),
        }
    }

    pub(super) fn is_new_refusal(&mut self, words: &str) -> bool {
        self.refused.insert(words.to_owned())
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

    fn said(all: &[(&str, u64, &[&str])]) -> BTreeMap<Subject, Said> {
        let one = |(name, content, messages): &(&str, u64, &[&str])| {
            let said = Said {
                content: *content,
                messages: messages.iter().map(|text| json!(text)).collect(),
            };
            (subject(name), said)
        };
        all.iter().map(one).collect()
    }

    fn names(work: &[Work]) -> Vec<&str> {
        work.iter().map(|work| &*work.subject.key.name).collect()
    }

    #[test]
    fn what_is_written_is_not_written_again() {
        let mut ledger = StatusLedger::default();
        let first = said(&[("a", 1, &["x"]), ("b", 1, &[])]);
        let work = ledger.work(&first);
        assert_eq!(names(&work), ["a"]);
        // Not before it is done.
        assert_eq!(ledger.work(&first), work);
        ledger.done(&work[0]);
        assert_eq!(ledger.work(&first), []);
        // Other words, and the same words about something else.
        assert_eq!(names(&ledger.work(&said(&[("a", 1, &["y"])]))), ["a"]);
        assert_eq!(names(&ledger.work(&said(&[("a", 2, &["x"])]))), ["a"]);
        // Nothing is wrong any more: once.
        let none = said(&[("a", 2, &[])]);
        let work = ledger.work(&none);
        assert!(names(&work) == ["a"] && work[0].messages.is_empty());
        ledger.done(&work[0]);
        assert_eq!(ledger.work(&none), []);
    }

    #[test]
    fn what_an_earlier_process_wrote_goes_or_is_compared() {
        let mut ledger = StatusLedger::default();
        for name in ["a", "b", "gone"] {
            ledger.found(subject(name));
        }
        let wanted = said(&[("a", 1, &["x"]), ("b", 1, &[])]);
        assert_eq!(names(&ledger.work(&wanted)), ["a", "b"]);
        // An object that went and came back is a new one.
        ledger.work(&said(&[]));
        assert_eq!(names(&ledger.work(&wanted)), ["a"]);
    }
}
