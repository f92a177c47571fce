//! The readiness of the role, part by part: the owner of a part reports what it waits for, and when it is ready. Disabled
//! parts are never named.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// The state of all parts, with notifications of changes.
#[derive(Debug)]
pub(crate) struct Readiness(watch::Sender<Parts>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    draining: bool,
    /// The reason for which a part is not ready.
    missing: BTreeMap<&'static str, String>,
    /// Parts that are not ready, and not required.
    optional: BTreeMap<&'static str, String>,
}

impl Parts {
    /// Returns the missing parts in one line; `None` if all are ready.
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        if self.draining {
            return Some("draining".to_owned());
        }
        let missing: Vec<&str> = self.missing.values().map(String::as_str).collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::default())
    }

    /// A part is not there, and why.
    pub(crate) fn lacks(&self, part: &'static str, why: impl Into<String>) {
        let why = why.into();
        self.0.send_if_modified(|parts| {
            let before = parts.missing.insert(part, why.clone());
            before.as_ref() != Some(&why)
        });
    }

    /// A part is not there, and the role is ready without it.
    pub(crate) fn does_without(&self, part: &'static str, why: impl Into<String>) {
        let why = why.into();
        self.0
            .send_modify(|parts| drop(parts.optional.insert(part, why)));
    }

    /// Marks a part as ready.
    pub(crate) fn has(&self, part: &'static str) {
        self.0.send_if_modified(|parts| {
            let is_missed = parts.missing.remove(part).is_some();
            // Both removals have to happen, so the first is no operand of `||`.
            parts.optional.remove(part).is_some() || is_missed
        });
    }

    /// Returns the reasons of optional parts that are not ready.
    pub(crate) fn optional_messages(&self) -> Vec<String> {
        self.0.borrow().optional.values().cloned().collect()
    }

    /// Marks the role as not ready from now on.
    pub(crate) fn drains(&self) {
        self.0.send_modify(|parts| parts.draining = true);
    }

    pub(crate) fn why_not_ready(&self) -> Option<String> {
        self.0.borrow().why_not_ready()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Parts> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_missing_is_one_line() {
        let readiness = Readiness::new();
        let mut changes = readiness.changes();
        assert_eq!(readiness.why_not_ready(), None);
        readiness.lacks("b", "b is closed");
        readiness.lacks("a", "a is late");
        assert_eq!(
            readiness.why_not_ready().as_deref(),
            Some("a is late; b is closed")
        );
        changes.borrow_and_update();
        readiness.lacks("a", "a is late");
        readiness.has("c");
        assert!(!changes.has_changed().unwrap());
        readiness.has("a");
        readiness.has("b");
        assert!(changes.has_changed().unwrap());
        assert_eq!(readiness.why_not_ready(), None);
        readiness.does_without("b", "b is closed");
        assert_eq!(readiness.why_not_ready(), None);
        assert_eq!(readiness.optional_messages(), ["b is closed"]);
        readiness.has("b");
        assert!(readiness.optional_messages().is_empty());
        readiness.drains();
        assert_eq!(readiness.why_not_ready().as_deref(), Some("draining"));
    }
}
