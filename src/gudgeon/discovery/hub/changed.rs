//! The objects that changed since the last whole snapshot: the proxies that a push concerns follow from them.

use std::sync::Arc;

use api::model::Changes;

/// `None`: unknown; the next whole snapshot is compared with the one before.
#[derive(Debug, Default)]
pub(super) struct ChangedObjects(Option<Arc<Changes>>);

impl ChangedObjects {
    pub(super) fn add(&mut self, changes: &Changes) {
        if let Some(all) = &mut self.0
            && !changes.is_empty()
        {
            Arc::make_mut(all).extend(changes);
        }
    }

    /// More may have changed than the objects that were added.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns the objects. `is_partial`: the snapshot leaves changes to the next one, which needs them, too.
    pub(super) fn take(&mut self, is_partial: bool) -> Option<Arc<Changes>> {
        if is_partial {
            return self.0.clone();
        }
        self.0.replace(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use api::model::{ChangedKind, ServiceKey};

    use super::*;

    fn changes(hosts: &[&str]) -> Changes {
        let mut changes = Changes::default();
        for host in hosts {
            changes.add(ChangedKind::Service, &ServiceKey::new(host, "demo"));
        }
        changes
    }

    fn taken(all: &mut ChangedObjects, is_partial: bool) -> Option<Changes> {
        all.take(is_partial).map(|all| (*all).clone())
    }

    #[test]
    fn objects_wait_for_the_next_whole_snapshot() {
        let mut all = ChangedObjects::default();
        // Before the first snapshot.
        all.add(&changes(&["a"]));
        assert_eq!(taken(&mut all, false), None);
        all.add(&changes(&["b"]));
        assert_eq!(taken(&mut all, true), Some(changes(&["b"])));
        all.add(&changes(&["c"]));
        assert_eq!(taken(&mut all, false), Some(changes(&["b", "c"])));
        assert_eq!(taken(&mut all, false), Some(Changes::default()));
    }

    #[test]
    fn objects_of_a_snapshot_that_cannot_be_made_are_unknown() {
        let mut all = ChangedObjects::default();
        let _first = all.take(false);
        all.add(&changes(&["a"]));
        assert!(all.take(false).is_some());
        all.forget();
        all.add(&changes(&["b"]));
        assert_eq!(taken(&mut all, true), None);
        assert_eq!(taken(&mut all, false), None);
        assert_eq!(taken(&mut all, false), Some(Changes::default()));
    }
}
