//! The state of a cluster whose watches panicked: their last state stays until the next watches have listed all objects.

use std::sync::Arc;

use tokio::time::Instant;

use super::cluster_state::ClusterUpdate;
use crate::contribution::SyncState;

/// The error until the watches that start after a panic have an error of their own, or have listed all objects.
pub(super) const PANICKED: &str = "its watches panicked, see the log";

impl ClusterUpdate {
    /// Marks the watches as gone: their last state stays in effect.
    pub(super) fn panicked(&mut self, now: Instant) {
        self.fails(PANICKED.into(), now);
    }

    /// Takes the state of a run. Until the run has listed all objects, the state of the earlier run stays in effect: an empty state
    /// in its place would take every service and every policy away.
    pub(super) fn follow(&mut self, update: Self, now: Instant) {
        let keeps = update.sync_state == SyncState::Syncing && self.sync_state != update.sync_state;
        match (keeps, update.error) {
            (true, Some(error)) => self.fails(error, now),
            (true, None) => {}
            (false, error) => *self = Self { error, ..update },
        }
    }

    fn fails(&mut self, error: Arc<str>, now: Instant) {
        if self.sync_state != SyncState::Syncing {
            self.lost.get_or_insert(now);
            let error = Arc::clone(&error);
            self.sync_state = SyncState::Stale { error };
        }
        self.error = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_before_the_first_list_leaves_a_source_syncing() {
        let now = Instant::now();
        let mut update = ClusterUpdate::default();
        update.panicked(now);
        let (state, error) = (&update.sync_state, update.error.as_deref());
        assert_eq!((state, error), (&SyncState::Syncing, Some(PANICKED)));
        assert_eq!(update.lost, None);
        let away = ClusterUpdate {
            error: Some("away".into()),
            ..ClusterUpdate::default()
        };
        update.follow(away.clone(), now);
        assert_eq!(update, away);
    }
}
