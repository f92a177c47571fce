//! The sources, as the last update has merged them.

use std::sync::Arc;

use api::model::World;
use sources::aggregate::{Registries, SourceStatus};
use sources::contribution::{Ingresses, SyncState};
use xds::snapshot::Snapshot;

/// The part of the registries that the event loop reads: an update may hold them for long.
#[derive(Debug)]
pub(super) struct MergedSources {
    pub(super) world: World,
    pub(super) ingresses: Vec<Arc<Ingresses>>,
    pub(super) statuses: Vec<SourceStatus>,
    /// The size of the world, with its pods, by which the thread of the next update is chosen.
    pub(super) size: usize,
}

impl MergedSources {
    pub(super) fn of(registries: &Registries) -> Self {
        let world = registries.world();
        Self {
            ingresses: registries.ingresses().cloned().collect(),
            statuses: registries.sources(),
            size: Snapshot::size(&world).saturating_add(world.workloads.len()),
            world,
        }
    }

    /// Iterates over the sources that are not synced yet.
    pub(super) fn missing(&self) -> impl Iterator<Item = &SourceStatus> {
        let all = self.statuses.iter();
        all.filter(|status| status.sync_state == SyncState::Syncing)
    }
}
