//! The sync state of each source, and since when it has that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::model::Changes;
use sources::contribution::{SourceId, SyncState};

use super::Hub;

#[derive(Debug, Default)]
pub(crate) struct SyncStates(Mutex<BTreeMap<SourceId, (SyncState, Duration)>>);

impl SyncStates {
    fn states(&self) -> MutexGuard<'_, BTreeMap<SourceId, (SyncState, Duration)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the state of a source, and returns true if the last one that was set is another. `since` counts only if its variant
    /// changes.
    fn set(&self, id: &SourceId, to: &SyncState, since: Duration) -> bool {
        let mut states = self.states();
        let kind = std::mem::discriminant::<SyncState>;
        match states.get_mut(id) {
            Some((state, _)) if state == to => return false,
            Some((state, _)) if kind(state) == kind(to) => state.clone_from(to),
            Some(_) | None => {
                states.insert(id.clone(), (to.clone(), since));
            }
        }
        true
    }

    fn remove(&self, id: &SourceId) {
        self.states().remove(id);
    }

    /// The time at which each source came into its state.
    pub(crate) fn since(&self) -> BTreeMap<SourceId, Duration> {
        let states = self.states();
        let since = |(id, (_, at)): (&SourceId, &(SyncState, Duration))| (id.clone(), *at);
        states.iter().map(since).collect()
    }
}

impl Hub {
    /// Sets the sync state of a source, from now on.
    pub(crate) fn set_sync_state(&self, id: &SourceId, to: SyncState) {
        self.set_sync_state_since(id, to, self.clock.now());
    }

    /// Sets the sync state of a source. `since` counts only if its variant changes.
    pub(crate) fn set_sync_state_since(&self, id: &SourceId, to: SyncState, since: Duration) {
        // An update merges all sources anew.
        if !self.sync_states.set(id, &to, since) {
            return;
        }
        let id = id.clone();
        self.update(move |registries| {
            registries.set_sync_state(&id, to);
            // No object changed, but the source's first sync may complete the first snapshot.
            Changes::default()
        });
    }

    /// Removes a source with all that came from it.
    pub(crate) fn forget(&self, id: &SourceId) {
        self.sync_states.remove(id);
        self.facts.forget(id);
        let id = id.clone();
        self.update(move |registries| registries.remove(&id));
    }
}
