//! The inputs of the next snapshot: the mesh as the last update has merged it, and all that waits for the debounce.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::model::{Changes, PushRequest, TriggerReason, World};
use api::security::{JwksSource, KeySet};
use sources::contribution::Ingresses;
use xds::debounce::{Debounce, DebounceOptions, DueBatch};

use super::changed::ChangedObjects;
use super::merged_sources::MergedSources;
use super::peer_authentications::PeerAuthenticationHistory;
use super::plaintext::Plaintext;
use crate::discovery::metrics::DiscoveryMetrics;

type KeySets = Arc<BTreeMap<JwksSource, KeySet>>;

#[derive(Debug)]
pub(super) struct SnapshotInputs {
    pub(super) merged: MergedSources,
    pub(super) plaintext: Plaintext,
    options: DebounceOptions,
    debounce: Debounce,
    changed: ChangedObjects,
    peers: PeerAuthenticationHistory,
    key_sets: KeySets,
}

/// The mesh of a snapshot, but for the rules that are made of Ingresses: making them takes a while.
#[derive(Debug)]
pub(super) struct WorldInputs {
    pub(super) world: World,
    pub(super) ingresses: Vec<Arc<Ingresses>>,
    /// As in [`MergedSources`].
    pub(super) size: usize,
}

/// The inputs that one push takes over.
#[derive(Debug)]
pub(super) struct DueInputs {
    pub(super) batch: DueBatch,
    pub(super) inputs: WorldInputs,
    /// `None`: more may have changed than is known.
    pub(super) changes: Option<Arc<Changes>>,
}

impl SnapshotInputs {
    pub(super) fn new(merged: MergedSources, options: DebounceOptions) -> Self {
        Self {
            merged,
            plaintext: Plaintext::default(),
            options,
            debounce: Debounce::new(options),
            changed: ChangedObjects::default(),
            peers: PeerAuthenticationHistory::default(),
            key_sets: Arc::default(),
        }
    }

    /// Takes an update: the mesh after it, the objects that it changed, and the pushes that follow, which go out after the debounce.
    pub(super) fn change(
        &mut self,
        now: Duration,
        merged: MergedSources,
        changes: &Changes,
        pushes: Vec<PushRequest>,
        metrics: &DiscoveryMetrics,
    ) {
        self.merged = merged;
        self.changed.add(changes);
        for request in pushes {
            metrics.updated(&request);
            self.debounce.request(now, request);
        }
    }

    /// Makes a whole snapshot due, after the debounce.
    pub(super) fn change_all(&mut self, now: Duration, reason: TriggerReason) {
        self.debounce.request(now, PushRequest::Full(reason));
    }

    /// Takes keys that were fetched: proxies whose policies use others than before are to have them.
    pub(super) fn put_key_sets(&mut self, now: Duration, keys: BTreeMap<JwksSource, KeySet>) {
        self.key_sets = Arc::new(keys);
        self.change_all(now, TriggerReason::Config);
    }

    /// Returns the mesh of the first snapshot, with all changes that waited.
    pub(super) fn begin(&mut self, now: Duration) -> WorldInputs {
        self.debounce = Debounce::new(self.options);
        let _before = self.changed.take(false);
        self.world(now)
    }

    /// Returns the mesh that is to be served.
    fn world(&mut self, now: Duration) -> WorldInputs {
        let MergedSources {
            world,
            ingresses,
            size,
            ..
        } = &self.merged;
        let mut world = world.clone();
        let current = &world.peer_authentications;
        world.earlier_peer_authentications = self.peers.earlier(current, now);
        world.key_sets = Arc::clone(&self.key_sets);
        WorldInputs {
            world,
            ingresses: ingresses.clone(),
            size: *size,
        }
    }

    /// Returns the time at which a snapshot or a push is due, if nothing else changes before.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let all = [
            self.debounce.deadline(),
            self.peers.deadline(),
            self.plaintext.deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Takes the inputs of a push that is due by now.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<DueInputs> {
        if self.peers.expire(now) {
            self.change_all(now, TriggerReason::Config);
        }
        let batch = self.debounce.due(now)?;
        let changes = self.changed.take(batch.partial);
        Some(DueInputs {
            batch,
            inputs: self.world(now),
            changes,
        })
    }

    /// Takes note of the end of a push. `is_made`: the push has made a snapshot, which is served now.
    pub(super) fn pushed(&mut self, batch: &DueBatch, is_made: bool) {
        if !is_made {
            // The changes are lost with the snapshot that failed: the next one is compared as a whole.
            self.changed.forget();
        }
        self.debounce.done(batch, is_made);
    }
}
