//! What has to be there before the role is ready, part by part: whoever makes a part says what it waits for, and when it is
//! there. Parts that are not enabled are never named.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// All parts; whoever looks is told of each change.
#[derive(Debug)]
pub(crate) struct Readiness(watch::Sender<Parts>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    draining: bool,
    /// Why a part is not there.
    missing: BTreeMap<&'static str, String>,
}

impl Parts {
    /// In one line; `None`: nothing is missing.
    pub(crate) fn why_not(&self) -> Option<String> {
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

    /// It is there.
    pub(crate) fn has(&self, part: &'static str) {
        self.0
            .send_if_modified(|parts| parts.missing.remove(part).is_some());
    }

    /// From now on not ready, whatever is there.
    pub(crate) fn drains(&self) {
        self.0.send_modify(|parts| parts.draining = true);
    }

    pub(crate) fn why_not(&self) -> Option<String> {
        self.0.borrow().why_not()
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
        assert_eq!(readiness.why_not(), None);
        readiness.lacks("b", "b is closed");
        readiness.lacks("a", "a is late");
        assert_eq!(
            readiness.why_not().as_deref(),
            Some("a is late; b is closed")
        );
        changes.borrow_and_update();
        readiness.lacks("a", "a is late");
        readiness.has("c");
        assert!(!changes.has_changed().unwrap());
        readiness.has("a");
        readiness.has("b");
        assert!(changes.has_changed().unwrap());
        assert_eq!(readiness.why_not(), None);
        readiness.drains();
        assert_eq!(readiness.why_not().as_deref(), Some("draining"));
    }
}
