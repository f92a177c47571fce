//! The standing of each source, and the time since it has that.

use std::collections::BTreeMap;
use std::time::Duration;

use api::model::Changes;
use sources::registry::{SourceId, SyncState};

use super::Hub;

impl Hub {
    /// Sets the standing of a source, from now on.
    pub(crate) fn stand(&self, id: &SourceId, standing: SyncState) {
        self.stand_since(id, standing, self.clock.now());
    }

    /// Sets the standing of a source. `since` counts only if its variant changes.
    pub(crate) fn stand_since(&self, id: &SourceId, standing: SyncState, since: Duration) {
        let mut state = self.state();
        let kind = std::mem::discriminant::<SyncState>;
        if state.standing.get(id).map(|(known, _)| kind(known)) != Some(kind(&standing)) {
            state.standing.insert(id.clone(), (standing.clone(), since));
        }
        drop(state);
        self.update(|registries| {
            registries.stand(id, standing);
            Changes::default()
        });
    }

    /// A source is no more.
    pub(crate) fn forget(&self, id: &SourceId) {
        self.state().standing.remove(id);
        self.facts.forget(id);
        self.update(|registries| registries.remove(id));
    }

    /// Since when each source is as far as it is.
    pub(crate) fn standing_since(&self) -> BTreeMap<SourceId, Duration> {
        let state = self.state();
        let since = |(id, (_, at)): (&SourceId, &(SyncState, Duration))| (id.clone(), *at);
        state.standing.iter().map(since).collect()
    }
}
