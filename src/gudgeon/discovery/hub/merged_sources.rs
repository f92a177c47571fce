//! The sources, as the last update has merged them.

use std::sync::Arc;

use api::model::World;
use sources::aggregate::{Registries, SourceStatus};
use sources::contribution::{Ingresses, SyncState};
use xds::snapshot::Snapshot;

/// Bytes of an Ingress that make as much work as a port of a service. Chosen: one of 500 bytes takes some 50 µs.
const INGRESS_PIECE: usize = 64;

/// The part of the registries that the event loop reads: an update may hold them for long.
#[derive(Debug)]
pub(super) struct MergedSources {
    pub(super) world: World,
    pub(super) ingresses: Vec<Arc<Ingresses>>,
    pub(super) statuses: Vec<SourceStatus>,
    /// The size of the world, with its pods and Ingresses, by which the thread of work on it is chosen.
    pub(super) size: usize,
}

impl MergedSources {
    pub(super) fn of(registries: &Registries) -> Self {
        let world = registries.world();
        let ingresses: Vec<_> = registries.ingresses().cloned().collect();
        let texts = ingresses.iter().flat_map(|all| all.values());
        let pieces = texts.map(|text| text.len() / INGRESS_PIECE).sum::<usize>();
        let size = Snapshot::size(&world) + world.workloads.len() + pieces;
        Self {
            world,
            ingresses,
            statuses: registries.sources(),
            size,
        }
    }

    /// Iterates over the sources that are not synced yet.
    pub(super) fn missing(&self) -> impl Iterator<Item = &SourceStatus> {
        let all = self.statuses.iter();
        all.filter(|status| status.sync_state == SyncState::Syncing)
    }
}
