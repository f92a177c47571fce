//! Objects whose statuses are written, each with its findings: a status that another writer overwrites is repaired without another
//! check of the object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Bounds;
use api::config::Finding;
use tokio::time::Instant;

use super::analysis::{MergePatch, StatusWrites};
use super::watched_object::WatchedObject;
use crate::kind::{Key, Resource};
use crate::kubernetes::status_queue::Subject;

/// The statuses that are to be written, and the last checks behind those that were.
#[derive(Debug)]
pub(super) struct Analysis {
    writes: StatusWrites,
    last_checks: LastChecks,
}

impl Analysis {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            writes: StatusWrites::new(bounds),
            last_checks: LastChecks::default(),
        }
    }

    pub(super) fn writes(&self) -> StatusWrites {
        self.writes.clone()
    }

    /// An object and its pending messages are gone.
    pub(super) fn forget(&mut self, place: &str) {
        if let Some(subject) = self.last_checks.forget(place) {
            self.writes.set(subject, None);
        }
    }

    /// Writes the findings about an object into its status.
    pub(super) fn put(
        &mut self,
        resource: Resource,
        key: &Key,
        place: &Arc<str>,
        object: &WatchedObject,
        findings: &[Finding],
    ) {
        let patch = MergePatch::new(resource, key, object, findings);
        let subject = Subject::new(resource, key.clone());
        self.writes.set(subject.clone(), patch);
        self.last_checks.put(place, subject, object, findings);
    }

    /// Repairs the status of an object that was found as it is before. Returns true if it was.
    pub(super) fn repairs(
        &mut self,
        resource: Resource,
        key: &Key,
        place: &Arc<str>,
        object: &WatchedObject,
    ) -> bool {
        let Some(errors) = self.last_checks.errors(place, object) else {
            return false;
        };
        let subject = Subject::new(resource, key.clone());
        let Some(patch) = MergePatch::new(resource, key, object, errors) else {
            self.writes.set(subject, None);
            return true;
        };
        match self.last_checks.next_repair(place, Instant::now()) {
            Some(at) => self.writes.set_at(subject, patch, at),
            None => self.writes.set(subject, Some(patch)),
        }
        true
    }
}

/// The least time between two repairs of a status that another writer changes as well.
const MIN_REPAIR_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct LastChecks(BTreeMap<Arc<str>, LastCheck>);

#[derive(Debug)]
struct LastCheck {
    subject: Subject,
    uid: Box<str>,
    content: (usize, u64),
    errors: Vec<Finding>,
    /// The time of the last repair, or of the next.
    repair: Option<Instant>,
}

impl LastChecks {
    fn put(
        &mut self,
        place: &Arc<str>,
        subject: Subject,
        object: &WatchedObject,
        findings: &[Finding],
    ) {
        let errors = findings.iter().filter(|finding| finding.is_error());
        // The time of the repair outlives a new check: an edit of the object is no way around the pause.
        let repair = self.0.get(place).and_then(|before| before.repair);
        let last = LastCheck {
            subject,
            uid: object.uid.clone(),
            content: object.content,
            errors: errors.cloned().collect(),
            repair,
        };
        self.0.insert(Arc::clone(place), last);
    }

    fn forget(&mut self, place: &str) -> Option<Subject> {
        self.0.remove(place).map(|last| last.subject)
    }

    /// Returns the errors of an object, if they were found in the same content.
    fn errors(&self, place: &str, object: &WatchedObject) -> Option<&[Finding]> {
        let last = self.0.get(place)?;
        let is_same = last.uid == object.uid && last.content == object.content;
        is_same.then_some(&last.errors)
    }

    /// Returns the time of the next repair, which is at once unless the last one was a moment ago.
    fn next_repair(&mut self, place: &str, now: Instant) -> Option<Instant> {
        let repair = &mut self.0.get_mut(place)?.repair;
        let next = match *repair {
            // It is still to come.
            Some(next) if next > now => next,
            Some(last) => now.max(last + MIN_REPAIR_INTERVAL),
            None => now,
        };
        *repair = Some(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Another writer of the same field would have it written as fast as both can.
    #[test]
    fn a_status_is_repaired_once_a_minute_at_most() {
        let mut last = LastChecks::default();
        let place = Arc::<str>::from("a");
        let object = |spec: u32| -> WatchedObject {
            let object = json!({"metadata": {"name": "a", "uid": "u"}, "spec": spec});
            serde_json::from_value(object).unwrap()
        };
        let resource = Resource {
            group: "g",
            version: "v1",
            name: "p",
        };
        let subject = Subject::new(resource, Key::new("n", "a"));
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(last.next_repair(&place, begun), None);
        let findings = [Finding::error("p", "m"), Finding::warning("p", "w")];
        last.put(&place, subject.clone(), &object(1), &findings);
        assert_eq!(last.errors(&place, &object(1)).unwrap(), &findings[..1]);
        // Of another content nothing was found yet.
        assert_eq!(last.errors(&place, &object(2)), None);
        for (now, next) in [(0, 0), (1, 60), (2, 60), (59, 60), (60, 120), (300, 300)] {
            assert_eq!(
                last.next_repair(&place, after(now)),
                Some(after(next)),
                "{now}"
            );
        }
        // A new version of the object does not begin another minute.
        last.put(&place, subject.clone(), &object(2), &[]);
        assert_eq!(last.next_repair(&place, after(301)), Some(after(360)));
        assert_eq!(last.forget(&place), Some(subject));
        assert_eq!(last.errors(&place, &object(2)), None);
    }
}
